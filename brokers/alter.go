package brokers

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

const (
	alterRetry       = 50 * time.Millisecond  // after a top-level error (spec/broker.md §5.3)
	controllerLookup = 100 * time.Millisecond // while no controller is known, or it was the wrong one
)

// ControllerClient reaches the controller: connect, ask, answer. An error means
// that no answer came; who is controller is the Broker's business.
type ControllerClient interface {
	AlterPartition(ctx context.Context, controller kafka.Broker, r *AlterPartitionRequest) (AlterPartitionAnswer, error)
	ControlledShutdown(ctx context.Context, controller kafka.Broker, self kafka.BrokerID, brokerEpoch int64) (kafka.ErrorCode, []kafka.TopicPartition, error)
}

// AlterPartitionRequest asks for ISR changes (spec/broker.md §5.3).
type AlterPartitionRequest struct {
	Broker      kafka.BrokerID
	BrokerEpoch int64
	ByID        bool // every topic has an id and the protocol version knows them: request version 2 or later
	Partitions  []AlterPartitionRow
	items       []*alterItem
}

// AlterPartitionRow is one wanted ISR; the recovery state is always RECOVERED.
type AlterPartitionRow struct {
	Partition      kafka.TopicPartition
	TopicID        kafka.TopicID
	LeaderEpoch    int32
	ISR            []kafka.BrokerID
	PartitionEpoch int32
}

// AlterPartitionAnswer is the controller's answer. A partition that was asked
// for and is missing is asked for again.
type AlterPartitionAnswer struct {
	Error      kafka.ErrorCode
	Partitions map[kafka.TopicPartition]AlterPartitionResult
}

// AlterPartitionResult is the answer for one partition: an error, or the
// leadership that holds now.
type AlterPartitionResult struct {
	Error kafka.ErrorCode
	kafka.LeaderAndISR
}

// alterItem is one proposal on its way to the controller.
type alterItem struct {
	tp       kafka.TopicPartition
	topicID  kafka.TopicID
	proposal *proposal
	order    uint64 // of put
}

// alterQueue is the batching machine of spec/broker.md §5.3: at most one
// proposal a partition, at most one request in flight, which takes along all
// that waits.
type alterQueue struct {
	unsent   map[kafka.TopicPartition]*alterItem // also those in flight
	taken    uint64                              // how many were ever put
	inFlight *AlterPartitionRequest              // nil: none
	retryAt  time.Time                           // zero: no retry is due
	lookupAt time.Time                           // zero: the request in flight is with the controller
}

// put adds a proposal; false when the partition has one on its way already.
func (q *alterQueue) put(item *alterItem) bool {
	if q.unsent[item.tp] != nil {
		return false
	}
	if q.unsent == nil {
		q.unsent = map[kafka.TopicPartition]*alterItem{}
	}
	q.taken++
	item.order = q.taken
	q.unsent[item.tp] = item
	return true
}

func (q *alterQueue) remove(item *alterItem) {
	if q.unsent[item.tp] == item {
		delete(q.unsent, item.tp)
	}
}

// build makes the request that takes all that waits. It stays as it is until
// it was answered, also when it has to go to another controller.
func (q *alterQueue) build(self kafka.BrokerID, epoch int64, idsKnown bool) *AlterPartitionRequest {
	r := &AlterPartitionRequest{Broker: self, BrokerEpoch: epoch, ByID: idsKnown, items: slices.Collect(maps.Values(q.unsent))}
	slices.SortFunc(r.items, func(a, b *alterItem) int { return cmp.Compare(a.order, b.order) })
	for _, i := range r.items {
		r.ByID = r.ByID && !i.topicID.IsZero()
		r.Partitions = append(r.Partitions, AlterPartitionRow{Partition: i.tp, TopicID: i.topicID,
			LeaderEpoch: i.proposal.leaderEpoch, ISR: i.proposal.isr, PartitionEpoch: i.proposal.partitionEpoch})
	}
	return r
}

// propagate sends what waits, unless a request is in flight.
func (b *Broker) propagate(now time.Time) {
	if b.alter.inFlight != nil || len(b.alter.unsent) == 0 {
		return
	}
	b.alter.inFlight = b.alter.build(b.opts.ID, b.epoch, b.does.asksByTopicID)
	b.ask(now)
}

// ask hands the request in flight to the controller, if one is known.
func (b *Broker) ask(now time.Time) {
	controller, ok := b.controller()
	if !ok || b.faults.cut[controller.ID] {
		b.alter.lookupAt = now.Add(controllerLookup)
		return
	}
	b.alter.lookupAt = time.Time{}
	b.emit(AskAlterPartition{Controller: controller, Request: b.alter.inFlight, run: b.run})
}

// controller gives the controller as the metadata cache knows it, if it can be reached.
func (b *Broker) controller() (kafka.Broker, bool) {
	_, c, listed := b.cache.Controller()
	if !listed {
		return c, false
	}
	_, ok := c.Endpoint(b.opts.InterBrokerListener)
	return c, ok
}

func (e alterPartitionAnswered) apply(b *Broker, now time.Time) {
	if e.run != b.run || e.request != b.alter.inFlight {
		return
	}
	if e.err != nil || e.answer.wrongController() {
		b.log.WithError(e.err).WithField("broker_id", b.opts.ID).Debug("AlterPartition goes to the controller again")
		b.alter.lookupAt = now.Add(controllerLookup)
		return
	}
	if e.answer.Error != kafka.NoError {
		b.log.WithFields(b.fields()).WithError(e.answer.Error).Warn("AlterPartition was refused as a whole and is sent again")
		b.alter.inFlight = nil
		b.alter.retryAt = now.Add(alterRetry)
		return
	}
	for _, item := range e.request.items {
		if result, ok := e.answer.Partitions[item.tp]; ok {
			b.alter.remove(item)
			b.altered(now, item, result)
		}
	}
	b.alter.inFlight = nil
	b.propagate(now)
}

// wrongController: NOT_CONTROLLER anywhere sends the whole request elsewhere,
// and the ISR code never sees the answer.
func (a AlterPartitionAnswer) wrongController() bool {
	if a.Error == kafka.NotController {
		return true
	}
	for _, p := range a.Partitions {
		if p.Error == kafka.NotController {
			return true
		}
	}
	return false
}

// altered completes one proposal (spec/broker.md §5.4).
func (b *Broker) altered(now time.Time, item *alterItem, r AlterPartitionResult) {
	p := b.partitions[item.tp]
	if p == nil || !p.isr.pending.equal(item.proposal) {
		return // a LeaderAndIsr came first
	}
	if r.Error == kafka.NoError {
		b.commit(now, p, item.proposal, r.LeaderAndISR)
		return
	}
	b.counters.FailedISRUpdates++
	log := b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithError(r.Error)
	switch b.does.judgeAnswer(r.Error) {
	case takenBack:
		p.isr = isrState{isr: item.proposal.committed}
		log.Info("ISR change taken back")
	case leftPending:
		log.Info("ISR change refused: nothing changes until the next LeaderAndIsr")
	default:
		log.Warn("ISR change failed and is asked for again")
		b.alter.put(&alterItem{tp: p.tp, topicID: p.topicID, proposal: item.proposal})
	}
}

// answerKind says what an error does to a proposal.
type answerKind uint8

const (
	askedAgain  answerKind = iota // the same, at once
	takenBack                     // surely not applied: what was committed holds
	leftPending                   // until the next LeaderAndIsr
)

// judgeAnswer is the table of spec/broker.md §5.4, by what a release knows.
func (d behaviour) judgeAnswer(code kafka.ErrorCode) answerKind {
	switch code {
	case kafka.OperationNotAttempted:
		return takenBack
	case kafka.FencedLeaderEpoch, kafka.InvalidUpdateVersion, kafka.UnknownTopicOrPartition:
		return leftPending
	}
	switch {
	case d.knowsIneligible && code == kafka.IneligibleReplica:
		return takenBack
	case d.knowsIneligible && (code == kafka.UnknownTopicID || code == kafka.NewLeaderElected), d.knowsInvalidRequest && code == kafka.InvalidRequest:
		return leftPending
	}
	return askedAgain
}
