package dispatch

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// sink is a broker that notes control requests and answers them with success,
// or as Answer says.
type sink struct {
	t      *testing.T
	broker kafka.Broker
	server *wire.Server
	addr   string
	table  []wire.APIVersion
	answer func(r *wire.Request) bool // true: it saw to the answer

	mu   sync.Mutex
	cond *sync.Cond
	seen []seen
}

type seen struct {
	version int16
	req     control.Request
}

func table(lisr, umr, sr int16) []wire.APIVersion {
	return []wire.APIVersion{{Key: 4, VersionRange: kafka.VersionRange{Max: lisr}}, {Key: 5, VersionRange: kafka.VersionRange{Max: sr}},
		{Key: 6, VersionRange: kafka.VersionRange{Max: umr}}, {Key: 18, VersionRange: kafka.VersionRange{Max: 4}}}
}

func newSink(t *testing.T, id kafka.BrokerID, tab []wire.APIVersion, answer func(*wire.Request) bool) *sink {
	t.Helper()
	s := &sink{t: t, table: tab, answer: answer}
	s.cond = sync.NewCond(&s.mu)
	s.start("127.0.0.1:0")
	host, port, _ := net.SplitHostPort(s.addr)
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	s.broker = kafka.Broker{ID: id, Epoch: 100 + int64(id), Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: host, Port: int32(n)}}}
	return s
}

func (s *sink) start(addr string) {
	s.t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	s.server = wire.Serve(ln, wire.HandlerFunc(s.handle), wire.ServerOptions{Table: s.table})
	server := s.server
	s.t.Cleanup(server.Close)
}

func (s *sink) handle(_ context.Context, r *wire.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, seen{r.Version, r.Control})
	s.cond.Broadcast()
	s.mu.Unlock()
	if s.answer != nil && s.answer(r) {
		return
	}
	r.ReplyControl(success(r.Control))
}

func success(r control.Request) control.Response {
	errs := map[kafka.TopicPartition]kafka.ErrorCode{}
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		for _, p := range r.Partitions {
			errs[p.TopicPartition] = 0
		}
	case *control.StopReplicaRequest:
		for _, p := range r.Partitions {
			errs[p.TopicPartition] = 0
		}
	}
	return control.Response{Errors: errs}
}

// wait blocks until n requests were seen and gives them.
func (s *sink) wait(n int) []seen {
	s.t.Helper()
	stop := context.AfterFunc(s.t.Context(), s.cond.Broadcast)
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.seen) < n && s.t.Context().Err() == nil {
		s.cond.Wait()
	}
	return append([]seen(nil), s.seen...)
}

// eventQueue collects events.
type eventQueue chan events.Event

func (q eventQueue) take(t *testing.T) events.Event {
	t.Helper()
	select {
	case ev := <-q:
		return ev
	case <-t.Context().Done():
		t.Fatal("no event")
		return nil
	}
}

func newDispatcher(t *testing.T, o Options) (*Dispatcher, eventQueue) {
	t.Helper()
	q := make(eventQueue, 10000)
	o.ControllerID = 9999
	o.Put = func(ev events.Event) { q <- ev }
	if o.Version == (kafka.ProtocolVersion{}) {
		o.Version = kafka.V3_9IV0
	}
	if o.RetryPause == 0 {
		o.RetryPause = time.Millisecond
	}
	d := New(o)
	t.Cleanup(d.Close)
	return d, q
}
