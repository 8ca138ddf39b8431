package brokers

import (
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Produce is a ProduceRequest as an event. Reply is called once, also for acks=0,
// or never if the process dies first; it must not block.
type Produce struct {
	Request *ProduceRequest
	Reply   func([]ProduceResult)
}

// delayedProduce is an acks=all request that waits for its high watermarks.
type delayedProduce struct {
	alarm
	results []ProduceResult
	open    int // rows that wait
	reply   func([]ProduceResult)
}

// produceWait is one row of it, in the list of its partition.
type produceWait struct {
	d        *delayedProduce
	row      int
	required int64 // one past its last record
}

// ready tells whether client requests are served; if not yet, the event waits.
func (b *Broker) ready(ev Event) bool {
	switch {
	case b.phase == down || b.opts.Logs == nil:
		return false
	case b.phase == starting:
		b.early = append(b.early, ev)
		return false
	}
	return true
}

func (e Produce) apply(b *Broker, now time.Time) {
	if !b.ready(e) {
		return
	}
	r := e.Request
	if r.Acks == AcksAll && !b.knows(e, r.partitions) {
		return
	}
	results := make([]ProduceResult, len(r.Rows))
	var d *delayedProduce
	for i, row := range r.Rows {
		p, info, code := b.appendRow(now, r.Acks, row)
		results[i] = ProduceResult{Partition: row.Partition, Error: code, BaseOffset: -1, AppendTime: -1, LogStartOffset: -1}
		if code != kafka.NoError {
			continue
		}
		results[i].BaseOffset, results[i].LogStartOffset = info.BaseOffset, p.log.LogStartOffset()
		if p.topic.config.LogAppendTime {
			results[i].AppendTime = info.MaxTimestamp
		}
		if r.Acks != AcksAll {
			continue
		}
		if info.LastOffset < p.log.HighWatermark() {
			results[i].Error = b.committedCode(p)
			continue
		}
		if d == nil {
			d = &delayedProduce{results: results, reply: e.Reply}
		}
		d.open++
		results[i].Error = kafka.RequestTimedOut // until it is settled
		p.await(produceWait{d, i, info.LastOffset + 1})
	}
	if d == nil {
		e.Reply(results)
		return
	}
	b.alarms.set(d, now.Add(r.Timeout))
}

// await keeps the waits in the order of their offsets: a record that was there
// already waits with those of its time.
func (p *partition) await(w produceWait) {
	i := len(p.produces)
	for i > 0 && p.produces[i-1].required > w.required {
		i--
	}
	p.produces = slices.Insert(p.produces, i, w)
}

func (r *ProduceRequest) partitions(yield func(kafka.TopicPartition) bool) {
	for i := range r.Rows {
		if !yield(r.Rows[i].Partition) {
			return
		}
	}
}

// appendRow appends one partition's records (spec/broker.md §7.6, §10.5).
func (b *Broker) appendRow(now time.Time, acks int16, row ProduceRow) (*partition, commitlog.AppendInfo, kafka.ErrorCode) {
	if acks != AcksNone && acks != AcksLeader && acks != AcksAll {
		return nil, commitlog.AppendInfo{}, kafka.InvalidRequiredAcks
	}
	if !b.cache.Knows(row.Partition) {
		// spec/broker.md §1.5: until UpdateMetadata has told of the topic.
		return nil, commitlog.AppendInfo{}, kafka.UnknownTopicOrPartition
	}
	p, code := b.led(row.Partition)
	if code != kafka.NoError {
		return nil, commitlog.AppendInfo{}, code
	}
	info, code := b.appendTo(now, p, acks, row.Records)
	return p, info, code
}

// appendTo appends records to a partition led here.
func (b *Broker) appendTo(now time.Time, p *partition, acks int16, records []byte) (commitlog.AppendInfo, kafka.ErrorCode) {
	if acks == AcksAll && len(p.isr.isr) < b.minISR(p) {
		return commitlog.AppendInfo{}, kafka.NotEnoughReplicas
	}
	info, err := p.log.Append(records, p.leaderEpoch, b.wall(now))
	if err != nil {
		code := commitlog.Code(err)
		b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithError(err).Debug("records refused")
		if code == kafka.KafkaStorageError {
			b.storageFailed(now, p, err)
		}
		return info, code
	}
	if info.Duplicate {
		return info, kafka.NoError
	}
	b.counters.MessagesIn += info.LastOffset - info.BaseOffset + 1
	b.counters.BytesIn += int64(len(records))
	b.suspect(p)
	if !b.raise(now, p) {
		b.rouse(p, wakeFetches) // followers wait for data
	}
	b.trim(now, p)
	return info, kafka.NoError
}

// trim keeps a log in memory near its bound, between two runs of retention.
func (b *Broker) trim(now time.Time, p *partition) {
	c := p.topic.config
	if len(b.logDirs()) == 0 && c.Delete && c.RetentionBytes >= 0 && p.log.Size() > c.RetentionBytes+max(c.RetentionBytes/4, 1<<20) {
		b.retainLog(now, p.tp, p.stored, c)
	}
	b.bound(now)
}

// led gives a partition that is led here, or why not.
func (b *Broker) led(tp kafka.TopicPartition) (*partition, kafka.ErrorCode) {
	p, code := b.hosted(tp)
	if code == kafka.NoError && p.role != leader {
		return nil, kafka.NotLeaderOrFollower
	}
	return p, code
}

// hosted gives a partition with its log, or why it is not served (spec/broker.md §8.6).
func (b *Broker) hosted(tp kafka.TopicPartition) (*partition, kafka.ErrorCode) {
	p := b.partitions[tp]
	switch {
	case p == nil && b.cache.Knows(tp):
		return nil, kafka.NotLeaderOrFollower
	case p == nil:
		return nil, kafka.UnknownTopicOrPartition
	case p.offline:
		return nil, kafka.KafkaStorageError
	case p.log == nil:
		return nil, kafka.NotLeaderOrFollower
	}
	return p, kafka.NoError
}

// committedCode is what an acks=all row is answered once it is committed.
func (b *Broker) committedCode(p *partition) kafka.ErrorCode {
	if len(p.isr.maximal()) < b.minISR(p) {
		return kafka.NotEnoughReplicasAfterAppend
	}
	return kafka.NoError
}

// completeProduces answers the rows that wait for a partition and have what they
// wait for, or never will.
func (b *Broker) completeProduces(p *partition) {
	if len(p.produces) == 0 {
		return
	}
	if q, code := b.led(p.tp); code != kafka.NoError || q != p {
		waits := p.produces
		p.produces = nil
		if code == kafka.NoError {
			code = kafka.NotLeaderOrFollower
		}
		for _, w := range waits {
			b.settleProduce(w, code)
		}
		return
	}
	high, n := p.log.HighWatermark(), 0
	for ; n < len(p.produces); n++ {
		w := p.produces[n]
		if w.d.open > 0 && w.required > high {
			break
		}
		b.settleProduce(w, b.committedCode(p))
		p.produces[n] = produceWait{}
	}
	if p.produces = p.produces[n:]; len(p.produces) == 0 {
		p.produces = nil
	}
}

func (b *Broker) settleProduce(w produceWait, code kafka.ErrorCode) {
	d := w.d
	if d.open == 0 {
		return // timed out
	}
	d.results[w.row].Error = code
	if d.open--; d.open == 0 {
		b.alarms.stop(d)
		d.reply(d.results)
	}
}

// ring is the request's timeout: what is not committed now is answered so. It
// may still be committed later.
func (d *delayedProduce) ring(b *Broker, _ time.Time) {
	b.counters.ProduceExpires += d.open
	d.open = 0
	for i := range d.results {
		if p := b.partitions[d.results[i].Partition]; p != nil {
			p.dropAnswered()
		}
	}
	d.reply(d.results)
}

// dropAnswered takes out what timed out, from the front, where the oldest stand.
func (p *partition) dropAnswered() {
	for len(p.produces) > 0 && p.produces[0].d.open == 0 {
		p.produces[0] = produceWait{}
		p.produces = p.produces[1:]
	}
}
