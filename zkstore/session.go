package zkstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/sirupsen/logrus"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// State of a Session.
type State int

const (
	Connecting State = iota // no session yet
	Connected               // requests are sent
	Suspended               // the connection is down, or its watches are being looked at again
	Expired                 // over: by the server's word, or out of reach for a whole time-out
	Closed                  // over: Close was called
)

var stateNames = [...]string{"CONNECTING", "CONNECTED", "SUSPENDED", "EXPIRED", "CLOSED"}

// String gives the state's name in capitals, as the SessionState gauge shows it.
func (s State) String() string { return stateNames[s] }

// Session is one ZooKeeper session. It never becomes another one: after
// Expired, close it and Dial again. Its methods may be called from any
// goroutine.
type Session struct {
	opt    Options
	log    logrus.FieldLogger
	link   *link
	conn   *zk.Conn
	ready  chan struct{} // closed when conn is set
	acls   aclSet
	bulk   *bulk
	arms   *arms
	queue  *notices
	stats  counters
	slots  chan struct{} // one per request in flight
	multis chan struct{} // held while a multi is on its way to the socket
	id     atomic.Int64

	cancel   context.CancelFunc // ends link.ctx
	over     chan struct{}      // closed when the session is over
	expired  chan struct{}      // closed when it is over by expiry
	loopDone chan struct{}      // the library's goroutines have ended
	wg       sync.WaitGroup     // our goroutines

	mu      sync.Mutex
	state   State
	change  chan struct{} // closed and replaced at each change of state
	turn    int           // counts connections: a resync of an older one is void
	ended   bool
	suspect *time.Timer
}

// Dial makes a session and waits for it, at most Options.ConnectTimeout. notify
// is called for every notice, in order, from one goroutine; it may block, but
// must not call Close. Paths given and returned are without the chroot, which is
// made if it is missing.
func Dial(ctx context.Context, opt Options, notify func(zkpaths.Notice)) (*Session, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	lctx, cancel := context.WithCancel(context.Background())
	s := &Session{
		opt: opt, log: opt.Log, link: newLink(lctx, opt), ready: make(chan struct{}), acls: newACLs(),
		arms: newArms(), queue: newNotices(), slots: make(chan struct{}, opt.InFlight), multis: make(chan struct{}, 1),
		cancel: cancel, over: make(chan struct{}), expired: make(chan struct{}), loopDone: make(chan struct{}),
		change: make(chan struct{}),
	}
	s.bulk = newBulk(s)
	conn, events, err := zk.Connect(opt.Servers, opt.SessionTimeout, zk.WithEventCallback(s.onEvent),
		zk.WithHostProvider(s.link), zk.WithDialer(s.link.dial), zk.WithLogger(quiet{s.log}), zk.WithLogInfo(false))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("connect to ZooKeeper at %s: %w", strings.Join(opt.Servers, ","), err)
	}
	s.conn = conn
	close(s.ready)
	s.wg.Add(1)
	go func() { // the channel is not listened to: it drops what it cannot hold
		defer s.wg.Done()
		for range events {
		}
		close(s.loopDone)
	}()
	s.wg.Add(1)
	go func() { defer s.wg.Done(); s.queue.deliver(notify, s.over) }()

	if err := s.establish(ctx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = s.Close(ctx) // there is no session whose end would matter
		return nil, err
	}
	return s, nil
}

// establish waits for the session, authenticates it and makes the chroot.
func (s *Session) establish(ctx context.Context) error {
	where := strings.Join(s.opt.Servers, ",")
	wait, cancel := context.WithTimeout(ctx, s.opt.ConnectTimeout)
	defer cancel()
	fail := func(doing string, err error) error {
		if ctx.Err() == nil && wait.Err() != nil {
			err = fmt.Errorf("not done within %s (last: %v)", s.opt.ConnectTimeout, s.link.lastError())
		}
		return fmt.Errorf("%s ZooKeeper at %s: %w", doing, where, err)
	}
	if err := s.wait(wait); err != nil {
		return fail("open a session with", err)
	}
	for _, a := range s.opt.Auth {
		_, err := call(wait, s, func() (struct{}, error) { return struct{}{}, s.conn.AddAuth(a.Scheme, a.Data) })
		if err != nil {
			return fail("authenticate ("+a.Scheme+") with", err)
		}
	}
	if err := s.makeChroot(wait); err != nil {
		return fail("make chroot "+s.opt.Chroot+" in", err)
	}
	return nil
}

func (s *Session) makeChroot(ctx context.Context) error {
	if s.opt.Chroot == "" {
		return nil
	}
	exists := func(p string) (bool, error) {
		return retried(ctx, s, func() (bool, error) { ok, _, err := s.conn.Exists(p); return ok, err })
	}
	if ok, err := exists(s.opt.Chroot); ok || err != nil {
		return err
	}
	for i, c := range s.opt.Chroot + "/" {
		if c != '/' || i == 0 {
			continue
		}
		p := s.opt.Chroot[:i]
		ok, err := exists(p)
		if err == nil && !ok {
			_, err = retried(ctx, s, func() (string, error) { return s.conn.Create(p, nil, 0, s.aclFor("/")) })
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

// retried repeats an idempotent request until it is answered.
func retried[T any](ctx context.Context, s *Session, f func() (T, error)) (T, error) {
	for {
		v, err := call(ctx, s, f)
		if fate, _ := judge(err); fate == answered || fate == expired || stop(ctx, err) {
			return v, err
		}
	}
}

// stop tells whether an error is not the library's but ours: the caller left,
// or the session is over.
func stop(ctx context.Context, err error) bool {
	return errors.Is(err, zkpaths.ErrSessionExpired) || ctx.Err() != nil && errors.Is(err, ctx.Err())
}

// ID is the session's id: the ephemeralOwner of its ephemeral nodes.
func (s *Session) ID() int64 { return s.id.Load() }

// Timeout is the session time-out that the server granted.
func (s *Session) Timeout() time.Duration { return time.Duration(s.link.granted.Load()) }

// Expired is closed when the session has expired. Close does not close it.
func (s *Session) Expired() <-chan struct{} { return s.expired }

// State tells where the session stands.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// onEvent is called by the library's own goroutines, in order. It must not
// block, nor call what waits for an answer.
func (s *Session) onEvent(e zk.Event) {
	if e.Type != zk.EventSession && s.link.faking.Load() {
		return
	}
	switch e.Type {
	case zk.EventSession:
		switch e.State {
		case zk.StateHasSession:
			s.onConnected()
		case zk.StateDisconnected:
			s.onDisconnected()
		case zk.StateExpired:
			s.log.WithField("session", sessionName(s.ID())).Warn("ZooKeeper session expired")
			s.end(Expired)
			s.wg.Add(1) // also while Close waits: the library's loop, which calls here, is still counted
			// Closing keeps the library from opening a session of its own, which the link
			// lets it no more. Here, on its own loop, it would wait a second for itself.
			go func() { defer s.wg.Done(); <-s.ready; s.conn.Close(); s.link.drop() }()
		}
	case zk.EventNodeCreated:
		s.onNotice(zkpaths.NodeCreated, e.Path, onMain)
	case zk.EventNodeDeleted:
		s.link.unwatch(e.Path)
		s.onNotice(zkpaths.NodeDeleted, e.Path, onMain)
	case zk.EventNodeDataChanged:
		s.onNotice(zkpaths.NodeDataChanged, e.Path, onMain)
	case zk.EventNodeChildrenChanged:
		s.onNotice(zkpaths.NodeChildrenChanged, e.Path, onMain)
	}
}

func (s *Session) onNotice(t zkpaths.NoticeType, path string, from home) {
	if s.arms.fire(t, path, from) {
		s.queue.put(zkpaths.Notice{Type: t, Path: s.inner(path)})
	}
}

func (s *Session) onConnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.turn++
	s.stats.connects.Add(1)
	if s.suspect != nil {
		s.suspect.Stop()
	}
	turn, first := s.turn, s.state == Connecting
	// Marked now, before the library can bring notices of the new connection.
	watches := s.arms.suspend()
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		<-s.ready
		s.id.Store(s.conn.SessionID())
		if !first && !s.resync(turn, watches) {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.turn == turn && !s.ended {
			s.setState(Connected)
		}
	}()
}

func (s *Session) onDisconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn++
	if s.ended || s.state == Connecting {
		return
	}
	if s.state == Connected {
		s.stats.disconnects.Add(1)
		s.log.WithField("error", s.link.lastError()).Warn("connection to ZooKeeper lost")
	}
	s.setState(Suspended)
	if s.suspect != nil {
		s.suspect.Stop()
	}
	s.suspect = time.AfterFunc(s.Timeout()-s.link.silent(), s.checkSuspect)
}

// checkSuspect declares a session expired that was not heard of for its whole
// time-out: the server has, or will have, ended it.
func (s *Session) checkSuspect() {
	left := s.Timeout() - s.link.silent()
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return
	}
	if left > 0 {
		if s.state == Suspended {
			s.suspect = time.AfterFunc(left, s.checkSuspect)
		}
		s.mu.Unlock()
		return
	}
	s.wg.Add(1)
	s.mu.Unlock()
	s.log.WithField("session", sessionName(s.ID())).Warn("no word from ZooKeeper for a whole session time-out: the session is treated as expired")
	s.end(Expired)
	go func() { defer s.wg.Done(); s.conn.Close(); s.link.drop() }()
}

// setState is called with mu held.
func (s *Session) setState(st State) {
	s.state = st
	close(s.change)
	s.change = make(chan struct{})
}

// track counts goroutines that Close waits for; false: it is too late to start any.
func (s *Session) track(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.wg.Add(n)
	}
	return !s.ended
}

// end makes the session over; true for the first caller. One that is closed lets
// nothing new in from now on, and is over when Close has closed over.
func (s *Session) end(st State) bool {
	if !s.setEnded(st) {
		return false
	}
	if st == Expired {
		s.bulk.close(context.Background(), false)
	}
	return true
}

func (s *Session) setEnded(st State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.ended = true
	if s.suspect != nil {
		s.suspect.Stop()
	}
	s.setState(st)
	if st == Expired {
		s.stats.expiries.Add(1)
		close(s.expired)
		s.cancel()
		close(s.over)
	}
	return true
}

// wait returns when requests may be sent.
func (s *Session) wait(ctx context.Context) error {
	for {
		s.mu.Lock()
		st, change := s.state, s.change
		s.mu.Unlock()
		switch st {
		case Connected:
			if s.link.silent() <= s.Timeout() {
				return nil
			}
			s.checkSuspect()
			continue
		case Expired, Closed:
			return zkpaths.ErrSessionExpired
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// enter waits for the gate and a slot; leave gives the slot back.
func (s *Session) enter(ctx context.Context) error {
	for {
		if err := s.wait(ctx); err != nil {
			return err
		}
		select {
		case s.slots <- struct{}{}:
		case <-s.over:
			return zkpaths.ErrSessionExpired
		case <-ctx.Done():
			return ctx.Err()
		}
		// The gate may have shut while we queued for the slot.
		s.mu.Lock()
		open := s.state == Connected
		if open {
			s.wg.Add(1)
		}
		s.mu.Unlock()
		if open {
			return nil
		}
		<-s.slots
	}
}

func (s *Session) leave() {
	<-s.slots
	s.wg.Done()
}

// call runs one request of the library, which knows no context. A caller that
// leaves early abandons the request: its effect is then unknown.
func call[T any](ctx context.Context, s *Session, f func() (T, error)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if err := s.enter(ctx); err != nil {
		return none, err
	}
	return direct(ctx, s, func() (T, error) { defer s.leave(); return f() })
}

// direct is call without the gate: for the resync, which happens behind it.
func direct[T any](ctx context.Context, s *Session, f func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	begun := time.Now()
	s.stats.requests.Add(1)
	go func() {
		v, err := f()
		s.stats.latency(time.Since(begun))
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		if fate, _ := judge(r.err); fate == expired || fate == unknown && s.isOver() {
			return r.v, zkpaths.ErrSessionExpired
		}
		return r.v, r.err
	case <-s.over:
		// The library fails its requests when it is closed; a result that is
		// there already is better than none.
		select {
		case r := <-done:
			if r.err == nil {
				return r.v, nil
			}
		default:
		}
		var none T
		return none, zkpaths.ErrSessionExpired
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (s *Session) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// Close ends the session: its ephemeral nodes go now if ZooKeeper can be
// reached. It returns within a few seconds even if not, and earlier if ctx ends.
func (s *Session) Close(ctx context.Context) error {
	s.mu.Lock()
	up := s.state == Connected
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, closePatience)
	defer cancel()
	if s.end(Closed) {
		if up {
			s.drain(ctx)
		} else {
			s.cancel()
			s.link.drop() // nobody answers there
		}
		close(s.over)
		s.bulk.close(ctx, up)
		s.wg.Add(1)
		go func() { defer s.wg.Done(); s.conn.Close() }()
		select {
		case <-s.loopDone:
		case <-ctx.Done():
		}
	}
	s.cancel()
	s.link.drop()
	ended := make(chan struct{})
	go func() { s.wg.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the ZooKeeper session: %w", ctx.Err())
	}
}

const closePatience = 3 * time.Second

// drain waits a moment for the requests in flight, so that their callers get
// the answers: the library fails them at its Close even if the server executes
// them (spec/zookeeper.md §1.3, 16).
func (s *Session) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for range cap(s.slots) {
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// checkPath refuses what would leave the chroot; all else is the server's to judge.
func checkPath(path string) error {
	if !strings.HasPrefix(path, "/") {
		return fmt.Errorf("path %q does not begin with /", path)
	}
	return nil
}

// outer gives the server's path; inner takes the chroot off.
func (s *Session) outer(path string) string {
	if s.opt.Chroot == "" {
		return path
	}
	if path == "/" {
		return s.opt.Chroot
	}
	return s.opt.Chroot + path
}

func (s *Session) inner(path string) string {
	if p := strings.TrimPrefix(path, s.opt.Chroot); p != "" {
		return p
	}
	return "/"
}

func sessionName(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }

// quiet takes the library's log lines down to debug: what matters is logged here.
type quiet struct{ log logrus.FieldLogger }

func (q quiet) Printf(format string, args ...any) {
	q.log.WithField("message", fmt.Sprintf(format, args...)).Debug("ZooKeeper client")
}
