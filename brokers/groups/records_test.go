package groups

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// TestWritesWhatKafkaWrites reads each record of Kafka 3.9.1's offsets topics
// and writes it again: the bytes are the same, keys and values.
func TestWritesWhatKafkaWrites(t *testing.T) {
	logs, err := filepath.Glob("testdata/kafka-3.9.1/*.log")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range commitlog.Batches(log) {
			if err != nil {
				t.Fatal(err)
			}
			if b.Control() {
				continue
			}
			records, err := b.Records()
			if err != nil {
				t.Fatal(err)
			}
			var again []record
			for _, r := range records {
				again = append(again, rewrite(t, r, seen))
			}
			if !b.Transactional() && b.Compression() == commitlog.Uncompressed {
				sameBatch(t, b, again)
			}
		}
	}
	for _, what := range []string{"offset", "group", "offset tombstone"} {
		if seen[what] == 0 {
			t.Errorf("no record was an %s", what)
		}
	}
}

// rewrite reads a record as if it were the only one, and writes it.
func rewrite(t *testing.T, r commitlog.Record, seen map[string]int) record {
	t.Helper()
	l := newLoader()
	if err := l.record(r, l.offsets); err != nil {
		t.Fatal(err)
	}
	var got record
	what := "group"
	for at, o := range l.offsets {
		got.key, what = offsetKey(at.group, at.tp), "offset"
		if o.offset != nil {
			got.value = offsetValue(*o.offset, kafka.ProtocolVersion{})
		}
	}
	for id, g := range l.groups {
		got = record{groupKey(id), groupValue(g, assignments(g), kafka.V3_9IV0)}
	}
	if r.Value == nil {
		what += " tombstone"
	}
	seen[what]++
	if got.key == nil { // the tombstone of a group leaves nothing to read
		return record{r.Key, r.Value}
	}
	if diff := cmp.Diff(record{r.Key, r.Value}, got, cmp.AllowUnexported(record{})); diff != "" {
		t.Errorf("%s at offset %d (-Kafka, +ours):\n%s", what, r.Offset, diff)
	}
	return got
}

// sameBatch makes the batch that the records would have come in: the bytes are
// Kafka's but for what the log writes, the checksum, and the sequence of a
// producer that there is not (Kafka has 0 or -1, as it happens).
func sameBatch(t *testing.T, b commitlog.Batch, records []record) {
	t.Helper()
	const attributes, sequence, count = 21, 53, 57
	got := encodeBatch(records, time.UnixMilli(b.BaseTimestamp()))
	if !bytes.Equal(got[attributes:sequence], b[attributes:sequence]) || !bytes.Equal(got[count:], b[count:]) {
		t.Errorf("batch at offset %d:\nKafka %x\nours  %x", b.BaseOffset(), []byte(b), got)
	}
}
