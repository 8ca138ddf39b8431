package dispatch

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Options is what a Dispatcher is told. Zero durations mean the defaults.
type Options struct {
	ControllerID kafka.BrokerID
	// Version is inter.broker.protocol.version. It bounds the request versions;
	// what a broker offers in ApiVersions bounds them too.
	Version kafka.ProtocolVersion
	// Listener is control.plane.listener.name or inter.broker.listener.name. ""
	// takes PLAINTEXT, or else a broker's first listener.
	Listener string

	ConnectTimeout time.Duration // controller.socket.timeout.ms; 30 s
	RequestTimeout time.Duration // request.timeout.ms; 30 s
	RetryPause     time.Duration // after a failure; 100 ms

	// FailuresOnly leaves rows that say NONE out of LeaderAndIsr answers' events,
	// which then carry the request (events.LeaderAndISRResponse).
	FailuresOnly bool

	// Put queues an answer's event. It is called from the brokers' goroutines
	// and must not block.
	Put func(events.Event)
	Log logrus.FieldLogger
	// Dialer replaces TCP, for tests and simulation.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Dispatcher has one channel per broker. Its methods may be called from any
// goroutine; none but Close blocks.
type Dispatcher struct {
	o      Options
	ours   versions
	bodies bodies
	wg     sync.WaitGroup
	once   sync.Map // facts that were logged already

	mu       sync.Mutex
	closed   bool
	channels map[kafka.BrokerID]*channel
	leaving  map[kafka.BrokerID]<-chan struct{} // closed when a removed channel's sender has ended
	gone     Counters                           // of removed channels
}

// New makes a Dispatcher without channels.
func New(o Options) *Dispatcher {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.ConnectTimeout, 30*time.Second)
	def(&o.RequestTimeout, 30*time.Second)
	def(&o.RetryPause, 100*time.Millisecond)
	if o.Log == nil {
		quiet := logrus.New()
		quiet.SetLevel(logrus.PanicLevel)
		o.Log = quiet
	}
	return &Dispatcher{o: o, ours: versionsFor(o.Version), channels: map[kafka.BrokerID]*channel{}, leaving: map[kafka.BrokerID]<-chan struct{}{}}
}

// Add opens a broker's channel and starts connecting. The same id with another
// epoch replaces the channel and drops what waits in it; with the same epoch
// only the address is taken over, for the next connection.
func (d *Dispatcher) Add(b kafka.Broker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	if old := d.channels[b.ID]; old != nil {
		if old.epoch == b.Epoch {
			old.move(b)
			return
		}
		d.drop(old, "replaced: the broker registered again")
	}
	before := d.leaving[b.ID]
	delete(d.leaving, b.ID)
	ctx, cancel := context.WithCancel(context.Background())
	c := &channel{d: d, id: b.ID, epoch: b.Epoch, cancel: cancel, done: make(chan struct{}), wake: make(chan struct{}, 1),
		log: d.o.Log.WithField("broker", int32(b.ID)), broker: b, coalesceAt: coalesceAbove}
	d.channels[b.ID] = c
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		defer close(c.done)
		if before != nil {
			<-before // two connections must not overtake each other
		}
		c.run(ctx)
	}()
}

// Remove closes a broker's channel and drops what waits in it.
func (d *Dispatcher) Remove(id kafka.BrokerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.channels[id]; c != nil {
		d.drop(c, "removed")
	}
}

// Clear removes all channels.
func (d *Dispatcher) Clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.channels {
		d.drop(c, "removed: no longer controller")
	}
}

// Close removes all channels for good and waits for their goroutines.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	for _, c := range d.channels {
		d.drop(c, "removed: closing")
	}
	d.mu.Unlock()
	d.wg.Wait()
}

// drop stops a channel; d.mu is held.
func (d *Dispatcher) drop(c *channel, why string) {
	delete(d.channels, c.id)
	d.leaving[c.id] = c.done
	waiting, counters := c.stop()
	d.gone.add(counters)
	c.log.WithField("waiting", waiting).Info("channel to broker " + why)
}

// Send queues a request. A request to a broker without a channel is dropped
// with a warning. The request must not be changed any more.
func (d *Dispatcher) Send(id kafka.BrokerID, r control.Request) {
	d.mu.Lock()
	c := d.channels[id]
	d.mu.Unlock()
	if c == nil {
		d.o.Log.WithFields(logrus.Fields{"broker": int32(id), "request": r.Kind().String()}).Warn("request dropped: the broker has no channel")
		return
	}
	it := item{req: r, at: time.Now()}
	if um, ok := r.(*control.UpdateMetadataRequest); ok {
		it.body = d.bodies.of(um.Metadata)
	}
	c.put(it)
}

// address picks the endpoint of a broker that control requests go to.
func (d *Dispatcher) address(b kafka.Broker) (string, bool) {
	name := d.o.Listener
	if name == "" {
		name = kafka.Plaintext.String()
	}
	e, ok := b.Endpoint(name)
	if !ok && d.o.Listener == "" && len(b.Endpoints) > 0 {
		e, ok = b.Endpoints[0], true
	}
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))), ok
}

// reportInvalid logs, once each, topics that are kept from brokers.
func (d *Dispatcher) reportInvalid(topics []string) {
	for _, t := range topics {
		if _, known := d.once.LoadOrStore("topic "+t, nil); !known {
			d.o.Log.WithFields(logrus.Fields{"topic": t, "error": kafka.ValidTopicName(t)}).
				Error("topic is not told to brokers: its name could stop them; delete its znode under /brokers/topics")
		}
	}
}
