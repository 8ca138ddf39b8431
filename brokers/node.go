package brokers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// ErrDown is the answer to a control request at a broker that is down: the
// connection it came on should be dropped.
var ErrDown = errors.New("the broker is down")

// Node runs a Broker with real time: one goroutine owns it, one carries out
// what waits for ZooKeeper, one what waits for the controller, so that neither
// keeps control requests from being answered.
type Node struct {
	broker *Broker
	world  World
	inbox  inbox
	done   chan struct{}        // closed when Run has ended
	died   atomic.Pointer[life] // the present life of the process

	peers   func(kafka.BrokerID) *Node // of this process; nil: none
	workers sync.WaitGroup             // of Run
}

// life is closed when the process dies, so that callers stop waiting.
type life struct {
	ended chan struct{}
	once  sync.Once
}

func newLife() *life { return &life{ended: make(chan struct{})} }

func (l *life) end() { l.once.Do(func() { close(l.ended) }) }

// NewNode makes a Node that does nothing before Run.
func NewNode(b *Broker, w World) *Node {
	if w.Now == nil {
		w.Now = time.Now
	}
	n := &Node{broker: b, world: w, done: make(chan struct{}), inbox: inbox{ready: make(chan struct{}, 1)}}
	n.died.Store(newLife())
	n.Post(Start{}) // before anything else that is posted
	return n
}

// ID is the broker's id.
func (n *Node) ID() kafka.BrokerID { return n.broker.ID() }

// Options gives the broker's options with their defaults filled in.
func (n *Node) Options() Options { return n.broker.Options() }

// Metadata is the broker's metadata cache, for serving clients.
func (n *Node) Metadata() *MetadataCache { return n.broker.Metadata() }

// Post lets an event happen. It never blocks.
func (n *Node) Post(ev Event) { n.inbox.put(ev) }

// Stop asks for a stop in good order; Run ends when it is done.
func (n *Node) Stop() { n.Post(Stop{}) }

// HandleControl answers one control request. It waits while the broker starts
// or hangs; the caller keeps the order of a connection by asking one at a time.
// The error is ErrDown or the context's.
func (n *Node) HandleControl(ctx context.Context, r control.Request) (control.Response, error) {
	answer := make(chan control.Response, 1)
	life := n.died.Load()
	n.Post(Control{Request: r, Reply: func(resp control.Response) { answer <- resp }})
	select {
	case resp := <-answer:
		return resp, nil
	case <-life.ended:
		return control.Response{}, ErrDown
	case <-n.done:
		return control.Response{}, ErrDown
	case <-ctx.Done():
		return control.Response{}, ctx.Err()
	}
}

// Fault carries out an admin operation.
func (n *Node) Fault(ctx context.Context, r FaultRequest) (FaultResponse, error) {
	answer := make(chan FaultResponse, 1)
	n.Post(Fault{Request: r, Reply: func(resp FaultResponse) { answer <- resp }})
	select {
	case resp := <-answer:
		return resp, nil
	case <-n.done:
		return FaultResponse{}, ErrDown
	case <-ctx.Done():
		return FaultResponse{}, ctx.Err()
	}
}

// Run starts the broker and serves it until it was stopped, could not start, or
// ctx is done, which ends it like a crash.
func (n *Node) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer n.hangUp()
	defer close(n.done)
	defer n.workers.Wait()
	defer cancel()

	zk, controller, disk := &queue{}, &queue{}, &queue{}
	lanes := map[lane]*queue{toZooKeeper: zk, toController: controller, toDisk: disk}
	for _, q := range lanes {
		q.ch = make(chan Effect)
		n.workers.Go(func() { n.work(ctx, q.ch) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var armed time.Time
	life := newLeash(ctx)
	defer func() { life.cut() }()
	for {
		effects, died, exit := n.turn(ctx)
		if exit != nil {
			return exit.Err
		}
		if died { // a dead process carries nothing out, not even once it lives again
			zk.waiting, controller.waiting, disk.waiting = nil, nil, nil
			life.cut()
			life = newLeash(ctx)
		}
		for _, e := range effects {
			if q := lanes[e.lane()]; q != nil {
				q.waiting = append(q.waiting, e)
			} else if !n.leadHere(e) {
				life := life
				n.workers.Go(func() { life.walk(func(ctx context.Context) { n.perform(ctx, e) }) })
			}
		}
		if at, _ := n.broker.Deadline(); !at.Equal(armed) {
			if armed = at; at.IsZero() {
				timer.Stop()
			} else {
				timer.Reset(time.Until(at))
			}
		}
		select {
		case <-ctx.Done():
			n.crash()
			return ctx.Err()
		case <-n.inbox.ready:
		case <-timer.C:
			armed = time.Time{}
		case zk.open() <- zk.first():
			zk.waiting = zk.waiting[1:]
		case controller.open() <- controller.first():
			controller.waiting = controller.waiting[1:]
		case disk.open() <- disk.first():
			disk.waiting = disk.waiting[1:]
		}
	}
}

// leash bounds requests to leaders in other processes by one life of our own.
type leash struct {
	walk func(func(context.Context))
	cut  func()
}

func newLeash(ctx context.Context) leash {
	ctx, cancel := context.WithCancel(ctx)
	return leash{walk: func(f func(context.Context)) { f(ctx) }, cut: cancel}
}

// hangUp tells the followers in this process that their requests to us are lost.
func (n *Node) hangUp() {
	for _, f := range n.broker.local {
		f.hangUp()
	}
	for _, ev := range n.inbox.take() {
		if e, ok := ev.(peerRequest); ok {
			e.hangUp()
		}
	}
}

// queue is what waits for one lane's worker.
type queue struct {
	ch      chan Effect
	waiting []Effect
}

// open is the worker's channel while something waits.
func (q *queue) open() chan Effect {
	if len(q.waiting) == 0 {
		return nil
	}
	return q.ch
}

func (q *queue) first() Effect {
	if len(q.waiting) == 0 {
		return nil
	}
	return q.waiting[0]
}

// crash leaves everything as a killed process would.
func (n *Node) crash() {
	n.died.Load().end()
	n.world.Process.AbandonSession()
	// Shutting a port that is to stay shut cannot fail in a way that matters now.
	_ = n.world.Process.Listen(false)
}

// turn steps through all that has happened, and carries out what concerns the
// process itself. What has to wait for others comes back; died tells that the
// process ended meanwhile, and with it all that waited before.
func (n *Node) turn(ctx context.Context) (slow []Effect, died bool, exit *Exit) {
	queue := n.broker.StepAll(time.Now(), n.inbox.take())
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		if x, ok := e.(Exit); ok {
			n.died.Load().end()
			return slow, true, &x
		}
		if e.lane() != atOnce {
			if interrupt, ok := e.(InterruptFetch); ok {
				n.leadHere(interrupt) // also that of a process which dies now
				continue
			}
			slow = append(slow, e)
			continue
		}
		switch e.(type) {
		case CloseSession, AbandonSession:
			n.died.Load().end()
			slow, died = nil, true
		case OpenSession:
			n.died.Store(newLife())
		}
		if ev := n.world.Perform(ctx, e); ev != nil {
			queue = append(queue, n.broker.Step(time.Now(), ev)...)
		}
	}
	return slow, died, nil
}

func (n *Node) work(ctx context.Context, effects <-chan Effect) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-effects:
			n.perform(ctx, e)
		}
	}
}

func (n *Node) perform(ctx context.Context, e Effect) {
	if ev := n.world.Perform(ctx, e); ev != nil && ctx.Err() == nil {
		n.Post(ev)
	}
}

// inbox is a queue of events without a bound, so that brokers can tell each
// other news without waiting.
type inbox struct {
	mu     sync.Mutex
	events []Event
	ready  chan struct{} // has one token while there may be events
}

func (i *inbox) put(ev Event) {
	i.mu.Lock()
	i.events = append(i.events, ev)
	i.mu.Unlock()
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

func (i *inbox) take() []Event {
	i.mu.Lock()
	defer i.mu.Unlock()
	events := i.events
	i.events = nil
	return events
}
