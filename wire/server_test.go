package wire

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func offer(key, lo, hi int16) APIVersion {
	return APIVersion{Key: key, VersionRange: kafka.VersionRange{Min: lo, Max: hi}}
}

// served is what most tests' servers offer; kmsg and this package know less of
// Metadata than is claimed here, which must not matter.
var served = []APIVersion{offer(3, 0, 99), offer(4, 0, 7), offer(5, 0, 4), offer(6, 0, 8), offer(7, 0, 3), offer(18, 0, 4)}

func serve(t *testing.T, o ServerOptions, h HandlerFunc) (*Server, *test.Hook) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log, hook := test.NewNullLogger()
	o.Log = log
	if o.Table == nil {
		o.Table = served
	}
	s := Serve(ln, h, o)
	t.Cleanup(s.Close)
	return s, hook
}

func dial(t *testing.T, s *Server) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), s.Addr().String(), DialOptions{ClientID: "client-7"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// echo answers Metadata with the client's id as cluster id, ControlledShutdown
// with the broker's id as the partition that remains, control requests with 56
// for each partition.
func echo(_ context.Context, r *Request) {
	switch q := r.Kafka.(type) {
	case *kmsg.MetadataRequest:
		resp := kmsg.NewPtrMetadataResponse()
		resp.ClusterID = &r.ClientID
		r.Reply(resp)
	case *kmsg.ControlledShutdownRequest:
		resp := kmsg.NewPtrControlledShutdownResponse()
		resp.PartitionsRemaining = []kmsg.ControlledShutdownResponsePartitionsRemaining{{Topic: "t" + r.ClientID, Partition: q.BrokerID}}
		r.Reply(resp)
	default:
		errs := map[kafka.TopicPartition]kafka.ErrorCode{}
		eachAsked(r.Control, func(tp kafka.TopicPartition) { errs[tp] = kafka.KafkaStorageError })
		r.ReplyControl(control.Response{Errors: errs})
	}
}

func metadata(version int16) *kmsg.MetadataRequest {
	q := kmsg.NewPtrMetadataRequest()
	q.Version = version
	q.Topics = []kmsg.MetadataRequestTopic{}
	return q
}

func clusterID(t *testing.T, c *Conn, version int16) string {
	t.Helper()
	resp, err := c.Request(t.Context(), metadata(version))
	if err != nil {
		t.Fatal(err)
	}
	return *resp.(*kmsg.MetadataResponse).ClusterID
}

// Requests with each form of header, over one connection.
func TestRequests(t *testing.T) {
	s, hook := serve(t, ServerOptions{}, echo)
	c := dial(t, s)
	for _, version := range []int16{2, 8, 9, 12} {
		if got := clusterID(t, c, version); got != "client-7" {
			t.Errorf("Metadata v%d: client id %q", version, got)
		}
	}
	for version, topic := range []string{"t", "tclient-7", "tclient-7", "tclient-7"} { // v0 has no client id
		q := kmsg.NewPtrControlledShutdownRequest()
		q.Version, q.BrokerID = int16(version), 258
		resp, err := c.Request(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got := resp.(*kmsg.ControlledShutdownResponse).PartitionsRemaining
		if len(got) != 1 || got[0].Topic != topic || got[0].Partition != 258 {
			t.Errorf("ControlledShutdown v%d: %+v", version, got)
		}
	}
	for _, kind := range []control.Kind{control.LeaderAndISRKey, control.UpdateMetadataKey, control.StopReplicaKey} {
		for version := range MaxVersion(kind) + 1 {
			req := goldenRequest(kind, version)
			var shared []byte
			if um, ok := req.(*control.UpdateMetadataRequest); ok && version%2 == 0 {
				shared = AppendMetadata(nil, um.Metadata, version)
			}
			resp, err := c.Control(t.Context(), req, version, shared)
			if err != nil {
				t.Fatal(err)
			}
			want := map[kafka.TopicPartition]kafka.ErrorCode{}
			eachAsked(req, func(tp kafka.TopicPartition) { want[tp] = kafka.KafkaStorageError })
			if diff := cmp.Diff(want, resp.Errors, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s v%d (-want +got):\n%s", kind, version, diff)
			}
		}
	}
	if len(hook.AllEntries()) > 0 {
		t.Errorf("logged: %v", hook.LastEntry().Message)
	}
}

// What a client learns of a server's versions, however old that server is.
func TestAPIVersions(t *testing.T) {
	for top, asked := range map[int16]int{0: 2, 1: 2, 2: 2, 3: 1, 4: 1} {
		table := append([]APIVersion{offer(18, 0, top)}, served[:5]...)
		s, _ := serve(t, ServerOptions{Table: table}, echo)
		c := dial(t, s)
		got, err := c.APIVersions(t.Context())
		if err != nil {
			t.Errorf("server with ApiVersions v%d: %v", top, err)
			continue
		}
		want := Versions{3: {Max: newest(3)}, 4: {Max: 7}, 5: {Max: 4}, 6: {Max: 8}, 7: {Max: 3}, 18: {Max: top}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("server with ApiVersions v%d (-want +got):\n%s", top, diff)
		}
		if c.Served() != asked {
			t.Errorf("server with ApiVersions v%d: asked %d times", top, c.Served())
		}
	}
	s, hook := serve(t, ServerOptions{Table: served[:5]}, echo)
	if _, err := dial(t, s).APIVersions(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("server without ApiVersions: %v", err)
	}
	s.Close()
	if len(hook.AllEntries()) != 1 {
		t.Errorf("%d log lines", len(hook.AllEntries()))
	}
}

// The exact bytes of the answer to a version from the future: a v0 body with
// error 35 and the range of ApiVersions, under a header that is never flexible.
func TestAPIVersionsFromTheFuture(t *testing.T) {
	s, _ := serve(t, ServerOptions{}, echo)
	nc := rawDial(t, s)
	nc.Write(frame([]byte{0, 18, 0, 77, 0, 0, 0, 5, 0xff, 0xff, 1, 2, 3, 4}))
	want := []byte{0, 0, 0, 16, 0, 0, 0, 5, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, %v; want %x", got, err, want)
	}
}

func TestSoftwareName(t *testing.T) {
	s, _ := serve(t, ServerOptions{}, echo)
	c := dial(t, s)
	for name, want := range map[string]kafka.ErrorCode{"librdkafka": 0, "a": 0, "apache-kafka.java": 0, "": kafka.InvalidRequest,
		"-x": kafka.InvalidRequest, "x.": kafka.InvalidRequest, "a b": kafka.InvalidRequest, "ä": kafka.InvalidRequest} {
		q := kmsg.NewPtrApiVersionsRequest()
		q.Version, q.ClientSoftwareName, q.ClientSoftwareVersion = 3, name, "1.2-rc3"
		resp, err := c.Request(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		r := resp.(*kmsg.ApiVersionsResponse)
		if kafka.ErrorCode(r.ErrorCode) != want || (len(r.ApiKeys) > 0) != (want == 0) {
			t.Errorf("%q: %v with %d keys, want %v", name, kafka.ErrorCode(r.ErrorCode), len(r.ApiKeys), want)
		}
		if known := r.FinalizedFeaturesEpoch == 0; known != (want == 0) || len(r.FinalizedFeatures) > 0 {
			t.Errorf("%q: features of epoch %d", name, r.FinalizedFeaturesEpoch)
		}
	}
}

func rawDial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc
}

func frame(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// Garbage ends its own connection, with one line in the log and no answer;
// another client notices nothing.
func TestGarbage(t *testing.T) {
	s, hook := serve(t, ServerOptions{MaxFrame: 1 << 20}, echo)
	other := dial(t, s)
	head := func(key, version byte, rest ...byte) []byte {
		return frame(append([]byte{0, key, 0, version, 0, 0, 0, 1}, rest...))
	}
	for name, c := range map[string]struct {
		bytes []byte
		hurry bool // the server closes without waiting for the client to
	}{
		"http":                    {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), true},
		"tls":                     {[]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, true},
		"size too large":          {[]byte{0, 0x20, 0, 0, 0, 3, 0, 1}, true},
		"size negative":           {[]byte{0xff, 0xff, 0xff, 0xff, 0, 3, 0, 1}, true},
		"size too small":          {[]byte{0, 0, 0, 2, 0, 3, 0, 1}, true},
		"unknown key":             {frame([]byte{0x7f, 1, 0, 0, 0, 0, 0, 1, 0, 0}), true},
		"negative key":            {frame([]byte{0xff, 1, 0, 0, 0, 0, 0, 1, 0, 0}), true},
		"key not served":          {head(19, 0, 0, 0), true},
		"version too new":         {head(3, 100, 0, 0), true},
		"control version too new": {head(5, 5, 0, 0), true},
		"negative version":        {frame([]byte{0, 3, 0xff, 0xff, 0, 0, 0, 1, 0, 0}), true},
		"no client id":            {head(3, 1), true},
		"client id too long":      {head(3, 1, 0x7f, 0xff, 'x'), true},
		"body ends early":         {head(3, 1, 0, 0, 0, 0, 0, 9), true},
		"control body bad":        {head(4, 7, 0, 0, 0, 1, 2, 3), true},
		"control body too long":   {frame(append([]byte{0, 6, 0, 8, 0, 0, 0, 1, 0, 0, 0}, append(AppendRequest(nil, goldenRequest(6, 8), 8), 0)...)), true},
		"header tags too long":    {head(3, 12, 0, 0, 1, 5, 0xff, 0xff, 0xff, 0xff, 7), true},
		"half a size":             {[]byte{0, 0}, false},
		"half a frame":            {head(3, 1, 0, 0, 0, 0, 0, 0)[:10], false},
	} {
		t.Run(name, func(t *testing.T) {
			hook.Reset()
			s.faults.mu.Lock()
			s.faults.told = nil // or the like would not be told again
			s.faults.mu.Unlock()
			nc := rawDial(t, s)
			nc.Write(c.bytes)
			if !c.hurry {
				nc.(*net.TCPConn).CloseWrite()
			}
			if b, _ := io.ReadAll(nc); len(b) > 0 {
				t.Errorf("answered %x", b)
			}
			clusterID(t, other, 12)
			for s.Connections() > 1 { // the log line is written before the connection is forgotten
				clusterID(t, other, 12)
			}
			if len(hook.AllEntries()) != 1 || hook.LastEntry().Level != logrus.WarnLevel {
				t.Errorf("log: %v", hook.AllEntries())
			}
		})
	}
}

// Answers given late and from elsewhere leave in the order of the requests, and
// a second request waits for the first one's answer.
func TestAnswersInOrder(t *testing.T) {
	got := make(chan *Request)
	s, _ := serve(t, ServerOptions{}, func(_ context.Context, r *Request) { got <- r })
	nc := rawDial(t, s)
	var two []byte
	for corr := byte(1); corr <= 2; corr++ {
		two = append(two, frame([]byte{0, 3, 0, 2, 0, 0, 0, corr, 0, 1, 'a' + corr, 0xff, 0xff, 0xff, 0xff})...)
	}
	nc.Write(two)
	br := bufio.NewReader(nc)
	for corr := uint32(1); corr <= 2; corr++ {
		r := <-got
		select {
		case <-got:
			t.Fatal("the second request was handled before the first was answered")
		default:
		}
		go echo(t.Context(), r)
		var h [8]byte
		if _, err := io.ReadFull(br, h[:]); err != nil {
			t.Fatal(err)
		}
		if c := binary.BigEndian.Uint32(h[4:]); c != corr {
			t.Errorf("answer %d, want %d", c, corr)
		}
		br.Discard(int(binary.BigEndian.Uint32(h[:])) - 4)
	}
}

// A client that leaves ends the context of what it waited for; so does Close,
// which waits for handlers.
func TestLeaving(t *testing.T) {
	started := make(chan context.Context)
	s, hook := serve(t, ServerOptions{}, func(ctx context.Context, r *Request) {
		started <- ctx
		if r.ClientID == "sync" {
			<-ctx.Done()
			r.Hangup()
		}
	})
	ask := func(id string) (*Conn, context.Context) {
		c, err := Dial(t.Context(), s.Addr().String(), DialOptions{ClientID: id})
		if err != nil {
			t.Fatal(err)
		}
		go c.Request(context.Background(), metadata(12))
		return c, <-started
	}
	c, ctx := ask("async")
	c.Close()
	<-ctx.Done()
	_, first := ask("async")
	_, second := ask("sync")
	s.Close()
	if first.Err() == nil || second.Err() == nil {
		t.Error("a handler's context outlived Close")
	}
	if len(hook.AllEntries()) > 0 {
		t.Errorf("logged: %v", hook.LastEntry().Message)
	}
}

func TestHangup(t *testing.T) {
	s, _ := serve(t, ServerOptions{}, func(_ context.Context, r *Request) { r.Hangup() })
	if _, err := dial(t, s).Request(t.Context(), metadata(12)); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

func TestAnsweredTwice(t *testing.T) {
	r := &Request{answer: make(chan answer, 1)}
	r.Hangup()
	defer func() {
		if recover() == nil {
			t.Error("the second answer went unnoticed")
		}
	}()
	r.Hangup()
}

func TestConnectionLimit(t *testing.T) {
	s, hook := serve(t, ServerOptions{MaxConnections: 2}, echo)
	a, b := dial(t, s), dial(t, s)
	clusterID(t, a, 12)
	clusterID(t, b, 12)
	for range 3 {
		if _, err := dial(t, s).Request(t.Context(), metadata(12)); err == nil {
			t.Error("a third connection was served")
		}
	}
	if len(hook.AllEntries()) != 1 {
		t.Errorf("%d log lines, want one", len(hook.AllEntries()))
	}
	b.Close()
	for s.Connections() > 1 {
		clusterID(t, a, 12)
	}
	clusterID(t, dial(t, s), 12)
}

// At the limit, places that get free and are taken again are not told each time.
func TestConnectionLimitIsToldOnce(t *testing.T) {
	s, hook := serve(t, ServerOptions{MaxConnections: 20}, echo)
	var open []*Conn
	for range 20 {
		c := dial(t, s)
		clusterID(t, c, 12)
		open = append(open, c)
	}
	for range 3 {
		if _, err := dial(t, s).Request(t.Context(), metadata(12)); err == nil {
			t.Error("one connection too many was served")
		}
		open[0].Close()
		for s.Connections() > 19 {
			clusterID(t, open[1], 12)
		}
		open[0] = dial(t, s)
		clusterID(t, open[0], 12)
	}
	if n := len(hook.AllEntries()); n != 1 {
		t.Errorf("%d log lines, want one", n)
	}
}

// A message larger than any buffer goes through, both ways.
func TestLargeMessages(t *testing.T) {
	s, _ := serve(t, ServerOptions{}, func(_ context.Context, r *Request) {
		resp := kmsg.NewPtrMetadataResponse()
		for _, topic := range r.Kafka.(*kmsg.MetadataRequest).Topics {
			row := kmsg.NewMetadataResponseTopic()
			row.Topic = topic.Topic
			resp.Topics = append(resp.Topics, row)
		}
		r.Reply(resp)
	})
	q := metadata(12)
	for range 200 {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(strings.Repeat("x", 30_000))
		q.Topics = append(q.Topics, topic)
	}
	resp, err := dial(t, s).Request(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	got := resp.(*kmsg.MetadataResponse).Topics
	if len(got) != 200 || len(*got[199].Topic) != 30_000 {
		t.Errorf("%d topics", len(got))
	}
	small, err := Dial(t.Context(), s.Addr().String(), DialOptions{MaxResponse: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if _, err := small.Request(t.Context(), q); err == nil || !strings.Contains(err.Error(), "outside 4 to 1000") {
		t.Errorf("an answer above the limit: %v", err)
	}
}

// pipes is a listener without a network, for tests that need the clock.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
func (p *pipes) dial() net.Conn {
	a, b := net.Pipe()
	p.conns <- b
	return a
}

// Limits of time, on a clock that runs only when all wait.
func TestTimeouts(t *testing.T) {
	request := frame([]byte{0, 3, 0, 2, 0, 0, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff})
	for name, c := range map[string]struct {
		client func(net.Conn)
		want   time.Duration
		logged int
	}{
		"idle at once":         {func(net.Conn) {}, time.Minute, 0},
		"idle after a request": {func(nc net.Conn) { nc.Write(request); io.ReadFull(nc, make([]byte, 10)); go io.Copy(io.Discard, nc) }, time.Minute, 0},
		"slow inside a frame":  {func(nc net.Conn) { nc.Write(request[:9]) }, 5 * time.Second, 1},
		"answer not taken":     {func(nc net.Conn) { nc.Write(request) }, 7 * time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := newPipes()
				log, hook := test.NewNullLogger()
				s := Serve(ln, HandlerFunc(echo), ServerOptions{Table: served, IdleTimeout: time.Minute, ReadTimeout: 5 * time.Second, WriteTimeout: 7 * time.Second, Log: log})
				defer s.Close()
				nc := ln.dial()
				defer nc.Close()
				synctest.Wait() // until it is accepted
				start := time.Now()
				c.client(nc)
				for s.Connections() > 0 {
					synctest.Wait()
					time.Sleep(time.Second / 2) // the bubble's clock
				}
				if d := time.Since(start); d < c.want || d > c.want+time.Second {
					t.Errorf("closed after %v, want %v", d, c.want)
				}
				if len(hook.AllEntries()) != c.logged {
					t.Errorf("%d log lines, want %d", len(hook.AllEntries()), c.logged)
				}
			})
		})
	}
}

// An answer may take longer than a client may be idle.
func TestSlowHandlerIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		s := Serve(ln, HandlerFunc(func(ctx context.Context, r *Request) {
			time.AfterFunc(time.Hour, func() { echo(ctx, r) })
		}), ServerOptions{Table: served, IdleTimeout: time.Minute})
		defer s.Close()
		c, err := Dial(t.Context(), "", DialOptions{ClientID: "x", Dialer: func(context.Context, string, string) (net.Conn, error) { return ln.dial(), nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := clusterID(t, c, 12); got != "x" {
			t.Errorf("client id %q", got)
		}
	})
}

// What a client must not take for its answer.
func TestWrongAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer []byte
		want   string
	}{
		"another correlation id": {frame([]byte{0, 0, 0, 9, 0, 0, 0}), "an answer to request 9 came, awaited was 1"},
		"too small":              {[]byte{0, 0, 0, 3, 0, 0, 0, 1}, "outside 4 to"},
		"too large":              {[]byte{0x7f, 0, 0, 0, 0, 0, 0, 1}, "outside 4 to"},
		"no header tags":         {frame([]byte{0, 0, 0, 1}), "varint"},
		"body too short":         {frame([]byte{0, 0, 0, 1, 0, 0}), "cannot be read"},
		"body too long":          {frame([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0}), "left over"},
		"ends inside":            {frame(make([]byte, 9))[:10], "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				defer nc.Close()
				readBody(nc, nil, len(c.answer)) // some of the request
				b := bytes.Clone(c.answer)
				if name == "ends inside" {
					b[7] = 1
				}
				nc.Write(b)
				nc.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, nc)
			}()
			conn, err := Dial(t.Context(), ln.Addr().String(), DialOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = conn.Control(t.Context(), goldenRequest(control.UpdateMetadataKey, 8), 8, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if _, err := conn.Request(t.Context(), metadata(12)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the connection is still used: %v", err)
			}
		})
	}
}

// The context ends a request whose answer does not come.
func TestRequestContext(t *testing.T) {
	begun := make(chan struct{}, 1)
	s, _ := serve(t, ServerOptions{}, func(context.Context, *Request) { begun <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := dial(t, s).Request(ctx, metadata(12)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := dial(t, s).Request(ctx, metadata(12)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("timed out: %v", err)
	}
}
