package controller

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/deletion"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// onTopicDeletion looks at the deletion markers (spec/controller.md §7.6).
func (c *Controller) onTopicDeletion(ctx context.Context) error {
	list, err := c.listWatched(ctx, zkpaths.DeleteTopics)
	if err != nil || list.Code == zkpaths.NoNode {
		return err
	}
	if list.Code != zkpaths.OK {
		return c.denied(zkpaths.DeleteTopics, list)
	}
	var unknown, known []string
	for _, name := range list.Children {
		switch {
		case c.state.Topic(name) != nil:
			known = append(known, name)
		case c.damage[zkpaths.TopicPath(name)] != "":
			c.remark(zkpaths.DeleteTopicPath(name), "deletion", "the topic's znode cannot be read, so its replicas are not known; the marker waits", "repair the topic's znode")
		default:
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		c.log.WithField("topics", unknown).Warn("deletion was asked for topics that do not exist; removing the markers")
	}
	if !c.opts.DeleteTopics {
		return c.deleteAll(ctx, zkpaths.DeleteTopics, append(unknown, known...))
	}
	if err := c.deleteAll(ctx, zkpaths.DeleteTopics, unknown); err != nil {
		return err
	}
	return c.queueDeletions(ctx, known)
}

// queueDeletions queues topics and starts what may start.
func (c *Controller) queueDeletions(ctx context.Context, names []string) error {
	for _, name := range names {
		for _, p := range c.state.Topic(name).Partitions() {
			if c.state.Moving(p.TopicPartition) {
				c.markIneligible("a reassignment is in progress", name)
				break
			}
		}
	}
	for _, name := range names {
		if !c.state.Queued(name) {
			c.state.Queue(name)
			c.log.WithField("topic", name).Info("topic is queued for deletion")
		}
	}
	return c.resumeDeletions(ctx)
}

func (c *Controller) markIneligible(reason string, names ...string) {
	for _, name := range names {
		if c.state.SetIneligible(name) {
			c.log.WithFields(logrus.Fields{"topic": name, "reason": reason}).Info("deletion of the topic waits")
		}
	}
}

// resumeDeletions makes one pass over the queue.
func (c *Controller) resumeDeletions(ctx context.Context) error {
	if len(c.state.QueuedTopics()) == 0 {
		return nil
	}
	pass := deletion.Resume(c.state)
	if err := c.completeTold(ctx, pass.Complete); err != nil {
		return err
	}
	if err := c.moveReplicas(ctx, pass.Retry, statemachine.OfflineReplica); err != nil {
		return err
	}
	if len(pass.Start) == 0 {
		return nil
	}
	return c.startDeletions(ctx, pass.Start)
}

// completeTold forgets topics whose replicas are gone, those of which every
// broker knows by now that they are gone.
func (c *Controller) completeTold(ctx context.Context, names []string) error {
	return c.completeDeletions(ctx, slices.DeleteFunc(names, func(name string) bool {
		_, untold := c.open.topics[name]
		return untold || c.undeletable.topics[name]
	}))
}

// undeletable are topics whose replicas are gone and whose nodes could not be
// deleted. They stay queued, and their markers with them: so the next controller
// finds what is left to do.
type undeletable struct {
	topics map[string]bool
	timer  bool // a deletionRetry will come
}

// deletionRetry is the timer event that tries them again.
type deletionRetry struct{}

func (deletionRetry) Kind() events.Kind { return events.TopicDeletionKind }
func (deletionRetry) Name() string      { return "DeletionRetry" }

func (c *Controller) onDeletionRetry(ctx context.Context) error {
	c.undeletable = undeletable{}
	return c.resumeDeletions(ctx)
}

// deleteLater reports a topic that could not be deleted, and why.
func (c *Controller) deleteLater(name string, why error) {
	c.remark(zkpaths.TopicPath(name), "deletion", "the topic's replicas are deleted, its nodes cannot be: "+why.Error(),
		"give this process the right to delete them; it tries again and again, and the marker stays")
	if c.undeletable.topics == nil {
		c.undeletable.topics = map[string]bool{}
	}
	c.undeletable.topics[name] = true
	if !c.undeletable.timer {
		c.undeletable.timer = true
		c.timers.After(lookAgainAfter, deletionRetry{})
	}
}

// startDeletions tells clients that the topics are gone, and brokers to delete
// their replicas (spec/controller.md §7.6, "Start deletion").
func (c *Controller) startDeletions(ctx context.Context, names []string) error {
	s := deletion.Begin(c.state, names)
	for _, to := range []statemachine.PartitionState{statemachine.OfflinePartition, statemachine.NonExistentPartition} {
		if _, err := c.movePartitions(ctx, s.Unseen, to, statemachine.OfflineElection); err != nil {
			return err
		}
	}
	for _, name := range s.Topics {
		c.state.SetDeletionStarted(name)
	}
	err := c.together(func() error {
		c.tellMetadata(c.state.BrokerIDs(), s.All)
		c.sayFarewell(s.All)
		for _, step := range []struct {
			rs []statemachine.Replica
			to statemachine.ReplicaState
		}{
			{s.Dead, statemachine.ReplicaDeletionIneligible},
			{s.Live, statemachine.OfflineReplica},
			{s.Live, statemachine.ReplicaDeletionStarted},
		} {
			if err := c.moveReplicas(ctx, step.rs, step.to); err != nil {
				return err
			}
		}
		return nil
	})
	c.markIneligible("a replica is offline", s.Ineligible...)
	return err
}

// onStopReplicaResponse learns which replicas are deleted. A top-level error
// counts for every replica asked for, since the answer then has no rows; in the
// original such replicas stay in limbo (spec/controller.md §6.6).
func (c *Controller) onStopReplicaResponse(ctx context.Context, e events.StopReplicaResponse) error {
	c.confirmDeletes(e)
	var failed, deleted []statemachine.Replica
	for _, s := range e.Request.Partitions {
		p := c.state.Partition(s.TopicPartition)
		if !s.Delete || p == nil || !c.state.DeletionStarted(s.TopicPartition.Topic) {
			continue
		}
		r := statemachine.Replica{Partition: p, Broker: e.Broker}
		code, answered := e.Errors[s.TopicPartition]
		switch {
		case e.Error != kafka.NoError || code != kafka.NoError:
			failed = append(failed, r)
		case answered:
			deleted = append(deleted, r)
		}
	}
	if len(failed) > 0 {
		c.log.WithFields(logrus.Fields{"broker": e.Broker, "error": e.Error.String(), "replicas": len(failed)}).Error("broker could not delete replicas; deletion waits for it")
		if err := c.deletionFailed(ctx, failed); err != nil {
			return err
		}
	}
	if len(deleted) == 0 {
		return nil
	}
	queued, _ := deletion.Split(c.state, deleted)
	if err := c.moveReplicas(ctx, queued, statemachine.ReplicaDeletionSuccessful); err != nil {
		return err
	}
	return c.resumeDeletions(ctx)
}

// deletionFailed sets replicas aside that could not be deleted.
func (c *Controller) deletionFailed(ctx context.Context, rs []statemachine.Replica) error {
	queued, _ := deletion.Split(c.state, rs)
	if len(queued) == 0 {
		return nil
	}
	if err := c.moveReplicas(ctx, queued, statemachine.ReplicaDeletionIneligible); err != nil {
		return err
	}
	c.markIneligible("a replica could not be deleted", topicsOf(queued)...)
	return c.resumeDeletions(ctx)
}

// resumeDeletionFor goes on with topics whose reason to wait is over.
func (c *Controller) resumeDeletionFor(ctx context.Context, names []string) error {
	found := false
	for _, name := range names {
		if c.state.Queued(name) {
			c.state.ClearIneligible(name)
			found = true
		}
	}
	if !found {
		return nil
	}
	return c.resumeDeletions(ctx)
}

// completeDeletions forgets topics whose replicas are all deleted: replicas,
// then the topic's nodes depth first, its configuration, and last the marker
// (spec/controller.md §7.6, I-15). A crash in between is repaired at failover.
func (c *Controller) completeDeletions(ctx context.Context, names []string) error {
	for _, name := range names {
		t := c.state.Topic(name)
		if t == nil {
			continue
		}
		for _, p := range t.Partitions() {
			if err := c.moveReplicas(ctx, replicas(p, p.ReplicasIn(statemachine.ReplicaDeletionSuccessful)), statemachine.NonExistentReplica); err != nil {
				return err
			}
		}
	}
	deleted, err := c.deleteNodes(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range deleted {
		c.log.WithField("topic", name).Info("topic is deleted")
		c.forgetTopic(name)
		c.state.ClearIneligible(name)
	}
	if len(deleted) == 0 {
		return nil
	}
	return c.dropDeletedMoves(ctx, deleted)
}

// deleteNodes removes the trees of topics, their configuration and, last, the
// markers. What is below a topic is mostly known; where something else turns
// up, the tree is listed. It gives the topics that are gone; the others keep
// their markers.
func (c *Controller) deleteNodes(ctx context.Context, names []string) (deleted []string, err error) {
	var paths, listed []string
	for _, name := range names {
		tree, known := c.knownTree(name)
		if !known {
			listed = append(listed, name)
		}
		paths = append(paths, tree...)
	}
	left, err := c.deletePaths(ctx, paths)
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		if topic, ok := zkpaths.ParseTopicPath(l.path); ok {
			listed = append(listed, topic)
		}
	}
	if len(listed) > 0 {
		roots := append(readPaths(listed, zkpaths.TopicPath), readPaths(listed, zkpaths.TopicConfigPath)...)
		below, err := c.descendants(ctx, roots)
		if err != nil {
			return nil, err
		}
		if left, err = c.deletePaths(ctx, below); err != nil {
			return nil, err
		}
	} else {
		left = nil
	}
	stuck := map[string]bool{}
	why := map[string]error{} // what was met first is the cause: children come before their parents
	for _, l := range left {
		topic, _, _ := strings.Cut(strings.TrimPrefix(l.path, zkpaths.BrokerTopics+"/"), "/")
		if why[topic] == nil {
			why[topic] = l.err
		}
		if l.path == zkpaths.TopicPath(topic) {
			stuck[topic] = true
			c.deleteLater(topic, why[topic])
		}
	}
	deleted = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return stuck[name] })
	_, err = c.deletePaths(ctx, readPaths(deleted, zkpaths.DeleteTopicPath))
	return deleted, err
}

func readPaths(names []string, path func(string) string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = path(name)
	}
	return out
}

// knownTree lists the nodes of a topic, children first, by what memory says.
// It is not known where a state may be missing: a delete of a missing node
// costs a round trip, a listing of all costs less than many of those.
func (c *Controller) knownTree(name string) ([]string, bool) {
	t := c.state.Topic(name)
	if t == nil || len(t.Partitions()) == 0 || c.opts.KafkaOrder {
		return nil, false
	}
	var out []string
	for _, p := range t.Partitions() {
		if !p.HasLeadership {
			return nil, false
		}
		out = append(out, zkpaths.PartitionStatePath(p.TopicPartition), zkpaths.PartitionPath(p.TopicPartition))
	}
	return append(out, zkpaths.PartitionsPath(name), zkpaths.TopicPath(name), zkpaths.TopicConfigPath(name)), true
}

// leftover is a node that could not be deleted.
type leftover struct {
	path string
	err  error
}

// deletePaths deletes in order and gives what is still there. What belongs to a
// topic but is not below its node is reported here, since nobody waits for it.
func (c *Controller) deletePaths(ctx context.Context, paths []string) ([]leftover, error) {
	writes := make([]zkpaths.Write, len(paths))
	for i, path := range paths {
		writes[i] = zkpaths.Write{Op: zkpaths.Delete, Path: path, Version: zkpaths.AnyVersion}
	}
	out, err := c.write(ctx, writes)
	if err != nil {
		return nil, err
	}
	var left []leftover
	for i, o := range out {
		if o.OK() || o.Code == zkpaths.NoNode {
			continue
		}
		left = append(left, leftover{paths[i], o.Error(paths[i])})
		if !strings.HasPrefix(paths[i], zkpaths.BrokerTopics+"/") {
			c.remark(paths[i], "deletion", "it belongs to a deleted topic, and cannot be deleted: "+o.Code.String(), "remove it by hand")
		}
	}
	return left, nil
}

// descendants lists roots and everything below them, children before parents,
// roots in their order.
func (c *Controller) descendants(ctx context.Context, roots []string) ([]string, error) {
	type found struct {
		path string
		root int
	}
	var all []found
	level := make([]found, len(roots))
	for i, r := range roots {
		level[i] = found{r, i}
	}
	for len(level) > 0 {
		all = append(all, level...)
		nodes, err := c.read(ctx, readsOf(zkpaths.GetChildren, level, func(f found) string { return f.path }, false))
		if err != nil {
			return nil, err
		}
		var next []found
		for i, n := range nodes {
			for _, child := range n.Children {
				next = append(next, found{level[i].path + "/" + child, level[i].root})
			}
		}
		level = next
	}
	slices.Reverse(all)
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(a.root, b.root) })
	out := make([]string, len(all))
	for i, f := range all {
		out[i] = f.path
	}
	return out, nil
}

// topicsOf gives the topics of replicas, each once, sorted.
func topicsOf(rs []statemachine.Replica) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.TopicPartition.Topic)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func partitionName(n int32) string { return strconv.Itoa(int(n)) }
