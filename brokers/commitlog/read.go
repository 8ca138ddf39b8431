package commitlog

import "sort"

// Read gives whole batches from the one that holds offset on, in order, each
// slice one or more of them: those that end below limit (the high watermark for
// consumers, the log's end for followers), up to maxBytes of them. With minOne
// the first comes even where it is larger. The first batch may begin below
// offset. An offset above limit, or at the end, gives nothing; one outside
// LogStartOffset to LogEndOffset an *OffsetOutOfRange.
//
// The slices are for reading only and stay as they are whatever becomes of the
// log, on any goroutine; they keep alive the memory around them, up to 256 KiB
// each or one append.
func (l *Log) Read(offset int64, maxBytes int, limit int64, minOne bool) ([][]byte, error) {
	if offset < l.start || offset > l.end {
		return nil, &OffsetOutOfRange{offset, l.start, l.end}
	}
	var out [][]byte
	left := int64(maxBytes)
	for i := l.segmentOf(offset); i < len(l.segments); i++ {
		s := l.segments[i]
		b, done, err := s.take(offset, left, limit, minOne && len(out) == 0)
		if err != nil {
			return out, err
		}
		if len(b) > 0 {
			out = append(out, b)
			left -= int64(len(b))
		}
		if done {
			break
		}
	}
	return out, nil
}

// segmentOf is the first segment that has a batch at offset or above.
func (l *Log) segmentOf(offset int64) int {
	return sort.Search(len(l.segments), func(i int) bool { return l.segments[i].next > offset })
}

// take gives the segment's batches from the one that holds offset on. done says
// that none of the next segment may follow.
func (s *segment) take(offset, maxBytes, limit int64, minOne bool) (b []byte, done bool, err error) {
	pos := s.before(offset)
	n := s.size - pos
	if s.path != "" {
		n = min(n, max(maxBytes, 0)+indexInterval+HeaderSize)
	}
	if b, err = s.read(pos, n); err != nil {
		return nil, true, err
	}
	from, to := int64(0), int64(0)
	for to+HeaderSize <= n {
		h := Batch(b[to:])
		size := int64(h.Size())
		if size < HeaderSize {
			return nil, true, &DamageError{s.path, pos + to, "what was a batch is none any more"}
		}
		if h.LastOffset() < offset {
			to += size
			from = to
			continue
		}
		switch {
		case h.LastOffset() >= limit:
			return b[from:to:to], true, nil
		case to == from && minOne && (size > maxBytes || to+size > n):
			b, err = s.whole(b, pos, from, size)
			return b, true, err
		case to-from+size > maxBytes:
			return b[from:to:to], true, nil
		}
		to += size
	}
	return b[from:to:to], false, nil
}

// whole gives the one batch of size bytes at from in b, which stands at pos, from
// the file where b ends before the batch does.
func (s *segment) whole(b []byte, pos, from, size int64) ([]byte, error) {
	if end := from + size; end <= int64(len(b)) {
		return b[from:end:end], nil
	}
	return s.read(pos+from, size)
}

// RecordTime is where a time was found.
type RecordTime struct {
	Offset      int64
	Timestamp   int64 // ms
	LeaderEpoch int32
}

// OffsetForTimestamp gives the first record with a time of ts ms or later, to
// the record also in packed batches; false: there is none.
func (l *Log) OffsetForTimestamp(ts int64) (RecordTime, bool, error) {
	for _, s := range l.segments {
		if s.maxTimestamp < ts || s.next <= l.start {
			continue
		}
		found, ok, err := s.find(s.beforeTime(ts), l.start, func(t int64) bool { return t >= ts })
		if ok || err != nil {
			return found, ok, err
		}
	}
	return RecordTime{}, false, nil
}

// MaxTimestamp gives the first record that has the largest time of the log;
// false: the log has no record with a time.
func (l *Log) MaxTimestamp() (RecordTime, bool, error) {
	var in *segment
	at, largest := int64(0), int64(-1)
	for _, s := range l.segments {
		if s.next <= l.start {
			continue
		}
		t, o, err := s.largest(l.start)
		if err != nil {
			return RecordTime{}, false, err
		}
		if t > largest {
			in, at, largest = s, o, t
		}
	}
	if in == nil {
		return RecordTime{}, false, nil
	}
	return in.find(in.before(at), l.start, func(t int64) bool { return t >= largest })
}

// largest gives the largest time of the batches that reach start or above, and
// the base offset of the first that has it; -1 without any.
func (s *segment) largest(start int64) (ms, at int64, err error) {
	if s.base >= start {
		return s.maxTimestamp, s.maxAt, nil
	}
	ms = -1
	var unread error
	err = s.walk(s.before(start), true, func(_ int64, b Batch) bool {
		t := b.MaxTimestamp()
		if b.LastOffset() < start {
			return true
		}
		if b.BaseOffset() < start && !b.LogAppendTime() { // its header counts records that are gone
			t = -1
			unread = b.each(nil, DefaultMaxDecompressed, func(r *raw) error {
				if b.BaseOffset()+int64(r.offsetDelta) >= start {
					t = max(t, b.timestamp(r))
				}
				return nil
			})
		}
		if t > ms {
			ms, at = t, b.BaseOffset()
		}
		return unread == nil
	})
	if err == nil {
		err = unread
	}
	return ms, at, err
}

// find looks from pos on for the first record at or above start whose time is wanted.
func (s *segment) find(pos, start int64, wanted func(ms int64) bool) (found RecordTime, ok bool, err error) {
	walk := s.walk(pos, true, func(_ int64, b Batch) bool {
		if !wanted(b.MaxTimestamp()) || b.LastOffset() < start {
			return true
		}
		err = b.each(nil, DefaultMaxDecompressed, func(r *raw) error {
			at, t := b.BaseOffset()+int64(r.offsetDelta), b.timestamp(r)
			if !ok && at >= start && wanted(t) {
				found, ok = RecordTime{at, t, b.LeaderEpoch()}, true
			}
			return nil
		})
		return !ok && err == nil
	})
	if walk != nil {
		return found, false, walk
	}
	return found, ok, err
}
