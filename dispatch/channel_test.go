package dispatch

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"go.uber.org/goleak"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbered gives an UpdateMetadata that tells itself apart.
func numbered(b kafka.Broker, n int32) *control.UpdateMetadataRequest {
	return umr(b, &control.Metadata{Partitions: []*control.PartitionState{state("t", n, 1, n)}})
}

func numbers(s []seen) (out []int32) {
	for _, r := range s {
		if um, ok := r.req.(*control.UpdateMetadataRequest); ok {
			out = append(out, um.Partitions[0].Partition)
		} else {
			out = append(out, -1)
		}
	}
	return out
}

// C-147: a broker that breaks the connection gets the same request again, before any
// other; one that was closed between requests is reached again at once.
func TestSameRequestAgain(t *testing.T) {
	var broken atomic.Int32
	s := newSink(t, 1, table(7, 8, 4), func(r *wire.Request) bool {
		if um := r.Control.(*control.UpdateMetadataRequest); um.Partitions[0].Partition == 1 && broken.Add(1) <= 3 {
			r.Hangup()
			return true
		}
		return false
	})
	d, q := newDispatcher(t, Options{})
	d.Add(s.broker)
	for n := range int32(4) {
		d.Send(1, numbered(s.broker, n))
	}
	for range 4 {
		q.take(t)
	}
	if diff := cmp.Diff([]int32{0, 1, 1, 1, 1, 2, 3}, numbers(s.wait(7))); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	s.server.DropConnections()
	d.Send(1, numbered(s.broker, 4))
	q.take(t)
	st := d.Stats().Brokers[1]
	if st.Requests != 5 || st.Answers != 5 || st.Failures < 3 || !st.Connected || st.QueueSize != 0 {
		t.Errorf("stats %+v", st)
	}
}

// flaky lets the first connections of a listener go wrong in some way.
type flaky struct {
	net.Listener
	bad []func(net.Conn)
	n   atomic.Int32
	wg  sync.WaitGroup
}

func (f *flaky) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil {
			f.wg.Wait()
			return nil, err
		}
		n := int(f.n.Add(1)) - 1
		if n >= len(f.bad) {
			return c, nil
		}
		f.wg.Go(func() {
			defer c.Close()
			f.bad[n](c)
		})
	}
}

// apiVersionsThen answers ApiVersions properly and the next request with b.
func apiVersionsThen(b []byte) func(net.Conn) {
	return func(c net.Conn) {
		read := func() bool {
			_, err := c.Read(make([]byte, 4096))
			return err == nil
		}
		if !read() {
			return
		}
		// v3: error 0, keys 4 5 6 with min 0 and max 7 4 8, throttle, no tags
		c.Write([]byte{0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 4, 0, 4, 0, 0, 0, 7, 0, 0, 5, 0, 0, 0, 4, 0, 0, 6, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0})
		if read() {
			c.Write(b)
		}
	}
}

// Whatever a broker answers that is no answer, the request is sent again on a
// new connection, and reported once.
func TestBadAnswers(t *testing.T) {
	good := func(corr byte) []byte { return []byte{0, 0, 0, 8, 0, 0, 0, corr, 0, 0, 0, 0} }
	bad := map[string]func(net.Conn){
		"garbage for ApiVersions": func(c net.Conn) { c.Read(make([]byte, 4096)); c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"another correlation id":  apiVersionsThen(good(7)),
		"garbage":                 apiVersionsThen([]byte{0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 0, 0}),
		"half an answer":          apiVersionsThen(good(2)[:9]),
		"nothing":                 apiVersionsThen(nil),
		"closes at once":          func(net.Conn) {},
	}
	for name, f := range bad {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, 1, table(7, 8, 4), nil)
			s.server.Close()
			ln, err := net.Listen("tcp", s.addr)
			if err != nil {
				t.Fatal(err)
			}
			fl := &flaky{Listener: ln, bad: slices.Repeat([]func(net.Conn){f}, 5)}
			server := wire.Serve(fl, wire.HandlerFunc(s.handle), wire.ServerOptions{Table: s.table})
			defer server.Close()
			log, hook := test.NewNullLogger()
			d, q := newDispatcher(t, Options{Log: log})
			d.Add(s.broker)
			d.Send(1, numbered(s.broker, 3))
			if ev := q.take(t); ev != (events.UpdateMetadataResponse{Broker: 1}) {
				t.Errorf("event %+v", ev)
			}
			if got := numbers(s.wait(1)); len(got) != 1 || fl.n.Load() != 6 {
				t.Errorf("%v over %d connections, want one request over the sixth", got, fl.n.Load())
			}
			warned := 0
			for _, e := range hook.AllEntries() {
				if e.Level <= logrus.WarnLevel {
					warned++
				}
			}
			if warned != 1 || !strings.Contains(hook.LastEntry().Message, "answers again") {
				t.Errorf("%d warnings, last line %q", warned, hook.LastEntry().Message)
			}
		})
	}
}

// Each broker is spoken to in versions it offers, none above those of the
// protocol version; a StopReplica below v3 is divided, deletions first.
func TestVersions(t *testing.T) {
	for name, c := range map[string]struct {
		ibp   string
		table []wire.APIVersion
		want  []int16 // LeaderAndIsr, UpdateMetadata, StopReplica
	}{
		"3.9":                      {"3.9", table(7, 8, 4), []int16{7, 8, 4}},
		"2.8":                      {"3.9", table(5, 7, 3), []int16{5, 7, 3}},
		"2.4":                      {"3.9", table(4, 6, 2), []int16{4, 6, 2}},
		"newer than any":           {"3.9", table(99, 99, 99), []int16{7, 8, 4}},
		"3.9 in a 2.4 cluster":     {"2.4", table(7, 8, 4), []int16{4, 6, 2}},
		"3.9 in a 2.6 cluster":     {"2.6", table(7, 8, 4), []int16{4, 6, 3}},
		"3.9 in a 1.0 cluster":     {"1.0", table(7, 8, 4), []int16{1, 4, 0}},
		"3.9 in a 0.10.2 cluster":  {"0.10.2.2", table(7, 8, 4), []int16{0, 3, 0}},
		"0.9":                      {"0.9", table(0, 1, 0), []int16{0, 1, 0}},
		"refuses ApiVersions, 0.9": {"0.9", table(0, 1, 0)[:3], []int16{0, 1, 0}},
		"refuses ApiVersions, 3.9": {"3.9", table(7, 8, 4)[:3], []int16{7, 8, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			ibp, err := kafka.ParseProtocolVersion(c.ibp)
			if err != nil {
				t.Fatal(err)
			}
			s := newSink(t, 1, c.table, nil)
			d, q := newDispatcher(t, Options{Version: ibp})
			d.Add(s.broker)
			stop := func(topic string, del bool) control.StopPartition {
				return control.StopPartition{TopicPartition: tp(topic, 0), LeaderEpoch: 4, Delete: del}
			}
			d.Send(1, lisr(s.broker, state("a", 0, 1, 1)))
			d.Send(1, numbered(s.broker, 0))
			d.Send(1, sr(s.broker, stop("a", false), stop("b", true), stop("c", false)))
			d.Send(1, numbered(s.broker, 1))
			n := 5
			if c.want[2] >= 3 {
				n = 4
			}
			got := s.wait(n)
			want := append(slices.Clone(c.want), c.want[2])[:n-1]
			for i, v := range append(want, c.want[1]) {
				if got[i].version != v {
					t.Errorf("request %d, %s: version %d, want %d", i, got[i].req.Kind(), got[i].version, v)
				}
			}
			var rows []control.StopPartition
			for _, r := range got {
				if r, ok := r.req.(*control.StopReplicaRequest); ok {
					rows = append(rows, r.Partitions...)
				}
			}
			wantRows := []control.StopPartition{stop("b", true), stop("a", false), stop("c", false)}
			if c.want[2] >= 3 {
				wantRows = []control.StopPartition{stop("a", false), stop("b", true), stop("c", false)}
			} else {
				for i := range wantRows {
					wantRows[i].LeaderEpoch = kafka.NoEpoch
				}
			}
			if diff := cmp.Diff(wantRows, rows); diff != "" {
				t.Errorf("stopped (-want +got):\n%s", diff)
			}
			for _, w := range []string{"LeaderAndIsrResponseReceived", "UpdateMetadataResponseReceived", "TopicDeletionStopReplicaResponseReceived", "UpdateMetadataResponseReceived"} {
				ev := q.take(t)
				if ev.Name() != w {
					t.Errorf("event %s, want %s", ev.Name(), w)
				}
				if r, ok := ev.(events.StopReplicaResponse); ok && r.Errors[tp("b", 0)] != 0 {
					t.Errorf("StopReplica event %+v", r)
				}
			}
		})
	}
}

// A broker that knows only newer versions than ours cannot be told anything;
// that is said, and others are served.
func TestNoCommonVersion(t *testing.T) {
	old := newSink(t, 1, table(7, 8, 4), nil)
	tab := table(7, 8, 4)
	tab[2].Min = 7
	s := newSink(t, 2, tab, nil)
	log, hook := test.NewNullLogger()
	d, q := newDispatcher(t, Options{Version: kafka.V2_4IV1, Log: log})
	d.Add(s.broker)
	d.Add(old.broker)
	d.Send(2, numbered(s.broker, 0))
	d.Send(1, numbered(old.broker, 0))
	q.take(t)
	for d.Stats().Brokers[2].Failures < 3 {
		d.Send(1, numbered(old.broker, 0))
		q.take(t)
	}
	if len(s.wait(0)) > 0 {
		t.Error("the request was sent")
	}
	found := false
	for _, e := range hook.AllEntries() {
		err, _ := e.Data["error"].(error)
		found = found || err != nil && strings.Contains(err.Error(), "offers UpdateMetadata versions 7 to 8, ours are 0 to 6")
	}
	if !found {
		t.Error("the reason was not logged")
	}
}

// Which answers become which events.
func TestEvents(t *testing.T) {
	var code atomic.Int32
	s := newSink(t, 1, table(7, 8, 4), func(r *wire.Request) bool {
		if c := kafka.ErrorCode(code.Load()); c != 0 {
			r.ReplyControl(control.Response{Error: c})
			return true
		}
		return false
	})
	d, q := newDispatcher(t, Options{})
	d.Add(s.broker)
	older := s.broker
	older.Epoch--
	del := control.StopPartition{TopicPartition: tp("a", 0), Delete: true}
	none := map[kafka.TopicPartition]kafka.ErrorCode{}
	for _, c := range []struct {
		name string
		code kafka.ErrorCode
		req  control.Request
		want events.Event // nil: none
	}{
		{"stop without deleting", 0, sr(s.broker, control.StopPartition{TopicPartition: tp("a", 0)}), nil},
		{"top-level error of a deletion", kafka.StaleControllerEpoch, sr(s.broker, del), events.StopReplicaResponse{Broker: 1, Error: kafka.StaleControllerEpoch, Errors: none, Request: sr(s.broker, del)}},
		{"refused for an epoch that is current here", kafka.StaleBrokerEpoch, sr(s.broker, del), events.StopReplicaResponse{Broker: 1, Error: kafka.StaleBrokerEpoch, Errors: none, Request: sr(s.broker, del)}},
		{"an older incarnation's deletion", kafka.StaleBrokerEpoch, sr(older, del), nil},
		{"an older incarnation's LeaderAndIsr", kafka.StaleBrokerEpoch, lisr(older, state("a", 0, 1, 1)), nil},
		{"an older incarnation's UpdateMetadata", kafka.StaleBrokerEpoch, numbered(older, 0), nil},
		{"LeaderAndIsr refused", kafka.StaleControllerEpoch, lisr(s.broker, state("a", 0, 1, 1)), events.LeaderAndISRResponse{Broker: 1, Error: kafka.StaleControllerEpoch, Errors: none}},
		{"UpdateMetadata refused", kafka.StaleControllerEpoch, numbered(s.broker, 0), events.UpdateMetadataResponse{Broker: 1, Error: kafka.StaleControllerEpoch}},
	} {
		code.Store(int32(c.code))
		answers := d.Stats().Brokers[1].Answers
		d.Send(1, c.req)
		for st := d.Stats().Brokers[1]; st.Answers == answers || st.InFlight || st.QueueSize > 0; st = d.Stats().Brokers[1] {
			s.wait(0)
		}
		var got events.Event
		select {
		case got = <-q:
		default:
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// With FailuresOnly an event names what failed and carries the request, unless
// the broker's answer is not that regular.
func TestFailuresOnly(t *testing.T) {
	rows := []map[kafka.TopicPartition]kafka.ErrorCode{
		{tp("a", 0): 0, tp("a", 1): 0},
		{tp("a", 0): 0, tp("a", 1): kafka.KafkaStorageError},
		{tp("a", 1): 0}, // not all
	}
	var n atomic.Int32
	s := newSink(t, 1, table(7, 8, 4), func(r *wire.Request) bool {
		r.ReplyControl(control.Response{Errors: rows[n.Add(1)-1]})
		return true
	})
	d, q := newDispatcher(t, Options{FailuresOnly: true})
	d.Add(s.broker)
	req := lisr(s.broker, state("a", 0, 1, 1), state("a", 1, 1, 1))
	for _, want := range []events.LeaderAndISRResponse{
		{Broker: 1, Errors: map[kafka.TopicPartition]kafka.ErrorCode{}, Request: req},
		{Broker: 1, Errors: map[kafka.TopicPartition]kafka.ErrorCode{tp("a", 1): kafka.KafkaStorageError}, Request: req},
		{Broker: 1, Errors: rows[2]},
	} {
		d.Send(1, req)
		if diff := cmp.Diff(events.Event(want), q.take(t)); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
}

// Topics with illegal names are kept from brokers, reported once, and their
// deletion is answered for the broker.
func TestIllegalTopics(t *testing.T) {
	s := newSink(t, 1, table(7, 8, 4), nil)
	log, hook := test.NewNullLogger()
	d, q := newDispatcher(t, Options{Log: log})
	long := strings.Repeat("x", 250)
	d.Add(s.broker)
	d.Send(1, lisr(s.broker, state(long, 0, 1, 0)))
	d.Send(1, lisr(s.broker, state("a", 0, 1, 0), state(long, 0, 1, 0)))
	d.Send(1, umr(s.broker, &control.Metadata{Partitions: []*control.PartitionState{state(long, 0, 1, 0)}}))
	gone := sr(s.broker, control.StopPartition{TopicPartition: tp(long, 0), Delete: true}, control.StopPartition{TopicPartition: tp(long, 1), Delete: true})
	d.Send(1, gone)
	mixed := sr(s.broker, control.StopPartition{TopicPartition: tp("a", 0), Delete: true}, control.StopPartition{TopicPartition: tp(long, 1), Delete: true})
	d.Send(1, mixed)
	for _, want := range []events.Event{
		events.LeaderAndISRResponse{Broker: 1, Errors: map[kafka.TopicPartition]kafka.ErrorCode{tp("a", 0): 0}},
		events.UpdateMetadataResponse{Broker: 1},
		events.StopReplicaResponse{Broker: 1, Errors: map[kafka.TopicPartition]kafka.ErrorCode{tp(long, 0): 0, tp(long, 1): 0}, Request: gone},
		events.StopReplicaResponse{Broker: 1, Errors: map[kafka.TopicPartition]kafka.ErrorCode{tp("a", 0): 0, tp(long, 1): 0}, Request: mixed},
	} {
		if diff := cmp.Diff(want, q.take(t)); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
	got := s.wait(3)
	want := []control.Request{lisr(s.broker, state("a", 0, 1, 0)), umr(s.broker, &control.Metadata{Partitions: []*control.PartitionState{}}), sr(s.broker, control.StopPartition{TopicPartition: tp("a", 0), Delete: true})}
	if len(got) != len(want) {
		t.Fatalf("%d requests, want %d", len(got), len(want))
	}
	for i := range want {
		if diff := cmp.Diff(want[i], got[i].req, cmp.Transformer("len0", func(p []*control.PartitionState) []control.PartitionState {
			var out []control.PartitionState
			for _, s := range p {
				out = append(out, *s)
			}
			return out
		})); diff != "" {
			t.Errorf("request %d (-want +got):\n%s", i, diff)
		}
	}
	reported := 0
	for _, e := range hook.AllEntries() {
		if e.Data["topic"] == long {
			reported++
		}
	}
	if reported != 1 {
		t.Errorf("reported %d times", reported)
	}
}

// One broker that does not answer delays nobody, and can be removed.
func TestSilentBroker(t *testing.T) {
	silent := newSink(t, 1, table(7, 8, 4), func(*wire.Request) bool { return true })
	well := newSink(t, 2, table(7, 8, 4), nil)
	d, q := newDispatcher(t, Options{})
	d.Add(silent.broker)
	d.Add(well.broker)
	for n := range int32(5) {
		d.Send(1, numbered(silent.broker, n))
		d.Send(2, numbered(well.broker, n))
	}
	for range 5 {
		if ev := q.take(t); ev != (events.UpdateMetadataResponse{Broker: 2}) {
			t.Errorf("event %+v", ev)
		}
	}
	silent.wait(1)
	st := d.Stats()
	if b := st.Brokers[1]; b.QueueSize != 4 || !b.InFlight || st.TotalQueueSize != 4 || st.Total.Requests != 6 {
		t.Errorf("stats %+v", st)
	}
	d.Remove(1)
	d.Send(1, numbered(silent.broker, 9)) // dropped
	d.Close()                             // waits for the goroutine that awaits the answer
	if got := numbers(silent.wait(1)); len(got) != 1 {
		t.Errorf("the silent broker was sent %v", got)
	}
	if st := d.Stats(); len(st.Brokers) != 0 || st.Total.Requests != 6 {
		t.Errorf("stats after Close %+v", st)
	}
}

// A broker that registered again gets a new queue; what waited for its older
// self is gone, and the two never mix.
func TestBounce(t *testing.T) {
	release := make(chan struct{})
	var first atomic.Bool
	s := newSink(t, 1, table(7, 8, 4), func(r *wire.Request) bool {
		if first.CompareAndSwap(false, true) {
			go func() { <-release; r.ReplyControl(control.Response{}) }()
			return true
		}
		return false
	})
	d, q := newDispatcher(t, Options{})
	d.Add(s.broker)
	for n := range int32(3) {
		d.Send(1, numbered(s.broker, n))
	}
	s.wait(1)
	again := s.broker
	again.Epoch += 10
	d.Add(again)
	d.Send(1, numbered(again, 7))
	q.take(t)
	close(release)
	got := s.wait(2)
	if diff := cmp.Diff([]int32{0, 7}, numbers(got)); diff != "" || got[1].req.Epoch() != again.Epoch {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	d.Add(again) // nothing new: the queue stays
	d.Send(1, numbered(again, 8))
	q.take(t)
	d.Close()
	if len(q) != 0 {
		t.Errorf("an event of the older incarnation came: %+v", <-q)
	}
}

// The same incarnation under another address is reached there next time.
func TestNewAddress(t *testing.T) {
	old, now := newSink(t, 1, table(7, 8, 4), nil), newSink(t, 1, table(7, 8, 4), nil)
	d, q := newDispatcher(t, Options{})
	d.Add(old.broker)
	d.Send(1, numbered(old.broker, 0))
	q.take(t)
	d.Add(now.broker)
	old.server.Close()
	d.Send(1, numbered(now.broker, 1))
	q.take(t)
	if got := numbers(now.wait(1)); got[0] != 1 {
		t.Errorf("%v", got)
	}
}

// Which of a broker's endpoints is used.
func TestAddress(t *testing.T) {
	b := kafka.Broker{Endpoints: []kafka.Endpoint{{Listener: "CONTROL", Host: "c", Port: 1}, {Listener: "PLAINTEXT", Host: "p", Port: 2}}}
	for _, c := range []struct {
		listener string
		b        kafka.Broker
		want     string
		ok       bool
	}{
		{"", b, "p:2", true},
		{"CONTROL", b, "c:1", true},
		{"", kafka.Broker{Endpoints: b.Endpoints[:1]}, "c:1", true},
		{"", kafka.Broker{Endpoints: []kafka.Endpoint{{Listener: "X", Host: "::1", Port: 5}}}, "[::1]:5", true},
		{"INTERNAL", b, "", false},
		{"", kafka.Broker{}, "", false},
	} {
		got, ok := New(Options{Listener: c.listener}).address(c.b)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("listener %q of %v: %q, %t", c.listener, c.b, got, ok)
		}
	}
}

// A broker that cannot be reached is tried every 100 ms at most, told of once,
// and let go of at once when it is removed, also in the middle of connecting.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		var blocking atomic.Bool
		log, hook := test.NewNullLogger()
		d := New(Options{Version: kafka.V3_9IV0, Log: log, Put: func(events.Event) { t.Error("an event") }, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dials.Add(1)
			if blocking.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, errors.New("no route to host")
		}})
		b := kafka.Broker{ID: 1, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT"}}}
		d.Add(b)
		synctest.Wait()
		if n := dials.Load(); n != 1 || len(hook.AllEntries()) != 0 {
			t.Errorf("%d dials and %d log lines ahead of any request", n, len(hook.AllEntries()))
		}
		d.Send(1, numbered(b, 0))
		time.Sleep(10*time.Second + 50*time.Millisecond)
		synctest.Wait()
		if n := dials.Load(); n != 102 { // ahead, at once, and 100 times
			t.Errorf("%d dials in 10 s", n)
		}
		if len(hook.AllEntries()) != 1 {
			t.Errorf("%d log lines", len(hook.AllEntries()))
		}
		blocking.Store(true)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		before := time.Now()
		d.Clear()
		d.Close()
		if time.Since(before) > 0 {
			t.Errorf("removing took %v", time.Since(before))
		}
		if n := dials.Load(); n != 103 {
			t.Errorf("%d dials after one that hangs", n)
		}
	})
}

// A request that is never answered is given up after the request timeout.
func TestRequestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen atomic.Int32
		conns := make(chan net.Conn)
		ln := listener{conns, make(chan struct{})}
		s := wire.Serve(ln, wire.HandlerFunc(func(_ context.Context, r *wire.Request) {
			if seen.Add(1) == 3 {
				r.ReplyControl(control.Response{})
			}
		}), wire.ServerOptions{Table: table(7, 8, 4)})
		defer s.Close()
		q := make(eventQueue, 1)
		d := New(Options{Version: kafka.V3_9IV0, Put: func(ev events.Event) { q <- ev }, Dialer: func(context.Context, string, string) (net.Conn, error) {
			a, b := net.Pipe()
			conns <- b
			return a, nil
		}})
		defer d.Close()
		b := kafka.Broker{ID: 1, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT"}}}
		d.Add(b)
		start := time.Now()
		d.Send(1, numbered(b, 0))
		<-q
		if got := time.Since(start); got != 60*time.Second+200*time.Millisecond {
			t.Errorf("answered after %v, want two timeouts and two pauses", got)
		}
	})
}

type listener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l listener) Close() error   { close(l.done); return nil }
func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

// All brokers of one flush are sent the same encoded bytes.
func TestOneBodyForAll(t *testing.T) {
	var bs bodies
	m := &control.Metadata{Partitions: []*control.PartitionState{state("a", 0, 1, 1)}}
	first := bs.of(m)
	var wg sync.WaitGroup
	var got [8]*byte
	for i := range got {
		wg.Go(func() { got[i] = &bs.of(m).bytes(int16(7 + i%2))[0] })
	}
	wg.Wait()
	for i := range got {
		if got[i] != got[i%2] {
			t.Error("one version was encoded twice")
		}
	}
	if bs.of(&control.Metadata{}) == first || bs.of(m) != first {
		t.Error("bodies were mixed up")
	}
}
