package commitlog

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// reckoned is what Memory should have counted: of a chunk that was cut, all of the
// memory, for that is not given back.
func reckoned(logs ...*Log) (held int64) {
	for _, l := range logs {
		for _, s := range l.segments {
			if !l.opts.Kept {
				held += max(s.held, int64(cap(s.mem)))
			}
		}
	}
	return held
}

// The oldest chunks go, whichever log has them; what is above a high watermark
// stays, and so does what is only compacted.
func TestMemoryDropsTheOldest(t *testing.T) {
	m := NewMemory(64 << 10)
	o := Options{SegmentBytes: 4 << 10, Memory: m}
	quiet, busy, stuck := New(o), New(o), New(o)
	kept := New(Options{SegmentBytes: 4 << 10, Memory: m, Kept: true})
	for _, l := range []*Log{stuck, kept, quiet} {
		for range 5 {
			appendAs(t, l, 1, 10)
		}
		if l != stuck {
			l.RaiseHighWatermark(l.LogEndOffset())
		}
	}
	before := stuck.Size()
	for i := range 1000 {
		appendAs(t, busy, 1, 10)
		busy.RaiseHighWatermark(busy.LogEndOffset())
		begun := m.Shrink()
		if m.Held() > m.Limit() || m.Held() != reckoned(quiet, busy, stuck) {
			t.Fatalf("append %d: %d bytes are counted, %d are held, %d may be", i, m.Held(), reckoned(quiet, busy, stuck), m.Limit())
		}
		if quiet.Size() > 0 && busy.LogStartOffset() > 0 {
			t.Fatalf("append %d: records of the busy log went before the older ones of the quiet one", i)
		}
		for _, l := range begun {
			if l.LogStartOffset() == 0 {
				t.Fatal("a log is told to begin later, and does not")
			}
		}
	}
	if quiet.Size() != 0 || quiet.LogStartOffset() != quiet.LogEndOffset() || busy.LogStartOffset() == 0 {
		t.Errorf("quiet log %d to %d, busy log %d to %d", quiet.LogStartOffset(), quiet.LogEndOffset(), busy.LogStartOffset(), busy.LogEndOffset())
	}
	if stuck.Size() != before || stuck.LogStartOffset() != 0 {
		t.Error("records above the high watermark were dropped")
	}
	if kept.LogStartOffset() != 0 || kept.Size() == 0 {
		t.Error("compacted records were dropped")
	}
	if len(m.chunks) > 200 {
		t.Errorf("%d chunks are remembered of %d that live", len(m.chunks), m.living)
	}
}

// Where nothing may go, Shrink looks again only when some more has come.
func TestMemoryThatCannotShrink(t *testing.T) {
	m := NewMemory(16 << 10)
	l := New(Options{SegmentBytes: 1 << 10, Memory: m})
	looks := 0
	for range 400 {
		appendAs(t, l, 1, 3)
		if m.Over() {
			looks++
			if m.Shrink() != nil {
				t.Fatal("what is not committed was dropped")
			}
		}
	}
	if m.Held() <= m.Limit() || looks == 0 || looks > 100 {
		t.Errorf("%d looks, %d bytes held of %d", looks, m.Held(), m.Limit())
	}
	l.RaiseHighWatermark(l.LogEndOffset())
	if m.Shrink(); m.Held() > m.Limit() {
		t.Errorf("%d bytes held of %d, though all is committed", m.Held(), m.Limit())
	}
}

// The account is right whatever happens to the logs.
func TestMemoryCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMemory(rapid.Int64Range(-1, 40<<10).Draw(t, "limit"))
		var logs []*Log
		for i := range 3 {
			logs = append(logs, New(Options{SegmentBytes: 2 << 10, Memory: m, Kept: i == 2}))
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if want := reckoned(logs...); m.Held() != want || m.living > len(m.chunks) {
					t.Fatalf("%d bytes are counted, %d are held; %d of %d chunks", m.Held(), want, m.living, len(m.chunks))
				}
			},
			"append": func(t *rapid.T) {
				l := rapid.SampledFrom(logs).Draw(t, "log")
				var rs []Record
				for i := range rapid.IntRange(1, 40).Draw(t, "records") {
					rs = append(rs, Record{Timestamp: at.UnixMilli(), Key: fmt.Append(nil, i%7), Value: make([]byte, 50)})
				}
				if _, err := l.Append(Encode(rs...), 1, at); err != nil {
					t.Fatal(err)
				}
			},
			"commit": func(t *rapid.T) {
				l := rapid.SampledFrom(logs).Draw(t, "log")
				l.RaiseHighWatermark(rapid.Int64Range(l.HighWatermark(), l.LogEndOffset()).Draw(t, "to"))
			},
			"change": func(t *rapid.T) {
				l := rapid.SampledFrom(logs).Draw(t, "log")
				var err error
				switch rapid.SampledFrom([]string{"retain", "cut", "anew", "begin", "compact", "delete", "options"}).Draw(t, "how") {
				case "retain":
					_, err = l.Retain(at, 3<<10, time.Hour)
				case "cut":
					err = l.TruncateTo(rapid.Int64Range(l.HighWatermark(), l.LogEndOffset()).Draw(t, "to"))
				case "anew":
					err = l.TruncateFullyAndStartAt(l.LogEndOffset())
				case "begin":
					err = l.RaiseStart(rapid.Int64Range(l.LogStartOffset(), l.HighWatermark()).Draw(t, "at"))
				case "compact":
					_, err = l.Compact(at, time.Hour)
				case "delete":
					err = l.Delete()
				case "options":
					o := l.opts
					o.Kept = !o.Kept
					l.SetOptions(o)
				}
				if err != nil {
					t.Fatal(err)
				}
			},
			"shrink": func(t *rapid.T) {
				starts := map[*Log]int64{}
				for _, l := range logs {
					starts[l] = l.LogStartOffset()
				}
				for _, l := range m.Shrink() {
					if l.LogStartOffset() <= starts[l] || l.LogStartOffset() > l.HighWatermark() {
						t.Fatalf("a log began at %d, begins at %d, and is committed to %d", starts[l], l.LogStartOffset(), l.HighWatermark())
					}
				}
			},
		})
	})
}
