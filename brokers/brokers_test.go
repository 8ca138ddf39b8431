package brokers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// TestStories runs the files of testdata, one world a file. Times are +ms from
// its start. What a directive prints is what was done, and what came of it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newStory(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			w.out.Reset()
			w.directive(d)
			if w.out.Len() == 0 {
				return "ok\n"
			}
			return w.out.String()
		})
	})
}

type story struct {
	t       *testing.T
	zk      *sim.ZooKeeper
	board   *brokers.Board
	news    []news
	brokers map[kafka.BrokerID]*actor
	out     strings.Builder
	origin  time.Time // of the brokers' clocks, at +0
	quiet   bool      // news wait
	asked   int       // appends, to name them
}

// news is an event that waits until the step that caused it is over.
type news struct {
	to kafka.BrokerID
	ev brokers.Event
}

// actor is one broker with its session, port and what it asked the controller.
type actor struct {
	w      *story
	b      *brokers.Broker
	store  *sim.Store
	world  brokers.World
	script *scripted
	asked  []brokers.Effect
}

func newStory(t *testing.T) *story {
	w := &story{t: t, zk: sim.NewZooKeeper(), brokers: map[kafka.BrokerID]*actor{}}
	w.origin = w.zk.Time()
	w.board = brokers.NewBoard(func(to kafka.BrokerID, ev brokers.FollowerChanged) { w.news = append(w.news, news{to, ev}) })
	return w
}

// time is what the brokers' clocks show.
func (w *story) time() time.Time { return w.origin.Add(w.zk.Now) }

func (w *story) printf(format string, args ...any) { fmt.Fprintf(&w.out, format+"\n", args...) }

func (w *story) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// Process of an actor.

func (a *actor) Listen(open bool) error {
	a.w.printf("%d: port open=%t", a.b.ID(), open)
	return nil
}
func (a *actor) OpenSession() error {
	a.store.Reconnect()
	return nil
}
func (a *actor) CloseSession() {
	a.w.printf("%d: session closed", a.b.ID())
	a.w.zk.EndSession(a.store.Session())
}
func (a *actor) AbandonSession() { a.w.printf("%d: session abandoned", a.b.ID()) }
func (a *actor) ExpireSession() {
	a.w.zk.EndSession(a.store.Session())
	a.step(brokers.SessionExpired{})
	a.store.Reconnect()
	a.step(brokers.SessionEstablished{})
}

func (a *actor) step(evs ...brokers.Event) {
	if len(evs) == 1 && evs[0] == nil {
		evs = nil
	}
	queue := a.b.StepAll(a.w.time(), evs)
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		a.trace(e)
		switch e.(type) {
		case brokers.AskAlterPartition, brokers.AskControlledShutdown:
			a.asked = append(a.asked, e)
			continue
		case brokers.FetchFrom, brokers.AskEpochEnds, brokers.AskOffsets:
			if !a.w.route(a, e) {
				a.asked = append(a.asked, e)
			}
			continue
		case brokers.InterruptFetch:
			continue
		}
		if ev := a.world.Perform(context.Background(), e); ev != nil {
			queue = append(queue, a.b.Step(a.w.time(), ev)...)
		}
	}
	for len(a.w.news) > 0 && !a.w.quiet {
		n := a.w.news[0]
		a.w.news = a.w.news[1:]
		if to := a.w.brokers[n.to]; to != nil {
			to.step(n.ev)
		}
	}
}

func (a *actor) trace(e brokers.Effect) {
	at := fmt.Sprintf("+%d %d:", a.w.zk.Now.Milliseconds(), a.b.ID())
	switch e := e.(type) {
	case brokers.WriteISRs:
		for _, r := range e.Rows {
			a.w.printf("%s write %s %s if-version=%d", at, r.Partition, zkpaths.EncodePartitionState(r.Leadership), r.Leadership.ZKVersion)
		}
	case brokers.Announce:
		a.w.printf("%s announce %v", at, e.Batches)
	case brokers.Register:
		a.w.printf("%s register", at)
	case brokers.AskAlterPartition:
		a.w.printf("%s ask %d broker-epoch=%s by-id=%t", at, e.Controller.ID, a.epochWord(e.Request.BrokerEpoch), e.Request.ByID)
		for _, p := range e.Request.Partitions {
			a.w.printf("  %s isr=%v leader-epoch=%d partition-epoch=%d", p.Partition, p.ISR, p.LeaderEpoch, p.PartitionEpoch)
		}
	case brokers.AskControlledShutdown:
		a.w.printf("%s controlled shutdown: ask %d from-zookeeper=%t", at, e.Controller.ID, e.FromZooKeeper)
	case brokers.Exit:
		a.w.printf("%s exit: %v", at, e.Err)
	case brokers.NotifyLogDirFailure:
		a.w.printf("%s log dir failure", at)
	case brokers.FetchFrom:
		for _, r := range e.Request.Rows {
			a.w.printf("%s fetch from %d: %s at=%d last-epoch=%d epoch=%d", at, e.Leader, r.Partition, r.Offset, r.LastFetchedEpoch, r.LeaderEpoch)
		}
	case brokers.AskEpochEnds:
		for _, q := range e.Queries {
			a.w.printf("%s ask %d: end of epoch %d", at, e.Leader, q.Epoch)
		}
	case brokers.AskOffsets:
		a.w.printf("%s ask %d: log start and end", at, e.Leader)
	}
}

// epochWord gives a broker epoch in words, since transaction ids are nobody's business.
func (a *actor) epochWord(epoch int64) string {
	if own := a.b.Snapshot().BrokerEpoch; epoch >= 0 {
		switch {
		case epoch == own:
			return "own"
		case epoch < own:
			return "older"
		}
		return "newer"
	}
	return strconv.FormatInt(epoch, 10)
}

// scripted is Replication by word: who is behind, and who fetches when.
type scripted struct {
	behind map[kafka.BrokerID]bool
	due    []kafka.PartitionReplica
}

func (s *scripted) Lead(time.Time, brokers.Leading)                           {}
func (s *scripted) Unlead(kafka.TopicPartition)                               {}
func (s *scripted) Watch(time.Time, kafka.TopicPartition, kafka.BrokerID)     {}
func (s *scripted) Next() (time.Time, bool)                                   { return time.Time{}, false }
func (s *scripted) Changed(time.Time, kafka.BrokerID, []kafka.TopicPartition) {}
func (s *scripted) MayJoin(_ time.Time, _ kafka.TopicPartition, id kafka.BrokerID) bool {
	return !s.behind[id]
}
func (s *scripted) OutOfSync(_ time.Time, _ kafka.TopicPartition, id kafka.BrokerID) bool {
	return s.behind[id]
}
func (s *scripted) Due(time.Time) []kafka.PartitionReplica {
	due := s.due
	s.due = nil
	return due
}

func arg[T any](d *datadriven.TestData, w *story, key string, into *T) bool {
	if !d.HasArg(key) {
		return false
	}
	var s string
	d.ScanArgs(w.t, key, &s)
	switch p := any(into).(type) {
	case *string:
		*p = s
	case *int:
		n, err := strconv.Atoi(s)
		w.must(err)
		*p = n
	case *int32:
		n, err := strconv.ParseInt(s, 10, 32)
		w.must(err)
		*p = int32(n)
	case *kafka.BrokerID:
		n, err := strconv.ParseInt(s, 10, 32)
		w.must(err)
		*p = kafka.BrokerID(n)
	case *[]kafka.BrokerID:
		*p = w.ids(s)
	case *kafka.TopicPartition:
		tp, err := kafka.ParseTopicPartition(s)
		w.must(err)
		*p = tp
	case *time.Duration:
		n, err := strconv.Atoi(s)
		w.must(err)
		*p = time.Duration(n) * time.Millisecond
	case *kafka.ProtocolVersion:
		v, err := kafka.ParseProtocolVersion(s)
		w.must(err)
		*p = v
	default:
		w.t.Fatalf("no reader for %T", into)
	}
	return true
}

// ids reads 1/2/3; datadriven keeps commas for itself.
func (w *story) ids(s string) []kafka.BrokerID {
	ids := []kafka.BrokerID{}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "none" {
			continue
		}
		n, err := strconv.ParseInt(part, 10, 32)
		w.must(err)
		ids = append(ids, kafka.BrokerID(n))
	}
	return ids
}

func (w *story) actor(d *datadriven.TestData) *actor {
	id := kafka.BrokerID(1)
	arg(d, w, "to", &id)
	a := w.brokers[id]
	if a == nil {
		d.Fatalf(w.t, "no broker %d", id)
	}
	return a
}

func (w *story) directive(d *datadriven.TestData) {
	switch d.Cmd {
	case "broker":
		w.broker(d)
	case "fresh": // a new world
		*w = *newStory(w.t)
	case "lisr", "umr", "stop":
		w.control(d)
	case "state":
		w.state(d)
	case "metadata":
		m := w.actor(d).b.Metadata()
		id, _, listed := m.Controller()
		w.printf("controller=%d listed=%t", id, listed)
		for _, b := range m.Brokers() {
			w.printf("broker %d", b.ID)
		}
		for _, t := range m.Topics() {
			for _, p := range t.Partitions {
				w.printf("%s id=%s leader=%d isr=%v", p.TopicPartition, t.ID, p.Leader, p.ISR)
			}
		}
	case "advance":
		var to time.Duration
		arg(d, w, "to", &to)
		w.advance(to)
	case "followers":
		a := w.actor(d)
		var ids []kafka.BrokerID
		arg(d, w, "behind", &ids)
		a.script.behind = map[kafka.BrokerID]bool{}
		for _, id := range ids {
			a.script.behind[id] = true
		}
	case "fetch":
		a := w.actor(d)
		var r kafka.PartitionReplica
		arg(d, w, "partition", &r.TopicPartition)
		arg(d, w, "by", &r.Broker)
		a.script.due = append(a.script.due, r)
		a.step(nil)
	case "zk":
		w.zookeeper(d)
	case "inject":
		w.inject(d)
	case "answer":
		w.answer(d)
	case "goodbye":
		w.goodbye(d)
	case "fault":
		w.fault(d)
	case "expire":
		a := w.actor(d)
		w.zk.EndSession(a.store.Session())
		a.step(brokers.SessionExpired{})
	case "reconnect":
		a := w.actor(d)
		a.store.Reconnect()
		a.step(brokers.SessionEstablished{})
	case "forget-session": // expired for the client alone
		a := w.actor(d)
		a.step(brokers.SessionExpired{})
		a.store.Reconnect()
		a.step(brokers.SessionEstablished{})
	case "shutdown":
		w.actor(d).step(brokers.Stop{})
	default:
		w.scenario(d)
	}
}

// broker starts a broker: id= version= [release=] [lag=] [catch-up=] [listener=H:P] [session=HEX] [scripted] [lose-answer].
func (w *story) broker(d *datadriven.TestData) {
	opts := brokers.Options{ID: 1, Version: kafka.V2_6IV0, ReplicaLagTimeMax: 30 * time.Second}
	arg(d, w, "id", &opts.ID)
	arg(d, w, "version", &opts.Version)
	arg(d, w, "release", &opts.Release)
	arg(d, w, "lag", &opts.ReplicaLagTimeMax)
	arg(d, w, "catch-up", &opts.CatchUp)
	endpoint := fmt.Sprintf("PLAINTEXT://kafka-%d.example.net:9092", opts.ID)
	arg(d, w, "endpoint", &endpoint)
	e, err := zkpaths.ParseEndpoint(endpoint)
	w.must(err)
	opts.Endpoints = []kafka.Endpoint{e}
	a := &actor{w: w, store: sim.NewStore(w.zk, func(zkpaths.Notice) {})}
	if d.HasArg("scripted") {
		a.script = &scripted{}
		opts.Replication = func(brokers.View) brokers.Replication { return a.script }
	}
	var session string
	if arg(d, w, "session", &session) {
		n, err := strconv.ParseInt(session, 0, 64)
		w.must(err)
		w.zk.OpenSession(n)
		a.store.Attach(n)
	}
	a.world = brokers.World{Store: a.store, Process: a, Now: w.zk.Time}
	a.b, err = brokers.New(opts, w.board, nil)
	if err != nil {
		w.printf("%v", err)
		return
	}
	w.brokers[opts.ID] = a
	if d.HasArg("lose-answer") {
		a.store.Inject(sim.Fault{Op: "create", Path: zkpaths.BrokerPath(opts.ID), Effect: sim.LoseAnswer})
	}
	a.step(brokers.Start{})
}

func (w *story) advance(to time.Duration) {
	for {
		var who *actor
		var first time.Time
		for _, id := range w.sortedIDs() {
			if at, ok := w.brokers[id].b.Deadline(); ok && (who == nil || at.Before(first)) {
				who, first = w.brokers[id], at
			}
		}
		limit := w.time().Add(to - w.zk.Now)
		if who == nil || first.After(limit) {
			break
		}
		if first.After(w.time()) {
			w.zk.Now += first.Sub(w.time())
		}
		who.step(nil)
	}
	w.zk.Now = to
	for _, id := range w.sortedIDs() {
		w.brokers[id].step(nil)
	}
}

func (w *story) sortedIDs() []kafka.BrokerID {
	var ids []kafka.BrokerID
	for id := range w.brokers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// control sends a control request: lisr, umr or stop. Broker epochs are in
// words: own (the default), older, newer, none.
func (w *story) control(d *datadriven.TestData) {
	a := w.actor(d)
	h := control.Header{ControllerID: 9, ControllerEpoch: 4, BrokerEpoch: a.b.Snapshot().BrokerEpoch}
	arg(d, w, "ce", &h.ControllerEpoch)
	arg(d, w, "controller", &h.ControllerID)
	var word string
	arg(d, w, "be", &word)
	switch word {
	case "older":
		h.BrokerEpoch--
	case "newer":
		h.BrokerEpoch++
	case "none":
		h.BrokerEpoch = kafka.NoBrokerEpoch
	}
	var r control.Request
	switch d.Cmd {
	case "lisr":
		r = &control.LeaderAndISRRequest{Header: h, Partitions: w.partitions(d)}
	case "umr":
		var live []kafka.BrokerID
		arg(d, w, "live", &live)
		m := &control.Metadata{}
		if d.HasArg("partition") {
			m.Partitions = w.partitions(d)
		}
		for _, id := range live {
			m.LiveBrokers = append(m.LiveBrokers, kafka.Broker{ID: id, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}}})
		}
		r = &control.UpdateMetadataRequest{Header: h, Metadata: m}
	case "stop":
		s := control.StopPartition{LeaderEpoch: 5, Delete: d.HasArg("delete")}
		arg(d, w, "partition", &s.TopicPartition)
		arg(d, w, "le", &s.LeaderEpoch)
		r = &control.StopReplicaRequest{Header: h, Partitions: []control.StopPartition{s}}
	}
	a.step(brokers.Control{Request: r, Reply: func(resp control.Response) { w.printf("%s", answerText(resp)) }})
}

func answerText(resp control.Response) string {
	var rows []string
	for tp, code := range resp.Errors {
		rows = append(rows, fmt.Sprintf(" %s=%s", tp, code))
	}
	slices.Sort(rows)
	return resp.Error.String() + strings.Join(rows, "")
}

// partitions gives as many partitions of one topic as count= says.
func (w *story) partitions(d *datadriven.TestData) []*control.PartitionState {
	s := control.PartitionState{IsNew: d.HasArg("new")}
	s.TopicPartition = kafka.TopicPartition{Topic: "t"}
	s.Leader, s.LeaderEpoch, s.ZKVersion, s.ControllerEpoch = 1, 5, 7, 4
	s.Replicas, s.ISR = []kafka.BrokerID{1, 2, 3}, []kafka.BrokerID{1, 2, 3}
	arg(d, w, "partition", &s.TopicPartition)
	arg(d, w, "leader", &s.Leader)
	arg(d, w, "le", &s.LeaderEpoch)
	arg(d, w, "pe", &s.ZKVersion)
	arg(d, w, "pce", &s.ControllerEpoch)
	arg(d, w, "replicas", &s.Replicas)
	arg(d, w, "adding", &s.Adding)
	arg(d, w, "isr", &s.ISR)
	var id int
	if arg(d, w, "topic-id", &id) {
		s.TopicID[15] = byte(id)
	}
	count := 1
	arg(d, w, "count", &count)
	var out []*control.PartitionState
	for i := range count {
		p := s
		p.Partition += int32(i)
		out = append(out, &p)
	}
	if d.HasArg("twice") {
		out = append(out, out[0])
	}
	return out
}

func (w *story) state(d *datadriven.TestData) {
	s := w.actor(d).b.Snapshot()
	w.printf("%s registered=%t controller-epoch=%d unannounced=%v shrinks=%d expands=%d failed=%d", s.Phase, s.Registered, s.ControllerEpoch,
		s.Unannounced, s.Counters.ISRShrinks, s.Counters.ISRExpands, s.Counters.FailedISRUpdates)
	for _, p := range s.Partitions {
		w.printf("%s %s leader=%d epoch=%d partition-epoch=%d controller-epoch=%d isr=%v maximal=%v pending=%q fetching=%t offline=%t", p.Partition, p.Role,
			p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.ControllerEpoch, p.ISR, p.MaximalISR, p.Pending, p.Fetching, p.Offline)
	}
}

// zookeeper is somebody else's access: get, set (version= what it becomes), delete, children.
func (w *story) zookeeper(d *datadriven.TestData) {
	op, path := d.CmdArgs[0].Key, d.CmdArgs[1].Key
	switch op {
	case "get":
		data, stat, code := w.zk.Tree.GetData(zkserver.Who{}, path)
		if code != zkserver.OK {
			w.printf("%v", code)
			return
		}
		owner := "nobody"
		if stat.EphemeralOwner != 0 {
			owner = fmt.Sprintf("0x%x", stat.EphemeralOwner)
			for id, a := range w.brokers {
				if a.store.Session() == stat.EphemeralOwner {
					owner = fmt.Sprintf("broker %d", id)
				}
			}
		}
		w.printf("%s version=%d owner=%s czxid=mzxid:%t", data, stat.Version, owner, stat.Czxid == stat.Mzxid)
	case "children":
		names, _, _ := w.zk.Tree.GetChildren(zkserver.Who{}, path)
		slices.Sort(names)
		w.printf("%v", names)
	case "seed":
		n := zkserver.Saved{Path: path, Data: []byte(d.Input)}
		var version int
		if arg(d, w, "version", &version) {
			n.Stat.Version = int32(version)
		}
		var owner string
		if arg(d, w, "owner", &owner) {
			id, err := strconv.ParseInt(owner, 0, 64)
			w.must(err)
			w.zk.OpenSession(id)
			n.Stat.EphemeralOwner, n.Mode = id, zkserver.Ephemeral
		}
		w.must(w.zk.Seed(n))
	case "set":
		if r := w.zk.Write(w.zk.NewSession(), zkserver.Op{Kind: zkserver.OpSet, Path: path, Data: []byte(d.Input), Version: -1}); r.Code != zkserver.OK {
			w.printf("%v", r.Code)
		}
	case "delete":
		if r := w.zk.Write(w.zk.NewSession(), zkserver.Op{Kind: zkserver.OpDelete, Path: path, Version: -1}); r.Code != zkserver.OK {
			w.printf("%v", r.Code)
		}
	case "end-session":
		id, err := strconv.ParseInt(path, 0, 64)
		w.must(err)
		w.zk.EndSession(id)
	default:
		d.Fatalf(w.t, "unknown zk op %q", op)
	}
}

func (w *story) inject(d *datadriven.TestData) {
	a := w.actor(d)
	var what, op, path string
	arg(d, w, "what", &what)
	arg(d, w, "op", &op)
	arg(d, w, "path", &path)
	effects := map[string]sim.Effect{"lose-answer": sim.LoseAnswer, "expire": sim.Expire, "no-auth": sim.FailWith}
	a.store.Inject(sim.Fault{Op: op, Path: path, Effect: effects[what], Code: zkpaths.NoAuth})
}

// answer gives the controller's answer to the oldest AlterPartition: error=, or
// rows "t-0 isr=1/2 leader-epoch=5 partition-epoch=8" or "t-0 error=CODE"; lost
// breaks the connection.
func (w *story) answer(d *datadriven.TestData) {
	a := w.actor(d)
	if len(a.asked) == 0 {
		d.Fatalf(w.t, "nothing was asked")
	}
	e := a.asked[0].(brokers.AskAlterPartition)
	a.asked = a.asked[1:]
	client := &fixedController{}
	if d.HasArg("lost") {
		client.err = errors.New("connection reset")
	}
	var name string
	if arg(d, w, "error", &name) {
		client.answer.Error = codeNamed(w.t, name)
	}
	client.answer.Partitions = map[kafka.TopicPartition]brokers.AlterPartitionResult{}
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		tp, err := kafka.ParseTopicPartition(f[0])
		w.must(err)
		var r brokers.AlterPartitionResult
		r.Leader = 1
		for _, kv := range f[1:] {
			k, v, _ := strings.Cut(kv, "=")
			n, _ := strconv.Atoi(v)
			switch k {
			case "error":
				r.Error = codeNamed(w.t, v)
			case "isr":
				r.ISR = w.ids(v)
			case "leader-epoch":
				r.LeaderEpoch = int32(n)
			case "partition-epoch":
				r.ZKVersion = int32(n)
			}
		}
		client.answer.Partitions[tp] = r
	}
	world := a.world
	world.Controller = client
	a.step(world.Perform(context.Background(), e))
}

// goodbye answers the oldest ControlledShutdown: [error=] [remaining=t-0] [lost].
func (w *story) goodbye(d *datadriven.TestData) {
	a := w.actor(d)
	e := a.asked[0].(brokers.AskControlledShutdown)
	a.asked = a.asked[1:]
	client := &fixedController{}
	if d.HasArg("lost") {
		client.err = errors.New("connection reset")
	}
	var name string
	if arg(d, w, "error", &name) {
		client.code = codeNamed(w.t, name)
	}
	var tp kafka.TopicPartition
	if arg(d, w, "remaining", &tp) {
		client.remaining = []kafka.TopicPartition{tp}
	}
	world := a.world
	world.Controller = client
	a.step(world.Perform(context.Background(), e))
	if client.asked != nil {
		w.printf("asked %d at %s", client.asked.ID, zkpaths.FormatEndpoint(client.asked.Endpoints[0]))
	}
}

func codeNamed(t *testing.T, name string) kafka.ErrorCode {
	for c := kafka.UnknownServerError; c < 200; c++ {
		if c.String() == name {
			return c
		}
	}
	t.Fatalf("no error is named %s", name)
	return 0
}

// fixedController gives one answer.
type fixedController struct {
	answer    brokers.AlterPartitionAnswer
	code      kafka.ErrorCode
	remaining []kafka.TopicPartition
	err       error
	asked     *kafka.Broker
}

func (c *fixedController) AlterPartition(context.Context, kafka.Broker, *brokers.AlterPartitionRequest) (brokers.AlterPartitionAnswer, error) {
	return c.answer, c.err
}

func (c *fixedController) ControlledShutdown(_ context.Context, to kafka.Broker, _ kafka.BrokerID, _ int64) (kafka.ErrorCode, []kafka.TopicPartition, error) {
	c.asked = &to
	return c.code, c.remaining, c.err
}

// fault takes the JSON form of a FaultRequest.
func (w *story) fault(d *datadriven.TestData) {
	var r brokers.FaultRequest
	dec := json.NewDecoder(strings.NewReader(d.Input))
	dec.DisallowUnknownFields()
	w.must(dec.Decode(&r))
	w.brokers[r.Broker].step(brokers.Fault{Request: r, Reply: func(resp brokers.FaultResponse) {
		if resp.Error != "" {
			w.printf("%s", resp.Error)
		}
	}})
}

// TestLateRegistration: the answer to a registration that was made in a session
// which has expired since is no registration.
func TestLateRegistration(t *testing.T) {
	w := newStory(t)
	a := &actor{w: w, store: sim.NewStore(w.zk, func(zkpaths.Notice) {})}
	a.world = brokers.World{Store: a.store, Process: a, Now: w.zk.Time}
	b, err := brokers.New(brokers.Options{ID: 1, Version: kafka.V3_9IV0, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}}}, nil, nil)
	w.must(err)
	a.b = b
	registrations := func(effects []brokers.Effect) (out []brokers.Effect) {
		for _, e := range effects {
			if _, ok := e.(brokers.Register); ok {
				out = append(out, e)
			}
		}
		return out
	}
	first := registrations(b.Step(w.zk.Time(), brokers.Start{}))
	if len(first) != 1 {
		t.Fatalf("%d registrations at the start", len(first))
	}
	late := a.world.Perform(t.Context(), first[0])
	w.zk.EndSession(a.store.Session())
	a.store.Reconnect()
	b.Step(w.zk.Time(), brokers.SessionExpired{})
	second := registrations(b.Step(w.zk.Time(), brokers.SessionEstablished{}))
	b.Step(w.zk.Time(), late)
	if s := b.Snapshot(); s.Registered || s.Phase != "starting" {
		t.Fatalf("registered in a session that is over: %+v", s)
	}
	if len(second) != 1 {
		t.Fatalf("%d registrations in the new session", len(second))
	}
	b.Step(w.zk.Time(), a.world.Perform(t.Context(), second[0]))
	_, stat, code := w.zk.Tree.GetData(zkserver.Who{}, zkpaths.BrokerPath(1))
	if s := b.Snapshot(); code != zkserver.OK || !s.Registered || s.BrokerEpoch != stat.Czxid {
		t.Fatalf("%s, node %v: %+v", code, stat, s)
	}
}
