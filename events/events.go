package events

import (
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Kind is Kafka's ControllerState of an event: the value of the ControllerState
// gauge while it is processed (spec/controller.md §2.3).
type Kind int

const (
	Idle                             Kind = 0
	ControllerChangeKind             Kind = 1
	BrokerChangeKind                 Kind = 2
	TopicChangeKind                  Kind = 3
	TopicDeletionKind                Kind = 4
	AlterPartitionReassignmentKind   Kind = 5
	AutoLeaderBalanceKind            Kind = 6
	ManualLeaderBalanceKind          Kind = 7
	ControlledShutdownKind           Kind = 8
	IsrChangeKind                    Kind = 9
	LeaderAndIsrResponseReceivedKind Kind = 10
	LogDirChangeKind                 Kind = 11
	ControllerShutdownKind           Kind = 12
	UncleanLeaderElectionEnableKind  Kind = 13
	TopicUncleanEnableKind           Kind = 14
	ListPartitionReassignmentKind    Kind = 15
	UpdateMetadataResponseKind       Kind = 16
	UpdateFeaturesKind               Kind = 17
)

var kindNames = [...]string{"Idle", "ControllerChange", "BrokerChange", "TopicChange", "TopicDeletion",
	"AlterPartitionReassignment", "AutoLeaderBalance", "ManualLeaderBalance", "ControlledShutdown", "IsrChange",
	"LeaderAndIsrResponseReceived", "LogDirChange", "ControllerShutdown", "UncleanLeaderElectionEnable",
	"TopicUncleanLeaderElectionEnable", "ListPartitionReassignment", "UpdateMetadataResponseReceived", "UpdateFeatures"}

// String gives Kafka's name of the state.
func (k Kind) String() string { return kindNames[k] }

// Event is one entry of the controller's queue.
type Event interface {
	Kind() Kind
	Name() string // Kafka's name of the event
}

// Events without content.
type (
	Startup                struct{} // the module started, or a new session was made: elect
	ControllerChange       struct{} // /controller was created or changed
	Reelect                struct{} // /controller was deleted
	Expire                 struct{} // the session is over: resign without writing
	BrokerChange           struct{} // children of /brokers/ids
	TopicChange            struct{} // children of /brokers/topics
	TopicDeletion          struct{} // children of /admin/delete_topics
	ISRChangeNotification  struct{} // children of /isr_change_notification
	LogDirEvent            struct{} // children of /log_dir_event_notification
	ConfigChange           struct{} // children of /config/changes
	AutoPreferredElection  struct{} // timer
	UncleanElectionEnabled struct{} // the brokers' configuration made unclean elections legal
)

// Shutdown says that the process ends: resign, and give /controller back, or
// leave it to the end of the session.
type Shutdown struct{ KeepRole bool }

// Events that name a path's entity.
type (
	BrokerModifications            struct{ Broker kafka.BrokerID }          // data of /brokers/ids/N
	PartitionModifications         struct{ Topic string }                   // data of /brokers/topics/T
	PartitionReassignmentISRChange struct{ Partition kafka.TopicPartition } // data of a moving partition's state
	TopicUncleanElectionEnabled    struct{ Topic string }                   // its configuration made unclean elections legal

	// ZkPartitionReassignment is about /admin/reassign_partitions. Changed is
	// true when only the node's data changed: 1.1 and later merely re-arm.
	ZkPartitionReassignment struct{ Changed bool }
	// PreferredElectionZnode is about /admin/preferred_replica_election.
	PreferredElectionZnode struct{ Changed bool }
)

// Answers of brokers.
type (
	// LeaderAndISRResponse is an answer to a LeaderAndIsr. If Request is set,
	// rows that say NONE are left out of Errors: every partition of Request that
	// Errors does not name has NONE. If it is nil, Errors has all rows.
	LeaderAndISRResponse struct {
		Broker  kafka.BrokerID
		Error   kafka.ErrorCode // top level
		Errors  map[kafka.TopicPartition]kafka.ErrorCode
		Request *control.LeaderAndISRRequest
	}
	// UpdateMetadataResponse is an answer to an UpdateMetadata. Request is set if
	// it told the end of topics (kafka.LeaderDuringDelete), and may be for others.
	UpdateMetadataResponse struct {
		Broker  kafka.BrokerID
		Error   kafka.ErrorCode
		Request *control.UpdateMetadataRequest
	}
	// StopReplicaResponse is an answer to a StopReplica that deletes. Request
	// has what was asked, since a top-level error comes without rows.
	StopReplicaResponse struct {
		Broker  kafka.BrokerID
		Error   kafka.ErrorCode
		Errors  map[kafka.TopicPartition]kafka.ErrorCode
		Request *control.StopReplicaRequest
	}
)

func (Startup) Kind() Kind                        { return ControllerChangeKind }
func (ControllerChange) Kind() Kind               { return ControllerChangeKind }
func (Reelect) Kind() Kind                        { return ControllerChangeKind }
func (Expire) Kind() Kind                         { return ControllerChangeKind }
func (Shutdown) Kind() Kind                       { return ControllerShutdownKind }
func (BrokerChange) Kind() Kind                   { return BrokerChangeKind }
func (BrokerModifications) Kind() Kind            { return BrokerChangeKind }
func (TopicChange) Kind() Kind                    { return TopicChangeKind }
func (PartitionModifications) Kind() Kind         { return TopicChangeKind }
func (TopicDeletion) Kind() Kind                  { return TopicDeletionKind }
func (StopReplicaResponse) Kind() Kind            { return TopicDeletionKind }
func (ISRChangeNotification) Kind() Kind          { return IsrChangeKind }
func (LogDirEvent) Kind() Kind                    { return LogDirChangeKind }
func (ConfigChange) Kind() Kind                   { return TopicUncleanEnableKind }
func (AutoPreferredElection) Kind() Kind          { return AutoLeaderBalanceKind }
func (UncleanElectionEnabled) Kind() Kind         { return UncleanLeaderElectionEnableKind }
func (TopicUncleanElectionEnabled) Kind() Kind    { return TopicUncleanEnableKind }
func (PartitionReassignmentISRChange) Kind() Kind { return AlterPartitionReassignmentKind }
func (ZkPartitionReassignment) Kind() Kind        { return AlterPartitionReassignmentKind }
func (PreferredElectionZnode) Kind() Kind         { return ManualLeaderBalanceKind }
func (LeaderAndISRResponse) Kind() Kind           { return LeaderAndIsrResponseReceivedKind }
func (UpdateMetadataResponse) Kind() Kind         { return UpdateMetadataResponseKind }

func (Startup) Name() string                        { return "Startup" }
func (ControllerChange) Name() string               { return "ControllerChange" }
func (Reelect) Name() string                        { return "Reelect" }
func (Expire) Name() string                         { return "Expire" }
func (Shutdown) Name() string                       { return "ShutdownEventThread" }
func (BrokerChange) Name() string                   { return "BrokerChange" }
func (BrokerModifications) Name() string            { return "BrokerModifications" }
func (TopicChange) Name() string                    { return "TopicChange" }
func (PartitionModifications) Name() string         { return "PartitionModifications" }
func (TopicDeletion) Name() string                  { return "TopicDeletion" }
func (StopReplicaResponse) Name() string            { return "TopicDeletionStopReplicaResponseReceived" }
func (ISRChangeNotification) Name() string          { return "IsrChangeNotification" }
func (LogDirEvent) Name() string                    { return "LogDirEventNotification" }
func (ConfigChange) Name() string                   { return "ConfigChange" }
func (AutoPreferredElection) Name() string          { return "AutoPreferredReplicaLeaderElection" }
func (UncleanElectionEnabled) Name() string         { return "UncleanLeaderElectionEnable" }
func (TopicUncleanElectionEnabled) Name() string    { return "TopicUncleanLeaderElectionEnable" }
func (PartitionReassignmentISRChange) Name() string { return "PartitionReassignmentIsrChange" }
func (ZkPartitionReassignment) Name() string        { return "ZkPartitionReassignment" }
func (PreferredElectionZnode) Name() string         { return "ReplicaLeaderElection" }
func (LeaderAndISRResponse) Name() string           { return "LeaderAndIsrResponseReceived" }
func (UpdateMetadataResponse) Name() string         { return "UpdateMetadataResponseReceived" }
