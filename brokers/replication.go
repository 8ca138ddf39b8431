package brokers

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Replication knows how far followers are; the broker asks it whether one may
// join an ISR, or has fallen out of it. It is the seam behind which logs,
// fetches and high watermarks live: paced, below, has none of them and goes by
// time alone.
type Replication interface {
	// Lead says that we lead a partition from now on, in a new leader epoch.
	Lead(now time.Time, l Leading)
	// Unlead says that we no longer do.
	Unlead(tp kafka.TopicPartition)
	// Watch asks for fetches of a follower, from a time on: see Due.
	Watch(from time.Time, tp kafka.TopicPartition, follower kafka.BrokerID)
	// Due gives the fetches of watched followers up to now, each the occasion to
	// join; who is still wanted afterwards is watched anew.
	Due(now time.Time) []kafka.PartitionReplica
	// Next is when Due has something at the earliest; false is never, as things are.
	Next() (time.Time, bool)
	// MayJoin: the follower has reached high watermark and epoch start (spec/broker.md §4.1, 5 and 6).
	MayJoin(now time.Time, tp kafka.TopicPartition, follower kafka.BrokerID) bool
	// OutOfSync: the follower is behind and was last caught up more than the lag ago (spec/broker.md §3.2).
	OutOfSync(now time.Time, tp kafka.TopicPartition, follower kafka.BrokerID) bool
	// Changed says that FollowerView may differ for a follower, in the given
	// partitions or, with none, in all.
	Changed(now time.Time, follower kafka.BrokerID, tps []kafka.TopicPartition)
}

// Leading is what Replication.Lead is told.
type Leading struct {
	Partition   kafka.TopicPartition
	LeaderEpoch int32
	ISR         []kafka.BrokerID
	Followers   []kafka.BrokerID // the assignment without the leader
	NewLeader   bool             // false: re-elected, so what is known of followers stays
}

// View gives what the leader of a partition, in a leader epoch, sees of a follower.
type View func(tp kafka.TopicPartition, leaderEpoch int32, follower kafka.BrokerID) FollowerView

// FollowerView is what a leader sees of a follower: whether it fetches, since
// when that is so, and how far behind it stays on purpose.
type FollowerView struct {
	Fetching bool
	Since    time.Time // zero: as long as anybody knows
	Behind   time.Duration
}

// paced is Replication without logs. Records are taken to arrive all the time,
// so a follower that fetches has caught up a fixed while after it began, and
// one that does not falls behind at once.
type paced struct {
	catchUp, lag time.Duration
	view         View
	led          map[kafka.TopicPartition]*ledPartition
	fetches      fetchQueue
}

type ledPartition struct {
	epoch     int32
	followers map[kafka.BrokerID]*pacedFollower
}

type pacedFollower struct {
	told         time.Time // since when it is a follower here
	view         FollowerView
	lastCaughtUp time.Time // up to the last change of view; zero is never
	watched      bool
	from         time.Time // of Watch
	ticket       int       // of the entry in the queue that counts
}

// newPaced makes a Replication in which a follower needs catchUp to reach the
// leader and lag is replica.lag.time.max.ms.
func newPaced(catchUp, lag time.Duration, view View) *paced {
	return &paced{catchUp: catchUp, lag: lag, view: view, led: map[kafka.TopicPartition]*ledPartition{}}
}

func (r *paced) Lead(now time.Time, l Leading) {
	old := r.led[l.Partition]
	led := &ledPartition{epoch: l.LeaderEpoch, followers: make(map[kafka.BrokerID]*pacedFollower, len(l.Followers))}
	r.led[l.Partition] = led
	for _, id := range l.Followers {
		f := &pacedFollower{told: now}
		if old != nil && !l.NewLeader {
			if was := old.followers[id]; was != nil {
				f.told = was.told
			}
		}
		if slices.Contains(l.ISR, id) { // spec/broker.md §2.6: now if in the ISR, else never
			f.lastCaughtUp = now
		}
		f.view = r.view(l.Partition, l.LeaderEpoch, id)
		led.followers[id] = f
	}
}

func (r *paced) Unlead(tp kafka.TopicPartition) { delete(r.led, tp) }

func (r *paced) follower(tp kafka.TopicPartition, id kafka.BrokerID) *pacedFollower {
	if led := r.led[tp]; led != nil {
		return led.followers[id]
	}
	return nil
}

func (r *paced) Watch(from time.Time, tp kafka.TopicPartition, id kafka.BrokerID) {
	if f := r.follower(tp, id); f != nil {
		f.watched, f.from = true, from
		r.schedule(tp, id, f)
	}
}

// schedule puts the follower's next fetch into the queue, if there will be one.
func (r *paced) schedule(tp kafka.TopicPartition, id kafka.BrokerID, f *pacedFollower) {
	f.ticket++
	ready, ok := r.ready(f)
	if !f.watched || !ok {
		return
	}
	heap.Push(&r.fetches, fetch{at: later(f.from, ready), who: kafka.PartitionReplica{TopicPartition: tp, Broker: id}, f: f, ticket: f.ticket})
}

// ready is when a fetching follower has caught up; false is never.
func (r *paced) ready(f *pacedFollower) (time.Time, bool) {
	if !f.view.Fetching || f.view.Behind > r.lag {
		return time.Time{}, false
	}
	return later(f.told, f.view.Since).Add(r.catchUp + f.view.Behind), true
}

// caughtUp is the last time at which the follower had the leader's end.
func (r *paced) caughtUp(f *pacedFollower, at time.Time) time.Time {
	reached := later(f.told, f.view.Since).Add(r.catchUp)
	if !f.view.Fetching || at.Before(reached) {
		return f.lastCaughtUp
	}
	return later(f.lastCaughtUp, at.Add(-f.view.Behind))
}

func (r *paced) Due(now time.Time) []kafka.PartitionReplica {
	var due []kafka.PartitionReplica
	for len(r.fetches) > 0 && !r.fetches[0].at.After(now) {
		e := heap.Pop(&r.fetches).(fetch)
		if r.valid(e) {
			e.f.watched = false
			due = append(due, e.who)
		}
	}
	return due
}

func (r *paced) valid(e fetch) bool {
	return e.ticket == e.f.ticket && r.follower(e.who.TopicPartition, e.who.Broker) == e.f
}

func (r *paced) Next() (time.Time, bool) {
	for len(r.fetches) > 0 {
		if r.valid(r.fetches[0]) {
			return r.fetches[0].at, true
		}
		heap.Pop(&r.fetches)
	}
	return time.Time{}, false
}

func (r *paced) MayJoin(now time.Time, tp kafka.TopicPartition, id kafka.BrokerID) bool {
	f := r.follower(tp, id)
	if f == nil {
		return false
	}
	ready, ok := r.ready(f)
	return ok && !now.Before(ready)
}

func (r *paced) OutOfSync(now time.Time, tp kafka.TopicPartition, id kafka.BrokerID) bool {
	f := r.follower(tp, id)
	return f == nil || now.Sub(r.caughtUp(f, now)) > r.lag
}

func (r *paced) Changed(now time.Time, id kafka.BrokerID, tps []kafka.TopicPartition) {
	if len(tps) > 0 {
		for _, tp := range tps {
			r.refresh(now, tp, id)
		}
		return
	}
	all := make([]kafka.TopicPartition, 0, len(r.led))
	for tp, led := range r.led {
		if led.followers[id] != nil {
			all = append(all, tp)
		}
	}
	kafka.SortPartitions(all)
	for _, tp := range all {
		r.refresh(now, tp, id)
	}
}

func (r *paced) refresh(now time.Time, tp kafka.TopicPartition, id kafka.BrokerID) {
	led := r.led[tp]
	f := r.follower(tp, id)
	if f == nil {
		return
	}
	v := r.view(tp, led.epoch, id)
	if v == f.view {
		return
	}
	changed := now
	if !v.Since.IsZero() && v.Since.Before(now) && !v.Fetching {
		changed = v.Since // it stopped then; we hear of it now
	}
	f.lastCaughtUp = r.caughtUp(f, changed)
	f.view = v
	if f.watched {
		r.schedule(tp, id, f)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// fetch is a follower's next fetch. Its ticket is void once the follower's
// circumstances have changed.
type fetch struct {
	at     time.Time
	who    kafka.PartitionReplica
	f      *pacedFollower
	ticket int
}

// fetchQueue is a heap by time, then by partition and follower, so that a run
// can be repeated.
type fetchQueue []fetch

func (q fetchQueue) Len() int { return len(q) }
func (q fetchQueue) Less(i, j int) bool {
	if c := q[i].at.Compare(q[j].at); c != 0 {
		return c < 0
	}
	return cmp.Or(q[i].who.Compare(q[j].who), cmp.Compare(q[i].ticket, q[j].ticket)) < 0
}
func (q fetchQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *fetchQueue) Push(x any)   { *q = append(*q, x.(fetch)) }
func (q *fetchQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
