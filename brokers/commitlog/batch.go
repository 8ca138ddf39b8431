package commitlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"math"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Where the fields of a batch of format v2 stand. The checksum covers what
// comes after it, so offset and leader epoch can be written without it.
const (
	posBaseOffset      = 0  // int64
	posLength          = 8  // int32, of what follows it
	posLeaderEpoch     = 12 // int32
	posMagic           = 16 // int8
	posCRC             = 17 // uint32, CRC-32C
	posAttributes      = 21 // int16
	posLastOffsetDelta = 23 // int32
	posBaseTimestamp   = 27 // int64
	posMaxTimestamp    = 35 // int64
	posProducerID      = 43 // int64
	posProducerEpoch   = 51 // int16
	posBaseSequence    = 53 // int32
	posCount           = 57 // int32

	// HeaderSize is the size of a batch without records.
	HeaderSize = 61
	// overhead is what stands before the bytes that the length field counts.
	overhead = 12
)

// Bits of a batch's attributes.
const (
	compressionBits  = 0x07
	logAppendTimeBit = 0x08
	transactionalBit = 0x10
	controlBit       = 0x20
	deleteHorizonBit = 0x40
)

// NoProducer is the producer id of a batch without one.
const NoProducer int64 = -1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one whole record batch of format v2. The methods read its fields in
// place; they may be called on what Next, Batches or Read gave.
type Batch []byte

func (b Batch) int16(at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }
func (b Batch) int32(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b Batch) int64(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }

// BaseOffset is the offset of the first record, also where compaction took it.
func (b Batch) BaseOffset() int64 { return b.int64(posBaseOffset) }

// LastOffset is the offset of the last record, also where compaction took it.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.int32(posLastOffsetDelta)) }

// Size is the number of bytes of the whole batch.
func (b Batch) Size() int { return overhead + int(b.int32(posLength)) }

// LeaderEpoch is the epoch of the leader that appended it.
func (b Batch) LeaderEpoch() int32 { return b.int32(posLeaderEpoch) }

// Magic is the version of the format.
func (b Batch) Magic() int8 { return int8(b[posMagic]) }

// Attributes are the bits that tell compression, kind of timestamp and so on.
func (b Batch) Attributes() int16 { return b.int16(posAttributes) }

// Compression is how the records are packed.
func (b Batch) Compression() Codec { return Codec(b.Attributes() & compressionBits) }

// LogAppendTime tells that every record has the time MaxTimestamp.
func (b Batch) LogAppendTime() bool { return b.Attributes()&logAppendTimeBit != 0 }

// Transactional tells that the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&transactionalBit != 0 }

// Control tells that the batch holds a transaction's end.
func (b Batch) Control() bool { return b.Attributes()&controlBit != 0 }

// LastOffsetDelta is LastOffset less BaseOffset.
func (b Batch) LastOffsetDelta() int32 { return b.int32(posLastOffsetDelta) }

// BaseTimestamp is what the records' times are counted from, in ms.
func (b Batch) BaseTimestamp() int64 { return b.int64(posBaseTimestamp) }

// MaxTimestamp is the largest time of its records, in ms; -1 without.
func (b Batch) MaxTimestamp() int64 { return b.int64(posMaxTimestamp) }

// ProducerID is the id of an idempotent producer, or NoProducer.
func (b Batch) ProducerID() int64 { return b.int64(posProducerID) }

// ProducerEpoch is the epoch of that producer.
func (b Batch) ProducerEpoch() int16 { return b.int16(posProducerEpoch) }

// BaseSequence is the producer's sequence number of the first record; -1 without.
func (b Batch) BaseSequence() int32 { return b.int32(posBaseSequence) }

// LastSequence is the sequence number of the last record. Numbers go on with 0 after 2³¹-1.
func (b Batch) LastSequence() int32 {
	if b.BaseSequence() < 0 {
		return -1
	}
	return addSequence(b.BaseSequence(), b.LastOffsetDelta())
}

// Count is the number of records in it; compaction can leave none.
func (b Batch) Count() int32 { return b.int32(posCount) }

// deleteHorizon is the time after which compaction drops its tombstones.
func (b Batch) deleteHorizon() (ms int64, ok bool) {
	return b.BaseTimestamp(), b.Attributes()&deleteHorizonBit != 0
}

// CheckCRC compares the checksum with the bytes.
func (b Batch) CheckCRC() bool {
	return binary.BigEndian.Uint32(b[posCRC:]) == crc32.Checksum(b[posAttributes:], castagnoli)
}

func (b Batch) setCRC() {
	binary.BigEndian.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], castagnoli))
}

func (b Batch) setBaseOffset(o int64) { binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(o)) }

func (b Batch) setLeaderEpoch(e int32) { binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(e)) }

func (b Batch) setAttributes(a int16) { binary.BigEndian.PutUint16(b[posAttributes:], uint16(a)) }

func (b Batch) setMaxTimestamp(ms int64) {
	binary.BigEndian.PutUint64(b[posMaxTimestamp:], uint64(ms))
}

// Next cuts the first batch off b. A *Error says that what is there is no batch
// of format v2: INVALID_RECORD for formats 0 and 1, else CORRUPT_MESSAGE. When b
// ends before the batch does, the error wraps ErrPartial. The checksum is not
// looked at, nor are the records.
func Next(b []byte) (batch Batch, rest []byte, err error) {
	if len(b) <= posMagic {
		return nil, nil, partial(len(b))
	}
	length := Batch(b).int32(posLength)
	if magic := Batch(b).Magic(); magic != 2 {
		if magic == 0 || magic == 1 {
			return nil, nil, refuse(kafka.InvalidRecord, "records of format v%d: only format v2 is kept, so a client of Kafka 0.11 or later is needed", magic)
		}
		return nil, nil, refuse(kafka.CorruptMessage, "a batch of the unknown format %d", magic)
	}
	if length < HeaderSize-overhead {
		return nil, nil, refuse(kafka.CorruptMessage, "a batch says it is %d bytes long, its header alone has %d", int64(length)+overhead, HeaderSize)
	}
	size := int64(length) + overhead
	if int64(len(b)) < size {
		return nil, nil, partial(len(b))
	}
	batch = Batch(b[:size:size])
	if err := batch.shape(); err != nil {
		return nil, nil, err
	}
	return batch, b[size:], nil
}

// shape checks what the header says of itself.
func (b Batch) shape() error {
	base, delta, count := b.BaseOffset(), b.LastOffsetDelta(), b.Count()
	if base < 0 || delta < 0 || base > math.MaxInt64-1-int64(delta) {
		return refuse(kafka.CorruptMessage, "a batch with base offset %d and last offset delta %d", base, delta)
	}
	if count < 0 || int64(count) > int64(delta)+1 {
		return refuse(kafka.InvalidRecord, "a batch of %d records for %d offsets", count, int64(delta)+1)
	}
	return nil
}

// Batches walks the batches in b. It ends after the first error.
func Batches(b []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for len(b) > 0 {
			batch, rest, err := Next(b)
			if !yield(batch, err) || err != nil {
				return
			}
			b = rest
		}
	}
}

func partial(n int) error {
	return &Error{Code: kafka.CorruptMessage, Record: -1, Reason: fmt.Sprintf("the last %d bytes are no whole batch", n), partial: true}
}
