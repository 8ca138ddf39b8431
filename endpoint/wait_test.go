package endpoint

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func createRequest(timeoutMillis int32, names ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, timeoutMillis
	for _, n := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = n, 2, 2
		req.Topics = append(req.Topics, t)
	}
	return req
}

func deleteRequest(timeoutMillis int32, names ...string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis, req.TopicNames = 5, timeoutMillis, names
	return req
}

func moreRequest(timeoutMillis, count int32, names ...string) *kmsg.CreatePartitionsRequest {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version, req.TimeoutMillis = 3, timeoutMillis
	for _, n := range names {
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = n, count
		req.Topics = append(req.Topics, t)
	}
	return req
}

func answer[R kmsg.Response](t testing.TB, e *Endpoint, req kmsg.Request) R {
	t.Helper()
	resp, err := e.answer(t.Context(), req)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return resp.(R)
}

// codes prints the rows of a topic answer: name=code, in order.
func codes(resp kmsg.Response) string {
	out := ""
	add := func(name *string, code int16) {
		n := "null"
		if name != nil {
			n = *name
		}
		out += fmt.Sprintf("%s=%v ", n, kafka.ErrorCode(code))
	}
	switch r := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		for _, t := range r.Topics {
			add(&t.Topic, t.ErrorCode)
		}
	case *kmsg.DeleteTopicsResponse:
		for _, t := range r.Topics {
			add(t.Topic, t.ErrorCode)
		}
	case *kmsg.CreatePartitionsResponse:
		for _, t := range r.Topics {
			add(&t.Topic, t.ErrorCode)
		}
	default:
		panic(fmt.Sprintf("codes of %T", resp))
	}
	return out
}

// What a request's timeout does, on a clock that only moves while all wait.
func TestTimeouts(t *testing.T) {
	leaders := func(l *smallLoop) {
		for _, topic := range l.topics {
			for i := range topic.parts {
				topic.parts[i].Leader = topic.parts[i].Replicas[0]
			}
		}
	}
	for _, c := range []struct {
		name     string
		prepare  func(l *smallLoop)
		req      kmsg.Request
		at       time.Duration // when `then` happens
		then     func(l *smallLoop)
		want     string
		min, max time.Duration
	}{
		{name: "create: all led at once", req: createRequest(1000, "a"), want: "a=NONE "},
		{name: "create: leaders come later",
			prepare: func(l *smallLoop) { l.leaderless = true }, req: createRequest(1000, "a", "b"),
			at: 400 * time.Millisecond, then: leaders, want: "a=NONE b=NONE ", min: 400 * time.Millisecond, max: 400*time.Millisecond + lastPoll},
		{name: "create: no leader ever; the row that failed keeps its code",
			prepare: func(l *smallLoop) { l.leaderless = true; l.topics["old"] = &smallTopic{} }, req: createRequest(1000, "old", "a"),
			want: "old=TOPIC_ALREADY_EXISTS a=REQUEST_TIMED_OUT ", min: time.Second, max: time.Second},
		{name: "create: every row failed, so nothing is waited for",
			prepare: func(l *smallLoop) { l.topics["old"] = &smallTopic{} }, req: createRequest(1000, "old", "bad/name"),
			want: "old=TOPIC_ALREADY_EXISTS bad/name=INVALID_TOPIC_EXCEPTION "},
		{name: "create: no time given", prepare: func(l *smallLoop) { l.topics["old"] = &smallTopic{} }, req: createRequest(0, "old", "a"),
			want: "old=TOPIC_ALREADY_EXISTS a=REQUEST_TIMED_OUT "},
		{name: "create: a negative time is none", req: createRequest(-5, "a"), want: "a=REQUEST_TIMED_OUT "},
		{name: "create: no controller any more while waiting",
			prepare: func(l *smallLoop) { l.leaderless = true }, req: createRequest(10000, "a"),
			at: time.Second, then: func(l *smallLoop) { l.standby = true }, want: "a=REQUEST_TIMED_OUT ", min: time.Second, max: time.Second + lastPoll},
		{name: "delete: starts later",
			prepare: func(l *smallLoop) { l.slowDelete = true; l.topics["a"] = &smallTopic{id: kafka.TopicID{1}} }, req: deleteRequest(1000, "a"),
			at: 300 * time.Millisecond, then: func(l *smallLoop) { delete(l.topics, "a") }, want: "a=NONE ", min: 300 * time.Millisecond, max: 300*time.Millisecond + lastPoll},
		{name: "delete: another topic takes the name",
			prepare: func(l *smallLoop) { l.slowDelete = true; l.topics["a"] = &smallTopic{id: kafka.TopicID{1}} }, req: deleteRequest(1000, "a"),
			at: 300 * time.Millisecond, then: func(l *smallLoop) { l.topics["a"] = &smallTopic{id: kafka.TopicID{2}} }, want: "a=NONE ", min: 300 * time.Millisecond, max: 300*time.Millisecond + lastPoll},
		{name: "delete: never starts",
			prepare: func(l *smallLoop) { l.slowDelete = true; l.topics["a"] = &smallTopic{} }, req: deleteRequest(700, "a", "b", "a"),
			want: "a=REQUEST_TIMED_OUT b=UNKNOWN_TOPIC_OR_PARTITION a=REQUEST_TIMED_OUT ", min: 700 * time.Millisecond, max: 700 * time.Millisecond},
		{name: "delete: no time given", prepare: func(l *smallLoop) { l.topics["a"] = &smallTopic{} }, req: deleteRequest(0, "a", "b"),
			want: "a=REQUEST_TIMED_OUT b=UNKNOWN_TOPIC_OR_PARTITION "},
		{name: "more partitions: an old one has no leader",
			prepare: func(l *smallLoop) {
				l.create(events.NewTopic{Name: "a", Partitions: 1}, false)
				l.topics["a"].parts[0].Leader = kafka.NoLeader
				l.leaderless = true
			}, req: moreRequest(500, 2, "a", "b"), want: "a=REQUEST_TIMED_OUT b=UNKNOWN_TOPIC_OR_PARTITION ", min: 500 * time.Millisecond, max: 500 * time.Millisecond},
		{name: "more partitions: leaders come later",
			prepare: func(l *smallLoop) { l.create(events.NewTopic{Name: "a", Partitions: 1}, false); l.leaderless = true },
			req:     moreRequest(500, 2, "a"), at: 100 * time.Millisecond, then: leaders, want: "a=NONE ", min: 100 * time.Millisecond, max: 100*time.Millisecond + lastPoll},
		{name: "more partitions: no time given",
			prepare: func(l *smallLoop) { l.create(events.NewTopic{Name: "a", Partitions: 1}, false) }, req: moreRequest(0, 2, "a"), want: "a=REQUEST_TIMED_OUT "},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newSmallLoop()
				if c.prepare != nil {
					c.prepare(l)
				}
				l.start(t)
				if c.then != nil {
					time.AfterFunc(c.at, func() { l.do(func() { c.then(l) }) })
				}
				begin := time.Now()
				resp := answer[kmsg.Response](t, newEndpoint(Options{ID: selfID, Listener: "PLAINTEXT", Loop: l}), c.req)
				if d := cmp.Diff(c.want, codes(resp)); d != "" {
					t.Error(d)
				}
				if took := time.Since(begin); took < c.min || took > c.max {
					t.Errorf("took %v, want %v to %v", took, c.min, c.max)
				}
			})
		})
	}
}

func TestValidateOnlyWaitsForNothing(t *testing.T) {
	l := newSmallLoop()
	l.leaderless = true
	l.create(events.NewTopic{Name: "old", Partitions: 1}, false)
	l.start(t)
	e := newEndpoint(Options{ID: selfID, Loop: l})
	create := createRequest(0, "a", "old")
	create.ValidateOnly = true
	resp := answer[*kmsg.CreateTopicsResponse](t, e, create)
	if got, want := codes(resp), "a=NONE old=TOPIC_ALREADY_EXISTS "; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	if id := resp.Topics[0].TopicID; id != [16]byte{} {
		t.Errorf("a topic that was not created has id %x", id)
	}
	more := moreRequest(0, 2, "old")
	more.ValidateOnly = true
	if got := codes(answer[kmsg.Response](t, e, more)); got != "old=NONE " {
		t.Errorf("got %s", got)
	}
}

// stuckLoop takes events and answers none.
type stuckLoop struct{ events chan events.Event }

func (l stuckLoop) Put(ev events.Event) { l.events <- ev }

func TestStuckLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := stuckLoop{make(chan events.Event, 10)}
		e := newEndpoint(Options{ID: selfID, Loop: l, MaxClientEvents: 2, MaxBrokerEvents: 1})

		// A request's own timeout is answered though the loop says nothing.
		begin := time.Now()
		if got := codes(answer[kmsg.Response](t, e, createRequest(3000, "a", "b"))); got != "a=REQUEST_TIMED_OUT b=REQUEST_TIMED_OUT " {
			t.Errorf("create: %s", got)
		}
		elect := kmsg.NewPtrElectLeadersRequest()
		elect.Version, elect.TimeoutMillis = 2, 2000
		elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "a", Partitions: []int32{0}}}
		if r := answer[*kmsg.ElectLeadersResponse](t, e, elect); r.ErrorCode != 0 || r.Topics[0].Partitions[0].ErrorCode != int16(kafka.RequestTimedOut) {
			t.Errorf("elect: %+v", r)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("took %v, want the 3 s and 2 s of the requests", took)
		}

		// Both events are still in the queue, so nothing more of clients gets in …
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := e.answer(ctx, kmsg.NewPtrListPartitionReassignmentsRequest()); err == nil || len(l.events) != 2 {
			t.Errorf("a third client event: error %v, %d events in the queue", err, len(l.events))
		}
		// … but brokers have places of their own.
		shutdown := make(chan int16)
		go func() {
			r, err := e.answer(t.Context(), kmsg.NewPtrControlledShutdownRequest())
			if err != nil {
				t.Error(err)
			}
			shutdown <- r.(*kmsg.ControlledShutdownResponse).ErrorCode
		}()
		synctest.Wait()
		if len(l.events) != 3 {
			t.Fatalf("%d events in the queue, want the broker's as third", len(l.events))
		}
		// The loop wakes up: late answers are for nobody, and give the places back.
		(<-l.events).(events.CreateTopics).Reply(make([]events.NewTopicResult, 2))
		(<-l.events).(events.ElectLeaders).Reply(kafka.NoError, nil)
		(<-l.events).(events.ControlledShutdown).Reply(kafka.StaleBrokerEpoch, nil)
		if code := <-shutdown; code != int16(kafka.StaleBrokerEpoch) {
			t.Errorf("controlled shutdown: %d", code)
		}
		if len(e.clients) != 0 || len(e.brokers) != 0 {
			t.Errorf("%d and %d places are still taken", len(e.clients), len(e.brokers))
		}
	})
}
