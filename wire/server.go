package wire

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// APIVersion is one row of what a server offers.
type APIVersion struct {
	Key int16
	kafka.VersionRange
}

// Handler answers requests. It must see to it that r.Reply, r.ReplyControl,
// r.Done or r.Hangup is called exactly once, from any goroutine, now or later; until then
// the connection's next request waits. The context ends when the connection or
// the server does.
type Handler interface {
	Handle(ctx context.Context, r *Request)
}

// HandlerFunc makes a function a Handler.
type HandlerFunc func(ctx context.Context, r *Request)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, r *Request) { f(ctx, r) }

// ServerOptions are the settings of a Server. Zero values mean the defaults.
type ServerOptions struct {
	// Table is what the server offers, cut to what can be decoded. Any other key
	// or version closes the connection. If it has ApiVersions (18), the server
	// answers that itself.
	Table []APIVersion

	MaxFrame int // bytes of one request; 100 MiB, 16 MiB for those that bring neither records nor a controller's orders
	// Room is for the records that producers send, until their requests are
	// answered; nil: no bound. Servers may share one.
	Room *Room
	// Large is for all other requests that are not small, until they are answered;
	// nil: DefaultLarge bytes, together with the servers that have the same Shared.
	Large *Room
	// Shared keeps once what several servers are told in the same words; nil: each
	// keeps its own.
	Shared *Shared

	MaxConnections int           // more are closed at once; 4096
	IdleTimeout    time.Duration // between requests; none
	ReadTimeout    time.Duration // for the rest of a request whose size was read; 30 s
	WriteTimeout   time.Duration // for one answer; 30 s

	Log logrus.FieldLogger
}

func (o ServerOptions) withDefaults() ServerOptions {
	def := func(v *time.Duration) {
		if *v <= 0 {
			*v = 30 * time.Second
		}
	}
	def(&o.ReadTimeout)
	def(&o.WriteTimeout)
	if o.MaxFrame <= 0 {
		o.MaxFrame = defaultMaxFrame
	}
	if o.MaxConnections <= 0 {
		o.MaxConnections = 4096
	}
	if o.Large == nil {
		o.Large = o.Shared.room()
	}
	if o.Log == nil {
		quiet := logrus.New()
		quiet.SetLevel(logrus.PanicLevel)
		o.Log = quiet
	}
	return o
}

// Server is one listening port.
type Server struct {
	o       ServerOptions
	handler Handler
	ln      net.Listener
	table   map[int16]kafka.VersionRange
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	faults faults
	full   bool // the limit was reported
}

// Serve accepts connections from ln, which it then owns, until Close.
func Serve(ln net.Listener, h Handler, o ServerOptions) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{o: o.withDefaults(), handler: h, ln: ln, cancel: cancel, conns: map[net.Conn]struct{}{}, table: map[int16]kafka.VersionRange{}}
	for _, v := range o.Table {
		if v.Max = min(v.Max, newest(v.Key)); v.Min <= v.Max {
			s.table[v.Key] = v.VersionRange
		}
	}
	s.wg.Add(1)
	go s.accept(ctx)
	return s
}

// Addr is the address listened on.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Connections is the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// DropConnections closes every open connection and goes on listening.
func (s *Server) DropConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// Close stops listening, ends every connection and handler's context, and waits
// for the server's goroutines. A handler that ignores its context holds it up.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.cancel()
	s.ln.Close()
	s.wg.Wait()
}

func (s *Server) accept(ctx context.Context) {
	defer s.wg.Done()
	failing := false
	for {
		nc, err := s.ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			if !failing { // out of file descriptors, most likely: others must end first
				s.o.Log.WithFields(logrus.Fields{"listener": s.ln.Addr().String(), "error": err}).Error("connections cannot be accepted; trying again")
			}
			failing = true
			retry := time.NewTimer(100 * time.Millisecond)
			select {
			case <-retry.C:
			case <-ctx.Done():
				retry.Stop()
				return
			}
			continue
		}
		failing = false
		if !s.admit(nc) {
			nc.Close()
			continue
		}
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			defer s.leave(nc)
			s.newPeer(nc).serve(ctx)
		}()
	}
}

func (s *Server) admit(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if len(s.conns) >= s.o.MaxConnections {
		if !s.full {
			s.o.Log.WithFields(logrus.Fields{"listener": s.ln.Addr().String(), "limit": s.o.MaxConnections, "remote": nc.RemoteAddr().String()}).
				Warn("connection limit reached; new connections are closed")
		}
		s.full = true
		return false
	}
	// Not at once: at the limit every place that gets free would be told anew.
	s.full = s.full && len(s.conns) > s.o.MaxConnections*9/10
	s.conns[nc] = struct{}{}
	return true
}

func (s *Server) leave(nc net.Conn) {
	nc.Close()
	s.mu.Lock()
	delete(s.conns, nc)
	s.mu.Unlock()
}
