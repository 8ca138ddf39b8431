package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/deletion"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// unconfirmed is what brokers are told once and for all, and have not confirmed
// yet: to delete a replica that left its partition, and that a topic is gone.
//
// A controller that dies takes the requests it had queued along. What
// ZooKeeper still shows, the next controller says again; so the last trace of
// a move (B6, B7) and of a topic goes only when every registered broker that
// matters has answered. In the original those requests may be lost, and brokers
// keep replicas or metadata that nobody ever takes away. A broker that is
// registered but does not answer holds this up for confirmPatience at most.
type unconfirmed struct {
	deletes map[kafka.TopicPartition]map[kafka.BrokerID]int // StopReplica requests that delete and are on their way
	ends    map[kafka.TopicPartition]ending                 // written when deletes has no more of the partition
	topics  map[string]farewell
	timer   bool // a confirmTimeout will come
}

// ending is the end of a move, put off.
type ending struct {
	target []kafka.BrokerID // takes this entry out of the admin znode; nil: none
	until  time.Time
}

// farewell has the brokers that may still believe in a topic.
type farewell struct {
	brokers map[kafka.BrokerID]bool
	until   time.Time
}

const confirmPatience = time.Second

// confirmTimeout is the timer event that ends the patience.
type confirmTimeout struct{}

func (confirmTimeout) Kind() events.Kind { return events.TopicDeletionKind }
func (confirmTimeout) Name() string      { return "ConfirmTimeout" }

// sent notes which replicas of living topics a broker is told to delete.
func (u *unconfirmed) sent(a control.Addressed, queued func(string) bool) {
	r, ok := a.Request.(*control.StopReplicaRequest)
	if !ok {
		return
	}
	for _, s := range r.Partitions {
		if !s.Delete || queued(s.Topic) {
			continue
		}
		if u.deletes == nil {
			u.deletes = map[kafka.TopicPartition]map[kafka.BrokerID]int{}
		}
		if u.deletes[s.TopicPartition] == nil {
			u.deletes[s.TopicPartition] = map[kafka.BrokerID]int{}
		}
		u.deletes[s.TopicPartition][a.To]++
	}
}

// leaving adds the replicas whose deletion is not confirmed to an assignment
// that is about to be written, as ones that are given up.
func (u *unconfirmed) leaving(tp kafka.TopicPartition, a kafka.ReplicaAssignment) kafka.ReplicaAssignment {
	if len(u.deletes[tp]) == 0 {
		return a
	}
	return givingUp(a, slices.Sorted(maps.Keys(u.deletes[tp])))
}

// givingUp adds replicas to an assignment as ones that belong neither to what
// the partition had nor to what it is to have: both adding and removing. So
// every controller, Kafka's too, finds the right original and target in the
// znode, and removes them in the end.
func givingUp(a kafka.ReplicaAssignment, ids []kafka.BrokerID) kafka.ReplicaAssignment {
	if ids = kafka.Without(ids, a.Replicas); len(ids) == 0 {
		return a
	}
	return kafka.ReplicaAssignment{Replicas: slices.Concat(a.Replicas, ids), Adding: slices.Concat(a.Adding, ids), Removing: slices.Concat(a.Removing, ids)}
}

// goOn gives the assignment with which a stored move goes on: without replicas
// that an earlier controller was giving up, unless no other in-sync one is left.
func (c *Controller) goOn(p *statemachine.Partition) kafka.ReplicaAssignment {
	a := p.Assignment
	kept := kafka.Without(a.Adding, a.Removing)
	if len(kept) == len(a.Adding) {
		return a
	}
	givenUp := kafka.Without(a.Adding, kept)
	want := kafka.ReplicaAssignment{Replicas: kafka.Without(a.Replicas, givenUp), Adding: kept, Removing: kafka.Without(a.Removing, givenUp)}
	if reassign.CheckLeader(c.state, p, want) != nil {
		return a
	}
	return want
}

// forgetTopic drops what is no longer waited for.
func (u *unconfirmed) forgetTopic(name string) {
	delete(u.topics, name)
	maps.DeleteFunc(u.deletes, func(tp kafka.TopicPartition, _ map[kafka.BrokerID]int) bool { return tp.Topic == name })
	maps.DeleteFunc(u.ends, func(tp kafka.TopicPartition, _ ending) bool { return tp.Topic == name })
}

// endMove lets the end of a move be written: now, or when the replicas it
// removed are confirmed to be deleted. target nil means that only the topic
// znode is out of date.
func (c *Controller) endMove(tp kafka.TopicPartition, target []kafka.BrokerID) {
	if len(c.open.deletes[tp]) == 0 {
		c.dirty.add(tp, target)
		return
	}
	if c.open.ends == nil {
		c.open.ends = map[kafka.TopicPartition]ending{}
	}
	c.open.ends[tp] = ending{target, c.patience()}
}

// keepEnd makes a later move of a partition outlive the end of an earlier one,
// which would take the new entry out of the admin znode.
func (c *Controller) keepEnd(tp kafka.TopicPartition) {
	if e, ok := c.open.ends[tp]; ok {
		e.target = nil
		c.open.ends[tp] = e
	}
}

// endPutOff tells whether an entry of the admin znode is carried out, up to
// the writes that end it.
func (c *Controller) endPutOff(e zkpaths.Reassignment) bool {
	return slices.Equal(c.open.ends[e.Partition].target, e.Replicas) ||
		slices.ContainsFunc(c.dirty.done, func(d zkpaths.Reassignment) bool {
			return d.Partition == e.Partition && slices.Equal(d.Replicas, e.Replicas)
		})
}

// sayFarewell notes whom the end of topics has been told.
func (c *Controller) sayFarewell(ps []*statemachine.Partition) {
	brokers, until := c.state.BrokerIDs(), time.Time{}
	for _, p := range ps {
		name := p.TopicPartition.Topic
		if !p.HasLeadership || len(brokers) == 0 {
			continue // UpdateMetadata says nothing about it
		}
		if until.IsZero() {
			until = c.patience()
		}
		if f, ok := c.open.topics[name]; ok && f.until.Equal(until) {
			continue
		}
		if c.open.topics == nil {
			c.open.topics = map[string]farewell{}
		}
		f := farewell{brokers: map[kafka.BrokerID]bool{}, until: until}
		for _, id := range brokers {
			f.brokers[id] = true
		}
		c.open.topics[name] = f
	}
}

// patience gives the time until which something is waited for.
func (c *Controller) patience() time.Time {
	if !c.open.timer {
		c.open.timer = true
		c.timers.After(confirmPatience, confirmTimeout{})
	}
	return c.opts.Now().Add(confirmPatience)
}

// confirmDeletes takes note of the answer to a StopReplica that deletes,
// whatever it says: like the original we do not follow up failures.
func (c *Controller) confirmDeletes(e events.StopReplicaResponse) {
	for _, s := range e.Request.Partitions {
		if brokers := c.open.deletes[s.TopicPartition]; s.Delete && brokers[e.Broker] > 0 {
			if brokers[e.Broker]--; brokers[e.Broker] == 0 {
				c.confirmed(s.TopicPartition, e.Broker)
			}
		}
	}
}

// confirmed: a broker has nothing more to delete of a partition.
func (c *Controller) confirmed(tp kafka.TopicPartition, id kafka.BrokerID) {
	delete(c.open.deletes[tp], id)
	if len(c.open.deletes[tp]) > 0 {
		return
	}
	delete(c.open.deletes, tp)
	if e, ok := c.open.ends[tp]; ok {
		delete(c.open.ends, tp)
		c.dirty.add(tp, e.target)
	}
}

// confirmFarewells takes note of the answer to an UpdateMetadata that told the
// end of topics; it reports whether some topic is now told to all.
func (c *Controller) confirmFarewells(e events.UpdateMetadataResponse) (all bool) {
	if e.Request == nil || len(c.open.topics) == 0 {
		return false
	}
	last := ""
	for _, p := range e.Request.Partitions {
		if p.Leader == kafka.LeaderDuringDelete && p.Topic != last {
			last = p.Topic
			all = c.bidden(p.Topic, e.Broker) || all
		}
	}
	return all
}

// bidden: a broker knows that a topic is gone, or is gone itself.
func (c *Controller) bidden(topic string, id kafka.BrokerID) (all bool) {
	f, ok := c.open.topics[topic]
	if !ok || !f.brokers[id] {
		return false
	}
	delete(f.brokers, id)
	if len(f.brokers) > 0 {
		return false
	}
	delete(c.open.topics, topic)
	return true
}

// brokersUnheard: brokers that are no longer registered confirm nothing.
func (c *Controller) brokersUnheard(ids []kafka.BrokerID) (all bool) {
	for _, id := range ids {
		for tp, brokers := range c.open.deletes {
			if brokers[id] > 0 {
				c.confirmed(tp, id)
			}
		}
		for topic := range c.open.topics {
			all = c.bidden(topic, id) || all
		}
	}
	return all
}

// onConfirmTimeout goes on without the brokers that do not answer.
func (c *Controller) onConfirmTimeout(ctx context.Context) error {
	c.open.timer = false
	now, more, all := c.opts.Now(), false, false
	for _, tp := range slices.SortedFunc(maps.Keys(c.open.ends), kafka.TopicPartition.Compare) {
		if c.open.ends[tp].until.After(now) {
			more = true
			continue
		}
		ids := slices.Sorted(maps.Keys(c.open.deletes[tp]))
		c.log.WithFields(partitionFields(tp)).WithField("brokers", ids).Warn("brokers have not confirmed that they deleted replicas that left; the move ends without them")
		for _, id := range ids {
			c.confirmed(tp, id)
		}
	}
	for _, topic := range slices.Sorted(maps.Keys(c.open.topics)) {
		f := c.open.topics[topic]
		if f.until.After(now) {
			more = true
			continue
		}
		c.log.WithField("topic", topic).WithField("brokers", slices.Sorted(maps.Keys(f.brokers))).Warn("brokers have not confirmed that the topic is gone; it is deleted without them")
		delete(c.open.topics, topic)
		all = true
	}
	if more {
		c.patience()
	}
	if !all {
		return nil
	}
	return c.completeTold(ctx, deletion.Resume(c.state).Complete)
}
