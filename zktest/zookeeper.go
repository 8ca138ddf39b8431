package zktest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/zkserver"
)

// memoryAddress is what a ZooKeeper without a socket is called: an address that
// is reserved for documentation, since clients look names up before they dial.
const memoryAddress = "192.0.2.1:2181"

// ZooKeeper is a ZooKeeper server in this process. Its methods may be called
// from any goroutine.
type ZooKeeper struct {
	server  *zkserver.Server
	clock   *zkserver.ManualClock
	address string
	serving sync.WaitGroup
	once    sync.Once
	err     error
}

// StartZooKeeper starts a server that ends with the test.
func StartZooKeeper(t testing.TB, options ...Option) *ZooKeeper {
	t.Helper()
	z, err := NewZooKeeper(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	})
	return z
}

// NewZooKeeper starts a server for programs that are no tests; they call Close.
func NewZooKeeper(options ...Option) (*ZooKeeper, error) {
	s, err := settingsOf(options)
	if err != nil {
		return nil, err
	}
	return newZooKeeper(s)
}

func newZooKeeper(s settings) (*ZooKeeper, error) {
	z := &ZooKeeper{clock: s.clock, address: memoryAddress}
	var l net.Listener
	var err error
	if !s.inMemory {
		if l, err = net.Listen("tcp", s.address); err != nil {
			return nil, fmt.Errorf("zktest: open ZooKeeper's port: %w; give another Address, or stop who has it", err)
		}
		z.address = l.Addr().String()
		s.server.ClientPort = l.Addr().(*net.TCPAddr).Port
	}
	if z.server, err = zkserver.New(s.server); err != nil {
		if l != nil {
			l.Close()
		}
		return nil, fmt.Errorf("zktest: %w", err)
	}
	if l != nil {
		z.serving.Go(func() {
			// It ends with the server; a port that somebody else shut stays shut.
			_ = z.server.Serve(l)
		})
	}
	return z, nil
}

// Close ends the server and waits until nothing is left of it. Sessions end
// with a server in memory; one with a DataDir keeps them for its successor.
func (z *ZooKeeper) Close() error {
	z.once.Do(func() {
		if err := z.server.Close(); err != nil {
			z.err = fmt.Errorf("zktest: close ZooKeeper: %w", err)
		}
		z.serving.Wait()
	})
	return z.err
}

// Connect is the connect string, HOST:PORT. In memory it is an address that
// leads nowhere but by a dialer of this ZooKeeper.
func (z *ZooKeeper) Connect() string { return z.address }

// Dial gives an in-memory connection to the server; network and address do not
// matter. It works beside sockets, too.
func (z *ZooKeeper) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return z.server.Dial(ctx, network, address)
}

// DialTimeout is Dial in the form of go-zookeeper's zk.Dialer:
//
//	zk.Connect([]string{z.Connect()}, timeout, zk.WithDialer(z.DialTimeout))
func (z *ZooKeeper) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return z.server.Dial(ctx, network, address)
}

// Server is the server itself, for what is not here.
func (z *ZooKeeper) Server() *zkserver.Server { return z.server }

// Session is one live session.
type Session = zkserver.SessionInfo

// Sessions lists the live sessions, ordered by id.
func (z *ZooKeeper) Sessions() []Session { return z.server.Sessions() }

// SessionOf gives the session that owns an ephemeral node; 0: there is no such
// node, or it is not ephemeral.
func (z *ZooKeeper) SessionOf(path string) int64 {
	n, _ := z.Node(path)
	return max(0, n.Stat.EphemeralOwner) // below 0 are containers and nodes with a TTL
}

// Expire ends a session as if its time had run out: its ephemeral nodes go, and
// its client hears of it when it connects again. False: there is no such session.
func (z *ZooKeeper) Expire(session int64) bool { return z.server.Expire(session) }

// Disconnect closes the connection of a session, which lives on. False: there
// is no such session, or nobody is connected.
func (z *ZooKeeper) Disconnect(session int64) bool { return z.server.Disconnect(session) }

// DisconnectAll closes the connections of all sessions.
func (z *ZooKeeper) DisconnectAll() {
	for _, s := range z.server.Sessions() {
		z.server.Disconnect(s.ID)
	}
}

// Pause makes the server hang: nothing is answered and no session expires until
// Resume, which gives every session its full time again.
func (z *ZooKeeper) Pause() { z.server.Pause() }

// Resume ends a Pause.
func (z *ZooKeeper) Resume() { z.server.Resume() }

// Advance moves the clock of a ZooKeeper that was started with ManualClock.
// Sessions that had to expire by then have expired when it returns.
func (z *ZooKeeper) Advance(d time.Duration) {
	if z.clock == nil {
		panic("zktest: Advance needs a ZooKeeper that was started with ManualClock")
	}
	z.clock.Advance(d)
}

// Await waits until ok, which is called again and again, is true. It is for
// conditions that nobody announces.
func (z *ZooKeeper) Await(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("zktest: what was waited for did not come: %w", context.Cause(ctx))
		}
	}
	return nil
}
