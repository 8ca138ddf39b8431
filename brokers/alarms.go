package brokers

import (
	"container/heap"
	"time"
)

// alarm is when something wants to be looked at. The zero value is not set.
type alarm struct {
	at  time.Time
	seq uint64 // alarms of one time ring in the order in which they were set
	pos int    // in the heap, from 1; 0: not set
}

func (a *alarm) clock() *alarm { return a }

// alarmed is what has an alarm. ring is called once when it is due; it is not
// set then.
type alarmed interface {
	clock() *alarm
	ring(b *Broker, now time.Time)
}

// alarms are all that wait for a time. There is one Go timer a broker, however
// many of them there are.
type alarms struct {
	heap alarmHeap
	seq  uint64
}

func (a *alarms) set(x alarmed, at time.Time) {
	c := x.clock()
	a.seq++
	c.at, c.seq = at, a.seq
	if c.pos == 0 {
		heap.Push(&a.heap, x)
	} else {
		heap.Fix(&a.heap, c.pos-1)
	}
}

func (a *alarms) stop(x alarmed) {
	if pos := x.clock().pos; pos > 0 {
		heap.Remove(&a.heap, pos-1)
	}
}

func (a *alarms) next() (time.Time, bool) {
	if len(a.heap) == 0 {
		return time.Time{}, false
	}
	return a.heap[0].clock().at, true
}

// due takes the first alarm whose time has come, or gives nil.
func (a *alarms) due(now time.Time) alarmed {
	if len(a.heap) == 0 || a.heap[0].clock().at.After(now) {
		return nil
	}
	return heap.Pop(&a.heap).(alarmed)
}

type alarmHeap []alarmed

func (h alarmHeap) Len() int { return len(h) }
func (h alarmHeap) Less(i, j int) bool {
	x, y := h[i].clock(), h[j].clock()
	if !x.at.Equal(y.at) {
		return x.at.Before(y.at)
	}
	return x.seq < y.seq
}
func (h alarmHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].clock().pos, h[j].clock().pos = i+1, j+1
}
func (h *alarmHeap) Push(x any) {
	*h = append(*h, x.(alarmed))
	x.(alarmed).clock().pos = len(*h)
}
func (h *alarmHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	last.clock().pos = 0
	return last
}

// errand is something to be done at a time.
type errand struct {
	alarm
	do func(b *Broker, now time.Time)
}

func (e *errand) ring(b *Broker, now time.Time) { e.do(b, now) }

// later does something at a time, unless the process ends before.
func (b *Broker) later(at time.Time, do func(b *Broker, now time.Time)) *errand {
	e := &errand{do: do}
	b.alarms.set(e, at)
	return e
}
