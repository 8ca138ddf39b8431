package endpoint

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// Loop is the controller's event queue. Put does not block.
type Loop interface {
	Put(events.Event)
}

// Configs reads and changes configurations in ZooKeeper, which any broker does
// without asking the controller.
type Configs interface {
	// Topic gives the keys set for a topic, or an error that wraps
	// kafka.UnknownTopicOrPartition when there is no such topic.
	Topic(ctx context.Context, topic string) (map[string]string, error)
	// AlterTopic replaces the keys set for a topic by what change makes of the
	// present ones, and then tells all brokers through /config/changes. It calls
	// change again when somebody else wrote first. An error of change is given
	// back as it is; for a topic that does not exist see Topic.
	AlterTopic(ctx context.Context, topic string, change func(set map[string]string) (map[string]string, error)) error
	// BrokerDefaults gives the dynamic configuration of all brokers.
	BrokerDefaults(ctx context.Context) (map[string]string, error)
	// AlterBrokerDefaults replaces it as AlterTopic does a topic's. Clients take any
	// node for that.
	AlterBrokerDefaults(ctx context.Context, change func(set map[string]string) (map[string]string, error)) error
	// BrokerKeys are the keys that it may have.
	BrokerKeys() ConfigKeys
}

// Producers gives out producer ids, which any broker does without asking the
// controller (spec/control-plane.md §5.1).
type Producers interface {
	// NextID gives an id that no other producer of the cluster has or will get.
	NextID(ctx context.Context) (int64, error)
}

// Options is what an Endpoint is told.
type Options struct {
	ID       kafka.BrokerID // the controller's own id
	Listener string         // name of the listener the endpoint serves: brokers are shown by theirs of that name
	Loop     Loop
	Configs  Configs // nil: DescribeConfigs is not served, topics' configurations cannot be changed
	// Producers nil: InitProducerId is not served, and an idempotent producer
	// that comes by, which is any of Java's since 3.0, fails for good.
	Producers Producers
	// OffsetsTopic is what __consumer_offsets is like where a client who looks for
	// its group's coordinator has it created; nil: it is left to brokers.
	OffsetsTopic *events.NewTopic
	// AutoTopic is what a topic is like, but for its name, that comes into being
	// because a client asks for its metadata; nil: none does.
	AutoTopic *events.NewTopic
	Log       logrus.FieldLogger

	MaxConnections int // 0 is 4096
	// MaxClientEvents and MaxBrokerEvents bound the events of this endpoint that
	// are in the queue at one time; 0 is 256 and 1024. More wait for a place.
	MaxClientEvents, MaxBrokerEvents int
}

const (
	maxFrame    = 16 << 20 // bytes of a request: some 500 000 partitions to reassign
	idleTimeout = 10 * time.Minute
)

// Endpoint answers the requests of one listener.
type Endpoint struct {
	id        kafka.BrokerID
	listener  string
	loop      Loop
	configs   Configs
	producers Producers
	offsets   *events.NewTopic // nil: not created here
	auto      *events.NewTopic // nil: none is created for Metadata
	log       logrus.FieldLogger
	served    []api // by key, ascending
	server    *wire.Server

	mu       sync.Mutex // guards closed, and handlers against Close
	closed   bool
	handlers sync.WaitGroup

	clients, brokers lane
	whole            lane // descriptions of all topics
	reads            lane // what is read of ZooKeeper past the loop
}

// Serve answers requests that come in on ln, which it then owns, until Close.
func Serve(ln net.Listener, o Options) *Endpoint {
	e := newEndpoint(o)
	e.server = wire.Serve(ln, e, wire.ServerOptions{Table: e.Table(), MaxFrame: maxFrame,
		MaxConnections: o.MaxConnections, IdleTimeout: idleTimeout, Log: o.Log})
	return e
}

// Mount makes an Endpoint without a port: a server that others know already, a
// broker's, passes the controller's requests to its Handle.
func Mount(o Options) *Endpoint { return newEndpoint(o) }

// Table is what the endpoint serves.
func (e *Endpoint) Table() []wire.APIVersion {
	table := make([]wire.APIVersion, len(e.served))
	for i, a := range e.served {
		table[i] = wire.APIVersion{Key: int16(a.key), VersionRange: kafka.VersionRange{Min: a.min, Max: a.max}}
	}
	return table
}

func newEndpoint(o Options) *Endpoint {
	if o.MaxClientEvents <= 0 {
		o.MaxClientEvents = 256
	}
	if o.MaxBrokerEvents <= 0 {
		o.MaxBrokerEvents = 1024
	}
	e := &Endpoint{id: o.ID, listener: o.Listener, loop: o.Loop, configs: o.Configs, producers: o.Producers, offsets: o.OffsetsTopic, auto: o.AutoTopic, log: o.Log,
		clients: make(lane, o.MaxClientEvents), brokers: make(lane, o.MaxBrokerEvents),
		whole: make(lane, 4), reads: make(lane, 8)}
	if e.log == nil {
		quiet := logrus.New()
		quiet.SetOutput(io.Discard)
		e.log = quiet
	}
	for _, a := range allAPIs() {
		if a.key == kmsg.DescribeConfigs && o.Configs == nil || a.key == kmsg.InitProducerID && o.Producers == nil {
			continue
		}
		e.served = append(e.served, a)
	}
	return e
}

// Addr is the address listened on; an Endpoint that was mounted has none.
func (e *Endpoint) Addr() net.Addr { return e.server.Addr() }

// Close stops listening, closes all connections and waits for what was being
// answered. Events that are in the queue stay there; nobody reads their answers.
func (e *Endpoint) Close() {
	if e.server != nil {
		e.server.Close()
	}
	e.mu.Lock()
	e.closed = true // another server may still pass requests on
	e.mu.Unlock()
	e.handlers.Wait()
}

// Handle is wire.Handler's. It answers one request on a goroutine of its own, so
// that the server meanwhile sees the client go away and ends ctx.
func (e *Endpoint) Handle(ctx context.Context, r *wire.Request) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		r.Hangup()
		return
	}
	e.handlers.Add(1)
	e.mu.Unlock()
	go func() {
		defer e.handlers.Done()
		resp, err := e.answer(ctx, r.Kafka)
		if err != nil {
			e.log.WithFields(logrus.Fields{"remote": r.Remote.String(), "client_id": r.ClientID, "key": r.Key, "version": r.Version, "error": err}).
				Debug("request not answered")
			r.Hangup()
			return
		}
		r.Reply(resp)
	}()
}

// handler answers one request. An error closes the connection.
type handler func(e *Endpoint, ctx context.Context, req kmsg.Request) (kmsg.Response, error)

type api struct {
	key      kmsg.Key
	min, max int16
	handle   handler
}

// allAPIs is everything the endpoint can serve (spec/control-plane.md §5.2).
func allAPIs() []api {
	return []api{
		{kmsg.Metadata, 0, 12, on((*Endpoint).metadata)},
		{kmsg.ControlledShutdown, 0, 3, on((*Endpoint).controlledShutdown)},
		{kmsg.FindCoordinator, 0, 4, on((*Endpoint).findCoordinator)},
		{kmsg.ListGroups, 0, 5, on((*Endpoint).listGroups)},
		{kmsg.ApiVersions, 0, 4, nil}, // answered by wire.Server
		{kmsg.CreateTopics, 0, 7, on((*Endpoint).createTopics)},
		{kmsg.DeleteTopics, 0, 6, on((*Endpoint).deleteTopics)},
		{kmsg.InitProducerID, 0, 5, on((*Endpoint).initProducerID)},
		{kmsg.DescribeConfigs, 0, 4, on((*Endpoint).describeConfigs)},
		{kmsg.AlterConfigs, 0, 2, on((*Endpoint).alterConfigs)},
		{kmsg.DescribeLogDirs, 0, 4, on((*Endpoint).describeLogDirs)},
		{kmsg.CreatePartitions, 0, 3, on((*Endpoint).createPartitions)},
		{kmsg.ElectLeaders, 0, 2, on((*Endpoint).electLeaders)},
		{kmsg.IncrementalAlterConfigs, 0, 1, on((*Endpoint).incrementalAlterConfigs)},
		{kmsg.AlterPartitionAssignments, 0, 0, on((*Endpoint).alterReassignments)},
		{kmsg.ListPartitionReassignments, 0, 0, on((*Endpoint).listReassignments)},
		{kmsg.AlterPartition, 0, 3, on((*Endpoint).alterPartition)},
		{kmsg.UpdateFeatures, 0, 1, on((*Endpoint).updateFeatures)},
		{kmsg.DescribeCluster, 0, 1, on((*Endpoint).describeCluster)},
		{kmsg.ListTransactions, 0, 1, on((*Endpoint).listTransactions)},
		{kmsg.AllocateProducerIDs, 0, 0, on((*Endpoint).allocateProducerIDs)},
	}
}

// on makes a handler of a method for one type of request.
func on[R kmsg.Request](f func(*Endpoint, context.Context, R) (kmsg.Response, error)) handler {
	return func(e *Endpoint, ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
		r, ok := req.(R)
		if !ok {
			return nil, fmt.Errorf("request %T under key %d", req, req.Key())
		}
		return f(e, ctx, r)
	}
}

// answer gives the answer to one request, waiting for the loop where it must.
// An error means that there is none and the connection is to be closed: the key
// or version is not served, ctx ended, or a handler failed, which may cost the
// one connection but not the controller.
func (e *Endpoint) answer(ctx context.Context, req kmsg.Request) (resp kmsg.Response, err error) {
	a, ok := e.api(kmsg.Key(req.Key()))
	if !ok || a.handle == nil || req.GetVersion() < a.min || req.GetVersion() > a.max {
		return nil, fmt.Errorf("%s v%d is not served", kmsg.NameForKey(req.Key()), req.GetVersion())
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s v%d: panic: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), p)
			e.log.WithFields(logrus.Fields{"error": err, "stack": string(debug.Stack())}).Error("a request's handler failed")
		}
	}()
	return a.handle(e, ctx, req)
}

func (e *Endpoint) api(key kmsg.Key) (api, bool) {
	i, ok := slices.BinarySearchFunc(e.served, key, func(a api, k kmsg.Key) int { return cmp.Compare(a.key, k) })
	if !ok {
		return api{}, false
	}
	return e.served[i], true
}

// lane bounds how many events are in the queue: a place is taken before Put and
// given back by Reply, so that clients that go away and come again cannot fill
// the queue of a loop that is busy.
type lane chan struct{}

// enter takes a place, or gives up with ctx.
func (l lane) enter(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for a place in the controller's queue: %w", ctx.Err())
	}
}

func (l lane) leave() { <-l }

// ask puts the event that build makes into the queue and waits for its answer.
func ask[T any](ctx context.Context, e *Endpoint, l lane, build func(reply func(T)) events.Event) (T, error) {
	var none T
	if err := l.enter(ctx); err != nil {
		return none, err
	}
	answer := make(chan T, 1)
	var answered atomic.Bool
	e.loop.Put(build(func(t T) {
		if answered.Swap(true) {
			panic("endpoint: an event was answered twice")
		}
		answer <- t
		l.leave()
	}))
	select {
	case t := <-answer:
		return t, nil
	case <-ctx.Done():
		return none, fmt.Errorf("waiting for the controller's answer: %w", ctx.Err())
	}
}

// timeoutContext bounds a wait by a request's TimeoutMs. None that is not
// positive bounds anything: such a request only waits for the checks.
func timeoutContext(ctx context.Context, millis int32) (context.Context, context.CancelFunc) {
	if millis <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Duration(millis)*time.Millisecond)
}

// describe asks for the cluster and the named topics.
func (e *Endpoint) describe(ctx context.Context, refs []events.TopicRef) (events.Cluster, error) {
	return ask(ctx, e, e.clients, func(reply func(events.Cluster)) events.Event {
		return events.Describe{Topics: refs, Reply: reply}
	})
}

// describeAll asks for the cluster and all its topics, which is large: few of
// these are in the queue at a time.
func (e *Endpoint) describeAll(ctx context.Context) (events.Cluster, error) {
	return ask(ctx, e, e.whole, func(reply func(events.Cluster)) events.Event {
		return events.Describe{All: true, Reply: reply}
	})
}

// brokerIDs takes over a list of ids; nil stays nil.
func brokerIDs(ids []int32) []kafka.BrokerID {
	if ids == nil {
		return nil
	}
	out := make([]kafka.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = kafka.BrokerID(id)
	}
	return out
}

// rawIDs is the way back; the list is never nil, since no answer has a null one.
func rawIDs(ids []kafka.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

// message is what an answer says next to a code: null without an error.
func message(r events.RowError) *string {
	switch {
	case r.Error == kafka.NoError:
		return nil
	case r.Message == "":
		return new(r.Error.String())
	}
	return new(r.Message)
}

func refuse(code kafka.ErrorCode, format string, args ...any) events.RowError {
	return events.RowError{Error: code, Message: fmt.Sprintf(format, args...)}
}

// notController answers a request that only the active controller serves.
var notController = events.RowError{Error: kafka.NotController, Message: "this is not the active controller of the cluster"}

// oneEach is err, or tells that the loop answered another number of rows.
func oneEach(err error, asked, answered int) error {
	if err == nil && asked != answered {
		return fmt.Errorf("%d rows were asked for and %d answered", asked, answered)
	}
	return err
}
