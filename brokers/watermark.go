package brokers

import (
	"slices"
	"time"
)

// minISR is the number of in-sync replicas that acks=all asks for (spec/broker.md §7.6).
func (b *Broker) minISR(p *partition) int {
	n := p.topic.config.MinISR
	if b.does.effectiveMinISR {
		n = min(n, max(1, len(p.assignment.Replicas)))
	}
	return n
}

// raise moves the high watermark of a partition led here as far as its followers
// allow, and tells whether it moved (spec/broker.md §7.2). It is called after
// each append, each fetch that changed a follower's end, each change of the ISR,
// and never by time alone.
func (b *Broker) raise(now time.Time, p *partition) bool {
	if b.does.effectiveMinISR && len(p.isr.isr) < b.minISR(p) {
		return false
	}
	end := p.log.LogEndOffset()
	to := end
	maximal := p.isr.maximal()
	for i := range p.remotes {
		r := &p.remotes[i]
		if r.end < to && (slices.Contains(maximal, r.id) || b.holds(now, r, end)) {
			to = r.end
		}
	}
	if !p.log.RaiseHighWatermark(to) {
		return false
	}
	b.moved(p)
	b.rouse(p, wakeFetches|wakeProduces|wakeDeletes)
	b.owesWatermark(now, p)
	return true
}

// holds tells whether a follower outside the maximal ISR keeps the high
// watermark back.
func (b *Broker) holds(now time.Time, r *remote, end int64) bool {
	if !b.does.waitsForOutsiders || b.does.outsidersMustLive && !b.eligible(r.id) {
		return false
	}
	r.renew(b)
	return r.caughtUpAt(b.wall(now).UnixMilli(), end, b.opts.ReplicaLagTimeMax)
}

// What is to be looked at again once a step's events have happened.
const (
	wakeFetches uint8 = 1 << iota
	wakeProduces
	wakeDeletes
	woken // it is in Broker.woken
)

// rouse lets what waits for a partition be looked at before the step ends.
func (b *Broker) rouse(p *partition, what uint8) {
	if p.wake&woken == 0 {
		p.wake |= woken
		b.woken = append(b.woken, p)
	}
	p.wake |= what
}

// wakeAll looks at what waits for the partitions that changed. Answers may
// change others, so it goes on until nothing does.
func (b *Broker) wakeAll(now time.Time) {
	for i := 0; i < len(b.woken); i++ {
		p := b.woken[i]
		what := p.wake
		p.wake = 0
		if what&wakeFetches != 0 {
			b.completeFetches(now, p)
		}
		if what&wakeProduces != 0 {
			b.completeProduces(p)
		}
		if what&wakeDeletes != 0 {
			b.completeDeletes(p)
		}
	}
	clear(b.woken)
	b.woken = b.woken[:0]
}
