package zkserver

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// serverFor starts a server that ends with the test, and demands that no
// goroutine of it is left.
func serverFor(t *testing.T, o Options) *Server {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		goleak.VerifyNone(t, ignore)
	})
	return s
}

// rawClient is a client: it sends what it is told to, and shows all that comes.
type rawClient struct {
	t        *testing.T
	nc       net.Conn
	xid      int32
	session  int64
	password []byte
	timeout  int32
	events   []seen // notices that came before answers
	zxid     int64  // of the newest answer
}

type seen struct {
	Type EventType
	Path string
}

// dialRaw gives a connection without a session.
func dialRaw(t *testing.T, s *Server) *rawClient {
	t.Helper()
	nc, err := s.Dial(context.Background(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{t: t, nc: nc}
	t.Cleanup(func() { nc.Close() })
	return c
}

// dial opens a session.
func dial(t *testing.T, s *Server, timeout time.Duration) *rawClient {
	t.Helper()
	c := dialRaw(t, s)
	if !c.connect(zkwire.ConnectRequest{Timeout: int32(timeout.Milliseconds()), Password: make([]byte, 16)}) {
		t.Fatal("no session was opened")
	}
	return c
}

// resume takes up another client's session.
func resume(t *testing.T, s *Server, old *rawClient) (*rawClient, bool) {
	t.Helper()
	c := dialRaw(t, s)
	ok := c.connect(zkwire.ConnectRequest{Timeout: old.timeout, SessionID: old.session, Password: old.password, LastZxid: old.zxid})
	return c, ok
}

func (c *rawClient) connect(r zkwire.ConnectRequest) bool {
	c.t.Helper()
	c.write(r.Append(nil))
	b, err := c.frame()
	if err != nil {
		return false
	}
	var resp zkwire.ConnectResponse
	resp.Decode(zkwire.NewDecoder(b))
	c.session, c.password, c.timeout = resp.SessionID, bytes.Clone(resp.Password), resp.Timeout
	return resp.SessionID != 0
}

// write sends one frame.
func (c *rawClient) write(body []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(framed(body)); err != nil {
		c.t.Logf("write: %v", err)
	}
}

func framed(body []byte) []byte {
	b, m := zkwire.BeginFrame(nil)
	return zkwire.EndFrame(append(b, body...), m)
}

func (c *rawClient) frame() ([]byte, error) {
	c.nc.SetReadDeadline(time.Now().Add(patience))
	return zkwire.ReadFrame(c.nc, nil, 1<<30)
}

// request encodes a request with the next xid.
func (c *rawClient) request(op int32, body []byte) []byte {
	c.xid++
	return append(zkwire.RequestHeader{Xid: c.xid, Op: op}.Append(nil), body...)
}

// reply reads on to the next answer; notices before it go to events.
func (c *rawClient) reply() (zkwire.ReplyHeader, *zkwire.Decoder, error) {
	for {
		b, err := c.frame()
		if err != nil {
			return zkwire.ReplyHeader{}, nil, err
		}
		d := zkwire.NewDecoder(b)
		var h zkwire.ReplyHeader
		if h.Decode(d); h.Xid != zkwire.XidNotice {
			if h.Zxid > 0 {
				c.zxid = h.Zxid
			}
			return h, d, nil
		}
		c.take(d)
	}
}

func (c *rawClient) take(d *zkwire.Decoder) {
	var e zkwire.WatcherEvent
	e.Decode(d)
	c.events = append(c.events, seen{EventType(e.Type), e.Path})
}

// do sends one request and gives its answer.
func (c *rawClient) do(op int32, body []byte) (zkwire.Err, *zkwire.Decoder) {
	c.t.Helper()
	c.write(c.request(op, body))
	h, d, err := c.reply()
	if err != nil {
		c.t.Fatalf("op %d: %v", op, err)
	}
	if h.Xid != c.xid && h.Xid != zkwire.XidPing {
		c.t.Fatalf("op %d: the answer has xid %d, want %d", op, h.Xid, c.xid)
	}
	return h.Err, d
}

func createBody(path, data string, flags int32) []byte {
	return (&zkwire.CreateRequest{Path: path, Data: []byte(data), ACL: OpenACL(), Flags: flags}).Append(nil)
}

func setBody(path, data string) []byte {
	return (&zkwire.SetDataRequest{Path: path, Data: []byte(data), Version: -1}).Append(nil)
}

func watchBody(path string) []byte { return zkwire.PathWatch{Path: path, Watch: true}.Append(nil) }
func pathBody(path string) []byte  { return zkwire.PathWatch{Path: path}.Append(nil) }

// must demands that a request succeeds.
func (c *rawClient) must(op int32, body []byte) *zkwire.Decoder {
	c.t.Helper()
	err, d := c.do(op, body)
	if err != zkwire.OK {
		c.t.Fatalf("op %d: %v", op, err)
	}
	return d
}

func (c *rawClient) create(path, data string, flags int32) string {
	c.t.Helper()
	return c.must(zkwire.OpCreate, createBody(path, data, flags)).String()
}

func (c *rawClient) set(path, data string) {
	c.t.Helper()
	c.must(zkwire.OpSetData, setBody(path, data))
}

func (c *rawClient) get(path string) string {
	c.t.Helper()
	return string(c.must(zkwire.OpGetData, pathBody(path)).Buffer())
}

func (c *rawClient) exists(path string) bool {
	c.t.Helper()
	err, _ := c.do(zkwire.OpExists, pathBody(path))
	return err == zkwire.OK
}

// gone demands that the server closes the connection, and gives what else came.
func (c *rawClient) gone() {
	c.t.Helper()
	c.nc.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c.nc); err != nil {
		c.t.Fatalf("the connection is not closed: %v", err)
	}
}

// heard tells whether exactly these events came.
func (c *rawClient) heard(want ...seen) {
	c.t.Helper()
	if !slices.Equal(c.events, want) {
		c.t.Errorf("events\n got %v\nwant %v", c.events, want)
	}
	c.events = nil
}

// logged is a logger whose lines a test can read.
func logged() (*logrus.Logger, *lines) {
	l := logrus.New()
	out := &lines{}
	l.SetOutput(out)
	return l, out
}
