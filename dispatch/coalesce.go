package dispatch

import (
	"slices"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// coalesceAbove is the queue length up to which nothing is merged.
const coalesceAbove = 10

// coalesce lets UpdateMetadata requests of a long queue join an earlier one, so
// that a broker that was away is not told every step it missed. Every other
// request stays, in its order. The argument that the broker ends up with the
// same replicas and the same metadata is in doc.go.
func coalesce(q []item, s *bodies) []item {
	out := make([]item, 0, len(q))
	var g group
	for _, it := range q {
		um, ok := it.req.(*control.UpdateMetadataRequest)
		if ok && g.join(it, um, g.at == len(out)-1) {
			continue
		}
		switch it.req.(type) {
		case *control.UpdateMetadataRequest:
			g.close(out, s)
			g.open(it, um, len(out))
		case *control.StopReplicaRequest:
			g.close(out, s)
			g = group{}
		}
		out = append(out, it)
	}
	g.close(out, s)
	return out
}

// group is a run of UpdateMetadata requests that become one, in the place of
// the first.
type group struct {
	at     int // of the first, in the new queue
	header control.Header
	live   []kafka.Broker
	bodies []*body // empty: no group is open
	topics map[string]topicNews
}

// topicNews is what a group says of one topic.
type topicNews struct {
	id    kafka.TopicID
	fate  fate
	known bool
}

type fate uint8

const (
	lives   fate = iota
	deleted      // all partitions have LeaderDuringDelete
	mixed
)

func (g *group) open(it item, um *control.UpdateMetadataRequest, at int) {
	*g = group{at: at, header: um.Header, live: um.LiveBrokers, bodies: []*body{it.body}, topics: map[string]topicNews{}}
	m, _ := it.body.metadata()
	for topic, n := range newsOf(m) {
		g.topics[topic] = n
	}
}

// join takes a request in if nothing is lost by it; adjacent says that no other
// request would be passed.
func (g *group) join(it item, um *control.UpdateMetadataRequest, adjacent bool) bool {
	if len(g.bodies) == 0 || um.Header != g.header || !adjacent && !sameBrokers(g.live, um.LiveBrokers) {
		return false
	}
	m, _ := it.body.metadata()
	news := newsOf(m)
	for topic, n := range news {
		old := g.topics[topic]
		if n.fate != lives && !adjacent || old.known && (old.id != n.id || old.fate != n.fate || n.fate == mixed) {
			return false
		}
	}
	for topic, n := range news {
		g.topics[topic] = n
	}
	g.bodies = append(g.bodies, it.body)
	g.live = um.LiveBrokers
	return true
}

// close puts the merged request in its place.
func (g *group) close(out []item, s *bodies) {
	if len(g.bodies) < 2 {
		return
	}
	b := s.merged(g.bodies, g.live)
	out[g.at].req = &control.UpdateMetadataRequest{Header: g.header, Metadata: b.given}
	out[g.at].body = b
}

func newsOf(m *control.Metadata) map[string]topicNews {
	news := map[string]topicNews{}
	for i := 0; i < len(m.Partitions); {
		topic := m.Partitions[i].Topic
		n := topicNews{id: m.Partitions[i].TopicID, known: true}
		dead, start := 0, i
		for ; i < len(m.Partitions) && m.Partitions[i].Topic == topic; i++ {
			if m.Partitions[i].Leader == kafka.LeaderDuringDelete {
				dead++
			}
		}
		switch dead {
		case 0:
		case i - start:
			n.fate = deleted
		default:
			n.fate = mixed
		}
		news[topic] = n
	}
	return news
}

// sameBrokers compares what an UpdateMetadata tells of brokers.
func sameBrokers(a, b []kafka.Broker) bool {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return true
	}
	return slices.EqualFunc(a, b, func(x, y kafka.Broker) bool {
		return x.ID == y.ID && x.Rack == y.Rack && x.HasRack == y.HasRack && slices.Equal(x.Endpoints, y.Endpoints)
	})
}

// mergePartitions gives the union of lists that are sorted each; of equal
// partitions the one in the later list.
func mergePartitions(lists [][]*control.PartitionState) []*control.PartitionState {
	switch len(lists) {
	case 0:
		return nil
	case 1:
		return lists[0]
	}
	half := len(lists) / 2
	a, b := mergePartitions(lists[:half]), mergePartitions(lists[half:])
	out := make([]*control.PartitionState, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].Compare(b[0].TopicPartition); {
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		case c == 0:
			a = a[1:]
		default:
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}
