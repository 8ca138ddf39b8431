package commitlog

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// naive is a log as a list of batches, told in the plainest way.
type naive struct {
	batches          []naiveBatch // that were not truncated, also below start
	start, end, high int64
	known            map[int64][]naiveBatch // by producer id: the batches of its epoch, the last five
}

type naiveBatch struct {
	base, last int64
	leader     int32
	id         int64
	epoch      int16
	seq, end   int32 // its sequence numbers
	bytes      []byte
}

func (n *naive) know(b naiveBatch) {
	if b.id < 0 {
		return
	}
	k := n.known[b.id]
	if len(k) > 0 && k[0].epoch != b.epoch {
		k = nil
	}
	k = append(slices.Clone(k), b)
	n.known[b.id] = k[max(0, len(k)-5):]
}

// judge gives what an idempotent batch is answered: a code, or the batch that it
// repeats.
func (n *naive) judge(b naiveBatch) (kafka.ErrorCode, *naiveBatch) {
	k := n.known[b.id]
	if b.id < 0 || len(k) == 0 {
		return kafka.NoError, nil
	}
	last := k[len(k)-1]
	for i := range k {
		if k[i].epoch == b.epoch && k[i].seq == b.seq && k[i].end == b.end {
			return kafka.NoError, &k[i]
		}
	}
	switch {
	case b.epoch < last.epoch:
		return kafka.InvalidProducerEpoch, nil
	case b.epoch > last.epoch && b.seq != 0, b.epoch == last.epoch && int64(b.seq) != (int64(last.end)+1)%(1<<31):
		return kafka.OutOfOrderSequenceNumber, nil
	}
	return kafka.NoError, nil
}

func (n *naive) truncate(x int64) {
	if x >= n.end {
		return
	}
	n.end = x
	for len(n.batches) > 0 && n.batches[len(n.batches)-1].last >= x {
		n.end = min(n.end, n.batches[len(n.batches)-1].base)
		n.batches = n.batches[:len(n.batches)-1]
	}
	n.start, n.high = min(n.start, n.end), min(n.high, n.end)
	for id, k := range n.known {
		if k[len(k)-1].last >= n.end {
			delete(n.known, id)
			for _, b := range n.batches {
				if b.id == id && b.last >= n.start {
					n.know(b)
				}
			}
		}
	}
}

// read gives the bytes that a read is answered with.
func (n *naive) read(offset int64, maxBytes int, limit int64, minOne bool) (out []byte) {
	for _, b := range n.batches {
		if b.last < offset {
			continue
		}
		if b.last >= limit || len(out)+len(b.bytes) > maxBytes && (len(out) > 0 || !minOne) {
			break
		}
		out = append(out, b.bytes...)
	}
	return out
}

// pair is a log and the naive one beside it.
type pair struct {
	n      naive
	l      *Log
	dir    string // empty: in memory
	o      Options
	leader int32
	seqs   map[int64]int32 // next sequence number of each producer, as it thinks
	held   []held
}

// held is what a reader got, and a copy of it.
type held struct{ got, copied []byte }

func newPair(dir string) *pair {
	p := &pair{dir: dir, o: Options{SegmentBytes: 400}, n: naive{known: map[int64][]naiveBatch{}}, seqs: map[int64]int32{}}
	p.l = New(p.o)
	return p
}

func (p *pair) append(t *rapid.T) {
	b := naiveBatch{id: rapid.Int64Range(-1, 2).Draw(t, "id"), epoch: int16(rapid.IntRange(0, 1).Draw(t, "epoch")), leader: p.leader}
	count := rapid.IntRange(1, 4).Draw(t, "count")
	spec := NoProducerSpec()
	if b.id >= 0 {
		next, ok := p.seqs[b.id]
		if !ok {
			next = rapid.SampledFrom([]int32{0, 1<<31 - 3}).Draw(t, "first")
		}
		b.seq = rapid.SampledFrom([]int32{next, next, next, next, 0, max(0, next-int32(count))}).Draw(t, "sequence")
		if k := p.n.known[b.id]; len(k) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
			old := rapid.SampledFrom(k).Draw(t, "which")
			b.epoch, b.seq, count = old.epoch, old.seq, int(old.last-old.base)+1
		}
		b.end = addSequence(b.seq, int32(count-1))
		spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence = b.id, b.epoch, b.seq
	}
	encoded, err := spec.Encode(records(count, fmt.Sprint(p.n.end))...)
	must(t, err)
	code, dup := p.n.judge(b)
	info, err := p.l.Append(encoded, p.leader, at)
	if Code(err) != code {
		t.Fatalf("append of %+v: %v, want %s", b, err, code)
	}
	if err != nil {
		return
	}
	want := AppendInfo{BaseOffset: p.n.end, LastOffset: p.n.end + int64(count-1), MaxTimestamp: at.UnixMilli() + int64(count-1)}
	if dup != nil {
		want.BaseOffset, want.LastOffset, want.Duplicate = dup.base, dup.last, true
	}
	if info != want {
		t.Fatalf("append of %+v: %+v, want %+v", b, info, want)
	}
	if dup == nil {
		b.base, b.last = want.BaseOffset, want.LastOffset
		p.keep(b, encoded)
	}
}

func (p *pair) keep(b naiveBatch, encoded []byte) {
	b.bytes = bytes.Clone(encoded)
	p.n.batches = append(p.n.batches, b)
	p.n.end = b.last + 1
	p.n.know(b)
	if b.id >= 0 {
		p.seqs[b.id] = addSequence(b.end, 1)
	}
}

// follow appends as a follower does, sometimes behind a gap.
func (p *pair) follow(t *rapid.T) {
	spec := NoProducerSpec()
	spec.LeaderEpoch = p.leader
	spec.BaseOffset = p.n.end + rapid.Int64Range(-1, 2).Draw(t, "gap")
	if spec.BaseOffset < 0 {
		return
	}
	encoded, err := spec.Encode(records(2, "followed")...)
	must(t, err)
	err = p.l.AppendAsFollower(encoded)
	if spec.BaseOffset < p.n.end {
		if p.n.start == p.n.end { // the start lies within the batch
			must(t, err)
			p.n.batches, p.n.known = nil, map[int64][]naiveBatch{}
			p.n.start, p.n.high = spec.BaseOffset, spec.BaseOffset
		} else if _, ok := err.(*UnexpectedOffset); !ok {
			t.Fatalf("append at %d to a log that ends at %d: %v", spec.BaseOffset, p.n.end, err)
		} else {
			return
		}
	}
	must(t, err)
	p.keep(naiveBatch{id: -1, base: spec.BaseOffset, last: spec.BaseOffset + 1, leader: p.leader}, encoded)
}

func (p *pair) offset(t *rapid.T) int64 {
	return rapid.Int64Range(max(0, p.n.start-2), p.n.end+2).Draw(t, "offset")
}

func (p *pair) read(t *rapid.T) {
	o, limit := p.offset(t), p.offset(t)
	maxBytes, minOne := rapid.IntRange(0, 900).Draw(t, "bytes"), rapid.Bool().Draw(t, "one")
	got, err := p.l.Read(o, maxBytes, limit, minOne)
	if outside := o < p.n.start || o > p.n.end; outside {
		if Code(err) != kafka.OffsetOutOfRange {
			t.Fatalf("read at %d of %d to %d: %v", o, p.n.start, p.n.end, err)
		}
		return
	}
	must(t, err)
	if want := p.n.read(o, maxBytes, limit, minOne); !bytes.Equal(bytes.Join(got, nil), want) {
		t.Fatalf("read at %d, %d bytes, below %d: %d bytes, want %d", o, maxBytes, limit, len(bytes.Join(got, nil)), len(want))
	}
	for _, b := range got {
		p.held = append(p.held, held{b, bytes.Clone(b)})
	}
}

func (p *pair) retain(t *rapid.T) {
	keep := rapid.Int64Range(0, 2000).Draw(t, "retention.bytes")
	before := p.l.Size()
	freed, err := p.l.Retain(at, keep, NoRetention)
	must(t, err)
	start := p.l.LogStartOffset()
	if start < p.n.start || start > p.n.high || p.l.Size() != before-freed || freed > 0 && p.l.Size() < keep {
		t.Fatalf("retention of %d bytes: start %d → %d, HW %d, size %d → %d, freed %d", keep, p.n.start, start, p.n.high, before, p.l.Size(), freed)
	}
	p.n.start = start
}

// has tells whether there are records from an offset on and below another.
func (n *naive) has(from, to int64) bool {
	return slices.ContainsFunc(n.batches, func(b naiveBatch) bool { return b.last >= from && b.base < to })
}

func (p *pair) reopen(t *rapid.T) {
	if p.dir == "" {
		return
	}
	if rapid.Bool().Draw(t, "clean") {
		must(t, p.l.Close())
		p.o.RecoveryPoint = p.n.end
	} else {
		kill(p.l)
		p.o.RecoveryPoint = 0
	}
	p.o.LogStartOffset = p.n.start
	l, err := Open(p.dir, p.o)
	must(t, err)
	p.l = l
	p.l.SetHighWatermark(p.n.high)
	// What was there to see of the end is the last batch.
	end := p.n.start
	for _, b := range p.n.batches {
		end = max(end, b.last+1)
	}
	if got := l.LogEndOffset(); got != end && got != p.n.end {
		t.Fatalf("opened with end %d, want %d or %d", got, end, p.n.end)
	}
	p.n.end = l.LogEndOffset()
	if start := l.LogStartOffset(); start > p.n.start && !p.n.has(p.n.start, start) {
		p.n.start = start // nothing lay between
	}
	p.n.high = max(p.n.start, min(p.n.high, p.n.end))
	p.n.known = map[int64][]naiveBatch{}
	for _, b := range p.n.batches {
		if b.last >= p.n.start {
			p.n.know(b)
		}
	}
}

// agree compares all that can be told of both.
func (p *pair) agree(t *rapid.T) {
	if p.l.LogStartOffset() != p.n.start || p.l.LogEndOffset() != p.n.end || p.l.HighWatermark() != p.n.high {
		t.Fatalf("start %d HW %d LEO %d, want %d %d %d", p.l.LogStartOffset(), p.l.HighWatermark(), p.l.LogEndOffset(), p.n.start, p.n.high, p.n.end)
	}
	got, err := p.l.Read(p.n.start, 1<<30, 1<<62, true)
	must(t, err)
	if want := p.n.read(p.n.start, 1<<30, 1<<62, true); !bytes.Equal(bytes.Join(got, nil), want) {
		t.Fatalf("the records differ: %d bytes, want %d", len(bytes.Join(got, nil)), len(want))
	}
	for _, b := range p.n.batches {
		if b.last >= p.n.start && (p.l.EpochAt(max(b.base, p.n.start)) != b.leader || p.l.EpochAt(b.last) != b.leader) {
			t.Fatalf("the records %d to %d are of epoch %d; %v", b.base, b.last, b.leader, p.l.Epochs())
		}
	}
	for i, e := range p.l.Epochs() {
		if i > 0 && (e.Epoch <= p.l.epochs[i-1].Epoch || e.Start <= p.l.epochs[i-1].Start) {
			t.Fatalf("epochs do not rise: %v", p.l.Epochs())
		}
	}
	if p.l.Producers() != len(p.n.known) {
		t.Fatalf("%d producers, want %d", p.l.Producers(), len(p.n.known))
	}
	size := int64(0)
	for _, s := range p.l.segments {
		size += s.size
	}
	if size != p.l.Size() {
		t.Fatalf("size %d, the segments have %d", p.l.Size(), size)
	}
	for _, h := range p.held {
		if !bytes.Equal(h.got, h.copied) {
			t.Fatal("what a reader holds has changed")
		}
	}
}

func property(t *testing.T, disk bool) {
	rapid.Check(t, func(t *rapid.T) {
		dir := ""
		if disk {
			var err error
			dir, err = os.MkdirTemp("", "commitlog")
			must(t, err)
			defer os.RemoveAll(dir)
		}
		p := newPair(dir)
		if disk {
			l, err := Open(dir, p.o)
			must(t, err)
			p.l = l
			defer func() { p.l.Close() }()
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": p.append, "append more": p.append, "follow": p.follow, "read": p.read, "retain": p.retain, "reopen": p.reopen,
			"leader": func(t *rapid.T) {
				p.leader += int32(rapid.IntRange(1, 2).Draw(t, "by"))
				must(t, p.l.AssignEpoch(p.leader, p.l.LogEndOffset()))
			},
			"high watermark": func(t *rapid.T) {
				p.n.high = max(p.n.start, min(p.n.end, p.offset(t)))
				p.l.SetHighWatermark(p.n.high)
			},
			"truncate": func(t *rapid.T) {
				x := p.offset(t)
				must(t, p.l.TruncateTo(x))
				if x < p.n.start && p.l.LogEndOffset() <= x {
					// What is left of batches below the start is the segments' affair.
					p.n.batches = slices.DeleteFunc(p.n.batches, func(b naiveBatch) bool { return b.last < p.n.start })
					x = p.l.LogEndOffset()
				}
				p.n.truncate(x)
			},
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					return
				}
				x := rapid.Int64Range(0, 50).Draw(t, "at")
				must(t, p.l.TruncateFullyAndStartAt(x))
				p.n = naive{start: x, end: x, high: x, known: map[int64][]naiveBatch{}}
			},
			"raise": func(t *rapid.T) {
				x := p.offset(t)
				err := p.l.RaiseStart(x)
				if x > p.n.high {
					if Code(err) != kafka.OffsetOutOfRange {
						t.Fatalf("raise to %d above %d: %v", x, p.n.high, err)
					}
					return
				}
				must(t, err)
				p.n.start = max(p.n.start, x)
			},
			"": p.agree,
		})
	})
}

func TestAgainstNaiveInMemory(t *testing.T) { property(t, false) }
func TestAgainstNaiveOnDisk(t *testing.T)   { property(t, true) }
