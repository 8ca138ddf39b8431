package brokers

import (
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// DefaultMemoryBytes is what the logs of the brokers of one process may hold in
// memory where nobody says otherwise.
const DefaultMemoryBytes = 256 << 20

// newMemory makes the account of the logs in memory; nil: they are on disk.
func (b *Broker) newMemory() {
	if b.opts.Logs != nil && len(b.opts.Logs.Dirs) == 0 {
		b.memory = commitlog.NewMemory(b.opts.Logs.MemoryBytes)
	}
}

// bound drops the oldest records when the logs in memory hold more than they may,
// as retention does. Followers hear of it at the end of their wait; consumers that
// stand at what is gone are answered OFFSET_OUT_OF_RANGE, as by Kafka.
func (b *Broker) bound(now time.Time) {
	if !b.memory.Over() {
		return
	}
	begun := map[*commitlog.Log]bool{}
	for _, l := range b.memory.Shrink() {
		begun[l] = true
	}
	if len(begun) == 0 {
		return
	}
	if b.bounded.IsZero() || now.Sub(b.bounded) >= boundedRest {
		b.bounded = now
		b.log.WithFields(b.fields()).WithField("limit", b.memory.Limit()).WithField("partitions", len(begun)).
			Warn("logs in memory hold as much as they may: the oldest committed records go; give zkc.log.memory.bytes a larger value, or log.dirs, to keep more")
	}
	var tps []kafka.TopicPartition
	for tp, st := range b.disk {
		if begun[st.log] {
			tps = append(tps, tp)
		}
	}
	kafka.SortPartitions(tps)
	for _, tp := range tps {
		if p := b.partitions[tp]; p != nil {
			b.owesStart(now, p)
		}
	}
}

// boundedRest is how often that is told at most.
const boundedRest = time.Minute
