package brokers

import (
	"crypto/rand"
	"fmt"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

const (
	// loadBytes of the offsets topic are read at a time, so that others have their turn.
	loadBytes = 1 << 20
	loadRest  = time.Millisecond
)

// Coordinate is a request of the group protocol, of a kind in groups.Served. Its
// Reply is as Fetch's.
type Coordinate struct{ Request groups.Request }

func (e Coordinate) apply(b *Broker, now time.Time) {
	if b.ready(e) && b.groups != nil {
		b.groupAppends(now, b.groups.Handle(now, e.Request))
	}
}

// Coordinate answers a request of the group protocol, of a kind in
// groups.Served. Its Reply is as that of Produce. Without Options.Groups it is
// never answered.
func (n *Node) Coordinate(r groups.Request) { n.Post(Coordinate{r}) }

// newCoordinator makes the coordinator of one life of the process.
func (b *Broker) newCoordinator() error {
	if b.opts.Groups == nil {
		return nil
	}
	o := *b.opts.Groups
	fallback := o.Partitions
	o.Partitions = func() int32 {
		if t := b.cache.Topic(groups.Topic); t != nil {
			return int32(len(t.Partitions))
		}
		if fallback != nil {
			return fallback()
		}
		return groups.DefaultPartitions
	}
	if o.Known == nil {
		o.Known = b.cache.Knows
	}
	if o.MemberID == nil {
		o.MemberID = newUUID
	}
	if o.Told == nil {
		o.Told = func(t groups.Transition) {
			b.log.WithFields(b.fields()).WithField("group", t.Group).WithField("from", fmt.Sprint(t.From)).WithField("to", fmt.Sprint(t.To)).
				WithField("generation", t.Generation).WithField("members", t.Members).WithField("reason", t.Reason).Debug("group changed")
		}
	}
	var err error
	b.groups, err = groups.New(o)
	return err
}

// newUUID is a random UUID.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// groupAppends carries out what the coordinator wants appended.
func (b *Broker) groupAppends(now time.Time, appends []groups.Append) {
	for len(appends) > 0 {
		a := appends[0]
		appends = appends[1:]
		if code, waits := b.groupAppend(now, a); !waits {
			appends = append(appends, b.groups.Appended(now, a.Token, code)...)
		}
	}
}

// groupAppend appends one batch; waits says that the coordinator hears of it later.
func (b *Broker) groupAppend(now time.Time, a groups.Append) (code kafka.ErrorCode, waits bool) {
	tp := kafka.TopicPartition{Topic: groups.Topic, Partition: a.Partition}
	p, code := b.led(tp)
	if code == kafka.NoError && p.leaderEpoch != a.Epoch {
		code = kafka.NotLeaderOrFollower
	}
	if code != kafka.NoError {
		return code, false
	}
	info, code := b.appendTo(now, p, a.Acks, a.Batch)
	switch {
	case code != kafka.NoError || a.Acks != AcksAll:
		return code, false
	case info.LastOffset < p.log.HighWatermark():
		return b.committedCode(p), false
	}
	d := &delayedProduce{open: 1, results: []ProduceResult{{Partition: tp, Error: kafka.RequestTimedOut, BaseOffset: info.BaseOffset}}}
	d.reply = func(r []ProduceResult) { b.groupAppends(b.now, b.groups.Appended(b.now, a.Token, r[0].Error)) }
	p.await(produceWait{d, 0, info.LastOffset + 1})
	b.alarms.set(d, now.Add(a.Timeout))
	return kafka.NoError, true
}

// leadGroups begins to coordinate the groups of a partition of the offsets topic.
func (b *Broker) leadGroups(now time.Time, p *partition) {
	if b.groups == nil || p.tp.Topic != groups.Topic || !b.groups.Lead(now, p.tp.Partition, p.leaderEpoch) {
		return
	}
	b.loadGroups(now, p, p.log.LogStartOffset())
}

// loadGroups reads the groups' records from an offset on, a piece at a time.
func (b *Broker) loadGroups(now time.Time, p *partition, from int64) {
	if b.partitions[p.tp] != p || p.role != leader || p.log == nil {
		return // resigned meanwhile
	}
	log := b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition)
	batches, err := p.log.Read(max(from, p.log.LogStartOffset()), loadBytes, p.log.LogEndOffset(), true)
	if err != nil {
		log.WithError(err).Error("groups could not be loaded whole")
		batches = nil
	}
	for _, records := range batches {
		if err := b.groups.Load(p.tp.Partition, records); err != nil {
			log.WithError(err).Error("some groups could not be loaded")
		}
		from = lastOffset(records) + 1
	}
	if len(batches) > 0 && from < p.log.LogEndOffset() {
		b.later(now.Add(loadRest), func(b *Broker, now time.Time) { b.loadGroups(now, p, from) })
		return
	}
	b.groupAppends(now, b.groups.Loaded(now, p.tp.Partition))
}

// resignGroups ends that; a negative epoch says that the partition is gone.
func (b *Broker) resignGroups(now time.Time, p *partition, epoch int32) {
	if b.groups != nil && p.tp.Topic == groups.Topic {
		b.groups.Resign(now, p.tp.Partition, epoch)
	}
}

// lastOffset is that of the last of some whole batches, -1 without any.
func lastOffset(records []byte) int64 {
	last := int64(-1)
	for b := range commitlog.Batches(records) {
		last = b.LastOffset()
	}
	return last
}

// forgetDeleted lets groups forget the offsets of partitions that are deleted.
func (b *Broker) forgetDeleted(now time.Time, r *control.UpdateMetadataRequest) {
	if r.Metadata == nil {
		return
	}
	var gone []kafka.TopicPartition
	for _, p := range r.Partitions {
		if p.Leader == kafka.LeaderDuringDelete {
			gone = append(gone, p.TopicPartition)
		}
	}
	if len(gone) > 0 {
		b.groupAppends(now, b.groups.TopicsDeleted(now, gone))
	}
}
