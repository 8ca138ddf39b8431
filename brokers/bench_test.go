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

// fleetController is whom a fleet's brokers take for the controller.
const fleetController kafka.BrokerID = 9999

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
	f.live = append(f.live, kafka.Broker{ID: fleetController, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}}})
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
	h := control.Header{ControllerID: fleetController, ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}
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
	run := func(n int) {
		for i := range n {
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
		for range inFlight { // until all are answered
			<-slots
		}
		for i := range inFlight {
			slots <- i
		}
	}
	run(6) // followers that came before their leader begin after a rest of a second
	b.SetBytes(records * 1024)
	b.ReportAllocs()
	b.ResetTimer()
	run(b.N)
	b.StopTimer()
}

// BenchmarkFollowerFetch is what a leader does with a fetch of a follower in
// another process, per partition: nothing new, so that it waits and is answered at
// its end; or one record each time, which moves the high watermark.
func BenchmarkFollowerFetch(b *testing.B) {
	for _, record := range []bool{false, true} {
		b.Run(fmt.Sprintf("record=%t", record), func(b *testing.B) { followerFetch(b, record) })
	}
}

func followerFetch(b *testing.B, record bool) {
	const partitions = 1000
	f := newFleet(b, 1, kafka.V3_9IV0)
	defer f.close()
	away := kafka.Broker{ID: 2, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 2}}}
	var all []*control.PartitionState
	for p := range int32(partitions) {
		s := &control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: "t", Partition: p}, IsNew: true}
		s.Replicas, s.ISR, s.Leader, s.ControllerEpoch = []kafka.BrokerID{1, 2}, []kafka.BrokerID{1, 2}, 1, 4
		all = append(all, s)
	}
	h := control.Header{ControllerID: fleetController, ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}
	for _, r := range []control.Request{&control.UpdateMetadataRequest{Header: h, Metadata: &control.Metadata{LiveBrokers: append(f.live, away), Partitions: all}},
		&control.LeaderAndISRRequest{Header: h, Partitions: all}} {
		if resp, err := f.nodes[0].HandleControl(b.Context(), r); err != nil || resp.Error != kafka.NoError {
			b.Fatal(resp.Error, err)
		}
	}
	fetch := &brokers.FetchRequest{Replica: 2, ReplicaEpoch: kafka.NoBrokerEpoch, MinBytes: 1, MaxBytes: 10 << 20}
	write := &brokers.ProduceRequest{Acks: brokers.AcksLeader}
	for _, s := range all {
		fetch.Rows = append(fetch.Rows, brokers.FetchRow{Partition: s.TopicPartition, LastFetchedEpoch: kafka.NoEpoch, MaxBytes: 1 << 20})
		write.Rows = append(write.Rows, brokers.ProduceRow{Partition: s.TopicPartition, Records: commitlog.Encode(commitlog.Record{Timestamp: 1, Value: []byte("x")})})
	}
	fetched, written := make(chan []brokers.FetchResult, 1), make(chan []brokers.ProduceResult, 1)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if record {
			f.nodes[0].Produce(write, func(r []brokers.ProduceResult) { written <- r })
			<-written
		}
		f.nodes[0].Fetch(fetch, func(r []brokers.FetchResult) { fetched <- r })
		for i, r := range <-fetched {
			if r.Error != kafka.NoError || record && len(r.Records) == 0 {
				b.Fatalf("%+v", r)
			}
			if record {
				fetch.Rows[i].Offset++
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/partitions, "ns/partition")
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
// each ISR changes twice; the announcements of it are few (profile B), and so are
// the requests to the controller, which take along all that waits (profile C).
func TestStorm(t *testing.T) {
	for _, version := range []kafka.ProtocolVersion{kafka.V2_6IV0, kafka.V3_9IV0} {
		t.Run(brokers.ProfileOf(version).String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storm(t, version) })
		})
	}
}

func storm(t *testing.T, version kafka.ProtocolVersion) {
	const partitions = 10_000
	f := newFleet(t, 3, version)
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
	for _, s := range states {
		r := commitlog.Encode(commitlog.Record{Timestamp: 1, Value: []byte("x")})
		f.nodes[s.Leader-1].Produce(&brokers.ProduceRequest{Acks: brokers.AcksLeader, Rows: []brokers.ProduceRow{{Partition: s.TopicPartition, Records: r}}},
			func([]brokers.ProduceResult) {})
	}
	synctest.Wait()
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
	f.close()
	announcements, rows := len(f.zk.children(zkpaths.ISRNotifications)), 0
	for _, n := range f.zk.altered {
		rows += n
	}
	t.Logf("%d ISRs shrank and grew: %d announcements, AlterPartition requests of %d partitions", shrinks, announcements, f.zk.altered)
	if brokers.ProfileOf(version) == brokers.ProfileB {
		if announcements == 0 || announcements > 8 || rows != 0 {
			t.Fatalf("%d announcements, %d changes asked for", announcements, rows)
		}
		return
	}
	if announcements != 0 || rows != shrinks+expands || len(f.zk.altered) > 40 {
		t.Fatalf("%d announcements, %d changes asked for in %d requests", announcements, rows, len(f.zk.altered))
	}
}

func (f *fleet) fault(t *testing.T, id kafka.BrokerID, op string) {
	t.Helper()
	if r, err := f.host.Fault(t.Context(), brokers.FaultRequest{Broker: id, Op: op}); err != nil || r.Error != "" {
		t.Fatal(r.Error, err)
	}
}
