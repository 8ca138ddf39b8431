package assembly

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
)

// candidate is the controller part of a broker's process. Like a real broker of
// ZooKeeper mode it takes part in the election under the broker's id, is asked
// on the broker's port, and sends control requests to its own broker as to any
// other. It has a ZooKeeper session of its own, which goes when the broker's
// goes. A nil candidate is that of a broker that is only one: it does nothing.
type candidate struct {
	process
	mounted    *endpoint.Endpoint
	registered func(context.Context) bool // tells whether the broker is; it takes part only then, as Kafka's do

	toZooKeeper dialer                    // nil: TCP
	line        atomic.Pointer[severable] // of the session in use
	leaving     atomic.Bool               // the broker's next end is that of the process
	end         func()                    // what assemble left
	cancel      context.CancelFunc
	ended       chan struct{} // closed when control has returned
	rested      sync.Once
	stopped     sync.Once
}

// newCandidate makes the parts and a session; run makes it take part.
func newCandidate(ctx context.Context, o ControllerOptions) (*candidate, error) {
	cand := &candidate{process: newProcess(o), ended: make(chan struct{})}
	cand.isBroker, cand.orders = true, make(chan func(context.Context), 64)
	cand.toZooKeeper = o.ZooKeeper.Dialer
	cand.newLine()
	cand.o.ZooKeeper.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		return cand.line.Load().dial(ctx, network, address)
	}
	end, err := cand.assemble(ctx, nil)
	if err != nil {
		end()
		return nil, err
	}
	cand.end = end
	cand.mounted = endpoint.Mount(cand.endpointOptions(o.Rules.ControlListener))
	return cand, nil
}

func (c *candidate) newLine() { c.line.Store(newSeverable(c.toZooKeeper)) }

// port is what answers the controller's requests, or nil.
func (c *candidate) port() *endpoint.Endpoint {
	if c == nil {
		return nil
	}
	return c.mounted
}

// shown is what metrics and probes are about, or nil.
func (c *candidate) shown() *process {
	if c == nil {
		return nil
	}
	return &c.process
}

// run takes part in elections, from the broker's registration on, until stop.
func (c *candidate) run(ctx context.Context, registered func(context.Context) bool) {
	c.registered = registered
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.order(c.enter)
	go func() {
		defer close(c.ended)
		// control has no errors but those it has told.
		_ = c.control(ctx)
	}()
}

// rest is the end of everything that the controller does: nothing is decided or
// written any more. /controller stays until stop.
func (c *candidate) rest() {
	if c == nil {
		return
	}
	c.rested.Do(func() {
		if c.cancel != nil {
			c.cancel()
			<-c.ended
		}
	})
}

// stop is rest, and ends the session; /controller, if it is ours, goes with it.
func (c *candidate) stop() {
	if c == nil {
		return
	}
	c.stopped.Do(func() {
		c.rest()
		c.mounted.Close()
		c.end()
	})
}

// order asks for something between two events. It waits only behind very many others.
func (c *candidate) order(f func(context.Context)) {
	select {
	case c.orders <- f:
	case <-c.ended:
	}
}

// enter lets the controller take part as soon as the broker is registered. A
// later order comes first: it ends the broker.
func (c *candidate) enter(ctx context.Context) {
	pause := time.Millisecond // registering takes a few; against an old registration, seconds
	for ; !c.registered(ctx); pause = min(2*pause, 20*time.Millisecond) {
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		if len(c.orders) > 0 {
			return
		}
	}
	c.queue.Put(events.Startup{})
}

// restart is the broker's restart.
func (c *candidate) restart(ctx context.Context) {
	if !c.down {
		return
	}
	c.newLine()
	if c.redial(ctx) {
		c.down = false
		c.enter(ctx)
	}
}

// kill ends the controller's life with its session, and /controller with that.
func (c *candidate) kill(ctx context.Context) {
	if c.down {
		return
	}
	c.down = true
	c.dispatcher.Clear()
	c.queue.ClearAndPut(events.Expire{})
	if c.between(ctx, func() {}) {
		c.closeSession(c.session.Load())
	}
}

// crash is kill, but the session is left to its timeout.
func (c *candidate) crash(ctx context.Context) {
	c.line.Load().sever()
	c.kill(ctx)
}

// expire replaces the session as if the server had ended it.
func (c *candidate) expire(ctx context.Context) {
	if !c.down {
		c.renew(ctx)
	}
}

// follow makes the controller part share what happens to the broker's session.
// A nil candidate follows nothing.
func (c *candidate) follow(what func(*candidate, context.Context)) {
	if c != nil {
		c.order(func(ctx context.Context) { what(c, ctx) })
	}
}

// leave says that the process is going: the broker's next end is the last one.
func (c *candidate) leave() {
	if c != nil {
		c.leaving.Store(true)
	}
}

// isLeaving tells whether the broker's next end is the last one.
func (c *candidate) isLeaving() bool { return c != nil && c.leaving.Load() }
