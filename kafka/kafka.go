package kafka

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// BrokerID identifies a broker. NoLeader and NoController share the value -1.
type BrokerID int32

const (
	// NoLeader stands in a leadership record of a partition nobody leads.
	NoLeader BrokerID = -1
	// LeaderDuringDelete tells brokers that a partition is being deleted (spec/controller.md §6.2).
	LeaderDuringDelete BrokerID = -2
	// NoController is the answer to "who is controller" when nobody is.
	NoController BrokerID = -1
)

const (
	// EpochDuringDelete is the leader epoch of a StopReplica for a topic queued for deletion.
	EpochDuringDelete int32 = -2
	// NoEpoch is an unknown leader epoch.
	NoEpoch int32 = -1
	// InitialLeaderEpoch is the epoch of a partition's first leader.
	InitialLeaderEpoch int32 = 0
	// NoBrokerEpoch is the epoch in requests to or from brokers older than 2.2.
	NoBrokerEpoch int64 = -1
)

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String gives the form that logs and case files use: topic-partition.
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.Itoa(int(tp.Partition))
}

// Compare orders by topic, then by partition number.
func (tp TopicPartition) Compare(o TopicPartition) int {
	if c := strings.Compare(tp.Topic, o.Topic); c != 0 {
		return c
	}
	return cmp.Compare(tp.Partition, o.Partition)
}

// SortPartitions sorts in place by topic, then by partition number.
func SortPartitions(tps []TopicPartition) { slices.SortFunc(tps, TopicPartition.Compare) }

// ParseTopicPartition reads the form String writes. Topic names may contain
// dashes, so the last dash divides.
func ParseTopicPartition(s string) (TopicPartition, error) {
	i := strings.LastIndexByte(s, '-')
	if i <= 0 {
		return TopicPartition{}, fmt.Errorf("%q is not topic-partition", s)
	}
	n, err := strconv.ParseInt(s[i+1:], 10, 32)
	if err != nil || n < 0 {
		return TopicPartition{}, fmt.Errorf("%q is not topic-partition: bad partition number", s)
	}
	return TopicPartition{s[:i], int32(n)}, nil
}

// PartitionReplica names one replica of one partition.
type PartitionReplica struct {
	TopicPartition
	Broker BrokerID
}

// String gives topic-partition/broker.
func (r PartitionReplica) String() string {
	return r.TopicPartition.String() + "/" + strconv.Itoa(int(r.Broker))
}

// Compare orders by partition, then by broker.
func (r PartitionReplica) Compare(o PartitionReplica) int {
	if c := r.TopicPartition.Compare(o.TopicPartition); c != 0 {
		return c
	}
	return cmp.Compare(r.Broker, o.Broker)
}

// TopicID is a topic's 16-byte id. The zero value means "none".
type TopicID [16]byte

// String gives 22 characters of URL-safe base64 without padding, as the topic znode stores it.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero tells whether there is no id.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// ParseTopicID reads the form String writes.
func ParseTopicID(s string) (TopicID, error) {
	var id TopicID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%q is no topic id: want 22 characters of URL-safe base64", s)
	}
	copy(id[:], b)
	return id, nil
}

// LeaderRecoveryState says whether a leader may have lost records (spec/controller.md §1.6).
type LeaderRecoveryState int8

const (
	Recovered  LeaderRecoveryState = 0
	Recovering LeaderRecoveryState = 1
)

// LeaderAndISR is one partition's leadership as the state znode has it.
type LeaderAndISR struct {
	Leader      BrokerID
	LeaderEpoch int32
	ISR         []BrokerID // order matters only for display and for AlterPartition's equality
	Recovery    LeaderRecoveryState
	ZKVersion   int32 // the partition epoch: version of the state znode
}

// Leadership is a LeaderAndISR with the epoch of the controller that decided it.
type Leadership struct {
	LeaderAndISR
	ControllerEpoch int32
}

// String prints leadership the way the state-change log orders it.
func (l Leadership) String() string {
	return fmt.Sprintf("leader=%d isr=%v recovery=%d leader_epoch=%d zk_version=%d controller_epoch=%d",
		l.Leader, l.ISR, l.Recovery, l.LeaderEpoch, l.ZKVersion, l.ControllerEpoch)
}

// ReplicaAssignment is one partition's replica lists (spec/controller.md §7.9).
// Its slices are shared and must not be changed in place.
type ReplicaAssignment struct {
	Replicas []BrokerID // RS; the first is the preferred leader
	Adding   []BrokerID // AR
	Removing []BrokerID // RR
}

// Reassigning tells whether a move is in progress.
func (a ReplicaAssignment) Reassigning() bool { return len(a.Adding) > 0 || len(a.Removing) > 0 }

// Original is ORS = RS - AR, order kept.
func (a ReplicaAssignment) Original() []BrokerID { return Without(a.Replicas, a.Adding) }

// Target is TRS = RS - RR, order kept.
func (a ReplicaAssignment) Target() []BrokerID { return Without(a.Replicas, a.Removing) }

// ReassignTo gives the assignment that moves a to target: target first, then
// what is left of the original replicas (KIP-455, spec/controller.md §7.9).
func (a ReplicaAssignment) ReassignTo(target []BrokerID) ReplicaAssignment {
	original := a.Original()
	full := make([]BrokerID, 0, len(target)+len(original))
	for _, id := range target {
		if !slices.Contains(full, id) {
			full = append(full, id)
		}
	}
	for _, id := range original {
		if !slices.Contains(full, id) {
			full = append(full, id)
		}
	}
	return ReplicaAssignment{Replicas: full, Adding: Without(full, original), Removing: Without(full, target)}
}

// Equal compares all three lists in order.
func (a ReplicaAssignment) Equal(b ReplicaAssignment) bool {
	return slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.Adding, b.Adding) && slices.Equal(a.Removing, b.Removing)
}

// Without gives the members of ids that are not in drop, order kept. It
// returns ids itself when nothing is dropped.
func Without(ids, drop []BrokerID) []BrokerID {
	i := 0
	for i < len(ids) && !slices.Contains(drop, ids[i]) {
		i++
	}
	if i == len(ids) {
		return ids
	}
	out := slices.Clone(ids[:i])
	for _, id := range ids[i+1:] {
		if !slices.Contains(drop, id) {
			out = append(out, id)
		}
	}
	return out
}

// Endpoint is one advertised listener of a broker.
type Endpoint struct {
	Listener string // listener name, as in the registration
	Protocol SecurityProtocol
	Host     string
	Port     int32
}

// SecurityProtocol is Kafka's number for a listener's protocol.
type SecurityProtocol int16

const (
	Plaintext     SecurityProtocol = 0
	SSL           SecurityProtocol = 1
	SASLPlaintext SecurityProtocol = 2
	SASLSSL       SecurityProtocol = 3
)

var protocolNames = map[SecurityProtocol]string{Plaintext: "PLAINTEXT", SSL: "SSL", SASLPlaintext: "SASL_PLAINTEXT", SASLSSL: "SASL_SSL"}

// String gives Kafka's name of the protocol.
func (p SecurityProtocol) String() string {
	if s, ok := protocolNames[p]; ok {
		return s
	}
	return "SecurityProtocol(" + strconv.Itoa(int(p)) + ")"
}

// ParseSecurityProtocol reads Kafka's name of a protocol, in any case.
func ParseSecurityProtocol(s string) (SecurityProtocol, error) {
	for p, name := range protocolNames {
		if strings.EqualFold(s, name) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("unknown security protocol %q", s)
}

// VersionRange is a supported range of a feature.
type VersionRange struct{ Min, Max int16 }

// Broker is a registered broker.
type Broker struct {
	ID        BrokerID
	Epoch     int64 // czxid of the registration
	Endpoints []Endpoint
	Rack      string // "" is no rack
	HasRack   bool   // tells an empty rack from none
	Features  map[string]VersionRange
}

// Endpoint gives the endpoint of a listener, or false.
func (b Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Listener == listener {
			return e, true
		}
	}
	return Endpoint{}, false
}

// MaxTopicName is the longest legal topic name.
const MaxTopicName = 249

// ValidTopicName tells why a name is illegal, or "" (spec/admin-api.md §2). A
// name that fails this is never sent to a broker: one too long for the file
// system halts a broker with a single log directory (spec/control-plane.md §1.7).
func ValidTopicName(name string) string {
	switch {
	case name == "":
		return "the topic name is empty"
	case name == "." || name == "..":
		return `a topic cannot be named "." or ".."`
	case len(name) > MaxTopicName:
		return fmt.Sprintf("the topic name is longer than %d characters", MaxTopicName)
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-') {
			return fmt.Sprintf("the topic name has the character %q; allowed are letters, digits, '.', '_' and '-'", r)
		}
	}
	return ""
}
