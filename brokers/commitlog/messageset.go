package commitlog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Where the fields of a message of formats v0 and v1 stand; v1 has a time before
// the key. The checksum, CRC-32, covers what comes after it.
const (
	msgOffset     = 0  // int64
	msgSize       = 8  // int32, of what follows it
	msgCRC        = 12 // uint32
	msgMagic      = 16 // int8
	msgAttributes = 17 // int8
	msgTime       = 18 // int64, v1 only

	msgOverhead = 12
	msgMinSize  = 4 + 1 + 1 + 4 + 4 // of a v0 message without key and value
	msgBody     = msgMagic          // what the checksum covers
)

// OldFormat tells that records begin with a message of format v0 or v1.
func OldFormat(records []byte) bool {
	return len(records) > posMagic && (records[posMagic] == 0 || records[posMagic] == 1)
}

// Packed tells that records begin with a batch or a message that is compressed.
func Packed(records []byte) bool {
	switch {
	case OldFormat(records):
		return len(records) > msgAttributes && message(records).codec() != Uncompressed
	case len(records) < HeaderSize:
		return false
	}
	return Batch(records).Compression() != Uncompressed
}

// Upconvert makes one batch of format v2, as a producer would send it, from a
// message set of format v0 or v1: plain messages, or one that wraps others packed
// with gzip, snappy or lz4; then the batch is packed in the same way. Keys, values
// and times are kept (v0 has none: -1), offsets are given anew. Of o, it uses the
// two bounds; the rest is for Check, on what comes out. A refusal is an *Error:
//
//	CORRUPT_MESSAGE    lengths or checksums wrong, bytes that do not unpack
//	INVALID_RECORD     formats mixed; something beside a packed message or packed in it again;
//	                   a packed message without any
//	INVALID_TIMESTAMP  a time of the kind that only a log writes, or below -1
//	UNSUPPORTED_COMPRESSION_TYPE, MESSAGE_TOO_LARGE
func Upconvert(set []byte, o CheckOptions) (Batch, error) {
	if len(set) == 0 {
		return nil, refuse(kafka.InvalidRecord, "there is no message")
	}
	m, rest, err := nextMessage(set, 0)
	if err != nil {
		return nil, err
	}
	magic, codec := m[msgMagic], m.codec()
	if magic > 1 {
		return nil, refuse(kafka.InvalidRecord, "format v%d is no message set", magic)
	}
	if codec == Uncompressed {
		e := newEncoder(-1, len(set))
		return e.addAll(set, magic, o.MaxMessageBytes, codec)
	}
	if err := m.check(0, magic, o.MaxMessageBytes); err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, refuse(kafka.InvalidRecord, "%d bytes behind a message packed with %s: a producer sends one for a partition", len(rest), codec)
	}
	inner, err := m.unpack(o.MaxDecompressed)
	if err != nil {
		return nil, err
	}
	return newEncoder(-1, len(inner)).addAll(inner, magic, 0, codec)
}

// addAll adds a message set of plain messages and makes a batch of it.
func (e *encoder) addAll(set []byte, magic byte, maxBytes int, codec Codec) (Batch, error) {
	n := 0
	for ; len(set) > 0; n++ {
		m, rest, err := nextMessage(set, n)
		if err != nil {
			return nil, err
		}
		if err := m.check(n, magic, maxBytes); err != nil {
			return nil, err
		}
		if m.codec() != Uncompressed {
			return nil, refuseRecord(kafka.InvalidRecord, n, "it is packed with %s beside or inside others", m.codec())
		}
		r, err := m.record(n)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			e.base = r.Timestamp
		}
		e.add(int32(n), &r)
		set = rest
	}
	if len(e.buf) > math.MaxInt32 {
		return nil, refuse(kafka.MessageTooLarge, "the messages make a batch of %d bytes", len(e.buf))
	}
	b, err := e.finish(codec, int32(n-1))
	if err != nil {
		return nil, refuse(kafka.UnknownServerError, "pack with %s: %v", codec, err)
	}
	return b, nil
}

// message is one whole message of format v0 or v1, with its offset and size.
type message []byte

// nextMessage cuts the first message off set; n is its number there.
func nextMessage(set []byte, n int) (m message, rest []byte, err error) {
	if len(set) < msgOverhead {
		return nil, nil, refuseRecord(kafka.CorruptMessage, n, "it ends after %d bytes", len(set))
	}
	size := int64(int32(binary.BigEndian.Uint32(set[msgSize:])))
	if size < msgMinSize {
		return nil, nil, refuseRecord(kafka.CorruptMessage, n, "it says it is %d bytes long, the shortest have %d", size, msgMinSize)
	}
	if size > int64(len(set)-msgOverhead) {
		return nil, nil, refuseRecord(kafka.CorruptMessage, n, "it says it is %d bytes long, %d are left", size, len(set)-msgOverhead)
	}
	end := msgOverhead + size
	return message(set[:end:end]), set[end:], nil
}

func (m message) codec() Codec { return Codec(m[msgAttributes] & compressionBits) }

// check holds a message against what needs no look at its key and value.
func (m message) check(n int, magic byte, maxBytes int) error {
	switch {
	case maxBytes > 0 && len(m) > maxBytes:
		return refuseRecord(kafka.MessageTooLarge, n, "%d bytes, max.message.bytes is %d", len(m), maxBytes)
	case binary.BigEndian.Uint32(m[msgCRC:]) != crc32.ChecksumIEEE(m[msgBody:]):
		return refuseRecord(kafka.CorruptMessage, n, "the checksum does not match")
	case m[msgMagic] != magic:
		return refuseRecord(kafka.InvalidRecord, n, "it is of format v%d, the first one of v%d", m[msgMagic], magic)
	case m.codec() > LZ4:
		return refuseRecord(kafka.UnsupportedCompressionType, n, "compression %s in a message of format v%d", m.codec(), magic)
	case magic == 1 && m[msgAttributes]&logAppendTimeBit != 0:
		return refuseRecord(kafka.InvalidTimestamp, n, "the time is said to be that of the append, which only the log writes")
	}
	return nil
}

// record takes the message apart. Key and value point into it.
func (m message) record(n int) (Record, error) {
	r := Record{Timestamp: -1}
	b := m[msgAttributes+1:]
	if m[msgMagic] == 1 {
		if len(b) < 8 {
			return r, refuseRecord(kafka.CorruptMessage, n, "its time is cut off")
		}
		r.Timestamp, b = int64(binary.BigEndian.Uint64(b)), b[8:]
		if r.Timestamp < -1 {
			return r, refuseRecord(kafka.InvalidTimestamp, n, "its time is %d", r.Timestamp)
		}
	}
	var ok bool
	if r.Key, b, ok = sized(b); !ok {
		return r, refuseRecord(kafka.CorruptMessage, n, "its key is cut off")
	}
	if r.Value, b, ok = sized(b); !ok {
		return r, refuseRecord(kafka.CorruptMessage, n, "its value is cut off")
	}
	if len(b) > 0 {
		return r, refuseRecord(kafka.CorruptMessage, n, "%d bytes are left behind its value", len(b))
	}
	return r, nil
}

// sized reads a length of 32 bits and as many bytes; -1 is null.
func sized(b message) (v []byte, rest message, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n, b := int32(binary.BigEndian.Uint32(b)), b[4:]
	switch {
	case n == -1:
		return nil, b, true
	case n < 0 || int(n) > len(b):
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// unpack gives the messages in a packed one.
func (m message) unpack(bound int) ([]byte, error) {
	if bound <= 0 {
		bound = DefaultMaxDecompressed
	}
	wrapper, err := m.record(0)
	if err != nil {
		return nil, err
	}
	packed := wrapper.Value
	if m[msgMagic] == 0 && m.codec() == LZ4 {
		packed = mendLZ4(packed)
	}
	inner, err := decompress(nil, packed, m.codec(), bound)
	switch {
	case errors.Is(err, errTooLarge):
		return nil, refuseUnpacked("messages", bound)
	case err != nil:
		return nil, refuse(kafka.CorruptMessage, "messages packed with %s: %v", m.codec(), err)
	case len(inner) == 0:
		return nil, refuse(kafka.InvalidRecord, "a message packed with %s holds none", m.codec())
	}
	return inner, nil
}
