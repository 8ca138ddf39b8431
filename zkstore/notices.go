package zkstore

import (
	"sync"

	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// notices is the unbounded queue between the connections, whose callbacks must
// not block, and the one goroutine that calls notify.
type notices struct {
	mu    sync.Mutex
	queue []zkpaths.Notice
	wake  chan struct{}
	total int64
}

func newNotices() *notices { return &notices{wake: make(chan struct{}, 1)} }

func (q *notices) put(n zkpaths.Notice) {
	q.mu.Lock()
	q.queue = append(q.queue, n)
	q.total++
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// deliver calls notify in order until over is closed.
func (q *notices) deliver(notify func(zkpaths.Notice), over <-chan struct{}) {
	for {
		q.mu.Lock()
		batch := q.queue
		q.queue = nil
		q.mu.Unlock()
		for _, n := range batch {
			select {
			case <-over:
				return
			default:
			}
			notify(n)
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-q.wake:
		case <-over:
			return
		}
	}
}
