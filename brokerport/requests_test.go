package brokerport_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Whatever a broker of some release advertises, it decodes and answers, in every
// version.
func TestAllThatIsAdvertisedIsAnswered(t *testing.T) {
	for _, release := range []string{"0.10.2", "0.11.0", "2.4", "2.6", "2.8", "3.5", "3.9"} {
		t.Run(release, func(t *testing.T) {
			b := start(t, brokerOptions{id: 1, release: release})
			b.lead(t, orders)
			c := dial(t, b)
			for _, row := range b.port.Table() {
				for v := row.Min; v <= row.Max; v++ {
					answered(t, b, c, row.Key, v)
				}
			}
		})
	}
}

func dial(t *testing.T, b *broker) *wire.Conn {
	t.Helper()
	c, err := wire.Dial(t.Context(), b.addr(), wire.DialOptions{ClientID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// answered sends the simplest request of a kind.
func answered(t *testing.T, b *broker, c *wire.Conn, key, version int16) {
	t.Helper()
	header := control.Header{ControllerID: 1, ControllerEpoch: 1, BrokerEpoch: -1}
	switch control.Kind(key) {
	case control.LeaderAndISRKey, control.UpdateMetadataKey, control.StopReplicaKey:
		var req control.Request = &control.LeaderAndISRRequest{Header: header}
		if control.Kind(key) == control.StopReplicaKey {
			req = &control.StopReplicaRequest{Header: header}
		} else if control.Kind(key) == control.UpdateMetadataKey {
			req = &control.UpdateMetadataRequest{Header: header, Metadata: &control.Metadata{LiveBrokers: []kafka.Broker{b.asBroker()}}}
		}
		if _, err := c.Control(t.Context(), req, version, nil); err != nil {
			t.Fatalf("%s v%d: %v", control.Kind(key), version, err)
		}
		return
	}
	req := kmsg.RequestForKey(key)
	if d, ok := req.(interface{ Default() }); ok {
		d.Default()
	}
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		r.Acks = -1
	case *kmsg.MetadataRequest:
		r.Topics = []kmsg.MetadataRequestTopic{{Topic: new("orders")}}
	case *kmsg.ApiVersionsRequest:
		r.ClientSoftwareName, r.ClientSoftwareVersion = "test", "1"
	case *kmsg.ElectLeadersRequest:
		r.TimeoutMillis = 1000
	}
	req.SetVersion(version)
	if _, err := c.Request(t.Context(), req); err != nil {
		t.Fatalf("%s v%d: %v", kmsg.NameForKey(key), version, err)
	}
}

// batch is one batch of records, one for each value.
func batch(values ...string) []byte {
	var rs []commitlog.Record
	for _, v := range values {
		rs = append(rs, commitlog.Record{Timestamp: 1_700_000_000_000, Value: []byte(v)})
	}
	return commitlog.Encode(rs...)
}

func produceTo(acks int16, topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 5000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	tp := kmsg.NewProduceRequestTopic()
	tp.Topic, tp.Partitions = topic, []kmsg.ProduceRequestTopicPartition{p}
	req.Topics = []kmsg.ProduceRequestTopic{tp}
	return req
}

func TestProduceErrors(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	c := dial(t, b)
	bad := batch("x")
	bad[len(bad)-1] ^= 1
	old := batch("x")
	old[16] = 1
	for _, tc := range []struct {
		what    string
		req     *kmsg.ProduceRequest
		version int16
		want    kafka.ErrorCode
	}{
		{"good", produceTo(-1, "orders", 0, batch("a")), 11, kafka.NoError},
		{"good, old version", produceTo(1, "orders", 0, batch("a")), 0, kafka.NoError},
		{"acks", produceTo(2, "orders", 0, batch("a")), 11, kafka.InvalidRequiredAcks},
		{"unknown topic", produceTo(-1, "nope", 0, batch("a")), 11, kafka.UnknownTopicOrPartition},
		{"unknown partition", produceTo(-1, "orders", 3, batch("a")), 11, kafka.UnknownTopicOrPartition},
		{"checksum", produceTo(-1, "orders", 0, bad), 11, kafka.CorruptMessage},
		{"old format", produceTo(-1, "orders", 0, old), 11, kafka.InvalidRecord},
		{"old format, old version, damaged", produceTo(-1, "orders", 0, old), 2, kafka.CorruptMessage},
		{"no records", produceTo(-1, "orders", 0, nil), 11, kafka.InvalidRecord},
		{"two batches", produceTo(-1, "orders", 0, append(batch("a"), batch("b")...)), 11, kafka.InvalidRecord},
	} {
		got := ask[*kmsg.ProduceResponse](t, c, tc.req, tc.version)
		if code := kafka.ErrorCode(got.Topics[0].Partitions[0].ErrorCode); code != tc.want {
			t.Errorf("%s: %s, want %s", tc.what, code, tc.want)
		}
	}
}

// A refused record tells its place (KIP-467); a leader that is somebody else is named (KIP-951).
func TestAnswersThatHelp(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	other := kafka.Broker{ID: 2, Endpoints: []kafka.Endpoint{{Listener: listener, Host: "elsewhere", Port: 7}}}
	p := &control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: "orders", Partition: 2}, TopicID: orders.id,
		Leadership:        kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 2, LeaderEpoch: 4, ISR: []kafka.BrokerID{2}}, ControllerEpoch: 1},
		ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{2, 1}}}
	header := control.Header{ControllerID: 1, ControllerEpoch: 1, BrokerEpoch: -1}
	b.control(t, &control.UpdateMetadataRequest{Header: header, Metadata: &control.Metadata{LiveBrokers: []kafka.Broker{b.asBroker(), other},
		Partitions: []*control.PartitionState{p}}})
	b.control(t, &control.LeaderAndISRRequest{Header: header, Partitions: []*control.PartitionState{p}})
	c := dial(t, b)
	got := ask[*kmsg.ProduceResponse](t, c, produceTo(-1, "orders", 2, batch("a")), 11)
	row := got.Topics[0].Partitions[0]
	if kafka.ErrorCode(row.ErrorCode) != kafka.NotLeaderOrFollower || row.CurrentLeader.LeaderID != 2 || row.CurrentLeader.LeaderEpoch != 4 ||
		len(got.Brokers) != 1 || got.Brokers[0].Host != "elsewhere" {
		t.Errorf("Produce: %+v, %+v", row, got.Brokers)
	}
	req := fetchOf(orders, 0, -1, map[int32]int64{2: 0})
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 3
	f := ask[*kmsg.FetchResponse](t, c, req, 17)
	if r := f.Topics[0].Partitions[0]; kafka.ErrorCode(r.ErrorCode) != kafka.FencedLeaderEpoch || r.CurrentLeader.LeaderID != 2 ||
		r.CurrentLeader.LeaderEpoch != 4 || len(f.Brokers) != 1 || f.Brokers[0].Host != "elsewhere" {
		t.Errorf("Fetch: %+v, %+v", r, f.Brokers)
	}
}

// acks=0 is answered by nothing; an error ends the connection.
func TestNoAcks(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	send := func(req *kmsg.ProduceRequest, then kmsg.Request) (n int) {
		nc, err := net.Dial("tcp", b.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for i, r := range []kmsg.Request{req, then} {
			r.SetVersion(3)
			body := binary.BigEndian.AppendUint16(nil, uint16(r.Key()))
			body = binary.BigEndian.AppendUint16(body, 3)
			body = binary.BigEndian.AppendUint32(body, uint32(i))
			body = binary.BigEndian.AppendUint16(body, 0xffff) // no client id
			body = r.AppendTo(body)
			if _, err := nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
				return 0
			}
		}
		head := make([]byte, 8)
		if n, err = io.ReadFull(nc, head); err != nil {
			return 0
		}
		if corr := binary.BigEndian.Uint32(head[4:]); corr != 1 {
			t.Errorf("answer %d came, awaited was that of the second request", corr)
		}
		return n
	}
	list := kmsg.NewPtrListOffsetsRequest()
	if n := send(produceTo(0, "orders", 1, batch("a")), list); n == 0 {
		t.Error("the connection ended after a good produce")
	}
	if n := send(produceTo(0, "nope", 1, batch("a")), list); n != 0 {
		t.Error("the connection goes on after a refused produce without acks")
	}
}

// fetchOf asks for partitions of a topic from offsets on.
func fetchOf(tp topic, session, epoch int32, offsets map[int32]int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionID, req.SessionEpoch = 0, 1, 1<<20, session, epoch
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.TopicID = tp.name, tp.id
	for _, n := range slices.Sorted(keys(offsets)) {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = n, offsets[n], 1<<20
		ft.Partitions = append(ft.Partitions, p)
	}
	if len(offsets) > 0 {
		req.Topics = append(req.Topics, ft)
	}
	return req
}

func keys(m map[int32]int64) func(func(int32) bool) {
	return func(yield func(int32) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Every version of Fetch brings the records as they are, with offsets filled in.
func TestFetchVersions(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	c := dial(t, b)
	ask[*kmsg.ProduceResponse](t, c, produceTo(-1, "orders", 0, batch("a", "b")), 11)
	ask[*kmsg.ProduceResponse](t, c, produceTo(-1, "orders", 0, batch("c")), 11)
	for v := int16(4); v <= 17; v++ {
		got := ask[*kmsg.FetchResponse](t, c, fetchOf(orders, 0, -1, map[int32]int64{0: 1}), v)
		row := got.Topics[0].Partitions[0]
		if row.ErrorCode != 0 || row.HighWatermark != 3 {
			t.Fatalf("v%d: %+v", v, row)
		}
		var values []string
		for rb, err := range commitlog.Batches(row.RecordBatches) {
			if err != nil {
				t.Fatal(err)
			}
			rs, err := rb.Records()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rs {
				values = append(values, string(r.Value))
			}
		}
		if d := cmp.Diff([]string{"a", "b", "c"}, values); d != "" { // the first batch comes whole
			t.Errorf("v%d: %s", v, d)
		}
		bad := ask[*kmsg.FetchResponse](t, c, fetchOf(orders, 0, -1, map[int32]int64{0: 4, 9: 0}), v)
		if rows := bad.Topics[0].Partitions; kafka.ErrorCode(rows[0].ErrorCode) != kafka.OffsetOutOfRange || kafka.ErrorCode(rows[1].ErrorCode) != kafka.UnknownTopicOrPartition {
			t.Errorf("v%d: %+v", v, rows)
		}
	}
	got := ask[*kmsg.FetchResponse](t, c, fetchOf(topic{"nope", kafka.TopicID{5}, 1}, 0, -1, map[int32]int64{0: 0}), 17)
	if code := kafka.ErrorCode(got.Topics[0].Partitions[0].ErrorCode); code != kafka.UnknownTopicID {
		t.Errorf("unknown id: %s", code)
	}
}

// A fetch session (KIP-227): the answers have what is new, and nothing else.
func TestFetchSession(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	c := dial(t, b)
	fetch := func(req *kmsg.FetchRequest) (*kmsg.FetchResponse, []int32) {
		t.Helper()
		got := ask[*kmsg.FetchResponse](t, c, req, 17)
		var rows []int32
		for _, tp := range got.Topics {
			for _, p := range tp.Partitions {
				rows = append(rows, p.Partition)
			}
		}
		return got, rows
	}
	first, rows := fetch(fetchOf(orders, 0, 0, map[int32]int64{0: 0, 1: 0, 2: 0}))
	if first.SessionID == 0 || len(rows) != 3 {
		t.Fatalf("session %d, rows %v", first.SessionID, rows)
	}
	step := func(epoch int32, req map[int32]int64, want ...int32) {
		t.Helper()
		got, rows := fetch(fetchOf(orders, first.SessionID, epoch, req))
		if got.ErrorCode != 0 || got.SessionID != first.SessionID || !slices.Equal(rows, want) {
			t.Errorf("epoch %d: %s, session %d, rows %v, want %v", epoch, kafka.ErrorCode(got.ErrorCode), got.SessionID, rows, want)
		}
	}
	step(1, nil)
	ask[*kmsg.ProduceResponse](t, c, produceTo(-1, "orders", 1, batch("a")), 11)
	step(2, nil, 1)
	step(3, map[int32]int64{1: 1})
	step(4, map[int32]int64{2: 7}, 2) // out of range: told, and told again
	step(5, nil, 2)
	step(6, map[int32]int64{2: 0}, 2) // and when it is over
	forget := fetchOf(orders, first.SessionID, 7, nil)
	ft := kmsg.NewFetchRequestForgottenTopic()
	ft.Topic, ft.TopicID, ft.Partitions = orders.name, orders.id, []int32{0}
	forget.ForgottenTopics = append(forget.ForgottenTopics, ft)
	if got, rows := fetch(forget); got.ErrorCode != 0 || len(rows) != 0 {
		t.Errorf("after forgetting: %+v", got)
	}
	ask[*kmsg.ProduceResponse](t, c, produceTo(-1, "orders", 0, batch("a")), 11)
	step(8, nil)
	for _, tc := range []struct {
		id, epoch int32
		version   int16
		want      kafka.ErrorCode
	}{{first.SessionID, 3, 17, 71}, {first.SessionID + 1, 9, 17, 70}, {first.SessionID, 9, 12, 106}} {
		got := ask[*kmsg.FetchResponse](t, c, fetchOf(orders, tc.id, tc.epoch, nil), tc.version)
		if code := kafka.ErrorCode(got.ErrorCode); code != tc.want {
			t.Errorf("session %d epoch %d v%d: %s, want %s", tc.id, tc.epoch, tc.version, code, tc.want)
		}
	}
	fetch(fetchOf(orders, first.SessionID, -1, nil)) // ends it
	if got, _ := fetch(fetchOf(orders, first.SessionID, 9, nil)); kafka.ErrorCode(got.ErrorCode) != 70 {
		t.Errorf("a session that was ended: %s", kafka.ErrorCode(got.ErrorCode))
	}
}

// A topic that a client asks for is created as the settings say, and the offsets
// topic as those of its own.
func TestTopicsAreCreatedForClients(t *testing.T) {
	b := start(t, brokerOptions{id: 1, settings: brokerport.Settings{"num.partitions": "4", "offsets.topic.num.partitions": "3", "offsets.topic.replication.factor": "1"}})
	b.registered(t)
	b.lead(t)
	c := dial(t, b)
	meta := func(names ...string) (codes []kafka.ErrorCode) {
		req := kmsg.NewPtrMetadataRequest()
		req.AllowAutoTopicCreation = true
		for _, n := range names {
			mt := kmsg.NewMetadataRequestTopic()
			mt.Topic = new(n)
			req.Topics = append(req.Topics, mt)
		}
		for _, row := range ask[*kmsg.MetadataResponse](t, c, req, 12).Topics {
			codes = append(codes, kafka.ErrorCode(row.ErrorCode))
		}
		return codes
	}
	want := []kafka.ErrorCode{kafka.LeaderNotAvailable, kafka.InvalidTopicException, kafka.InvalidTopicException}
	if d := cmp.Diff(want, meta("new.topic", "bad name", "new_topic")); d != "" {
		t.Error(d)
	}
	node := func(name string) zkpaths.Topic {
		nodes, err := b.store.Read(t.Context(), []zkpaths.Read{{Op: zkpaths.GetData, Path: zkpaths.TopicPath(name)}})
		if err != nil || nodes[0].Code != zkpaths.OK {
			t.Fatal(name, err, nodes[0].Code)
		}
		tp, err := zkpaths.DecodeTopic(name, nodes[0].Data)
		if err != nil {
			t.Fatal(err)
		}
		return tp
	}
	if tp := node("new.topic"); len(tp.Partitions) != 4 || len(tp.Partitions[3].Replicas) != 1 || tp.ID.IsZero() {
		t.Errorf("%+v", tp)
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys = []string{"g"}
	got := ask[*kmsg.FindCoordinatorResponse](t, c, find, 6)
	if code := kafka.ErrorCode(got.Coordinators[0].ErrorCode); code != kafka.CoordinatorNotAvailable {
		t.Errorf("no coordinator yet: %s", code)
	}
	if tp := node("__consumer_offsets"); len(tp.Partitions) != 3 {
		t.Errorf("%+v", tp)
	}
	find.CoordinatorType = 1
	if got := ask[*kmsg.FindCoordinatorResponse](t, c, find, 6); kafka.ErrorCode(got.Coordinators[0].ErrorCode) != kafka.InvalidRequest || got.Coordinators[0].ErrorMessage == nil {
		t.Errorf("transactions: %+v", got.Coordinators)
	}
}

// Idempotent producers write, and a group consumes, commits and goes on.
func TestGroupOverTheWire(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders, topic{"__consumer_offsets", kafka.TopicID{8}, 2})
	cl := client(t, b, kgo.DefaultProduceTopic("orders"))
	for _, v := range []string{"1", "2", "3"} {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Key: []byte("k"), Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	group := func() *kgo.Client {
		return client(t, b, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	}
	first := group()
	if d := cmp.Diff([]string{"1", "2", "3"}, consume(t, first, 3)); d != "" {
		t.Error(d)
	}
	if err := first.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Key: []byte("k"), Value: []byte("4")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"4"}, consume(t, group(), 1)); d != "" {
		t.Error(d)
	}
}

// registered waits until the broker is in ZooKeeper.
func (b *broker) registered(t *testing.T) {
	t.Helper()
	for {
		nodes, err := b.store.Read(t.Context(), []zkpaths.Read{{Op: zkpaths.Exists, Path: zkpaths.BrokerPath(b.ID())}})
		if err != nil {
			t.Fatal(err)
		}
		if nodes[0].Code == zkpaths.OK {
			return
		}
	}
}

// FuzzRequest sends any bytes as a request's body: at most the connection ends.
func FuzzRequest(f *testing.F) {
	zero := func(key, version int16) []byte {
		r := kmsg.RequestForKey(key)
		r.SetVersion(version)
		return r.AppendTo(nil)
	}
	for _, key := range []int16{0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 21, 22, 23, 29, 32, 33, 35, 37, 42, 43, 44, 45, 46, 47, 60, 66} {
		for version := range int16(10) {
			if r := kmsg.RequestForKey(key); r != nil && version <= r.MaxVersion() {
				f.Add(key, version, zero(key, version))
			}
		}
	}
	f.Add(int16(0), int16(7), func() []byte {
		r := produceTo(1, "orders", 0, batch("a"))
		r.SetVersion(7)
		return r.AppendTo(nil)
	}())
	b := start(f, brokerOptions{id: 1})
	b.lead(f, orders)
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		nc, err := net.Dial("tcp", b.addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		frame := binary.BigEndian.AppendUint16(nil, uint16(key))
		frame = binary.BigEndian.AppendUint16(frame, uint16(version))
		frame = append(frame, 0, 0, 0, 1, 0xff, 0xff)
		frame = append(frame, body...)
		if _, err := nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c, err := wire.Dial(ctx, b.addr(), wire.DialOptions{ClientID: "other"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.APIVersions(ctx); err != nil {
			t.Fatalf("the broker answers others no more: %v", err)
		}
	})
}
