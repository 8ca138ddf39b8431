package brokers

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// never is a time that a follower has not had yet (spec/broker.md §2.3). It is
// a time like any other, so a clock that begins near it is a trap (§0.4).
const never int64 = 0

// remote is what a leader knows of one follower (spec/broker.md §2.3). Times are
// milliseconds of the leader's clock.
type remote struct {
	id             kafka.BrokerID
	logStart       int64
	end            int64 // the offset that its last fetch asked for
	fetchLeaderEnd int64 // our log's end at that fetch
	fetchTime      int64
	caughtUp       int64
	brokerEpoch    int64
	told           int64         // high watermark of the last answer (2.4 and 2.5)
	waits          *delayedFetch // its fetch that waits here, if any
	row            int           // of waits
}

func newRemote(id kafka.BrokerID) remote {
	return remote{id: id, logStart: -1, end: -1, brokerEpoch: kafka.NoBrokerEpoch, told: -1}
}

// caughtUpAt is the caught-up test of spec/broker.md §2.3.
func (r *remote) caughtUpAt(now, leaderEnd int64, lag time.Duration) bool {
	return r.end == leaderEnd || now-r.caughtUp <= lag.Milliseconds()
}

// fetched is spec/broker.md §2.4: a fetch from an offset, the leader's end being
// leaderEnd before anything was read.
func (r *remote) fetched(d behaviour, offset, logStart, leaderEnd, now, brokerEpoch int64) {
	switch {
	case d.messageLag: // 0.8: the time of the last fetch
		r.caughtUp = max(r.caughtUp, now)
	case offset >= leaderEnd:
		r.caughtUp = max(r.caughtUp, now)
	case d.previousFetch && offset >= r.fetchLeaderEnd:
		r.caughtUp = max(r.caughtUp, r.fetchTime)
	}
	r.logStart, r.end, r.fetchTime, r.brokerEpoch = logStart, offset, now, brokerEpoch
	if d.keepsLeaderEnd {
		leaderEnd = max(leaderEnd, r.fetchLeaderEnd)
	}
	r.fetchLeaderEnd = leaderEnd
}

// failed is what a refused fetch did to the state up to 2.3.
func (r *remote) failed() { r.end, r.fetchLeaderEnd, r.fetchTime = -1, -1, -1 }

// renew makes up for the fetches that a follower in this process would have sent
// meanwhile, had its waiting fetch not been prolonged: one every MaxWait, each
// at the log's end.
func (r *remote) renew(b *Broker) {
	f := r.waits
	if f == nil || !f.prolonged {
		return
	}
	if at := b.wall(f.lastTurn(b.now)).UnixMilli(); at > r.fetchTime {
		r.fetchTime, r.caughtUp = at, max(r.caughtUp, at)
		r.fetchLeaderEnd = max(r.fetchLeaderEnd, r.end)
	}
}

// remote gives the state of a follower, or nil.
func (p *partition) remote(id kafka.BrokerID) *remote {
	for i := range p.remotes {
		if p.remotes[i].id == id {
			return &p.remotes[i]
		}
	}
	return nil
}

// reassign makes the followers those of the assignment; what is known of one
// that stays is kept.
func (p *partition) reassign(self kafka.BrokerID, d behaviour, now time.Time) {
	remotes := make([]remote, 0, len(p.assignment.Replicas))
	for _, id := range p.assignment.Replicas {
		if id == self {
			continue
		}
		if r := p.remote(id); r != nil {
			remotes = append(remotes, *r)
			continue
		}
		r := newRemote(id)
		if !d.previousFetch { // spec/broker.md §2.4: the replica object's creation
			r.caughtUp = now.UnixMilli()
		}
		remotes = append(remotes, r)
	}
	p.remotes = remotes
}

// reset is what becoming leader in a new epoch does to the followers' states
// (spec/broker.md §2.6).
func (p *partition) reset(d behaviour, now time.Time, newLeader bool) {
	ms := now.UnixMilli()
	for i := range p.remotes {
		r := &p.remotes[i]
		in := slices.Contains(p.isr.isr, r.id)
		switch {
		case !d.previousFetch: // up to 0.10.1
			if newLeader {
				r.end = -1
			}
			continue
		case newLeader:
			r.logStart, r.end, r.fetchLeaderEnd, r.fetchTime, r.brokerEpoch = -1, -1, -1, never, kafka.NoBrokerEpoch
		default:
			r.fetchLeaderEnd, r.fetchTime = p.epochStart, never
			if in || !d.keepsLeaderEnd {
				r.fetchTime = ms
			}
		}
		r.caughtUp = never
		if in {
			r.caughtUp = ms
		}
	}
}

// eligible tells whether a follower may be let into the ISR as far as its broker
// is concerned (spec/broker.md §4.1, 4).
func (b *Broker) eligible(id kafka.BrokerID) bool {
	return !b.does.joinersMustLive || b.cache.Alive(id)
}

// logged is Replication over logs: what a follower has fetched decides.
type logged struct{ b *Broker }

// Lead has nothing to do: the partition's own state says it all.
func (logged) Lead(time.Time, Leading) {}

// Unlead has nothing to do.
func (logged) Unlead(kafka.TopicPartition) {}

// Watch has nothing to do: followers come by themselves.
func (logged) Watch(time.Time, kafka.TopicPartition, kafka.BrokerID) {}

// Due gives nothing: fetches are events.
func (logged) Due(time.Time) []kafka.PartitionReplica { return nil }

// Next is never.
func (logged) Next() (time.Time, bool) { return time.Time{}, false }

// Changed has nothing to do.
func (logged) Changed(time.Time, kafka.BrokerID, []kafka.TopicPartition) {}

// MayJoin is spec/broker.md §4.1, 5 and 6.
func (l logged) MayJoin(_ time.Time, tp kafka.TopicPartition, id kafka.BrokerID) bool {
	p := l.b.partitions[tp]
	r := p.remote(id)
	return r != nil && r.end >= p.log.HighWatermark() && (!l.b.does.joinsAtEpochStart || r.end >= p.epochStart)
}

// OutOfSync is spec/broker.md §3.2.
func (l logged) OutOfSync(now time.Time, tp kafka.TopicPartition, id kafka.BrokerID) bool {
	p := l.b.partitions[tp]
	r := p.remote(id)
	if r == nil {
		return true
	}
	r.renew(l.b)
	now = l.b.wall(now)
	end := p.log.LogEndOffset()
	if l.b.does.equalEndsStay && r.end == end {
		return false
	}
	if l.b.does.messageLag && r.end >= 0 && end-r.end > maxLagMessages {
		return true
	}
	return now.UnixMilli()-r.caughtUp > l.b.opts.ReplicaLagTimeMax.Milliseconds()
}

// maxLagMessages is replica.lag.max.messages of 0.8.
const maxLagMessages = 4000

// whyOut gives the cause of a shrink in words.
func (b *Broker) whyOut(now time.Time, p *partition, gone []kafka.BrokerID) string {
	if p.log == nil {
		return "behind for longer than replica.lag.time.max.ms"
	}
	var out []string
	for _, id := range gone {
		r := p.remote(id)
		switch {
		case r == nil:
			out = append(out, fmt.Sprintf("broker %d is no replica any more", id))
		case r.caughtUp == never:
			out = append(out, fmt.Sprintf("broker %d never caught up, LEO %d of %d", id, r.end, p.log.LogEndOffset()))
		default:
			age := time.Duration(b.wall(now).UnixMilli()-r.caughtUp) * time.Millisecond
			out = append(out, fmt.Sprintf("broker %d last caught up %.1f s ago, LEO %d of %d", id, age.Seconds(), r.end, p.log.LogEndOffset()))
		}
	}
	return strings.Join(out, "; ")
}

// whyIn gives the cause of an expansion in words.
func (b *Broker) whyIn(p *partition, id kafka.BrokerID) string {
	if p.log == nil {
		return fmt.Sprintf("broker %d caught up", id)
	}
	r := p.remote(id)
	return fmt.Sprintf("broker %d reached LEO %d of %d, high watermark %d", id, r.end, p.log.LogEndOffset(), p.log.HighWatermark())
}
