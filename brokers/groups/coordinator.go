package groups

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Topic is where groups and their offsets are kept.
const Topic = kafka.OffsetsTopic

// DefaultPartitions is offsets.topic.num.partitions where nothing else is said.
const DefaultPartitions = 50

// TopicConfig is what Kafka configures the offsets topic with when it makes it.
func TopicConfig() map[string]string {
	return map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
}

// Options are Kafka's group.* and offsets.* keys. Zero values mean zero: start
// from DefaultOptions.
type Options struct {
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms
	MaxSize               int           // group.max.size
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms
	OffsetsRetention      time.Duration // offsets.retention.minutes
	RetentionCheck        time.Duration // offsets.retention.check.interval.ms
	CommitTimeout         time.Duration // offsets.commit.timeout.ms: how long an append may take
	MaxOffsetMetadata     int           // offset.metadata.max.bytes: characters, as Kafka counts

	// Version is inter.broker.protocol.version: it chooses the versions of the
	// records. The zero value is the newest.
	Version kafka.ProtocolVersion
	// Partitions is how many partitions the offsets topic has now, or will have.
	// Nil, or a count below one, is DefaultPartitions.
	Partitions func() int32
	// Known tells whether a partition exists. Nil knows all.
	Known func(kafka.TopicPartition) bool
	// MemberID gives the random part of a new member's id: a UUID. It must be there.
	MemberID func() string
	// Told hears of each change of a group's state. It may be nil, must not
	// block and must not call the Coordinator.
	Told func(Transition)
}

// DefaultOptions are Kafka's defaults. MemberID is still to be set.
func DefaultOptions() Options {
	return Options{
		MinSessionTimeout:     6 * time.Second,
		MaxSessionTimeout:     30 * time.Minute,
		MaxSize:               math.MaxInt32,
		InitialRebalanceDelay: 3 * time.Second,
		OffsetsRetention:      7 * 24 * time.Hour,
		RetentionCheck:        10 * time.Minute,
		CommitTimeout:         5 * time.Second,
		MaxOffsetMetadata:     4096,
	}
}

func (o Options) check() error {
	switch {
	case o.MemberID == nil:
		return errors.New("groups: Options.MemberID is missing; give a source of UUIDs")
	case o.MinSessionTimeout > o.MaxSessionTimeout:
		return fmt.Errorf("groups: group.min.session.timeout.ms=%d is above group.max.session.timeout.ms=%d; raise the one or lower the other",
			o.MinSessionTimeout.Milliseconds(), o.MaxSessionTimeout.Milliseconds())
	case o.MaxSize < 1:
		return fmt.Errorf("groups: group.max.size=%d lets nobody join; set 1 or more", o.MaxSize)
	case o.RetentionCheck <= 0:
		return fmt.Errorf("groups: offsets.retention.check.interval.ms=%d must be 1 or more", o.RetentionCheck.Milliseconds())
	case o.OffsetsRetention <= 0:
		return fmt.Errorf("groups: offsets.retention.minutes=%g must be 1 or more", o.OffsetsRetention.Minutes())
	}
	return nil
}

// Transition is one change of a group's state, for logs and metrics.
type Transition struct {
	Group      string
	From, To   State
	Generation int32
	Members    int
	Reason     string // with what the client said (KIP-800)
}

// Request is a client's request. The Coordinator keeps what the request points
// to, so its memory is not to be written to again. Reply is called once, at once or later, or
// never if the process dies first; it must not block and must not call the
// Coordinator.
type Request struct {
	Request    kmsg.Request // decoded, with the version that was asked
	ClientID   string
	ClientHost string // IP address, without port
	Reply      func(kmsg.Response)
}

// Token names an append. Later appends have higher tokens.
type Token uint64

// Append is a record batch for a partition of the offsets topic. The owner
// appends it if it still leads the partition in this epoch, and calls Appended
// once with the outcome: with acks all when it is committed, NOT_ENOUGH_REPLICAS
// or whatever else refuses it, REQUEST_TIMED_OUT after Timeout.
type Append struct {
	Token     Token
	Partition int32
	Epoch     int32 // leader epoch that Lead was called with
	Acks      int16 // -1: all; 0: tombstones, which are made again when they get lost
	Timeout   time.Duration
	Batch     []byte // one whole batch of format v2, base offset 0; the owner may write into it
}

// Versions of a request kind that Handle serves.
type Versions struct {
	Key      kmsg.Key
	Min, Max int16
}

// Served lists the requests that Handle serves, by key. FindCoordinator is the
// port's: it needs the cluster's metadata and PartitionFor.
func Served() []Versions {
	return []Versions{
		{kmsg.OffsetCommit, 0, 9}, {kmsg.OffsetFetch, 0, 9},
		{kmsg.JoinGroup, 0, 9}, {kmsg.Heartbeat, 0, 4}, {kmsg.LeaveGroup, 0, 5}, {kmsg.SyncGroup, 0, 5},
		{kmsg.DescribeGroups, 0, 5}, {kmsg.ListGroups, 0, 5}, {kmsg.DeleteGroups, 0, 2}, {kmsg.OffsetDelete, 0, 0},
	}
}

// Coordinator coordinates the groups of the offsets partitions that one broker
// leads. It is not safe for concurrent use.
type Coordinator struct {
	o          Options
	partitions map[int32]*partition
	inFlight   map[Token]*inFlight
	last       Token
	out        []Append
	due        dueGroups
	nextCheck  time.Time // of expired offsets; zero while nothing is led
}

// partition is one partition of the offsets topic that is led here.
type partition struct {
	n      int32
	epoch  int32
	loader *loader // while loading
	groups map[string]*group
}

// inFlight is an append that has not come to its end.
type inFlight struct {
	partition *partition
	done      func(now time.Time, code kafka.ErrorCode) // nil: nobody waits
}

// New makes a coordinator that leads nothing yet.
func New(o Options) (*Coordinator, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Coordinator{o: o, partitions: map[int32]*partition{}, inFlight: map[Token]*inFlight{}}, nil
}

// PartitionFor is the partition of Topic that keeps a group.
func (c *Coordinator) PartitionFor(group string) int32 {
	n := int32(0)
	if c.o.Partitions != nil {
		n = c.o.Partitions()
	}
	if n < 1 {
		n = DefaultPartitions
	}
	return kafka.GroupPartition(group, n)
}

// Lead says that this broker leads a partition in an epoch now. It reports
// whether the partition is to be loaded: then its groups are refused with
// COORDINATOR_LOAD_IN_PROGRESS until Loaded. One that was led already keeps its
// groups, and an older epoch changes nothing.
func (c *Coordinator) Lead(now time.Time, n, epoch int32) (load bool) {
	if p := c.partitions[n]; p != nil {
		p.epoch = max(p.epoch, epoch)
		return false
	}
	if len(c.partitions) == 0 {
		c.nextCheck = now.Add(c.o.RetentionCheck)
	}
	c.partitions[n] = &partition{n: n, epoch: epoch, loader: newLoader(), groups: map[string]*group{}}
	return true
}

// Load takes whole record batches of a partition that is loading, in the order
// of the log. The error names what could not be read; the rest was taken.
// Batches for a partition that is not loading are left alone.
func (c *Coordinator) Load(n int32, batches []byte) error {
	p := c.partitions[n]
	if p == nil || p.loader == nil {
		return nil
	}
	if err := p.loader.batches(batches); err != nil {
		return fmt.Errorf("load %s-%d: %w; what cannot be read is left out", Topic, n, err)
	}
	return nil
}

// Loaded ends the loading of a partition: its groups are served from now on.
func (c *Coordinator) Loaded(now time.Time, n int32) []Append {
	p := c.partitions[n]
	if p == nil || p.loader == nil {
		return nil
	}
	groups := p.loader.finish(p, now)
	p.loader = nil
	for _, g := range groups {
		p.groups[g.id] = g
		if len(g.members) > c.o.MaxSize {
			c.prepareRebalance(now, g, "the group is larger than group.max.size, as loaded")
		}
		for _, m := range g.order {
			c.expectHeartbeat(now, g, m, m.session)
		}
		c.settle(now, g)
	}
	return c.take()
}

// Resign says that this broker does not lead a partition any more, as of an
// epoch; a negative epoch means that the partition is gone. An older epoch than
// that of Lead changes nothing. Whoever waits is told NOT_COORDINATOR.
func (c *Coordinator) Resign(now time.Time, n, epoch int32) {
	p := c.partitions[n]
	if p == nil || epoch >= 0 && epoch < p.epoch {
		return
	}
	delete(c.partitions, n)
	if len(c.partitions) == 0 {
		c.nextCheck = time.Time{}
	}
	for _, id := range slices.Sorted(maps.Keys(p.groups)) {
		g := p.groups[id]
		c.move(now, g, Dead, "this broker does not lead "+Topic+" any more")
		for _, m := range g.order {
			g.answerJoin(m, joinError(m.id, kafka.NotCoordinator))
			g.answerSync(m, syncResult{code: kafka.NotCoordinator})
		}
		c.due.remove(g)
	}
	for _, t := range slices.Sorted(maps.Keys(c.inFlight)) {
		if f := c.inFlight[t]; f.partition == p {
			c.end(now, t, kafka.NotLeaderOrFollower)
		}
	}
	c.out = nil // nothing of what the answers led to can be appended here
}

// Appended tells how an append ended. A token that is not known, or known no
// more, is left alone.
func (c *Coordinator) Appended(now time.Time, t Token, code kafka.ErrorCode) []Append {
	c.end(now, t, code)
	return c.take()
}

func (c *Coordinator) end(now time.Time, t Token, code kafka.ErrorCode) {
	f := c.inFlight[t]
	delete(c.inFlight, t)
	if f != nil && f.done != nil {
		f.done(now, code)
	}
}

// TopicsDeleted forgets the offsets of partitions that are no more.
func (c *Coordinator) TopicsDeleted(now time.Time, gone []kafka.TopicPartition) []Append {
	c.eachGroup(func(g *group) { c.forget(now, g, g.without(gone)) })
	return c.take()
}

// Tick does what time alone brings about, once Deadline has come. Earlier or
// later is harmless.
func (c *Coordinator) Tick(now time.Time) []Append {
	for g := c.due.first(); g != nil && !g.next.After(now); g = c.due.first() {
		c.settle(now, g)
	}
	if !c.nextCheck.IsZero() && !c.nextCheck.After(now) {
		c.nextCheck = now.Add(c.o.RetentionCheck)
		c.eachGroup(func(g *group) { c.forget(now, g, g.expired(now, c.o.OffsetsRetention)) })
	}
	return c.take()
}

// Deadline is when Tick is due next, or false.
func (c *Coordinator) Deadline() (time.Time, bool) {
	at := c.nextCheck
	if g := c.due.first(); g != nil && (at.IsZero() || g.next.Before(at)) {
		at = g.next
	}
	return at, !at.IsZero()
}

// Led lists the partitions led here, loading or loaded.
func (c *Coordinator) Led() []int32 { return slices.Sorted(maps.Keys(c.partitions)) }

func (c *Coordinator) eachGroup(f func(g *group)) {
	for _, n := range c.Led() {
		p := c.partitions[n]
		for _, id := range slices.Sorted(maps.Keys(p.groups)) {
			f(p.groups[id])
		}
	}
}

func (c *Coordinator) take() []Append {
	out := c.out
	c.out = nil
	return out
}

// append sends records on their way; done, if not nil, hears how it ended.
func (c *Coordinator) append(now time.Time, p *partition, acks int16, records []record, done func(now time.Time, code kafka.ErrorCode)) Token {
	c.last++
	c.inFlight[c.last] = &inFlight{partition: p, done: done}
	c.out = append(c.out, Append{Token: c.last, Partition: p.n, Epoch: p.epoch, Acks: acks, Timeout: c.o.CommitTimeout, Batch: encodeBatch(records, now)})
	return c.last
}

// Handle serves a request of one of the kinds in Served.
func (c *Coordinator) Handle(now time.Time, r Request) []Append {
	switch req := r.Request.(type) {
	case *kmsg.JoinGroupRequest:
		c.handleJoin(now, r, req)
	case *kmsg.SyncGroupRequest:
		c.handleSync(now, r, req)
	case *kmsg.HeartbeatRequest:
		c.handleHeartbeat(now, r, req)
	case *kmsg.LeaveGroupRequest:
		c.handleLeave(now, r, req)
	case *kmsg.OffsetCommitRequest:
		c.handleOffsetCommit(now, r, req)
	case *kmsg.OffsetFetchRequest:
		c.handleOffsetFetch(r, req)
	case *kmsg.OffsetDeleteRequest:
		c.handleOffsetDelete(now, r, req)
	case *kmsg.DescribeGroupsRequest:
		c.handleDescribe(r, req)
	case *kmsg.ListGroupsRequest:
		c.handleList(r, req)
	case *kmsg.DeleteGroupsRequest:
		c.handleDelete(now, r, req)
	default:
		panic(fmt.Sprintf("groups: a request of kind %T is not in Served", r.Request))
	}
	return c.take()
}

// find gives a group's partition, or why it is not served. Requests that came
// before there was membership take the empty name, too.
func (c *Coordinator) find(id string, emptyName bool) (*partition, kafka.ErrorCode) {
	if id == "" && !emptyName || len(id) > maxString {
		return nil, invalidGroupID
	}
	p := c.partitions[c.PartitionFor(id)]
	switch {
	case p == nil:
		return nil, kafka.NotCoordinator
	case p.loader != nil:
		return nil, kafka.CoordinatorLoadInProgress
	}
	return p, kafka.NoError
}

func (c *Coordinator) newGroup(now time.Time, p *partition, id string) *group {
	g := newGroup(p, id, now)
	p.groups[id] = g
	return g
}

// move changes a group's state.
func (c *Coordinator) move(now time.Time, g *group, to State, reason string) {
	from := g.state
	g.state, g.since = to, now.UnixMilli()
	if c.o.Told != nil {
		c.o.Told(Transition{Group: g.id, From: from, To: to, Generation: g.generation, Members: len(g.members), Reason: reason})
	}
}
