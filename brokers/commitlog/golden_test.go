package commitlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// apache holds segments that Apache Kafka wrote, one partition each: NAME.log is
// the file, as TestApacheKafka -update took it from the broker's folder.
const apache = "testdata/apache-3.9.1"

// produced are the values that every client sent, some with a key and headers.
func produced() []Record {
	var out []Record
	for i := range 12 {
		r := Record{Value: fmt.Appendf(nil, "a value that repeats itself, a value that repeats itself, number %d", i), Timestamp: at.UnixMilli() + int64(i)}
		if i%3 != 0 {
			r.Key = fmt.Appendf(nil, "key-%d", i)
		}
		out = append(out, r)
	}
	return out
}

// checkApache holds a segment file against what was produced into it.
func checkApache(t *testing.T, name string, data []byte) {
	t.Helper()
	var got []Record
	records, codec := 0, Uncompressed
	for b, err := range Batches(data) {
		must(t, err)
		if b.Control() {
			continue
		}
		codec = max(codec, b.Compression())
		recs, err := b.Records()
		must(t, err)
		got = append(got, recs...)
		// As its producer sent it, the port takes it.
		sent := bytes.Clone(b)
		Batch(sent).setBaseOffset(0)
		checked, err := Check(sent, CheckOptions{MaxMessageBytes: 1 << 20, Now: at, Transactional: true})
		if err != nil {
			t.Errorf("%s at %d: %v", name, b.BaseOffset(), err)
		}
		records += checked.Records
	}
	want := produced()
	if len(got) != len(want) || records != len(want) {
		t.Fatalf("%s: %d records, %d checked, want %d", name, len(got), records, len(want))
	}
	for i := range want {
		want[i].Offset, want[i].Headers = got[i].Offset, got[i].Headers
		if !strings.HasPrefix(name, "kgo-") { // the command lines set the times themselves, and no keys
			want[i].Timestamp, want[i].Key = got[i].Timestamp, got[i].Key
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: %s", name, d)
	}
	if _, want, _ := strings.Cut(name, "-"); want != "transaction" && codec.String() != want {
		t.Errorf("%s: packed with %s", name, codec)
	}
}

func TestApacheFiles(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(apache, "*.log"))
	must(t, err)
	if len(paths) < 16 {
		t.Fatalf("%d files in %s", len(paths), apache)
	}
	for _, path := range paths {
		name := filepath.Base(path[:len(path)-len(".log")])
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			must(t, err)
			checkApache(t, name, data)
			// A follower copies it byte by byte, and its own folder opens to the same.
			whole, err := CheckReplicated(data)
			must(t, err)
			dir := t.TempDir()
			l, err := Open(dir, Options{})
			must(t, err)
			must(t, l.AppendAsFollower(whole))
			must(t, l.Close())
			copied, err := os.ReadFile(filepath.Join(dir, segmentName(0)))
			must(t, err)
			if !bytes.Equal(copied, data) {
				t.Error("the copy differs")
			}
		})
	}
}
