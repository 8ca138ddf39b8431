package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/deletion"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// move is one partition and the assignment it is to have.
type move struct {
	*statemachine.Partition
	want kafka.ReplicaAssignment
}

// currentMoves goes on with what is in memory.
func currentMoves(ps []*statemachine.Partition) []move {
	out := make([]move, len(ps))
	for i, p := range ps {
		out[i] = move{p, p.Assignment}
	}
	return out
}

// onZkPartitionReassignment reads /admin/reassign_partitions (spec/controller.md
// §7.9, §7.10). Reading re-arms the watch, whether the node is there or not, so
// that the next one is noticed at once.
func (c *Controller) onZkPartitionReassignment(ctx context.Context, changed bool) error {
	if changed && c.policy == reassign.KIP455 {
		_, err := c.readOne(ctx, zkpaths.Exists, zkpaths.ReassignPartitions, true)
		return err
	}
	_, err := c.startZnodeMoves(ctx)
	return err
}

// startZnodeMoves starts what the admin znode asks for and takes refused and
// failed entries out of it: as the original does, in the old flow each as soon
// as it is met, in the new one all of them behind the moves that end at once.
// It gives the partitions that were started.
func (c *Controller) startZnodeMoves(ctx context.Context) (map[kafka.TopicPartition]bool, error) {
	started := map[kafka.TopicPartition]bool{}
	entries, _, err := c.readReassignments(ctx)
	if err != nil {
		return nil, err
	}
	if c.policy == reassign.KIP455 { // where the original has the order of a hash map; in the old flow it is the node's
		slices.SortStableFunc(entries, func(a, b zkpaths.Reassignment) int { return a.Partition.Compare(b.Partition) })
	}
	drop := map[kafka.TopicPartition]bool{}
	dropped := func(e zkpaths.Reassignment) bool { return drop[e.Partition] }
	for _, some := range inTurn(entries) {
		if err := c.startEntries(ctx, some, started, drop); err != nil {
			return started, err
		}
		if c.policy == reassign.TwelveSteps && len(drop) > 0 {
			if err := c.rewriteReassignments(ctx, dropped); err != nil {
				return started, err
			}
			clear(drop)
		}
	}
	if len(drop) == 0 {
		return started, nil
	}
	return started, c.rewriteReassignments(ctx, dropped)
}

// startEntries starts entries of the admin znode: started and drop tell what became of each.
func (c *Controller) startEntries(ctx context.Context, entries []zkpaths.Reassignment, started, drop map[kafka.TopicPartition]bool) error {
	var moves []move
	for _, e := range entries {
		m, refusal := c.znodeMove(e)
		switch {
		case refusal != nil:
			c.log.WithFields(partitionFields(e.Partition)).WithField("path", zkpaths.ReassignPartitions).WithField("error", refusal.Code.String()).
				WithField("reason", refusal.Reason).WithField("remedy", "the entry is taken out of the znode; correct it and ask again").
				Error("reassignment refused: " + refusal.Reason)
			drop[e.Partition] = true
		case m.Partition != nil:
			moves = append(moves, m)
			started[e.Partition] = true
		}
	}
	for tp, why := range c.tryMoves(ctx, moves) {
		if isFatal(why) {
			return why
		}
		c.log.WithFields(partitionFields(tp)).WithError(why).Error("reassignment failed, and is taken out of the znode")
		drop[tp], started[tp] = true, false
	}
	return nil
}

// znodeMove checks one entry. No move and no refusal means: leave it alone.
func (c *Controller) znodeMove(e zkpaths.Reassignment) (move, *reassign.Refusal) {
	if r := reassign.CheckTarget(e.Replicas); r != nil {
		return move{}, r
	}
	if c.endPutOff(e) {
		return move{}, nil // carried out; the entry goes with the topic znode's last change
	}
	p, r := c.movable(e.Partition)
	if r != nil {
		return move{}, r
	}
	if c.policy == reassign.TwelveSteps {
		if c.state.Moving(e.Partition) {
			return move{}, nil // a running move is not replaced in the old flow
		}
		if slices.Equal(p.Assignment.Replicas, e.Replicas) && !p.Assignment.Reassigning() {
			return move{}, &reassign.Refusal{Code: kafka.InvalidRequest, Reason: "the partition has exactly these replicas already"}
		}
	}
	want := p.Assignment.ReassignTo(e.Replicas)
	if r := reassign.CheckLeader(c.state, p, want); r != nil {
		return move{}, r
	}
	return move{p, want}, nil
}

// movable gives a partition that may be moved now.
func (c *Controller) movable(tp kafka.TopicPartition) (*statemachine.Partition, *reassign.Refusal) {
	p := c.state.Partition(tp)
	switch {
	case c.state.Queued(tp.Topic):
		return nil, &reassign.Refusal{Code: kafka.UnknownTopicOrPartition, Reason: "the topic is being deleted"}
	case p == nil || len(p.Assignment.Replicas) == 0:
		return nil, &reassign.Refusal{Code: kafka.UnknownTopicOrPartition, Reason: "there is no such partition"}
	case p.Topic.Damaged:
		return nil, &reassign.Refusal{Code: kafka.UnknownServerError, Reason: errDamaged.Error()}
	case !p.HasLeadership:
		return nil, &reassign.Refusal{Code: kafka.UnknownServerError, Reason: "the partition has no readable state, so it never had a leader or its state znode must be repaired first"}
	}
	return p, nil
}

// readReassignments reads the admin znode with a watch, and gives its version.
// An unreadable one is reported and left in place; it counts as empty.
func (c *Controller) readReassignments(ctx context.Context) (entries []zkpaths.Reassignment, version int32, err error) {
	nodes, err := c.read(ctx, []zkpaths.Read{
		{Op: zkpaths.Exists, Path: zkpaths.ReassignPartitions, Watch: true},
		{Op: zkpaths.GetData, Path: zkpaths.ReassignPartitions},
	})
	if err != nil {
		return nil, 0, err
	}
	n := nodes[1]
	if n.Code != zkpaths.OK {
		if n.Code == zkpaths.NoNode {
			c.repaired(zkpaths.ReassignPartitions)
			return nil, 0, nil
		}
		return nil, 0, c.denied(zkpaths.ReassignPartitions, n)
	}
	entries, err = zkpaths.DecodeReassignments(n.Data, c.policy.Strict())
	if err != nil {
		c.report(err)
		return nil, 0, nil
	}
	c.repaired(zkpaths.ReassignPartitions)
	return entries, n.Stat.Version, nil
}

// rewriteReassignments takes entries out of the admin znode; the last one
// takes the znode along. An unreadable znode stays as it is.
func (c *Controller) rewriteReassignments(ctx context.Context, drop func(zkpaths.Reassignment) bool) error {
	for range maxRetries {
		entries, version, err := c.readReassignments(ctx)
		if errors.Is(err, errDenied) {
			return nil // its entries stay
		}
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(entries), drop)
		if len(rest) == len(entries) {
			return nil
		}
		w := zkpaths.Write{Op: zkpaths.Set, Path: zkpaths.ReassignPartitions, Data: zkpaths.EncodeReassignments(rest), Version: version}
		if len(rest) == 0 {
			w = zkpaths.Write{Op: zkpaths.Delete, Path: zkpaths.ReassignPartitions, Version: version}
		}
		out, err := c.write(ctx, []zkpaths.Write{w})
		if err != nil {
			return err
		}
		if out[0].Code != zkpaths.BadVersion {
			if out[0].OK() && w.Op == zkpaths.Delete {
				c.queue.Put(events.ZkPartitionReassignment{}) // somebody may have made the next one meanwhile
			}
			return nil
		}
	}
	return fmt.Errorf("%s: other writers won too often", zkpaths.ReassignPartitions)
}

// onAlterReassignments starts or cancels moves by request (spec/controller.md §7.9).
func (c *Controller) onAlterReassignments(ctx context.Context, e events.AlterReassignments) error {
	if c.policy == reassign.TwelveSteps {
		e.Reply(kafka.UnsupportedVersion, nil)
		return nil
	}
	rows := make([]events.RowError, len(e.Partitions))
	var moves []move
	index := map[kafka.TopicPartition]int{}
	for i, row := range e.Partitions {
		m, refusal := c.requestedMove(row)
		if refusal != nil {
			rows[i] = events.RowError{Error: refusal.Code, Message: refusal.Reason}
			continue
		}
		if _, twice := index[row.Partition]; twice {
			rows[i] = events.RowError{Error: kafka.InvalidRequest, Message: "the request names the partition twice"}
			continue
		}
		index[row.Partition] = i
		moves = append(moves, m)
	}
	var err error
	if len(moves) > 0 {
		err = c.rewriteReassignments(ctx, func(z zkpaths.Reassignment) bool { _, ok := index[z.Partition]; return ok })
	}
	if err == nil {
		for tp, why := range c.tryMoves(ctx, moves) {
			rows[index[tp]] = events.RowError{Error: kafka.UnknownServerError, Message: why.Error()}
			if isFatal(why) {
				err = why
			}
		}
	}
	if err != nil {
		e.Reply(topLevel(err), nil)
		return err
	}
	e.Reply(kafka.NoError, rows)
	return nil
}

// requestedMove checks one row, in the original's order: the list first, then
// whether there is such a partition (spec/controller.md §7.9, C-090).
func (c *Controller) requestedMove(row events.ReassignmentRow) (move, *reassign.Refusal) {
	var current kafka.ReplicaAssignment
	known := c.state.Partition(row.Partition)
	if known != nil {
		current = known.Assignment
	}
	if !row.Cancel {
		if r := reassign.CheckTarget(row.Target); r != nil {
			return move{}, r
		}
		if r := reassign.CheckLive(c.state, current, row.Target); r != nil {
			return move{}, r
		}
	} else if !current.Reassigning() {
		return move{}, &reassign.Refusal{Code: kafka.NoReassignmentInProgress, Reason: "no reassignment of this partition is in progress"}
	}
	p, r := c.movable(row.Partition)
	if r != nil {
		return move{}, r
	}
	target := row.Target
	if row.Cancel {
		target = current.Original()
	}
	want := current.ReassignTo(target)
	if r := reassign.CheckLeader(c.state, p, want); r != nil {
		return move{}, r
	}
	return move{p, want}, nil
}

// topLevel is the code of a request whose event failed.
func topLevel(err error) kafka.ErrorCode {
	if isFatal(err) {
		return kafka.NotController
	}
	return kafka.UnknownServerError
}

// isFatal tells whether an error ends our term, rather than one entity's change.
func isFatal(err error) bool {
	return errors.Is(err, zkpaths.ErrControllerMoved) || errors.Is(err, zkpaths.ErrFenceLost) ||
		errors.Is(err, zkpaths.ErrSessionExpired) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// onListReassignments answers from memory.
func (c *Controller) onListReassignments(e events.ListReassignments) {
	tps := e.Partitions
	if e.All {
		tps = c.state.MovingPartitions()
	}
	var rows []events.OngoingReassignment
	for _, tp := range tps {
		if p := c.state.Partition(tp); p != nil && p.Assignment.Reassigning() {
			rows = append(rows, events.OngoingReassignment{Partition: tp, ReplicaAssignment: p.Assignment})
		}
	}
	e.Reply(kafka.NoError, rows)
}

// resumeReassignments goes on with moves found at failover: what the znode asks
// for first, then every other move stored in a topic znode (spec/controller.md §3.3 step 12).
func (c *Controller) resumeReassignments(ctx context.Context) error {
	started, err := c.startZnodeMoves(ctx)
	if err := c.without(events.ZkPartitionReassignment{}, err); err != nil {
		return err
	}
	var rest []move
	for _, tp := range c.state.MovingPartitions() {
		p := c.state.Partition(tp)
		if p == nil || started[tp] || !p.Assignment.Reassigning() {
			continue
		}
		if c.state.Queued(tp.Topic) && !c.state.Ineligible(tp.Topic) {
			continue // it does not hold the topic's deletion up
		}
		if unresumable(p) != "" {
			c.setAside(p)
			continue
		}
		rest = append(rest, move{p, c.goOn(p)})
	}
	for tp, why := range c.tryMoves(ctx, rest) {
		if isFatal(why) {
			return why
		}
		c.log.WithFields(partitionFields(tp)).WithError(why).Error("could not go on with a reassignment; it is set aside")
	}
	return nil
}

// setAside leaves a partition as it is whose stored move cannot go on.
func (c *Controller) setAside(p *statemachine.Partition) {
	c.remark(zkpaths.TopicPath(p.TopicPartition.Topic), aboutMove(p), fmt.Sprintf("the move of partition %d stored here cannot go on: %s", p.Partition, unresumable(p)),
		"cancel it or set another target; the partition is left as it is")
	c.state.SetMoving(p.TopicPartition, false)
	if name := p.TopicPartition.Topic; c.state.Queued(name) && !deletion.Waits(c.state, name) {
		c.state.ClearIneligible(name) // a move that never ends is nothing to wait for
	}
}

// unresumable tells why a stored move must be set aside, or "".
func unresumable(p *statemachine.Partition) string {
	switch {
	case len(p.Assignment.Target()) == 0:
		return "its target has no replicas"
	case !p.HasLeadership:
		return "the partition has no readable state"
	}
	return ""
}

// fewMoves is up to how many moves are carried out one after the other, znodes
// included, as the original carries out all of them. More share their writes.
const fewMoves = 16

// inTurn cuts a list into what is done together.
func inTurn[T any](all []T) [][]T {
	if len(all) > fewMoves {
		return [][]T{all}
	}
	return slices.Collect(slices.Chunk(all, 1))
}

// tryMoves stores and steps moves and gives what failed by partition. A fatal
// error stands for every partition.
func (c *Controller) tryMoves(ctx context.Context, moves []move) map[kafka.TopicPartition]error {
	failed := map[kafka.TopicPartition]error{}
	slices.SortStableFunc(moves, func(a, b move) int { return a.TopicPartition.Compare(b.TopicPartition) })
	for _, some := range inTurn(moves) {
		bad, err := c.startMoves(ctx, some)
		for tp, why := range bad {
			failed[tp] = why
		}
		if err != nil && isFatal(err) {
			some = moves
		}
		for _, m := range some {
			if err != nil {
				failed[m.TopicPartition] = err
			}
		}
		if err != nil && isFatal(err) {
			break
		}
	}
	return failed
}

// startMoves stores moves and takes their first steps. The old flow keeps a
// target only in the admin znode: the topic znode is written when replicas are
// added, each time, and at the end, but not before a move that can end at once
// (spec/controller.md §7.10).
func (c *Controller) startMoves(ctx context.Context, moves []move) (bad map[kafka.TopicPartition]error, err error) {
	write := func(m move) bool { return !m.want.Equal(m.Assignment) }
	var zk map[*statemachine.Partition]statemachine.ZKState
	if c.policy == reassign.TwelveSteps {
		if zk, err = c.readMoved(ctx, moves); err != nil {
			return nil, err
		}
		write = func(m move) bool { return !c.mayEnd(m.Partition, m.want, zk[m.Partition]) }
	}
	stored, bad, err := c.storeMoves(ctx, moves, write)
	if err != nil {
		return bad, err
	}
	if zk == nil {
		if zk, err = c.readMoved(ctx, stored); err != nil {
			return bad, err
		}
	}
	return bad, c.stepMoves(ctx, stored, zk)
}

// restepMoves goes on with moves that are stored.
func (c *Controller) restepMoves(ctx context.Context, ps []*statemachine.Partition) error {
	for tp, why := range c.tryMoves(ctx, currentMoves(ps)) {
		if isFatal(why) {
			return why
		}
		c.log.WithFields(partitionFields(tp)).WithError(why).Error("could not go on with a reassignment; it waits for the next broker that starts, or controller")
	}
	return nil
}

// readMoved reads the states of partitions that move.
func (c *Controller) readMoved(ctx context.Context, moves []move) (map[*statemachine.Partition]statemachine.ZKState, error) {
	ps := make([]*statemachine.Partition, len(moves))
	for i, m := range moves {
		ps[i] = m.Partition
	}
	return c.readStates(ctx, ps, c.watchesStates())
}

// mayEnd tells whether a partition's move to an assignment can end, given its state.
func (c *Controller) mayEnd(p *statemachine.Partition, a kafka.ReplicaAssignment, zk statemachine.ZKState) bool {
	return !a.Reassigning() || (zk.Err == nil && reassign.MayEnd(c.state, p, a, zk.Leadership))
}

// storeMoves is phase U: the new assignment goes into memory and, where write
// says so, to the topic znode before, and replicas that neither the old target
// nor the new one needs go. One topic is written once, however many of its
// partitions move.
func (c *Controller) storeMoves(ctx context.Context, moves []move, write func(move) bool) (stored []move, bad map[kafka.TopicPartition]error, err error) {
	want := map[*statemachine.Partition]kafka.ReplicaAssignment{}
	var topics []*statemachine.Topic
	listed := map[*statemachine.Topic]bool{}
	for _, m := range moves {
		c.markIneligible("a reassignment is in progress", m.TopicPartition.Topic)
		if !write(m) {
			continue
		}
		want[m.Partition] = m.want
		if t := m.Partition.Topic; !listed[t] {
			listed[t] = true
			topics = append(topics, t)
		}
	}
	failed, err := c.writeTopics(ctx, topics, func(p *statemachine.Partition) kafka.ReplicaAssignment { // U1
		if a, ok := want[p]; ok {
			// Replicas that go at once stay in the znode until their brokers have
			// confirmed it: after a crash in between they are still known.
			return givingUp(a, kafka.Without(p.Assignment.Replicas, a.Replicas))
		}
		return p.Assignment
	})
	if err != nil {
		return nil, nil, err
	}
	bad = map[kafka.TopicPartition]error{}
	var unneeded []statemachine.Replica
	for _, m := range moves {
		if why := failed[m.TopicPartition.Topic]; why != nil {
			bad[m.TopicPartition] = fmt.Errorf("writing the new assignment: %w", why)
			continue
		}
		if !m.want.Equal(m.Assignment) {
			unneeded = append(unneeded, replicas(m.Partition, kafka.Without(m.Assignment.Replicas, m.want.Replicas))...)
			c.keepEnd(m.TopicPartition)
			m.Partition.Assignment = m.want // U2
			c.settled(zkpaths.TopicPath(m.TopicPartition.Topic), aboutMove(m.Partition))
			c.log.WithFields(partitionFields(m.TopicPartition)).WithField("replicas", m.want.Replicas).WithField("adding", m.want.Adding).
				WithField("removing", m.want.Removing).Info("reassignment stored")
		}
		stored = append(stored, m)
	}
	if err := c.removeReplicas(ctx, unneeded); err != nil { // U3
		return stored, bad, err
	}
	for _, p := range partitionsOf(unneeded) {
		c.endMove(p.TopicPartition, nil)
	}
	return stored, bad, nil
}

// removeReplicas stops and deletes replicas without waiting for the answers.
func (c *Controller) removeReplicas(ctx context.Context, rs []statemachine.Replica) error {
	return c.together(func() error {
		for _, to := range []statemachine.ReplicaState{statemachine.OfflineReplica, statemachine.ReplicaDeletionStarted,
			statemachine.ReplicaDeletionSuccessful, statemachine.NonExistentReplica} {
			if err := c.moveReplicas(ctx, rs, to); err != nil {
				return err
			}
		}
		return nil
	})
}

// stepMoves carries moves on that are stored: phase B for those whose target
// is in sync, phase A for the others (spec/controller.md §7.9, "Step").
func (c *Controller) stepMoves(ctx context.Context, moves []move, zk map[*statemachine.Partition]statemachine.ZKState) error {
	var ready, waiting []*statemachine.Partition
	for _, m := range moves {
		c.state.SetMoving(m.TopicPartition, true)
		if c.mayEnd(m.Partition, m.Assignment, zk[m.Partition]) {
			ready = append(ready, m.Partition)
		} else {
			waiting = append(waiting, m.Partition)
		}
	}
	if err := c.beginMoves(ctx, waiting); err != nil {
		return err
	}
	return c.endMoves(ctx, ready)
}

// watchesStates tells whether leaders write ISRs themselves, so that the state
// znodes of moving partitions have to be watched.
func (c *Controller) watchesStates() bool { return c.opts.Version.Less(kafka.V2_7IV2) }

// beginMoves is phase A: old and new replicas learn of each other under a
// higher leader epoch.
func (c *Controller) beginMoves(ctx context.Context, ps []*statemachine.Partition) error {
	if len(ps) == 0 {
		return nil
	}
	return c.together(func() error {
		bumped, err := c.bumpEpochs(ctx, ps) // A1
		if err != nil {
			return err
		}
		var added []statemachine.Replica
		for _, p := range bumped {
			c.tellLeadership(p, p.Leadership, p.Assignment.Original(), false)
			c.tellLeadership(p, p.Leadership, p.Assignment.Adding, true)
			for _, id := range p.Assignment.Adding {
				if p.Replica(id) == statemachine.NonExistentReplica { // a second A finds them there already
					added = append(added, statemachine.Replica{Partition: p, Broker: id})
				}
			}
		}
		return c.moveReplicas(ctx, added, statemachine.NewReplica) // A2
	})
}

// bumpEpochs raises leader epochs, leader and ISR staying as they are. It gives
// the partitions that were written; the others are reported.
func (c *Controller) bumpEpochs(ctx context.Context, ps []*statemachine.Partition) ([]*statemachine.Partition, error) {
	var bumped []*statemachine.Partition
	for round := 0; len(ps) > 0; round++ {
		if round == maxRetries {
			c.outwritten(ps, "a higher leader epoch")
			break
		}
		zk, err := c.readStates(ctx, ps, false)
		if err != nil {
			return bumped, err
		}
		plan := c.state.PlanBumps(ps, zk)
		out, err := c.write(ctx, plan.Writes)
		if err != nil {
			return bumped, err
		}
		res := plan.Settle(out)
		for _, ch := range res.Done {
			ch.Partition.SetLeadership(*ch.Leadership)
			bumped = append(bumped, ch.Partition)
		}
		c.reportPartitions(statemachine.OnlinePartition, statemachine.ReassignElection, res)
		ps = res.Retry
	}
	return bumped, nil
}

// endMoves is phase B.
func (c *Controller) endMoves(ctx context.Context, ps []*statemachine.Partition) error {
	for _, some := range inTurn(ps) {
		if err := c.endTogether(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// endTogether is phase B of moves that share their writes. B6 and B7, the writes
// of the topic and admin znodes, are put off where the topic is large: until
// then a new controller would do B again.
func (c *Controller) endTogether(ctx context.Context, ps []*statemachine.Partition) error {
	if err := c.switchToTargets(ctx, ps); err != nil {
		return err
	}
	var topics []string
	for _, p := range ps {
		c.endMove(p.TopicPartition, p.Assignment.Replicas) // B6, B7
		c.state.SetMoving(p.TopicPartition, false)
		topics = append(topics, p.TopicPartition.Topic)
		c.log.WithFields(partitionFields(p.TopicPartition)).WithField("replicas", p.Assignment.Replicas).Info("reassignment completed")
	}
	if err := c.flushDue(ctx); err != nil && isFatal(err) {
		return err // others are tried again, and told then
	}
	slices.Sort(topics)
	return c.resumeDeletionFor(ctx, slices.Compact(topics))
}

// switchToTargets is B1 to B5 and B8. Followers learn of the new leader (B3)
// before the others are taken away.
func (c *Controller) switchToTargets(ctx context.Context, ps []*statemachine.Partition) error {
	var added, removed []statemachine.Replica
	for _, p := range ps {
		added = append(added, replicas(p, p.Assignment.Adding)...)
		removed = append(removed, replicas(p, p.Assignment.Removing)...)
	}
	err := c.together(func() error {
		if err := c.moveReplicas(ctx, added, statemachine.OnlineReplica); err != nil { // B1
			return err
		}
		return c.leadTargets(ctx, ps)
	})
	if err != nil {
		return err
	}
	return c.together(func() error {
		c.tellMetadata(c.state.BrokerIDs(), ps) // B8
		return c.removeReplicas(ctx, removed)   // B4, B5
	})
}

// leadTargets is B2 and B3: only target replicas are left, and one leads.
func (c *Controller) leadTargets(ctx context.Context, ps []*statemachine.Partition) error {
	var elect, bump []*statemachine.Partition
	for _, p := range ps {
		p.Assignment = kafka.ReplicaAssignment{Replicas: p.Assignment.Target()} // B2
		if slices.Contains(p.Assignment.Replicas, p.Leader) && c.state.Online(p, p.Leader) {
			bump = append(bump, p)
		} else {
			elect = append(elect, p)
		}
	}
	if _, err := c.movePartitions(ctx, elect, statemachine.OnlinePartition, statemachine.ReassignElection); err != nil { // B3
		return err
	}
	bumped, err := c.bumpEpochs(ctx, bump)
	if err != nil {
		return err
	}
	for _, p := range bumped {
		c.tellLeadership(p, p.Leadership, p.Assignment.Replicas, false)
	}
	return nil
}

// completeMoves ends the moves among ps whose target is in sync by what memory
// says, which the caller has just brought up to date.
func (c *Controller) completeMoves(ctx context.Context, ps []*statemachine.Partition) error {
	var ready []*statemachine.Partition
	for _, p := range ps {
		if c.state.Moving(p.TopicPartition) && p.HasLeadership && reassign.MayEnd(c.state, p, p.Assignment, p.Leadership) {
			ready = append(ready, p)
		}
	}
	return c.endMoves(ctx, ready)
}

// movedStates tells whether a batch of events is about state znodes of moving
// partitions, and gives those, each once.
func movedStates(batch []events.Event) ([]kafka.TopicPartition, bool) {
	var out []kafka.TopicPartition
	for _, ev := range batch {
		e, ok := ev.(events.PartitionReassignmentISRChange)
		if !ok {
			return nil, false
		}
		out = append(out, e.Partition)
	}
	kafka.SortPartitions(out)
	return slices.Compact(out), true
}

// onReassignmentISRChange looks at the state znodes that are watched: those of
// moving partitions whose leaders write them themselves (before 2.7-IV2), and
// unreadable ones.
func (c *Controller) onReassignmentISRChange(ctx context.Context, tps []kafka.TopicPartition) error {
	var ps, repaired []*statemachine.Partition
	for _, tp := range tps {
		p := c.state.Partition(tp)
		switch {
		case p == nil:
		case c.damage[zkpaths.PartitionStatePath(tp)] != "":
			repaired = append(repaired, p)
		case c.state.Moving(tp):
			ps = append(ps, p)
		}
	}
	if err := c.onStatesRepaired(ctx, repaired); err != nil {
		return err
	}
	for _, p := range repaired {
		if c.state.Moving(p.TopicPartition) {
			ps = append(ps, p)
		}
	}
	zk, err := c.readStates(ctx, ps, true)
	if err != nil {
		return err
	}
	return c.endMoves(ctx, slices.DeleteFunc(ps, func(p *statemachine.Partition) bool {
		st := zk[p]
		return st.Err != nil || !reassign.MayEnd(c.state, p, p.Assignment, st.Leadership)
	}))
}

// dropDeletedMoves takes the entries of deleted topics out of the admin znode.
func (c *Controller) dropDeletedMoves(ctx context.Context, topics []string) error {
	return c.rewriteReassignments(ctx, func(e zkpaths.Reassignment) bool {
		return slices.Contains(topics, e.Partition.Topic) && c.state.Topic(e.Partition.Topic) == nil
	})
}

// ---- writes that are put off

// dirtyTopics are topics with completed moves whose znodes still have the old
// form, and the admin znode's entries that are done. Putting the writes off
// keeps ten thousand moves of one topic from rewriting it ten thousand times.
type dirtyTopics struct {
	topics  map[string]bool
	done    []zkpaths.Reassignment
	written time.Time
	pause   time.Time // not before, since it failed
	waiting bool      // a timer will come
}

// flushTopics is the timer event that only serves to let a flush follow it.
type flushTopics struct{}

func (flushTopics) Kind() events.Kind { return events.AlterPartitionReassignmentKind }
func (flushTopics) Name() string      { return "FlushTopics" }

const (
	// largeTopic is the number of partitions from which a topic's znode is
	// rewritten at most once per rewriteGap.
	largeTopic = 100
	rewriteGap = 250 * time.Millisecond
)

func (d *dirtyTopics) add(tp kafka.TopicPartition, target []kafka.BrokerID) {
	if d.topics == nil {
		d.topics = map[string]bool{}
	}
	d.topics[tp.Topic] = true
	if target != nil {
		d.done = append(d.done, zkpaths.Reassignment{Partition: tp, Replicas: target})
	}
}

func (d *dirtyTopics) forget(topic string) { delete(d.topics, topic) }

// flushDirty follows every event.
func (c *Controller) flushDirty(ctx context.Context) {
	if err := c.flushDue(ctx); err != nil {
		c.failed(ctx, []events.Event{flushTopics{}}, err)
	}
}

// flushDue writes what was put off and is due. Small topics are written at once.
func (c *Controller) flushDue(ctx context.Context) error {
	if len(c.dirty.topics) == 0 && len(c.dirty.done) == 0 {
		return nil
	}
	size := 0
	for name := range c.dirty.topics {
		if t := c.state.Topic(name); t != nil && !t.Damaged {
			size = max(size, len(t.Partitions()))
		}
	}
	now := c.opts.Now()
	wait := c.dirty.pause.Sub(now)
	if max(size, len(c.dirty.done)) >= largeTopic {
		wait = max(wait, c.dirty.written.Add(rewriteGap).Sub(now))
	}
	var err error
	if wait <= 0 {
		c.dirty.written = now
		err = c.flushAll(ctx)
		wait = c.dirty.pause.Sub(now)
	}
	if wait > 0 && !c.dirty.waiting {
		c.dirty.waiting = true
		c.timers.After(wait, flushTopics{})
	}
	return err
}

// endOfMoves names the remark about a topic znode that could not be written.
const endOfMoves = "end of moves"

// flushAllDirty writes everything that was put off, due or not.
func (c *Controller) flushAllDirty(ctx context.Context) {
	if err := c.flushAll(ctx); err != nil {
		c.failed(ctx, []events.Event{flushTopics{}}, err)
	}
}

// flushAll is B6 and B7 of all moves completed since the last time.
func (c *Controller) flushAll(ctx context.Context) error {
	c.dirty.waiting = false
	var topics []*statemachine.Topic
	for name := range c.dirty.topics {
		if t := c.state.Topic(name); t != nil && !t.Damaged {
			topics = append(topics, t)
		}
	}
	if len(topics) == 0 && len(c.dirty.done) == 0 {
		return nil
	}
	slices.SortFunc(topics, func(a, b *statemachine.Topic) int { return cmp.Compare(a.Name, b.Name) })
	failed, err := c.writeTopics(ctx, topics, asKnown)
	if err == nil {
		for _, t := range topics {
			if why := failed[t.Name]; why != nil {
				c.remark(zkpaths.TopicPath(t.Name), endOfMoves, "the end of a reassignment could not be written: "+why.Error(), "give this process the right to write it; it tries again and again")
				c.dirty.pause = c.opts.Now().Add(lookAgainAfter)
				continue
			}
			c.settled(zkpaths.TopicPath(t.Name), endOfMoves)
			c.dirty.forget(t.Name)
		}
		err = c.dropDoneEntries(ctx)
	}
	if err != nil {
		c.dirty.pause = c.opts.Now().Add(lookAgainAfter)
	}
	return err
}

// dropDoneEntries takes exactly the completed entries out of the admin znode
// (B7); those of topics whose znode could not be written wait.
func (c *Controller) dropDoneEntries(ctx context.Context) error {
	written := map[kafka.TopicPartition][]kafka.BrokerID{}
	var waiting []zkpaths.Reassignment
	for _, e := range c.dirty.done {
		if c.dirty.topics[e.Partition.Topic] {
			waiting = append(waiting, e)
		} else {
			written[e.Partition] = e.Replicas
		}
	}
	if len(written) == 0 {
		return nil
	}
	err := c.rewriteReassignments(ctx, func(e zkpaths.Reassignment) bool {
		target, ok := written[e.Partition]
		// The old flow takes the partition's entry out whatever its target is now (C-154).
		return ok && (c.policy == reassign.TwelveSteps || slices.Equal(target, e.Replicas))
	})
	if err == nil {
		c.dirty.done = waiting
	}
	return err
}
