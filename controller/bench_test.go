package controller_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// sink takes requests and forgets them; it counts partitions.
type sink struct{ requests, partitions int }

func (s *sink) Add(kafka.Broker)      {}
func (s *sink) Remove(kafka.BrokerID) {}
func (s *sink) Clear()                {}
func (s *sink) Send(_ kafka.BrokerID, r control.Request) {
	s.requests++
	if l, ok := r.(*control.LeaderAndISRRequest); ok {
		s.partitions += len(l.Partitions)
	}
}

type noTimers struct{}

func (noTimers) After(time.Duration, events.Event) func() { return func() {} }

// rig is a controller on a tree that has topics of 100 partitions with three
// replicas each, on six live brokers, all in sync.
type rig struct {
	zk    *sim.ZooKeeper
	store *sim.Store
	sink  *sink
	queue *controller.Queue
	ctrl  *controller.Controller
}

func newRig(b *testing.B, partitions int) *rig {
	b.Helper()
	r := &rig{zk: sim.NewZooKeeper(), sink: &sink{}, queue: controller.NewQueue(nil)}
	seed := func(path string, data []byte) {
		if err := r.zk.Seed(zkserver.Saved{Path: path, Data: data}); err != nil {
			b.Fatal(err)
		}
	}
	for _, p := range zkpaths.PersistentPaths(kafka.V3_9IV0) {
		seed(p, nil)
	}
	seed(zkpaths.Feature, zkpaths.EncodeFeatures(zkpaths.Features{Version: 2, Status: zkpaths.FeaturesEnabled}))
	for id := range kafka.BrokerID(6) {
		seed(zkpaths.BrokerPath(id), zkpaths.EncodeBroker(sim.Registration(id)))
	}
	for t := range partitions / 100 {
		topic := zkpaths.Topic{Version: 3, ID: kafka.TopicID{byte(t >> 8), byte(t), 1}}
		name := fmt.Sprintf("topic-%04d", t)
		for n := range int32(100) {
			first := kafka.BrokerID(n) % 6
			rs := []kafka.BrokerID{first, (first + 1) % 6, (first + 2) % 6}
			topic.Partitions = append(topic.Partitions, zkpaths.PartitionAssignment{Partition: n, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: rs}})
			seed(zkpaths.PartitionStatePath(kafka.TopicPartition{Topic: name, Partition: n}),
				zkpaths.EncodePartitionState(kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: first, ISR: rs}}))
		}
		if res := r.zk.Write(r.zk.NewSession(), zkserver.Op{Kind: zkserver.OpSet, Path: zkpaths.TopicPath(name), Data: zkpaths.EncodeTopic(topic), Version: zkserver.AnyVersion}); res.Code != zkserver.OK {
			b.Fatal(res.Code)
		}
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	r.store = sim.NewStore(r.zk, func(zkpaths.Notice) {})
	r.ctrl = controller.New(controller.Options{ID: 0, Version: kafka.V3_9IV0, DeleteTopics: true, Now: r.zk.Time,
		Rand: func(int) int { return 0 }, UUID: func() kafka.TopicID { return kafka.TopicID{1} }}, r.store, r.sink, noTimers{}, r.queue, log)
	return r
}

func (r *rig) handle(ev events.Event) {
	r.ctrl.Handle(context.Background(), ev)
	for {
		batch, ok := r.queue.TryNext()
		if !ok {
			return
		}
		r.ctrl.HandleTogether(context.Background(), batch)
	}
}

// A new controller takes over 100 000 healthy partitions: everything is read,
// nothing is written, every replica is told.
func BenchmarkFailover(b *testing.B) {
	const n = 100_000
	r := newRig(b, n)
	b.ReportAllocs()
	for b.Loop() {
		r.sink.partitions = 0
		r.handle(events.Startup{})
		if !r.ctrl.Active() || r.sink.partitions != 3*n {
			b.Fatalf("active %v, told %d replicas", r.ctrl.Active(), r.sink.partitions)
		}
		r.handle(events.Shutdown{})
		r.zk.Now += 2 * time.Hour // a process that left does not stand again for a while
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/partition")
}

// One of six brokers dies, out of 24 000 partitions: a sixth needs a leader,
// half lose an ISR member.
func BenchmarkBrokerDies(b *testing.B) {
	const n = 24_000
	b.ReportAllocs()
	for range b.N {
		b.StopTimer()
		r := newRig(b, n)
		r.handle(events.Startup{})
		if res := r.zk.Write(r.zk.NewSession(), zkserver.Op{Kind: zkserver.OpDelete, Path: zkpaths.BrokerPath(5), Version: zkserver.AnyVersion}); res.Code != zkserver.OK {
			b.Fatal(res.Code)
		}
		b.StartTimer()
		r.handle(events.BrokerChange{})
		b.StopTimer()
		if g := r.ctrl.Gauges(); g.OfflinePartitions != 0 || g.UnderReplicated == 0 {
			b.Fatalf("%+v", g.Gauges)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/partition")
}
