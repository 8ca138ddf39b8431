package control

import (
	"cmp"
	"slices"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Batch collects what one state-machine step has to tell brokers (Kafka:
// ControllerBrokerRequestBatch). The zero value is empty and ready.
//
// Adding is cheap and unsorted; Flush sorts, merges and clears. For a
// partition added twice for one broker the later entry wins, but "is new" and
// "delete" stick (spec/controller.md §6.2).
type Batch struct {
	leaderAndISR map[kafka.BrokerID][]*PartitionState
	stop         map[kafka.BrokerID][]StopPartition
	metadata     []*PartitionState
	metadataTo   map[kafka.BrokerID]struct{}
}

// LeaderAndISR adds p for each broker. Ids below 0 are dropped.
func (b *Batch) LeaderAndISR(to []kafka.BrokerID, p *PartitionState) {
	if b.leaderAndISR == nil {
		b.leaderAndISR = map[kafka.BrokerID][]*PartitionState{}
	}
	for _, id := range to {
		if id >= 0 {
			b.leaderAndISR[id] = append(b.leaderAndISR[id], p)
		}
	}
}

// Metadata makes every broker in to a receiver of this batch's UpdateMetadata
// and adds ps to it. All receivers of a batch get the same partitions.
func (b *Batch) Metadata(to []kafka.BrokerID, ps ...*PartitionState) {
	if b.metadataTo == nil {
		b.metadataTo = map[kafka.BrokerID]struct{}{}
	}
	for _, id := range to {
		if id >= 0 {
			b.metadataTo[id] = struct{}{}
		}
	}
	b.metadata = append(b.metadata, ps...)
}

// Stop adds s for one broker. Ids below 0 are dropped.
func (b *Batch) Stop(to kafka.BrokerID, s StopPartition) {
	if to < 0 {
		return
	}
	if b.stop == nil {
		b.stop = map[kafka.BrokerID][]StopPartition{}
	}
	b.stop[to] = append(b.stop[to], s)
}

// Empty tells whether there is nothing to send.
func (b *Batch) Empty() bool {
	return len(b.leaderAndISR) == 0 && len(b.stop) == 0 && len(b.metadataTo) == 0
}

// Clear drops everything, so that a step that failed half-way leaves nothing behind.
func (b *Batch) Clear() { *b = Batch{} }

// Sender is what a flush needs to know about us and the brokers of this moment.
type Sender struct {
	ID       kafka.BrokerID
	Epoch    int32
	Self     *kafka.Broker  // nil: hidden
	Brokers  []kafka.Broker // registered, sorted by id; others get nothing
	Listener string         // of addresses in LeaderAndIsr; see PickEndpoint
}

// Addressed is a request and its receiver.
type Addressed struct {
	To      kafka.BrokerID
	Request Request
}

// Flush gives the requests in sending order, LeaderAndIsr, UpdateMetadata,
// StopReplica, each by broker id, and clears the batch (spec/controller.md §6.3).
func (b *Batch) Flush(s Sender) []Addressed {
	var out []Addressed
	var leaders map[kafka.BrokerID]LiveLeader
	for _, broker := range s.Brokers {
		entries := b.leaderAndISR[broker.ID]
		if len(entries) == 0 {
			continue
		}
		if leaders == nil {
			leaders = liveLeaders(s)
		}
		ps := mergeStates(entries, true)
		out = append(out, Addressed{broker.ID, &LeaderAndISRRequest{
			Header: s.header(broker), Partitions: ps, LiveLeaders: leadersOf(ps, leaders),
		}})
	}
	if len(b.metadataTo) > 0 {
		body := &Metadata{Partitions: mergeStates(b.metadata, false), LiveBrokers: s.live()}
		for _, broker := range s.Brokers {
			if _, ok := b.metadataTo[broker.ID]; ok {
				out = append(out, Addressed{broker.ID, &UpdateMetadataRequest{Header: s.header(broker), Metadata: body}})
			}
		}
	}
	for _, broker := range s.Brokers {
		if entries := b.stop[broker.ID]; len(entries) > 0 {
			out = append(out, Addressed{broker.ID, &StopReplicaRequest{Header: s.header(broker), Partitions: mergeStops(entries)}})
		}
	}
	b.Clear()
	return out
}

func (s Sender) header(to kafka.Broker) Header {
	return Header{ControllerID: s.ID, ControllerEpoch: s.Epoch, BrokerEpoch: to.Epoch}
}

// live is the list of brokers that UpdateMetadata announces: all registered
// ones and, unless hidden, the controller itself.
func (s Sender) live() []kafka.Broker {
	if s.Self == nil {
		return slices.Clone(s.Brokers)
	}
	out := make([]kafka.Broker, 0, len(s.Brokers)+1)
	for _, b := range s.Brokers {
		if b.ID != s.Self.ID {
			out = append(out, b)
		}
	}
	i, _ := slices.BinarySearchFunc(out, s.Self.ID, func(b kafka.Broker, id kafka.BrokerID) int { return cmp.Compare(b.ID, id) })
	return slices.Insert(out, i, *s.Self)
}

// PickEndpoint chooses the address for control requests: the named listener,
// or without a name PLAINTEXT, else the first (spec/control-plane.md §2).
func PickEndpoint(b kafka.Broker, listener string) (kafka.Endpoint, bool) {
	if listener != "" {
		return b.Endpoint(listener)
	}
	if e, ok := b.Endpoint("PLAINTEXT"); ok {
		return e, true
	}
	if len(b.Endpoints) > 0 {
		return b.Endpoints[0], true
	}
	return kafka.Endpoint{}, false
}

func liveLeaders(s Sender) map[kafka.BrokerID]LiveLeader {
	out := make(map[kafka.BrokerID]LiveLeader, len(s.Brokers))
	for _, b := range s.Brokers {
		if e, ok := PickEndpoint(b, s.Listener); ok {
			out[b.ID] = LiveLeader{ID: b.ID, Host: e.Host, Port: e.Port}
		}
	}
	return out
}

func leadersOf(ps []*PartitionState, all map[kafka.BrokerID]LiveLeader) []LiveLeader {
	seen := map[kafka.BrokerID]struct{}{}
	var out []LiveLeader
	for _, p := range ps {
		if _, ok := seen[p.Leader]; ok {
			continue
		}
		seen[p.Leader] = struct{}{}
		if l, ok := all[p.Leader]; ok {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b LiveLeader) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// mergeStates sorts by partition and keeps the last entry of each. Most
// batches arrive sorted, so that is looked at first.
func mergeStates(in []*PartitionState, stickyNew bool) []*PartitionState {
	strictly := true
	for i := 1; i < len(in); i++ {
		if in[i-1].Compare(in[i].TopicPartition) >= 0 {
			strictly = false
			break
		}
	}
	if strictly {
		return in
	}
	sorted := slices.Clone(in)
	slices.SortStableFunc(sorted, func(a, b *PartitionState) int { return a.Compare(b.TopicPartition) })
	out := sorted[:0]
	for _, p := range sorted {
		n := len(out)
		if n == 0 || out[n-1].TopicPartition != p.TopicPartition {
			out = append(out, p)
			continue
		}
		if stickyNew && out[n-1].IsNew && !p.IsNew {
			again := *p
			again.IsNew = true
			p = &again
		}
		out[n-1] = p
	}
	return out
}

func mergeStops(in []StopPartition) []StopPartition {
	sorted := slices.Clone(in)
	slices.SortStableFunc(sorted, func(a, b StopPartition) int { return a.Compare(b.TopicPartition) })
	out := sorted[:0]
	for _, s := range sorted {
		if n := len(out); n > 0 && out[n-1].TopicPartition == s.TopicPartition {
			s.Delete = s.Delete || out[n-1].Delete
			out[n-1] = s
			continue
		}
		out = append(out, s)
	}
	return out
}
