package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/dispatch"
	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/listeners"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run", Short: "Be a controller, or stand by to become it", Args: cobra.NoArgs,
		Long: `Takes part in the election for /controller and controls the cluster while elected. Without --listener it is
hidden: no broker and no client asks it anything, which is enough for brokers before 2.7-IV2. SIGINT and SIGTERM
give the role back; the second one ends at once.`,
	}
	f := cmd.Flags()
	zookeeperFlag(f)
	keyFlag(f, "broker-id", "broker.id", "the controller's id; no broker may have it")
	keyFlag(f, "listener", "listeners", "PLAINTEXT://HOST:PORT; several with commas between")
	keyFlag(f, "advertised-listener", "advertised.listeners", "what brokers and clients are told, if not the listener itself")
	keyFlag(f, "rack", "broker.rack", "shown with the listener")
	keyFlag(f, "inter-broker-protocol-version", "inter.broker.protocol.version", "what the controller assumes of the cluster: 2.4, 2.7-IV2, 0.10.2.2")
	keyFlag(f, "admin", "zkc.admin", "loopback HOST:PORT for /metrics, /livez, /readyz and pprof")
	keyFlag(f, "zk-batch", "zkc.zk.batch", "writes per ZooKeeper transaction; 1 is Kafka's order")
	record := f.String("record", "", "append a record of every event to this file, one JSON object a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, log, err := loadConfig(cmd)
		if err != nil {
			return err
		}
		if err := needZooKeeper(c); err != nil {
			return err
		}
		if c.BrokerID < 0 {
			return usageError("no id: give --broker-id or broker.id, one that no broker has")
		}
		p := &process{config: c, log: log}
		return p.run(cmd.Context(), *record)
	}
	return cmd
}

// process is one running controller with all its edges.
type process struct {
	config   *config.Config
	log      *logrus.Logger
	isBroker bool                                                                 // a broker of the same id is in the same process, and shows itself
	dialer   func(ctx context.Context, network, address string) (net.Conn, error) // nil: the usual one
	orders   chan func(context.Context)                                           // from a broker in the same process; nil: there is none
	down     bool                                                                 // by such an order: no session, nothing to do

	version    kafka.ProtocolVersion
	store      zkstore.Options
	queue      *controller.Queue
	controller *controller.Controller
	dispatcher *dispatch.Dispatcher
	session    atomic.Pointer[zkstore.Session]
	timers     timers
	producers  *producerIDs
	times      eventTimes

	mu   sync.Mutex
	past zkstore.Stats // sums of the sessions that are over
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

func (p *process) run(ctx context.Context, recordFile string) error {
	bound, err := bindListeners(p.config, p.log)
	if err != nil {
		return err
	}
	defer bound.closeUnserved()
	end, err := p.assemble(ctx, recordFile, bound.advertised)
	defer end()
	if err != nil {
		if ctx.Err() != nil && exitCode(err) != 2 {
			return nil
		}
		return err
	}
	for _, l := range bound.take() {
		e := endpoint.Serve(l.Listener, p.endpointOptions(l.name))
		defer e.Close()
		p.log.WithFields(logrus.Fields{"listener": l.name, "address": e.Addr().String()}).Info("listening")
	}
	stopAdmin, err := serveAdmin(p)
	if err != nil {
		return err
	}
	defer stopAdmin()
	return p.control(ctx)
}

// assemble makes all parts but ports, and a session. end is what to call when
// control has returned, or when there was an error.
func (p *process) assemble(ctx context.Context, recordFile string, advertised []kafka.Endpoint) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	if p.version, err = protocolVersion(p.config); err != nil {
		return end, err
	}
	if p.store, err = storeOptions(p.config, p.log); err != nil {
		return end, err
	}
	p.store.Dialer = p.dialer
	recorder, err := openRecorder(recordFile, p.log)
	if err != nil {
		return end, err
	}
	ends = append(ends, recorder.close)

	p.queue = controller.NewQueue(nil)
	session, err := p.dial(ctx)
	if err != nil {
		return end, withCode(3, fmt.Errorf("reach ZooKeeper %s: %w", p.config.ZooKeeperConnect, err))
	}
	ends = append(ends, func() { p.closeSession(p.session.Load()) })
	if !p.isBroker {
		if err := p.refuseTakenID(ctx, session); err != nil {
			return end, err
		}
	}

	p.timers.queue = p.queue
	checks := newVersionChecks(p.version, p.controlListener(), p.log)
	p.dispatcher = dispatch.New(dispatch.Options{ControllerID: kafka.BrokerID(p.config.BrokerID), Version: p.version,
		Listener: p.controlListener(), FailuresOnly: true, Put: p.queue.Put, Log: p.log})
	ends = append(ends, p.timers.stopAll, checks.close, p.dispatcher.Close)
	p.controller = controller.New(p.options(advertised), session, checkedChannels{p.dispatcher, checks}, &p.timers, p.queue, p.log)
	recorder.attach(p.controller)
	p.times = newEventTimes()
	p.controller.SetObserver(p.times.observe)
	p.producers = newProducerIDs(kafka.BrokerID(p.config.BrokerID), func() znodes { return p.session.Load() })
	return end, nil
}

func (p *process) endpointOptions(listener string) endpoint.Options {
	return endpoint.Options{ID: kafka.BrokerID(p.config.BrokerID), Listener: listener,
		Loop: p.queue, Configs: topicConfigs{&p.session}, Producers: p.producers, Log: p.log}
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
// goes with the session.
func (p *process) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), handBackPatience)
	defer cancel()
	p.queue.ClearAndPut(events.Shutdown{})
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
	p.closeSession(p.session.Load())
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
	s, err := zkstore.Dial(ctx, p.store, func(n zkpaths.Notice) {
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
func (p *process) refuseTakenID(ctx context.Context, s znodes) error {
	path := zkpaths.BrokerPath(kafka.BrokerID(p.config.BrokerID))
	_, ok, err := get(ctx, s, path)
	if err != nil {
		return err
	}
	if ok {
		return refused("a live broker has the id %d (%s); give the controller another --broker-id", p.config.BrokerID, path)
	}
	return nil
}

// controlListener is where brokers are addressed.
func (p *process) controlListener() string {
	if p.config.ControlPlaneListener != "" {
		return p.config.ControlPlaneListener
	}
	return p.config.InterBrokerListener
}

func (p *process) options(advertised []kafka.Endpoint) controller.Options {
	c := p.config
	o := controller.Options{
		ID: kafka.BrokerID(c.BrokerID), Version: p.version,
		UncleanElection: c.UncleanElection, DeleteTopics: c.DeleteTopics,
		AutoRebalance: c.AutoRebalance, ImbalancePercent: c.ImbalancePercent, ImbalanceCheck: c.ImbalanceCheck,
		DefaultPartitions: c.NumPartitions, DefaultReplication: c.DefaultReplication,
		ControlListener: p.controlListener(), KafkaOrder: c.ZKBatch == 1,
		Now: time.Now, Rand: randomIndex, UUID: randomTopicID,
	}
	if len(advertised) > 0 {
		o.Self = &kafka.Broker{ID: o.ID, Epoch: kafka.NoBrokerEpoch, Endpoints: advertised, Rack: c.Rack, HasRack: c.Rack != ""}
	}
	return o
}

// boundListener is an open port that nobody serves yet.
type boundListener struct {
	net.Listener
	name string
}

type boundListeners struct {
	open       []boundListener
	advertised []kafka.Endpoint
}

// take hands the ports over to who serves, and closes, them.
func (b *boundListeners) take() []boundListener {
	open := b.open
	b.open = nil
	return open
}

func (b *boundListeners) closeUnserved() {
	for _, l := range b.open {
		l.Close()
	}
}

// bindListeners opens the configured ports. Only PLAINTEXT is served: listeners
// of other protocols are left shut with a warning, so that a broker's own
// server.properties can be used.
func bindListeners(c *config.Config, log logrus.FieldLogger) (*boundListeners, error) {
	b := &boundListeners{}
	for _, l := range c.Listeners {
		if l.Protocol != kafka.Plaintext.String() {
			log.WithFields(logrus.Fields{"listener": l.Name, "protocol": l.Protocol}).Warn("only PLAINTEXT listeners are served; this one stays shut")
			continue
		}
		ln, err := net.Listen("tcp", net.JoinHostPort(l.Host, strconv.Itoa(l.Port)))
		if err != nil {
			b.closeUnserved()
			return nil, fmt.Errorf("open listener %s: %w; give another port, or stop who has it", l, err)
		}
		b.open = append(b.open, boundListener{ln, l.Name})
		for _, a := range c.AdvertisedListeners {
			if a.Name != l.Name {
				continue
			}
			e := kafka.Endpoint{Listener: a.Name, Protocol: kafka.Plaintext, Host: a.Host, Port: int32(a.Port)}
			if e.Port == 0 {
				e.Port = int32(ln.Addr().(*net.TCPAddr).Port)
			}
			if e.Host, err = reachableHost(e.Host); err != nil {
				b.closeUnserved()
				return nil, fmt.Errorf("listener %s: %w; give --advertised-listener", l, err)
			}
			b.advertised = append(b.advertised, e)
		}
	}
	if len(c.Listeners) > 0 && len(b.open) == 0 {
		return nil, usageError("none of the listeners is PLAINTEXT; add one, or leave listeners out to be a hidden controller")
	}
	return b, nil
}

// reachableHost gives the machine's name for a host that stands for all
// interfaces, as Kafka does.
func reachableHost(host string) (string, error) {
	if host != "" && host != "0.0.0.0" && host != "::" {
		return host, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("it names no host and this machine's name is unknown: %w", err)
	}
	return name, nil
}

// timers are the controller's clock: an event is queued later.
type timers struct {
	queue  *controller.Queue
	mu     sync.Mutex
	armed  map[*armedTimer]struct{}
	closed bool
}

type armedTimer struct{ *time.Timer }

// After queues ev in d; stop takes it back if it is not yet queued.
func (t *timers) After(d time.Duration, ev events.Event) (stop func()) {
	a := &armedTimer{}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return func() {}
	}
	if t.armed == nil {
		t.armed = map[*armedTimer]struct{}{}
	}
	a.Timer = time.AfterFunc(d, func() {
		t.forget(a)
		t.queue.Put(ev)
	})
	t.armed[a] = struct{}{}
	return func() {
		a.Stop()
		t.forget(a)
	}
}

func (t *timers) forget(a *armedTimer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.armed, a)
}

func (t *timers) stopAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for a := range t.armed {
		a.Stop()
	}
	clear(t.armed)
}
