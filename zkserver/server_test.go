package zkserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// lines is a log in memory.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) count() int { return strings.Count(l.String(), "\n") }

func TestSessionIsResumedMovedAndRefused(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	a := dial(t, s, 10*time.Second)
	a.create("/e", "", zkwire.FlagEphemeral)
	b, ok := resume(t, s, a)
	if !ok || b.session != a.session {
		t.Fatalf("resumed %x, want %x", b.session, a.session)
	}
	a.gone() // whoever had the session loses its connection
	if !b.exists("/e") {
		t.Error("the ephemeral did not outlive the move")
	}

	wrong := *b
	wrong.password = make([]byte, 16)
	if c, ok := resume(t, s, &wrong); ok {
		t.Error("a wrong password was accepted")
	} else {
		c.gone()
	}
	b.gone() // even so
	c, ok := resume(t, s, b)
	if !ok || !c.exists("/e") {
		t.Fatal("the session did not outlive somebody's wrong password")
	}
	c.must(zkwire.OpCloseSession, nil)
	c.gone()
	if _, ok := resume(t, s, c); ok {
		t.Error("a closed session was resumed")
	}
	if n := len(s.Sessions()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	ahead := dialRaw(t, s)
	if ahead.connect(zkwire.ConnectRequest{Timeout: 10000, LastZxid: math.MaxInt64}) || ahead.timeout != 0 {
		t.Error("a client that has seen a later zxid got an answer")
	}
}

func TestExpiryInTicksOfAManualClock(t *testing.T) {
	clock := NewManualClock()
	s := serverFor(t, Options{Clock: clock, TickTime: time.Second})
	a, b, c := dial(t, s, 4*time.Second), dial(t, s, 20*time.Second), dial(t, s, 4*time.Second)
	a.create("/a", "", zkwire.FlagEphemeral)
	c.create("/c", "", zkwire.FlagEphemeral)
	b.must(zkwire.OpExists, watchBody("/a"))
	// (0 s + 4 s)/1 s + 1: the fifth second.
	clock.Advance(3 * time.Second)
	c.must(zkwire.OpPing, nil) // its deadline becomes the eighth
	clock.Advance(1999 * time.Millisecond)
	if !b.exists("/a") {
		t.Error("the session expired before its tick")
	}
	clock.Advance(time.Millisecond)
	if b.exists("/a") {
		t.Error("the session did not expire in its tick")
	}
	b.heard(seen{EventDeleted, "/a"})
	a.gone()
	if _, ok := resume(t, s, a); ok {
		t.Error("an expired session was resumed")
	}
	clock.Advance(3 * time.Second)
	if b.exists("/c") {
		t.Error("the pinged session did not expire in the eighth second")
	}
	if n := len(s.Sessions()); n != 1 {
		t.Errorf("%d sessions, want one", n)
	}
}

func TestTestsHands(t *testing.T) {
	clock := NewManualClock()
	s := serverFor(t, Options{Clock: clock, TickTime: time.Second})
	a, b := dial(t, s, 4*time.Second), dial(t, s, 20*time.Second)
	a.create("/a", "", zkwire.FlagEphemeral)
	if info := s.Sessions(); len(info) != 2 || info[0].ID != a.session || info[0].Timeout != 4*time.Second || len(info[0].Ephemerals) != 1 || info[0].Client == "" {
		t.Errorf("sessions %+v", info)
	}
	if !s.Disconnect(a.session) || s.Disconnect(a.session) || s.Disconnect(1) {
		t.Error("Disconnect tells wrongly whether somebody was connected")
	}
	a.gone()
	a2, ok := resume(t, s, a)
	if !ok {
		t.Fatal("the session did not outlive its connection")
	}
	s.Pause()
	clock.Advance(time.Minute)
	b.write(b.request(zkwire.OpExists, pathBody("/a")))
	s.Look(func(tree *Tree) {
		if _, code := tree.Exists(Who{}, "/a"); code != OK {
			t.Error("a paused server has expired a session")
		}
	})
	s.Resume()
	if h, _, err := b.reply(); err != nil || h.Err != zkwire.OK {
		t.Errorf("after the pause: %v, %v", h.Err, err)
	}
	if !s.Expire(a.session) || s.Expire(a.session) {
		t.Error("Expire tells wrongly whether there was a session")
	}
	a2.gone()
	if b.exists("/a") {
		t.Error("the expired session's ephemeral is left")
	}
}

// TestUnderSynctest runs the genuine Go client in a bubble: hours take no time.
func TestUnderSynctest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{TickTime: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		dialer := func(network, address string, _ time.Duration) (net.Conn, error) {
			return s.Dial(context.Background(), network, address)
		}
		quiet := zk.WithLogger(silent{})
		one, events, err := zk.Connect([]string{"127.0.0.1:2181"}, 5*time.Second, zk.WithDialer(dialer), quiet)
		if err != nil {
			t.Fatal(err)
		}
		for e := range events {
			if e.State == zk.StateHasSession {
				break
			}
		}
		if _, err := one.Create("/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // pings keep it alive
		if ok, _, err := one.Exists("/e"); err != nil || !ok {
			t.Errorf("after an hour of pings: %v, %v", ok, err)
		}
		id := one.SessionID()
		s.Expire(id)
		for e := range events {
			if e.State == zk.StateExpired {
				break
			}
		}
		for e := range events {
			if e.State == zk.StateHasSession {
				break
			}
		}
		if ok, _, err := one.Exists("/e"); err != nil || ok || one.SessionID() == id {
			t.Errorf("after the expiry: %v, %v", ok, err)
		}
		one.Close()
		time.Sleep(time.Minute)
		if n := len(s.Sessions()); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour) // what is left of the client ends
	})
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func TestNoticesComeBeforeWhatTheyTellOf(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	w, r := dial(t, s, 10*time.Second), dial(t, s, 10*time.Second)
	w.create("/n", "fresh", 0)
	for i := range 200 {
		r.must(zkwire.OpGetData, watchBody("/n"))
		value := fmt.Sprint(i)
		w.write(w.request(zkwire.OpSetData, setBody("/n", value)))
		// However the two race: the new value is not seen before the notice.
		for r.get("/n") != value {
			if len(r.events) > 0 {
				t.Fatalf("round %d: a notice came, and then the old value", i)
			}
		}
		r.heard(seen{EventDataChanged, "/n"})
		if _, _, err := w.reply(); err != nil {
			t.Fatal(err)
		}
	}
	// The writer's own notice is before its answer, and those of a multi in its order.
	w.must(zkwire.OpGetData, watchBody("/n"))
	w.must(zkwire.OpGetChildren, watchBody("/"))
	var ops []byte
	for _, op := range []zkwire.Op{
		{Type: zkwire.OpCreate, Path: "/m", ACL: OpenACL()},
		{Type: zkwire.OpSetData, Path: "/n", Version: -1},
	} {
		ops = op.Append(ops)
	}
	w.must(zkwire.OpMulti, zkwire.AppendMultiEnd(ops))
	w.heard(seen{EventChildrenChanged, "/"}, seen{EventDataChanged, "/n"})
}

func TestSlowReaderStallsNobody(t *testing.T) {
	log, out := logged()
	s := serverFor(t, Options{Clock: NewManualClock(), Log: log})
	s.sendMax = 1 << 20
	slow, fast := dial(t, s, 10*time.Second), dial(t, s, 10*time.Second)
	fast.create("/n", "", 0)
	slow.must(zkwire.OpAddWatch, zkwire.PathInt{Path: "/n", N: zkwire.WatchPersistent}.Append(nil))
	// 45 bytes a notice: the pipe takes 256 KiB of them, the server 1 MiB.
	i := 0
	for ; len(s.Sessions()[0].Client) > 0; i++ {
		fast.set("/n", "x")
		if i > 100_000 {
			t.Fatal("a client that takes no notices keeps its connection")
		}
	}
	if i < 20_000 {
		t.Errorf("it lost its connection after %d notices already", i)
	}
	if !strings.Contains(out.String(), "does not take its notices") || out.count() != 1 {
		t.Errorf("the log says %q", out)
	}
	if _, ok := resume(t, s, slow); !ok {
		t.Error("its session did not live on")
	}
}

// TestManySlowReadersTogether: none of them has too much queued, all together
// have. Who has the most loses its connection, and whoever reads does not.
func TestManySlowReadersTogether(t *testing.T) {
	log, out := logged()
	s := serverFor(t, Options{Clock: NewManualClock(), Log: log})
	s.sendTotal = 1 << 20
	fast := dial(t, s, 10*time.Second)
	fast.create("/n", "", 0)
	fast.must(zkwire.OpAddWatch, zkwire.PathInt{Path: "/n", N: zkwire.WatchPersistent}.Append(nil))
	for range 8 {
		slow := dial(t, s, 10*time.Second)
		slow.must(zkwire.OpAddWatch, zkwire.PathInt{Path: "/n", N: zkwire.WatchPersistent}.Append(nil))
	}
	const writes = 20_000 // 900 kB of notices for each, of which the pipe takes 256 KiB
	for range writes {
		fast.set("/n", "x")
	}
	if n := len(fast.events); n != writes {
		t.Errorf("the client that reads had %d notices of %d", n, writes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := int64(0)
	for _, c := range s.conns {
		sum += c.unsent
	}
	if s.unsent > s.sendTotal || s.unsent != sum {
		t.Errorf("%d bytes are queued, at most %d may be; the connections have %d", s.unsent, s.sendTotal, sum)
	}
	if len(s.conns) == 9 || len(s.conns) < 2 || !strings.Contains(out.String(), "all clients together") {
		t.Errorf("%d connections are left of 9; the log says %q", len(s.conns), out)
	}
}

func TestAnswersNotTakenStopTheReading(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	c := dial(t, s, 10*time.Second)
	c.create("/n", strings.Repeat("x", 1<<20-100), 0)
	// Gigabytes of answers are asked for, and none is taken at first.
	const n = 300
	sent := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < n && err == nil; i++ {
			_, err = c.nc.Write(framed(append(zkwire.RequestHeader{Xid: int32(i), Op: zkwire.OpGetData}.Append(nil), pathBody("/n")...)))
		}
		sent <- err
	}()
	for i := range n {
		h, _, err := c.reply()
		if err != nil || h.Xid != int32(i) {
			t.Fatalf("answer %d: xid %d, %v", i, h.Xid, err)
		}
		s.Look(func(*Tree) {
			for _, o := range s.conns {
				if len(o.out) > 3<<20 {
					t.Fatalf("%d bytes are queued for a client that does not take them", len(o.out))
				}
			}
		})
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

// TestCloseDoesNotWaitForAClient: one that has said all and takes nothing.
func TestCloseDoesNotWaitForAClient(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	c := dial(t, s, 10*time.Second)
	c.create("/n", strings.Repeat("x", 1<<20-100), 0)
	for range 3 {
		c.write(c.request(zkwire.OpGetData, pathBody("/n")))
	}
	c.nc.(*pipeEnd).out.closeWriter()
	for stuck := false; !stuck; { // until its answers wait for it
		s.Look(func(*Tree) {
			for _, o := range s.conns {
				stuck = o.writing
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// listen serves on a port of this machine.
func listen(t *testing.T, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-ended; err != nil && !errors.Is(err, ErrServerClosed) { // if it was closed before it began
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String()
}

func TestConnectionsPerAddressAreLimited(t *testing.T) {
	log, out := logged()
	s := serverFor(t, Options{MaxClientCnxns: 3, Log: log})
	addr := listen(t, s)
	var open []net.Conn
	for range 3 {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.Write(framed((&zkwire.ConnectRequest{Timeout: 10000}).Append(nil)))
		if _, err := zkwire.ReadFrame(nc, nil, 100); err != nil {
			t.Fatal(err)
		}
		open = append(open, nc)
	}
	fourth, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer fourth.Close()
	if _, err := io.ReadAll(fourth); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the fourth connection: %v", err)
	}
	if !strings.Contains(out.String(), "maxClientCnxns") {
		t.Errorf("the log says %q", out)
	}
	open[0].Close()
	for { // the place becomes free
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.Write(framed((&zkwire.ConnectRequest{Timeout: 10000}).Append(nil)))
		_, err = zkwire.ReadFrame(nc, nil, 100)
		nc.Close()
		if err == nil {
			return
		}
	}
}

func TestFloodOfConnections(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	const n = 200
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			c := dial(t, s, 10*time.Second)
			c.create(fmt.Sprintf("/e%d", i), "", zkwire.FlagEphemeral)
			c.must(zkwire.OpGetChildren, watchBody("/"))
			if i%2 == 0 {
				c.nc.Close()
			}
		})
	}
	wg.Wait()
	s.Look(func(tree *Tree) {
		if tree.EphemeralCount() != n {
			t.Errorf("%d ephemerals, want %d", tree.EphemeralCount(), n)
		}
	})
}

func TestGarbageIsHarmlessAndLoggedOnce(t *testing.T) {
	log, out := logged()
	s := serverFor(t, Options{Clock: NewManualClock(), Log: log})
	good := dial(t, s, 10*time.Second)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		c := dialRaw(t, s)
		b := make([]byte, rnd.IntN(200))
		for j := range b {
			b[j] = byte(rnd.Uint32())
		}
		if i%3 == 0 { // behind a good handshake
			b = append(framed((&zkwire.ConnectRequest{Timeout: 1000, Password: make([]byte, 16)}).Append(nil)), b...)
		}
		before := out.count()
		c.nc.Write(b)
		c.nc.(*pipeEnd).out.closeWriter()
		c.gone()
		if out.count() > before+1 {
			t.Fatalf("one connection wrote more than a line to the log: %s", out)
		}
	}
	good.create("/still-here", "", 0)
}

func TestFramesTornAnywhere(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	hello := framed((&zkwire.ConnectRequest{Timeout: 10000, Password: make([]byte, 16), HasReadOnly: true}).Append(nil))
	all := append(hello, framed(append(zkwire.RequestHeader{Xid: 1, Op: zkwire.OpExists}.Append(nil), pathBody("/")...))...)
	for cut := 1; cut < len(all); cut++ {
		c := dialRaw(t, s)
		c.nc.Write(all[:cut])
		s.Look(func(*Tree) {})
		c.nc.Write(all[cut:])
		if _, err := c.frame(); err != nil {
			t.Fatalf("cut at %d: no session: %v", cut, err)
		}
		if h, _, err := c.reply(); err != nil || h.Err != zkwire.OK || h.Xid != 1 {
			t.Fatalf("cut at %d: %+v, %v", cut, h, err)
		}
		c.nc.Close()
	}
	// One byte at a time.
	c := dialRaw(t, s)
	for i := range all {
		c.nc.Write(all[i : i+1])
	}
	c.frame()
	if h, _, err := c.reply(); err != nil || h.Err != zkwire.OK {
		t.Fatalf("byte by byte: %+v, %v", h, err)
	}
}

func TestContainersAndTTLNodesAreSwept(t *testing.T) {
	clock := NewManualClock()
	s := serverFor(t, Options{Clock: clock, ExtendedTypes: true, TickTime: time.Second})
	c := dial(t, s, 20*time.Second)
	c.must(zkwire.OpCreateContainer, createBody("/c", "", zkwire.FlagContainer))
	c.create("/c/x", "", 0)
	c.must(zkwire.OpDelete, zkwire.PathInt{Path: "/c/x", N: -1}.Append(nil))
	ttl := &zkwire.CreateRequest{Path: "/t", ACL: OpenACL(), Flags: zkwire.FlagTTL, TTL: 90_000}
	c.must(zkwire.OpCreateTTL, ttl.AppendTTL(nil))
	for i, want := range []struct{ c, t bool }{{false, true}, {false, false}} {
		for range 6 {
			clock.Advance(10 * time.Second)
			c.must(zkwire.OpPing, nil)
		}
		if got := c.exists("/c"); got != want.c {
			t.Errorf("minute %d: container there: %v", i+1, got)
		}
		if got := c.exists("/t"); got != want.t {
			t.Errorf("minute %d: TTL node there: %v", i+1, got)
		}
	}
}

// TestGoZooKeeper runs the genuine Go client over TCP, and its parser of srvr.
func TestGoZooKeeper(t *testing.T) {
	s := serverFor(t, Options{FourLetterWords: []string{"*"}})
	addr := listen(t, s)
	conn, events, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	acl := zk.WorldACL(zk.PermAll)
	if _, err := conn.Create("/a", []byte("1"), 0, acl); err != nil {
		t.Fatal(err)
	}
	_, _, watch, err := conn.GetW("/a")
	if err != nil {
		t.Fatal(err)
	}
	// Somebody else changes it: this client's own requests would race with its
	// setWatches (spec/zookeeper.md §1.3, 2).
	other := dial(t, s, 10*time.Second)
	s.Disconnect(conn.SessionID())
	other.set("/a", "2")
	if e := <-watch; e.Type != zk.EventNodeDataChanged {
		t.Errorf("after a reconnect the watch tells %v", e)
	}
	other.must(zkwire.OpCloseSession, nil)
	other.gone()
	res, err := conn.Multi(&zk.CreateRequest{Path: "/b", Acl: acl}, &zk.CheckVersionRequest{Path: "/a", Version: 9})
	if !errors.Is(err, zk.ErrBadVersion) || len(res) != 2 {
		t.Errorf("multi: %v, %v", res, err)
	}
	stats, ok := zk.FLWSrvr([]string{addr}, patience)
	if !ok || stats[0].Mode != zk.ModeStandalone || stats[0].NodeCount != 6 || stats[0].BuildTime.Year() != 2026 {
		t.Errorf("srvr: %+v, %v", stats[0], stats[0].Error)
	}
	// Its parser does not take the line of the word's own connection, which Apache has, too.
	if clients, _ := zk.FLWCons([]string{addr}, patience); len(clients[0].Clients) != 1 || clients[0].Clients[0].SessionID != conn.SessionID() {
		t.Errorf("cons: %+v", clients[0])
	}
	if ok := zk.FLWRuok([]string{addr}, patience); !ok[0] {
		t.Error("ruok")
	}
}

func TestFourLetterWordsOutsideOfTheWhitelist(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	for word, want := range map[string]string{
		"ruok": "ruok is not executed because it is not in the whitelist.",
		"srvr": "Zookeeper version: ",
	} {
		c := dialRaw(t, s)
		c.nc.Write([]byte(word))
		c.nc.SetReadDeadline(time.Now().Add(patience))
		got, err := io.ReadAll(c.nc)
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("%s: %q, %v", word, got, err)
		}
	}
}

// scarce is a listener for which there is no file at first.
type scarce struct {
	left   int
	conns  chan net.Conn
	closed sync.Once
}

func (l *scarce) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, syscall.EMFILE
	}
	if nc, ok := <-l.conns; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}
func (l *scarce) Close() error   { l.closed.Do(func() { close(l.conns) }); return nil }
func (l *scarce) Addr() net.Addr { return pipeAddr{} }

func TestServeOutlivesAFullTableOfFiles(t *testing.T) {
	log, out := logged()
	s := serverFor(t, Options{Clock: NewManualClock(), Log: log})
	client, server := newPipe()
	l := &scarce{left: 4, conns: make(chan net.Conn, 1)}
	l.conns <- server
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	c := &rawClient{t: t, nc: client}
	if !c.connect(zkwire.ConnectRequest{Timeout: 1000, Password: make([]byte, 16)}) {
		t.Error("no session")
	}
	client.Close()
	if out.count() != 1 || !strings.Contains(out.String(), "cannot be accepted") {
		t.Errorf("the log: %s", out)
	}
	l.Close() // somebody else closes it: that is an error
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeEndsAndRefusesAfterClose(t *testing.T) {
	s := serverFor(t, Options{})
	addr := listen(t, s)
	c := dial(t, s, 10*time.Second)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.gone()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the port is still open")
	}
	if _, err := s.Dial(context.Background(), "", ""); !errors.Is(err, ErrServerClosed) {
		t.Errorf("Dial: %v", err)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for _, o := range []Options{
		{TickTime: time.Microsecond},
		{MinSessionTimeout: time.Minute, MaxSessionTimeout: time.Second},
		{MaxBuffer: 10},
		{MaxClientCnxns: -1},
		{LogDir: "x"},
	} {
		if s, err := New(o); err == nil {
			s.Close()
			t.Errorf("New(%+v) works", o)
		}
	}
}

// TestReconfig: a server alone has nothing to reconfigure, and says so as Apache
// 3.9.5 does with and without reconfigEnabled.
func TestReconfig(t *testing.T) {
	whole := (&zkwire.ReconfigRequest{ConfigID: -1}).Append(nil)
	for _, tc := range []struct {
		enabled bool
		body    []byte
		want    zkwire.Err
		cost    int64 // zxids
	}{
		{false, whole, zkwire.ErrReconfigDisabled, 1},
		{false, []byte{0, 0, 0, 9}, zkwire.ErrMarshalling, 0},
		{true, whole, zkwire.ErrUnimplemented, 1},
		{true, []byte{0, 0, 0, 9}, zkwire.ErrMarshalling, 0},
	} {
		c := dial(t, serverFor(t, Options{Clock: NewManualClock(), Reconfig: tc.enabled}), time.Second)
		c.must(zkwire.OpExists, pathBody("/"))
		before := c.zxid
		if err, _ := c.do(zkwire.OpReconfig, tc.body); err != tc.want || c.zxid != before+tc.cost {
			t.Errorf("enabled %v: %v and %d zxids, want %v and %d", tc.enabled, err, c.zxid-before, tc.want, tc.cost)
		}
		c.must(zkwire.OpExists, pathBody("/")) // the connection stays
	}
}
