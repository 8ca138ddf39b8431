package brokers_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// fleet is many brokers in one process, told what to host without a controller.
type fleet struct {
	host  *brokers.Host
	done  chan error
	live  []kafka.Broker
	stop  context.CancelFunc
	nodes []*brokers.Node
	zk    *cluster
}

func newFleet(tb testing.TB, n int, version kafka.ProtocolVersion) *fleet {
	tb.Helper()
	c := &cluster{zk: sim.NewZooKeeper()}
	c.controller = c.zk.NewSession()
	f := &fleet{host: brokers.NewHost(nil), done: make(chan error, 1), zk: c}
	c.host = f.host
	for id := kafka.BrokerID(1); int(id) <= n; id++ {
		s := &site{c: c, store: sim.NewStore(c.zk, func(zkpaths.Notice) {})}
		e := []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: int32(id)}}
		topic := brokers.DefaultTopicConfig()
		topic.RetentionBytes = 64 << 20
		node, err := f.host.Add(brokers.Options{ID: id, Version: version, Endpoints: e, Logs: &brokers.LogOptions{Topic: topic}},
			brokers.World{Store: s, Controller: s, Process: s})
		if err != nil {
			tb.Fatal(err)
		}
		s.node = node
		f.nodes = append(f.nodes, node)
		f.live = append(f.live, kafka.Broker{ID: id, Endpoints: e})
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	go func() { f.done <- f.host.Run(ctx) }()
	return f
}

// assign tells all brokers of partitions; replica r of the i-th is broker
// (i+r*step) mod n + 1.
func (f *fleet) assign(tb testing.TB, topics, partitions, rf int) []*control.PartitionState {
	tb.Helper()
	n := len(f.nodes)
	hosts := make([][]*control.PartitionState, n)
	var all []*control.PartitionState
	for t := range topics {
		name := fmt.Sprintf("topic-%05d", t)
		for p := range partitions {
			i := t*partitions + p
			s := &control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: name, Partition: int32(p)}, IsNew: true}
			for r := range rf {
				s.Replicas = append(s.Replicas, kafka.BrokerID((i+r*(1+i/n%max(1, n/3)))%n+1))
			}
			s.ISR, s.Leader, s.LeaderEpoch, s.ControllerEpoch = s.Replicas, s.Replicas[0], 0, 4
			for _, id := range s.Replicas {
				hosts[id-1] = append(hosts[id-1], s)
			}
			all = append(all, s)
		}
	}
	h := control.Header{ControllerID: 9999, ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}
	send := func(i int, r control.Request) {
		if resp, err := f.nodes[i].HandleControl(context.Background(), r); err != nil || resp.Error != kafka.NoError {
			tb.Fatal(resp.Error, err)
		}
	}
	for i := range f.nodes {
		send(i, &control.UpdateMetadataRequest{Header: h, Metadata: &control.Metadata{LiveBrokers: f.live, Partitions: all}})
	}
	for i := range f.nodes {
		send(i, &control.LeaderAndISRRequest{Header: h, Partitions: hosts[i]})
	}
	return all
}

func (f *fleet) close() {
	f.stop()
	<-f.done
}

// BenchmarkProduceAll appends records of 1 KiB, 16 in a batch, at acks=all with
// three replicas in this process, some requests under way at a time, to six of
// some partitions.
func BenchmarkProduceAll(b *testing.B) {
	for _, v := range []struct{ inFlight, partitions int }{{1, 6}, {16, 6}, {256, 6}, {16, 3000}} {
		b.Run(fmt.Sprintf("inflight=%d/partitions=%d", v.inFlight, v.partitions), func(b *testing.B) { produceAll(b, v.inFlight, v.partitions) })
	}
}

func produceAll(b *testing.B, inFlight, partitions int) {
	f := newFleet(b, 3, kafka.V3_9IV0)
	defer f.close()
	f.assign(b, 1, partitions, 3)
	value := make([]byte, 1024)
	const records = 16
	var rs []commitlog.Record
	for range records {
		rs = append(rs, commitlog.Record{Timestamp: time.Now().UnixMilli(), Value: value})
	}
	batch := commitlog.Encode(rs...)
	slots := make(chan int, inFlight)
	for i := range inFlight {
		slots <- i
	}
	var failed sync.Once
	b.SetBytes(records * 1024)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		slot := <-slots
		p := i % 6
		r := &brokers.ProduceRequest{Acks: brokers.AcksAll, Timeout: 30 * time.Second, Rows: []brokers.ProduceRow{{
			Partition: kafka.TopicPartition{Topic: "topic-00000", Partition: int32(p)}, Records: append([]byte(nil), batch...)}}}
		f.nodes[p%3].Produce(r, func(res []brokers.ProduceResult) {
			if res[0].Error != kafka.NoError {
				failed.Do(func() { b.Errorf("%s", res[0].Error) })
			}
			slots <- slot
		})
	}
	for range inFlight {
		<-slots
	}
	b.StopTimer()
}

// BenchmarkIdle is 100 brokers with 100 000 partitions of three replicas: memory,
// and the processor's time while nothing happens. One run is enough.
func BenchmarkIdle(b *testing.B) {
	for range b.N {
		f := newFleet(b, 100, kafka.V3_9IV0)
		f.assign(b, 10_000, 10, 3)
		time.Sleep(3 * time.Second) // all fetches wait now
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		before := processorTime(b)
		const watch = 20 * time.Second
		time.Sleep(watch)
		spent := processorTime(b) - before
		b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-heap")
		b.ReportMetric(float64(m.Sys)/(1<<20), "MiB-sys")
		b.ReportMetric(100*spent.Seconds()/watch.Seconds(), "%core")
		f.close()
	}
}

// TestStorm: when a broker falls behind in 10 000 partitions at once, and returns,
// each ISR is written twice, and the announcements are few.
func TestStorm(t *testing.T) {
	const partitions = 10_000
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 3, kafka.V2_6IV0)
		states := f.assign(t, 1, partitions, 3)
		f.zk.mu.Lock()
		for _, s := range states {
			l := s.Leadership
			if err := f.zk.zk.Seed(zkserver.Saved{Path: zkpaths.PartitionStatePath(s.TopicPartition), Data: zkpaths.EncodePartitionState(l)}); err != nil {
				t.Fatal(err)
			}
		}
		f.zk.mu.Unlock()
		time.Sleep(time.Minute) // the next change is announced without linger
		f.fault(t, 3, "pause")
		appendAll := func() {
			for _, s := range states {
				r := commitlog.Encode(commitlog.Record{Timestamp: 1, Value: []byte("x")})
				f.nodes[s.Leader-1].Produce(&brokers.ProduceRequest{Acks: brokers.AcksLeader, Rows: []brokers.ProduceRow{{Partition: s.TopicPartition, Records: r}}},
					func([]brokers.ProduceResult) {})
			}
			synctest.Wait()
		}
		appendAll()
		time.Sleep(2 * time.Minute)
		f.fault(t, 3, "resume")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		led, shrinks, expands := 0, 0, 0
		for _, n := range f.nodes {
			g, err := n.Gauges(t.Context(), false)
			if err != nil || g.UnderReplicatedPartitions != 0 || g.UnannouncedISRChanges != 0 {
				t.Fatalf("%+v %v", g, err)
			}
			led, shrinks, expands = led+g.LeaderCount, shrinks+g.Counters.ISRShrinks, expands+g.Counters.ISRExpands
		}
		// Broker 3 led a third of them; its own followers were never behind.
		if led != partitions || shrinks != expands || shrinks < partitions*6/10 || shrinks > partitions*7/10 {
			t.Fatalf("%d led, %d shrinks, %d expansions", led, shrinks, expands)
		}
		if n := len(f.zk.children(zkpaths.ISRNotifications)); n == 0 || n > 8 {
			t.Fatalf("%d announcements", n)
		}
		f.close()
	})
}

func (f *fleet) fault(t *testing.T, id kafka.BrokerID, op string) {
	t.Helper()
	if r, err := f.host.Fault(t.Context(), brokers.FaultRequest{Broker: id, Op: op}); err != nil || r.Error != "" {
		t.Fatal(r.Error, err)
	}
}
