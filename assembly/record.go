package assembly

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// recordFile has the story of every event, one JSON object a line.
type recordFile struct {
	file *os.File
	log  logrus.FieldLogger
	mu   sync.Mutex
	sick bool // writing failed: said once, then left alone
}

// openRecorder appends to a file; "" records nothing.
func openRecorder(path string, log logrus.FieldLogger) (*recordFile, error) {
	if path == "" {
		return &recordFile{}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, misconfigured(fmt.Errorf("--record: %w", err))
	}
	return &recordFile{file: f, log: log}, nil
}

// attach makes the controller tell each event's story to the file.
func (r *recordFile) attach(c *controller.Controller) {
	if r.file == nil {
		return
	}
	c.SetRecorder(func(rec controller.Record) {
		line, err := rec.MarshalLine()
		r.write(line, err)
	})
}

// write appends a line, unless there is an error.
func (r *recordFile) write(line []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.file.Write(line)
	}
	if err != nil && !r.sick {
		r.sick = true
		r.log.WithError(err).Error("events are no longer recorded")
	}
}

// recordedISR is a confirmed change of an ISR as its leader saw it.
type recordedISR struct {
	Time      time.Time        `json:"time"`
	Event     string           `json:"event"` // IsrChange
	Broker    kafka.BrokerID   `json:"broker"`
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	From      []kafka.BrokerID `json:"from"`
	To        []kafka.BrokerID `json:"to"`
	Cause     string           `json:"cause"`
}

// isrChanged gives what tells a broker's changes to the file, and to next; either
// may be missing.
func (r *recordFile) isrChanged(self kafka.BrokerID, next func(kafka.TopicPartition, brokers.ISRChange)) func(kafka.TopicPartition, brokers.ISRChange) {
	if r.file == nil {
		return next
	}
	return func(tp kafka.TopicPartition, c brokers.ISRChange) {
		line, err := json.Marshal(recordedISR{Time: time.UnixMilli(c.At), Event: "IsrChange", Broker: self, Topic: tp.Topic, Partition: tp.Partition,
			From: c.From, To: c.To, Cause: c.Cause})
		r.write(append(line, '\n'), err)
		if next != nil {
			next(tp, c)
		}
	}
}

func (r *recordFile) close() {
	if r.file == nil {
		return
	}
	if err := r.file.Close(); err != nil {
		r.log.WithError(fmt.Errorf("close %s: %w", r.file.Name(), err)).Error("the last records may be lost")
	}
}
