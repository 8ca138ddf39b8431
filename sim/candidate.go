package sim

import (
	"context"
	"io"
	"math/rand"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/listeners"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Candidate is one controller process of a World: the controller, its queue,
// its session, and the requests it has not delivered yet.
type Candidate struct {
	ID    kafka.BrokerID
	Store *Store
	Queue *controller.Queue
	Links map[kafka.BrokerID]*Link
	// Paused stops it from handling events; notices still queue up.
	Paused bool

	world *World
	ctrl  *controller.Controller
}

// Link is the ordered queue of requests to one broker.
type Link struct {
	Broker kafka.Broker
	Queue  []control.Request
}

// Controller is the controller of this process.
func (c *Candidate) Controller() *controller.Controller { return c.ctrl }

// Put appends an event to the queue.
func (c *Candidate) Put(ev events.Event) { c.Queue.Put(ev) }

// Step handles what is at the head of the queue; false if there is nothing.
func (c *Candidate) Step() bool {
	if c.Paused {
		return false
	}
	batch, ok := c.Queue.TryNext()
	if ok {
		c.handle(batch)
	}
	return ok
}

func (c *Candidate) handle(batch []events.Event) {
	for _, ev := range batch {
		c.world.note(Handled{c.ID, ev})
	}
	was := c.Active()
	c.ctrl.HandleTogether(context.Background(), batch)
	switch is := c.Active(); {
	case was && !is:
		c.world.note(Milestone{"resign", c.ID})
	case is && !was:
		c.world.note(Milestone{"elect", c.ID})
	}
}

// Active tells whether the process believes to be the controller.
func (c *Candidate) Active() bool { return c.ctrl.Active() }

// channels are a candidate's links as its controller uses them.
type channels struct{ *Candidate }

func (ch channels) Add(b kafka.Broker)       { ch.Links[b.ID] = &Link{Broker: b} }
func (ch channels) Remove(id kafka.BrokerID) { delete(ch.Links, id) }
func (ch channels) Clear()                   { clear(ch.Links) }

func (ch channels) Send(id kafka.BrokerID, r control.Request) {
	l := ch.Links[id]
	if l == nil {
		ch.world.note(Dropped{ch.ID, id, r})
		return
	}
	ch.world.note(Sent{ch.ID, id, r})
	l.Queue = append(l.Queue, r)
}

// timers are a candidate's timers in virtual time.
type timers struct{ *Candidate }

type timer struct {
	at   time.Duration
	seq  int
	to   *Candidate
	ev   events.Event
	done bool
}

func (t timers) After(d time.Duration, ev events.Event) (stop func()) {
	w := t.world
	w.timerSeq++
	tm := &timer{at: w.ZK.Now + d, seq: w.timerSeq, to: t.Candidate, ev: ev}
	w.timers = append(w.timers, tm)
	return func() { tm.done = true }
}

// Advance moves virtual time on and queues the events of the timers that
// came due on the way, in order.
func (w *World) Advance(d time.Duration) {
	end := w.ZK.Now + d
	for {
		w.timers = slices.DeleteFunc(w.timers, func(t *timer) bool { return t.done })
		var next *timer
		for _, t := range w.timers {
			if t.at <= end && (next == nil || t.at < next.at || t.at == next.at && t.seq < next.seq) {
				next = t
			}
		}
		if next == nil {
			w.ZK.Now = end
			return
		}
		w.ZK.Now = max(w.ZK.Now, next.at)
		next.done = true
		next.to.Put(next.ev)
	}
}

// logTo makes a logger whose entries become Logged notes.
func (w *World) logTo(id kafka.BrokerID) logrus.FieldLogger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.TraceLevel)
	log.AddHook(logHook{w, id})
	return log
}

type logHook struct {
	w  *World
	id kafka.BrokerID
}

func (h logHook) Levels() []logrus.Level { return logrus.AllLevels }

func (h logHook) Fire(e *logrus.Entry) error {
	h.w.note(Logged{Candidate: h.id, Level: e.Level, Message: e.Message, Fields: e.Data})
	return nil
}

// Candidate gives the controller process of a broker, starting it if needed:
// its session is that of the broker if it is up, else one of its own. The
// election is not triggered; Put events.Startup for that.
func (w *World) Candidate(id kafka.BrokerID) *Candidate {
	if c := w.Candidates[id]; c != nil {
		return c
	}
	c := &Candidate{ID: id, world: w, Links: map[kafka.BrokerID]*Link{}, Queue: controller.NewQueue(w.ZK.Time)}
	c.Store = &Store{zk: w.ZK, notice: c.onNotice}
	if b := w.Brokers[id]; b != nil && b.Session != 0 {
		c.Store.Attach(b.Session)
	} else {
		c.Store.Reconnect()
	}
	opts := w.Options
	opts.ID = id
	opts.Now = w.ZK.Time
	opts.Rand = w.rng.Intn
	opts.UUID = func() kafka.TopicID { return randomTopicID(w.rng) }
	c.ctrl = controller.New(opts, c.Store, channels{c}, timers{c}, c.Queue, w.logTo(id))
	w.Candidates[id] = c
	return c
}

func randomTopicID(r *rand.Rand) (id kafka.TopicID) {
	for i := range id {
		id[i] = byte(r.Intn(256))
	}
	return id
}

func (c *Candidate) onNotice(n zkpaths.Notice) {
	ev, ok := listeners.Event(n)
	if !ok {
		return
	}
	if _, gone := ev.(events.Reelect); gone && c.world.ElectByHand {
		ev = events.Expire{} // resigns, and no more
	}
	c.Put(ev)
}
