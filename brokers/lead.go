package brokers

import (
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// lead is what becoming leader in a new epoch does besides taking the entry over
// (spec/broker.md §2.6, 5 to 9).
func (b *Broker) lead(now time.Time, p *partition, newLeader bool) {
	b.stopFollowing(p)
	left := p.waitsOf(func(r *remote) bool { return !isMember(p.assignment.Replicas, r.id) })
	p.reassign(b.opts.ID, b.does, b.wall(now))
	p.epochStart = p.log.LogEndOffset()
	if err := p.log.AssignEpoch(p.leaderEpoch, p.epochStart); err != nil {
		b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithError(err).Error("the leader epoch could not be kept")
		b.storageFailed(now, p, err)
		return
	}
	p.reset(b.does, b.wall(now), newLeader)
	b.suspect(p)
	b.raise(now, p)
	b.rouse(p, wakeFetches|wakeProduces|wakeDeletes)
	for _, f := range left {
		b.complete(now, f)
	}
	b.leadGroups(now, p)
}

// followLeader is the same for becoming follower (spec/broker.md §2.7); before is
// what the partition was.
func (b *Broker) followLeader(now time.Time, p *partition, before *partition) {
	waiting := p.waitsOf(func(*remote) bool { return true })
	p.epochStart = -1
	b.completeProduces(p)     // not later: what they wait for may be cut off, and others come to stand there
	if b.does.previousFetch { // up to 0.10.1 the objects live on
		p.remotes = nil
	}
	for _, f := range waiting {
		b.complete(now, f)
	}
	if before.role == leader {
		b.resignGroups(now, p, p.leaderEpoch)
	}
	b.rouse(p, wakeFetches|wakeProduces|wakeDeletes)
	if !p.fetching {
		b.stopFollowing(p)
		return
	}
	if before.role == follower && before.leader == p.leader && before.follow != nil && !b.does.epochRefetches {
		return
	}
	b.startFollowing(p)
}

// waitsOf gives the fetches that wait here, of the followers that are wanted.
func (p *partition) waitsOf(wanted func(*remote) bool) []*delayedFetch {
	var out []*delayedFetch
	for i := range p.remotes {
		if r := &p.remotes[i]; r.waits != nil && wanted(r) {
			out = append(out, r.waits)
		}
	}
	return out
}

// committed is what a confirmed ISR change does to what waits (spec/broker.md
// §3.4, §5.5): the high watermark is looked at, and those outside are expected
// to come again by themselves.
func (b *Broker) committed(now time.Time, p *partition, change *proposal) {
	if b.does.profile != ProfileC || !b.does.silentCommits {
		b.raise(now, p)
	}
	b.rouse(p, wakeFetches|wakeProduces|wakeDeletes)
	for i := range p.remotes {
		if r := &p.remotes[i]; !isMember(p.isr.isr, r.id) {
			b.owe(now, r.waits) // outside the ISR, each turn is an occasion to join
		}
	}
	b.watchFlapping(now, p, change)
	b.suspect(p)
}

// deleteLog removes a log for good, and answers what waits for it.
func (b *Broker) deleteLog(tp kafka.TopicPartition, p *partition) {
	st := b.disk[tp]
	if st != nil && st.log != nil {
		if err := st.log.Delete(); err != nil {
			b.log.WithFields(b.fields()).WithField("topic", tp.Topic).WithField("partition", tp.Partition).WithError(err).Error("log could not be deleted")
		}
		if len(b.perDir) > 0 {
			b.perDir[st.dir]--
		}
	}
	if p == nil {
		return
	}
	if p.offline {
		b.offline--
	}
	b.resignGroups(b.now, p, -1)
	if t := p.topic; t != nil {
		if t.hosted--; t.hosted == 0 {
			delete(b.topics, t.name)
			b.configs.put(t.name, TopicConfig{}, false)
		}
	}
	p.log, p.role, p.gone = nil, noRole, true
}

// ISRChange is a confirmed change of an ISR, with its cause in words.
type ISRChange struct {
	At    int64            `json:"at"` // ms
	From  []kafka.BrokerID `json:"from"`
	To    []kafka.BrokerID `json:"to"`
	Cause string           `json:"cause"`
}

// flaps remembers the last change of a partition's ISR, and who left it and came
// back (spec/broker.md §11.4).
type flaps struct {
	last    ISRChange
	returns []time.Time // the last ones
	hinted  time.Time
}

const (
	// flapReturns within flapLags times the lag are too many.
	flapReturns = 2
	flapLags    = 10
	hintRest    = time.Minute
)

// watchFlapping says so when an ISR shrinks and grows again and again.
func (b *Broker) watchFlapping(now time.Time, p *partition, change *proposal) {
	if p.flaps == nil {
		p.flaps = &flaps{}
	}
	p.flaps.last = ISRChange{At: b.wall(now).UnixMilli(), From: change.committed, To: p.isr.isr, Cause: change.cause}
	if change.kind != expand {
		return
	}
	f, since := p.flaps, now.Add(-flapLags*b.opts.ReplicaLagTimeMax)
	kept := f.returns[:0]
	for _, at := range f.returns {
		if at.After(since) {
			kept = append(kept, at)
		}
	}
	f.returns = append(kept, now)
	if len(f.returns) <= flapReturns || now.Sub(f.hinted) < hintRest && !f.hinted.IsZero() {
		return
	}
	f.hinted = now
	b.counters.FlappingHints++
	b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithField("returns", len(f.returns)).
		WithField("within", now.Sub(f.returns[0]).String()).WithField("follower", change.who).
		Warn("ISR flaps: a follower falls behind and returns again and again; raise replica.lag.time.max.ms, give followers more fetchers, or smooth bursts of produce (min.insync.replicas does not help)")
}
