package zkstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

// bulk is the second connection, which reads many znodes in few packets. It has
// a ZooKeeper session of its own, is opened by the first use, and is opened
// again while it holds watches. It is never needed: without it, or with a
// server that does not know multiRead, everything goes over the main connection.
type bulk struct {
	s *Session

	acked  atomic.Int64 // highest zxid in an answer: every notice up to it has been delivered
	shown  atomic.Int64 // highest zxid whose state a caller may have seen
	blind  atomic.Int64 // notices without a zxid so far (servers before 3.9)
	seen   atomic.Int64 // how many of them an answer here, or a sync there, has covered since
	lagged atomic.Bool  // this server was behind the main connection's once

	mu          sync.Mutex
	cur         *pipe
	dialing     chan struct{} // closed when the attempt under way has ended
	sid         int64
	pass        []byte
	unsupported bool      // multiRead was answered as unknown
	proven      bool      // multiRead was answered
	notBefore   time.Time // of the next attempt
	reviving    bool
	closed      bool
	sizes       map[int]int // bytes a node by depth of path, from earlier answers
}

var errNoBulk = errors.New("no bulk connection")

const (
	bulkPause = 5 * time.Second // after a failed attempt, when nothing waits for its watches
	bulkClose = 500 * time.Millisecond
)

func newBulk(s *Session) *bulk { return &bulk{s: s, sizes: map[int]int{}} }

// get gives the live connection, opening it if there is none.
func (b *bulk) get(ctx context.Context) (*pipe, error) {
	for {
		b.mu.Lock()
		switch {
		case b.cur != nil && !b.unsupported:
			defer b.mu.Unlock()
			return b.cur, nil
		case b.closed, b.unsupported, time.Now().Before(b.notBefore):
			defer b.mu.Unlock()
			return nil, errNoBulk
		}
		wait := b.dialing
		if wait == nil {
			b.dialing = make(chan struct{})
			b.mu.Unlock()
			return b.attempt(ctx)
		}
		b.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// attempt connects; the caller has set dialing.
func (b *bulk) attempt(ctx context.Context) (*pipe, error) {
	p, err := b.connect(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.dialing)
	b.dialing = nil
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		b.notBefore = time.Now().Add(bulkPause)
		if !b.reviving {
			b.s.log.WithField("error", err).Warn("no bulk connection to ZooKeeper: reading over the main one")
		}
		return nil, fmt.Errorf("%w: %w", errNoBulk, err)
	case b.closed || p.broken():
		p.conn.Close()
		return nil, errNoBulk
	}
	b.cur = p
	return p, nil
}

func (p *pipe) broken() bool {
	select {
	case <-p.down:
		return true
	default:
		return false
	}
}

// connect opens or resumes the session, on the main connection's server first,
// authenticates, catches up and arms the watches again.
func (b *bulk) connect(ctx context.Context) (*pipe, error) {
	var errs []error
	servers := slices.Clone(b.s.opt.Servers)
	if at := slices.Index(servers, b.s.link.server()); at > 0 {
		servers[0], servers[at] = servers[at], servers[0]
	}
	for _, addr := range servers {
		for range 2 { // a refused resume is followed by a new session
			p, br, err := b.handshake(ctx, addr)
			if errors.Is(err, errRefused) {
				continue
			}
			if err != nil {
				errs = append(errs, err)
				break
			}
			if err = b.begin(ctx, p, br); err == nil {
				return p, nil
			}
			p.conn.Close()
			errs = append(errs, err)
			break
		}
	}
	return nil, errors.Join(errs...)
}

var errRefused = errors.New("the bulk session is over")

func (b *bulk) handshake(ctx context.Context, addr string) (*pipe, *bufio.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, b.s.link.patience())
	defer cancel()
	conn, err := b.s.opt.Dialer(ctx, "tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	until, _ := ctx.Deadline()
	conn.SetDeadline(until)
	b.mu.Lock()
	req := zkwire.ConnectRequest{LastZxid: max(b.shown.Load(), b.acked.Load()), Timeout: int32(b.s.opt.SessionTimeout.Milliseconds()),
		SessionID: b.sid, Password: b.pass, HasReadOnly: true}
	b.mu.Unlock()
	if req.SessionID == 0 {
		req.Password = make([]byte, 16)
	}
	buf, mark := zkwire.BeginFrame(nil)
	br := bufio.NewReaderSize(conn, 256<<10)
	var resp zkwire.ConnectResponse
	if _, err = conn.Write(zkwire.EndFrame(req.Append(buf), mark)); err == nil {
		b.s.stats.bulkPackets.Add(1)
		var frame []byte
		if frame, err = zkwire.ReadFrame(br, nil, 4096); err == nil {
			d := zkwire.NewDecoder(frame)
			resp.Decode(d)
			err = d.Err()
		}
	}
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("open a session with %s: %w", addr, err)
	}
	conn.SetDeadline(time.Time{})
	b.mu.Lock()
	defer b.mu.Unlock()
	if resp.SessionID == 0 || resp.Timeout <= 0 {
		conn.Close()
		if req.SessionID == 0 {
			return nil, nil, fmt.Errorf("%s refused a new session", addr)
		}
		b.sid, b.pass = 0, nil
		return nil, nil, errRefused
	}
	b.sid, b.pass = resp.SessionID, slices.Clone(resp.Password)
	return &pipe{conn: conn, addr: addr, b: b, timeout: time.Duration(resp.Timeout) * time.Millisecond, down: make(chan struct{})}, br, nil
}

// begin starts the connection's goroutines, authenticates, lets the server
// catch up and arms what was armed before. Relative to the last acknowledged
// zxid the server tells what changed meanwhile, whether the session is the old
// one or new.
func (b *bulk) begin(ctx context.Context, p *pipe, br *bufio.Reader) error {
	rel := b.acked.Load()
	if !b.s.track(2) {
		return errPipeClosed
	}
	go p.receive(br)
	go p.ping()
	for _, a := range b.s.opt.Auth {
		p.mu.Lock()
		p.write(zkwire.RequestHeader{Xid: zkwire.XidAuth, Op: zkwire.OpAuth}, (&zkwire.AuthRequest{Scheme: a.Scheme, Auth: a.Data}).Append)
		p.mu.Unlock()
	}
	if err := p.sync(b.s.outer("/")).wait(ctx, b.s.over); err != nil {
		return fmt.Errorf("sync with %s: %w", p.addr, err)
	}
	b.lagged.Store(false)
	var lists watchLists
	for _, a := range b.s.arms.bulk() {
		lists.add(a.key, a.base.exists)
	}
	for _, r := range lists.send(p, rel) {
		if err := r.wait(ctx, b.s.over); err != nil {
			return fmt.Errorf("set watches at %s: %w", p.addr, err)
		}
	}
	return nil
}

func (p *pipe) sync(path string) *reply {
	return p.send(zkwire.OpSync, func(b []byte) []byte { return zkwire.AppendString(b, path) })
}

// onNotice is called by the receiver, before it hands out any later answer.
func (b *bulk) onNotice(zxid int64, e zkwire.WatcherEvent) {
	t := zkpaths.NoticeType(e.Type)
	if t < zkpaths.NodeCreated || t > zkpaths.NodeChildrenChanged {
		return
	}
	if zxid > 0 {
		raise(&b.shown, zxid)
	} else {
		b.blind.Add(1)
	}
	b.s.onNotice(t, e.Path, onBulk)
}

// onDown notes that a connection ended, and sees to its watches.
func (b *bulk) onDown(p *pipe, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cur == p {
		b.cur = nil
	}
	if b.closed || b.reviving || !b.s.arms.anyBulk() {
		return
	}
	b.s.log.WithField("error", err).Warn("bulk connection to ZooKeeper lost")
	if b.s.track(1) {
		b.reviving = true
		go func() { defer b.s.wg.Done(); b.revive() }()
	}
}

// revive connects again, so that the watches live on. Watches that were blind
// for a whole session time-out are given up: each gets a notice, so that it is
// read, and armed, anew.
func (b *bulk) revive() {
	ctx, cancel := context.WithCancel(b.s.link.ctx)
	defer cancel()
	began, pause := time.Now(), 10*time.Millisecond
	for ctx.Err() == nil {
		b.mu.Lock()
		b.notBefore = time.Time{}
		b.mu.Unlock()
		_, err := b.get(ctx)
		b.mu.Lock()
		if err == nil || b.closed {
			b.reviving = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		if time.Since(began) > b.s.Timeout() {
			b.lapse()
			began = time.Now()
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		wait.Stop()
		pause = min(2*pause, time.Second)
		if !b.s.arms.anyBulk() {
			break
		}
	}
	b.mu.Lock()
	b.reviving = false
	b.mu.Unlock()
}

// lapse gives the watches up.
func (b *bulk) lapse() {
	all := b.s.arms.bulk()
	b.s.log.WithField("watches", len(all)).Warn("bulk connection to ZooKeeper stays away: its watches are told as changed")
	for _, a := range all {
		t := zkpaths.NodeDataChanged
		if a.key.table == childTable {
			t = zkpaths.NodeChildrenChanged
		} else if !a.base.exists {
			t = zkpaths.NodeCreated
		}
		b.s.arms.forget(a.key)
		b.s.queue.put(zkpaths.Notice{Type: t, Path: b.s.inner(a.key.path)})
	}
}

// giveUp marks the server as one that does not know multiRead.
func (b *bulk) giveUp(p *pipe) {
	b.mu.Lock()
	first := !b.unsupported
	b.unsupported = true
	b.mu.Unlock()
	if first {
		b.s.log.Info("ZooKeeper does not know multiRead (it is older than 3.6): reading over the main connection")
	}
	p.fail(errNoBulk)
}

// close ends the bulk connection for good, and its session if that can be done
// at once.
func (b *bulk) close(ctx context.Context, politely bool) {
	b.mu.Lock()
	b.closed = true
	p := b.cur
	b.cur = nil
	b.mu.Unlock()
	if p == nil {
		return
	}
	if politely {
		ctx, cancel := context.WithTimeout(ctx, bulkClose)
		stop := context.AfterFunc(ctx, func() { p.conn.Close() })
		<-p.send(zkwire.OpCloseSession, nil).done
		stop()
		cancel()
	}
	p.fail(net.ErrClosed)
}
