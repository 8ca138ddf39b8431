package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// listTopics looks which topics came and went (spec/controller.md §7.1).
func (c *Controller) listTopics(ctx context.Context) error {
	c.watches.listed = c.opts.Now()
	list, err := c.listWatched(ctx, zkpaths.BrokerTopics)
	if err != nil {
		return err
	}
	if list.Code != zkpaths.OK && list.Code != zkpaths.NoNode {
		return list.Error(zkpaths.BrokerTopics)
	}
	var added, damaged []string
	for _, name := range list.Children {
		switch {
		case c.state.Topic(name) != nil:
		case c.damage[zkpaths.TopicPath(name)] != "":
			damaged = append(damaged, name)
		default:
			added = append(added, name)
		}
	}
	for _, t := range slices.Clone(c.state.Topics()) {
		if _, ok := slices.BinarySearch(list.Children, t.Name); !ok {
			c.log.WithField("topic", t.Name).Info("topic znode is gone; forgetting the topic")
			if c.undeletable.topics[t.Name] {
				c.queue.Put(events.TopicDeletion{}) // somebody deleted it for us: its marker goes
			}
			c.forgetTopic(t.Name)
		}
	}
	if c.goneExcept(zkpaths.BrokerTopics, list.Children) {
		c.queue.Put(events.TopicDeletion{}) // the marker of an unreadable topic, if it has one, has waited
	}
	topics, err := c.loadTopics(ctx, added, false)
	if err != nil {
		return err
	}
	if err := c.createTopicsFound(ctx, topics); err != nil {
		return err
	}
	return c.topicsAgain(ctx, damaged)
}

// topicsAgain reads topics that were unreadable. One that is repaired by now may
// have states, so it is no new topic.
func (c *Controller) topicsAgain(ctx context.Context, names []string) error {
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, names, zkpaths.TopicPath, true))
	if err != nil {
		return err
	}
	for i, n := range nodes {
		if n.Code == zkpaths.NoNode {
			continue
		}
		if err := c.topicRead(ctx, names[i], n); err != nil {
			return fmt.Errorf("topic %s: %w", names[i], err)
		}
	}
	return nil
}

// topicNode encodes a topic as the policy stores it. assignment gives what each
// partition is to have; extra are partitions that memory does not know yet.
func (c *Controller) topicNode(t *statemachine.Topic, assignment func(*statemachine.Partition) kafka.ReplicaAssignment, extra ...zkpaths.PartitionAssignment) []byte {
	node := zkpaths.Topic{Version: c.policy.TopicVersion(), ID: t.ID}
	if !t.ID.IsZero() {
		node.Version = 3 // an id that is known is never dropped
	}
	parts := t.Partitions()
	node.Partitions = make([]zkpaths.PartitionAssignment, 0, len(parts)+len(extra))
	for _, p := range parts {
		node.Partitions = append(node.Partitions, zkpaths.PartitionAssignment{Partition: p.Partition, ReplicaAssignment: c.policy.Stored(c.open.leaving(p.TopicPartition, assignment(p)))})
	}
	node.Partitions = append(node.Partitions, extra...)
	slices.SortFunc(node.Partitions, func(a, b zkpaths.PartitionAssignment) int { return cmp.Compare(a.Partition, b.Partition) })
	return zkpaths.EncodeTopic(node)
}

// asKnown is the assignment in memory, for topicNode.
func asKnown(p *statemachine.Partition) kafka.ReplicaAssignment { return p.Assignment }

// writeTopics rewrites topic znodes from memory, with assignment saying what
// each partition is to have. A write is conditional on the version last seen:
// where somebody wrote meanwhile, partitions that only the znode has are kept,
// and a znode that became unreadable is left alone. failed has what went wrong by topic.
func (c *Controller) writeTopics(ctx context.Context, topics []*statemachine.Topic, assignment func(*statemachine.Partition) kafka.ReplicaAssignment) (failed map[string]error, err error) {
	failed = map[string]error{}
	extra := map[*statemachine.Topic][]zkpaths.PartitionAssignment{}
	for round := 0; len(topics) > 0; round++ {
		if round == maxRetries {
			for _, t := range topics {
				failed[t.Name] = fmt.Errorf("%s: %w", zkpaths.TopicPath(t.Name), errOutwritten)
			}
			break
		}
		var writes []zkpaths.Write
		for _, t := range topics {
			writes = append(writes, zkpaths.Write{Op: zkpaths.Set, Path: zkpaths.TopicPath(t.Name),
				Data: c.topicNode(t, assignment, extra[t]...), Version: t.ZKVersion})
		}
		out, err := c.write(ctx, writes)
		if err != nil {
			return failed, err
		}
		var again []*statemachine.Topic
		for i, o := range out {
			switch t := topics[i]; {
			case o.OK():
				t.ZKVersion = o.Version
			case o.Code == zkpaths.BadVersion:
				again = append(again, t)
			default:
				failed[t.Name] = o.Error(writes[i].Path)
			}
		}
		if topics, err = c.rereadTopics(ctx, again, extra, failed); err != nil {
			return failed, err
		}
	}
	return failed, nil
}

// rereadTopics looks at znodes that somebody else wrote, and gives those that
// may be written again.
func (c *Controller) rereadTopics(ctx context.Context, topics []*statemachine.Topic, extra map[*statemachine.Topic][]zkpaths.PartitionAssignment, failed map[string]error) ([]*statemachine.Topic, error) {
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, topics, func(t *statemachine.Topic) string { return zkpaths.TopicPath(t.Name) }, false))
	if err != nil {
		return nil, err
	}
	var again []*statemachine.Topic
	for i, t := range topics {
		if nodes[i].Code == zkpaths.NoNode {
			failed[t.Name] = nodes[i].Error(zkpaths.TopicPath(t.Name))
			continue
		}
		node, ok := c.decodeTopic(t.Name, nodes[i])
		if !ok {
			t.Damaged = true
			failed[t.Name] = errDamaged
			continue
		}
		extra[t] = nil
		for _, p := range node.Partitions {
			if c.state.Partition(kafka.TopicPartition{Topic: t.Name, Partition: p.Partition}) == nil {
				extra[t] = append(extra[t], p)
			}
		}
		if len(extra[t]) > 0 { // our own write may hide them from a look that compares versions
			c.queue.Put(events.PartitionModifications{Topic: t.Name})
		}
		t.ZKVersion = nodes[i].Stat.Version
		again = append(again, t)
	}
	return again, nil
}

// errDamaged: the topic's znode cannot be read, so it must not be written.
var errDamaged = errors.New("the topic znode is unreadable; repair it first")

// createTopicsFound gives the partitions of topics new to us their first leaders.
func (c *Controller) createTopicsFound(ctx context.Context, topics []*statemachine.Topic) error {
	if len(topics) == 0 {
		return nil
	}
	if err := c.scrub(ctx, topics); err != nil {
		return err
	}
	var ps []*statemachine.Partition
	for _, t := range topics {
		c.log.WithField("topic", t.Name).WithField("partitions", len(t.Partitions())).Info("new topic")
		ps = append(ps, t.Partitions()...)
	}
	return c.createPartitions(ctx, ps)
}

// createPartitions is the creation of new partitions (spec/controller.md §7.1).
func (c *Controller) createPartitions(ctx context.Context, ps []*statemachine.Partition) error {
	if _, err := c.movePartitions(ctx, ps, statemachine.NewPartition, statemachine.OfflineElection); err != nil {
		return err
	}
	var rs []statemachine.Replica
	for _, p := range ps {
		rs = append(rs, replicas(p, uniqueIDs(p.Assignment.Replicas))...)
	}
	if err := c.moveReplicas(ctx, rs, statemachine.NewReplica); err != nil {
		return err
	}
	if _, err := c.movePartitions(ctx, ps, statemachine.OnlinePartition, statemachine.OfflineElection); err != nil {
		return err
	}
	return c.moveReplicas(ctx, rs, statemachine.OnlineReplica)
}

// uniqueIDs drops repetitions: a hand-written replica list may have them.
func uniqueIDs(ids []kafka.BrokerID) []kafka.BrokerID {
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			out := slices.Clone(ids[:i])
			for _, id := range ids[i:] {
				if !slices.Contains(out, id) {
					out = append(out, id)
				}
			}
			return out
		}
	}
	return ids
}

// scrub takes our own id out of new topics' assignments. A controller that
// shows itself as a broker gets replicas of automatically created topics,
// which it will never host (spec/control-plane.md §3.5). A partition whose
// only replica we were goes to a live broker; if there is none, it stays.
func (c *Controller) scrub(ctx context.Context, topics []*statemachine.Topic) error {
	if c.opts.Self == nil || c.state.Registered(c.opts.ID) {
		return nil
	}
	var changed []*statemachine.Topic
	for _, t := range topics {
		ours := false
		for _, p := range t.Partitions() {
			if !p.HasLeadership && slices.Contains(p.Assignment.Replicas, c.opts.ID) {
				p.Assignment, ours = c.scrubbed(p.Assignment), true
			}
		}
		if ours {
			changed = append(changed, t)
			c.log.WithField("topic", t.Name).Info("moving new replicas off this controller")
		}
	}
	failed, err := c.writeTopics(ctx, changed, asKnown)
	for name, why := range failed {
		c.log.WithField("topic", name).WithError(why).Error("cannot move replicas off this controller")
	}
	return err
}

func (c *Controller) scrubbed(a kafka.ReplicaAssignment) kafka.ReplicaAssignment {
	live := c.state.LiveBrokers()
	out := slices.Clone(a.Replicas)
	i := slices.Index(out, c.opts.ID)
	for k := range live {
		candidate := live[(k+int(uint32(a.Replicas[0])))%len(live)].ID // whatever a tool wrote there
		if !slices.Contains(out, candidate) {
			out[i] = candidate
			return kafka.ReplicaAssignment{Replicas: out}
		}
	}
	if len(out) > 1 {
		out = slices.Delete(out, i, i+1)
	}
	return kafka.ReplicaAssignment{Replicas: out}
}

// onPartitionModifications looks at a topic znode that was rewritten (spec/controller.md §7.2).
func (c *Controller) onPartitionModifications(ctx context.Context, topic string) error {
	n, err := c.readOne(ctx, zkpaths.GetData, zkpaths.TopicPath(topic), true)
	if err != nil || n.Code == zkpaths.NoNode {
		return err
	}
	return c.topicRead(ctx, topic, n)
}

// topicRead compares a topic znode with the memory.
func (c *Controller) topicRead(ctx context.Context, topic string, n zkpaths.Node) error {
	t := c.state.Topic(topic)
	node, ok := c.decodeTopic(topic, n)
	switch {
	case !ok && t != nil:
		t.Damaged = true
		return nil
	case !ok:
		return nil
	case t == nil:
		return c.onTopicRepaired(ctx, topic, node, n.Stat.Version)
	}
	if len(node.Partitions) == 0 && len(t.Partitions()) > 0 && !c.state.Queued(topic) { // no tool takes partitions away
		t.Damaged = true
		c.reportOnce(zkpaths.TopicPath(topic), "has lost its partitions", fmt.Sprintf("what was known of them stands until the node holds them again, %d in number; delete the topic if it is not wanted", len(t.Partitions())))
		return nil
	}
	repaired := t.Damaged
	t.Damaged, t.ZKVersion = false, n.Stat.Version
	var added []zkpaths.PartitionAssignment
	for _, p := range node.Partitions {
		if known := c.state.Partition(kafka.TopicPartition{Topic: topic, Partition: p.Partition}); known == nil || len(known.Assignment.Replicas) == 0 {
			added = append(added, p)
		}
	}
	if c.state.Queued(topic) {
		return c.refusePartitions(ctx, t, added)
	}
	var ps []*statemachine.Partition
	for _, p := range added {
		ps = append(ps, c.state.SetAssignment(t, p.Partition, p.ReplicaAssignment))
	}
	if err := c.keepTopicID(ctx, t, node); err != nil {
		return err
	}
	if len(ps) == 0 {
		return nil
	}
	c.log.WithField("topic", topic).WithField("partitions", len(ps)).Info("new partitions")
	if repaired {
		return c.createOrAdopt(ctx, ps)
	}
	return c.createPartitions(ctx, ps) // a leftover state stays for the next failover (spec/controller.md §10.2, C-032)
}

// createOrAdopt takes partitions into service that this controller did not know:
// those without a state as new ones, the others with what their state says.
func (c *Controller) createOrAdopt(ctx context.Context, ps []*statemachine.Partition) error {
	if err := c.cacheStates(ctx, ps); err != nil {
		return err
	}
	var fresh, old []*statemachine.Partition
	for _, p := range ps {
		if p.HasLeadership {
			old = append(old, p)
		} else {
			fresh = append(fresh, p)
		}
	}
	if err := c.adopt(ctx, old); err != nil {
		return err
	}
	fresh, err := c.electable(ctx, fresh)
	if err != nil {
		return err
	}
	return c.createPartitions(ctx, fresh)
}

// onTopicRepaired takes up a topic that was unreadable when it was found.
func (c *Controller) onTopicRepaired(ctx context.Context, topic string, node zkpaths.Topic, version int32) error {
	t := c.addTopic(topic, node, true)
	t.ZKVersion = version
	if err := c.giveTopicIDs(ctx, []*statemachine.Topic{t}); err != nil {
		return err
	}
	c.queue.Put(events.TopicDeletion{}) // its marker, if it has one, has waited
	if err := c.createOrAdopt(ctx, t.Partitions()); err != nil {
		return err
	}
	return c.stepStored(ctx, t.Partitions())
}

// adopt takes partitions that have a leader already into service, as a new
// controller does at its start.
func (c *Controller) adopt(ctx context.Context, ps []*statemachine.Partition) error {
	var online, offline []statemachine.Replica
	for _, p := range ps {
		for _, id := range uniqueIDs(p.Assignment.Replicas) {
			r := statemachine.Replica{Partition: p, Broker: id}
			if c.state.Online(p, id) {
				p.SetReplica(id, statemachine.OnlineReplica)
				online = append(online, r)
			} else {
				p.SetReplica(id, statemachine.ReplicaDeletionIneligible)
				offline = append(offline, r)
			}
		}
		p.State = statemachine.OfflinePartition
		if c.state.Online(p, p.Leader) {
			p.State = statemachine.OnlinePartition
		}
	}
	if err := c.moveReplicas(ctx, online, statemachine.OnlineReplica); err != nil {
		return err
	}
	if err := c.moveReplicas(ctx, offline, statemachine.OfflineReplica); err != nil {
		return err
	}
	_, err := c.movePartitions(ctx, slices.DeleteFunc(slices.Clone(ps), func(p *statemachine.Partition) bool {
		return p.State != statemachine.OfflinePartition
	}), statemachine.OnlinePartition, statemachine.OfflineElection)
	return err
}

// keepTopicID puts the id known in memory back into a topic znode that lost
// it, conditional on the version read; another id is reported and left
// (traces/better.md, damage-topic-ids).
func (c *Controller) keepTopicID(ctx context.Context, t *statemachine.Topic, node zkpaths.Topic) error {
	path := zkpaths.TopicPath(t.Name)
	switch {
	case node.ID == t.ID:
		c.settled(path, "topic_id")
		return nil
	case t.ID.IsZero():
		return c.giveTopicIDs(ctx, []*statemachine.Topic{t})
	case !node.ID.IsZero():
		c.remark(path, "topic_id", "its topic_id was changed from "+t.ID.String()+" to "+node.ID.String(),
			"put the old id back; brokers refuse the partitions under the new one")
		return nil
	}
	c.log.WithField("topic", t.Name).WithField("topic_id", t.ID.String()).Error("the topic znode lost its topic_id; putting it back")
	node.ID, node.Version = t.ID, 3
	w := []zkpaths.Write{{Op: zkpaths.Set, Path: path, Data: zkpaths.EncodeTopic(node), Version: t.ZKVersion}}
	out, err := c.write(ctx, w)
	if err != nil {
		return err
	}
	if out[0].OK() {
		t.ZKVersion = out[0].Version
	} else { // somebody wrote meanwhile: the watch brings us back
		c.log.WithError(out[0].Error(path)).Warn("could not put the topic_id back yet")
	}
	return nil
}

// refusePartitions takes partitions back that were added to a topic being
// deleted: the znode keeps those that exist as nodes (spec/controller.md §7.2 step 2).
func (c *Controller) refusePartitions(ctx context.Context, t *statemachine.Topic, added []zkpaths.PartitionAssignment) error {
	if len(added) == 0 {
		return nil
	}
	c.log.WithField("topic", t.Name).WithField("partitions", len(added)).Warn("partitions were added to a topic that is being deleted; putting its assignment back")
	list, err := c.readOne(ctx, zkpaths.GetChildren, zkpaths.PartitionsPath(t.Name), false)
	if err != nil {
		return err
	}
	node := zkpaths.Topic{Version: c.policy.TopicVersion(), ID: t.ID}
	for _, p := range t.Partitions() {
		if slices.Contains(list.Children, partitionName(p.Partition)) {
			node.Partitions = append(node.Partitions, zkpaths.PartitionAssignment{Partition: p.Partition, ReplicaAssignment: c.policy.Stored(p.Assignment)})
		}
	}
	w := []zkpaths.Write{{Op: zkpaths.Set, Path: zkpaths.TopicPath(t.Name), Data: zkpaths.EncodeTopic(node), Version: zkpaths.AnyVersion}}
	out, err := c.write(ctx, w)
	if err != nil {
		return err
	}
	if out[0].OK() {
		t.ZKVersion = out[0].Version
	}
	return out[0].Error(w[0].Path)
}
