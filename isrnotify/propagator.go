package isrnotify

import (
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// The constants of every release from 0.9.0 on; no user can change them (spec/broker.md §6.1).
const (
	DefaultCheckPeriod = 2500 * time.Millisecond
	DefaultLinger      = 5 * time.Second
	DefaultMaxDelay    = 60 * time.Second
)

// DefaultMaxPayload bounds one announcement, in bytes. ZooKeeper refuses
// frames of a mebibyte (jute.maxbuffer), and takes the connection with them;
// half of that leaves room for everybody's overhead.
const DefaultMaxPayload = 512 << 10

// Options are the constants of a Propagator; a zero field means its default.
type Options struct {
	CheckPeriod time.Duration // how often the owner calls Check
	Linger      time.Duration // a change must be older than this, unless MaxDelay has passed
	MaxDelay    time.Duration // since the last announcement, after which nobody lingers
	MaxPayload  int           // bytes of one announcement; one partition always fits
}

func (o Options) withDefaults() Options {
	if o.CheckPeriod == 0 {
		o.CheckPeriod = DefaultCheckPeriod
	}
	if o.Linger == 0 {
		o.Linger = DefaultLinger
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = DefaultMaxDelay
	}
	if o.MaxPayload == 0 {
		o.MaxPayload = DefaultMaxPayload
	}
	return o
}

// Propagator collects changed partitions and says when to announce them. One
// owner calls it; it must be made with NewPropagator.
type Propagator struct {
	opts            Options
	changes         map[kafka.TopicPartition]uint64 // changeSet; the value is the count of the last Record
	recorded        uint64
	offered         uint64 // recorded, when Check last answered yes
	lastChange      time.Time
	lastPropagation time.Time
}

// NewPropagator makes an empty Propagator. Both of its times are now, the
// broker's start (spec/broker.md §6.2).
func NewPropagator(opts Options, now time.Time) *Propagator {
	return &Propagator{
		opts: opts.withDefaults(), changes: map[kafka.TopicPartition]uint64{},
		lastChange: now, lastPropagation: now,
	}
}

// CheckPeriod is how often Check wants to be called, the first time at construction.
func (p *Propagator) CheckPeriod() time.Duration { return p.opts.CheckPeriod }

// Record notes that the ISR of tp was written.
func (p *Propagator) Record(tp kafka.TopicPartition, now time.Time) {
	p.recorded++
	p.changes[tp] = p.recorded
	p.lastChange = now
}

// Pending gives the partitions that wait to be announced, sorted.
func (p *Propagator) Pending() []kafka.TopicPartition {
	tps := make([]kafka.TopicPartition, 0, len(p.changes))
	for tp := range p.changes {
		tps = append(tps, tp)
	}
	kafka.SortPartitions(tps)
	return tps
}

// Check tells whether to announce now, and what: one batch a znode, nearly
// always a single one. It changes nothing that matters: the caller creates the
// znodes in order and reports each by Sent, or gives up with Failed.
func (p *Propagator) Check(now time.Time) (batches [][]kafka.TopicPartition, ok bool) {
	lingered := p.lastChange.Add(p.opts.Linger).Before(now)
	overdue := p.lastPropagation.Add(p.opts.MaxDelay).Before(now)
	if len(p.changes) == 0 || !lingered && !overdue {
		return nil, false
	}
	p.offered = p.recorded
	return divide(p.Pending(), p.opts.MaxPayload), true
}

// Sent reports that the znode of one batch was created. A partition that was
// recorded again since Check stays: the controller may have read its state in
// between. The time of the last announcement moves when all that Check offered
// has been sent.
func (p *Propagator) Sent(batch []kafka.TopicPartition, now time.Time) {
	for _, tp := range batch {
		if at, ok := p.changes[tp]; ok && at <= p.offered {
			delete(p.changes, tp)
		}
	}
	for _, at := range p.changes {
		if at <= p.offered {
			return
		}
	}
	p.lastPropagation = now
}

// Failed reports that a znode could not be created. Set and times stay as they
// are (spec/broker.md §6.5), so the next Check offers the rest again.
func (p *Propagator) Failed() { p.offered = 0 }

// frame is what an announcement has around its entries, with some room.
const frame = 64

// divide cuts sorted partitions into batches whose JSON stays within limit bytes.
func divide(tps []kafka.TopicPartition, limit int) [][]kafka.TopicPartition {
	var batches [][]kafka.TopicPartition
	start, size := 0, frame
	for i, tp := range tps {
		n := entrySize(tp)
		if i > start && size+n > limit {
			batches = append(batches, tps[start:i:i])
			start, size = i, frame
		}
		size += n
	}
	return append(batches, tps[start:])
}

// entrySize bounds {"topic":"t","partition":0}, and its comma, from above.
// Legal names need no escapes; any other byte may become \u and four digits.
func entrySize(tp kafka.TopicPartition) int {
	n := len(`{"topic":"","partition":-2147483648},`)
	for _, c := range []byte(tp.Topic) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			n += len(`\u0000`)
		} else {
			n++
		}
	}
	return n
}
