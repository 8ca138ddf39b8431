package assembly

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
)

// Memory is a network without sockets: ports are names, connections are
// net.Pipes. It is at home in a testing/synctest bubble.
type Memory struct {
	mu    sync.Mutex
	ports map[string]*memoryListener
}

// NewMemory makes a network on which nobody listens yet.
func NewMemory() *Memory { return &Memory{ports: map[string]*memoryListener{}} }

// Network gives the form that options take.
func (m *Memory) Network() Network { return Network{Listen: m.Listen, Dial: m.Dial} }

// firstMemoryPort is where the search for a free port begins: Kafka's own.
const firstMemoryPort = 9092

// Listen opens HOST:PORT. Any host will do; port 0 takes the host's first free
// one from 9092 on.
func (m *Memory) Listen(address string) (net.Listener, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listen in memory: %w", err)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 0 {
		return nil, fmt.Errorf("listen in memory at %s: the port is no number", address)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if port == 0 {
		for port = firstMemoryPort; m.ports[net.JoinHostPort(host, strconv.Itoa(port))] != nil; port++ {
		}
	}
	l := &memoryListener{network: m, address: memoryAddr(net.JoinHostPort(host, strconv.Itoa(port))), come: make(chan net.Conn), shut: make(chan struct{})}
	if m.ports[string(l.address)] != nil {
		return nil, fmt.Errorf("listen in memory at %s: somebody listens there", l.address)
	}
	m.ports[string(l.address)] = l
	return l, nil
}

// Dial connects to HOST:PORT. Where nobody listens it fails at once.
func (m *Memory) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	m.mu.Lock()
	l := m.ports[address]
	m.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "memory", Addr: memoryAddr(address), Err: errNobodyListens}
	if l == nil {
		return nil, refused
	}
	client, server := net.Pipe()
	at := l.address
	select {
	case l.come <- memoryConn{server, at, "client"}:
		return memoryConn{client, "client", at}, nil
	case <-l.shut:
	case <-ctx.Done():
		refused.Err = ctx.Err()
	}
	client.Close()
	server.Close()
	return nil, refused
}

var errNobodyListens = errors.New("nobody listens there")

type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

type memoryConn struct {
	net.Conn
	local, remote memoryAddr
}

func (c memoryConn) LocalAddr() net.Addr  { return c.local }
func (c memoryConn) RemoteAddr() net.Addr { return c.remote }

type memoryListener struct {
	network *Memory
	address memoryAddr
	come    chan net.Conn
	once    sync.Once
	shut    chan struct{}
}

// Accept is net.Listener's.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.come:
		return c, nil
	case <-l.shut:
		return nil, net.ErrClosed
	}
}

// Close is net.Listener's.
func (l *memoryListener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.ports, string(l.address))
		l.network.mu.Unlock()
		close(l.shut)
	})
	return nil
}

// Addr is net.Listener's.
func (l *memoryListener) Addr() net.Addr { return l.address }
