package assembly

import (
	"context"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// An ISR change on the wire (spec/broker.md §5.3): by name and as a list of ids up to
// version 1, by topic id from 2 on, with broker epochs that nobody checks from 3 on;
// always RECOVERED. The answer comes back under the topic's name.
func TestAlterPartitionOnTheWire(t *testing.T) {
	id := kafka.TopicID{15: 7}
	for _, c := range []struct {
		byID    bool
		offered int16
		version int16 // -1: the controller serves none that will do
	}{{false, 3, 1}, {false, 0, 0}, {true, 3, 3}, {true, 2, 2}, {true, 1, -1}} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan *kmsg.AlterPartitionRequest, 1)
		s := wire.Serve(ln, wire.HandlerFunc(func(_ context.Context, r *wire.Request) {
			req := r.Kafka.(*kmsg.AlterPartitionRequest)
			asked <- req
			resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
			topic := kmsg.NewAlterPartitionResponseTopic()
			topic.Topic, topic.TopidID = req.Topics[0].Topic, req.Topics[0].TopicID
			row := kmsg.NewAlterPartitionResponseTopicPartition()
			row.Partition, row.LeaderID, row.LeaderEpoch, row.ISR, row.PartitionEpoch = 3, 4, 5, []int32{4, 2}, 8
			topic.Partitions = append(topic.Partitions, row)
			resp.Topics = append(resp.Topics, topic)
			r.Reply(resp)
		}), wire.ServerOptions{Table: []wire.APIVersion{{Key: 18, VersionRange: kafka.VersionRange{Max: 4}}, {Key: 56, VersionRange: kafka.VersionRange{Max: c.offered}}}})
		l := &controllerLink{self: 4, listener: "PLAINTEXT"}
		at := kafka.Broker{ID: 9, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: int32(ln.Addr().(*net.TCPAddr).Port)}}}
		tp := kafka.TopicPartition{Topic: "t", Partition: 3}
		answer, err := l.AlterPartition(t.Context(), at, &brokers.AlterPartitionRequest{Broker: 4, BrokerEpoch: 100, ByID: c.byID,
			Partitions: []brokers.AlterPartitionRow{{Partition: tp, TopicID: id, LeaderEpoch: 5, ISR: []kafka.BrokerID{4, 2}, PartitionEpoch: 7}}})
		l.close()
		s.Close()
		if c.version < 0 {
			if err == nil {
				t.Errorf("%+v: %+v", c, answer)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := <-asked
		type row struct {
			Version, Recovery                  int16
			Broker, Partition, Leader, AtZNode int32
			Epoch                              int64
			Name                               string
			ID                                 kafka.TopicID
			ISR                                []int32
			Epochs                             []int64
		}
		p := got.Topics[0].Partitions[0]
		have := row{got.Version, int16(p.LeaderRecoveryState), got.BrokerID, p.Partition, p.LeaderEpoch, p.PartitionEpoch, got.BrokerEpoch,
			got.Topics[0].Topic, got.Topics[0].TopicID, p.NewISR, nil}
		want := row{Version: c.version, Broker: 4, Partition: 3, Leader: 5, AtZNode: 7, Epoch: 100, Name: "t", ISR: []int32{4, 2}}
		if c.byID {
			want.Name, want.ID = "", id
		}
		if c.version == 3 {
			want.ISR, want.Epochs = nil, []int64{-1, -1}
			for _, e := range p.NewEpochISR {
				have.ISR, have.Epochs = append(have.ISR, e.BrokerID), append(have.Epochs, e.BrokerEpoch)
			}
			want.ISR = []int32{4, 2}
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("%+v: %s", c, d)
		}
		wanted := brokers.AlterPartitionResult{LeaderAndISR: kafka.LeaderAndISR{Leader: 4, LeaderEpoch: 5, ISR: []kafka.BrokerID{4, 2}, ZKVersion: 8}}
		if d := cmp.Diff(map[kafka.TopicPartition]brokers.AlterPartitionResult{tp: wanted}, answer.Partitions); d != "" {
			t.Errorf("%+v: %s", c, d)
		}
	}
}

// A leaver's request goes by its protocol version, and tells its broker epoch from
// version 2 on (spec/broker.md §1.8).
func TestControlledShutdownByVersion(t *testing.T) {
	for version, want := range map[string]int16{"0.9": 1, "0.10.2": 1, "2.1": 1, "2.2": 2, "2.4-IV0": 2, "2.4-IV1": 3, "3.9": 3} {
		v, err := kafka.ParseProtocolVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		if got := shutdownVersion(v); got != want {
			t.Errorf("%s: version %d, want %d", version, got, want)
		}
	}
	if got := shutdownVersion(kafka.ProtocolVersion{}); got != 3 {
		t.Errorf("of no version: %d", got)
	}
}
