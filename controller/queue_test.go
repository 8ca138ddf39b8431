package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func named(batch []events.Event) string {
	var out []string
	for _, ev := range batch {
		out = append(out, ev.Name())
	}
	return fmt.Sprint(out)
}

// asked is a ListReassignments that tells who answered it.
func asked(answers *[]string, name string) events.Event {
	return events.ListReassignments{All: true, Reply: func(code kafka.ErrorCode, _ []events.OngoingReassignment) {
		*answers = append(*answers, name+" "+code.String())
	}}
}

// First in, first out, nothing left out as a repetition (spec/controller.md §2.1).
func TestQueueOrder(t *testing.T) {
	q := controller.NewQueue(nil)
	for _, ev := range []events.Event{events.TopicChange{}, events.BrokerChange{}, events.TopicChange{}, events.TopicChange{}} {
		q.Put(ev)
	}
	for _, want := range []string{"[TopicChange]", "[BrokerChange]", "[TopicChange]", "[TopicChange]"} {
		batch, ok := q.TryNext()
		if !ok || named(batch) != want {
			t.Fatalf("got %s, want %s", named(batch), want)
		}
	}
	if _, ok := q.TryNext(); ok || q.Len() != 0 || q.Oldest() != 0 {
		t.Error("something is left")
	}
}

// AlterPartition requests that follow each other come together; nothing
// overtakes them, and the bunch has an end.
func TestQueueBunches(t *testing.T) {
	q := controller.NewQueue(nil)
	for range 3 {
		q.Put(events.AlterPartition{})
	}
	q.Put(events.BrokerChange{})
	for range 450 {
		q.Put(events.AlterPartition{})
	}
	var sizes []int
	for {
		batch, ok := q.TryNext()
		if !ok {
			break
		}
		sizes = append(sizes, len(batch))
	}
	if len(sizes) < 4 || sizes[0] != 3 || sizes[1] != 1 || slices.Max(sizes) > 200 {
		t.Errorf("bunches of %v", sizes)
	}
}

// ClearAndPut answers what waits, once, and tells when its event has begun
// (spec/controller.md §2.1, §2.6; C-018).
func TestQueueClearAndPut(t *testing.T) {
	var answers []string
	q := controller.NewQueue(nil)
	q.Put(asked(&answers, "first"))
	q.Put(asked(&answers, "second"))
	if batch, _ := q.TryNext(); named(batch) != "[ListPartitionReassignments]" {
		t.Fatalf("got %s", named(batch))
	}
	started := q.ClearAndPut(events.Expire{})
	if d := fmt.Sprint(answers); d != "[second NOT_CONTROLLER]" {
		t.Errorf("answered %s", d)
	}
	select {
	case <-started:
		t.Fatal("it has not begun")
	default:
	}
	if batch, _ := q.TryNext(); named(batch) != "[Expire]" {
		t.Errorf("got %s", named(batch))
	}
	<-started
	q.Put(asked(&answers, "third"))
	again := q.ClearAndPut(events.Shutdown{})
	q.Close()
	<-again // whoever waits for an event that never begins is let go
	q.Put(asked(&answers, "fourth"))
	<-q.ClearAndPut(events.Expire{})
	if d := fmt.Sprint(answers); d != "[second NOT_CONTROLLER third NOT_CONTROLLER fourth NOT_CONTROLLER]" {
		t.Errorf("answered %s", d)
	}
	if _, _, ok := q.Next(context.Background()); ok {
		t.Error("a closed queue gives events")
	}
}

// Next waits for an event, the end of its context, or Close.
func TestQueueWaits(t *testing.T) {
	q := controller.NewQueue(nil)
	got := make(chan string)
	go func() {
		for {
			batch, _, ok := q.Next(context.Background())
			if !ok {
				close(got)
				return
			}
			got <- named(batch)
		}
	}()
	for range 100 {
		q.Put(events.TopicChange{})
		if s := <-got; s != "[TopicChange]" {
			t.Fatalf("got %s", s)
		}
	}
	q.Close()
	if _, open := <-got; open {
		t.Error("an event after the last")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, ok := controller.NewQueue(nil).Next(ctx); ok {
		t.Error("an event out of nothing")
	}
}

// Queue times are those of the given clock.
func TestQueueTimes(t *testing.T) {
	now := time.Unix(100, 0)
	q := controller.NewQueue(func() time.Time { return now })
	q.Put(events.TopicChange{})
	now = now.Add(3 * time.Second)
	if q.Oldest() != 3*time.Second {
		t.Errorf("oldest %s", q.Oldest())
	}
	if _, waited, _ := q.Next(context.Background()); waited != 3*time.Second {
		t.Errorf("waited %s", waited)
	}
}

// Each request is answered exactly once, whatever happens to the queue.
func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := controller.NewQueue(nil)
		count := map[int]int{}
		n := 0
		closed := false
		handle := func(batch []events.Event) {
			for _, ev := range batch {
				controller.Preempt(ev) // stands for a handler's answer
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(*rapid.T) {
				id := n
				n++
				answered := func() { count[id]++ }
				switch id % 4 {
				case 0:
					q.Put(events.ListReassignments{Reply: func(kafka.ErrorCode, []events.OngoingReassignment) { answered() }})
				case 1:
					q.Put(events.ControlledShutdown{Reply: func(kafka.ErrorCode, []kafka.TopicPartition) { answered() }})
				case 2:
					q.Put(events.AlterPartition{Reply: func(kafka.ErrorCode, []events.AlterPartitionResult) { answered() }})
				case 3:
					q.Put(events.ElectLeaders{All: id%8 == 3, Reply: func(kafka.ErrorCode, []events.ElectionResult) { answered() }})
				}
			},
			"handle": func(*rapid.T) {
				if batch, ok := q.TryNext(); ok {
					handle(batch)
				}
			},
			"expire": func(*rapid.T) { q.ClearAndPut(events.Expire{}) },
			"close": func(t *rapid.T) {
				closed = closed || rapid.IntRange(0, 9).Draw(t, "really") == 0
				if closed {
					q.Close()
				}
			},
		})
		for {
			batch, ok := q.TryNext()
			if !ok {
				break
			}
			handle(batch)
		}
		for id := range n {
			if count[id] != 1 {
				t.Fatalf("request %d was answered %d times", id, count[id])
			}
		}
	})
}
