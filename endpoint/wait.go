package endpoint

import (
	"context"
	"time"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// How often the loop is asked whether a topic is ready: soon at first, since
// leaders mostly are elected with the topic, then seldom.
const (
	firstPoll = 10 * time.Millisecond
	lastPoll  = 250 * time.Millisecond
)

var requestTimedOut = events.RowError{Error: kafka.RequestTimedOut, Message: "the work was started and is not done yet; it goes on"}

// wait is one row of an answer that may have to wait for the loop's work.
type wait struct {
	ref     events.TopicRef
	row     *events.RowError
	pending bool
	done    func(events.TopicDescription) bool
}

// finish waits until what is pending is done, or answers REQUEST_TIMED_OUT: at
// the deadline, or at once on every good row if the request gave no time
// (spec/admin-api.md §1).
func (e *Endpoint) finish(ctx context.Context, timeoutMillis int32, deadline time.Time, waits []wait) error {
	var open []wait
	for _, w := range waits {
		if w.row.Error == kafka.NoError && (w.pending || timeoutMillis <= 0) {
			open = append(open, w)
		}
	}
	if timeoutMillis > 0 {
		var err error
		if open, err = e.poll(ctx, deadline, open); err != nil {
			return err
		}
	}
	for _, w := range open {
		*w.row = requestTimedOut
	}
	return nil
}

// poll gives what is still not done at the deadline, or when we are the
// controller no more: then another one does the work.
func (e *Endpoint) poll(ctx context.Context, deadline time.Time, open []wait) ([]wait, error) {
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for pause := firstPoll; len(open) > 0; pause = min(2*pause, lastPoll) {
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-bounded.Done():
			t.Stop()
			return open, ctx.Err()
		}
		refs := make([]events.TopicRef, len(open))
		for i, w := range open {
			refs[i] = w.ref
		}
		cluster, err := e.describe(bounded, refs)
		switch {
		case timedOut(ctx, err):
			return open, nil
		case err != nil:
			return nil, err
		case cluster.Controller != e.id || len(cluster.Topics) != len(open):
			return open, nil
		}
		var left []wait
		for i, w := range open {
			if !w.done(cluster.Topics[i]) {
				left = append(left, w)
			}
		}
		open = left
	}
	return nil, nil
}

// allLed tells whether a topic has n partitions or more, each with a leader.
func allLed(t events.TopicDescription, n int) bool {
	if t.Error != kafka.NoError || len(t.Partitions) < n {
		return false
	}
	for _, p := range t.Partitions {
		if p.Leader < 0 {
			return false
		}
	}
	return true
}
