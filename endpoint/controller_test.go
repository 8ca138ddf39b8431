package endpoint_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/wire"
)

const controllerID kafka.BrokerID = 9999

// worldLoop is the real controller, its ZooKeeper and its brokers on one
// goroutine, which carries everything out after each event.
type worldLoop struct {
	world *sim.World
	in    chan events.Event
}

func (l worldLoop) Put(ev events.Event) { l.in <- ev }

// do runs f on the world's goroutine, then settles what it began.
func (l worldLoop) do(f func()) {
	done := make(chan struct{})
	l.in <- events.Inspect{Look: func() { f(); close(done) }}
	<-done
}

// serveWorld puts a controller over three brokers on a real port.
func serveWorld(t *testing.T) (worldLoop, *kadm.Client, string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	self := kafka.Broker{ID: controllerID, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: int32(ln.Addr().(*net.TCPAddr).Port)}}}
	w, err := sim.NewWorld(1, controller.Options{Self: &self, Version: kafka.V3_9IV0, DeleteTopics: true, DefaultPartitions: 1, DefaultReplication: 1})
	if err != nil {
		t.Fatal(err)
	}
	for id := range kafka.BrokerID(3) {
		if err := w.Start(id+1, nil); err != nil {
			t.Fatal(err)
		}
	}
	l := worldLoop{w, make(chan events.Event, 1000)}
	c := w.Candidate(controllerID)
	c.Put(events.Startup{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev := range l.in {
			c.Put(ev)
			if err := w.Settle(); err != nil {
				t.Error(err)
			}
		}
	}()
	e := endpoint.Serve(ln, endpoint.Options{ID: controllerID, Listener: "PLAINTEXT", Loop: l})
	t.Cleanup(func() {
		e.Close()
		close(l.in)
		<-done
		if v := w.Violations(); len(v) > 0 {
			t.Errorf("invariants broken: %v", v)
		}
	})
	l.do(func() {})
	cl, err := kgo.NewClient(kgo.SeedBrokers(ln.Addr().String()), kgo.MetadataMinAge(10*time.Millisecond), kgo.RetryTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return l, kadm.NewClient(cl), ln.Addr().String()
}

// An operator's day against the real controller.
func TestControllerBehindTheEndpoint(t *testing.T) {
	l, adm, addr := serveWorld(t)
	ctx := t.Context()
	m, err := adm.BrokerMetadata(ctx)
	if err != nil || m.Controller != int32(controllerID) || len(m.Brokers) != 4 {
		t.Fatalf("metadata %+v, %v", m, err)
	}

	made, err := adm.CreateTopics(ctx, 4, 3, nil, "orders", "or.ders", "or_ders")
	if err != nil {
		t.Fatal(err)
	}
	if r := made["orders"]; r.Err != nil || r.NumPartitions != 4 || r.ReplicationFactor != 3 || r.ID == (kadm.TopicID{}) {
		t.Errorf("orders: %+v", r)
	}
	if _, err := adm.CreateTopic(ctx, 1, 4, nil, "wide"); !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Errorf("more replicas than brokers, of which the controller is none: %v", err)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, map[string]*string{"no.such": kadm.StringPtr("1")}, "strange"); !errors.Is(err, kerr.InvalidConfig) {
		t.Errorf("unknown configuration: %v", err)
	}
	topics, err := adm.ListTopics(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range topics["orders"].Partitions {
		if p.Err != nil || p.Leader < 1 || p.Leader != p.Replicas[0] || len(p.Replicas) != 3 || len(p.ISR) != 3 || slices.Contains(p.Replicas, int32(controllerID)) {
			t.Errorf("%+v", p)
		}
	}
	if r, err := adm.CreatePartitions(ctx, 2, "orders"); err != nil || r.Error() != nil {
		t.Errorf("more partitions: %+v, %v", r, err)
	}

	// A preferred leader dies and comes back; the election gives it its place again.
	first := kafka.BrokerID(topics["orders"].Partitions[0].Leader)
	l.do(func() { l.world.Kill(first) })
	if row := metadataOf(t, addr, "orders"); row.Partitions[0].Leader == int32(first) || row.Partitions[0].Leader < 1 || !slices.Equal(row.Partitions[0].OfflineReplicas, []int32{int32(first)}) {
		t.Errorf("after the leader's death: %+v", row)
	}
	set := kadm.TopicsSet{}
	set.Add("orders", 0)
	if r, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil || !errors.Is(r["orders"][0].Err, kerr.PreferredLeaderNotAvailable) {
		t.Errorf("a dead preferred leader: %+v, %v", r, err)
	}
	l.do(func() {
		if err := l.world.Start(first, nil); err != nil {
			t.Error(err)
		}
	})

	gone, err := adm.DeleteTopics(ctx, "orders", "none")
	if err != nil || gone["orders"].Err != nil || !errors.Is(gone["none"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("deleted %+v, %v", gone, err)
	}
	if row := metadataOf(t, addr, "orders"); row.ErrorCode != int16(kafka.UnknownTopicOrPartition) {
		t.Errorf("after the deletion: %+v", row)
	}
}

// Moves and ISR changes by id, as brokers and tools ask for them.
func TestControllerMovesAndISR(t *testing.T) {
	l, adm, addr := serveWorld(t)
	ctx := t.Context()
	if _, err := adm.CreateTopic(ctx, 1, 2, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	topics, err := adm.ListTopics(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	p := topics["orders"].Partitions[0]
	spare := int32(6 - p.Replicas[0] - p.Replicas[1])

	// The target does not catch up, so the move stays in progress until it is cancelled.
	l.do(func() { l.world.Lagging[kafka.BrokerID(spare)] = true })
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign("orders", 0, []int32{spare, p.Replicas[0]})
	req.Assign("none", 0, []int32{1})
	got, err := adm.AlterPartitionAssignments(ctx, req)
	if err != nil || got["orders"][0].Err != nil || !errors.Is(got["none"][0].Err, kerr.UnknownTopicOrPartition) {
		t.Fatalf("%+v, %v", got, err)
	}
	all := kadm.TopicsSet{}
	all.Add("orders", 0)
	moving, err := adm.ListPartitionReassignments(ctx, all)
	if r := moving["orders"][0]; err != nil || !slices.Equal(r.AddingReplicas, []int32{spare}) || !slices.Equal(r.RemovingReplicas, []int32{p.Replicas[1]}) {
		t.Errorf("%+v, %v", moving, err)
	}
	req = kadm.AlterPartitionAssignmentsReq{}
	req.Assign("orders", 0, []int32{int32(controllerID)})
	if got, err := adm.AlterPartitionAssignments(ctx, req); err != nil || !errors.Is(got["orders"][0].Err, kerr.InvalidReplicaAssignment) {
		t.Errorf("a move to the controller itself: %+v, %v", got, err)
	}
	req = kadm.AlterPartitionAssignmentsReq{}
	req.CancelAssign("orders", 0)
	if got, err := adm.AlterPartitionAssignments(ctx, req); err != nil || got.Error() != nil {
		t.Errorf("cancel: %+v, %v", got, err)
	}
	if moving, err := adm.ListPartitionReassignments(ctx, all); err != nil || len(moving) != 0 {
		t.Errorf("after the cancel: %+v, %v", moving, err)
	}

	// The leader takes its follower out of the ISR.
	var epoch int64
	var state kafka.LeaderAndISR
	l.do(func() {
		s := l.world.Candidate(controllerID).Controller().State()
		state = s.Partition(kafka.TopicPartition{Topic: "orders"}).Leadership.LeaderAndISR
		b, _ := s.Broker(state.Leader)
		epoch = b.Epoch
	})
	alter := kmsg.NewPtrAlterPartitionRequest()
	alter.Version, alter.BrokerID, alter.BrokerEpoch = 3, int32(state.Leader), epoch
	part := kmsg.NewAlterPartitionRequestTopicPartition()
	part.LeaderEpoch, part.PartitionEpoch = state.LeaderEpoch, state.ZKVersion
	part.NewEpochISR = []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{{BrokerID: int32(state.Leader), BrokerEpoch: -1}}
	alter.Topics = []kmsg.AlterPartitionRequestTopic{{TopicID: topics["orders"].ID, Partitions: []kmsg.AlterPartitionRequestTopicPartition{part}}}
	resp := request[*kmsg.AlterPartitionResponse](t, addr, alter)
	if r := resp.Topics[0].Partitions[0]; resp.ErrorCode != 0 || r.ErrorCode != 0 || !slices.Equal(r.ISR, []int32{int32(state.Leader)}) || r.PartitionEpoch != state.ZKVersion+1 {
		t.Errorf("alter partition: %+v", resp)
	}
	alter.Topics[0].Partitions[0].PartitionEpoch-- // an older one than the stored
	alter.Topics[0].Partitions[0].NewEpochISR[0].BrokerID = p.Replicas[1]
	if resp := request[*kmsg.AlterPartitionResponse](t, addr, alter); resp.Topics[0].Partitions[0].ErrorCode != int16(kafka.InvalidUpdateVersion) {
		t.Errorf("alter partition with an old version: %+v", resp)
	}

	shutdown := kmsg.NewPtrControlledShutdownRequest()
	shutdown.Version, shutdown.BrokerID, shutdown.BrokerEpoch = 3, int32(state.Leader), epoch
	if resp := request[*kmsg.ControlledShutdownResponse](t, addr, shutdown); resp.ErrorCode != 0 || len(resp.PartitionsRemaining) != 1 {
		t.Errorf("the only member of an ISR shuts down: %+v", resp)
	}
	alloc := kmsg.NewPtrAllocateProducerIDsRequest()
	alloc.BrokerID, alloc.BrokerEpoch = int32(state.Leader), epoch
	if resp := request[*kmsg.AllocateProducerIDsResponse](t, addr, alloc); resp.ErrorCode != 0 || resp.ProducerIDLen != 1000 {
		t.Errorf("producer ids: %+v", resp)
	}
}

// metadataOf asks anew; kadm may answer from what it was told a moment ago.
func metadataOf(t *testing.T, addr, topic string) kmsg.MetadataResponseTopic {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 12, []kmsg.MetadataRequestTopic{{Topic: &topic}}
	return request[*kmsg.MetadataResponse](t, addr, req).Topics[0]
}

func request[R kmsg.Response](t *testing.T, addr string, req kmsg.Request) R {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := wire.Dial(ctx, addr, wire.DialOptions{ClientID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resp, err := c.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}
