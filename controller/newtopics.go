package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// What one transaction takes: well below jute.maxbuffer (1 MiB).
const (
	maxTransactionOps   = 500
	maxTransactionBytes = 256 << 10
)

// draft is a topic about to be created: in memory already, with the first
// leadership of its partitions planned, so that configuration, assignment and
// states can be written in one transaction.
type draft struct {
	plannedTopic
	*statemachine.Topic
	plan   *statemachine.PartitionPlan
	writes []zkpaths.Write // configuration, topic, then the plan's
}

// createTopics writes topics, leads them and tells brokers. It gives those
// that were created; the others have their error in their row.
func (c *Controller) createTopics(ctx context.Context, planned []plannedTopic, rows []events.NewTopicResult) ([]plannedTopic, error) {
	var whole []draft
	var large []plannedTopic
	for _, p := range planned {
		d := c.draftTopic(p)
		if c.opts.KafkaOrder || len(d.writes) > maxTransactionOps || sizeOf(d.writes) > maxTransactionBytes {
			c.state.ForgetTopic(p.name)
			large = append(large, p)
			continue
		}
		whole = append(whole, d)
	}
	created, err := c.writeDrafts(ctx, whole, rows)
	if err != nil {
		return planned, err
	}
	stepwise, err := c.writeNewTopics(ctx, large, rows)
	if err == nil {
		err = c.leadNewTopics(ctx, stepwise)
	}
	return append(created, stepwise...), err
}

// draftTopic puts a topic into memory as new and plans its first leaders.
func (c *Controller) draftTopic(p plannedTopic) draft {
	d := draft{plannedTopic: p, Topic: c.state.AddTopic(p.name)}
	c.state.SetTopicID(d.Topic, p.node.ID)
	for _, part := range p.node.Partitions {
		c.state.SetAssignment(d.Topic, part.Partition, part.ReplicaAssignment).State = statemachine.NewPartition
	}
	d.plan = c.state.PlanPartitions(d.Partitions(), statemachine.OnlinePartition, statemachine.OfflineElection, nil, nil)
	d.writes = append([]zkpaths.Write{
		{Op: zkpaths.Create, Path: zkpaths.TopicConfigPath(p.name), Data: zkpaths.EncodeConfig(p.config)},
		{Op: zkpaths.Create, Path: zkpaths.TopicPath(p.name), Data: zkpaths.EncodeTopic(p.node)},
	}, d.plan.Writes...)
	return d
}

func sizeOf(writes []zkpaths.Write) int {
	n := 0
	for _, w := range writes {
		n += len(w.Path) + len(w.Data) + 64
	}
	return n
}

// writeDrafts writes as many topics a transaction as fit. Where one topic
// cannot be created the transaction is tried again without it.
func (c *Controller) writeDrafts(ctx context.Context, drafts []draft, rows []events.NewTopicResult) ([]plannedTopic, error) {
	var created []plannedTopic
	for len(drafts) > 0 {
		n, ops, bytes := 0, 0, 0
		for n < len(drafts) && (n == 0 || ops+len(drafts[n].writes) <= maxTransactionOps && bytes+sizeOf(drafts[n].writes) <= maxTransactionBytes) {
			ops, bytes = ops+len(drafts[n].writes), bytes+sizeOf(drafts[n].writes)
			n++
		}
		group := slices.Clone(drafts[:n])
		drafts = drafts[n:]
		for len(group) > 0 {
			out, failed, err := c.transact(ctx, group)
			if err != nil {
				for _, d := range append(group, drafts...) {
					c.state.ForgetTopic(d.name)
				}
				return created, err
			}
			if failed < 0 {
				c.commitDrafts(group, out)
				for _, d := range group {
					created = append(created, d.plannedTopic)
				}
				break
			}
			group = c.withoutFailed(group, failed, out, rows)
		}
	}
	c.send()
	c.armLater(created)
	return created, nil
}

// transact carries out one fenced transaction. failed is the index, among all
// writes of the group, of the one that kept it from happening, or -1.
func (c *Controller) transact(ctx context.Context, group []draft) (out []zkpaths.Outcome, failed int, err error) {
	writes := []zkpaths.Write{{Op: zkpaths.Check, Path: zkpaths.ControllerEpoch, Version: c.state.EpochVersion}}
	for _, d := range group {
		writes = append(writes, d.writes...)
	}
	for range maxRetries {
		out, err = c.store.Transact(ctx, writes)
		if !errors.Is(err, zkpaths.ErrUnknownOutcome) {
			break
		}
		applied, err := c.draftsApplied(ctx, group)
		if err != nil {
			return nil, 0, err
		}
		if applied {
			return make([]zkpaths.Outcome, len(writes)-1), -1, nil // created nodes have version 0
		}
	}
	if err != nil {
		return nil, 0, err
	}
	c.rec.writes(writes, out)
	switch out[0].Code {
	case zkpaths.BadVersion:
		return nil, 0, zkpaths.ErrControllerMoved
	case zkpaths.NoNode:
		return nil, 0, zkpaths.ErrFenceLost
	}
	out = out[1:]
	failed = slices.IndexFunc(out, func(o zkpaths.Outcome) bool { return o.Code != zkpaths.OK && o.Code != zkpaths.Failed })
	if failed < 0 {
		failed = slices.IndexFunc(out, func(o zkpaths.Outcome) bool { return !o.OK() })
	}
	return out, failed, nil
}

// draftsApplied looks up whether a transaction whose answer was lost happened:
// then each topic's znode is there with just what we wrote.
func (c *Controller) draftsApplied(ctx context.Context, group []draft) (bool, error) {
	path := zkpaths.TopicPath(group[0].name)
	n, err := c.readOne(ctx, zkpaths.GetData, path, false)
	if err != nil {
		return false, err
	}
	return n.Code == zkpaths.OK && string(n.Data) == string(group[0].writes[1].Data), nil
}

// withoutFailed takes the topic that failed out of a group, or mends it: a
// configuration left over from an earlier topic of that name is overwritten.
func (c *Controller) withoutFailed(group []draft, failed int, out []zkpaths.Outcome, rows []events.NewTopicResult) []draft {
	at := failed
	for i := range group {
		d := &group[i]
		if at >= len(d.writes) {
			at -= len(d.writes)
			continue
		}
		w := &d.writes[at]
		switch code := out[failed].Code; {
		case at == 0 && code == zkpaths.NodeExists && w.Op == zkpaths.Create:
			w.Op, w.Version = zkpaths.Set, zkpaths.AnyVersion
			return group
		case code == zkpaths.NodeExists:
			rows[d.row].RowError = rowError(kafka.TopicAlreadyExists, "topic %q exists already", d.name)
		default:
			rows[d.row].RowError = rowError(kafka.UnknownServerError, "%v", out[failed].Error(w.Path))
		}
		c.state.ForgetTopic(d.name)
		return slices.Delete(group, i, i+1)
	}
	return nil
}

// commitDrafts makes created topics part of the cluster and fills the batch.
func (c *Controller) commitDrafts(group []draft, out []zkpaths.Outcome) {
	for _, d := range group {
		c.log.WithField("topic", d.name).WithField("partitions", len(d.Partitions())).Info("created topic")
		res := d.plan.Settle(out[2:len(d.writes)])
		out = out[len(d.writes):]
		c.state.CommitPartitions(res.Done)
		c.announce(res.Done)
		c.reportPartitions(statemachine.OnlinePartition, statemachine.OfflineElection, res)
		for _, p := range d.Partitions() {
			for _, id := range p.Assignment.Replicas {
				c.setReplica(statemachine.Replica{Partition: p, Broker: id}, statemachine.OnlineReplica)
			}
		}
	}
}

// ---- watches that are armed a little later

// armDelay is how long watches on topics of our own making may wait, so that a
// burst of creations arms them in one go. Nothing is missed: arming reads.
const armDelay = 100 * time.Millisecond

// topicWatches are those that wait.
type topicWatches struct {
	unarmed []string
	waiting bool      // the timer is set
	list    bool      // the listing of /brokers/topics waits, too
	listed  time.Time // when it was last listed
}

// armTopics is the timer event.
type armTopics struct{}

func (armTopics) Kind() events.Kind { return events.TopicChangeKind }
func (armTopics) Name() string      { return "ArmTopics" }

func (c *Controller) armLater(created []plannedTopic) {
	for _, p := range created {
		c.watches.unarmed = append(c.watches.unarmed, p.name)
	}
	c.setArmTimer()
}

func (c *Controller) setArmTimer() {
	if !c.watches.waiting && (len(c.watches.unarmed) > 0 || c.watches.list) {
		c.watches.waiting = true
		c.timers.After(armDelay, armTopics{})
	}
}

// onArmTopics reads the topics created since the last time, with watches, and
// takes up what somebody changed in them meanwhile.
func (c *Controller) onArmTopics(ctx context.Context) error {
	c.watches.waiting = false
	names := slices.DeleteFunc(c.watches.unarmed, func(name string) bool { return c.state.Topic(name) == nil })
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, names, zkpaths.TopicPath, true))
	if err != nil {
		return err
	}
	for i, n := range nodes {
		c.watches.unarmed = names[i+1:] // should this one fail, the others are looked at again
		if t := c.state.Topic(names[i]); n.Code != zkpaths.NoNode && (n.Code != zkpaths.OK || n.Stat.Version != t.ZKVersion) {
			if err := c.topicRead(ctx, names[i], n); err != nil {
				return fmt.Errorf("topic %s: %w", names[i], err)
			}
		}
	}
	c.watches.unarmed = nil
	if c.watches.list {
		c.watches.list = false
		return c.listTopics(ctx)
	}
	return nil
}

// onTopicChange looks which topics came and went. Right after a look, it waits
// a little: a burst of creations then costs a few listings, not one each.
func (c *Controller) onTopicChange(ctx context.Context) error {
	if !c.opts.KafkaOrder && len(c.watches.unarmed) > 0 && c.opts.Now().Sub(c.watches.listed) < armDelay {
		c.watches.list = true
		c.setArmTimer()
		return nil
	}
	return c.listTopics(ctx)
}
