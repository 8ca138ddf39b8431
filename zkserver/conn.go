package zkserver

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

const (
	handshakeTime = 10 * time.Second // for a connection to get a session
	lingerTime    = time.Second      // that a client has to notice the end of its connection before its packets are refused
	batchFrames   = 64               // requests that one hold of the lock carries out at most
	batchBytes    = 256 << 10        // or so many bytes of them
	readSmall     = 4 << 10          // an idle connection's read buffer
	readLarge     = 64 << 10         // a busy one's; only a single longer frame needs more
	sendKeep      = 256 << 10        // a longer send buffer is not kept for another use
	sendHigh      = 1 << 20          // so much unsent: no more requests are read
	sendTotal     = 256 << 20        // so much unsent to all clients together: those with the most lose their connections
	sendMax       = 64 << 20         // so much unsent: a client that is too slow for its notices, or asks for too much at once, loses its connection
)

// conn is one client's connection. Its reader goroutine carries out its
// requests and sends the answers itself; only notices, and answers that wait
// for the disk, are sent by a goroutine that lives as long as there is
// something to send. Below "under the lock", all is guarded by Server.mu.
type conn struct {
	s    *Server
	nc   net.Conn
	id   Watcher
	host string // its address without the port, as the ip scheme has it
	in   frames

	// Under the lock.
	who      Who
	sess     *session
	out      []byte    // answers and notices not yet being written
	unsent   int64     // bytes of out, and of what is being written
	marks    []mark    // up to where out may be sent once which zxid is durable; none in memory
	writing  bool      // somebody is writing to nc, or about to
	dirty    bool      // it is in Server.dirty
	waiting  bool      // it is in keeper.waiting
	closing  bool      // nothing more is read; it is closed when out is sent
	dead     bool      // nothing is sent any more: nc is closed, or its client is about to see its end
	drained  bool      // the reader has ended and reads no more
	counted  bool      // it counts for maxClientCnxns
	room     sync.Cond // out has become shorter, or the connection has ended
	readOnly bool      // the client knows of read-only servers: answers have the flag
	info     connStats
}

// mark says that the bytes of out before end wait for zxid to be durable.
type mark struct {
	zxid int64
	end  int
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{s: s, nc: nc}
	c.host = nc.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(c.host); err == nil {
		c.host = host
	}
	c.who.Identities = []Identity{{Scheme: "ip", ID: c.host}}
	c.room.L = &s.mu
	c.info.since = s.o.Clock.Now()
	c.info.minLatency = -1
	c.in.limit = s.o.MaxBuffer
	return c
}

// serve is the reader: it ends with the connection.
func (c *conn) serve() {
	defer c.s.wg.Done()
	defer c.drain()
	defer c.end()
	c.nc.SetReadDeadline(time.Now().Add(handshakeTime)) // an error shows at the next read
	if !c.open() {
		return
	}
	c.nc.SetReadDeadline(time.Time{})
	for {
		frame, err := c.in.peek()
		if err != nil {
			c.complain("a request has an impossible length", err)
			return
		}
		if frame == nil {
			if err := c.in.fill(c.nc); err != nil {
				c.gone(err)
				return
			}
			continue
		}
		if !c.batch() {
			return
		}
	}
}

// gone tells of an end that somebody may want to know about.
func (c *conn) gone(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return
	}
	if t, ok := c.nc.(*tls.Conn); ok && !t.ConnectionState().HandshakeComplete {
		c.complain("a client cannot agree with this server on TLS", err)
		return
	}
	c.s.log.WithError(err).WithField("client", c.nc.RemoteAddr().String()).Debug("a connection broke")
}

// complain logs what a client did wrong, once: its connection ends with it.
func (c *conn) complain(what string, err error) {
	c.s.log.WithError(err).WithField("client", c.nc.RemoteAddr().String()).Warn(what + "; the connection is closed")
}

// batch carries out the requests that have arrived, in one hold of the lock,
// and sends the answers. False: the connection is over.
func (c *conn) batch() bool {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.admit() {
		return false
	}
	now := s.o.Clock.Now()
	if c.sess != nil {
		s.touch(c.sess, now.Sub(s.began).Milliseconds())
	}
	ms := now.UnixMilli()
	n := 0
	for start := c.in.r; n < batchFrames && c.in.r-start < batchBytes && len(c.out) <= sendHigh && !c.closing; n++ {
		frame, err := c.in.peek()
		if frame == nil || err != nil {
			break
		}
		c.in.skip(frame)
		c.request(frame, ms)
	}
	s.stats.received += int64(n)
	c.info.received += int64(n)
	c.latency(now)
	s.trim()
	s.settle(c)
	return !c.closing && !c.dead
}

// admit waits until the connection's requests may be carried out: the server
// is not paused, the disk is not too far behind, the client takes its answers.
func (c *conn) admit() bool {
	s := c.s
	for !c.dead && !s.closed {
		switch {
		case s.stands() || s.behind():
			s.resumed.Wait()
		case len(c.out) > sendHigh:
			c.room.Wait()
		default:
			return !c.closing
		}
	}
	return false
}

// send begins a frame in out. Each finish ends the frame that send began.
func (c *conn) send() (mark int) {
	if c.out == nil {
		c.out = c.s.buffer()
	}
	c.out, mark = zkwire.BeginFrame(c.out)
	return mark
}

func (c *conn) finish(mark int) {
	c.out = zkwire.EndFrame(c.out, mark)
	c.s.stats.sent++
	c.info.sent++
	if c.dead {
		return // it was cut by what came before in the same request
	}
	c.unsent += int64(len(c.out) - mark)
	c.s.unsent += int64(len(c.out) - mark)
	if !c.dirty {
		c.dirty = true
		c.s.dirty = append(c.s.dirty, c)
	}
	if c.s.unsent > c.s.sendTotal {
		c.s.relieve()
	}
}

// relieve cuts off the clients for which most is queued, until there is room
// again: many that take nothing must not use up the memory together.
func (s *Server) relieve() {
	for s.unsent > s.sendTotal-s.sendTotal/8 {
		var most *conn
		for _, c := range s.conns {
			if most == nil || c.unsent > most.unsent {
				most = c
			}
		}
		if most == nil {
			return
		}
		most.overrun("too much is queued for all clients together, and most for one that does not take it; its connection is closed")
	}
}

// notice queues a watch notice. A client that takes none for too long is cut off.
func (c *conn) notice(f *Fired) {
	if c.dead || c.closing {
		return
	}
	if len(c.out) > c.s.sendMax {
		c.overrun("a client does not take its notices; the connection is closed")
		return
	}
	m := c.send()
	c.out = zkwire.ReplyHeader{Xid: zkwire.XidNotice, Zxid: f.Zxid}.Append(c.out)
	c.out = (&zkwire.WatcherEvent{Type: int32(f.Type), State: zkwire.StateSyncConnected, Path: f.Path}).Append(c.out)
	c.finish(m)
}

// overrun ends a connection for which too much is queued.
func (c *conn) overrun(why string) {
	c.s.log.WithFields(logrus.Fields{"client": c.nc.RemoteAddr().String(), "unsent_bytes": len(c.out)}).Warn(why)
	c.s.cut(c)
	c.out, c.marks = nil, nil
}

// settle ends a stretch of work under the lock: all that was queued meanwhile
// is on its way. What the connection own has to send is sent here, with the
// lock given up meanwhile; others get a goroutine.
func (s *Server) settle(own *conn) {
	zxid := s.tree.Zxid()
	for i, c := range s.dirty {
		s.dirty[i] = nil
		c.dirty = false
		if s.durable() && zxid > s.keep.durable {
			c.mark(zxid)
			if !c.waiting {
				c.waiting = true
				s.keep.waiting = append(s.keep.waiting, c)
			}
		}
		if c != own {
			s.wake(c)
		}
	}
	s.dirty = s.dirty[:0]
	if s.durable() {
		s.commit(own)
		s.maybeSnapshot()
	}
	if own != nil && own.mayWrite() {
		own.writing = true
		own.write()
	}
}

// wake has a connection's output sent by a goroutine, if there is any to send.
func (s *Server) wake(c *conn) {
	if c.mayWrite() && !s.closed {
		c.writing = true
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			s.mu.Lock()
			defer s.mu.Unlock()
			c.write()
		}()
	}
}

// mark notes that all that is in out waits for a zxid.
func (c *conn) mark(zxid int64) {
	if n := len(c.marks); n > 0 && c.marks[n-1].zxid == zxid {
		c.marks[n-1].end = len(c.out)
		return
	}
	c.marks = append(c.marks, mark{zxid, len(c.out)})
}

// sendable is how many bytes of out may be sent now.
func (c *conn) sendable() int {
	n := len(c.out)
	for i := range c.marks {
		if c.marks[i].zxid > c.s.keep.durable {
			n = 0
			if i > 0 {
				n = c.marks[i-1].end
			}
			break
		}
	}
	return n
}

func (c *conn) mayWrite() bool {
	return !c.writing && !c.dead && (c.closing || c.sendable() > 0)
}

// write sends what may be sent until nothing is left, giving up the lock for
// each write. The caller holds the lock and has set writing.
func (c *conn) write() {
	s := c.s
	for !c.dead {
		n := c.sendable()
		if n == 0 {
			break
		}
		buf := c.take(n)
		s.mu.Unlock()
		_, err := c.nc.Write(buf)
		// Many may wait for the lock, and none of them holds on to what is sent.
		sent := int64(len(buf))
		s.recycle(buf)
		s.mu.Lock()
		if !c.dead {
			c.unsent -= sent
			s.unsent -= sent
		}
		if c.sess != nil && sent > readLarge { // who takes so much is alive, also while its pings wait
			s.touch(c.sess, s.ticks())
		}
		if err != nil {
			s.cut(c)
		}
		c.room.Broadcast()
	}
	c.writing = false
	if c.closing && len(c.out) == 0 {
		s.cut(c)
	}
}

// take removes the first n bytes of out.
func (c *conn) take(n int) []byte {
	buf := c.out[:n]
	if n == len(c.out) {
		c.out, c.marks = nil, c.marks[:0]
		return buf
	}
	c.out = append(c.s.buffer(), c.out[n:]...)
	left := c.marks[:0]
	for _, m := range c.marks {
		if m.end > n {
			left = append(left, mark{m.zxid, m.end - n})
		}
	}
	c.marks = left
	return buf
}

// buffer gives an empty send buffer, recycle takes one back.
func (s *Server) buffer() []byte {
	if p, ok := s.bufs.Get().(*[]byte); ok {
		return (*p)[:0]
	}
	return make([]byte, 0, 4<<10)
}

func (s *Server) recycle(b []byte) {
	if cap(b) <= sendKeep {
		s.bufs.Put(&b)
	}
}

// cut ends a connection at once: what it has not been sent is lost, its
// session lives on. Under the lock; closing a TLS connection may take a
// while, so that has a goroutine of its own.
func (s *Server) cut(c *conn) {
	if c.dead {
		return
	}
	c.dead, c.closing = true, true
	s.unsent -= c.unsent
	c.unsent = 0
	s.forget(c)
	delete(s.conns, c.id)
	if c.counted {
		if s.perAddr[c.host]--; s.perAddr[c.host] <= 0 {
			delete(s.perAddr, c.host)
		}
	}
	c.room.Broadcast()
	s.resumed.Broadcast()
	if tcp, ok := c.nc.(*net.TCPConn); ok {
		if c.drained || s.closed {
			c.nc.Close()
			return
		}
		// Errors show at the next read. A write that is under way ends.
		s.ending[c] = struct{}{}
		tcp.CloseWrite()
		tcp.SetReadDeadline(time.Now().Add(lingerTime))
		tcp.SetWriteDeadline(time.Now())
		return
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		c.nc.Close()
	}()
}

// forget parts a connection from its watches and its session, which both end
// with the reading from it.
func (s *Server) forget(c *conn) {
	s.tree.DropWatcher(c.id)
	if c.sess != nil && c.sess.conn == c {
		c.sess.conn = nil
	}
	c.sess = nil
}

// end is the reader's last act: the connection closes once all is sent, which
// must not take the client for ever.
func (c *conn) end() {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	c.closing = true
	s.forget(c)
	if c.dead {
		return
	}
	if len(c.out) == 0 && !c.writing {
		s.cut(c)
		return
	}
	c.nc.SetWriteDeadline(time.Now().Add(handshakeTime)) // an error shows at the write
	s.wake(c)
}

// drain lets what the client still sends come to nothing for a while. Packets
// to a closed socket are answered with a reset, and that may reach the client
// before the last answer does.
func (c *conn) drain() {
	s := c.s
	if tcp, ok := c.nc.(*net.TCPConn); ok {
		tcp.SetReadDeadline(time.Now().Add(lingerTime)) // an error shows at the read
		io.Copy(io.Discard, struct{ io.Reader }{tcp})   // whatever ends it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.drained = true
	delete(s.ending, c)
	if c.dead {
		c.nc.Close()
	}
}

// frames takes a connection's bytes apart. The buffer is small while little
// comes, and grows with what has arrived, never by what a length promises.
type frames struct {
	buf   []byte
	r, w  int // what is read but not taken
	limit int
	quiet int // reads in a row that a small buffer had done for
}

// peek gives the next whole frame without its length, nil if it is not there.
func (f *frames) peek() ([]byte, error) {
	if f.w-f.r < 4 {
		return nil, nil
	}
	n := int(int32(binary.BigEndian.Uint32(f.buf[f.r:])))
	switch {
	case n < 0 || n > f.limit:
		return nil, fmt.Errorf("%w: %d bytes, at most %d", zkwire.ErrFrameSize, n, f.limit)
	case f.w-f.r-4 < n:
		return nil, nil
	}
	return f.buf[f.r+4 : f.r+4+n : f.r+4+n], nil
}

// skip takes away what peek gave. The bytes stay valid until fill.
func (f *frames) skip(frame []byte) {
	if f.r += 4 + len(frame); f.r == f.w {
		f.r, f.w = 0, 0
	}
}

// fill reads more.
func (f *frames) fill(r io.Reader) error {
	if f.buf == nil {
		f.buf = make([]byte, readSmall)
	}
	if f.r > 0 {
		f.w = copy(f.buf, f.buf[f.r:f.w])
		f.r = 0
	}
	switch {
	case f.w == len(f.buf):
		f.resize(2 * len(f.buf))
	case f.w == 0 && len(f.buf) > readLarge:
		f.resize(readLarge)
	case f.w == 0 && f.quiet > 32 && len(f.buf) > readSmall:
		f.resize(readSmall)
	}
	n, err := r.Read(f.buf[f.w:])
	f.w += n
	switch {
	case n > 0 && f.w == len(f.buf) && len(f.buf) < readLarge:
		f.resize(min(4*len(f.buf), readLarge))
		f.quiet = 0
	case n < readSmall/2:
		f.quiet++
	default:
		f.quiet = 0
	}
	if n > 0 {
		return nil
	}
	return err
}

func (f *frames) resize(size int) {
	buf := make([]byte, size)
	f.w = copy(buf, f.buf[f.r:f.w])
	f.r, f.buf, f.quiet = 0, buf, 0
}
