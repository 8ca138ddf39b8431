package brokers

import (
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// ListOffsets asks for offsets of times or of either end. Replica is who asks, or
// Consumer; Committed is read_committed. Reply is as Fetch's.
type ListOffsets struct {
	Queries   []OffsetQuery
	Replica   kafka.BrokerID
	Committed bool
	Reply     func([]OffsetAnswer)
	fail      func(error)
}

func (e ListOffsets) apply(b *Broker, _ time.Time) {
	if b.phase == down && e.fail != nil {
		e.fail(ErrDown)
		return
	}
	if !b.ready(e) || b.faults.swallows(e.Replica, e.fail, e.refuse) {
		return
	}
	answers := make([]OffsetAnswer, len(e.Queries))
	for i, q := range e.Queries {
		answers[i] = OffsetAnswer{Partition: q.Partition, Timestamp: -1, Offset: -1, LeaderEpoch: -1}
		if code := b.offset(e, q, &answers[i]); code != kafka.NoError {
			answers[i] = OffsetAnswer{Partition: q.Partition, Error: code, Timestamp: -1, Offset: -1, LeaderEpoch: -1}
		}
	}
	e.Reply(answers)
}

// offset answers one query. A client hears of nothing above the high watermark,
// and of no end at all before that has reached the leader epoch's start
// (spec/broker.md §7.7).
func (b *Broker) offset(e ListOffsets, q OffsetQuery, a *OffsetAnswer) kafka.ErrorCode {
	p, code := b.hosted(q.Partition)
	if code != kafka.NoError {
		return code
	}
	if code := p.judgeEpoch(q.LeaderEpoch); code != kafka.NoError {
		return code
	}
	if p.role != leader && e.Replica != DebugConsumer {
		return kafka.NotLeaderOrFollower
	}
	limit, unsure := p.log.LogEndOffset(), false
	if e.Replica == Consumer {
		limit = p.log.HighWatermark()
		if e.Committed {
			limit = min(limit, p.log.LastStableOffset())
		}
		unsure = p.epochStart >= 0 && p.log.HighWatermark() < p.epochStart
	}
	switch q.Timestamp {
	case LatestOffset:
		if unsure {
			return kafka.OffsetNotAvailable
		}
		a.Offset, a.LeaderEpoch = limit, p.log.LatestEpoch()
		return kafka.NoError
	case EarliestOffset:
		a.Offset = p.log.LogStartOffset()
		a.LeaderEpoch = p.log.EpochAt(a.Offset)
		return kafka.NoError
	}
	found, ok, err := p.find(q.Timestamp)
	switch {
	case err != nil:
		return commitlog.Code(err)
	case ok && found.Offset < limit:
		a.Offset, a.Timestamp, a.LeaderEpoch = found.Offset, found.Timestamp, found.LeaderEpoch
	case unsure:
		return kafka.OffsetNotAvailable
	}
	return kafka.NoError
}

func (p *partition) find(timestamp int64) (commitlog.RecordTime, bool, error) {
	if timestamp == MaxTimestamp {
		return p.log.MaxTimestamp()
	}
	return p.log.OffsetForTimestamp(timestamp)
}

// EpochEnds asks where leader epochs end (OffsetForLeaderEpoch). Reply is as Fetch's.
type EpochEnds struct {
	Queries []EpochQuery
	Replica kafka.BrokerID
	Reply   func([]EpochAnswer)
	fail    func(error)
}

func (e EpochEnds) apply(b *Broker, _ time.Time) {
	if b.phase == down && e.fail != nil {
		e.fail(ErrDown)
		return
	}
	if !b.ready(e) || b.faults.swallows(e.Replica, e.fail, e.refuse) {
		return
	}
	answers := make([]EpochAnswer, len(e.Queries))
	for i, q := range e.Queries {
		answers[i] = EpochAnswer{Partition: q.Partition, Epoch: -1, EndOffset: -1}
		p, code := b.led(q.Partition)
		if code == kafka.NoError {
			code = p.judgeEpoch(q.LeaderEpoch)
		}
		if code != kafka.NoError {
			answers[i].Error = code
			continue
		}
		if b.does.forgetsOldEpochs && len(p.log.Epochs()) > 0 && q.Epoch < p.log.Epochs()[0].Epoch {
			continue // spec/broker.md §8.3: 0.11.0 knows nothing below its first epoch
		}
		answers[i].Epoch, answers[i].EndOffset = p.log.EndOffset(q.Epoch)
	}
	e.Reply(answers)
}

// DeleteRecords lets logs begin at given offsets (-1: the high watermark), and
// answers once all live replicas do, or with REQUEST_TIMED_OUT.
type DeleteRecords struct {
	Offsets map[kafka.TopicPartition]int64
	Timeout time.Duration
	Reply   func(map[kafka.TopicPartition]LowWatermark)
}

// delayedDelete is one that waits for followers.
type delayedDelete struct {
	alarm
	results map[kafka.TopicPartition]LowWatermark
	wanted  map[kafka.TopicPartition]int64 // of those that wait
	reply   func(map[kafka.TopicPartition]LowWatermark)
}

func (e DeleteRecords) apply(b *Broker, now time.Time) {
	if !b.ready(e) {
		return
	}
	d := &delayedDelete{results: map[kafka.TopicPartition]LowWatermark{}, wanted: map[kafka.TopicPartition]int64{}, reply: e.Reply}
	for tp, offset := range e.Offsets {
		start, code := b.deleteTo(now, tp, offset)
		d.results[tp] = LowWatermark{Error: code, Offset: -1}
		if code == kafka.NoError {
			d.wanted[tp] = start
			d.results[tp] = LowWatermark{Error: kafka.RequestTimedOut, Offset: -1}
			p := b.partitions[tp]
			p.deletes = append(p.deletes, d)
			b.rouse(p, wakeDeletes)
		}
	}
	if len(d.wanted) == 0 {
		e.Reply(d.results)
		return
	}
	b.alarms.set(d, now.Add(e.Timeout))
}

func (b *Broker) deleteTo(now time.Time, tp kafka.TopicPartition, offset int64) (start int64, code kafka.ErrorCode) {
	p, code := b.led(tp)
	if code != kafka.NoError {
		return 0, code
	}
	if !p.topic.config.Delete {
		return 0, kafka.PolicyViolation
	}
	if offset == -1 {
		offset = p.log.HighWatermark()
	}
	if offset < 0 || offset > p.log.HighWatermark() {
		return 0, kafka.OffsetOutOfRange
	}
	if err := p.log.RaiseStart(offset); err != nil {
		code := commitlog.Code(err)
		if code == kafka.KafkaStorageError {
			b.storageFailed(now, p, err)
		}
		return 0, code
	}
	b.moved(p)
	b.owesStart(now, p)
	return offset, kafka.NoError
}

// lowWatermark is the smallest start of the log among its live replicas.
func (b *Broker) lowWatermark(p *partition) int64 {
	low := p.log.LogStartOffset()
	for _, r := range p.remotes {
		if b.cache.Alive(r.id) {
			low = min(low, r.logStart)
		}
	}
	return low
}

// completeDeletes answers the DeleteRecords that have what they wait for.
func (b *Broker) completeDeletes(p *partition) {
	kept := p.deletes[:0]
	for _, d := range p.deletes {
		wanted, waits := d.wanted[p.tp]
		if !waits {
			continue // answered
		}
		q, code := b.led(p.tp)
		switch {
		case code != kafka.NoError || q != p:
			d.results[p.tp] = LowWatermark{Error: max(code, kafka.NotLeaderOrFollower), Offset: -1}
		case b.lowWatermark(p) < wanted:
			kept = append(kept, d)
			continue
		default:
			d.results[p.tp] = LowWatermark{Offset: b.lowWatermark(p)}
		}
		if delete(d.wanted, p.tp); len(d.wanted) == 0 {
			b.alarms.stop(d)
			d.reply(d.results)
		}
	}
	clear(p.deletes[len(kept):])
	if p.deletes = kept; len(kept) == 0 {
		p.deletes = nil
	}
}

func (d *delayedDelete) ring(*Broker, time.Time) {
	clear(d.wanted)
	d.reply(d.results)
}

// LogDirs asks what DescribeLogDirs tells. Reply is as Fetch's.
type LogDirs struct{ Reply func([]LogDir) }

func (e LogDirs) apply(b *Broker, _ time.Time) {
	if !b.ready(e) {
		return
	}
	paths := b.logDirs()
	if len(paths) == 0 {
		paths = []string{"memory"}
	}
	dirs := make([]LogDir, len(paths))
	for i, path := range paths {
		dirs[i].Path = path
		if len(b.logDirs()) > 0 && b.deadDirs[i] {
			dirs[i].Error = kafka.KafkaStorageError
		}
	}
	for tp, st := range b.disk {
		if p := b.partitions[tp]; st.log != nil && dirs[st.dir].Error == kafka.NoError && (p == nil || !p.offline) {
			row := LogDirRow{Partition: tp, Size: st.log.Size(), Lag: max(0, st.log.HighWatermark()-st.log.LogEndOffset())}
			dirs[st.dir].Logs = append(dirs[st.dir].Logs, row)
		}
	}
	for i := range dirs {
		slices.SortFunc(dirs[i].Logs, func(a, b LogDirRow) int { return a.Partition.Compare(b.Partition) })
	}
	e.Reply(dirs)
}
