package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// at is when tests happen.
var at = time.UnixMilli(1_700_000_000_000)

// records makes n records with these first words of their values.
func records(n int, what string) []Record {
	out := make([]Record, n)
	for i := range out {
		out[i] = Record{Timestamp: at.UnixMilli() + int64(i), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "%s-%d", what, i)}
	}
	return out
}

// both runs a test on a log in memory and on one on disk.
func both(t *testing.T, o Options, f func(t *testing.T, l *Log)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { f(t, New(o)) })
	t.Run("disk", func(t *testing.T) {
		l, err := Open(t.TempDir(), o)
		must(t, err)
		defer l.Close()
		f(t, l)
	})
}

// must ends a test, of rapid or of testing.
func must(t interface {
	Helper()
	Fatal(...any)
}, err error,
) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// appendAs appends single-record batches under an epoch, from the log's end on.
func appendAs(t testing.TB, l *Log, epoch int32, n int) {
	t.Helper()
	for range n {
		_, err := l.Append(Encode(records(1, "r")...), epoch, at)
		must(t, err)
	}
}

// values reads all records from offset on, as "offset:value" words.
func values(t testing.TB, l *Log, offset, limit int64) []string {
	t.Helper()
	got, err := l.Read(offset, 1<<30, limit, true)
	must(t, err)
	var out []string
	for b, err := range Batches(bytes.Join(got, nil)) {
		must(t, err)
		if !b.CheckCRC() {
			t.Fatalf("the batch at %d has a wrong checksum", b.BaseOffset())
		}
		recs, err := b.Records()
		must(t, err)
		for _, r := range recs {
			out = append(out, fmt.Sprintf("%d:%s", r.Offset, r.Value))
		}
	}
	return out
}

func TestAppendRead(t *testing.T) {
	both(t, Options{SegmentBytes: 300}, func(t *testing.T, l *Log) {
		for i := range 10 {
			info, err := l.Append(Encode(records(3, fmt.Sprint(i))...), 4, at)
			must(t, err)
			want := AppendInfo{BaseOffset: int64(3 * i), LastOffset: int64(3*i + 2), MaxTimestamp: at.UnixMilli() + 2}
			if info != want {
				t.Errorf("append %d: %+v, want %+v", i, info, want)
			}
		}
		if n := len(l.segments); n < 3 {
			t.Errorf("%d segments, want several", n)
		}
		got := values(t, l, 13, 24)
		want := []string{"12:4-0", "13:4-1", "14:4-2", "15:5-0", "16:5-1", "17:5-2", "18:6-0", "19:6-1", "20:6-2", "21:7-0", "22:7-1", "23:7-2"}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		for _, o := range []int64{-1, 31} {
			_, err := l.Read(o, 1, 30, true)
			var out *OffsetOutOfRange
			if !errors.As(err, &out) || *out != (OffsetOutOfRange{o, 0, 30}) || Code(err) != kafka.OffsetOutOfRange {
				t.Errorf("read at %d: %v", o, err)
			}
		}
		if got := values(t, l, 30, 30); got != nil {
			t.Errorf("at the end: %v", got)
		}
	})
}

// TestEmptyLogIsSmall: a broker holds very many partitions that hold nothing.
func TestEmptyLogIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Log{}); n > 300 {
		t.Errorf("an empty log takes %d bytes", n)
	}
	if n := testing.AllocsPerRun(10, func() { New(Options{}) }); n > 1 {
		t.Errorf("%v allocations for an empty log", n)
	}
}

// What Read gave is read elsewhere while the log goes on, is cut and is emptied;
// the race detector sees to it that no byte of it is written again.
func TestReadersAreLeftAlone(t *testing.T) {
	l := New(Options{})
	var wg sync.WaitGroup
	for i := range 200 {
		appendAs(t, l, 1, 5)
		got, err := l.Read(l.LogStartOffset(), 1<<20, l.LogEndOffset(), true)
		must(t, err)
		wg.Go(func() {
			for b, err := range Batches(bytes.Join(got, nil)) {
				if err != nil || !b.CheckCRC() {
					t.Errorf("a batch has changed: %v", err)
				}
			}
		})
		switch i % 4 {
		case 1:
			must(t, l.TruncateTo(l.LogEndOffset()-2))
		case 2:
			l.SetHighWatermark(l.LogEndOffset())
			_, err := l.Compact(at, 0)
			must(t, err)
		case 3:
			if i%40 == 3 {
				must(t, l.TruncateFullyAndStartAt(l.LogEndOffset()))
			}
		}
	}
	wg.Wait()
}
