package kafka

import "strconv"

// ErrorCode is a code of Kafka's protocol. It is an error, so that a decision
// can return it as its reason.
type ErrorCode int16

// The codes this project answers or understands.
const (
	UnknownServerError           ErrorCode = -1
	NoError                      ErrorCode = 0
	OffsetOutOfRange             ErrorCode = 1
	CorruptMessage               ErrorCode = 2
	UnknownTopicOrPartition      ErrorCode = 3
	LeaderNotAvailable           ErrorCode = 5
	NotLeaderOrFollower          ErrorCode = 6
	RequestTimedOut              ErrorCode = 7
	BrokerNotAvailable           ErrorCode = 8
	ReplicaNotAvailable          ErrorCode = 9
	MessageTooLarge              ErrorCode = 10
	StaleControllerEpoch         ErrorCode = 11
	NetworkException             ErrorCode = 13
	CoordinatorLoadInProgress    ErrorCode = 14
	CoordinatorNotAvailable      ErrorCode = 15
	NotCoordinator               ErrorCode = 16
	InvalidTopicException        ErrorCode = 17
	NotEnoughReplicas            ErrorCode = 19
	NotEnoughReplicasAfterAppend ErrorCode = 20
	InvalidRequiredAcks          ErrorCode = 21
	TopicAuthorizationFailed     ErrorCode = 29
	ClusterAuthorizationFailed   ErrorCode = 31
	InvalidTimestamp             ErrorCode = 32
	UnsupportedVersion           ErrorCode = 35
	TopicAlreadyExists           ErrorCode = 36
	InvalidPartitions            ErrorCode = 37
	InvalidReplicationFactor     ErrorCode = 38
	InvalidReplicaAssignment     ErrorCode = 39
	InvalidConfig                ErrorCode = 40
	NotController                ErrorCode = 41
	InvalidRequest               ErrorCode = 42
	PolicyViolation              ErrorCode = 44
	OutOfOrderSequenceNumber     ErrorCode = 45
	InvalidProducerEpoch         ErrorCode = 47
	InvalidTxnState              ErrorCode = 48
	OperationNotAttempted        ErrorCode = 55
	KafkaStorageError            ErrorCode = 56
	ReassignmentInProgress       ErrorCode = 60
	ListenerNotFound             ErrorCode = 72
	TopicDeletionDisabled        ErrorCode = 73
	FencedLeaderEpoch            ErrorCode = 74
	UnknownLeaderEpoch           ErrorCode = 75
	UnsupportedCompressionType   ErrorCode = 76
	StaleBrokerEpoch             ErrorCode = 77
	OffsetNotAvailable           ErrorCode = 78
	PreferredLeaderNotAvailable  ErrorCode = 80
	EligibleLeadersNotAvailable  ErrorCode = 83
	ElectionNotNeeded            ErrorCode = 84
	NoReassignmentInProgress     ErrorCode = 85
	InvalidRecord                ErrorCode = 87
	InvalidUpdateVersion         ErrorCode = 95
	FeatureUpdateFailed          ErrorCode = 96
	UnknownTopicID               ErrorCode = 100
	BrokerIDNotRegistered        ErrorCode = 102
	InconsistentTopicID          ErrorCode = 103
	IneligibleReplica            ErrorCode = 107
	NewLeaderElected             ErrorCode = 108
	MismatchedEndpointType       ErrorCode = 114
)

var errorNames = map[ErrorCode]string{
	UnknownServerError: "UNKNOWN_SERVER_ERROR", NoError: "NONE", OffsetOutOfRange: "OFFSET_OUT_OF_RANGE", CorruptMessage: "CORRUPT_MESSAGE",
	NotEnoughReplicas: "NOT_ENOUGH_REPLICAS", NotEnoughReplicasAfterAppend: "NOT_ENOUGH_REPLICAS_AFTER_APPEND", InvalidRequiredAcks: "INVALID_REQUIRED_ACKS",
	UnknownLeaderEpoch: "UNKNOWN_LEADER_EPOCH", OffsetNotAvailable: "OFFSET_NOT_AVAILABLE", UnknownTopicOrPartition: "UNKNOWN_TOPIC_OR_PARTITION",
	LeaderNotAvailable: "LEADER_NOT_AVAILABLE", NotLeaderOrFollower: "NOT_LEADER_OR_FOLLOWER", RequestTimedOut: "REQUEST_TIMED_OUT",
	BrokerNotAvailable: "BROKER_NOT_AVAILABLE", ReplicaNotAvailable: "REPLICA_NOT_AVAILABLE", StaleControllerEpoch: "STALE_CONTROLLER_EPOCH",
	NetworkException: "NETWORK_EXCEPTION", CoordinatorLoadInProgress: "COORDINATOR_LOAD_IN_PROGRESS",
	CoordinatorNotAvailable: "COORDINATOR_NOT_AVAILABLE", NotCoordinator: "NOT_COORDINATOR", InvalidTopicException: "INVALID_TOPIC_EXCEPTION",
	TopicAuthorizationFailed: "TOPIC_AUTHORIZATION_FAILED", ClusterAuthorizationFailed: "CLUSTER_AUTHORIZATION_FAILED",
	UnsupportedVersion: "UNSUPPORTED_VERSION", TopicAlreadyExists: "TOPIC_ALREADY_EXISTS", InvalidPartitions: "INVALID_PARTITIONS",
	InvalidReplicationFactor: "INVALID_REPLICATION_FACTOR", InvalidReplicaAssignment: "INVALID_REPLICA_ASSIGNMENT", InvalidConfig: "INVALID_CONFIG",
	NotController: "NOT_CONTROLLER", InvalidRequest: "INVALID_REQUEST", PolicyViolation: "POLICY_VIOLATION",
	OperationNotAttempted: "OPERATION_NOT_ATTEMPTED", KafkaStorageError: "KAFKA_STORAGE_ERROR", ReassignmentInProgress: "REASSIGNMENT_IN_PROGRESS",
	ListenerNotFound: "LISTENER_NOT_FOUND", TopicDeletionDisabled: "TOPIC_DELETION_DISABLED", FencedLeaderEpoch: "FENCED_LEADER_EPOCH",
	StaleBrokerEpoch: "STALE_BROKER_EPOCH", PreferredLeaderNotAvailable: "PREFERRED_LEADER_NOT_AVAILABLE",
	EligibleLeadersNotAvailable: "ELIGIBLE_LEADERS_NOT_AVAILABLE", ElectionNotNeeded: "ELECTION_NOT_NEEDED",
	NoReassignmentInProgress: "NO_REASSIGNMENT_IN_PROGRESS", InvalidUpdateVersion: "INVALID_UPDATE_VERSION",
	FeatureUpdateFailed: "FEATURE_UPDATE_FAILED", UnknownTopicID: "UNKNOWN_TOPIC_ID", BrokerIDNotRegistered: "BROKER_ID_NOT_REGISTERED",
	InconsistentTopicID: "INCONSISTENT_TOPIC_ID", IneligibleReplica: "INELIGIBLE_REPLICA", NewLeaderElected: "NEW_LEADER_ELECTED", MismatchedEndpointType: "MISMATCHED_ENDPOINT_TYPE",
	MessageTooLarge: "MESSAGE_TOO_LARGE", InvalidTimestamp: "INVALID_TIMESTAMP", OutOfOrderSequenceNumber: "OUT_OF_ORDER_SEQUENCE_NUMBER",
	InvalidProducerEpoch: "INVALID_PRODUCER_EPOCH", InvalidTxnState: "INVALID_TXN_STATE", UnsupportedCompressionType: "UNSUPPORTED_COMPRESSION_TYPE",
	InvalidRecord: "INVALID_RECORD",
}

// String gives Kafka's name of the code.
func (e ErrorCode) String() string {
	if s, ok := errorNames[e]; ok {
		return s
	}
	return "ErrorCode(" + strconv.Itoa(int(e)) + ")"
}

// Error makes a code usable as a Go error.
func (e ErrorCode) Error() string { return e.String() }
