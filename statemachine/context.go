package statemachine

import (
	"cmp"
	"slices"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Context is the controller's memory. It is owned by one goroutine.
type Context struct {
	Epoch        int32 // value of /controller_epoch this controller was elected with; 0 when not controller
	EpochVersion int32 // its znode version: the fence of every write

	RecoveryState bool // write and send leader_recovery_state (from 3.2)
	Deletion      bool // delete.topic.enable

	topics   map[string]*Topic
	sorted   []*Topic // known topics by name; nil when it must be rebuilt
	byID     map[kafka.TopicID]string
	brokers  map[kafka.BrokerID]kafka.Broker
	ids      []kafka.BrokerID // registered, sorted
	shutting map[kafka.BrokerID]struct{}
	failed   map[kafka.BrokerID]map[kafka.TopicPartition]struct{} // replicas in offline log directories

	moving     map[kafka.TopicPartition]struct{} // being reassigned
	queued     map[string]struct{}               // topics queued for deletion
	started    map[string]struct{}               // topics whose deletion has started
	ineligible map[string]struct{}               // topics whose deletion must wait
}

// Topic is one topic. A record stays after its topic was removed for as long
// as some partition or replica state is remembered.
type Topic struct {
	Name  string
	ID    kafka.TopicID
	Known bool // in the list of all topics
	// Damaged: its znode cannot be read now, so memory has the last known
	// assignment, and the znode is not to be written.
	Damaged   bool
	ZKVersion int32        // of its znode, as last read or written
	parts     []*Partition // sorted by number
}

// Partition is one partition as the controller knows it.
type Partition struct {
	kafka.TopicPartition
	Assignment kafka.ReplicaAssignment
	Assigned   bool // the topic's assignment names it
	kafka.Leadership
	HasLeadership bool // Leadership is cached
	State         PartitionState
	Topic         *Topic
	replicas      []replicaEntry
}

type replicaEntry struct {
	broker kafka.BrokerID
	state  ReplicaState
}

// NewContext gives an empty Context.
func NewContext(recoveryState, deletion bool) *Context {
	c := &Context{RecoveryState: recoveryState, Deletion: deletion}
	c.Reset()
	return c
}

// Reset empties everything but the settings (spec/controller.md §3.5).
func (c *Context) Reset() {
	c.Epoch, c.EpochVersion = 0, 0
	c.topics = map[string]*Topic{}
	c.sorted, c.ids = nil, nil
	c.byID = map[kafka.TopicID]string{}
	c.brokers = map[kafka.BrokerID]kafka.Broker{}
	c.shutting = map[kafka.BrokerID]struct{}{}
	c.failed = map[kafka.BrokerID]map[kafka.TopicPartition]struct{}{}
	c.moving = map[kafka.TopicPartition]struct{}{}
	c.queued, c.started, c.ineligible = map[string]struct{}{}, map[string]struct{}{}, map[string]struct{}{}
}

// ---- brokers

// SetBroker adds or replaces a registered broker.
func (c *Context) SetBroker(b kafka.Broker) {
	if _, ok := c.brokers[b.ID]; !ok {
		i, _ := slices.BinarySearch(c.ids, b.ID)
		c.ids = slices.Insert(slices.Clone(c.ids), i, b.ID)
	}
	c.brokers[b.ID] = b
}

// RemoveBroker forgets a registration. The shutting-down mark stays (§7.3).
func (c *Context) RemoveBroker(id kafka.BrokerID) {
	if _, ok := c.brokers[id]; ok {
		delete(c.brokers, id)
		i, _ := slices.BinarySearch(c.ids, id)
		c.ids = slices.Delete(slices.Clone(c.ids), i, i+1)
	}
}

// Broker gives a registered broker.
func (c *Context) Broker(id kafka.BrokerID) (kafka.Broker, bool) {
	b, ok := c.brokers[id]
	return b, ok
}

// BrokerIDs gives all registered ids, live or shutting down, sorted. The slice is never changed.
func (c *Context) BrokerIDs() []kafka.BrokerID { return c.ids }

// Brokers gives all registered brokers, sorted by id.
func (c *Context) Brokers() []kafka.Broker {
	out := make([]kafka.Broker, len(c.ids))
	for i, id := range c.ids {
		out[i] = c.brokers[id]
	}
	return out
}

// LiveBrokers gives those registered and not shutting down, sorted by id.
func (c *Context) LiveBrokers() []kafka.Broker {
	var out []kafka.Broker
	for _, id := range c.ids {
		if c.Live(id) {
			out = append(out, c.brokers[id])
		}
	}
	return out
}

// Registered tells whether a broker is live or shutting down.
func (c *Context) Registered(id kafka.BrokerID) bool { _, ok := c.brokers[id]; return ok }

// Live tells whether a broker is registered and not shutting down.
func (c *Context) Live(id kafka.BrokerID) bool {
	_, shutting := c.shutting[id]
	return !shutting && c.Registered(id)
}

// SetShuttingDown marks a broker that asked to leave.
func (c *Context) SetShuttingDown(id kafka.BrokerID) { c.shutting[id] = struct{}{} }

// ClearShuttingDown takes the mark away.
func (c *Context) ClearShuttingDown(id kafka.BrokerID) { delete(c.shutting, id) }

// ShuttingDown tells whether a broker asked to leave.
func (c *Context) ShuttingDown(id kafka.BrokerID) bool { _, ok := c.shutting[id]; return ok }

// ShuttingDownIDs gives the marked brokers, sorted.
func (c *Context) ShuttingDownIDs() []kafka.BrokerID { return sortedKeys(c.shutting) }

// SetReplicaFailed marks a replica as being in an offline log directory, or takes the mark away.
func (c *Context) SetReplicaFailed(id kafka.BrokerID, tp kafka.TopicPartition, failed bool) {
	if !failed {
		delete(c.failed[id], tp)
		return
	}
	if c.failed[id] == nil {
		c.failed[id] = map[kafka.TopicPartition]struct{}{}
	}
	c.failed[id][tp] = struct{}{}
}

// ReplicaFailed tells whether a replica is in an offline log directory.
func (c *Context) ReplicaFailed(id kafka.BrokerID, tp kafka.TopicPartition) bool {
	_, ok := c.failed[id][tp]
	return ok
}

// FailedReplicas gives a broker's partitions that are in offline log directories, sorted.
func (c *Context) FailedReplicas(id kafka.BrokerID) []kafka.TopicPartition {
	out := make([]kafka.TopicPartition, 0, len(c.failed[id]))
	for tp := range c.failed[id] {
		out = append(out, tp)
	}
	kafka.SortPartitions(out)
	return out
}

// ForgetFailedReplicas drops all such marks of a broker.
func (c *Context) ForgetFailedReplicas(id kafka.BrokerID) { delete(c.failed, id) }

// Online tells whether a replica can serve: its broker is live and its log directory is.
func (c *Context) Online(p *Partition, id kafka.BrokerID) bool {
	return c.Live(id) && !c.dirOffline(p, id)
}

// OnlineOrShutting is Online that counts brokers shutting down as well.
func (c *Context) OnlineOrShutting(p *Partition, id kafka.BrokerID) bool {
	return c.Registered(id) && !c.dirOffline(p, id)
}

func (c *Context) dirOffline(p *Partition, id kafka.BrokerID) bool {
	return len(c.failed) > 0 && c.ReplicaFailed(id, p.TopicPartition)
}

// ---- topics

// AddTopic puts a topic into the list of all topics and gives its record.
func (c *Context) AddTopic(name string) *Topic {
	t := c.topics[name]
	if t == nil {
		t = &Topic{Name: name}
		c.topics[name] = t
	}
	if !t.Known {
		t.Known = true
		if c.sorted != nil {
			i, _ := c.searchTopic(name)
			c.sorted = slices.Insert(c.sorted, i, t)
		}
	}
	return t
}

func (c *Context) searchTopic(name string) (int, bool) {
	return slices.BinarySearchFunc(c.sorted, name, func(t *Topic, name string) int { return cmp.Compare(t.Name, name) })
}

// ForgetTopic takes a topic out of memory with all its states, as if it had
// never been there: its creation did not happen.
func (c *Context) ForgetTopic(name string) {
	if t := c.topics[name]; t != nil {
		for _, p := range t.parts {
			p.State, p.replicas = NonExistentPartition, nil
		}
	}
	c.RemoveTopic(name)
}

// SetTopicID gives a topic its id; the zero id takes it away.
func (c *Context) SetTopicID(t *Topic, id kafka.TopicID) {
	if !t.ID.IsZero() && c.byID[t.ID] == t.Name {
		delete(c.byID, t.ID)
	}
	t.ID = id
	if !id.IsZero() {
		c.byID[id] = t.Name
	}
}

// Topic gives a known topic, or nil.
func (c *Context) Topic(name string) *Topic {
	if t := c.topics[name]; t != nil && t.Known {
		return t
	}
	return nil
}

// TopicByID gives the topic with an id, or nil.
func (c *Context) TopicByID(id kafka.TopicID) *Topic {
	if id.IsZero() {
		return nil
	}
	return c.Topic(c.byID[id])
}

// Topics gives all known topics by name. The slice must not be changed, and is
// good until a topic is added or removed.
func (c *Context) Topics() []*Topic {
	if c.sorted == nil {
		c.sorted = make([]*Topic, 0, len(c.topics))
		for _, t := range c.topics {
			if t.Known {
				c.sorted = append(c.sorted, t)
			}
		}
		slices.SortFunc(c.sorted, func(a, b *Topic) int { return cmp.Compare(a.Name, b.Name) })
	}
	return c.sorted
}

// RemoveTopic takes a topic out of memory. Partition and replica states stay,
// and so does the ineligible mark (spec/controller.md §7.1 step 3).
func (c *Context) RemoveTopic(name string) {
	delete(c.queued, name)
	delete(c.started, name)
	t := c.topics[name]
	if t == nil {
		return
	}
	c.SetTopicID(t, kafka.TopicID{})
	if t.Known && c.sorted != nil {
		i, _ := c.searchTopic(name)
		c.sorted = slices.Delete(c.sorted, i, i+1)
	}
	t.Known, t.Damaged, t.ZKVersion = false, false, 0
	kept := t.parts[:0:0]
	for _, p := range t.parts {
		p.Assigned, p.Assignment = false, kafka.ReplicaAssignment{}
		p.HasLeadership, p.Leadership = false, kafka.Leadership{}
		delete(c.moving, p.TopicPartition)
		if p.State != NonExistentPartition || len(p.replicas) > 0 {
			kept = append(kept, p)
		}
	}
	t.parts = kept
	if len(kept) == 0 {
		delete(c.topics, name)
	}
}

// Partitions gives the partitions a topic's assignment names, by number.
func (t *Topic) Partitions() []*Partition {
	for _, p := range t.parts {
		if !p.Assigned {
			return slices.DeleteFunc(slices.Clone(t.parts), func(p *Partition) bool { return !p.Assigned })
		}
	}
	return t.parts
}

// find gives the index of a partition, or where it belongs.
func (t *Topic) find(number int32) (int, bool) {
	if int(number) < len(t.parts) && number >= 0 && t.parts[number].Partition == number {
		return int(number), true
	}
	return slices.BinarySearchFunc(t.parts, number, func(p *Partition, n int32) int { return cmp.Compare(p.Partition, n) })
}

// Partition gives an assigned partition, or nil.
func (c *Context) Partition(tp kafka.TopicPartition) *Partition {
	p := c.record(tp)
	if p == nil || !p.Assigned {
		return nil
	}
	return p
}

func (c *Context) record(tp kafka.TopicPartition) *Partition {
	t := c.topics[tp.Topic]
	if t == nil {
		return nil
	}
	i, ok := t.find(tp.Partition)
	if !ok {
		return nil
	}
	return t.parts[i]
}

// RecordedPartition gives a partition even when its topic is gone but states remain; or nil.
func (c *Context) RecordedPartition(tp kafka.TopicPartition) *Partition { return c.record(tp) }

// SetAssignment puts a partition's replica lists into memory.
func (c *Context) SetAssignment(t *Topic, number int32, a kafka.ReplicaAssignment) *Partition {
	i, ok := t.find(number)
	if !ok {
		p := &Partition{TopicPartition: kafka.TopicPartition{Topic: t.Name, Partition: number}, Topic: t}
		t.parts = slices.Insert(t.parts, i, p)
	}
	p := t.parts[i]
	p.Assignment, p.Assigned = a, true
	return p
}

// EachPartition calls f for every assigned partition, by topic and number.
func (c *Context) EachPartition(f func(*Partition)) {
	for _, t := range c.Topics() {
		for _, p := range t.parts {
			if p.Assigned {
				f(p)
			}
		}
	}
}

// SetLeadership caches what a state znode says.
func (p *Partition) SetLeadership(l kafka.Leadership) { p.Leadership, p.HasLeadership = l, true }

// ClearLeadership forgets it.
func (p *Partition) ClearLeadership() { p.Leadership, p.HasLeadership = kafka.Leadership{}, false }

// Replica gives a replica's state; one never seen is NonExistentReplica.
func (p *Partition) Replica(id kafka.BrokerID) ReplicaState {
	for i := range p.replicas {
		if p.replicas[i].broker == id {
			return p.replicas[i].state
		}
	}
	return NonExistentReplica
}

// SetReplica records a replica's state; NonExistentReplica forgets it.
func (p *Partition) SetReplica(id kafka.BrokerID, s ReplicaState) {
	i := slices.IndexFunc(p.replicas, func(r replicaEntry) bool { return r.broker == id })
	switch {
	case s == NonExistentReplica && i >= 0:
		p.replicas = slices.Delete(p.replicas, i, i+1)
	case s == NonExistentReplica:
	case i >= 0:
		p.replicas[i].state = s
	default:
		if p.replicas == nil {
			p.replicas = make([]replicaEntry, 0, max(len(p.Assignment.Replicas), 1))
		}
		p.replicas = append(p.replicas, replicaEntry{id, s})
	}
}

// ReplicasIn gives the assigned brokers whose replica is in state s, in assignment order.
func (p *Partition) ReplicasIn(s ReplicaState) []kafka.BrokerID {
	var out []kafka.BrokerID
	for _, id := range p.Assignment.Replicas {
		if p.Replica(id) == s {
			out = append(out, id)
		}
	}
	return out
}

// ReplicasOn gives every assigned replica on the given brokers, by partition.
func (c *Context) ReplicasOn(ids []kafka.BrokerID) []Replica {
	var out []Replica
	c.EachPartition(func(p *Partition) {
		for _, id := range ids {
			if slices.Contains(p.Assignment.Replicas, id) {
				out = append(out, Replica{p, id})
			}
		}
	})
	return out
}

// ---- reassignment and deletion marks

// SetMoving marks a partition as being reassigned, or takes the mark away.
func (c *Context) SetMoving(tp kafka.TopicPartition, moving bool) {
	if moving {
		c.moving[tp] = struct{}{}
	} else {
		delete(c.moving, tp)
	}
}

// Moving tells whether a partition is being reassigned.
func (c *Context) Moving(tp kafka.TopicPartition) bool { _, ok := c.moving[tp]; return ok }

// MovingPartitions gives all marked partitions, sorted.
func (c *Context) MovingPartitions() []kafka.TopicPartition {
	out := make([]kafka.TopicPartition, 0, len(c.moving))
	for tp := range c.moving {
		out = append(out, tp)
	}
	kafka.SortPartitions(out)
	return out
}

// Queued tells whether a topic is queued for deletion; never while deletion is disabled.
func (c *Context) Queued(topic string) bool { _, ok := c.queued[topic]; return ok && c.Deletion }

// Queue queues a topic for deletion.
func (c *Context) Queue(topic string) { c.queued[topic] = struct{}{} }

// QueuedTopics gives the deletion queue, sorted.
func (c *Context) QueuedTopics() []string { return sortedKeys(c.queued) }

// DeletionStarted tells whether a topic's deletion has started.
func (c *Context) DeletionStarted(topic string) bool { _, ok := c.started[topic]; return ok }

// SetDeletionStarted marks it so.
func (c *Context) SetDeletionStarted(topic string) { c.started[topic] = struct{}{} }

// Ineligible tells whether a topic's deletion must wait.
func (c *Context) Ineligible(topic string) bool { _, ok := c.ineligible[topic]; return ok }

// SetIneligible marks a queued topic so; others are left alone. It tells whether the mark is new.
func (c *Context) SetIneligible(topic string) bool {
	if !c.Queued(topic) || c.Ineligible(topic) {
		return false
	}
	c.ineligible[topic] = struct{}{}
	return true
}

// ClearIneligible takes the mark away.
func (c *Context) ClearIneligible(topic string) { delete(c.ineligible, topic) }

// IneligibleTopics gives the marked topics, sorted.
func (c *Context) IneligibleTopics() []string { return sortedKeys(c.ineligible) }

// ---- what brokers are told

// LeaderAndISREntry is p as a LeaderAndIsr or UpdateMetadata request carries it.
func (c *Context) LeaderAndISREntry(p *Partition, l kafka.Leadership, isNew bool) *control.PartitionState {
	s := &control.PartitionState{TopicPartition: p.TopicPartition, TopicID: p.Topic.ID, Leadership: l,
		ReplicaAssignment: p.Assignment, IsNew: isNew, Offline: c.offline(p)}
	if !c.RecoveryState {
		s.Recovery = kafka.Recovered
	}
	return s
}

// MetadataEntry is p as UpdateMetadata carries it, or nil without leadership. A
// partition whose topic is queued for deletion has leader -2 (spec/controller.md §6.2).
func (c *Context) MetadataEntry(p *Partition) *control.PartitionState {
	if !p.HasLeadership {
		return nil
	}
	s := c.LeaderAndISREntry(p, p.Leadership, false)
	if c.Queued(p.TopicPartition.Topic) {
		s.Leader, s.LeaderEpoch, s.ZKVersion = kafka.LeaderDuringDelete, 0, 0
	}
	return s
}

func (c *Context) offline(p *Partition) []kafka.BrokerID {
	var out []kafka.BrokerID
	for _, id := range p.Assignment.Replicas {
		if !c.Online(p, id) {
			out = append(out, id)
		}
	}
	return out
}

// StopEntry is p in a StopReplica request (spec/controller.md §6.2).
func (c *Context) StopEntry(p *Partition, del bool) control.StopPartition {
	s := control.StopPartition{TopicPartition: p.TopicPartition, LeaderEpoch: kafka.NoEpoch, Delete: del}
	switch {
	case c.Queued(p.TopicPartition.Topic):
		s.LeaderEpoch = kafka.EpochDuringDelete
	case p.HasLeadership:
		s.LeaderEpoch = p.LeaderEpoch
	}
	return s
}

func sortedKeys[K cmp.Ordered](m map[K]struct{}) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
