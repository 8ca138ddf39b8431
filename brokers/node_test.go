package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// cluster is a ZooKeeper that several goroutines may use, and what brokers need around them.
type cluster struct {
	mu         sync.Mutex
	zk         *sim.ZooKeeper
	host       *brokers.Host
	done       chan error
	controller int64         // session of the controller
	gate       chan struct{} // if set, writes wait until it is closed
	altered    []int         // partitions of each AlterPartition request
}

// site is the world of one broker: brokers.Store, Process and ControllerClient.
type site struct {
	c     *cluster
	store *sim.Store
	node  *brokers.Node
	port  bool
}

func (s *site) Read(ctx context.Context, r []zkpaths.Read) ([]zkpaths.Node, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.store.Read(ctx, r)
}

func (s *site) Write(ctx context.Context, fence int32, w []zkpaths.Write) ([]zkpaths.Outcome, error) {
	s.c.mu.Lock()
	gate := s.c.gate
	s.c.mu.Unlock()
	if gate != nil {
		<-gate
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.store.Write(ctx, fence, w)
}

func (s *site) Transact(ctx context.Context, w []zkpaths.Write) ([]zkpaths.Outcome, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.store.Transact(ctx, w)
}

func (s *site) Session() int64 {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.store.Session()
}

func (s *site) Listen(open bool) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.port = open
	return nil
}

func (s *site) OpenSession() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.store.Reconnect()
	return nil
}

func (s *site) CloseSession() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.zk.EndSession(s.store.Session())
}

func (s *site) AbandonSession() {}

func (s *site) ExpireSession() {
	s.CloseSession()
	s.node.Post(brokers.SessionExpired{})
	_ = s.OpenSession()
	s.node.Post(brokers.SessionEstablished{})
}

// AlterPartition is a controller that writes what it is asked, as a real one does.
func (s *site) AlterPartition(_ context.Context, to kafka.Broker, r *brokers.AlterPartitionRequest) (brokers.AlterPartitionAnswer, error) {
	if to.ID != 9 && to.ID != fleetController {
		return brokers.AlterPartitionAnswer{}, errors.New("connection refused")
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.altered = append(s.c.altered, len(r.Partitions))
	a := brokers.AlterPartitionAnswer{Partitions: map[kafka.TopicPartition]brokers.AlterPartitionResult{}}
	for _, p := range r.Partitions {
		l := kafka.LeaderAndISR{Leader: r.Broker, LeaderEpoch: p.LeaderEpoch, ISR: p.ISR, ZKVersion: p.PartitionEpoch + 1}
		res := s.c.zk.Write(s.c.controller, zkserver.Op{Kind: zkserver.OpSet, Path: zkpaths.PartitionStatePath(p.Partition), Version: p.PartitionEpoch,
			Data: zkpaths.EncodePartitionState(kafka.Leadership{LeaderAndISR: l, ControllerEpoch: 4})})
		result := brokers.AlterPartitionResult{LeaderAndISR: l}
		if res.Code != zkserver.OK {
			result = brokers.AlterPartitionResult{Error: kafka.InvalidUpdateVersion}
		}
		a.Partitions[p.Partition] = result
	}
	return a, nil
}

func (s *site) ControlledShutdown(context.Context, kafka.Broker, kafka.BrokerID, int64) (kafka.ErrorCode, []kafka.TopicPartition, error) {
	return kafka.NoError, nil, nil
}

// newCluster starts brokers 1 to 3 of a version, all of whom follow broker 1 in t-0.
func newCluster(t *testing.T, version kafka.ProtocolVersion) *cluster {
	return newClusterWith(t, version, nil, nil)
}

// newClusterWith is newCluster, with logs.
func newClusterWith(t *testing.T, version kafka.ProtocolVersion, o *brokers.LogOptions, logs logrus.FieldLogger) *cluster {
	return newClusterOf(t, func(b *brokers.Options) { b.Version, b.Logs = version, logsOf(o, b.ID) }, logs)
}

func newClusterOf(t *testing.T, set func(*brokers.Options), logs logrus.FieldLogger) *cluster {
	c := &cluster{zk: sim.NewZooKeeper(), host: brokers.NewHost(logs), done: make(chan error, 1)}
	c.controller = c.zk.NewSession()
	state := kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 1, LeaderEpoch: 5, ISR: []kafka.BrokerID{1, 2, 3}}, ControllerEpoch: 4}
	tp := kafka.TopicPartition{Topic: "t"}
	if err := c.zk.Seed(zkserver.Saved{Path: zkpaths.PartitionStatePath(tp), Data: zkpaths.EncodePartitionState(state)}); err != nil {
		t.Fatal(err)
	}
	for id := kafka.BrokerID(1); id <= 3; id++ {
		s := &site{c: c, store: sim.NewStore(c.zk, func(zkpaths.Notice) {})}
		opts := brokers.Options{ID: id, CatchUp: time.Second, ReplicaLagTimeMax: 10 * time.Second,
			Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: int32(id)}}}
		set(&opts)
		var err error
		if s.node, err = c.host.Add(opts, brokers.World{Store: s, Controller: s, Process: s}); err != nil {
			t.Fatal(err)
		}
	}
	go func() { c.done <- c.host.Run(t.Context()) }()
	live := []kafka.Broker{{ID: 9, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9}}}}
	for id := kafka.BrokerID(1); id <= 3; id++ {
		live = append(live, kafka.Broker{ID: id})
	}
	for _, n := range c.host.Nodes() {
		c.announce(t, n, live, state)
	}
	return c
}

// logsOf gives each broker folders of its own.
func logsOf(o *brokers.LogOptions, id kafka.BrokerID) *brokers.LogOptions {
	if o == nil {
		return nil
	}
	own := *o
	own.Dirs = nil
	for _, d := range o.Dirs {
		own.Dirs = append(own.Dirs, filepath.Join(d, fmt.Sprint(id)))
	}
	return &own
}

// lead gives the leadership of t-0 to a broker in a leader epoch, and tells all
// that are up.
func (c *cluster) lead(t *testing.T, leader kafka.BrokerID, epoch int32, isr ...kafka.BrokerID) {
	t.Helper()
	c.mu.Lock()
	path := zkpaths.PartitionStatePath(t0)
	_, stat, _ := c.zk.Tree.GetData(zkserver.Who{}, path)
	state := kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: leader, LeaderEpoch: epoch, ISR: isr, ZKVersion: stat.Version + 1}, ControllerEpoch: 4}
	c.zk.Write(c.controller, zkserver.Op{Kind: zkserver.OpSet, Path: path, Data: zkpaths.EncodePartitionState(state), Version: -1})
	c.mu.Unlock()
	live := []kafka.Broker{{ID: 9, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9}}}}
	var up []*brokers.Node
	for _, n := range c.host.Nodes() {
		if c.fault(t, brokers.FaultRequest{Broker: n.ID(), Op: "status"}).State.Phase == "running" {
			up = append(up, n)
			live = append(live, kafka.Broker{ID: n.ID()})
		}
	}
	for _, n := range up {
		c.announce(t, n, live, state)
	}
}

func (c *cluster) announce(t *testing.T, n *brokers.Node, live []kafka.Broker, state kafka.Leadership) {
	t.Helper()
	h := control.Header{ControllerID: 9, ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}
	s := &control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: "t"}, Leadership: state,
		ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1, 2, 3}}}
	for _, r := range []control.Request{
		&control.UpdateMetadataRequest{Header: h, Metadata: &control.Metadata{LiveBrokers: live, Partitions: []*control.PartitionState{s}}},
		&control.LeaderAndISRRequest{Header: h, Partitions: []*control.PartitionState{s}},
	} {
		resp, err := n.HandleControl(t.Context(), r)
		if err != nil || resp.Error != kafka.NoError {
			t.Fatalf("broker %d: %s: %v %v", n.ID(), r.Kind(), resp.Error, err)
		}
	}
}

func (c *cluster) isr(t *testing.T) []kafka.BrokerID {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	tp := kafka.TopicPartition{Topic: "t"}
	data, stat, code := c.zk.Tree.GetData(zkserver.Who{}, zkpaths.PartitionStatePath(tp))
	l, err := zkpaths.DecodePartitionState(tp, data, stat.Version)
	if code != zkserver.OK || err != nil {
		t.Fatal(code, err)
	}
	return l.ISR
}

func (c *cluster) fault(t *testing.T, r brokers.FaultRequest) brokers.FaultResponse {
	t.Helper()
	resp, err := c.host.Fault(t.Context(), r)
	if err != nil || resp.Error != "" {
		t.Fatal(resp.Error, err)
	}
	return resp
}

func (c *cluster) children(path string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names, _, _ := c.zk.Tree.GetChildren(zkserver.Who{}, path)
	return names
}

// TestHost runs three brokers with real goroutines under a virtual clock, in
// both ways of changing an ISR.
func TestHost(t *testing.T) {
	for _, version := range []kafka.ProtocolVersion{kafka.V2_6IV0, kafka.V3_9IV0} {
		t.Run(version.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { story3(t, version) })
		})
	}
}

func story3(t *testing.T, version kafka.ProtocolVersion) {
	c := newCluster(t, version)
	want := func(what string, after time.Duration, isr ...kafka.BrokerID) {
		t.Helper()
		time.Sleep(after)
		synctest.Wait()
		if got := c.isr(t); !slices.Equal(got, isr) {
			t.Fatalf("%s: ISR %v, want %v", what, got, isr)
		}
	}
	want("quiet", time.Minute, 1, 2, 3)
	c.fault(t, brokers.FaultRequest{Broker: 2, Op: "pause"})
	want("2 paused for less than the lag", 9*time.Second, 1, 2, 3)
	want("2 paused", 7*time.Second, 1, 3)
	c.fault(t, brokers.FaultRequest{Broker: 2, Op: "resume"})
	want("2 back", 2*time.Second, 1, 3, 2)

	before := c.fault(t, brokers.FaultRequest{Broker: 1, Op: "status"}).State
	c.fault(t, brokers.FaultRequest{Broker: 1, Op: "expire-session"})
	synctest.Wait()
	after := c.fault(t, brokers.FaultRequest{Broker: 1, Op: "status"}).State
	if after.BrokerEpoch <= before.BrokerEpoch || !after.Registered || fmt.Sprint(after.Partitions) != fmt.Sprint(before.Partitions) {
		t.Fatalf("after expiry:\n%+v\nbefore:\n%+v", after, before)
	}

	c.fault(t, brokers.FaultRequest{Broker: 3, Op: "kill"})
	if got := c.children(zkpaths.BrokerIDs); !slices.Equal(got, []string{"1", "2"}) {
		t.Fatalf("registered: %v", got)
	}
	r := &control.StopReplicaRequest{Header: control.Header{ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}}
	if _, err := c.host.Node(3).HandleControl(t.Context(), r); !errors.Is(err, brokers.ErrDown) {
		t.Fatalf("a dead broker answers %v", err)
	}
	want("3 killed", 16*time.Second, 1, 2)
	c.fault(t, brokers.FaultRequest{Broker: 3, Op: "restart"})
	synctest.Wait()
	if _, err := c.host.Node(3).HandleControl(t.Context(), r); err != nil {
		t.Fatalf("a restarted broker answers %v", err)
	}

	announced := len(c.children(zkpaths.ISRNotifications))
	if direct := version.Less(kafka.V2_7IV2); direct != (announced > 0) {
		t.Fatalf("%d announcements", announced)
	}
	c.host.Stop()
	if err := <-c.done; err != nil {
		t.Fatal(err)
	}
	if got := c.children(zkpaths.BrokerIDs); len(got) != 0 {
		t.Fatalf("still registered: %v", got)
	}
}

// TestHangingBroker: a request waits until its sender gives up or the broker goes on or dies.
func TestHangingBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, kafka.V2_6IV0)
		c.fault(t, brokers.FaultRequest{Broker: 2, Op: "hang"})
		r := &control.StopReplicaRequest{Header: control.Header{ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := c.host.Node(2).HandleControl(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		answers := make(chan error, 1)
		ask := func() {
			_, err := c.host.Node(2).HandleControl(t.Context(), r)
			answers <- err
		}
		go ask()
		synctest.Wait()
		c.fault(t, brokers.FaultRequest{Broker: 2, Op: "unhang"})
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
		c.fault(t, brokers.FaultRequest{Broker: 2, Op: "hang"})
		go ask()
		synctest.Wait()
		c.fault(t, brokers.FaultRequest{Broker: 2, Op: "crash"})
		if err := <-answers; !errors.Is(err, brokers.ErrDown) {
			t.Fatalf("got %v", err)
		}
	})
}

// TestStuckZooKeeper: while an ISR write waits for ZooKeeper, control requests
// are answered; the write's late answer counts.
func TestStuckZooKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, kafka.V2_6IV0)
		gate := make(chan struct{})
		c.mu.Lock()
		c.gate = gate
		c.mu.Unlock()
		c.fault(t, brokers.FaultRequest{Broker: 2, Op: "pause"})
		time.Sleep(16 * time.Second)
		synctest.Wait()
		s := c.fault(t, brokers.FaultRequest{Broker: 1, Op: "status"}).State
		if s.Partitions[0].Pending != "PendingShrink" {
			t.Fatalf("want a shrink in flight: %+v", s)
		}
		r := &control.StopReplicaRequest{Header: control.Header{ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}}
		if _, err := c.host.Node(1).HandleControl(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		close(gate)
		synctest.Wait()
		if got := c.isr(t); !slices.Equal(got, []kafka.BrokerID{1, 3}) {
			t.Fatalf("ISR %v", got)
		}
		s = c.fault(t, brokers.FaultRequest{Broker: 1, Op: "status"}).State
		if s.Partitions[0].Pending != "" || len(s.Unannounced) != 1 {
			t.Fatalf("the answer did not count: %+v", s)
		}
		c.host.Stop()
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
	})
}

// TestDeadProcessWritesNothing: what a process left waiting for ZooKeeper when
// it was killed is not carried out by the one that is started after it.
func TestDeadProcessWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, kafka.V2_6IV0)
		gate := make(chan struct{})
		c.mu.Lock()
		c.gate = gate
		c.mu.Unlock()
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "fail-log-dir", Partitions: []string{"x-0"}}) // its announcement is stuck,
		c.fault(t, brokers.FaultRequest{Broker: 2, Op: "pause"})
		time.Sleep(16 * time.Second) // and the write of a smaller ISR waits behind it
		synctest.Wait()
		if s := c.fault(t, brokers.FaultRequest{Broker: 1, Op: "status"}).State; s.Partitions[0].Pending != "PendingShrink" {
			t.Fatalf("want a shrink in flight: %+v", s)
		}
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "kill"})
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "restart"})
		close(gate)
		synctest.Wait()
		if got := c.isr(t); !slices.Equal(got, []kafka.BrokerID{1, 2, 3}) {
			t.Fatalf("ISR %v, written by a process that was dead", got)
		}
		if got := c.children(zkpaths.BrokerIDs); !slices.Contains(got, "1") {
			t.Fatalf("registered: %v", got)
		}
		c.host.Stop()
		if err := <-c.done; err != nil {
			t.Fatal(err)
		}
	})
}
