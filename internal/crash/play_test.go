package crash

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
)

// cut is where a controller dies, and what becomes of its last words.
type cut struct {
	// write counts the controller's own writes that took effect, its election
	// included if it was elected in the story.
	write int
	// answered: it saw the answer and went on up to its next write.
	answered bool
	requests fate
}

// fate of the requests that a controller had queued for brokers when it died.
type fate int

const (
	lost      fate = iota // never sent
	delivered             // sent; the answers reach nobody
	late                  // they arrive when the next controller has settled
)

func (c cut) String() string {
	when := "before its answer"
	if c.answered {
		when = "after its answer"
	}
	return fmt.Sprintf("write %d, %s, requests %s", c.write, when, [...]string{"lost", "delivered", "late"}[c.requests])
}

// killed is the panic that ends a controller in the middle of a handler.
type killed struct{ id kafka.BrokerID }

// play is one run of a story.
type play struct {
	w        *sim.World
	cuts     []cut
	victims  int                    // controllers that died
	writes   map[kafka.BrokerID]int // by controller, since counting began
	pending  []*request
	armed    bool
	late     []delivery
	log      []string
	shuffled bool // steps come in an order that the world's seed picks
}

type delivery struct {
	to kafka.BrokerID
	l  *sim.Link
}

// request is what a client asks of the controller until it is answered.
type request struct {
	name   string
	event  func(done func(kafka.ErrorCode)) events.Event
	asked  kafka.BrokerID
	answer kafka.ErrorCode
	done   bool
}

// firstController is the id of the first candidate; the others count on.
const firstController kafka.BrokerID = 101

// run plays a story with controllers that die at the cuts, one after another.
func run(s story, v kafka.ProtocolVersion, seed int64, cuts ...cut) (*play, error) {
	w, err := sim.NewWorld(seed, controller.Options{Version: v, DeleteTopics: true, ImbalancePercent: 10, UncleanElection: s.unclean})
	if err != nil {
		return nil, err
	}
	p := &play{w: w, cuts: cuts, writes: map[kafka.BrokerID]int{}, shuffled: seed != 0}
	for id := kafka.BrokerID(1); id <= 5; id++ {
		if err := w.Start(id, nil); err != nil {
			return p, err
		}
	}
	for i := range kafka.BrokerID(3) { // the first is elected, the others stand by
		p.candidate(firstController + i)
		if err := p.settle(); err != nil {
			return p, err
		}
	}
	if s.before != nil {
		s.before(p)
	}
	if err := p.settle(); err != nil {
		return p, err
	}
	clear(p.writes)
	p.armed = true
	for i, step := range s.steps {
		p.tell("step %d", i)
		step(p)
		if err := p.settle(); err != nil {
			return p, err
		}
	}
	for p.victims < len(p.cuts) { // its last write is behind it, and it idles
		c := w.Active()
		if want := p.cuts[p.victims]; c == nil || p.writes[c.ID] != want.write || !want.answered {
			return p, fmt.Errorf("the cut at %s was not reached", want)
		}
		p.bury(c)
		if err := p.settle(); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *play) tell(format string, args ...any) { p.log = append(p.log, fmt.Sprintf(format, args...)) }

// candidate starts a controller process that dies where the next cut says.
func (p *play) candidate(id kafka.BrokerID) {
	c := p.w.Candidate(id)
	c.Store.After = func(st sim.Step) {
		p.writes[id]++
		p.tell("  %d write %d: %s", id, p.writes[id], st)
		if cut := p.next(); cut != nil && !cut.answered && p.writes[id] == cut.write {
			panic(killed{id})
		}
	}
	c.Store.Before = func(st sim.Step) {
		if cut := p.next(); cut != nil && cut.answered && p.writes[id] == cut.write && isWrite(st) {
			panic(killed{id})
		}
	}
	c.Put(events.Startup{})
}

func isWrite(st sim.Step) bool { return st.Op == "create" || st.Op == "set" || st.Op == "delete" }

// next is the cut that is due next, or nil.
func (p *play) next() *cut {
	if !p.armed || p.victims >= len(p.cuts) {
		return nil
	}
	return &p.cuts[p.victims]
}

// settle lets everything happen that can, deaths included, and clients repeat
// what was not answered.
func (p *play) settle() error {
	for range 50 {
		if err := p.stabilize(); err != nil {
			return err
		}
		for _, d := range p.late {
			for _, r := range d.l.Queue {
				if b := p.w.Brokers[d.to]; b != nil && b.Session != 0 {
					b.Receive(r)
				}
			}
		}
		p.late = nil
		if !p.repeat() {
			return nil
		}
	}
	return fmt.Errorf("clients get no answer")
}

func (p *play) stabilize() error {
	for {
		dead, err := p.untilDeath()
		if dead == nil {
			return err
		}
		p.bury(dead)
	}
}

// untilDeath runs the world, and gives the controller that was killed in it.
func (p *play) untilDeath() (dead *sim.Candidate, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case killed:
			dead = p.w.Candidates[r.id]
		default:
			panic(r)
		}
	}()
	if p.shuffled {
		for p.w.Shuffle() {
		}
	}
	return nil, p.w.Stabilize()
}

// bury ends a dead controller's session after a while in which brokers went on.
func (p *play) bury(c *sim.Candidate) {
	cut := p.cuts[p.victims]
	p.victims++
	p.tell("  %d dies at %s", c.ID, cut)
	c.Paused = true
	for id := kafka.BrokerID(1); id <= 5; id++ {
		l := c.Links[id]
		if l == nil || p.w.Mute[id] {
			continue
		}
		switch b := p.w.Brokers[id]; {
		case cut.requests == delivered && b.Session != 0:
			for _, r := range l.Queue {
				b.Receive(r)
			}
		case cut.requests == late:
			p.late = append(p.late, delivery{id, &sim.Link{Queue: l.Queue}})
		}
		l.Queue = nil
	}
	p.w.CatchUp()
	p.w.Crash(c.ID)
	p.w.Advance(10 * time.Second)
}

// ask hands a request to the controller in office.
func (p *play) ask(name string, event func(done func(kafka.ErrorCode)) events.Event) {
	p.pending = append(p.pending, &request{name: name, event: event})
	p.repeat()
}

// repeat asks again what has no answer yet; false if there is nothing.
func (p *play) repeat() bool {
	c := p.w.Active()
	asked := false
	for _, r := range p.pending {
		if r.done {
			continue
		}
		asked = true
		if c == nil || r.asked == c.ID {
			continue
		}
		r.asked = c.ID
		c.Put(r.event(func(code kafka.ErrorCode) {
			if code == kafka.NotController {
				r.asked = 0
				return
			}
			r.done, r.answer = true, code
			p.tell("  answer to %s: %s", r.name, code)
		}))
	}
	return asked
}

// verdict compares a run with the undisturbed end; "" is fine.
func (p *play) verdict(want world) string {
	var bad []string
	for _, v := range p.w.Violations() {
		bad = append(bad, "invariant broken: "+v)
	}
	bad = append(bad, want.diff(snapshot(p.w))...)
	return strings.Join(bad, "\n  ")
}

func (p *play) fail(t *testing.T, what string, v kafka.ProtocolVersion, problem string) {
	t.Helper()
	t.Errorf("%s, %s, killed at %v:\n  %s\nwhat happened:\n  %s", what, v, p.cuts, problem, strings.Join(p.log, "\n  "))
}
