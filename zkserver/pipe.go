package zkserver

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// pipeRoom is how many bytes one direction of an in-memory connection holds
// before a Write waits.
const pipeRoom = 256 << 10

// newPipe gives both ends of an in-memory connection: buffered, unlike
// net.Pipe, with deadlines, and at home in a testing/synctest bubble. What was
// written before an end is closed can still be read at the other.
func newPipe() (client, server net.Conn) {
	a, b := newStream(), newStream()
	return &pipeEnd{in: a, out: b}, &pipeEnd{in: b, out: a}
}

type pipeEnd struct{ in, out *stream }

func (p *pipeEnd) Read(b []byte) (int, error)  { return p.in.read(b) }
func (p *pipeEnd) Write(b []byte) (int, error) { return p.out.write(b) }
func (p *pipeEnd) Close() error {
	p.in.closeReader()
	p.out.closeWriter()
	return nil
}
func (p *pipeEnd) LocalAddr() net.Addr  { return pipeAddr{} }
func (p *pipeEnd) RemoteAddr() net.Addr { return pipeAddr{} }
func (p *pipeEnd) SetDeadline(t time.Time) error {
	p.in.readBy.set(p.in, t)
	p.out.writeBy.set(p.out, t)
	return nil
}
func (p *pipeEnd) SetReadDeadline(t time.Time) error {
	p.in.readBy.set(p.in, t)
	return nil
}
func (p *pipeEnd) SetWriteDeadline(t time.Time) error {
	p.out.writeBy.set(p.out, t)
	return nil
}

// pipeAddr is the address of both ends.
type pipeAddr struct{}

func (pipeAddr) Network() string { return "memory" }
func (pipeAddr) String() string  { return "127.0.0.1:0" }

// stream is one direction.
type stream struct {
	mu              sync.Mutex
	changed         sync.Cond
	buf             []byte // what is to be read, from r on
	r               int
	noWriter        bool // the writing end is closed: EOF behind what is left
	noReader        bool // the reading end is closed
	readBy, writeBy deadline
}

func newStream() *stream {
	s := &stream{}
	s.changed.L = &s.mu
	return s
}

// deadline is a time after which an operation fails. A later set makes an
// alarm that is under way void.
type deadline struct {
	timer  *time.Timer
	passed bool
	turn   int
}

func (d *deadline) set(s *stream, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.turn++
	turn, left := d.turn, time.Until(t)
	d.passed = !t.IsZero() && left <= 0
	if !t.IsZero() && !d.passed {
		d.timer = time.AfterFunc(left, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if d.turn == turn {
				d.passed = true
				s.changed.Broadcast()
			}
		})
	}
	s.changed.Broadcast()
}

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.noReader:
			return 0, net.ErrClosed
		case s.readBy.passed:
			return 0, os.ErrDeadlineExceeded
		case len(b) == 0:
			return 0, nil
		case s.r < len(s.buf):
			n := copy(b, s.buf[s.r:])
			if s.r += n; s.r == len(s.buf) {
				s.r = 0
				if s.buf = s.buf[:0]; cap(s.buf) > 16<<10 {
					s.buf = nil
				}
			}
			s.changed.Broadcast()
			return n, nil
		case s.noWriter:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := 0
	for {
		switch {
		case s.noWriter:
			return done, net.ErrClosed
		case s.noReader:
			return done, io.ErrClosedPipe
		case s.writeBy.passed:
			return done, os.ErrDeadlineExceeded
		case len(b) == done:
			return done, nil
		}
		if room := pipeRoom - (len(s.buf) - s.r); room > 0 {
			if s.r > 0 && len(s.buf)+room > cap(s.buf) {
				s.buf = s.buf[:copy(s.buf, s.buf[s.r:])]
				s.r = 0
			}
			n := min(room, len(b)-done)
			s.buf = append(s.buf, b[done:done+n]...)
			done += n
			s.changed.Broadcast()
			continue
		}
		s.changed.Wait()
	}
}

func (s *stream) closeReader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noReader = true
	s.buf, s.r = nil, 0
	s.end()
}

func (s *stream) closeWriter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noWriter = true
	s.end()
}

// end stops the alarms of both sides once nobody can wait for them.
func (s *stream) end() {
	if s.noReader && s.readBy.timer != nil {
		s.readBy.timer.Stop()
	}
	if s.noWriter && s.writeBy.timer != nil {
		s.writeBy.timer.Stop()
	}
	s.changed.Broadcast()
}
