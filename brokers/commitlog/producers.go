package commitlog

import (
	"math"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// remembered is how many of a producer's last batches are known again.
const remembered = 5

// DefaultProducerIDExpiration is producer.id.expiration.ms.
const DefaultProducerIDExpiration = 24 * time.Hour

// producer is what the log knows of one idempotent producer.
type producer struct {
	epoch    int16
	n        uint8
	lastTime int64                // of its newest batch, ms
	since    int64                // offset of the first batch of it that was seen
	recent   [remembered]sequence // n of them, oldest first
}

// sequence is one batch of a producer.
type sequence struct {
	last       int32 // sequence number of its last record
	delta      int32 // from its first record to its last
	lastOffset int64
	timestamp  int64 // its largest
}

// addSequence goes n on from s; after 2³¹-1 comes 0.
func addSequence(s, n int32) int32 {
	if s > math.MaxInt32-n {
		return n - (math.MaxInt32 - s) - 1
	}
	return s + n
}

// follows tells whether next comes right after last.
func follows(last, next int32) bool {
	return int64(next) == int64(last)+1 || next == 0 && last == math.MaxInt32
}

// duplicate finds b among the batches that are remembered.
func (p *producer) duplicate(b Batch) (sequence, bool) {
	if b.ProducerEpoch() != p.epoch {
		return sequence{}, false
	}
	for _, s := range p.recent[:p.n] {
		if s.last == b.LastSequence() && s.delta == b.LastOffsetDelta() {
			return s, true
		}
	}
	return sequence{}, false
}

// check says why b may not follow what the producer wrote. A producer that is
// not known may go on with any sequence number, since Kafka 2.5: it may have
// been forgotten.
func (p *producer) check(b Batch) error {
	id := b.ProducerID()
	switch {
	case b.ProducerEpoch() < p.epoch:
		return refuse(kafka.InvalidProducerEpoch, "epoch %d of producer id %d is over: it is at %d", b.ProducerEpoch(), id, p.epoch)
	case b.ProducerEpoch() > p.epoch:
		if b.BaseSequence() != 0 {
			return refuse(kafka.OutOfOrderSequenceNumber, "sequence %d begins epoch %d of producer id %d: 0 does", b.BaseSequence(), b.ProducerEpoch(), id)
		}
		return nil
	}
	last := int32(-1)
	if p.n > 0 {
		last = p.recent[p.n-1].last
	}
	if !follows(last, b.BaseSequence()) {
		return refuse(kafka.OutOfOrderSequenceNumber, "sequence %d of producer id %d follows %d", b.BaseSequence(), id, last)
	}
	return nil
}

// add notes one more batch.
func (p *producer) add(b Batch) {
	if p.epoch != b.ProducerEpoch() {
		p.epoch, p.n = b.ProducerEpoch(), 0
	}
	p.lastTime = b.MaxTimestamp()
	if b.Control() || b.BaseSequence() < 0 { // the end of a transaction has no sequence
		return
	}
	if p.n == remembered {
		copy(p.recent[:], p.recent[1:])
		p.n--
	}
	p.recent[p.n] = sequence{b.LastSequence(), b.LastOffsetDelta(), b.LastOffset(), b.MaxTimestamp()}
	p.n++
}

// lastOffset of what is remembered, -1 without.
func (p *producer) lastOffset() int64 {
	if p.n == 0 {
		return -1
	}
	return p.recent[p.n-1].lastOffset
}

// producers are those that wrote to this log, by id.
type producers map[int64]*producer

// note keeps what batch b says of its producer.
func (ps *producers) note(b Batch) {
	id := b.ProducerID()
	if id < 0 {
		return
	}
	p := (*ps)[id]
	if p == nil {
		if *ps == nil {
			*ps = producers{}
		}
		p = &producer{epoch: b.ProducerEpoch(), since: b.BaseOffset()}
		(*ps)[id] = p
	}
	p.add(b)
}

// admit holds the batches of one append against the producers. A duplicate of a
// remembered batch ends it: the whole append is one.
func (ps producers) admit(batches []byte) (dup *sequence, err error) {
	var staged producers // what the batches before, in this same append, changed
	for rest := batches; len(rest) > 0; {
		var b Batch
		if b, rest, err = Next(rest); err != nil {
			return nil, err
		}
		id := b.ProducerID()
		if id < 0 {
			continue
		}
		p, ok := staged[id]
		if !ok {
			p = ps[id]
		}
		if p != nil {
			if s, ok := p.duplicate(b); ok {
				return &s, nil
			}
			if err := p.check(b); err != nil {
				return nil, err
			}
		}
		if len(rest) > 0 {
			if staged == nil {
				staged = producers{}
			}
			if p != nil && !ok {
				c := *p
				staged[id] = &c
			}
			staged.note(b)
		}
	}
	return nil, nil
}

// expire forgets those that wrote nothing for the time given.
func (ps producers) expire(now time.Time, idle time.Duration) int {
	n := 0
	for id, p := range ps {
		if now.UnixMilli()-p.lastTime >= idle.Milliseconds() {
			delete(ps, id)
			n++
		}
	}
	return n
}
