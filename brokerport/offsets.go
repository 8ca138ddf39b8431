package brokerport

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// Times with a meaning of their own that brokers.OffsetQuery does not know: the
// first offset kept locally, which is the first one, and the last one kept in
// tiers, which is none.
const (
	earliestLocal = -4
	latestTiered  = -5
)

// timeSince is the version from which on a time has its meaning.
var timeSince = map[int64]int16{brokers.LatestOffset: 0, brokers.EarliestOffset: 0, brokers.MaxTimestamp: 7, earliestLocal: 8, latestTiered: 9}

// listOffsets: spec/broker.md §7.7.
func (l *Listener) listOffsets(r *wire.Request, req *kmsg.ListOffsetsRequest) {
	if req.Version == 0 {
		l.listOffsetsV0(r, req)
		return
	}
	count := map[kafka.TopicPartition]int{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			count[kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}]++
		}
	}
	here := map[kafka.TopicPartition]brokers.OffsetAnswer{} // what needs no log
	var ask []brokers.OffsetQuery
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			q := brokers.OffsetQuery{Partition: kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}, LeaderEpoch: -1, Timestamp: p.Timestamp}
			if req.Version >= 4 {
				q.LeaderEpoch = p.CurrentLeaderEpoch
			}
			none := brokers.OffsetAnswer{Partition: q.Partition, Timestamp: -1, Offset: -1, LeaderEpoch: -1}
			since, special := timeSince[p.Timestamp]
			switch {
			case count[q.Partition] > 1:
				none.Error = kafka.InvalidRequest
			case p.Timestamp < 0 && (!special || req.Version < since):
				none.Error = kafka.UnsupportedVersion
			case l.partitionOf(q.Partition) == nil:
				none.Error = kafka.UnknownTopicOrPartition
			case p.Timestamp == latestTiered:
			default:
				if p.Timestamp == earliestLocal {
					q.Timestamp = brokers.EarliestOffset
				}
				ask = append(ask, q)
				continue
			}
			here[q.Partition] = none
		}
	}
	answer := func(answers []brokers.OffsetAnswer) {
		replyLater(r, func() kmsg.Response { return offsetsAnswer(req, here, answers) })
	}
	if len(ask) == 0 {
		answer(nil)
		return
	}
	l.node.ListOffsets(ask, kafka.BrokerID(req.ReplicaID), req.IsolationLevel == 1, answer)
}

func offsetsAnswer(req *kmsg.ListOffsetsRequest, rows map[kafka.TopicPartition]brokers.OffsetAnswer, answers []brokers.OffsetAnswer) kmsg.Response {
	for _, a := range answers {
		rows[a.Partition] = a
	}
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			row := kmsg.NewListOffsetsResponseTopicPartition()
			row.Partition, row.Timestamp, row.Offset, row.LeaderEpoch = p.Partition, -1, -1, -1
			a, ok := rows[kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}]
			switch {
			case !ok:
				row.ErrorCode = int16(kafka.UnknownServerError)
			case a.Error != kafka.NoError:
				row.ErrorCode = int16(offsetsError(req.Version, a.Error))
			default:
				row.Timestamp, row.Offset, row.LeaderEpoch = a.Timestamp, a.Offset, a.LeaderEpoch
			}
			out.Partitions = append(out.Partitions, row)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// offsetsError is what a version of the request calls an error.
func offsetsError(version int16, code kafka.ErrorCode) kafka.ErrorCode {
	if code == kafka.OffsetNotAvailable && version < 5 {
		return kafka.LeaderNotAvailable
	}
	return code
}

// epochEnds answers OffsetForLeaderEpoch (spec/broker.md §10.3).
func (l *Listener) epochEnds(r *wire.Request, req *kmsg.OffsetForLeaderEpochRequest) {
	replica := brokers.DebugConsumer
	if req.Version >= 3 {
		replica = kafka.BrokerID(req.ReplicaID)
	}
	here := map[kafka.TopicPartition]brokers.EpochAnswer{}
	var ask []brokers.EpochQuery
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			q := brokers.EpochQuery{Partition: kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}, LeaderEpoch: -1, Epoch: p.LeaderEpoch}
			if req.Version >= 2 {
				q.LeaderEpoch = p.CurrentLeaderEpoch
			}
			if l.partitionOf(q.Partition) == nil {
				here[q.Partition] = brokers.EpochAnswer{Partition: q.Partition, Error: kafka.UnknownTopicOrPartition, Epoch: -1, EndOffset: -1}
			} else {
				ask = append(ask, q)
			}
		}
	}
	answer := func(answers []brokers.EpochAnswer) {
		replyLater(r, func() kmsg.Response { return epochEndsAnswer(req, here, answers) })
	}
	if len(ask) == 0 {
		answer(nil)
		return
	}
	l.node.EpochEnds(ask, replica, answer)
}

func epochEndsAnswer(req *kmsg.OffsetForLeaderEpochRequest, rows map[kafka.TopicPartition]brokers.EpochAnswer, answers []brokers.EpochAnswer) kmsg.Response {
	for _, a := range answers {
		rows[a.Partition] = a
	}
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, t := range req.Topics {
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			row := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			row.Partition, row.LeaderEpoch, row.EndOffset = p.Partition, -1, -1
			a, ok := rows[kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}]
			switch {
			case !ok:
				row.ErrorCode = int16(kafka.UnknownServerError)
			case a.Error != kafka.NoError:
				row.ErrorCode = int16(a.Error)
			default:
				row.LeaderEpoch, row.EndOffset = a.Epoch, a.EndOffset
			}
			out.Partitions = append(out.Partitions, row)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
