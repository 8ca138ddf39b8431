package brokerport

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// produced is one row of a Produce and what becomes of it.
type produced struct {
	topic, at int // where its answer stands
	partition kafka.TopicPartition
	result    brokers.ProduceResult
	record    int    // that was refused, -1: none in particular
	reason    string // why, for people
}

// produce is spec/broker.md §7.6 as far as it needs no state: the rest is the
// Node's.
func (l *Listener) produce(r *wire.Request, req *kmsg.ProduceRequest) {
	ask := &brokers.ProduceRequest{Acks: req.Acks, Timeout: time.Duration(max(req.TimeoutMillis, 0)) * time.Millisecond}
	rows := l.producedRows(req, ask)
	answer := func(results []brokers.ProduceResult) {
		if req.Acks == brokers.AcksNone {
			if refusedAny(rows, results) {
				r.Hangup() // the client asks for metadata when it comes again
			} else {
				r.Done()
			}
			return
		}
		replyLater(r, func() kmsg.Response { return l.producedAnswer(req, rows, results) })
	}
	if len(ask.Rows) == 0 {
		answer(nil)
		return
	}
	l.node.Produce(ask, answer)
}

// producedRows checks the rows, and puts those that pass into ask. A partition
// that comes twice is refused, for one answer stands for both.
func (l *Listener) producedRows(req *kmsg.ProduceRequest, ask *brokers.ProduceRequest) []produced {
	var rows []produced
	seen := map[kafka.TopicPartition]bool{}
	now := time.Now()
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			row := produced{topic: i, at: j, partition: kafka.TopicPartition{Topic: t.Topic, Partition: t.Partitions[j].Partition}, record: -1}
			records := t.Partitions[j].Records
			switch {
			case ask.Acks != brokers.AcksNone && ask.Acks != brokers.AcksLeader && ask.Acks != brokers.AcksAll:
				row.refuse(kafka.InvalidRequiredAcks, "acks must be 0, 1 or -1")
			case seen[row.partition]:
				row.refuse(kafka.InvalidRequest, "the partition is in the request twice")
			case l.partitionOf(row.partition) == nil:
				row.refuse(kafka.UnknownTopicOrPartition, "")
			default:
				records = l.checkRecords(&row, records, req.Version, now)
			}
			seen[row.partition] = true
			if row.result.Error == kafka.NoError {
				ask.Rows = append(ask.Rows, brokers.ProduceRow{Partition: row.partition, Records: records})
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func (row *produced) refuse(code kafka.ErrorCode, reason string) {
	row.result = brokers.ProduceResult{Partition: row.partition, Error: code, BaseOffset: -1, AppendTime: -1, LogStartOffset: -1}
	row.reason = reason
}

// checkRecords gives the batch that is to be appended. Old producers send message
// sets, which become one.
func (l *Listener) checkRecords(row *produced, records []byte, version int16, now time.Time) []byte {
	config := l.node.TopicConfig(row.partition.Topic)
	o := config.Check(now)
	o.NoZstd = version < 7
	var batch []byte
	err := l.unpacking.check(records, o.MaxDecompressed, func(most int) (err error) {
		o.MaxDecompressed = most
		batch, err = batchOf(records, version, config.Compression, o)
		return err
	})
	if err == nil {
		return batch
	}
	row.refuse(commitlog.Code(err), err.Error())
	var why *commitlog.Error
	if errors.As(err, &why) {
		row.record, row.reason = why.Record, why.Reason
	}
	return nil
}

// batchOf gives the one batch that records are, packed as the topic has it.
func batchOf(records []byte, version int16, compression commitlog.Codec, o commitlog.CheckOptions) (batch []byte, err error) {
	if version < 3 && commitlog.OldFormat(records) {
		if records, err = commitlog.Upconvert(records, o); err != nil {
			return nil, err
		}
	}
	found, err := commitlog.Check(records, o)
	if err != nil || compression == commitlog.AsProduced || compression == found.Codec {
		return records, err
	}
	if records, err = commitlog.Batch(records).Repack(compression, o.MaxDecompressed); err != nil {
		return nil, err
	}
	if o.MaxMessageBytes > 0 && len(records) > o.MaxMessageBytes {
		return nil, &commitlog.Error{Code: kafka.MessageTooLarge, Record: -1, Reason: fmt.Sprintf("a batch of %d bytes, as compression.type has it packed; max.message.bytes is %d",
			len(records), o.MaxMessageBytes)}
	}
	return records, nil
}

// settle puts the Node's results into their rows.
func settle(rows []produced, results []brokers.ProduceResult) {
	if len(results) == 0 {
		return
	}
	at := make(map[kafka.TopicPartition]brokers.ProduceResult, len(results))
	for _, r := range results {
		at[r.Partition] = r
	}
	for i := range rows {
		if rows[i].result.Error != kafka.NoError {
			continue
		}
		result, ok := at[rows[i].partition]
		if !ok {
			rows[i].refuse(kafka.UnknownServerError, "")
			continue
		}
		rows[i].result = result
	}
}

func refusedAny(rows []produced, results []brokers.ProduceResult) bool {
	settle(rows, results)
	for i := range rows {
		if rows[i].result.Error != kafka.NoError {
			return true
		}
	}
	return false
}

func (l *Listener) producedAnswer(req *kmsg.ProduceRequest, rows []produced, results []brokers.ProduceResult) kmsg.Response {
	settle(rows, results)
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	hints := leaderHints{l: l}
	for i := range req.Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic = req.Topics[i].Topic
		t.Partitions = make([]kmsg.ProduceResponseTopicPartition, 0, len(req.Topics[i].Partitions))
		resp.Topics = append(resp.Topics, t)
	}
	for i := range rows {
		row := &rows[i]
		out := kmsg.NewProduceResponseTopicPartition()
		out.Partition, out.ErrorCode = row.partition.Partition, int16(row.result.Error)
		out.BaseOffset, out.LogAppendTime, out.LogStartOffset = row.result.BaseOffset, row.result.AppendTime, row.result.LogStartOffset
		if row.result.Error != kafka.NoError {
			if row.reason != "" {
				out.ErrorMessage = &row.reason
			}
			if row.record >= 0 {
				bad := kmsg.NewProduceResponseTopicPartitionErrorRecord()
				bad.RelativeOffset, bad.ErrorMessage = int32(row.record), &row.reason
				out.ErrorRecords = append(out.ErrorRecords, bad)
			}
			if row.result.Error == kafka.NotLeaderOrFollower && req.Version >= 10 {
				leader, epoch := hints.of(row.partition)
				out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = leader, epoch
			}
		}
		resp.Topics[row.topic].Partitions = append(resp.Topics[row.topic].Partitions, out)
	}
	for _, b := range hints.brokers {
		node := kmsg.NewProduceResponseBroker()
		node.NodeID, node.Host, node.Port, node.Rack = b.id, b.host, b.port, b.rack
		resp.Brokers = append(resp.Brokers, node)
	}
	return resp
}
