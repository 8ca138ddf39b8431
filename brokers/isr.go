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
}

// shrinkAll is one run of Kafka's isr-expiration task (spec/broker.md §3).
func (b *Broker) shrinkAll(now time.Time) {
	var tps []kafka.TopicPartition
	for tp, p := range b.partitions {
		if len(b.outOfSync(now, p)) > 0 {
			tps = append(tps, tp)
		}
	}
	kafka.SortPartitions(tps)
	for _, tp := range tps {
		p := b.partitions[tp]
		b.submit(now, p, p.proposeShrink(b.outOfSync(now, p)))
	}
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
		b.submit(now, p, p.proposeExpand(r.Broker))
	}
	if !slices.Contains(p.isr.isr, r.Broker) {
		b.repl.Watch(now.Add(b.opts.ReplicaFetchWait), p.tp, r.Broker)
	}
}

func (b *Broker) mayJoin(now time.Time, p *partition, id kafka.BrokerID) bool {
	return p.isr.pending == nil && !slices.Contains(p.isr.isr, id) &&
		(!b.does.joinersMustLive || b.cache.Alive(id)) && b.repl.MayJoin(now, p.tp, id)
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
		WithField("zk_version", got.ZKVersion).Info("ISR changed")
	p.isr = isrState{isr: got.ISR}
	p.partitionEpoch = got.ZKVersion
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
	for _, row := range e.rows {
		b.settle(now, row)
	}
}

func (b *Broker) settle(now time.Time, row isrWritten) {
	if row.ok {
		// Announced even if a LeaderAndIsr came meanwhile: the znode did change.
		b.announcer.Record(row.Partition, now)
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
		if b.does.failedMeter {
			b.counters.FailedISRUpdates++
		}
		log.Info("ISR change refused: ZooKeeper has another version")
	} else {
		log.WithError(row.err).Error("ISR change could not be written")
	}
	if b.does.metersAttempts {
		b.mark(row.proposal.kind)
	}
	if b.does.profile == ProfileA { // it never was pending: the next occasion tries again
		p.isr = isrState{isr: row.proposal.committed}
	}
}

// checkAnnouncements is one run of Kafka's isr-change-propagation task (spec/broker.md §6.3).
func (b *Broker) checkAnnouncements(now time.Time) {
	if b.announcing {
		return // the last one is still with ZooKeeper
	}
	if batches, ok := b.announcer.Check(now); ok {
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
		b.announcer.Sent(batch, now)
	}
	if e.err != nil {
		b.announcer.Failed()
		b.log.WithFields(b.fields()).WithError(e.err).Error("ISR changes could not be announced: tried again at the next check")
	}
}
