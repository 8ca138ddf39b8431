package brokerport_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

var orders = topic{"orders", kafka.TopicID{1, 2, 3}, 3}

func client(t *testing.T, b *broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.addr()), kgo.RequestRetries(2)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// A client that finds its way by ApiVersions and Metadata reads back what it
// produced, with every number of acks and every compression.
func TestProduceAndConsume(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	var want []string
	for _, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
		for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
			cl := client(t, b, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks), kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			v := fmt.Sprintf("%v-%d", acks, i)
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Partition: 1, Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatalf("%s: %v", v, err)
			}
			want = append(want, v)
		}
	}
	cl := client(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"orders": {1: kgo.NewOffset().AtStart()}}))
	if d := cmp.Diff(want, consume(t, cl, len(want))); d != "" {
		t.Error(d)
	}
}

func consume(t *testing.T, cl *kgo.Client, n int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var got []string
	for len(got) < n {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%v, after %q", err, got)
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

// kcat, which is librdkafka, produces and consumes.
func TestKcat(t *testing.T) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed")
	}
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	run := func(stdin string, args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, kcat, append([]string{"-b", b.addr()}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		var out, trouble bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &trouble
		if err := cmd.Run(); err != nil {
			t.Fatalf("kcat %v: %v: %s", args, err, trouble.String())
		}
		return out.String()
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		run(codec+"-1\n"+codec+"-2\n", "-P", "-t", "orders", "-p", "0", "-z", codec)
	}
	got := run("", "-C", "-t", "orders", "-p", "0", "-o", "beginning", "-e", "-q")
	want := "none-1\nnone-2\ngzip-1\ngzip-2\nsnappy-1\nsnappy-2\nlz4-1\nlz4-2\nzstd-1\nzstd-2\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := run("", "-Q", "-t", "orders:0:-1"); !strings.Contains(got, "orders [0] offset 10") {
		t.Errorf("offsets: %q", got)
	}
	if got := run("", "-L", "-t", "orders"); !strings.Contains(got, "3 partitions") {
		t.Errorf("metadata: %q", got)
	}
}

func ask[R kmsg.Response](t *testing.T, c *wire.Conn, req kmsg.Request, version int16) R {
	t.Helper()
	req.SetVersion(version)
	resp, err := c.Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}
