package brokerport

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// However many bring records that unpack to the most that is taken, only as many
// are unpacked at once as there is room for; small ones are let through with less.
func TestUnpackingIsBounded(t *testing.T) {
	bomb, err := commitlog.BatchSpec{Codec: commitlog.Zstd, ProducerID: commitlog.NoProducer, ProducerEpoch: -1, BaseSequence: -1}.
		Encode(commitlog.Record{Value: make([]byte, 60<<20)})
	if err != nil {
		t.Fatal(err)
	}
	if len(bomb) > 64<<10 {
		t.Fatalf("a batch of %d bytes is no bomb", len(bomb))
	}
	u := NewUnpacking()
	var now, peak, whole atomic.Int64
	var wg sync.WaitGroup
	for range 12 {
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
	if whole.Load() != 12 {
		t.Errorf("%d of 12 batches within the bound were taken", whole.Load())
	}
	if peak.Load() > unpackingRoom/unpackedCosts {
		t.Errorf("%d MiB were unpacked at once, there is room for %d", peak.Load()>>20, unpackingRoom/unpackedCosts>>20)
	}
}

// What unpacks to more than the bound is refused, at the first try where that had the whole bound.
func TestUnpackingTooLarge(t *testing.T) {
	big, err := commitlog.BatchSpec{Codec: commitlog.Gzip, ProducerID: commitlog.NoProducer, ProducerEpoch: -1, BaseSequence: -1}.
		Encode(commitlog.Record{Value: make([]byte, 3<<20)})
	if err != nil {
		t.Fatal(err)
	}
	for most, wantTries := range map[int]int{1 << 20: 1, 2 << 20: 2, 4 << 20: 2} {
		tries := 0
		err := NewUnpacking().check(big, most, func(most int) error {
			tries++
			_, err := commitlog.Check(big, commitlog.CheckOptions{MaxDecompressed: most})
			return err
		})
		if refused := most < 3<<20; refused != errors.Is(err, commitlog.ErrUnpacksTooLarge) || refused != (commitlog.Code(err) == kafka.MessageTooLarge) || tries != wantTries {
			t.Errorf("bound %d MiB: %d tries, want %d: %v", most>>20, tries, wantTries, err)
		}
	}
}
