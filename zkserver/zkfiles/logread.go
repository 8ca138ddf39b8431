package zkfiles

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"os"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

const (
	// txnHeaderSize is session, cxid, zxid, time and type: no entry is shorter.
	txnHeaderSize = 32
	// zxidAt is where the zxid is in an entry's bytes.
	zxidAt = 12
	// maxRead is the longest entry we read; servers with a raised
	// jute.maxbuffer write longer ones than we do.
	maxRead = 256 << 20
)

// errTorn: the bytes are no whole entry. It may be one that was being written
// when the process or the machine died.
type errTorn struct{ reason string }

func (e errTorn) Error() string { return e.reason }

// logReader gives the entries of one log, one after the other.
type logReader struct {
	f    *os.File
	br   *bufio.Reader
	size int64
	off  int64 // of the next entry; behind the last one at the end
	buf  []byte
}

// openLog opens a log. errNoEntries: its writer died before the header was whole.
func openLog(path string) (*logReader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read a log: %w", err)
	}
	r := &logReader{f: f, br: bufio.NewReaderSize(f, 256<<10)}
	if err := r.begin(); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

// errNoEntries: a log that ends inside its header.
var errNoEntries = errors.New("the log ends inside its header")

func (r *logReader) begin() error {
	st, err := r.f.Stat()
	if err != nil {
		return fmt.Errorf("read a log: %w", err)
	}
	r.size = st.Size()
	var h [headerSize]byte
	n, err := io.ReadFull(r.br, h[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return fmt.Errorf("read %s: %w", r.f.Name(), err)
	}
	want := appendHeader(nil, logMagic, 0)
	if n == headerSize && bytes.Equal(h[:8], want[:8]) { // any dbid
		r.off = headerSize
		return nil
	}
	if bytes.HasPrefix(want, bytes.TrimRight(h[:n], "\x00")) && !r.dataBehind(headerSize) {
		return errNoEntries
	}
	return &CorruptError{Path: r.f.Name(), Reason: fmt.Sprintf("it does not begin as a log of ZooKeeper does (% x)", h[:n]),
		Remedy: "move the file out of the folder if it is none, else restore it from a backup"}
}

func (r *logReader) close() { r.f.Close() }

// next gives the next transaction, whose bytes it checks. io.EOF: there are no
// more, errTorn: at r.off is no whole entry. *CorruptError: it is whole, and
// still no transaction.
func (r *logReader) next() (*zkwire.Txn, error) {
	var h [entryHead]byte
	switch n, err := io.ReadFull(r.br, h[:]); {
	case (err == io.EOF || err == io.ErrUnexpectedEOF) && h == [entryHead]byte{}:
		return nil, io.EOF
	case err == io.ErrUnexpectedEOF:
		return nil, errTorn{fmt.Sprintf("the file ends %d bytes into an entry", n)}
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", r.f.Name(), err)
	}
	if h == [entryHead]byte{} {
		return nil, io.EOF
	}
	sum, n := binary.BigEndian.Uint64(h[:]), int64(int32(binary.BigEndian.Uint32(h[8:])))
	if n < txnHeaderSize || n > maxRead {
		return nil, errTorn{fmt.Sprintf("an entry of %d bytes is impossible", n)}
	}
	if left := r.size - r.off - entryHead; n+1 > left {
		return nil, errTorn{fmt.Sprintf("an entry of %d bytes has %d bytes left in the file", n, left)}
	}
	body, err := readGrowing(r.br, r.buf, int(n+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.f.Name(), err)
	}
	r.buf = body
	if cap(r.buf) > maxSpare {
		r.buf = nil
	}
	switch {
	case body[n] != endMark:
		return nil, errTorn{"an entry has no end mark"}
	case uint64(adler32.Checksum(body[:n])) != sum:
		return nil, errTorn{"an entry's checksum does not match its bytes"}
	}
	t, err := zkwire.DecodeTxn(body[:n])
	if err != nil {
		return nil, &CorruptError{Path: r.f.Name(), Offset: r.off, Reason: "its checksum holds, but it cannot be read", Err: err,
			Remedy: "it was written by a release that this one does not know: recover with that release, take a snapshot, then start this one"}
	}
	r.off += entryHead + n + 1
	return t, nil
}

// readGrowing reads n bytes into buf, which grows as bytes come.
func readGrowing(r io.Reader, buf []byte, n int) ([]byte, error) {
	if n <= cap(buf) {
		_, err := io.ReadFull(r, buf[:n])
		return buf[:n], err
	}
	const step = 1 << 20
	buf = buf[:0]
	for len(buf) < n {
		part := min(n-len(buf), max(step, len(buf)))
		buf = append(buf, make([]byte, part)...)
		if _, err := io.ReadFull(r, buf[len(buf)-part:]); err != nil {
			return nil, err
		}
	}
	return buf, nil
}

// window is how much of a tail is looked at in one piece.
const window = 1 << 20

// dataBehind tells whether a byte at or behind off is not zero.
func (r *logReader) dataBehind(off int64) bool {
	buf := make([]byte, 64<<10)
	for off < r.size {
		off = r.skipHole(off)
		n, err := r.f.ReadAt(buf[:min(int64(len(buf)), max(r.size-off, 0))], off)
		if !zero(buf[:n]) {
			return true
		}
		if off += int64(n); err != nil || n == 0 {
			return false
		}
	}
	return false
}

func zero(b []byte) bool {
	for len(b) >= 8 {
		if binary.NativeEndian.Uint64(b) != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// skipHole gives the offset of the next byte that the disk really holds.
func (r *logReader) skipHole(off int64) int64 {
	if seekData < 0 {
		return off
	}
	pos, err := r.f.Seek(off, seekData)
	switch {
	case err == nil:
		return max(pos, off)
	case isNoData(err):
		return r.size
	}
	return off // the file system does not tell
}

// errTooDamaged: the search for whole entries behind a damaged one was given up.
var errTooDamaged = errors.New("too much damage to tell what follows it")

// seen is what a look at a candidate for an entry needs: up to its zxid.
const seen = entryHead + zxidAt + 8

// entryBehind looks for a whole entry behind off whose zxid is above last. It
// gives its offset, or -1. Its work is bounded.
func (r *logReader) entryBehind(off, last int64) (int64, error) {
	buf := make([]byte, window)
	budget := int64(256 << 20)
	for off++; off+seen <= r.size; {
		// An entry whose first bytes are zero may begin in the hole before data.
		off = max(off, r.skipHole(off)-seen)
		n, err := r.f.ReadAt(buf[:min(window, r.size-off)], off)
		if err != nil && err != io.EOF {
			return -1, fmt.Errorf("read %s: %w", r.f.Name(), err)
		}
		if n < seen {
			break
		}
		if zero(buf[:n]) {
			off += int64(n - seen + 1)
			continue
		}
		for p := 0; p+seen <= n; p++ {
			length, sum, ok := r.candidate(buf[p:p+seen], off+int64(p), last)
			if !ok {
				continue
			}
			if whole := r.wholeAt(off+int64(p), length, sum, &budget); whole {
				return off + int64(p), nil
			}
			if budget < 0 {
				return -1, errTooDamaged
			}
		}
		off += int64(n - seen + 1)
	}
	return -1, nil
}

// candidate tells whether an entry might begin with the bytes of c, which are at off.
func (r *logReader) candidate(c []byte, off, last int64) (length int64, sum uint64, ok bool) {
	if c[0]|c[1]|c[2]|c[3] != 0 { // an Adler-32 in a long
		return 0, 0, false
	}
	length = int64(int32(binary.BigEndian.Uint32(c[8:])))
	if length < txnHeaderSize || length > min(maxRead, r.size-off-entryHead-1) {
		return 0, 0, false
	}
	const epochs = 1 << 16 // as many elections may lie between
	zxid := int64(binary.BigEndian.Uint64(c[entryHead+zxidAt:]))
	return length, binary.BigEndian.Uint64(c), zxid > last && zxid>>32 <= (last>>32)+epochs
}

// wholeAt tells whether an entry of the length and checksum is at off. What it
// reads is taken off the budget.
func (r *logReader) wholeAt(off, length int64, sum uint64, budget *int64) bool {
	var end [1]byte
	if _, err := r.f.ReadAt(end[:], off+entryHead+length); err != nil || end[0] != endMark {
		return false
	}
	*budget -= length
	h := adler32.New()
	if _, err := io.Copy(h, io.NewSectionReader(r.f, off+entryHead, length)); err != nil {
		return false
	}
	return uint64(h.Sum32()) == sum
}
