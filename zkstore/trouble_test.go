package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// await polls a condition of a real server; it fails only when patience ends.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come about", what)
		}
	}
}

// TestResync: whatever happened to watched nodes while the connection was away
// is told after it, and what did not change is still watched.
func TestResync(t *testing.T) {
	z := shared.Get(t)
	p := real.NewProxy(t, z.Addr())
	root := chroot(t)
	box := newInbox()
	other := open(t, zkstore.Options{Servers: []string{z.Addr()}, Chroot: root}, nil)
	var ws []zkpaths.Write
	for _, n := range []string{"changed", "deleted", "remade", "parent", "same", "gone", "gone/child"} {
		ws = append(ws, create("/"+n, "0"))
	}
	mustApply(t, other, zkpaths.Unfenced, ws...)
	s := open(t, zkstore.Options{Servers: []string{p.Addr()}, Chroot: root}, box.notify)
	id := s.ID()
	read(t, s, watched(zkpaths.GetData, "/changed"), watched(zkpaths.GetData, "/deleted"), watched(zkpaths.Exists, "/remade"),
		watched(zkpaths.GetChildren, "/parent"), watched(zkpaths.GetData, "/same"), watched(zkpaths.GetChildren, "/same"),
		watched(zkpaths.Exists, "/made"), watched(zkpaths.Exists, "/never"), watched(zkpaths.GetChildren, "/gone"))

	p.Cut()
	awaitState(t, s, zkstore.Suspended)
	mustApply(t, other, zkpaths.Unfenced, set2("/changed"), remove("/deleted", -1), remove("/remade", -1), create("/remade", "1"),
		create("/parent/x", ""), create("/made", ""), remove("/gone/child", -1), remove("/gone", -1))
	p.Restore()
	// A reader that waited is let in only after the notices.
	read(t, s, get("/same"))
	for _, want := range []zkpaths.Notice{{Type: zkpaths.NodeDataChanged, Path: "/changed"}, {Type: zkpaths.NodeDeleted, Path: "/deleted"},
		{Type: zkpaths.NodeDeleted, Path: "/remade"}, {Type: zkpaths.NodeCreated, Path: "/remade"}, {Type: zkpaths.NodeChildrenChanged, Path: "/parent"},
		{Type: zkpaths.NodeCreated, Path: "/made"}, {Type: zkpaths.NodeDeleted, Path: "/gone"}} {
		box.await(t, want)
	}
	mustApply(t, other, zkpaths.Unfenced, create("/never", ""), set2("/same"))
	for _, want := range []zkpaths.Notice{{Type: zkpaths.NodeCreated, Path: "/never"}, {Type: zkpaths.NodeDataChanged, Path: "/same"}} {
		box.await(t, want)
		if n := box.count(want); n != 1 {
			t.Errorf("%v came %d times", want, n)
		}
	}
	if s.ID() != id {
		t.Fatal("another session")
	}
}

// TestNothingLost cuts the connection many times while another writes one node:
// every last change is told or read.
func TestNothingLost(t *testing.T) {
	z := shared.Get(t)
	p := real.NewProxy(t, z.Addr())
	root := chroot(t)
	box := newInbox()
	other := open(t, zkstore.Options{Servers: []string{z.Addr()}, Chroot: root}, nil)
	mustApply(t, other, zkpaths.Unfenced, create("/a", "0"))
	s := open(t, zkstore.Options{Servers: []string{p.Addr()}, Chroot: root}, box.notify)
	changed := zkpaths.Notice{Type: zkpaths.NodeDataChanged, Path: "/a"}
	for i := 1; i <= 50; i++ {
		before := box.count(changed)
		read(t, s, watched(zkpaths.GetData, "/a"))
		if i%2 == 0 {
			p.Drop()
		}
		mustApply(t, other, zkpaths.Unfenced, set("/a", fmt.Sprint(i), int32(i-1)))
		if i%2 == 1 {
			p.Drop()
		}
		await(t, "a notice", func() bool { return box.count(changed) > before })
		if n := read(t, s, get("/a"))[0]; string(n.Data) != fmt.Sprint(i) {
			t.Fatalf("round %d: read %s", i, n.Data)
		}
	}
}

// TestExpiry: cut off for longer than its time-out, the session is over for its
// owner before or when it is for the server, and nothing is written any more.
func TestExpiry(t *testing.T) {
	z := real.ZooKeeper(t, real.WithTick(50*time.Millisecond))
	p := real.NewProxy(t, z.Addr())
	other := open(t, zkstore.Options{Servers: []string{z.Addr()}}, nil)
	s := open(t, zkstore.Options{Servers: []string{p.Addr()}, SessionTimeout: 500 * time.Millisecond}, nil)
	if s.Timeout() != 500*time.Millisecond {
		t.Fatalf("granted %s", s.Timeout())
	}
	mustApply(t, s, zkpaths.Unfenced, zkpaths.Write{Op: zkpaths.CreateEphemeral, Path: "/mine"})
	p.Cut()
	awaitState(t, s, zkstore.Suspended)
	done := make(chan error, 1)
	go func() {
		_, err := s.Write(t.Context(), zkpaths.Unfenced, []zkpaths.Write{create("/late", "")})
		done <- err
	}()
	<-s.Expired()
	p.Restore()
	if err := <-done; !errors.Is(err, zkpaths.ErrSessionExpired) {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context(), []zkpaths.Read{get("/")}); !errors.Is(err, zkpaths.ErrSessionExpired) || s.State() != zkstore.Expired {
		t.Fatalf("%v %s", err, s.State())
	}
	await(t, "the end of the session at the server", func() bool { return read(t, other, get("/mine"))[0].Code == zkpaths.NoNode })
	if n := read(t, other, get("/late"))[0]; n.Code != zkpaths.NoNode {
		t.Fatal("a write was sent after the expiry")
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestExpiredByServer: the server's word is taken, and no session follows.
func TestExpiredByServer(t *testing.T) {
	z := shared.Get(t)
	p := newTamper(t, z.Addr())
	s := open(t, zkstore.Options{Servers: []string{p.addr()}}, nil)
	p.refuse = true
	p.drop()
	<-s.Expired()
	if _, err := s.Write(t.Context(), 0, []zkpaths.Write{create("/x", "")}); !errors.Is(err, zkpaths.ErrSessionExpired) {
		t.Fatal(err)
	}
	s.Close(t.Context())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hellos != 2 {
		t.Fatalf("%d handshakes, want the first and the refused one", p.hellos)
	}
}

// TestWaiting: callers wait for the connection, and leave when their context ends.
func TestWaiting(t *testing.T) {
	p := real.NewProxy(t, shared.Get(t).Addr())
	s := open(t, zkstore.Options{Servers: []string{p.Addr()}, Chroot: chroot(t)}, nil)
	p.Cut()
	awaitState(t, s, zkstore.Suspended)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { _, err := s.Read(ctx, []zkpaths.Read{get("/")}); done <- err }()
	go func() {
		_, err := s.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{create("/x", "")})
		done <- err
	}()
	cancel()
	for range 2 {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	p.Restore()
	if n := read(t, s, get("/x"))[0]; n.Code != zkpaths.NoNode {
		t.Fatal("a write was sent though its caller had left before the connection came back")
	}
}

// TestCloseWhileDown: Close ends in time though nobody answers.
func TestCloseWhileDown(t *testing.T) {
	for _, how := range []string{"cut", "silent"} {
		t.Run(how, func(t *testing.T) {
			p := real.NewProxy(t, shared.Get(t).Addr())
			s := open(t, zkstore.Options{Servers: []string{p.Addr()}, Chroot: chroot(t)}, nil)
			read(t, s, gets(grow(t, s, 40), true)...)
			if how == "cut" {
				p.Cut()
				awaitState(t, s, zkstore.Suspended)
			} else {
				p.Hold(real.Down)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := s.Close(ctx); ctx.Err() != nil {
				t.Fatalf("not closed within five seconds: %v", err)
			}
		})
	}
}

// TestServers: a dead server in the list does not matter, and the session moves.
func TestServers(t *testing.T) {
	z := shared.Get(t)
	a, b := real.NewProxy(t, z.Addr()), real.NewProxy(t, z.Addr())
	dead, err := real.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, zkstore.Options{Servers: []string{fmt.Sprintf("127.0.0.1:%d", dead), a.Addr(), b.Addr()}, Chroot: chroot(t)}, nil)
	id := s.ID()
	for i := range 6 {
		p := a
		if i%2 == 1 {
			p = b
		}
		p.Cut()
		mustApply(t, s, zkpaths.Unfenced, create(fmt.Sprint("/", i), ""))
		p.Restore()
	}
	if s.ID() != id || a.Accepted() == 0 || b.Accepted() == 0 {
		t.Fatalf("session %x then %x; connections %d, %d", id, s.ID(), a.Accepted(), b.Accepted())
	}
}

// TestRestart: the session outlives a restart of the server.
func TestRestart(t *testing.T) {
	z := real.ZooKeeper(t, real.WithTick(3*time.Second))
	box := newInbox()
	s := open(t, zkstore.Options{Servers: []string{z.Addr()}, SessionTimeout: time.Minute}, box.notify)
	id := s.ID()
	read(t, s, gets(grow(t, s, 40), true)...)
	z.Kill()
	if err := z.Restart(); err != nil {
		t.Fatal(err)
	}
	mustApply(t, s, zkpaths.Unfenced, set2("/n/00003"))
	if s.ID() != id {
		t.Fatal("another session")
	}
	box.await(t, zkpaths.Notice{Type: zkpaths.NodeDataChanged, Path: "/n/00003"})
}

// TestSecure: with digest credentials nodes belong to their creator, on every
// connection of the session, also after a reconnect.
func TestSecure(t *testing.T) {
	z := shared.Get(t)
	p := newTamper(t, z.Addr())
	root := chroot(t)
	opt := zkstore.Options{Servers: []string{p.addr()}, Chroot: root, SecureACL: true,
		Auth: []zkstore.Auth{{Scheme: "digest", Data: []byte("kafka:secret")}}}
	s := open(t, opt, nil)
	var ws []zkpaths.Write
	for _, path := range []string{"/consumers", "/config", "/config/users", "/config/users/u", "/config/topics"} {
		ws = append(ws, create(path, "x"))
	}
	mustApply(t, s, zkpaths.Unfenced, ws...)
	paths := grow(t, s, 30)

	stranger := open(t, zkstore.Options{Servers: []string{z.Addr()}, Chroot: root}, nil)
	outs, err := stranger.Write(t.Context(), zkpaths.Unfenced, []zkpaths.Write{set2("/consumers"), set2("/config"), set2("/config/users/u"), create("/config/users/v", "")})
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "a stranger's writes", []zkpaths.Code{zkpaths.OK, zkpaths.NoAuth, zkpaths.NoAuth, zkpaths.NoAuth}, codes(outs))
	n := read(t, stranger, get("/config"), get("/config/topics"), get("/config/users/u"), get("/config/users"))
	diff(t, "a stranger's reads", []zkpaths.Code{zkpaths.OK, zkpaths.OK, zkpaths.NoAuth, zkpaths.NoAuth},
		[]zkpaths.Code{n[0].Code, n[1].Code, n[2].Code, n[3].Code})

	// The bulk connection is authenticated too, and both are again after a cut.
	for round := range 3 {
		rs := append(gets(paths, true), get("/config/users/u"))
		if got := read(t, s, rs...); got[30].Code != zkpaths.OK {
			t.Fatalf("round %d: %+v", round, got[30])
		}
		mustApply(t, s, zkpaths.Unfenced, set("/config/users/u", "y", int32(round)))
		p.drop()
		await(t, "a new connection", func() bool { return s.Stats().Disconnects == int64(round)+1 && s.State() == zkstore.Connected })
		if n := s.Stats().Connects; n < int64(round)+2 { // attempts that were cut again count, too
			t.Errorf("%d connections after %d cuts", n, round+1)
		}
	}
}

// TestDialFails says where and why.
func TestDialFails(t *testing.T) {
	dead, err := real.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", dead)
	_, err = zkstore.Dial(t.Context(), zkstore.Options{Servers: []string{addr}, ConnectTimeout: 300 * time.Millisecond}, func(zkpaths.Notice) {})
	if err == nil || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), "refused") {
		t.Fatalf("unreachable: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = zkstore.Dial(ctx, zkstore.Options{Servers: []string{addr}}, func(zkpaths.Notice) {}); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	for _, o := range []zkstore.Options{{}, {Servers: []string{"host"}}, {Servers: []string{"h:1"}, Chroot: "x"}, {Servers: []string{"h:99999"}}} {
		if _, err := zkstore.Dial(t.Context(), o, nil); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestParseConnect(t *testing.T) {
	cases := []struct {
		in, chroot string
		servers    []string
		bad        bool
	}{
		{in: "a:1", servers: []string{"a:1"}},
		{in: "a:1,b:2/kafka/x/", servers: []string{"a:1", "b:2"}, chroot: "/kafka/x"},
		{in: " a , [::1]:7,[fe80::2]", servers: []string{"a:2181", "[::1]:7", "[fe80::2]:2181"}},
		{in: "a:1/", servers: []string{"a:1"}},
		{in: "", bad: true}, {in: "/x", bad: true}, {in: "a:x", bad: true}, {in: "a:0", bad: true}, {in: "a:", bad: true},
		{in: "a:1//x", bad: true}, {in: "::1", bad: true}, {in: "a:1/x,b:2/x", bad: true}, {in: "a:1/../x", bad: true},
	}
	for _, c := range cases {
		servers, chroot, err := zkstore.ParseConnect(c.in)
		if (err != nil) != c.bad {
			t.Errorf("%q: %v", c.in, err)
		} else if !c.bad {
			diff(t, c.in, c.servers, servers)
			diff(t, c.in, c.chroot, chroot)
		}
	}
}

// failing is a connection whose n-th write fails, once.
type failing struct {
	net.Conn
	writes *atomic.Int64
}

func (f failing) Write(p []byte) (int, error) {
	if f.writes.Add(-1) == 0 {
		return 0, errors.New("injected")
	}
	return f.Conn.Write(p)
}

// TestWriteErrors fails each of the first writes after a reconnect, the
// credentials' among them: told to the library, such an error locks it up for
// ever (spec/zookeeper.md §1.3, 7).
func TestWriteErrors(t *testing.T) {
	z := shared.Get(t)
	for n := int64(1); n <= 6; n++ {
		p := real.NewProxy(t, z.Addr())
		var writes atomic.Int64
		s := open(t, zkstore.Options{Servers: []string{p.Addr()}, Chroot: chroot(t),
			Auth: []zkstore.Auth{{Scheme: "digest", Data: []byte("a:b")}, {Scheme: "digest", Data: []byte("c:d")}},
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return failing{c, &writes}, err
			}}, nil)
		mustApply(t, s, zkpaths.Unfenced, create("/a", ""))
		id := s.ID()
		writes.Store(n)
		p.Drop()
		await(t, "a disconnect", func() bool { return s.Stats().Disconnects > 0 })
		for v := range int32(5) {
			mustApply(t, s, zkpaths.Unfenced, set("/a", "x", v))
		}
		if s.ID() != id || writes.Load() > 0 {
			t.Fatalf("write %d: session %x then %x, %d writes to go", n, id, s.ID(), writes.Load())
		}
	}
}

// TestSilentServer: a server that accepts and says nothing costs its share of
// the time-out, not the 6.7 time-outs that the library would wait.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := open(t, zkstore.Options{Servers: []string{l.Addr().String(), shared.Get(t).Addr()}, Chroot: chroot(t),
		SessionTimeout: 4 * time.Second, ConnectTimeout: 20 * time.Second}, nil)
	mustApply(t, s, zkpaths.Unfenced, create("/a", ""))
}

// TestSilentReconnect: one server that accepts once and says nothing does not
// cost the session.
func TestSilentReconnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := real.NewProxy(t, shared.Get(t).Addr())
	var silent atomic.Bool
	s := open(t, zkstore.Options{Servers: []string{p.Addr()}, Chroot: chroot(t), SessionTimeout: 6 * time.Second,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if silent.Swap(false) {
				addr = l.Addr().String()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}}, nil)
	id := s.ID()
	silent.Store(true)
	p.Drop()
	await(t, "a disconnect", func() bool { return s.Stats().Disconnects > 0 })
	mustApply(t, s, zkpaths.Unfenced, create("/a", ""))
	if s.ID() != id || silent.Load() {
		t.Fatalf("session %x then %x", id, s.ID())
	}
}

// TestAuthRefused: an unknown scheme makes Dial fail and say so.
func TestAuthRefused(t *testing.T) {
	_, err := zkstore.Dial(t.Context(), zkstore.Options{Servers: []string{shared.Get(t).Addr()}, ConnectTimeout: 10 * time.Second,
		Auth: []zkstore.Auth{{Scheme: "nosuch", Data: []byte("x")}}}, func(zkpaths.Notice) {})
	if err == nil || !strings.Contains(err.Error(), "authenticate (nosuch)") {
		t.Fatal(err)
	}
}
