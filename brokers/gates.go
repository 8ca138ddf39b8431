package brokers

import (
	"slices"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// gate is what all three control requests pass first (spec/broker.md §9.1):
// the broker epoch, then the controller epoch. known is the highest controller
// epoch seen; the caller keeps the one returned.
func (d behaviour) gate(own int64, known int32, h control.Header) (code kafka.ErrorCode, epoch int32) {
	switch {
	case !d.brokerEpochs || h.BrokerEpoch == kafka.NoBrokerEpoch:
	case h.BrokerEpoch < own:
		return kafka.StaleBrokerEpoch, known
	case h.BrokerEpoch > own && d.refusesHigherEpoch:
		return kafka.UnknownServerError, known
	}
	if h.ControllerEpoch < known {
		return kafka.StaleControllerEpoch, known
	}
	return kafka.NoError, h.ControllerEpoch
}

// verdict says what becomes of one LeaderAndIsr entry.
type verdict uint8

const (
	refuse       verdict = iota // answer the code, change nothing
	becomeLeader                // answer NONE
	becomeFollower
	storeTopicID // same epoch, but it brings the id the log lacked
)

// judgeEntry is spec/broker.md §9.2, steps 1, 3 and 4, for a partition that
// exists already or was just made.
func (d behaviour) judgeEntry(p *partition, s *control.PartitionState, self kafka.BrokerID) (verdict, kafka.ErrorCode) {
	if p.offline {
		return refuse, kafka.KafkaStorageError
	}
	given, had := !s.TopicID.IsZero(), !p.topicID.IsZero()
	if d.topicIDs && given && had && s.TopicID != p.topicID {
		return refuse, kafka.InconsistentTopicID
	}
	switch {
	case s.LeaderEpoch < p.leaderEpoch:
		return refuse, kafka.StaleControllerEpoch // yes, this code
	case s.LeaderEpoch > p.leaderEpoch:
		if !slices.Contains(s.Replicas, self) {
			return refuse, kafka.UnknownTopicOrPartition
		}
		if s.Leader == self {
			return becomeLeader, kafka.NoError
		}
		return becomeFollower, kafka.NoError
	case d.topicIDs && given && !had:
		return storeTopicID, kafka.NoError
	case d.topicIDs && !given && had && p.role == follower:
		return refuse, kafka.NoError
	}
	return refuse, kafka.StaleControllerEpoch
}

// judgeStop is spec/broker.md §9.4; p is nil when the partition is not hosted.
func (d behaviour) judgeStop(p *partition, s control.StopPartition) kafka.ErrorCode {
	switch {
	case p == nil:
		return kafka.NoError
	case p.offline:
		return kafka.KafkaStorageError
	case !d.stopEpochs, s.LeaderEpoch == kafka.EpochDuringDelete, s.LeaderEpoch == kafka.NoEpoch, s.LeaderEpoch > p.leaderEpoch:
		return kafka.NoError
	case s.LeaderEpoch == p.leaderEpoch && !d.stopRefusesEqual:
		return kafka.NoError
	}
	return kafka.FencedLeaderEpoch
}

// wholeRequestError finds what makes a broker fail a LeaderAndIsr as a whole,
// before it looks at single partitions (spec/control-plane.md §1.7).
func wholeRequestError(r *control.LeaderAndISRRequest) kafka.ErrorCode {
	seen := make(map[kafka.TopicPartition]struct{}, len(r.Partitions))
	for _, s := range r.Partitions {
		if _, twice := seen[s.TopicPartition]; twice || kafka.ValidTopicName(s.Topic) != "" {
			return kafka.UnknownServerError
		}
		seen[s.TopicPartition] = struct{}{}
	}
	return kafka.NoError
}

// rows answers one code for every partition of a LeaderAndIsr.
func rows(r *control.LeaderAndISRRequest, code kafka.ErrorCode) map[kafka.TopicPartition]kafka.ErrorCode {
	m := make(map[kafka.TopicPartition]kafka.ErrorCode, len(r.Partitions))
	for _, s := range r.Partitions {
		m[s.TopicPartition] = code
	}
	return m
}
