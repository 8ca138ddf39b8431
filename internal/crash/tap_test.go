package crash

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// tap is a relay between one controller process and ZooKeeper. It knows enough
// of the protocol to count the write requests that were answered, lets one of
// them through at a time while it is armed, and kills the process at one.
type tap struct {
	l      net.Listener
	target string
	kill   func() // SIGKILL; returns when the process is gone
	wg     sync.WaitGroup

	mu       sync.Mutex
	cond     *sync.Cond
	conns    map[net.Conn]struct{}
	armed    bool
	limit    int  // dies at this many
	answered bool // and sees the answer of the last one, up to its next write
	count    int  // writes answered since it was armed
	flying   bool // a write is on its way
	dead     chan struct{}
	dying    bool
	closed   bool
}

// never as a limit only counts.
const never = 1 << 30

func newTap(t *testing.T, target string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{l: l, target: target, conns: map[net.Conn]struct{}{}, dead: make(chan struct{})}
	p.cond = sync.NewCond(&p.mu)
	p.wg.Add(1)
	go p.serve()
	t.Cleanup(p.close)
	return p
}

// arm begins to count.
func (p *tap) arm(limit int, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.limit, p.answered, p.count = true, limit, answered, 0
}

func (p *tap) counted() int { p.mu.Lock(); defer p.mu.Unlock(); return p.count }

func (p *tap) close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.cond.Broadcast()
	p.mu.Unlock()
	p.l.Close()
	p.wg.Wait()
}

// die kills the process and cuts its lines, once.
func (p *tap) die() {
	p.mu.Lock()
	first := !p.dying
	p.dying = true
	p.mu.Unlock()
	if !first {
		return
	}
	p.kill()
	p.mu.Lock()
	for c := range p.conns {
		c.Close()
	}
	p.cond.Broadcast()
	p.mu.Unlock()
	close(p.dead)
}

func (p *tap) serve() {
	defer p.wg.Done()
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[s] = struct{}{}, struct{}{}
		if p.closed || p.dying {
			c.Close()
			s.Close()
		}
		p.mu.Unlock()
		line := &line{tap: p, client: c, server: s, writes: map[int32]bool{}}
		p.wg.Add(2)
		go line.relay(c, s, line.up)
		go line.relay(s, c, line.down)
	}
}

// line is one connection of the process.
type line struct {
	tap            *tap
	client, server net.Conn

	mu     sync.Mutex
	writes map[int32]bool // xids of write requests without an answer
}

// relay carries frames one way; pass says whether a frame goes on.
func (l *line) relay(from, to net.Conn, pass func(frame []byte) bool) {
	defer l.tap.wg.Done()
	defer from.Close()
	defer to.Close()
	for first := true; ; first = false {
		frame, err := zkwire.ReadWholeFrame(from, nil, 16<<20)
		if err != nil {
			return
		}
		// The first frame of a connection has no header: it opens the session.
		if !first && !pass(frame) {
			return
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

func isWriteOp(op int32) bool {
	switch op {
	case zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpMulti:
		return true
	}
	return false
}

// up sees requests.
func (l *line) up(frame []byte) bool {
	var h zkwire.RequestHeader
	h.Decode(zkwire.NewDecoder(frame[4:]))
	if !isWriteOp(h.Op) {
		return true
	}
	if !l.tap.admit() {
		return false
	}
	l.mu.Lock()
	l.writes[h.Xid] = true
	l.mu.Unlock()
	return true
}

// admit lets a write go; false if the process must not do it any more.
func (p *tap) admit() bool {
	p.mu.Lock()
	if !p.armed {
		p.mu.Unlock()
		return true
	}
	for p.flying && !p.closed && !p.dying {
		p.cond.Wait()
	}
	over := p.closed || p.dying
	last := !over && p.count >= p.limit
	if !over && !last {
		p.flying = true
	}
	p.mu.Unlock()
	if last {
		p.die()
	}
	return !over && !last
}

// down sees answers.
func (l *line) down(frame []byte) bool {
	var h zkwire.ReplyHeader
	h.Decode(zkwire.NewDecoder(frame[4:]))
	l.mu.Lock()
	write := l.writes[h.Xid]
	delete(l.writes, h.Xid)
	l.mu.Unlock()
	return !write || l.tap.landed()
}

// landed counts an answered write; false if the answer must not arrive.
func (p *tap) landed() bool {
	p.mu.Lock()
	if !p.armed {
		p.mu.Unlock()
		return true
	}
	p.count++
	p.flying = false
	last := p.count == p.limit
	p.cond.Broadcast()
	p.mu.Unlock()
	if last && !p.answered {
		p.die()
		return false
	}
	return true
}

// TestTap: of three writes sent at once the second is the last, and reads pass.
func TestTap(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var seen bytes.Buffer
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := server.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for first := true; ; first = false {
			f, err := zkwire.ReadFrame(c, nil, 1<<20)
			if err != nil {
				return
			}
			var h zkwire.RequestHeader
			h.Decode(zkwire.NewDecoder(f))
			out, mark := zkwire.BeginFrame(nil)
			if !first {
				seen.WriteByte(byte('0' + h.Op))
				out = zkwire.ReplyHeader{Xid: h.Xid}.Append(out)
			}
			if _, err := c.Write(zkwire.EndFrame(out, mark)); err != nil {
				return
			}
		}
	}()
	p := newTap(t, server.Addr().String())
	p.kill = func() {}
	p.arm(2, false)
	c, err := net.Dial("tcp", p.l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send := func(xid, op int32) {
		b, mark := zkwire.BeginFrame(nil)
		c.Write(zkwire.EndFrame(zkwire.RequestHeader{Xid: xid, Op: op}.Append(b), mark))
	}
	send(0, 0)
	for i, op := range []int32{zkwire.OpSetData, zkwire.OpGetData, zkwire.OpCreate, zkwire.OpDelete} {
		send(int32(i+1), op)
	}
	answers, _ := io.ReadAll(c)
	<-p.dead
	<-served
	if got := seen.String(); got != "541" {
		t.Errorf("the server saw the ops %s, expected set, get, create", got)
	}
	if most := 4 + 2*20; len(answers) > most {
		t.Errorf("%d bytes of answers, expected %d at most: the second write's is kept back", len(answers), most)
	}
	if p.counted() != 2 {
		t.Errorf("counted %d", p.counted())
	}
}
