package brokers_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// profiles are those of spec/broker.md §12: protocol version, release and lag.
var profiles = map[string]struct {
	version, release string
	lag              time.Duration
}{
	"0.8": {"0.9", "", 10 * time.Second}, "A0101": {"0.10.1", "0.10.1", 10 * time.Second}, "A0102": {"0.10.2", "0.10.2", 10 * time.Second},
	"A011": {"0.11.0", "0.11.0", 10 * time.Second}, "A23": {"2.3", "2.3", 10 * time.Second}, "A25": {"2.5", "2.5", 30 * time.Second},
	"A26": {"2.6", "2.6", 30 * time.Second}, "B": {"2.6", "3.5", 30 * time.Second}, "B33": {"2.6", "3.3", 30 * time.Second},
	"B39": {"2.6", "3.9", 30 * time.Second}, "C28": {"2.8", "2.8", 30 * time.Second}, "C": {"3.5", "3.5", 30 * time.Second}, "C39": {"3.9", "3.9", 30 * time.Second},
}

// scenario has the directives of brokers with logs (testdata/b).
func (w *story) scenario(d *datadriven.TestData) {
	switch d.Cmd {
	case "lead":
		w.lead(d)
	case "log":
		w.withLog(d)
	case "s":
		w.line(w.actor(d))
	case "r":
		w.followers(d)
	case "f":
		w.fetches(d)
	case "append":
		w.append(d)
	case "to":
		w.advance(w.ms(d.CmdArgs[0].Key))
	case "clock":
		to := w.ms(d.CmdArgs[0].Key)
		w.advance(to - time.Millisecond)
		w.zk.Now = to
	case "repeat":
		w.repeat(d)
	case "znode":
		data, stat, code := w.zk.Tree.GetData(zkserver.Who{}, zkpaths.PartitionStatePath(t0))
		w.printf("%s version=%d %v", data, stat.Version, code)
	case "offset":
		w.offset(d)
	case "gauges":
		w.gauges(d)
	case "leader":
		w.leaderAnswers(d)
	case "delete":
		a, offset := w.actor(d), int64(0)
		w.number(d, "to-offset", &offset)
		a.step(brokers.DeleteRecords{Offsets: map[kafka.TopicPartition]int64{t0: offset}, Timeout: time.Second,
			Reply: func(r map[kafka.TopicPartition]brokers.LowWatermark) {
				w.printf("+%d low watermark %d %s", w.zk.Now.Milliseconds(), r[t0].Offset, r[t0].Error)
			}})
	default:
		d.Fatalf(w.t, "unknown directive %q", d.Cmd)
	}
}

func (w *story) ms(s string) time.Duration {
	n, err := strconv.Atoi(s)
	w.must(err)
	return time.Duration(n) * time.Millisecond
}

func (w *story) number(d *datadriven.TestData, key string, into *int64) bool {
	var s string
	if !d.HasArg(key) {
		return false
	}
	d.ScanArgs(w.t, key, &s)
	n, err := strconv.ParseInt(s, 10, 64)
	w.must(err)
	*into = n
	return true
}

// lead is the common start of spec/broker.md §12: broker 1 becomes leader of t-0
// at +0. profile=NAME [log=N] [checkpoint=N] [isr=] [ar=] [alive=] [min-isr=N]
// [lag=MS] [grid=MS, not above 0: when the periodic tasks begin] [origin=MS].
func (w *story) lead(d *datadriven.TestData) {
	*w = *newStory(w.t)
	origin, log, grid := int64(1_000_000), int64(0), int64(0)
	w.number(d, "origin", &origin)
	w.origin = time.UnixMilli(origin)
	a := w.logged(d, 1)
	if w.number(d, "log", &log); log > 0 {
		checkpoint := log
		w.number(d, "checkpoint", &checkpoint)
		w.past(a, []commitlog.EpochEntry{{Epoch: 4}}, log, checkpoint, 0)
	}
	w.number(d, "grid", &grid)
	w.zk.Now = time.Duration(grid) * time.Millisecond
	w.begin(a, log > 0)
	w.zk.Now = 0
	ar, isr, alive := []kafka.BrokerID{1, 2, 3}, []kafka.BrokerID(nil), []kafka.BrokerID{1, 2, 3}
	arg(d, w, "ar", &ar)
	if isr = ar; !arg(d, w, "isr", &isr) {
		isr = ar
	}
	arg(d, w, "alive", &alive)
	version := int64(7)
	w.number(d, "znode-version", &version)
	l := kafka.Leadership{ControllerEpoch: 4, LeaderAndISR: kafka.LeaderAndISR{Leader: 1, LeaderEpoch: 5, ISR: isr}}
	n := zkserver.Saved{Path: zkpaths.PartitionStatePath(t0), Data: zkpaths.EncodePartitionState(l)}
	n.Stat.Version = int32(version)
	w.must(w.zk.Seed(n))
	l.ZKVersion = 7
	w.tell(a, alive, &control.PartitionState{TopicPartition: t0, Leadership: l, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: ar}})
	w.out.Reset()
	w.line(a)
}

// logged makes a broker with logs that has not begun.
func (w *story) logged(d *datadriven.TestData, id kafka.BrokerID) *actor {
	name := "B"
	arg(d, w, "profile", &name)
	p, ok := profiles[name]
	if !ok {
		d.Fatalf(w.t, "no profile %q", name)
	}
	o := brokers.Options{ID: id, ReplicaLagTimeMax: p.lag, Logs: &brokers.LogOptions{Topic: brokers.DefaultTopicConfig()},
		Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: fmt.Sprintf("kafka-%d.example.net", id), Port: 9092}}}
	var err error
	o.Version, err = kafka.ParseProtocolVersion(p.version)
	w.must(err)
	if o.Release = (kafka.ProtocolVersion{Minor: 8}); p.release != "" {
		o.Release, err = kafka.ParseProtocolVersion(p.release)
		w.must(err)
	}
	arg(d, w, "lag", &o.ReplicaLagTimeMax)
	arg(d, w, "min-isr", &o.Logs.Topic.MinISR)
	a := &actor{w: w, store: sim.NewStore(w.zk, func(zkpaths.Notice) {})}
	a.world = brokers.World{Store: a.store, Process: a, Now: w.zk.Time}
	a.b, err = brokers.New(o, w.board, nil)
	w.must(err)
	w.brokers[id] = a
	return a
}

// begin starts the broker, or starts it again.
func (w *story) begin(a *actor, again bool) {
	if !again {
		a.step(brokers.Start{})
		return
	}
	a.step(brokers.Fault{Request: brokers.FaultRequest{Broker: a.b.ID(), Op: "restart"}})
}

// tell sends UpdateMetadata and then LeaderAndIsr.
func (w *story) tell(a *actor, alive []kafka.BrokerID, s *control.PartitionState) {
	h := control.Header{ControllerID: 9, ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}
	m := &control.Metadata{Partitions: []*control.PartitionState{s}}
	for _, id := range append(slices.Clone(alive), 9) {
		m.LiveBrokers = append(m.LiveBrokers, kafka.Broker{ID: id, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}}})
	}
	for _, r := range []control.Request{&control.UpdateMetadataRequest{Header: h, Metadata: m}, &control.LeaderAndISRRequest{Header: h, Partitions: []*control.PartitionState{s}}} {
		a.step(brokers.Control{Request: r, Reply: func(resp control.Response) {
			if resp.Error != kafka.NoError || resp.Errors[s.TopicPartition] != kafka.NoError {
				w.printf("%s: %s", r.Kind(), answerText(resp))
			}
		}})
	}
}

// past gives a broker a log, in an earlier life in which it led with broker 9 as
// its follower: the epochs and where they began, the log's end and start, and
// the high watermark that the life before left behind.
func (w *story) past(a *actor, epochs []commitlog.EpochEntry, end, checkpoint, start int64) {
	w.zk.Now = -100 * time.Second
	w.begin(a, false)
	id := a.b.ID()
	for i, e := range epochs {
		l := kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: id, LeaderEpoch: e.Epoch, ISR: []kafka.BrokerID{id, 9}, ZKVersion: int32(i)}}
		w.tell(a, []kafka.BrokerID{id, 9}, &control.PartitionState{TopicPartition: t0, Leadership: l,
			ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{id, 9}}})
		to := end
		if i+1 < len(epochs) {
			to = epochs[i+1].Start
		}
		have := a.b.Snapshot().Partitions[0].Log.End
		if i == 0 && start > have { // what is to be deleted
			w.appendRecords(a, int(start), brokers.AcksLeader)
			w.follow(a, start)
			a.step(brokers.DeleteRecords{Offsets: map[kafka.TopicPartition]int64{t0: start}, Timeout: time.Second, Reply: func(map[kafka.TopicPartition]brokers.LowWatermark) {}})
			have = start
		}
		if to > have {
			w.appendRecords(a, int(to-have), brokers.AcksLeader)
		}
	}
	w.follow(a, checkpoint)
	w.advance(-90 * time.Second)
	a.step(brokers.Fault{Request: brokers.FaultRequest{Broker: id, Op: "kill"}})
}

// follow is a fetch of broker 9 in the past.
func (w *story) follow(a *actor, offset int64) {
	a.step(brokers.Fetch{Request: &brokers.FetchRequest{Replica: 9, ReplicaEpoch: -1, Rows: []brokers.FetchRow{
		{Partition: t0, Offset: offset, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1}}}, Reply: func([]brokers.FetchResult) {}})
}

// withLog gives a broker a log and starts it: id= epochs=4:0/5:10 end=N checkpoint=N [start=N] [profile=] [lead|follow=ID] le=N.
func (w *story) withLog(d *datadriven.TestData) {
	id := kafka.BrokerID(1)
	arg(d, w, "id", &id)
	a := w.logged(d, id)
	var epochs []commitlog.EpochEntry
	var s string
	arg(d, w, "epochs", &s)
	for part := range strings.SplitSeq(s, "/") {
		e, at, _ := strings.Cut(part, ":")
		n, err := strconv.ParseInt(e, 10, 32)
		w.must(err)
		begin, err := strconv.ParseInt(at, 10, 64)
		w.must(err)
		epochs = append(epochs, commitlog.EpochEntry{Epoch: int32(n), Start: begin})
	}
	var end, start int64
	w.number(d, "end", &end)
	w.number(d, "start", &start)
	checkpoint := end
	w.number(d, "checkpoint", &checkpoint)
	w.past(a, epochs, end, checkpoint, start)
	w.zk.Now = 0
	w.begin(a, true)
	w.out.Reset()
	w.line(a)
}

// line is a partition in one line.
func (w *story) line(a *actor) {
	s := a.b.Snapshot()
	if len(s.Partitions) == 0 {
		w.printf("hosts nothing")
		return
	}
	p := s.Partitions[0]
	out := fmt.Sprintf("%s epoch=%d version=%d", p.Role, p.LeaderEpoch, p.PartitionEpoch)
	if p.Role == "leader" {
		out += fmt.Sprintf(" isr=%v", p.ISR)
		if p.Pending != "" {
			out += fmt.Sprintf(" maximal=%v %s", p.MaximalISR, p.Pending)
		}
	}
	if p.Log != nil {
		out += fmt.Sprintf(" hw=%d leo=%d", p.Log.HighWatermark, p.Log.End)
		if p.Log.Start > 0 {
			out += fmt.Sprintf(" start=%d", p.Log.Start)
		}
		if p.Role != "leader" {
			out += fmt.Sprintf(" epochs=%v", p.Log.Epochs)
		}
		if p.Log.Failed {
			out += " failed"
		}
	}
	c := s.Counters
	for _, n := range []struct {
		what string
		n    int
	}{{"shrinks", c.ISRShrinks}, {"expands", c.ISRExpands}, {"refused", c.FailedISRUpdates}, {"unannounced", len(s.Unannounced)}} {
		if n.n > 0 {
			out += fmt.Sprintf(" %s=%d", n.what, n.n)
		}
	}
	w.printf("%s", out)
}

// followers prints the tuples of spec/broker.md §12.1.
func (w *story) followers(d *datadriven.TestData) {
	a := w.actor(d)
	at := func(ms int64) string {
		switch {
		case ms == 0:
			return "0!"
		case ms < 0:
			return "unknown"
		}
		return fmt.Sprintf("+%d", ms-w.origin.UnixMilli())
	}
	for _, f := range a.b.Snapshot().Partitions[0].Log.Followers {
		if slices.ContainsFunc(d.CmdArgs, func(x datadriven.CmdArg) bool { return x.Key == strconv.Itoa(int(f.Broker)) }) {
			w.printf("%d (%d, %d, %s, %s)", f.Broker, f.End, f.FetchLeaderEnd, at(f.FetchTime), at(f.CaughtUp))
		}
	}
}

// fetches lets replicas fetch, in one step: 2@10 3@7 … [le=N] [last=N] [wait=MS]
// [min=N] [topic-id=N] [committed]; -1@N is a consumer. Errors are printed, and all
// answers with show.
func (w *story) fetches(d *datadriven.TestData) {
	a := w.actor(d)
	le, last, wait, least := int64(-1), int64(-1), int64(0), int64(1)
	w.number(d, "le", &le)
	w.number(d, "last", &last)
	w.number(d, "wait", &wait)
	w.number(d, "min", &least)
	var topicID int
	var id kafka.TopicID
	arg(d, w, "topic-id", &topicID)
	id[15] = byte(topicID)
	show := d.HasArg("show")
	var evs []brokers.Event
	for _, x := range d.CmdArgs {
		who, at, ok := strings.Cut(x.Key, "@")
		if !ok {
			continue
		}
		replica, err := strconv.Atoi(who)
		w.must(err)
		offset, err := strconv.ParseInt(at, 10, 64)
		w.must(err)
		evs = append(evs, brokers.Fetch{Request: &brokers.FetchRequest{Replica: kafka.BrokerID(replica), ReplicaEpoch: -1, MaxBytes: 1 << 20,
			MinBytes: int(least), MaxWait: time.Duration(wait) * time.Millisecond, Committed: d.HasArg("committed"), Rows: []brokers.FetchRow{{Partition: t0,
				TopicID: id, Offset: offset, LeaderEpoch: int32(le), LastFetchedEpoch: int32(last), MaxBytes: 1 << 20}}},
			Reply: func(r []brokers.FetchResult) {
				if text := fetchText(r[0]); show || r[0].Error != kafka.NoError || r[0].Diverging {
					w.printf("+%d %s: %s", w.zk.Now.Milliseconds(), x.Key, text)
				}
			}})
	}
	a.step(evs...)
}

func fetchText(r brokers.FetchResult) string {
	switch {
	case r.Error != kafka.NoError:
		return r.Error.String()
	case r.Diverging:
		return fmt.Sprintf("diverging epoch=%d end=%d", r.DivergingEpoch, r.DivergingEnd)
	}
	first, last := int64(-1), int64(-1)
	for _, records := range r.Records {
		for b := range commitlog.Batches(records) {
			if first < 0 {
				first = b.BaseOffset()
			}
			last = b.LastOffset()
		}
	}
	if first < 0 {
		return fmt.Sprintf("nothing hw=%d", r.HighWatermark)
	}
	return fmt.Sprintf("%d-%d hw=%d", first, last, r.HighWatermark)
}

// append is a number of records, each a batch: [acks=] [timeout=MS], or one batch of
// the idempotent producer 7 that begins at sequence=N.
func (w *story) append(d *datadriven.TestData) {
	n, err := strconv.Atoi(d.CmdArgs[0].Key)
	w.must(err)
	acks, timeout, sequence := int64(1), int64(30000), int64(0)
	w.number(d, "acks", &acks)
	w.number(d, "timeout", &timeout)
	w.asked++
	name := w.asked
	ev := w.producing(n, int16(acks), time.Duration(timeout)*time.Millisecond, func(r brokers.ProduceResult) {
		w.printf("+%d append %d: %s base=%d", w.zk.Now.Milliseconds(), name, r.Error, r.BaseOffset)
	})
	if w.number(d, "sequence", &sequence) {
		spec := commitlog.BatchSpec{ProducerID: 7, BaseSequence: int32(sequence), LeaderEpoch: -1}
		records := make([]commitlog.Record, n)
		for i := range records {
			records[i] = commitlog.Record{Timestamp: w.time().UnixMilli(), Value: []byte("v")}
		}
		batch, err := spec.Encode(records...)
		w.must(err)
		ev.Request.Rows[0].Records = batch
	}
	w.actor(d).step(ev)
}

func (w *story) producing(n int, acks int16, timeout time.Duration, reply func(brokers.ProduceResult)) brokers.Produce {
	var batches []byte
	for range n { // one record a batch, so that logs can be cut anywhere
		batches = append(batches, commitlog.Encode(commitlog.Record{Timestamp: w.time().UnixMilli(), Value: []byte("v")})...)
	}
	return brokers.Produce{Request: &brokers.ProduceRequest{Acks: acks, Timeout: timeout, Rows: []brokers.ProduceRow{{Partition: t0, Records: batches}}},
		Reply: func(r []brokers.ProduceResult) { reply(r[0]) }}
}

func (w *story) appendRecords(a *actor, n int, acks int16) {
	a.step(w.producing(n, acks, time.Second, func(r brokers.ProduceResult) {
		if r.Error != kafka.NoError {
			w.t.Fatalf("append: %s", r.Error)
		}
	}))
}

// repeat is period=MS until=MS append=N, with follower 2 at follower=K times the
// round, or at the leader's end of the round before (follower=previous).
func (w *story) repeat(d *datadriven.TestData) {
	a := w.actor(d)
	var period, to, n int64
	w.number(d, "period", &period)
	w.number(d, "until", &to)
	w.number(d, "append", &n)
	how := ""
	arg(d, w, "follower", &how)
	end := func() int64 { return a.b.Snapshot().Partitions[0].Log.End }
	fetch := func(at int64) brokers.Event {
		return brokers.Fetch{Request: &brokers.FetchRequest{Replica: 2, ReplicaEpoch: -1, MaxBytes: 1, Rows: []brokers.FetchRow{{Partition: t0, Offset: at,
			LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1}}}, Reply: func([]brokers.FetchResult) {}}
	}
	produce := func() brokers.Event {
		return w.producing(int(n), brokers.AcksLeader, time.Second, func(brokers.ProduceResult) {})
	}
	begin, previous := int64(w.zk.Now.Milliseconds()), end()
	for at := begin; at <= to; at += period {
		w.advance(time.Duration(at-1) * time.Millisecond)
		w.zk.Now = time.Duration(at) * time.Millisecond
		if how == "previous" {
			now := end()
			a.step(fetch(previous), produce())
			previous = now
			continue
		}
		if at == begin {
			continue
		}
		k, err := strconv.ParseInt(how, 10, 64)
		w.must(err)
		a.step(produce(), fetch(min(end()+n, k*(at/period))))
	}
}

// gauges prints the figures of spec/broker.md §11.2 that are not 0, and those of
// the first partition.
func (w *story) gauges(d *datadriven.TestData) {
	w.actor(d).step(brokers.Measure{PerPartition: true, Reply: func(g brokers.Gauges) {
		var out []string
		for _, x := range []struct {
			name string
			n    int
		}{{"LeaderCount", g.LeaderCount}, {"PartitionCount", g.PartitionCount}, {"UnderReplicatedPartitions", g.UnderReplicatedPartitions},
			{"UnderMinIsrPartitionCount", g.UnderMinIsrPartitionCount}, {"AtMinIsrPartitionCount", g.AtMinIsrPartitionCount},
			{"OfflineReplicaCount", g.OfflineReplicaCount}, {"ReassigningPartitions", g.ReassigningPartitions}, {"MaxLag", int(g.MaxLag)},
			{"FailedFetches", g.FailedFetches}, {"ProducePurgatory", g.ProducePurgatory}, {"FetchPurgatory", g.FetchPurgatory},
			{"ProduceExpires", g.Counters.ProduceExpires}, {"FollowerFetchExpires", g.Counters.FollowerFetchExpires},
			{"ConsumerFetchExpires", g.Counters.ConsumerFetchExpires}} {
			if x.n != 0 {
				out = append(out, fmt.Sprintf("%s=%d", x.name, x.n))
			}
		}
		w.printf("%s", strings.Join(out, " "))
		if len(g.Partitions) > 0 {
			p := g.Partitions[0]
			w.printf("%s UnderReplicated=%t UnderMinIsr=%t AtMinIsr=%t InSyncReplicasCount=%d ReplicasCount=%d LastStableOffsetLag=%d ConsumerLag=%d", p.Partition,
				p.UnderReplicated, p.UnderMinIsr, p.AtMinIsr, p.InSyncReplicasCount, p.ReplicasCount, p.LastStableOffsetLag, p.ConsumerLag)
		}
	}})
}

// offset asks for an offset as a client: timestamp=latest|earliest|MS [by=ID].
func (w *story) offset(d *datadriven.TestData) {
	q := brokers.OffsetQuery{Partition: t0, LeaderEpoch: -1, Timestamp: brokers.LatestOffset}
	by := brokers.Consumer
	arg(d, w, "by", &by)
	w.actor(d).step(brokers.ListOffsets{Queries: []brokers.OffsetQuery{q}, Replica: by, Reply: func(r []brokers.OffsetAnswer) {
		w.printf("%d %s", r[0].Offset, r[0].Error)
	}})
}

// route hands a follower's request to its leader, if that one is here.
func (w *story) route(a *actor, e brokers.Effect) bool {
	to := func(id kafka.BrokerID) bool {
		return w.brokers[id] != nil && w.brokers[id].b.Snapshot().Phase != "down"
	}
	later := func(id kafka.BrokerID, ev brokers.Event) { w.news = append(w.news, news{id, ev}) }
	self := a.b.ID()
	switch e := e.(type) {
	case brokers.FetchFrom:
		if to(e.Leader) {
			later(e.Leader, brokers.Fetch{Request: e.Request, Reply: func(r []brokers.FetchResult) {
				w.printf("+%d %d: answer %s", w.zk.Now.Milliseconds(), e.Leader, fetchText(r[0]))
				later(self, e.Answer(r, nil))
			}})
			return true
		}
	case brokers.AskEpochEnds:
		if to(e.Leader) {
			later(e.Leader, brokers.EpochEnds{Queries: e.Queries, Replica: self, Reply: func(r []brokers.EpochAnswer) {
				w.printf("+%d %d: answer epoch=%d end=%d %s", w.zk.Now.Milliseconds(), e.Leader, r[0].Epoch, r[0].EndOffset, r[0].Error)
				later(self, e.Answer(r, nil))
			}})
			return true
		}
	case brokers.AskOffsets:
		if to(e.Leader) {
			later(e.Leader, brokers.ListOffsets{Queries: e.Queries, Replica: self, Reply: func(r []brokers.OffsetAnswer) { later(self, e.Answer(r, nil)) }})
			return true
		}
	}
	return false
}

// leaderAnswers answers the oldest request that went to a leader which is not
// here: lost; a fetch by error=CODE, diverging=EPOCH:END, or nothing with hw=N
// [start=N]; a question for an epoch's end by diverging=; one for the log's
// start and end by range=START:END.
func (w *story) leaderAnswers(d *datadriven.TestData) {
	a := w.actor(d)
	if len(a.asked) == 0 {
		d.Fatalf(w.t, "nothing was asked")
	}
	asked := a.asked[0]
	a.asked = a.asked[1:]
	pair := func(key string) (x, y int64, ok bool) {
		var s string
		if !arg(d, w, key, &s) {
			return -1, -1, false
		}
		if n, err := fmt.Sscanf(s, "%d:%d", &x, &y); n != 2 {
			d.Fatalf(w.t, "%s: %v", key, err)
		}
		return x, y, true
	}
	epoch, end, diverging := pair("diverging")
	switch e := asked.(type) {
	case brokers.FetchFrom:
		if d.HasArg("lost") {
			a.step(e.Answer(nil, context.DeadlineExceeded))
			return
		}
		r := brokers.FetchResult{Partition: t0, HighWatermark: -1, LogStartOffset: -1, Diverging: diverging, DivergingEpoch: int32(epoch), DivergingEnd: end}
		w.number(d, "hw", &r.HighWatermark)
		w.number(d, "start", &r.LogStartOffset)
		var name string
		if arg(d, w, "error", &name) {
			r.Error = codeNamed(w.t, name)
		}
		a.step(e.Answer([]brokers.FetchResult{r}, nil))
	case brokers.AskEpochEnds:
		a.step(e.Answer([]brokers.EpochAnswer{{Partition: t0, Epoch: int32(epoch), EndOffset: end}}, nil))
	case brokers.AskOffsets:
		start, end, _ := pair("range")
		var answers []brokers.OffsetAnswer
		for _, q := range e.Queries {
			o := end
			if q.Timestamp == brokers.EarliestOffset {
				o = start
			}
			answers = append(answers, brokers.OffsetAnswer{Partition: t0, Offset: o})
		}
		a.step(e.Answer(answers, nil))
	default:
		d.Fatalf(w.t, "%T was asked", asked)
	}
}
