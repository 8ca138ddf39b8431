package zkstore

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is the road under a zk.Conn: its dialer, its host provider and what can
// be seen on the wire but is not told by the library: the session time-out that
// was granted, the zxid of every answer, when the server was heard last, and
// when a multi has really been sent.
type link struct {
	opt   Options
	ctx   context.Context // ends with the session: nothing is dialled after that
	epoch time.Time       // base of heard

	zxid    atomic.Int64 // highest zxid in an answer
	blind   atomic.Bool  // a notice without a zxid came (servers before 3.9), and no answer since
	heard   atomic.Int64 // time of the last bytes from the server, since epoch
	granted atomic.Int64 // negotiated session time-out
	packets atomic.Int64 // frames sent
	written atomic.Int64 // bytes sent
	sent    chan struct{}

	mu   sync.Mutex
	cur  net.Conn
	last error // of the last attempt to connect
	next int
	used int // attempts since the last success
}

var errSessionOver = errors.New("the session is over")

func newLink(ctx context.Context, opt Options) *link {
	return &link{opt: opt, ctx: ctx, epoch: time.Now(), sent: make(chan struct{}, 64)}
}

func (l *link) now() time.Duration { return time.Since(l.epoch) }

// silent is how long the server has not been heard.
func (l *link) silent() time.Duration { return l.now() - time.Duration(l.heard.Load()) }

// Init, Len, Next and Connected make a link the zk.HostProvider: the library's
// own sleeps a second before each reconnect to a single server and resolves
// names only once (spec/zookeeper.md §1.3, 12).
func (l *link) Init([]string) error { return nil }

// Len is the number of servers.
func (l *link) Len() int { return len(l.opt.Servers) }

// Next gives the next server to try: the first round without a pause, then
// with growing ones. A link whose session is over says retryStart, since only
// there the library looks whether it was closed.
func (l *link) Next() (string, bool) {
	l.mu.Lock()
	s := l.opt.Servers[l.next%len(l.opt.Servers)]
	l.next++
	round := l.used / len(l.opt.Servers)
	l.used++
	l.mu.Unlock()
	if round > 0 {
		pause := time.NewTimer(min(25*time.Millisecond<<min(round, 6), time.Second))
		defer pause.Stop()
		select {
		case <-l.ctx.Done():
		case <-pause.C:
		}
	}
	return s, l.ctx.Err() != nil
}

// Connected starts the rounds anew. The next attempt tries the same server
// first: after a cut it has the session and the same view.
func (l *link) Connected() {
	l.mu.Lock()
	l.used = 0
	l.next += len(l.opt.Servers) - 1
	l.mu.Unlock()
}

// patience is the time for one server to accept and to finish the handshake.
func (l *link) patience() time.Duration {
	return max(time.Second, l.opt.SessionTimeout/time.Duration(len(l.opt.Servers)))
}

// dial is the zk.Dialer.
func (l *link) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	if l.ctx.Err() != nil {
		return nil, errSessionOver
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.patience())
	defer cancel()
	c, err := l.opt.Dialer(ctx, network, addr)
	if err != nil {
		l.fail(fmt.Errorf("connect to %s: %w", addr, err))
		return nil, err
	}
	w := &wire{Conn: c, link: l, addr: addr, br: bufio.NewReaderSize(c, 64<<10), handshake: time.Now().Add(l.patience())}
	l.mu.Lock()
	l.cur = w
	l.mu.Unlock()
	return w, nil
}

func (l *link) fail(err error) {
	l.mu.Lock()
	l.last = err
	l.mu.Unlock()
}

func (l *link) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// server is the address that the session is connected to, or "".
func (l *link) server() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w, ok := l.cur.(*wire); ok {
		return w.addr
	}
	return ""
}

// drop closes the socket: the library leaves it open after expiry.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cur != nil {
		l.cur.Close()
	}
}

// wire is one TCP connection of a link.
type wire struct {
	net.Conn
	link      *link
	addr      string
	br        *bufio.Reader
	left      int       // of the frame being read; br and left are the reader's alone
	handshake time.Time // deadline until the first frame is there; then zero
	open      atomic.Bool
}

// SetReadDeadline keeps to the deadline of the handshake until it is over: the
// library allows 6.7 session time-outs for it, and no end for its body
// (spec/zookeeper.md §1.3, 13).
func (w *wire) SetReadDeadline(t time.Time) error { return w.Conn.SetReadDeadline(w.clamp(t)) }

// SetWriteDeadline is clamped in the same way.
func (w *wire) SetWriteDeadline(t time.Time) error { return w.Conn.SetWriteDeadline(w.clamp(t)) }

func (w *wire) clamp(t time.Time) time.Time {
	if !w.open.Load() && (t.IsZero() || t.After(w.handshake)) {
		return w.handshake
	}
	return t
}

// Write sends one frame. An error closes the connection and is not told: the
// reader finds out. A write error told to the library while it sends
// credentials again locks it up for ever (spec/zookeeper.md §1.3, 7).
func (w *wire) Write(p []byte) (int, error) {
	w.link.packets.Add(1)
	w.link.written.Add(int64(len(p)))
	if _, err := w.Conn.Write(p); err != nil {
		w.link.fail(fmt.Errorf("write to %s: %w", w.addr, err))
		w.Conn.Close()
	}
	if len(p) >= 12 && w.open.Load() && int32(binary.BigEndian.Uint32(p[8:])) == opMulti {
		select {
		case w.link.sent <- struct{}{}:
		default:
		}
	}
	return len(p), nil
}

const opMulti = 14

// Read hands out frames as they are and notes what their headers say.
func (w *wire) Read(p []byte) (int, error) {
	if w.left == 0 {
		if err := w.nextFrame(); err != nil {
			w.link.fail(fmt.Errorf("read from %s: %w", w.addr, err))
			return 0, err
		}
	}
	n, err := w.br.Read(p[:min(len(p), w.left)])
	w.left -= n
	w.link.heard.Store(int64(w.link.now()))
	return n, err
}

func (w *wire) nextFrame() error {
	h, err := w.br.Peek(4)
	if err != nil {
		return err
	}
	n := int(int32(binary.BigEndian.Uint32(h)))
	if n < 0 || n > maxReply {
		return fmt.Errorf("frame of %d bytes", n)
	}
	if !w.open.Load() {
		// The connect response: protocol version, time-out, session id, password.
		// It is waited for as a whole while its deadline still stands.
		if n < 16 || n > 4096 {
			return fmt.Errorf("connect response of %d bytes", n)
		}
		if h, err = w.br.Peek(4 + n); err != nil {
			return err
		}
		if t := int32(binary.BigEndian.Uint32(h[8:])); t > 0 {
			w.link.granted.Store(int64(time.Duration(t) * time.Millisecond))
		}
		w.open.Store(true)
	} else if n >= 16 {
		if h, err = w.br.Peek(20); err != nil {
			return err
		}
		w.note(int32(binary.BigEndian.Uint32(h[4:])), int64(binary.BigEndian.Uint64(h[8:])))
	}
	w.left = 4 + n
	return nil
}

// note keeps the zxid of a frame. An answer covers every notice before it.
func (w *wire) note(xid int32, zxid int64) {
	raise(&w.link.zxid, zxid)
	if xid == -1 {
		w.link.blind.Store(zxid <= 0 || w.link.blind.Load())
	} else if zxid > 0 {
		w.link.blind.Store(false)
	}
}

// raise sets a to at least v.
func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

// maxReply bounds one answer. A Java client would refuse 1 MiB; lists of
// children may be larger.
const maxReply = 256 << 20
