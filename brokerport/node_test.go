package brokerport_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
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
	*brokers.Node
	port   *brokerport.Port
	server *wire.Server
	store  *zkstore.Session
}

func (b *broker) addr() string { return b.server.Addr().String() }

type brokerOptions struct {
	id       kafka.BrokerID
	release  string // "": 3.9
	settings brokerport.Settings
	leaders  brokers.LeaderClient
}

const listener = "PLAINTEXT"

var clusterID = "cluster-of-the-tests"

func start(t testing.TB, o brokerOptions) *broker {
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
	for _, path := range zkpaths.PersistentPaths(version) {
		if _, err := b.store.Write(t.Context(), zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Create, Path: path}}); err != nil {
			t.Fatal(err)
		}
	}
	group := groups.DefaultOptions()
	group.InitialRebalanceDelay = 0
	opts := brokers.Options{ID: o.id, Version: version, Release: version, Endpoints: []kafka.Endpoint{endpointOf(ln.Addr())},
		Logs: &brokers.LogOptions{}, Groups: &group}
	br, err := brokers.New(opts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Node = brokers.NewNode(br, brokers.World{Store: sessionStore{b.store}, Process: &bareProcess{}, Leaders: o.leaders})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = b.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })

	b.port, err = brokerport.New(brokerport.Options{Node: b.Node, Settings: o.settings, Store: sessionStore{b.store}, TopicID: func() kafka.TopicID { return kafka.TopicID{9, 9} },
		ClusterID: func(context.Context) string { return clusterID }})
	if err != nil {
		t.Fatal(err)
	}
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
func (b *broker) lead(t testing.TB, topics ...topic) {
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
		}
	}
	b.control(t, um)
	b.control(t, li)
}

func (b *broker) control(t testing.TB, r control.Request) {
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
