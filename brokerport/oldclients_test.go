package brokerport_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

func plainFetch(topic string, partition int32, offset int64) *kmsg.FetchRequest {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	tp := kmsg.NewFetchRequestTopic()
	tp.Topic, tp.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxBytes, req.Topics = -1, 1<<20, []kmsg.FetchRequestTopic{tp}
	return req
}

// oldFetch gives what a version of Fetch below 4 answers.
func oldFetch(t *testing.T, b *broker, version int16, offset int64) (kmsg.FetchResponseTopicPartition, []commitlog.Record) {
	t.Helper()
	p := ask[*kmsg.FetchResponse](t, dial(t, b), plainFetch("orders", 0, offset), version).Topics[0].Partitions[0]
	if len(p.RecordBatches) == 0 {
		return p, nil
	}
	if magic := int16(p.RecordBatches[16]); magic != version/2 {
		t.Fatalf("v%d: records of format %d", version, magic)
	}
	up, err := commitlog.Upconvert(p.RecordBatches, commitlog.CheckOptions{})
	if err != nil {
		t.Fatalf("v%d: %v", version, err)
	}
	recs, err := up.Records()
	if err != nil {
		t.Fatal(err)
	}
	return p, recs
}

// What real clients sent in message sets comes back to clients of every age.
func TestOldProducersAndConsumers(t *testing.T) {
	sets, err := filepath.Glob("../brokers/commitlog/testdata/messagesets/*.set")
	if err != nil || len(sets) != 16 {
		t.Fatalf("%d message sets, %v", len(sets), err)
	}
	for _, path := range sets {
		set, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b := start(t, brokerOptions{id: 1})
		b.lead(t, orders)
		name := filepath.Base(path)
		for version := range int16(3) {
			got := ask[*kmsg.ProduceResponse](t, dial(t, b), produceTo(-1, "orders", 0, set), version).Topics[0].Partitions[0]
			if got.ErrorCode != 0 || got.BaseOffset != 12*int64(version) {
				t.Fatalf("%s: Produce v%d: %s, offset %d", name, version, kafka.ErrorCode(got.ErrorCode), got.BaseOffset)
			}
		}
		for version := range int16(4) {
			p, recs := oldFetch(t, b, version, 12)
			if p.HighWatermark != 36 || len(recs) == 0 || len(recs)%12 != 0 {
				t.Fatalf("%s: Fetch v%d: high watermark %d, %d records", name, version, p.HighWatermark, len(recs))
			}
			for i, r := range recs {
				if strings.HasPrefix(name, "java") && (i%12 == 7 || i%12 == 8) {
					continue
				}
				if want := fmt.Sprintf("a value that repeats itself, a value that repeats itself, number %d", i%12); string(r.Value) != want {
					t.Fatalf("%s: Fetch v%d: record %d is %q", name, version, i, r.Value)
				}
				if hasTime := r.Timestamp > 0; hasTime != (version >= 2 && strings.Contains(name, "-v1-")) {
					t.Fatalf("%s: Fetch v%d: time %d", name, version, r.Timestamp)
				}
			}
		}
	}
}

// What old consumers cannot read they are told, and so they are where the topic
// says that nothing is converted.
func TestOldConsumersAreRefused(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	zstd := commitlog.NoProducerSpec()
	zstd.Codec = commitlog.Zstd
	records, err := zstd.Encode(commitlog.Record{Value: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	b.lead(t, orders)
	c := dial(t, b)
	if got := ask[*kmsg.ProduceResponse](t, c, produceTo(-1, "orders", 0, records), 9); got.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal(kafka.ErrorCode(got.Topics[0].Partitions[0].ErrorCode))
	}
	if p, _ := oldFetch(t, b, 3, 0); kafka.ErrorCode(p.ErrorCode) != kafka.UnsupportedCompressionType || len(p.RecordBatches) > 0 {
		t.Errorf("zstd: %s", kafka.ErrorCode(p.ErrorCode))
	}
	data := []byte(`{"version":1,"config":{"message.downconversion.enable":"false"}}`)
	if _, err := b.store.Write(t.Context(), zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Create, Path: "/config/topics/closed", Data: data}}); err != nil {
		t.Fatal(err)
	}
	b.lead(t, topic{"closed", kafka.TopicID{7}, 1})
	if got := ask[*kmsg.ProduceResponse](t, c, produceTo(-1, "closed", 0, batch("v")), 9); got.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal(kafka.ErrorCode(got.Topics[0].Partitions[0].ErrorCode))
	}
	for version, want := range map[int16]kafka.ErrorCode{3: kafka.UnsupportedVersion, 4: kafka.NoError} {
		p := ask[*kmsg.FetchResponse](t, c, plainFetch("closed", 0, 0), version).Topics[0].Partitions[0]
		if kafka.ErrorCode(p.ErrorCode) != want || (want == kafka.NoError) != (len(p.RecordBatches) > 0) {
			t.Errorf("v%d without conversion: %s, %d bytes", version, kafka.ErrorCode(p.ErrorCode), len(p.RecordBatches))
		}
	}
}

func TestListOffsetsV0(t *testing.T) {
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	c := dial(t, b)
	ask[*kmsg.ProduceResponse](t, c, produceTo(-1, "orders", 0, batch("a", "b")), 9) // at 1 700 000 000 000
	for _, tc := range []struct {
		partition int32
		at        int64
		most      int32
		want      []int64
		code      kafka.ErrorCode
	}{
		{0, -1, 1, []int64{2}, 0},
		{0, -1, 10, []int64{2, 0}, 0},
		{0, -2, 10, []int64{0}, 0},
		{0, 1_700_000_000_000, 10, []int64{0}, 0},
		{0, 1_699_999_999_999, 10, nil, 0},
		{0, 1 << 60, 10, []int64{2, 0}, 0},
		{0, -1, -1, nil, 0},
		{1, -1, 10, []int64{0}, 0},
		{3, -1, 1, nil, kafka.UnknownTopicOrPartition},
	} {
		req := kmsg.NewPtrListOffsetsRequest()
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.MaxNumOffsets = tc.partition, tc.at, tc.most
		req.ReplicaID, req.Topics = -1, []kmsg.ListOffsetsRequestTopic{{Topic: "orders", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		got := ask[*kmsg.ListOffsetsResponse](t, c, req, 0).Topics[0].Partitions[0]
		if len(got.OldStyleOffsets) == 0 {
			got.OldStyleOffsets = nil
		}
		if d := cmp.Diff(tc.want, got.OldStyleOffsets); d != "" || kafka.ErrorCode(got.ErrorCode) != tc.code {
			t.Errorf("%+v: %s %s", tc, kafka.ErrorCode(got.ErrorCode), d)
		}
	}
}

// librdkafka, told that the brokers are of 0.9, asks by the oldest versions of all.
func TestOldKcat(t *testing.T) {
	kcat, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed")
	}
	b := start(t, brokerOptions{id: 1})
	b.lead(t, orders)
	run := func(stdin string, args ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, kcat, append([]string{"-b", b.addr(), "-X", "api.version.request=false", "-X", "broker.version.fallback=0.9.0"}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		var out, trouble bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &trouble
		if err := cmd.Run(); err != nil {
			t.Fatalf("kcat %v: %v: %s", args, err, trouble.String())
		}
		return out.String()
	}
	var want strings.Builder
	for i, codec := range []string{"none", "gzip", "snappy", "lz4"} {
		run(codec+"-1\n"+codec+"-2\n", "-P", "-t", "orders", "-p", "0", "-z", codec)
		fmt.Fprintf(&want, "%d %s-1\n%d %s-2\n", 2*i, codec, 2*i+1, codec)
	}
	if d := cmp.Diff(want.String(), run("", "-C", "-t", "orders", "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %s\n")); d != "" {
		t.Error(d)
	}
	if got := run("", "-C", "-t", "orders", "-p", "0", "-o", "3", "-c", "1", "-q"); got != "gzip-2\n" {
		t.Errorf("from the middle of a packed batch: %q", got)
	}
}
