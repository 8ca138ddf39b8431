package sim

import (
	"maps"
	"slices"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Broker answers control requests as a real one does (spec/controller.md
// §6.8, spec/broker.md §9) and keeps what they taught it. It replicates
// nothing: which followers keep up is the World's to say.
type Broker struct {
	ID              kafka.BrokerID
	Epoch           int64 // czxid of its registration
	Session         int64
	ControllerEpoch int32
	Hosted          map[kafka.TopicPartition]*Hosted
	Metadata        map[kafka.TopicPartition]*control.PartitionState
	Live            map[kafka.BrokerID]kafka.Broker
	// Offline has the partitions whose log directory failed.
	Offline map[kafka.TopicPartition]bool
}

// Hosted is one replica on a broker.
type Hosted struct {
	Leader      kafka.BrokerID
	LeaderEpoch int32
	ISR         []kafka.BrokerID
	ZKVersion   int32
	Replicas    []kafka.BrokerID
	TopicID     kafka.TopicID
	// ControllerEpoch is that of the controller which decided the leadership: what
	// a leader that writes states itself puts there (spec/broker.md §5.1, §9.6).
	ControllerEpoch int32
}

// NewBroker gives a broker that has just started: it knows nothing.
func NewBroker(id kafka.BrokerID) *Broker {
	b := &Broker{ID: id, Offline: map[kafka.TopicPartition]bool{}}
	b.Restart()
	return b
}

// Restart forgets what a process keeps in memory.
func (b *Broker) Restart() {
	b.ControllerEpoch = 0
	b.Hosted = map[kafka.TopicPartition]*Hosted{}
	b.Metadata = map[kafka.TopicPartition]*control.PartitionState{}
	b.Live = map[kafka.BrokerID]kafka.Broker{}
}

// Receive carries a control request out and gives its answer.
func (b *Broker) Receive(r control.Request) control.Response {
	var h control.Header
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		h = r.Header
	case *control.UpdateMetadataRequest:
		h = r.Header
	case *control.StopReplicaRequest:
		h = r.Header
	}
	resp := control.Response{Kind: r.Kind(), Request: r}
	switch {
	case h.BrokerEpoch != kafka.NoBrokerEpoch && h.BrokerEpoch < b.Epoch:
		resp.Error = kafka.StaleBrokerEpoch
	case h.ControllerEpoch < b.ControllerEpoch:
		resp.Error = kafka.StaleControllerEpoch
	}
	if resp.Error != kafka.NoError {
		if r, ok := r.(*control.LeaderAndISRRequest); ok {
			resp.Errors = map[kafka.TopicPartition]kafka.ErrorCode{}
			for _, p := range r.Partitions {
				resp.Errors[p.TopicPartition] = resp.Error
			}
		}
		return resp
	}
	b.ControllerEpoch = h.ControllerEpoch
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		resp.Errors = map[kafka.TopicPartition]kafka.ErrorCode{}
		for _, p := range r.Partitions {
			resp.Errors[p.TopicPartition] = b.leaderAndISR(p)
		}
	case *control.UpdateMetadataRequest:
		b.updateMetadata(r)
	case *control.StopReplicaRequest:
		resp.Errors = map[kafka.TopicPartition]kafka.ErrorCode{}
		for _, p := range r.Partitions {
			resp.Errors[p.TopicPartition] = b.stopReplica(p)
		}
	}
	return resp
}

func (b *Broker) leaderAndISR(p *control.PartitionState) kafka.ErrorCode {
	if b.Offline[p.TopicPartition] && !p.IsNew {
		return kafka.KafkaStorageError
	}
	h := b.Hosted[p.TopicPartition]
	if h == nil {
		h = &Hosted{Leader: kafka.NoLeader, LeaderEpoch: kafka.NoEpoch}
		b.Hosted[p.TopicPartition] = h
	}
	switch {
	case !h.TopicID.IsZero() && !p.TopicID.IsZero() && h.TopicID != p.TopicID:
		return kafka.InconsistentTopicID
	case p.LeaderEpoch < h.LeaderEpoch:
		return kafka.StaleControllerEpoch
	case p.LeaderEpoch == h.LeaderEpoch:
		if h.TopicID.IsZero() && !p.TopicID.IsZero() {
			h.TopicID = p.TopicID
			return kafka.NoError
		}
		if !h.TopicID.IsZero() && p.TopicID.IsZero() && h.Leader != b.ID {
			return kafka.NoError
		}
		return kafka.StaleControllerEpoch
	case !slices.Contains(p.Replicas, b.ID):
		if h.LeaderEpoch == kafka.NoEpoch {
			delete(b.Hosted, p.TopicPartition)
		}
		return kafka.UnknownTopicOrPartition
	}
	if !p.TopicID.IsZero() {
		h.TopicID = p.TopicID
	}
	if _, alive := b.Live[p.Leader]; p.Leader != b.ID && !alive {
		return kafka.NoError // not followed yet: the same epoch is taken later (spec/broker.md §9.2 step 6)
	}
	h.Leader, h.LeaderEpoch, h.ZKVersion = p.Leader, p.LeaderEpoch, p.ZKVersion
	h.ISR, h.Replicas, h.ControllerEpoch = slices.Clone(p.ISR), slices.Clone(p.Replicas), p.ControllerEpoch
	return kafka.NoError
}

func (b *Broker) updateMetadata(r *control.UpdateMetadataRequest) {
	b.Live = map[kafka.BrokerID]kafka.Broker{}
	for _, o := range r.LiveBrokers {
		b.Live[o.ID] = o
	}
	for _, p := range r.Partitions {
		if p.Leader == kafka.LeaderDuringDelete {
			delete(b.Metadata, p.TopicPartition)
		} else {
			b.Metadata[p.TopicPartition] = p
		}
	}
}

func (b *Broker) stopReplica(p control.StopPartition) kafka.ErrorCode {
	h := b.Hosted[p.TopicPartition]
	switch {
	case b.Offline[p.TopicPartition]:
		return kafka.KafkaStorageError
	case h == nil:
		return kafka.NoError
	case p.LeaderEpoch >= 0 && p.LeaderEpoch < h.LeaderEpoch:
		return kafka.FencedLeaderEpoch
	}
	if p.Delete {
		delete(b.Hosted, p.TopicPartition)
	}
	return kafka.NoError
}

// Leads lists the partitions this broker believes to lead, sorted.
func (b *Broker) Leads() []kafka.TopicPartition {
	var out []kafka.TopicPartition
	for tp, h := range b.Hosted {
		if h.Leader == b.ID && !b.Offline[tp] {
			out = append(out, tp)
		}
	}
	kafka.SortPartitions(out)
	return out
}

// Knows lists the partitions in its metadata cache, sorted.
func (b *Broker) Knows() []kafka.TopicPartition {
	out := slices.Collect(maps.Keys(b.Metadata))
	kafka.SortPartitions(out)
	return out
}
