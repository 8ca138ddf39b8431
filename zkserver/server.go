package zkserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/zkserver/zkfiles"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

// ErrServerClosed is what a Server says once it is closed.
var ErrServerClosed = errors.New("zkserver: the server is closed")

// Server serves a Tree over ZooKeeper's protocol, as one Apache ZooKeeper
// 3.9.5 standalone server would. One lock guards the tree, the sessions and
// what every connection has yet to be sent; a connection's reader takes it once
// for all requests that have arrived. Nobody writes to a socket while holding it.
type Server struct {
	o   Options
	log logrus.FieldLogger

	mu       sync.Mutex
	tree     *Tree
	sessions map[int64]*session
	conns    map[Watcher]*conn
	ending   map[*conn]struct{} // those that were cut and are not closed yet
	perAddr  map[string]int     // open connections of a client address
	lists    map[net.Listener]struct{}
	lastConn Watcher
	lastID   int64   // newest session id
	dirty    []*conn // those that were written to under the lock since settle
	began    time.Time
	serving  bool
	paused   bool
	closed   bool
	resumed  sync.Cond // paused or closed changed, or transactions became durable
	expiry   expiry
	stats    stats
	keep     keeper         // durability
	store    *zkfiles.Store // nil: in memory
	snap     snap

	stopTimers []func()
	done       chan struct{}  // closed by Close
	wg         sync.WaitGroup // all goroutines; Add only under mu and before closed
	bufs       sync.Pool      // *[]byte, for what is to be sent
	sendMax    int            // the const sendMax, but for tests
	sendTotal  int64          // and sendTotal
	unsent     int64          // bytes that are queued for all connections
	scratch
}

// scratch is memory that one request after the other uses.
type scratch struct {
	ops     []Op
	opTypes []int32 // of a multi's ops, on the wire
	results []OpResult
	names   []string
}

// scratchKeep is how many entries scratch may have to be kept.
const scratchKeep = 4096

// trim lets go of what an uncommonly large request needed.
func (s *scratch) trim() {
	if cap(s.ops) > scratchKeep || cap(s.results) > scratchKeep {
		s.ops, s.opTypes, s.results = nil, nil, nil
	}
	if cap(s.names) > scratchKeep {
		s.names = nil
	}
}

// session is one client's session.
type session struct {
	id       int64
	timeout  time.Duration
	deadline int64 // the tick at which it ends
	filed    int64 // the bucket it lies in; deadline may have moved on
	conn     *conn // nil: nobody is connected
}

// New makes a server and, with a DataDir, recovers what was in it. It serves
// nobody yet.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("make a ZooKeeper server: %w", err)
	}
	s := &Server{
		o: o, log: o.Log, tree: NewTree(), sessions: map[int64]*session{}, conns: map[Watcher]*conn{}, ending: map[*conn]struct{}{},
		perAddr: map[string]int{}, lists: map[net.Listener]struct{}{}, began: o.Clock.Now(), done: make(chan struct{}), sendMax: sendMax, sendTotal: sendTotal,
	}
	s.resumed.L = &s.mu
	s.tree.ExtendedTypes = o.ExtendedTypes
	s.expiry.buckets = map[int64]map[*session]struct{}{}
	s.lastID = firstSessionID(s.began)
	if o.DataDir == "" {
		s.keep.secret = newSecret()
		// Clients of an earlier life must get a refusal and not silence, so the
		// zxid begins above all that were ever issued (spec/zookeeper.md §4.2).
		s.tree.AdvanceZxid((s.began.Unix() - epochBase) << 32)
		return s, nil
	}
	if err := s.recover(); err != nil {
		return nil, fmt.Errorf("make a ZooKeeper server on %s: %w", o.DataDir, err)
	}
	return s, nil
}

// epochBase is the second that epochs of servers in memory are counted from,
// 2024-01-01, so that a zxid of this century stays positive.
const epochBase = 1704067200

// firstSessionID is Apache's rule: server 1, 40 bits of the start in
// milliseconds, and a counter (spec/zookeeper.md §4.2).
func firstSessionID(start time.Time) int64 {
	return 1<<56 | int64(uint64(start.UnixMilli())<<24>>8)
}

// begin starts the clocks of sessions and sweeps with the first client's way in.
func (s *Server) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrServerClosed
	case s.keep.failed != nil:
		return s.keep.failed
	case s.serving:
		return nil
	}
	s.serving = true
	for _, sess := range s.sessions {
		s.touch(sess, s.ticks())
	}
	s.every(s.o.TickTime, s.expire)
	s.every(s.o.ContainerCheck, s.sweep)
	if s.o.DataDir != "" && s.o.PurgeInterval > 0 {
		s.purge() // a server that is started every day is purged, too
		s.every(s.o.PurgeInterval, s.purge)
	}
	return nil
}

// every has f called under the lock again and again until Close.
func (s *Server) every(d time.Duration, f func()) {
	i := len(s.stopTimers)
	s.stopTimers = append(s.stopTimers, nil)
	// In step with the ticks that sessions are filed by.
	next := s.began.Add(s.o.Clock.Now().Sub(s.began).Truncate(d))
	var run func()
	arm := func() {
		next = next.Add(d)
		now := s.o.Clock.Now()
		if !next.After(now) { // the machine slept: no calls to make up for
			next = now.Add(d)
		}
		s.stopTimers[i] = s.o.Clock.AfterFunc(next.Sub(now), run)
	}
	run = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return
		}
		if !s.stands() {
			f()
			s.settle(nil)
		}
		arm()
	}
	arm()
}

// Serve accepts connections from l until Close, which makes it return nil.
// Several listeners may be served at once. A full table of files only makes it
// slower.
func (s *Server) Serve(l net.Listener) error {
	if err := s.begin(); err != nil {
		l.Close()
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return ErrServerClosed
	}
	s.lists[l] = struct{}{}
	s.wg.Add(1)
	s.mu.Unlock()
	defer func() {
		l.Close()
		s.mu.Lock()
		delete(s.lists, l)
		s.mu.Unlock()
		s.wg.Done()
	}()
	wait := time.Duration(0)
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			wait = 0
			s.accept(nc)
			continue
		case s.failure() != nil:
			return s.failure()
		case s.isClosed():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept connections on %s: %w", l.Addr(), err)
		}
		if wait == 0 {
			s.log.WithError(err).WithField("address", l.Addr().String()).Warn("connections cannot be accepted; trying again until it works")
		}
		wait = min(max(5*time.Millisecond, 2*wait), time.Second)
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-s.done:
			pause.Stop()
		}
	}
}

// failure is why the server does not answer any more.
func (s *Server) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep.failed
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Dial gives an in-memory connection to the server, as a client's dialer wants
// it; network and address do not matter.
func (s *Server) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.begin(); err != nil {
		return nil, err
	}
	client, server := newPipe()
	s.accept(server)
	return client, nil
}

// accept takes a connection in and starts its reader.
func (s *Server) accept(nc net.Conn) {
	if tcp, ok := nc.(*net.TCPConn); ok {
		tcp.SetNoDelay(true) // an error shows at the next read
	}
	c := newConn(s, nc)
	s.mu.Lock()
	_, inMemory := nc.(*pipeEnd)
	full := !inMemory && s.o.MaxClientCnxns > 0 && s.perAddr[c.host] >= s.o.MaxClientCnxns
	if full || s.closed {
		if full {
			s.stats.rejected++
			s.log.WithFields(logrus.Fields{"client": c.host, "limit": s.o.MaxClientCnxns}).Warn("too many connections from this address (maxClientCnxns); one was closed")
		}
		s.mu.Unlock()
		nc.Close()
		return
	}
	s.lastConn++
	c.id = s.lastConn
	s.conns[c.id] = c
	if !inMemory {
		c.counted = true
		s.perAddr[c.host]++
	}
	s.wg.Add(1)
	s.mu.Unlock()
	go c.serve()
}

// Close ends the server: what was answered is on disk, connections are closed,
// and all of its goroutines have ended when it returns. Sessions stay as they
// are for the next server on the directory.
func (s *Server) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.closed = true
	close(s.done)
	for _, stop := range s.stopTimers {
		stop()
	}
	for l := range s.lists {
		l.Close()
	}
	for _, c := range s.conns {
		s.cut(c)
	}
	for c := range s.ending {
		c.nc.Close()
	}
	s.resumed.Broadcast()
	s.mu.Unlock()
	s.wg.Wait()
	return s.closeFiles()
}

// Look calls f under the server's lock. f may read the tree, and must keep
// nothing of it.
func (s *Server) Look(f func(*Tree)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.tree)
}

// SessionInfo is one live session.
type SessionInfo struct {
	ID         int64
	Timeout    time.Duration
	Client     string // address of its connection; "": nobody is connected
	Ephemerals []string
}

// Sessions lists the live sessions by id.
func (s *Server) Sessions() []SessionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []SessionInfo
	for _, sess := range s.sessions {
		info := SessionInfo{ID: sess.id, Timeout: sess.timeout, Ephemerals: s.tree.Ephemerals(sess.id)}
		if sess.conn != nil {
			info.Client = sess.conn.nc.RemoteAddr().String()
		}
		all = append(all, info)
	}
	slices.SortFunc(all, func(a, b SessionInfo) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return all
}

// Expire ends a session as if its time had run out: its ephemerals go, its
// connection is closed without a word. False: there is no such session.
func (s *Server) Expire(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.sessions[id]
	if sess == nil || s.closed {
		return false
	}
	s.endSession(sess, 0)
	s.settle(nil)
	return true
}

// Disconnect closes a session's connection; the session lives on. False: there
// is no such session, or nobody is connected.
func (s *Server) Disconnect(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.sessions[id]
	if sess == nil || sess.conn == nil {
		return false
	}
	s.cut(sess.conn)
	return true
}

// Pause makes the server hang: connections are accepted, but no request is
// answered and no session expires. Resume ends it; every session then has its
// full timeout again.
func (s *Server) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
}

// stands tells whether the server hangs, or does not accept sessions yet.
func (s *Server) stands() bool { return s.paused || s.snap.first }

// Resume ends a Pause.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	for _, sess := range s.sessions {
		s.touch(sess, s.ticks())
	}
	s.resumed.Broadcast()
}

// openSession makes a session for a client; it costs a zxid.
func (s *Server) openSession(timeout time.Duration) *session {
	s.lastID++
	for s.sessions[s.lastID] != nil {
		s.lastID++
	}
	sess := &session{id: s.lastID, timeout: timeout}
	s.sessions[sess.id] = sess
	zxid := s.tree.OpenSession(sess.id)
	s.touch(sess, s.ticks())
	if s.durable() {
		s.append(&zkwire.Txn{Session: sess.id, Zxid: zxid, Time: s.now(), Record: &zkwire.TxnCreateSession{Timeout: int32(timeout / time.Millisecond)}})
	}
	return sess
}

// endSession closes a session with its ephemerals, in one transaction, and
// tells those who watch. Its connection is cut, unless it asked for it itself.
func (s *Server) endSession(sess *session, cxid int32) {
	delete(s.sessions, sess.id)
	s.unfile(sess)
	res := s.tree.CloseSession(sess.id)
	if s.durable() {
		s.append(&zkwire.Txn{Session: sess.id, Cxid: cxid, Zxid: res.Zxid, Time: s.now(), Record: &zkwire.TxnCloseSession{Paths: res.Closed, Known: true}})
	}
	if c := sess.conn; c != nil {
		sess.conn, c.sess = nil, nil
		if !c.closing {
			s.cut(c)
		}
	}
	s.deliver(res.Fired)
}

// deliver puts notices where their connections will be sent them. A watcher
// that may not read the node hears nothing (spec/zookeeper.md §4.8).
func (s *Server) deliver(fired []Fired) {
	for i := range fired {
		f := &fired[i]
		if c := s.conns[f.Watcher]; c != nil && Permits(c.who.Identities, PermRead, f.ACL) {
			c.notice(f)
		}
	}
}

// now is the time that nodes are stamped with, in milliseconds.
func (s *Server) now() int64 { return s.o.Clock.Now().UnixMilli() }
