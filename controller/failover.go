package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/deletion"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// firstBalance is when automatic balancing looks first after a failover (spec/controller.md §3.3 step 15).
const firstBalance = 5 * time.Second

// failover takes over, in the order of spec/controller.md §3.3. Reading with a
// watch stands for the original's registering of handlers.
func (c *Controller) failover(ctx context.Context) error {
	if err := c.setUpFeatures(ctx); err != nil {
		return fmt.Errorf("features: %w", err)
	}
	if err := c.armAdminWatches(ctx); err != nil {
		return err
	}
	if err := c.without(events.LogDirEvent{}, c.dropChildren(ctx, zkpaths.LogDirNotifications)); err != nil {
		return fmt.Errorf("clearing %s: %w", zkpaths.LogDirNotifications, err)
	}
	if err := c.without(events.ISRChangeNotification{}, c.startNotifications(ctx)); err != nil {
		return fmt.Errorf("clearing %s: %w", zkpaths.ISRNotifications, err)
	}
	if err := c.loadBrokerConfigs(ctx); err != nil {
		return err
	}
	if err := c.load(ctx); err != nil {
		return err
	}
	if err := c.without(events.TopicDeletion{}, c.loadDeletions(ctx)); err != nil {
		return err
	}
	c.batch.Metadata(c.state.BrokerIDs())
	c.send()
	if err := c.startReplicas(ctx); err != nil {
		return err
	}
	if err := c.startPartitions(ctx); err != nil {
		return err
	}
	c.ready = true
	c.log.WithField("controller_epoch", c.state.Epoch).WithField("brokers", len(c.state.BrokerIDs())).
		WithField("topics", len(c.state.Topics())).Info("ready")
	if err := c.resumeReassignments(ctx); err != nil {
		return err
	}
	if err := c.resumeDeletions(ctx); err != nil {
		return err
	}
	if err := c.without(events.PreferredElectionZnode{}, c.pendingPreferredElections(ctx)); err != nil {
		return err
	}
	if c.opts.AutoRebalance {
		c.after(firstBalance, events.AutoPreferredElection{})
	}
	return c.without(events.ConfigChange{}, c.startConfigWatch(ctx))
}

// armAdminWatches waits for the two admin znodes that tools create.
func (c *Controller) armAdminWatches(ctx context.Context) error {
	_, err := c.read(ctx, []zkpaths.Read{
		{Op: zkpaths.Exists, Path: zkpaths.PreferredElection, Watch: true},
		{Op: zkpaths.Exists, Path: zkpaths.ReassignPartitions, Watch: true},
	})
	return err
}

// startNotifications waits for announcements of ISR changes. Those that are
// there are deleted; before 1.1 they stay until the next one comes
// (spec/controller.md §11).
func (c *Controller) startNotifications(ctx context.Context) error {
	if c.opts.Version.AtLeast(kafka.V1_1IV0) {
		return c.dropChildren(ctx, zkpaths.ISRNotifications)
	}
	n, err := c.listWatched(ctx, zkpaths.ISRNotifications)
	if err == nil && n.Code != zkpaths.OK && n.Code != zkpaths.NoNode {
		err = c.denied(zkpaths.ISRNotifications, n)
	}
	return err
}

// dropChildren deletes notifications that a new controller need not read: it
// reads the states themselves.
func (c *Controller) dropChildren(ctx context.Context, dir string) error {
	n, err := c.listWatched(ctx, dir)
	if err != nil || n.Code == zkpaths.NoNode {
		return err
	}
	if n.Code != zkpaths.OK {
		return c.denied(dir, n)
	}
	return c.deleteAll(ctx, dir, n.Children)
}

// deleteAll deletes children of a path, whatever became of single ones.
func (c *Controller) deleteAll(ctx context.Context, dir string, children []string) error {
	writes := make([]zkpaths.Write, len(children))
	for i, name := range children {
		writes[i] = zkpaths.Write{Op: zkpaths.Delete, Path: dir + "/" + name, Version: zkpaths.AnyVersion}
	}
	out, err := c.write(ctx, writes)
	if err != nil {
		return err
	}
	for i, o := range out {
		path := writes[i].Path
		if o.OK() || o.Code == zkpaths.NoNode {
			delete(c.damage, path)
			c.settled(path, "deletion")
		} else {
			c.remark(path, "deletion", "it is dealt with, and cannot be deleted: "+o.Code.String(), "remove it by hand, with what is below it")
		}
	}
	return nil
}

// load fills the memory from ZooKeeper and opens the channels.
func (c *Controller) load(ctx context.Context) error {
	brokers, _, err := c.readBrokers(ctx)
	if err != nil {
		return fmt.Errorf("loading brokers: %w", err)
	}
	for _, b := range brokers {
		c.state.SetBroker(b)
	}
	list, err := c.listWatched(ctx, zkpaths.BrokerTopics)
	if err != nil {
		return fmt.Errorf("loading topics: %w", err)
	}
	if list.Code != zkpaths.OK && list.Code != zkpaths.NoNode {
		return fmt.Errorf("loading topics: %w", list.Error(zkpaths.BrokerTopics))
	}
	if _, err := c.loadTopics(ctx, list.Children, true); err != nil {
		return fmt.Errorf("loading topics: %w", err)
	}
	if err := c.loadStates(ctx); err != nil {
		return fmt.Errorf("loading partition states: %w", err)
	}
	for _, b := range c.state.Brokers() {
		c.ch.Add(b)
	}
	return nil
}

// loadTopics reads topic znodes, arming their watches, and puts them into
// memory. Unreadable ones are reported and left out. It gives those added.
func (c *Controller) loadTopics(ctx context.Context, names []string, failover bool) ([]*statemachine.Topic, error) {
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, names, zkpaths.TopicPath, true))
	if err != nil {
		return nil, err
	}
	var added []*statemachine.Topic
	for i, name := range names {
		node, ok := c.decodeTopic(name, nodes[i])
		if !ok {
			continue
		}
		t := c.addTopic(name, node, failover)
		t.ZKVersion = nodes[i].Stat.Version
		if nodes[i].Code == zkpaths.OK {
			added = append(added, t)
		}
	}
	if err := c.giveTopicIDs(ctx, added); err != nil {
		return nil, err
	}
	return added, nil
}

// decodeTopic reads one topic node. A node that is gone is a topic without
// partitions for now: its removal is told by another watch.
func (c *Controller) decodeTopic(name string, n zkpaths.Node) (zkpaths.Topic, bool) {
	path := zkpaths.TopicPath(name)
	if n.Code == zkpaths.NoNode {
		return zkpaths.Topic{}, true
	}
	if n.Code != zkpaths.OK {
		c.reportOnce(path, "cannot be read: "+n.Error(path).Error(), "give this process the right to read it")
		return zkpaths.Topic{}, false
	}
	t, err := zkpaths.DecodeTopic(name, n.Data)
	if err != nil {
		c.report(err)
		return zkpaths.Topic{}, false
	}
	c.repaired(path)
	return t, true
}

// addTopic puts a topic into memory. Only at failover do adding and removing
// replicas found in the node count as a move in progress (spec/controller.md §9, I-12).
func (c *Controller) addTopic(name string, node zkpaths.Topic, failover bool) *statemachine.Topic {
	t := c.state.AddTopic(name)
	t.Damaged = false
	if other := c.state.TopicByID(node.ID); other != nil && other != t {
		c.remark(zkpaths.TopicPath(name), "topic_id", fmt.Sprintf("topic id %s is that of topic %q already", node.ID, other.Name),
			"give one of the two topics another topic_id, or remove the field")
	} else {
		c.state.SetTopicID(t, node.ID)
	}
	for _, p := range node.Partitions {
		part := c.state.SetAssignment(t, p.Partition, p.ReplicaAssignment)
		if failover && p.Reassigning() {
			c.state.SetMoving(part.TopicPartition, true)
		}
	}
	return t
}

// giveTopicIDs makes up ids for topics that have none and writes them,
// conditional on the version read (spec/controller.md §7.15).
func (c *Controller) giveTopicIDs(ctx context.Context, topics []*statemachine.Topic) error {
	if c.opts.Version.Less(kafka.V2_8IV0) {
		return nil
	}
	var writes []zkpaths.Write
	var given []*statemachine.Topic
	for _, t := range topics {
		if !t.ID.IsZero() || c.damage[zkpaths.TopicPath(t.Name)] != "" {
			continue
		}
		c.state.SetTopicID(t, c.opts.UUID())
		given = append(given, t)
		writes = append(writes, zkpaths.Write{Op: zkpaths.Set, Path: zkpaths.TopicPath(t.Name), Data: c.topicNode(t, asKnown), Version: t.ZKVersion})
	}
	out, err := c.write(ctx, writes)
	if err != nil {
		return err
	}
	for i, o := range out {
		if o.OK() {
			given[i].ZKVersion = o.Version
		} else { // somebody wrote first: the watch brings us back
			c.state.SetTopicID(given[i], kafka.TopicID{})
			c.log.WithField("topic", given[i].Name).WithError(o.Error(writes[i].Path)).Warn("could not write the topic's new id; trying again when the node changes")
		}
	}
	return nil
}

// loadStates reads every state znode into the leadership cache.
func (c *Controller) loadStates(ctx context.Context) error {
	var ps []*statemachine.Partition
	c.state.EachPartition(func(p *statemachine.Partition) { ps = append(ps, p) })
	return c.cacheStates(ctx, ps)
}

// cacheStates reads the state znodes of ps into the leadership cache, without
// a look at controller epochs. Missing and unreadable ones have no leadership.
func (c *Controller) cacheStates(ctx context.Context, ps []*statemachine.Partition) error {
	reads := make([]zkpaths.Read, len(ps))
	for i, p := range ps {
		reads[i] = zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.PartitionStatePath(p.TopicPartition)}
	}
	nodes, err := c.read(ctx, reads)
	if err != nil {
		return err
	}
	for i, p := range ps {
		if zk := c.decodeState(p.TopicPartition, reads[i].Path, nodes[i]); zk.Err == nil {
			p.SetLeadership(zk.Leadership)
		}
	}
	return c.watchDamaged(ctx)
}

// startReplicas is the replica state machine's start (spec/controller.md §5.5).
// Before 2.3 it leaves replicas on dead brokers alone: they stay in the ISR until
// their leader takes them out, or the next leader is elected.
func (c *Controller) startReplicas(ctx context.Context) error {
	var online, offline []statemachine.Replica
	c.state.EachPartition(func(p *statemachine.Partition) {
		for _, id := range p.Assignment.Replicas {
			r := statemachine.Replica{Partition: p, Broker: id}
			if c.state.Online(p, id) {
				p.SetReplica(id, statemachine.OnlineReplica)
				online = append(online, r)
			} else {
				p.SetReplica(id, statemachine.ReplicaDeletionIneligible)
				offline = append(offline, r)
			}
		}
	})
	if err := c.moveReplicas(ctx, online, statemachine.OnlineReplica); err != nil {
		return err
	}
	if c.opts.Version.Less(kafka.V2_3IV0) {
		return nil
	}
	return c.moveReplicas(ctx, offline, statemachine.OfflineReplica)
}

// startPartitions is the partition state machine's start (spec/controller.md §4.5).
func (c *Controller) startPartitions(ctx context.Context) error {
	c.state.EachPartition(func(p *statemachine.Partition) {
		switch {
		case !p.HasLeadership:
			p.State = statemachine.NewPartition
		case c.state.Online(p, p.Leader):
			p.State = statemachine.OnlinePartition
		default:
			p.State = statemachine.OfflinePartition
		}
	})
	_, err := c.triggerOnline(ctx, "")
	return err
}

// triggerOnline elects leaders for all new and offline partitions, of one
// topic or of all, that are not being deleted.
func (c *Controller) triggerOnline(ctx context.Context, topic string) (moved, error) {
	var ps []*statemachine.Partition
	add := func(p *statemachine.Partition) {
		if p.State == statemachine.NewPartition || p.State == statemachine.OfflinePartition {
			ps = append(ps, p)
		}
	}
	for _, t := range c.state.Topics() {
		if (topic != "" && t.Name != topic) || c.state.Queued(t.Name) {
			continue
		}
		for _, p := range t.Partitions() {
			add(p)
		}
	}
	ps, err := c.electable(ctx, ps)
	if err != nil {
		return moved{}, err
	}
	return c.movePartitions(ctx, ps, statemachine.OnlinePartition, statemachine.OfflineElection)
}

// electable leaves out new partitions whose state znode exists but cannot be
// read: creating it would fail, and its damage was reported. Those that were
// damaged are looked at again, since somebody may have removed the node.
func (c *Controller) electable(ctx context.Context, ps []*statemachine.Partition) ([]*statemachine.Partition, error) {
	if len(c.damage) == 0 {
		return ps, nil
	}
	var damaged []*statemachine.Partition
	for _, p := range ps {
		if p.State == statemachine.NewPartition && c.damage[zkpaths.PartitionStatePath(p.TopicPartition)] != "" {
			damaged = append(damaged, p)
		}
	}
	nodes, err := c.read(ctx, readsOf(zkpaths.Exists, damaged, func(p *statemachine.Partition) string { return zkpaths.PartitionStatePath(p.TopicPartition) }, false))
	if err != nil {
		return nil, err
	}
	out := map[*statemachine.Partition]bool{}
	for i, p := range damaged {
		if nodes[i].Code == zkpaths.NoNode {
			delete(c.damage, zkpaths.PartitionStatePath(p.TopicPartition))
		} else {
			out[p] = true
		}
	}
	return slices.DeleteFunc(ps, func(p *statemachine.Partition) bool { return out[p] }), nil
}

// loadDeletions reads the deletion markers (spec/controller.md §3.3 steps 6 and 7).
func (c *Controller) loadDeletions(ctx context.Context) error {
	n, err := c.listWatched(ctx, zkpaths.DeleteTopics)
	if err != nil || n.Code == zkpaths.NoNode {
		return err
	}
	if n.Code != zkpaths.OK {
		return c.denied(zkpaths.DeleteTopics, n)
	}
	if !c.opts.DeleteTopics {
		return c.deleteAll(ctx, zkpaths.DeleteTopics, n.Children)
	}
	for _, name := range n.Children {
		if c.damage[zkpaths.TopicPath(name)] != "" && c.state.Topic(name) == nil {
			continue // its replicas are not known: nothing is deleted by a guess
		}
		c.state.Queue(name)
	}
	for _, name := range deletion.IneligibleAtFailover(c.state) {
		c.state.SetIneligible(name)
	}
	return nil
}

// readBrokers lists and reads /brokers/ids, arming all watches. What is no
// broker, or cannot be read or addressed, is reported and left out; unreadable
// has the ids of such registrations.
func (c *Controller) readBrokers(ctx context.Context) (brokers []kafka.Broker, unreadable map[kafka.BrokerID]int64, err error) {
	list, err := c.listWatched(ctx, zkpaths.BrokerIDs)
	if err != nil {
		return nil, nil, err
	}
	if list.Code != zkpaths.OK && list.Code != zkpaths.NoNode {
		return nil, nil, list.Error(zkpaths.BrokerIDs)
	}
	c.goneExcept(zkpaths.BrokerIDs, list.Children)
	var ids []kafka.BrokerID
	for _, child := range list.Children {
		id, ok := zkpaths.ParseBrokerID(child)
		if !ok {
			c.reportOnce(zkpaths.BrokerIDs+"/"+child, "the name is no broker id", "remove this znode; it is ignored meanwhile")
			continue
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, ids, zkpaths.BrokerPath, true))
	if err != nil {
		return nil, nil, err
	}
	unreadable = map[kafka.BrokerID]int64{}
	for i, id := range ids {
		if nodes[i].Code == zkpaths.NoNode {
			continue
		}
		if b, ok := c.decodeBroker(id, nodes[i]); ok {
			brokers = append(brokers, b)
		} else {
			unreadable[id] = nodes[i].Stat.Czxid
		}
	}
	return brokers, unreadable, nil
}

func (c *Controller) decodeBroker(id kafka.BrokerID, n zkpaths.Node) (kafka.Broker, bool) {
	path := zkpaths.BrokerPath(id)
	if n.Code != zkpaths.OK {
		c.reportOnce(path, "cannot be read: "+n.Error(path).Error(), "give this process the right to read it")
		return kafka.Broker{}, false
	}
	r, err := zkpaths.DecodeBroker(id, n.Data)
	if err != nil {
		c.report(err)
		return kafka.Broker{}, false
	}
	b := r.Broker
	b.ID, b.Epoch = id, n.Stat.Czxid
	if _, ok := control.PickEndpoint(b, c.opts.ControlListener); !ok {
		c.reportOnce(path, fmt.Sprintf("no endpoint for listener %q", c.opts.ControlListener),
			"let the broker advertise that listener, or set control.plane.listener.name; until then it gets no requests and counts as dead")
		return kafka.Broker{}, false
	}
	if reason := c.features.refuses(b); reason != "" {
		c.reportOnce(path, reason, "upgrade the broker; until then it counts as dead")
		return kafka.Broker{}, false
	}
	c.repaired(path)
	return b, true
}
