package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// faraway is a LeaderClient to brokers that are in this process, but shall not
// know it.
type faraway struct {
	nodes map[kafka.BrokerID]*brokers.Node
}

var errNobody = errors.New("connection refused")

func call[T any](ctx context.Context, f faraway, leader kafka.Broker, ask func(n *brokers.Node, reply func(T))) (T, error) {
	var none T
	n := f.nodes[leader.ID]
	if n == nil {
		return none, errNobody
	}
	answer, ended := make(chan T, 1), n.Ended()
	ask(n, func(r T) { answer <- r })
	select {
	case r := <-answer:
		return r, nil
	case <-ended:
		return none, errNobody
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

func (f faraway) Fetch(ctx context.Context, leader kafka.Broker, r *brokers.FetchRequest) ([]brokers.FetchResult, error) {
	return call(ctx, f, leader, func(n *brokers.Node, reply func([]brokers.FetchResult)) { n.Fetch(r, reply) })
}

func (f faraway) EpochEnds(ctx context.Context, leader kafka.Broker, q []brokers.EpochQuery) ([]brokers.EpochAnswer, error) {
	return call(ctx, f, leader, func(n *brokers.Node, reply func([]brokers.EpochAnswer)) { n.EpochEnds(q, 0, reply) })
}

func (f faraway) ListOffsets(ctx context.Context, leader kafka.Broker, q []brokers.OffsetQuery) ([]brokers.OffsetAnswer, error) {
	return call(ctx, f, leader, func(n *brokers.Node, reply func([]brokers.OffsetAnswer)) { n.ListOffsets(q, 0, false, reply) })
}

// separate is newClusterWith, but for each broker a Host of its own: followers
// reach leaders through a LeaderClient.
func separate(t *testing.T, version kafka.ProtocolVersion) (c *cluster, nodes map[kafka.BrokerID]*brokers.Node, stop func()) {
	c = &cluster{zk: sim.NewZooKeeper()}
	c.controller = c.zk.NewSession()
	state := kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 1, LeaderEpoch: 5, ISR: []kafka.BrokerID{1, 2, 3}}, ControllerEpoch: 4}
	if err := c.zk.Seed(zkserver.Saved{Path: zkpaths.PartitionStatePath(t0), Data: zkpaths.EncodePartitionState(state)}); err != nil {
		t.Fatal(err)
	}
	nodes = map[kafka.BrokerID]*brokers.Node{}
	live := []kafka.Broker{{ID: 9, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9}}}}
	var all sync.WaitGroup
	var hosts []*brokers.Host
	for id := kafka.BrokerID(1); id <= 3; id++ {
		s := &site{c: c, store: sim.NewStore(c.zk, func(zkpaths.Notice) {})}
		e := []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: int32(id)}}
		h := brokers.NewHost(nil)
		node, err := h.Add(brokers.Options{ID: id, Version: version, ReplicaLagTimeMax: 10 * time.Second, Logs: &brokers.LogOptions{}, Endpoints: e},
			brokers.World{Store: s, Controller: s, Process: s, Leaders: faraway{nodes}})
		if err != nil {
			t.Fatal(err)
		}
		s.node, nodes[id] = node, node
		live = append(live, kafka.Broker{ID: id, Endpoints: e})
		hosts = append(hosts, h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	for _, h := range hosts {
		all.Go(func() { _ = h.Run(ctx) })
	}
	for _, n := range nodes {
		c.announce(t, n, live, state)
	}
	return c, nodes, func() { cancel(); all.Wait() }
}

// TestNearAndFar: whether followers reach a leader in their own process or over
// the wire, the same happens at the same time: fetches that wait without waking
// show in nothing.
func TestNearAndFar(t *testing.T) {
	for seed := range uint64(12) {
		var stories [2]string
		for i, near := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) { stories[i] = peerStory(t, seed, near) })
		}
		if stories[0] != stories[1] {
			t.Fatalf("seed %d: near\n%s\nfar\n%s", seed, stories[0], stories[1])
		}
	}
}

// peerStory appends, pauses and resumes at times that the seed chooses, and tells
// each second what can be seen. Times are kept off the grid of fetches, so that
// nothing depends on who is first within a millisecond.
func peerStory(t *testing.T, seed uint64, near bool) string {
	version := []kafka.ProtocolVersion{kafka.V2_6IV0, kafka.V3_9IV0}[seed%2]
	var c *cluster
	var nodes map[kafka.BrokerID]*brokers.Node
	var stop func()
	if near {
		c = newClusterWith(t, version, &brokers.LogOptions{}, nil)
		nodes = map[kafka.BrokerID]*brokers.Node{1: c.host.Node(1), 2: c.host.Node(2), 3: c.host.Node(3)}
		stop = func() { c.host.Stop(); <-c.done }
	} else {
		c, nodes, stop = separate(t, version)
	}
	r := rand.New(rand.NewPCG(seed, 5))
	var out strings.Builder
	begin := time.Now()
	tell := func() {
		synctest.Wait()
		fmt.Fprintf(&out, "+%d %v", time.Since(begin).Milliseconds(), c.isr(t))
		for id := kafka.BrokerID(1); id <= 3; id++ {
			s, err := nodes[id].Fault(t.Context(), brokers.FaultRequest{Broker: id, Op: "status"})
			if err != nil {
				t.Fatal(err)
			}
			l := s.State.Partitions[0].Log
			fmt.Fprintf(&out, " %d/%d", l.HighWatermark, l.End)
		}
		out.WriteByte('\n')
	}
	for range 12 {
		time.Sleep(time.Duration(r.IntN(20_000)+1)*time.Millisecond + time.Duration(r.IntN(1000))*time.Microsecond)
		op := r.IntN(5)
		who := kafka.BrokerID(2 + r.IntN(2))
		switch op {
		case 0, 1, 2:
			nodes[1].Produce(producing(r.IntN(4)+1, brokers.AcksLeader), func([]brokers.ProduceResult) {})
		case 3:
			fault(t, nodes[who], "pause")
		case 4:
			fault(t, nodes[who], "resume")
		}
		for range 3 {
			tell()
			time.Sleep(311 * time.Millisecond)
		}
	}
	for _, id := range []kafka.BrokerID{2, 3} {
		fault(t, nodes[id], "resume")
		time.Sleep(3777 * time.Millisecond) // one after the other: who is first within an instant is nobody's promise
	}
	tell()
	if isr := c.isr(t); len(isr) != 3 || !slices.Contains(isr, 3) {
		t.Fatalf("seed %d: ISR %v in the end", seed, isr)
	}
	stop()
	return out.String()
}

func fault(t *testing.T, n *brokers.Node, op string) {
	t.Helper()
	if r, err := n.Fault(t.Context(), brokers.FaultRequest{Broker: n.ID(), Op: op}); err != nil || r.Error != "" {
		t.Fatal(r.Error, err)
	}
}
