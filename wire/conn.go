package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

const (
	keyControlledShutdown int16 = 7
	keyProduce            int16 = 0
	keyFetch              int16 = 1
	keyAPIVersions        int16 = 18
)

const (
	defaultMaxFrame = 100 << 20 // Kafka's socket.request.max.bytes
	keepBuffer      = 1 << 20   // larger buffers are not kept for the next message
	ioBuffer        = 4 << 10
)

// DialOptions are the settings of a client's connection.
type DialOptions struct {
	ClientID       string
	ConnectTimeout time.Duration // 0: as long as the context allows
	MaxResponse    int           // bytes of one answer; 0 is 100 MiB
	// Dialer replaces TCP, for tests and simulation.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Conn is a client's connection to one Kafka server: one request in flight.
// Only Close may be called while another method runs. After any error but an
// answer's own error code the connection is closed and of no more use.
type Conn struct {
	nc       net.Conn
	br       *bufio.Reader
	clientID string
	max      int
	corr     int32
	head     []byte // frame size, header and what is encoded for this receiver alone
	in       []byte // an answer's bytes, valid until the next request
	served   int    // requests answered
}

// Dial connects to host:port. The context bounds the connecting only.
func Dial(ctx context.Context, addr string, o DialOptions) (*Conn, error) {
	if o.ConnectTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.ConnectTimeout)
		defer cancel()
	}
	dial := o.Dialer
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	nc, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	c := &Conn{nc: nc, br: bufio.NewReaderSize(nc, ioBuffer), clientID: o.ClientID, max: o.MaxResponse}
	if c.max <= 0 {
		c.max = defaultMaxFrame
	}
	return c, nil
}

// Close closes the connection; a request in flight fails.
func (c *Conn) Close() error { return c.nc.Close() }

// Served is how many requests were answered on this connection.
func (c *Conn) Served() int { return c.served }

// Request sends one kmsg request at the version set in it and waits for the
// answer. StopReplica, LeaderAndIsr and UpdateMetadata go through Control.
func (c *Conn) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	resp := req.ResponseKind()
	c.start(req.Key(), req.GetVersion(), req.IsFlexible())
	c.head = req.AppendTo(c.head)
	c.in = nil // kmsg's answers may point into the frame
	body, err := c.roundTrip(ctx, nil, resp.IsFlexible() && req.Key() != keyAPIVersions)
	c.in = nil
	if err != nil {
		return nil, fmt.Errorf("%s v%d: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	if err := readInto(resp, body); err != nil {
		c.Close()
		return nil, fmt.Errorf("the answer to %s v%d cannot be read: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, nil
}

// readInto decodes with kmsg; bytes from a stranger must not end the process.
func readInto(m interface{ ReadFrom([]byte) error }, body []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("malformed: %v", p)
		}
	}()
	return m.ReadFrom(body)
}

// Control sends one control request and waits for the answer. The request is
// as Sendable gives it. shared, if not nil, is what AppendMetadata gave for an
// UpdateMetadata of this version; it is sent without being copied.
func (c *Conn) Control(ctx context.Context, req control.Request, version int16, shared []byte) (*control.Response, error) {
	body, err := c.control(ctx, req, version, shared)
	if err != nil {
		return nil, err
	}
	resp, err := DecodeResponse(req, version, body)
	if err != nil {
		c.Close()
	}
	return resp, err
}

// ControlFailures is Control with an answer as DecodeFailures gives it.
func (c *Conn) ControlFailures(ctx context.Context, req control.Request, version int16) (resp *control.Response, full bool, err error) {
	body, err := c.control(ctx, req, version, nil)
	if err != nil {
		return nil, false, err
	}
	resp, full, err = DecodeFailures(req, version, body)
	if err != nil {
		c.Close()
	}
	return resp, full, err
}

func (c *Conn) control(ctx context.Context, req control.Request, version int16, shared []byte) ([]byte, error) {
	flexible := version >= flexibleFrom(req.Kind())
	c.start(int16(req.Kind()), version, flexible)
	if um, ok := req.(*control.UpdateMetadataRequest); ok && shared != nil {
		c.head = AppendUpdateMetadataHeader(c.head, um.Header, version)
	} else {
		c.head = AppendRequest(c.head, req, version)
		shared = nil
	}
	body, err := c.roundTrip(ctx, shared, flexible)
	if err != nil {
		return nil, fmt.Errorf("%s v%d: %w", req.Kind(), version, err)
	}
	return body, nil
}

// start begins a frame: size (set later) and request header. ControlledShutdown
// v0 has no client id in its header.
func (c *Conn) start(key, version int16, flexible bool) {
	if cap(c.head) > keepBuffer {
		c.head = nil
	}
	c.corr++
	c.head = append(c.head[:0], 0, 0, 0, 0)
	c.head = appendInt16(c.head, key)
	c.head = appendInt16(c.head, version)
	c.head = appendInt32(c.head, c.corr)
	if key == keyControlledShutdown && version == 0 {
		return
	}
	c.head = appendString(c.head, c.clientID, false)
	c.head = endStruct(c.head, flexible)
}

// roundTrip sends c.head and tail as one frame and gives the answer's body.
func (c *Conn) roundTrip(ctx context.Context, tail []byte, flexibleHeader bool) ([]byte, error) {
	stop := context.AfterFunc(ctx, func() { c.nc.Close() })
	body, err := c.exchange(tail, flexibleHeader)
	if !stop() && err == nil {
		err = ctx.Err() // closed just as the answer came
	}
	if err != nil {
		c.nc.Close()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	c.served++
	return body, nil
}

func (c *Conn) exchange(tail []byte, flexibleHeader bool) ([]byte, error) {
	size := len(c.head) - 4 + len(tail)
	binary.BigEndian.PutUint32(c.head, uint32(size))
	if len(tail) > 0 {
		bufs := net.Buffers{c.head, tail}
		if _, err := bufs.WriteTo(c.nc); err != nil {
			return nil, fmt.Errorf("send: %w", err)
		}
	} else if _, err := c.nc.Write(c.head); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	h, err := c.br.Peek(8)
	if err != nil {
		return nil, fmt.Errorf("await the answer: %w", err)
	}
	n := int(int32(binary.BigEndian.Uint32(h)))
	if n < 4 || n > c.max {
		return nil, fmt.Errorf("an answer of %d bytes is outside 4 to %d", n, c.max)
	}
	if corr := int32(binary.BigEndian.Uint32(h[4:])); corr != c.corr {
		return nil, fmt.Errorf("an answer to request %d came, awaited was %d", corr, c.corr)
	}
	c.br.Discard(8)
	in, err := readBody(c.br, c.in, n-4)
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if cap(in) <= keepBuffer {
		c.in = in[:0]
	} else {
		c.in = nil
	}
	if flexibleHeader {
		r := &reader{b: in, flexible: true}
		r.tags()
		return r.b, r.err
	}
	return in, nil
}

// readBody reads n bytes into buf's room or more. It asks for memory as bytes
// arrive, so that a claimed size alone costs nothing.
func readBody(r io.Reader, buf []byte, n int) ([]byte, error) { return readSteps(r, buf, n, nil) }

// readSteps is readBody that asks, if it is to, before it makes room for more.
func readSteps(r io.Reader, buf []byte, n int, ask func(step int) error) ([]byte, error) {
	const step = 1 << 20
	buf = buf[:0]
	for len(buf) < n {
		k := min(n-len(buf), max(step, len(buf)))
		if ask != nil {
			if err := ask(k); err != nil {
				return nil, err
			}
		}
		at := len(buf)
		if cap(buf)-at >= k {
			buf = buf[:at+k]
		} else {
			grown := make([]byte, at+k, max(at+k, min(n, 2*at)))
			copy(grown, buf)
			buf = grown
		}
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return buf, nil
}

// Versions has the version range of every request a server offers, by key.
type Versions map[int16]kafka.VersionRange

// APIVersions asks what the server offers: with version 3, and again with 0 (or
// the newest the server knows) when it does not know that.
func (c *Conn) APIVersions(ctx context.Context) (Versions, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "zkcontroller", "1"
	for version := int16(3); ; {
		req.Version = version
		c.start(keyAPIVersions, version, version >= 3)
		c.head = req.AppendTo(c.head)
		body, err := c.roundTrip(ctx, nil, false)
		if err != nil {
			return nil, fmt.Errorf("ApiVersions v%d: %w", version, err)
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.Version = version
		if len(body) >= 2 && kafka.ErrorCode(binary.BigEndian.Uint16(body)) == kafka.UnsupportedVersion {
			resp.Version = 0 // the body of a version the server does not know is v0's
		}
		if err := readInto(resp, body); err != nil {
			c.Close()
			return nil, fmt.Errorf("the answer to ApiVersions v%d cannot be read: %w", version, err)
		}
		switch code := kafka.ErrorCode(resp.ErrorCode); {
		case code == kafka.NoError:
			return versionsOf(resp), nil
		case code != kafka.UnsupportedVersion || version == 0:
			return nil, fmt.Errorf("ApiVersions v%d: %w", version, code)
		}
		known, ok := versionsOf(resp)[keyAPIVersions]
		if next := min(known.Max, version-1); ok && next > 0 {
			version = next
		} else {
			version = 0
		}
	}
}

func versionsOf(resp *kmsg.ApiVersionsResponse) Versions {
	v := make(Versions, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		v[k.ApiKey] = kafka.VersionRange{Min: k.MinVersion, Max: k.MaxVersion}
	}
	return v
}
