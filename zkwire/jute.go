package zkwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

var (
	// ErrShort: the bytes end inside a field.
	ErrShort = errors.New("zkwire: the record ends inside a field")
	// ErrLength: a length or count is negative (other than null) or impossible.
	ErrLength = errors.New("zkwire: impossible length")
	// ErrFrameSize: a frame's length is negative or above the limit.
	ErrFrameSize = errors.New("zkwire: frame length out of bounds")
	// ErrOpType: a multi holds an operation that may not be in it.
	ErrOpType = errors.New("zkwire: operation not allowed in a multi")
)

// AppendInt32 appends an int.
func AppendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

// AppendInt64 appends a long.
func AppendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// AppendBool appends a boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendString appends a string; never null.
func AppendString(b []byte, s string) []byte {
	return append(AppendInt32(b, int32(len(s))), s...)
}

// AppendBuffer appends a buffer; nil is null.
func AppendBuffer(b, p []byte) []byte {
	if p == nil {
		return AppendInt32(b, -1)
	}
	return append(AppendInt32(b, int32(len(p))), p...)
}

// AppendStrings appends a vector of strings; never null, since some clients
// take its count as unsigned.
func AppendStrings(b []byte, v []string) []byte {
	b = AppendInt32(b, int32(len(v)))
	for _, s := range v {
		b = AppendString(b, s)
	}
	return b
}

// Decoder reads fields one after the other. The first error stays; all later
// reads give zero values.
type Decoder struct {
	b   []byte
	err error
}

// NewDecoder reads from b, which it does not copy.
func NewDecoder(b []byte) *Decoder { return &Decoder{b: b} }

// Err is the first error.
func (d *Decoder) Err() error { return d.err }

// Len is how many bytes are left.
func (d *Decoder) Len() int { return len(d.b) }

// Rest takes all bytes that are left.
func (d *Decoder) Rest() []byte { return d.take(len(d.b)) }

func (d *Decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *Decoder) take(n int) []byte {
	if d.err != nil || n > len(d.b) {
		d.fail(ErrShort)
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// Int32 reads an int.
func (d *Decoder) Int32() int32 {
	if p := d.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

// Int64 reads a long.
func (d *Decoder) Int64() int64 {
	if p := d.take(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

// Bool reads a boolean.
func (d *Decoder) Bool() bool {
	p := d.take(1)
	return p != nil && p[0] != 0
}

// Buffer reads a buffer that aliases the input; nil is null.
func (d *Decoder) Buffer() []byte {
	n := d.Int32()
	switch {
	case d.err != nil || n == -1:
		return nil
	case n < 0:
		d.fail(ErrLength)
		return nil
	}
	return d.take(int(n))
}

// String reads a string; null gives "".
func (d *Decoder) String() string {
	s, _ := d.NullString()
	return s
}

// NullString reads a string and tells whether it is not null.
func (d *Decoder) NullString() (string, bool) {
	p := d.Buffer()
	return string(p), p != nil
}

// count reads a vector's count; each element needs at least size bytes, so a
// count that lies cannot make us allocate.
func (d *Decoder) count(size int) int {
	n := d.Int32()
	switch {
	case d.err != nil || n == -1:
		return -1
	case n < 0:
		return 0 // as Java reads it: there is no element before the end
	case int(n) > len(d.b)/size:
		d.fail(ErrLength)
		return -1
	}
	return int(n)
}

// Strings reads a vector of strings; nil is null.
func (d *Decoder) Strings() []string {
	n := d.count(4)
	if n < 0 {
		return nil
	}
	v := make([]string, n)
	for i := range v {
		v[i] = d.String()
	}
	if d.err != nil {
		return nil
	}
	return v
}

// BeginFrame leaves room for a frame's length. mark goes to EndFrame.
func BeginFrame(b []byte) (_ []byte, mark int) {
	return append(b, 0, 0, 0, 0), len(b)
}

// EndFrame sets the length of the frame that began at mark.
func EndFrame(b []byte, mark int) []byte {
	binary.BigEndian.PutUint32(b[mark:], uint32(len(b)-mark-4))
	return b
}

// ReadFrame reads one frame of at most limit bytes into buf, which it grows as
// bytes arrive and not by what the length promises. The result may alias buf.
func ReadFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	var h [4]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	return readBody(r, h, buf[:0], limit)
}

// ReadWholeFrame is ReadFrame with the frame's length left in front.
func ReadWholeFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	var h [4]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return nil, err
	}
	return readBody(r, h, append(buf[:0], h[:]...), limit)
}

// readBody appends the body of the frame that h begins.
func readBody(r io.Reader, h [4]byte, buf []byte, limit int) ([]byte, error) {
	n := int(int32(binary.BigEndian.Uint32(h[:])))
	if n < 0 || n > limit {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrFrameSize, n, limit)
	}
	const step = 256 << 10
	n += len(buf)
	for len(buf) < n {
		part := min(n-len(buf), max(step, len(buf)))
		buf = slices.Grow(buf, part)
		p := buf[len(buf) : len(buf)+part]
		if _, err := io.ReadFull(r, p); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		buf = buf[:len(buf)+part]
	}
	return buf, nil
}
