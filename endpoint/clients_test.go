package endpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// serveSmall puts a cluster of three nodes on real ports: the controller and
// two that stand for brokers 1 and 2. Broker 3 is not alive.
func serveSmall(t testing.TB, prepare func(l *smallLoop)) (addr string, l *smallLoop, controller *Endpoint) {
	t.Helper()
	l = newSmallLoop()
	if prepare != nil {
		prepare(l)
	}
	l.start(t)
	brokers := []kafka.Broker{l.brokers[0], l.brokers[1], l.brokers[3]}
	configs, producers := newSmallConfigs(), new(smallProducers)
	for i := range brokers {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		controller = Serve(ln, Options{ID: brokers[i].ID, Listener: "PLAINTEXT", Loop: l, Configs: configs, Producers: producers})
		t.Cleanup(controller.Close)
		port := int32(ln.Addr().(*net.TCPAddr).Port)
		brokers[i].Endpoints = []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: port}}
	}
	l.do(func() { l.brokers = brokers })
	return controller.Addr().String(), l, controller
}

func admin(t testing.TB, addr string) *kadm.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MetadataMinAge(10*time.Millisecond), kgo.RetryTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}

func withVersion(req kmsg.Request, version int16) kmsg.Request {
	req.SetVersion(version)
	return req
}

func TestKadmTopics(t *testing.T) {
	addr, l, controller := serveSmall(t, nil)
	adm, ctx := admin(t, addr), t.Context()

	made, err := adm.CreateTopics(ctx, 2, 2, map[string]*string{"retention.ms": kadm.StringPtr("9")}, "orders", "bad/name")
	if err != nil {
		t.Fatal(err)
	}
	if r := made["orders"]; r.Err != nil || r.NumPartitions != 2 || r.ReplicationFactor != 2 || r.ID == (kadm.TopicID{}) {
		t.Errorf("orders: %+v", r)
	}
	if r := made["bad/name"]; !errors.Is(r.Err, kerr.InvalidTopicException) || r.ErrMessage == "" {
		t.Errorf("bad/name: %+v", r)
	}
	if r, err := adm.CreateTopic(ctx, 1, 1, nil, "orders"); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("again: %+v, %v", r, err)
	}

	topics, err := adm.ListTopics(ctx)
	if err != nil || len(topics) != 1 || len(topics["orders"].Partitions) != 2 || topics["orders"].ID != made["orders"].ID {
		t.Errorf("topics %+v, %v", topics, err)
	}
	if grown, err := adm.CreatePartitions(ctx, 3, "orders"); err != nil || grown.Error() != nil {
		t.Errorf("more partitions: %+v %v", grown, err)
	}
	orders, none := "orders", "none" // asked anew: kadm may answer from what it was told a moment ago
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = []kmsg.MetadataRequestTopic{{Topic: &orders}, {Topic: &none}}
	if m, err := controller.answer(ctx, withVersion(ask, 12)); err != nil || len(m.(*kmsg.MetadataResponse).Topics[0].Partitions) != 5 ||
		m.(*kmsg.MetadataResponse).Topics[1].ErrorCode != int16(kafka.UnknownTopicOrPartition) {
		t.Errorf("metadata %+v, %v", m, err)
	}

	l.do(func() { l.topics["orders"].parts[3].Leader = 2 })
	elected, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
	if err != nil || len(elected["orders"]) != 1 || elected["orders"][3].Err != nil {
		t.Errorf("elected %+v, %v", elected, err)
	}
	set := kadm.TopicsSet{}
	set.Add("orders", 0)
	if elected, err := adm.ElectLeaders(ctx, kadm.ElectLiveReplica, set); err != nil || !errors.Is(elected["orders"][0].Err, kerr.ElectionNotNeeded) {
		t.Errorf("elected %+v, %v", elected, err)
	}

	gone, err := adm.DeleteTopics(ctx, "orders", "none")
	if err != nil || gone["orders"].Err != nil || !errors.Is(gone["none"].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("deleted %+v, %v", gone, err)
	}
	var seen []string
	l.do(func() { seen = slices.Clone(l.seen) })
	want := []string{"CreateTopics", "CreateTopics", "CreatePartitions", "ReplicaLeaderElection", "ReplicaLeaderElection", "DeleteTopics"}
	if d := cmp.Diff(want, seen); d != "" {
		t.Errorf("events of the loop: %s", d)
	}
}

func TestKadmReassignments(t *testing.T) {
	addr, _, _ := serveSmall(t, func(l *smallLoop) {
		l.create(events.NewTopic{Name: "orders", Assignment: map[int32][]kafka.BrokerID{0: {1}, 1: {1, 2}}}, false)
	})
	adm, ctx := admin(t, addr), t.Context()
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign("orders", 0, []int32{2})
	req.Assign("orders", 9, []int32{2})
	req.CancelAssign("orders", 1)
	got, err := adm.AlterPartitionAssignments(ctx, req)
	if err != nil || got["orders"][0].Err != nil || !errors.Is(got["orders"][1].Err, kerr.NoReassignmentInProgress) ||
		!errors.Is(got["orders"][9].Err, kerr.UnknownTopicOrPartition) {
		t.Fatalf("%+v, %v", got, err)
	}
	all := kadm.TopicsSet{}
	all.Add("orders", 0, 1, 9)
	all.Add("none", 0)
	moving, err := adm.ListPartitionReassignments(ctx, all)
	if r := moving["orders"][0]; err != nil || len(moving["orders"]) != 1 || !slices.Equal(r.Replicas, []int32{2, 1}) ||
		!slices.Equal(r.AddingReplicas, []int32{2}) || !slices.Equal(r.RemovingReplicas, []int32{1}) {
		t.Errorf("%+v, %v", moving, err)
	}
	req = kadm.AlterPartitionAssignmentsReq{}
	req.CancelAssign("orders", 0)
	if got, err := adm.AlterPartitionAssignments(ctx, req); err != nil || got.Error() != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if moving, err := adm.ListPartitionReassignments(ctx, all); err != nil || len(moving) != 0 {
		t.Errorf("%+v, %v", moving, err)
	}
}

// What tools ask of every node or of any.
func TestKadmAnyNode(t *testing.T) {
	addr, _, _ := serveSmall(t, nil)
	adm, ctx := admin(t, addr), t.Context()
	if m, err := adm.BrokerMetadata(ctx); err != nil || m.Controller != 9999 || m.Cluster != "small-cluster" || len(m.Brokers) != 3 {
		t.Errorf("metadata %+v, %v", m, err)
	}
	if groups, err := adm.ListGroups(ctx); err != nil || len(groups) != 0 {
		t.Errorf("groups %+v, %v", groups, err)
	}
	if txns, err := adm.ListTransactions(ctx, nil, nil); err != nil || len(txns) != 0 {
		t.Errorf("transactions %+v, %v", txns, err)
	}
	if dirs, err := adm.DescribeAllLogDirs(ctx, nil); err != nil || len(dirs) != 3 || len(dirs[9999]) != 1 {
		t.Errorf("log dirs %+v, %v", dirs, err)
	}
	configs, err := adm.DescribeTopicConfigs(ctx, "orders", "none")
	if err != nil || len(configs) != 2 {
		t.Fatalf("configs %+v, %v", configs, err)
	}
	orders, err := configs.On("orders", nil)
	if err != nil || orders.Err != nil || len(orders.Configs) != 4 || orders.Configs[0].Source != kmsg.ConfigSourceDynamicTopicConfig {
		t.Errorf("configs of orders %+v, %v", orders, err)
	}
	if none, err := configs.On("none", nil); err != nil || !errors.Is(none.Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("configs of none %+v, %v", none, err)
	}
	if own, err := adm.DescribeBrokerConfigs(ctx, 9999); err != nil || len(own) != 1 || own[0].Err != nil || len(own[0].Configs) != 0 {
		t.Errorf("configs of 9999 %+v, %v", own, err)
	}
	throttle := []kadm.AlterConfig{{Name: "leader.replication.throttled.rate", Value: kadm.StringPtr("1")}}
	if set, err := adm.AlterBrokerConfigs(ctx, throttle, 9999); err != nil || len(set) != 1 || set[0].Err != nil {
		t.Errorf("throttle %+v, %v", set, err)
	}
	if f, err := adm.UpdateFeatures(ctx, false, kadm.FeatureUpdate{Feature: "metadata.version", MaxVersionLevel: 1}); err != nil || !errors.Is(f["metadata.version"].Err, kerr.InvalidRequest) {
		t.Errorf("features %+v, %v", f, err)
	}
}

func TestAPIVersions(t *testing.T) {
	want := wire.Versions{3: {Min: 0, Max: 12}, 7: {Min: 0, Max: 3}, 10: {Min: 0, Max: 4}, 16: {Min: 0, Max: 5}, 18: {Min: 0, Max: 4}, 19: {Min: 0, Max: 7},
		20: {Min: 0, Max: 6}, 22: {Min: 0, Max: 5}, 32: {Min: 0, Max: 4}, 33: {Min: 0, Max: 2}, 35: {Min: 0, Max: 4}, 37: {Min: 0, Max: 3}, 43: {Min: 0, Max: 2}, 44: {Min: 0, Max: 1},
		45: {}, 46: {}, 56: {Min: 0, Max: 3}, 57: {Min: 0, Max: 1}, 60: {Min: 0, Max: 1}, 66: {Min: 0, Max: 1}, 67: {}}
	for _, standby := range []bool{false, true} {
		addr, _, _ := serveSmall(t, func(l *smallLoop) { l.standby = standby })
		c, err := wire.Dial(t.Context(), addr, wire.DialOptions{ClientID: "test"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got, err := c.APIVersions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("standby=%v: %s", standby, d)
		}
	}
}

// Without a reader of configurations, DescribeConfigs is not offered.
func TestNoConfigs(t *testing.T) {
	e := newEndpoint(Options{ID: selfID})
	if _, ok := e.api(kmsg.DescribeConfigs); ok {
		t.Error("DescribeConfigs is offered")
	}
	if resp, err := e.answer(t.Context(), kmsg.NewPtrDescribeConfigsRequest()); err == nil {
		t.Errorf("answered %+v", resp)
	}
}

// Every version of every request offered is answered on a socket.
func TestEveryVersionIsAnswered(t *testing.T) {
	addr, l, controller := serveSmall(t, nil)
	c, err := wire.Dial(t.Context(), addr, wire.DialOptions{ClientID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, a := range controller.served {
		if a.key == kmsg.ApiVersions {
			continue
		}
		for v := a.min; v <= a.max; v++ {
			l.do(func() {
				l.topics = map[string]*smallTopic{}
				l.create(events.NewTopic{Name: "orders", Partitions: 2, ReplicationFactor: 2}, false)
			})
			req := sampleRequest(a.key, v)
			resp, err := c.Request(t.Context(), req)
			if err != nil {
				t.Fatalf("%s v%d: %v", kmsg.NameForKey(int16(a.key)), v, err)
			}
			if want := sampleAnswers[a.key]; want == nil || !want(resp) {
				t.Errorf("%s v%d: %+v", kmsg.NameForKey(int16(a.key)), v, resp)
			}
		}
	}
}

// Bytes that are no request cost their own connection and nothing else.
func TestGarbage(t *testing.T) {
	addr, _, _ := serveSmall(t, nil)
	frame := func(b ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }
	for name, sent := range map[string][]byte{
		"http":                  []byte("GET / HTTP/1.1\r\n\r\n"),
		"larger than a frame":   append(binary.BigEndian.AppendUint32(nil, maxFrame+1), 0, 3, 0, 0),
		"negative size":         {0xff, 0xff, 0xff, 0xff, 0, 3, 0, 0},
		"key not offered":       frame(0, 55, 0, 0, 0, 0, 0, 1, 0xff, 0xff),
		"version not offered":   frame(0, 3, 0, 13, 0, 0, 0, 1, 0xff, 0xff, 0, 1, 0, 0, 0),
		"a list longer than it": frame(0, 19, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff),
		"cut short":             frame(0, 45, 0, 0, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			nc, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if _, err := nc.Write(sent); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(nc); len(got) > 0 {
				t.Errorf("answered %x, %v", got, err)
			}
		})
	}
	if _, err := admin(t, addr).BrokerMetadata(t.Context()); err != nil {
		t.Errorf("after the garbage: %v", err)
	}
}

// A client that goes away frees what waits on its behalf; Close does so for all.
func TestClientsThatLeave(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := stuckLoop{make(chan events.Event, 10)}
	e := Serve(ln, Options{ID: selfID, Loop: l, MaxClientEvents: 1})
	ctx, leave := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	ask := func(ctx context.Context) {
		clients.Go(func() {
			c, err := wire.Dial(t.Context(), ln.Addr().String(), wire.DialOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if resp, err := c.Request(ctx, kmsg.NewPtrListPartitionReassignmentsRequest()); err == nil {
				t.Errorf("answered %+v", resp)
			}
		})
	}
	ask(ctx)
	ev := (<-l.events).(events.ListReassignments) // the first client's is in the queue
	ask(t.Context())                              // and the second one waits for its place
	leave()
	ev.Reply(kafka.NoError, nil)
	ev = (<-l.events).(events.ListReassignments)
	e.Close()
	clients.Wait()
	ev.Reply(kafka.NoError, nil) // to nobody
}

// A mounted endpoint that was closed hangs up, whoever still passes requests on.
func TestMountedAndClosed(t *testing.T) {
	l := newSmallLoop()
	l.start(t)
	e := Mount(Options{ID: selfID, Listener: "PLAINTEXT", Loop: l})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := wire.Serve(ln, e, wire.ServerOptions{Table: e.Table()})
	t.Cleanup(s.Close)
	ask := func() error {
		c, err := wire.Dial(t.Context(), s.Addr().String(), wire.DialOptions{ClientID: "test"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Request(t.Context(), withVersion(kmsg.NewPtrMetadataRequest(), 9))
		return err
	}
	if err := ask(); err != nil {
		t.Errorf("mounted: %v", err)
	}
	e.Close()
	if err := ask(); !errors.Is(err, io.EOF) {
		t.Errorf("closed: %v", err)
	}
}
