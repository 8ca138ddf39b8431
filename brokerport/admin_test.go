package brokerport_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// site is a broker with logs, registered in a ZooKeeper of its own, behind its port.
type site struct {
	*brokers.Node
	at    kafka.Endpoint
	store *zkstore.Session
	wire  *wire.Conn
}

// soundProcess is a process that has all it needs.
type soundProcess struct{ bareProcess }

func (*soundProcess) OpenSession() error { return nil }

func newSite(t *testing.T, settings brokerport.Settings, release string) *site {
	t.Helper()
	version, err := kafka.ParseProtocolVersion(release)
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
	s := &site{at: endpointOf(ln.Addr())}
	if s.store, err = zkstore.Dial(t.Context(), zkstore.Options{Servers: []string{"zookeeper:2181"}, SessionTimeout: 10 * time.Second, Dialer: zk.Dial}, func(zkpaths.Notice) {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.store.Close(context.Background()) })
	for _, path := range zkpaths.PersistentPaths(version) {
		s.put(t, path, "")
	}
	br, err := brokers.New(brokers.Options{ID: 1, Version: version, Release: version, Endpoints: []kafka.Endpoint{s.at}, Logs: &brokers.LogOptions{}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Node = brokers.NewNode(br, brokers.World{Store: sessionStore{s.store}, Process: &soundProcess{}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })

	port, err := brokerport.New(brokerport.Options{Node: s.Node, Settings: settings, Store: sessionStore{s.store},
		TopicID: func() kafka.TopicID { return kafka.TopicID{7} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Close)
	server := wire.Serve(ln, port.Listener(listener), wire.ServerOptions{Table: port.Table()})
	t.Cleanup(server.Close)
	if s.wire, err = wire.Dial(t.Context(), ln.Addr().String(), wire.DialOptions{ClientID: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.wire.Close() })
	return s
}

// put creates a node; one that is there is left as it is.
func (s *site) put(t *testing.T, path, data string) {
	t.Helper()
	out, err := s.store.Write(t.Context(), zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Create, Path: path, Data: []byte(data)}})
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Code != zkpaths.OK && out[0].Code != zkpaths.NodeExists {
		t.Fatal(out[0].Error(path))
	}
}

// data gives what is in a node, "-" if there is none.
func (s *site) data(t *testing.T, path string) string {
	t.Helper()
	nodes, err := s.store.Read(t.Context(), []zkpaths.Read{{Op: zkpaths.GetData, Path: path}})
	if err != nil {
		t.Fatal(err)
	}
	if nodes[0].Code == zkpaths.NoNode {
		return "-"
	}
	return string(nodes[0].Data)
}

// changes gives the entities that were announced, in order.
func (s *site) changes(t *testing.T) []string {
	t.Helper()
	nodes, err := s.store.Read(t.Context(), []zkpaths.Read{{Op: zkpaths.GetChildren, Path: zkpaths.ConfigChanges}})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range nodes[0].Children {
		path := zkpaths.ConfigChangePath(name)
		c, err := zkpaths.DecodeConfigChange(path, []byte(s.data(t, path)))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c.EntityPath)
	}
	return out
}

// host gives the broker partitions of a topic that exists, to lead alone.
func (s *site) host(t *testing.T, topics ...topic) {
	t.Helper()
	h := control.Header{ControllerID: 9, ControllerEpoch: 1, BrokerEpoch: -1}
	um := &control.UpdateMetadataRequest{Header: h, Metadata: &control.Metadata{LiveBrokers: []kafka.Broker{{ID: 1, Endpoints: []kafka.Endpoint{s.at}}}}}
	li := &control.LeaderAndISRRequest{Header: h}
	for _, tp := range topics {
		s.put(t, zkpaths.TopicPath(tp.name), `{"version":1,"partitions":{"0":[1]}}`)
		for n := range tp.n {
			p := &control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: tp.name, Partition: n}, TopicID: tp.id, IsNew: true,
				Leadership:        kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 1, ISR: []kafka.BrokerID{1}}, ControllerEpoch: 1},
				ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1}}}
			um.Partitions, li.Partitions = append(um.Partitions, p), append(li.Partitions, p)
		}
	}
	for _, r := range []control.Request{um, li} {
		resp, err := s.HandleControl(t.Context(), r)
		if err != nil || resp.Error != kafka.NoError {
			t.Fatalf("%s: %v %v", r.Kind(), resp.Error, err)
		}
	}
}

func (s *site) fill(t *testing.T, tp kafka.TopicPartition, values ...string) {
	t.Helper()
	var rs []commitlog.Record
	for _, v := range values {
		rs = append(rs, commitlog.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(v)})
	}
	answer := make(chan []brokers.ProduceResult, 1)
	s.Produce(&brokers.ProduceRequest{Acks: brokers.AcksAll, Timeout: time.Minute, Rows: []brokers.ProduceRow{{Partition: tp, Records: commitlog.Encode(rs...)}}},
		func(r []brokers.ProduceResult) { answer <- r })
	if r := (<-answer)[0]; r.Error != kafka.NoError {
		t.Fatal(r.Error)
	}
}

func admin(t *testing.T, s *site) *kadm.Client {
	t.Helper()
	cl, err := kadm.NewOptClient(kgo.SeedBrokers(net.JoinHostPort(s.at.Host, strconv.Itoa(int(s.at.Port)))), kgo.RequestRetries(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// DeleteRecords lets the log begin later, up to the high watermark, and says
// where it begins now; DescribeLogDirs shows what is left.
func TestDeleteRecordsAndLogDirs(t *testing.T) {
	s := newSite(t, nil, "3.9")
	s.host(t, orders)
	s.put(t, "/config/topics/compacted", `{"version":1,"config":{"cleanup.policy":"compact"}}`)
	s.host(t, topic{"compacted", kafka.TopicID{4}, 1})
	tp := kafka.TopicPartition{Topic: "orders", Partition: 1}
	s.fill(t, tp, "a", "b", "c")
	s.fill(t, kafka.TopicPartition{Topic: "compacted"}, "a") // acks=all has waited for the configuration
	for version := range int16(3) {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 10_000
		for _, row := range []struct {
			topic     string
			partition int32
			offset    int64
			code      kafka.ErrorCode
			low       int64
		}{{"orders", 1, int64(version) + 1, kafka.NoError, int64(version) + 1}, {"orders", 1, 4, kafka.OffsetOutOfRange, -1}, {"orders", 0, -1, kafka.NoError, 0},
			{"orders", 0, -2, kafka.OffsetOutOfRange, -1}, {"orders", 3, 0, kafka.UnknownTopicOrPartition, -1},
			{"none", 0, 0, kafka.UnknownTopicOrPartition, -1}, {"compacted", 0, 0, kafka.PolicyViolation, -1}} {
			req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: row.topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: row.partition, Offset: row.offset}}}}
			got := ask[*kmsg.DeleteRecordsResponse](t, s.wire, req, version)
			if len(got.Topics) != 1 || got.Topics[0].Topic != row.topic || len(got.Topics[0].Partitions) != 1 {
				t.Fatalf("version %d, %s-%d to %d: %+v", version, row.topic, row.partition, row.offset, got)
			}
			if p := got.Topics[0].Partitions[0]; p.Partition != row.partition || p.LowWatermark != row.low || p.ErrorCode != int16(row.code) {
				t.Errorf("version %d, %s-%d to %d: %+v", version, row.topic, row.partition, row.offset, p)
			}
		}
	}
	s.fill(t, tp, "d")
	for version := range int16(5) {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		all := ask[*kmsg.DescribeLogDirsResponse](t, s.wire, req, version)
		if len(all.Dirs) != 1 || all.Dirs[0].Dir != "memory" || len(all.Dirs[0].Topics) != 2 || len(all.Dirs[0].Topics[1].Partitions) != 3 {
			t.Errorf("version %d: %+v", version, all.Dirs)
		}
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "orders", Partitions: []int32{1, 7}}}
		one := ask[*kmsg.DescribeLogDirsResponse](t, s.wire, req, version)
		if len(one.Dirs) != 1 || len(one.Dirs[0].Topics) != 1 || len(one.Dirs[0].Topics[0].Partitions) != 1 {
			t.Fatalf("version %d: %+v", version, one.Dirs)
		}
		if p := one.Dirs[0].Topics[0].Partitions[0]; p.Partition != 1 || p.Size == 0 || p.IsFuture {
			t.Errorf("version %d: %+v", version, p)
		}
	}
	dirs, err := admin(t, s).DescribeAllLogDirs(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := dirs[1].Lookup("memory", "orders", 1); !ok || p.Size == 0 {
		t.Errorf("kadm: %+v", dirs)
	}
}

// What only the controller does is answered with NOT_CONTROLLER, where
// spec/admin-api.md §1 says it goes.
func TestNotController(t *testing.T) {
	s := newSite(t, nil, "3.9")
	s.host(t, orders)
	const no = int16(kafka.NotController)
	for version := range int16(8) {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "new", NumPartitions: 1, ReplicationFactor: 1}, {Topic: "orders", NumPartitions: 1, ReplicationFactor: 1}}
		got := ask[*kmsg.CreateTopicsResponse](t, s.wire, req, version)
		if len(got.Topics) != 2 || got.Topics[0].ErrorCode != no || got.Topics[1].ErrorCode != no {
			t.Errorf("CreateTopics v%d: %+v", version, got)
		}
	}
	for version := range int16(7) {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames = []string{"orders"}
		req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: kmsg.StringPtr("orders")}}
		if got := ask[*kmsg.DeleteTopicsResponse](t, s.wire, req, version); len(got.Topics) != 1 || got.Topics[0].ErrorCode != no || *got.Topics[0].Topic != "orders" {
			t.Errorf("DeleteTopics v%d: %+v", version, got)
		}
	}
	for version := range int16(4) {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "orders", Count: 9}}
		if got := ask[*kmsg.CreatePartitionsResponse](t, s.wire, req, version); len(got.Topics) != 1 || got.Topics[0].ErrorCode != no {
			t.Errorf("CreatePartitions v%d: %+v", version, got)
		}
	}
	for version := range int16(3) {
		req := kmsg.NewPtrElectLeadersRequest()
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "orders", Partitions: []int32{0}}}
		got := ask[*kmsg.ElectLeadersResponse](t, s.wire, req, version)
		if len(got.Topics) != 1 || got.Topics[0].Partitions[0].ErrorCode != no || got.ErrorCode != 0 {
			t.Errorf("ElectLeaders v%d: %+v", version, got)
		}
	}
	alter := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	alter.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "orders", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: []int32{1}}}}}
	if got := ask[*kmsg.AlterPartitionAssignmentsResponse](t, s.wire, alter, 0); got.ErrorCode != no || got.ErrorMessage == nil || len(got.Topics) != 0 {
		t.Errorf("AlterPartitionReassignments: %+v", got)
	}
	list := ask[*kmsg.ListPartitionReassignmentsResponse](t, s.wire, kmsg.NewPtrListPartitionReassignmentsRequest(), 0)
	if list.ErrorCode != no || list.ErrorMessage == nil || len(list.Topics) != 0 {
		t.Errorf("ListPartitionReassignments: %+v", list)
	}
	if got := s.data(t, zkpaths.TopicPath("new")); got != "-" {
		t.Errorf("a topic was created: %s", got)
	}
}

// metadata asks for topics by name, and gives the code of each.
func (s *site) metadata(t *testing.T, version int16, create bool, names ...string) map[string]kafka.ErrorCode {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = create
	for _, name := range names {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	codes := map[string]kafka.ErrorCode{}
	for _, row := range ask[*kmsg.MetadataResponse](t, s.wire, req, version).Topics {
		codes[*row.Topic] = kafka.ErrorCode(row.ErrorCode)
	}
	return codes
}

// A topic that a client asks for is created, if both sides allow it.
func TestAutoCreation(t *testing.T) {
	s := newSite(t, brokerport.Settings{"num.partitions": "3"}, "3.9")
	s.host(t, orders)
	for version := int16(4); version <= 12; version++ {
		if got := s.metadata(t, version, false, "fresh"); got["fresh"] != kafka.UnknownTopicOrPartition {
			t.Errorf("version %d: %v", version, got)
		}
	}
	if got := s.data(t, zkpaths.TopicPath("fresh")); got != "-" {
		t.Errorf("created though the client did not allow it: %s", got)
	}
	got := s.metadata(t, 12, true, "fresh", "orders", "a b")
	if got["fresh"] != kafka.LeaderNotAvailable || got["orders"] != kafka.NoError || got["a b"] != kafka.InvalidTopicException {
		t.Errorf("%v", got)
	}
	topic, err := zkpaths.DecodeTopic(zkpaths.TopicPath("fresh"), []byte(s.data(t, zkpaths.TopicPath("fresh"))))
	if err != nil || topic.ID != (kafka.TopicID{7}) || len(topic.Partitions) != 3 {
		t.Fatalf("%+v, %v", topic, err)
	}
	for n, p := range topic.Partitions {
		if p.Partition != int32(n) || !slices.Equal(p.Replicas, []kafka.BrokerID{1}) {
			t.Errorf("%+v", p)
		}
	}
	if got := s.data(t, zkpaths.TopicConfigPath("fresh")); got != `{"version":1,"config":{}}` {
		t.Errorf("configuration %s", got)
	}
	// It is there, though the controller has told of no leader yet.
	if got := s.metadata(t, 12, true, "fresh"); got["fresh"] != kafka.LeaderNotAvailable {
		t.Errorf("again: %v", got)
	}
	if got := s.metadata(t, 12, true, "a.b"); got["a.b"] != kafka.LeaderNotAvailable {
		t.Errorf("%v", got)
	}
	if got := s.metadata(t, 12, true, "a_b"); got["a_b"] != kafka.InvalidTopicException {
		t.Errorf("a name that collides: %v", got)
	}
	if got := s.metadata(t, 0, false, "older"); got["older"] != kafka.LeaderNotAvailable { // version 0 has no word against it
		t.Errorf("version 0: %v", got)
	}
	s.put(t, zkpaths.DeleteTopicPath("gone"), "")
	if s.metadata(t, 12, true, "gone"); s.data(t, zkpaths.TopicPath("gone")) != "-" {
		t.Error("a topic was created while it is being deleted")
	}
	if got := s.changes(t); len(got) > 0 {
		t.Errorf("announced: %v", got)
	}
}

func TestNoAutoCreation(t *testing.T) {
	s := newSite(t, brokerport.Settings{"auto.create.topics.enable": "false"}, "3.9")
	s.host(t, orders)
	if got := s.metadata(t, 12, true, "fresh"); got["fresh"] != kafka.UnknownTopicOrPartition || s.data(t, zkpaths.TopicPath("fresh")) != "-" {
		t.Errorf("%v", got)
	}
}

// More replicas than brokers are live cannot be had.
func TestAutoCreationWithoutBrokers(t *testing.T) {
	s := newSite(t, brokerport.Settings{"default.replication.factor": "2"}, "3.9")
	s.host(t, orders)
	if got := s.metadata(t, 12, true, "fresh"); got["fresh"] != kafka.InvalidReplicationFactor || s.data(t, zkpaths.TopicPath("fresh")) != "-" {
		t.Errorf("%v", got)
	}
	// A broker that was just started has not been told of the topic: the client comes again.
	s.put(t, zkpaths.TopicPath("there"), `{"version":1,"partitions":{"0":[1]}}`)
	if got := s.metadata(t, 12, true, "there"); got["there"] != kafka.LeaderNotAvailable {
		t.Errorf("a topic that exists: %v", got)
	}
}

// The form of the topic's node is that of the protocol version.
func TestAutoCreationOfOldVersions(t *testing.T) {
	for release, want := range map[string]string{"2.2": `"version":1`, "2.4": `"version":2`, "2.8": `"version":3`} {
		s := newSite(t, nil, release)
		s.host(t, orders)
		if got := s.metadata(t, 5, true, "fresh"); got["fresh"] != kafka.LeaderNotAvailable {
			t.Errorf("%s: %v", release, got)
		}
		if got := s.data(t, zkpaths.TopicPath("fresh")); !strings.Contains(got, want) {
			t.Errorf("%s: %s", release, got)
		}
	}
}

// Without an authorizer there are no ACLs to show or to change.
func TestACLs(t *testing.T) {
	s := newSite(t, nil, "3.9")
	const disabled = 54 // SECURITY_DISABLED
	for version := range int16(4) {
		if got := ask[*kmsg.DescribeACLsResponse](t, s.wire, kmsg.NewPtrDescribeACLsRequest(), version); got.ErrorCode != disabled || len(got.Resources) != 0 {
			t.Errorf("DescribeAcls v%d: %+v", version, got)
		}
		create := kmsg.NewPtrCreateACLsRequest()
		create.Creations = []kmsg.CreateACLsRequestCreation{kmsg.NewCreateACLsRequestCreation(), kmsg.NewCreateACLsRequestCreation()}
		if got := ask[*kmsg.CreateACLsResponse](t, s.wire, create, version); len(got.Results) != 2 || got.Results[0].ErrorCode != disabled || got.Results[1].ErrorCode != disabled {
			t.Errorf("CreateAcls v%d: %+v", version, got)
		}
		remove := kmsg.NewPtrDeleteACLsRequest()
		remove.Filters = []kmsg.DeleteACLsRequestFilter{kmsg.NewDeleteACLsRequestFilter()}
		if got := ask[*kmsg.DeleteACLsResponse](t, s.wire, remove, version); len(got.Results) != 1 || got.Results[0].ErrorCode != disabled {
			t.Errorf("DeleteAcls v%d: %+v", version, got)
		}
	}
}
