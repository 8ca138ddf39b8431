package brokers

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// TopicConfig is what a topic's configuration says to the brokers that host it,
// under Kafka's names.
type TopicConfig struct {
	MinISR          int           // min.insync.replicas
	RetentionBytes  int64         // retention.bytes; negative: no bound
	Retention       time.Duration // retention.ms; negative: no bound
	Delete, Compact bool          // cleanup.policy
	CleanableRatio  float64       // min.cleanable.dirty.ratio
	DeleteRetention time.Duration // delete.retention.ms
	SegmentBytes    int64         // segment.bytes
	FlushMessages   int64         // flush.messages; 0: never by count
	MaxMessageBytes int           // max.message.bytes
	LogAppendTime   bool          // message.timestamp.type
	TimestampBefore time.Duration // message.timestamp.before.max.ms; 0: no bound
	TimestampAfter  time.Duration // message.timestamp.after.max.ms; 0: no bound

	Compression          commitlog.Codec // compression.type
	ProducerIDExpiration time.Duration   // producer.id.expiration.ms, of brokers alone

	NoDownconversion bool // message.downconversion.enable is false: nothing for consumers older than 0.11
}

// DefaultTopicConfig has Kafka's defaults.
func DefaultTopicConfig() TopicConfig {
	return TopicConfig{MinISR: 1, RetentionBytes: commitlog.NoRetention, Retention: 7 * 24 * time.Hour, Delete: true, CleanableRatio: 0.5,
		DeleteRetention: 24 * time.Hour, SegmentBytes: 1 << 30, MaxMessageBytes: 1<<20 + 12, Compression: commitlog.AsProduced, ProducerIDExpiration: commitlog.DefaultProducerIDExpiration}
}

// With gives the configuration with what a topic sets for itself. A value that
// cannot be read is passed over: whoever set it was told.
func (c TopicConfig) With(set map[string]string) TopicConfig {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		c.set(name, strings.TrimSpace(set[name]))
	}
	return c
}

func (c *TopicConfig) set(name, value string) {
	n, err := strconv.ParseInt(value, 10, 64)
	number := err == nil
	switch name {
	case "min.insync.replicas":
		if number && n >= 1 && n <= math.MaxInt32 {
			c.MinISR = int(n)
		}
	case "retention.bytes":
		assign(&c.RetentionBytes, n, number)
	case "retention.ms":
		assign(&c.Retention, milliseconds(n), number)
	case "delete.retention.ms":
		assign(&c.DeleteRetention, milliseconds(n), number)
	case "segment.bytes":
		assign(&c.SegmentBytes, n, number && n > 0)
	case "flush.messages":
		assign(&c.FlushMessages, n, number && n > 0)
		if n == math.MaxInt64 { // Kafka's word for never
			c.FlushMessages = 0
		}
	case "max.message.bytes":
		assign(&c.MaxMessageBytes, int(min(n, math.MaxInt32)), number && n >= 0)
	case "compression.type":
		codec, err := commitlog.ParseCodec(value)
		assign(&c.Compression, codec, err == nil)
	case "message.downconversion.enable":
		c.NoDownconversion = strings.EqualFold(value, "false")
	case "message.timestamp.type":
		c.LogAppendTime = value == "LogAppendTime"
	case "message.timestamp.difference.max.ms":
		assign(&c.TimestampBefore, bound(n), number)
		assign(&c.TimestampAfter, bound(n), number)
	case "message.timestamp.before.max.ms":
		assign(&c.TimestampBefore, bound(n), number)
	case "message.timestamp.after.max.ms":
		assign(&c.TimestampAfter, bound(n), number)
	case "producer.id.expiration.ms":
		assign(&c.ProducerIDExpiration, milliseconds(n), number && n >= 1)
	case "min.cleanable.dirty.ratio":
		if f, err := strconv.ParseFloat(value, 64); err == nil {
			c.CleanableRatio = f
		}
	case "cleanup.policy":
		c.Delete, c.Compact = strings.Contains(value, "delete"), strings.Contains(value, "compact")
	}
}

func assign[T any](to *T, v T, ok bool) {
	if ok {
		*to = v
	}
}

func milliseconds(n int64) time.Duration {
	if n < 0 {
		return -1
	}
	return time.Duration(min(n, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// bound is a limit of time whose largest value means none.
func bound(n int64) time.Duration {
	if n < 0 || n > math.MaxInt64/int64(time.Millisecond) {
		return 0
	}
	return max(milliseconds(n), time.Millisecond)
}

// Check is how records of the topic are checked before they come to the loop.
func (c TopicConfig) Check(now time.Time) commitlog.CheckOptions {
	return commitlog.CheckOptions{MaxMessageBytes: c.MaxMessageBytes, Compacted: c.Compact, LogAppendTime: c.LogAppendTime,
		Now: now, TimestampBefore: c.TimestampBefore, TimestampAfter: c.TimestampAfter}
}

func (c TopicConfig) log() commitlog.Options {
	return commitlog.Options{LogAppendTime: c.LogAppendTime, SegmentBytes: c.SegmentBytes, FlushMessages: c.FlushMessages, ProducerIDExpiration: c.ProducerIDExpiration, Kept: c.Compact && !c.Delete}
}

// topicState is what the partitions of one topic that are hosted here share.
type topicState struct {
	name   string
	config *TopicConfig // never changed in place
	known  bool         // config has been read
	hosted int
}

// topicConfigs has the configurations that were read, for the port, which reads
// them on other goroutines.
type topicConfigs struct {
	mu       sync.RWMutex
	defaults TopicConfig  // what the broker was started with; never changed
	changed  *TopicConfig // at run time; never changed in place; nil: it was not
	fetchers int          // num.replica.fetchers at run time; 0: as it was started; the loop's alone
	topics   map[string]TopicConfig
}

func (c *topicConfigs) get(topic string) TopicConfig {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t, ok := c.topics[topic]; ok {
		return t
	}
	return *c.inForce()
}

// base is what holds for topics that set nothing.
func (c *topicConfigs) base() *TopicConfig {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.inForce()
}

func (c *topicConfigs) inForce() *TopicConfig {
	if c.changed != nil {
		return c.changed
	}
	return &c.defaults
}

func (c *topicConfigs) put(topic string, t TopicConfig, own bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !own {
		delete(c.topics, topic)
		return
	}
	if c.topics == nil {
		c.topics = map[string]TopicConfig{}
	}
	c.topics[topic] = t
}

// topic gives the state of a topic that is hosted here, made if it is new; its
// configuration is asked for then.
func (b *Broker) topic(name string) *topicState {
	t := b.topics[name]
	if t == nil {
		t = &topicState{name: name, config: b.configs.base()}
		b.topics[name] = t
		b.wantConfigs = append(b.wantConfigs, name)
	}
	return t
}

// TopicConfigsChanged says that topics are configured differently now: the
// change was announced below /config/changes. Topics that are not hosted here
// are of no interest. Nil is all topics.
type TopicConfigsChanged struct{ Topics []string }

func (e TopicConfigsChanged) apply(b *Broker, _ time.Time) {
	if e.Topics == nil {
		e.Topics = slices.Sorted(maps.Keys(b.topics))
	}
	for _, name := range e.Topics {
		if b.topics[name] != nil {
			b.wantConfigs = append(b.wantConfigs, name)
		}
	}
}

// DefaultsChanged says that the broker is configured differently at run time:
// Topic holds for topics that set nothing, Fetchers is num.replica.fetchers.
type DefaultsChanged struct {
	Topic    TopicConfig
	Fetchers int
}

func (e DefaultsChanged) apply(b *Broker, now time.Time) {
	if b.configs == nil {
		return
	}
	if *b.configs.base() != e.Topic {
		b.configs.mu.Lock()
		b.configs.changed = &e.Topic
		b.configs.mu.Unlock()
		TopicConfigsChanged{}.apply(b, now)
	}
	if e.Fetchers > 0 && e.Fetchers != b.fetcherCount() {
		b.configs.fetchers = e.Fetchers
		for _, tp := range slices.SortedFunc(maps.Keys(b.partitions), kafka.TopicPartition.Compare) {
			if p := b.partitions[tp]; p.follow != nil {
				b.startFollowing(p)
			}
		}
	}
}

// flushConfigs asks for all configurations that are wanted, in one effect.
func (b *Broker) flushConfigs() {
	if len(b.wantConfigs) > 0 {
		b.emit(ReadTopicConfigs{Topics: b.wantConfigs, run: b.run})
		b.wantConfigs = nil
	}
}

func (e topicConfigsRead) apply(b *Broker, now time.Time) {
	if e.run != b.run {
		return
	}
	if e.err != nil {
		b.log.WithFields(b.fields()).WithError(e.err).Warn("topic configurations could not be read: tried again")
		b.later(now.Add(time.Second), func(b *Broker, _ time.Time) { b.wantConfigs = append(b.wantConfigs, e.topics...) })
		return
	}
	for i, name := range e.topics {
		if t := b.topics[name]; t != nil {
			t.known = true
			b.configure(t, b.configs.base().With(e.sets[i]))
			b.configs.put(name, *t.config, len(e.sets[i]) > 0)
		}
	}
	waiting := b.unconfigured
	b.unconfigured = nil
	for _, ev := range waiting {
		ev.apply(b, now)
	}
}

// configure puts a configuration in force.
func (b *Broker) configure(t *topicState, c TopicConfig) {
	if *t.config == c {
		return
	}
	if t.config = &c; c == *b.configs.base() {
		t.config = b.configs.base()
	}
	if c.Compact && b.cleanAt.IsZero() {
		b.cleanAt = b.now.Add(cleanerRest)
	}
	for tp, st := range b.disk {
		if tp.Topic == t.name && st.log != nil {
			st.log.SetOptions(c.log())
		}
	}
}

// knows tells whether the configuration of all topics was read; if not, the
// event waits for it.
func (b *Broker) knows(ev Event, topics func(yield func(kafka.TopicPartition) bool)) bool {
	for tp := range topics {
		if p := b.partitions[tp]; p != nil && p.topic != nil && !p.topic.known {
			b.unconfigured = append(b.unconfigured, ev)
			return false
		}
	}
	return true
}
