package endpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// smallConfigs are configurations as ZooKeeper has them.
type smallConfigs struct {
	mu     sync.Mutex
	orders map[string]string
	all    map[string]string // what was set for all brokers
}

func newSmallConfigs() *smallConfigs {
	return &smallConfigs{orders: map[string]string{"retention.ms": "1000", "cleanup.policy": "compact", "later.key": "x"}}
}

func (c *smallConfigs) AlterTopic(ctx context.Context, topic string, change func(map[string]string) (map[string]string, error)) error {
	set, err := c.Topic(ctx, topic)
	if err != nil {
		return err
	}
	after, err := change(set)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders = after
	return nil
}

func (c *smallConfigs) Topic(_ context.Context, topic string) (map[string]string, error) {
	switch topic {
	case "orders":
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.orders, nil
	case "broken":
		return nil, errors.New("/config/topics/broken: no JSON (repair or delete it)")
	}
	return nil, fmt.Errorf("topic %q: %w", topic, kafka.UnknownTopicOrPartition)
}

func (c *smallConfigs) AlterBrokerDefaults(ctx context.Context, change func(map[string]string) (map[string]string, error)) error {
	set, err := c.BrokerDefaults(ctx)
	if err == nil {
		c.all, err = change(set)
	}
	return err
}

func (*smallConfigs) BrokerKeys() ConfigKeys { return TopicKeys() }

func (*smallConfigs) BrokerDefaults(context.Context) (map[string]string, error) {
	return map[string]string{"log.retention.ms": "5"}, nil
}

// smallProducers counts; ids below 0 stand for a ZooKeeper that does not answer.
type smallProducers struct{ next atomic.Int64 }

func (p *smallProducers) NextID(context.Context) (int64, error) {
	id := p.next.Add(1) - 1
	if id < 0 {
		return 0, errors.New("no answer")
	}
	return id, nil
}

// A producer without transactions gets an id from any node, one with them only
// from its coordinator; without an id it is told to ask again.
func TestInitProducerID(t *testing.T) {
	e, _ := small(t, nil)
	ask := func(txn *string) *kmsg.InitProducerIDResponse {
		t.Helper()
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID = 5, txn
		resp, err := e.answer(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return resp.(*kmsg.InitProducerIDResponse)
	}
	for want := range int64(2) {
		if r := ask(nil); r.ErrorCode != 0 || r.ProducerID != want || r.ProducerEpoch != 0 {
			t.Errorf("%+v, want id %d of epoch 0", r, want)
		}
	}
	if r := ask(new("payments")); kafka.ErrorCode(r.ErrorCode) != kafka.NotCoordinator || r.ProducerID != -1 {
		t.Errorf("a transactional producer got %+v", r)
	}
	e.producers.(*smallProducers).next.Store(-5)
	if r := ask(nil); kafka.ErrorCode(r.ErrorCode) != kafka.CoordinatorLoadInProgress || r.ProducerID != -1 {
		t.Errorf("without an answer of ZooKeeper: %+v", r)
	}
}

// small starts a loop with two topics and gives an endpoint in front of it.
func small(t testing.TB, prepare func(l *smallLoop)) (*Endpoint, *smallLoop) {
	l := newSmallLoop()
	l.create(events.NewTopic{Name: "orders", Partitions: 2, ReplicationFactor: 3}, false)
	l.create(events.NewTopic{Name: "__consumer_offsets", Assignment: map[int32][]kafka.BrokerID{0: {2, 1}}}, false)
	if prepare != nil {
		prepare(l)
	}
	l.start(t)
	return newEndpoint(Options{ID: selfID, Listener: "PLAINTEXT", Loop: l, Configs: newSmallConfigs(), Producers: new(smallProducers)}), l
}

func TestCreateTopicsOwnChecks(t *testing.T) {
	topic := func(name string, n int32, factor int16, assigned ...int32) kmsg.CreateTopicsRequestTopic {
		x := kmsg.NewCreateTopicsRequestTopic()
		x.Topic, x.NumPartitions, x.ReplicationFactor = name, n, factor
		for _, p := range assigned {
			x.ReplicaAssignment = append(x.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: p, Replicas: []int32{1}})
		}
		return x
	}
	nullConfig := topic("null", 1, 1)
	nullConfig.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
	nullExisting := nullConfig
	nullExisting.Topic = "orders"
	topics := []kmsg.CreateTopicsRequestTopic{
		topic("good", -1, -1, 0), topic("__cluster_metadata", 1, 1), topic("twice", 1, 1), topic("twice", 2, 1), nullConfig, nullExisting,
		topic("both", 1, -1, 0), topic("both2", -1, 1, 0), topic("orders", 1, 1, 0), topic("bad/name", -1, -1, 0, 0), topic("rows", -1, -1, 0, 1, 0),
		topic("huge", 2_000_000, 1),
	}
	topics[5].Topic = "__consumer_offsets" // exists, which comes before its null value
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis, req.Topics = 7, 1000, topics
	for _, c := range []struct {
		name    string
		standby bool
		want    string
	}{
		{"active", false, "good=NONE __cluster_metadata=INVALID_REQUEST twice=INVALID_REQUEST twice=INVALID_REQUEST null=INVALID_CONFIG " +
			"__consumer_offsets=TOPIC_ALREADY_EXISTS both=INVALID_REQUEST both2=INVALID_REQUEST orders=TOPIC_ALREADY_EXISTS " +
			"bad/name=INVALID_TOPIC_EXCEPTION rows=INVALID_REPLICA_ASSIGNMENT huge=INVALID_PARTITIONS "},
		{"standby", true, "good=NOT_CONTROLLER __cluster_metadata=NOT_CONTROLLER twice=NOT_CONTROLLER twice=NOT_CONTROLLER null=NOT_CONTROLLER " +
			"__consumer_offsets=NOT_CONTROLLER both=NOT_CONTROLLER both2=NOT_CONTROLLER orders=NOT_CONTROLLER " +
			"bad/name=NOT_CONTROLLER rows=NOT_CONTROLLER huge=NOT_CONTROLLER "},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := small(t, func(l *smallLoop) { l.standby = c.standby })
			resp := answer[*kmsg.CreateTopicsResponse](t, e, req)
			if d := cmp.Diff(c.want, codes(resp)); d != "" {
				t.Error(d)
			}
			for i, r := range resp.Topics {
				good := r.ErrorCode == 0
				if r.Configs == nil || len(r.Configs) != 0 {
					t.Errorf("%s: configs %v, want an empty list that is not null", r.Topic, r.Configs)
				}
				if good != (r.ErrorMessage == nil) || good != (r.NumPartitions == 1) || good != (r.ReplicationFactor == 1) || good != (r.TopicID != [16]byte{}) {
					t.Errorf("row %d, %s, code %d: %+v", i, r.Topic, r.ErrorCode, r)
				}
			}
		})
	}
}

func TestDeleteTopicsOwnChecks(t *testing.T) {
	var orders kafka.TopicID
	copy(orders[:], "id of orders................")
	name := func(s string) *string { return &s }
	byName := kmsg.DeleteTopicsRequestTopic{Topic: name("orders")}
	for _, c := range []struct {
		test    string
		version int16
		names   []string
		topics  []kmsg.DeleteTopicsRequestTopic
		prepare func(l *smallLoop)
		want    string
	}{
		{test: "name and id refuse the whole request", version: 6,
			topics: []kmsg.DeleteTopicsRequestTopic{byName, {Topic: name("x"), TopicID: orders}}, want: "orders=INVALID_REQUEST x=INVALID_REQUEST "},
		{test: "but not a standby's", version: 6, prepare: func(l *smallLoop) { l.standby = true },
			topics: []kmsg.DeleteTopicsRequestTopic{byName, {Topic: name("x"), TopicID: orders}}, want: "orders=NOT_CONTROLLER x=NOT_CONTROLLER "},
		{test: "by id the name comes back", version: 6, topics: []kmsg.DeleteTopicsRequestTopic{{TopicID: orders}}, want: "orders=NONE "},
		{test: "unknown id", version: 6, topics: []kmsg.DeleteTopicsRequestTopic{{TopicID: kafka.TopicID{9}}, {}}, want: "null=UNKNOWN_TOPIC_ID null=UNKNOWN_TOPIC_ID "},
		{test: "empty name", version: 5, names: []string{"", "orders"}, want: "=UNKNOWN_TOPIC_OR_PARTITION orders=NONE "},
		{test: "twice the same", version: 1, names: []string{"orders", "orders"}, want: "orders=NONE orders=NONE "},
		{test: "disabled, new", version: 3, names: []string{"orders"}, prepare: func(l *smallLoop) { l.noDelete = true }, want: "orders=TOPIC_DELETION_DISABLED "},
		{test: "disabled, old", version: 2, names: []string{"orders"}, prepare: func(l *smallLoop) { l.noDelete = true }, want: "orders=INVALID_REQUEST "},
		{test: "nothing", version: 4, want: ""},
	} {
		t.Run(c.test, func(t *testing.T) {
			e, _ := small(t, c.prepare)
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.Version, req.TimeoutMillis, req.TopicNames, req.Topics = c.version, 1000, c.names, c.topics
			if d := cmp.Diff(c.want, codes(answer[kmsg.Response](t, e, req))); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestCreatePartitionsOwnChecks(t *testing.T) {
	e, _ := small(t, nil)
	req := moreRequest(1000, 3, "orders", "twice", "none", "twice", "huge")
	req.Topics[4].Count = 2_000_000
	req.Topics[0].Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{}
	want := "orders=INVALID_REPLICA_ASSIGNMENT twice=INVALID_REQUEST none=UNKNOWN_TOPIC_OR_PARTITION huge=INVALID_PARTITIONS "
	if d := cmp.Diff(want, codes(answer[kmsg.Response](t, e, req))); d != "" {
		t.Error(d)
	}
	standby, _ := small(t, func(l *smallLoop) { l.standby = true })
	want = "orders=NOT_CONTROLLER twice=NOT_CONTROLLER none=NOT_CONTROLLER huge=NOT_CONTROLLER "
	if d := cmp.Diff(want, codes(answer[kmsg.Response](t, standby, req))); d != "" {
		t.Error(d)
	}
}

// elections prints an ElectLeaders answer.
func elections(r *kmsg.ElectLeadersResponse) string {
	out := fmt.Sprint("top=", kafka.ErrorCode(r.ErrorCode))
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			out += fmt.Sprintf(" %s-%d=%v", t.Topic, p.Partition, kafka.ErrorCode(p.ErrorCode))
		}
	}
	return out
}

func TestElectLeaders(t *testing.T) {
	named := []kmsg.ElectLeadersRequestTopic{{Topic: "orders", Partitions: []int32{1, 0, 1}}, {Topic: "none", Partitions: []int32{0}}}
	for _, c := range []struct {
		name    string
		version int16
		kind    int8
		topics  []kmsg.ElectLeadersRequestTopic
		standby bool
		want    string
	}{
		{"named: all rows", 2, 0, named, false, "top=NONE orders-1=NONE orders-0=ELECTION_NOT_NEEDED none-0=UNKNOWN_TOPIC_OR_PARTITION"},
		{"all: without what was not needed", 2, 0, nil, false, "top=NONE orders-1=NONE"},
		{"version 0 has no type", 0, 0, named, false, "top=NONE orders-1=NONE orders-0=ELECTION_NOT_NEEDED none-0=UNKNOWN_TOPIC_OR_PARTITION"},
		{"unknown type", 2, 7, named, false, "top=UNKNOWN_SERVER_ERROR orders-1=UNKNOWN_SERVER_ERROR orders-0=UNKNOWN_SERVER_ERROR none-0=UNKNOWN_SERVER_ERROR"},
		{"standby: in each row", 2, 1, named, true, "top=NONE orders-1=NOT_CONTROLLER orders-0=NOT_CONTROLLER none-0=NOT_CONTROLLER"},
		{"standby, all: there is no row to put it in", 2, 0, nil, true, "top=NOT_CONTROLLER"},
		{"an empty list is nothing", 2, 0, []kmsg.ElectLeadersRequestTopic{}, false, "top=NONE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := small(t, func(l *smallLoop) { l.standby = c.standby; l.topics["orders"].parts[1].Leader = 2 })
			req := kmsg.NewPtrElectLeadersRequest()
			req.Version, req.ElectionType, req.Topics, req.TimeoutMillis = c.version, c.kind, c.topics, 1000
			if d := cmp.Diff(c.want, elections(answer[*kmsg.ElectLeadersResponse](t, e, req))); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestReassignments(t *testing.T) {
	e, l := small(t, nil)
	part := func(p int32, replicas ...int32) kmsg.AlterPartitionAssignmentsRequestTopicPartition {
		return kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: p, Replicas: replicas}
	}
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{
		{Topic: "none", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{part(0, 1)}},
		{Topic: "orders", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{part(1, 3, 2), part(0, 1, 2), part(0, 2, 1)}},
		{Topic: "__consumer_offsets", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{part(0)}}, // null: cancel
		{Topic: "orders", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{part(1, 3, 2), {Partition: 7, Replicas: []int32{}}}},
	}
	print := func(r *kmsg.AlterPartitionAssignmentsResponse) string {
		out := fmt.Sprint("top=", kafka.ErrorCode(r.ErrorCode))
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				out += fmt.Sprintf(" %s-%d=%v", t.Topic, p.Partition, kafka.ErrorCode(p.ErrorCode))
			}
		}
		return out
	}
	want := "top=NONE none-0=UNKNOWN_TOPIC_OR_PARTITION orders-1=NONE orders-0=INVALID_REPLICA_ASSIGNMENT orders-0=INVALID_REPLICA_ASSIGNMENT " +
		"__consumer_offsets-0=NO_REASSIGNMENT_IN_PROGRESS orders-1=NONE orders-7=INVALID_REPLICA_ASSIGNMENT"
	if d := cmp.Diff(want, print(answer[*kmsg.AlterPartitionAssignmentsResponse](t, e, req))); d != "" {
		t.Error(d)
	}

	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	for _, asked := range [][]kmsg.ListPartitionReassignmentsRequestTopic{nil, {{Topic: "orders", Partitions: []int32{0, 1, 9}}, {Topic: "none", Partitions: []int32{0}}}} {
		list.Topics = asked
		got := answer[*kmsg.ListPartitionReassignmentsResponse](t, e, list)
		text := fmt.Sprint("top=", kafka.ErrorCode(got.ErrorCode))
		for _, t := range got.Topics {
			for _, p := range t.Partitions {
				text += fmt.Sprintf(" %s-%d %v +%v -%v", t.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas)
			}
		}
		if want := "top=NONE orders-1 [3 2 1] +[] -[1]"; text != want || got.ErrorMessage != nil {
			t.Errorf("asked %v: got %s (%v), want %s", asked, text, got.ErrorMessage, want)
		}
	}
	list.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{}
	if got := answer[*kmsg.ListPartitionReassignmentsResponse](t, e, list); len(got.Topics) != 0 {
		t.Errorf("an empty list asked for nothing and got %+v", got.Topics)
	}

	l.do(func() { l.standby = true })
	if got := answer[*kmsg.AlterPartitionAssignmentsResponse](t, e, req); print(got) != "top=NOT_CONTROLLER" || got.ErrorMessage == nil {
		t.Errorf("standby: %+v", got)
	}
	if got := answer[*kmsg.ListPartitionReassignmentsResponse](t, e, list); got.ErrorCode != int16(kafka.NotController) || got.ErrorMessage == nil {
		t.Errorf("standby: %+v", got)
	}
}

// Rows come back as they were asked: by name up to version 1, then by id.
func TestAlterPartition(t *testing.T) {
	e, l := small(t, nil)
	var id [16]byte
	copy(id[:], "id of orders................")
	for version := int16(0); version <= 3; version++ {
		part := kmsg.NewAlterPartitionRequestTopicPartition()
		part.Partition, part.PartitionEpoch, part.LeaderEpoch = 1, 10*int32(version), 0
		part.NewISR = []int32{2, 1}
		part.NewEpochISR = []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{{BrokerID: 2, BrokerEpoch: -1}, {BrokerID: 1, BrokerEpoch: -1}}
		missing := part
		missing.Partition = 5
		req := kmsg.NewPtrAlterPartitionRequest()
		req.Version, req.BrokerID, req.BrokerEpoch = version, 1, 101
		req.Topics = []kmsg.AlterPartitionRequestTopic{
			{Topic: "none", TopicID: [16]byte{7}, Partitions: []kmsg.AlterPartitionRequestTopicPartition{part}},
			{Topic: "orders", TopicID: id, Partitions: []kmsg.AlterPartitionRequestTopicPartition{missing, part}},
		}
		decoded := kmsg.NewPtrAlterPartitionRequest() // as it comes from a socket
		decoded.Version = version
		if err := decoded.ReadFrom(req.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		got := answer[*kmsg.AlterPartitionResponse](t, e, decoded)
		unknown := kafka.UnknownTopicOrPartition
		if version >= 2 {
			unknown = kafka.UnknownTopicID
		}
		want := fmt.Sprintf("[1:%v] [5:UNKNOWN_TOPIC_OR_PARTITION 1:NONE leader=1 epoch=0 isr=[2 1] version=%d]", unknown, 10*version+1)
		text := ""
		for _, topic := range got.Topics {
			row := ""
			for _, p := range topic.Partitions {
				row += fmt.Sprintf(" %d:%v", p.Partition, kafka.ErrorCode(p.ErrorCode))
				if p.ErrorCode == 0 {
					row += fmt.Sprintf(" leader=%d epoch=%d isr=%v version=%d", p.LeaderID, p.LeaderEpoch, p.ISR, p.PartitionEpoch)
				}
			}
			text += " [" + row[1:] + "]"
		}
		if d := cmp.Diff(want, text[1:]); d != "" {
			t.Errorf("v%d: %s", version, d)
		}
		if byID := got.Topics[1].TopidID == id; byID != (version >= 2) || (got.Topics[1].Topic == "orders") == byID {
			t.Errorf("v%d: %+v", version, got.Topics[1])
		}
		req.BrokerEpoch++
		if got := answer[*kmsg.AlterPartitionResponse](t, e, req); got.ErrorCode != int16(kafka.StaleBrokerEpoch) || len(got.Topics) != 0 {
			t.Errorf("v%d, stale: %+v", version, got)
		}
	}
	l.do(func() { l.standby = true })
	if got := answer[*kmsg.AlterPartitionResponse](t, e, kmsg.NewPtrAlterPartitionRequest()); got.ErrorCode != int16(kafka.NotController) {
		t.Errorf("standby: %+v", got)
	}
	if got := answer[*kmsg.ControlledShutdownResponse](t, e, kmsg.NewPtrControlledShutdownRequest()); got.ErrorCode != int16(kafka.StaleControllerEpoch) {
		t.Errorf("standby: %+v", got)
	}
	alloc := kmsg.NewPtrAllocateProducerIDsRequest()
	if got := answer[*kmsg.AllocateProducerIDsResponse](t, e, alloc); got.ErrorCode != int16(kafka.NotController) || got.ProducerIDLen != 0 {
		t.Errorf("standby: %+v", got)
	}
}

// The epoch is part of the request from version 2 on.
func TestControlledShutdownEpoch(t *testing.T) {
	for version, want := range []int64{-1, -1, 44, 44} {
		seen := make(chan events.ControlledShutdown, 1)
		e := newEndpoint(Options{ID: selfID, Loop: loopFunc(func(ev events.Event) {
			cs := ev.(events.ControlledShutdown)
			cs.Reply(kafka.NoError, []kafka.TopicPartition{{Topic: "a", Partition: 1}})
			seen <- cs
		})})
		req := kmsg.NewPtrControlledShutdownRequest()
		req.Version, req.BrokerID, req.BrokerEpoch = int16(version), 3, 44
		got := answer[*kmsg.ControlledShutdownResponse](t, e, req)
		if ev := <-seen; ev.Broker != 3 || ev.BrokerEpoch != want {
			t.Errorf("v%d: %+v, want epoch %d", version, ev, want)
		}
		if len(got.PartitionsRemaining) != 1 || got.PartitionsRemaining[0].Topic != "a" || got.PartitionsRemaining[0].Partition != 1 {
			t.Errorf("v%d: %+v", version, got)
		}
	}
}

type loopFunc func(events.Event)

func (f loopFunc) Put(ev events.Event) { f(ev) }

// metadataText prints what of a Metadata answer is looked at below.
func metadataText(r *kmsg.MetadataResponse) string {
	out := "brokers"
	for _, b := range r.Brokers {
		out += fmt.Sprintf(" %d=%s:%d", b.NodeID, b.Host, b.Port)
		if b.Rack != nil {
			out += "@" + *b.Rack
		}
	}
	out += fmt.Sprintf(" controller %d\n", r.ControllerID)
	for _, t := range r.Topics {
		name := "null"
		if t.Topic != nil {
			name = *t.Topic
		}
		out += fmt.Sprintf("%s id=%s internal=%v %v\n", name, bytes.TrimRight(t.TopicID[:12], "\x00"), t.IsInternal, kafka.ErrorCode(t.ErrorCode))
		for _, p := range t.Partitions {
			out += fmt.Sprintf("  %d leader=%d replicas=%v isr=%v offline=%v %v\n", p.Partition, p.Leader, p.Replicas, p.ISR, p.OfflineReplicas, kafka.ErrorCode(p.ErrorCode))
		}
	}
	return out
}

func TestMetadata(t *testing.T) {
	name := func(s string) *string { return &s }
	byName := func(names ...string) []kmsg.MetadataRequestTopic {
		out := []kmsg.MetadataRequestTopic{}
		for _, n := range names {
			out = append(out, kmsg.MetadataRequestTopic{Topic: name(n)})
		}
		return out
	}
	var orders [16]byte
	copy(orders[:], "id of orders................")
	const brokers = "brokers 1=127.0.0.1:1@r 2=127.0.0.1:2 3=127.0.0.1:3 9999=127.0.0.1:4 controller 9999\n"
	const offsets = "__consumer_offsets id=id of __cons internal=true NONE\n  0 leader=2 replicas=[2 1] isr=[2 1] offline=[] NONE\n"
	const ordersRow = "orders id=id of orders internal=false NONE\n  0 leader=1 replicas=[1 2 3] isr=[1 2 3] offline=[] NONE\n  1 leader=1 replicas=[1 2 3] isr=[1 2 3] offline=[] NONE\n"
	gone := func(ids ...kafka.BrokerID) func(l *smallLoop) {
		return func(l *smallLoop) {
			var left []kafka.Broker
			for _, b := range l.brokers {
				if len(kafka.Without([]kafka.BrokerID{b.ID}, ids)) > 0 {
					left = append(left, b)
				}
			}
			l.brokers = left
		}
	}
	otherListener := func(l *smallLoop) { l.brokers[0].Endpoints = []kafka.Endpoint{{Listener: "SSL", Host: "h", Port: 9}} }
	for _, c := range []struct {
		test    string
		version int16
		topics  []kmsg.MetadataRequestTopic
		prepare func(l *smallLoop)
		want    string
	}{
		{"v0, an empty list is all", 0, byName(), nil, brokers + offsets + ordersRow},
		{"v1, an empty list is nothing", 1, byName(), nil, brokers},
		{"v1, null is all", 1, nil, nil, brokers + offsets + ordersRow},
		{"v12, null is all", 12, nil, nil, brokers + offsets + ordersRow},
		{"topics without partitions do not appear", 12, nil, func(l *smallLoop) { l.topics["orders"].parts = nil }, brokers + offsets},
		{"nor when asked for", 9, byName("orders"), func(l *smallLoop) { l.topics["orders"].parts = nil },
			brokers + "orders id= internal=false UNKNOWN_TOPIC_OR_PARTITION\n"},
		{"by name, each once", 12, byName("orders", "none", "bad/name", "orders", "__transaction_state"), nil, brokers + ordersRow +
			"none id= internal=false UNKNOWN_TOPIC_OR_PARTITION\nbad/name id= internal=false INVALID_TOPIC_EXCEPTION\n__transaction_state id= internal=true UNKNOWN_TOPIC_OR_PARTITION\n"},
		{"by id", 12, []kmsg.MetadataRequestTopic{{TopicID: orders}, {TopicID: [16]byte{'n', 'o'}}}, nil, brokers + ordersRow + "null id=no internal=false UNKNOWN_TOPIC_ID\n"},
		{"by id before it was legal", 11, []kmsg.MetadataRequestTopic{{TopicID: orders, Topic: name("orders")}}, nil,
			"brokers controller -1\norders id=id of orders internal=false INVALID_REQUEST\n"},
		{"a leader that is gone", 12, byName("__consumer_offsets"), gone(2),
			"brokers 1=127.0.0.1:1@r 3=127.0.0.1:3 9999=127.0.0.1:4 controller 9999\n__consumer_offsets id=id of __cons internal=true NONE\n  0 leader=-1 replicas=[2 1] isr=[2 1] offline=[2] LEADER_NOT_AVAILABLE\n"},
		{"v0, a replica that is gone", 0, byName("__consumer_offsets"), gone(1),
			"brokers 2=127.0.0.1:2 3=127.0.0.1:3 9999=127.0.0.1:4 controller 9999\n__consumer_offsets id=id of __cons internal=true NONE\n  0 leader=2 replicas=[2] isr=[2] offline=[1] REPLICA_NOT_AVAILABLE\n"},
		{"v6, a leader on another listener", 6, byName("orders"), otherListener,
			"brokers 2=127.0.0.1:2 3=127.0.0.1:3 9999=127.0.0.1:4 controller 9999\norders id=id of orders internal=false NONE\n" +
				"  0 leader=-1 replicas=[1 2 3] isr=[1 2 3] offline=[1] LISTENER_NOT_FOUND\n  1 leader=-1 replicas=[1 2 3] isr=[1 2 3] offline=[1] LISTENER_NOT_FOUND\n"},
		{"v5, the same by its old name", 5, byName("orders"), otherListener,
			"brokers 2=127.0.0.1:2 3=127.0.0.1:3 9999=127.0.0.1:4 controller 9999\norders id=id of orders internal=false NONE\n" +
				"  0 leader=-1 replicas=[1 2 3] isr=[1 2 3] offline=[1] LEADER_NOT_AVAILABLE\n  1 leader=-1 replicas=[1 2 3] isr=[1 2 3] offline=[1] LEADER_NOT_AVAILABLE\n"},
		{"offline replicas as the controller knows them", 12, byName("__consumer_offsets"), func(l *smallLoop) { l.topics["__consumer_offsets"].parts[0].Offline = []kafka.BrokerID{1} },
			brokers + "__consumer_offsets id=id of __cons internal=true NONE\n  0 leader=2 replicas=[2 1] isr=[2 1] offline=[1] NONE\n"},
		{"a standby names the controller and asks to come again", 12, byName("orders"), func(l *smallLoop) { l.standby = true },
			"brokers 1=127.0.0.1:1@r 2=127.0.0.1:2 3=127.0.0.1:3 9999=127.0.0.1:4 controller 1\norders id= internal=false LEADER_NOT_AVAILABLE\n"},
		{"a controller that is not in the list is none", 12, byName(), gone(selfID), "brokers 1=127.0.0.1:1@r 2=127.0.0.1:2 3=127.0.0.1:3 controller -1\n"},
	} {
		t.Run(c.test, func(t *testing.T) {
			e, _ := small(t, c.prepare)
			req := kmsg.NewPtrMetadataRequest()
			req.Version, req.Topics, req.AllowAutoTopicCreation = c.version, c.topics, true
			got := answer[*kmsg.MetadataResponse](t, e, req)
			if d := cmp.Diff(c.want, metadataText(got)); d != "" {
				t.Error(d)
			}
			if got.AuthorizedOperations != -2147483648 {
				t.Errorf("authorized operations %d", got.AuthorizedOperations)
			}
			for _, topic := range got.Topics {
				if topic.AuthorizedOperations != -2147483648 {
					t.Errorf("%v: authorized operations %d", topic.Topic, topic.AuthorizedOperations)
				}
			}
		})
	}
}

func TestMetadataOfALedByNobody(t *testing.T) {
	e, _ := small(t, func(l *smallLoop) { l.topics["orders"].parts[0].Leader = kafka.NoLeader })
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = 10, true, true
	got := answer[*kmsg.MetadataResponse](t, e, req)
	p := got.Topics[1].Partitions[0]
	if p.Leader != -1 || p.ErrorCode != int16(kafka.LeaderNotAvailable) {
		t.Errorf("%+v", p)
	}
	if got.AuthorizedOperations != 8096 || got.Topics[1].AuthorizedOperations != 3576 {
		t.Errorf("operations %d and %d, want those Kafka gives without an authorizer", got.AuthorizedOperations, got.Topics[1].AuthorizedOperations)
	}
}

func TestDescribeCluster(t *testing.T) {
	e, _ := small(t, nil)
	req := kmsg.NewPtrDescribeClusterRequest()
	req.Version, req.EndpointType = 1, 1
	got := answer[*kmsg.DescribeClusterResponse](t, e, req)
	if got.ErrorCode != 0 || got.ClusterID != "small-cluster" || got.ControllerID != 9999 || len(got.Brokers) != 4 || got.EndpointType != 1 ||
		got.ClusterAuthorizedOperations != -2147483648 || *got.Brokers[0].Rack != "r" || got.Brokers[1].Rack != nil {
		t.Errorf("%+v", got)
	}
	req.EndpointType = 2
	if got := answer[*kmsg.DescribeClusterResponse](t, e, req); got.ErrorCode != int16(kafka.MismatchedEndpointType) || len(got.Brokers) != 0 {
		t.Errorf("controllers' endpoints: %+v", got)
	}
}

func TestDescribeConfigs(t *testing.T) {
	e, _ := small(t, nil)
	resource := func(kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsRequestResource {
		return kmsg.DescribeConfigsRequestResource{ResourceType: kind, ResourceName: name, ConfigNames: keys}
	}
	topic, broker := kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeSynonyms = 4, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{resource(topic, "orders"), resource(topic, "orders", "retention.ms", "unknown"), resource(topic, "none"),
		resource(topic, "bad/name"), resource(topic, "broken"), resource(broker, "9999"), resource(broker, ""),
		resource(broker, "1"), resource(broker, "x"), resource(kmsg.ConfigResourceTypeClientMetrics, "m")}
	want := []string{
		"orders NONE cleanup.policy=compact source=1 type=7 synonyms=1 later.key=x source=1 type=0 synonyms=1 retention.ms=1000 source=1 type=5 synonyms=1 min.insync.replicas=1 source=5 type=3 synonyms=1",
		"orders NONE retention.ms=1000 source=1 type=5 synonyms=1",
		"none UNKNOWN_TOPIC_OR_PARTITION", "bad/name INVALID_TOPIC_EXCEPTION", "broken UNKNOWN_SERVER_ERROR",
		"9999 NONE", " NONE log.retention.ms=5 source=3 type=0 synonyms=1", "1 INVALID_REQUEST", "x INVALID_REQUEST", "m INVALID_REQUEST",
	}
	var got []string
	for _, r := range answer[*kmsg.DescribeConfigsResponse](t, e, req).Resources {
		text := fmt.Sprint(r.ResourceName, " ", kafka.ErrorCode(r.ErrorCode))
		for _, c := range r.Configs {
			text += fmt.Sprintf(" %s=%s source=%d type=%d synonyms=%d", c.Name, *c.Value, c.Source, c.ConfigType, len(c.ConfigSynonyms))
		}
		if (r.ErrorCode == 0) != (r.ErrorMessage == nil) {
			t.Errorf("%s: message %v", text, r.ErrorMessage)
		}
		got = append(got, text)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAlterConfigs(t *testing.T) {
	type op = kmsg.IncrementalAlterConfigsRequestResourceConfig
	const set, del, add, sub = kmsg.IncrementalAlterConfigOpSet, kmsg.IncrementalAlterConfigOpDelete, kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract
	o := func(name string, kind kmsg.IncrementalAlterConfigOp, value string) op {
		return op{Name: name, Op: kind, Value: &value}
	}
	const throttled = "leader.replication.throttled.replicas"
	const before = "map[cleanup.policy:compact later.key:x retention.ms:1000]"
	for _, c := range []struct {
		test  string
		kind  kmsg.ConfigResourceType
		name  string
		ops   []op
		want  kafka.ErrorCode
		after string
	}{
		{"our own throttle is taken and ignored", kmsg.ConfigResourceTypeBroker, "9999", []op{o("leader.replication.throttled.rate", set, "1")}, kafka.NoError, before},
		{"another broker", kmsg.ConfigResourceTypeBroker, "1", nil, kafka.InvalidRequest, before},
		{"all brokers", kmsg.ConfigResourceTypeBroker, "", []op{o("retention.ms", set, "7")}, kafka.NoError, before},
		{"all brokers, a bad value", kmsg.ConfigResourceTypeBroker, "", []op{o("retention.ms", set, "1d")}, kafka.InvalidConfig, before},
		{"client metrics", kmsg.ConfigResourceTypeClientMetrics, "m", nil, kafka.InvalidRequest, before},
		{"set and delete", kmsg.ConfigResourceTypeTopic, "orders", []op{o("segment.bytes", set, "99"), o("retention.ms", del, "")}, kafka.NoError, "map[cleanup.policy:compact later.key:x segment.bytes:99]"},
		{"delete what is not there", kmsg.ConfigResourceTypeTopic, "orders", []op{{Name: "no.such", Op: del}, {Name: throttled, Op: del}}, kafka.NoError, before},
		{"append to the present list, new items only", kmsg.ConfigResourceTypeTopic, "orders", []op{o("cleanup.policy", add, "compact,delete")}, kafka.NoError,
			"map[cleanup.policy:compact,delete later.key:x retention.ms:1000]"},
		{"append to the default", kmsg.ConfigResourceTypeTopic, "orders", []op{o(throttled, add, "0:1,1:2")}, kafka.NoError, before[:len(before)-1-len(" retention.ms:1000")] + " " + throttled + ":0:1,1:2 retention.ms:1000]"},
		{"subtract down to a list that is not legal", kmsg.ConfigResourceTypeTopic, "orders", []op{o("cleanup.policy", sub, "compact")}, kafka.InvalidConfig, before},
		{"append to no list", kmsg.ConfigResourceTypeTopic, "orders", []op{o("retention.ms", add, "1")}, kafka.InvalidConfig, before},
		{"append to an unknown key", kmsg.ConfigResourceTypeTopic, "orders", []op{o("no.such", add, "1")}, kafka.UnknownServerError, before},
		{"set an unknown key", kmsg.ConfigResourceTypeTopic, "orders", []op{o("no.such", set, "1")}, kafka.InvalidConfig, before},
		{"a bad value", kmsg.ConfigResourceTypeTopic, "orders", []op{o("retention.ms", set, "1d")}, kafka.InvalidConfig, before},
		{"values that contradict each other", kmsg.ConfigResourceTypeTopic, "orders", []op{o("min.compaction.lag.ms", set, "9"), o("max.compaction.lag.ms", set, "8")}, kafka.InvalidConfig, before},
		{"a key twice", kmsg.ConfigResourceTypeTopic, "orders", []op{o("retention.ms", set, "1"), o("retention.ms", del, "")}, kafka.InvalidRequest, before},
		{"a null value", kmsg.ConfigResourceTypeTopic, "orders", []op{{Name: "retention.ms", Op: set}}, kafka.InvalidRequest, before},
		{"an unknown operation", kmsg.ConfigResourceTypeTopic, "orders", []op{o("retention.ms", 7, "1")}, kafka.UnknownServerError, before},
		{"an unknown topic", kmsg.ConfigResourceTypeTopic, "none", nil, kafka.UnknownTopicOrPartition, before},
		{"a key twice on an unknown topic", kmsg.ConfigResourceTypeTopic, "none", []op{o("retention.ms", set, "1"), o("retention.ms", del, "")}, kafka.InvalidRequest, before},
		{"a null value for our own throttle", kmsg.ConfigResourceTypeBroker, "9999", []op{{Name: "leader.replication.throttled.rate", Op: set}}, kafka.InvalidRequest, before},
		{"a name that no topic can have", kmsg.ConfigResourceTypeTopic, "../x", nil, kafka.UnknownTopicOrPartition, before},
		{"an empty name", kmsg.ConfigResourceTypeTopic, "", nil, kafka.InvalidRequest, before},
		{"an unreadable znode", kmsg.ConfigResourceTypeTopic, "broken", nil, kafka.UnknownServerError, before},
	} {
		t.Run(c.test, func(t *testing.T) {
			e, _ := small(t, nil)
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: c.kind, ResourceName: c.name, Configs: c.ops}}
			for _, validateOnly := range []bool{true, false} {
				req.ValidateOnly = validateOnly
				r := answer[*kmsg.IncrementalAlterConfigsResponse](t, e, req).Resources[0]
				if got := kafka.ErrorCode(r.ErrorCode); got != c.want || (r.ErrorMessage == nil) != (got == kafka.NoError) {
					t.Errorf("validate only %v: %v (%v), want %v", validateOnly, got, r.ErrorMessage, c.want)
				}
				want := c.after
				if validateOnly {
					want = before
				}
				if d := cmp.Diff(want, fmt.Sprint(e.configs.(*smallConfigs).orders)); d != "" {
					t.Errorf("validate only %v: %s", validateOnly, d)
				}
				if all := e.configs.(*smallConfigs).all; (all["retention.ms"] == "7" && all["log.retention.ms"] == "5") != (c.test == "all brokers" && !validateOnly) {
					t.Errorf("validate only %v: all brokers have %v", validateOnly, all)
				}
			}
			req.Resources = append(req.Resources, req.Resources[0])
			for _, r := range answer[*kmsg.IncrementalAlterConfigsResponse](t, e, req).Resources {
				if r.ErrorCode != int16(kafka.InvalidRequest) {
					t.Errorf("twice in a request: %v", kafka.ErrorCode(r.ErrorCode))
				}
			}
		})
	}
}

// The older request replaces all of a topic's keys.
func TestAlterConfigsWholeSet(t *testing.T) {
	e, _ := small(t, nil)
	value := "7"
	for _, c := range []struct {
		configs []kmsg.AlterConfigsRequestResourceConfig
		want    kafka.ErrorCode
		after   string
	}{
		{[]kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms"}}, kafka.InvalidRequest, "map[cleanup.policy:compact later.key:x retention.ms:1000]"},
		{[]kmsg.AlterConfigsRequestResourceConfig{{Name: "no.such", Value: &value}}, kafka.InvalidConfig, "map[cleanup.policy:compact later.key:x retention.ms:1000]"},
		{[]kmsg.AlterConfigsRequestResourceConfig{{Name: "flush.ms", Value: &value}, {Name: "flush.ms", Value: &value}}, kafka.InvalidRequest, "map[cleanup.policy:compact later.key:x retention.ms:1000]"},
		{[]kmsg.AlterConfigsRequestResourceConfig{{Name: "flush.ms", Value: &value}}, kafka.NoError, "map[flush.ms:7]"},
		{nil, kafka.NoError, "map[]"},
	} {
		req := kmsg.NewPtrAlterConfigsRequest()
		req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "orders", Configs: c.configs}}
		r := answer[*kmsg.AlterConfigsResponse](t, e, req).Resources[0]
		if got := kafka.ErrorCode(r.ErrorCode); got != c.want {
			t.Errorf("%v: %v, want %v", c.configs, got, c.want)
		}
		if d := cmp.Diff(c.after, fmt.Sprint(e.configs.(*smallConfigs).orders)); d != "" {
			t.Error(d)
		}
	}
}

// A panic of a handler costs its connection, not the process.
func TestPanicIsAnError(t *testing.T) {
	e := newEndpoint(Options{ID: selfID, Loop: loopFunc(func(events.Event) { panic("broken loop") })})
	if resp, err := e.answer(t.Context(), kmsg.NewPtrDescribeClusterRequest()); err == nil {
		t.Errorf("answered %+v", resp)
	}
	short := newEndpoint(Options{ID: selfID, Loop: loopFunc(func(ev events.Event) { ev.(events.CreateTopics).Reply(nil) })})
	if resp, err := short.answer(t.Context(), createRequest(0, "a")); err == nil {
		t.Errorf("a row is missing, and answered was %+v", resp)
	}
}

// Every node that clients know of names a group's coordinator, we too: a client
// may ask no other. Where it is ours to create, the offsets topic comes into being.
func TestFindCoordinator(t *testing.T) {
	find := func(t *testing.T, e *Endpoint, kind int8, version int16) string {
		t.Helper()
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = version, kind, "g", []string{"g"}
		resp, err := e.answer(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		r := resp.(*kmsg.FindCoordinatorResponse)
		if version >= 4 {
			c := r.Coordinators[0]
			return fmt.Sprintf("%d %s:%d %s", c.NodeID, c.Host, c.Port, kafka.ErrorCode(c.ErrorCode))
		}
		return fmt.Sprintf("%d %s:%d %s", r.NodeID, r.Host, r.Port, kafka.ErrorCode(r.ErrorCode))
	}
	const none = "-1 :-1 COORDINATOR_NOT_AVAILABLE"
	e, l := small(t, nil)
	for version := range int16(5) {
		if got := find(t, e, 0, version); got != "2 127.0.0.1:2 NONE" {
			t.Errorf("v%d: %s", version, got)
		}
	}
	if got := find(t, e, 1, 4); got != none {
		t.Errorf("of a transaction: %s", got)
	}
	l.do(func() { l.topics["__consumer_offsets"].parts[0].Leader = kafka.NoLeader })
	if got := find(t, e, 0, 4); got != none {
		t.Errorf("without a leader: %s", got)
	}
	l.do(func() { delete(l.topics, "__consumer_offsets") })
	for range 2 { // not ours to create
		if got := find(t, e, 0, 4); got != none {
			t.Errorf("without the topic: %s", got)
		}
	}
	e.offsets = &events.NewTopic{Name: "__consumer_offsets", Partitions: 5, ReplicationFactor: 3}
	if got := find(t, e, 0, 4); got != none {
		t.Errorf("while it is created: %s", got)
	}
	if got := find(t, e, 0, 4); got == none {
		t.Errorf("when it is created: %s", got)
	}
}

// A client that asks for the metadata of a topic that does not exist has it
// created, where that is ours to do, if it allows that.
func TestMetadataCreates(t *testing.T) {
	look := func(t *testing.T, e *Endpoint, version int16, allow bool, names ...string) (codes []string) {
		t.Helper()
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.AllowAutoTopicCreation = version, allow
		for _, n := range names {
			topic := kmsg.NewMetadataRequestTopic()
			topic.Topic = &n
			req.Topics = append(req.Topics, topic)
		}
		resp, err := e.answer(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range resp.(*kmsg.MetadataResponse).Topics {
			codes = append(codes, fmt.Sprintf("%s %s", *row.Topic, kafka.ErrorCode(row.ErrorCode)))
		}
		return codes
	}
	const unknown, awaited = "fresh UNKNOWN_TOPIC_OR_PARTITION", "fresh LEADER_NOT_AVAILABLE"
	e, l := small(t, nil)
	check := func(want []string, got ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check([]string{unknown}, look(t, e, 12, true, "fresh")...) // not ours to create
	e.auto = &events.NewTopic{Partitions: 2, ReplicationFactor: 1}
	check([]string{unknown}, look(t, e, 12, false, "fresh")...)
	check([]string{awaited, "orders NONE", "a/b INVALID_TOPIC_EXCEPTION"}, look(t, e, 12, true, "fresh", "orders", "a/b")...)
	check([]string{"fresh NONE"}, look(t, e, 12, true, "fresh")...)
	if n := len(l.topics["fresh"].parts); n != 2 {
		t.Errorf("it has %d partitions", n)
	}
	check([]string{"old LEADER_NOT_AVAILABLE"}, look(t, e, 1, false, "old")...) // before one could say no
	e.auto = &events.NewTopic{Partitions: 1, ReplicationFactor: 9}
	check([]string{"wide INVALID_REPLICATION_FACTOR"}, look(t, e, 12, true, "wide")...)
}
