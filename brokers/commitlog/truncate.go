package commitlog

import (
	"slices"
	"time"
)

// TruncateTo drops the records at x and above (spec/broker.md §10.4). Where x
// lies within a batch, all of that batch goes, so the log may end below x. At
// the log's end or above only leader epochs that begin there are forgotten. The
// high watermark and the start come down with the end.
func (l *Log) TruncateTo(x int64) error {
	if l.failed != nil {
		return l.failed
	}
	if x >= l.end {
		if l.epochs.cutEnd(l.end) {
			return l.saveEpochs()
		}
		return nil
	}
	end, err := l.cut(max(x, 0))
	if err != nil {
		return l.fail(err)
	}
	l.end = end
	l.start = min(l.start, end)
	l.high = min(l.high, end)
	l.cleaned = min(l.cleaned, end)
	news := l.epochs.cutEnd(end)
	if err := l.forget(end); err != nil {
		return l.fail(err)
	}
	if l.disk != nil {
		l.disk.flushed = min(l.disk.flushed, end)
	}
	if news {
		return l.saveEpochs()
	}
	return nil
}

// cut drops the batches that hold offsets of x and above, and gives the end.
func (l *Log) cut(x int64) (end int64, err error) {
	for n := len(l.segments); n > 0; n-- {
		s := l.segments[n-1]
		if s.next <= x && s.base <= x {
			break
		}
		if s.base >= x {
			l.size -= s.size
			l.segments = slices.Delete(l.segments, n-1, n)
			if err := s.remove(); err != nil {
				return 0, err
			}
			continue
		}
		pos, below := s.size, x
		err := s.walk(s.before(x), false, func(at int64, b Batch) bool {
			if b.LastOffset() < x {
				return true
			}
			pos, below = at, min(x, b.BaseOffset())
			return false
		})
		if err != nil {
			return 0, err
		}
		l.size -= s.size - pos
		if err := s.cut(pos); err != nil {
			return 0, err
		}
		x = below
		break
	}
	return x, l.keepPlace(x)
}

// forget takes back what batches at end and above said of their producers: for
// each that wrote such, what the remaining batches say of it.
func (l *Log) forget(end int64) error {
	open := map[int64]*producer{} // as they were known
	for id, p := range l.producers {
		if p.lastOffset() < end && (p.n > 0 || p.since < end) {
			continue
		}
		delete(l.producers, id)
		if p.since < end {
			open[id] = p
		}
	}
	for i := len(l.segments) - 1; i >= 0 && len(open) > 0; i-- {
		var here producers
		err := l.segments[i].walk(0, false, func(_ int64, b Batch) bool {
			if _, wanted := open[b.ProducerID()]; wanted && b.LastOffset() >= l.start {
				here.note(b)
			}
			return true
		})
		if err != nil {
			return err
		}
		for id, older := range here {
			older.since = open[id].since
			if l.recall(id, older) {
				delete(open, id)
			}
		}
	}
	return nil
}

// recall puts an older segment's batches of a producer before those found in
// newer ones, and tells whether more would not count.
func (l *Log) recall(id int64, older *producer) (enough bool) {
	p := l.producers[id]
	if p == nil {
		l.producers[id] = older // the map is there: it had this id
		return older.n == remembered
	}
	if older.epoch != p.epoch {
		return true
	}
	known := append(slices.Clone(older.recent[:older.n]), p.recent[:p.n]...)
	known = known[max(0, len(known)-remembered):]
	p.n = uint8(copy(p.recent[:], known))
	return p.n == remembered
}

// TruncateFullyAndStartAt drops everything: the log is empty and begins at x
// (§10.4).
func (l *Log) TruncateFullyAndStartAt(x int64) error {
	if l.failed != nil {
		return l.failed
	}
	if x < 0 {
		return &OffsetOutOfRange{x, l.start, l.end}
	}
	for _, s := range l.segments {
		if err := s.remove(); err != nil {
			return l.fail(err)
		}
	}
	l.segments, l.size = nil, 0
	l.start, l.end, l.high, l.cleaned = x, x, x, x
	l.producers = nil
	news := len(l.epochs) > 0
	l.epochs = nil
	if l.disk != nil {
		l.disk.flushed = x
	}
	if err := l.keepPlace(x); err != nil {
		return l.fail(err)
	}
	if news {
		return l.saveEpochs()
	}
	return nil
}

// RaiseStart lets the log begin at x, and drops the segments that lie wholly
// below it. At or below the start it does nothing; above the high watermark it
// is refused with an *OffsetOutOfRange (§10.4).
func (l *Log) RaiseStart(x int64) error {
	if l.failed != nil {
		return l.failed
	}
	if x > l.high {
		return &OffsetOutOfRange{x, l.start, l.high}
	}
	if x <= l.start {
		return nil
	}
	l.start = x
	l.cleaned = max(l.cleaned, x)
	if err := l.dropBelow(x); err != nil {
		return l.fail(err)
	}
	if l.epochs.cutStart(x) {
		return l.saveEpochs()
	}
	return nil
}

// dropBelow removes the segments that end at x or below. On disk the last one
// stays, or an empty one that tells where the log ends.
func (l *Log) dropBelow(x int64) error {
	n := 0
	for ; n < len(l.segments) && l.segments[n].next <= x && (l.segments[n].size > 0 || n < len(l.segments)-1); n++ {
		l.size -= l.segments[n].size
		if err := l.segments[n].remove(); err != nil {
			return err
		}
	}
	l.segments = slices.Delete(l.segments, 0, n)
	return l.keepPlace(l.end)
}

// NoRetention turns a bound of Retain off, as -1 in retention.bytes and retention.ms.
const NoRetention = -1

// Retain drops the oldest segments: those without which the log still has
// retention.bytes, and those whose newest record is older than retention.ms;
// but none that reaches above the high watermark. It gives how many bytes went.
// In memory a segment is a chunk of at most 256 KiB or one append.
func (l *Log) Retain(now time.Time, bytes int64, age time.Duration) (freed int64, err error) {
	l.ExpireProducers(now)
	start, left := l.start, l.size
	for _, s := range l.segments {
		old := age >= 0 && now.UnixMilli()-s.newest(now) > age.Milliseconds()
		large := bytes >= 0 && left-s.size >= bytes
		if s.next > l.high || s.size == 0 || !old && !large {
			break
		}
		left -= s.size
		start = s.next
	}
	if start == l.start {
		return 0, nil
	}
	before := l.size
	err = l.RaiseStart(start)
	return before - l.size, err
}

// newest is the time of the segment's newest record. Where no record has one, it
// is the time at which Retain first met the segment as it is.
func (s *segment) newest(now time.Time) int64 {
	if s.maxTimestamp >= 0 {
		return s.maxTimestamp
	}
	if s.met == 0 {
		s.met = now.UnixMilli()
	}
	return s.met
}
