package control

import "github.com/zkcontroller/zkcontroller/kafka"

// Kind is a control request's API key.
type Kind int16

const (
	LeaderAndISRKey   Kind = 4
	StopReplicaKey    Kind = 5
	UpdateMetadataKey Kind = 6
)

// String gives Kafka's name of the request.
func (k Kind) String() string {
	switch k {
	case LeaderAndISRKey:
		return "LeaderAndIsr"
	case StopReplicaKey:
		return "StopReplica"
	case UpdateMetadataKey:
		return "UpdateMetadata"
	}
	return "unknown"
}

// Request is one control request to one broker. Which version carries it is
// the dispatcher's choice. Requests and all they point to are never changed
// once they were handed over; several may share one body.
type Request interface {
	Kind() Kind
	// Epoch is the broker epoch (czxid) of the receiver the request is meant for.
	Epoch() int64
}

// Header is what every control request begins with.
type Header struct {
	ControllerID    kafka.BrokerID
	ControllerEpoch int32
	BrokerEpoch     int64 // of the receiver; kafka.NoBrokerEpoch below 2.2
}

// Epoch gives the receiver's broker epoch.
func (h Header) Epoch() int64 { return h.BrokerEpoch }

// PartitionState is one partition in a LeaderAndIsr or UpdateMetadata request.
type PartitionState struct {
	kafka.TopicPartition
	TopicID kafka.TopicID // zero: the topic has none
	kafka.Leadership
	kafka.ReplicaAssignment
	IsNew   bool             // LeaderAndIsr only: just created
	Offline []kafka.BrokerID // UpdateMetadata only: replicas that are not online
}

// LiveLeader is a leader's address in a LeaderAndIsr request.
type LiveLeader struct {
	ID   kafka.BrokerID
	Host string
	Port int32
}

// LeaderAndISRRequest tells a broker which partitions it hosts and who leads
// them (spec/control-plane.md §1.3). Partitions are sorted.
type LeaderAndISRRequest struct {
	Header
	Partitions  []*PartitionState
	LiveLeaders []LiveLeader
}

// Kind is LeaderAndISRKey.
func (*LeaderAndISRRequest) Kind() Kind { return LeaderAndISRKey }

// Metadata is the body that all UpdateMetadata requests of one batch share
// (spec/control-plane.md §1.4). Partitions are sorted.
type Metadata struct {
	Partitions  []*PartitionState
	LiveBrokers []kafka.Broker
}

// UpdateMetadataRequest brings a broker's metadata cache up to date.
type UpdateMetadataRequest struct {
	Header
	*Metadata
}

// Kind is UpdateMetadataKey.
func (*UpdateMetadataRequest) Kind() Kind { return UpdateMetadataKey }

// StopPartition is one partition of a StopReplica request.
type StopPartition struct {
	kafka.TopicPartition
	LeaderEpoch int32 // kafka.EpochDuringDelete, kafka.NoEpoch or the partition's
	Delete      bool
}

// StopReplicaRequest tells a broker to stop, or delete, its replicas
// (spec/control-plane.md §1.5). Partitions are sorted. Requests below v3 carry
// one flag for all, so the dispatcher divides a mixed one, deletions first.
type StopReplicaRequest struct {
	Header
	Partitions []StopPartition
}

// Kind is StopReplicaKey.
func (*StopReplicaRequest) Kind() Kind { return StopReplicaKey }

// Response is a broker's answer to one control request, as the dispatcher
// hands it on: in terms of what was asked, whatever the version grouped it by.
type Response struct {
	Kind    Kind
	Error   kafka.ErrorCode // top level
	Errors  map[kafka.TopicPartition]kafka.ErrorCode
	Request Request
}
