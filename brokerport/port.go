package brokerport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// Node is the broker behind the port; *brokers.Node is one. A reply is called
// once, from the broker's loop, or never if the process dies first.
type Node interface {
	ID() kafka.BrokerID
	Options() brokers.Options
	Metadata() *brokers.MetadataCache
	HandleControl(ctx context.Context, r control.Request) (control.Response, error)
	Produce(r *brokers.ProduceRequest, reply func([]brokers.ProduceResult))
	Fetch(r *brokers.FetchRequest, reply func([]brokers.FetchResult))
	ListOffsets(q []brokers.OffsetQuery, replica kafka.BrokerID, committed bool, reply func([]brokers.OffsetAnswer))
	EpochEnds(q []brokers.EpochQuery, replica kafka.BrokerID, reply func([]brokers.EpochAnswer))
	DeleteRecords(offsets map[kafka.TopicPartition]int64, timeout time.Duration, reply func(map[kafka.TopicPartition]brokers.LowWatermark))
	LogDirs(reply func([]brokers.LogDir))
	Coordinate(r groups.Request)
	TopicConfig(topic string) brokers.TopicConfig
}

// Controller is a broker's way to the controller.
type Controller interface {
	// Ask sends a request at the newest version both sides know, between lo and hi.
	Ask(ctx context.Context, controller kafka.Broker, req kmsg.Request, lo, hi int16) (kmsg.Response, error)
}

// Options is what a Port is told.
type Options struct {
	Node Node
	// Settings are what server.properties gives.
	Settings Settings
	// Store is the way to ZooKeeper; nil: what needs it is not served.
	Store Store
	// TopicID gives ids for new topics. It must be there if Store is.
	TopicID func() kafka.TopicID
	// ToController asks the controller for blocks of producer ids, where the
	// protocol version has that; nil: they are taken in ZooKeeper.
	ToController Controller
	// ClusterID gives /cluster/id, or "" while it is not known.
	ClusterID func(context.Context) string
	// Controller answers what only a controller may, where this process can be
	// one; nil: such requests are answered NOT_CONTROLLER.
	Controller *endpoint.Endpoint
	// Unpacking is for the records that come and go packed; nil: the port's own.
	Unpacking *Unpacking
	Log       logrus.FieldLogger
}

// Port answers the requests of one broker, on all its listeners.
type Port struct {
	node       Node
	clusterID  func(context.Context) string
	controller *endpoint.Endpoint
	standby    bool // controller is our own, never in charge
	log        logrus.FieldLogger
	settings   Settings
	store      Store
	topicID    func() kafka.TopicID
	producers  *ProducerIDs
	// toController is the way to it; nil: none
	toController Controller
	served       map[int16]api
	sessions     *sessions
	reads        chan struct{} // room of maxZooKeeperRequests
	unpacking    *Unpacking

	fetchMaxBytes int // fetch.max.bytes: no answer is larger, but for the first batch

	mu      sync.Mutex // guards closed, and work against Close
	closed  bool
	work    sync.WaitGroup
	ctx     context.Context // ends with Close
	endWork context.CancelFunc
}

// New makes a Port. Listener gives what serves a listening socket.
func New(o Options) (*Port, error) {
	if err := o.Settings.Check(); err != nil {
		return nil, err
	}
	p := &Port{node: o.Node, clusterID: o.ClusterID, controller: o.Controller, log: o.Log, settings: o.Settings, store: o.Store, topicID: o.TopicID,
		sessions: newSessions(int(o.Settings.number("max.incremental.fetch.session.cache.slots"))), reads: make(chan struct{}, maxZooKeeperRequests),
		fetchMaxBytes: int(o.Settings.number("fetch.max.bytes"))}
	if p.log == nil {
		quiet := logrus.New()
		quiet.SetOutput(io.Discard)
		p.log = quiet
	}
	if p.clusterID == nil {
		p.clusterID = func(context.Context) string { return "" }
	}
	if p.controller == nil {
		p.controller = newStandby(p, p.log)
		p.standby = true
	}
	if p.unpacking = o.Unpacking; p.unpacking == nil {
		p.unpacking = NewUnpacking()
	}
	p.toController, p.producers = o.ToController, NewProducerIDs(p.producerBlock)
	p.served = p.serves()
	p.ctx, p.endWork = context.WithCancel(context.Background())
	return p, nil
}

// Close ends the work that requests have begun, and waits for it.
func (p *Port) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.endWork()
	p.work.Wait()
	if p.standby {
		p.controller.Close()
	}
}

// Listener answers the requests that come in on one of the broker's listeners.
type Listener struct {
	*Port
	name string
}

// Listener gives the handler of the listener with a name.
func (p *Port) Listener(name string) *Listener { return &Listener{p, name} }

// handler answers one request: it calls one of r's methods once, now or later.
// It must not wait for anything but the processor.
type handler func(l *Listener, ctx context.Context, r *wire.Request) error

// errHangup closes the connection without a word in the log.
var errHangup = errors.New("the connection is to be closed")

// Handle is wire.Handler's.
func (l *Listener) Handle(ctx context.Context, r *wire.Request) {
	a, ok := l.served[r.Key]
	if !ok || a.handle == nil {
		r.Hangup()
		return
	}
	l.guard(r, func() error { return a.handle(l, ctx, r) })
}

// guard turns an error or a panic of f into the end of the connection, unless f
// has answered already.
func (l *Listener) guard(r *wire.Request, f func() error) {
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v", p)
				l.log.WithFields(logrus.Fields{"key": r.Key, "version": r.Version, "error": err, "stack": string(debug.Stack())}).
					Error("a request's handler failed")
			}
		}()
		return f()
	}()
	if err == nil {
		return
	}
	if !errors.Is(err, errHangup) {
		l.log.WithFields(logrus.Fields{"remote": r.Remote.String(), "client_id": r.ClientID, "key": r.Key, "version": r.Version, "error": err}).
			Debug("request not answered")
	}
	r.Hangup()
}

// quick makes a handler of a method that answers without waiting.
func quick[R kmsg.Request](f func(*Listener, context.Context, R) (kmsg.Response, error)) handler {
	return func(l *Listener, ctx context.Context, r *wire.Request) error {
		req, ok := r.Kafka.(R)
		if !ok {
			return fmt.Errorf("request %T under key %d", r.Kafka, r.Key)
		}
		resp, err := f(l, ctx, req)
		if err == nil {
			r.Reply(resp)
		}
		return err
	}
}

// slow makes a handler of a method that may wait, for ZooKeeper or others. It
// runs on a goroutine of its own, so that the server meanwhile sees the client
// go away and ends ctx.
func slow[R kmsg.Request](f func(*Listener, context.Context, R) (kmsg.Response, error)) handler {
	answer := quick(f)
	return func(l *Listener, ctx context.Context, r *wire.Request) error {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return errHangup
		}
		l.work.Add(1)
		l.mu.Unlock()
		go func() {
			defer l.work.Done()
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(l.ctx, cancel)()
			l.guard(r, func() error { return answer(l, ctx, r) })
		}()
		return nil
	}
}

// called makes a handler of a method that answers through r, at once or later.
func called[R kmsg.Request](f func(*Listener, *wire.Request, R)) handler {
	return func(l *Listener, _ context.Context, r *wire.Request) error {
		req, ok := r.Kafka.(R)
		if !ok {
			return fmt.Errorf("request %T under key %d", r.Kafka, r.Key)
		}
		f(l, r, req)
		return nil
	}
}

// later is a response that is built when it is encoded, on the connection's
// goroutine, from what the broker's loop gave.
type later struct {
	kmsg.Response // of the right kind and version, otherwise empty
	build         func() kmsg.Response
}

// AppendTo builds the response and encodes it.
func (a later) AppendTo(dst []byte) []byte {
	resp := a.build()
	resp.SetVersion(a.GetVersion())
	return resp.AppendTo(dst)
}

// replyLater answers with what build gives.
func replyLater(r *wire.Request, build func() kmsg.Response) {
	r.Reply(later{r.Kafka.ResponseKind(), build})
}

func (l *Listener) handleControl(ctx context.Context, r *wire.Request) error {
	answer, err := l.node.HandleControl(ctx, r.Control)
	if err != nil {
		return err
	}
	r.ReplyControl(answer)
	return nil
}
