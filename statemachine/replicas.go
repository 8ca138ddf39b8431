package statemachine

import (
	"fmt"
	"slices"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Replica is one replica of a partition.
type Replica struct {
	*Partition
	Broker kafka.BrokerID
}

// Name gives the value form of a replica.
func (r Replica) Name() kafka.PartitionReplica {
	return kafka.PartitionReplica{TopicPartition: r.TopicPartition, Broker: r.Broker}
}

// NeedsLeadership tells whether taking a replica offline has to touch its ISR.
func (r Replica) NeedsLeadership() bool { return r.HasLeadership }

// ISRChange is one step of taking replicas out of a partition's ISR. A step
// without a write (Write -1) only refreshes the cache.
type ISRChange struct {
	Replica
	Leadership kafka.Leadership // after the step
	Write      int              // index into the plan's writes, or -1
}

// ISRPlan takes replicas out of ISRs (spec/controller.md §5.4). Several
// replicas of one partition are taken one after the other, each with its own
// write and epoch, and only one write of a partition is in a plan: a second one
// would be conditional on a version that a leader's write, too, can bring about,
// and then overwrite it.
type ISRPlan struct {
	Writes   []zkpaths.Write
	Steps    []ISRChange
	Later    []Replica // wait for the write of their partition
	Failures []Failure
	Silent   []Replica // of a topic being deleted whose state cannot be read: they go offline, and nobody is told of an ISR
}

// ISRResult is a settled ISRPlan.
type ISRResult struct {
	Done     []ISRChange // in order
	Next     []Replica   // to be planned with the leadership that Done has for their partition
	Retry    []Replica   // somebody wrote first: read and choose again
	Failures []Failure
	Silent   []Replica // as in the plan
}

// PlanRemovals decides how the given replicas, all with cached leadership,
// leave their ISRs. rs must have a partition's replicas next to each other.
func (c *Context) PlanRemovals(rs []Replica, zk map[*Partition]ZKState) *ISRPlan {
	plan := &ISRPlan{}
	for i := 0; i < len(rs); {
		j := i + 1
		for j < len(rs) && rs[j].Partition == rs[i].Partition {
			j++
		}
		c.planRemoval(plan, rs[i:j], zk[rs[i].Partition])
		i = j
	}
	return plan
}

func (c *Context) planRemoval(plan *ISRPlan, rs []Replica, zk ZKState) {
	p := rs[0].Partition
	if err := c.readable(zk); err != nil {
		for _, r := range rs {
			if zk.Err != nil && c.Queued(p.TopicPartition.Topic) {
				plan.Silent = append(plan.Silent, r)
				continue
			}
			plan.Failures = append(plan.Failures, replicaFailure(r, OfflineReplica, err))
		}
		return
	}
	now := zk.Leadership
	for i, r := range rs {
		step := ISRChange{Replica: r, Write: -1}
		if slices.Contains(now.ISR, r.Broker) {
			next := now
			if next.Leader == r.Broker {
				next.Leader = kafka.NoLeader
			}
			if len(next.ISR) > 1 { // the last member is never removed
				next.ISR = kafka.Without(next.ISR, []kafka.BrokerID{r.Broker})
			}
			next.LeaderEpoch++
			next.ControllerEpoch = c.Epoch
			step.Write = len(plan.Writes)
			plan.Writes = append(plan.Writes, SetState(p.TopicPartition, next, now.ZKVersion))
			step.Leadership = next
			plan.Steps = append(plan.Steps, step)
			plan.Later = append(plan.Later, rs[i+1:]...)
			return
		}
		now.ControllerEpoch = c.Epoch
		step.Leadership = now
		plan.Steps = append(plan.Steps, step)
	}
}

// Settle turns ZooKeeper's answers into what may be committed. Replicas that
// waited for a write go on from what it left, or are read again if it failed.
func (p *ISRPlan) Settle(out []zkpaths.Outcome) ISRResult {
	res := ISRResult{Failures: p.Failures, Silent: p.Silent}
	later := p.Later
	for _, step := range p.Steps {
		if step.Write < 0 {
			res.Done = append(res.Done, step)
			continue
		}
		n := 0
		for n < len(later) && later[n].Partition == step.Partition {
			n++
		}
		waiting := later[:n]
		later = later[n:]
		switch o := out[step.Write]; {
		case o.OK():
			step.Leadership.ZKVersion = o.Version
			res.Done = append(res.Done, step)
			res.Next = append(res.Next, waiting...)
			continue
		case o.Code == zkpaths.BadVersion:
			res.Retry = append(res.Retry, step.Replica)
		default:
			res.Failures = append(res.Failures, replicaFailure(step.Replica, OfflineReplica, o.Error(p.Writes[step.Write].Path)))
		}
		res.Retry = append(res.Retry, waiting...)
	}
	return res
}

// LegalReplicas divides replicas into those that may go to a state and the
// failures of the others.
func LegalReplicas(rs []Replica, to ReplicaState) (legal []Replica, failures []Failure) {
	legal = make([]Replica, 0, len(rs))
	for _, r := range rs {
		if replicaStepLegal(r.Replica(r.Broker), to) {
			legal = append(legal, r)
			continue
		}
		failures = append(failures, replicaFailure(r, to, fmt.Errorf("%w: the transition is not legal", ErrStateChange)))
	}
	return legal, failures
}

// Replica gives the state of a replica of the same partition.
func (r Replica) Replica(id kafka.BrokerID) ReplicaState { return r.Partition.Replica(id) }

// ForgetReplica takes a replica out of its partition's lists and drops its state (§5.3, NonExistent).
func (c *Context) ForgetReplica(r Replica) {
	gone := []kafka.BrokerID{r.Broker}
	a := r.Assignment
	r.Partition.Assignment = kafka.ReplicaAssignment{
		Replicas: kafka.Without(a.Replicas, gone), Adding: kafka.Without(a.Adding, gone), Removing: kafka.Without(a.Removing, gone)}
	r.SetReplica(r.Broker, NonExistentReplica)
}

func replicaFailure(r Replica, to ReplicaState, err error) Failure {
	return Failure{Partition: r.TopicPartition, Broker: r.Broker, From: r.Replica(r.Broker).String(), To: to.String(), Err: err}
}
