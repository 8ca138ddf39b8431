package zkpaths

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/kafka"
)

const topicRemedy = `the topic is left as it is and the node is not overwritten until it holds the assignment again, in the form ` +
	`{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{},"removing_replicas":{},"topic_id":"…"}; delete the node if the topic is not wanted`

// PartitionAssignment is one partition's replicas.
type PartitionAssignment struct {
	Partition int32
	kafka.ReplicaAssignment
}

// Topic is the payload of /brokers/topics/T (spec/controller.md §1.5).
// Partitions are sorted by number; numbers may have holes.
type Topic struct {
	Version    int // 1 up to 2.3, 2 up to 2.7, 3 from 2.8 on
	ID         kafka.TopicID
	Partitions []PartitionAssignment
}

// EncodeTopic gives the payload in Version 1, 2 or 3; 0 means 3. Versions 1
// and 2 have no room for the id, version 1 none for moves in progress.
func EncodeTopic(t Topic) []byte {
	if t.Version < 1 || t.Version > 3 {
		t.Version = 3
	}
	byNumber := func(a, b PartitionAssignment) int { return cmp.Compare(a.Partition, b.Partition) }
	if !slices.IsSortedFunc(t.Partitions, byNumber) {
		t.Partitions = slices.Clone(t.Partitions)
		slices.SortStableFunc(t.Partitions, byNumber)
	}
	size := 128
	for i := range t.Partitions {
		p := &t.Partitions[i]
		size += 10 + 5*len(p.Replicas) + 12*(len(p.Adding)+len(p.Removing))
	}
	b := append(make([]byte, 0, size), `{"version":`...)
	b = appendInt(b, t.Version)
	b = append(b, `,"partitions":{`...)
	b = appendReplicaMap(b, t.Partitions, true, func(p *PartitionAssignment) []kafka.BrokerID { return p.Replicas })
	b = append(b, '}')
	if t.Version >= 2 {
		b = append(b, `,"adding_replicas":{`...)
		b = appendReplicaMap(b, t.Partitions, false, func(p *PartitionAssignment) []kafka.BrokerID { return p.Adding })
		b = append(b, `},"removing_replicas":{`...)
		b = appendReplicaMap(b, t.Partitions, false, func(p *PartitionAssignment) []kafka.BrokerID { return p.Removing })
		b = append(b, '}')
	}
	if t.Version >= 3 && !t.ID.IsZero() {
		b = append(b, `,"topic_id":"`...)
		b = base64.RawURLEncoding.AppendEncode(b, t.ID[:])
		b = append(b, '"')
	}
	return append(b, '}')
}

// appendReplicaMap appends "0":[1,2],"1":[2,1]; empty lists only if wanted.
func appendReplicaMap(b []byte, ps []PartitionAssignment, empty bool, list func(*PartitionAssignment) []kafka.BrokerID) []byte {
	first := true
	for i := range ps {
		ids := list(&ps[i])
		if len(ids) == 0 && !empty {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = appendInt(b, ps[i].Partition)
		b = append(b, '"', ':')
		b = appendBrokers(b, ids)
	}
	return b
}

// DecodeTopic reads the payload of a topic's node. A missing "partitions" is a
// topic without partitions; null or empty data, and all that is no object, is
// a *PayloadError. The replica lists share memory and must not be changed.
func DecodeTopic(topic string, data []byte) (Topic, error) {
	if t, ok := fastTopic(data); ok {
		return t, nil
	}
	t, err := slowTopic(data)
	if err != nil {
		return Topic{}, &PayloadError{Path: TopicPath(topic), Reason: err.Error(), Remedy: topicRemedy}
	}
	return t, nil
}

// fastTopic reads the form that Kafka and this package write, in any key
// order, with two allocations: the partitions, and all ids in one array.
func fastTopic(data []byte) (t Topic, ok bool) {
	x := lexer{b: data}
	if !x.take('{') {
		return t, false
	}
	a := arena{ids: make([]kafka.BrokerID, 0, bytes.Count(data, []byte{','})+1), lists: bytes.Count(data, []byte{'['})}
	var adding, removing []PartitionAssignment
	for {
		name, ok := x.text()
		if !ok || !x.take(':') {
			return t, false
		}
		switch string(name) {
		case "partitions":
			t.Partitions, ok = a.replicaMap(&x)
		case "adding_replicas":
			adding, ok = a.replicaMap(&x)
		case "removing_replicas":
			removing, ok = a.replicaMap(&x)
		case "version":
			var n int32
			n, ok = x.int32()
			t.Version = int(n)
		case "topic_id":
			t.ID, ok = x.topicID()
		default:
			return t, false
		}
		if !ok {
			return t, false
		}
		if !x.take(',') {
			break
		}
	}
	if !x.take('}') || !x.end() {
		return t, false
	}
	for _, p := range adding {
		if i, ok := t.find(p.Partition); ok {
			t.Partitions[i].Adding = p.Replicas
		}
	}
	for _, p := range removing {
		if i, ok := t.find(p.Partition); ok {
			t.Partitions[i].Removing = p.Replicas
		}
	}
	return t, true
}

func (t *Topic) find(partition int32) (int, bool) {
	return slices.BinarySearchFunc(t.Partitions, partition, func(p PartitionAssignment, n int32) int { return cmp.Compare(p.Partition, n) })
}

// arena holds the ids of all replica lists of one topic in one array.
type arena struct {
	ids   []kafka.BrokerID
	lists int // how many lists there can be at most
}

// replicaMap reads {"0":[1,2]} into sorted partitions, the lists as Replicas.
// A repeated partition is refused.
func (a *arena) replicaMap(x *lexer) ([]PartitionAssignment, bool) {
	if !x.take('{') {
		return nil, false
	}
	if x.take('}') {
		return nil, true
	}
	out := make([]PartitionAssignment, 0, a.lists)
	sorted := true
	for {
		name, ok := x.text()
		if !ok || !x.take(':') {
			return nil, false
		}
		number := lexer{b: name}
		n, ok := number.int32()
		if !ok || n < 0 || number.i != len(name) || name[0] < '0' {
			return nil, false
		}
		start := len(a.ids)
		if a.ids, ok = x.brokers(a.ids); !ok {
			return nil, false
		}
		sorted = sorted && (len(out) == 0 || out[len(out)-1].Partition < n)
		p := PartitionAssignment{Partition: n}
		if len(a.ids) > start {
			p.Replicas = a.ids[start:len(a.ids):len(a.ids)]
		}
		out = append(out, p)
		if !x.take(',') {
			break
		}
	}
	if !sorted {
		slices.SortFunc(out, func(a, b PartitionAssignment) int { return cmp.Compare(a.Partition, b.Partition) })
		for i := 1; i < len(out); i++ {
			if out[i].Partition == out[i-1].Partition {
				return nil, false
			}
		}
	}
	return out, x.take('}')
}

func (x *lexer) topicID() (kafka.TopicID, bool) {
	s, ok := x.text()
	if !ok {
		return kafka.TopicID{}, false
	}
	var id kafka.TopicID
	if len(s) != base64.RawURLEncoding.EncodedLen(len(id)) { // else it would not fit, or bring padding
		return id, false
	}
	n, err := base64.RawURLEncoding.Decode(id[:], s)
	return id, err == nil && n == len(id)
}

// slowTopic reads any JSON.
func slowTopic(data []byte) (t Topic, err error) {
	o, err := parseObject(data)
	if err != nil {
		return t, err
	}
	if n, err := o.int32("version"); err == nil { // readers do not check it
		t.Version = int(n)
	}
	if o.has("topic_id") {
		s, err := o.text("topic_id")
		if err != nil {
			return t, err
		}
		if t.ID, err = kafka.ParseTopicID(strings.TrimRight(s, "=")); err != nil {
			return t, field("topic_id", err)
		}
	}
	partitions, err := slowReplicaMap(o, "partitions")
	if err != nil {
		return t, err
	}
	adding, err := slowReplicaMap(o, "adding_replicas")
	if err != nil {
		return t, err
	}
	removing, err := slowReplicaMap(o, "removing_replicas")
	if err != nil {
		return t, err
	}
	for n, replicas := range partitions {
		t.Partitions = append(t.Partitions, PartitionAssignment{n, kafka.ReplicaAssignment{Replicas: replicas, Adding: adding[n], Removing: removing[n]}})
	}
	slices.SortFunc(t.Partitions, func(a, b PartitionAssignment) int { return cmp.Compare(a.Partition, b.Partition) })
	return t, nil
}

func slowReplicaMap(o object, name string) (map[int32][]kafka.BrokerID, error) {
	if !o.has(name) {
		return nil, nil
	}
	inner, err := o.object(name)
	if err != nil {
		return nil, err
	}
	out := make(map[int32][]kafka.BrokerID, len(inner))
	for _, key := range inner.names() {
		n, ok := parseNumber(key)
		if !ok { // "01" would leave open which of two lists is meant
			return nil, field(name, fmt.Errorf("has the key %q, which is no partition number", key))
		}
		var err error
		if out[n], err = inner.brokers(key); err != nil {
			return nil, field(name, err)
		}
	}
	return out, nil
}
