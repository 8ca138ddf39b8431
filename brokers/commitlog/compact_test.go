package commitlog

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// state replays all records below the limit: the offset and value of each key.
func state(t testing.TB, l *Log, limit int64) map[string]string {
	t.Helper()
	out := map[string]string{}
	got, err := l.Read(l.LogStartOffset(), 1<<30, limit, true)
	must(t, err)
	for b, err := range Batches(bytes.Join(got, nil)) {
		must(t, err)
		if !b.CheckCRC() {
			t.Fatalf("checksum of the batch at %d", b.BaseOffset())
		}
		recs, err := b.Records()
		must(t, err)
		for _, r := range recs {
			if out[string(r.Key)] = fmt.Sprintf("%d:%s@%d%v", r.Offset, r.Value, r.Timestamp, r.Headers); r.Value == nil {
				delete(out, string(r.Key))
			}
		}
	}
	return out
}

func TestCompact(t *testing.T) {
	for _, c := range codecs {
		both(t, Options{SegmentBytes: 600}, func(t *testing.T, l *Log) {
			put := func(words ...string) {
				t.Helper()
				var recs []Record
				for i, w := range words {
					k, v, ok := strings.Cut(w, "=")
					r := Record{Timestamp: at.UnixMilli() + int64(i), Key: []byte(k), Headers: []Header{{"h", []byte("1")}}}
					if ok {
						r.Value = []byte(v)
					}
					recs = append(recs, r)
				}
				s := NoProducerSpec()
				s.Codec = c
				b, err := s.Encode(recs...)
				must(t, err)
				_, err = l.Append(b, 1, at)
				must(t, err)
			}
			put("a=1", "b=1", "c=1")
			put("a=2")
			put("b=2", "c", "d=1") // c is deleted
			put("e=1")
			noise := rand.New(rand.NewPCG(1, 1)) // that does not pack
			for k, n := range []int{400, 500} {
				v := make([]byte, n)
				for i := range v {
					v[i] = byte(noise.Uint32())
				}
				put(fmt.Sprintf("f%d=%s", k, v))
			}
			put("a=3")
			l.SetHighWatermark(9)
			end, before := l.LogEndOffset(), l.Size()
			want := state(t, l, end)
			freed, err := l.Compact(at, time.Minute)
			if err != nil || freed <= 0 || l.Size() != before-freed {
				t.Fatalf("%d %v, size %d of %d", freed, err, l.Size(), before)
			}
			if d := cmp.Diff(want, state(t, l, end)); d != "" {
				t.Error(d)
			}
			if got := fmt.Sprint(values(t, l, 0, 7)); got != "[3:2 4:2 5: 6:1]" {
				t.Errorf("%s", got)
			}
			if l.LogStartOffset() != 0 || l.LogEndOffset() != end {
				t.Errorf("%d to %d", l.LogStartOffset(), l.LogEndOffset())
			}
			if dirty, total := l.Dirty(); dirty != 0 || total <= 0 {
				t.Errorf("dirty %d of %d", dirty, total)
			}
			freed, err = l.Compact(at.Add(59*time.Second), time.Minute)
			if err != nil || freed != 0 {
				t.Errorf("again: %d %v", freed, err)
			}
			freed, err = l.Compact(at.Add(time.Minute), time.Minute)
			if got := fmt.Sprint(values(t, l, 0, 7)); err != nil || freed <= 0 || got != "[3:2 4:2 6:1]" {
				t.Errorf("tombstones: %d %v %s", freed, err, got)
			}
			if d := cmp.Diff(want, state(t, l, end)); d != "" {
				t.Error(d)
			}
		})
	}
}

// What tells where a producer or the log stands stays as a header without records.
func TestCompactKeepsPlaces(t *testing.T) {
	l := New(Options{})
	_, err := l.Append(idempotent(t, 0, 0, 2), 1, at) // k0, k1
	must(t, err)
	_, err = l.Append(Encode(records(2, "newer")...), 1, at)
	must(t, err)
	_, err = l.Append(Encode(Record{Timestamp: 1, Value: []byte("no key")}), 1, at)
	must(t, err)
	l.SetHighWatermark(5)
	_, err = l.Compact(at, 0)
	must(t, err)
	if got := fmt.Sprint(values(t, l, 0, 5)); got != "[2:newer-0 3:newer-1]" {
		t.Errorf("%s", got)
	}
	var shape []string
	got, err := l.Read(0, 1<<20, 5, true)
	must(t, err)
	for b, err := range Batches(bytes.Join(got, nil)) {
		must(t, err)
		shape = append(shape, fmt.Sprintf("%d-%d:%d seq %d", b.BaseOffset(), b.LastOffset(), b.Count(), b.LastSequence()))
	}
	if got := fmt.Sprint(shape); got != "[0-1:0 seq 1 2-3:2 seq -1 4-4:0 seq -1]" {
		t.Errorf("%s", got)
	}
	f := New(Options{})
	must(t, f.AppendAsFollower(bytes.Join(got, nil)))
	if f.LogEndOffset() != 5 {
		t.Errorf("a follower ends at %d", f.LogEndOffset())
	}
	if a, err := f.Append(idempotent(t, 0, 0, 2), 2, at); err != nil || !a.Duplicate || a.BaseOffset != 0 {
		t.Errorf("%+v %v", a, err)
	}
}

// Compaction keeps what a replay gives, whatever was appended and whenever.
func TestCompactAgainstReplay(t *testing.T) {
	for _, disk := range []bool{false, true} {
		t.Run(fmt.Sprint("disk=", disk), func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) { compactAgainstReplay(t, r, disk) })
		})
	}
}

func compactAgainstReplay(t *testing.T, r *rapid.T, disk bool) {
	o := Options{SegmentBytes: 500}
	l, dir := New(o), ""
	if disk {
		dir = t.TempDir()
		var err error
		l, err = Open(dir, o)
		must(r, err)
		defer func() { l.Close() }()
	}
	now := at
	r.Repeat(map[string]func(*rapid.T){
		"append": func(r *rapid.T) {
			var recs []Record
			for i := range rapid.IntRange(1, 4).Draw(r, "records") {
				rec := Record{Timestamp: now.UnixMilli(), Key: fmt.Append(nil, rapid.IntRange(0, 5).Draw(r, "key")), Value: fmt.Appendf(nil, "%d-%d", l.LogEndOffset(), i)}
				if rapid.IntRange(0, 3).Draw(r, "delete") == 0 {
					rec.Value = nil
				}
				recs = append(recs, rec)
			}
			s := NoProducerSpec()
			s.Codec = rapid.SampledFrom(codecs).Draw(r, "codec")
			b, err := s.Encode(recs...)
			must(r, err)
			_, err = l.Append(b, 1, now)
			must(r, err)
		},
		"compact": func(r *rapid.T) {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(r, "s")) * time.Second)
			l.SetHighWatermark(rapid.Int64Range(l.HighWatermark(), l.LogEndOffset()).Draw(r, "high"))
			end := l.LogEndOffset()
			want := state(t, l, end)
			_, err := l.Compact(now, time.Minute)
			must(r, err)
			if got := state(t, l, end); !maps.Equal(got, want) {
				r.Fatalf("%s", cmp.Diff(want, got))
			}
			if l.LogEndOffset() != end {
				r.Fatalf("end %d, was %d", l.LogEndOffset(), end)
			}
		},
		"reopen": func(r *rapid.T) {
			if !disk {
				return
			}
			want, end, high := state(t, l, l.LogEndOffset()), l.LogEndOffset(), l.HighWatermark()
			must(r, l.Close())
			var err error
			l, err = Open(dir, o)
			must(r, err)
			l.SetHighWatermark(high)
			if got := state(t, l, end); !maps.Equal(got, want) || l.LogEndOffset() != end {
				r.Fatalf("end %d, was %d: %s", l.LogEndOffset(), end, cmp.Diff(want, got))
			}
		},
	})
	if disk {
		os.RemoveAll(dir)
	}
}

// A kill amid the replacing of files leaves a folder that opens to the same.
func TestCompactKilled(t *testing.T) {
	dir := t.TempDir()
	o := Options{SegmentBytes: 300}
	l, err := Open(dir, o)
	must(t, err)
	for i := range 12 {
		_, err := l.Append(Encode(records(1+i%3, fmt.Sprint(i))...), 1, at)
		must(t, err)
	}
	end := l.LogEndOffset()
	l.SetHighWatermark(end)
	want := state(t, l, end)
	must(t, l.Flush())
	before := t.TempDir()
	must(t, os.CopyFS(before, os.DirFS(dir)))
	_, err = l.Compact(at, 0)
	must(t, err)
	must(t, l.Close())
	old, err := filepath.Glob(filepath.Join(before, "*.log"))
	must(t, err)
	for removed := range len(old) + 1 { // how many of the old files were gone
		killed := t.TempDir()
		must(t, os.CopyFS(killed, os.DirFS(before)))
		now, err := filepath.Glob(filepath.Join(dir, "*.log"))
		must(t, err)
		data, err := os.ReadFile(now[0])
		must(t, err)
		must(t, os.WriteFile(filepath.Join(killed, filepath.Base(now[0])+swapSuffix), data, 0o644))
		must(t, os.WriteFile(filepath.Join(killed, filepath.Base(now[0])+cleanedSuffix), data[:len(data)/2], 0o644))
		var covered int64
		for b, err := range Batches(data) {
			must(t, err)
			covered = b.LastOffset()
		}
		for i := range removed {
			if fmt.Sprintf("%020d.log", covered) >= filepath.Base(old[i]) {
				must(t, os.Remove(filepath.Join(killed, filepath.Base(old[i]))))
			}
		}
		l, err := Open(killed, o)
		must(t, err)
		if got := state(t, l, end); !maps.Equal(got, want) || l.LogEndOffset() != end {
			t.Errorf("with %d files gone: end %d of %d: %s", removed, l.LogEndOffset(), end, cmp.Diff(want, got))
		}
		must(t, l.Close())
	}
}
