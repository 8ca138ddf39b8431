package assembly

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkserver"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// Clients over brokers that do not know each other's processes: an idempotent
// producer with acks=all, the leader's end, and a consumer group that finds every
// record at another broker. Followers have them over the wire only.
func TestRecordsOverTheWire(t *testing.T) {
	for _, text := range []string{"2.3", "2.6", "3.9"} {
		t.Run(text, func(t *testing.T) { recordsOverTheWire(t, version(t, text)) })
	}
}

// wireCluster is a controller and brokers that do not know each other's processes.
type wireCluster struct {
	t         *testing.T
	net       Network
	processes []*Brokers
	seeds     []string
	record    string // file of the controller's events
}

// overTheWire starts n brokers, as tune wants them, and makes topic t of one
// partition with a replica on each.
func overTheWire(t *testing.T, v kafka.ProtocolVersion, n int, tune func(*BrokerOptions)) *wireCluster {
	t.Helper()
	server, err := zkserver.New(zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	w := &wireCluster{t: t, net: NewMemory().Network(), record: filepath.Join(t.TempDir(), "events")}
	store := zkstore.Options{Servers: []string{"zookeeper:2181"}, SessionTimeout: 6 * time.Second, Dialer: server.Dial}
	c, err := NewController(t.Context(), ControllerOptions{Rules: Defaults(1000, v), ZooKeeper: store, Network: w.net, Record: w.record,
		Listeners: []Listener{{Name: "PLAINTEXT", Bind: "controller:0", Advertise: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "controller"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	run := func(f func(context.Context) error) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = f(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
	}
	run(c.Run)
	for id := 1; id <= n; id++ {
		p := LocalBroker(kafka.BrokerID(id), fmt.Sprintf("b%d", id), 0, v)
		p.KeepRecords()
		tune(&p)
		b, err := NewBrokers(t.Context(), BrokersOptions{Brokers: []BrokerOptions{p}, ZooKeeper: store, Network: w.net, Record: w.record + ".isr"})
		if err != nil {
			t.Fatal(err)
		}
		run(b.Run)
		w.processes = append(w.processes, b)
		w.seeds = append(w.seeds, address(b.Advertised()[0][0]))
	}
	if err := c.Await(t.Context(), func(g controller.Gauges) bool { return g.Ready && g.ActiveBrokers >= n }); err != nil {
		t.Fatal(err)
	}
	whole := &Cluster{controller: c, o: ClusterOptions{Network: w.net}}
	if err := whole.CreateTopic(t.Context(), Topic{Name: "t", Partitions: 1, Replication: n}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *wireCluster) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(w.seeds...), kgo.Dialer(w.net.Dial), kgo.MetadataMinAge(50*time.Millisecond))...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cl.Close)
	return cl
}

// leader gives who leads t, once a broker knows.
func (w *wireCluster) leader(ctx context.Context) kafka.BrokerID {
	w.t.Helper()
	for {
		if topic := w.processes[0].running[0].node.Metadata().Topic("t"); topic != nil && topic.Partitions[0].Leader > 0 {
			return topic.Partitions[0].Leader
		}
		if _, err := w.processes[0].running[0].node.Gauges(ctx, false); err != nil {
			w.t.Fatal(err)
		}
	}
}

// fault asks a broker to misbehave.
func (w *wireCluster) fault(ctx context.Context, r brokers.FaultRequest) {
	w.t.Helper()
	if resp, err := w.processes[r.Broker-1].Fault(ctx, r); err != nil || resp.Error != "" {
		w.t.Fatal(resp.Error, err)
	}
}

func recordsOverTheWire(t *testing.T, v kafka.ProtocolVersion) {
	w := overTheWire(t, v, 3, func(*BrokerOptions) {})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	producer := w.client(kgo.DefaultProduceTopic("t"), kgo.UnknownTopicRetries(-1))
	var want []string
	produce := func(from, to int) {
		for i := from; i < to; i++ {
			want = append(want, fmt.Sprint(i))
			if err := producer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
				t.Fatalf("record %d: %v", i, err)
			}
		}
	}
	produce(0, 20)
	leader := w.leader(ctx)
	w.fault(ctx, brokers.FaultRequest{Broker: leader, Op: "kill"})
	produce(20, 40)
	w.fault(ctx, brokers.FaultRequest{Broker: leader, Op: "restart"})
	consumer := w.client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var got []string
	for len(got) < len(want) {
		fs := consumer.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatalf("%v, after %d records", err, len(got))
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
		t.Errorf("commit: %v", err)
	}
	for _, p := range w.processes { // the old leader is a follower now, and catches up
		node := p.running[0].node
		for !inSync(node) {
			if _, err := node.Gauges(ctx, false); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// inSync tells whether a broker was told that all replicas of t are in sync.
func inSync(n *brokers.Node) bool {
	topic := n.Metadata().Topic("t")
	if topic == nil {
		return false
	}
	isr := slices.Clone(topic.Partitions[0].ISR)
	slices.Sort(isr)
	return slices.Equal(isr, []kafka.BrokerID{1, 2, 3})
}

// What producers have unanswered at a broker is bounded, over all connections.
// While its followers stand still they fill it, and others are still served; the
// followers' fetches are, so that all is acknowledged in the end.
func TestProducersHaveRoom(t *testing.T) {
	const room, size, producers = 64 << 10, 20 << 10, 8
	w := overTheWire(t, version(t, "3.9"), 2, func(p *BrokerOptions) {
		p.Settings = brokerport.Settings{"queued.max.request.bytes": strconv.Itoa(room)}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leader := w.leader(ctx)
	w.fault(ctx, brokers.FaultRequest{Broker: 3 - leader, Op: "pause"})
	acked := make(chan error, producers)
	for range producers {
		cl := w.client(kgo.DefaultProduceTopic("t"), kgo.UnknownTopicRetries(-1), kgo.ProducerBatchCompression(kgo.NoCompression()))
		cl.Produce(ctx, &kgo.Record{Value: make([]byte, size)}, func(_ *kgo.Record, err error) { acked <- err })
	}
	used := w.processes[leader-1].running[0].room.Used
	for used() < 3*size {
		if ctx.Err() != nil {
			t.Fatalf("producers never filled the room: %d bytes", used())
		}
		if err := w.client().Ping(ctx); err != nil { // others are served meanwhile
			t.Fatal(err)
		}
	}
	w.fault(ctx, brokers.FaultRequest{Broker: 3 - leader, Op: "resume"})
	for range producers {
		if used() > room {
			t.Errorf("%d bytes in a room of %d", used(), room)
		}
		if err := <-acked; err != nil {
			t.Errorf("not acknowledged: %v", err)
		}
	}
}

// An election from outside the ISR is told in the record of the controller's
// events; others are not told to be one.
func TestUncleanElectionIsRecorded(t *testing.T) {
	w := overTheWire(t, version(t, "3.9"), 2, func(*BrokerOptions) {})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := kadm.NewClient(w.client())
	await := func(what string, ok func(kadm.PartitionDetail) bool) {
		t.Helper()
		for {
			topics, err := admin.ListTopics(ctx, "t")
			if err == nil && ok(topics["t"].Partitions[0]) {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%s: %v, %v", what, topics["t"].Partitions[0], err)
			}
		}
	}
	leader := w.leader(ctx)
	follower := 3 - leader
	w.fault(ctx, brokers.FaultRequest{Broker: follower, Op: "kill"})
	await("the leader alone", func(p kadm.PartitionDetail) bool { return len(p.ISR) == 1 })
	w.fault(ctx, brokers.FaultRequest{Broker: leader, Op: "kill"})
	w.fault(ctx, brokers.FaultRequest{Broker: follower, Op: "restart"})
	await("nobody leads", func(p kadm.PartitionDetail) bool { return p.Leader == -1 })
	unclean := func() int {
		data, err := os.ReadFile(w.record)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(data), `"unclean":true`)
	}
	if n := unclean(); n != 0 {
		t.Errorf("%d unclean elections are told before any", n)
	}
	await("the follower leads", func(p kadm.PartitionDetail) bool {
		if p.Leader != int32(follower) {
			_, _ = admin.ElectLeaders(ctx, kadm.ElectLiveReplica, nil) // what came of it is seen
		}
		return p.Leader == int32(follower)
	})
	if n := unclean(); n != 1 {
		t.Errorf("%d unclean elections are told, want 1", n)
	}
}

// A follower that stands still leaves the ISR and comes back; both are in the
// brokers' record, with the cause.
func TestISRChangesAreRecorded(t *testing.T) {
	w := overTheWire(t, version(t, "3.9"), 2, func(p *BrokerOptions) { p.Broker.ReplicaLagTimeMax = 600 * time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	leader := w.leader(ctx)
	await := func(lines int) []recordedISR {
		t.Helper()
		for {
			if _, err := w.processes[leader-1].running[0].node.Gauges(ctx, false); err != nil { // each is a turn of the broker's loop
				t.Fatalf("%d changes are not recorded: %v", lines, err)
			}
			data, err := os.ReadFile(w.record + ".isr")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Count(string(data), "\n") < lines {
				continue
			}
			var all []recordedISR
			for line := range strings.Lines(string(data)) {
				var r recordedISR
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				all = append(all, r)
			}
			return all
		}
	}
	w.fault(ctx, brokers.FaultRequest{Broker: 3 - leader, Op: "pause"})
	if err := w.client(kgo.DefaultProduceTopic("t"), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()).ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	await(1)
	w.fault(ctx, brokers.FaultRequest{Broker: 3 - leader, Op: "resume"})
	for i, r := range await(2)[:2] {
		if r.Event != "IsrChange" || r.Broker != leader || r.Topic != "t" || len(r.From) != 2-i || len(r.To) != 1+i || r.Cause == "" || r.Time.IsZero() {
			t.Errorf("%+v", r)
		}
		t.Logf("%v to %v: %s", r.From, r.To, r.Cause)
	}
}
