package dispatch

import (
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Counters only rise. QueueTime over Requests is the mean time a request waited
// before its first attempt (Kafka: RequestRateAndQueueTimeMs).
type Counters struct {
	Requests  uint64        // first attempts
	Answers   uint64        // answered
	Failures  uint64        // attempts, connecting included, that failed
	Merged    uint64        // UpdateMetadata requests that went out as part of another
	QueueTime time.Duration // sum over Requests
}

func (c *Counters) add(o Counters) {
	c.Requests += o.Requests
	c.Answers += o.Answers
	c.Failures += o.Failures
	c.Merged += o.Merged
	c.QueueTime += o.QueueTime
}

// BrokerStats is one channel's state.
type BrokerStats struct {
	QueueSize int  // waiting, the one in flight not counted (Kafka: QueueSize)
	InFlight  bool // a request was taken from the queue and is not answered yet
	Connected bool
	Counters
}

// Stats is a snapshot. The totals contain removed channels.
type Stats struct {
	Brokers        map[kafka.BrokerID]BrokerStats
	TotalQueueSize int
	Total          Counters
}

// Stats takes a snapshot.
func (d *Dispatcher) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Stats{Brokers: make(map[kafka.BrokerID]BrokerStats, len(d.channels)), Total: d.gone}
	for id, c := range d.channels {
		b := c.snapshot()
		s.Brokers[id] = b
		s.TotalQueueSize += b.QueueSize
		s.Total.add(b.Counters)
	}
	return s
}
