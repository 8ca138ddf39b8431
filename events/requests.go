package events

import (
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Requests of brokers and clients wait in the queue behind all earlier events.
// Reply is called exactly once, from the loop, and must not block; a request
// that is dropped unprocessed is answered as Kafka's preempt actions do.
type (
	// AlterPartition asks for ISR changes (spec/controller.md §7.12).
	AlterPartition struct {
		Broker      kafka.BrokerID
		BrokerEpoch int64
		Version     int16 // of the request: chooses INELIGIBLE_REPLICA or OPERATION_NOT_ATTEMPTED
		Partitions  []AlterPartitionRow
		Reply       func(top kafka.ErrorCode, rows []AlterPartitionResult)
	}
	// AlterPartitionRow is one wanted ISR. Topic is "" and ID set from version 2 on.
	AlterPartitionRow struct {
		Topic       string
		ID          kafka.TopicID
		Partition   int32
		LeaderEpoch int32
		ISR         []kafka.BrokerID
		Recovery    int8
		ZKVersion   int32
	}
	// AlterPartitionResult answers the row of the same index.
	AlterPartitionResult struct {
		Error kafka.ErrorCode
		kafka.LeaderAndISR
	}

	// ControlledShutdown announces that a broker leaves (spec/controller.md §7.11).
	ControlledShutdown struct {
		Broker      kafka.BrokerID
		BrokerEpoch int64 // kafka.NoBrokerEpoch when not given
		Reply       func(err kafka.ErrorCode, remaining []kafka.TopicPartition)
	}

	// AlterReassignments starts or cancels moves (spec/controller.md §7.9).
	AlterReassignments struct {
		Partitions []ReassignmentRow // in the order asked
		Reply      func(top kafka.ErrorCode, rows []RowError)
	}
	// ReassignmentRow is one wanted target. Cancel is the null replica list.
	ReassignmentRow struct {
		Partition kafka.TopicPartition
		Target    []kafka.BrokerID
		Cancel    bool
	}
	// RowError answers the row of the same index; Message may be "".
	RowError struct {
		Error   kafka.ErrorCode
		Message string
	}

	// ListReassignments asks for moves in progress; All ignores Partitions.
	ListReassignments struct {
		Partitions []kafka.TopicPartition
		All        bool
		Reply      func(top kafka.ErrorCode, rows []OngoingReassignment)
	}
	// OngoingReassignment is one move in progress.
	OngoingReassignment struct {
		Partition kafka.TopicPartition
		kafka.ReplicaAssignment
	}

	// ElectLeaders asks for elections (spec/controller.md §7.8). All takes every
	// partition and leaves ELECTION_NOT_NEEDED rows out of the answer.
	ElectLeaders struct {
		Partitions []kafka.TopicPartition
		All        bool
		Unclean    bool
		Reply      func(top kafka.ErrorCode, rows []ElectionResult)
	}
	// ElectionResult answers one partition.
	ElectionResult struct {
		Partition kafka.TopicPartition
		RowError
	}

	// AllocateProducerIDs asks for a block of producer ids (spec/controller.md §7.17).
	AllocateProducerIDs struct {
		Broker      kafka.BrokerID
		BrokerEpoch int64
		Reply       func(err kafka.ErrorCode, start int64, length int32)
	}

	// CreateTopics creates topics, with the checks of spec/admin-api.md §2 in
	// their order. Reply comes when the topics were written and what has a leader
	// was announced; a row that is Pending still waits for one.
	CreateTopics struct {
		Topics       []NewTopic
		ValidateOnly bool
		Reply        func(rows []NewTopicResult)
	}
	// NewTopic is one topic to create. Assignment nil asks for an automatic one.
	NewTopic struct {
		Name              string
		Partitions        int32 // -1: the default
		ReplicationFactor int16 // -1: the default
		Assignment        map[int32][]kafka.BrokerID
		Configs           map[string]string
	}
	// NewTopicResult answers the row of the same index.
	NewTopicResult struct {
		RowError
		Pending           bool // some partition has no leader yet
		ID                kafka.TopicID
		Partitions        int32
		ReplicationFactor int16
		Configs           map[string]string
	}

	// CreatePartitions adds partitions (spec/admin-api.md §4).
	CreatePartitions struct {
		Topics       []MorePartitions
		ValidateOnly bool
		Reply        func(rows []MorePartitionsResult)
	}
	// MorePartitionsResult answers the row of the same index.
	MorePartitionsResult struct {
		RowError
		Pending bool // some partition, old or new, has no leader yet
	}
	// MorePartitions is one topic's wanted count. Assignment nil is automatic.
	MorePartitions struct {
		Topic      string
		Count      int32
		Assignment [][]kafka.BrokerID
	}

	// DeleteTopics marks topics for deletion (spec/admin-api.md §3).
	DeleteTopics struct {
		Topics []TopicRef
		Reply  func(rows []DeletedTopic)
	}
	// TopicRef is a topic by name, or by id when Name is "".
	TopicRef struct {
		Name string
		ID   kafka.TopicID
	}
	// DeletedTopic answers the row of the same index.
	DeletedTopic struct {
		RowError
		Pending bool // marked, but deletion has not started
		Name    string
		ID      kafka.TopicID
	}

	// Describe asks what a client's Metadata or DescribeCluster needs. A
	// controller standing by answers it from ZooKeeper, without topics.
	Describe struct {
		Topics []TopicRef
		All    bool
		Reply  func(Cluster)
	}
	// Cluster is the answer to Describe. Brokers has the live ones and, if it has
	// a listener, the controller itself. Topics answers the refs in order, or all
	// topics by name.
	Cluster struct {
		ID         string
		Controller kafka.BrokerID
		Brokers    []kafka.Broker
		Topics     []TopicDescription
	}
	// TopicDescription is one topic; Error is UNKNOWN_TOPIC_OR_PARTITION,
	// UNKNOWN_TOPIC_ID or none. Topics being deleted are unknown.
	TopicDescription struct {
		Error      kafka.ErrorCode
		Name       string
		ID         kafka.TopicID
		Partitions []control.PartitionState // those with leadership, sorted
	}

	// Inspect runs Look on the loop, between two events: for gauges, readiness
	// and tests. Look must only read, and must not block.
	Inspect struct{ Look func() }
)

func (AlterPartition) Kind() Kind      { return IsrChangeKind }
func (ControlledShutdown) Kind() Kind  { return ControlledShutdownKind }
func (AlterReassignments) Kind() Kind  { return AlterPartitionReassignmentKind }
func (ListReassignments) Kind() Kind   { return ListPartitionReassignmentKind }
func (ElectLeaders) Kind() Kind        { return ManualLeaderBalanceKind }
func (AllocateProducerIDs) Kind() Kind { return Idle }
func (CreateTopics) Kind() Kind        { return TopicChangeKind }
func (CreatePartitions) Kind() Kind    { return TopicChangeKind }
func (DeleteTopics) Kind() Kind        { return TopicDeletionKind }
func (Describe) Kind() Kind            { return Idle }
func (Inspect) Kind() Kind             { return Idle }

func (AlterPartition) Name() string      { return "AlterPartitionReceived" }
func (ControlledShutdown) Name() string  { return "ControlledShutdown" }
func (AlterReassignments) Name() string  { return "ApiPartitionReassignment" }
func (ListReassignments) Name() string   { return "ListPartitionReassignments" }
func (ElectLeaders) Name() string        { return "ReplicaLeaderElection" }
func (AllocateProducerIDs) Name() string { return "AllocateProducerIds" }
func (CreateTopics) Name() string        { return "CreateTopics" }
func (CreatePartitions) Name() string    { return "CreatePartitions" }
func (DeleteTopics) Name() string        { return "DeleteTopics" }
func (Describe) Name() string            { return "Describe" }
func (Inspect) Name() string             { return "Inspect" }
