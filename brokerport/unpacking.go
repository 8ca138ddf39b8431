package brokerport

import (
	"context"
	"errors"

	"golang.org/x/sync/semaphore"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
)

// Unpacking bounds the memory of packed records while they are looked at, over
// all ports that share it: a kilobyte may unpack to 64 MiB, and as many requests
// come at once as there are connections. Who finds no room waits, for others that
// wait for nothing but the processor.
type Unpacking struct{ room *semaphore.Weighted }

const (
	unpackingRoom = 256 << 20
	unpackedLeast = 8 << 20 // what a batch may unpack to at first: zstd's window at its usual levels, or
	unpackedRatio = 16      // so many bytes for each of its own
	unpackedCosts = 2       // bytes held for each unpacked one, while its buffer grows
)

// NewUnpacking makes room of 256 MiB.
func NewUnpacking() *Unpacking { return &Unpacking{semaphore.NewWeighted(unpackingRoom)} }

// check lets f look at records that unpack to at most bytes; 0 is the default. It
// first gives what is usual, and the rest to the few that need it: f runs again then.
func (u *Unpacking) check(records []byte, most int, f func(most int) error) error {
	if most <= 0 {
		most = commitlog.DefaultMaxDecompressed
	}
	if !commitlog.Packed(records) {
		return f(most)
	}
	usual := min(most, max(unpackedLeast, unpackedRatio*len(records)))
	err := u.hold(usual, func() error { return f(usual) })
	if usual < most && errors.Is(err, commitlog.ErrUnpacksTooLarge) {
		err = u.hold(most, func() error { return f(most) })
	}
	return err
}

// hold runs f with room for so many unpacked bytes.
func (u *Unpacking) hold(bytes int, f func() error) error {
	room := min(unpackedCosts*int64(bytes), unpackingRoom)
	if err := u.room.Acquire(context.Background(), room); err != nil {
		return err
	}
	defer u.room.Release(room)
	return f()
}
