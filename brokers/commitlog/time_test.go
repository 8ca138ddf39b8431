package commitlog

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestOffsetForTimestamp(t *testing.T) {
	for _, c := range codecs {
		both(t, Options{SegmentBytes: 250}, func(t *testing.T, l *Log) {
			for _, times := range [][]int64{{10, 30, 20}, {25, 25}, {5}, {40, 60, 50}, {60}} {
				var recs []Record
				for _, ms := range times {
					recs = append(recs, Record{Timestamp: ms, Value: []byte("a value of some length that can be packed")})
				}
				s := NoProducerSpec()
				s.Codec = c
				b, err := s.Encode(recs...)
				must(t, err)
				_, err = l.Append(b, 3, at)
				must(t, err)
			}
			l.SetHighWatermark(l.LogEndOffset())
			check := func(ts, offset, time int64) {
				t.Helper()
				got, ok, err := l.OffsetForTimestamp(ts)
				if want := (RecordTime{offset, time, 3}); err != nil || ok != (offset >= 0) || ok && got != want {
					t.Errorf("%d: %+v %v %v, want %+v", ts, got, ok, err, want)
				}
			}
			check(0, 0, 10)
			check(11, 1, 30)
			check(31, 6, 40)
			check(41, 7, 60)
			check(60, 7, 60)
			check(61, -1, 0)
			if got, ok, err := l.MaxTimestamp(); err != nil || !ok || got != (RecordTime{7, 60, 3}) {
				t.Errorf("max: %+v %v %v", got, ok, err)
			}
			must(t, l.RaiseStart(2))
			check(11, 2, 20)
			must(t, l.RaiseStart(8))
			check(31, 8, 50)
			if got, ok, err := l.MaxTimestamp(); err != nil || !ok || got != (RecordTime{9, 60, 3}) {
				t.Errorf("max behind the raised start: %+v %v %v", got, ok, err)
			}
		})
	}
	if _, ok, err := New(Options{}).MaxTimestamp(); ok || err != nil {
		t.Errorf("an empty log has a largest time: %v", err)
	}
}

// Times that fall and rise, found as by looking at every record.
func TestOffsetForTimestampAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := New(Options{SegmentBytes: 20000})
		var all []int64
		for range rapid.IntRange(1, 60).Draw(t, "batches") {
			var recs []Record
			for range rapid.IntRange(1, 3).Draw(t, "records") {
				ms := rapid.Int64Range(0, 50).Draw(t, "ms")
				all = append(all, ms)
				recs = append(recs, Record{Timestamp: ms, Value: make([]byte, 300)})
			}
			_, err := l.Append(Encode(recs...), 1, at)
			must(t, err)
		}
		ts := rapid.Int64Range(0, 51).Draw(t, "ts")
		want := int64(-1)
		for o, ms := range all {
			if ms >= ts {
				want = int64(o)
				break
			}
		}
		got, ok, err := l.OffsetForTimestamp(ts)
		must(t, err)
		if ok != (want >= 0) || ok && got.Offset != want {
			t.Fatalf("%d in %v: %+v %v, want %d", ts, all, got, ok, want)
		}
	})
}

func TestLogAppendTime(t *testing.T) {
	both(t, Options{LogAppendTime: true}, func(t *testing.T, l *Log) {
		got, err := l.Append(Encode(records(3, "x")...), 1, at.Add(time.Hour))
		must(t, err)
		late := at.Add(time.Hour).UnixMilli()
		if got.MaxTimestamp != late {
			t.Errorf("%+v", got)
		}
		b, err := l.Read(0, 1, 3, true)
		must(t, err)
		recs, err := Batch(b[0]).Records()
		must(t, err)
		for _, r := range recs {
			if r.Timestamp != late {
				t.Errorf("record of %d", r.Timestamp)
			}
		}
		if !Batch(b[0]).CheckCRC() {
			t.Error("the checksum does not match")
		}
		if at, ok, err := l.OffsetForTimestamp(late); err != nil || !ok || at.Offset != 0 {
			t.Errorf("%+v %v %v", at, ok, err)
		}
	})
}

func TestRetain(t *testing.T) {
	fill := func(t *testing.T, l *Log) int64 {
		t.Helper()
		var size int64
		for i := range 10 {
			b := Encode(Record{Timestamp: at.UnixMilli() + int64(i)*1000, Value: make([]byte, 500)})
			size = int64(len(b))
			_, err := l.Append(b, 1, at)
			must(t, err)
		}
		return size
	}
	o := Options{SegmentBytes: 1200} // two batches
	both(t, o, func(t *testing.T, l *Log) {
		size := fill(t, l)
		if freed, err := l.Retain(at, 0, 0); freed != 0 || err != nil {
			t.Errorf("above the high watermark: %d %v", freed, err)
		}
		l.SetHighWatermark(10)
		freed, err := l.Retain(at.Add(time.Hour), 6*size, NoRetention) // what is left may be just that
		if err != nil || freed != 4*size || l.LogStartOffset() != 4 || l.Size() != 6*size {
			t.Errorf("by bytes: %d %v, start %d, size %d", freed, err, l.LogStartOffset(), l.Size())
		}
		freed, err = l.Retain(at.Add(8*time.Second), NoRetention, 2*time.Second)
		if err != nil || freed != 2*size || l.LogStartOffset() != 6 {
			t.Errorf("by age: %d %v, start %d", freed, err, l.LogStartOffset())
		}
		freed, err = l.Retain(at.Add(time.Hour), NoRetention, time.Second)
		if err != nil || freed != 4*size || l.LogStartOffset() != 10 || l.Size() != 0 || l.LogEndOffset() != 10 {
			t.Errorf("all: %d %v, start %d, size %d", freed, err, l.LogStartOffset(), l.Size())
		}
		appendAs(t, l, 1, 1)
		if got := values(t, l, 10, 11); fmt.Sprint(got) != "[10:r-0]" {
			t.Errorf("%v", got)
		}
	})
}

// Records without a time go when they have been there for the time.
func TestRetainWithoutTimes(t *testing.T) {
	l := New(Options{})
	_, err := l.Append(Encode(Record{Timestamp: -1, Value: []byte("x")}), 1, at)
	must(t, err)
	l.SetHighWatermark(1)
	for _, after := range []time.Duration{0, time.Minute} {
		if _, err := l.Retain(at.Add(after), NoRetention, time.Minute); err != nil || l.LogStartOffset() != 0 {
			t.Errorf("after %s: start %d %v", after, l.LogStartOffset(), err)
		}
	}
	if _, err := l.Retain(at.Add(time.Minute+time.Second), NoRetention, time.Minute); err != nil || l.LogStartOffset() != 1 {
		t.Errorf("start %d %v", l.LogStartOffset(), err)
	}
}
