package controller

import (
	"context"
	"slices"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/deletion"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// brokerDiff is what a listing of brokers says against the memory.
type brokerDiff struct{ added, bounced, dead []kafka.Broker }

func (c *Controller) diffBrokers(listed []kafka.Broker, unreadable map[kafka.BrokerID]int64) brokerDiff {
	var d brokerDiff
	seen := map[kafka.BrokerID]bool{}
	for _, b := range listed {
		seen[b.ID] = true
		known, ok := c.state.Broker(b.ID)
		switch {
		case !ok:
			d.added = append(d.added, b)
		case b.Epoch > known.Epoch:
			d.bounced = append(d.bounced, b)
		}
	}
	for _, b := range c.state.Brokers() {
		// A known registration that only became unreadable is the same broker still.
		if czxid, ok := unreadable[b.ID]; ok && czxid <= b.Epoch {
			continue
		}
		if !seen[b.ID] {
			d.dead = append(d.dead, b)
		}
	}
	return d
}

// onBrokerChange looks which brokers came, returned and went (spec/controller.md §7.3).
func (c *Controller) onBrokerChange(ctx context.Context) error {
	listed, unreadable, err := c.readBrokers(ctx)
	if err != nil {
		return err
	}
	d := c.diffBrokers(listed, unreadable)
	if len(d.added)+len(d.bounced)+len(d.dead) == 0 {
		return nil
	}
	c.log.WithField("new", brokerIDs(d.added)).WithField("bounced", brokerIDs(d.bounced)).WithField("dead", brokerIDs(d.dead)).
		WithField("live", brokerIDs(listed)).Info("brokers changed")
	for _, b := range d.added {
		c.ch.Add(b)
	}
	for _, b := range d.bounced {
		c.ch.Remove(b.ID)
		c.ch.Add(b)
	}
	for _, b := range d.dead {
		c.ch.Remove(b.ID)
	}
	if len(d.added) > 0 {
		c.addBrokers(d.added)
		if err := c.brokersStarted(ctx, brokerIDs(d.added)); err != nil {
			return err
		}
	}
	if len(d.bounced) > 0 {
		c.removeBrokers(d.bounced)
		if err := c.brokersFailed(ctx, brokerIDs(d.bounced)); err != nil {
			return err
		}
		c.addBrokers(d.bounced)
		if err := c.brokersStarted(ctx, brokerIDs(d.bounced)); err != nil {
			return err
		}
	}
	if len(d.dead) == 0 {
		return nil
	}
	c.removeBrokers(d.dead)
	return c.brokersFailed(ctx, brokerIDs(d.dead))
}

func (c *Controller) addBrokers(bs []kafka.Broker) {
	for _, b := range bs {
		c.state.SetBroker(b)
	}
}

func (c *Controller) removeBrokers(bs []kafka.Broker) {
	for _, b := range bs {
		c.state.RemoveBroker(b.ID)
	}
}

func brokerIDs(bs []kafka.Broker) []kafka.BrokerID {
	out := make([]kafka.BrokerID, len(bs))
	for i, b := range bs {
		out[i] = b.ID
	}
	return out
}

// brokersStarted brings new brokers into service (spec/controller.md §7.3, "Broker start-up").
func (c *Controller) brokersStarted(ctx context.Context, ids []kafka.BrokerID) error {
	for _, id := range ids {
		c.state.ForgetFailedReplicas(id)
	}
	c.batch.Metadata(kafka.Without(c.state.BrokerIDs(), ids))
	c.send()
	var led []*statemachine.Partition
	c.state.EachPartition(func(p *statemachine.Partition) {
		if p.HasLeadership && !c.state.Queued(p.TopicPartition.Topic) {
			led = append(led, p)
		}
	})
	c.tellMetadata(ids, led)
	c.send()
	rs := c.state.ReplicasOn(ids)
	if err := c.moveReplicas(ctx, rs, statemachine.OnlineReplica); err != nil {
		return err
	}
	if _, err := c.triggerOnline(ctx, ""); err != nil {
		return err
	}
	if err := c.stepMovesTo(ctx, ids); err != nil {
		return err
	}
	queued, _ := deletion.Split(c.state, rs)
	return c.resumeDeletionFor(ctx, topicsOf(queued))
}

// stepMovesTo goes on with moves whose target has one of the brokers.
func (c *Controller) stepMovesTo(ctx context.Context, ids []kafka.BrokerID) error {
	var tps []*statemachine.Partition
	for _, tp := range c.state.MovingPartitions() {
		p := c.state.Partition(tp)
		if p != nil && slices.ContainsFunc(p.Assignment.Target(), func(id kafka.BrokerID) bool { return slices.Contains(ids, id) }) {
			tps = append(tps, p)
		}
	}
	return c.restepMoves(ctx, tps)
}

// brokersFailed takes brokers out of service; they are no longer registered.
func (c *Controller) brokersFailed(ctx context.Context, ids []kafka.BrokerID) error {
	for _, id := range ids {
		c.state.ForgetFailedReplicas(id)
		c.state.ClearShuttingDown(id)
	}
	told := c.brokersUnheard(ids)
	if err := c.takeReplicasOffline(ctx, c.state.ReplicasOn(ids)); err != nil || !told {
		return err
	}
	return c.completeTold(ctx, deletion.Resume(c.state).Complete)
}

// takeReplicasOffline deals with replicas that cannot serve any more
// (spec/controller.md §7.3, "Replicas offline").
func (c *Controller) takeReplicasOffline(ctx context.Context, rs []statemachine.Replica) error {
	queued, others := deletion.Split(c.state, rs)
	var leaderless []*statemachine.Partition
	c.state.EachPartition(func(p *statemachine.Partition) {
		if p.HasLeadership && !c.state.Online(p, p.Leader) && !c.state.Queued(p.TopicPartition.Topic) {
			leaderless = append(leaderless, p)
		}
	})
	told := false
	err := c.together(func() error {
		if _, err := c.movePartitions(ctx, leaderless, statemachine.OfflinePartition, statemachine.OfflineElection); err != nil {
			return err
		}
		elected, err := c.triggerOnline(ctx, "")
		if err != nil {
			return err
		}
		told = slices.ContainsFunc(elected.done, func(ch statemachine.PartitionChange) bool { return ch.From != statemachine.NewPartition })
		return c.moveReplicas(ctx, others, statemachine.OfflineReplica)
	})
	if err != nil {
		return err
	}
	if err := c.deletionFailed(ctx, queued); err != nil {
		return err
	}
	if len(others) == 0 && !told {
		c.batch.Metadata(c.state.BrokerIDs())
		c.send()
	}
	return nil
}

// onBrokerModifications looks at a registration that was rewritten in place (spec/controller.md §7.4).
func (c *Controller) onBrokerModifications(ctx context.Context, id kafka.BrokerID) error {
	n, err := c.readOne(ctx, zkpaths.GetData, zkpaths.BrokerPath(id), true)
	if err != nil || n.Code == zkpaths.NoNode {
		return err
	}
	b, ok := c.decodeBroker(id, n)
	if !ok {
		return nil // reported; what was known of the broker stands
	}
	known, registered := c.state.Broker(id)
	if !registered {
		return c.onBrokerChange(ctx) // it was unreadable when it came, and is repaired now
	}
	if slices.Equal(known.Endpoints, b.Endpoints) && equalFeatures(known.Features, b.Features) {
		return nil
	}
	c.log.WithField("broker", id).Info("broker changed its endpoints or features")
	b.Epoch = known.Epoch // only a listing tells a bounce
	c.state.SetBroker(b)
	c.batch.Metadata(c.state.BrokerIDs())
	c.send()
	return nil
}

func equalFeatures(a, b map[string]kafka.VersionRange) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return true
}

// onLogDirEvent probes the brokers that announced a failed log directory: they
// are told about all their replicas again, and answer for each (spec/controller.md §7.5).
func (c *Controller) onLogDirEvent(ctx context.Context) error {
	list, nodes, err := c.readChildren(ctx, zkpaths.LogDirNotifications)
	if err != nil || len(list) == 0 {
		return err
	}
	var ids []kafka.BrokerID
	for i, n := range nodes {
		path := zkpaths.LogDirNotificationPath(list[i])
		if n.Code != zkpaths.OK {
			continue
		}
		ev, err := zkpaths.DecodeLogDirEvent(path, n.Data)
		if err != nil {
			c.report(err)
		} else if !slices.Contains(ids, ev.Broker) {
			ids = append(ids, ev.Broker)
		}
	}
	probe := c.moveReplicas(ctx, c.state.ReplicasOn(ids), statemachine.OnlineReplica)
	if err := c.deleteAll(ctx, zkpaths.LogDirNotifications, list); err != nil {
		return err
	}
	return probe
}

// readChildren lists a path, re-arming its watch, and reads every child.
func (c *Controller) readChildren(ctx context.Context, dir string) ([]string, []zkpaths.Node, error) {
	list, err := c.listWatched(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	if list.Code == zkpaths.NoNode {
		return nil, nil, nil
	}
	if list.Code != zkpaths.OK {
		return nil, nil, c.denied(dir, list)
	}
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, list.Children, func(name string) string { return dir + "/" + name }, false))
	return list.Children, nodes, err
}

// onLeaderAndISRResponse learns which replicas are in offline log directories (spec/controller.md §7.5 step 2).
func (c *Controller) onLeaderAndISRResponse(ctx context.Context, e events.LeaderAndISRResponse) error {
	if e.Error != kafka.NoError {
		c.log.WithField("broker", e.Broker).WithField("error", e.Error.String()).Error("broker refused a LeaderAndIsr")
		return nil
	}
	if e.Request != nil { // answers that only tell failures: a partition without a row is well
		for _, tp := range c.state.FailedReplicas(e.Broker) {
			if _, failed := e.Errors[tp]; !failed && asksFor(e.Request, tp) {
				c.state.SetReplicaFailed(e.Broker, tp, false)
			}
		}
	}
	var offline []statemachine.Replica
	for tp, code := range e.Errors {
		failed := c.state.ReplicaFailed(e.Broker, tp)
		switch {
		case code == kafka.KafkaStorageError && !failed:
			c.state.SetReplicaFailed(e.Broker, tp, true)
			if p := c.state.Partition(tp); p != nil {
				offline = append(offline, statemachine.Replica{Partition: p, Broker: e.Broker})
			}
		case code == kafka.NoError && failed:
			c.state.SetReplicaFailed(e.Broker, tp, false)
		}
	}
	if len(offline) == 0 {
		return nil
	}
	slices.SortFunc(offline, compareReplicas)
	c.log.WithField("broker", e.Broker).WithField("replicas", len(offline)).Info("replicas are in an offline log directory")
	return c.takeReplicasOffline(ctx, offline)
}

func asksFor(r *control.LeaderAndISRRequest, tp kafka.TopicPartition) bool {
	_, ok := slices.BinarySearchFunc(r.Partitions, tp, func(p *control.PartitionState, tp kafka.TopicPartition) int { return p.Compare(tp) })
	return ok
}

func (c *Controller) onUpdateMetadataResponse(ctx context.Context, e events.UpdateMetadataResponse) error {
	if e.Error != kafka.NoError {
		c.log.WithField("broker", e.Broker).WithField("error", e.Error.String()).Error("broker refused an UpdateMetadata")
	}
	if !c.confirmFarewells(e) {
		return nil
	}
	return c.completeTold(ctx, deletion.Resume(c.state).Complete)
}
