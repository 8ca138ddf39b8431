package wire

import (
	"encoding/binary"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Primitive fields. Versions from a message's first flexible one on write
// lengths as unsigned varints plus one and end every structure with a count of
// tagged fields, which for us is always 0.

func appendInt16(dst []byte, v int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(v)) }
func appendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }
func appendInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendLen(dst []byte, n int, flexible bool) []byte {
	if flexible {
		return binary.AppendUvarint(dst, uint64(n)+1)
	}
	return appendInt32(dst, int32(n))
}

func appendString(dst []byte, s string, flexible bool) []byte {
	if flexible {
		dst = binary.AppendUvarint(dst, uint64(len(s))+1)
	} else {
		dst = appendInt16(dst, int16(len(s)))
	}
	return append(dst, s...)
}

func appendNull(dst []byte, flexible bool) []byte {
	if flexible {
		return append(dst, 0)
	}
	return appendInt16(dst, -1)
}

func appendIDs(dst []byte, ids []kafka.BrokerID, flexible bool) []byte {
	dst = appendLen(dst, len(ids), flexible)
	for _, id := range ids {
		dst = appendInt32(dst, int32(id))
	}
	return dst
}

// endStruct closes a structure of a flexible version.
func endStruct(dst []byte, flexible bool) []byte {
	if flexible {
		return append(dst, 0)
	}
	return dst
}
