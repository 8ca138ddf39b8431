package groups_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/wire"
)

// TestGolden loads offsets topics that Kafka 3.9.1 wrote, one for each
// compression: ours must answer what Kafka answered (the .txt beside them).
// TestRealLog -rewrite records them again.
func TestGolden(t *testing.T) {
	logs, err := filepath.Glob("testdata/kafka-3.9.1/*.log")
	if err != nil || len(logs) != len(codecs) {
		t.Fatalf("logs: %v, %v", logs, err)
	}
	for _, path := range logs {
		t.Run(filepath.Base(path), func(t *testing.T) {
			log, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(path, ".log") + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), strings.Join(snapshot(loadLog(t, log)), "\n")); diff != "" {
				t.Errorf("answers (-Kafka, +ours):\n%s", diff)
			}
		})
	}
}

// codecs are those of offsets.topic.compression.codec, by number.
var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

func loadLog(t *testing.T, log []byte) *world {
	t.Helper()
	w := newWorld(t)
	w.log, w.epoch = log, 1
	w.c.Lead(w.now, 0, 1)
	w.load(false)
	if w.out.Len() > 0 {
		t.Fatal(w.out.String())
	}
	return w
}

// snapshot is what can be asked of all the groups of TestRealLog.
func snapshot(w *world) []string {
	const all = "group=readers,static,left,simple,deleted,txn-committed,txn-aborted"
	// Kafka remembers that there was a group whose only commit was aborted, until
	// it ends; its log does not.
	aborted := strings.NewReplacer(` [txn-aborted "" Empty classic]`, "", "txn-aborted NONE Empty", "txn-aborted NONE Dead")
	var out []string
	for _, line := range []string{"list admin", "describe admin " + all, "fetch admin " + all} {
		d := mustParse(w.t, line)
		want := 1
		if d.Cmd != "list" {
			want = strings.Count(all, ",") + 1
		}
		w.out.Reset()
		w.request(args{w, d})
		for w.remote != nil && strings.Count(w.out.String(), " <- ") < want {
			w.remote.next(w.t)
		}
		for _, line := range normal(answersOf(w.out.String())) {
			out = append(out, aborted.Replace(line))
		}
		w.out.Reset()
	}
	return out
}

// TestRealLog has Kafka 3.9.1 keep groups of a stock client and others; ours
// loads its offsets topic and must answer like it.
func TestRealLog(t *testing.T) {
	rewrite := flag.Lookup("rewrite").Value.String() == "true"
	for codec, name := range codecs {
		if codec > 0 && !rewrite {
			break // the files of testdata have the others
		}
		t.Run(name, func(t *testing.T) {
			k := real.KafkaBroker(t, real.ZooKeeper(t).Addr(), "3.9.1", "offsets.topic.num.partitions=1", fmt.Sprintf("offsets.topic.compression.codec=%d", codec))
			prepare(t, k.Addr())
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			usual(ctx, t, k.Addr())
			theirs := newWorld(t)
			theirs.remote = &remote{ctx: ctx, addr: k.Addr(), free: map[string][]*wire.Conn{}, answers: make(chan func(), 100)}
			want := snapshot(theirs)
			log := fetchLog(ctx, t, k.Addr())
			if diff := cmp.Diff(want, snapshot(loadLog(t, log))); diff != "" {
				t.Errorf("answers (-Kafka, +ours):\n%s", diff)
			}
			if rewrite {
				path := filepath.Join("testdata/kafka-3.9.1", "offsets-"+name)
				if err := os.WriteFile(path+".log", log, 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path+".txt", []byte(strings.Join(want, "\n")), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestKafkaLoadsOurs gives Kafka 3.9.1 an offsets topic that ours wrote: it must
// answer like ours, and let the members go on.
func TestKafkaLoadsOurs(t *testing.T) {
	w := newWorld(t)
	w.c.Lead(w.now, 0, 1)
	w.load(false)
	for _, line := range []string{
		"join A group=readers protocols=range:t", "join A group=readers", "join B group=readers instance=b session=1m protocols=range:t+u", "join A group=readers",
		"sync A group=readers assign=A:1,B:2", "sync B group=readers", "commit A group=readers t-0=5/note t-1=6", "commit B group=readers u-0=7 v=8",
		"join C group=left v=3", "sync C group=left assign=C:all", "commit C group=left t-0=1", "leave C group=left",
		"commit S group=simple t-2=33", "commit S group=simple t-1=3 v=2 retention-ms=3600000", "commit S group=deleted t-0=1", "delete S group=deleted",
		"join D group=static instance=d session=1m", "sync D group=static assign=D:all", "join D restart group=static",
	} {
		w.request(args{w, mustParse(t, line)})
	}
	want := snapshot(w)

	k := real.KafkaBroker(t, real.ZooKeeper(t).Addr(), "3.9.1", "offsets.topic.num.partitions=1")
	prepare(t, k.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	// Nobody but an admin client may write to the offsets topic.
	conn, err := wire.Dial(ctx, k.Addr(), wire.DialOptions{ClientID: "__admin_client"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for b, err := range commitlog.Batches(w.log) {
		if err != nil {
			t.Fatal(err)
		}
		clear(b[:8]) // the log's offset
		req := kmsg.NewProduceRequest()
		req.Version, req.Acks, req.TimeoutMillis = 7, -1, 10_000
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: groups.Topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: b}}}}
		resp, err := conn.Request(ctx, &req)
		if err != nil {
			t.Fatal(err)
		}
		if code := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
			t.Fatalf("produce to %s: %s", groups.Topic, codeName(code))
		}
	}
	k.Stop()
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	theirs := newWorld(t)
	theirs.clients = w.clients
	theirs.remote = &remote{ctx: ctx, addr: k.Addr(), free: map[string][]*wire.Conn{}, answers: make(chan func(), 100)}
	awaitLoaded(t, theirs.remote)
	if diff := cmp.Diff(want, snapshot(theirs)); diff != "" {
		t.Errorf("answers (-ours, +Kafka):\n%s", diff)
	}
	for _, line := range []string{"heartbeat A group=readers", "heartbeat B group=readers", "sync B group=readers", "commit A group=readers t-0=6", "heartbeat D group=static"} {
		theirs.request(args{theirs, mustParse(t, line)})
		theirs.remote.next(t)
	}
	if got := theirs.out.String(); strings.Count(got, "NONE") != 5 {
		t.Errorf("members of a loaded group are told:\n%s", got)
	}
}

// awaitLoaded waits until the broker serves the groups of its one partition.
func awaitLoaded(t *testing.T, r *remote) {
	t.Helper()
	req := kmsg.NewListGroupsRequest()
	find := kmsg.NewDescribeGroupsRequest()
	find.Groups = []string{"g"}
	for {
		loaded := r.ask(t, &req).(*kmsg.ListGroupsResponse).ErrorCode == 0
		if loaded && r.ask(t, &find).(*kmsg.DescribeGroupsResponse).Groups[0].ErrorCode == 0 {
			return
		}
	}
}

// usual has groups come and go: two readers, a static member, one that left, a
// simple consumer, one deleted, transactions committed and aborted.
func usual(ctx context.Context, t *testing.T, addr string) {
	t.Helper()
	adm := kadm.NewClient(consumer(t, addr, nil))
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, "u"); err != nil {
		t.Fatal(err)
	}
	first, _ := joinGroup(ctx, t, addr, "readers", 0)
	second, _ := joinGroup(ctx, t, addr, "readers", 1)
	left, _ := joinGroup(ctx, t, addr, "left", 0)
	static, _ := joinGroup(ctx, t, addr, "static", 0, kgo.InstanceID("only"))
	for i, cl := range []*kgo.Client{first, second, left, static} {
		commit := map[string]map[int32]kgo.EpochOffset{"t": {int32(i % 3): {Epoch: -1, Offset: int64(i + 1)}}, "u": {0: {Epoch: 7, Offset: int64(10 * i)}}}
		var failed error
		cl.CommitOffsetsSync(ctx, commit, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
			failed = err
		})
		if failed != nil {
			t.Fatal(failed)
		}
	}
	left.LeaveGroup()
	for _, g := range []string{"simple", "deleted"} {
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: "t", Partition: 2, At: 33, LeaderEpoch: 2, Metadata: "by hand"})
		if err := adm.CommitAllOffsets(ctx, g, offsets); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := adm.DeleteGroup(ctx, "deleted"); err != nil {
		t.Fatal(err)
	}
	transaction(ctx, t, addr, "txn-committed", true)
	transaction(ctx, t, addr, "txn-aborted", false)
}

func consumer(t *testing.T, addr string, opts []kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

// joinGroup starts a consumer and waits until its group is stable with one
// member more than there were.
func joinGroup(ctx context.Context, t *testing.T, addr, group string, others int, opts ...kgo.Opt) (*kgo.Client, kadm.DescribedGroup) {
	t.Helper()
	cl := consumer(t, addr, append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics("t", "u"), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(100*time.Millisecond)))
	adm := kadm.NewClient(cl)
	for {
		gs, err := adm.DescribeGroups(ctx, group)
		if err != nil {
			t.Fatal(err)
		}
		if g := gs[group]; g.State == "Stable" && len(g.Members) == others+1 {
			return cl, g
		}
	}
}

// transaction commits an offset in a transaction, and ends it so or so.
func transaction(ctx context.Context, t *testing.T, addr, group string, commit bool) {
	t.Helper()
	cl := consumer(t, addr, []kgo.Opt{kgo.TransactionalID("x-" + group)})
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	txn := "x-" + group
	add := kmsg.NewAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = txn, id, epoch, group
	offsets := kmsg.NewTxnOffsetCommitRequest()
	offsets.TransactionalID, offsets.ProducerID, offsets.ProducerEpoch, offsets.Group = txn, id, epoch, group
	row := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	row.Offset = 77
	offsets.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{row}}}
	end := kmsg.NewEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = txn, id, epoch, commit
	for _, req := range []kmsg.Request{&add, &offsets, &end} {
		for {
			resp, err := cl.Request(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			var code int16
			switch r := resp.(type) {
			case *kmsg.AddOffsetsToTxnResponse:
				code = r.ErrorCode
			case *kmsg.TxnOffsetCommitResponse:
				code = r.Topics[0].Partitions[0].ErrorCode
			case *kmsg.EndTxnResponse:
				code = r.ErrorCode
			}
			if code == 0 {
				break
			}
			if name := codeName(code); name != "CONCURRENT_TRANSACTIONS" && name != "COORDINATOR_NOT_AVAILABLE" && name != "NOT_COORDINATOR" && name != "COORDINATOR_LOAD_IN_PROGRESS" {
				t.Fatalf("%T: %s", req, name)
			}
		}
	}
	awaitMarker(ctx, t, addr, id)
}

// awaitMarker waits until the end of a transaction is in the offsets topic.
func awaitMarker(ctx context.Context, t *testing.T, addr string, producer int64) {
	t.Helper()
	for {
		for log := fetchLog(ctx, t, addr); len(log) > 0; {
			var b kmsg.RecordBatch
			if err := b.ReadFrom(log); err != nil {
				t.Fatal(err)
			}
			if b.ProducerID == producer && b.Attributes&0x20 != 0 {
				return
			}
			log = log[b.Length+12:]
		}
	}
}

// fetchLog reads the batches of the offsets topic as they are.
func fetchLog(ctx context.Context, t *testing.T, addr string) []byte {
	t.Helper()
	conn, err := wire.Dial(ctx, addr, wire.DialOptions{ClientID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var log []byte
	for next := int64(0); ; {
		req := kmsg.NewFetchRequest()
		req.Version, req.MaxBytes = 4, 50<<20
		part := kmsg.NewFetchRequestTopicPartition()
		part.FetchOffset, part.PartitionMaxBytes = next, 50<<20
		req.Topics = []kmsg.FetchRequestTopic{{Topic: groups.Topic, Partitions: []kmsg.FetchRequestTopicPartition{part}}}
		resp, err := conn.Request(ctx, &req)
		if err != nil {
			t.Fatal(err)
		}
		got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if got.ErrorCode != 0 {
			t.Fatal(codeName(got.ErrorCode))
		}
		if len(got.RecordBatches) == 0 {
			return log
		}
		log = append(log, got.RecordBatches...)
		for rest := got.RecordBatches; len(rest) > 0; {
			var b kmsg.RecordBatch
			if err := b.ReadFrom(rest); err != nil {
				t.Fatal(err)
			}
			next, rest = b.FirstOffset+int64(b.LastOffsetDelta)+1, rest[b.Length+12:]
		}
	}
}
