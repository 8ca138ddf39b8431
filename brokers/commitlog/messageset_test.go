package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Message sets that real clients made: kcat 1.7.1 (librdkafka 2.0.2), as it sent
// them in Produce v1 and v2, and the record builder of Kafka's Java client 3.9.1.
// Names are CLIENT-vFORMAT-CODEC.
const messageSets = "testdata/messagesets"

func eachMessageSet(t testing.TB, f func(name string, magic byte, codec Codec, set []byte)) {
	t.Helper()
	n := 0
	for _, client := range []string{"kcat", "java"} {
		for magic := range byte(2) {
			for codec := Uncompressed; codec <= LZ4; codec++ {
				name := fmt.Sprintf("%s-v%d-%s", client, magic, codec)
				set, err := os.ReadFile(filepath.Join(messageSets, name+".set"))
				must(t, err)
				f(name, magic, codec, set)
				n++
			}
		}
	}
	if n != 16 {
		t.Fatalf("%d message sets", n)
	}
}

// wanted is what the clients put in: the Java one also a null and an empty value.
func wanted(name string, magic byte) []Record {
	var want []Record
	for i := range 12 {
		r := Record{Offset: int64(i), Timestamp: 1_700_000_000_000 + int64(i), Value: fmt.Appendf(nil, "a value that repeats itself, a value that repeats itself, number %d", i)}
		if i%3 != 0 {
			r.Key = fmt.Appendf(nil, "key-%d", i)
		}
		if strings.HasPrefix(name, "java") && i == 7 {
			r.Value = nil
		} else if strings.HasPrefix(name, "java") && i == 8 {
			r.Value = []byte{}
		}
		if magic == 0 {
			r.Timestamp = -1
		}
		want = append(want, r)
	}
	return want
}

// What old clients send becomes one batch with all they said, packed as it was,
// that passes every check.
func TestUpconvertClients(t *testing.T) {
	eachMessageSet(t, func(name string, magic byte, codec Codec, set []byte) {
		b, err := Upconvert(set, CheckOptions{MaxMessageBytes: 4096})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		got, err := b.Records()
		must(t, err)
		want := wanted(name, magic)
		if strings.HasPrefix(name, "kcat") && magic == 1 { // it writes the time of the run
			for i := range got {
				if got[i].Timestamp < 1_700_000_000_000 {
					t.Errorf("%s: time %d", name, got[i].Timestamp)
				}
				got[i].Timestamp = want[i].Timestamp
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if c, err := Check(b, CheckOptions{MaxMessageBytes: 4096, Now: at}); err != nil || c.Records != 12 || c.Codec != codec {
			t.Errorf("%s: %+v %v", name, c, err)
		}
	})
}

// oldSet makes a message set by hand.
func oldSet(magic int8, recs ...Record) []byte {
	var set []byte
	for _, r := range recs {
		set = appendMessage(set, magic, r.Offset, 0, r.Timestamp, r.Key, r.Value)
	}
	return set
}

func packedSet(t testing.TB, magic int8, c Codec, inner []byte) []byte {
	t.Helper()
	packed, err := compress(inner, c)
	must(t, err)
	return appendMessage(nil, magic, 0, byte(c), at.UnixMilli(), nil, packed)
}

func TestUpconvertRefuses(t *testing.T) {
	one := oldSet(1, Record{Timestamp: 5, Key: []byte("key"), Value: []byte("value")})
	zero := oldSet(0, Record{Value: []byte("value")})
	// spoilt changes a message and makes its checksum right again.
	spoilt := func(at int, b ...byte) []byte {
		m := bytes.Clone(one)
		copy(m[at:], b)
		binary.BigEndian.PutUint32(m[msgCRC:], crc32.ChecksumIEEE(m[msgBody:]))
		return m
	}
	innerSpoilt := bytes.Clone(one)
	innerSpoilt[len(innerSpoilt)-1] ^= 1
	for _, c := range []struct {
		what string
		set  []byte
		code kafka.ErrorCode
		why  string
	}{
		{"nothing", nil, kafka.InvalidRecord, "no message"},
		{"format v2", Encode(Record{Value: []byte("v")}), kafka.InvalidRecord, "format v2"},
		{"formats mixed", slices.Concat(one, zero), kafka.InvalidRecord, "record 1: it is of format v0"},
		{"short size", spoilt(msgSize, 0, 0, 0, 13), kafka.CorruptMessage, "it says it is 13 bytes"},
		{"negative size", spoilt(msgSize, 0xff, 0xff, 0xff, 0xff), kafka.CorruptMessage, "it says it is -1 bytes"},
		{"no time", spoilt(msgSize, 0, 0, 0, 14)[:26], kafka.CorruptMessage, "checksum"},
		{"negative key", spoilt(26, 0xff, 0xff, 0xff, 0xfe), kafka.CorruptMessage, "its key is cut off"},
		{"long value", spoilt(33, 0, 0, 0, 6), kafka.CorruptMessage, "its value is cut off"},
		{"short value", spoilt(33, 0, 0, 0, 4), kafka.CorruptMessage, "1 bytes are left"},
		{"negative time", spoilt(msgTime, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe), kafka.InvalidTimestamp, "its time is -2"},
		{"append time", spoilt(msgAttributes, logAppendTimeBit), kafka.InvalidTimestamp, "only the log writes"},
		{"zstd", spoilt(msgAttributes, byte(Zstd)), kafka.UnsupportedCompressionType, "zstd"},
		{"a codec nobody knows", spoilt(msgAttributes, 7), kafka.UnsupportedCompressionType, "codec(7)"},
		{"no gzip", spoilt(msgAttributes, byte(Gzip)), kafka.CorruptMessage, "packed with gzip"},
		{"beside a packed one", slices.Concat(packedSet(t, 1, Gzip, one), one), kafka.InvalidRecord, "behind a message packed"},
		{"packed beside another", slices.Concat(one, packedSet(t, 1, Gzip, one)), kafka.InvalidRecord, "record 1: it is packed with gzip"},
		{"packed twice", packedSet(t, 1, Snappy, packedSet(t, 1, Gzip, one)), kafka.InvalidRecord, "record 0: it is packed with gzip"},
		{"another format inside", packedSet(t, 1, LZ4, zero), kafka.InvalidRecord, "it is of format v0"},
		{"nothing inside", packedSet(t, 1, Gzip, nil), kafka.InvalidRecord, "holds none"},
		{"null inside", appendMessage(nil, 1, 0, byte(Snappy), 0, nil, nil), kafka.CorruptMessage, "snappy"},
		{"damage inside", packedSet(t, 1, Gzip, innerSpoilt), kafka.CorruptMessage, "record 0: the checksum"},
		{"too large", oldSet(1, Record{Value: make([]byte, 500)}), kafka.MessageTooLarge, "max.message.bytes is 400"},
		{"too large inside", packedSet(t, 1, Gzip, oldSet(1, Record{Value: make([]byte, 5000)})), kafka.MessageTooLarge, "more than 4096"},
	} {
		b, err := Upconvert(c.set, CheckOptions{MaxMessageBytes: 400, MaxDecompressed: 4096})
		if b != nil || err == nil || Code(err) != c.code || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%s: %v, want %s … %s", c.what, err, c.code, c.why)
		}
	}
}

// Whatever single bit of a message changes behind its offset, it is seen; and no
// part of one is taken.
func TestUpconvertSeesDamage(t *testing.T) {
	for magic := range int8(2) {
		good := oldSet(magic, Record{Timestamp: 5, Key: []byte("key"), Value: []byte("value")})
		for i := range good {
			if _, err := Upconvert(good[:i], CheckOptions{}); err == nil {
				t.Errorf("v%d: the first %d bytes are taken", magic, i)
			}
			for bit := range 8 {
				bad := bytes.Clone(good)
				bad[i] ^= 1 << bit
				if _, err := Upconvert(bad, CheckOptions{}); err == nil && i >= msgSize {
					t.Errorf("v%d: damage at %d is not seen", magic, i)
				}
			}
		}
	}
}

func anyRecords() *rapid.Generator[[]Record] {
	some := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 40))
	return rapid.Custom(func(t *rapid.T) []Record {
		return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Record {
			return Record{Timestamp: rapid.Int64Range(-1, math.MaxInt64).Draw(t, "time"), Key: some.Draw(t, "key"), Value: some.Draw(t, "value")}
		}), 1, 20).Draw(t, "records")
	})
}

// Down and up again, nothing is lost but the times of v0 and headers.
func TestDownconvertAndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recs := anyRecords().Draw(t, "records")
		magic := rapid.Int8Range(0, 1).Draw(t, "magic")
		s := NoProducerSpec()
		s.Codec, s.BaseOffset = Codec(rapid.Int8Range(0, 3).Draw(t, "codec")), rapid.Int64Range(0, 1<<40).Draw(t, "base")
		withHeaders := slices.Clone(recs)
		withHeaders[0].Headers = []Header{{Key: "h", Value: []byte("v")}}
		b, err := s.Encode(withHeaders...)
		must(t, err)
		first := 0
		if s.Codec == Uncompressed { // plain messages begin where they are asked for
			first = rapid.IntRange(0, len(recs)-1).Draw(t, "first")
		}
		set, err := Downconvert(b, magic, s.BaseOffset+int64(first))
		must(t, err)
		up, err := Upconvert(set, CheckOptions{})
		must(t, err)
		got, err := up.Records()
		must(t, err)
		want := slices.Clone(recs[first:])
		for i := range want {
			want[i].Offset = int64(i)
			if magic == 0 {
				want[i].Timestamp = -1
			}
			emptyIsNotNull(&want[i])
			emptyIsNotNull(&got[i])
		}
		if d := cmp.Diff(want, got); d != "" || up.Compression() != s.Codec {
			t.Fatalf("%s, %s", up.Compression(), d)
		}
		last := binary.BigEndian.Uint64(set[msgOffset:])
		if want := uint64(s.BaseOffset) + uint64(len(recs)-1); s.Codec != Uncompressed && last != want {
			t.Fatalf("the packed message has offset %d, want that of its last, %d", last, want)
		} else if s.Codec == Uncompressed && last != uint64(s.BaseOffset)+uint64(first) {
			t.Fatalf("the first message has offset %d", last)
		}
	})
}

// emptyIsNotNull makes cmp see the difference, and no other.
func emptyIsNotNull(r *Record) {
	for _, v := range []*[]byte{&r.Key, &r.Value} {
		if *v != nil && len(*v) == 0 {
			*v = []byte{}
		}
	}
}

func TestDownconvert(t *testing.T) {
	three := records(3, "v")
	first := batchOf(t, Uncompressed, nil, three...)
	second := batchOf(t, Gzip, nil, three...)
	second.setBaseOffset(3)
	third := batchOf(t, Zstd, nil, three...)
	third.setBaseOffset(6)
	if _, err := Downconvert(slices.Concat(first, second, third), 1, 0); Code(err) != kafka.UnsupportedCompressionType {
		t.Errorf("zstd: %v", err)
	}
	// Offsets inside a v1 message count from its first, those in v0 are absolute.
	for magic, want := range map[int8][]uint64{0: {3, 4, 5}, 1: {0, 1, 2}} {
		set, err := Downconvert(second, magic, 4)
		must(t, err)
		m, rest, err := nextMessage(set, 0)
		must(t, err)
		inner, err := m.unpack(0)
		must(t, err)
		var got []uint64
		for len(inner) > 0 {
			got = append(got, binary.BigEndian.Uint64(inner))
			_, inner, err = nextMessage(inner, 0)
			must(t, err)
		}
		if d := cmp.Diff(want, got); d != "" || len(rest) > 0 {
			t.Errorf("v%d: %s, %d bytes behind", magic, d, len(rest))
		}
	}
	// Batches of small records are several times as large as plain messages: the
	// set ends behind a batch.
	small := slices.Repeat([]Record{{Timestamp: 5}}, 100)
	a, b := batchOf(t, Uncompressed, nil, small...), batchOf(t, Uncompressed, nil, small...)
	b.setBaseOffset(100)
	set, err := Downconvert(slices.Concat(a, b), 1, 0)
	must(t, err)
	if want := 100 * 34; len(set) != want {
		t.Errorf("%d bytes, want the %d of the first batch", len(set), want)
	}
	// The time that the log wrote is that of all its messages, and said to be so.
	logged := batchOf(t, Gzip, attribute(logAppendTimeBit), three...)
	logged.setMaxTimestamp(77)
	set, err = Downconvert(logged, 1, 0)
	must(t, err)
	if set[msgAttributes] != byte(Gzip)|logAppendTimeBit || binary.BigEndian.Uint64(set[msgTime:]) != 77 {
		t.Errorf("attributes %#x, time %d", set[msgAttributes], binary.BigEndian.Uint64(set[msgTime:]))
	}
}

// The checksums in LZ4 frames are those of the real clients of either format.
func TestLZ4Header(t *testing.T) {
	eachMessageSet(t, func(name string, magic byte, codec Codec, set []byte) {
		if codec != LZ4 {
			return
		}
		r, err := message(set).record(0)
		must(t, err)
		mended := mendLZ4(r.Value)
		if got := bytes.Equal(mended, r.Value); got != (magic == 1) {
			t.Errorf("%s: its frame is right: %t", name, got)
		}
		if magic == 0 {
			spoilLZ4(mended)
			if !bytes.Equal(mended, r.Value) {
				t.Errorf("%s: our wrong checksum is not its wrong checksum", name)
			}
		}
	})
	// Test values of XXH32 with seed 0.
	for in, want := range map[string]uint32{"": 0x02CC5D05, "a": 0x550D7456, "abc": 0x32D153FF, "Nobody inspects the spammish repetition": 0xE2293B2F} {
		if got := xxh32([]byte(in)); got != want {
			t.Errorf("xxh32(%q) = %#x, want %#x", in, got, want)
		}
	}
}

func FuzzUpconvert(f *testing.F) {
	eachMessageSet(f, func(_ string, _ byte, _ Codec, set []byte) { f.Add(set) })
	f.Fuzz(func(t *testing.T, set []byte) {
		b, err := Upconvert(set, CheckOptions{MaxDecompressed: 1 << 16})
		if err != nil {
			if Code(err) == kafka.UnknownServerError {
				t.Fatal(err)
			}
			return
		}
		c, err := Check(b, CheckOptions{Now: at})
		if err != nil {
			t.Fatalf("what is taken makes a bad batch: %v", err)
		}
		for magic := range int8(2) {
			down, err := Downconvert(b, magic, 0)
			must(t, err)
			up, err := Upconvert(down, CheckOptions{})
			must(t, err)
			if int(up.Count()) != c.Records {
				t.Fatalf("%d records, %d after v%d", c.Records, up.Count(), magic)
			}
		}
	})
}

// A log of a release before 0.11 is refused and stays as it is: to the recovery
// of a log it looks much like a torn batch.
func TestOpenRefusesOldFormats(t *testing.T) {
	for magic := int8(0); magic <= 1; magic++ {
		dir := t.TempDir()
		path := filepath.Join(dir, segmentName(0))
		set := appendMessage(nil, magic, 0, 0, 1000, []byte("k"), make([]byte, 100))
		for _, tc := range []struct {
			name string
			data []byte
			want int // bytes that stay; -1: all, and the log is refused
		}{{"whole", set, -1}, {"torn", append(bytes.Clone(set[:len(set)-1]), '!'), 0}, {"zeros", make([]byte, 4096), 0}} {
			if err := os.WriteFile(path, tc.data, 0o644); err != nil {
				t.Fatal(err)
			}
			l, err := Open(dir, Options{})
			left, readErr := os.ReadFile(path)
			if readErr != nil {
				t.Fatal(readErr)
			}
			var refusal *StorageError
			switch {
			case tc.want < 0 && (!errors.As(err, &refusal) || !strings.Contains(err.Error(), path) || !bytes.Equal(left, tc.data)):
				t.Errorf("v%d, %s: %v, %d of %d bytes are left", magic, tc.name, err, len(left), len(tc.data))
			case tc.want >= 0 && (err != nil || len(left) != tc.want):
				t.Errorf("v%d, %s: %v, %d bytes are left, want %d", magic, tc.name, err, len(left), tc.want)
			}
			if err == nil {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}
