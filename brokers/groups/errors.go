package groups

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// The codes of the group protocol, under Kafka's numbers.
const (
	invalidFetchSize        kafka.ErrorCode = 4
	messageTooLarge         kafka.ErrorCode = 10
	offsetMetadataTooLarge  kafka.ErrorCode = 12
	recordListTooLarge      kafka.ErrorCode = 18
	notEnoughReplicas       kafka.ErrorCode = 19
	notEnoughReplicasAfter  kafka.ErrorCode = 20
	illegalGeneration       kafka.ErrorCode = 22
	inconsistentProtocol    kafka.ErrorCode = 23
	invalidGroupID          kafka.ErrorCode = 24
	unknownMemberID         kafka.ErrorCode = 25
	invalidSessionTimeout   kafka.ErrorCode = 26
	rebalanceInProgress     kafka.ErrorCode = 27
	invalidCommitOffsetSize kafka.ErrorCode = 28
	nonEmptyGroup           kafka.ErrorCode = 68
	groupIDNotFound         kafka.ErrorCode = 69
	memberIDRequired        kafka.ErrorCode = 79
	groupMaxSizeReached     kafka.ErrorCode = 81
	fencedInstanceID        kafka.ErrorCode = 82
	groupSubscribedToTopic  kafka.ErrorCode = 86
	unstableOffsetCommit    kafka.ErrorCode = 88
	unknownTopicOrPartition                 = kafka.UnknownTopicOrPartition
	coordinatorNotAvailable                 = kafka.CoordinatorNotAvailable
)

// groupError is what a client hears when the record of its group could not be
// appended.
func groupError(code kafka.ErrorCode) kafka.ErrorCode {
	switch code {
	case unknownTopicOrPartition, notEnoughReplicas, notEnoughReplicasAfter:
		return coordinatorNotAvailable
	case kafka.NotLeaderOrFollower, kafka.KafkaStorageError:
		return kafka.NotCoordinator
	case kafka.RequestTimedOut:
		return rebalanceInProgress
	case messageTooLarge, recordListTooLarge, invalidFetchSize:
		return kafka.UnknownServerError
	}
	return code
}

// commitError is what a client hears when its offsets could not be appended. A
// time-out passes as it is: the client tries again.
func commitError(code kafka.ErrorCode) kafka.ErrorCode {
	switch code {
	case kafka.NetworkException:
		return kafka.CoordinatorLoadInProgress
	case unknownTopicOrPartition, notEnoughReplicas, notEnoughReplicasAfter:
		return coordinatorNotAvailable
	case kafka.NotLeaderOrFollower, kafka.KafkaStorageError:
		return kafka.NotCoordinator
	case messageTooLarge, recordListTooLarge, invalidFetchSize:
		return invalidCommitOffsetSize
	}
	return code
}

// name gives Kafka's name of a code.
func name(code kafka.ErrorCode) string { return kerr.TypedErrorForCode(int16(code)).Message }
