package zkstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// pipe is one connection of the bulk reader: requests are written without
// waiting for the answers to earlier ones, which come back in order.
type pipe struct {
	conn    net.Conn
	addr    string
	b       *bulk
	timeout time.Duration // granted by the server

	mu   sync.Mutex // guards writing and the fields below
	xid  int32
	pend []*reply
	err  error
	down chan struct{} // closed with err
}

// reply is an answer to come.
type reply struct {
	xid  int32
	hdr  zkwire.ReplyHeader
	body []byte // owned by the receiver
	err  error  // the connection's
	done chan struct{}
}

var errPipeClosed = errors.New("the bulk connection was closed")

// send writes one request. Its answer is waited for with reply.wait.
func (p *pipe) send(op int32, body func([]byte) []byte) *reply {
	r := &reply{done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		r.err = p.err
		close(r.done)
		return r
	}
	p.xid = p.xid%0x7fffffff + 1
	r.xid = p.xid
	p.pend = append(p.pend, r)
	p.write(zkwire.RequestHeader{Xid: r.xid, Op: op}, body)
	return r
}

// write frames and sends a request; with mu held. A failure closes the
// connection, and the reader tells everybody.
func (p *pipe) write(h zkwire.RequestHeader, body func([]byte) []byte) {
	b, mark := zkwire.BeginFrame(make([]byte, 0, 1024))
	b = h.Append(b)
	if body != nil {
		b = body(b)
	}
	b = zkwire.EndFrame(b, mark)
	p.b.s.stats.bulkPackets.Add(1)
	p.b.s.stats.bulkBytes.Add(int64(len(b)))
	p.conn.SetWriteDeadline(time.Now().Add(p.timeout * 2 / 3))
	if _, err := p.conn.Write(b); err != nil {
		p.conn.Close()
	}
}

func (r *reply) wait(ctx context.Context, over <-chan struct{}) error {
	select {
	case <-r.done:
		return r.err
	case <-over:
		return errPipeClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// receive hands out answers and notices until the connection ends.
func (p *pipe) receive(br *bufio.Reader) {
	defer p.b.s.wg.Done()
	for {
		p.conn.SetReadDeadline(time.Now().Add(p.timeout * 2 / 3))
		frame, err := zkwire.ReadFrame(br, nil, maxReply)
		if err != nil {
			p.fail(fmt.Errorf("read from %s: %w", p.addr, err))
			return
		}
		d := zkwire.NewDecoder(frame)
		var h zkwire.ReplyHeader
		if h.Decode(d); d.Err() != nil {
			p.fail(fmt.Errorf("answer of %s: %w", p.addr, d.Err()))
			return
		}
		if h.Xid == zkwire.XidNotice {
			var e zkwire.WatcherEvent
			if e.Decode(d); d.Err() == nil {
				p.b.onNotice(h.Zxid, e)
			}
			continue
		}
		raise(&p.b.acked, h.Zxid)
		if h.Xid != zkwire.XidPing && h.Zxid > 0 {
			// It covers every notice before it, also one that did not say its zxid.
			raise(&p.b.shown, h.Zxid)
			p.b.seen.Store(p.b.blind.Load())
		}
		switch {
		case h.Xid == zkwire.XidPing:
		case h.Xid == zkwire.XidAuth:
			if h.Err != zkwire.OK {
				p.fail(fmt.Errorf("authenticate with %s: %w", p.addr, h.Err))
				return
			}
		default:
			if !p.deliver(h, d.Rest()) {
				p.fail(fmt.Errorf("%s answered request %d, which was not the next", p.addr, h.Xid))
				return
			}
		}
	}
}

func (p *pipe) deliver(h zkwire.ReplyHeader, body []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pend) == 0 || p.pend[0].xid != h.Xid {
		return false
	}
	r := p.pend[0]
	p.pend = p.pend[1:]
	r.hdr, r.body = h, body
	close(r.done)
	return true
}

// fail ends the connection and everything that waits for it.
func (p *pipe) fail(err error) {
	p.conn.Close()
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return
	}
	p.err = err
	for _, r := range p.pend {
		r.err = err
		close(r.done)
	}
	p.pend = nil
	close(p.down)
	p.mu.Unlock()
	p.b.onDown(p, err)
}

// ping keeps the session alive.
func (p *pipe) ping() {
	defer p.b.s.wg.Done()
	t := time.NewTicker(p.timeout / 3)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.mu.Lock()
			if p.err == nil {
				p.write(zkwire.RequestHeader{Xid: zkwire.XidPing, Op: zkwire.OpPing}, nil)
			}
			p.mu.Unlock()
		case <-p.down:
			return
		}
	}
}
