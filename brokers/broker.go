package brokers

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/isrnotify"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// phase is where in its life a broker is.
type phase uint8

const (
	down     phase = iota // not started, killed or stopped
	starting              // not registered yet: requests wait
	running
	leaving // controlled shutdown goes on; requests are still served
)

var phaseNames = [...]string{"down", "starting", "running", "leaving"}

// String gives the word that snapshots and case files use.
func (p phase) String() string { return phaseNames[p] }

// Broker is one emulated broker as a step function: it changes only in Step,
// and reaches the world only through the effects Step gives back. It has one
// owner. Metadata alone may be read by others.
type Broker struct {
	opts   Options
	does   behaviour
	log    logrus.FieldLogger
	debugs bool // log takes what is at debug level
	repl   Replication
	board  *Board
	cache  *MetadataCache

	phase      phase
	run        run
	session    int // how many sessions have expired
	registrar  *registrar
	registered bool
	epoch      int64 // broker epoch: czxid of the last registration
	attempts   int   // at registering, since the last success
	registerAt time.Time

	controllerEpoch int32 // the highest seen
	partitions      map[kafka.TopicPartition]*partition
	disk            map[kafka.TopicPartition]*stored // the logs: they outlive the process
	waiting         []Control                        // until registered, or while the broker hangs
	offline         int                              // partitions whose log directory failed

	announcer  *isrnotify.Propagator
	announcing bool
	checkAt    time.Time
	shrinkAt   time.Time
	alter      alterQueue
	writes     []ISRWrite // of this step
	aliveSince map[kafka.BrokerID]time.Time
	faults     faults
	goodbye    goodbye
	counters   Counters
	out        []Effect

	// With LogOptions.
	now           time.Time // of this step
	configs       *topicConfigs
	topics        map[string]*topicState // of what is hosted
	wantConfigs   []string               // to be read
	unconfigured  []Event                // wait for it
	early         []Event                // of clients, until registered
	alarms        alarms
	suspects      []*partition // led, and perhaps a member of the ISR is behind
	woken         []*partition
	fetchers      map[fetcherID]*fetcher
	wokenFetchers []*fetcher
	local         map[*FetchRequest]*delayedFetch // of followers in this process
	groups        *groups.Coordinator             // nil: none
	dirty         []dirtyLog
	checkpointAt  time.Time // on its grid; zero before the first LeaderAndIsr
	retainAt      time.Time
	cleanAt       time.Time
	memory        *commitlog.Memory // what logs in memory hold; nil: they are on disk
	bounded       time.Time         // when it was last told that they are full
	perDir        []int             // logs
	deadDirs      []bool
}

// New makes a broker that is down. A nil board means that no other broker of
// this process is to be seen; logs nil means none.
func New(opts Options, board *Board, logs logrus.FieldLogger) (*Broker, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	if opts.Logs == nil && opts.Replication == nil {
		opts.Replication = func(view View) Replication { return newPaced(opts.CatchUp, opts.ReplicaLagTimeMax, view) }
	}
	if logs == nil {
		quiet := logrus.New()
		quiet.SetLevel(logrus.PanicLevel)
		logs = quiet
	}
	b := &Broker{opts: opts, does: behaviourOf(opts), log: logs, board: board, cache: newMetadataCache(board), debugs: debugs(logs),
		disk: map[kafka.TopicPartition]*stored{}}
	if opts.Logs != nil {
		b.configs = &topicConfigs{defaults: opts.Logs.Topic}
		b.newMemory()
		if err := b.newCoordinator(); err != nil {
			return nil, err
		}
	}
	b.forget()
	return b, nil
}

// forget is what a process loses when it ends (spec/broker.md §1.7). The logs stay.
func (b *Broker) forget() {
	for _, p := range b.partitions {
		p.gone = true
	}
	b.partitions = map[kafka.TopicPartition]*partition{}
	b.offline = 0
	b.controllerEpoch, b.epoch, b.registered = 0, 0, false
	b.registrar = &registrar{opts: b.opts, does: b.does}
	b.attempts, b.registerAt = 0, time.Time{}
	b.waiting, b.writes = nil, nil
	b.alter = alterQueue{}
	b.announcing = false
	b.aliveSince = map[kafka.BrokerID]time.Time{}
	b.goodbye = goodbye{}
	b.faults.forget()
	b.cache.clear()
	if b.opts.Logs == nil {
		b.repl = b.opts.Replication(b.view)
		return
	}
	b.repl = logged{b}
	b.releaseLogs()
	b.topics = map[string]*topicState{}
	b.wantConfigs, b.unconfigured, b.early = nil, nil, nil
	b.alarms = alarms{}
	b.suspects, b.woken = nil, nil
	b.fetchers, b.wokenFetchers = map[fetcherID]*fetcher{}, nil
	b.local = map[*FetchRequest]*delayedFetch{}
	b.dirty, b.checkpointAt, b.retainAt, b.cleanAt = nil, time.Time{}, time.Time{}, time.Time{}
	_ = b.newCoordinator() // New has tried it
}

// ID is the broker's id.
func (b *Broker) ID() kafka.BrokerID { return b.opts.ID }

// Metadata is the broker's metadata cache; any goroutine may read it.
func (b *Broker) Metadata() *MetadataCache { return b.cache }

// Options gives the options with their defaults filled in.
func (b *Broker) Options() Options { return b.opts }

func (b *Broker) emit(e Effect) { b.out = append(b.out, e) }

func (b *Broker) fields() logrus.Fields { return logrus.Fields{"broker_id": b.opts.ID} }

// Step lets ev happen (nil: nothing but time), then all that is due at now, and
// gives what is to be done, in order.
func (b *Broker) Step(now time.Time, ev Event) []Effect {
	if ev == nil {
		return b.StepAll(now, nil)
	}
	return b.StepAll(now, []Event{ev})
}

// StepAll is Step for several events. What waits for one of them is looked at
// once, when all have happened.
func (b *Broker) StepAll(now time.Time, evs []Event) []Effect {
	if b.opts.Logs == nil {
		now = now.Add(b.faults.skew)
	}
	b.now = now
	for _, ev := range evs {
		ev.apply(b, now)
	}
	b.due(now)
	if b.opts.Logs != nil {
		b.wakeAll(now)
		b.bound(now)
		b.runFetchers(now)
		b.flushConfigs()
	}
	b.flushWrites()
	out := b.out
	b.out = nil
	return out
}

// due runs what time brings: fetches first, then the shrink check, then the
// announcements (spec/broker.md §0.4).
func (b *Broker) due(now time.Time) {
	if b.phase == down {
		return
	}
	if reached(b.registerAt, now) {
		b.registerAt = time.Time{}
		b.register()
	}
	b.goodbyeDue(now)
	if b.phase == down {
		return
	}
	for _, r := range b.repl.Due(now) {
		b.fetched(now, r)
	}
	if b.opts.Logs != nil {
		b.logsDue(now)
	}
	if reached(b.shrinkAt, now) {
		b.shrinkAt = next(b.shrinkAt, b.does.shrinkPeriod(b.opts.ReplicaLagTimeMax), now)
		b.shrinkAll(now)
	}
	if b.does.profile != ProfileC && reached(b.checkAt, now) {
		b.checkAt = next(b.checkAt, b.announcer.CheckPeriod(), now)
		b.checkAnnouncements(now)
	}
	if reached(b.alter.lookupAt, now) {
		b.ask(now)
	}
	if reached(b.alter.retryAt, now) {
		b.alter.retryAt = time.Time{}
		b.propagate(now)
	}
}

func reached(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// next is the first time after now on a grid; runs that were missed are not made up for.
func next(at time.Time, period time.Duration, now time.Time) time.Time {
	at = at.Add(period)
	if !at.After(now) {
		at = at.Add(now.Sub(at)/period*period + period)
	}
	return at
}

// Deadline is when Step is wanted next though nothing happens; false is never.
func (b *Broker) Deadline() (time.Time, bool) {
	if b.phase == down {
		return time.Time{}, false
	}
	var first time.Time
	sooner := func(at time.Time) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	sooner(b.shrinkAt)
	sooner(b.registerAt)
	sooner(b.alter.lookupAt)
	sooner(b.alter.retryAt)
	sooner(b.goodbye.retryAt)
	if b.does.profile != ProfileC {
		sooner(b.checkAt)
	}
	if at, ok := b.repl.Next(); ok {
		sooner(at)
	}
	if at, ok := b.alarms.next(); ok {
		sooner(at)
	}
	if len(b.dirty) > 0 {
		sooner(b.checkpointAt)
	}
	if b.groups != nil {
		if at, ok := b.groups.Deadline(); ok {
			sooner(at)
		}
	}
	sooner(b.retainAt)
	sooner(b.cleanAt)
	if b.opts.Logs == nil {
		first = first.Add(-b.faults.skew)
	}
	return first, !first.IsZero()
}

// wall is what the broker's clock shows: the times of fetches, records and
// announcements are its. Waits and periodic tasks go by a clock that nobody sets,
// as Kafka's do, so that a fault of the clock neither hurries nor stops them.
// Without logs all goes by the one clock.
func (b *Broker) wall(now time.Time) time.Time {
	if b.opts.Logs == nil {
		return now
	}
	return now.Add(b.faults.skew)
}

// logsDue runs what time brings to logs and to those who wait for them.
func (b *Broker) logsDue(now time.Time) {
	for a := b.alarms.due(now); a != nil; a = b.alarms.due(now) {
		a.ring(b, now)
	}
	if b.groups != nil {
		if at, ok := b.groups.Deadline(); ok && !at.After(now) {
			b.groupAppends(now, b.groups.Tick(now))
		}
	}
	b.wakeAll(now) // appends and fetches come before the periodic tasks
	if len(b.dirty) > 0 && reached(b.checkpointAt, now) {
		b.checkpoint()
	}
	if reached(b.retainAt, now) {
		b.retainAt = next(b.retainAt, b.opts.Logs.RetentionCheck, now)
		b.retain(now)
	}
	if reached(b.cleanAt, now) {
		rest := cleanerRest
		if b.clean(now) {
			rest = time.Second
		}
		b.cleanAt = now.Add(rest)
	}
}

// flushWrites sends the direct writes of one step together.
func (b *Broker) flushWrites() {
	if len(b.writes) > 0 {
		b.emit(WriteISRs{Rows: b.writes, run: b.run})
		b.writes = nil
	}
}

func (Start) apply(b *Broker, now time.Time) {
	if b.phase != down {
		return
	}
	b.run++
	b.phase = starting
	b.announcer = isrnotify.NewPropagator(b.opts.Announcements, b.wall(now))
	b.checkAt, b.shrinkAt = now, now // both tasks run at once, then every period
	b.board.process(b.opts.ID, true, now)
	if b.opts.Logs != nil {
		b.retainAt = now.Add(firstCleanup)
		if err := b.loadLogs(); err != nil {
			b.fail(err, now)
			return
		}
	}
	b.emit(SetListening{Open: !b.faults.refusing})
	b.register()
}

// register asks for one attempt.
func (b *Broker) register() {
	b.emit(Register{First: b.phase == starting, run: b.run, session: b.session, with: b.registrar})
}

func (e registered) apply(b *Broker, now time.Time) {
	if e.run != b.run || b.phase == down || e.session != b.session {
		return // what an expired session registered is gone; the next one registers anew
	}
	if e.err == nil {
		b.epoch, b.registered, b.attempts = e.epoch, true, 0
		b.log.WithFields(b.fields()).WithField("broker_epoch", e.epoch).Info("registered")
		if b.phase == starting {
			b.phase = running
			b.serveWaiting(now)
			early := b.early
			b.early = nil
			for _, ev := range early {
				ev.apply(b, now)
			}
		}
		return
	}
	var taken *EndpointTakenError
	var conflict *ConflictError
	log := b.log.WithFields(b.fields()).WithError(e.err)
	b.attempts++
	switch {
	case errors.Is(e.err, zkpaths.ErrSessionExpired):
		b.attempts-- // the next session tries again
	case errors.As(e.err, &taken):
		b.fail(e.err, now)
	case b.attempts < b.opts.RegisterAttempts:
		log.Warn("registration failed; tried again")
		b.registerAt = now.Add(b.opts.RegisterRetry)
	case b.phase == starting:
		b.fail(e.err, now)
	case errors.As(e.err, &conflict):
		// spec/broker.md §1.4: the process goes on unregistered until its next session.
		log.Error("registration failed: going on unregistered until the next session")
	default:
		log.Error("registration failed; tried again")
		b.registerAt = now.Add(b.opts.RegisterRetry)
	}
}

// fail ends a broker that could not start.
func (b *Broker) fail(err error, now time.Time) {
	b.log.WithFields(b.fields()).WithError(err).Error("cannot start")
	b.die(now)
	b.emit(CloseSession{})
	b.emit(Exit{Err: err})
}

// die ends the process: memory is lost, the port shut.
func (b *Broker) die(now time.Time) {
	for _, f := range b.local {
		f.hangUp()
	}
	for _, ev := range slices.Concat(b.early, b.faults.held) {
		if e, ok := ev.(peerRequest); ok {
			e.hangUp()
		}
	}
	for _, f := range b.fetchers {
		b.interrupt(f)
	}
	b.phase = down
	b.run++
	b.forget()
	b.board.process(b.opts.ID, false, now)
	b.emit(SetListening{})
}

func (SessionExpired) apply(b *Broker, _ time.Time) {
	// Nothing in memory changes (spec/broker.md §1.6).
	b.session++
	b.registered = false
	b.registerAt = time.Time{}
	b.log.WithFields(b.fields()).Warn("ZooKeeper session expired")
}

func (SessionEstablished) apply(b *Broker, _ time.Time) {
	if b.phase == down {
		return
	}
	b.attempts, b.registerAt = 0, time.Time{}
	b.register()
}

func (e FollowerChanged) apply(b *Broker, now time.Time) {
	if b.phase != down {
		b.repl.Changed(now, e.Follower, e.Partitions)
	}
}

func (e Control) apply(b *Broker, now time.Time) {
	switch {
	case b.phase == down:
		return
	case b.phase == starting || b.faults.hanging:
		b.waiting = append(b.waiting, e)
		return
	case b.faults.cut[controllerOf(e.Request)]:
		b.faults.held = append(b.faults.held, e)
		return
	}
	e.Reply(b.handle(now, e.Request))
}

func (b *Broker) serveWaiting(now time.Time) {
	waiting := b.waiting
	b.waiting = nil
	for _, c := range waiting {
		c.apply(b, now)
	}
}

// handle answers one control request.
func (b *Broker) handle(now time.Time, r control.Request) control.Response {
	if resp, ok := b.faults.answer(r); ok {
		return resp
	}
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		return b.leaderAndISR(now, r)
	case *control.UpdateMetadataRequest:
		return b.updateMetadata(now, r)
	case *control.StopReplicaRequest:
		return b.stopReplica(now, r)
	}
	return control.Response{Kind: r.Kind(), Error: kafka.InvalidRequest, Request: r}
}

// leaderAndISR carries out spec/broker.md §9.2: all entries are judged first,
// then leaders are made, then followers.
func (b *Broker) leaderAndISR(now time.Time, r *control.LeaderAndISRRequest) control.Response {
	resp := control.Response{Kind: r.Kind(), Request: r}
	whole := func(code kafka.ErrorCode) control.Response {
		resp.Error, resp.Errors = code, rows(r, code)
		return resp
	}
	code, epoch := b.does.gate(b.epoch, b.controllerEpoch, r.Header)
	if code != kafka.NoError {
		return whole(code)
	}
	b.controllerEpoch = epoch
	if b.checkpointAt.IsZero() {
		b.checkpointAt = now
	}
	if code := wholeRequestError(r); code != kafka.NoError {
		return whole(code)
	}
	resp.Errors = make(map[kafka.TopicPartition]kafka.ErrorCode, len(r.Partitions))
	var leaders, followers, identified []*control.PartitionState
	for _, s := range r.Partitions {
		p := b.host(s.TopicPartition)
		verdict, code := b.does.judgeEntry(p, s, b.opts.ID)
		resp.Errors[s.TopicPartition] = code
		switch verdict {
		case becomeLeader:
			leaders = append(leaders, s)
		case becomeFollower:
			followers = append(followers, s)
		case storeTopicID:
			if b.disk[s.TopicPartition] == nil {
				return whole(kafka.NotLeaderOrFollower) // spec/control-plane.md §1.7: leader epoch -1 on a new partition
			}
			identified = append(identified, s)
		}
	}
	for _, s := range identified {
		b.identify(b.partitions[s.TopicPartition], s.TopicID)
	}
	for _, s := range leaders {
		resp.Errors[s.TopicPartition] = b.becomeLeader(now, s)
	}
	var follows []kafka.TopicPartition
	for _, s := range followers {
		code, follow := b.becomeFollower(now, s)
		resp.Errors[s.TopicPartition] = code
		if follow {
			follows = append(follows, s.TopicPartition)
		}
	}
	b.publishFollowing(now, follows)
	return resp
}

// host gives the partition, made empty if it was not hosted.
func (b *Broker) host(tp kafka.TopicPartition) *partition {
	p := b.partitions[tp]
	if p == nil {
		p = newPartition(tp)
		if st := b.disk[tp]; st != nil {
			p.topicID = st.id
		}
		b.partitions[tp] = p
	}
	return p
}

func (b *Broker) identify(p *partition, id kafka.TopicID) {
	st := b.store(p.tp)
	if !id.IsZero() {
		p.topicID = id
	}
	if st.id != p.topicID && st.log != nil && len(b.logDirs()) > 0 {
		if err := writeTopicID(filepath.Join(b.logDirs()[st.dir], p.tp.String()), p.topicID); err != nil {
			b.storageFailed(b.now, p, err)
		}
	}
	st.id = p.topicID
	p.stored = st
}

// openLog makes the log if it is missing. With a failed log directory only a
// partition that is new may be created (spec/controller.md §6.8).
func (b *Broker) openLog(p *partition, s *control.PartitionState) kafka.ErrorCode {
	if b.disk[p.tp] == nil && !s.IsNew && (b.offline > 0 || slices.Contains(b.deadDirs, true)) {
		return kafka.KafkaStorageError
	}
	b.identify(p, s.TopicID)
	if b.opts.Logs == nil {
		return kafka.NoError
	}
	if err := b.openStored(p); err != nil {
		b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithError(err).Error("log cannot be opened")
		return kafka.KafkaStorageError
	}
	return kafka.NoError
}

func (b *Broker) becomeLeader(now time.Time, s *control.PartitionState) kafka.ErrorCode {
	p := b.partitions[s.TopicPartition]
	if code := b.openLog(p, s); code != kafka.NoError {
		return code
	}
	taken, newLeader := p.makeLeader(s, b.opts.ID, b.does.partitionEpochGuard)
	if !taken {
		return kafka.NoError
	}
	if b.does.forgetsUnsent {
		delete(b.alter.unsent, p.tp)
	}
	if b.opts.Logs != nil {
		b.lead(now, p, newLeader)
		b.logTransition(p)
		return kafka.NoError
	}
	b.board.unfollow(b.opts.ID, p.tp, now)
	b.repl.Lead(now, Leading{Partition: p.tp, LeaderEpoch: p.leaderEpoch, ISR: p.isr.isr, NewLeader: newLeader,
		Followers: kafka.Without(p.assignment.Replicas, []kafka.BrokerID{b.opts.ID})})
	b.watchOutsiders(now, p)
	b.logTransition(p)
	return kafka.NoError
}

// becomeFollower changes nothing but the log when the new leader is not alive
// in the metadata cache; the answer is NONE all the same (spec/broker.md §9.2, 6).
func (b *Broker) becomeFollower(now time.Time, s *control.PartitionState) (code kafka.ErrorCode, follow bool) {
	p := b.partitions[s.TopicPartition]
	if code := b.openLog(p, s); code != kafka.NoError {
		return code, false
	}
	if !b.cache.Alive(s.Leader) {
		b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithField("leader", s.Leader).
			WithField("leader_epoch", s.LeaderEpoch).Error("cannot follow a leader that is not alive in the metadata cache")
		return kafka.NoError, false
	}
	before := *p
	if !p.makeFollower(s, b.does.partitionEpochGuard) {
		return kafka.NoError, false
	}
	if b.does.forgetsUnsent {
		delete(b.alter.unsent, p.tp)
	}
	b.repl.Unlead(p.tp)
	p.fetching = b.phase == running // a leaver starts no fetchers
	if b.opts.Logs != nil {
		b.followLeader(now, p, &before)
		b.logTransition(p)
		return kafka.NoError, false
	}
	if !p.fetching {
		b.board.unfollow(b.opts.ID, p.tp, now)
	}
	b.logTransition(p)
	return kafka.NoError, p.fetching
}

func (b *Broker) publishFollowing(now time.Time, tps []kafka.TopicPartition) {
	following := make([]follow, 0, len(tps))
	for _, tp := range tps {
		p := b.partitions[tp]
		following = append(following, follow{tp: tp, leader: p.leader, epoch: p.leaderEpoch})
	}
	b.board.follow(b.opts.ID, following, now)
}

// debugs tells whether a logger takes what is at debug level; one that cannot be
// asked does.
func debugs(l logrus.FieldLogger) bool {
	switch l := l.(type) {
	case *logrus.Logger:
		return l.IsLevelEnabled(logrus.DebugLevel)
	case *logrus.Entry:
		return l.Logger.IsLevelEnabled(logrus.DebugLevel)
	}
	return true
}

func (b *Broker) logTransition(p *partition) {
	if !b.debugs {
		return
	}
	b.log.WithFields(b.fields()).WithField("topic", p.tp.Topic).WithField("partition", p.tp.Partition).WithField("leader", p.leader).
		WithField("leader_epoch", p.leaderEpoch).WithField("isr", p.isr.isr).WithField("zk_version", p.partitionEpoch).
		WithField("controller_epoch", p.controllerEpoch).Debug("became " + p.role.String())
}

// updateMetadata is spec/broker.md §9.3.
func (b *Broker) updateMetadata(now time.Time, r *control.UpdateMetadataRequest) control.Response {
	code, epoch := b.does.gate(b.epoch, b.controllerEpoch, r.Header)
	if code != kafka.NoError {
		return control.Response{Kind: r.Kind(), Error: code, Request: r}
	}
	b.controllerEpoch = epoch
	if b.groups != nil {
		b.forgetDeleted(now, r)
	}
	before := b.aliveSince
	b.cache.update(r)
	b.aliveSince = map[kafka.BrokerID]time.Time{}
	changed := map[kafka.BrokerID]bool{}
	for _, peer := range b.cache.Brokers() {
		since, was := before[peer.ID]
		if !was {
			since, changed[peer.ID] = now, true
		}
		b.aliveSince[peer.ID] = since
	}
	for id := range before {
		if _, still := b.aliveSince[id]; !still {
			changed[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		b.repl.Changed(now, id, nil)
	}
	return control.Response{Kind: r.Kind(), Request: r}
}

// stopReplica is spec/broker.md §9.4.
func (b *Broker) stopReplica(now time.Time, r *control.StopReplicaRequest) control.Response {
	resp := control.Response{Kind: r.Kind(), Request: r}
	code, epoch := b.does.gate(b.epoch, b.controllerEpoch, r.Header)
	if code != kafka.NoError {
		resp.Error = code
		return resp
	}
	b.controllerEpoch = epoch
	resp.Errors = make(map[kafka.TopicPartition]kafka.ErrorCode, len(r.Partitions))
	for _, s := range r.Partitions {
		p := b.partitions[s.TopicPartition]
		code := b.does.judgeStop(p, s)
		resp.Errors[s.TopicPartition] = code
		if code == kafka.NoError {
			b.stop(now, p, s)
		}
	}
	return resp
}

// stop ends fetching. Only a deletion forgets the partition: a leader that is
// told to stop without one goes on believing that it leads (spec/broker.md §2.8).
func (b *Broker) stop(now time.Time, p *partition, s control.StopPartition) {
	if p != nil {
		p.fetching = false
		if b.opts.Logs != nil {
			b.stopFollowing(p)
			b.rouse(p, wakeFetches|wakeProduces|wakeDeletes)
		} else {
			b.board.unfollow(b.opts.ID, p.tp, now)
		}
	}
	if s.Delete {
		b.repl.Unlead(s.TopicPartition)
		b.deleteLog(s.TopicPartition, p)
		delete(b.partitions, s.TopicPartition)
		delete(b.disk, s.TopicPartition)
	}
}
