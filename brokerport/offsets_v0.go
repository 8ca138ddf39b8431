package brokerport

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// v0Queries are what is asked for each partition of a ListOffsets v0, in order.
var v0Queries = [...]int64{brokers.EarliestOffset, brokers.LatestOffset, brokers.MaxTimestamp}

// listOffsetsV0 answers the oldest form, which asks for the starts of segments
// that were last written before a time, newest first, and before them the log's
// end if that is asked for or the time is not in the past. A log is taken for one
// segment, last written at its largest time: so its start is always an offset
// that can be read from, which is what these clients want it for.
func (l *Listener) listOffsetsV0(r *wire.Request, req *kmsg.ListOffsetsRequest) {
	var ask []brokers.OffsetQuery
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if l.partitionOf(tp) == nil {
				continue
			}
			for _, at := range v0Queries {
				ask = append(ask, brokers.OffsetQuery{Partition: tp, LeaderEpoch: -1, Timestamp: at})
			}
		}
	}
	now := time.Now().UnixMilli()
	answer := func(answers []brokers.OffsetAnswer) {
		replyLater(r, func() kmsg.Response { return offsetsAnswerV0(req, answers, now) })
	}
	if len(ask) == 0 {
		answer(nil)
		return
	}
	l.node.ListOffsets(ask, kafka.BrokerID(req.ReplicaID), false, answer)
}

func offsetsAnswerV0(req *kmsg.ListOffsetsRequest, answers []brokers.OffsetAnswer, now int64) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			row := kmsg.NewListOffsetsResponseTopicPartition()
			row.Partition, row.ErrorCode = p.Partition, int16(kafka.UnknownTopicOrPartition)
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			if len(answers) >= len(v0Queries) && answers[0].Partition == tp {
				row.OldStyleOffsets, row.ErrorCode = offsetsBefore(answers[:len(v0Queries)], p.Timestamp, now, int(p.MaxNumOffsets))
				answers = answers[len(v0Queries):]
			}
			out.Partitions = append(out.Partitions, row)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// offsetsBefore gives at most n offsets, from the answers to v0Queries.
func offsetsBefore(answers []brokers.OffsetAnswer, at, now int64, n int) ([]int64, int16) {
	for _, a := range answers {
		if a.Error != kafka.NoError {
			return nil, int16(offsetsError(0, a.Error))
		}
	}
	start, end, written := answers[0].Offset, answers[1].Offset, answers[2].Timestamp
	var offsets []int64
	switch {
	case at == brokers.EarliestOffset:
		offsets = []int64{start}
	case at == brokers.LatestOffset || at >= now:
		if offsets = []int64{end}; start < end {
			offsets = append(offsets, start)
		}
	case at >= 0 && at >= written:
		offsets = []int64{start}
	}
	return offsets[:min(len(offsets), max(n, 0))], int16(kafka.NoError)
}
