package brokers

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// fetcherID names one of Kafka's fetcher threads: leader and index (spec/broker.md §8.1).
type fetcherID struct {
	leader kafka.BrokerID
	index  int
}

// fetcher copies the partitions that one leader leads. At most one of its
// requests is on its way; the alarm rings when a partition that rests may go on.
type fetcher struct {
	alarm
	id    fetcherID
	parts []*partition
	rows  []FetchRow    // of parts, used again for each fetch
	first int           // of parts, in the next request: who got records goes last
	busy  bool          // a request is on its way
	sent  *FetchRequest // it, if it is a fetch
	woken bool          // in Broker.fetchers to be run
	turn  int           // of the request on its way; an answer of another turn counts no more
	anew  bool          // an answer, or a part of one, was not taken over
}

// following is a follower's side of a partition (spec/broker.md §8).
type following struct {
	f          *fetcher
	index      int   // in f.parts
	truncating bool  // the end of an epoch is to be asked for first
	outOfRange bool  // the leader's offsets are to be asked for first
	failed     bool  // nothing until a LeaderAndIsr
	initial    int64 // where it began: the cut if the leader knows of no epoch
	asked      int64 // offset of the request on its way
	askedEpoch int32 // leader epoch of it
	lag        int64 // behind the leader's high watermark, as last told
	rest       time.Time
}

// fetcherOf gives the fetcher that a partition belongs to.
func (b *Broker) fetcherOf(p *partition) *fetcher {
	id := fetcherID{leader: p.leader}
	if n := b.fetcherCount(); n > 1 {
		id.index = int((31*uint32(kafka.JavaHash(p.tp.Topic)) + uint32(p.tp.Partition)) & 0x7fffffff % uint32(n))
	}
	f := b.fetchers[id]
	if f == nil {
		f = &fetcher{id: id, anew: true} // the leader may know a session of an earlier life
		b.fetchers[id] = f
	}
	return f
}

// fetcherCount is num.replica.fetchers: how many share the partitions of a leader.
func (b *Broker) fetcherCount() int {
	if b.configs.fetchers > 0 {
		return b.configs.fetchers
	}
	return b.opts.Logs.Fetchers
}

// startFollowing begins to copy a partition from its leader (spec/broker.md §8.2).
func (b *Broker) startFollowing(p *partition) {
	b.stopFollowing(p)
	f := b.fetcherOf(p)
	p.follow = &following{f: f, index: len(f.parts), initial: p.log.HighWatermark(), asked: -1, askedEpoch: -1}
	switch {
	case b.does.cutsToHW: // up to 0.10.2 (§8.4)
		b.cut(p, p.log.HighWatermark())
	case b.does.startsAtEnd: // 0.11 and 1.0
		p.follow.initial, p.follow.truncating = p.log.LogEndOffset(), true
	default:
		p.follow.truncating = !b.does.startsFetching || p.log.LatestEpoch() < 0
	}
	f.parts = append(f.parts, p)
	b.interrupt(f)
	b.wakeFetcher(f)
}

// stopFollowing takes a partition off its fetcher.
func (b *Broker) stopFollowing(p *partition) {
	if p.follow == nil {
		return
	}
	f := p.follow.f
	last := len(f.parts) - 1
	f.parts[p.follow.index] = f.parts[last]
	f.parts[p.follow.index].follow.index = p.follow.index
	f.parts[last] = nil
	f.parts = f.parts[:last]
	p.follow = nil
	b.interrupt(f)
	if last == 0 {
		b.alarms.stop(f)
		if !f.busy {
			delete(b.fetchers, f.id)
		}
	}
}

// interrupt ends a fetch that waits at a leader in this process, where nothing
// else might end it.
func (b *Broker) interrupt(f *fetcher) {
	if f.busy && f.sent != nil {
		b.emit(InterruptFetch{Leader: f.id.leader, request: f.sent})
		f.sent = nil
	}
}

// wakeFetcher lets a fetcher run before the step ends.
func (b *Broker) wakeFetcher(f *fetcher) {
	if !f.woken {
		f.woken = true
		b.wokenFetchers = append(b.wokenFetchers, f)
	}
}

func (b *Broker) runFetchers(now time.Time) {
	for i := 0; i < len(b.wokenFetchers); i++ {
		f := b.wokenFetchers[i]
		f.woken = false
		b.runFetcher(now, f)
	}
	clear(b.wokenFetchers)
	b.wokenFetchers = b.wokenFetchers[:0]
}

func (f *fetcher) ring(b *Broker, _ time.Time) { b.wakeFetcher(f) }

// runFetcher sends the fetcher's next request: it finds out where to cut first,
// and fetches then (spec/broker.md §8.1).
func (b *Broker) runFetcher(now time.Time, f *fetcher) {
	if f.busy || b.phase == down || b.fetchers[f.id] != f {
		return
	}
	if len(f.parts) == 0 {
		delete(b.fetchers, f.id)
		return
	}
	if rest := b.fetcherRests(now, f.id.leader); !rest.IsZero() {
		b.alarms.set(f, rest)
		return
	}
	rows := 0
	var epochs []EpochQuery
	var lost []kafka.TopicPartition
	var soonest time.Time
	for _, p := range f.parts {
		w := p.follow
		switch {
		case w.ready(now) && !b.faults.pausesFetching(p.tp):
			rows++
			w.ask(p)
		case w.failed || b.faults.pausesFetching(p.tp):
		case w.rest.After(now):
			if soonest.IsZero() || w.rest.Before(soonest) {
				soonest = w.rest
			}
		case w.outOfRange:
			lost = append(lost, p.tp)
			w.ask(p)
		case w.truncating && p.log.LatestEpoch() < 0:
			if b.cut(p, w.initial) {
				w.truncating = false
				rows++
				w.ask(p)
			}
		case w.truncating:
			epochs = append(epochs, EpochQuery{Partition: p.tp, LeaderEpoch: b.toldEpoch(p), Epoch: p.log.LatestEpoch()})
			w.ask(p)
		}
	}
	b.alarms.stop(f)
	ask := Asking{Leader: f.id.leader, run: b.run, fetcher: f, turn: f.turn + 1}
	switch {
	case len(lost) > 0:
		b.send(f, AskOffsets{Asking: ask, Queries: offsetQueries(lost)})
	case len(epochs) > 0:
		b.send(f, AskEpochEnds{Asking: ask, Queries: epochs})
	case rows > 0:
		f.sent = b.fetchRequest(now, f, rows)
		f.sent.resting = !soonest.IsZero()
		b.send(f, FetchFrom{Asking: ask, Request: f.sent})
	case !soonest.IsZero():
		b.alarms.set(f, soonest)
	}
}

// send emits a request to the fetcher's leader, found in the metadata cache. An
// unknown leader is a broken connection.
func (b *Broker) send(f *fetcher, e leaderEffect) {
	f.busy = true
	f.turn++
	to, _ := b.cache.Broker(f.id.leader)
	to.ID = f.id.leader
	b.emit(e.to(to))
}

// toldEpoch is the leader epoch that requests tell; they do from 2.0 on.
func (b *Broker) toldEpoch(p *partition) int32 {
	if !b.does.tellsEpochs {
		return kafka.NoEpoch
	}
	return p.leaderEpoch
}

func (w *following) ask(p *partition) { w.asked, w.askedEpoch = p.log.LogEndOffset(), p.leaderEpoch }

// ready tells whether there is nothing but to fetch.
func (w *following) ready(now time.Time) bool {
	return !w.failed && !w.truncating && !w.outOfRange && !w.rest.After(now)
}

func (b *Broker) fillRow(p *partition, row *FetchRow) {
	if row.Partition != p.tp {
		*row = FetchRow{Partition: p.tp, LastFetchedEpoch: kafka.NoEpoch, MaxBytes: b.opts.Logs.FetchPartitionBytes}
	}
	row.TopicID, row.Offset, row.LogStartOffset, row.LeaderEpoch, row.highWatermark = p.topicID, p.follow.asked, p.log.LogStartOffset(), b.toldEpoch(p), p.log.HighWatermark()
	if b.does.fetchTruncates {
		row.LastFetchedEpoch = p.log.LatestEpoch()
	}
}

// fetchRequest asks for those of the fetcher's partitions that are ready, n of
// them: mostly all, in the memory of the last request, which has been answered.
func (b *Broker) fetchRequest(now time.Time, f *fetcher, n int) *FetchRequest {
	all := n == len(f.parts)
	if len(f.rows) != len(f.parts) {
		f.rows = make([]FetchRow, len(f.parts))
	}
	rows := f.rows
	if !all {
		rows = make([]FetchRow, 0, n)
	}
	first := f.first % len(f.parts)
	for i, p := range f.parts {
		if all {
			b.fillRow(p, &rows[i])
			continue
		}
		if i == first {
			first = len(rows)
		}
		if p.follow.ready(now) && !b.faults.pausesFetching(p.tp) {
			rows = append(rows, FetchRow{})
			b.fillRow(p, &rows[len(rows)-1])
		}
	}
	r := &FetchRequest{first: first % n, Replica: b.opts.ID, ReplicaEpoch: kafka.NoBrokerEpoch, MaxWait: b.opts.ReplicaFetchWait, MinBytes: b.opts.Logs.FetchMinBytes,
		MaxBytes: b.opts.Logs.FetchMaxBytes, Rows: rows, Fetcher: f.id.index, Anew: f.anew}
	f.anew = false
	if b.does.tellsBrokerEpoch {
		r.ReplicaEpoch = b.epoch
	}
	return r
}

func offsetQueries(tps []kafka.TopicPartition) []OffsetQuery {
	qs := make([]OffsetQuery, 0, 2*len(tps))
	for _, tp := range tps {
		qs = append(qs, OffsetQuery{Partition: tp, LeaderEpoch: kafka.NoEpoch, Timestamp: LatestOffset},
			OffsetQuery{Partition: tp, LeaderEpoch: kafka.NoEpoch, Timestamp: EarliestOffset})
	}
	return qs
}

// answered takes the fetcher's request as done, if the answer is the one it
// waits for.
func (b *Broker) answered(now time.Time, a Asking, err error) bool {
	f := a.fetcher
	if a.run != b.run || b.phase == down || !f.busy || f.turn != a.turn {
		return false
	}
	f.busy, f.sent = false, nil
	b.wakeFetcher(f)
	if err == nil {
		return true
	}
	f.anew = true
	b.log.WithFields(b.fields()).WithField("leader", f.id.leader).WithError(err).Debug("a request to the leader failed")
	for _, p := range f.parts {
		b.rest(now, p)
	}
	return false
}

// rest lets a partition wait for replica.fetch.backoff.ms.
func (b *Broker) rest(now time.Time, p *partition) {
	p.follow.rest = now.Add(b.opts.Logs.FetchBackoff)
}

// current finds the partition that an answer is for, unless it has moved on.
func (b *Broker) current(f *fetcher, tp kafka.TopicPartition) *partition {
	p := b.partitions[tp]
	if p == nil || p.follow == nil || p.follow.f != f || p.follow.asked != p.log.LogEndOffset() || p.follow.askedEpoch != p.leaderEpoch {
		return nil
	}
	return p
}

func (e fetched) apply(b *Broker, now time.Time) {
	if b.heldAnswer(now, e) {
		return
	}
	if !b.answered(now, e.Asking, e.err) {
		return
	}
	f := e.fetcher
	for i := range e.results {
		res := &e.results[i]
		p := b.current(f, res.Partition)
		if p == nil || p.follow.truncating || p.follow.outOfRange || p.follow.failed || b.faults.pausesFetching(res.Partition) {
			f.anew = true
			continue
		}
		if res.Error != kafka.NoError {
			b.fetchFailed(now, p, res.Error)
			continue
		}
		if res.Diverging {
			b.diverged(now, p, res.DivergingEpoch, res.DivergingEnd)
			continue
		}
		b.copied(now, p, res)
		if len(res.Records) > 0 && p.follow != nil {
			f.first = p.follow.index + 1
		}
	}
}

// copied appends what the leader sent, then takes over its high watermark, then
// its log's start (spec/broker.md §7.5).
func (b *Broker) copied(now time.Time, p *partition, res *FetchResult) {
	for _, records := range res.Records {
		if err := p.log.AppendAsFollower(records); err != nil {
			b.appendFailed(now, p, err)
			return
		}
		b.counters.ReplicationBytesIn += int64(len(records))
	}
	b.takeWatermark(p, res.HighWatermark)
	if res.LogStartOffset > p.log.LogStartOffset() && res.LogStartOffset <= p.log.HighWatermark() {
		if err := p.log.RaiseStart(res.LogStartOffset); err != nil {
			b.appendFailed(now, p, err)
			return
		}
	}
	p.follow.lag = max(0, res.HighWatermark-p.log.LogEndOffset())
	if len(res.Records) > 0 {
		b.trim(now, p)
	}
}

func (b *Broker) takeWatermark(p *partition, high int64) {
	before := p.log.HighWatermark()
	if after := p.log.SetHighWatermark(high); after != before {
		b.moved(p)
		if len(p.fetches) > 0 && after > before {
			b.rouse(p, wakeFetches)
		}
	}
}

func (b *Broker) appendFailed(now time.Time, p *partition, err error) {
	log := b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithError(err)
	if commitlog.Code(err) == kafka.CorruptMessage {
		log.Error("records from the leader are damaged: fetched again")
		b.rest(now, p)
		return
	}
	log.Error("records from the leader could not be appended: nothing is fetched until the next LeaderAndIsr")
	p.follow.failed = true
	var disk *commitlog.StorageError
	if errors.As(err, &disk) {
		b.storageFailed(now, p, err)
	}
}

// fetchFailed is the table of spec/broker.md §8.6.
func (b *Broker) fetchFailed(now time.Time, p *partition, code kafka.ErrorCode) {
	log := b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithField("leader", p.leader).
		WithField("leader_epoch", p.leaderEpoch)
	switch code {
	case kafka.FencedLeaderEpoch: // current made sure that the epoch is still ours
		log.Info("the leader has a newer epoch: nothing is fetched until the next LeaderAndIsr")
		p.follow.failed = true
	case kafka.OffsetOutOfRange:
		p.follow.outOfRange = true
	default:
		log.WithError(code).Debug("fetch refused")
		b.rest(now, p)
	}
}

// cut truncates a follower's log, and tells whether that worked.
func (b *Broker) cut(p *partition, to int64) bool {
	before, high := p.log.LogEndOffset(), p.log.HighWatermark()
	if err := p.log.TruncateTo(to); err != nil {
		b.appendFailed(b.now, p, err)
		return false
	}
	end := p.log.LogEndOffset()
	if end == before {
		return true
	}
	b.moved(p)
	log := b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithField("leader_epoch", p.leaderEpoch).
		WithField("from", before).WithField("to", end)
	if end < high {
		b.counters.CommittedRecordsLost += high - end
		log.WithField("high_watermark", high).Warn("log truncated below its high watermark: committed records are lost, as after an unclean leader election")
	} else {
		log.Info("log truncated")
	}
	return true
}

// diverged cuts the log back towards where it parts from the leader's, whose end
// of an epoch at most as high as ours is given (spec/broker.md §8.3).
func (b *Broker) diverged(_ time.Time, p *partition, epoch int32, end int64) {
	w := p.follow
	own := p.log.LogEndOffset()
	switch {
	case end < 0:
		b.cut(p, w.initial)
	case epoch < 0 || !b.does.answersTellEpochs:
		b.cut(p, min(end, own))
	default:
		ownEpoch, ownEnd := p.log.EndOffset(epoch)
		switch {
		case ownEnd < 0: // nothing as high as that epoch
			b.cut(p, min(end, own))
		case ownEpoch == epoch:
			b.cut(p, min(ownEnd, end, own))
		default: // ask again, with the epoch that is the latest then
			b.cut(p, min(ownEnd, own))
			return
		}
	}
	w.truncating = false
}

func (e epochEndsAnswered) apply(b *Broker, now time.Time) {
	if !b.answered(now, e.Asking, e.err) {
		return
	}
	for _, a := range e.answers {
		p := b.current(e.fetcher, a.Partition)
		if p == nil || !p.follow.truncating || p.follow.failed {
			continue
		}
		if a.Error != kafka.NoError {
			b.fetchFailed(now, p, a.Error)
			continue
		}
		b.diverged(now, p, a.Epoch, a.EndOffset)
	}
}

// apply is spec/broker.md §8.5: the leader's end and start decide.
func (e offsetsAnswered) apply(b *Broker, now time.Time) {
	if !b.answered(now, e.Asking, e.err) {
		return
	}
	type ends struct {
		latest, earliest int64
		code             kafka.ErrorCode
	}
	got := map[kafka.TopicPartition]*ends{}
	for i, a := range e.answers {
		x := got[a.Partition]
		if x == nil {
			x = &ends{latest: -1, earliest: -1}
			got[a.Partition] = x
		}
		x.code = cmp.Or(x.code, a.Error)
		if e.queries[i].Timestamp == LatestOffset {
			x.latest = a.Offset
		} else {
			x.earliest = a.Offset
		}
	}
	tps := make([]kafka.TopicPartition, 0, len(got))
	for tp := range got {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	for _, tp := range tps {
		p, x := b.current(e.fetcher, tp), got[tp]
		if p == nil || !p.follow.outOfRange {
			continue
		}
		if x.code != kafka.NoError || x.latest < 0 || x.earliest < 0 {
			b.rest(now, p)
			p.follow.outOfRange = false // the next fetch tells again
			continue
		}
		b.reachRange(now, p, x.latest, x.earliest)
	}
}

func (b *Broker) reachRange(now time.Time, p *partition, latest, earliest int64) {
	p.follow.outOfRange = false
	own := p.log.LogEndOffset()
	log := b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithField("leader", p.leader)
	switch {
	case latest < own:
		log.WithField("from", own).WithField("to", latest).Warn("the leader's log ends below ours: truncated")
		b.cut(p, latest)
	case earliest > own:
		log.WithField("from", own).WithField("to", earliest).Warn("the leader's log begins above our end: begun anew there")
		if err := p.log.TruncateFullyAndStartAt(earliest); err != nil {
			b.appendFailed(now, p, err)
			return
		}
		b.moved(p)
	default: // the leader may say the same again: not without a rest
		b.rest(now, p)
	}
}
