package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

var errUnstable = errors.New("the world did not become stable: ISR changes keep following each other")

// checker watches the invariants of spec/controller.md §9 that can be seen in
// ZooKeeper and in the requests, write by write and step by step.
type checker struct {
	w      *World
	broken []string
	epoch  int64 // highest value of /controller_epoch
	states map[kafka.TopicPartition]kafka.Leadership
	seen   int // notes looked at
	topics map[string]map[int32]kafka.ReplicaAssignment
	// leaders has who led in which epoch, while the topic lives (I-04)
	leaders map[kafka.TopicPartition]map[int32]kafka.BrokerID
}

func newChecker(w *World) *checker {
	return &checker{w: w, topics: map[string]map[int32]kafka.ReplicaAssignment{}, states: map[kafka.TopicPartition]kafka.Leadership{}, leaders: map[kafka.TopicPartition]map[int32]kafka.BrokerID{}}
}

func (c *checker) fail(format string, args ...any) {
	if len(c.broken) < 20 {
		c.broken = append(c.broken, fmt.Sprintf(format, args...))
	}
}

// wrote sees every write attempt. Writes of tools and operators are free to do
// anything, so only those of candidates are judged.
func (c *checker) wrote(session int64, op zkserver.Op, res zkserver.OpResult) {
	if res.Code != zkserver.OK || op.Kind == zkserver.OpCheck {
		return
	}
	by := c.candidate(session)
	if tp, ok := zkpaths.ParsePartitionStatePath(op.Path); ok {
		c.state(by, tp, op, res)
		return
	}
	if op.Path == zkpaths.ControllerEpoch && op.Kind == zkserver.OpSet && by != nil {
		c.epochRises(op.Data)
	}
	if topic, ok := zkpaths.ParseTopicPath(op.Path); ok {
		c.assignment(by, topic, op)
	}
}

func (c *checker) candidate(session int64) *Candidate {
	for _, id := range ids(c.w.Candidates) {
		if cand := c.w.Candidates[id]; cand.Store.Session() == session {
			return cand
		}
	}
	return nil
}

// I-01: the epoch never falls, and each election raises it.
func (c *checker) epochRises(data []byte) {
	epoch, err := zkpaths.DecodeEpoch(data)
	switch {
	case err != nil:
		c.fail("I-01: /controller_epoch was set to %q", data)
	case int64(epoch) <= c.epoch:
		c.fail("I-01: /controller_epoch went from %d to %d", c.epoch, epoch)
	}
	c.epoch = max(c.epoch, int64(epoch))
}

// state checks I-03 to I-08 on one state znode.
func (c *checker) state(by *Candidate, tp kafka.TopicPartition, op zkserver.Op, res zkserver.OpResult) {
	if op.Kind == zkserver.OpDelete {
		delete(c.states, tp)
		delete(c.leaders, tp)
		return
	}
	now, err := zkpaths.DecodePartitionState(tp, op.Data, res.Stat.Version)
	if by == nil {
		if err == nil {
			c.states[tp] = now
		}
		return
	}
	if err != nil {
		c.fail("%s: a controller wrote an unreadable state %q", tp, op.Data)
		return
	}
	was, known := c.states[tp]
	c.states[tp] = now
	if now.Leader >= 0 && !slices.Contains(now.ISR, now.Leader) {
		c.fail("I-06: %s: leader %d is not in ISR %v", tp, now.Leader, now.ISR)
	}
	if len(now.ISR) == 0 {
		c.fail("I-07: %s: empty ISR", tp)
	}
	if int64(now.ControllerEpoch) > c.epoch && c.epoch > 0 {
		c.fail("I-03: %s: controller epoch %d above /controller_epoch %d", tp, now.ControllerEpoch, c.epoch)
	}
	if known && op.Kind == zkserver.OpSet {
		c.follows(tp, was, now)
	}
	if now.Leader >= 0 {
		c.oneLeader(tp, now)
	}
}

func (c *checker) follows(tp kafka.TopicPartition, was, now kafka.Leadership) {
	if now.ControllerEpoch < was.ControllerEpoch {
		c.fail("I-03: %s: controller epoch fell from %d to %d", tp, was.ControllerEpoch, now.ControllerEpoch)
	}
	if now.LeaderEpoch < was.LeaderEpoch {
		c.fail("I-04: %s: leader epoch fell from %d to %d", tp, was.LeaderEpoch, now.LeaderEpoch)
	}
	if now.LeaderEpoch == was.LeaderEpoch && now.Leader != was.Leader {
		c.fail("I-04: %s: leader went from %d to %d within epoch %d", tp, was.Leader, now.Leader, now.LeaderEpoch)
	}
	if now.LeaderEpoch > was.LeaderEpoch+1 {
		c.fail("I-04: %s: leader epoch jumped from %d to %d in one write", tp, was.LeaderEpoch, now.LeaderEpoch)
	}
	if now.ZKVersion != was.ZKVersion+1 {
		c.fail("I-05: %s: version went from %d to %d", tp, was.ZKVersion, now.ZKVersion)
	}
	if now.Leader >= 0 && !slices.Contains(was.ISR, now.Leader) && now.LeaderEpoch > was.LeaderEpoch {
		if len(now.ISR) != 1 || c.w.Options.Version.AtLeast(kafka.V3_2IV0) && now.Recovery != kafka.Recovering {
			c.fail("I-08: %s: leader %d from outside ISR %v without ISR=[leader] and RECOVERING: %v", tp, now.Leader, was.ISR, now)
		}
	}
}

func (c *checker) oneLeader(tp kafka.TopicPartition, now kafka.Leadership) {
	if c.leaders[tp] == nil {
		c.leaders[tp] = map[int32]kafka.BrokerID{}
	}
	if l, ok := c.leaders[tp][now.LeaderEpoch]; ok && l != now.Leader {
		c.fail("I-04: %s: leaders %d and %d in epoch %d", tp, l, now.Leader, now.LeaderEpoch)
	}
	c.leaders[tp][now.LeaderEpoch] = now.Leader
}

// assignment checks I-10, in what a controller changed: what it found it may
// write back as it was.
func (c *checker) assignment(by *Candidate, topic string, op zkserver.Op) {
	before := c.topics[topic]
	if op.Kind == zkserver.OpDelete {
		delete(c.topics, topic)
		return
	}
	t, err := zkpaths.DecodeTopic(topic, op.Data)
	if err != nil {
		if by != nil {
			c.fail("/brokers/topics/%s: a controller wrote something unreadable: %q", topic, op.Data)
		}
		return
	}
	c.topics[topic] = map[int32]kafka.ReplicaAssignment{}
	for _, p := range t.Partitions {
		c.topics[topic][p.Partition] = p.ReplicaAssignment
		if old, ok := before[p.Partition]; by == nil || before == nil || ok && old.Equal(p.ReplicaAssignment) {
			continue
		}
		if keeps, ok := withoutGivenUp(p.ReplicaAssignment); ok {
			p.ReplicaAssignment = keeps
		}
		full := slices.Concat(p.Target(), kafka.Without(p.Original(), p.Target()))
		switch {
		case len(kafka.Without(p.Adding, p.Replicas)) > 0 || len(kafka.Without(p.Removing, p.Replicas)) > 0:
			c.fail("I-10: %s-%d: adding %v or removing %v outside replicas %v", topic, p.Partition, p.Adding, p.Removing, p.Replicas)
		case len(kafka.Without(p.Adding, p.Removing)) != len(p.Adding):
			c.fail("I-10: %s-%d: adding %v and removing %v overlap", topic, p.Partition, p.Adding, p.Removing)
		case p.Reassigning() && !slices.Equal(full, p.Replicas):
			c.fail("I-10: %s-%d: replicas %v are not target %v then the rest", topic, p.Partition, p.Replicas, p.Target())
		}
	}
}

// withoutGivenUp leaves out replicas that were to be added and are taken away
// again: they stand last in the list, and are both adding and removing until
// their brokers have deleted them.
func withoutGivenUp(a kafka.ReplicaAssignment) (kafka.ReplicaAssignment, bool) {
	kept := kafka.Without(a.Adding, a.Removing)
	given := kafka.Without(a.Adding, kept)
	if len(given) == 0 || len(given) > len(a.Replicas) || !slices.Equal(a.Replicas[len(a.Replicas)-len(given):], given) {
		return a, false
	}
	return kafka.ReplicaAssignment{Replicas: a.Replicas[:len(a.Replicas)-len(given)], Adding: kept, Removing: kafka.Without(a.Removing, given)}, true
}

// stepped looks at what must hold between two events.
func (c *checker) stepped() {
	actives := 0
	for _, id := range ids(c.w.Candidates) {
		cand := c.w.Candidates[id]
		if cand.Active() && c.w.ZK.Tree.Alive(cand.Store.Session()) && cand.Queue.Len() == 0 && !cand.Paused {
			actives++
		}
		if !cand.Active() && (cand.ctrl.State().Epoch != 0 || len(cand.ctrl.State().Topics()) > 0) {
			c.fail("I-20: candidate %d is not active, but its memory is not empty", id)
		}
	}
	if actives > 1 {
		c.fail("I-02: %d candidates with live sessions and nothing left to do believe to be the controller", actives)
	}
	for ; c.seen < len(c.w.Notes); c.seen++ {
		if s, ok := c.w.Notes[c.seen].(Sent); ok && s.Request.Epoch() == 0 {
			c.fail("I-17: %s to %d without the broker's epoch", s.Request.Kind(), s.To)
		}
	}
}

// Final checks what must hold once all is healed and settled: everything
// online, nothing pending. It returns what does not.
func (w *World) Final() []string {
	var bad []string
	c := w.Active()
	if c == nil {
		return []string{"nobody is controller"}
	}
	for _, t := range c.ctrl.State().Topics() {
		for _, p := range t.Partitions() {
			l, ok := w.Leadership(p.TopicPartition)
			switch {
			case !ok:
				bad = append(bad, fmt.Sprintf("%s has no state", p.TopicPartition))
			case w.Brokers[l.Leader] == nil || w.Brokers[l.Leader].Session == 0:
				bad = append(bad, fmt.Sprintf("%s is led by %d, which is not up", p.TopicPartition, l.Leader))
			case w.Brokers[l.Leader].Hosted[p.TopicPartition] == nil || w.Brokers[l.Leader].Hosted[p.TopicPartition].LeaderEpoch != l.LeaderEpoch:
				bad = append(bad, fmt.Sprintf("%s: leader %d does not know its epoch %d", p.TopicPartition, l.Leader, l.LeaderEpoch))
			}
		}
	}
	for _, p := range []string{zkpaths.ReassignPartitions, zkpaths.PreferredElection} {
		if _, code := w.ZK.Tree.Exists(zkserver.Who{}, p); code == zkserver.OK {
			bad = append(bad, p+" is still there")
		}
	}
	if names, _, _ := w.ZK.Tree.GetChildren(zkserver.Who{}, zkpaths.DeleteTopics); len(names) > 0 {
		bad = append(bad, "topics still wait for deletion: "+strings.Join(names, " "))
	}
	if m := c.ctrl.State().MovingPartitions(); len(m) > 0 {
		bad = append(bad, fmt.Sprintf("still moving: %v", m))
	}
	return bad
}

// Leadership reads a state znode.
func (w *World) Leadership(tp kafka.TopicPartition) (kafka.Leadership, bool) {
	data, stat, code := w.ZK.Tree.GetData(zkserver.Who{}, zkpaths.PartitionStatePath(tp))
	if code != zkserver.OK {
		return kafka.Leadership{}, false
	}
	l, err := zkpaths.DecodePartitionState(tp, data, stat.Version)
	return l, err == nil
}
