package sim

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strconv"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// World is a ZooKeeper, controllers and brokers on one goroutine.
type World struct {
	ZK         *ZooKeeper
	Options    controller.Options // of every candidate; ID, Now, Rand and UUID are filled in
	Candidates map[kafka.BrokerID]*Candidate
	Brokers    map[kafka.BrokerID]*Broker
	// Admin is the session that tools and operators write with.
	Admin int64
	// ElectByHand: a candidate takes part in an election only when it is told
	// to, not whenever /controller is gone.
	ElectByHand bool
	// HoldDeletes keeps back the answers to StopReplica requests that delete
	// replicas of topics being deleted.
	HoldDeletes bool
	// Mute brokers leave their requests unanswered, and undelivered.
	Mute map[kafka.BrokerID]bool
	// Lagging brokers do not catch up, so they do not join any ISR.
	Lagging map[kafka.BrokerID]bool
	// Notes is all that happened, in order.
	Notes []Note
	// Held are the answers kept back.
	Held []Answered

	rng      *rand.Rand
	refused  map[string]bool // ISRs asked for in vain, while Stabilize runs
	timers   []*timer
	timerSeq int
	check    *checker
}

// Note is one thing that happened in a World.
type Note interface{ note() }

type (
	// Wrote is a write attempt; fence checks are left out.
	Wrote struct {
		Session int64
		Op      zkserver.Op
		Result  zkserver.OpResult
	}
	// Sent is a request handed to a broker's queue.
	Sent struct {
		From, To kafka.BrokerID
		Request  control.Request
	}
	// Dropped is a request to a broker without a queue.
	Dropped struct {
		From, To kafka.BrokerID
		Request  control.Request
	}
	// Answered is a broker's answer.
	Answered struct {
		From, To kafka.BrokerID
		Response control.Response
	}
	// Handled is an event a candidate began to process.
	Handled struct {
		By    kafka.BrokerID
		Event events.Event
	}
	// Logged is a line of a candidate's log.
	Logged struct {
		Candidate kafka.BrokerID
		Level     logrus.Level
		Message   string
		Fields    logrus.Fields
	}
	// Other is what a test adds of its own.
	Other struct{ Value any }
	// Milestone is "elect", "resign" or "register".
	Milestone struct {
		What string
		Who  kafka.BrokerID
	}
)

func (Wrote) note()     {}
func (Sent) note()      {}
func (Dropped) note()   {}
func (Answered) note()  {}
func (Handled) note()   {}
func (Logged) note()    {}
func (Milestone) note() {}
func (Other) note()     {}

// NewWorld gives a World with the persistent paths of a Kafka cluster and
// nothing else. The seed decides random ids and the order in Shuffle.
func NewWorld(seed int64, opts controller.Options) (*World, error) {
	w := &World{
		ZK: NewZooKeeper(), Options: opts,
		Candidates: map[kafka.BrokerID]*Candidate{}, Brokers: map[kafka.BrokerID]*Broker{},
		Mute: map[kafka.BrokerID]bool{}, Lagging: map[kafka.BrokerID]bool{},
		rng: rand.New(rand.NewSource(seed)),
	}
	w.Admin = w.ZK.NewSession()
	for _, p := range zkpaths.PersistentPaths(opts.Version) {
		if err := w.ZK.Seed(zkserver.Saved{Path: p}); err != nil {
			return nil, err
		}
	}
	w.check = newChecker(w)
	w.ZK.OnWrite = func(session int64, op zkserver.Op, res zkserver.OpResult) {
		if op.Kind != zkserver.OpCheck {
			w.note(Wrote{session, op, res})
		}
		w.check.wrote(session, op, res)
	}
	return w, nil
}

// Add puts a note of the caller's own into the sequence.
func (w *World) Add(value any) { w.note(Other{value}) }

func (w *World) note(n Note) { w.Notes = append(w.Notes, n) }

// Violations are the invariants of spec/controller.md §9 that were broken so far.
func (w *World) Violations() []string { return w.check.broken }

// Registration is what a broker of a World registers with.
func Registration(id kafka.BrokerID) zkpaths.Registration {
	return zkpaths.Registration{
		Broker: kafka.Broker{ID: id, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Protocol: kafka.Plaintext,
			Host: "h" + strconv.Itoa(int(id)), Port: 9092}}, Features: map[string]kafka.VersionRange{}},
		Version: 5, JMXPort: -1, Timestamp: epochMillis,
	}
}

// Start registers a broker with a new session, as a process that has just
// started; data nil means Registration(id).
func (w *World) Start(id kafka.BrokerID, data []byte) error {
	b := w.Brokers[id]
	if b == nil {
		b = NewBroker(id)
		w.Brokers[id] = b
	}
	b.Restart()
	return w.Register(id, w.ZK.NewSession(), data)
}

// Register makes a broker's registration with the given session
// (spec/controller.md §1.4): a create and a conditional set in one transaction.
func (w *World) Register(id kafka.BrokerID, session int64, data []byte) error {
	if data == nil {
		data = zkpaths.EncodeBroker(Registration(id))
	}
	b := w.Brokers[id]
	b.Session = session
	path := zkpaths.BrokerPath(id)
	res := w.ZK.Multi(session, []zkserver.Op{
		{Kind: zkserver.OpCreate, Path: path, Mode: zkserver.Ephemeral, ACL: zkserver.OpenACL()},
		{Kind: zkserver.OpSet, Path: path, Data: data},
	})
	if code := res.Code(); code != zkserver.OK {
		return fmt.Errorf("register broker %d at %s: %w", id, path, code)
	}
	b.Epoch = res.Zxid
	w.note(Milestone{"register", id})
	return nil
}

// Kill ends a broker's session: its registration goes, and /controller if it
// holds it. Its controller process, if any, is told unless it is paused.
func (w *World) Kill(id kafka.BrokerID) {
	b := w.Brokers[id]
	if b == nil || b.Session == 0 {
		return
	}
	session := b.Session
	b.Session = 0
	if c := w.Candidates[id]; c != nil && !c.Paused {
		c.Queue.ClearAndPut(events.Expire{})
	}
	w.ZK.EndSession(session)
}

// Crash is Kill for a process that is gone: its controller process goes too.
func (w *World) Crash(id kafka.BrokerID) {
	if c := w.Candidates[id]; c != nil {
		c.Queue.Close()
		w.timers = slices.DeleteFunc(w.timers, func(t *timer) bool { return t.to == c })
		delete(w.Candidates, id)
		if w.Brokers[id] == nil || w.Brokers[id].Session == 0 {
			w.ZK.EndSession(c.Store.Session())
		}
	}
	w.Kill(id)
}

// Bounce ends a broker's session and registers it again at once, before any
// controller looks.
func (w *World) Bounce(id kafka.BrokerID) error {
	w.Kill(id)
	return w.Start(id, nil)
}

// Renew gives a candidate a new session after it lost one: the registration
// comes back if the broker had one, and the process takes part in elections.
func (w *World) Renew(id kafka.BrokerID, session int64) error {
	c := w.Candidates[id]
	if session == 0 {
		session = w.ZK.NewSession()
	} else {
		w.ZK.OpenSession(session)
	}
	if w.Brokers[id] != nil {
		if err := w.Register(id, session, nil); err != nil {
			return err
		}
	}
	if c != nil {
		c.Store.Attach(session)
		c.Put(events.Startup{})
	}
	return nil
}

// Deliver carries the first waiting request of a link to its broker, and the
// answer back; false if none waits or the broker does not answer.
func (w *World) Deliver(from, to kafka.BrokerID) bool {
	c := w.Candidates[from]
	if c == nil || c.Links[to] == nil || len(c.Links[to].Queue) == 0 || w.Mute[to] {
		return false
	}
	b := w.Brokers[to]
	if b == nil || b.Session == 0 {
		return false
	}
	l := c.Links[to]
	r := l.Queue[0]
	l.Queue = l.Queue[1:]
	a := Answered{From: to, To: from, Response: b.Receive(r)}
	if w.HoldDeletes && deletesTopic(r) {
		w.Held = append(w.Held, a)
		return true
	}
	w.Answer(a)
	return true
}

func deletes(r control.Request) bool {
	s, ok := r.(*control.StopReplicaRequest)
	return ok && slices.ContainsFunc(s.Partitions, func(p control.StopPartition) bool { return p.Delete })
}

func deletesTopic(r control.Request) bool {
	s, ok := r.(*control.StopReplicaRequest)
	return ok && slices.ContainsFunc(s.Partitions, func(p control.StopPartition) bool { return p.Delete && p.LeaderEpoch == kafka.EpochDuringDelete })
}

// Answer hands a broker's answer to the controller that asked.
func (w *World) Answer(a Answered) {
	w.note(a)
	c := w.Candidates[a.To]
	if c == nil {
		return
	}
	switch r := a.Response.Request.(type) {
	case *control.LeaderAndISRRequest:
		c.Put(events.LeaderAndISRResponse{Broker: a.From, Error: a.Response.Error, Errors: a.Response.Errors})
	case *control.UpdateMetadataRequest:
		c.Put(events.UpdateMetadataResponse{Broker: a.From, Error: a.Response.Error, Request: r})
	case *control.StopReplicaRequest:
		if deletes(r) {
			c.Put(events.StopReplicaResponse{Broker: a.From, Error: a.Response.Error, Errors: a.Response.Errors, Request: r})
		}
	}
}

// ids gives the keys of a map by broker id, sorted.
func ids[V any](m map[kafka.BrokerID]V) []kafka.BrokerID { return slices.Sorted(maps.Keys(m)) }

// Settle runs candidates, then requests, in a fixed order until nothing is
// left to do. It fails if that does not come about: then something goes round
// in circles.
func (w *World) Settle() error {
	for range 200_000 {
		if !w.stepOnce() {
			return nil
		}
	}
	return fmt.Errorf("the world did not settle: events keep following events")
}

func (w *World) stepOnce() bool {
	for _, id := range ids(w.Candidates) {
		if w.Candidates[id].Step() {
			w.check.stepped()
			return true
		}
	}
	for _, id := range ids(w.Candidates) {
		for _, to := range ids(w.Candidates[id].Links) {
			if w.Deliver(id, to) {
				return true
			}
		}
	}
	return false
}

// Shuffle does one step out of those that are possible, chosen by the seed;
// false if there is none.
func (w *World) Shuffle() bool {
	var steps []func() bool
	for _, id := range ids(w.Candidates) {
		c := w.Candidates[id]
		if c.Queue.Len() > 0 && !c.Paused {
			steps = append(steps, c.Step)
		}
		for _, to := range ids(c.Links) {
			if len(c.Links[to].Queue) > 0 && !w.Mute[to] && w.Brokers[to] != nil && w.Brokers[to].Session != 0 {
				steps = append(steps, func() bool { return w.Deliver(id, to) })
			}
		}
	}
	if len(steps) == 0 {
		return false
	}
	steps[w.rng.Intn(len(steps))]()
	w.check.stepped()
	return true
}

// Active gives the candidate that holds /controller and believes so, or nil.
func (w *World) Active() *Candidate {
	data, _, code := w.ZK.Tree.GetData(zkserver.Who{}, zkpaths.Controller)
	if code != zkserver.OK {
		return nil
	}
	n, err := zkpaths.DecodeController(data)
	if err != nil {
		return nil
	}
	if c := w.Candidates[n.Broker]; c != nil && c.Active() {
		return c
	}
	return nil
}
