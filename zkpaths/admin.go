package zkpaths

import (
	"errors"
	"fmt"

	"github.com/zkcontroller/zkcontroller/kafka"
)

const adminRemedy = "nothing in it is carried out and the node stays; delete it and ask again"

// Reassignment is one wanted move in /admin/reassign_partitions.
type Reassignment struct {
	Partition kafka.TopicPartition
	Replicas  []kafka.BrokerID
}

// EncodeReassignments gives the payload of /admin/reassign_partitions
// (spec/controller.md §1.9), entries in the order given.
func EncodeReassignments(moves []Reassignment) []byte {
	b := append(make([]byte, 0, 64+80*len(moves)), `{"version":1,"partitions":[`...)
	for i, m := range moves {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendPartition(b, m.Partition)
		b = append(b, `,"replicas":`...)
		b = appendBrokers(b, m.Replicas)
		b = append(b, '}')
	}
	return append(b, ']', '}')
}

// DecodeReassignments reads /admin/reassign_partitions. Strict is how 2.4 and
// later read it: an unknown field makes all of it unreadable. A partition that
// is listed twice keeps its first place and gets its last replicas. Whether the
// replicas make sense is for the caller to judge.
func DecodeReassignments(data []byte, strict bool) ([]Reassignment, error) {
	moves, err := decodeReassignments(data, strict)
	if err != nil {
		return nil, &PayloadError{Path: ReassignPartitions, Reason: err.Error(), Remedy: adminRemedy}
	}
	return moves, nil
}

func decodeReassignments(data []byte, strict bool) ([]Reassignment, error) {
	o, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	if strict {
		if err := o.only("version", "partitions"); err != nil {
			return nil, err
		}
	}
	list, err := o.list("partitions")
	if err != nil {
		return nil, err
	}
	moves := make([]Reassignment, 0, len(list))
	place := make(map[kafka.TopicPartition]int, len(list))
	for i, raw := range list {
		entry, err := asObject(raw)
		if err == nil && strict {
			err = entry.only("topic", "partition", "replicas")
		}
		var m Reassignment
		if err == nil {
			m.Partition, err = entry.partition()
		}
		if err == nil {
			m.Replicas, err = entry.brokers("replicas")
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d of \"partitions\": %w", i, err)
		}
		if at, twice := place[m.Partition]; twice {
			moves[at] = m
			continue
		}
		place[m.Partition] = len(moves)
		moves = append(moves, m)
	}
	return moves, nil
}

// only tells which field is not among names.
func (o object) only(names ...string) error {
next:
	for _, name := range o.names() {
		for _, known := range names {
			if name == known {
				continue next
			}
		}
		return fmt.Errorf("has the unknown field %q", name)
	}
	return nil
}

// EncodePreferredElection gives the payload of /admin/preferred_replica_election
// (spec/controller.md §1.10), partitions in the order given.
func EncodePreferredElection(tps []kafka.TopicPartition) []byte { return encodePartitions(tps) }

// DecodePreferredElection reads /admin/preferred_replica_election. A partition
// that is listed twice is given once.
func DecodePreferredElection(data []byte) ([]kafka.TopicPartition, error) {
	tps, err := decodePartitions(data)
	if err != nil {
		return nil, &PayloadError{Path: PreferredElection, Reason: err.Error(), Remedy: adminRemedy}
	}
	return tps, nil
}

// appendPartition appends {"topic":"t","partition":0 without the closing brace.
func appendPartition(b []byte, tp kafka.TopicPartition) []byte {
	b = append(b, `{"topic":`...)
	b = appendText(b, tp.Topic)
	b = append(b, `,"partition":`...)
	return appendInt(b, tp.Partition)
}

func encodePartitions(tps []kafka.TopicPartition) []byte {
	b := append(make([]byte, 0, 32+48*len(tps)), `{"version":1,"partitions":[`...)
	for i, tp := range tps {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendPartition(b, tp), '}')
	}
	return append(b, ']', '}')
}

func decodePartitions(data []byte) ([]kafka.TopicPartition, error) {
	o, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	list, err := o.list("partitions")
	if err != nil {
		return nil, err
	}
	tps := make([]kafka.TopicPartition, 0, len(list))
	seen := make(map[kafka.TopicPartition]bool, len(list))
	for i, raw := range list {
		entry, err := asObject(raw)
		var tp kafka.TopicPartition
		if err == nil {
			tp, err = entry.partition()
		}
		if err != nil {
			return nil, fmt.Errorf("entry %d of \"partitions\": %w", i, err)
		}
		if !seen[tp] {
			seen[tp] = true
			tps = append(tps, tp)
		}
	}
	return tps, nil
}

// partition reads the fields topic and partition.
func (o object) partition() (tp kafka.TopicPartition, err error) {
	if tp.Topic, err = o.text("topic"); err != nil {
		return tp, err
	}
	if tp.Topic == "" {
		return tp, field("topic", errors.New("is empty"))
	}
	if tp.Partition, err = o.int32("partition"); err != nil {
		return tp, err
	}
	if tp.Partition < 0 {
		return tp, field("partition", fmt.Errorf("is negative: %d", tp.Partition))
	}
	return tp, nil
}
