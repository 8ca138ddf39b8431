package commitlog

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Downconvert gives whole batches as a message set of format v0 or v1 (magic), as
// consumers before Kafka 0.11 read them: packed as the batch is, or one plain
// message for each record from offset from on. Headers are lost, in v0 also times.
// As Kafka's, the set ends early, behind a whole batch, where it would be larger
// than the batches are, for plain messages can be several times as large as
// records. An *Error says UNSUPPORTED_COMPRESSION_TYPE: these formats have no zstd.
func Downconvert(batches []byte, magic int8, from int64) ([]byte, error) {
	var set []byte
	for b, err := range Batches(batches) {
		if err != nil {
			return nil, err
		}
		if b.Control() || b.LastOffset() < from {
			continue
		}
		n := len(set)
		if set, err = b.appendOld(set, magic, from); err != nil {
			return nil, err
		}
		if n > 0 && len(set) > len(batches) {
			return set[:n], nil
		}
	}
	return set, nil
}

// appendOld appends what a batch is in an old format.
func (b Batch) appendOld(dst []byte, magic int8, from int64) ([]byte, error) {
	codec := b.Compression()
	if codec > LZ4 {
		return nil, refuse(kafka.UnsupportedCompressionType, "records packed with %s: clients that fetch format v%d do not know that", codec, magic)
	}
	out := dst
	var inner []byte
	first, last := int64(-1), int64(-1)
	attributes := byte(0)
	if b.LogAppendTime() && magic == 1 {
		attributes = logAppendTimeBit
	}
	err := b.each(nil, DefaultMaxDecompressed, func(r *raw) error {
		offset := b.BaseOffset() + int64(r.offsetDelta)
		switch {
		case codec == Uncompressed && offset >= from:
			out = appendMessage(out, magic, offset, attributes, b.timestamp(r), r.key, r.value)
		case codec != Uncompressed:
			if first < 0 {
				first = offset
			}
			if last = offset; magic == 1 { // offsets inside count from the first
				offset -= first
			}
			inner = appendMessage(inner, magic, offset, attributes, b.timestamp(r), r.key, r.value)
		}
		return nil
	})
	if err != nil || len(inner) == 0 {
		return out, err
	}
	packed, err := compress(inner, codec)
	if err != nil {
		return nil, refuse(kafka.UnknownServerError, "pack with %s: %v", codec, err)
	}
	if codec == LZ4 && magic == 0 {
		spoilLZ4(packed)
	}
	return appendMessage(out, magic, last, attributes|byte(codec), b.MaxTimestamp(), nil, packed), nil
}

// appendMessage appends one message with its checksum.
func appendMessage(dst []byte, magic int8, offset int64, attributes byte, ms int64, key, value []byte) []byte {
	at := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(offset))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0, byte(magic), attributes) // size and checksum come below
	if magic == 1 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(ms))
	}
	dst = appendSized(dst, key)
	dst = appendSized(dst, value)
	m := dst[at:]
	binary.BigEndian.PutUint32(m[msgSize:], uint32(len(m)-msgOverhead))
	binary.BigEndian.PutUint32(m[msgCRC:], crc32.ChecksumIEEE(m[msgBody:]))
	return dst
}

func appendSized(dst, v []byte) []byte {
	if v == nil {
		return binary.BigEndian.AppendUint32(dst, 0xffffffff)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(v)))
	return append(dst, v...)
}
