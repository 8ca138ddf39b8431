package brokerport

import (
	"slices"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// hintedBroker is where a leader is found.
type hintedBroker struct {
	id, port int32
	host     string
	rack     *string
}

// leaderHints collects who leads what others were asked for, for answers that
// tell clients at once (KIP-951).
type leaderHints struct {
	l       *Listener
	brokers []hintedBroker
}

// of gives leader and epoch of a partition as the metadata cache has them, -1
// and -1 where it has none. A leader that can be reached is among brokers then.
func (h *leaderHints) of(tp kafka.TopicPartition) (leader, epoch int32) {
	p := h.l.partitionOf(tp)
	if p == nil || p.Leader < 0 {
		return -1, -1
	}
	id := int32(p.Leader)
	if slices.ContainsFunc(h.brokers, func(b hintedBroker) bool { return b.id == id }) {
		return id, p.LeaderEpoch
	}
	for _, b := range h.l.node.Metadata().Brokers() {
		ep, ok := b.Endpoint(h.l.name)
		if b.ID != p.Leader || !ok {
			continue
		}
		hint := hintedBroker{id: id, host: ep.Host, port: ep.Port}
		if b.HasRack {
			hint.rack = new(b.Rack)
		}
		h.brokers = append(h.brokers, hint)
	}
	return id, p.LeaderEpoch
}
