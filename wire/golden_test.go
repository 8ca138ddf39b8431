package wire

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

var goldenHeader = control.Header{ControllerID: 9999, ControllerEpoch: 7, BrokerEpoch: 0x1122334455}

func tp(topic string, n int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: topic, Partition: n}
}

func ids(ids ...kafka.BrokerID) []kafka.BrokerID { return ids }

func goldenPartitions() []*control.PartitionState {
	id := kafka.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	one := func(tp kafka.TopicPartition, id kafka.TopicID, controllerEpoch int32, l kafka.LeaderAndISR, a kafka.ReplicaAssignment, isNew bool, offline []kafka.BrokerID) *control.PartitionState {
		return &control.PartitionState{TopicPartition: tp, TopicID: id, Leadership: kafka.Leadership{LeaderAndISR: l, ControllerEpoch: controllerEpoch}, ReplicaAssignment: a, IsNew: isNew, Offline: offline}
	}
	return []*control.PartitionState{
		one(tp("orders", 0), id, 6, kafka.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: ids(1, 2), Recovery: kafka.Recovering, ZKVersion: 5},
			kafka.ReplicaAssignment{Replicas: ids(1, 2, 3), Adding: ids(3), Removing: ids(2)}, true, ids(3)),
		one(tp("orders", 1), id, 7, kafka.LeaderAndISR{Leader: kafka.NoLeader, LeaderEpoch: 4, ISR: ids(2), ZKVersion: 9},
			kafka.ReplicaAssignment{Replicas: ids(2)}, false, ids(2)),
		one(tp("sales", 12), kafka.TopicID{}, 7, kafka.LeaderAndISR{Leader: kafka.LeaderDuringDelete, ISR: ids(1)},
			kafka.ReplicaAssignment{Replicas: ids(1, 300)}, false, nil),
	}
}

func goldenRequest(kind control.Kind, version int16) control.Request {
	switch kind {
	case control.LeaderAndISRKey:
		return &control.LeaderAndISRRequest{Header: goldenHeader, Partitions: goldenPartitions(),
			LiveLeaders: []control.LiveLeader{{ID: 1, Host: "host-1", Port: 9092}, {ID: 2, Host: "host-2", Port: 19092}}}
	case control.UpdateMetadataKey:
		return &control.UpdateMetadataRequest{Header: goldenHeader, Metadata: &control.Metadata{Partitions: goldenPartitions(), LiveBrokers: []kafka.Broker{
			{ID: 1, Epoch: -1, Rack: "rack-a", HasRack: true, Endpoints: []kafka.Endpoint{
				{Listener: "PLAINTEXT", Protocol: kafka.Plaintext, Host: "host-1", Port: 9092},
				{Listener: "SSL", Protocol: kafka.SSL, Host: "host-1", Port: 9093},
				{Listener: "INTERNAL", Protocol: kafka.SASLPlaintext, Host: "10.0.0.1", Port: 9094}}},
			{ID: 2, Epoch: -1, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Protocol: kafka.Plaintext, Host: "host-2", Port: 19092}}},
		}}}
	}
	return &control.StopReplicaRequest{Header: goldenHeader, Partitions: []control.StopPartition{
		{TopicPartition: tp("orders", 0), LeaderEpoch: kafka.EpochDuringDelete, Delete: true},
		{TopicPartition: tp("orders", 1), LeaderEpoch: 5, Delete: version < 3}, // older versions have one flag for all
		{TopicPartition: tp("sales", 12), LeaderEpoch: kafka.NoEpoch, Delete: true}}}
}

func goldenResponse(kind control.Kind) *control.Response {
	if kind == control.UpdateMetadataKey {
		return &control.Response{Kind: kind, Error: kafka.StaleBrokerEpoch}
	}
	r := &control.Response{Kind: kind, Errors: map[kafka.TopicPartition]kafka.ErrorCode{
		tp("orders", 0): kafka.NoError, tp("orders", 1): kafka.KafkaStorageError, tp("sales", 12): kafka.StaleControllerEpoch}}
	return r
}

// without gives what is left of a request when it travelled as version.
func without(r control.Request, version int16) control.Request {
	states := func(parts []*control.PartitionState, f func(*control.PartitionState)) {
		for i, p := range parts {
			c := *p
			f(&c)
			parts[i] = &c
		}
	}
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		if version < 2 {
			r.BrokerEpoch = kafka.NoBrokerEpoch
		}
		states(r.Partitions, func(p *control.PartitionState) {
			p.Offline = nil
			if version < 1 {
				p.IsNew = false
			}
			if version < 3 {
				p.Adding, p.Removing = nil, nil
			}
			if version < 5 {
				p.TopicID = kafka.TopicID{}
			}
			if version < 6 {
				p.Recovery = kafka.Recovered
			}
		})
	case *control.UpdateMetadataRequest:
		if version < 5 {
			r.BrokerEpoch = kafka.NoBrokerEpoch
		}
		states(r.Partitions, func(p *control.PartitionState) {
			p.IsNew, p.Recovery, p.Adding, p.Removing = false, kafka.Recovered, nil, nil
			if version < 4 {
				p.Offline = nil
			}
			if version < 7 {
				p.TopicID = kafka.TopicID{}
			}
		})
		for i := range r.LiveBrokers {
			b := &r.LiveBrokers[i]
			if version < 2 {
				b.Rack, b.HasRack = "", false
			}
			if version < 3 {
				b.Endpoints = slices.DeleteFunc(slices.Clone(b.Endpoints), func(e kafka.Endpoint) bool {
					return e.Listener == "INTERNAL" || version == 0 && e.Protocol != kafka.Plaintext
				})
			}
		}
	case *control.StopReplicaRequest:
		if version < 1 {
			r.BrokerEpoch = kafka.NoBrokerEpoch
		}
		for i := range r.Partitions {
			if version < 3 {
				r.Partitions[i].LeaderEpoch = kafka.NoEpoch
			}
		}
	}
	return r
}

// goldenBytes reads the hexadecimal digits left of the comments.
func goldenBytes(t *testing.T, text string) []byte {
	var digits strings.Builder
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.TrimSpace(line))
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Every version of every control request and answer, both ways, against bytes
// written from the layout tables; and against kmsg where kmsg is right.
func TestGolden(t *testing.T) {
	for _, kind := range []control.Kind{control.LeaderAndISRKey, control.UpdateMetadataKey, control.StopReplicaKey} {
		t.Run(kind.String(), func(t *testing.T) {
			checked := 0
			datadriven.RunTest(t, "testdata/"+kind.String(), func(t *testing.T, d *datadriven.TestData) string {
				var version int
				d.ScanArgs(t, "version", &version)
				checked++
				want := goldenBytes(t, d.Expected)
				var got []byte
				if d.Cmd == "request" {
					got = checkRequest(t, kind, int16(version), want)
				} else {
					got = checkResponse(t, kind, int16(version), want)
				}
				if bytes.Equal(got, want) {
					return d.Expected
				}
				return fmt.Sprintf("%x\n", got)
			})
			if want := 2 * (int(MaxVersion(kind)) + 1); checked != want {
				t.Errorf("%d cases, want %d", checked, want)
			}
		})
	}
}

func checkRequest(t *testing.T, kind control.Kind, version int16, want []byte) []byte {
	got := AppendRequest(nil, goldenRequest(kind, version), version)
	decoded, kraft, err := DecodeRequest(kind, version, want)
	if err != nil || kraft {
		t.Errorf("decode v%d: kraft=%t, %v", version, kraft, err)
	}
	if diff := cmp.Diff(without(goldenRequest(kind, version), version), decoded, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("decode v%d (-want +got):\n%s", version, diff)
	}
	for n := range want {
		if _, _, err := DecodeRequest(kind, version, want[:n]); err == nil {
			t.Errorf("decode v%d: %d of %d bytes were taken for a whole request", version, n, len(want))
		}
	}
	if kind == control.StopReplicaKey && version == 4 {
		return got // kmsg v1.15.1 has isKRaftController and the controller epoch swapped
	}
	k := kmsg.RequestForKey(int16(kind))
	k.SetVersion(version)
	if err := k.ReadFrom(want); err != nil {
		t.Errorf("kmsg cannot read v%d: %v", version, err)
	}
	if again := k.AppendTo(nil); !bytes.Equal(again, want) {
		t.Errorf("kmsg writes v%d as\n%x, want\n%x", version, again, want)
	}
	return got
}

func checkResponse(t *testing.T, kind control.Kind, version int16, want []byte) []byte {
	asked := goldenRequest(kind, version)
	if kind == control.StopReplicaKey { // golden rows are those of LeaderAndIsr
		asked = &control.StopReplicaRequest{Partitions: []control.StopPartition{{TopicPartition: tp("orders", 0)}, {TopicPartition: tp("orders", 1)}, {TopicPartition: tp("sales", 12)}}}
	}
	resp := goldenResponse(kind)
	resp.Request = asked
	got := AppendResponse(nil, resp, version)
	decoded, err := DecodeResponse(asked, version, want)
	if err != nil {
		t.Errorf("decode v%d: %v", version, err)
	}
	if diff := cmp.Diff(resp, decoded); diff != "" {
		t.Errorf("decode v%d (-want +got):\n%s", version, diff)
	}
	for n := range want {
		if _, err := DecodeResponse(asked, version, want[:n]); err == nil {
			t.Errorf("decode v%d: %d of %d bytes were taken for a whole answer", version, n, len(want))
		}
	}
	k := kmsg.RequestForKey(int16(kind))
	k.SetVersion(version)
	r := k.ResponseKind()
	if err := r.ReadFrom(want); err != nil {
		t.Errorf("kmsg cannot read v%d: %v", version, err)
	}
	if again := r.AppendTo(nil); !bytes.Equal(again, want) {
		t.Errorf("kmsg writes v%d as\n%x, want\n%x", version, again, want)
	}
	return got
}

// The one message kmsg has wrong: our bytes, with its two fields exchanged as
// spec/control-plane.md §1.5 describes, are what it reads.
func TestStopReplicaV4FieldOrder(t *testing.T) {
	b := AppendRequest(nil, goldenRequest(control.StopReplicaKey, 4), 4)
	moved := slices.Clone(b)
	copy(moved[4:8], b[5:9])
	moved[8] = b[4]
	k := kmsg.NewPtrStopReplicaRequest()
	k.Version = 4
	if err := k.ReadFrom(moved); err != nil {
		t.Fatal(err)
	}
	if k.ControllerEpoch != 7 || k.IsKRaftController || k.BrokerEpoch != goldenHeader.BrokerEpoch {
		t.Errorf("epoch %d, kraft %t, broker epoch %d", k.ControllerEpoch, k.IsKRaftController, k.BrokerEpoch)
	}
	_, kraft, err := DecodeRequest(control.StopReplicaKey, 4, append(append(slices.Clone(b[:4]), 1), b[5:]...))
	if err != nil || !kraft {
		t.Errorf("isKRaftController true is read as %t, %v", kraft, err)
	}
}
