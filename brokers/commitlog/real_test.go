package commitlog

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/kafka"
)

var update = flag.Bool("update", false, "let TestApacheKafka replace the segments in "+apache)

// TestApacheKafka: the segments that Kafka 3.9.1 writes are read, and Kafka
// serves a folder that was written here.
func TestApacheKafka(t *testing.T) {
	real.Require(t, real.Kafka)
	logs := t.TempDir()
	k := real.KafkaBroker(t, real.ZooKeeper(t).Addr(), "3.9.1", "log.dirs="+logs,
		"log.retention.ms=-1", "log.roll.ms=900000000000") // the records are said to be old
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	topics := produceAll(ctx, t, k.Addr())
	createTopic(ctx, t, k.Addr(), "ours")
	k.Stop()

	for _, topic := range topics {
		data, err := os.ReadFile(filepath.Join(logs, topic+"-0", segmentName(0)))
		must(t, err)
		checkApache(t, topic, data)
		if *update {
			must(t, os.MkdirAll(apache, 0o755))
			must(t, os.WriteFile(filepath.Join(apache, topic+".log"), data, 0o644))
		}
		l, err := Open(filepath.Join(logs, topic+"-0"), Options{})
		must(t, err)
		if l.Size() != int64(len(data)) || l.RecoveredBytes() != 0 || len(l.Epochs()) != 1 {
			t.Errorf("%s: %d bytes of %d, epochs %v", topic, l.Size(), len(data), l.Epochs())
		}
		must(t, l.Close())
	}
	tp := kafka.TopicPartition{Topic: topics[0]}
	if offsets, err := ReadOffsets(filepath.Join(logs, HighWatermarkFile)); err != nil || offsets[tp] != int64(len(produced())) {
		t.Errorf("%v %v", offsets, err)
	}

	want := writeOurs(t, filepath.Join(logs, "ours-0"))
	for _, name := range []string{HighWatermarkFile, RecoveryPointFile} {
		offsets, err := ReadOffsets(filepath.Join(logs, name))
		must(t, err)
		offsets[kafka.TopicPartition{Topic: "ours"}] = int64(len(want))
		must(t, WriteOffsets(filepath.Join(logs, name), offsets))
	}
	must(t, k.Start())
	t.Cleanup(k.Kill)
	if d := cmp.Diff(want, consume(ctx, t, k.Addr(), "ours", len(want))); d != "" {
		t.Error(d)
	}
	produce(ctx, t, k.Addr(), "ours")
	k.Stop()
	l, err := Open(filepath.Join(logs, "ours-0"), Options{})
	must(t, err)
	defer l.Close()
	if l.LogEndOffset() != int64(len(want)+len(produced())) || l.Producers() != 2 {
		t.Errorf("after Kafka appended: LEO %d, %d producers", l.LogEndOffset(), l.Producers())
	}
	if out := k.Output(); strings.Contains(out, "orrupt") {
		t.Errorf("Kafka: %s", out)
	}
}

func createTopic(ctx context.Context, t *testing.T, addr, topic string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	must(t, err)
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, topic)
	must(t, err)
}

// produce sends what produced gives, in two batches or more.
func produce(ctx context.Context, t *testing.T, addr, topic string, opts ...kgo.Opt) {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression())}, opts...)...)
	must(t, err)
	defer cl.Close()
	var recs []*kgo.Record
	for _, r := range produced() {
		recs = append(recs, &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp), Headers: []kgo.RecordHeader{{Key: "h", Value: nil}, {Key: "", Value: []byte("1")}}})
	}
	transaction := cl.BeginTransaction() == nil
	must(t, cl.ProduceSync(ctx, recs[:5]...).FirstErr())
	must(t, cl.ProduceSync(ctx, recs[5:]...).FirstErr())
	if transaction {
		must(t, cl.EndTransaction(ctx, kgo.TryCommit))
	}
}

// produceAll lets kgo, kcat and Java's client, each with every codec, fill a
// topic each.
func produceAll(ctx context.Context, t *testing.T, addr string) (topics []string) {
	t.Helper()
	for c, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		topics = append(topics, "kgo-"+c)
		createTopic(ctx, t, addr, "kgo-"+c)
		produce(ctx, t, addr, "kgo-"+c, kgo.ProducerBatchCompression(codec))
	}
	createTopic(ctx, t, addr, "kgo-transaction")
	produce(ctx, t, addr, "kgo-transaction", kgo.TransactionalID("tx"))
	topics = append(topics, "kgo-transaction")
	consume(ctx, t, addr, "kgo-transaction", len(produced()), kgo.FetchIsolationLevel(kgo.ReadCommitted())) // the marker is there then
	var lines bytes.Buffer
	for _, r := range produced() {
		fmt.Fprintf(&lines, "%s\n", r.Value)
	}
	for _, c := range codecs {
		for client, cmd := range map[string]*exec.Cmd{
			"kcat": exec.CommandContext(ctx, "kcat", "-P", "-b", addr, "-t", "kcat-"+c.String(), "-p", "0", "-z", c.String(), "-X", "linger.ms=500"),
			"java": exec.CommandContext(ctx, "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(real.JarSet("3.9.1"), "*"), "kafka.tools.ConsoleProducer",
				"--bootstrap-server", addr, "--topic", "java-"+c.String(), "--compression-codec", c.String(), "--timeout", "500"),
		} {
			if cmd.Err != nil {
				t.Logf("left out: %v", cmd.Err)
				continue
			}
			topic := client + "-" + c.String()
			createTopic(ctx, t, addr, topic)
			cmd.Stdin = bytes.NewReader(lines.Bytes())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", client, err, out)
			}
			topics = append(topics, topic)
		}
	}
	return topics
}

func consume(ctx context.Context, t *testing.T, addr, topic string, n int, opts ...kgo.Opt) []string {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))...)
	must(t, err)
	defer cl.Close()
	var out []string
	for len(out) < n {
		got := cl.PollFetches(ctx)
		must(t, got.Err())
		got.EachRecord(func(r *kgo.Record) { out = append(out, fmt.Sprintf("%d:%s", r.Offset, r.Value)) })
	}
	return out
}

// writeOurs replaces a partition's segment by one of batches of every codec, and
// gives what a consumer is to see.
func writeOurs(t *testing.T, dir string) []string {
	t.Helper()
	for _, glob := range []string{"*.log", "*.index", "*.timeindex", "*.snapshot", epochFile} {
		paths, err := filepath.Glob(filepath.Join(dir, glob))
		must(t, err)
		for _, p := range paths {
			must(t, os.Remove(p))
		}
	}
	l, err := Open(dir, Options{SegmentBytes: 1000})
	must(t, err)
	fill(t, l)
	l.SetHighWatermark(l.LogEndOffset())
	must(t, l.Close())
	l, err = Open(dir, Options{})
	must(t, err)
	defer l.Close()
	return values(t, l, 0, l.LogEndOffset())
}

// fill appends batches of every codec, of an idempotent producer, amid them a
// truncation. Record times are those of now, which a retention keeps.
func fill(t *testing.T, l *Log) {
	t.Helper()
	seq := int32(0)
	for i := range 15 {
		s := NoProducerSpec()
		s.Codec = codecs[i%len(codecs)]
		recs := records(1+i%4, fmt.Sprintf("batch %d of some length, batch %d of some length", i, i))
		if i%2 == 0 {
			s.ProducerID, s.ProducerEpoch, s.BaseSequence = 3000, 1, seq
			seq += int32(len(recs))
		}
		for j := range recs {
			recs[j].Timestamp = time.Now().UnixMilli()
			recs[j].Headers = []Header{{"h", nil}, {"", []byte("1")}}
		}
		b, err := s.Encode(recs...)
		must(t, err)
		_, err = l.Append(b, int32(i/6), time.Now())
		must(t, err)
		if i == 8 {
			must(t, l.TruncateTo(l.LogEndOffset()-1))
			seq -= int32(len(recs))
		}
	}
}

var dumped = regexp.MustCompile(`(?m)^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*partitionLeaderEpoch: (\d+) .*isvalid: (\w+)`)

// TestDumpLogSegments: Kafka's own tool finds in our segments what is in them,
// also after truncation and compaction.
func TestDumpLogSegments(t *testing.T) {
	real.Require(t, real.Kafka)
	jars := real.JarSet("3.9.1")
	if jars == "" {
		real.Missing(t, real.Kafka, "no jars of 3.9.1 under "+real.JarsDir(), "run scripts/jars.sh .cache/jars 3.9.1")
	}
	for what, o := range map[string]Options{"plain": {SegmentBytes: 1000}, "append time": {SegmentBytes: 1000, LogAppendTime: true}, "compacted": {SegmentBytes: 1000}} {
		t.Run(what, func(t *testing.T) {
			l, err := Open(t.TempDir(), o)
			must(t, err)
			defer l.Close()
			fill(t, l)
			if what == "compacted" {
				_, err := l.Append(Encode(Record{Timestamp: 5, Key: []byte("k0")}, Record{Timestamp: 6, Key: []byte("k9"), Value: []byte("v")}), 9, at)
				must(t, err)
				fill2 := Encode(Record{Timestamp: 7, Key: []byte("k8"), Value: make([]byte, 2000)})
				_, err = l.Append(fill2, 9, at)
				must(t, err)
				l.SetHighWatermark(l.LogEndOffset())
				if freed, err := l.Compact(at, time.Minute); err != nil || freed <= 0 {
					t.Fatalf("%d %v", freed, err)
				}
			}
			must(t, l.Flush())
			var want, files []string
			deep := 0
			for _, s := range l.segments {
				files = append(files, s.path)
				must(t, s.walk(0, true, func(_ int64, b Batch) bool {
					want = append(want, fmt.Sprint(b.BaseOffset(), b.LastOffset(), b.Count(), b.LeaderEpoch(), true))
					deep += int(b.Count())
					return true
				}))
			}
			out, err := exec.Command("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(jars, "*"), "kafka.tools.DumpLogSegments",
				"--deep-iteration", "--print-data-log", "--files", strings.Join(files, ",")).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var got []string
			for _, m := range dumped.FindAllStringSubmatch(string(out), -1) {
				got = append(got, strings.Join(m[1:], " "))
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s\n%s", d, out)
			}
			if n := strings.Count(string(out), "\n| offset: "); n != deep {
				t.Errorf("%d records are listed, want %d", n, deep)
			}
			for _, bad := range []string{"orrupt", "xception", "non-consecutive", "isvalid: false", "Mismatch"} {
				if strings.Contains(string(out), bad) && !(what == "compacted" && bad == "non-consecutive") {
					t.Errorf("the tool says %q:\n%s", bad, out)
				}
			}
		})
	}
}
