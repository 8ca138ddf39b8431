package controller

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/statemachine"
)

// counters are kept while events run. What other goroutines read is atomic or
// under the lock.
type counters struct {
	kind     atomic.Int64 // ControllerState of the event being processed
	unclean  uint64       // unclean elections
	failures uint64       // transitions that failed

	observe func(name string, waited, took time.Duration) // nil: nobody
	waiting time.Duration                                 // of the event being processed, before it was taken

	mu      sync.Mutex
	byEvent map[string]EventStats
	queued  time.Duration
	taken   uint64
}

// EventStats counts the events of one name.
type EventStats struct {
	Kind  events.Kind
	Count uint64
	Total time.Duration // time spent in handlers
	Max   time.Duration
}

// Stats is a snapshot of the counters, safe to take from any goroutine.
type Stats struct {
	State      events.Kind // what is being processed now
	Events     map[string]EventStats
	QueueTime  time.Duration // all waiting so far, of QueueCount events
	QueueCount uint64
}

// SetObserver makes every event that has ended known to f: Kafka's name of it,
// how long it waited in the queue, how long it took. f is called on the loop;
// set it before Run.
func (c *Controller) SetObserver(f func(name string, waited, took time.Duration)) {
	c.stats.observe = f
}

func (s *counters) waited(d time.Duration) {
	s.waiting = d
	s.mu.Lock()
	s.queued += d
	s.taken++
	s.mu.Unlock()
}

func (s *counters) begin(k events.Kind) { s.kind.Store(int64(k)) }

func (s *counters) end(ev events.Event, d time.Duration) {
	s.kind.Store(int64(events.Idle))
	if s.observe != nil {
		s.observe(ev.Name(), s.waiting, d)
	}
	s.waiting = 0
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byEvent == nil {
		s.byEvent = map[string]EventStats{}
	}
	e := s.byEvent[ev.Name()]
	e.Kind = ev.Kind()
	e.Count++
	e.Total += d
	e.Max = max(e.Max, d)
	s.byEvent[ev.Name()] = e
}

// Stats gives the counters of now.
func (c *Controller) Stats() Stats {
	c.stats.mu.Lock()
	defer c.stats.mu.Unlock()
	out := Stats{State: events.Kind(c.stats.kind.Load()), Events: map[string]EventStats{}, QueueTime: c.stats.queued, QueueCount: c.stats.taken}
	for name, e := range c.stats.byEvent {
		out.Events[name] = e
	}
	return out
}

// Gauges are the figures of spec/controller.md §8.2. Taking them walks all
// partitions, so it is done when somebody asks, not after every event.
type Gauges struct {
	statemachine.Gauges
	Active           bool
	Ready            bool // failover has finished
	ControllerEpoch  int32
	Controller       int32 // who /controller names; -1 nobody
	UncleanElections uint64
	Failures         uint64            // failed transitions so far
	Damaged          map[string]string // unreadable znodes and why
}

// Gauges must run on the loop: call it from an events.Inspect.
func (c *Controller) Gauges() Gauges {
	g := Gauges{Active: c.active, Ready: c.ready, ControllerEpoch: c.state.Epoch, Controller: int32(c.known),
		UncleanElections: c.stats.unclean, Failures: c.stats.failures, Damaged: map[string]string{}}
	if c.active {
		g.Gauges = c.state.Gauges()
	}
	for path, reason := range c.damage {
		g.Damaged[path] = reason
	}
	return g
}
