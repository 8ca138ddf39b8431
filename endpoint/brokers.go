package endpoint

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// What brokers ask of their controller (spec/control-plane.md §4).

func (e *Endpoint) alterPartition(ctx context.Context, req *kmsg.AlterPartitionRequest) (kmsg.Response, error) {
	type answer struct {
		top  kafka.ErrorCode
		rows []events.AlterPartitionResult
	}
	ev := events.AlterPartition{Broker: kafka.BrokerID(req.BrokerID), BrokerEpoch: req.BrokerEpoch, Version: req.Version, Partitions: alterPartitionRows(req)}
	got, err := ask(ctx, e, e.brokers, func(reply func(answer)) events.Event {
		ev.Reply = func(top kafka.ErrorCode, rows []events.AlterPartitionResult) { reply(answer{top, rows}) }
		return ev
	})
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	resp.ErrorCode = int16(got.top)
	if got.top != kafka.NoError {
		return resp, nil
	}
	if err := oneEach(nil, len(ev.Partitions), len(got.rows)); err != nil {
		return nil, err
	}
	i := 0
	for _, t := range req.Topics {
		out := kmsg.NewAlterPartitionResponseTopic()
		out.Topic, out.TopidID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			out.Partitions = append(out.Partitions, alterPartitionResult(p.Partition, got.rows[i]))
			i++
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

func alterPartitionRows(req *kmsg.AlterPartitionRequest) []events.AlterPartitionRow {
	var rows []events.AlterPartitionRow
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			isr := brokerIDs(p.NewISR)
			if req.Version >= 3 { // the epochs are not compared on ZooKeeper (spec/controller.md §7.12)
				isr = make([]kafka.BrokerID, len(p.NewEpochISR))
				for i, m := range p.NewEpochISR {
					isr[i] = kafka.BrokerID(m.BrokerID)
				}
			}
			row := events.AlterPartitionRow{Partition: p.Partition, LeaderEpoch: p.LeaderEpoch, ISR: isr,
				Recovery: p.LeaderRecoveryState, ZKVersion: p.PartitionEpoch}
			if req.Version >= 2 {
				row.ID = t.TopicID
			} else {
				row.Topic = t.Topic
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func alterPartitionResult(partition int32, r events.AlterPartitionResult) kmsg.AlterPartitionResponseTopicPartition {
	out := kmsg.NewAlterPartitionResponseTopicPartition()
	out.Partition, out.ErrorCode = partition, int16(r.Error)
	if r.Error == kafka.NoError {
		out.LeaderID, out.LeaderEpoch, out.ISR = int32(r.Leader), r.LeaderEpoch, rawIDs(r.ISR)
		out.LeaderRecoveryState, out.PartitionEpoch = int8(r.Recovery), r.ZKVersion
	}
	return out
}

func (e *Endpoint) controlledShutdown(ctx context.Context, req *kmsg.ControlledShutdownRequest) (kmsg.Response, error) {
	type answer struct {
		err       kafka.ErrorCode
		remaining []kafka.TopicPartition
	}
	epoch := kafka.NoBrokerEpoch
	if req.Version >= 2 {
		epoch = req.BrokerEpoch
	}
	got, err := ask(ctx, e, e.brokers, func(reply func(answer)) events.Event {
		return events.ControlledShutdown{Broker: kafka.BrokerID(req.BrokerID), BrokerEpoch: epoch,
			Reply: func(err kafka.ErrorCode, left []kafka.TopicPartition) { reply(answer{err, left}) }}
	})
	if err != nil {
		return nil, err
	}
	if got.err == kafka.NotController { // this request knows it by another name
		got.err = kafka.StaleControllerEpoch
	}
	resp := req.ResponseKind().(*kmsg.ControlledShutdownResponse)
	resp.ErrorCode = int16(got.err)
	for _, tp := range got.remaining {
		row := kmsg.NewControlledShutdownResponsePartitionsRemaining()
		row.Topic, row.Partition = tp.Topic, tp.Partition
		resp.PartitionsRemaining = append(resp.PartitionsRemaining, row)
	}
	return resp, nil
}

func (e *Endpoint) allocateProducerIDs(ctx context.Context, req *kmsg.AllocateProducerIDsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	return ask(ctx, e, e.brokers, func(reply func(kmsg.Response)) events.Event {
		return events.AllocateProducerIDs{Broker: kafka.BrokerID(req.BrokerID), BrokerEpoch: req.BrokerEpoch,
			Reply: func(err kafka.ErrorCode, start int64, length int32) {
				resp.ErrorCode = int16(err)
				if err == kafka.NoError {
					resp.ProducerIDStart, resp.ProducerIDLen = start, length
				}
				reply(resp)
			}}
	})
}
