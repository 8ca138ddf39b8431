package brokers_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/isrnotify"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// realSite is a broker's world on an Apache ZooKeeper. The session can be
// changed for another without ending the first.
type realSite struct {
	session atomic.Pointer[zkstore.Session]
	node    *brokers.Node
	done    chan error
}

func (s *realSite) Listen(bool) error  { return nil }
func (s *realSite) OpenSession() error { return nil }
func (s *realSite) CloseSession()      { s.session.Load().Close(context.Background()) }
func (s *realSite) AbandonSession()    {}
func (s *realSite) ExpireSession()     {}
func (s *realSite) Session() int64     { return s.session.Load().ID() }

func (s *realSite) Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error) {
	return s.session.Load().Read(ctx, reads)
}

func (s *realSite) Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	return s.session.Load().Write(ctx, fence, writes)
}

func (s *realSite) Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	return s.session.Load().Transact(ctx, writes)
}

func dial(t *testing.T, addr string) *zkstore.Session {
	t.Helper()
	s, err := zkstore.Dial(t.Context(), zkstore.Options{Servers: []string{addr}, SessionTimeout: 6 * time.Second}, func(zkpaths.Notice) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func startReal(t *testing.T, addr string, opts brokers.Options) *realSite {
	t.Helper()
	s := &realSite{done: make(chan error, 1)}
	s.session.Store(dial(t, addr))
	h := brokers.NewHost(nil)
	var err error
	if s.node, err = h.Add(opts, brokers.World{Store: s, Process: s}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { s.done <- h.Run(ctx) }()
	t.Cleanup(cancel)
	return s
}

func read(t *testing.T, s *zkstore.Session, path string) zkpaths.Node {
	t.Helper()
	nodes, err := s.Read(t.Context(), []zkpaths.Read{{Op: zkpaths.GetData, Path: path}})
	if err != nil {
		t.Fatal(err)
	}
	return nodes[0]
}

// eventually waits on state: each look is a round trip, so it does not spin.
func eventually(t *testing.T, what string, look func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !look(); {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// TestApacheZooKeeper plays registration and a direct ISR write on the real
// server: transaction, czxid as broker epoch, conflict, data versions, the name
// of the first announcement, our own elder session.
func TestApacheZooKeeper(t *testing.T) {
	server := real.ZooKeeper(t)
	look := dial(t, server.Addr())
	opts := brokers.Options{ID: 1, Version: kafka.V2_6IV0, ReplicaLagTimeMax: 600 * time.Millisecond, RegisterAttempts: 2, RegisterRetry: time.Millisecond,
		Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}}}
	opts.ControlledShutdown.Disabled = true
	opts.Announcements = isrnotify.Options{CheckPeriod: 50 * time.Millisecond, Linger: 100 * time.Millisecond}
	first := startReal(t, server.Addr(), opts)
	status := func(s *realSite) *brokers.Snapshot {
		resp, err := s.node.Fault(t.Context(), brokers.FaultRequest{Broker: 1, Op: "status"})
		if err != nil {
			t.Fatal(err)
		}
		return resp.State
	}
	eventually(t, "registration", func() bool { return status(first).Registered })
	n := read(t, look, zkpaths.BrokerPath(1))
	if n.Stat.Version != 1 || n.Stat.Czxid != n.Stat.Mzxid || n.Stat.Czxid != status(first).BrokerEpoch || n.Stat.EphemeralOwner != first.Session() {
		t.Fatalf("registered as %+v, broker epoch %d", n, status(first).BrokerEpoch)
	}

	second := startReal(t, server.Addr(), opts)
	var conflict *brokers.ConflictError
	if err := <-second.done; !errors.As(err, &conflict) || conflict.Owner != first.Session() || conflict.Czxid != n.Stat.Czxid {
		t.Fatalf("a second process ended with %v", err)
	}
	taken := opts
	taken.ID = 2
	var address *brokers.EndpointTakenError
	if err := <-startReal(t, server.Addr(), taken).done; !errors.As(err, &address) || address.Other != 1 {
		t.Fatalf("a broker with the same address ended with %v", err)
	}

	tp := kafka.TopicPartition{Topic: "t"}
	writeState(t, look, tp)
	h := control.Header{ControllerEpoch: 4, BrokerEpoch: n.Stat.Czxid}
	state := kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 1, LeaderEpoch: 5, ISR: []kafka.BrokerID{1, 2}}, ControllerEpoch: 4}
	for _, r := range []control.Request{
		&control.UpdateMetadataRequest{Header: h, Metadata: &control.Metadata{}},
		&control.LeaderAndISRRequest{Header: h, Partitions: []*control.PartitionState{{TopicPartition: tp, Leadership: state,
			ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1, 2}}}}},
	} {
		if resp, err := first.node.HandleControl(t.Context(), r); err != nil || resp.Error != kafka.NoError {
			t.Fatal(resp.Error, err)
		}
	}
	eventually(t, "shrink and announcement", func() bool {
		n := read(t, look, zkpaths.PartitionStatePath(tp))
		l, err := zkpaths.DecodePartitionState(tp, n.Data, n.Stat.Version)
		return err == nil && l.ZKVersion == 1 && slices.Equal(l.ISR, []kafka.BrokerID{1}) && l.LeaderEpoch == 5
	})
	eventually(t, "announcement", func() bool {
		n := read(t, look, zkpaths.ISRNotificationPath("isr_change_0000000000"))
		tps, err := zkpaths.DecodeISRNotification("", n.Data)
		return err == nil && slices.Equal(tps, []kafka.TopicPartition{tp})
	})
	// Field case R-111: the client gave its session up, the server has not yet.
	elder := first.session.Load()
	first.session.Store(dial(t, server.Addr()))
	first.node.Post(brokers.SessionExpired{})
	first.node.Post(brokers.SessionEstablished{})
	eventually(t, "registration in the new session", func() bool { return read(t, look, zkpaths.BrokerPath(1)).Stat.EphemeralOwner == first.Session() })
	elder.Close(t.Context())
	again := read(t, look, zkpaths.BrokerPath(1))
	if again.Code != zkpaths.OK || again.Stat.Czxid <= n.Stat.Czxid || again.Stat.Version != 1 {
		t.Fatalf("after the elder session's end: %+v", again)
	}
	eventually(t, "the new broker epoch", func() bool { return status(first).BrokerEpoch == again.Stat.Czxid })

	first.node.Stop()
	if err := <-first.done; err != nil {
		t.Fatal(err)
	}
	eventually(t, "the registration is gone", func() bool { return read(t, look, zkpaths.BrokerPath(1)).Code == zkpaths.NoNode })
}

func writeState(t *testing.T, s *zkstore.Session, tp kafka.TopicPartition) {
	t.Helper()
	l := kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 1, LeaderEpoch: 5, ISR: []kafka.BrokerID{1, 2}}, ControllerEpoch: 4}
	out, err := s.Write(t.Context(), zkpaths.Unfenced, []zkpaths.Write{
		{Op: zkpaths.Create, Path: zkpaths.TopicPath(tp.Topic)}, {Op: zkpaths.Create, Path: zkpaths.PartitionsPath(tp.Topic)},
		{Op: zkpaths.Create, Path: zkpaths.PartitionPath(tp)}, {Op: zkpaths.Create, Path: zkpaths.PartitionStatePath(tp), Data: zkpaths.EncodePartitionState(l)}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range out {
		if !o.OK() {
			t.Fatal(o)
		}
	}
}
