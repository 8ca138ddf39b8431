package zkstore_test

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// tamper is a relay that understands ZooKeeper's frames: tests count requests
// with it, cut a connection after a request was passed on, and change answers.
type tamper struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	held    <-chan struct{} // new connections wait for it
	hellos  int
	noBulk  bool                   // bulk connections are closed
	refuse  bool                   // resumes are answered as those of an expired session
	ops     map[bool]map[int32]int // by bulk or main, by op code
	request func(c *relay, op int32, body []byte) action
	reply   func(c *relay, op int32, h zkwire.ReplyHeader, body []byte) (zkwire.ReplyHeader, []byte)
}

// action is what becomes of a request.
type action int

const (
	pass     action = iota
	cut             // not passed on, the connection is closed
	passMute        // passed on; from now on nothing comes back
)

// relay is one client's connection. Bulk connections are known by their connect
// request, which has a readOnly byte.
type relay struct {
	bulk bool
	mu   sync.Mutex
	ops  map[int32]int32 // op by xid
	mute bool
}

func newTamper(t *testing.T, target string) *tamper {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tamper{l: l, target: target, conns: map[net.Conn]struct{}{}, ops: map[bool]map[int32]int{true: {}, false: {}}}
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Add(1)
			go p.serve(c)
		}
	}()
	t.Cleanup(func() { l.Close(); p.drop(); p.wg.Wait() })
	return p
}

func (p *tamper) addr() string { return p.l.Addr().String() }

// drop closes all connections.
func (p *tamper) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// hold lets new connections wait until release is closed.
func (p *tamper) hold(release <-chan struct{}) {
	p.mu.Lock()
	p.held = release
	p.mu.Unlock()
}

// onRequest and onReply set the hooks; nil passes everything.
func (p *tamper) onRequest(f func(c *relay, op int32, body []byte) action) {
	p.mu.Lock()
	p.request = f
	p.mu.Unlock()
}

func (p *tamper) onReply(f func(c *relay, op int32, h zkwire.ReplyHeader, body []byte) (zkwire.ReplyHeader, []byte)) {
	p.mu.Lock()
	p.reply = f
	p.mu.Unlock()
}

// count gives how often an op was asked for.
func (p *tamper) count(bulk bool, op int32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ops[bulk][op]
}

func (p *tamper) serve(c net.Conn) {
	defer p.wg.Done()
	defer c.Close()
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		<-held
	}
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer s.Close()
	p.mu.Lock()
	p.conns[c], p.conns[s] = struct{}{}, struct{}{}
	p.mu.Unlock()
	cr, sr := bufio.NewReader(c), bufio.NewReader(s)
	hello, err := zkwire.ReadFrame(cr, nil, 1<<20)
	p.mu.Lock()
	p.hellos++
	refuse, noBulk := p.refuse, p.noBulk && len(hello) == 45
	p.mu.Unlock()
	if noBulk {
		return
	}
	if refuse && err == nil {
		frame(c, (&zkwire.ConnectResponse{Password: make([]byte, 16)}).Append(nil))
		return
	}
	if err != nil || frame(s, hello) != nil {
		return
	}
	welcome, err := zkwire.ReadFrame(sr, nil, 1<<20)
	if err != nil || frame(c, welcome) != nil {
		return
	}
	r := &relay{bulk: len(hello) == 45, ops: map[int32]int32{}}
	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); defer c.Close(); defer s.Close(); p.up(r, cr, s) }()
	go func() { defer both.Done(); defer c.Close(); defer s.Close(); p.down(r, sr, c) }()
	both.Wait()
}

func frame(w io.Writer, b []byte) error {
	buf, mark := zkwire.BeginFrame(nil)
	_, err := w.Write(zkwire.EndFrame(append(buf, b...), mark))
	return err
}

func (p *tamper) up(r *relay, from *bufio.Reader, to net.Conn) {
	for {
		b, err := zkwire.ReadFrame(from, nil, 1<<24)
		if err != nil {
			return
		}
		d := zkwire.NewDecoder(b)
		var h zkwire.RequestHeader
		h.Decode(d)
		r.mu.Lock()
		r.ops[h.Xid] = h.Op
		r.mu.Unlock()
		p.mu.Lock()
		p.ops[r.bulk][h.Op]++
		hook := p.request
		p.mu.Unlock()
		what := pass
		if hook != nil {
			what = hook(r, h.Op, d.Rest())
		}
		if what == cut {
			return
		}
		if what == passMute {
			r.mu.Lock()
			r.mute = true
			r.mu.Unlock()
		}
		if frame(to, b) != nil {
			return
		}
	}
}

func (p *tamper) down(r *relay, from *bufio.Reader, to net.Conn) {
	for {
		b, err := zkwire.ReadFrame(from, nil, 1<<28)
		if err != nil {
			return
		}
		d := zkwire.NewDecoder(b)
		var h zkwire.ReplyHeader
		h.Decode(d)
		r.mu.Lock()
		op, mute := r.ops[h.Xid], r.mute
		if h.Xid == zkwire.XidNotice {
			op = 0
		}
		r.mu.Unlock()
		p.mu.Lock()
		hook := p.reply
		p.mu.Unlock()
		if mute {
			// The request is answered, so it was executed: now its sender loses it.
			if op == zkwire.OpMulti {
				return
			}
			continue
		}
		if hook != nil {
			var body []byte
			h, body = hook(r, op, h, d.Rest())
			b = append(h.Append(nil), body...)
		}
		if frame(to, b) != nil {
			return
		}
	}
}
