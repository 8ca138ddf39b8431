package commitlog

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// B-106
func TestAssignEpoch_B106(t *testing.T) {
	both(t, Options{}, func(t *testing.T, l *Log) {
		for _, step := range []struct {
			epoch int32
			start int64
			want  []EpochEntry
		}{
			{4, 0, []EpochEntry{{4, 0}}},
			{5, 10, []EpochEntry{{4, 0}, {5, 10}}},
			{5, 12, []EpochEntry{{4, 0}, {5, 10}}},
			{6, 10, []EpochEntry{{4, 0}, {6, 10}}},
			{3, 20, []EpochEntry{{3, 20}}},
			{3, 15, []EpochEntry{{3, 15}}}, // earlier than known
			{5, 30, []EpochEntry{{3, 15}, {5, 30}}},
			{3, 40, []EpochEntry{{3, 40}}}, // known, but not the last
			{-1, 50, []EpochEntry{{3, 40}}},
		} {
			must(t, l.AssignEpoch(step.epoch, step.start))
			if d := cmp.Diff(step.want, l.Epochs()); d != "" {
				t.Errorf("after %d at %d: %s", step.epoch, step.start, d)
			}
		}
	})
}

// logOf makes a log with these epochs that ends at end, of batches of one record.
func logOf(t testing.TB, start, end int64, epochs ...EpochEntry) *Log {
	t.Helper()
	l := New(Options{})
	must(t, l.TruncateFullyAndStartAt(start))
	for i, e := range epochs {
		must(t, l.AssignEpoch(e.Epoch, e.Start))
		last := end
		if i+1 < len(epochs) {
			last = epochs[i+1].Start
		}
		appendAs(t, l, e.Epoch, int(last-l.LogEndOffset()))
	}
	return l
}

// B-107
func TestEndOffset_B107(t *testing.T) {
	l := logOf(t, 0, 18, EpochEntry{4, 0}, EpochEntry{5, 10}, EpochEntry{7, 14})
	for _, c := range []struct {
		asked, epoch int32
		end          int64
	}{{3, 3, 0}, {4, 4, 10}, {5, 5, 14}, {6, 5, 14}, {7, 7, 18}, {8, -1, -1}, {-1, -1, -1}} {
		if e, o := l.EndOffset(c.asked); e != c.epoch || o != c.end {
			t.Errorf("end of %d: (%d,%d), want (%d,%d)", c.asked, e, o, c.epoch, c.end)
		}
	}
	if e, o := New(Options{}).EndOffset(0); e != -1 || o != -1 {
		t.Errorf("end of 0 in an empty log: (%d,%d)", e, o)
	}
	for o, want := range map[int64]int32{0: 4, 9: 4, 10: 5, 13: 5, 14: 7, 17: 7} {
		if got := l.EpochAt(o); got != want {
			t.Errorf("epoch at %d: %d, want %d", o, got, want)
		}
	}
}

// step is one fetch of a follower: what the leader says of the follower's last
// epoch, and what the follower does then (spec/broker.md §8.3).
func step(f, l *Log) string {
	at, last := f.LogEndOffset(), f.LatestEpoch()
	e, end := l.EndOffset(last)
	switch {
	case e < 0 || at < l.LogStartOffset():
		return "OFFSET_OUT_OF_RANGE"
	case e >= last && end >= at:
		return "fine"
	}
	own, ownEnd := f.EndOffset(e)
	to := min(end, f.LogEndOffset())
	if own >= 0 {
		to = min(ownEnd, f.LogEndOffset())
		if own == e {
			to = min(to, end)
		}
	}
	if err := f.TruncateTo(to); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("(%d,%d) diverges at (%d,%d): truncated to %d", at, last, e, end, to)
}

// B-093 to B-099, B-103. What a follower's and a leader's cache make of each other;
// the broker's own doing: brokers/testdata/b/divergence.
func TestDivergence(t *testing.T) {
	type epochs = []EpochEntry
	for _, c := range []struct {
		id            string
		f             epochs
		fEnd, fHigh   int64
		l             epochs
		lStart, lEnd  int64
		want          []string
		end, high     int64
		cache         epochs
		restartAtLead bool
	}{
		{id: "B-093", f: epochs{{4, 0}, {5, 10}}, fEnd: 15, fHigh: 12, l: epochs{{4, 0}, {6, 12}}, lEnd: 20,
			want: []string{"(15,5) diverges at (4,12): truncated to 10", "fine"}, end: 10, high: 10, cache: epochs{{4, 0}}},
		{id: "B-094", f: epochs{{4, 0}, {5, 10}, {7, 14}}, fEnd: 18, fHigh: 9, l: epochs{{4, 0}, {6, 12}, {8, 16}}, lEnd: 20,
			want: []string{"(18,7) diverges at (6,16): truncated to 14", "(14,5) diverges at (4,12): truncated to 10", "fine"}, end: 10, high: 9, cache: epochs{{4, 0}}},
		{id: "B-095", f: epochs{{4, 0}}, fEnd: 15, l: epochs{{4, 0}, {5, 12}}, lEnd: 20,
			want: []string{"(15,4) diverges at (4,12): truncated to 12", "fine"}, end: 12, cache: epochs{{4, 0}}},
		{id: "B-096", f: epochs{{4, 0}}, fEnd: 10, l: epochs{{4, 0}, {5, 12}}, lEnd: 20, want: []string{"fine"}, end: 10, cache: epochs{{4, 0}}},
		{id: "B-097", f: epochs{{4, 0}, {5, 10}}, fEnd: 10, l: epochs{{4, 0}, {6, 10}}, lEnd: 12,
			want: []string{"(10,5) diverges at (4,10): truncated to 10", "fine"}, end: 10, cache: epochs{{4, 0}}},
		{id: "B-098", f: epochs{{9, 0}}, fEnd: 10, l: epochs{{4, 0}, {5, 12}}, lEnd: 20, want: []string{"OFFSET_OUT_OF_RANGE"}, end: 10, cache: epochs{{9, 0}}},
		{id: "B-099", f: epochs{{2, 0}}, fEnd: 10, l: epochs{{4, 30}, {5, 42}}, lStart: 30, lEnd: 50,
			want: []string{"OFFSET_OUT_OF_RANGE"}, restartAtLead: true, end: 30, high: 30, cache: nil},
		{id: "B-103", f: epochs{{2, 0}}, fEnd: 100, l: epochs{{2, 200}}, lStart: 200, lEnd: 300,
			want: []string{"OFFSET_OUT_OF_RANGE"}, restartAtLead: true, end: 200, high: 200, cache: nil},
	} {
		t.Run(c.id, func(t *testing.T) {
			f, l := logOf(t, 0, c.fEnd, c.f...), logOf(t, c.lStart, c.lEnd, c.l...)
			f.SetHighWatermark(c.fHigh)
			var got []string
			for len(got) == 0 || len(got) < 5 && got[len(got)-1] != "fine" && got[len(got)-1] != "OFFSET_OUT_OF_RANGE" {
				got = append(got, step(f, l))
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if c.restartAtLead {
				must(t, f.TruncateFullyAndStartAt(l.LogStartOffset()))
				if f.LogStartOffset() != c.end {
					t.Errorf("start %d", f.LogStartOffset())
				}
			}
			if f.LogEndOffset() != c.end || f.HighWatermark() != c.high {
				t.Errorf("LEO %d HW %d, want %d and %d", f.LogEndOffset(), f.HighWatermark(), c.end, c.high)
			}
			if d := cmp.Diff(c.cache, f.Epochs()); len(c.cache)+len(f.Epochs()) > 0 && d != "" {
				t.Error(d)
			}
		})
	}
}

// B-101, B-102. A follower of old cuts at its high watermark, and one that is ahead of
// its leader at the leader's end.
func TestTruncate_B101_B102(t *testing.T) {
	both(t, Options{}, func(t *testing.T, l *Log) {
		appendAs(t, l, 4, 15)
		l.SetHighWatermark(12)
		must(t, l.TruncateTo(l.HighWatermark()))
		if l.LogEndOffset() != 12 || l.HighWatermark() != 12 {
			t.Errorf("B-101: LEO %d HW %d", l.LogEndOffset(), l.HighWatermark())
		}
		appendAs(t, l, 4, 88)
		l.SetHighWatermark(95)
		must(t, l.TruncateTo(80))
		if l.LogEndOffset() != 80 || l.HighWatermark() != 80 {
			t.Errorf("B-102: LEO %d HW %d", l.LogEndOffset(), l.HighWatermark())
		}
		if got := values(t, l, 79, 1000); len(got) != 1 || got[0] != "79:r-0" {
			t.Errorf("B-102: %v", got)
		}
	})
}

// B-084: what a consumer sees ends at the high watermark, exclusive.
func TestVisible_B084(t *testing.T) {
	l := logOf(t, 0, 10, EpochEntry{5, 0})
	l.RaiseHighWatermark(7)
	if got := values(t, l, 0, l.HighWatermark()); len(got) != 7 {
		t.Errorf("%v", got)
	}
	if got := values(t, l, 8, l.HighWatermark()); got != nil {
		t.Errorf("above the high watermark: %v", got)
	}
}

// B-087: a checkpoint is brought into the log's range.
func TestHighWatermark_B087(t *testing.T) {
	for _, c := range []struct{ checkpoint, start, want int64 }{{4, 0, 4}, {9, 0, 6}, {1, 3, 3}, {0, 0, 0}} {
		l := logOf(t, 0, 6, EpochEntry{1, 0})
		l.SetHighWatermark(6)
		must(t, l.RaiseStart(c.start))
		if got := l.SetHighWatermark(c.checkpoint); got != c.want || l.HighWatermark() != c.want {
			t.Errorf("%d in %d to 6: %d, want %d", c.checkpoint, c.start, got, c.want)
		}
	}
	l := logOf(t, 0, 6, EpochEntry{1, 0})
	for _, c := range []struct {
		to    int64
		moved bool
		want  int64
	}{{4, true, 4}, {3, false, 4}, {9, true, 6}, {9, false, 6}} {
		if moved := l.RaiseHighWatermark(c.to); moved != c.moved || l.HighWatermark() != c.want {
			t.Errorf("raise to %d: %v %d", c.to, moved, l.HighWatermark())
		}
	}
}

// Raising the start lets the epoch that holds it begin there (§10.4).
func TestRaiseStart(t *testing.T) {
	both(t, Options{SegmentBytes: 200}, func(t *testing.T, l *Log) {
		appendAs(t, l, 4, 10)
		appendAs(t, l, 5, 5)
		appendAs(t, l, 7, 5)
		l.SetHighWatermark(17)
		if err := l.RaiseStart(18); Code(err) != kafka.OffsetOutOfRange {
			t.Errorf("above the high watermark: %v", err)
		}
		must(t, l.RaiseStart(12))
		if d := cmp.Diff([]EpochEntry{{5, 12}, {7, 15}}, l.Epochs()); d != "" {
			t.Error(d)
		}
		if _, err := l.Read(11, 1, 20, true); Code(err) != kafka.OffsetOutOfRange {
			t.Errorf("below the start: %v", err)
		}
		if got := values(t, l, 12, 20); len(got) != 8 {
			t.Errorf("%v", got)
		}
		if e, o := l.EndOffset(4); e != 4 || o != 12 {
			t.Errorf("end of a forgotten epoch: (%d,%d)", e, o)
		}
		must(t, l.RaiseStart(3))
		if l.LogStartOffset() != 12 {
			t.Errorf("start %d", l.LogStartOffset())
		}
	})
}
