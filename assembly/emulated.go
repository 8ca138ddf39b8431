package assembly

import (
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/wire"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// emulated is the process around one emulated broker: its ports, its ZooKeeper
// session, its way to the controller.
type emulated struct {
	plan BrokerOptions
	zk   zkstore.Options
	net  Network
	log  logrus.FieldLogger
	node *brokers.Node
	link *controllerLink
	port *brokerport.Port // nil until serve; nil: a broker without logs
	// leaders is the way to leaders in other processes; nil: a broker without logs.
	leaders *brokerport.Leaders
	// candidate is the controller part; nil: only a broker.
	candidate *candidate
	ctx       context.Context // ends with close; sessions are opened under it
	stop      context.CancelFunc
	tasks     sync.WaitGroup

	cluster atomic.Pointer[string]  // /cluster/id, once it was read
	configs *configWatch            // nil: a broker without logs, to whom configurations mean nothing
	static  brokers.DefaultsChanged // what holds where nothing was changed at run time
	room    *wire.Room              // of all listeners
	unlock  func()                  // gives the log directories back
	shared  *wire.Shared            // what all brokers of this process are told
	// unpacking is what all brokers of this process have room for.
	unpacking *brokerport.Unpacking

	mu      sync.Mutex
	bound   []net.Listener // opened before the first Listen
	open    []openPort
	session *zkSession    // nil while there is none
	changed chan struct{} // closed and replaced when session changes
	parted  chan struct{} // closed when a leaving candidate's sessions are over; nil before
}

// openPort is a port and who serves it.
type openPort struct {
	net.Listener
	server *wire.Server
}

// zkSession is a session that can also be left to its timeout.
type zkSession struct {
	*zkstore.Session
	line *severable
	left chan struct{} // closed when we end it ourselves: nobody is told
}

// newEmulated opens ports and a session. The emulated that comes with an error
// has to be closed.
func newEmulated(ctx context.Context, o BrokersOptions, p BrokerOptions) (*emulated, error) {
	p.Bind, p.Broker.Endpoints = slices.Clone(p.Bind), slices.Clone(p.Broker.Endpoints) // ports are written there
	e := &emulated{plan: p, zk: o.ZooKeeper, net: o.Network, log: o.Log.WithField("broker", int32(p.Broker.ID)), changed: make(chan struct{}),
		unlock: func() {}, room: wire.NewRoom(p.Settings.ProduceBytes()), shared: o.shared, unpacking: o.unpacking}
	if p.Broker.Logs != nil {
		e.configs = newConfigWatch()
	}
	e.ctx, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if logs := p.Broker.Logs; logs != nil {
		unlock, err := lockLogDirs(logs.Dirs)
		if err != nil {
			return e, err
		}
		e.unlock = unlock
	}
	if e.bound, err = bindPorts(e.net, &e.plan); err != nil {
		return e, err
	}
	s, err := e.dial(ctx)
	if err != nil {
		return e, unreachable(connectString(o.ZooKeeper), err)
	}
	e.session = s
	e.takeDefaults(ctx)
	if o.identify && !p.LikeReal {
		_, err = ensureClusterID(ctx, e)
		return e, err
	}
	if p.LikeReal {
		cluster, err := ensureClusterID(ctx, e)
		if err != nil {
			return e, err
		}
		return e, claimLogDirs(p.LogDirs, int32(p.Broker.ID), cluster, e.log)
	}
	return e, nil
}

// join adds the broker to the others of this process.
func (e *emulated) join(host *brokers.Host) error {
	broker := e.plan.Broker
	listener := broker.InterBrokerListener
	if listener == "" && len(broker.Endpoints) > 0 {
		listener = broker.Endpoints[0].Listener
	}
	e.link = &controllerLink{self: broker.ID, listener: listener, protocol: broker.Version, dialer: e.net.Dial}
	w := brokers.World{Store: e, Controller: e.link, Process: e}
	if broker.Logs != nil {
		e.leaders = brokerport.NewLeaders(brokerport.LeadersOptions{Self: broker.ID, Version: broker.Version, Listener: listener, Dialer: e.net.Dial})
		w.Leaders = e.leaders
	}
	node, err := host.Add(broker, w)
	if err != nil {
		return misconfigured(err)
	}
	e.node = node
	return nil
}

// serve makes what answers on the broker's ports, once its candidate is there.
func (e *emulated) serve() error {
	if e.plan.Broker.Logs == nil {
		return nil
	}
	port, err := brokerport.New(brokerport.Options{Node: e.node, Settings: e.plan.shown(), Store: e, TopicID: RandomTopicID, ToController: e.link,
		ClusterID: e.clusterID, Controller: e.candidate.port(), Unpacking: e.unpacking, Log: e.log})
	if err != nil {
		return misconfigured(err)
	}
	e.port = port
	return nil
}

// shown are the settings with what makes this broker itself, which a real one's
// server.properties would give: DescribeConfigs shows it.
func (p BrokerOptions) shown() brokerport.Settings {
	out := brokerport.Settings{"broker.id": strconv.Itoa(int(p.Broker.ID))}
	var ports []string
	for _, ep := range p.Broker.Endpoints {
		ports = append(ports, ep.Listener+"://"+net.JoinHostPort(ep.Host, strconv.Itoa(int(ep.Port))))
	}
	if len(ports) > 0 {
		out["listeners"] = strings.Join(ports, ",")
	}
	if p.Broker.HasRack {
		out["broker.rack"] = p.Broker.Rack
	}
	maps.Copy(out, p.Settings)
	return out
}

func (e *emulated) close() {
	e.stop()
	e.mu.Lock()
	for _, ln := range e.bound {
		ln.Close()
	}
	s, parted := e.session, e.parted
	e.session = nil
	e.mu.Unlock()
	_ = e.Listen(false)
	if e.port != nil {
		e.port.Close()
	}
	if e.leaders != nil {
		e.leaders.Close()
	}
	e.tasks.Go(func() {
		if parted != nil {
			<-parted
		}
		e.part(s)
	})
	if e.link != nil {
		e.link.close()
	}
	e.tasks.Wait()
	e.unlock()
}

func (e *emulated) dial(ctx context.Context) (*zkSession, error) {
	line := newSeverable(e.zk.Dialer)
	opt := e.zk
	opt.Dialer = line.dial
	s, err := zkstore.Dial(ctx, opt, e.configs.notice)
	if err != nil {
		return nil, err
	}
	return &zkSession{Session: s, line: line, left: make(chan struct{})}, nil
}

// use makes s the session in use; whoever waits for one looks again. It is
// false after close, which would not see s any more.
func (e *emulated) use(s *zkSession) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx.Err() != nil {
		return false
	}
	e.session = s
	close(e.changed)
	e.changed = make(chan struct{})
	return true
}

// end closes a session in the background.
func (e *emulated) end(s *zkSession) {
	e.tasks.Go(func() { e.endNow(s) })
}

func (e *emulated) endNow(s *zkSession) {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		e.log.WithError(err).Debug("closing the ZooKeeper session")
	}
}

// part ends the broker's session, nil if it has none, and its candidate's. A
// real broker has one for both: its controller module has ended before, and
// /controller does not go before the registration (spec/broker.md §1.8).
func (e *emulated) part(s *zkSession) {
	e.candidate.rest()
	if s != nil {
		e.endNow(s)
	}
	e.candidate.stop()
}

// take removes the session in use, if any.
func (e *emulated) take() *zkSession {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.session
	e.session = nil
	if s != nil {
		close(s.left)
	}
	return s
}

// watchSession tells the broker when its session is over, and opens the next.
func (e *emulated) watchSession() {
	e.mu.Lock()
	s := e.session
	e.mu.Unlock()
	if s == nil {
		return
	}
	e.tasks.Go(func() {
		select {
		case <-e.ctx.Done():
			return
		case <-s.left:
			return
		case <-s.Expired():
		}
		e.mu.Lock()
		ours := e.session == s
		if ours {
			e.session = nil
		}
		e.mu.Unlock()
		e.end(s)
		if ours {
			e.node.Post(brokers.SessionExpired{})
			e.reopen(true)
		}
	})
}

// reopen tries until there is a session or the process ends.
func (e *emulated) reopen(tell bool) {
	for e.ctx.Err() == nil {
		s, err := e.dial(e.ctx)
		if err == nil {
			if !e.use(s) {
				e.end(s)
				return
			}
			e.watchSession()
			if tell {
				e.node.Post(brokers.SessionEstablished{})
			}
			return
		}
		if e.ctx.Err() != nil {
			return
		}
		e.log.WithError(err).Warn("no ZooKeeper session yet")
		select {
		case <-e.ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// Listen opens or shuts the broker's ports, dropping its connections.
func (e *emulated) Listen(open bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !open {
		for _, p := range e.open {
			p.Listener.Close()
			// Closing the server waits for handlers, which may wait for the broker that calls here.
			p.server.DropConnections()
			e.tasks.Go(p.server.Close)
		}
		e.open = nil
		return nil
	}
	if e.open != nil {
		return nil
	}
	lns := e.bound
	e.bound = nil
	if lns == nil {
		var err error
		if lns, err = bindPorts(e.net, &e.plan); err != nil {
			return err
		}
	}
	for i, ln := range lns {
		h, table := e.handler(e.plan.Broker.Endpoints[i].Listener)
		e.open = append(e.open, openPort{ln, wire.Serve(ln, h, wire.ServerOptions{Table: table, Room: e.room, Shared: e.shared, Log: e.log})})
	}
	return nil
}

// handler gives what answers on one listener, and what it serves.
func (e *emulated) handler(listener string) (wire.Handler, []wire.APIVersion) {
	if e.port != nil {
		return e.port.Listener(listener), e.port.Table()
	}
	h := brokerHandler{e.node, listener, e.clusterID, e.candidate.port()}
	return h, brokerTable(e.node.Options(), h.controller)
}

// OpenSession begins a session in the background; the store waits for it.
func (e *emulated) OpenSession() error {
	e.tasks.Go(func() { e.reopen(false) })
	e.candidate.follow((*candidate).restart)
	return nil
}

// CloseSession ends the session; its registration goes at once.
func (e *emulated) CloseSession() {
	s := e.take()
	switch {
	case s == nil:
	case e.candidate.isLeaving():
		parted := make(chan struct{})
		e.mu.Lock()
		e.parted = parted
		e.mu.Unlock()
		e.tasks.Go(func() {
			defer close(parted)
			e.part(s)
		})
	default:
		e.candidate.follow((*candidate).kill)
		e.end(s)
	}
}

// AbandonSession leaves the session to its timeout: the line is cut first, so
// that nothing tells the server.
func (e *emulated) AbandonSession() {
	if s := e.take(); s != nil {
		s.line.sever()
		e.end(s)
	}
	e.candidate.follow((*candidate).crash)
}

// ExpireSession ends the session and opens another. Closing it makes its
// ephemeral nodes go as an expiry does.
func (e *emulated) ExpireSession() {
	s := e.take()
	if s == nil {
		return
	}
	e.candidate.follow((*candidate).expire)
	e.tasks.Go(func() {
		e.endNow(s)
		e.node.Post(brokers.SessionExpired{})
		e.reopen(true)
	})
}

// current waits for the session in use.
func (e *emulated) current(ctx context.Context) (*zkSession, error) {
	for {
		e.mu.Lock()
		s, changed := e.session, e.changed
		e.mu.Unlock()
		if s != nil {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.ctx.Done():
			return nil, zkpaths.ErrSessionExpired
		}
	}
}

// Read is brokers.Store's.
func (e *emulated) Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error) {
	s, err := e.current(ctx)
	if err != nil {
		return nil, err
	}
	return s.Session.Read(ctx, reads)
}

// Write is brokers.Store's.
func (e *emulated) Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	s, err := e.current(ctx)
	if err != nil {
		return nil, err
	}
	return s.Session.Write(ctx, fence, writes)
}

// Transact is brokers.Store's.
func (e *emulated) Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	s, err := e.current(ctx)
	if err != nil {
		return nil, err
	}
	return s.Session.Transact(ctx, writes)
}

// Session is the id of the session in use, 0 while there is none.
func (e *emulated) Session() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.session == nil {
		return 0
	}
	return e.session.ID()
}

// clusterID is what /cluster/id has; "" while nobody made it or ZooKeeper does
// not answer.
func (e *emulated) clusterID(ctx context.Context) string {
	if id := e.cluster.Load(); id != nil {
		return *id
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, ok, err := get(ctx, e, zkpaths.ClusterID)
	if err != nil || !ok {
		return ""
	}
	id, err := zkpaths.DecodeClusterID(n.Data)
	if err != nil {
		e.log.WithError(err).Debug("the cluster's id")
		return ""
	}
	e.cluster.Store(&id)
	return id
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// severable is a dialer whose connections can be cut for good.
type severable struct {
	with  dialer
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

// newSeverable dials with another dialer; nil is TCP.
func newSeverable(with dialer) *severable {
	if with == nil {
		with = (&net.Dialer{}).DialContext
	}
	return &severable{with: with, conns: map[net.Conn]struct{}{}}
}

func (s *severable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := s.with(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		c.Close()
		return nil, net.ErrClosed
	}
	s.conns[c] = struct{}{}
	return severableConn{c, s}, nil
}

func (s *severable) sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = true
	for c := range s.conns {
		c.Close()
	}
}

type severableConn struct {
	net.Conn
	line *severable
}

// Close closes the connection and forgets it.
func (c severableConn) Close() error {
	c.line.mu.Lock()
	delete(c.line.conns, c.Conn)
	c.line.mu.Unlock()
	return c.Conn.Close()
}

var (
	_ brokers.Store   = (*emulated)(nil)
	_ brokers.Process = (*emulated)(nil)
)
