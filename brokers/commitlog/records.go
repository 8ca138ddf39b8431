package commitlog

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Record is one record with its offset and its time in ms. A nil Key or Value
// is Kafka's null, and differs from an empty one.
type Record struct {
	Offset     int64
	Timestamp  int64
	Key, Value []byte
	Headers    []Header
}

// Header is a name and a value that go with a record.
type Header struct {
	Key   string
	Value []byte
}

// DefaultMaxDecompressed bounds what the records of one batch may unpack to.
const DefaultMaxDecompressed = 64 << 20

// Records unpacks the batch's records. Keys and values point into the batch
// where that is uncompressed. The checksum is not looked at. An *Error says
// which record is malformed.
func (b Batch) Records() ([]Record, error) {
	out := make([]Record, 0, min(int(b.Count()), 1024))
	err := b.each(nil, DefaultMaxDecompressed, func(r *raw) error {
		rec := Record{Offset: b.BaseOffset() + int64(r.offsetDelta), Timestamp: b.timestamp(r), Key: r.key, Value: r.value}
		headers, err := r.readHeaders()
		rec.Headers = headers
		out = append(out, rec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// timestamp is the time of one record of the batch.
func (b Batch) timestamp(r *raw) int64 {
	if b.LogAppendTime() {
		return b.MaxTimestamp()
	}
	return b.BaseTimestamp() + r.timestampDelta
}

// raw is one record as it stands in an unpacked batch.
type raw struct {
	timestampDelta int64
	offsetDelta    int32
	key, value     []byte // nil: null
	headers        []byte // from their count on
	index          int
}

// each unpacks the records, into buf's memory if it can, and hands them over one
// by one: as many as the header counts, and nothing behind them.
func (b Batch) each(buf []byte, bound int, f func(*raw) error) error {
	body, err := decompress(buf, b[HeaderSize:], b.Compression(), bound)
	if err != nil {
		return b.unpackError(err, bound)
	}
	return eachRecord(body, int(b.Count()), f)
}

func (b Batch) unpackError(err error, bound int) error {
	if err == errTooLarge {
		return refuseUnpacked("records", bound)
	}
	return refuse(kafka.CorruptMessage, "records packed with %s: %v", b.Compression(), err)
}

func eachRecord(body []byte, count int, f func(*raw) error) error {
	var r raw
	for i := range count {
		r = raw{index: i}
		n, at := varint(body)
		if at <= 0 {
			return refuseRecord(kafka.InvalidRecord, i, "its length is missing: the batch counts %d records", count)
		}
		if n < 0 || n > int64(len(body)-at) {
			return refuseRecord(kafka.InvalidRecord, i, "it says it is %d bytes long, %d are left", n, len(body)-at)
		}
		if err := r.read(body[at : at+int(n)]); err != nil {
			return refuseRecord(kafka.InvalidRecord, i, "%v", err)
		}
		if err := f(&r); err != nil {
			return err
		}
		body = body[at+int(n):]
	}
	if len(body) > 0 {
		return refuse(kafka.InvalidRecord, "%d bytes are left behind %d records", len(body), count)
	}
	return nil
}

// read takes one record apart, except for its headers.
func (r *raw) read(b []byte) error {
	if len(b) < 1 {
		return fmt.Errorf("it is empty")
	}
	b = b[1:] // attributes, of which none is in use
	d, n := binary.Varint(b)
	if n <= 0 {
		return fmt.Errorf("its time is cut off")
	}
	r.timestampDelta, b = d, b[n:]
	o, n := varint(b)
	if n <= 0 {
		return fmt.Errorf("its offset is cut off")
	}
	r.offsetDelta, b = int32(o), b[n:]
	var err error
	if r.key, b, err = nullable(b, "key"); err != nil {
		return err
	}
	if r.value, b, err = nullable(b, "value"); err != nil {
		return err
	}
	r.headers = b
	if len(b) == 1 && b[0] == 0 { // none, the usual case
		return nil
	}
	return r.eachHeader(nil)
}

// eachHeader walks the headers to the record's last byte.
func (r *raw) eachHeader(f func(key, value []byte)) error {
	count, n := varint(r.headers)
	b := r.headers[max(n, 0):]
	if n <= 0 || count < 0 || count > int64(len(b)) {
		return fmt.Errorf("its number of headers is cut off or impossible")
	}
	for range count {
		key, rest, err := nullable(b, "header's name")
		if err != nil {
			return err
		}
		if key == nil {
			return fmt.Errorf("a header has no name")
		}
		value, rest, err := nullable(rest, "header's value")
		if err != nil {
			return err
		}
		if b = rest; f != nil {
			f(key, value)
		}
	}
	if len(b) > 0 {
		return fmt.Errorf("%d bytes are left behind its headers", len(b))
	}
	return nil
}

func (r *raw) readHeaders() ([]Header, error) {
	if len(r.headers) == 1 {
		return nil, nil
	}
	var out []Header
	err := r.eachHeader(func(k, v []byte) { out = append(out, Header{string(k), v}) })
	return out, err
}

// nullable reads a length and as many bytes; a negative length is null.
func nullable(b []byte, what string) (v, rest []byte, err error) {
	size, n := varint(b)
	switch {
	case n <= 0:
		return nil, nil, fmt.Errorf("the length of its %s is cut off", what)
	case size < 0:
		return nil, b[n:], nil
	case size > int64(len(b)-n):
		return nil, nil, fmt.Errorf("its %s says it is %d bytes long, %d are left", what, size, len(b)-n)
	}
	end := n + int(size)
	return b[n:end:end], b[end:], nil
}

// varint reads a zigzag number of 32 bits; n ≤ 0 says there is none.
func varint(b []byte) (v int64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return int64(b[0]>>1) ^ -int64(b[0]&1), 1
	}
	v, n = binary.Varint(b)
	if n > 5 || v > math.MaxInt32 || v < math.MinInt32 {
		return 0, -1
	}
	return v, n
}

// BatchSpec is what Encode writes besides the records. The zero value is a batch
// as of a client without idempotence, but for ProducerID, where 0 is an id:
// NoProducerSpec gives that.
type BatchSpec struct {
	Codec         Codec
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	LeaderEpoch   int32
	BaseOffset    int64
	Transactional bool
}

// NoProducerSpec is a batch of nobody in particular, at offset 0.
func NoProducerSpec() BatchSpec {
	return BatchSpec{ProducerID: NoProducer, ProducerEpoch: -1, BaseSequence: -1, LeaderEpoch: -1}
}

// Encode makes an uncompressed batch of the records, at base offset 0 and of no
// producer, as Append wants it. Their offsets are not looked at: they follow
// each other. No records make an empty slice.
func Encode(records ...Record) []byte {
	b, err := NoProducerSpec().Encode(records...)
	if err != nil {
		panic("commitlog: uncompressed records cannot fail to pack: " + err.Error())
	}
	return b
}

// Encode makes a batch of the records as the spec says.
func (s BatchSpec) Encode(records ...Record) (Batch, error) {
	if len(records) == 0 {
		return nil, nil
	}
	e := newEncoder(records[0].Timestamp, 64*len(records))
	for i := range records {
		e.add(int32(i), &records[i])
	}
	b, err := e.finish(s.Codec, int32(len(records)-1))
	if err != nil {
		return nil, err
	}
	b.setBaseOffset(s.BaseOffset)
	b.setLeaderEpoch(s.LeaderEpoch)
	binary.BigEndian.PutUint64(b[posProducerID:], uint64(s.ProducerID))
	binary.BigEndian.PutUint16(b[posProducerEpoch:], uint16(s.ProducerEpoch))
	binary.BigEndian.PutUint32(b[posBaseSequence:], uint32(s.BaseSequence))
	if s.Transactional {
		b.setAttributes(b.Attributes() | transactionalBit)
	}
	b.setCRC()
	return b, nil
}

// encoder collects records behind a header's room.
type encoder struct {
	buf     Batch
	scratch []byte
	base    int64
	max     int64
	count   int32
}

func newEncoder(baseTimestamp int64, room int) *encoder {
	return &encoder{buf: make(Batch, HeaderSize, HeaderSize+room), base: baseTimestamp, max: -1}
}

func (e *encoder) add(offsetDelta int32, r *Record) {
	s := append(e.scratch[:0], 0)
	s = binary.AppendVarint(s, r.Timestamp-e.base)
	s = binary.AppendVarint(s, int64(offsetDelta))
	s = appendNullable(s, r.Key)
	s = appendNullable(s, r.Value)
	s = binary.AppendVarint(s, int64(len(r.Headers)))
	for _, h := range r.Headers {
		s = binary.AppendVarint(s, int64(len(h.Key)))
		s = append(s, h.Key...)
		s = appendNullable(s, h.Value)
	}
	e.scratch = s
	e.buf = binary.AppendVarint(e.buf, int64(len(s)))
	e.buf = append(e.buf, s...)
	e.max = max(e.max, r.Timestamp)
	e.count++
}

// finish packs the records and writes the header, without a producer.
func (e *encoder) finish(c Codec, lastOffsetDelta int32) (Batch, error) {
	b := e.buf
	if c != Uncompressed {
		packed, err := compress(b[HeaderSize:], c)
		if err != nil {
			return nil, err
		}
		b = append(make(Batch, HeaderSize, HeaderSize+len(packed)), packed...)
	}
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-overhead))
	b.setLeaderEpoch(-1)
	b[posMagic] = 2
	b.setAttributes(int16(c))
	binary.BigEndian.PutUint32(b[posLastOffsetDelta:], uint32(lastOffsetDelta))
	binary.BigEndian.PutUint64(b[posBaseTimestamp:], uint64(e.base))
	b.setMaxTimestamp(e.max)
	binary.BigEndian.PutUint64(b[posProducerID:], math.MaxUint64)
	binary.BigEndian.PutUint16(b[posProducerEpoch:], math.MaxUint16)
	binary.BigEndian.PutUint32(b[posBaseSequence:], math.MaxUint32)
	binary.BigEndian.PutUint32(b[posCount:], uint32(e.count))
	b.setCRC()
	return b, nil
}

func appendNullable(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}
