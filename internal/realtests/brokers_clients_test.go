package realtests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// kcat runs librdkafka's tool; it must succeed.
func kcat(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "kcat", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kcat %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// kcat 1.7.1 (librdkafka): metadata, produce with every codec and every acks,
// consume by offset and as a group, offsets by time.
func TestKcat(t *testing.T) {
	if _, err := exec.LookPath("kcat"); err != nil {
		real.Missing(t, "kcat", err.Error(), "apt-get install kcat")
	}
	c := startTarget(t)
	admin := kadm.NewClient(kafkaClient(t, c.seeds...))
	if _, err := admin.CreateTopic(t.Context(), 2, 3, nil, "cats"); err != nil {
		t.Fatal(err)
	}
	var meta struct {
		Brokers []struct {
			ID   int    `json:"id"`
			Name string `json:"name"`
		} `json:"brokers"`
		Topics []struct {
			Topic      string `json:"topic"`
			Partitions []struct {
				Leader   int   `json:"leader"`
				Replicas []any `json:"replicas"`
				ISRs     []any `json:"isrs"`
			} `json:"partitions"`
		} `json:"topics"`
	}
	await(t, "kcat sees 3 brokers and a topic in sync", func() bool {
		if err := json.Unmarshal([]byte(kcat(t, "", "-b", c.bootstrap(), "-L", "-J", "-t", "cats", "-m", "10")), &meta); err != nil {
			t.Fatal(err)
		}
		return len(meta.Brokers) == 3 && len(meta.Topics) == 1 && len(meta.Topics[0].Partitions) == 2 && len(meta.Topics[0].Partitions[1].ISRs) == 3
	})
	n := 0
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		for _, acks := range []string{"0", "1", "all"} {
			var lines strings.Builder
			for range 50 {
				fmt.Fprintf(&lines, "k%d:v%d\n", n, n)
				n++
			}
			kcat(t, lines.String(), "-b", c.bootstrap(), "-P", "-t", "cats", "-K:", "-z", codec, "-X", "acks="+acks, "-X", "message.timeout.ms=60000")
		}
	}
	var lines strings.Builder
	for range 50 {
		fmt.Fprintf(&lines, "k%d:v%d\n", n, n)
		n++
	}
	kcat(t, lines.String(), "-b", c.bootstrap(), "-P", "-t", "cats", "-K:", "-X", "enable.idempotence=true", "-H", "origin=cat")
	await(t, fmt.Sprintf("%d records are there", n), func() bool { // acks=0 is answered before they are
		out := kcat(t, "", "-b", c.bootstrap(), "-C", "-t", "cats", "-o", "beginning", "-e", "-q", "-f", `%k=%s\n`)
		return len(strings.Fields(out)) == n
	})
	got := strings.Fields(kcat(t, "", "-b", c.bootstrap(), "-C", "-t", "cats", "-o", "beginning", "-e", "-q", "-f", `%k=%s\n`))
	slices.Sort(got)
	if n := len(slices.Compact(slices.Clone(got))); n != len(got) {
		t.Errorf("%d records, %d of them different", len(got), n)
	}
	if out := kcat(t, "", "-b", c.bootstrap(), "-C", "-t", "cats", "-o", "beginning", "-e", "-q", "-f", `%h\n`); strings.Count(out, "origin=cat") != 50 {
		t.Errorf("%d records have the header, want 50", strings.Count(out, "origin=cat"))
	}
	group := kcat(t, "", "-b", c.bootstrap(), "-q", "-f", `%k=%s\n`, "-X", "auto.offset.reset=earliest", "-c", strconv.Itoa(n), "-G", "cat-group", "cats")
	if len(strings.Fields(group)) != n {
		t.Errorf("the group read %d records, want %d", len(strings.Fields(group)), n)
	}
	if out := kcat(t, "", "-b", c.bootstrap(), "-Q", "-t", "cats:0:-1", "-t", "cats:1:-1"); !strings.Contains(out, "cats [0] offset ") {
		t.Errorf("offsets by time: %s", out)
	}
	if offsets, err := admin.FetchOffsets(t.Context(), "cat-group"); err != nil || len(offsets.Offsets()["cats"]) == 0 {
		t.Errorf("offsets of the group: %v, %v", offsets, err)
	}
}

// franz-go: what a program does with brokers, and what it is told when it errs.
func TestFranzGo(t *testing.T) {
	c := startTarget(t)
	admin := kadm.NewClient(kafkaClient(t, c.seeds...))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := admin.CreateTopic(ctx, 4, 3, map[string]*string{"min.insync.replicas": kadm.StringPtr("2")}, "orders"); err != nil {
		t.Fatal(err)
	}
	t.Run("produce and consume", func(t *testing.T) { franzProduce(ctx, t, c) })
	t.Run("groups", func(t *testing.T) { franzGroups(ctx, t, c, admin) })
	t.Run("admin", func(t *testing.T) { franzAdmin(ctx, t, c, admin) })
	t.Run("errors", func(t *testing.T) { franzErrors(ctx, t, c, admin) })
}

const franzRecords = 2000

// Codecs and acks; then all is read from the beginning, each partition in order.
func franzProduce(ctx context.Context, t *testing.T, c target) {
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	acks := [][]kgo.Opt{{kgo.RequiredAcks(kgo.AllISRAcks())}, {kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()},
		{kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()}, {kgo.RequiredAcks(kgo.AllISRAcks()), kgo.DisableIdempotentWrite()}}
	n := 0
	for i := range len(codecs) * len(acks) {
		cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.seeds...), kgo.DefaultProduceTopic("orders"), kgo.ProducerBatchCompression(codecs[i%len(codecs)])}, acks[i%len(acks)]...)...)
		if err != nil {
			t.Fatal(err)
		}
		var records []*kgo.Record
		for range franzRecords / (len(codecs) * len(acks)) {
			records = append(records, &kgo.Record{Key: []byte(strconv.Itoa(n % 17)), Value: []byte(strconv.Itoa(n)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{1, 2}}}})
			n++
		}
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatalf("produce, form %d: %v", i, err)
		}
		cl.Close()
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.seeds...), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	seen, next := map[string]bool{}, map[int32]int64{}
	for len(seen) < n {
		fetched := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %d of %d: %v", len(seen), n, fetched.Err())
		}
		fetched.EachRecord(func(r *kgo.Record) {
			if r.Offset != next[r.Partition] || seen[string(r.Value)] || len(r.Headers) != 1 {
				t.Fatalf("partition %d offset %d (want %d), value %s, seen %v, %d headers", r.Partition, r.Offset, next[r.Partition], r.Value, seen[string(r.Value)], len(r.Headers))
			}
			next[r.Partition]++
			seen[string(r.Value)] = true
		})
	}
}

// Two members share a topic, one leaves, the other takes over; a later member
// goes on where they stopped.
func franzGroups(ctx context.Context, t *testing.T, c target, admin *kadm.Client) {
	member := func(id string) *kgo.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.seeds...), kgo.ConsumerGroup("shoppers"), kgo.ConsumeTopics("orders"), kgo.ClientID(id),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		return cl
	}
	a, b := member("a"), member("b")
	defer a.Close()
	stop, cancel := context.WithCancel(ctx)
	done := make(chan int)
	for _, cl := range []*kgo.Client{a, b} {
		go func() {
			n := 0
			for {
				f := cl.PollFetches(stop)
				if stop.Err() != nil {
					done <- n
					return
				}
				n += f.NumRecords()
				_ = cl.CommitUncommittedOffsets(ctx) // a rebalance may be under way: then the other reads it
			}
		}()
	}
	await(t, "two members share four partitions", func() bool {
		d, err := admin.DescribeGroups(ctx, "shoppers")
		if err != nil {
			return false
		}
		g := d["shoppers"]
		if g.State != "Stable" || len(g.Members) != 2 {
			return false
		}
		for _, m := range g.Members {
			if as, ok := m.Assigned.AsConsumer(); !ok || len(as.Topics) != 1 || len(as.Topics[0].Partitions) != 2 {
				return false
			}
		}
		return true
	})
	await(t, "all is read and committed", func() bool {
		lags, err := admin.Lag(ctx, "shoppers")
		lag := lags["shoppers"]
		return err == nil && lag.Error() == nil && len(lag.Lag["orders"]) == 4 && lag.Lag.Total() == 0
	})
	b.Close() // says goodbye
	await(t, "the other has all four", func() bool {
		d, err := admin.DescribeGroups(ctx, "shoppers")
		g := d["shoppers"]
		return err == nil && g.State == "Stable" && len(g.Members) == 1 && len(g.AssignedPartitions()["orders"]) == 4
	})
	cancel()
	if got := <-done + <-done; got < franzRecords {
		t.Errorf("the members read %d records, want %d at least", got, franzRecords)
	}
	a.Close()
	groups, err := admin.ListGroups(ctx)
	if err != nil || !slices.Contains(groups.Groups(), "shoppers") {
		t.Errorf("groups %v, %v", groups.Groups(), err)
	}
	await(t, "the group is deleted", func() bool {
		got, err := admin.DeleteGroups(ctx, "shoppers")
		return err == nil && got.Error() == nil
	})
}

// What kadm asks of brokers.
func franzAdmin(ctx context.Context, t *testing.T, c target, admin *kadm.Client) {
	if got, err := admin.CreatePartitions(ctx, 1, "orders"); err != nil || got.Error() != nil {
		t.Errorf("one partition more: %v, %v", err, got.Error())
	}
	configs, err := admin.DescribeTopicConfigs(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, cf := range configs[0].Configs {
		if cf.Key == "min.insync.replicas" && cf.MaybeValue() != "2" {
			t.Errorf("min.insync.replicas is %s", cf.MaybeValue())
		}
	}
	if got, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("3600000")}}, "orders"); err != nil || got[0].Err != nil {
		t.Errorf("alter: %v, %v", err, got)
	}
	await(t, "retention.ms is told", func() bool {
		configs, err := admin.DescribeTopicConfigs(ctx, "orders")
		return err == nil && configs[0].Err == nil && slices.ContainsFunc(configs[0].Configs, func(cf kadm.Config) bool { return cf.Key == "retention.ms" && cf.MaybeValue() == "3600000" })
	})
	dirs, err := admin.DescribeAllLogDirs(ctx, nil)
	if err != nil || len(dirs) != 3 {
		t.Errorf("log dirs of %d brokers, %v", len(dirs), err)
	}
	for _, d := range dirs {
		if _, ok := d.LookupPartition("orders", 0); !ok || d.Error() != nil {
			t.Errorf("log dirs: %v, %v", d.Sorted(), d.Error())
		}
	}
	after, err := admin.ListOffsetsAfterMilli(ctx, time.Now().Add(-time.Hour).UnixMilli(), "orders")
	if err != nil || after.Error() != nil {
		t.Errorf("offsets by time: %v, %v", err, after.Error())
	}
	brokers, err := admin.ListBrokers(ctx)
	if err != nil || len(brokers) != 3 {
		t.Errorf("brokers %v, %v", brokers, err)
	}
	ends, err := admin.OffsetForLeaderEpoch(ctx, kadm.OffsetForLeaderEpochRequest{"orders": {0: 0}})
	if err != nil || ends["orders"][0].Err != nil || ends["orders"][0].EndOffset <= 0 {
		t.Errorf("end of epoch 0: %+v, %v", ends["orders"][0], err)
	}
	if _, err := admin.DeleteTopic(ctx, "orders"); err != nil {
		t.Errorf("delete: %v", err)
	}
	await(t, "the topic is gone", func() bool {
		topics, err := admin.ListTopics(ctx)
		return err == nil && !topics.Has("orders")
	})
}

// What is refused, with Kafka's own codes.
func franzErrors(ctx context.Context, t *testing.T, c target, admin *kadm.Client) {
	for _, test := range []struct {
		name string
		do   func() error
		want error
	}{
		{"too many replicas", func() error { _, err := admin.CreateTopic(ctx, 1, 9, nil, "wide"); return err }, kerr.InvalidReplicationFactor},
		{"no such config", func() error {
			_, err := admin.CreateTopic(ctx, 1, 1, map[string]*string{"no.such": kadm.StringPtr("1")}, "odd")
			return err
		}, kerr.InvalidConfig},
		{"a bad name", func() error { _, err := admin.CreateTopic(ctx, 1, 1, nil, "a/b"); return err }, kerr.InvalidTopicException},
		{"no such topic", func() error { _, err := admin.DeleteTopic(ctx, "nobody"); return err }, kerr.UnknownTopicOrPartition},
		{"no such group", func() error {
			got, err := admin.DeleteGroups(ctx, "nobody")
			return errors.Join(err, got.Error())
		}, kerr.GroupIDNotFound},
		{"a record too large", func() error {
			if _, err := admin.CreateTopic(ctx, 1, 3, map[string]*string{"max.message.bytes": kadm.StringPtr("1000")}, "small"); err != nil {
				return err
			}
			cl, err := kgo.NewClient(kgo.SeedBrokers(c.seeds...), kgo.DefaultProduceTopic("small"), kgo.ProducerBatchCompression(kgo.NoCompression()))
			if err != nil {
				return err
			}
			defer cl.Close()
			return cl.ProduceSync(ctx, &kgo.Record{Value: make([]byte, 5000)}).FirstErr()
		}, kerr.MessageTooLarge},
	} {
		if err := test.do(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
}
