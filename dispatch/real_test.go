package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// realBroker is a real Kafka broker whose controller is this test: /controller
// is held by a persistent node, so the broker never elects itself.
type realBroker struct {
	*real.KafkaServer
	broker kafka.Broker
	live   []kafka.Broker
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func startRealBroker(t *testing.T, version string) *realBroker {
	t.Helper()
	if testing.Short() {
		t.Skip("real servers are not for -short")
	}
	real.Require(t, real.Kafka)
	server := real.ZooKeeper(t)
	z, _, err := zk.Connect([]string{server.Addr()}, 20*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, n := range [][2]string{{"/controller", `{"version":1,"brokerid":9999,"timestamp":"0"}`}, {"/controller_epoch", "7"}} {
		if _, err := z.Create(n[0], []byte(n[1]), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatalf("create %s: %v", n[0], err)
		}
	}
	k := real.KafkaBroker(t, server.Addr(), version, "controlled.shutdown.enable=false")
	_, stat, err := z.Get("/brokers/ids/1")
	if err != nil {
		t.Fatalf("the broker's registration: %v", err)
	}
	b := kafka.Broker{ID: 1, Epoch: stat.Czxid, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: int32(k.Port())}}}
	return &realBroker{k, b, []kafka.Broker{b}}
}

func (b *realBroker) dial(t *testing.T) *wire.Conn {
	t.Helper()
	c, err := wire.Dial(t.Context(), b.Addr(), wire.DialOptions{ClientID: "9999"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ledByOne is a partition that broker 1 leads alone.
func ledByOne(topic string, n int32, id kafka.TopicID) *control.PartitionState {
	p := &control.PartitionState{TopicPartition: tp(topic, n), TopicID: id, IsNew: true}
	p.Leader, p.ControllerEpoch = 1, 7
	p.ISR, p.Replicas = []kafka.BrokerID{1}, []kafka.BrokerID{1}
	return p
}

// asked is what a client sees of one partition.
type asked struct {
	Topic     kafka.ErrorCode // in Metadata
	Partition kafka.ErrorCode
	Leader    int32
	ISR       []int32
	ID        kafka.TopicID
	Log       kafka.ErrorCode // in ListOffsets: 0 only from a leader that has the log
}

func (b *realBroker) ask(t *testing.T, c *wire.Conn, offered wire.Versions, topic string) asked {
	t.Helper()
	var a asked
	q := kmsg.NewPtrMetadataRequest()
	q.Version = min(10, offered[q.Key()].Max)
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	q.Topics = append(q.Topics, mt)
	resp, err := c.Request(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	m := resp.(*kmsg.MetadataResponse)
	if len(m.Topics) != 1 {
		t.Fatalf("Metadata: %d topics", len(m.Topics))
	}
	a.Topic, a.ID, a.Leader = kafka.ErrorCode(m.Topics[0].ErrorCode), m.Topics[0].TopicID, -1
	for _, p := range m.Topics[0].Partitions {
		a.Partition, a.Leader, a.ISR = kafka.ErrorCode(p.ErrorCode), p.Leader, p.ISR
	}
	lo := kmsg.NewPtrListOffsetsRequest()
	lo.Version, lo.ReplicaID = 2, -1
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic = topic
	lp := kmsg.NewListOffsetsRequestTopicPartition()
	lp.Timestamp = -1
	lt.Partitions = append(lt.Partitions, lp)
	lo.Topics = append(lo.Topics, lt)
	if resp, err = c.Request(t.Context(), lo); err != nil {
		t.Fatal(err)
	}
	a.Log = kafka.ErrorCode(resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode)
	return a
}

// Every version of every control request that a real broker offers: it answers
// without errors, leads what it was told to lead, tells clients so, and forgets
// what it was told to delete.
func TestEveryVersionOnRealBrokers(t *testing.T) {
	for _, version := range []string{"2.4.1", "3.9.1"} {
		t.Run(version, func(t *testing.T) {
			b := startRealBroker(t, version)
			c := b.dial(t)
			offered, err := c.APIVersions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			newest := func(k control.Kind, n int16) int16 { return min(n, offered[int16(k)].Max, wire.MaxVersion(k)) }
			for n := range wire.MaxUpdateMetadata + 1 {
				l, u, s := newest(control.LeaderAndISRKey, n), newest(control.UpdateMetadataKey, n), newest(control.StopReplicaKey, n)
				b.oneRound(t, c, offered, fmt.Sprintf("t-%d", n), versions{l, u, s})
			}
			if out := b.Output(); strings.Contains(out, "ERROR") {
				t.Errorf("the broker complains: %s", out)
			}
		})
	}
}

func (b *realBroker) oneRound(t *testing.T, c *wire.Conn, offered wire.Versions, topic string, v versions) {
	t.Helper()
	send := func(r control.Request, version int16) {
		t.Helper()
		resp, err := c.Control(t.Context(), r, version, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Error != 0 {
			t.Errorf("%s v%d: %v", r.Kind(), version, resp.Error)
		}
		if r.Kind() == control.UpdateMetadataKey {
			return
		}
		if code, ok := resp.Errors[tp(topic, 0)]; !ok || code != 0 {
			t.Errorf("%s v%d: %v", r.Kind(), version, resp.Errors)
		}
	}
	id := kafka.TopicID{9, 9, byte(v.updateMetadata), 1}
	if v.leaderAndISR < 5 || v.updateMetadata < 7 {
		id = kafka.TopicID{}
	}
	p := ledByOne(topic, 0, id)
	send(umr(b.broker, &control.Metadata{Partitions: []*control.PartitionState{p}, LiveBrokers: b.live}), v.updateMetadata)
	l := lisr(b.broker, p)
	l.LiveLeaders = []control.LiveLeader{{ID: 1, Host: "127.0.0.1", Port: int32(b.Port())}}
	send(l, v.leaderAndISR)
	if diff := cmp.Diff(asked{Leader: 1, ISR: []int32{1}, ID: id}, b.ask(t, c, offered, topic)); diff != "" {
		t.Errorf("%+v: after LeaderAndIsr (-want +got):\n%s", v, diff)
	}
	gone := *p
	gone.Leader, gone.LeaderEpoch, gone.ZKVersion = kafka.LeaderDuringDelete, 0, 0
	send(umr(b.broker, &control.Metadata{Partitions: []*control.PartitionState{&gone}, LiveBrokers: b.live}), v.updateMetadata)
	send(sr(b.broker, control.StopPartition{TopicPartition: p.TopicPartition, LeaderEpoch: kafka.EpochDuringDelete, Delete: true}), v.stopReplica)
	got := b.ask(t, c, offered, topic)
	got.ID = kafka.TopicID{}
	if diff := cmp.Diff(asked{Topic: kafka.UnknownTopicOrPartition, Leader: -1, Log: kafka.UnknownTopicOrPartition}, got); diff != "" {
		t.Errorf("%+v: after StopReplica (-want +got):\n%s", v, diff)
	}
}

// A Dispatcher and a real broker: a batch, a deletion, an older incarnation's
// entry, and the broker's end and return.
func TestDispatcherWithRealBrokers(t *testing.T) {
	for _, version := range []string{"2.4.1", "3.9.1"} {
		t.Run(version, func(t *testing.T) {
			b := startRealBroker(t, version)
			d, q := newDispatcher(t, Options{RetryPause: 100 * time.Millisecond})
			d.Add(b.broker)
			id := kafka.TopicID{}
			if version == "3.9.1" {
				id = kafka.TopicID{7, 7}
			}
			keep, drop := ledByOne("keep", 0, id), ledByOne("drop", 0, kafka.TopicID{})
			m := &control.Metadata{Partitions: []*control.PartitionState{drop, keep}, LiveBrokers: b.live}
			d.Send(1, umr(b.broker, m))
			d.Send(1, lisr(b.broker, drop, keep))
			stop := sr(b.broker, control.StopPartition{TopicPartition: drop.TopicPartition, LeaderEpoch: kafka.EpochDuringDelete, Delete: true}, control.StopPartition{TopicPartition: tp("never", 0), LeaderEpoch: 3})
			d.Send(1, stop)
			older := b.broker
			older.Epoch--
			d.Send(1, lisr(older, keep))
			d.Send(1, umr(b.broker, m))
			take := func(want events.Event) {
				t.Helper()
				got := q.take(t)
				if r, ok := got.(events.StopReplicaResponse); ok {
					r.Request = nil // below v3 the part that deletes
					delete(r.Errors, tp("never", 0))
					got = r
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("event (-want +got):\n%s", diff)
				}
			}
			take(events.UpdateMetadataResponse{Broker: 1})
			take(events.LeaderAndISRResponse{Broker: 1, Errors: map[kafka.TopicPartition]kafka.ErrorCode{tp("drop", 0): 0, tp("keep", 0): 0}})
			take(events.StopReplicaResponse{Broker: 1, Errors: map[kafka.TopicPartition]kafka.ErrorCode{tp("drop", 0): 0}})
			take(events.UpdateMetadataResponse{Broker: 1})

			b.Stop() // its session is closed, so that it can register again at once
			d.Send(1, umr(b.broker, m))
			if err := b.Start(); err != nil {
				t.Fatal(err)
			}
			take(events.UpdateMetadataResponse{Broker: 1, Error: kafka.StaleBrokerEpoch}) // it registered again, which nobody has said yet
		})
	}
}
