package brokers

import (
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Counters are the meters of spec/broker.md §11.3.
type Counters struct {
	ISRShrinks       int `json:"isr_shrinks"`
	ISRExpands       int `json:"isr_expands"`
	FailedISRUpdates int `json:"failed_isr_updates"`

	MessagesIn           int64 `json:"messages_in"`
	BytesIn              int64 `json:"bytes_in"`
	BytesOut             int64 `json:"bytes_out"` // to clients
	ReplicationBytesIn   int64 `json:"replication_bytes_in"`
	ProduceExpires       int   `json:"produce_expires"` // rows of acks=all that timed out
	FollowerFetchExpires int   `json:"follower_fetch_expires"`
	ConsumerFetchExpires int   `json:"consumer_fetch_expires"`
	FlappingHints        int   `json:"flapping_hints"`
	CommittedRecordsLost int64 `json:"committed_records_lost"` // cut off a follower's log below its high watermark
}

// shrinkAll is one run of Kafka's isr-expiration task (spec/broker.md §3).
func (b *Broker) shrinkAll(now time.Time) {
	var tps []kafka.TopicPartition
	look := func(p *partition) {
		if len(b.outOfSync(now, p)) > 0 {
			tps = append(tps, p.tp)
		}
	}
	if b.opts.Logs == nil {
		for _, p := range b.partitions {
			look(p)
		}
	} else {
		b.eachSuspect(look)
	}
	kafka.SortPartitions(tps)
	for _, tp := range tps {
		p := b.partitions[tp]
		gone := b.outOfSync(now, p)
		change := p.proposeShrink(gone)
		change.cause = b.whyOut(now, p, gone)
		b.submit(now, p, change)
	}
}

// suspect notes that a member of the ISR may be behind, so that the shrink check
// need not walk the partitions where nobody is.
func (b *Broker) suspect(p *partition) {
	if !p.suspected && len(p.isr.isr) > 1 {
		p.suspected = true
		b.suspects = append(b.suspects, p)
	}
}

// eachSuspect visits the partitions where somebody may have fallen out, and
// forgets those where all members of the ISR are at the log's end.
func (b *Broker) eachSuspect(look func(*partition)) {
	kept := b.suspects[:0]
	for _, p := range b.suspects {
		if p.suspected = b.partitions[p.tp] == p && p.role == leader && !p.offline && b.mayShrink(p); p.suspected {
			kept = append(kept, p)
			look(p)
		}
	}
	clear(b.suspects[len(kept):])
	b.suspects = kept
}

func (b *Broker) mayShrink(p *partition) bool {
	if !b.does.equalEndsStay {
		return len(p.isr.isr) > 1
	}
	for _, id := range p.isr.isr {
		if id == b.opts.ID {
			continue
		}
		if r := p.remote(id); r == nil || r.end != p.log.LogEndOffset() {
			return true
		}
	}
	return false
}

// outOfSync gives whom a leader takes out now: nobody while a change is in
// flight; a member that is no replica any more regardless of time.
func (b *Broker) outOfSync(now time.Time, p *partition) []kafka.BrokerID {
	if p.role != leader || p.offline || p.isr.pending != nil {
		return nil
	}
	var gone []kafka.BrokerID
	for _, id := range p.isr.isr {
		if id != b.opts.ID && (!slices.Contains(p.assignment.Replicas, id) || b.repl.OutOfSync(now, p.tp, id)) {
			gone = append(gone, id)
		}
	}
	return gone
}

// fetched is a follower's fetch: the only occasion to join (spec/broker.md §4.1).
func (b *Broker) fetched(now time.Time, r kafka.PartitionReplica) {
	p := b.partitions[r.TopicPartition]
	if p == nil || p.role != leader || p.offline || !slices.Contains(p.assignment.Replicas, r.Broker) {
		return
	}
	if b.mayJoin(now, p, r.Broker) {
		change := p.proposeExpand(r.Broker)
		change.cause = b.whyIn(p, r.Broker)
		b.submit(now, p, change)
	}
	if !slices.Contains(p.isr.isr, r.Broker) {
		b.repl.Watch(now.Add(b.opts.ReplicaFetchWait), p.tp, r.Broker)
	}
}

func (b *Broker) mayJoin(now time.Time, p *partition, id kafka.BrokerID) bool {
	return p.isr.pending == nil && !slices.Contains(p.isr.isr, id) &&
		b.eligible(id) && b.repl.MayJoin(now, p.tp, id)
}

// submit puts a change in flight (spec/broker.md §5).
func (b *Broker) submit(now time.Time, p *partition, change *proposal) {
	p.isr.pending = change
	b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).
		WithField("isr", change.isr).WithField("zk_version", change.partitionEpoch).Debug("ISR change proposed: " + change.kind.String())
	if b.does.profile != ProfileC {
		b.writes = append(b.writes, ISRWrite{Partition: p.tp, Leadership: p.leading(change.isr), proposal: change})
		return
	}
	if !b.alter.put(&alterItem{tp: p.tp, topicID: p.topicID, proposal: change}) {
		// An older proposal of this partition still waits for its answer (spec/broker.md §5.6).
		p.isr = isrState{isr: change.committed}
		b.counters.FailedISRUpdates++
		return
	}
	b.propagate(now)
}

// commit applies a successful answer (spec/broker.md §5.5, 2 and 3). The
// caller has checked that the change is still the one in flight.
func (b *Broker) commit(now time.Time, p *partition, change *proposal, got kafka.LeaderAndISR) {
	log := b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition)
	if got.LeaderEpoch != p.leaderEpoch || got.ZKVersion < p.partitionEpoch {
		b.counters.FailedISRUpdates++
		log.WithField("leader_epoch", got.LeaderEpoch).WithField("zk_version", got.ZKVersion).
			Warn("ISR change answered for other epochs: ignored")
		return
	}
	b.mark(change.kind)
	log.WithField("from", change.committed).WithField("isr", got.ISR).WithField("leader_epoch", got.LeaderEpoch).
		WithField("zk_version", got.ZKVersion).WithField("cause", change.cause).Info("ISR changed")
	p.isr = isrState{isr: got.ISR}
	p.partitionEpoch = got.ZKVersion
	if b.opts.ISRChanged != nil {
		b.opts.ISRChanged(p.tp, ISRChange{At: b.wall(now).UnixMilli(), From: change.committed, To: got.ISR, Cause: change.cause})
	}
	if p.log != nil {
		b.committed(now, p, change)
	}
	for _, id := range change.committed {
		if !slices.Contains(got.ISR, id) {
			b.repl.Watch(now, p.tp, id)
		}
	}
}

func (b *Broker) mark(kind proposalKind) {
	if kind == shrink {
		b.counters.ISRShrinks++
	} else {
		b.counters.ISRExpands++
	}
}

// watchOutsiders asks for the fetches of everybody who is not in the ISR.
func (b *Broker) watchOutsiders(now time.Time, p *partition) {
	for _, id := range p.assignment.Replicas {
		if id != b.opts.ID && !slices.Contains(p.isr.isr, id) {
			b.repl.Watch(now, p.tp, id)
		}
	}
}

// apply settles direct writes (spec/broker.md §5.1 and §5.2).
func (e isrsWritten) apply(b *Broker, now time.Time) {
	if e.run != b.run {
		return
	}
	broken := false
	for _, row := range e.rows {
		failed := row.err != nil && row.proposal.kind == shrink
		if broken && failed && !b.does.swallowsErrors {
			b.skip(row)
			continue
		}
		broken = broken || failed
		b.settle(now, row)
	}
}

// skip gives up a shrink whose round ended, because of an error, before Kafka
// would have come to it: the next check looks anew (spec/broker.md §3.1, §5.2).
func (b *Broker) skip(row isrWritten) {
	if p := b.partitions[row.Partition]; p != nil && p.isr.pending.equal(row.proposal) {
		p.isr = isrState{isr: row.proposal.committed}
	}
}

func (b *Broker) settle(now time.Time, row isrWritten) {
	if row.ok && b.does.announces {
		// Announced even if a LeaderAndIsr came meanwhile: the znode did change.
		b.announcer.Record(row.Partition, b.wall(now))
	}
	p := b.partitions[row.Partition]
	if p == nil || !p.isr.pending.equal(row.proposal) {
		return
	}
	log := b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).
		WithField("zk_version", p.partitionEpoch)
	if row.ok {
		b.commit(now, p, row.proposal, kafka.LeaderAndISR{Leader: p.leader, LeaderEpoch: row.Leadership.LeaderEpoch,
			ISR: row.proposal.isr, ZKVersion: row.version})
		return
	}
	if row.err == nil {
		log.Info("ISR change refused: ZooKeeper has another version")
	} else {
		log.WithError(row.err).Error("ISR change could not be written")
	}
	if row.err == nil || b.does.swallowsErrors { // else it is nobody's attempt
		if b.does.failedMeter {
			b.counters.FailedISRUpdates++
		}
		if b.does.metersAttempts {
			b.mark(row.proposal.kind)
		}
	}
	if b.does.profile == ProfileA { // it never was pending: the next occasion tries again
		p.isr = isrState{isr: row.proposal.committed}
		if p.log != nil {
			b.raise(now, p) // the fetch that wanted in looks after the attempt; ours did with the joiner in the set
		}
	}
}

// checkAnnouncements is one run of Kafka's isr-change-propagation task (spec/broker.md §6.3).
func (b *Broker) checkAnnouncements(now time.Time) {
	if b.announcing {
		return // the last one is still with ZooKeeper
	}
	if batches, ok := b.announcer.Check(b.wall(now)); ok {
		b.announcing = true
		b.emit(Announce{Batches: batches, run: b.run})
	}
}

func (e announced) apply(b *Broker, now time.Time) {
	if e.run != b.run {
		return
	}
	b.announcing = false
	for _, batch := range e.sent {
		b.announcer.Sent(batch, b.wall(now))
	}
	if e.err != nil {
		b.announcer.Failed()
		b.log.WithFields(b.fields()).WithError(e.err).Error("ISR changes could not be announced: tried again at the next check")
	}
}
