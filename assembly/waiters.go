package assembly

import (
	"context"
	"slices"
	"sync"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
)

// waiters are told the controller's figures after every event, while there are any.
type waiters struct {
	mu  sync.Mutex
	all []*waiter
}

type waiter struct {
	enough func(controller.Gauges) bool
	done   chan struct{}
}

// tell is called on the controller's loop.
func (w *waiters) tell(c *controller.Controller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) == 0 {
		return
	}
	g := c.Gauges()
	w.all = slices.DeleteFunc(w.all, func(w *waiter) bool {
		if !w.enough(g) {
			return false
		}
		close(w.done)
		return true
	})
}

// Await waits until enough says so of the controller's figures. It is asked now
// and after every event, on the controller's loop, so it must be quick. The
// controller has to run.
func (c *Controller) Await(ctx context.Context, enough func(controller.Gauges) bool) error {
	w := &waiter{enough: enough, done: make(chan struct{})}
	c.waiters.mu.Lock()
	c.waiters.all = append(c.waiters.all, w)
	c.waiters.mu.Unlock()
	// An event of its own: nothing else may ever happen.
	c.queue.Put(events.Inspect{Look: func() {}})
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		c.waiters.mu.Lock()
		defer c.waiters.mu.Unlock()
		c.waiters.all = slices.DeleteFunc(c.waiters.all, func(other *waiter) bool { return other == w })
		return context.Cause(ctx)
	}
}
