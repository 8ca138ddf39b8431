package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// onPreferredElectionZnode carries out what /admin/preferred_replica_election
// asks for, and removes it whatever came of it (spec/controller.md §7.8).
func (c *Controller) onPreferredElectionZnode(ctx context.Context, changed bool) error {
	tps, present, err := c.readPreferredElection(ctx)
	if err != nil || !present || changed {
		return err
	}
	for _, r := range c.electLeaders(ctx, tps, statemachine.PreferredElection, &err) {
		if r.Error != kafka.NoError && r.Error != kafka.ElectionNotNeeded {
			c.log.WithFields(partitionFields(r.Partition)).WithField("error", r.Error.String()).Warn("preferred leader election asked for by znode: " + r.Message)
		}
	}
	if err != nil {
		return err
	}
	return c.dropPreferredElection(ctx)
}

// readPreferredElection reads the znode with a watch. Unreadable data count as
// an empty list, as in the original, but are reported.
func (c *Controller) readPreferredElection(ctx context.Context) (tps []kafka.TopicPartition, present bool, err error) {
	nodes, err := c.read(ctx, []zkpaths.Read{
		{Op: zkpaths.Exists, Path: zkpaths.PreferredElection, Watch: true},
		{Op: zkpaths.GetData, Path: zkpaths.PreferredElection},
	})
	if err != nil || nodes[1].Code == zkpaths.NoNode {
		return nil, false, err
	}
	if nodes[1].Code != zkpaths.OK {
		return nil, false, c.denied(zkpaths.PreferredElection, nodes[1])
	}
	tps, err = zkpaths.DecodePreferredElection(nodes[1].Data)
	if err != nil {
		if bad := (*zkpaths.PayloadError)(nil); errors.As(err, &bad) {
			err = &zkpaths.PayloadError{Path: bad.Path, Reason: bad.Reason, Remedy: "nothing in it is carried out, and the node is removed; ask again"}
		}
		c.report(err)
		return nil, true, nil
	}
	return tps, true, nil
}

func (c *Controller) dropPreferredElection(ctx context.Context) error {
	delete(c.damage, zkpaths.PreferredElection)
	w := []zkpaths.Write{{Op: zkpaths.Delete, Path: zkpaths.PreferredElection, Version: zkpaths.AnyVersion}}
	out, err := c.write(ctx, w)
	if err != nil {
		return err
	}
	if out[0].OK() {
		c.queue.Put(events.PreferredElectionZnode{}) // somebody may have made the next one meanwhile
	}
	return nil
}

// pendingPreferredElections carries out at failover what was asked for meanwhile.
func (c *Controller) pendingPreferredElections(ctx context.Context) error {
	return c.onPreferredElectionZnode(ctx, false)
}

// electLeaders runs elections that somebody asked for and gives one result per
// partition (spec/controller.md §7.8 steps 3 to 7). A partition that never had
// a leader fails on its own; in the original it takes the whole request along.
func (c *Controller) electLeaders(ctx context.Context, tps []kafka.TopicPartition, s statemachine.Strategy, failed *error) []events.ElectionResult {
	out := make([]events.ElectionResult, len(tps))
	index := map[kafka.TopicPartition][]int{}
	var ps []*statemachine.Partition
	for i, tp := range tps {
		out[i].Partition = tp
		p := c.state.Partition(tp)
		code, message := c.electionRefused(p, tp, s)
		if code != kafka.NoError {
			out[i].RowError = events.RowError{Error: code, Message: message}
			continue
		}
		if len(index[tp]) == 0 {
			ps = append(ps, p)
		}
		index[tp] = append(index[tp], i)
	}
	res, err := c.movePartitions(ctx, ps, statemachine.OnlinePartition, s)
	if err != nil {
		*failed = err
		for _, is := range index {
			for _, i := range is {
				out[i].RowError = events.RowError{Error: topLevel(err), Message: err.Error()}
			}
		}
		return out
	}
	for _, f := range res.failures {
		code := kafka.UnknownServerError
		if errors.Is(f.Err, statemachine.ErrStateChange) {
			code = unavailable(s)
		}
		for _, i := range index[f.Partition] {
			out[i].RowError = events.RowError{Error: code, Message: f.Err.Error()}
		}
	}
	return out
}

func unavailable(s statemachine.Strategy) kafka.ErrorCode {
	if s == statemachine.PreferredElection {
		return kafka.PreferredLeaderNotAvailable
	}
	return kafka.EligibleLeadersNotAvailable
}

// electionRefused tells why no election of p is to be tried, or NoError.
func (c *Controller) electionRefused(p *statemachine.Partition, tp kafka.TopicPartition, s statemachine.Strategy) (kafka.ErrorCode, string) {
	switch {
	case p == nil:
		return kafka.UnknownTopicOrPartition, "there is no such partition"
	case c.state.Queued(tp.Topic):
		return kafka.InvalidTopicException, "the topic is being deleted"
	case !p.HasLeadership:
		return unavailable(s), "the partition has no readable state: it never had a leader, or its state znode must be repaired"
	}
	needed := !c.state.Live(p.Leader)
	if s == statemachine.PreferredElection {
		needed = len(p.Assignment.Replicas) > 0 && p.Leader != p.Assignment.Replicas[0]
	}
	if !needed {
		return kafka.ElectionNotNeeded, "the leader is the right one already"
	}
	return kafka.NoError, ""
}

// onElectLeaders answers an ElectLeaders request.
func (c *Controller) onElectLeaders(ctx context.Context, e events.ElectLeaders) error {
	s := statemachine.PreferredElection
	if e.Unclean {
		s = statemachine.OfflineUncleanElection
	}
	tps := e.Partitions
	if e.All {
		c.state.EachPartition(func(p *statemachine.Partition) { tps = append(tps, p.TopicPartition) })
	}
	var err error
	rows := c.electLeaders(ctx, tps, s, &err)
	if e.All {
		rows = slices.DeleteFunc(rows, func(r events.ElectionResult) bool { return r.Error == kafka.ElectionNotNeeded })
	}
	e.Reply(kafka.NoError, rows)
	return err
}

// onAutoPreferredElection moves leadership back to preferred replicas where
// too much of it has wandered off, and sets the timer for the next look
// (spec/controller.md §7.13).
func (c *Controller) onAutoPreferredElection(ctx context.Context) error {
	if c.opts.AutoRebalance {
		defer func() {
			if c.active {
				c.after(c.opts.ImbalanceCheck, events.AutoPreferredElection{})
			}
		}()
	}
	type group struct{ all, away []*statemachine.Partition }
	groups := map[kafka.BrokerID]*group{}
	var ids []kafka.BrokerID
	c.state.EachPartition(func(p *statemachine.Partition) {
		if len(p.Assignment.Replicas) == 0 || c.state.Queued(p.TopicPartition.Topic) {
			return
		}
		preferred := p.Assignment.Replicas[0]
		g := groups[preferred]
		if g == nil {
			g = &group{}
			groups[preferred] = g
			ids = append(ids, preferred)
		}
		g.all = append(g.all, p)
		if p.HasLeadership && p.Leader != preferred {
			g.away = append(g.away, p)
		}
	})
	slices.Sort(ids)
	for _, id := range ids {
		g := groups[id]
		if len(g.away)*100 <= c.opts.ImbalancePercent*len(g.all) { // strictly above
			continue
		}
		electable := slices.DeleteFunc(slices.Clone(g.away), func(p *statemachine.Partition) bool {
			_, ok := c.state.Elect(p, p.Leadership, statemachine.PreferredElection, false)
			return !ok
		})
		if len(electable) == 0 {
			continue
		}
		c.log.WithFields(logrus.Fields{"broker": id, "partitions": len(electable), "away": len(g.away), "preferred_for": len(g.all)}).
			Info("leadership is unbalanced; electing preferred leaders")
		if _, err := c.movePartitions(ctx, electable, statemachine.OnlinePartition, statemachine.PreferredElection); err != nil {
			return fmt.Errorf("balancing leaders of broker %d: %w", id, err)
		}
	}
	return nil
}
