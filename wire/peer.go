package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/control"
)

// peer is the server's side of one connection; its methods run on the
// connection's goroutine.
type peer struct {
	s        *Server
	nc       net.Conn
	br       *bufio.Reader
	in       []byte // room for a control request's frame
	out      []byte // room for an answer
	reserved int64  // of taken, for the present request
	taken    *Room
	watch    chan error // set while a goroutine waits for the client's next byte
}

// header is a request's header.
type header struct {
	key, version int16
	corr         int32
	clientID     string
}

// complaint is why a connection is closed on a client that is at fault.
type complaint struct {
	reason       string
	key, version int16
	err          error
}

func (c *complaint) Error() string { return c.reason }

var errHangup = errors.New("the handler closed the connection")

func (s *Server) newPeer(nc net.Conn) *peer {
	return &peer{s: s, nc: nc, br: bufio.NewReaderSize(nc, ioBuffer)}
}

// serve handles one request after the other until the connection ends.
func (p *peer) serve(server context.Context) {
	ctx, cancel := context.WithCancel(server)
	defer cancel()
	var err error
	for err == nil {
		err = p.one(ctx, server)
	}
	if p.watch != nil {
		p.nc.Close()
		<-p.watch
	}
	var c *complaint
	if errors.As(err, &c) && ctx.Err() == nil {
		more, tell := p.s.faults.note(p.nc.RemoteAddr(), c, time.Now())
		if !tell {
			return
		}
		fields := logrus.Fields{"listener": p.nc.LocalAddr().String(), "remote": p.nc.RemoteAddr().String()}
		if c.key >= 0 {
			fields["key"], fields["version"] = c.key, c.version
		}
		if c.err != nil {
			fields["error"] = c.err
		}
		if more > 0 {
			fields["repeated"] = more
		}
		p.s.o.Log.WithFields(fields).Warn("connection closed: " + c.reason)
	}
}

// one reads, handles and answers one request.
func (p *peer) one(ctx, server context.Context) error {
	frame, err := p.read(ctx)
	defer p.release()
	if err != nil {
		return err
	}
	r := &Request{Remote: p.nc.RemoteAddr(), Local: p.nc.LocalAddr(), answer: make(chan answer, 1)}
	h, err := p.s.parse(frame, r)
	if err != nil {
		return &complaint{"a request cannot be read", h.key, h.version, err}
	}
	if h.key == keyAPIVersions {
		return p.write(h, answer{kafka: p.s.apiVersions(h.version, r.Kafka)})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.s.handler.Handle(ctx, r)
	a, err := p.await(ctx, cancel, r)
	if err != nil {
		p.leaveBehind(server, r)
		return err
	}
	return p.write(h, a)
}

// await gives the handler's answer. While it is not there, the connection is
// watched, so that a client that leaves frees what waits on its behalf.
func (p *peer) await(ctx context.Context, cancel context.CancelFunc, r *Request) (answer, error) {
	select {
	case a := <-r.answer:
		return a, nil
	default:
	}
	p.nc.SetReadDeadline(time.Time{})
	watch := make(chan error, 1)
	go func() {
		_, err := p.br.Peek(1)
		watch <- err
	}()
	p.watch = watch
	for {
		select {
		case a := <-r.answer:
			return a, nil
		case err := <-watch:
			p.watch, watch = nil, nil // nil error: the next request came before this one's answer
			if err != nil {
				cancel()
				return answer{}, err
			}
		case <-ctx.Done():
			return answer{}, ctx.Err()
		}
	}
}

// read gives the next request's frame. What it cannot be is found out from its
// first eight bytes, before any more are read.
func (p *peer) read(ctx context.Context) ([]byte, error) {
	o := &p.s.o
	var idle time.Time
	if o.IdleTimeout > 0 {
		idle = time.Now().Add(o.IdleTimeout)
	}
	p.nc.SetReadDeadline(idle)
	if p.watch != nil {
		err := <-p.watch
		p.watch = nil
		if err != nil {
			return nil, err
		}
	}
	if _, err := p.br.Peek(1); err != nil {
		return nil, err
	}
	p.nc.SetReadDeadline(time.Now().Add(o.ReadTimeout))
	b, err := p.br.Peek(8)
	if err != nil {
		return nil, cut(err, -1, -1)
	}
	size := int64(int32(binary.BigEndian.Uint32(b)))
	key, version := int16(binary.BigEndian.Uint16(b[4:])), int16(binary.BigEndian.Uint16(b[6:]))
	if most := o.most(key); size < 8 || size > most {
		return nil, &complaint{"no Kafka request", -1, -1, fmt.Errorf("a size of %d bytes is outside 8 to %d", size, most)}
	}
	served, ok := p.s.table[key]
	if !ok || version < served.Min || version > served.Max && key != keyAPIVersions {
		return nil, &complaint{"the request is not served here", key, version, nil}
	}
	p.br.Discard(4)
	var buf []byte
	if isControl(key) { // its decoding copies
		buf = p.in
	}
	frame, err := readSteps(p.br, buf, int(size), p.reserver(ctx, key, size))
	if err != nil {
		return nil, cut(err, key, version)
	}
	if isControl(key) && cap(frame) <= keepBuffer {
		p.in = frame
	} else {
		p.in = nil
	}
	return frame, nil
}

// reserver takes a request's share of the room for its kind, and waits for it if
// need be: meanwhile nothing more of this connection is read. It takes as the
// request comes in, for one that is announced and never sent must not keep others
// out. Small requests, and those of a controller, never wait; nor do the fetches
// of followers, which are what requests with acks=all wait for. nil: no room is needed.
func (p *peer) reserver(ctx context.Context, key int16, size int64) func(step int) error {
	room := p.s.o.Room
	if key != keyProduce {
		if room = p.s.o.Large; size <= unreserved(key) {
			return nil
		}
	}
	if room == nil {
		return nil
	}
	p.taken = room
	return func(step int) error {
		ctx, cancel := ctx, context.CancelFunc(func() {})
		if key != keyProduce || p.reserved > 0 { // who has the rest may wait for what we have
			ctx, cancel = context.WithTimeout(ctx, p.s.o.ReadTimeout)
		}
		defer cancel()
		n := min(int64(step), room.most-p.reserved)
		waited, err := room.take(ctx, n)
		if err != nil {
			return fmt.Errorf("no room for a request of %d bytes: %w", size, err)
		}
		p.reserved += n
		if waited {
			p.nc.SetReadDeadline(time.Now().Add(p.s.o.ReadTimeout))
		}
		return nil
	}
}

// What requests without records take unfolds to some 25 times their size.
const (
	largest      = 16 << 20 // of a request that brings neither records nor a controller's orders
	small        = 64 << 10 // needs no room
	smallFetch   = 4 << 20
	smallControl = 16 << 20
)

// most is how large a request may be.
func (o *ServerOptions) most(key int16) int64 {
	if key == keyProduce || isControl(key) {
		return int64(o.MaxFrame)
	}
	return int64(min(o.MaxFrame, largest))
}

// unreserved is up to which size a request is read without room for it.
func unreserved(key int16) int64 {
	switch {
	case key == keyFetch:
		return smallFetch
	case isControl(key):
		return smallControl
	}
	return small
}

// leaveBehind keeps the room of a request whose client has gone until the handler
// answers, for it holds the records until then.
func (p *peer) leaveBehind(server context.Context, r *Request) {
	if p.reserved == 0 {
		return
	}
	room, size := p.taken, p.reserved
	p.reserved, p.taken = 0, nil
	p.s.wg.Add(1)
	go func() {
		defer p.s.wg.Done()
		select {
		case <-r.answer:
		case <-server.Done():
		}
		room.giveBack(size)
	}()
}

func (p *peer) release() {
	if p.reserved > 0 {
		p.taken.giveBack(p.reserved)
		p.reserved, p.taken = 0, nil
	}
}

// cut says what an error inside a frame means.
func cut(err error, key, version int16) error {
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	return &complaint{"the connection ended inside a request", key, version, err}
}

func isControl(key int16) bool {
	switch control.Kind(key) {
	case control.LeaderAndISRKey, control.UpdateMetadataKey, control.StopReplicaKey:
		return true
	}
	return false
}

// parse reads header and body of a request that the table has into r.
func (s *Server) parse(frame []byte, r *Request) (header, error) {
	d := &reader{b: frame}
	h := header{key: d.int16(), version: d.int16(), corr: d.int32()}
	r.Key, r.Version = h.key, h.version
	if h.key == keyAPIVersions && h.version > s.table[h.key].Max {
		return h, nil // whatever else it has; the answer says which versions are known
	}
	if h.key != keyControlledShutdown || h.version > 0 {
		h.clientID, _ = d.nullable()
		r.ClientID = h.clientID
	}
	if isControl(h.key) {
		d.flexible = h.version >= flexibleFrom(control.Kind(h.key))
	} else {
		r.Kafka = kmsg.RequestForKey(h.key)
		r.Kafka.SetVersion(h.version)
		d.flexible = r.Kafka.IsFlexible()
	}
	d.tags()
	if d.err != nil {
		return h, fmt.Errorf("header: %w", d.err)
	}
	var err error
	if isControl(h.key) {
		r.Control, r.KRaft, err = decodeRequest(control.Kind(h.key), h.version, d.b, s.o.Shared)
	} else {
		err = readInto(r.Kafka, d.b)
	}
	return h, err
}

// write sends one answer.
func (p *peer) write(h header, a answer) error {
	if cap(p.out) > keepBuffer {
		p.out = nil
	}
	out := append(p.out[:0], 0, 0, 0, 0)
	out = appendInt32(out, h.corr)
	var inserts []Insert
	switch {
	case a.nothing:
		return nil
	case a.control != nil:
		out = endStruct(out, h.version >= flexibleFrom(a.control.Kind))
		out = AppendResponse(out, a.control, h.version)
	case a.kafka != nil:
		out = endStruct(out, a.kafka.IsFlexible() && h.key != keyAPIVersions)
		if scattered, ok := a.kafka.(Scattered); ok {
			out, inserts = scattered.AppendScattered(out)
		} else {
			out = a.kafka.AppendTo(out)
		}
	default:
		return errHangup
	}
	p.out = out
	bufs, size := gather(out, inserts)
	if size-4 > math.MaxInt32 {
		return fmt.Errorf("an answer of %d bytes does not fit into a frame", size)
	}
	binary.BigEndian.PutUint32(out, uint32(size-4))
	p.nc.SetWriteDeadline(time.Now().Add(p.s.o.WriteTimeout))
	if _, err := bufs.WriteTo(p.nc); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

// gather gives out with the inserts at their places, and how many bytes that is.
func gather(out []byte, inserts []Insert) (bufs net.Buffers, size int) {
	size = len(out)
	from := 0
	for _, in := range inserts {
		if in.At > from {
			bufs = append(bufs, out[from:in.At])
		}
		for _, b := range in.Bytes {
			bufs = append(bufs, b)
			size += len(b)
		}
		from = in.At
	}
	if from < len(out) {
		bufs = append(bufs, out[from:])
	}
	return bufs, size
}
