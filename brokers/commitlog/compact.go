package commitlog

import (
	"bufio"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Dirty gives how many bytes Compact has not seen yet, of those it may see, and
// how many there are in all; their ratio is what min.cleanable.dirty.ratio bounds.
func (l *Log) Dirty() (dirty, total int64) {
	for _, s := range l.cleanable() {
		total += s.size
		if s.next > l.cleaned {
			dirty += s.size
		}
	}
	return dirty, total
}

// cleanable are the segments that lie wholly below the high watermark, on disk
// without the one that is written to.
func (l *Log) cleanable() []*segment {
	n := len(l.segments)
	if l.disk != nil && n > 0 {
		n--
	}
	for n > 0 && l.segments[n-1].next > l.high {
		n--
	}
	return l.segments[:n]
}

// Compact keeps, of the records below the high watermark, the last one of each
// key, at its offset (cleanup.policy=compact). A null value deletes its key, and
// goes itself once a compaction has met it and tombstones (delete.retention.ms)
// have passed since. Records without a key go. Of a batch without records the
// header stays while it tells where the log or its producer stands. It gives how
// many bytes went; after an error the log is as it was, or on disk broken.
func (l *Log) Compact(now time.Time, tombstones time.Duration) (freed int64, err error) {
	if l.failed != nil {
		return 0, l.failed
	}
	sources := l.cleanable()
	if len(sources) == 0 {
		return 0, nil
	}
	c := &compaction{l: l, now: now.UnixMilli(), horizon: now.Add(tombstones).UnixMilli(), newest: map[string]int64{}}
	for _, s := range sources {
		if s.next > l.cleaned {
			if err := c.learn(s); err != nil {
				return 0, err
			}
		}
	}
	before, end := l.size, sources[len(sources)-1].next
	old, rest := sources, l.segments[len(sources):]
	var done []*segment
	for len(sources) > 0 {
		n := l.group(sources)
		s, err := c.rewrite(sources[:n])
		if err != nil {
			return 0, err
		}
		if s.size > 0 || l.disk != nil {
			done = append(done, s)
		}
		sources = sources[n:]
		if l.disk != nil { // its files are replaced one by one
			l.segments = slices.Concat(done, sources, rest)
			l.measure()
		}
	}
	l.segments = append(done, rest...)
	for _, s := range old {
		s.release()
	}
	for _, s := range done {
		l.opts.Memory.take(l, s)
	}
	l.measure()
	l.cleaned = end
	return before - l.size, nil
}

// measure adds up the segments.
func (l *Log) measure() {
	l.size = 0
	for _, s := range l.segments {
		l.size += s.size
	}
}

// group gives how many of the segments fit into one.
func (l *Log) group(sources []*segment) int {
	limit := l.opts.SegmentBytes
	if limit <= 0 {
		limit = 1 << 30
	}
	if l.disk == nil {
		limit = min(limit, chunkSize)
	}
	size, n := sources[0].size, 1
	for ; n < len(sources); n++ {
		if size += sources[n].size; size > limit || sources[n].next-sources[0].base > math.MaxInt32 {
			break
		}
	}
	return n
}

// compaction is one run of Compact.
type compaction struct {
	l       *Log
	now     int64
	horizon int64            // when tombstones met now may go
	newest  map[string]int64 // offset of the last record of each key, of the dirty part
	buf     []byte
}

// learn notes the keys of a segment.
func (c *compaction) learn(s *segment) error {
	var failed error
	err := s.walk(s.before(c.l.cleaned), true, func(_ int64, b Batch) bool {
		if b.Control() || b.LastOffset() < c.l.cleaned {
			return true
		}
		failed = b.each(c.buf, DefaultMaxDecompressed, func(r *raw) error {
			if r.key != nil {
				c.newest[string(r.key)] = b.BaseOffset() + int64(r.offsetDelta)
			}
			return nil
		})
		return failed == nil
	})
	if err != nil {
		return err
	}
	return failed
}

// rewrite makes one segment of several.
func (c *compaction) rewrite(sources []*segment) (*segment, error) {
	w, err := c.newWriter(sources[0].base)
	if err != nil {
		return nil, err
	}
	changed := len(sources) > 1
	for _, s := range sources {
		var failed error
		err := s.walk(0, true, func(_ int64, b Batch) bool {
			var kept Batch
			if kept, failed = c.keep(b); failed != nil {
				return false
			}
			changed = changed || len(kept) != len(b) || len(kept) > 0 && &kept[0] != &b[0]
			failed = w.add(kept)
			return failed == nil
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			w.abandon()
			return nil, err
		}
	}
	if !changed {
		w.abandon()
		return sources[0], nil
	}
	if err := w.replace(sources); err != nil {
		return nil, c.l.fail(err)
	}
	return w.s, nil
}

// keep gives what stays of a batch: the very same, another one, or nothing.
func (c *compaction) keep(b Batch) (Batch, error) {
	if b.Control() {
		return b, nil
	}
	due, dated := b.deleteHorizon()
	tombs := false
	var kept []Record
	err := b.each(c.buf, DefaultMaxDecompressed, func(r *raw) error {
		o := b.BaseOffset() + int64(r.offsetDelta)
		newest, known := c.newest[string(r.key)]
		if o < c.l.start || r.key == nil || known && newest > o || r.value == nil && dated && due <= c.now {
			return nil
		}
		headers, err := r.readHeaders()
		kept = append(kept, Record{Offset: o, Timestamp: b.BaseTimestamp() + r.timestampDelta, Key: r.key, Value: r.value, Headers: headers})
		tombs = tombs || r.value == nil
		return err
	})
	if err != nil {
		return nil, err
	}
	switch {
	case len(kept) == int(b.Count()) && (dated || !tombs) && len(kept) > 0:
		return b, nil
	case len(kept) > 0:
		return c.repack(b, kept, tombs)
	}
	p := c.l.producers[b.ProducerID()]
	if b.LastOffset()+1 == c.l.end || p != nil && p.lastOffset() == b.LastOffset() {
		return emptied(b), nil
	}
	return nil, nil
}

// repack makes a batch of the records that stay, with the offsets they had. One
// with tombstones gets the time at which those may go as what its times are
// counted from (Kafka's delete horizon).
func (c *compaction) repack(b Batch, kept []Record, tombs bool) (Batch, error) {
	attributes, base := b.Attributes(), b.BaseTimestamp()
	if tombs && attributes&deleteHorizonBit == 0 {
		attributes, base = attributes|deleteHorizonBit, c.horizon
	}
	e := newEncoder(base, len(b))
	for i := range kept {
		e.add(int32(kept[i].Offset-b.BaseOffset()), &kept[i])
	}
	out, err := e.finish(b.Compression(), b.LastOffsetDelta())
	if err != nil {
		return nil, err
	}
	largest := out.MaxTimestamp()
	if b.LogAppendTime() {
		largest = b.MaxTimestamp()
	}
	inherit(out, b, attributes, base, largest)
	return out, nil
}

// emptied is the batch's header alone.
func emptied(b Batch) Batch {
	if b.Count() == 0 {
		return b
	}
	out := make(Batch, HeaderSize)
	copy(out, b[:HeaderSize])
	binary.BigEndian.PutUint32(out[posLength:], HeaderSize-overhead)
	binary.BigEndian.PutUint32(out[posCount:], 0)
	inherit(out, b, b.Attributes()&^(compressionBits|deleteHorizonBit), b.BaseTimestamp(), b.MaxTimestamp())
	return out
}

// inherit gives out what b says of itself besides its records.
func inherit(out, b Batch, attributes int16, baseTimestamp, maxTimestamp int64) {
	copy(out[posBaseOffset:posLength], b[posBaseOffset:posLength])
	copy(out[posLeaderEpoch:posMagic], b[posLeaderEpoch:posMagic])
	copy(out[posProducerID:posCount], b[posProducerID:posCount])
	out.setAttributes(attributes)
	binary.BigEndian.PutUint64(out[posBaseTimestamp:], uint64(baseTimestamp))
	out.setMaxTimestamp(maxTimestamp)
	out.setCRC()
}

// writer collects the batches of a new segment, in memory or in a file that
// takes its name only when it is whole.
type writer struct {
	s    *segment
	name string // the file's name when it is done
	file *os.File
	out  *bufio.Writer
}

func (c *compaction) newWriter(base int64) (*writer, error) {
	w := &writer{s: newSegment("", base)}
	if c.l.disk == nil {
		return w, nil
	}
	w.name = filepath.Join(c.l.disk.dir, segmentName(base))
	f, err := os.Create(w.name + cleanedSuffix)
	if err != nil {
		return nil, &StorageError{"create", w.name + cleanedSuffix, err}
	}
	w.file, w.out = f, bufio.NewWriterSize(f, scanWindow)
	return w, nil
}

func (w *writer) add(b Batch) error {
	if len(b) == 0 {
		return nil
	}
	if w.file != nil {
		if _, err := w.out.Write(b); err != nil {
			return &StorageError{"write", w.file.Name(), err}
		}
	} else {
		w.s.mem = append(w.s.mem, b...)
	}
	w.s.note(b, w.s.size)
	return nil
}

func (w *writer) abandon() {
	if w.file != nil {
		w.file.Close()
		os.Remove(w.file.Name())
	}
}

// replace puts the new segment in the place of the old ones.
func (w *writer) replace(sources []*segment) error {
	if w.file == nil {
		w.s.mem = append(make([]byte, 0, len(w.s.mem)), w.s.mem...)
		return nil
	}
	err := w.out.Flush()
	if err == nil {
		err = w.file.Sync()
	}
	if closing := w.file.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return &StorageError{"write", w.file.Name(), err}
	}
	swap := strings.TrimSuffix(w.file.Name(), cleanedSuffix) + swapSuffix
	if err := os.Rename(w.file.Name(), swap); err != nil {
		return &StorageError{"rename", w.file.Name(), err}
	}
	if err := syncDir(filepath.Dir(swap)); err != nil {
		return err
	}
	for _, s := range sources {
		if err := s.remove(); err != nil {
			return err
		}
	}
	if err := os.Rename(swap, w.name); err != nil {
		return &StorageError{"rename", swap, err}
	}
	w.s.path = w.name
	return nil
}
