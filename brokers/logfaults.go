package brokers

import (
	"errors"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// errCut is what a fault of kind cut does to a request.
var errCut = errors.New("no way to the broker: the fault cut is set")

func (f *faults) condition(tp kafka.TopicPartition) condition {
	if c, ok := f.some[tp]; ok {
		return c
	}
	return f.all
}

func (f *faults) pausesFetching(tp kafka.TopicPartition) bool { return f.condition(tp).paused }

// lateAnswer is an answer that a slow fetcher of ours has not got yet.
type lateAnswer struct {
	fetched
	due *errand
}

// disturbOwn changes what faults do to our own fetchers. Those that wait for an
// answer wait anew, if they still have to.
func (b *Broker) disturbOwn(now time.Time, tps []kafka.TopicPartition, change func(*condition)) {
	if len(tps) == 0 {
		change(&b.faults.all)
		clear(b.faults.some)
	}
	for _, tp := range tps {
		c := b.faults.condition(tp)
		change(&c)
		b.faults.some[tp] = c
	}
	late := b.faults.late
	b.faults.late = nil
	for _, a := range late {
		b.alarms.stop(a.due)
		a.held = false
		a.apply(b, now)
	}
	for _, f := range b.fetchers {
		b.interrupt(f)
		b.wakeFetcher(f)
	}
}

// disturbFollower: a paused follower's requests are held, also those that wait
// here; a slow one's wait, but not for longer than they would by themselves.
func (b *Broker) disturbFollower(now time.Time, id kafka.BrokerID, c condition) {
	if !c.paused {
		b.release(now, func(r kafka.BrokerID) bool { return r == id })
	}
	for _, f := range b.waitsOfBroker(id) {
		if c.paused {
			b.forgetFetch(now, f)
			b.faults.held = append(b.faults.held, f.Fetch)
		} else if f.prolonged {
			b.owe(now, f)
		}
	}
}

// waitsOfBroker gives all fetches of a follower that wait here.
func (b *Broker) waitsOfBroker(id kafka.BrokerID) []*delayedFetch {
	seen := map[*delayedFetch]bool{}
	var out []*delayedFetch
	for _, p := range b.partitions {
		if r := p.remote(id); r != nil && r.waits != nil && !seen[r.waits] {
			seen[r.waits] = true
			out = append(out, r.waits)
		}
	}
	return out
}

// holds tells whether a follower's fetch is not to be looked at now.
func (f *faults) holds(b *Broker, now time.Time, e Fetch) bool {
	id := e.Request.Replica
	c := f.followers[id]
	switch {
	case f.swallows(id, e.fail, e.refuse):
	case c.paused:
		f.held = append(f.held, e)
	case c.behind > 0 && !e.late:
		f.held = append(f.held, e)
		b.later(now.Add(c.behind), func(b *Broker, now time.Time) { b.releaseLate(now, e.Request) })
	default:
		return false
	}
	return true
}

// release lets what was held from some brokers happen now.
func (b *Broker) release(now time.Time, of func(kafka.BrokerID) bool) {
	held := b.faults.held
	b.faults.held = nil
	for _, ev := range held {
		from := kafka.NoLeader
		switch e := ev.(type) {
		case Fetch:
			from = e.Request.Replica
		case Control:
			from = controllerOf(e.Request)
		}
		if of(from) {
			ev.apply(b, now)
		} else {
			b.faults.held = append(b.faults.held, ev)
		}
	}
}

// releaseLate lets a slow follower's fetch happen.
func (b *Broker) releaseLate(now time.Time, r *FetchRequest) {
	for i, ev := range b.faults.held {
		if e, ok := ev.(Fetch); ok && e.Request == r {
			b.faults.held = append(b.faults.held[:i:i], b.faults.held[i+1:]...)
			e.late = true
			e.apply(b, now)
			return
		}
	}
}

// fetcherRests gives when a fetcher may try again, if a fault cuts it off.
func (b *Broker) fetcherRests(now time.Time, leader kafka.BrokerID) time.Time {
	if b.faults.cut[leader] {
		return now.Add(b.opts.Logs.FetchBackoff)
	}
	return time.Time{}
}

// lostRequest is what a broker of another process sent through a cut. It is not
// answered while that lasts, as on a line that swallows all, and with errors when
// it ends: its sender would wait for its socket's timeout else, and by then what it
// asked may not hold any more.
type lostRequest struct {
	from   kafka.BrokerID
	refuse func()
}

// maxLostRequests are kept; a sender that gave up left its behind.
const maxLostRequests = 64

// swallows tells whether a request came through a cut. One of this process fails
// at once, for its sender has no timeout.
func (f *faults) swallows(from kafka.BrokerID, fail func(error), refuse func()) bool {
	if !f.cut[from] {
		return false
	}
	if fail != nil {
		fail(errCut)
		return true
	}
	if len(f.lost) == maxLostRequests {
		f.lost = slices.Delete(f.lost, 0, 1)
	}
	f.lost = append(f.lost, lostRequest{from, refuse})
	return true
}

// refuse answers each row with an error after which it is asked for again.
func (e Fetch) refuse() {
	results := make([]FetchResult, len(e.Request.Rows))
	for i := range results {
		results[i] = FetchResult{Partition: e.Request.Rows[i].Partition, Error: kafka.UnknownServerError, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1}
	}
	e.Reply(results)
}

func (e EpochEnds) refuse() {
	answers := make([]EpochAnswer, len(e.Queries))
	for i, q := range e.Queries {
		answers[i] = EpochAnswer{Partition: q.Partition, Error: kafka.UnknownServerError, Epoch: -1, EndOffset: -1}
	}
	e.Reply(answers)
}

func (e ListOffsets) refuse() {
	answers := make([]OffsetAnswer, len(e.Queries))
	for i, q := range e.Queries {
		answers[i] = OffsetAnswer{Partition: q.Partition, Error: kafka.UnknownServerError, Timestamp: -1, Offset: -1, LeaderEpoch: -1}
	}
	e.Reply(answers)
}

// cutOff ends all traffic with a broker.
func (b *Broker) cutOff(now time.Time, peer kafka.BrokerID) {
	b.faults.cut[peer] = true
	for _, f := range b.waitsOfBroker(peer) {
		b.forgetFetch(now, f)
		b.faults.swallows(peer, f.fail, f.refuse)
	}
	for id, f := range b.fetchers {
		if id.leader == peer {
			b.interrupt(f) // a leader in this process would see us wait there, and take us for caught up
		}
	}
}

// mend ends a cut, or all of them.
func (b *Broker) mend(now time.Time, peer *kafka.BrokerID) {
	if peer == nil {
		clear(b.faults.cut)
	} else {
		delete(b.faults.cut, *peer)
	}
	lost := b.faults.lost
	b.faults.lost = nil
	for _, r := range lost {
		if b.faults.cut[r.from] {
			b.faults.lost = append(b.faults.lost, r)
		} else {
			r.refuse()
		}
	}
	b.release(now, func(id kafka.BrokerID) bool { return !b.faults.cut[id] && !b.faults.followers[id].paused })
}

// heldAnswer drops what comes from behind a cut, and lets a slow fetcher have
// its records late.
func (b *Broker) heldAnswer(now time.Time, e fetched) bool {
	if b.faults.cut[e.Leader] && e.err == nil {
		e.err, e.results = errCut, nil
		e.apply(b, now)
		return true
	}
	var wait time.Duration
	for i := range e.results {
		c := b.faults.condition(e.results[i].Partition)
		if len(e.results[i].Records) == 0 || c == (condition{since: c.since}) {
			continue
		}
		wait = max(wait, c.behind)
		if c.rate > 0 {
			n := 0
			for _, r := range e.results[i].Records {
				n += len(r)
			}
			wait += time.Duration(float64(n) / float64(c.rate) * float64(time.Second))
		}
	}
	if wait == 0 || e.held {
		return false
	}
	e.held = true
	a := &lateAnswer{fetched: e}
	a.due = b.later(now.Add(wait), func(b *Broker, now time.Time) {
		b.faults.late = slices.DeleteFunc(b.faults.late, func(o *lateAnswer) bool { return o == a })
		a.apply(b, now)
	})
	b.faults.late = append(b.faults.late, a)
	return true
}

// goOffline is what a failed log directory does to a partition (spec/broker.md §1.9).
func (b *Broker) goOffline(now time.Time, p *partition) {
	waiting := p.waitsOf(func(*remote) bool { return true })
	b.stopFollowing(p)
	old := *p
	*p = *newPartition(p.tp)
	p.offline = true
	p.topic, p.fetches, p.produces, p.deletes, p.wake, p.suspected = old.topic, old.fetches, old.produces, old.deletes, old.wake, old.suspected
	b.resignGroups(now, p, -1)
	for _, f := range waiting {
		b.complete(now, f)
	}
	b.rouse(p, wakeFetches|wakeProduces|wakeDeletes)
}
