package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/s2"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// batchOf makes a batch and lets it be spoilt; the checksum is right again then.
func batchOf(t testing.TB, c Codec, spoil func(b Batch), recs ...Record) Batch {
	t.Helper()
	s := NoProducerSpec()
	s.Codec = c
	b, err := s.Encode(recs...)
	must(t, err)
	if spoil != nil {
		spoil(b)
		b.setCRC()
	}
	return b
}

func put32(at int, v int32) func(Batch) {
	return func(b Batch) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
}

func attribute(bit int16) func(Batch) {
	return func(b Batch) { b.setAttributes(b.Attributes() | bit) }
}

// body makes a batch that counts n records of these bytes.
func body(n int, bytes ...byte) Batch {
	b := append(make(Batch, HeaderSize), bytes...)
	copy(b, Encode(records(1, "x")...)[:HeaderSize])
	put32(posLength, int32(len(b)-overhead))(b)
	put32(posCount, int32(n))(b)
	put32(posLastOffsetDelta, int32(n-1))(b)
	b.setCRC()
	return b
}

func TestCheckRefuses(t *testing.T) {
	three := records(3, "v")
	noKey := []Record{three[0], {Timestamp: at.UnixMilli(), Value: []byte("v")}}
	old := func(magic byte) []byte { b := Encode(three...); b[posMagic] = magic; return b }
	lying := func(b Batch) { b.setAttributes(int16(Gzip)) }
	unsealed := Encode(three...)
	unsealed[len(unsealed)-1] ^= 1
	later := func(ms int64) []byte { return Encode(Record{Timestamp: at.UnixMilli() + ms, Key: []byte("k")}) }
	for _, c := range []struct {
		what  string
		bytes []byte
		o     CheckOptions
		code  kafka.ErrorCode
		says  string
	}{
		{"nothing", nil, CheckOptions{}, kafka.InvalidRecord, "no record batch"},
		{"format v0", old(0), CheckOptions{}, kafka.InvalidRecord, "format v0"},
		{"format v1", old(1), CheckOptions{}, kafka.InvalidRecord, "format v1"},
		{"format v3", old(3), CheckOptions{}, kafka.CorruptMessage, "unknown format 3"},
		{"cut off", Encode(three...)[:80], CheckOptions{}, kafka.CorruptMessage, "no whole batch"},
		{"short length", batchOf(t, 0, put32(posLength, 48), three...), CheckOptions{}, kafka.CorruptMessage, "its header alone"},
		{"negative length", batchOf(t, 0, put32(posLength, -1), three...), CheckOptions{}, kafka.CorruptMessage, "its header alone"},
		{"two batches", append(Encode(three...), Encode(three...)...), CheckOptions{}, kafka.InvalidRecord, "behind the first"},
		{"base offset", batchOf(t, 0, func(b Batch) { b.setBaseOffset(7) }, three...), CheckOptions{}, kafka.InvalidRecord, "base offset 7"},
		{"too large", Encode(three...), CheckOptions{MaxMessageBytes: 90}, kafka.MessageTooLarge, "max.message.bytes is 90"},
		{"checksum", unsealed, CheckOptions{}, kafka.CorruptMessage, "checksum"},
		{"no records", batchOf(t, 0, put32(posCount, 0), three...), CheckOptions{}, kafka.InvalidRecord, "0 records for 3 offsets"},
		{"count", batchOf(t, 0, put32(posCount, 2), three...), CheckOptions{}, kafka.InvalidRecord, "2 records for 3 offsets"},
		{"count beyond", body(2, Encode(three[0])[HeaderSize:]...), CheckOptions{}, kafka.InvalidRecord, "record 1: its length is missing"},
		{"bytes behind", batchOf(t, 0, func(b Batch) { put32(posCount, 2)(b); put32(posLastOffsetDelta, 1)(b) }, three...), CheckOptions{}, kafka.InvalidRecord, "are left behind 2 records"},
		{"control", batchOf(t, 0, attribute(controlBit), three...), CheckOptions{}, kafka.InvalidRecord, "control"},
		{"transactional", batchOf(t, 0, attribute(transactionalBit), three...), CheckOptions{}, kafka.InvalidTxnState, "transaction"},
		{"transactional without producer", batchOf(t, 0, attribute(transactionalBit), three...), CheckOptions{Transactional: true}, kafka.InvalidRecord, "without a producer id"},
		{"producer without sequence", batchOf(t, 0, func(b Batch) { binary.BigEndian.PutUint64(b[posProducerID:], 5) }, three...), CheckOptions{}, kafka.InvalidRecord, "producer id 5"},
		{"codec 5", batchOf(t, 0, attribute(5), three...), CheckOptions{}, kafka.UnsupportedCompressionType, "codec(5)"},
		{"zstd too early", batchOf(t, Zstd, nil, three...), CheckOptions{NoZstd: true}, kafka.UnsupportedCompressionType, "zstd"},
		{"log append time", batchOf(t, 0, attribute(logAppendTimeBit), three...), CheckOptions{}, kafka.InvalidTimestamp, "append"},
		{"delete horizon", batchOf(t, 0, attribute(deleteHorizonBit), three...), CheckOptions{}, kafka.InvalidRecord, "tombstones"},
		{"not packed", batchOf(t, 0, lying, three...), CheckOptions{}, kafka.CorruptMessage, "packed with gzip"},
		{"no key", Encode(noKey...), CheckOptions{Compacted: true}, kafka.InvalidRecord, "record 1: a compacted topic"},
		{"too old", later(-5001), CheckOptions{Now: at, TimestampBefore: 5 * time.Second}, kafka.InvalidTimestamp, "record 0"},
		{"too new", later(5001), CheckOptions{Now: at, TimestampAfter: 5 * time.Second}, kafka.InvalidTimestamp, "record 0"},
		{"record too long", body(1, 100, 0, 0, 0), CheckOptions{}, kafka.InvalidRecord, "record 0: it says it is 50 bytes"},
		{"record negative", body(1, 1), CheckOptions{}, kafka.InvalidRecord, "record 0: it says it is -1"},
		{"record empty", body(1, 0), CheckOptions{}, kafka.InvalidRecord, "record 0: it is empty"},
		{"key too long", body(1, 12, 0, 0, 0, 90, 1, 0), CheckOptions{}, kafka.InvalidRecord, "its key says it is 45"},
		{"headers impossible", body(1, 14, 0, 0, 0, 1, 1, 90, 0), CheckOptions{}, kafka.InvalidRecord, "number of headers"},
		{"header without name", body(1, 16, 0, 0, 0, 1, 1, 2, 1, 1), CheckOptions{}, kafka.InvalidRecord, "a header has no name"},
		{"offset delta", body(1, 12, 0, 0, 2, 1, 1, 0), CheckOptions{}, kafka.InvalidRecord, "its offset is the batch's 1"},
		{"offset delta packed", packed(t, body(1, 12, 0, 0, 2, 1, 1, 0)), CheckOptions{}, kafka.InvalidRecord, "its offset is the batch's 1"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := Check(c.bytes, c.o)
			var e *Error
			if !errors.As(err, &e) || e.Code != c.code || Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %s: %s", err, c.code, c.says)
			}
		})
	}
}

// packed packs the records of an uncompressed batch.
func packed(t testing.TB, b Batch) Batch {
	t.Helper()
	z, err := compress(b[HeaderSize:], Zstd)
	must(t, err)
	out := append(append(Batch{}, b[:HeaderSize]...), z...)
	put32(posLength, int32(len(out)-overhead))(out)
	out.setAttributes(int16(Zstd))
	out.setCRC()
	return out
}

var codecs = []Codec{Uncompressed, Gzip, Snappy, LZ4, Zstd}

func TestCheckTakes(t *testing.T) {
	recs := records(50, "a value that can be packed, a value that can be packed")
	recs[3].Value, recs[4].Value = nil, []byte{}
	recs[5].Key, recs[6].Key = nil, []byte{}
	recs[7].Headers = []Header{{"a", []byte("1")}, {"", nil}, {"a", []byte{}}}
	recs[9].Timestamp = at.UnixMilli() + 5000
	for _, c := range codecs {
		t.Run(c.String(), func(t *testing.T) {
			b := batchOf(t, c, func(b Batch) { b.setMaxTimestamp(3) }, recs...)
			got, err := Check(b, CheckOptions{MaxMessageBytes: len(b), Now: at, TimestampAfter: 5 * time.Second, TimestampBefore: time.Hour})
			must(t, err)
			if want := (Checked{50, at.UnixMilli() + 5000, c}); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			if b.MaxTimestamp() != at.UnixMilli()+5000 || !b.CheckCRC() {
				t.Errorf("the largest time is not corrected: %d", b.MaxTimestamp())
			}
			l := New(Options{})
			_, err = l.Append(b, 0, at)
			must(t, err)
			back, err := b.Records()
			must(t, err)
			want := append([]Record{}, recs...)
			for i := range want {
				want[i].Offset = int64(i)
			}
			if d := cmp.Diff(want, back); d != "" {
				t.Error(d)
			}
		})
	}
}

// A small batch may not unpack to a large one.
func TestCheckBoundsMemory(t *testing.T) {
	for _, c := range codecs[1:] {
		t.Run(c.String(), func(t *testing.T) {
			b := batchOf(t, c, nil, Record{Value: make([]byte, 3<<20)})
			_, err := Check(b, CheckOptions{MaxDecompressed: 2 << 20})
			if Code(err) != kafka.MessageTooLarge {
				t.Errorf("%v", err)
			}
			got, err := Check(b, CheckOptions{MaxDecompressed: 4 << 20})
			if err != nil || got.Records != 1 {
				t.Errorf("%+v %v", got, err)
			}
		})
	}
}

// Clients other than Java's send one bare block of snappy.
func TestSnappyBare(t *testing.T) {
	plain := Encode(records(4, "bare")...)
	bare := append(append(Batch{}, plain[:HeaderSize]...), s2.EncodeSnappy(nil, plain[HeaderSize:])...)
	put32(posLength, int32(len(bare)-overhead))(bare)
	bare.setAttributes(int16(Snappy))
	bare.setCRC()
	if got, err := Check(bare, CheckOptions{}); err != nil || got.Records != 4 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestCheckReplicated(t *testing.T) {
	l := logOf(t, 5, 8, EpochEntry{1, 5})
	got, err := l.Read(5, 1<<20, 8, true)
	must(t, err)
	all := bytes.Join(got, nil)
	for _, cut := range []int{len(all), len(all) - 1, len(all) - 70} {
		whole, err := CheckReplicated(all[:cut])
		must(t, err)
		if want := cut / (len(all) / 3) * (len(all) / 3); len(whole) != want {
			t.Errorf("of %d bytes: %d whole, want %d", cut, len(whole), want)
		}
	}
	bad := append([]byte{}, all...)
	bad[len(bad)-1] ^= 1
	twice := append(append([]byte{}, all...), all...)
	for what, b := range map[string][]byte{"checksum": bad, "falling offsets": twice} {
		if _, err := CheckReplicated(b); Code(err) != kafka.CorruptMessage {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, c := range codecs {
		s := NoProducerSpec()
		s.Codec = c
		b, err := s.Encode(records(3, "seed")...)
		must(f, err)
		f.Add([]byte(b), true)
		f.Add([]byte(b[:70]), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if b := Batch(data); seal && len(b) >= HeaderSize {
			put32(posLength, int32(len(b)-overhead))(b)
			b[posMagic] = 2
			b.setCRC()
		}
		o := CheckOptions{MaxDecompressed: 1 << 20}
		got, err := Check(data, o)
		if _, err := CheckReplicated(data); err != nil && Code(err) == kafka.UnknownServerError {
			t.Errorf("an error without a code: %v", err)
		}
		if err != nil {
			if Code(err) == kafka.UnknownServerError {
				t.Errorf("an error without a code: %v", err)
			}
			return
		}
		recs, err := Batch(data).Records()
		if err != nil || len(recs) != got.Records {
			t.Fatalf("%d records are checked, %d are read: %v", got.Records, len(recs), err)
		}
		l := New(Options{})
		if _, err := l.Append(data, 1, at); err != nil {
			t.Fatal(err)
		}
		back, err := l.Read(0, 1, l.LogEndOffset(), true)
		if err != nil || len(back) != 1 || !Batch(back[0]).CheckCRC() {
			t.Fatalf("%d batches are read back: %v", len(back), err)
		}
		again := Encode(recs...)
		same, err := Batch(again).Records()
		if d := cmp.Diff(recs, same); err != nil || d != "" {
			t.Fatalf("%v %s", err, d)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, c := range codecs {
		s := NoProducerSpec()
		s.Codec = c
		b, err := s.Encode(records(3, "seed")...)
		must(f, err)
		f.Add(byte(c), []byte(b[HeaderSize:]))
	}
	f.Fuzz(func(t *testing.T, codec byte, data []byte) {
		const bound = 1 << 20
		out, err := decompress(nil, data, Codec(codec%6), bound)
		if err == nil && codec%6 != 0 && len(out) > bound {
			t.Errorf("%d bytes unpack to %d", len(data), len(out))
		}
		n := 0
		if err := eachRecord(out, 3, func(*raw) error { n++; return nil }); err == nil && n != 3 {
			t.Errorf("%d records", n)
		}
	})
}

func TestErrorsSayWhat(t *testing.T) {
	for err, want := range map[error]kafka.ErrorCode{
		nil: kafka.NoError, &StorageError{"read", "x", fmt.Errorf("no")}: kafka.KafkaStorageError,
		&DamageError{"x", 1, "y"}: kafka.KafkaStorageError, &UnexpectedOffset{1, 2}: kafka.UnknownServerError, refuse(kafka.MessageTooLarge, "x"): kafka.MessageTooLarge,
	} {
		if got := Code(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}
