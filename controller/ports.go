package controller

import (
	"context"
	"time"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Store is the controller's ZooKeeper. The only errors it returns are
// zkpaths.ErrControllerMoved, ErrFenceLost, ErrSessionExpired,
// ErrUnknownOutcome (Transact alone) and a context's; all that concerns single
// operations stands in their own answers.
type Store interface {
	// Read answers every read, in order, no older than our last write.
	Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error)
	// Write applies each write on its own, as if one after the other in this
	// order, while /controller_epoch has the version fence; zkpaths.Unfenced
	// leaves that check out.
	Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
	// Transact applies all writes, or none, unfenced.
	Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
}

// Channels delivers control requests: per broker one ordered queue, one
// request in flight, retried until answered or the broker is removed
// (spec/controller.md §6.5). No method blocks. Answers come back as events.
type Channels interface {
	// Add opens a queue for a broker; the same id with another epoch replaces it.
	Add(broker kafka.Broker)
	// Remove drops the queue and all that waits in it.
	Remove(id kafka.BrokerID)
	// Send queues a request; an unknown broker's is dropped with a warning.
	Send(id kafka.BrokerID, r control.Request)
	// Clear removes all brokers.
	Clear()
}

// Timers put an event into the queue later.
type Timers interface {
	// After queues ev in d; stop takes it back if it is not yet queued.
	After(d time.Duration, ev events.Event) (stop func())
}

// Options is what a Controller is told about itself and the cluster.
type Options struct {
	ID      kafka.BrokerID
	Self    *kafka.Broker         // how it shows itself in UpdateMetadata; nil is hidden
	Version kafka.ProtocolVersion // assumed of the cluster (contracts.md §1)

	UncleanElection  bool // unclean.leader.election.enable
	DeleteTopics     bool // delete.topic.enable
	AutoRebalance    bool // auto.leader.rebalance.enable
	ImbalancePercent int  // leader.imbalance.per.broker.percentage
	ImbalanceCheck   time.Duration

	DefaultPartitions  int32 // num.partitions
	DefaultReplication int16 // default.replication.factor

	// KafkaOrder carries out every write and request on its own, in the
	// original's order, for comparison (design decision D5).
	KafkaOrder bool

	// ControlListener is control.plane.listener.name, or inter.broker.listener.name:
	// the listener a broker is addressed at. "" takes PLAINTEXT, else its first.
	ControlListener string

	Now  func() time.Time
	Rand func(n int) int      // in [0,n)
	UUID func() kafka.TopicID // random topic ids
}
