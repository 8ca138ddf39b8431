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

	"github.com/zkcontroller/zkcontroller/zkwire"
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

	faking atomic.Bool // the notices that come are our own: see wire.Read

	mu      sync.Mutex
	cur     net.Conn
	watched map[string]struct{} // paths that the library may hold watches on
	last    error               // of the last attempt to connect
	next    int
	used    int // attempts since the last success
}

var errSessionOver = errors.New("the session is over")

func newLink(ctx context.Context, opt Options) *link {
	return &link{opt: opt, ctx: ctx, epoch: time.Now(), sent: make(chan struct{}, 64), watched: map[string]struct{}{}}
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

// patience is the time for one server to accept and to finish the handshake. One
// that has just started may accept and never answer; were it given the whole
// time-out, the session would go with it. So the first attempts have a third
// and two thirds, and a server that is only slow has all of it from then on.
func (l *link) patience() time.Duration {
	l.mu.Lock()
	thirds := min(3, 1+max(0, l.used-1)/len(l.opt.Servers))
	l.mu.Unlock()
	return max(time.Second, l.opt.SessionTimeout/time.Duration(len(l.opt.Servers))*time.Duration(thirds)/3)
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
	handshake time.Time // deadline until the first frame is there
	open      atomic.Bool

	// The reader's alone:
	br    *bufio.Reader
	frame []byte   // being handed out
	buf   []byte   // for the next one
	ended error    // the connection's end, told when fakes is empty
	fakes []string // paths whose watches the library must forget first
}

// SetReadDeadline keeps to the deadline of the handshake until it is over: the
// library allows 6.7 session time-outs for it, and no end for its body
// (spec/zookeeper.md §1.3, 13).
func (w *wire) SetReadDeadline(t time.Time) error {
	if w.link.faking.Load() {
		return nil
	}
	return w.Conn.SetReadDeadline(w.clamp(t))
}

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
	// Told before it is on the socket: told after, the answer could be there
	// first, and the word be taken for the next multi's. The library writes on one
	// goroutine, so what is asked for now comes behind.
	if len(p) >= 12 && w.open.Load() && int32(binary.BigEndian.Uint32(p[8:])) == zkwire.OpMulti {
		select {
		case w.link.sent <- struct{}{}:
		default:
		}
	}
	if _, err := w.Conn.Write(p); err != nil {
		w.link.fail(fmt.Errorf("write to %s: %w", w.addr, err))
		w.Conn.Close()
	}
	return len(p), nil
}

// Read hands out frames as they are, whole ones only, and notes what their
// headers say. Before it tells the end of the connection it makes the library
// forget its watches, by notices of our own: it would arm them again behind our
// back, with a zxid that it reads while another goroutine writes it
// (spec/zookeeper.md §1.3, 2). The resync arms them.
func (w *wire) Read(p []byte) (int, error) {
	for len(w.frame) == 0 {
		if w.ended == nil {
			if err := w.nextFrame(); err != nil {
				w.link.fail(fmt.Errorf("read from %s: %w", w.addr, err))
				w.ended = err
				if w.open.Load() { // before the handshake the library takes what it reads for the answer to it
					w.fakes = w.link.forgetWatches()
					w.link.faking.Store(true)
				}
			}
		} else if len(w.fakes) > 0 {
			w.frame, w.fakes = fakeNotice(w.frame[:0], w.fakes[0]), w.fakes[1:]
		} else {
			w.link.faking.Store(false)
			return 0, w.ended
		}
	}
	n := copy(p, w.frame)
	w.frame = w.frame[n:]
	return n, nil
}

func (w *wire) nextFrame() error {
	limit := maxReply
	if !w.open.Load() {
		limit = 4096
	}
	whole, err := zkwire.ReadWholeFrame(w.br, w.buf, limit)
	if err != nil {
		return err
	}
	w.buf = whole
	body := whole[4:]
	w.link.heard.Store(int64(w.link.now()))
	d := zkwire.NewDecoder(body)
	if !w.open.Load() {
		var r zkwire.ConnectResponse
		if r.Decode(d); d.Err() != nil {
			return fmt.Errorf("connect response: %w", d.Err())
		}
		if r.Timeout > 0 {
			w.link.granted.Store(int64(time.Duration(r.Timeout) * time.Millisecond))
		}
		w.open.Store(true)
	} else {
		var h zkwire.ReplyHeader
		if h.Decode(d); d.Err() != nil {
			return fmt.Errorf("answer: %w", d.Err())
		}
		w.note(h.Xid, h.Zxid)
	}
	w.frame = whole
	return nil
}

// fakeNotice is a frame that says a node was deleted: it takes every kind of
// watch off the path.
func fakeNotice(b []byte, path string) []byte {
	b, mark := zkwire.BeginFrame(b)
	b = zkwire.ReplyHeader{Xid: zkwire.XidNotice, Zxid: -1}.Append(b)
	e := zkwire.WatcherEvent{Type: zkwire.NodeDeleted, State: zkwire.StateSyncConnected, Path: path}
	return zkwire.EndFrame(e.Append(b), mark)
}

// watching notes that the library may hold a watch on a path.
func (l *link) watching(path string) {
	l.mu.Lock()
	l.watched[path] = struct{}{}
	l.mu.Unlock()
}

// unwatch notes that it holds none any more.
func (l *link) unwatch(path string) {
	l.mu.Lock()
	delete(l.watched, path)
	l.mu.Unlock()
}

// forgetWatches gives all of them, and forgets them.
func (l *link) forgetWatches() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, 0, len(l.watched))
	for p := range l.watched {
		out = append(out, p)
	}
	clear(l.watched)
	return out
}

// note keeps the zxid of a frame. An answer covers every notice before it.
func (w *wire) note(xid int32, zxid int64) {
	raise(&w.link.zxid, zxid)
	if xid == zkwire.XidNotice {
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
