package commitlog

import (
	"sync"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// CheckOptions say what a topic takes from producers.
type CheckOptions struct {
	MaxMessageBytes int  // max.message.bytes, of a whole batch; 0: no bound
	MaxDecompressed int  // bytes the records may unpack to; 0: DefaultMaxDecompressed
	Compacted       bool // every record needs a key
	LogAppendTime   bool // the log writes the times, so those in the records do not count
	NoZstd          bool // the request is older than zstd (Produce before v7)

	Now             time.Time
	TimestampBefore time.Duration // message.timestamp.before.max.ms: how much older than Now; 0: no bound
	TimestampAfter  time.Duration // message.timestamp.after.max.ms: how much newer; 0: no bound

	Transactional bool // batches of a transaction are taken
}

// Checked is what Check found.
type Checked struct {
	Records      int
	MaxTimestamp int64 // ms
	Codec        Codec
}

// unpacked are buffers for the records of compressed batches.
var unpacked = sync.Pool{New: func() any { return new([]byte) }}

// keepUnpacked bounds the buffers that wait in the pool.
const keepUnpacked = 1 << 20

// Check holds what a producer sent for one partition against the rules that need
// no state: exactly one batch, of format v2, whole, its checksum right, every
// record well-formed. It needs no lock and may run on any goroutine.
// Where the batch's largest time is not that of its records, Check corrects it
// in place, as Kafka's leaders do. A refusal is an *Error:
//
//	INVALID_RECORD          formats v0 and v1 (so does Kafka for Produce v3 and later); no batch or more than one;
//	                        a base offset that is not 0; records that contradict the header, or without a
//	                        key in a compacted topic; a control batch
//	CORRUPT_MESSAGE         lengths or checksum wrong, bytes that do not unpack
//	MESSAGE_TOO_LARGE       max.message.bytes, or the bound on unpacked bytes
//	INVALID_TIMESTAMP       outside the bounds, or of the kind that only a log writes
//	UNSUPPORTED_COMPRESSION_TYPE, INVALID_TXN_STATE
func Check(batches []byte, o CheckOptions) (Checked, error) {
	if len(batches) == 0 {
		return Checked{}, refuse(kafka.InvalidRecord, "there is no record batch")
	}
	b, rest, err := Next(batches)
	if err != nil {
		return Checked{}, err
	}
	if len(rest) > 0 {
		return Checked{}, refuse(kafka.InvalidRecord, "%d bytes behind the first record batch: a producer sends one for a partition", len(rest))
	}
	if err := checkHeader(b, o); err != nil {
		return Checked{}, err
	}
	return checkRecords(b, o)
}

func checkHeader(b Batch, o CheckOptions) error {
	switch {
	case b.BaseOffset() != 0:
		return refuse(kafka.InvalidRecord, "base offset %d: a producer writes 0", b.BaseOffset())
	case o.MaxMessageBytes > 0 && len(b) > o.MaxMessageBytes:
		return refuse(kafka.MessageTooLarge, "a batch of %d bytes, max.message.bytes is %d", len(b), o.MaxMessageBytes)
	case !b.CheckCRC():
		return refuse(kafka.CorruptMessage, "the checksum does not match")
	case b.Count() == 0 || int64(b.Count()) != int64(b.LastOffsetDelta())+1:
		return refuse(kafka.InvalidRecord, "%d records for %d offsets", b.Count(), int64(b.LastOffsetDelta())+1)
	case b.Control():
		return refuse(kafka.InvalidRecord, "a control batch: clients do not write those")
	case b.Transactional() && !o.Transactional:
		return refuse(kafka.InvalidTxnState, "a batch of a transaction, which this broker does not offer")
	case b.ProducerID() >= 0 && (b.BaseSequence() < 0 || b.ProducerEpoch() < 0):
		return refuse(kafka.InvalidRecord, "sequence %d, epoch %d of producer id %d", b.BaseSequence(), b.ProducerEpoch(), b.ProducerID())
	case b.Transactional() && b.ProducerID() < 0:
		return refuse(kafka.InvalidRecord, "a batch of a transaction without a producer id")
	case b.Compression() > Zstd || b.Compression() == Zstd && o.NoZstd:
		return refuse(kafka.UnsupportedCompressionType, "compression %s", b.Compression())
	case b.LogAppendTime():
		return refuse(kafka.InvalidTimestamp, "the time is said to be that of the append, which only the log writes")
	case b.Attributes()&deleteHorizonBit != 0:
		return refuse(kafka.InvalidRecord, "a time to delete tombstones, which only the log writes")
	}
	return nil
}

func checkRecords(b Batch, o CheckOptions) (Checked, error) {
	bound := o.MaxDecompressed
	if bound <= 0 {
		bound = DefaultMaxDecompressed
	}
	var buf *[]byte
	var room []byte
	if b.Compression() != Uncompressed {
		buf = unpacked.Get().(*[]byte)
		defer unpacked.Put(buf)
		room = *buf
	}
	body, err := decompress(room, b[HeaderSize:], b.Compression(), bound)
	if err != nil {
		return Checked{}, b.unpackError(err, bound)
	}
	if buf != nil && cap(body) <= keepUnpacked {
		*buf = body
	}
	oldest, newest := o.timeBounds()
	largest := int64(-1)
	err = eachRecord(body, int(b.Count()), func(r *raw) error {
		at := b.BaseTimestamp() + r.timestampDelta
		largest = max(largest, at)
		switch {
		case int(r.offsetDelta) != r.index:
			return refuseRecord(kafka.InvalidRecord, r.index, "its offset is the batch's %d", r.offsetDelta)
		case o.Compacted && r.key == nil:
			return refuseRecord(kafka.InvalidRecord, r.index, "a compacted topic takes no record without a key")
		case at != -1 && (at < oldest || at > newest):
			return refuseRecord(kafka.InvalidTimestamp, r.index, "its time %d is outside %d to %d", at, oldest, newest)
		}
		return nil
	})
	if err != nil {
		return Checked{}, err
	}
	if b.MaxTimestamp() != largest {
		b.setMaxTimestamp(largest)
		b.setCRC()
	}
	return Checked{Records: int(b.Count()), MaxTimestamp: largest, Codec: b.Compression()}, nil
}

// timeBounds gives the range of times that are taken. A record without a time (-1),
// as producers before 0.10 send, is taken always.
func (o CheckOptions) timeBounds() (oldest, newest int64) {
	oldest, newest = -1<<63, 1<<63-1
	if o.LogAppendTime {
		return oldest, newest
	}
	if o.TimestampBefore > 0 {
		oldest = o.Now.Add(-o.TimestampBefore).UnixMilli()
	}
	if o.TimestampAfter > 0 {
		newest = o.Now.Add(o.TimestampAfter).UnixMilli()
	}
	return oldest, newest
}

// CheckReplicated holds what a leader answered to a follower's fetch against
// what a follower relies on: format v2, lengths, checksums, rising offsets. A
// last batch that is cut off, as Kafka's leaders send it, is left out of whole.
// It may run on any goroutine.
func CheckReplicated(batches []byte) (whole []byte, err error) {
	next := int64(0)
	for rest := batches; len(rest) > 0; {
		b, after, err := Next(rest)
		if isPartial(err) {
			return batches[:len(batches)-len(rest)], nil
		}
		if err != nil {
			return nil, err
		}
		if !b.CheckCRC() {
			return nil, refuse(kafka.CorruptMessage, "the checksum of the batch at offset %d does not match", b.BaseOffset())
		}
		if b.BaseOffset() < next {
			return nil, refuse(kafka.CorruptMessage, "a batch at offset %d behind one that ends at %d", b.BaseOffset(), next-1)
		}
		next, rest = b.LastOffset()+1, after
	}
	return batches, nil
}
