package assembly

import (
	"sync"
	"time"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
)

// timers are the controller's clock: an event is queued later.
type timers struct {
	queue  *controller.Queue
	mu     sync.Mutex
	armed  map[*armedTimer]struct{}
	closed bool
}

type armedTimer struct{ *time.Timer }

// After queues ev in d; stop takes it back if it is not yet queued.
func (t *timers) After(d time.Duration, ev events.Event) (stop func()) {
	a := &armedTimer{}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return func() {}
	}
	if t.armed == nil {
		t.armed = map[*armedTimer]struct{}{}
	}
	a.Timer = time.AfterFunc(d, func() {
		t.forget(a)
		t.queue.Put(ev)
	})
	t.armed[a] = struct{}{}
	return func() {
		a.Stop()
		t.forget(a)
	}
}

func (t *timers) forget(a *armedTimer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.armed, a)
}

func (t *timers) stopAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for a := range t.armed {
		a.Stop()
	}
	clear(t.armed)
}
