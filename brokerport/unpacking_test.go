package brokerport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// However many bring records that unpack to the most that is taken, only as many
// are unpacked at once as there is room for; small ones are let through with less.
func TestUnpackingIsBounded(t *testing.T) {
	bomb, err := commitlog.BatchSpec{Codec: commitlog.Zstd, ProducerID: commitlog.NoProducer, ProducerEpoch: -1, BaseSequence: -1}.
		Encode(commitlog.Record{Value: make([]byte, 20<<20)})
	if err != nil {
		t.Fatal(err)
	}
	if len(bomb) > 64<<10 {
		t.Fatalf("a batch of %d bytes is no bomb", len(bomb))
	}
	u := NewUnpacking()
	var now, peak, whole atomic.Int64
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			err := u.check(bomb, 0, func(most int) error {
				n := now.Add(int64(most))
				defer now.Add(-int64(most))
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
				}
				_, err := commitlog.Check(bomb, commitlog.CheckOptions{MaxDecompressed: most})
				return err
			})
			if err == nil {
				whole.Add(1)
			}
		})
	}
	wg.Wait()
	if whole.Load() != 5 {
		t.Errorf("%d of 5 batches within the bound were taken", whole.Load())
	}
	if peak.Load() > unpackingRoom/unpackedCosts {
		t.Errorf("%d MiB were unpacked at once, there is room for %d", peak.Load()>>20, unpackingRoom/unpackedCosts>>20)
	}
}

// What unpacks to more than the bound is refused, at the first try where that had the whole bound.
func TestUnpackingTooLarge(t *testing.T) {
	big, err := commitlog.BatchSpec{Codec: commitlog.Gzip, ProducerID: commitlog.NoProducer, ProducerEpoch: -1, BaseSequence: -1}.
		Encode(commitlog.Record{Value: make([]byte, 12<<20)})
	if err != nil {
		t.Fatal(err)
	}
	for most, wantTries := range map[int]int{8 << 20: 1, 10 << 20: 2, 16 << 20: 2} {
		tries := 0
		err := NewUnpacking().check(big, most, func(most int) error {
			tries++
			_, err := commitlog.Check(big, commitlog.CheckOptions{MaxDecompressed: most})
			return err
		})
		if refused := most < 12<<20; refused != errors.Is(err, commitlog.ErrUnpacksTooLarge) || refused != (commitlog.Code(err) == kafka.MessageTooLarge) || tries != wantTries {
			t.Errorf("bound %d MiB: %d tries, want %d: %v", most>>20, tries, wantTries, err)
		}
	}
}

// A zstd stream claims a window that may be larger than all it holds: such
// batches are taken, at the first try with the window of zstd's usual levels.
func TestUnpackingOfZstdStreams(t *testing.T) {
	plain, err := commitlog.NoProducerSpec().Encode(commitlog.Record{Value: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	for window, wantTries := range map[int]int{1 << 10: 1, 2 << 20: 1, 8 << 20: 1, 32 << 20: 2} {
		var packed bytes.Buffer
		w, err := zstd.NewWriter(&packed, zstd.WithWindowSize(window))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range [][]byte{plain[commitlog.HeaderSize:], nil} { // a flush between: the size is not known at the frame's begin
			if _, err := w.Write(part); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		b := append(bytes.Clone(plain[:commitlog.HeaderSize]), packed.Bytes()...)
		binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
		b[22] = byte(commitlog.Zstd)
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
		tries := 0
		err = NewUnpacking().check(b, 0, func(most int) error {
			tries++
			_, err := commitlog.Check(b, commitlog.CheckOptions{MaxDecompressed: most})
			return err
		})
		if err != nil || tries != wantTries {
			t.Errorf("window %d: %d tries, want %d: %v", window, tries, wantTries, err)
		}
	}
}
