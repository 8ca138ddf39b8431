package brokers

import (
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Fetch is a FetchRequest as an event, of a client or a follower. Reply is called
// once, or never if the process dies first; it must not block.
type Fetch struct {
	Request *FetchRequest
	Reply   func([]FetchResult)
	fail    func(error) // of a follower in this process: the connection broke
	late    bool        // a fault has held it back already
}

// delayedFetch is a fetch that waits for data.
type delayedFetch struct {
	alarm
	Fetch
	parts     []*partition // of the rows; nil: the row is not waited for
	since     time.Time
	prolonged bool // nothing is to be told at the end of MaxWait, so it goes on waiting
	done      bool
}

// fetchWait is one row of a consumer's, in the list of its partition.
type fetchWait struct {
	f   *delayedFetch
	row int
}

// reading is one pass over a request's rows.
type reading struct {
	b       *Broker
	now     time.Time
	r       *FetchRequest
	again   bool // the second pass, when the wait is over: followers' states are left alone
	left    int  // bytes
	minOne  bool // nothing has been read so far
	results []FetchResult
	atOnce  bool // a row has an error or a diverging epoch, or owes news
	bytes   int
}

func (e Fetch) apply(b *Broker, now time.Time) {
	r := e.Request
	if b.phase == down || b.faults.refusing && e.fail != nil {
		if e.fail != nil {
			e.fail(ErrDown)
		}
		return
	}
	if !b.ready(e) || r.Replica >= 0 && b.faults.holds(b, now, e) {
		return
	}
	pass := reading{b: b, now: now, r: r}
	parts := make([]*partition, len(r.Rows))
	pass.run(parts)
	if r.MaxWait <= 0 || len(r.Rows) == 0 || pass.bytes >= r.MinBytes || pass.atOnce {
		e.Reply(pass.results)
		return
	}
	b.delay(now, e, parts)
}

// run reads all rows, and gives their partitions. A follower in this process is
// told only what is news to it.
func (s *reading) run(parts []*partition) {
	rows, first := s.r.Rows, s.r.first
	s.left, s.minOne = s.r.MaxBytes, true
	if s.r.prolong {
		var res FetchResult
		for i := range rows {
			i = (first + i) % len(rows)
			if s.again && rows[i].idle(parts[i]) {
				continue
			}
			if parts[i] = s.row(&rows[i], &res); rows[i].hasNews(&res) {
				s.results = append(s.results, res)
			}
		}
		return
	}
	s.results = make([]FetchResult, len(rows))
	for i := range rows {
		i = (first + i) % len(rows)
		parts[i] = s.row(&rows[i], &s.results[i])
	}
}

// idle tells whether there cannot be anything new in a partition, for a follower
// whose fetch waits.
func (row *FetchRow) idle(p *partition) bool {
	return p != nil && p.log != nil && p.role == leader && !p.gone && row.Offset == p.log.LogEndOffset() && row.highWatermark == p.log.HighWatermark() &&
		row.LogStartOffset >= p.log.LogStartOffset() && p.judgeEpoch(row.LeaderEpoch) == kafka.NoError
}

// row reads one row; for a follower's it then carries out spec/broker.md §2.4.
func (s *reading) row(row *FetchRow, res *FetchResult) *partition {
	*res = FetchResult{Partition: row.Partition, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, DivergingEpoch: -1, DivergingEnd: -1}
	p, f, code := s.admit(row)
	if code == kafka.NoError {
		code = s.read(p, row, res)
	}
	if code != kafka.NoError {
		*res = FetchResult{Partition: row.Partition, Error: code, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1}
		s.atOnce = true
		if f != nil && s.b.does.failuresTouch && !s.again {
			f.failed()
		}
		return nil
	}
	if res.Diverging {
		s.atOnce = true
		return nil
	}
	if f == nil {
		return p
	}
	if !s.again {
		s.b.followerFetched(s.now, p, f, row, s.r.ReplicaEpoch)
		if s.b.does.answersOwedHW && f.told < p.log.HighWatermark() {
			res.HighWatermark, s.atOnce = p.log.HighWatermark(), true
		}
	}
	f.told = max(f.told, res.HighWatermark)
	return p
}

// admit holds a row against what spec/broker.md §8.6 lists, up to the range.
func (s *reading) admit(row *FetchRow) (*partition, *remote, kafka.ErrorCode) {
	b := s.b
	if s.r.Replica < 0 && !b.cache.Knows(row.Partition) {
		return nil, nil, kafka.UnknownTopicOrPartition
	}
	p, code := row.part, kafka.NoError
	if p == nil || p.gone || p.offline || p.log == nil || p.tp != row.Partition || !s.r.prolong {
		p, code = b.hosted(row.Partition)
	}
	if s.r.prolong {
		row.part = p
	}
	switch {
	case code != kafka.NoError:
		return nil, nil, code
	case !row.TopicID.IsZero() && !p.topicID.IsZero() && row.TopicID != p.topicID:
		return nil, nil, kafka.InconsistentTopicID
	}
	if code := p.judgeEpoch(row.LeaderEpoch); code != kafka.NoError {
		return nil, nil, code
	}
	if p.role != leader && !(s.r.Replica < 0 && s.r.FromFollower) {
		return nil, nil, kafka.NotLeaderOrFollower
	}
	if s.r.Replica < 0 {
		return p, nil, kafka.NoError
	}
	if f := p.remote(s.r.Replica); f != nil {
		return p, f, kafka.NoError
	}
	if row.LeaderEpoch >= 0 {
		return nil, nil, kafka.UnknownLeaderEpoch
	}
	return nil, nil, kafka.NotLeaderOrFollower
}

// judgeEpoch compares the leader epoch that somebody knows with ours.
func (p *partition) judgeEpoch(told int32) kafka.ErrorCode {
	switch {
	case told < 0 || told == p.leaderEpoch:
		return kafka.NoError
	case told < p.leaderEpoch:
		return kafka.FencedLeaderEpoch
	}
	return kafka.UnknownLeaderEpoch
}

// read fills in a row's answer: divergence first, then the range, then records
// (spec/broker.md §8.3, §7.7).
func (s *reading) read(p *partition, row *FetchRow, res *FetchResult) kafka.ErrorCode {
	log := p.log
	res.HighWatermark, res.LastStableOffset, res.LogStartOffset = log.HighWatermark(), log.LastStableOffset(), log.LogStartOffset()
	if row.LastFetchedEpoch >= 0 {
		epoch, end := log.EndOffset(row.LastFetchedEpoch)
		if epoch < 0 || end < 0 || row.Offset < log.LogStartOffset() {
			return kafka.OffsetOutOfRange
		}
		if epoch < row.LastFetchedEpoch || end < row.Offset {
			res.Diverging, res.DivergingEpoch, res.DivergingEnd = true, epoch, end
			return kafka.NoError
		}
	}
	if row.Offset < log.LogStartOffset() || row.Offset > log.LogEndOffset() {
		return kafka.OffsetOutOfRange
	}
	limit := s.limit(p)
	if row.Offset >= limit {
		return kafka.NoError
	}
	records, err := log.Read(row.Offset, min(row.MaxBytes, s.left), limit, s.minOne)
	if err != nil {
		code := commitlog.Code(err)
		if code == kafka.KafkaStorageError {
			s.b.log.WithFields(s.b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithError(err).Error("records could not be read")
			s.b.storageFailed(s.now, p, err)
		}
		return code
	}
	res.Records = records
	n := 0
	for _, r := range records {
		n += len(r)
	}
	if n > 0 {
		s.minOne = false
		s.bytes += n
		s.left = max(0, s.left-n)
		if s.r.Replica < 0 {
			s.b.counters.BytesOut += int64(n)
		}
	}
	return kafka.NoError
}

// limit is the offset below which the reader sees records (spec/broker.md §7.7).
func (s *reading) limit(p *partition) int64 { return s.r.limit(p) }

func (r *FetchRequest) limit(p *partition) int64 {
	switch {
	case r.Replica >= 0 || r.Replica == DebugConsumer:
		return p.log.LogEndOffset()
	case r.Committed:
		return min(p.log.HighWatermark(), p.log.LastStableOffset())
	}
	return p.log.HighWatermark()
}

func (row *FetchRow) hasNews(res *FetchResult) bool {
	return len(res.Records) > 0 || res.Error != kafka.NoError || res.Diverging || res.HighWatermark != row.highWatermark || res.LogStartOffset > row.LogStartOffset
}

// followerFetched is the order of spec/broker.md §2.4: the state, the ISR, the
// high watermark.
func (b *Broker) followerFetched(now time.Time, p *partition, f *remote, row *FetchRow, brokerEpoch int64) {
	f.renew(b)
	before, low := f.end, f.logStart
	f.fetched(b.does, row.Offset, row.LogStartOffset, p.log.LogEndOffset(), b.wall(now).UnixMilli(), brokerEpoch)
	if !isMember(p.isr.isr, f.id) {
		b.fetched(now, kafka.PartitionReplica{TopicPartition: p.tp, Broker: f.id})
	} else if f.end < before {
		b.suspect(p) // it lost records
	}
	if before != f.end || b.does.everyFetchRaises {
		b.raise(now, p)
	}
	if low != f.logStart && len(p.deletes) > 0 {
		b.rouse(p, wakeDeletes)
	}
}

func isMember(ids []kafka.BrokerID, id kafka.BrokerID) bool {
	for _, i := range ids {
		if i == id {
			return true
		}
	}
	return false
}

// delay lets a fetch wait until there is data or its time is over.
func (b *Broker) delay(now time.Time, e Fetch, parts []*partition) {
	f := &delayedFetch{Fetch: e, parts: parts, since: now}
	owes := false
	for i, p := range parts {
		if p == nil {
			continue
		}
		if e.Request.Replica < 0 {
			p.fetches = append(p.fetches, fetchWait{f, i})
			continue
		}
		r := p.remote(e.Request.Replica)
		r.waits, r.row = f, i
		row := &e.Request.Rows[i]
		owes = owes || !isMember(p.isr.isr, r.id) || p.log.HighWatermark() != row.highWatermark || p.log.LogStartOffset() > row.LogStartOffset
	}
	if e.fail != nil {
		b.local[e.Request] = f
	}
	// Where each fetch is an occasion to move the high watermark, none is left out.
	// Neither is the end of one whose follower rests from asking for others.
	if f.prolonged = e.Request.prolong && !e.Request.resting && e.Request.MinBytes <= 1 && !b.does.everyFetchRaises && b.faults.followers[e.Request.Replica].behind == 0; !f.prolonged || owes {
		b.alarms.set(f, now.Add(e.Request.MaxWait))
	}
}

// lastTurn is the last time at which a prolonged fetch would have begun anew.
func (f *delayedFetch) lastTurn(now time.Time) time.Time {
	wait := f.Request.MaxWait
	return f.since.Add(now.Sub(f.since) / wait * wait)
}

// owe lets a prolonged fetch end when it would have ended by itself, for there
// is something to tell then.
func (b *Broker) owe(now time.Time, f *delayedFetch) {
	if f != nil && !f.done && f.pos == 0 {
		b.alarms.set(f, f.lastTurn(now).Add(f.Request.MaxWait))
	}
}

// owesWatermark says that the high watermark moved: followers that wait hear of
// it at the end of their wait (spec/broker.md §7.5).
func (b *Broker) owesWatermark(now time.Time, p *partition) {
	for i := range p.remotes {
		if f := p.remotes[i].waits; f != nil && f.prolonged {
			b.owe(now, f)
		}
	}
}

// owesStart says the same of the log's start.
func (b *Broker) owesStart(now time.Time, p *partition) {
	if p.role == leader {
		b.owesWatermark(now, p)
	}
}

// completeFetches answers what waits for a partition and has enough now, or is
// to hear of an error.
func (b *Broker) completeFetches(now time.Time, p *partition) {
	gone := b.partitions[p.tp] != p || p.offline || p.log == nil
	for i := range p.remotes {
		r := &p.remotes[i]
		if r.waits == nil {
			continue
		}
		owed := b.does.answersOwedHW && !gone && p.log.HighWatermark() > r.told
		if gone || owed || b.enough(r.waits, p, r.row) {
			b.complete(now, r.waits)
		}
	}
	for i := 0; i < len(p.fetches); {
		w := p.fetches[i]
		if !gone && !b.enough(w.f, p, w.row) {
			i++
			continue
		}
		b.complete(now, w.f) // takes it out of the list
	}
}

// enough tells whether a fetch has what it waits for, once one of its partitions
// has changed.
func (b *Broker) enough(f *delayedFetch, p *partition, row int) bool {
	r := f.Request
	if p.role != leader && !(r.Replica < 0 && r.FromFollower) {
		return true
	}
	told := &r.Rows[row]
	limit := r.limit(p)
	switch {
	case p.judgeEpoch(told.LeaderEpoch) != kafka.NoError || told.Offset > p.log.LogEndOffset() || told.Offset < p.log.LogStartOffset():
		return true
	case told.Offset >= limit:
		return false
	case r.MinBytes <= 1:
		return true
	}
	sum := 0
	for i, p := range f.parts {
		if p == nil || p.log == nil || r.Rows[i].Offset >= r.limit(p) {
			continue
		}
		records, err := p.log.Read(r.Rows[i].Offset, r.Rows[i].MaxBytes, r.limit(p), true)
		if err != nil {
			return true
		}
		for _, s := range records {
			sum += len(s)
		}
	}
	return sum >= r.MinBytes
}

// complete ends a wait: the rows are read a second time.
func (b *Broker) complete(now time.Time, f *delayedFetch) {
	if f.done {
		return
	}
	b.forgetFetch(now, f)
	pass := reading{b: b, now: now, r: f.Request, again: true}
	pass.run(f.parts)
	f.Reply(pass.results)
}

// forgetFetch takes a wait out of all lists.
func (b *Broker) forgetFetch(now time.Time, f *delayedFetch) {
	f.done = true
	b.alarms.stop(f)
	delete(b.local, f.Request)
	for i, p := range f.parts {
		if p == nil {
			continue
		}
		if f.Request.Replica >= 0 {
			if r := p.remote(f.Request.Replica); r != nil && r.waits == f {
				r.renew(b)
				r.waits = nil
			}
			continue
		}
		for n, w := range p.fetches {
			if w.f == f && w.row == i {
				last := len(p.fetches) - 1
				copy(p.fetches[n:], p.fetches[n+1:])
				p.fetches[last] = fetchWait{}
				p.fetches = p.fetches[:last]
				break
			}
		}
	}
}

// interrupted ends the wait of a follower in this process, which wants to ask
// for something else.
type interrupted struct{ request *FetchRequest }

func (e interrupted) apply(b *Broker, now time.Time) {
	if f := b.local[e.request]; f != nil {
		b.complete(now, f)
	}
}

// ring is the end of MaxWait.
func (f *delayedFetch) ring(b *Broker, now time.Time) {
	if f.Request.Replica >= 0 {
		b.counters.FollowerFetchExpires++
	} else {
		b.counters.ConsumerFetchExpires++
	}
	b.complete(now, f)
}
