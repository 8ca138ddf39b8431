package reassign

import (
	"fmt"
	"slices"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
)

// Policy is how moves are stored and driven.
type Policy uint8

const (
	// KIP455 is the flow of 2.4 and later (spec/controller.md §7.9).
	KIP455 Policy = iota
	// TwelveSteps is the flow of 0.10 to 2.3 (spec/controller.md §7.10).
	TwelveSteps
)

// PolicyOf gives the policy of a protocol version (design decision D7).
func PolicyOf(v kafka.ProtocolVersion) Policy {
	if v.Less(kafka.V2_4IV0) {
		return TwelveSteps
	}
	return KIP455
}

// TopicVersion is the version of the topic znodes a policy writes: the old one
// has no room for adding and removing replicas.
func (p Policy) TopicVersion() int {
	if p == TwelveSteps {
		return 1
	}
	return 3
}

// Strict tells whether the admin znode is read strictly, as 2.4 and later do.
func (p Policy) Strict() bool { return p == KIP455 }

// Refusal is why a wanted move is not carried out.
type Refusal struct {
	Code   kafka.ErrorCode
	Reason string
}

// Error gives code and reason.
func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Reason) }

func refuse(code kafka.ErrorCode, format string, args ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

// CheckTarget refuses a replica list that no source may ask for: empty, with
// an id twice, or with a negative id (spec/controller.md §7.9; for the znode
// by traces/better.md).
func CheckTarget(target []kafka.BrokerID) *Refusal {
	if len(target) == 0 {
		return refuse(kafka.InvalidReplicaAssignment, "the replica list is empty")
	}
	for i, id := range target {
		if id < 0 {
			return refuse(kafka.InvalidReplicaAssignment, "the replica list %v has a negative broker id", target)
		}
		if slices.Contains(target[:i], id) {
			return refuse(kafka.InvalidReplicaAssignment, "the replica list %v names broker %d twice", target, id)
		}
	}
	return nil
}

// CheckLive refuses a target whose added replicas are not all live. Existing
// replicas may be dead.
func CheckLive(c *statemachine.Context, current kafka.ReplicaAssignment, target []kafka.BrokerID) *Refusal {
	for _, id := range current.ReassignTo(target).Adding {
		if !c.Live(id) {
			return refuse(kafka.InvalidReplicaAssignment, "replica %d would be added, but that broker is not alive", id)
		}
	}
	return nil
}

// CheckLeader refuses a change from current to next that would take the last
// in-sync replicas away: of the ISR, none would be kept, or none of the live
// ones although there is a live one now (traces/better.md, rules without a trace).
func CheckLeader(c *statemachine.Context, p *statemachine.Partition, next kafka.ReplicaAssignment) *Refusal {
	if !p.HasLeadership || len(p.ISR) == 0 {
		return nil
	}
	kept := next.Replicas
	if Complete(next, p.ISR) {
		kept = next.Target()
	}
	live := func(id kafka.BrokerID) bool { return c.Online(p, id) }
	inSync := func(id kafka.BrokerID) bool { return slices.Contains(p.ISR, id) }
	if !slices.ContainsFunc(kept, inSync) {
		return refuse(kafka.InvalidReplicaAssignment, "it would remove every in-sync replica (ISR %v, replicas kept %v)", p.ISR, kept)
	}
	if slices.ContainsFunc(p.ISR, live) && !slices.ContainsFunc(kept, func(id kafka.BrokerID) bool { return inSync(id) && live(id) }) {
		return refuse(kafka.InvalidReplicaAssignment, "it would remove every live in-sync replica (ISR %v, replicas kept %v)", p.ISR, kept)
	}
	return nil
}

// Complete tells whether a move to a's target can end: nothing is moving, or
// every target replica is in the ISR.
func Complete(a kafka.ReplicaAssignment, isr []kafka.BrokerID) bool {
	if !a.Reassigning() {
		return true
	}
	for _, id := range a.Target() {
		if !slices.Contains(isr, id) {
			return false
		}
	}
	return true
}

// MayEnd is Complete with one more condition: the move does not end while its
// target has no live in-sync replica and the present leader still serves.
func MayEnd(c *statemachine.Context, p *statemachine.Partition, a kafka.ReplicaAssignment, zk kafka.Leadership) bool {
	if !Complete(a, zk.ISR) {
		return false
	}
	target := a.Target()
	if !c.Online(p, zk.Leader) || slices.Contains(target, zk.Leader) {
		return true
	}
	return slices.ContainsFunc(target, func(id kafka.BrokerID) bool { return c.Online(p, id) && slices.Contains(zk.ISR, id) })
}

// Stored is how an assignment is written into the topic znode: the old policy
// keeps only the replica list.
func (p Policy) Stored(a kafka.ReplicaAssignment) kafka.ReplicaAssignment {
	if p == TwelveSteps {
		return kafka.ReplicaAssignment{Replicas: a.Replicas}
	}
	return a
}
