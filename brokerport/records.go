package brokerport

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// deleteRecords lets logs begin later. A partition that comes twice counts as it
// came last.
func (l *Listener) deleteRecords(r *wire.Request, req *kmsg.DeleteRecordsRequest) {
	here := map[kafka.TopicPartition]brokers.LowWatermark{}
	ask := map[kafka.TopicPartition]int64{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			switch {
			case l.partitionOf(tp) == nil:
				here[tp] = brokers.LowWatermark{Error: kafka.UnknownTopicOrPartition, Offset: -1}
			case p.Offset < -1:
				here[tp] = brokers.LowWatermark{Error: kafka.OffsetOutOfRange, Offset: -1}
			default:
				ask[tp] = p.Offset
			}
		}
	}
	answer := func(got map[kafka.TopicPartition]brokers.LowWatermark) {
		replyLater(r, func() kmsg.Response {
			resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
			for _, t := range req.Topics {
				out := kmsg.NewDeleteRecordsResponseTopic()
				out.Topic = t.Topic
				for _, p := range t.Partitions {
					tp := kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}
					low, ok := got[tp]
					if !ok {
						low, ok = here[tp]
					}
					if !ok {
						low = brokers.LowWatermark{Error: kafka.UnknownServerError, Offset: -1}
					}
					row := kmsg.NewDeleteRecordsResponseTopicPartition()
					row.Partition, row.ErrorCode, row.LowWatermark = p.Partition, int16(low.Error), low.Offset
					out.Partitions = append(out.Partitions, row)
				}
				resp.Topics = append(resp.Topics, out)
			}
			return resp
		})
	}
	if len(ask) == 0 {
		answer(nil)
		return
	}
	l.node.DeleteRecords(ask, time.Duration(max(req.TimeoutMillis, 0))*time.Millisecond, answer)
}

// describeLogDirs shows the logs of all partitions or of those that are named.
func (l *Listener) describeLogDirs(r *wire.Request, req *kmsg.DescribeLogDirsRequest) {
	l.node.LogDirs(func(dirs []brokers.LogDir) {
		replyLater(r, func() kmsg.Response { return logDirsAnswer(req, dirs) })
	})
}

func logDirsAnswer(req *kmsg.DescribeLogDirsRequest, dirs []brokers.LogDir) kmsg.Response {
	var wanted map[kafka.TopicPartition]bool // nil: all
	if req.Topics != nil {
		wanted = map[kafka.TopicPartition]bool{}
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				wanted[kafka.TopicPartition{Topic: t.Topic, Partition: p}] = true
			}
		}
	}
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	for _, d := range dirs {
		dir := kmsg.NewDescribeLogDirsResponseDir()
		dir.Dir, dir.ErrorCode, dir.TotalBytes, dir.UsableBytes = d.Path, int16(d.Error), -1, -1
		for _, log := range d.Logs {
			if wanted != nil && !wanted[log.Partition] {
				continue
			}
			if n := len(dir.Topics); n == 0 || dir.Topics[n-1].Topic != log.Partition.Topic {
				t := kmsg.NewDescribeLogDirsResponseDirTopic()
				t.Topic = log.Partition.Topic
				dir.Topics = append(dir.Topics, t)
			}
			row := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			row.Partition, row.Size, row.OffsetLag = log.Partition.Partition, log.Size, log.Lag
			t := &dir.Topics[len(dir.Topics)-1]
			t.Partitions = append(t.Partitions, row)
		}
		resp.Dirs = append(resp.Dirs, dir)
	}
	return resp
}

// listTransactions: there are none.
func (l *Listener) listTransactions(r *wire.Request, req *kmsg.ListTransactionsRequest) {
	r.Reply(req.ResponseKind())
}
