package brokerport_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is one broker with its port, on a ZooKeeper in this process.
type broker struct {
	*testNode
	port   *brokerport.Port
	server *wire.Server
	store  *zkstore.Session
}

func (b *broker) addr() string { return b.server.Addr().String() }

type brokerOptions struct {
	id      kafka.BrokerID
	release string
	port    func(*brokerport.Options)
}

const listener = "PLAINTEXT"

var clusterID = "cluster-of-the-tests"

func start(t *testing.T, o brokerOptions) *broker {
	t.Helper()
	if o.release == "" {
		o.release = "3.9"
	}
	version, err := kafka.ParseProtocolVersion(o.release)
	if err != nil {
		t.Fatal(err)
	}
	zk, err := zkserver.New(zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { zk.Close() })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{}
	if b.store, err = zkstore.Dial(t.Context(), zkstore.Options{Servers: []string{"zookeeper:2181"}, SessionTimeout: 10 * time.Second, Dialer: zk.Dial}, func(zkpaths.Notice) {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.store.Close(context.Background()) })
	opts := brokers.Options{ID: o.id, Version: version, Release: version, Endpoints: []kafka.Endpoint{endpointOf(ln.Addr())}}
	br, err := brokers.New(opts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	process := &bareProcess{}
	node := brokers.NewNode(br, brokers.World{Store: sessionStore{b.store}, Process: process})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = node.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })

	b.testNode = &testNode{Node: node, logs: map[kafka.TopicPartition]*commitlog.Log{}, changed: make(chan struct{}), over: make(chan struct{})}
	t.Cleanup(func() { close(b.over); b.waiting.Wait() })
	po := brokerport.Options{Node: b.testNode, ClusterID: func(context.Context) string { return clusterID }}
	if o.port != nil {
		o.port(&po)
	}
	b.port = brokerport.New(po)
	t.Cleanup(b.port.Close)
	b.server = wire.Serve(ln, b.port.Listener(listener), wire.ServerOptions{Table: b.port.Table()})
	t.Cleanup(b.server.Close)
	return b
}

func endpointOf(a net.Addr) kafka.Endpoint {
	host, port, _ := net.SplitHostPort(a.String())
	n, _ := strconv.Atoi(port)
	return kafka.Endpoint{Listener: listener, Host: host, Port: int32(n)}
}

func (b *broker) asBroker() kafka.Broker {
	return kafka.Broker{ID: b.ID(), Endpoints: []kafka.Endpoint{endpointOf(b.server.Addr())}}
}

// topic names a topic, its id and how many partitions it has.
type topic struct {
	name string
	id   kafka.TopicID
	n    int32
}

// lead makes the broker leader of all partitions of topics, alone, and tells it
// about the cluster.
func (b *broker) lead(t *testing.T, topics ...topic) {
	t.Helper()
	um := &control.UpdateMetadataRequest{Header: control.Header{ControllerID: b.ID(), ControllerEpoch: 1, BrokerEpoch: -1},
		Metadata: &control.Metadata{LiveBrokers: []kafka.Broker{b.asBroker()}}}
	li := &control.LeaderAndISRRequest{Header: um.Header}
	for _, tp := range topics {
		for n := range tp.n {
			p := &control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: tp.name, Partition: n}, TopicID: tp.id, IsNew: true,
				Leadership:        kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: b.ID(), ISR: []kafka.BrokerID{b.ID()}}, ControllerEpoch: 1},
				ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{b.ID()}}}
			um.Partitions, li.Partitions = append(um.Partitions, p), append(li.Partitions, p)
			b.addLog(p.TopicPartition)
		}
	}
	b.control(t, um)
	b.control(t, li)
}

func (b *broker) control(t *testing.T, r control.Request) {
	t.Helper()
	resp, err := b.HandleControl(t.Context(), r)
	if err != nil || resp.Error != kafka.NoError {
		t.Fatalf("%s: %s, %v", r.Kind(), resp.Error, err)
	}
	for tp, code := range resp.Errors {
		if code != kafka.NoError {
			t.Fatalf("%s: %s: %s", r.Kind(), tp, code)
		}
	}
}

// testNode is a broker's Node that keeps records in logs, leads alone, and so
// has everything committed at once.
type testNode struct {
	*brokers.Node
	mu      sync.Mutex
	logs    map[kafka.TopicPartition]*commitlog.Log
	changed chan struct{} // closed and replaced by each append
	over    chan struct{} // closed when the test ends
	waiting sync.WaitGroup
}

func (n *testNode) addLog(tp kafka.TopicPartition) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.logs[tp] = commitlog.New(commitlog.Options{})
}

func (n *testNode) Ended() <-chan struct{} { return nil }

func (n *testNode) Produce(r *brokers.ProduceRequest, reply func([]brokers.ProduceResult)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []brokers.ProduceResult
	for _, row := range r.Rows {
		res := brokers.ProduceResult{Partition: row.Partition, BaseOffset: -1, AppendTime: -1, LogStartOffset: -1}
		log := n.logs[row.Partition]
		if log == nil {
			res.Error = kafka.NotLeaderOrFollower
		} else if info, err := log.Append(row.Records, 0, time.Now()); err != nil {
			res.Error = commitlog.Code(err)
		} else {
			log.RaiseHighWatermark(log.LogEndOffset())
			res.BaseOffset, res.LogStartOffset = info.BaseOffset, log.LogStartOffset()
		}
		out = append(out, res)
	}
	close(n.changed)
	n.changed = make(chan struct{})
	reply(out)
}

func (n *testNode) Fetch(r *brokers.FetchRequest, reply func([]brokers.FetchResult)) {
	deadline := time.Now().Add(r.MaxWait)
	n.waiting.Go(func() {
		for {
			n.mu.Lock()
			out, size, failed := n.read(r)
			changed := n.changed
			n.mu.Unlock()
			if size >= r.MinBytes || failed || !time.Now().Before(deadline) {
				reply(out)
				return
			}
			timer := time.NewTimer(time.Until(deadline))
			select {
			case <-changed:
			case <-timer.C:
			case <-n.over:
				return
			}
			timer.Stop()
		}
	})
}

func (n *testNode) read(r *brokers.FetchRequest) (out []brokers.FetchResult, size int, failed bool) {
	for _, row := range r.Rows {
		res := brokers.FetchResult{Partition: row.Partition, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1}
		log := n.logs[row.Partition]
		if log == nil {
			res.Error = kafka.NotLeaderOrFollower
		} else if b, err := log.Read(row.Offset, min(row.MaxBytes, r.MaxBytes-size), log.HighWatermark(), size == 0); err != nil {
			res.Error = commitlog.Code(err)
		} else {
			res.HighWatermark, res.LastStableOffset, res.LogStartOffset, res.Records = log.HighWatermark(), log.LastStableOffset(), log.LogStartOffset(), b
			for _, s := range b {
				size += len(s)
			}
		}
		failed = failed || res.Error != kafka.NoError
		out = append(out, res)
	}
	return out, size, failed
}

func (n *testNode) ListOffsets(q []brokers.OffsetQuery, _ kafka.BrokerID, _ bool, reply func([]brokers.OffsetAnswer)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []brokers.OffsetAnswer
	for _, row := range q {
		a := brokers.OffsetAnswer{Partition: row.Partition, Timestamp: -1, Offset: -1, LeaderEpoch: -1}
		log := n.logs[row.Partition]
		switch {
		case log == nil:
			a.Error = kafka.NotLeaderOrFollower
		case row.Timestamp == brokers.LatestOffset:
			a.Offset, a.LeaderEpoch = log.HighWatermark(), 0
		case row.Timestamp == brokers.EarliestOffset:
			a.Offset, a.LeaderEpoch = log.LogStartOffset(), 0
		default:
			find := log.MaxTimestamp
			if row.Timestamp >= 0 {
				find = func() (commitlog.RecordTime, bool, error) { return log.OffsetForTimestamp(row.Timestamp) }
			}
			if at, ok, _ := find(); ok {
				a.Offset, a.Timestamp, a.LeaderEpoch = at.Offset, at.Timestamp, at.LeaderEpoch
			}
		}
		out = append(out, a)
	}
	reply(out)
}

func (n *testNode) EpochEnds(q []brokers.EpochQuery, _ kafka.BrokerID, reply func([]brokers.EpochAnswer)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []brokers.EpochAnswer
	for _, row := range q {
		a := brokers.EpochAnswer{Partition: row.Partition, Epoch: -1, EndOffset: -1}
		if log := n.logs[row.Partition]; log == nil {
			a.Error = kafka.NotLeaderOrFollower
		} else {
			a.Epoch, a.EndOffset = log.EndOffset(row.Epoch)
		}
		out = append(out, a)
	}
	reply(out)
}

// bareProcess is a process whose port and session are the test's.
type bareProcess struct{}

func (*bareProcess) Listen(bool) error  { return nil }
func (*bareProcess) OpenSession() error { return errors.New("the test opens the session") }
func (*bareProcess) CloseSession()      {}
func (*bareProcess) AbandonSession()    {}
func (*bareProcess) ExpireSession()     {}

// sessionStore is a session as a broker's store.
type sessionStore struct{ zk *zkstore.Session }

func (s sessionStore) Session() int64 { return s.zk.ID() }

func (s sessionStore) Read(ctx context.Context, r []zkpaths.Read) ([]zkpaths.Node, error) {
	return s.zk.Read(ctx, r)
}

func (s sessionStore) Write(ctx context.Context, fence int32, w []zkpaths.Write) ([]zkpaths.Outcome, error) {
	return s.zk.Write(ctx, fence, w)
}

func (s sessionStore) Transact(ctx context.Context, w []zkpaths.Write) ([]zkpaths.Outcome, error) {
	return s.zk.Transact(ctx, w)
}
