package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// damage remembers which unreadable znodes were reported, and why, so that
// each is reported once and its repair is noticed (design decision D10).
type damage map[string]string

// report logs an unreadable znode once. Any other error is left to the caller,
// who is told so by false.
func (c *Controller) report(err error) bool {
	var bad *zkpaths.PayloadError
	if !errors.As(err, &bad) {
		return false
	}
	if c.damage[bad.Path] != bad.Reason {
		c.damage[bad.Path] = bad.Reason
		c.log.WithField("path", bad.Path).WithField("reason", bad.Reason).WithField("remedy", bad.Remedy).
			Error("unreadable znode; what it describes is left alone: " + bad.Error())
	}
	return true
}

// errDenied: an ACL keeps us from a znode. It has been reported.
var errDenied = errors.New("no right to read it")

// denied reports a node that may not be read, and gives errDenied; any other
// trouble is given as it is.
func (c *Controller) denied(path string, n zkpaths.Node) error {
	if n.Code != zkpaths.NoAuth {
		return n.Error(path)
	}
	c.reportOnce(path, "cannot be read: "+n.Error(path).Error(), "give this process the right to read it; it is looked at again and again")
	return fmt.Errorf("%s: %w", path, errDenied)
}

// without lets a failover go on without something that must not be read; look
// is the event that takes it up later.
func (c *Controller) without(look events.Event, err error) error {
	if !errors.Is(err, errDenied) {
		return err
	}
	c.lookAgain(look)
	return nil
}

// remark reports what a readable znode says that cannot be carried out; about
// names the aspect. It stands beside the damage of the payload itself, so
// reading the node without trouble does not make it be told again.
func (c *Controller) remark(path, about, reason, remedy string) {
	key := remarkKey(path, about)
	if c.damage[key] != reason {
		c.damage[key] = reason
		c.log.WithField("path", path).WithField("reason", reason).WithField("remedy", remedy).Error(path + ": " + reason)
	}
}

// settled forgets a remark.
func (c *Controller) settled(path, about string) { delete(c.damage, remarkKey(path, about)) }

func remarkKey(path, about string) string { return path + " (" + about + ")" }

// reportOnce is report for what is wrong with a path other than its payload.
func (c *Controller) reportOnce(path, reason, remedy string) {
	c.report(&zkpaths.PayloadError{Path: path, Reason: reason, Remedy: remedy})
}

// repaired forgets a report, so that the next damage of that path is told again.
func (c *Controller) repaired(path string) {
	if len(c.damage) == 0 {
		return
	}
	if _, ok := c.damage[path]; ok {
		delete(c.damage, path)
		c.log.WithField("path", path).Info("znode is readable again")
	}
}

// gone forgets what was reported about nodes that are no longer there: path,
// and all below it.
func (c *Controller) gone(path string) {
	for key := range c.damage {
		if rest, ok := strings.CutPrefix(key, path); ok && (rest == "" || rest[0] == '/' || rest[0] == ' ') {
			delete(c.damage, key)
		}
	}
}

// goneExcept is gone for the children of a directory that are not listed; it
// tells whether there were any. listed is sorted.
func (c *Controller) goneExcept(dir string, listed []string) (some bool) {
	for key := range c.damage {
		rest, ok := strings.CutPrefix(key, dir+"/")
		if !ok {
			continue
		}
		name := rest
		if i := strings.IndexAny(rest, "/ "); i >= 0 {
			name = rest[:i]
		}
		if _, there := slices.BinarySearch(listed, name); !there {
			delete(c.damage, key)
			some = true
		}
	}
	return some
}

// forgetTopic takes a topic out of memory, and all that is still to be done or
// was reported about it.
func (c *Controller) forgetTopic(name string) {
	c.state.RemoveTopic(name)
	c.dirty.forget(name)
	c.open.forgetTopic(name)
	delete(c.undeletable.topics, name)
	for _, path := range []string{zkpaths.TopicPath(name), zkpaths.TopicConfigPath(name), zkpaths.DeleteTopicPath(name)} {
		c.gone(path)
	}
}

// watchDamaged waits for the repair of state znodes that were found unreadable
// since the last time; in between, healthy states are watched by nobody.
func (c *Controller) watchDamaged(ctx context.Context) error {
	tps := c.damaged
	c.damaged = nil
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, tps, zkpaths.PartitionStatePath, true))
	if err != nil {
		return err
	}
	for i, n := range nodes {
		if _, err := zkpaths.DecodePartitionState(tps[i], n.Data, n.Stat.Version); n.Code == zkpaths.OK && err == nil {
			c.queue.Put(events.PartitionReassignmentISRChange{Partition: tps[i]}) // repaired between the two reads
		}
	}
	return nil
}

// onStatesRepaired takes up those of ps whose states are readable again: what
// was known before goes on under a higher leader epoch, so that the brokers
// learn of what was written; what was not known is taken into service.
func (c *Controller) onStatesRepaired(ctx context.Context, ps []*statemachine.Partition) error {
	zk, err := c.readStates(ctx, ps, true)
	if err != nil {
		return err
	}
	var unknown, led, leaderless []*statemachine.Partition
	for _, p := range ps {
		st := zk[p]
		switch {
		case st.Err != nil || c.state.Queued(p.TopicPartition.Topic):
		case !p.HasLeadership || p.State == statemachine.NewPartition:
			p.SetLeadership(st.Leadership)
			unknown = append(unknown, p)
		case p.State == statemachine.OnlinePartition && c.state.Online(p, st.Leader):
			led = append(led, p)
		default:
			leaderless = append(leaderless, p)
		}
	}
	if err := c.adopt(ctx, unknown); err != nil {
		return err
	}
	bumped, err := c.bumpEpochs(ctx, led)
	if err != nil {
		return err
	}
	for _, p := range bumped {
		c.tellLeadership(p, p.Leadership, p.Assignment.Replicas, false)
	}
	c.send()
	if _, err := c.movePartitions(ctx, leaderless, statemachine.OnlinePartition, statemachine.OfflineElection); err != nil {
		return err
	}
	return c.stepStored(ctx, unknown) // they were set aside at failover
}

// stepStored goes on with the moves of ps that are stored in their topics'
// znodes and that nobody has begun in this term, since something could not be read.
func (c *Controller) stepStored(ctx context.Context, ps []*statemachine.Partition) error {
	var stored []*statemachine.Partition
	for _, p := range ps {
		if !p.Assignment.Reassigning() || c.state.Queued(p.TopicPartition.Topic) {
			continue
		}
		if unresumable(p) != "" {
			c.setAside(p)
			continue
		}
		c.settled(zkpaths.TopicPath(p.TopicPartition.Topic), aboutMove(p))
		stored = append(stored, p)
	}
	return c.restepMoves(ctx, stored)
}

// aboutMove names the remark about a stored move that cannot go on.
func aboutMove(p *statemachine.Partition) string { return fmt.Sprintf("move of %d", p.Partition) }
