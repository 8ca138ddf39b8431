package assembly

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

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

func recordsOverTheWire(t *testing.T, v kafka.ProtocolVersion) {
	server, err := zkserver.New(zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	net := NewMemory().Network()
	store := zkstore.Options{Servers: []string{"zookeeper:2181"}, SessionTimeout: 6 * time.Second, Dialer: server.Dial}
	c, err := NewController(t.Context(), ControllerOptions{Rules: Defaults(1000, v), ZooKeeper: store, Network: net,
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
	var seeds []string
	var processes []*Brokers
	for id := kafka.BrokerID(1); id <= 3; id++ {
		p := LocalBroker(id, fmt.Sprintf("b%d", id), 0, v)
		p.KeepRecords()
		b, err := NewBrokers(t.Context(), BrokersOptions{Brokers: []BrokerOptions{p}, ZooKeeper: store, Network: net})
		if err != nil {
			t.Fatal(err)
		}
		run(b.Run)
		processes = append(processes, b)
		seeds = append(seeds, address(b.Advertised()[0][0]))
	}
	if err := c.Await(t.Context(), func(g controller.Gauges) bool { return g.Ready && g.ActiveBrokers >= 3 }); err != nil {
		t.Fatal(err)
	}
	whole := &Cluster{controller: c, o: ClusterOptions{Network: net}}
	if err := whole.CreateTopic(t.Context(), Topic{Name: "t", Partitions: 1, Replication: 3}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := func(opts ...kgo.Opt) *kgo.Client {
		cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(seeds...), kgo.Dialer(net.Dial), kgo.MetadataMinAge(50*time.Millisecond))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	producer := client(kgo.DefaultProduceTopic("t"), kgo.UnknownTopicRetries(-1))
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
	leader := processes[0].running[0].node.Metadata().Topic("t").Partitions[0].Leader
	if r, err := processes[leader-1].Fault(ctx, brokers.FaultRequest{Broker: leader, Op: "kill"}); err != nil || r.Error != "" {
		t.Fatal(r.Error, err)
	}
	produce(20, 40)
	if r, err := processes[leader-1].Fault(ctx, brokers.FaultRequest{Broker: leader, Op: "restart"}); err != nil || r.Error != "" {
		t.Fatal(r.Error, err)
	}
	consumer := client(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
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
	for _, p := range processes { // the old leader is a follower now, and catches up
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
