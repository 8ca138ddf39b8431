package brokers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// LogOptions say how records are kept and copied. Zero values mean the default
// named beside them.
type LogOptions struct {
	Dirs []string // log.dirs; none: in memory
	// MemoryBytes is what all logs in memory may hold together, but for those of
	// topics that are only compacted: DefaultMemoryBytes; negative: no bound. The
	// oldest committed records go first.
	MemoryBytes int64
	Topic       TopicConfig // what holds for topics that set nothing; zero: DefaultTopicConfig

	Fetchers            int           // num.replica.fetchers: 1
	FetchMinBytes       int           // replica.fetch.min.bytes: 1
	FetchMaxBytes       int           // replica.fetch.response.max.bytes: 10 MiB
	FetchPartitionBytes int           // replica.fetch.max.bytes: 1 MiB
	FetchBackoff        time.Duration // replica.fetch.backoff.ms: 1 s
	Checkpoint          time.Duration // replica.high.watermark.checkpoint.interval.ms: 5 s
	RetentionCheck      time.Duration // log.retention.check.interval.ms: 5 min
}

func (o LogOptions) withDefaults() LogOptions {
	if o.Topic == (TopicConfig{}) {
		o.Topic = DefaultTopicConfig()
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	setDefault(&o.Fetchers, 1)
	setDefault(&o.FetchMinBytes, 1)
	setDefault(&o.FetchMaxBytes, 10<<20)
	setDefault(&o.FetchPartitionBytes, 1<<20)
	setDefault(&o.FetchBackoff, time.Second)
	setDefault(&o.Checkpoint, 5*time.Second)
	setDefault(&o.RetentionCheck, 5*time.Minute)
	return o
}

const (
	// firstCleanup is when logs are first looked at for old records, as in Kafka.
	firstCleanup = 30 * time.Second
	// cleanerRest is how long Kafka's cleaner waits when nothing is to be compacted.
	cleanerRest = 15 * time.Second
	// idFile is where a log on disk keeps its topic's id (Kafka's partition.metadata).
	idFile = "partition.metadata"
)

// stored is a log. It outlives the process: a restarted broker finds it again.
type stored struct {
	id         kafka.TopicID
	log        *commitlog.Log // nil without LogOptions
	dir        int            // of LogOptions.Dirs
	checkpoint int64          // high watermark at the last checkpoint; 0: none
	opened     bool           // in this life of the process
	dirty      bool           // the high watermark moved since the last checkpoint
}

// dirtyLog is a log to be checkpointed.
type dirtyLog struct {
	tp kafka.TopicPartition
	st *stored
}

func (b *Broker) store(tp kafka.TopicPartition) *stored {
	st := b.disk[tp]
	if st == nil {
		st = &stored{}
		b.disk[tp] = st
	}
	return st
}

// openStored gives a partition its log, made or taken up again. The high
// watermark is the one of the last checkpoint then (spec/broker.md §7.1).
func (b *Broker) openStored(p *partition) error {
	if p.topic == nil {
		p.topic = b.topic(p.tp.Topic)
		p.topic.hosted++
	}
	st := b.store(p.tp)
	if st.log == nil {
		if err := b.makeLog(p, st); err != nil {
			return err
		}
	}
	if !st.opened {
		st.opened = true
		st.log.SetHighWatermark(st.checkpoint)
	}
	p.log = st.log
	return nil
}

func (b *Broker) makeLog(p *partition, st *stored) error {
	o := p.topic.config.log()
	dirs := b.opts.Logs.Dirs
	if len(dirs) == 0 {
		o.Memory = b.memory
		st.log = commitlog.New(o)
		return nil
	}
	st.dir = b.roomiest()
	if st.dir < 0 {
		return errors.New("every log directory has failed")
	}
	path := filepath.Join(dirs[st.dir], p.tp.String())
	log, err := commitlog.Open(path, o)
	if err != nil {
		return err
	}
	st.log = log
	b.perDir[st.dir]++
	return writeTopicID(path, st.id)
}

// roomiest is the directory with the fewest logs, of those that work; -1: none.
func (b *Broker) roomiest() int {
	best := -1
	for i := range b.opts.Logs.Dirs {
		if !b.deadDirs[i] && (best < 0 || b.perDir[i] < b.perDir[best]) {
			best = i
		}
	}
	return best
}

func writeTopicID(dir string, id kafka.TopicID) error {
	if id.IsZero() {
		return nil
	}
	path := filepath.Join(dir, idFile)
	if err := os.WriteFile(path, fmt.Appendf(nil, "version: 0\ntopic_id: %s\n", id), 0o644); err != nil {
		return &commitlog.StorageError{Op: "write", Path: path, Err: err}
	}
	return nil
}

func readTopicID(dir string) (kafka.TopicID, error) {
	path := filepath.Join(dir, idFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return kafka.TopicID{}, nil
	}
	if err != nil {
		return kafka.TopicID{}, &commitlog.StorageError{Op: "read", Path: path, Err: err}
	}
	for line := range strings.Lines(string(data)) {
		if word, ok := strings.CutPrefix(line, "topic_id:"); ok {
			return kafka.ParseTopicID(strings.TrimSpace(word))
		}
	}
	return kafka.TopicID{}, fmt.Errorf("%s names no topic_id; remove it, and the controller gives it again", path)
}

// loadLogs opens what the log directories hold, as a process does that starts. A
// log that cannot be opened is left out and told: it is copied again from its
// leader once its folder is out of the way.
func (b *Broker) loadLogs() error {
	dirs := b.opts.Logs.Dirs
	if len(dirs) == 0 {
		return nil
	}
	b.disk = map[kafka.TopicPartition]*stored{}
	b.perDir, b.deadDirs = make([]int, len(dirs)), make([]bool, len(dirs))
	var failed []error
	for i, dir := range dirs {
		if err := b.loadDir(i, dir); err != nil {
			b.deadDirs[i] = true
			failed = append(failed, fmt.Errorf("log directory %s: %w", dir, err))
			b.log.WithFields(b.fields()).WithField("dir", dir).WithError(err).Error("log directory cannot be used")
		}
	}
	if len(failed) == len(dirs) {
		return errors.Join(failed...)
	}
	return nil
}

// canWrite finds out now that nothing can be written in a directory, not when the
// first log is to be made there. Real brokers lock this file.
func canWrite(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func (b *Broker) loadDir(i int, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var points [3]map[kafka.TopicPartition]int64
	for n, file := range []string{commitlog.HighWatermarkFile, commitlog.RecoveryPointFile, commitlog.LogStartOffsetFile} {
		var err error
		if points[n], err = commitlog.ReadOffsets(filepath.Join(dir, file)); err != nil {
			return err
		}
	}
	if err := canWrite(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		tp, err := kafka.ParseTopicPartition(e.Name())
		if !e.IsDir() || err != nil || kafka.ValidTopicName(tp.Topic) != "" {
			continue
		}
		o := b.configs.base().log()
		o.RecoveryPoint, o.LogStartOffset = points[1][tp], points[2][tp]
		path := filepath.Join(dir, e.Name())
		st := &stored{dir: i, checkpoint: points[0][tp]}
		if st.log, err = commitlog.Open(path, o); err == nil {
			st.id, err = readTopicID(path)
		}
		if err != nil {
			return err
		}
		b.disk[tp] = st
		b.perDir[i]++
	}
	// It held when the process before ended in good order. From now on logs are cut,
	// deleted and made anew: after a crash every batch is to be checked again.
	if err := os.Remove(filepath.Join(dir, commitlog.RecoveryPointFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &commitlog.StorageError{Op: "remove", Path: filepath.Join(dir, commitlog.RecoveryPointFile), Err: err}
	}
	return nil
}

// releaseLogs lets go of the logs when the process ends. Those in memory stay;
// those on disk are closed, and a new process reads them again.
func (b *Broker) releaseLogs() {
	for _, st := range b.disk {
		st.opened, st.dirty = false, false
		if len(b.logDirs()) > 0 && st.log != nil {
			// What is not on disk now is cut off when the log is opened again.
			_ = st.log.Close()
		}
	}
	if len(b.logDirs()) > 0 {
		b.disk = map[kafka.TopicPartition]*stored{}
	}
}

func (b *Broker) logDirs() []string {
	if b.opts.Logs == nil {
		return nil
	}
	return b.opts.Logs.Dirs
}

// moved notes that a high watermark has to be checkpointed.
func (b *Broker) moved(p *partition) {
	st := p.stored
	if st.dirty {
		return
	}
	st.dirty = true
	if len(b.dirty) == 0 {
		// The task's grid begins at the first LeaderAndIsr (spec/broker.md §7.8).
		b.checkpointAt = next(b.checkpointAt, b.opts.Logs.Checkpoint, b.now)
	}
	b.dirty = append(b.dirty, dirtyLog{p.tp, st})
}

// checkpoint keeps the high watermarks that moved (spec/broker.md §7.8).
func (b *Broker) checkpoint() {
	touched := map[int]bool{}
	for _, d := range b.dirty {
		d.st.dirty, d.st.checkpoint = false, d.st.log.HighWatermark()
		touched[d.st.dir] = true
	}
	b.dirty = b.dirty[:0]
	for i := range b.logDirs() {
		if touched[i] && !b.deadDirs[i] {
			b.emit(b.checkpointOf(i, false))
		}
	}
}

// checkpointOf is the effect that writes one directory's files of offsets.
func (b *Broker) checkpointOf(dir int, last bool) WriteCheckpoint {
	w := WriteCheckpoint{Dir: b.opts.Logs.Dirs[dir], HighWatermarks: map[kafka.TopicPartition]int64{}, Starts: map[kafka.TopicPartition]int64{}, last: last, run: b.run}
	if last {
		w.RecoveryPoints = map[kafka.TopicPartition]int64{}
	}
	for tp, st := range b.disk {
		if st.dir != dir || st.log == nil {
			continue
		}
		w.HighWatermarks[tp] = st.checkpoint
		if start := st.log.LogStartOffset(); start > 0 {
			w.Starts[tp] = start
		}
		if last {
			w.RecoveryPoints[tp] = st.log.RecoveryPoint()
		}
	}
	return w
}

// closeLogs is the end of a stop in good order: the last checkpoint, then the
// logs (spec/broker.md §1.8, 7).
func (b *Broker) closeLogs() {
	for _, st := range b.disk {
		if st.log == nil {
			continue
		}
		if st.opened {
			st.checkpoint = st.log.HighWatermark()
		}
		if err := st.log.Flush(); err != nil {
			b.log.WithFields(b.fields()).WithError(err).Error("a log could not be made safe on disk")
		}
	}
	for i := range b.logDirs() {
		if !b.deadDirs[i] {
			b.emit(b.checkpointOf(i, true))
		}
	}
}

// write carries out a checkpoint.
func (w WriteCheckpoint) write() error {
	for file, offsets := range map[string]map[kafka.TopicPartition]int64{commitlog.HighWatermarkFile: w.HighWatermarks,
		commitlog.LogStartOffsetFile: w.Starts, commitlog.RecoveryPointFile: w.RecoveryPoints} {
		if offsets == nil {
			continue
		}
		if err := commitlog.WriteOffsets(filepath.Join(w.Dir, file), offsets); err != nil {
			return err
		}
	}
	return nil
}

func (e checkpointWritten) apply(b *Broker, now time.Time) {
	if e.run != b.run || e.err == nil {
		return
	}
	if i := slices.Index(b.logDirs(), e.dir); i >= 0 {
		b.failDir(now, i, e.err)
	}
}

// storageFailed takes the directory of a log that could not be used offline.
func (b *Broker) storageFailed(now time.Time, p *partition, err error) {
	if len(b.logDirs()) > 0 && p.stored != nil {
		b.failDir(now, p.stored.dir, err)
	}
}

func (b *Broker) failDir(now time.Time, dir int, err error) {
	if b.deadDirs[dir] {
		return
	}
	b.deadDirs[dir] = true
	b.log.WithFields(b.fields()).WithField("dir", b.opts.Logs.Dirs[dir]).WithError(err).Error("log directory failed")
	var tps []kafka.TopicPartition
	for tp, p := range b.partitions {
		if p.stored != nil && p.stored.dir == dir {
			tps = append(tps, tp)
		}
	}
	kafka.SortPartitions(tps)
	b.failLogDir(now, tps)
}

// retain drops what retention.bytes and retention.ms leave no room for.
func (b *Broker) retain(now time.Time) {
	for tp, st := range b.disk {
		if st.log == nil || !st.opened || st.log.Size() == 0 {
			continue
		}
		if t := b.topics[tp.Topic]; t != nil && t.config.Delete {
			b.retainLog(now, tp, st, t.config)
		}
	}
}

func (b *Broker) retainLog(now time.Time, tp kafka.TopicPartition, st *stored, c *TopicConfig) {
	freed, err := st.log.Retain(b.wall(now), c.RetentionBytes, c.Retention)
	p := b.partitions[tp]
	if err != nil {
		b.log.WithFields(b.fields()).WithField("topic", tp.Topic).WithField("partition", tp.Partition).WithError(err).Error("old records could not be removed")
		if p != nil {
			b.storageFailed(now, p, err)
		}
		return
	}
	if freed > 0 && p != nil {
		b.owesStart(now, p)
	}
}

// clean compacts the log that needs it most, of those of compacted topics, and
// gives whether one did.
func (b *Broker) clean(now time.Time) bool {
	var who kafka.TopicPartition
	most := 0.0
	for tp, st := range b.disk {
		t := b.topics[tp.Topic]
		if t == nil || !t.config.Compact || st.log == nil || !st.opened || st.log.Size() == 0 {
			continue
		}
		dirty, total := st.log.Dirty()
		ratio := float64(dirty) / float64(max(total, 1))
		if ratio > t.config.CleanableRatio && (ratio > most || ratio == most && tp.Compare(who) < 0) {
			who, most = tp, ratio
		}
	}
	if most == 0 {
		return false
	}
	if _, err := b.disk[who].log.Compact(b.wall(now), b.topics[who.Topic].config.DeleteRetention); err != nil {
		b.log.WithFields(b.fields()).WithField("topic", who.Topic).WithField("partition", who.Partition).WithError(err).Error("log could not be compacted")
		if p := b.partitions[who]; p != nil {
			b.storageFailed(now, p, err)
		}
		return false
	}
	return true
}
