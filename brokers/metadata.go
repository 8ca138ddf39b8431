package brokers

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// MetadataCache is what UpdateMetadata told a broker: who lives, who is
// controller, who leads what. The broker's loop writes it; any goroutine that
// serves clients may read it. What it hands out is never changed afterwards.
type MetadataCache struct {
	mu         sync.RWMutex
	controller kafka.BrokerID
	brokers    map[kafka.BrokerID]kafka.Broker
	topics     map[string]*TopicMetadata
	board      *Board // what the brokers of one process have in common is kept once
}

// TopicMetadata is one topic of the cache. It is never changed in place.
type TopicMetadata struct {
	Name       string
	ID         kafka.TopicID
	Partitions []*control.PartitionState // sorted by number
}

func newMetadataCache(board *Board) *MetadataCache {
	return &MetadataCache{controller: kafka.NoController, topics: map[string]*TopicMetadata{}, board: board}
}

// update applies a request that passed the gates (spec/broker.md §9.3): the
// broker list and the controller are replaced, partitions are merged without
// any look at their epochs.
func (c *MetadataCache) update(r *control.UpdateMetadataRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controller = r.ControllerID
	if r.ControllerID < 0 {
		c.controller = kafka.NoController
	}
	if r.Metadata == nil {
		c.brokers = nil
		return
	}
	c.brokers = make(map[kafka.BrokerID]kafka.Broker, len(r.LiveBrokers))
	for _, b := range r.LiveBrokers {
		c.brokers[b.ID] = b
	}
	for parts := range byTopic(r.Partitions) {
		c.merge(parts[0].Topic, parts)
	}
}

// byTopic gives the partitions of each topic. Controllers send them sorted; where
// somebody else does not, a topic comes up more than once.
func byTopic(all []*control.PartitionState) iter.Seq[[]*control.PartitionState] {
	return func(yield func([]*control.PartitionState) bool) {
		for from, to := 0, 0; from < len(all); from = to {
			for to = from + 1; to < len(all) && all[to].Topic == all[from].Topic; to++ {
			}
			if !yield(all[from:to]) {
				return
			}
		}
	}
}

func (c *MetadataCache) merge(topic string, parts []*control.PartitionState) {
	next := &TopicMetadata{Name: topic, Partitions: make([]*control.PartitionState, 0, len(parts))}
	if old := c.topics[topic]; old != nil {
		next.Name = old.Name
		next.Partitions = append(next.Partitions, old.Partitions...)
	}
	for _, p := range parts {
		next.ID = p.TopicID // a zero id removes a known one (spec/control-plane.md §1.4)
		i, had := slices.BinarySearchFunc(next.Partitions, p.Partition, func(p *control.PartitionState, n int32) int { return cmp.Compare(p.Partition, n) })
		switch gone := p.Leader == kafka.LeaderDuringDelete; {
		case gone && had:
			next.Partitions = slices.Delete(next.Partitions, i, i+1)
		case gone:
		case had:
			next.Partitions[i] = p
		default:
			next.Partitions = slices.Insert(next.Partitions, i, p)
		}
	}
	if len(next.Partitions) == 0 {
		delete(c.topics, topic)
		c.board.unshare(topic)
		return
	}
	c.topics[next.Name] = c.board.share(next)
}

// sameTopic tells whether two entries say the same.
func sameTopic(a, b *TopicMetadata) bool {
	return a.Name == b.Name && a.ID == b.ID && slices.EqualFunc(a.Partitions, b.Partitions, sameState)
}

func sameState(a, b *control.PartitionState) bool {
	return a == b || a.TopicPartition == b.TopicPartition && a.TopicID == b.TopicID && a.Leader == b.Leader && a.LeaderEpoch == b.LeaderEpoch &&
		a.Recovery == b.Recovery && a.ZKVersion == b.ZKVersion && a.ControllerEpoch == b.ControllerEpoch && a.IsNew == b.IsNew &&
		slices.Equal(a.ISR, b.ISR) && slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.Adding, b.Adding) &&
		slices.Equal(a.Removing, b.Removing) && slices.Equal(a.Offline, b.Offline)
}

func (c *MetadataCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controller, c.brokers, c.topics = kafka.NoController, nil, map[string]*TopicMetadata{}
}

// Alive tells whether the last UpdateMetadata listed the broker.
func (c *MetadataCache) Alive(id kafka.BrokerID) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	_, ok := c.brokers[id]
	return ok
}

// Broker gives a broker of the live set.
func (c *MetadataCache) Broker(id kafka.BrokerID) (kafka.Broker, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b, ok := c.brokers[id]
	return b, ok
}

// Knows tells whether UpdateMetadata has told of a partition.
func (c *MetadataCache) Knows(tp kafka.TopicPartition) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.topics[tp.Topic]
	if t == nil {
		return false
	}
	if n := int(tp.Partition); n >= 0 && n < len(t.Partitions) && t.Partitions[n].Partition == tp.Partition {
		return true
	}
	_, ok := slices.BinarySearchFunc(t.Partitions, tp.Partition, func(p *control.PartitionState, n int32) int { return cmp.Compare(p.Partition, n) })
	return ok
}

// Controller gives the controller's id, or kafka.NoController, and its
// registration if the last UpdateMetadata listed it.
func (c *MetadataCache) Controller() (id kafka.BrokerID, b kafka.Broker, listed bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	b, listed = c.brokers[c.controller]
	return c.controller, b, listed
}

// Brokers gives the live brokers by id.
func (c *MetadataCache) Brokers() []kafka.Broker {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]kafka.Broker, 0, len(c.brokers))
	for _, id := range slices.Sorted(maps.Keys(c.brokers)) {
		out = append(out, c.brokers[id])
	}
	return out
}

// Topic gives one topic, or nil.
func (c *MetadataCache) Topic(name string) *TopicMetadata {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.topics[name]
}

// TopicByID gives the topic with an id, or nil.
func (c *MetadataCache) TopicByID(id kafka.TopicID) *TopicMetadata {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, t := range c.topics {
		if t.ID == id && !id.IsZero() {
			return t
		}
	}
	return nil
}

// Topics gives all topics by name.
func (c *MetadataCache) Topics() []*TopicMetadata {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]*TopicMetadata, 0, len(c.topics))
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		out = append(out, c.topics[name])
	}
	return out
}
