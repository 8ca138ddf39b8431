package wire

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func state(topic string, n int32) *control.PartitionState {
	return &control.PartitionState{TopicPartition: tp(topic, n)}
}

func names(parts []*control.PartitionState) (out []string) {
	for _, p := range parts {
		out = append(out, p.TopicPartition.String())
	}
	return out
}

// What could stop a broker, or have a whole request refused, is left out.
func TestSendable(t *testing.T) {
	tooLong := strings.Repeat("x", kafka.MaxTopicName+1)
	later := state("b", 1)
	later.LeaderEpoch = 9
	for name, c := range map[string]struct {
		in      []*control.PartitionState
		want    []string
		invalid []string
	}{
		"clean":          {[]*control.PartitionState{state("a", 0), state("a", 1), state("b", 0)}, []string{"a-0", "a-1", "b-0"}, nil},
		"empty":          {nil, nil, nil},
		"illegal names":  {[]*control.PartitionState{state("", 0), state("a", 0), state("a/b", 0), state("a/b", 1), state(tooLong, 0)}, []string{"a-0"}, []string{"", "a/b", tooLong}},
		"topic twice":    {[]*control.PartitionState{state("b", 0), state("a", 0), state("b", 1)}, []string{"a-0", "b-0", "b-1"}, nil},
		"partition back": {[]*control.PartitionState{state("a", 2), state("a", 1)}, []string{"a-1", "a-2"}, nil},
		"twice the same": {[]*control.PartitionState{state("b", 1), state("a", 1), later}, []string{"a-1", "b-1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]*control.PartitionState(nil), c.in...)
			req := &control.LeaderAndISRRequest{Partitions: c.in}
			got, invalid := Sendable(req)
			parts := got.(*control.LeaderAndISRRequest).Partitions
			if diff := cmp.Diff(c.want, names(parts)); diff != "" {
				t.Errorf("partitions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.invalid, invalid); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
			for i := range before {
				if before[i] != c.in[i] {
					t.Fatal("the given list was changed")
				}
			}
			if name == "clean" && got != control.Request(req) {
				t.Error("a clean request was copied")
			}
			if name == "twice the same" && parts[1].LeaderEpoch != 9 {
				t.Error("not the last of equal partitions was kept")
			}
		})
	}
	m := &control.Metadata{Partitions: []*control.PartitionState{state("a b", 0)}}
	um, invalid := Sendable(&control.UpdateMetadataRequest{Metadata: m})
	if len(um.(*control.UpdateMetadataRequest).Partitions) != 0 || len(invalid) != 1 || len(m.Partitions) != 1 {
		t.Errorf("UpdateMetadata: %v, left out %v", um, invalid)
	}
	sr, invalid := Sendable(&control.StopReplicaRequest{Partitions: []control.StopPartition{{TopicPartition: tp("ok", 1)}, {TopicPartition: tp("..", 1)}}})
	if got := sr.(*control.StopReplicaRequest).Partitions; len(got) != 1 || got[0].Topic != "ok" || len(invalid) != 1 {
		t.Errorf("StopReplica: %v, left out %v", got, invalid)
	}
}

func TestSplitStopReplica(t *testing.T) {
	one := func(n int32, del bool) control.StopPartition {
		return control.StopPartition{TopicPartition: tp("a", n), Delete: del}
	}
	h := control.Header{ControllerEpoch: 3}
	mixed := &control.StopReplicaRequest{Header: h, Partitions: []control.StopPartition{one(0, false), one(1, true), one(2, false)}}
	del, stop := SplitStopReplica(mixed)
	if diff := cmp.Diff(&control.StopReplicaRequest{Header: h, Partitions: []control.StopPartition{one(1, true)}}, del); diff != "" {
		t.Errorf("deleting (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&control.StopReplicaRequest{Header: h, Partitions: []control.StopPartition{one(0, false), one(2, false)}}, stop); diff != "" {
		t.Errorf("stopping (-want +got):\n%s", diff)
	}
	if del, stop := SplitStopReplica(del); stop != nil || del == nil {
		t.Error("a request that only deletes was divided")
	}
	if del, stop := SplitStopReplica(stop); del != nil || stop == nil {
		t.Error("a request that deletes nothing was divided")
	}
}

// Topics without id share one entry of a LeaderAndIsr answer: rows are given to
// the partitions they can only mean.
func TestAnswersWithoutTopicID(t *testing.T) {
	withID := state("c", 0)
	withID.TopicID = kafka.TopicID{9}
	asked := &control.LeaderAndISRRequest{Partitions: []*control.PartitionState{state("a", 0), state("a", 1), state("b", 0), withID}}
	answer := func(b0 kafka.ErrorCode) map[kafka.TopicPartition]kafka.ErrorCode {
		b := AppendResponse(nil, &control.Response{Kind: control.LeaderAndISRKey, Request: asked, Errors: map[kafka.TopicPartition]kafka.ErrorCode{
			tp("a", 0): 0, tp("a", 1): kafka.KafkaStorageError, tp("b", 0): b0, tp("c", 0): 11}}, 7)
		resp, err := DecodeResponse(asked, 7, b)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Errors
	}
	want := map[kafka.TopicPartition]kafka.ErrorCode{tp("a", 0): 0, tp("a", 1): kafka.KafkaStorageError, tp("b", 0): 0, tp("c", 0): 11}
	if diff := cmp.Diff(want, answer(0)); diff != "" {
		t.Errorf("one code for partition 0 (-want +got):\n%s", diff)
	}
	want = map[kafka.TopicPartition]kafka.ErrorCode{tp("a", 1): kafka.KafkaStorageError, tp("c", 0): 11}
	if diff := cmp.Diff(want, answer(kafka.KafkaStorageError)); diff != "" {
		t.Errorf("two codes for partition 0 (-want +got):\n%s", diff)
	}
}

// Rows nobody asked for are not handed on.
func TestUnaskedRows(t *testing.T) {
	asked := &control.StopReplicaRequest{Partitions: []control.StopPartition{{TopicPartition: tp("a", 0)}, {TopicPartition: tp("a", 1)}}}
	more := &control.StopReplicaRequest{Partitions: append([]control.StopPartition{{TopicPartition: tp("z", 0)}}, asked.Partitions...)}
	b := AppendResponse(nil, &control.Response{Kind: control.StopReplicaKey, Request: more, Errors: map[kafka.TopicPartition]kafka.ErrorCode{tp("a", 0): 0, tp("z", 0): 56}}, 4)
	resp, err := DecodeResponse(asked, 4, b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[kafka.TopicPartition]kafka.ErrorCode{tp("a", 0): 0}, resp.Errors); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func eachAsked(r control.Request, f func(kafka.TopicPartition)) {
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		for _, p := range r.Partitions {
			f(p.TopicPartition)
		}
	case *control.StopReplicaRequest:
		for _, p := range r.Partitions {
			f(p.TopicPartition)
		}
	}
}

// FuzzControlRequest: no bytes make decoding panic or take more than a few
// times their size, and what is read is written back and read alike.
func FuzzControlRequest(f *testing.F) {
	for _, kind := range []control.Kind{control.LeaderAndISRKey, control.UpdateMetadataKey, control.StopReplicaKey} {
		for v := range MaxVersion(kind) + 1 {
			f.Add(int16(kind), v, AppendRequest(nil, goldenRequest(kind, v), v))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, b []byte) {
		kind := control.Kind(key)
		req, kraft, err := DecodeRequest(kind, version, b)
		if err != nil || kraft {
			return
		}
		again, _, err := DecodeRequest(kind, version, AppendRequest(nil, req, version))
		if err != nil {
			t.Fatalf("%s v%d cannot be read again: %v", kind, version, err)
		}
		if diff := cmp.Diff(normal(req), normal(again), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s v%d (-first +second):\n%s", kind, version, diff)
		}
	})
}

// normal takes out what a second encoding may rightly change: the id of a topic
// that comes twice in a row, and endpoints that a version cannot name.
func normal(r control.Request) control.Request {
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		c := *r
		c.Partitions = withoutID(r.Partitions)
		return &c
	case *control.UpdateMetadataRequest:
		m := &control.Metadata{Partitions: withoutID(r.Partitions)}
		for _, b := range r.LiveBrokers {
			m.LiveBrokers = append(m.LiveBrokers, kafka.Broker{ID: b.ID, Rack: b.Rack, HasRack: b.HasRack})
		}
		return &control.UpdateMetadataRequest{Header: r.Header, Metadata: m}
	}
	return r
}

func withoutID(parts []*control.PartitionState) (out []*control.PartitionState) {
	for _, p := range parts {
		c := *p
		c.TopicID = kafka.TopicID{}
		out = append(out, &c)
	}
	return out
}

// FuzzResponse: no bytes make the reading of an answer panic.
func FuzzResponse(f *testing.F) {
	for _, kind := range []control.Kind{control.LeaderAndISRKey, control.UpdateMetadataKey, control.StopReplicaKey} {
		for v := range MaxVersion(kind) + 1 {
			resp := goldenResponse(kind)
			resp.Request = goldenRequest(kind, v)
			f.Add(int16(kind), v, AppendResponse(nil, resp, v))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, b []byte) {
		kind := control.Kind(key)
		if MaxVersion(kind) < 0 || version < 0 || version > MaxVersion(kind) {
			return
		}
		asked := goldenRequest(kind, version)
		resp, err := DecodeResponse(asked, version, b)
		if err != nil {
			return
		}
		n, failed := 0, map[kafka.TopicPartition]kafka.ErrorCode{}
		eachAsked(asked, func(p kafka.TopicPartition) {
			if code, ok := resp.Errors[p]; ok {
				n++
				if code != 0 {
					failed[p] = code
				}
			}
		})
		short, full, err := DecodeFailures(asked, version, b)
		if full {
			failed = resp.Errors
		}
		for p, code := range failed {
			if err != nil || short.Errors[p] != code {
				t.Errorf("%s: %v among the failures, want %v; %v", p, short.Errors[p], code, err)
			}
		}
		if n != len(resp.Errors) {
			t.Errorf("%d rows, %d of them asked", len(resp.Errors), n)
		}
	})
}

// FuzzFrame: no frame makes a server panic, whatever the request.
func FuzzFrame(f *testing.F) {
	s := &Server{table: map[int16]kafka.VersionRange{}}
	for key := range int16(100) {
		if top := newest(key); top >= 0 {
			s.table[key] = kafka.VersionRange{Max: top}
			for v := range top + 1 {
				f.Add([]byte{0, byte(key), 0, byte(v), 0, 0, 0, 1, 0, 1, 'x', 0, 0, 0, 0, 0, 0, 0, 0})
			}
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 8 {
			return
		}
		key, version := int16(frame[0])<<8|int16(frame[1]), int16(frame[2])<<8|int16(frame[3])
		if served, ok := s.table[key]; !ok || version < 0 || version > served.Max {
			return
		}
		r := &Request{}
		h, err := s.parse(frame, r)
		if err == nil && (h.key != key || r.Version != version || (r.Kafka == nil) == (r.Control == nil)) {
			t.Errorf("key %d version %d became %+v", key, version, r)
		}
	})
}
