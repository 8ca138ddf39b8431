package statemachine

import (
	"errors"
	"fmt"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// ErrStateChange is the reason of a transition that the rules do not allow now:
// nobody can be elected, another controller decided, the state is unreadable.
var ErrStateChange = errors.New("state change failed")

// ErrNoState: the partition has no readable state znode.
var ErrNoState = errors.New("no state znode")

// ZKState is what reading one state znode gave.
type ZKState struct {
	kafka.Leadership
	Err error // ErrNoState, a *zkpaths.PayloadError, or ZooKeeper's own error
}

// Failure is a transition that did not happen; the old state stays.
type Failure struct {
	Partition kafka.TopicPartition
	Broker    kafka.BrokerID // of the replica; kafka.NoLeader for a partition's transition
	From, To  string
	Err       error
}

// Error prints what failed and why.
func (f Failure) Error() string {
	who := f.Partition.String()
	if f.Broker != kafka.NoLeader {
		who = kafka.PartitionReplica{TopicPartition: f.Partition, Broker: f.Broker}.String()
	}
	return fmt.Sprintf("%s: %s -> %s: %v", who, f.From, f.To, f.Err)
}

// PartitionChange is a transition that may be committed: the state, and with
// Leadership the new cache entry and who has to be told.
type PartitionChange struct {
	*Partition
	From, To   PartitionState
	Leadership *kafka.Leadership
	Recipients []kafka.BrokerID
	IsNew      bool
	Unclean    bool
}

// PartitionResult is a settled plan.
type PartitionResult struct {
	Done     []PartitionChange
	Retry    []*Partition // somebody wrote first: read and choose again
	Failures []Failure
}

// PartitionPlan is what carries partitions to a state. Writes are carried out
// in their order; Settle is given the outcomes by index.
type PartitionPlan struct {
	Writes []zkpaths.Write
	state  []int // for pending[i]: index of the write that decides
	open   []PartitionChange
	PartitionResult
}

// NeedState tells which partitions a move to a state has to read first.
func NeedState(ps []*Partition, to PartitionState) []*Partition {
	var out []*Partition
	for _, p := range ps {
		if w, ok := partitionStep(p.State, to); ok && w == elect {
			out = append(out, p)
		}
	}
	return out
}

// PlanPartitions decides how ps reach state to. zk has what was read for the
// partitions of NeedState; unclean tells whether a topic allows unclean
// elections, or an error when its configuration could not be read.
func (c *Context) PlanPartitions(ps []*Partition, to PartitionState, s Strategy,
	zk map[*Partition]ZKState, unclean func(topic string) (bool, error)) *PartitionPlan {
	plan := &PartitionPlan{}
	var initial []PartitionChange
	for _, p := range ps {
		work, legal := partitionStep(p.State, to)
		if !legal {
			plan.fail(p, to, fmt.Errorf("%w: the transition is not legal", ErrStateChange))
			continue
		}
		change := PartitionChange{Partition: p, From: p.State, To: to}
		switch work {
		case remember:
			plan.Done = append(plan.Done, change)
		case initialise:
			if change, ok := c.firstLeader(change); ok {
				initial = append(initial, change)
			} else {
				plan.fail(p, to, fmt.Errorf("%w: none of the replicas %v is alive", ErrStateChange, p.Assignment.Replicas))
			}
		case elect:
			c.planElection(plan, change, zk[p], s, unclean)
		}
	}
	plan.createStates(initial)
	return plan
}

// firstLeader is the initial leadership (spec/controller.md §4.4).
func (c *Context) firstLeader(change PartitionChange) (PartitionChange, bool) {
	live := filter(change.Assignment.Replicas, func(id kafka.BrokerID) bool { return c.Online(change.Partition, id) })
	if len(live) == 0 {
		return change, false
	}
	change.Leadership = &kafka.Leadership{
		LeaderAndISR:    kafka.LeaderAndISR{Leader: live[0], LeaderEpoch: kafka.InitialLeaderEpoch, ISR: live},
		ControllerEpoch: c.Epoch,
	}
	change.Recipients, change.IsNew = live, true
	return change, true
}

// createStates plans the nodes in Kafka's order: all topics', all partitions',
// all states' (spec/controller.md §1.6).
func (p *PartitionPlan) createStates(changes []PartitionChange) {
	topic := ""
	for _, ch := range changes {
		if name := ch.TopicPartition.Topic; name != topic {
			topic = name
			p.Writes = append(p.Writes, zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.PartitionsPath(topic)})
		}
	}
	for _, ch := range changes {
		p.Writes = append(p.Writes, zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.PartitionPath(ch.TopicPartition)})
	}
	for _, ch := range changes {
		p.add(ch, zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.PartitionStatePath(ch.TopicPartition),
			Data: zkpaths.EncodePartitionState(*ch.Leadership)})
	}
}

func (c *Context) planElection(plan *PartitionPlan, change PartitionChange, zk ZKState, s Strategy, unclean func(string) (bool, error)) {
	p := change.Partition
	if err := c.readable(zk); err != nil {
		plan.fail(p, change.To, err)
		return
	}
	allowed := s == OfflineUncleanElection
	if c.NeedsUncleanConfig(p, zk.Leadership, s) {
		var err error
		if allowed, err = unclean(p.TopicPartition.Topic); err != nil {
			plan.fail(p, change.To, fmt.Errorf("whether unclean elections are allowed: %w", err))
			return
		}
	}
	e, ok := c.Elect(p, zk.Leadership, s, allowed)
	if !ok {
		plan.fail(p, change.To, fmt.Errorf("%w: no replica of %v can be elected (%s election, ISR %v)", ErrStateChange, p.Assignment.Replicas, s, zk.ISR))
		return
	}
	change.Leadership = &kafka.Leadership{LeaderAndISR: e.Leadership, ControllerEpoch: c.Epoch}
	change.Recipients, change.Unclean = e.Recipients, e.Unclean
	plan.add(change, SetState(p.TopicPartition, *change.Leadership, zk.ZKVersion))
}

// readable tells why a state cannot be decided upon, or nil.
func (c *Context) readable(zk ZKState) error {
	if zk.Err != nil {
		return fmt.Errorf("%w: %w", ErrStateChange, zk.Err)
	}
	if zk.ControllerEpoch > c.Epoch {
		return fmt.Errorf("%w: it was written by a controller of epoch %d, newer than ours, %d", ErrStateChange, zk.ControllerEpoch, c.Epoch)
	}
	return nil
}

// SetState is the conditional write of a state znode.
func SetState(tp kafka.TopicPartition, l kafka.Leadership, expect int32) zkpaths.Write {
	return zkpaths.Write{Op: zkpaths.Set, Path: zkpaths.PartitionStatePath(tp), Data: zkpaths.EncodePartitionState(l), Version: expect}
}

func (p *PartitionPlan) add(change PartitionChange, w zkpaths.Write) {
	p.state = append(p.state, len(p.Writes))
	p.Writes = append(p.Writes, w)
	p.open = append(p.open, change)
}

func (p *PartitionPlan) fail(part *Partition, to PartitionState, err error) {
	p.Failures = append(p.Failures, partitionFailure(part, to, err))
}

func partitionFailure(p *Partition, to PartitionState, err error) Failure {
	return Failure{Partition: p.TopicPartition, Broker: kafka.NoLeader, From: p.State.String(), To: to.String(), Err: err}
}

// Settle turns ZooKeeper's answers into what may be committed.
func (p *PartitionPlan) Settle(out []zkpaths.Outcome) PartitionResult {
	res := p.PartitionResult
	for i, change := range p.open {
		o := out[p.state[i]]
		switch {
		case o.OK():
			change.Leadership.ZKVersion = o.Version
			res.Done = append(res.Done, change)
		case o.Code == zkpaths.BadVersion:
			res.Retry = append(res.Retry, change.Partition)
		default:
			w := p.Writes[p.state[i]]
			res.Failures = append(res.Failures, partitionFailure(change.Partition, change.To, o.Error(w.Path)))
		}
	}
	return res
}

// CommitPartitions carries settled changes into memory.
func (c *Context) CommitPartitions(done []PartitionChange) {
	for _, ch := range done {
		ch.Partition.State = ch.To
		if ch.Leadership != nil {
			ch.Partition.SetLeadership(*ch.Leadership)
		}
	}
}

// PlanBumps raises the leader epochs of ps, leader and ISR staying as they are
// (phases A1 and B3 of a reassignment).
func (c *Context) PlanBumps(ps []*Partition, zk map[*Partition]ZKState) *PartitionPlan {
	plan := &PartitionPlan{}
	for _, p := range ps {
		st := zk[p]
		if err := c.readable(st); err != nil {
			plan.fail(p, p.State, err)
			continue
		}
		next := st.Leadership
		next.LeaderEpoch++
		next.ControllerEpoch = c.Epoch
		plan.add(PartitionChange{Partition: p, From: p.State, To: p.State, Leadership: &next}, SetState(p.TopicPartition, next, st.ZKVersion))
	}
	return plan
}
