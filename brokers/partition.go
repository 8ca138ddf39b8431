package brokers

import (
	"slices"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// role is what a broker is to a partition it hosts.
type role uint8

const (
	noRole role = iota // created, but no LeaderAndIsr was carried out yet
	leader
	follower
)

var roleNames = [...]string{"none", "leader", "follower"}

// String gives the word that snapshots and case files use.
func (r role) String() string { return roleNames[r] }

// partition is one hosted partition (spec/broker.md §2.1). The log itself, its
// end and the high watermark are Replication's.
type partition struct {
	tp              kafka.TopicPartition
	topicID         kafka.TopicID
	role            role
	leader          kafka.BrokerID
	leaderEpoch     int32 // -1 until the first LeaderAndIsr
	partitionEpoch  int32 // version of the state znode
	controllerEpoch int32 // of the controller that decided the leadership
	assignment      kafka.ReplicaAssignment
	isr             isrState
	fetching        bool // a follower whose fetcher was started
	offline         bool // its log directory failed
}

func newPartition(tp kafka.TopicPartition) *partition {
	return &partition{tp: tp, leader: kafka.NoLeader, leaderEpoch: kafka.NoEpoch}
}

// isrState is the committed ISR and the change in flight, if any (spec/broker.md §4.3).
type isrState struct {
	isr     []kafka.BrokerID // committed
	pending *proposal        // nil: Committed
}

// proposalKind tells the two kinds of pending states.
type proposalKind uint8

const (
	expand proposalKind = iota
	shrink
)

// String gives Kafka's name of the pending state.
func (k proposalKind) String() string {
	if k == expand {
		return "PendingExpand"
	}
	return "PendingShrink"
}

// proposal is an ISR change that was asked for. It is a value: whether an
// answer still belongs to the present state is decided by equality, as in
// spec/broker.md §5.5.
type proposal struct {
	kind           proposalKind
	who            []kafka.BrokerID // who joins, or who is taken out
	isr            []kafka.BrokerID // the wanted ISR
	committed      []kafka.BrokerID // the ISR it starts from
	leaderEpoch    int32
	partitionEpoch int32
}

func (p *proposal) equal(o *proposal) bool {
	return p != nil && o != nil && p.kind == o.kind && slices.Equal(p.who, o.who) && slices.Equal(p.isr, o.isr) &&
		slices.Equal(p.committed, o.committed) && p.leaderEpoch == o.leaderEpoch && p.partitionEpoch == o.partitionEpoch
}

// maximal is the set the high watermark waits for: the committed ISR and who
// is about to join it. A shrink in flight takes nobody out yet.
func (s isrState) maximal() []kafka.BrokerID {
	if s.pending != nil && s.pending.kind == expand {
		return s.pending.isr
	}
	return s.isr
}

// leading is the leadership a leader writes, with a given ISR (spec/broker.md
// §5.1): its own epochs, and RECOVERED, which clears an earlier RECOVERING.
func (p *partition) leading(isr []kafka.BrokerID) kafka.Leadership {
	return kafka.Leadership{
		LeaderAndISR:    kafka.LeaderAndISR{Leader: p.leader, LeaderEpoch: p.leaderEpoch, ISR: isr, ZKVersion: p.partitionEpoch},
		ControllerEpoch: p.controllerEpoch,
	}
}

// proposeShrink takes out all of gone at once; the order of the others stays.
func (p *partition) proposeShrink(gone []kafka.BrokerID) *proposal {
	return &proposal{kind: shrink, who: gone, isr: kafka.Without(p.isr.isr, gone), committed: p.isr.isr,
		leaderEpoch: p.leaderEpoch, partitionEpoch: p.partitionEpoch}
}

// proposeExpand lets one follower in, at the end.
func (p *partition) proposeExpand(joiner kafka.BrokerID) *proposal {
	return &proposal{kind: expand, who: []kafka.BrokerID{joiner}, isr: append(slices.Clone(p.isr.isr), joiner), committed: p.isr.isr,
		leaderEpoch: p.leaderEpoch, partitionEpoch: p.partitionEpoch}
}

// makeLeader carries out a LeaderAndIsr entry that makes us leader (spec/broker.md
// §2.6). It tells whether the entry was taken: one with an older partition
// epoch is passed over. The ISR is replaced, whatever was pending.
func (p *partition) makeLeader(s *control.PartitionState, self kafka.BrokerID, guard bool) (taken, newLeader bool) {
	if guard && s.ZKVersion < p.partitionEpoch {
		return false, false
	}
	newLeader = p.role != leader
	p.take(s)
	p.role, p.leader, p.fetching = leader, self, false
	p.isr = isrState{isr: s.ISR}
	return true, newLeader
}

// makeFollower is the other half (spec/broker.md §2.7). A follower's ISR is empty.
func (p *partition) makeFollower(s *control.PartitionState, guard bool) (taken bool) {
	if guard && s.ZKVersion < p.partitionEpoch {
		return false
	}
	p.take(s)
	p.role, p.leader = follower, s.Leader
	p.isr = isrState{}
	return true
}

func (p *partition) take(s *control.PartitionState) {
	p.controllerEpoch = s.ControllerEpoch
	p.assignment = s.ReplicaAssignment
	p.leaderEpoch, p.partitionEpoch = s.LeaderEpoch, s.ZKVersion
}

// PartitionSnapshot is a hosted partition as tests and status pages see it.
type PartitionSnapshot struct {
	Partition       kafka.TopicPartition `json:"partition"`
	Role            string               `json:"role"`
	Leader          kafka.BrokerID       `json:"leader"`
	LeaderEpoch     int32                `json:"leader_epoch"`
	PartitionEpoch  int32                `json:"partition_epoch"`
	ControllerEpoch int32                `json:"controller_epoch"`
	Replicas        []kafka.BrokerID     `json:"replicas"`
	ISR             []kafka.BrokerID     `json:"isr"`
	MaximalISR      []kafka.BrokerID     `json:"maximal_isr"`
	Pending         string               `json:"pending,omitempty"` // PendingExpand or PendingShrink
	Fetching        bool                 `json:"fetching"`
	Offline         bool                 `json:"offline"`
}

func (p *partition) snapshot() PartitionSnapshot {
	s := PartitionSnapshot{Partition: p.tp, Role: p.role.String(), Leader: p.leader, LeaderEpoch: p.leaderEpoch,
		PartitionEpoch: p.partitionEpoch, ControllerEpoch: p.controllerEpoch, Replicas: p.assignment.Replicas,
		ISR: p.isr.isr, MaximalISR: p.isr.maximal(), Fetching: p.fetching, Offline: p.offline}
	if p.isr.pending != nil {
		s.Pending = p.isr.pending.kind.String()
	}
	return s
}
