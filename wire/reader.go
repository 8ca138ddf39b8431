package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zkcontroller/zkcontroller/kafka"
)

var errShort = errors.New("it ends inside a field")

// reader takes fields off a body. After the first error everything reads as
// zero and the error stays.
type reader struct {
	b        []byte
	flexible bool
	err      error
	ids      []kafka.BrokerID // room that id lists are cut from
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.b = nil
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail(errShort)
		return nil
	}
	s := r.b[:n]
	r.b = r.b[n:]
	return s
}

func (r *reader) int8() int8 {
	if s := r.take(1); s != nil {
		return int8(s[0])
	}
	return 0
}

func (r *reader) bool() bool { return r.int8() != 0 }

func (r *reader) int16() int16 {
	if s := r.take(2); s != nil {
		return int16(binary.BigEndian.Uint16(s))
	}
	return 0
}

func (r *reader) int32() int32 {
	if s := r.take(4); s != nil {
		return int32(binary.BigEndian.Uint32(s))
	}
	return 0
}

func (r *reader) int64() int64 {
	if s := r.take(8); s != nil {
		return int64(binary.BigEndian.Uint64(s))
	}
	return 0
}

func (r *reader) uvarint() uint32 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<32-1 {
		r.fail(errors.New("a length is no 32-bit varint"))
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

// length reads the length of an array or string; null is -1.
func (r *reader) length(short bool) int {
	switch {
	case r.flexible:
		return int(r.uvarint()) - 1
	case short:
		return int(r.int16())
	}
	return int(r.int32())
}

// array reads the length of an array whose elements take at least size bytes
// each, so that no claimed length makes us ask for more memory than a multiple
// of what arrived.
func (r *reader) array(size int) int {
	n := r.length(false)
	if r.err == nil && (n < 0 || n > len(r.b)/size) {
		r.fail(fmt.Errorf("an array claims %d elements with %d bytes left", n, len(r.b)))
		return 0
	}
	return max(n, 0)
}

func (r *reader) string() string {
	s, null := r.nullable()
	if null {
		r.fail(errors.New("a string is null"))
	}
	return s
}

func (r *reader) nullable() (s string, null bool) {
	n := r.length(true)
	if n < 0 {
		return "", r.err == nil
	}
	return string(r.take(n)), false
}

func (r *reader) topicID() (id kafka.TopicID) {
	copy(id[:], r.take(len(id)))
	return id
}

// idList reads an array of broker ids; an empty one is nil.
func (r *reader) idList() []kafka.BrokerID {
	n := r.array(4)
	if n == 0 {
		return nil
	}
	if n > len(r.ids) {
		r.ids = make([]kafka.BrokerID, max(n, min(1024, len(r.b)/8)))
	}
	out := r.ids[:n:n]
	r.ids = r.ids[n:]
	for i := range out {
		out[i] = kafka.BrokerID(r.int32())
	}
	return out
}

// tags skips the tagged fields at the end of a structure.
func (r *reader) tags() {
	if !r.flexible {
		return
	}
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		r.uvarint()
		r.take(int(r.uvarint()))
	}
}

// done checks that nothing is left over.
func (r *reader) done() error {
	if r.err == nil && len(r.b) > 0 {
		return fmt.Errorf("%d bytes are left over", len(r.b))
	}
	return r.err
}
