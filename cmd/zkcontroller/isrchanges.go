package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// isrChanges tells of every change of an ISR and why, a line each. Brokers never
// wait for it: what comes faster than it can be written is counted instead.
type isrChanges struct {
	lines  chan string
	missed atomic.Int64
}

func newISRChanges() *isrChanges { return &isrChanges{lines: make(chan string, 100)} }

func (c *isrChanges) add(tp kafka.TopicPartition, change brokers.ISRChange) {
	verb := "grows"
	if len(change.To) < len(change.From) {
		verb = "shrinks"
	}
	at := time.UnixMilli(change.At).Format("15:04:05.000")
	select {
	case c.lines <- fmt.Sprintf("%s  ISR of %s %s from %v to %v: %s", at, tp, verb, change.From, change.To, change.Cause):
	default:
		c.missed.Add(1)
	}
}

// tellTo writes until the function that it gives is called.
func (c *isrChanges) tellTo(w io.Writer) (end func()) {
	leave, left := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		for {
			select {
			case line := <-c.lines:
				fmt.Fprintln(w, line)
			case <-leave:
				return
			}
			if n := c.missed.Load(); n > 0 && len(c.lines) == 0 {
				c.missed.Add(-n)
				fmt.Fprintf(w, "and %d more changes of ISRs\n", n)
			}
		}
	}()
	return func() { close(leave); <-left }
}
