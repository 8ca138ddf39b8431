package real

import (
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP relay on 127.0.0.1 whose connections a test can cut, hold and
// refuse. Cut is how a session is made to expire: pausing a server is not.
type Proxy struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu     sync.Mutex
	cond   *sync.Cond
	refuse bool // connections are closed at once
	hold   [2]bool
	conns  map[net.Conn]struct{}
	closed bool
	accept int
}

// Direction of bytes through a Proxy.
type Direction int

const (
	Up   Direction = iota // client to server: requests
	Down                  // server to client: answers
)

// NewProxy starts a relay to target, HOST:PORT, that ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("proxy to %s: %v", target, err)
	}
	p := &Proxy{l: l, target: target, conns: map[net.Conn]struct{}{}}
	p.cond = sync.NewCond(&p.mu)
	p.wg.Add(1)
	go p.serve()
	t.Cleanup(p.Close)
	return p
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// SetTarget changes where later connections go.
func (p *Proxy) SetTarget(addr string) { p.mu.Lock(); p.target = addr; p.mu.Unlock() }

// Cut closes every connection and refuses new ones until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Drop()
}

// Drop closes every connection; new ones are accepted.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
	p.cond.Broadcast()
}

// Hold stops the bytes of one direction until Release: the connection looks
// alive, and nothing arrives.
func (p *Proxy) Hold(d Direction) { p.mu.Lock(); p.hold[d] = true; p.mu.Unlock() }

// Release lets held bytes of both directions go on.
func (p *Proxy) Release() {
	p.mu.Lock()
	p.hold = [2]bool{}
	p.cond.Broadcast()
	p.mu.Unlock()
}

// Restore accepts connections again and lets held bytes go on.
func (p *Proxy) Restore() {
	p.mu.Lock()
	p.refuse = false
	p.mu.Unlock()
	p.Release()
}

// Accepted counts the connections relayed so far.
func (p *Proxy) Accepted() int { p.mu.Lock(); defer p.mu.Unlock(); return p.accept }

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.l.Close()
	p.Drop()
	p.wg.Wait()
}

func (p *Proxy) serve() {
	defer p.wg.Done()
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.relay(c)
	}
}

func (p *Proxy) relay(c net.Conn) {
	defer p.wg.Done()
	defer c.Close()
	p.mu.Lock()
	target, refuse := p.target, p.refuse || p.closed
	p.mu.Unlock()
	if refuse {
		return
	}
	s, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer s.Close()
	if !p.enter(c, s) {
		return
	}
	defer p.leave(c, s)
	var both sync.WaitGroup
	both.Add(2)
	go p.copy(&both, Up, c, s)
	go p.copy(&both, Down, s, c)
	both.Wait()
}

// enter lists a pair of connections, unless the proxy was cut meanwhile.
func (p *Proxy) enter(c, s net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return false
	}
	p.accept++
	p.conns[c], p.conns[s] = struct{}{}, struct{}{}
	return true
}

func (p *Proxy) leave(c, s net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	delete(p.conns, s)
}

func (p *Proxy) copy(wg *sync.WaitGroup, d Direction, from, to net.Conn) {
	defer wg.Done()
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		for p.hold[d] && !p.refuse && !p.closed {
			p.cond.Wait()
		}
		p.mu.Unlock()
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
