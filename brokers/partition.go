package brokers

import (
	"slices"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
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
	leader          kafka.BrokerID
	leaderEpoch     int32 // -1 until the first LeaderAndIsr
	partitionEpoch  int32 // version of the state znode
	controllerEpoch int32 // of the controller that decided the leadership
	assignment      kafka.ReplicaAssignment
	isr             isrState
	role            role
	fetching        bool // a follower whose fetcher was started
	offline         bool // its log directory failed
	suspected       bool // it is in Broker.suspects
	gone            bool // deleted, or of an earlier life of the process
	wake            uint8

	// With LogOptions.
	topic      *topicState
	stored     *stored
	log        *commitlog.Log
	epochStart int64    // the log's end when we became leader in this epoch; -1 on a follower
	remotes    []remote // of a leader: the assignment without us, in its order
	follow     *following
	fetches    []fetchWait // of consumers
	produces   []produceWait
	deletes    []*delayedDelete
	flaps      *flaps
}

func newPartition(tp kafka.TopicPartition) *partition {
	return &partition{tp: tp, leader: kafka.NoLeader, leaderEpoch: kafka.NoEpoch, epochStart: -1}
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
	cause          string // in words, for the log; not compared
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
	Log             *LogSnapshot         `json:"log,omitempty"`             // nil without logs
	LastISRChange   *ISRChange           `json:"last_isr_change,omitempty"` // with logs
}

// LogSnapshot is a partition's log, and what its leader knows of the followers'.
type LogSnapshot struct {
	Start         int64              `json:"start"`
	End           int64              `json:"end"`
	HighWatermark int64              `json:"high_watermark"`
	Size          int64              `json:"size"`
	EpochStart    int64              `json:"epoch_start"` // -1 on a follower
	Epochs        [][2]int64         `json:"epochs"`      // leader epoch and first offset
	Followers     []FollowerSnapshot `json:"followers,omitempty"`
	Lag           int64              `json:"lag"` // of a follower, behind the leader's high watermark
	Truncating    bool               `json:"truncating"`
	Failed        bool               `json:"failed"` // a follower that waits for a LeaderAndIsr
}

// FollowerSnapshot is a leader's view of a follower. Times are in ms, 0 never.
type FollowerSnapshot struct {
	Broker         kafka.BrokerID `json:"broker"`
	End            int64          `json:"end"`
	FetchLeaderEnd int64          `json:"fetch_leader_end"`
	FetchTime      int64          `json:"fetch_time"`
	CaughtUp       int64          `json:"caught_up"`
	LogStart       int64          `json:"log_start"`
}

func (p *partition) snapshot() PartitionSnapshot {
	s := PartitionSnapshot{Partition: p.tp, Role: p.role.String(), Leader: p.leader, LeaderEpoch: p.leaderEpoch,
		PartitionEpoch: p.partitionEpoch, ControllerEpoch: p.controllerEpoch, Replicas: p.assignment.Replicas,
		ISR: p.isr.isr, MaximalISR: p.isr.maximal(), Fetching: p.fetching, Offline: p.offline}
	if p.isr.pending != nil {
		s.Pending = p.isr.pending.kind.String()
	}
	if p.log != nil {
		s.Log = p.logSnapshot()
	}
	if p.flaps != nil {
		last := p.flaps.last
		s.LastISRChange = &last
	}
	return s
}

func (p *partition) logSnapshot() *LogSnapshot {
	s := &LogSnapshot{Start: p.log.LogStartOffset(), End: p.log.LogEndOffset(), HighWatermark: p.log.HighWatermark(), Size: p.log.Size(), EpochStart: p.epochStart}
	for _, e := range p.log.Epochs() {
		s.Epochs = append(s.Epochs, [2]int64{int64(e.Epoch), e.Start})
	}
	for _, r := range p.remotes {
		s.Followers = append(s.Followers, FollowerSnapshot{r.id, r.end, r.fetchLeaderEnd, r.fetchTime, r.caughtUp, r.logStart})
	}
	if w := p.follow; w != nil {
		s.Lag, s.Truncating, s.Failed = w.lag, w.truncating, w.failed
	}
	return s
}
