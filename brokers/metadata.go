package brokers

import (
	"cmp"
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
}

// TopicMetadata is one topic of the cache. It is never changed in place.
type TopicMetadata struct {
	Name       string
	ID         kafka.TopicID
	Partitions []*control.PartitionState // sorted by number
}

func newMetadataCache() *MetadataCache {
	return &MetadataCache{controller: kafka.NoController, topics: map[string]*TopicMetadata{}}
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
	byTopic := map[string][]*control.PartitionState{}
	for _, p := range r.Partitions {
		byTopic[p.Topic] = append(byTopic[p.Topic], p)
	}
	for topic, parts := range byTopic {
		c.merge(topic, parts)
	}
}

func (c *MetadataCache) merge(topic string, parts []*control.PartitionState) {
	have := map[int32]*control.PartitionState{}
	if old := c.topics[topic]; old != nil {
		for _, p := range old.Partitions {
			have[p.Partition] = p
		}
	}
	next := &TopicMetadata{Name: topic}
	for _, p := range parts {
		next.ID = p.TopicID // a zero id removes a known one (spec/control-plane.md §1.4)
		if p.Leader == kafka.LeaderDuringDelete {
			delete(have, p.Partition)
		} else {
			have[p.Partition] = p
		}
	}
	if len(have) == 0 {
		delete(c.topics, topic)
		return
	}
	for _, n := range slices.Sorted(maps.Keys(have)) {
		next.Partitions = append(next.Partitions, have[n])
	}
	c.topics[topic] = next
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
