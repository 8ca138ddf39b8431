package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// item is one queued request.
type item struct {
	req  control.Request
	at   time.Time // when it was queued
	body *body     // of an UpdateMetadata
}

// channel is one broker's queue; run is its sender.
type channel struct {
	d      *Dispatcher
	id     kafka.BrokerID
	epoch  int64
	log    logrus.FieldLogger
	cancel context.CancelFunc
	done   chan struct{} // closed when run has returned
	wake   chan struct{} // room for one

	mu         sync.Mutex
	broker     kafka.Broker
	queue      []item
	aside      int // requests taken out of the queue to be coalesced
	coalesceAt int // queue length that makes coalescing worth a try
	inFlight   bool
	connected  bool
	stopped    bool
	counters   Counters
}

func (c *channel) put(it item) {
	c.mu.Lock()
	if !c.stopped {
		c.queue = append(c.queue, it)
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *channel) move(b kafka.Broker) {
	c.mu.Lock()
	c.broker = b
	c.mu.Unlock()
}

func (c *channel) target() kafka.Broker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broker
}

// stop ends the sender without waiting for it. No event is put after it.
func (c *channel) stop() (waiting int, counters Counters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting = c.aside + len(c.queue)
	c.stopped, c.queue = true, nil
	c.cancel()
	return waiting, c.counters
}

func (c *channel) snapshot() BrokerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return BrokerStats{QueueSize: c.aside + len(c.queue), InFlight: c.inFlight, Connected: c.connected, Counters: c.counters}
}

// next waits for a request and takes it from the queue.
func (c *channel) next(ctx context.Context) (item, bool) {
	for {
		if it, ok := c.take(); ok {
			return it, true
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return item{}, false
		}
	}
}

func (c *channel) take() (item, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight = false
	if len(c.queue) == 0 {
		c.queue, c.coalesceAt = nil, coalesceAbove
		return item{}, false
	}
	if len(c.queue) > c.coalesceAt {
		c.shorten()
		if c.stopped {
			return item{}, false
		}
	}
	it := c.queue[0]
	c.queue[0] = item{}
	c.queue = c.queue[1:]
	c.inFlight = true
	c.counters.Requests++
	c.counters.QueueTime += time.Since(it.at)
	return it, true
}

// shorten coalesces the queue; c.mu is held, but not meanwhile, as the loop
// must never wait for it.
func (c *channel) shorten() {
	long := c.queue
	c.queue, c.aside = nil, len(long)
	c.mu.Unlock()
	short := coalesce(long, &c.d.bodies)
	c.mu.Lock()
	c.aside = 0
	if c.stopped {
		return
	}
	c.counters.Merged += uint64(len(long) - len(short))
	c.coalesceAt = max(coalesceAbove, 2*len(short))
	c.queue = append(short, c.queue...)
}

// count changes the counters.
func (c *channel) count(f func(*Counters)) {
	c.mu.Lock()
	f(&c.counters)
	c.mu.Unlock()
}

func (c *channel) setConnected(yes bool) {
	c.mu.Lock()
	c.connected = yes
	c.mu.Unlock()
}

// event puts an answer's event, unless the channel was stopped meanwhile.
func (c *channel) event(ev events.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.d.o.Put(ev)
	}
}

// answered turns an answer into its event (spec/controller.md §6.6). Kafka
// drops a StopReplica answer that has only a top-level error, and the replica
// then stays "deletion started" for long; the event is put here.
func (c *channel) answered(resp *control.Response, failuresOnly bool, b *body) {
	if resp.Error == kafka.StaleBrokerEpoch && resp.Request.Epoch() < c.epoch {
		return // an entry for an older incarnation
	}
	switch r := resp.Request.(type) {
	case *control.LeaderAndISRRequest:
		ev := events.LeaderAndISRResponse{Broker: c.id, Error: resp.Error, Errors: resp.Errors}
		if failuresOnly {
			ev.Request = r
		}
		c.event(ev)
	case *control.UpdateMetadataRequest:
		ev := events.UpdateMetadataResponse{Broker: c.id, Error: resp.Error}
		if b.deletes() {
			ev.Request = r
		}
		c.event(ev)
	case *control.StopReplicaRequest:
		for _, p := range r.Partitions {
			if p.Delete {
				c.event(events.StopReplicaResponse{Broker: c.id, Error: resp.Error, Errors: resp.Errors, Request: r})
				return
			}
		}
	}
}
