package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// maxRetries bounds how often one move chooses anew after other writers. Each
// round means that a leader wrote in between, so more than a few is a storm.
const maxRetries = 100

var errOutwritten = fmt.Errorf("other writers won %d times in a row", maxRetries)

// read answers reads, and records them.
func (c *Controller) read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error) {
	if len(reads) == 0 {
		return nil, nil
	}
	nodes, err := c.store.Read(ctx, reads)
	if err == nil {
		c.rec.reads(reads, nodes)
	}
	return nodes, err
}

func (c *Controller) readOne(ctx context.Context, op zkpaths.ReadOp, path string, watch bool) (zkpaths.Node, error) {
	nodes, err := c.read(ctx, []zkpaths.Read{{Op: op, Path: path, Watch: watch}})
	if err != nil {
		return zkpaths.Node{}, err
	}
	return nodes[0], nil
}

// listWatched lists a directory and watches it. Listing leaves no watch on one
// that somebody removed, so that one is waited for.
func (c *Controller) listWatched(ctx context.Context, dir string) (zkpaths.Node, error) {
	n, err := c.readOne(ctx, zkpaths.GetChildren, dir, true)
	if err != nil || n.Code != zkpaths.NoNode {
		return n, err
	}
	made, err := c.readOne(ctx, zkpaths.Exists, dir, true)
	if err != nil || made.Code != zkpaths.OK {
		return n, err
	}
	return c.readOne(ctx, zkpaths.GetChildren, dir, true) // it was made between the two looks
}

// write carries out fenced writes, and records them.
func (c *Controller) write(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	if len(writes) == 0 {
		return nil, nil
	}
	out, err := c.store.Write(ctx, c.state.EpochVersion, writes)
	if err == nil {
		c.rec.writes(writes, out)
	}
	return out, err
}

// readStates reads the state znodes of ps. Unreadable ones are reported here;
// their entry carries the error.
func (c *Controller) readStates(ctx context.Context, ps []*statemachine.Partition, watch bool) (map[*statemachine.Partition]statemachine.ZKState, error) {
	if len(ps) == 0 {
		return nil, nil
	}
	reads := make([]zkpaths.Read, len(ps))
	for i, p := range ps {
		reads[i] = zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.PartitionStatePath(p.TopicPartition), Watch: watch}
	}
	nodes, err := c.read(ctx, reads)
	if err != nil {
		return nil, err
	}
	out := make(map[*statemachine.Partition]statemachine.ZKState, len(ps))
	for i, p := range ps {
		out[p] = c.decodeState(p.TopicPartition, reads[i].Path, nodes[i])
	}
	return out, c.watchDamaged(ctx)
}

func (c *Controller) decodeState(tp kafka.TopicPartition, path string, n zkpaths.Node) statemachine.ZKState {
	switch n.Code {
	case zkpaths.OK:
	case zkpaths.NoNode:
		delete(c.damage, path)
		return statemachine.ZKState{Err: statemachine.ErrNoState}
	default:
		return statemachine.ZKState{Err: n.Error(path)}
	}
	l, err := zkpaths.DecodePartitionState(tp, n.Data, n.Stat.Version)
	if err != nil {
		if c.damage[path] == "" {
			c.damaged = append(c.damaged, tp)
		}
		c.report(err)
		return statemachine.ZKState{Err: err}
	}
	c.repaired(path)
	return statemachine.ZKState{Leadership: l}
}

// moved is what became of a move of partitions.
type moved struct {
	done     []statemachine.PartitionChange
	failures []statemachine.Failure
}

// movePartitions carries partitions to a state in six beats: read, plan,
// write, settle, commit, send (spec/controller.md §4.2, §4.6).
func (c *Controller) movePartitions(ctx context.Context, ps []*statemachine.Partition, to statemachine.PartitionState, s statemachine.Strategy) (moved, error) {
	var all moved
	for round := 0; len(ps) > 0; round++ {
		if round == maxRetries {
			all.failures = append(all.failures, c.outwritten(ps, to.String())...)
			break
		}
		need := statemachine.NeedState(ps, to)
		zk, err := c.readStates(ctx, need, false)
		if err != nil {
			return all, fmt.Errorf("move to %s: %w", to, err)
		}
		unclean, err := c.uncleanConfigs(ctx, need, zk, s)
		if err != nil {
			return all, fmt.Errorf("move to %s: %w", to, err)
		}
		plan := c.state.PlanPartitions(ps, to, s, zk, unclean)
		out, err := c.write(ctx, plan.Writes)
		if err != nil {
			return all, fmt.Errorf("move to %s: %w", to, err)
		}
		res := plan.Settle(out)
		c.state.CommitPartitions(res.Done)
		c.announce(res.Done)
		c.reportPartitions(to, s, res)
		all.done = append(all.done, res.Done...)
		all.failures = append(all.failures, res.Failures...)
		ps = res.Retry
	}
	c.send()
	return all, nil
}

// outwritten reports partitions that other writers kept from changing,
// maxRetries times in a row. Only they keep their state; those that were written are told.
func (c *Controller) outwritten(ps []*statemachine.Partition, to string) []statemachine.Failure {
	out := make([]statemachine.Failure, len(ps))
	for i, p := range ps {
		out[i] = statemachine.Failure{Partition: p.TopicPartition, Broker: kafka.NoLeader, From: p.State.String(), To: to, Err: errOutwritten}
	}
	c.reportFailures(out)
	return out
}

// announce fills the batch with what committed changes mean to brokers.
func (c *Controller) announce(done []statemachine.PartitionChange) {
	for _, ch := range done {
		if ch.Leadership != nil {
			c.tellLeadership(ch.Partition, *ch.Leadership, ch.Recipients, ch.IsNew)
		}
	}
}

// tellLeadership adds a LeaderAndIsr for some brokers; that always brings an
// UpdateMetadata for all (spec/controller.md §6.2).
func (c *Controller) tellLeadership(p *statemachine.Partition, l kafka.Leadership, to []kafka.BrokerID, isNew bool) {
	entry := c.state.LeaderAndISREntry(p, l, isNew)
	c.batch.LeaderAndISR(to, entry)
	meta := entry
	if !p.HasLeadership || c.state.Queued(p.TopicPartition.Topic) {
		if meta = c.state.MetadataEntry(p); meta == nil {
			c.batch.Metadata(c.state.BrokerIDs())
			return
		}
	}
	c.batch.Metadata(c.state.BrokerIDs(), meta)
}

// tellMetadata adds partitions to the UpdateMetadata of some brokers; none is
// the broker list alone.
func (c *Controller) tellMetadata(to []kafka.BrokerID, ps []*statemachine.Partition) {
	entries := make([]*control.PartitionState, 0, len(ps))
	for _, p := range ps {
		if e := c.state.MetadataEntry(p); e != nil {
			entries = append(entries, e)
		}
	}
	c.batch.Metadata(to, entries...)
}

// together lets several steps fill one batch, so that a broker gets one
// request of a kind for all of them: of a partition the last entry counts, as
// it would if they came one after the other.
func (c *Controller) together(steps func() error) error {
	if c.opts.KafkaOrder {
		return steps()
	}
	c.held++
	err := steps()
	c.held--
	if err != nil {
		return err
	}
	c.send()
	return nil
}

// send hands the batch to the channels.
func (c *Controller) send() {
	if c.held > 0 || c.batch.Empty() {
		return
	}
	for _, a := range c.batch.Flush(control.Sender{ID: c.opts.ID, Epoch: c.state.Epoch, Self: c.opts.Self,
		Brokers: c.state.Brokers(), Listener: c.opts.ControlListener}) {
		c.rec.request(a)
		c.open.sent(a, c.state.Queued)
		c.ch.Send(a.To, a.Request)
	}
}

// uncleanConfigs reads the configuration of topics whose election depends on
// it, and gives a function that answers for them.
func (c *Controller) uncleanConfigs(ctx context.Context, ps []*statemachine.Partition, zk map[*statemachine.Partition]statemachine.ZKState, s statemachine.Strategy) (func(string) (bool, error), error) {
	var topics []string
	var reads []zkpaths.Read
	allowed, failed := map[string]bool{}, map[string]error{}
	for _, p := range ps {
		st := zk[p]
		name := p.TopicPartition.Topic
		if _, seen := allowed[name]; seen || st.Err != nil || !c.state.NeedsUncleanConfig(p, st.Leadership, s) {
			continue
		}
		allowed[name] = false
		topics = append(topics, name)
		reads = append(reads, zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.TopicConfigPath(name)})
	}
	nodes, err := c.read(ctx, reads)
	if err != nil {
		return nil, err
	}
	for i, name := range topics {
		if allowed[name], err = c.uncleanAllowed(reads[i].Path, nodes[i]); err != nil {
			failed[name] = err
		}
	}
	return func(topic string) (bool, error) { return allowed[topic], failed[topic] }, nil
}

// uncleanKey is the configuration that lets a leader be elected outside the ISR.
const uncleanKey = "unclean.leader.election.enable"

func (c *Controller) uncleanAllowed(path string, n zkpaths.Node) (bool, error) {
	if n.Code == zkpaths.NoNode {
		return c.uncleanDefault(), nil
	}
	if n.Code != zkpaths.OK {
		return false, n.Error(path)
	}
	config, err := zkpaths.DecodeConfig(path, n.Data)
	if err != nil {
		// Unreadable overrides count as none, as in Kafka; but they are reported.
		c.report(err)
		return c.uncleanDefault(), nil
	}
	c.repaired(path)
	switch config[uncleanKey] {
	case "":
		return c.uncleanDefault(), nil
	case "true":
		return true, nil
	}
	return false, nil
}

// replicas makes the list of some brokers' replicas of one partition.
func replicas(p *statemachine.Partition, ids []kafka.BrokerID) []statemachine.Replica {
	out := make([]statemachine.Replica, len(ids))
	for i, id := range ids {
		out[i] = statemachine.Replica{Partition: p, Broker: id}
	}
	return out
}

// moveReplicas carries replicas to a state (spec/controller.md §5.2, §5.3).
// Replicas that may not go there, or whose ISR cannot be written, keep their
// state and are reported.
func (c *Controller) moveReplicas(ctx context.Context, rs []statemachine.Replica, to statemachine.ReplicaState) error {
	if len(rs) == 0 {
		return nil
	}
	if !slices.IsSortedFunc(rs, compareReplicas) {
		rs = slices.Clone(rs)
		slices.SortFunc(rs, compareReplicas)
	}
	legal, failures := statemachine.LegalReplicas(rs, to)
	c.reportReplicas(to, nil, failures)
	var err error
	switch to {
	case statemachine.NewReplica:
		c.replicasNew(legal)
	case statemachine.OnlineReplica:
		c.replicasOnline(legal)
	case statemachine.OfflineReplica:
		err = c.replicasOffline(ctx, legal)
	case statemachine.ReplicaDeletionStarted:
		for _, r := range legal {
			c.setReplica(r, to)
			c.batch.Stop(r.Broker, c.state.StopEntry(r.Partition, true))
		}
	case statemachine.NonExistentReplica:
		for _, r := range legal {
			c.rec.replica(r, to)
			c.state.ForgetReplica(r)
		}
	default:
		for _, r := range legal {
			c.setReplica(r, to)
		}
	}
	if err != nil {
		return fmt.Errorf("move of %d replicas to %s: %w", len(legal), to, err)
	}
	c.send()
	return nil
}

func compareReplicas(a, b statemachine.Replica) int { return a.Name().Compare(b.Name()) }

func (c *Controller) setReplica(r statemachine.Replica, to statemachine.ReplicaState) {
	c.rec.replica(r, to)
	r.SetReplica(r.Broker, to)
}

func (c *Controller) replicasNew(rs []statemachine.Replica) {
	for _, r := range rs {
		if r.HasLeadership && r.Leader == r.Broker {
			c.reportReplicas(statemachine.NewReplica, nil, []statemachine.Failure{{Partition: r.TopicPartition, Broker: r.Broker,
				From: r.Replica(r.Broker).String(), To: statemachine.NewReplica.String(), Err: fmt.Errorf("%w: it leads the partition already", statemachine.ErrStateChange)}})
			continue
		}
		if r.HasLeadership {
			c.tellLeadership(r.Partition, r.Leadership, []kafka.BrokerID{r.Broker}, true)
		}
		c.setReplica(r, statemachine.NewReplica)
	}
}

func (c *Controller) replicasOnline(rs []statemachine.Replica) {
	for i := 0; i < len(rs); {
		p := rs[i].Partition
		var tell []kafka.BrokerID
		for ; i < len(rs) && rs[i].Partition == p; i++ {
			r := rs[i]
			if r.Replica(r.Broker) != statemachine.NewReplica {
				tell = append(tell, r.Broker)
			} else if !slices.Contains(p.Assignment.Replicas, r.Broker) {
				c.log.WithFields(partitionFields(p.TopicPartition)).WithField("broker", r.Broker).Error("replica is not in the assignment; added in memory")
				a := p.Assignment
				a.Replicas = append(slices.Clone(a.Replicas), r.Broker)
				p.Assignment = a
			}
			c.setReplica(r, statemachine.OnlineReplica)
		}
		if p.HasLeadership && len(tell) > 0 {
			c.tellLeadership(p, p.Leadership, tell, false)
		}
	}
}

// replicasOffline stops replicas and takes them out of their ISRs.
func (c *Controller) replicasOffline(ctx context.Context, rs []statemachine.Replica) error {
	var with []statemachine.Replica
	for _, r := range rs {
		c.batch.Stop(r.Broker, c.state.StopEntry(r.Partition, false))
		if r.NeedsLeadership() {
			with = append(with, r)
			continue
		}
		c.batch.Metadata(c.state.BrokerIDs()) // without leadership only the broker list has news
		c.setReplica(r, statemachine.OfflineReplica)
	}
	zk, err := c.readStates(ctx, partitionsOf(with), false)
	if err != nil {
		return err
	}
	for lost := 0; len(with) > 0; {
		if lost == maxRetries {
			c.replicasOutwritten(with)
			return nil
		}
		plan := c.state.PlanRemovals(with, zk)
		out, err := c.write(ctx, plan.Writes)
		if err != nil {
			return err
		}
		res := plan.Settle(out)
		for _, step := range res.Done {
			step.Partition.SetLeadership(step.Leadership)
			if !c.state.Queued(step.TopicPartition.Topic) {
				c.tellLeadership(step.Partition, step.Leadership, kafka.Without(step.Assignment.Replicas, []kafka.BrokerID{step.Broker}), false)
			}
			c.setReplica(step.Replica, statemachine.OfflineReplica)
		}
		for _, r := range res.Silent {
			c.setReplica(r, statemachine.OfflineReplica) // or its topic's deletion would wait for the next controller
		}
		c.reportReplicas(statemachine.OfflineReplica, res.Done, res.Failures)
		if len(res.Retry) > 0 {
			lost++
		}
		if zk, err = c.readStates(ctx, partitionsOf(res.Retry), false); err != nil {
			return err
		}
		if len(res.Next) > 0 && zk == nil {
			zk = map[*statemachine.Partition]statemachine.ZKState{}
		}
		for _, r := range res.Next {
			zk[r.Partition] = statemachine.ZKState{Leadership: r.Leadership} // what we have just written
		}
		with = append(res.Next, res.Retry...)
	}
	return nil
}

func (c *Controller) replicasOutwritten(rs []statemachine.Replica) {
	failures := make([]statemachine.Failure, len(rs))
	for i, r := range rs {
		failures[i] = statemachine.Failure{Partition: r.TopicPartition, Broker: r.Broker,
			From: r.Replica(r.Broker).String(), To: statemachine.OfflineReplica.String(), Err: errOutwritten}
	}
	c.reportFailures(failures)
}

// partitionsOf gives the partitions of sorted replicas, each once.
func partitionsOf(rs []statemachine.Replica) []*statemachine.Partition {
	var out []*statemachine.Partition
	for _, r := range rs {
		if len(out) == 0 || out[len(out)-1] != r.Partition {
			out = append(out, r.Partition)
		}
	}
	return out
}

func partitionFields(tp kafka.TopicPartition) logrus.Fields {
	return logrus.Fields{"topic": tp.Topic, "partition": tp.Partition}
}
