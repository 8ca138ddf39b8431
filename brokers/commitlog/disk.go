package commitlog

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	epochFile  = "leader-epoch-checkpoint"
	tmpSuffix  = ".tmp"
	goneSuffix = ".deleted"
	// Compaction writes cleanedSuffix, renames it to swapSuffix when it is whole,
	// removes what it replaces, and gives it its name.
	cleanedSuffix = ".cleaned"
	swapSuffix    = ".swap"
)

// disk is what a log on disk knows besides.
type disk struct {
	dir     string
	flushed int64 // offsets below are safe on disk
	cut     int64 // bytes of torn batches that Open cut off
}

// Open opens or makes the log in a folder that is the partition's own, with
// Kafka's names in it. Every batch from the recovery point on is checked, and
// the log is cut at the first that is not whole, as a process that was killed
// leaves it; batches that were safe before and are damaged are a *DamageError.
// The high watermark is the log's start: set it from its checkpoint.
func Open(dir string, o Options) (*Log, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, &StorageError{"make", dir, err}
	}
	l := &Log{opts: o, disk: &disk{dir: dir}}
	bases, err := l.tidy()
	if err != nil {
		return nil, err
	}
	var seen epochCache // from the batches
	for i, base := range bases {
		s := newSegment(dir, base)
		torn, err := l.recover(s, &seen)
		if err != nil {
			return nil, err
		}
		l.segments = append(l.segments, s)
		l.size += s.size
		l.end = max(l.end, s.next)
		if torn {
			if err := l.dropFiles(bases[i+1:]); err != nil {
				return nil, err
			}
			break
		}
	}
	if len(l.segments) > 0 {
		l.start = l.segments[0].base
	}
	l.disk.flushed = min(max(o.RecoveryPoint, l.start), l.end)
	if err := l.loadEpochs(seen); err != nil {
		return nil, err
	}
	return l, l.startAt(o.LogStartOffset)
}

// startAt moves the start to where the checkpoint has it.
func (l *Log) startAt(start int64) error {
	l.high = l.end
	var err error
	if start > l.end {
		err = l.TruncateFullyAndStartAt(start)
	} else {
		err = l.RaiseStart(start)
	}
	l.high = l.start
	return err
}

// RecoveredBytes is how many bytes of torn batches Open cut off.
func (l *Log) RecoveredBytes() int64 {
	if l.disk == nil {
		return 0
	}
	return l.disk.cut
}

// tidy finishes what a compaction or a removal left, and lists the segments.
func (l *Log) tidy() ([]int64, error) {
	bases, swaps, err := l.list()
	if err != nil {
		return nil, err
	}
	for _, base := range swaps {
		path := filepath.Join(l.disk.dir, segmentName(base))
		s := newSegment(l.disk.dir, base)
		s.path = path + swapSuffix
		var seen epochCache
		probe := &Log{disk: &disk{dir: l.disk.dir}}
		if torn, err := probe.recover(s, &seen); err != nil || torn {
			return nil, &DamageError{s.path, s.size, "a compacted segment was not written whole"}
		}
		s.close()
		// It replaces every segment that begins within it.
		kept := bases[:0]
		for _, b := range bases {
			if b < base || b >= s.next && b != base {
				kept = append(kept, b)
				continue
			}
			if err := os.Remove(filepath.Join(l.disk.dir, segmentName(b))); err != nil {
				return nil, &StorageError{"remove", filepath.Join(l.disk.dir, segmentName(b)), err}
			}
		}
		if err := os.Rename(s.path, path); err != nil {
			return nil, &StorageError{"rename", s.path, err}
		}
		bases = append(kept, base)
		slices.Sort(bases)
	}
	return bases, nil
}

// list gives the segments' base offsets, rising, and those of swap files; it
// removes what is left of unfinished work.
func (l *Log) list() (bases, swaps []int64, err error) {
	entries, err := os.ReadDir(l.disk.dir)
	if err != nil {
		return nil, nil, &StorageError{"list", l.disk.dir, err}
	}
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(l.disk.dir, name)
		stem, swap := strings.CutSuffix(name, swapSuffix)
		switch {
		case strings.HasSuffix(name, tmpSuffix), strings.HasSuffix(name, cleanedSuffix), strings.HasSuffix(name, goneSuffix):
			if err := os.Remove(path); err != nil {
				return nil, nil, &StorageError{"remove", path, err}
			}
			continue
		case !strings.HasSuffix(stem, ".log"):
			continue // Kafka's indexes and snapshots, which are made anew from the batches
		}
		base, err := strconv.ParseInt(strings.TrimSuffix(stem, ".log"), 10, 64)
		if err != nil || base < 0 || segmentName(base) != stem {
			return nil, nil, &StorageError{"open", path, fmt.Errorf("its name is no segment's; move it out of the partition's folder")}
		}
		if swap {
			swaps = append(swaps, base)
		} else {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	slices.Sort(swaps)
	return bases, swaps, nil
}

// recover walks a segment's file, checks what the recovery point does not cover,
// notes its batches, and cuts it at the first that is not whole.
func (l *Log) recover(s *segment, seen *epochCache) (torn bool, err error) {
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return false, &StorageError{"open", s.path, err}
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, &StorageError{"read", s.path, err}
	}
	size := st.Size()
	r := &scanner{r: bufio.NewReaderSize(f, scanWindow), left: size}
	next := max(s.base, l.end)
	for r.left > 0 {
		pos := size - r.left
		b, reason, err := r.batch(l.opts.RecoveryPoint)
		if err != nil {
			return false, &StorageError{"read", s.path, err}
		}
		if reason == "" && b.BaseOffset() < next {
			reason = fmt.Sprintf("offset %d follows %d", b.BaseOffset(), next-1)
		}
		if reason != "" {
			if next < l.opts.RecoveryPoint {
				return false, &DamageError{s.path, pos, reason}
			}
			if err := f.Truncate(pos); err != nil {
				return false, &StorageError{"truncate", s.path, err}
			}
			l.disk.cut += size - pos
			return true, nil
		}
		s.note(b, pos)
		next = b.LastOffset() + 1
		if b.LastOffset() >= l.opts.LogStartOffset {
			l.producers.note(b)
		}
		if b.LeaderEpoch() > seen.latest() {
			seen.assign(b.LeaderEpoch(), b.BaseOffset())
		}
	}
	return false, nil
}

// scanner reads a file's batches one after the other.
type scanner struct {
	r    *bufio.Reader
	left int64
	buf  []byte
}

// batch reads the next batch: whole where it reaches the recovery point or above,
// else its header alone. A reason says why it is none.
func (r *scanner) batch(recoveryPoint int64) (b Batch, reason string, err error) {
	if r.left < HeaderSize {
		return nil, fmt.Sprintf("%d bytes are left", r.left), nil
	}
	head, err := r.r.Peek(HeaderSize)
	if err != nil {
		return nil, "", err
	}
	h := Batch(head)
	size := int64(h.Size())
	if magic := h.Magic(); (magic == 0 || magic == 1) && size >= msgOverhead+msgMinSize && size <= r.left {
		if r.oldMessage(size) {
			return nil, "", fmt.Errorf("records of format v%d, as releases before 0.11 keep them, are not read here; give the broker log.dirs of its own, and it copies them from their leaders", magic)
		}
		return nil, "a message of an old format whose checksum does not match", nil
	}
	if h.Magic() != 2 || size < HeaderSize || size > r.left {
		return nil, fmt.Sprintf("no batch of format v2 that fits in %d bytes", r.left), nil
	}
	if err := h.shape(); err != nil {
		return nil, err.Error(), nil
	}
	r.left -= size
	if h.LastOffset() < recoveryPoint {
		r.buf = append(r.buf[:0], head...)
		return r.buf, "", r.skip(size)
	}
	// The buffer grows with what is there to read, not with what a length claims:
	// size is at most the file's.
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	b = r.buf[:size]
	if _, err := readFull(r.r, b); err != nil {
		return nil, "", err
	}
	if !b.CheckCRC() {
		return nil, "the checksum does not match", nil
	}
	return b, "", nil
}

// oldMessage tells whether a whole message of an old format is next: no torn
// batch, to be cut off, but somebody's data. The scan ends here either way.
func (r *scanner) oldMessage(size int64) bool {
	m := make([]byte, size)
	_, err := readFull(r.r, m)
	return err == nil && binary.BigEndian.Uint32(m[msgCRC:]) == crc32.ChecksumIEEE(m[msgBody:])
}

func (r *scanner) skip(n int64) error {
	for n > 0 {
		d, err := r.r.Discard(int(min(n, 1<<30)))
		if err != nil {
			return err
		}
		n -= int64(d)
	}
	return nil
}

func readFull(r *bufio.Reader, b []byte) (int, error) {
	n := 0
	for n < len(b) {
		m, err := r.Read(b[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (l *Log) dropFiles(bases []int64) error {
	for _, base := range bases {
		path := filepath.Join(l.disk.dir, segmentName(base))
		st, err := os.Stat(path)
		if err == nil {
			l.disk.cut += st.Size()
			err = os.Remove(path)
		}
		if err != nil {
			return &StorageError{"remove", path, err}
		}
	}
	return nil
}

// roll closes the last segment and begins a new one.
func (l *Log) roll(base int64) (*segment, error) {
	if n := len(l.segments); n > 0 {
		last := l.segments[n-1]
		if l.opts.FlushMessages > 0 && last.file != nil {
			if err := last.file.Sync(); err != nil {
				return nil, l.fail(&StorageError{"sync", last.path, err})
			}
		}
		last.close()
	}
	s := newSegment(l.disk.dir, base)
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, l.fail(&StorageError{"create", s.path, err})
	}
	s.file = f
	l.segments = append(l.segments, s)
	return s, nil
}

// keepPlace leaves a file that tells where an empty log on disk stands.
func (l *Log) keepPlace(x int64) error {
	if l.disk == nil || len(l.segments) > 0 || x == 0 {
		return nil
	}
	_, err := l.roll(x)
	return err
}

// fail breaks a log on disk: what its files hold is not known any more.
func (l *Log) fail(err error) error {
	if l.disk != nil && l.failed == nil {
		l.failed = err
	}
	return err
}

// written ends an append: the epochs are kept, and the file is synced as the
// options say.
func (l *Log) written(news bool) error {
	if l.disk == nil {
		return nil
	}
	if news {
		if err := l.saveEpochs(); err != nil {
			return err
		}
	}
	if n := l.opts.FlushMessages; n > 0 && l.end-l.disk.flushed >= n {
		return l.Flush()
	}
	return nil
}

// Flush makes all that was appended safe on disk; RecoveryPoint is the end then.
// In memory it does nothing.
func (l *Log) Flush() error {
	if l.disk == nil || l.disk.flushed >= l.end {
		return nil
	}
	if l.failed != nil {
		return l.failed
	}
	for i := len(l.segments) - 1; i >= 0 && l.segments[i].next > l.disk.flushed; i-- {
		if err := l.segments[i].sync(); err != nil {
			return l.fail(err)
		}
	}
	if err := syncDir(l.disk.dir); err != nil {
		return l.fail(err)
	}
	l.disk.flushed = l.end
	return nil
}

func (s *segment) sync() error {
	f := s.file
	if f == nil {
		var err error
		if f, err = os.OpenFile(s.path, os.O_RDWR, 0); err != nil {
			return &StorageError{"open", s.path, err}
		}
		defer f.Close()
	}
	if err := f.Sync(); err != nil {
		return &StorageError{"sync", s.path, err}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err == nil {
		err = d.Sync()
		d.Close()
	}
	if err != nil {
		return &StorageError{"sync", dir, err}
	}
	return nil
}

// RecoveryPoint is the offset below which all is safe on disk, for
// recovery-point-offset-checkpoint. In memory it is the end.
func (l *Log) RecoveryPoint() int64 {
	if l.disk == nil {
		return l.end
	}
	return l.disk.flushed
}

// Close flushes and closes the files. In memory it does nothing.
func (l *Log) Close() error {
	err := l.Flush()
	for _, s := range l.segments {
		s.close()
	}
	if l.disk != nil && l.failed == nil {
		l.failed = &StorageError{"use", l.disk.dir, os.ErrClosed}
	}
	return err
}

// Delete drops everything, the folder included.
func (l *Log) Delete() error {
	for _, s := range l.segments {
		s.close()
		s.release()
	}
	dir := ""
	if l.disk != nil {
		dir = l.disk.dir
	}
	*l = Log{opts: l.opts, disk: l.disk}
	if dir == "" {
		return nil
	}
	l.failed = &StorageError{"use", dir, os.ErrClosed}
	if err := os.RemoveAll(dir); err != nil {
		return &StorageError{"remove", dir, err}
	}
	return nil
}

// loadEpochs reads the epochs' file, forgets what begins at the end or above,
// and learns from the batches what the file lacks.
func (l *Log) loadEpochs(seen epochCache) error {
	path := filepath.Join(l.disk.dir, epochFile)
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return &StorageError{"read", path, err}
	}
	if err == nil {
		lines, err := parseCheckpoint(data, 2)
		if err != nil {
			return &StorageError{"read", path, fmt.Errorf("%w; remove it, and it is made anew from the records", err)}
		}
		for _, f := range lines {
			epoch, err1 := strconv.ParseInt(f[0], 10, 32)
			start, err2 := strconv.ParseInt(f[1], 10, 64)
			if err1 != nil || err2 != nil || epoch < 0 || start < 0 {
				return &StorageError{"read", path, fmt.Errorf("%q is no epoch and offset; remove it, and it is made anew from the records", strings.Join(f, " "))}
			}
			l.epochs.assign(int32(epoch), start)
		}
	}
	before := slices.Clone(l.epochs)
	l.epochs.cutEnd(l.end)
	for _, e := range seen {
		if e.Epoch > l.epochs.latest() {
			l.epochs.assign(e.Epoch, e.Start)
		}
	}
	if slices.Equal(before, l.epochs) {
		return nil
	}
	return l.saveEpochs()
}

// saveEpochs writes the epochs' file of a log on disk.
func (l *Log) saveEpochs() error {
	if l.disk == nil {
		return nil
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(l.epochs))
	for _, e := range l.epochs {
		fmt.Fprintf(&b, "%d %d\n", e.Epoch, e.Start)
	}
	if err := writeFile(filepath.Join(l.disk.dir, epochFile), b.Bytes(), l.opts.FlushMessages > 0); err != nil {
		return l.fail(err)
	}
	return nil
}
