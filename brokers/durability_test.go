package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// party is three brokers with logs and a controller that elects from the ISR.
// Whatever one tells another waits in a queue until rapid delivers it.
type party struct {
	t          *rapid.T
	zk         *sim.ZooKeeper
	controller int64
	ps         map[kafka.BrokerID]*guest
	queues     map[[2]kafka.BrokerID][]func() // from, to; 9 is the controller
	epoch      int32                          // of the last election
	values     int
	acked      map[int64]string // offset to value, of acks=all
	leaders    int
}

type guest struct {
	p     *party
	b     *brokers.Broker
	store *sim.Store
	up    bool
	life  int
}

func newParty(t *rapid.T, version, release kafka.ProtocolVersion) *party {
	p := &party{t: t, zk: sim.NewZooKeeper(), ps: map[kafka.BrokerID]*guest{}, queues: map[[2]kafka.BrokerID][]func(){}, epoch: 5, acked: map[int64]string{}}
	p.controller = p.zk.NewSession()
	first := kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 1, LeaderEpoch: 5, ISR: []kafka.BrokerID{1, 2, 3}}, ControllerEpoch: 4}
	if err := p.zk.Seed(zkserver.Saved{Path: zkpaths.PartitionStatePath(t0), Data: zkpaths.EncodePartitionState(first)}); err != nil {
		t.Fatal(err)
	}
	for id := kafka.BrokerID(1); id <= 3; id++ {
		g := &guest{p: p, store: sim.NewStore(p.zk, func(zkpaths.Notice) {}), up: true}
		topic := brokers.DefaultTopicConfig()
		topic.MinISR = 2
		var err error
		g.b, err = brokers.New(brokers.Options{ID: id, Version: version, Release: release, ReplicaLagTimeMax: 2 * time.Second, Logs: &brokers.LogOptions{Topic: topic},
			Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: int32(id)}}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.ps[id] = g
		g.step(brokers.Start{})
	}
	p.tellAll()
	return p
}

// Process of a guest.

func (g *guest) Listen(bool) error  { return nil }
func (g *guest) OpenSession() error { g.store.Reconnect(); return nil }
func (g *guest) CloseSession()      { g.p.zk.EndSession(g.store.Session()) }
func (g *guest) AbandonSession()    {}
func (g *guest) ExpireSession()     {}

func (p *party) post(from, to kafka.BrokerID, f func()) {
	q := [2]kafka.BrokerID{from, to}
	p.queues[q] = append(p.queues[q], f)
}

func (g *guest) step(ev brokers.Event) {
	w := brokers.World{Store: g.store, Process: g, Now: g.p.zk.Time}
	var evs []brokers.Event
	if ev != nil {
		evs = []brokers.Event{ev}
	}
	queue := g.b.StepAll(g.p.zk.Time(), evs)
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		if g.send(e) {
			continue
		}
		if ev := w.Perform(context.Background(), e); ev != nil {
			queue = append(queue, g.b.Step(g.p.zk.Time(), ev)...)
		}
	}
}

var errLost = errors.New("connection reset")

// send puts what goes to others into a queue, and their answers into the one back.
func (g *guest) send(e brokers.Effect) bool {
	p, self := g.p, g.b.ID()
	switch e := e.(type) {
	case brokers.FetchFrom:
		p.ask(g, e.Leader, func(answer func(func() brokers.Event)) brokers.Event {
			return brokers.Fetch{Request: e.Request, Reply: func(r []brokers.FetchResult) { answer(func() brokers.Event { return e.Answer(r, nil) }) }}
		}, func() brokers.Event { return e.Answer(nil, errLost) })
	case brokers.AskEpochEnds:
		p.ask(g, e.Leader, func(answer func(func() brokers.Event)) brokers.Event {
			return brokers.EpochEnds{Queries: e.Queries, Replica: self, Reply: func(r []brokers.EpochAnswer) { answer(func() brokers.Event { return e.Answer(r, nil) }) }}
		}, func() brokers.Event { return e.Answer(nil, errLost) })
	case brokers.AskOffsets:
		p.ask(g, e.Leader, func(answer func(func() brokers.Event)) brokers.Event {
			return brokers.ListOffsets{Queries: e.Queries, Replica: self, Reply: func(r []brokers.OffsetAnswer) { answer(func() brokers.Event { return e.Answer(r, nil) }) }}
		}, func() brokers.Event { return e.Answer(nil, errLost) })
	case brokers.InterruptFetch:
	case brokers.AskAlterPartition:
		life := g.life
		p.post(self, 9, func() {
			result := p.decide(e.Request.Partitions[0], self)
			p.post(9, self, func() {
				if g.life != life {
					return
				}
				c := &fixedController{}
				c.answer.Partitions = map[kafka.TopicPartition]brokers.AlterPartitionResult{t0: result}
				g.step(brokers.World{Controller: c}.Perform(context.Background(), e))
			})
		})
	default:
		return false
	}
	return true
}

// ask sends a request to a leader. A leader that is down, or dies before it
// answers, breaks the connection.
func (p *party) ask(g *guest, to kafka.BrokerID, request func(answer func(func() brokers.Event)) brokers.Event, lost func() brokers.Event) {
	self, life := g.b.ID(), g.life
	back := func(ev func() brokers.Event) {
		p.post(to, self, func() {
			if g.life == life {
				g.step(ev())
			}
		})
	}
	p.post(self, to, func() {
		leader := p.ps[to]
		if leader == nil || !leader.up {
			back(lost)
			return
		}
		died, answered := leader.life, false
		leader.pending(func() {
			if leader.life != died && !answered {
				back(lost)
			}
		})
		leader.step(request(func(ev func() brokers.Event) { answered = true; back(ev) }))
	})
}

// pending runs a check when the guest dies.
func (g *guest) pending(f func()) { g.p.post(g.b.ID(), g.b.ID(), f) }

// decide is the controller's answer to AlterPartition.
func (p *party) decide(r brokers.AlterPartitionRow, from kafka.BrokerID) brokers.AlterPartitionResult {
	now := p.state()
	fail := func(code kafka.ErrorCode) brokers.AlterPartitionResult {
		return brokers.AlterPartitionResult{Error: code}
	}
	switch {
	case r.LeaderEpoch < now.LeaderEpoch || from != now.Leader:
		return fail(kafka.FencedLeaderEpoch)
	case slices.Equal(r.ISR, now.ISR):
		return brokers.AlterPartitionResult{LeaderAndISR: now.LeaderAndISR}
	case r.PartitionEpoch < now.ZKVersion:
		return fail(kafka.InvalidUpdateVersion)
	case slices.ContainsFunc(r.ISR, func(id kafka.BrokerID) bool { return !p.ps[id].up }):
		return fail(kafka.IneligibleReplica)
	}
	now.ISR = r.ISR
	p.write(now)
	return brokers.AlterPartitionResult{LeaderAndISR: p.state().LeaderAndISR}
}

func (p *party) state() kafka.Leadership {
	data, stat, _ := p.zk.Tree.GetData(zkserver.Who{}, zkpaths.PartitionStatePath(t0))
	l, err := zkpaths.DecodePartitionState(t0, data, stat.Version)
	if err != nil {
		p.t.Fatal(err)
	}
	return l
}

func (p *party) write(l kafka.Leadership) {
	p.zk.Write(p.controller, zkserver.Op{Kind: zkserver.OpSet, Path: zkpaths.PartitionStatePath(t0), Data: zkpaths.EncodePartitionState(l), Version: l.ZKVersion})
}

// elect takes a live member of the ISR for leader, drops the dead from the ISR as
// long as one stays, and tells everybody.
func (p *party) elect() {
	l := p.state()
	var live []kafka.BrokerID
	for _, id := range l.ISR {
		if p.ps[id].up {
			live = append(live, id)
		}
	}
	if len(live) == 0 {
		return // nobody may lead: not uncleanly
	}
	p.epoch++
	l.LeaderEpoch, l.Leader = p.epoch, rapid.SampledFrom(live).Draw(p.t, "leader")
	l.ISR = live
	p.write(l)
	p.tellAll()
	p.leaders++
}

func (p *party) tellAll() {
	for id := kafka.BrokerID(1); id <= 3; id++ {
		p.tell(id)
	}
}

func (p *party) tell(id kafka.BrokerID) {
	l := p.state()
	h := control.Header{ControllerID: 9, ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}
	s := &control.PartitionState{TopicPartition: t0, Leadership: l, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1, 2, 3}}}
	m := &control.Metadata{Partitions: []*control.PartitionState{s}}
	for to, g := range p.ps {
		if g.up {
			m.LiveBrokers = append(m.LiveBrokers, kafka.Broker{ID: to, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}}})
		}
	}
	m.LiveBrokers = append(m.LiveBrokers, kafka.Broker{ID: 9, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9}}})
	g, life := p.ps[id], p.ps[id].life
	for _, r := range []control.Request{&control.UpdateMetadataRequest{Header: h, Metadata: m}, &control.LeaderAndISRRequest{Header: h, Partitions: []*control.PartitionState{s}}} {
		p.post(9, id, func() {
			if g.up && g.life == life {
				g.step(brokers.Control{Request: r, Reply: func(control.Response) {}})
			}
		})
	}
}

// produce sends a record to whoever believes that it leads.
func (p *party) produce() {
	for _, id := range []kafka.BrokerID{1, 2, 3} {
		g := p.ps[id]
		if s := g.b.Snapshot(); !g.up || len(s.Partitions) == 0 || s.Partitions[0].Role != "leader" {
			continue
		}
		p.values++
		value := fmt.Sprintf("v%d", p.values)
		r := commitlog.Encode(commitlog.Record{Timestamp: p.zk.Millis(), Value: []byte(value)})
		g.step(brokers.Produce{Request: &brokers.ProduceRequest{Acks: brokers.AcksAll, Timeout: time.Minute, Rows: []brokers.ProduceRow{{Partition: t0, Records: r}}},
			Reply: func(r []brokers.ProduceResult) {
				if r[0].Error == kafka.NoError {
					if was, twice := p.acked[r[0].BaseOffset]; twice {
						p.t.Fatalf("offset %d acknowledged for %s and for %s", r[0].BaseOffset, was, value)
					}
					p.acked[r[0].BaseOffset] = value
				}
			}})
	}
}

func (p *party) kill(id kafka.BrokerID) {
	g := p.ps[id]
	if !g.up {
		return
	}
	g.up = false
	g.life++
	g.step(brokers.Fault{Request: brokers.FaultRequest{Broker: id, Op: "kill"}})
	lost := p.queues[[2]kafka.BrokerID{id, id}]
	delete(p.queues, [2]kafka.BrokerID{id, id})
	for _, f := range lost {
		f()
	}
}

func (p *party) restart(id kafka.BrokerID) {
	g := p.ps[id]
	if g.up {
		return
	}
	g.up = true
	g.step(brokers.Fault{Request: brokers.FaultRequest{Broker: id, Op: "restart"}})
	p.tellAll() // everybody hears that it lives
}

// deliver lets the oldest message of some queue arrive.
func (p *party) deliver() bool {
	var open [][2]kafka.BrokerID
	for q, fs := range p.queues {
		if len(fs) > 0 && q[0] != q[1] {
			open = append(open, q)
		}
	}
	if len(open) == 0 {
		return false
	}
	slices.SortFunc(open, func(a, b [2]kafka.BrokerID) int { return slices.Compare(a[:], b[:]) })
	q := rapid.SampledFrom(open).Draw(p.t, "queue")
	f := p.queues[q][0]
	p.queues[q] = p.queues[q][1:]
	f()
	return true
}

func (p *party) advance(d time.Duration) {
	end := p.zk.Now + d
	for {
		var who *guest
		var first time.Time
		for _, id := range []kafka.BrokerID{1, 2, 3} {
			if at, ok := p.ps[id].b.Deadline(); ok && (who == nil || at.Before(first)) {
				who, first = p.ps[id], at
			}
		}
		if who == nil || first.Sub(p.zk.Time()) > end-p.zk.Now {
			break
		}
		p.zk.Now += max(0, first.Sub(p.zk.Time()))
		who.step(nil)
	}
	p.zk.Now = end
}

// logOf gives the values of a broker's log by offset.
func (p *party) logOf(id kafka.BrokerID) map[int64]string {
	out := map[int64]string{}
	p.ps[id].step(brokers.Fetch{Request: &brokers.FetchRequest{Replica: brokers.DebugConsumer, MaxBytes: 1 << 30, FromFollower: true, Rows: []brokers.FetchRow{
		{Partition: t0, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1 << 30}}},
		Reply: func(r []brokers.FetchResult) {
			if r[0].Error != kafka.NoError {
				p.t.Fatalf("broker %d: %s", id, r[0].Error)
			}
			for _, records := range r[0].Records {
				for b := range commitlog.Batches(records) {
					rs, err := b.Records()
					if err != nil {
						p.t.Fatal(err)
					}
					for _, rec := range rs {
						out[rec.Offset] = string(rec.Value)
					}
				}
			}
		}})
	return out
}

// heal ends all trouble and demands that everybody has the same log, with all
// that was ever acknowledged in its place.
func (p *party) heal() {
	for id := kafka.BrokerID(1); id <= 3; id++ {
		p.restart(id)
	}
	settle := func() {
		for range 40 {
			for range 200 {
				if !p.deliver() {
					break
				}
			}
			p.advance(500 * time.Millisecond)
		}
	}
	settle()
	p.elect()
	settle()
	p.produce()
	settle()
	leader := p.state().Leader
	want := p.logOf(leader)
	for offset, value := range p.acked {
		if want[offset] != value {
			p.t.Fatalf("acknowledged %s at %d, the leader has %q there after %d elections", value, offset, want[offset], p.leaders)
		}
	}
	for id := kafka.BrokerID(1); id <= 3; id++ {
		got := p.logOf(id)
		if len(got) != len(want) {
			p.t.Fatalf("broker %d has %d records, the leader %d: %+v", id, len(got), len(want), p.ps[id].b.Snapshot().Partitions[0].Log)
		}
		for o, v := range want {
			if got[o] != v {
				p.t.Fatalf("broker %d has %q at %d, the leader %q", id, got[o], o, v)
			}
		}
	}
	if isr := p.state().ISR; len(isr) != 3 {
		p.t.Fatalf("ISR %v", isr)
	}
	if s := p.ps[leader].b.Snapshot().Partitions[0].Log; s.HighWatermark != s.End {
		p.t.Fatalf("not all is committed: %+v", s)
	}
}

// TestAcknowledgedStays: whatever happens to brokers, messages and leaders, what
// was acknowledged with acks=all and min ISR 2 of 3 is never lost, while leaders
// come from the ISR.
func TestAcknowledgedStays(t *testing.T) {
	for _, v := range []struct{ version, release kafka.ProtocolVersion }{
		{kafka.V2_4IV0, kafka.ProtocolVersion{Major: 2, Minor: 6}}, {kafka.V2_6IV0, kafka.V3_9IV0}, {kafka.V3_9IV0, kafka.V3_9IV0}} {
		t.Run(v.version.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p := newParty(t, v.version, v.release)
				for range rapid.IntRange(1, 250).Draw(t, "steps") {
					switch rapid.SampledFrom([]string{"deliver", "deliver", "deliver", "deliver", "deliver", "deliver", "produce", "produce", "time", "kill", "restart", "restart", "elect", "tell"}).Draw(t, "op") {
					case "deliver":
						p.deliver()
					case "produce":
						p.produce()
					case "time":
						p.advance(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
					case "kill":
						p.kill(kafka.BrokerID(rapid.IntRange(1, 3).Draw(t, "who")))
					case "restart":
						p.restart(kafka.BrokerID(rapid.IntRange(1, 3).Draw(t, "who")))
					case "elect":
						p.elect()
					case "tell":
						p.tell(kafka.BrokerID(rapid.IntRange(1, 3).Draw(t, "whom")))
					}
				}
				p.heal()
			})
		})
	}
}
