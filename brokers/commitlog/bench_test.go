package commitlog

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// batchOfSize makes a batch of n records of 1 KiB.
func batchOfSize(t testing.TB, n int, c Codec) Batch {
	t.Helper()
	recs := make([]Record, n)
	for i := range recs {
		recs[i] = Record{Timestamp: at.UnixMilli(), Value: make([]byte, 1024)}
		for j := range recs[i].Value {
			recs[i].Value[j] = byte(j*i) & 31
		}
	}
	return batchOf(t, c, nil, recs...)
}

// BenchmarkAppend appends batches of 16 records of 1 KiB; the log keeps 64 MiB.
func BenchmarkAppend(b *testing.B) {
	for _, where := range []string{"memory", "disk", "follower"} {
		b.Run(where, func(b *testing.B) {
			l := New(Options{})
			if where == "disk" {
				var err error
				l, err = Open(b.TempDir(), Options{SegmentBytes: 16 << 20})
				must(b, err)
				defer l.Close()
			}
			batch := batchOfSize(b, 16, Uncompressed)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				var err error
				if where == "follower" {
					batch.setBaseOffset(l.LogEndOffset())
					err = l.AppendAsFollower(batch)
				} else {
					_, err = l.Append(batch, 1, at)
				}
				must(b, err)
				if i%256 == 255 {
					l.SetHighWatermark(l.LogEndOffset())
					_, err := l.Retain(at, 64<<20, NoRetention)
					must(b, err)
				}
			}
		})
	}
}

// BenchmarkAppendIdempotent appends batches of one record of 1 KiB of 100 producers.
func BenchmarkAppendIdempotent(b *testing.B) {
	l := New(Options{})
	s := NoProducerSpec()
	s.ProducerID, s.ProducerEpoch, s.BaseSequence = 0, 0, 0
	batch, err := s.Encode(Record{Timestamp: at.UnixMilli(), Value: make([]byte, 1024)})
	must(b, err)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		batch[posProducerID+7] = byte(i % 100)
		put32(posBaseSequence, int32(i/100))(batch)
		_, err := l.Append(batch, 1, at)
		must(b, err)
		if i%4096 == 4095 {
			l.SetHighWatermark(l.LogEndOffset())
			_, err := l.Retain(at, 64<<20, NoRetention)
			must(b, err)
		}
	}
}

// BenchmarkRead reads 64 MiB over and over, 1 MiB at a time.
func BenchmarkRead(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		b.Run(where, func(b *testing.B) {
			l := New(Options{})
			if where == "disk" {
				var err error
				l, err = Open(b.TempDir(), Options{SegmentBytes: 16 << 20})
				must(b, err)
				defer l.Close()
			}
			batch := batchOfSize(b, 16, Uncompressed)
			for l.Size() < 64<<20 {
				_, err := l.Append(batch, 1, at)
				must(b, err)
			}
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			offset, n := int64(0), 0
			for b.Loop() {
				got, err := l.Read(offset, 1<<20, l.LogEndOffset(), true)
				must(b, err)
				n += len(got)
				if offset = Batch(got[len(got)-1]).BaseOffset() + 32; offset >= l.LogEndOffset()-32 {
					offset = 0
				}
			}
		})
	}
}

// BenchmarkReadTail is what a follower does: the newest batch, again and again.
func BenchmarkReadTail(b *testing.B) {
	l := New(Options{})
	batch := batchOfSize(b, 1, Uncompressed)
	for l.Size() < 64<<20 {
		_, err := l.Append(batch, 1, at)
		must(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, err := l.Read(l.LogEndOffset()-1, 1<<20, l.LogEndOffset(), true)
		must(b, err)
	}
}

// BenchmarkCheck checks batches of 16 records of 1 KiB as the port does.
func BenchmarkCheck(b *testing.B) {
	for _, c := range codecs {
		b.Run(c.String(), func(b *testing.B) {
			batch := batchOfSize(b, 16, c)
			b.SetBytes(16 * 1024)
			b.ReportAllocs()
			for b.Loop() {
				_, err := Check(batch, CheckOptions{MaxMessageBytes: 1 << 20, Now: at, TimestampAfter: time.Hour})
				must(b, err)
			}
		})
	}
}

// BenchmarkEmptyLogs tells what a partition costs that holds nothing, and one
// that holds one small record.
func BenchmarkEmptyLogs(b *testing.B) {
	for _, records := range []int{0, 1} {
		b.Run(fmt.Sprint("records=", records), func(b *testing.B) {
			var per float64
			for b.Loop() {
				const n = 10000
				logs := make([]*Log, n)
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				for i := range logs {
					logs[i] = New(Options{})
					must(b, logs[i].AssignEpoch(0, 0))
					if records > 0 {
						appendAs(b, logs[i], 0, records)
					}
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				per = float64(after.HeapAlloc-before.HeapAlloc) / n
				runtime.KeepAlive(logs)
			}
			b.ReportMetric(per, "B/log")
		})
	}
}
