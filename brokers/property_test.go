package brokers_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// leaderRun is broker 1 leading one partition while a controller elects, ISRs
// change, ZooKeeper fails and answers come late, each when rapid says so.
type leaderRun struct {
	t          *rapid.T
	zk         *sim.ZooKeeper
	controller int64
	store      *sim.Store
	b          *brokers.Broker
	script     *scripted
	late       []brokers.Effect // AlterPartition requests not answered yet
	epoch      int32
	told       int32 // highest leader epoch the broker was told
	loseWrite  bool  // the next ISR write
	changed    bool  // by the leader, not yet announced
}

var t0 = kafka.TopicPartition{Topic: "t"}

func newLeaderRun(t *rapid.T, version kafka.ProtocolVersion) *leaderRun {
	r := &leaderRun{t: t, zk: sim.NewZooKeeper(), script: &scripted{behind: map[kafka.BrokerID]bool{}}, epoch: 5}
	r.controller = r.zk.NewSession()
	r.store = sim.NewStore(r.zk, func(zkpaths.Notice) {})
	first := kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 1, LeaderEpoch: 5, ISR: []kafka.BrokerID{1, 2}}, ControllerEpoch: 4}
	if err := r.zk.Seed(zkserver.Saved{Path: zkpaths.PartitionStatePath(t0), Data: zkpaths.EncodePartitionState(first)}); err != nil {
		t.Fatal(err)
	}
	var err error
	r.b, err = brokers.New(brokers.Options{ID: 1, Version: version, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}},
		Replication: func(brokers.View) brokers.Replication { return r.script }}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.zk.OnWrite = r.onWrite
	r.step(brokers.Start{})
	r.send(&control.UpdateMetadataRequest{Header: r.header(), Metadata: &control.Metadata{LiveBrokers: []kafka.Broker{
		{ID: 1}, {ID: 2}, {ID: 3}, {ID: 9, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9}}}}}})
	r.tell()
	return r
}

func (r *leaderRun) header() control.Header {
	return control.Header{ControllerID: 9, ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}
}

// onWrite sees every attempt: what the broker writes never moves a leader epoch.
func (r *leaderRun) onWrite(session int64, op zkserver.Op, res zkserver.OpResult) {
	if session == r.controller || res.Code != zkserver.OK {
		return
	}
	switch {
	case op.Path == zkpaths.PartitionStatePath(t0):
		l, err := zkpaths.DecodePartitionState(t0, op.Data, 0)
		if err != nil || l.LeaderEpoch != r.epoch || l.Leader != 1 || !slices.Contains(l.ISR, 1) {
			r.t.Fatalf("the leader wrote %s while the leader epoch is %d: %v", op.Data, r.epoch, err)
		}
		r.changed = true
	case op.Path == zkpaths.ISRNotificationPrefix:
		r.changed = false
	}
}

func (r *leaderRun) step(ev brokers.Event) {
	w := brokers.World{Store: r, Process: r, Now: r.zk.Time}
	queue := r.b.Step(r.zk.Time(), ev)
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		if _, ok := e.(brokers.AskAlterPartition); ok {
			if r.late = append(r.late, e); len(r.late) > 1 {
				r.t.Fatalf("two AlterPartition requests in flight: %v", r.late)
			}
			continue
		}
		if ev := w.Perform(context.Background(), e); ev != nil {
			queue = append(queue, r.b.Step(r.zk.Time(), ev)...)
		}
	}
}

// Read, Write, Transact and Session are brokers.Store's. A write may be applied
// and its answer lost with the session.
func (r *leaderRun) Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	changed := r.changed
	out, err := r.store.Write(ctx, fence, writes)
	if r.loseWrite && writes[0].Op == zkpaths.Set {
		r.loseWrite = false
		r.changed = changed // spec/broker.md §5.2: what was written so is never announced
		r.zk.EndSession(r.store.Session())
		return nil, zkpaths.ErrSessionExpired
	}
	return out, err
}

func (r *leaderRun) Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error) {
	return r.store.Read(ctx, reads)
}

func (r *leaderRun) Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	return r.store.Transact(ctx, writes)
}

func (r *leaderRun) Session() int64 { return r.store.Session() }

func (r *leaderRun) Listen(bool) error  { return nil }
func (r *leaderRun) OpenSession() error { return nil }
func (r *leaderRun) CloseSession()      {}
func (r *leaderRun) AbandonSession()    {}
func (r *leaderRun) ExpireSession()     {}

func (r *leaderRun) send(req control.Request) {
	r.step(brokers.Control{Request: req, Reply: func(control.Response) {}})
}

func (r *leaderRun) state() kafka.Leadership {
	data, stat, _ := r.zk.Tree.GetData(zkserver.Who{}, zkpaths.PartitionStatePath(t0))
	l, err := zkpaths.DecodePartitionState(t0, data, stat.Version)
	if err != nil {
		r.t.Fatal(err)
	}
	return l
}

// elect is the controller's write: the same leader, a new epoch.
func (r *leaderRun) elect() {
	l := r.state()
	r.epoch++
	l.LeaderEpoch = r.epoch
	if len(l.ISR) > 1 && rapid.Bool().Draw(r.t, "drop one") {
		l.ISR = l.ISR[:len(l.ISR)-1]
	}
	if !slices.Contains(l.ISR, 1) {
		l.ISR = []kafka.BrokerID{1}
	}
	r.zk.Write(r.controller, zkserver.Op{Kind: zkserver.OpSet, Path: zkpaths.PartitionStatePath(t0), Data: zkpaths.EncodePartitionState(l), Version: l.ZKVersion})
}

// tell sends the leadership as it stands.
func (r *leaderRun) tell() {
	r.told = r.epoch
	r.send(&control.LeaderAndISRRequest{Header: r.header(), Partitions: []*control.PartitionState{{TopicPartition: t0, Leadership: r.state(),
		ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1, 2, 3}}}}})
}

// reply answers the AlterPartition in flight, as a controller does or wrongly.
func (r *leaderRun) reply() {
	if len(r.late) == 0 {
		return
	}
	e := r.late[0].(brokers.AskAlterPartition)
	r.late = nil
	c := &fixedController{}
	switch rapid.IntRange(0, 6).Draw(r.t, "answer") {
	case 0:
		c.answer.Error = kafka.UnknownServerError
	case 1:
		c.err = context.DeadlineExceeded
	case 2: // applied, but the answer says that something went wrong
		r.decide(e.Request.Partitions[0])
		c.answer.Partitions = map[kafka.TopicPartition]brokers.AlterPartitionResult{t0: {Error: kafka.UnknownServerError}}
	default:
		c.answer.Partitions = map[kafka.TopicPartition]brokers.AlterPartitionResult{t0: r.decide(e.Request.Partitions[0])}
	}
	r.step(brokers.World{Controller: c}.Perform(context.Background(), e))
}

// decide is the order of spec/broker.md §5.4, for what can happen here.
func (r *leaderRun) decide(p brokers.AlterPartitionRow) brokers.AlterPartitionResult {
	now := r.state()
	fail := func(code kafka.ErrorCode) brokers.AlterPartitionResult {
		return brokers.AlterPartitionResult{Error: code}
	}
	switch {
	case p.LeaderEpoch < now.LeaderEpoch:
		return fail(kafka.FencedLeaderEpoch)
	case slices.Equal(p.ISR, now.ISR):
		return brokers.AlterPartitionResult{LeaderAndISR: now.LeaderAndISR}
	case p.PartitionEpoch < now.ZKVersion:
		return fail(kafka.InvalidUpdateVersion)
	case rapid.IntRange(0, 4).Draw(r.t, "ineligible") == 0:
		return fail(kafka.IneligibleReplica)
	}
	now.ISR = p.ISR
	r.zk.Write(r.controller, zkserver.Op{Kind: zkserver.OpSet, Path: zkpaths.PartitionStatePath(t0), Data: zkpaths.EncodePartitionState(now), Version: now.ZKVersion})
	return brokers.AlterPartitionResult{LeaderAndISR: r.state().LeaderAndISR}
}

// check holds the safety of the maximal ISR: whatever ISR a reader of the
// znode sees in the leader's epoch, the leader waits for all of it.
func (r *leaderRun) check(what string) {
	s := r.b.Snapshot().Partitions[0]
	l := r.state()
	if s.Role != "leader" || !slices.Contains(s.ISR, 1) {
		r.t.Fatalf("after %s: %+v", what, s)
	}
	if l.LeaderEpoch != s.LeaderEpoch {
		return
	}
	for _, id := range l.ISR {
		if !slices.Contains(s.MaximalISR, id) {
			r.t.Fatalf("after %s: znode has ISR %v, the leader waits only for %v", what, l.ISR, s.MaximalISR)
		}
	}
}

func (r *leaderRun) advance(d time.Duration) {
	end := r.zk.Now + d
	for {
		at, ok := r.b.Deadline()
		if !ok || at.Sub(r.zk.Time()) > end-r.zk.Now {
			break
		}
		r.zk.Now += max(0, at.Sub(r.zk.Time()))
		r.step(nil)
	}
	r.zk.Now = end
}

// TestLeaderIsSafe drives a leader of profiles B and C through anything, then
// heals everything and demands progress.
func TestLeaderIsSafe(t *testing.T) {
	for _, version := range []kafka.ProtocolVersion{kafka.V2_6IV0, kafka.V3_9IV0} {
		t.Run(version.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { leaderStory(newLeaderRun(t, version)) })
		})
	}
}

func leaderStory(r *leaderRun) {
	ops := []string{"behind", "fetch", "fetch", "time", "time", "elect", "tell", "fault", "reply", "reply", "expire", "lose"}
	for range rapid.IntRange(1, 60).Draw(r.t, "steps") {
		op := rapid.SampledFrom(ops).Draw(r.t, "op")
		switch op {
		case "behind":
			id := kafka.BrokerID(rapid.IntRange(2, 3).Draw(r.t, "who"))
			r.script.behind[id] = !r.script.behind[id]
		case "fetch":
			id := kafka.BrokerID(rapid.IntRange(2, 3).Draw(r.t, "who"))
			r.script.due = append(r.script.due, kafka.PartitionReplica{TopicPartition: t0, Broker: id})
			r.step(nil)
		case "time":
			r.advance(time.Duration(rapid.IntRange(1, 20000).Draw(r.t, "ms")) * time.Millisecond)
		case "elect":
			r.elect()
		case "tell":
			r.tell()
		case "fault":
			r.store.Inject(sim.Fault{Op: "set", Effect: rapid.SampledFrom([]sim.Effect{sim.LoseAnswer, sim.FailWith, sim.Expire}).Draw(r.t, "fault"),
				Code: zkpaths.Failed})
		case "reply":
			r.reply()
		case "expire":
			r.expire()
		case "lose":
			r.loseWrite = true
		}
		r.check(op)
	}
	r.heal()
}

func (r *leaderRun) expire() {
	r.zk.EndSession(r.store.Session())
	r.step(brokers.SessionExpired{})
	r.store.Reconnect()
	r.step(brokers.SessionEstablished{})
}

// heal ends all trouble: both followers return, the ISR is full, and what the
// leader changed was announced.
func (r *leaderRun) heal() {
	r.store.ClearFaults()
	r.loseWrite = false
	r.script.behind = map[kafka.BrokerID]bool{}
	r.expire()
	r.elect()
	r.tell()
	for range 60 {
		for id := kafka.BrokerID(2); id <= 3; id++ {
			r.script.due = append(r.script.due, kafka.PartitionReplica{TopicPartition: t0, Broker: id})
			r.step(nil)
		}
		for len(r.late) > 0 {
			e := r.late[0].(brokers.AskAlterPartition)
			r.late = nil
			c := &fixedController{}
			c.answer.Partitions = map[kafka.TopicPartition]brokers.AlterPartitionResult{t0: r.grant(e.Request.Partitions[0])}
			r.step(brokers.World{Controller: c}.Perform(context.Background(), e))
		}
		r.advance(2 * time.Second)
		r.check("healing")
	}
	s := r.b.Snapshot()
	if got := r.state().ISR; len(got) != 3 || s.Partitions[0].Pending != "" || len(s.Unannounced) > 0 || r.changed && s.Profile == "B" {
		r.t.Fatalf("not healed: znode %v, changed %t, %s", got, r.changed, fmt.Sprintf("%+v", s))
	}
}

func (r *leaderRun) grant(p brokers.AlterPartitionRow) brokers.AlterPartitionResult {
	now := r.state()
	if p.LeaderEpoch < now.LeaderEpoch {
		return brokers.AlterPartitionResult{Error: kafka.FencedLeaderEpoch}
	}
	if p.PartitionEpoch < now.ZKVersion && !slices.Equal(p.ISR, now.ISR) {
		return brokers.AlterPartitionResult{Error: kafka.InvalidUpdateVersion}
	}
	now.ISR = p.ISR
	r.zk.Write(r.controller, zkserver.Op{Kind: zkserver.OpSet, Path: zkpaths.PartitionStatePath(t0), Data: zkpaths.EncodePartitionState(now), Version: now.ZKVersion})
	return brokers.AlterPartitionResult{LeaderAndISR: r.state().LeaderAndISR}
}
