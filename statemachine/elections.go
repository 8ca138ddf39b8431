package statemachine

import (
	"slices"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Strategy says which rule elects a leader (spec/controller.md §4.7).
type Strategy uint8

const (
	// OfflineElection replaces a leader that is not online.
	OfflineElection Strategy = iota
	// OfflineUncleanElection is OfflineElection that may leave the ISR whatever the topic's configuration says.
	OfflineUncleanElection
	// ReassignElection takes the leadership of a moving partition to its target replicas.
	ReassignElection
	// PreferredElection takes it to the first replica.
	PreferredElection
	// ControlledShutdownElection takes it from a broker that is shutting down.
	ControlledShutdownElection
)

var strategyNames = [...]string{"offline", "offline-unclean", "reassign", "preferred", "controlled-shutdown"}

// String gives the word that logs and records use.
func (s Strategy) String() string { return strategyNames[s] }

// Election is a decided change of leadership, before it is written.
type Election struct {
	Leadership kafka.LeaderAndISR // leader epoch already raised
	Recipients []kafka.BrokerID   // of the LeaderAndIsr
	Unclean    bool               // the leader was not in the ISR
}

// Elect chooses a leader for p given what its state znode says. uncleanAllowed
// is asked only by offline elections, when no ISR member is online. Nothing is
// elected where the rule finds nobody; the election of an unchanged leader is
// an election (spec/controller.md §4.7).
func (c *Context) Elect(p *Partition, zk kafka.Leadership, s Strategy, uncleanAllowed bool) (Election, bool) {
	online := func(id kafka.BrokerID) bool { return c.Online(p, id) }
	inISR := func(id kafka.BrokerID) bool { return slices.Contains(zk.ISR, id) }
	replicas := p.Assignment.Replicas
	var e Election
	next := zk.LeaderAndISR
	switch s {
	case OfflineElection, OfflineUncleanElection:
		e.Recipients = filter(replicas, online)
		if leader, ok := first(replicas, func(id kafka.BrokerID) bool { return online(id) && inISR(id) }); ok {
			next.Leader, next.ISR = leader, filter(zk.ISR, online)
		} else if leader, ok := first(replicas, online); ok && uncleanAllowed {
			next.Leader, next.ISR, e.Unclean = leader, []kafka.BrokerID{leader}, true
		} else {
			return e, false
		}
	case ReassignElection:
		target := p.Assignment.Target()
		e.Recipients = target
		leader, ok := first(target, func(id kafka.BrokerID) bool { return online(id) && inISR(id) })
		if !ok {
			return e, false
		}
		next.Leader = leader
	case PreferredElection:
		e.Recipients = replicas
		if len(replicas) == 0 || !online(replicas[0]) || !inISR(replicas[0]) {
			return e, false
		}
		next.Leader = replicas[0]
	case ControlledShutdownElection:
		present := func(id kafka.BrokerID) bool { return c.OnlineOrShutting(p, id) }
		e.Recipients = filter(replicas, present)
		leader, ok := first(replicas, func(id kafka.BrokerID) bool { return present(id) && inISR(id) && !c.ShuttingDown(id) })
		if !ok {
			return e, false
		}
		next.Leader = leader
		next.ISR = filter(zk.ISR, func(id kafka.BrokerID) bool { return !c.ShuttingDown(id) })
	}
	next.LeaderEpoch++
	if e.Unclean && c.RecoveryState {
		next.Recovery = kafka.Recovering
	}
	e.Leadership = next
	return e, true
}

// NeedsUncleanConfig tells whether an election of p depends on whether its
// topic allows unclean elections: no member of the ISR is online.
func (c *Context) NeedsUncleanConfig(p *Partition, zk kafka.Leadership, s Strategy) bool {
	return s == OfflineElection && !slices.ContainsFunc(zk.ISR, func(id kafka.BrokerID) bool { return c.Online(p, id) })
}

func first(ids []kafka.BrokerID, ok func(kafka.BrokerID) bool) (kafka.BrokerID, bool) {
	if i := slices.IndexFunc(ids, ok); i >= 0 {
		return ids[i], true
	}
	return kafka.NoLeader, false
}

// filter keeps the members that satisfy ok; it returns ids itself when all do.
func filter(ids []kafka.BrokerID, ok func(kafka.BrokerID) bool) []kafka.BrokerID {
	for i, id := range ids {
		if !ok(id) {
			out := slices.Clone(ids[:i])
			for _, id := range ids[i+1:] {
				if ok(id) {
					out = append(out, id)
				}
			}
			return out
		}
	}
	return ids
}
