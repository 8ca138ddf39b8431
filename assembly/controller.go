package assembly

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/dispatch"
	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/listeners"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// ControllerOptions say what one controller is and how it is reached.
type ControllerOptions struct {
	// Rules are the controller's own settings, see Defaults. Self, Now, Rand and
	// UUID are filled in where they are not given.
	Rules     controller.Options
	ZooKeeper zkstore.Options // Log is filled in where it is not given
	Listeners []Listener      // none: hidden, nobody asks it anything
	Rack      string          // shown with the listeners
	// OffsetsTopic is what __consumer_offsets is like where the controller creates
	// it for a client that looks for its group's coordinator; nil: brokers do that.
	OffsetsTopic *events.NewTopic
	// AutoTopic is what a topic is like, but for its name, that the controller
	// creates because a client asks for its metadata; nil: none.
	AutoTopic *events.NewTopic
	Record    string // file to which the record of every event is appended; "" is none
	Admin     string // loopback HOST:PORT of metrics, probes and profiles; "" is none
	Network   Network
	Log       logrus.FieldLogger // nil: nothing is said
}

// Defaults gives a controller of an id the settings that Kafka has by default.
// version is inter.broker.protocol.version.
func Defaults(id kafka.BrokerID, version kafka.ProtocolVersion) controller.Options {
	return controller.Options{ID: id, Version: version, DeleteTopics: true, AutoRebalance: true, ImbalancePercent: 10,
		ImbalanceCheck: 5 * time.Minute, DefaultPartitions: 1, DefaultReplication: 1}
}

// Controller is one controller with its ports and its ZooKeeper session.
type Controller struct {
	process
	ends []func()
	once sync.Once
}

// NewController opens the ports and a session, and serves; Run takes part in
// the election. The session is given ZooKeeper.ConnectTimeout at most. An error
// leaves nothing open.
func NewController(ctx context.Context, o ControllerOptions) (*Controller, error) {
	c := &Controller{process: newProcess(o)}
	bound, err := bindListeners(o.Network, o.Listeners)
	if err != nil {
		return nil, err
	}
	defer bound.closeUnserved()
	end, err := c.assemble(ctx, bound.advertised)
	c.ends = append(c.ends, end)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.advertised = bound.advertised
	for _, l := range bound.take() {
		e := endpoint.Serve(l.Listener, c.endpointOptions(l.name))
		c.ends = append(c.ends, e.Close)
		c.log.WithFields(logrus.Fields{"listener": l.name, "address": e.Addr().String()}).Info("listening")
	}
	stopAdmin, err := serveAdmin(&c.process)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.ends = append(c.ends, stopAdmin)
	return c, nil
}

// Run takes part until ctx ends, gives the role back if it has it, and closes
// everything. It may be called once.
func (c *Controller) Run(ctx context.Context) error {
	defer c.Close()
	return c.control(ctx)
}

// Close ends a Controller that does not run: ports shut, session closed. Run
// does it by itself.
func (c *Controller) Close() {
	c.once.Do(func() {
		for _, f := range slices.Backward(c.ends) {
			f()
		}
	})
}

// Advertised is what brokers and clients are told of the ports.
func (c *Controller) Advertised() []kafka.Endpoint { return slices.Clone(c.advertised) }

// process is one running controller without its ports.
type process struct {
	o        ControllerOptions
	log      logrus.FieldLogger
	isBroker bool                       // a broker of the same id is in the same process, and shows itself
	orders   chan func(context.Context) // from a broker in the same process; nil: there is none
	down     bool                       // by such an order: no session, nothing to do

	advertised []kafka.Endpoint
	queue      *controller.Queue
	controller *controller.Controller
	dispatcher *dispatch.Dispatcher
	session    atomic.Pointer[zkstore.Session]
	timers     timers
	producers  *brokerport.ProducerIDs
	times      eventTimes
	waiters    waiters
	tasks      sync.WaitGroup // what goes on beside control

	mu   sync.Mutex
	past zkstore.Stats // sums of the sessions that are over
}

func newProcess(o ControllerOptions) process {
	o.Log = orQuiet(o.Log)
	if o.ZooKeeper.Log == nil {
		o.ZooKeeper.Log = o.Log
	}
	return process{o: o, log: o.Log}
}

// zkStats sums over all sessions; gauges are the present one's.
func (p *process) zkStats() zkstore.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sumStats(p.past, p.session.Load().Stats())
}

// sumStats adds the counters of a session that is over to the present one's.
func sumStats(past, now zkstore.Stats) zkstore.Stats {
	now.Requests += past.Requests
	now.Packets += past.Packets
	now.Bytes += past.Bytes
	now.BulkPackets += past.BulkPackets
	now.BulkBytes += past.BulkBytes
	now.Fallbacks += past.Fallbacks
	now.LostAnswers += past.LostAnswers
	now.Connects += past.Connects
	now.Disconnects += past.Disconnects
	now.Expiries += past.Expiries
	now.Notices += past.Notices
	now.LatencySpan += past.LatencySpan
	for i, n := range past.Latency {
		now.Latency[i] += n
	}
	return now
}

// Times that together stay under the five seconds a process may take to leave.
const (
	handBackPatience  = 2000 * time.Millisecond
	lastEventPatience = 300 * time.Millisecond
	closePatience     = 1000 * time.Millisecond
)

// assemble makes all parts but ports, and a session. end is what to call when
// control has returned, or when there was an error.
func (p *process) assemble(ctx context.Context, advertised []kafka.Endpoint) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	recorder, err := openRecorder(p.o.Record, p.log)
	if err != nil {
		return end, err
	}
	ends = append(ends, recorder.close)

	p.queue = controller.NewQueue(nil)
	session, err := p.dial(ctx)
	if err != nil {
		return end, unreachable(connectString(p.o.ZooKeeper), err)
	}
	ends = append(ends, func() { p.closeSession(p.session.Load()); p.tasks.Wait() })
	if !p.isBroker {
		if err := p.refuseTakenID(ctx, session); err != nil {
			return end, err
		}
	}

	p.timers.queue = p.queue
	rules := p.rules(advertised)
	checks := newVersionChecks(rules.Version, rules.ControlListener, p.o.Network, p.log)
	p.dispatcher = dispatch.New(dispatch.Options{ControllerID: rules.ID, Version: rules.Version,
		Listener: rules.ControlListener, FailuresOnly: true, Put: p.queue.Put, Log: p.log, Dialer: p.o.Network.Dial})
	ends = append(ends, p.timers.stopAll, checks.close, p.dispatcher.Close)
	p.controller = controller.New(rules, session, checkedChannels{p.dispatcher, checks}, &p.timers, p.queue, p.log)
	recorder.attach(p.controller)
	p.times = newEventTimes()
	p.controller.SetObserver(func(name string, waited, took time.Duration) {
		p.times.observe(name, waited, took)
		p.waiters.tell(p.controller)
	})
	p.producers = brokerport.NewProducerIDs(func(ctx context.Context) (zkpaths.ProducerBlock, error) {
		return brokerport.TakeProducerIDs(ctx, p.session.Load(), rules.ID)
	})
	return end, nil
}

func (p *process) endpointOptions(listener string) endpoint.Options {
	return endpoint.Options{ID: p.o.Rules.ID, Listener: listener,
		Loop: p.queue, Configs: topicConfigs{&p.session}, Producers: p.producers, OffsetsTopic: p.o.OffsetsTopic, AutoTopic: p.o.AutoTopic, Log: p.log}
}

// control runs the loop and renews the session until ctx ends; then it leaves.
func (p *process) control(ctx context.Context) error {
	// The loop outlives ctx: leaving is an event like any other.
	loopCtx, stopLoop := context.WithCancel(context.WithoutCancel(ctx))
	defer stopLoop()
	var loop sync.WaitGroup
	loop.Go(func() { p.controller.Run(loopCtx, p.queue) })
	if p.orders == nil {
		p.queue.Put(events.Startup{})
	}
	for ctx.Err() == nil {
		var expired <-chan struct{}
		if !p.down {
			expired = p.session.Load().Expired()
		}
		select {
		case <-ctx.Done():
		case order := <-p.orders:
			order(ctx)
		case <-expired:
			p.renew(ctx)
		}
	}
	p.log.WithField("why", context.Cause(ctx)).Info("leaving")
	p.leave()
	p.queue.Close() // the loop ends when it has handled what it is at
	ended := make(chan struct{})
	go func() { loop.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(lastEventPatience):
		stopLoop()
		<-ended
	}
	return nil
}

// leave gives the role back, unless ZooKeeper does not answer in time: then it
// goes with the session, as that of a candidate always does.
func (p *process) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), handBackPatience)
	defer cancel()
	p.queue.ClearAndPut(events.Shutdown{KeepRole: p.isBroker})
	if !p.between(ctx, func() {}) {
		p.log.Warn("ZooKeeper does not answer; /controller goes with the session")
	}
}

// between runs f on the loop behind everything that waits, and tells whether it
// ran before ctx ended.
func (p *process) between(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	p.queue.Put(events.Inspect{Look: func() { f(); close(done) }})
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// renew replaces an expired session: the loop resigns first, then there is
// another one to be elected with (spec/controller.md §2.6).
func (p *process) renew(ctx context.Context) {
	p.log.Warn("ZooKeeper session expired")
	p.queue.ClearAndPut(events.Expire{})
	if !p.between(ctx, func() {}) {
		return
	}
	old := p.session.Load()
	if old.State() == zkstore.Expired {
		// Nothing is sent on it any more, but the library takes a second to end.
		p.tasks.Go(func() { p.closeSession(old) })
	} else {
		p.closeSession(old)
	}
	if p.redial(ctx) {
		p.queue.Put(events.Startup{})
	}
}

// redial tries until the loop has another session, or ctx ends.
func (p *process) redial(ctx context.Context) bool {
	for ctx.Err() == nil {
		session, err := p.dial(ctx)
		if err == nil {
			return p.between(ctx, func() { p.controller.SetStore(session) })
		}
		p.log.WithError(err).Warn("no new ZooKeeper session yet")
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	return false
}

func (p *process) dial(ctx context.Context) (*zkstore.Session, error) {
	s, err := zkstore.Dial(ctx, p.o.ZooKeeper, func(n zkpaths.Notice) {
		if ev, ok := listeners.Event(n); ok {
			p.queue.Put(ev)
		}
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.session.Load(); old != nil {
		p.past = sumStats(p.past, old.Stats())
	}
	p.session.Store(s)
	return s, nil
}

func (p *process) closeSession(s *zkstore.Session) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		p.log.WithError(err).Debug("closing the ZooKeeper session")
	}
}

// refuseTakenID: two processes of one id would be taken for one by everybody.
func (p *process) refuseTakenID(ctx context.Context, s Znodes) error {
	path := zkpaths.BrokerPath(p.o.Rules.ID)
	_, ok, err := get(ctx, s, path)
	if err != nil {
		return err
	}
	if ok {
		return refused("a live broker has the id %d (%s); give the controller another --broker-id", p.o.Rules.ID, path)
	}
	return nil
}

// connectString is what zookeeper.connect says.
func connectString(o zkstore.Options) string { return strings.Join(o.Servers, ",") + o.Chroot }

func (p *process) rules(advertised []kafka.Endpoint) controller.Options {
	o := p.o.Rules
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.IntN
	}
	if o.UUID == nil {
		o.UUID = RandomTopicID
	}
	if len(advertised) > 0 && o.Self == nil {
		o.Self = &kafka.Broker{ID: o.ID, Epoch: kafka.NoBrokerEpoch, Endpoints: advertised, Rack: p.o.Rack, HasRack: p.o.Rack != ""}
	}
	return o
}
