package wire

import (
	"context"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// DefaultLarge is the room for requests without records.
const DefaultLarge = 32 << 20

// Room bounds the bytes of requests from the time they are read until
// they are answered, over all connections of the servers that share it. A
// request that does not fit waits, in the order of arrival, and its connection is
// not read meanwhile; one larger than the bound comes alone.
type Room struct {
	most int64
	left *semaphore.Weighted
	used atomic.Int64
}

// NewRoom makes a Room of so many bytes.
func NewRoom(bytes int64) *Room { return &Room{most: bytes, left: semaphore.NewWeighted(bytes)} }

// Used is how many bytes are taken now.
func (r *Room) Used() int64 { return r.used.Load() }

// take gets room for a request, and tells whether it had to wait.
func (r *Room) take(ctx context.Context, size int64) (waited bool, err error) {
	size = min(size, r.most)
	if waited = !r.left.TryAcquire(size); waited {
		if err := r.left.Acquire(ctx, size); err != nil {
			return true, err
		}
	}
	r.used.Add(size)
	return waited, nil
}

func (r *Room) giveBack(size int64) {
	size = min(size, r.most)
	r.used.Add(-size)
	r.left.Release(size)
}
