package brokers

import (
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Ended is closed when the present life of the process is over: what was asked
// in it is answered no more. While the broker is down it is closed.
func (n *Node) Ended() <-chan struct{} { return n.died.Load().ended }

// Produce appends records. reply is called once, from the broker's loop, so it
// must not block; also for acks=0. It is never called if the process dies first:
// Ended's channel is closed then.
func (n *Node) Produce(r *ProduceRequest, reply func([]ProduceResult)) {
	n.Post(Produce{Request: r, Reply: reply})
}

// Fetch reads records, for a consumer or a follower. reply is as Produce's.
func (n *Node) Fetch(r *FetchRequest, reply func([]FetchResult)) {
	n.Post(Fetch{Request: r, Reply: reply})
}

// ListOffsets answers in the order of the queries; replica is who asks, or
// Consumer or DebugConsumer, and committed is read_committed. reply is as Produce's.
func (n *Node) ListOffsets(q []OffsetQuery, replica kafka.BrokerID, committed bool, reply func([]OffsetAnswer)) {
	n.Post(ListOffsets{Queries: q, Replica: replica, Committed: committed, Reply: reply})
}

// EpochEnds answers in the order of the queries. reply is as Produce's.
func (n *Node) EpochEnds(q []EpochQuery, replica kafka.BrokerID, reply func([]EpochAnswer)) {
	n.Post(EpochEnds{Queries: q, Replica: replica, Reply: reply})
}

// DeleteRecords lets logs begin at the given offsets, -1 being the high
// watermark, and answers when all live replicas do. reply is as Produce's.
func (n *Node) DeleteRecords(offsets map[kafka.TopicPartition]int64, timeout time.Duration, reply func(map[kafka.TopicPartition]LowWatermark)) {
	n.Post(DeleteRecords{Offsets: offsets, Timeout: timeout, Reply: reply})
}

// LogDirs tells what DescribeLogDirs does. reply is as Produce's.
func (n *Node) LogDirs(reply func([]LogDir)) { n.Post(LogDirs{Reply: reply}) }

// TopicConfig is how a topic is configured, as far as a broker that hosts it
// has read it; what holds for all topics otherwise.
func (n *Node) TopicConfig(topic string) TopicConfig {
	if n.broker.configs == nil {
		return DefaultTopicConfig()
	}
	return n.broker.configs.get(topic)
}

// leadHere sends a request straight to the loop of a leader that runs in this
// process; false: it does not.
func (n *Node) leadHere(e Effect) bool {
	switch e := e.(type) {
	case FetchFrom:
		peer := n.peer(e.Leader)
		if peer == nil {
			return false
		}
		e.Request.prolong = true
		peer.ask(Fetch{Request: e.Request,
			Reply: func(results []FetchResult) { n.Post(e.Answer(results, nil)) },
			fail:  func(err error) { n.Post(e.Answer(nil, err)) }})
	case AskEpochEnds:
		peer := n.peer(e.Leader)
		if peer == nil {
			return false
		}
		peer.ask(EpochEnds{Queries: e.Queries, Replica: n.ID(),
			Reply: func(answers []EpochAnswer) { n.Post(e.Answer(answers, nil)) },
			fail:  func(err error) { n.Post(e.Answer(nil, err)) }})
	case AskOffsets:
		peer := n.peer(e.Leader)
		if peer == nil {
			return false
		}
		peer.ask(ListOffsets{Queries: e.Queries, Replica: n.ID(),
			Reply: func(answers []OffsetAnswer) { n.Post(e.Answer(answers, nil)) },
			fail:  func(err error) { n.Post(e.Answer(nil, err)) }})
	case InterruptFetch:
		if peer := n.peer(e.Leader); peer != nil {
			peer.Post(interrupted{e.request})
		}
	default:
		return false
	}
	return true
}

// peerRequest is a request of another broker in this process, which has to hear
// if it is never answered.
type peerRequest interface {
	Event
	hangUp()
}

func (e Fetch) hangUp()       { hangUp(e.fail) }
func (e EpochEnds) hangUp()   { hangUp(e.fail) }
func (e ListOffsets) hangUp() { hangUp(e.fail) }

func hangUp(fail func(error)) {
	if fail != nil {
		fail(ErrDown)
	}
}

// ask posts a request of another broker in this process. Once Run has ended it
// fails at once; failing twice does no harm.
func (n *Node) ask(e peerRequest) {
	n.Post(e)
	select {
	case <-n.done:
		e.hangUp()
	default:
	}
}

// peer gives another broker of this process, or nil.
func (n *Node) peer(id kafka.BrokerID) *Node {
	if n.peers == nil {
		return nil
	}
	return n.peers(id)
}
