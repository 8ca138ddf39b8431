package commitlog

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
)

const (
	// chunkSize is how large a piece of memory for batches gets.
	chunkSize = 256 << 10
	// firstChunk is how large it begins, so that many small logs cost little.
	firstChunk = 128
	// indexInterval is how many bytes lie between two marks (Kafka's log.index.interval.bytes).
	indexInterval = 4096
	// scanWindow is how much of a file is read at once to walk its batches.
	scanWindow = 64 << 10
)

// segment is a run of batches: a piece of memory, or a file.
type segment struct {
	base         int64 // the offset it is named by: no batch is below
	next         int64 // one past its last batch
	size         int64 // bytes
	maxTimestamp int64 // largest time of its batches, -1 without
	maxAt        int64 // base offset of the first batch with that time
	met          int64 // when Retain met it, where its records have no time; 0: not yet
	marks        []mark
	marked       int64 // where the next mark may stand

	mem    []byte  // in memory
	memory *Memory // that counts it; nil: none does
	held   int64   // bytes that it counts

	path string   // on disk
	file *os.File // on disk, while it is written to
}

// mark says that a batch with this base offset stands at pos, and what the
// largest time before it was.
type mark struct{ offset, pos, maxBefore int64 }

func segmentName(base int64) string { return fmt.Sprintf("%020d.log", base) }

func newSegment(dir string, base int64) *segment {
	s := &segment{base: base, next: base, maxTimestamp: -1, maxAt: -1, marked: indexInterval}
	if dir != "" {
		s.path = filepath.Join(dir, segmentName(base))
	}
	return s
}

// note keeps what is to be known of batch b at pos. Its bytes are there already.
func (s *segment) note(b Batch, pos int64) {
	if pos >= s.marked {
		s.marks = append(s.marks, mark{b.BaseOffset(), pos, s.maxTimestamp})
		s.marked = pos + indexInterval
	}
	if t := b.MaxTimestamp(); t > s.maxTimestamp {
		s.maxTimestamp, s.maxAt = t, b.BaseOffset()
	}
	s.next, s.met = b.LastOffset()+1, 0
	s.size = pos + int64(b.Size())
}

// room tells whether n more bytes go into the segment's memory.
func (s *segment) room(n int) bool { return n <= cap(s.mem)-len(s.mem) }

// write adds the bytes at the end. note follows for each batch.
func (s *segment) write(b []byte) error {
	if s.path == "" {
		s.mem = append(s.mem, b...)
		return nil
	}
	if s.file == nil {
		f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return &StorageError{"open", s.path, err}
		}
		s.file = f
	}
	if _, err := s.file.WriteAt(b, s.size); err != nil {
		return &StorageError{"append to", s.path, err}
	}
	return nil
}

// read gives n bytes from pos on.
func (s *segment) read(pos, n int64) ([]byte, error) {
	if s.path == "" {
		return s.mem[pos : pos+n : pos+n], nil
	}
	b := make([]byte, n)
	return b, s.readInto(b, pos)
}

func (s *segment) readInto(b []byte, pos int64) error {
	f := s.file
	if f == nil {
		var err error
		if f, err = os.Open(s.path); err != nil {
			return &StorageError{"open", s.path, err}
		}
		defer f.Close()
	}
	if _, err := f.ReadAt(b, pos); err != nil {
		return &StorageError{"read", s.path, err}
	}
	return nil
}

// before gives a place at or before the batch that holds offset o: fewer than
// indexInterval bytes of batches begin between the two.
func (s *segment) before(o int64) int64 {
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].offset > o })
	if i == 0 {
		return 0
	}
	return s.marks[i-1].pos
}

// beforeTime gives a place before which no batch has a time of ts or later.
func (s *segment) beforeTime(ts int64) int64 {
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].maxBefore >= ts })
	if i == 0 {
		return 0
	}
	return s.marks[i-1].pos
}

// walk hands over the batches from pos on until f says no. Without whole, only
// a batch's header need be there. The bytes are good during the call.
func (s *segment) walk(pos int64, whole bool, f func(pos int64, b Batch) bool) error {
	if s.path == "" {
		for b := range Batches(s.mem[pos:s.size]) {
			if !f(pos, b) {
				return nil
			}
			pos += int64(len(b))
		}
		return nil
	}
	w := &window{s: s}
	for pos < s.size {
		b, err := w.batch(pos, whole)
		if err != nil {
			return err
		}
		if !f(pos, b) {
			return nil
		}
		pos += int64(b.Size())
	}
	return nil
}

// window reads a file's batches through a buffer. What is read has been checked
// before, when it was appended or the log was opened.
type window struct {
	s   *segment
	buf []byte
	at  int64 // where buf stands in the file
}

func (w *window) batch(pos int64, whole bool) (Batch, error) {
	b, err := w.bytes(pos, HeaderSize)
	if err != nil {
		return nil, err
	}
	size := int64(Batch(b).Size())
	if size < HeaderSize || pos+size > w.s.size {
		return nil, &DamageError{w.s.path, pos, "what was a batch is none any more"}
	}
	if !whole {
		return Batch(b), nil
	}
	b, err = w.bytes(pos, size)
	return Batch(b), err
}

func (w *window) bytes(pos, n int64) ([]byte, error) {
	if end := w.at + int64(len(w.buf)); pos < w.at || pos+n > end {
		want := min(max(n, scanWindow), w.s.size-pos)
		if want < n {
			return nil, &DamageError{w.s.path, pos, fmt.Sprintf("%d bytes are left, a batch needs %d", want, n)}
		}
		if int64(cap(w.buf)) < want {
			w.buf = make([]byte, want)
		}
		w.buf, w.at = w.buf[:want], pos
		if err := w.s.readInto(w.buf, pos); err != nil {
			w.buf = w.buf[:0]
			return nil, err
		}
	}
	return w.buf[pos-w.at : pos-w.at+n : pos-w.at+n], nil
}

// cut drops what stands at pos and behind it.
func (s *segment) cut(pos int64) error {
	if s.path == "" {
		// What readers hold lies in this memory: it is not written to again.
		s.mem = s.mem[:pos:pos]
	} else if err := os.Truncate(s.path, pos); err != nil {
		return &StorageError{"truncate", s.path, err}
	}
	s.size, s.next = pos, s.base
	s.marks, s.marked = s.marks[:0], indexInterval
	s.maxTimestamp, s.maxAt = -1, -1
	return s.walk(0, false, func(at int64, b Batch) bool {
		s.note(b, at)
		s.size = pos
		return true
	})
}

func (s *segment) close() {
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

func (s *segment) remove() error {
	s.close()
	s.release()
	if s.path == "" {
		s.mem = nil
		return nil
	}
	if err := os.Remove(s.path); err != nil && !os.IsNotExist(err) {
		return &StorageError{"remove", s.path, err}
	}
	return nil
}
