package commitlog

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A batch packed anew has the same records and the same header, but for codec,
// length and checksum; what it was packed by before does not matter.
func TestRepack(t *testing.T) {
	records := []Record{{Timestamp: 1000, Key: []byte("k"), Value: []byte(strings.Repeat("value ", 500)), Headers: []Header{{Key: "h", Value: []byte("v")}}},
		{Timestamp: 1007, Value: []byte{}}, {Timestamp: 990, Key: []byte("gone")}}
	codecs := []Codec{Uncompressed, Gzip, Snappy, LZ4, Zstd}
	for _, from := range codecs {
		spec := NoProducerSpec()
		spec.Codec, spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence = from, 77, 3, 12
		b, err := spec.Encode(records...)
		if err != nil {
			t.Fatal(err)
		}
		want, err := b.Records()
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range codecs {
			got, err := b.Repack(to, 0)
			if err != nil {
				t.Fatalf("%s to %s: %v", from, to, err)
			}
			found, err := Check(got, CheckOptions{Now: time.UnixMilli(2000)})
			if err != nil || found.Codec != to || found.Records != 3 || found.MaxTimestamp != 1007 {
				t.Errorf("%s to %s: %+v, %v", from, to, found, err)
			}
			have, err := got.Records()
			if d := cmp.Diff(want, have); d != "" || err != nil {
				t.Errorf("%s to %s: %v %s", from, to, err, d)
			}
			if got.ProducerID() != 77 || got.ProducerEpoch() != 3 || got.BaseSequence() != 12 || got.BaseTimestamp() != b.BaseTimestamp() || got.LastOffsetDelta() != 2 || got.Size() != len(got) {
				t.Errorf("%s to %s: the header differs", from, to)
			}
			if from == to || to == Uncompressed {
				continue
			}
			if plain, err := b.Repack(Uncompressed, 0); err != nil || len(got) >= len(plain) {
				t.Errorf("%s to %s: %d bytes of %d", from, to, len(got), len(plain))
			}
		}
		if _, err := b.Repack(Gzip, 100); from != Uncompressed && err == nil {
			t.Errorf("%s: unpacked to more than the bound", from)
		}
	}
	for name, want := range map[string]Codec{"producer": AsProduced, "uncompressed": Uncompressed, "gzip": Gzip, "zstd": Zstd} {
		if c, err := ParseCodec(name); c != want || err != nil {
			t.Errorf("%s: %s, %v", name, c, err)
		}
	}
	if _, err := ParseCodec("none"); err == nil {
		t.Error("none is a value of compression.type")
	}
}
