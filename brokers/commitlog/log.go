package commitlog

import (
	"math"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Options are what a topic's configuration says of its logs. The zero value is
// a log of Kafka's defaults.
type Options struct {
	LogAppendTime        bool          // message.timestamp.type
	SegmentBytes         int64         // segment.bytes; 0: 1 GiB. In memory, chunks are never larger than 256 KiB but for one append
	ProducerIDExpiration time.Duration // producer.id.expiration.ms; 0: a day

	// In memory only.
	Memory *Memory // counts the chunks; nil: nobody does. Not to be changed later
	Kept   bool    // the records are only compacted (cleanup.policy): Memory leaves them alone

	// On disk only.
	FlushMessages  int64 // flush.messages: an fsync after as many records; 0: only when Flush is called
	LogStartOffset int64 // from log-start-offset-checkpoint
	RecoveryPoint  int64 // from recovery-point-offset-checkpoint: offsets below it are known to be safe on disk
}

// Log is one partition's log. One goroutine at a time may use it.
type Log struct {
	opts      Options
	disk      *disk // nil in memory
	segments  []*segment
	start     int64
	end       int64
	high      int64
	size      int64
	epochs    epochCache
	producers producers
	cleaned   int64 // Compact has seen what is below
	failed    error // a write to disk that did not succeed
}

// AppendInfo says where a leader's append went. With Duplicate, the batch was
// there already, and the offsets are those of that time.
type AppendInfo struct {
	BaseOffset   int64
	LastOffset   int64
	MaxTimestamp int64 // ms; with LogAppendTime the time of all records
	Duplicate    bool
}

// New makes an empty log in memory.
func New(o Options) *Log { return &Log{opts: o} }

// SetOptions replaces the options, as when a topic's configuration changes; the
// Memory stays.
func (l *Log) SetOptions(o Options) {
	o.Memory = l.opts.Memory
	kept := l.opts.Kept
	l.opts = o
	if o.Kept == kept {
		return
	}
	for _, s := range l.segments {
		s.release()
		o.Memory.take(l, s)
	}
}

// LogStartOffset is the first offset that still exists.
func (l *Log) LogStartOffset() int64 { return l.start }

// LogEndOffset is the offset that the next record gets.
func (l *Log) LogEndOffset() int64 { return l.end }

// HighWatermark is the offset below which records are committed.
func (l *Log) HighWatermark() int64 { return l.high }

// LastStableOffset is the high watermark: there are no transactions.
func (l *Log) LastStableOffset() int64 { return l.high }

// Size is the number of bytes of the batches, as DescribeLogDirs tells it.
func (l *Log) Size() int64 { return l.size }

// RaiseHighWatermark moves the high watermark up to x, but not past the log's
// end, as a leader does, and tells whether it moved (spec/broker.md §7.4).
func (l *Log) RaiseHighWatermark(x int64) bool {
	if x = min(x, l.end); x <= l.high {
		return false
	}
	l.high = x
	l.opts.Memory.committed()
	return true
}

// SetHighWatermark sets the high watermark to x, or the nearest offset of the
// log, up or down, as a follower does or a checkpoint says (§7.1, §7.5), and
// gives what it is now.
func (l *Log) SetHighWatermark(x int64) int64 {
	before := l.high
	l.high = max(l.start, min(x, l.end))
	if l.high > before {
		l.opts.Memory.committed()
	}
	return l.high
}

// Append adds batches as the leader of an epoch: it writes offsets, epoch and,
// for LogAppendTime, time into the bytes, and copies them. They have been
// through Check, or Encode made them. All are appended or none; a *Error says
// OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH, or that the bytes are
// no batches.
func (l *Log) Append(batches []byte, leaderEpoch int32, now time.Time) (AppendInfo, error) {
	if l.failed != nil {
		return AppendInfo{}, l.failed
	}
	if len(batches) == 0 {
		return AppendInfo{}, refuse(kafka.InvalidRecord, "there is no record batch")
	}
	dup, err := l.producers.admit(batches)
	if err != nil {
		return AppendInfo{}, err
	}
	if dup != nil {
		return AppendInfo{BaseOffset: dup.lastOffset - int64(dup.delta), LastOffset: dup.lastOffset, MaxTimestamp: dup.timestamp, Duplicate: true}, nil
	}
	info := AppendInfo{BaseOffset: l.end, MaxTimestamp: -1}
	next := l.end
	for rest := batches; len(rest) > 0; {
		var b Batch
		b, rest, _ = Next(rest) // admit has walked them
		if int64(b.LastOffsetDelta()) >= math.MaxInt64-next {
			return AppendInfo{}, refuse(kafka.InvalidRecord, "the log's offsets are used up")
		}
		b.setBaseOffset(next)
		b.setLeaderEpoch(leaderEpoch)
		if l.opts.LogAppendTime {
			b.setAttributes(b.Attributes() | logAppendTimeBit)
			b.setMaxTimestamp(now.UnixMilli())
			b.setCRC()
		}
		info.MaxTimestamp = max(info.MaxTimestamp, b.MaxTimestamp())
		next = b.LastOffset() + 1
	}
	info.LastOffset = next - 1
	return info, l.add(batches)
}

// AppendAsFollower adds batches as the leader sent them, with its offsets and
// epochs; they have been through CheckReplicated. The first must not lie below
// the log's end, else the error is an *UnexpectedOffset. It may lie above, for
// compaction leaves gaps. Where the log holds nothing yet and its start lies
// within the first batch, the log restarts at that batch's base offset.
func (l *Log) AppendAsFollower(batches []byte) error {
	if l.failed != nil {
		return l.failed
	}
	first, last, err := ascending(batches)
	if err != nil || first < 0 {
		return err
	}
	if first < l.end {
		if l.start != l.end || last < l.start {
			return &UnexpectedOffset{first, l.end}
		}
		if err := l.TruncateFullyAndStartAt(first); err != nil {
			return err
		}
	}
	return l.add(batches)
}

// ascending walks batches whose offsets must rise, and gives the first offset
// of all and the last of the first batch; -1 without any.
func ascending(batches []byte) (first, last int64, err error) {
	first, last = -1, -1
	next := int64(0)
	for rest := batches; len(rest) > 0; {
		var b Batch
		if b, rest, err = Next(rest); err != nil {
			return 0, 0, err
		}
		if b.BaseOffset() < next {
			return 0, 0, refuse(kafka.CorruptMessage, "a batch at offset %d behind one that ends at %d", b.BaseOffset(), next-1)
		}
		if next = b.LastOffset() + 1; first < 0 {
			first, last = b.BaseOffset(), b.LastOffset()
		}
	}
	return first, last, nil
}

// add writes batches whose offsets stand, and notes them.
func (l *Log) add(batches []byte) error {
	s, err := l.active(batches)
	if err != nil {
		return err
	}
	pos := s.size
	if err := s.write(batches); err != nil {
		return l.fail(err)
	}
	news := false
	for b := range Batches(batches) {
		s.note(b, pos)
		pos += int64(len(b))
		news = l.noteBatch(b) || news
	}
	l.size += int64(len(batches))
	return l.written(news)
}

// noteBatch keeps what the log itself is to know of a batch at its end, and
// tells whether its epoch is new.
func (l *Log) noteBatch(b Batch) bool {
	l.end = b.LastOffset() + 1
	l.producers.note(b)
	return l.epochs.assign(b.LeaderEpoch(), b.BaseOffset())
}

// active gives the segment that takes the batches.
func (l *Log) active(batches []byte) (*segment, error) {
	first := Batch(batches).BaseOffset()
	var s *segment
	if n := len(l.segments); n > 0 {
		s = l.segments[n-1]
	}
	limit := l.opts.SegmentBytes
	if limit <= 0 {
		limit = 1 << 30
	}
	if l.disk != nil {
		fits := s != nil && (s.size == 0 || s.size+int64(len(batches)) <= limit && first-s.base < math.MaxInt32)
		if fits {
			return s, nil
		}
		return l.roll(l.end)
	}
	if s != nil && s.room(len(batches)) && first-s.base < math.MaxInt32 {
		return s, nil
	}
	c := newSegment("", l.end)
	c.mem = make([]byte, 0, chunkFor(s, len(batches), int(min(limit, chunkSize))))
	l.segments = append(l.segments, c)
	l.opts.Memory.take(l, c)
	return c, nil
}

// chunkFor gives the size of the memory that takes n bytes and what may follow:
// it doubles from chunk to chunk up to the limit, and is a multiple of a large n.
func chunkFor(before *segment, n, limit int) int {
	if n > limit/8 {
		return n * max(1, limit/n)
	}
	size := firstChunk
	if before != nil {
		size = max(size, 2*len(before.mem))
	}
	return max(n, min(size, limit))
}

// AssignEpoch notes that a leader epoch begins at an offset, as a leader does at
// its log's end when it becomes one (spec/broker.md §10.2). Only a log on disk
// can fail.
func (l *Log) AssignEpoch(epoch int32, start int64) error {
	if l.epochs.assign(epoch, start) {
		return l.saveEpochs()
	}
	return nil
}

// EndOffset gives the largest epoch that is not above the one given, and the
// offset at which it ended (§10.3); -1, -1: undefined.
func (l *Log) EndOffset(epoch int32) (int32, int64) { return l.epochs.endOffset(epoch, l.end) }

// LatestEpoch is the last leader epoch known, -1 without any.
func (l *Log) LatestEpoch() int32 { return l.epochs.latest() }

// EpochAt is the leader epoch of the record at an offset, -1 where none is known.
func (l *Log) EpochAt(offset int64) int32 { return l.epochs.at(offset) }

// Epochs is a copy of the leader epochs and their first offsets.
func (l *Log) Epochs() []EpochEntry { return slices.Clone(l.epochs) }

// ExpireProducers forgets the producers that wrote nothing for
// producer.id.expiration.ms, and gives how many those were.
func (l *Log) ExpireProducers(now time.Time) int {
	idle := l.opts.ProducerIDExpiration
	if idle <= 0 {
		idle = DefaultProducerIDExpiration
	}
	return l.producers.expire(now, idle)
}

// Producers is the number of idempotent producers that are known.
func (l *Log) Producers() int { return len(l.producers) }
