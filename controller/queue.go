package controller

import (
	"context"
	"sync"
	"time"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Queue is the controller's event queue: unbounded, first in first out,
// without deduplication (spec/controller.md §2.1). Any goroutine may put.
type Queue struct {
	mu     sync.Mutex
	items  []queued
	head   int
	wake   chan struct{}
	closed bool
	now    func() time.Time
}

type queued struct {
	event events.Event
	at    time.Time
	done  chan struct{} // closed when processing has started; nil when nobody waits
}

// NewQueue gives an empty queue. now is the clock of queue times; nil is time.Now.
func NewQueue(now func() time.Time) *Queue {
	if now == nil {
		now = time.Now
	}
	return &Queue{wake: make(chan struct{}, 1), now: now}
}

// Put appends an event. After Close it is preempted at once.
func (q *Queue) Put(ev events.Event) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		Preempt(ev)
		return
	}
	q.items = append(q.items, queued{event: ev, at: q.now()})
	q.mu.Unlock()
	q.signal()
}

// ClearAndPut preempts everything that waits, then appends ev. The returned
// channel closes when processing of ev has started: all earlier events are
// then finished or preempted.
func (q *Queue) ClearAndPut(ev events.Event) <-chan struct{} {
	started := make(chan struct{})
	q.mu.Lock()
	dropped := q.items[q.head:]
	if q.closed {
		q.mu.Unlock()
		close(started)
		return started
	}
	q.items, q.head = []queued{{event: ev, at: q.now(), done: started}}, 0
	q.mu.Unlock()
	for _, it := range dropped {
		it.start()
		Preempt(it.event)
	}
	q.signal()
	return started
}

// Close preempts everything that waits and everything put from now on.
func (q *Queue) Close() {
	q.mu.Lock()
	dropped := q.items[q.head:]
	q.items, q.head, q.closed = nil, 0, true
	q.mu.Unlock()
	for _, it := range dropped {
		it.start()
		Preempt(it.event)
	}
	q.signal()
}

// Len gives the number of waiting events, and Oldest the age of the first.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items) - q.head
}

// Oldest gives how long the first event has waited; 0 when none waits.
func (q *Queue) Oldest() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.items) {
		return 0
	}
	return q.now().Sub(q.items[q.head].at)
}

// Next waits for an event. Consecutive AlterPartition requests, and consecutive
// notices about moving partitions' states, come together, since handling them
// one by one or at once leads to the same states. ok is
// false when ctx is over or the queue was closed.
func (q *Queue) Next(ctx context.Context) (batch []events.Event, waited time.Duration, ok bool) {
	for {
		q.mu.Lock()
		if q.head < len(q.items) {
			batch, waited = q.take()
			q.mu.Unlock()
			return batch, waited, true
		}
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return nil, 0, false
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return nil, 0, false
		}
	}
}

// TryNext is Next that does not wait.
func (q *Queue) TryNext() (batch []events.Event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.items) {
		return nil, false
	}
	batch, _ = q.take()
	return batch, true
}

// maxTogether bounds how many events are handled at once.
const maxTogether = 200

func (q *Queue) take() ([]events.Event, time.Duration) {
	first := q.items[q.head]
	first.start()
	waited := q.now().Sub(first.at)
	batch := []events.Event{first.event}
	q.drop()
	for goesTogether(first.event) && len(batch) < maxTogether && q.head < len(q.items) {
		next := q.items[q.head]
		if next.event.Name() != first.event.Name() {
			break
		}
		batch = append(batch, next.event)
		next.start()
		q.drop()
	}
	return batch, waited
}

// goesTogether tells which events come in bursts whose order among themselves
// does not matter.
func goesTogether(ev events.Event) bool {
	switch ev.(type) {
	case events.AlterPartition, events.PartitionReassignmentISRChange:
		return true
	}
	return false
}

func (q *Queue) drop() {
	q.items[q.head] = queued{}
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
}

func (q *Queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (it queued) start() {
	if it.done != nil {
		close(it.done)
	}
}

// Preempt answers the request of an event that will not be processed, as
// Kafka's preempt actions do (spec/controller.md §2.2); other events just go.
func Preempt(ev events.Event) {
	switch e := ev.(type) {
	case events.AlterPartition:
		e.Reply(kafka.NotController, nil)
	case events.ControlledShutdown:
		e.Reply(kafka.StaleControllerEpoch, nil)
	case events.AlterReassignments:
		e.Reply(kafka.NotController, nil)
	case events.ListReassignments:
		e.Reply(kafka.NotController, nil)
	case events.ElectLeaders:
		if e.All { // there are no rows to carry the error
			e.Reply(kafka.NotController, nil)
			return
		}
		e.Reply(kafka.NoError, electionRows(e.Partitions, kafka.NotController))
	case events.AllocateProducerIDs:
		e.Reply(kafka.NotController, 0, 0)
	case events.CreateTopics:
		e.Reply(rowsOf(len(e.Topics), func(int) events.NewTopicResult {
			return events.NewTopicResult{RowError: notController, Partitions: -1, ReplicationFactor: -1}
		}))
	case events.CreatePartitions:
		e.Reply(rowsOf(len(e.Topics), func(int) events.MorePartitionsResult { return events.MorePartitionsResult{RowError: notController} }))
	case events.DeleteTopics:
		e.Reply(rowsOf(len(e.Topics), func(i int) events.DeletedTopic {
			return events.DeletedTopic{RowError: notController, Name: e.Topics[i].Name, ID: e.Topics[i].ID}
		}))
	case events.Describe:
		e.Reply(events.Cluster{Controller: kafka.NoController})
	}
}

var notController = events.RowError{Error: kafka.NotController, Message: "this is not the controller"}

func rowsOf[T any](n int, row func(int) T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = row(i)
	}
	return out
}

func electionRows(tps []kafka.TopicPartition, code kafka.ErrorCode) []events.ElectionResult {
	return rowsOf(len(tps), func(i int) events.ElectionResult {
		return events.ElectionResult{Partition: tps[i], RowError: events.RowError{Error: code}}
	})
}
