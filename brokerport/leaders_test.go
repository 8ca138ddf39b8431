package brokerport_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// follower is broker 2 as its leader, broker 1, sees it: what it says on the wire
// is noted.
type follower struct {
	*brokerport.Leaders
	leader *broker
	server *wire.Server

	mu    sync.Mutex
	said  []string
	fails kafka.ErrorCode // the next Fetch is answered so
}

// follow makes broker 2 a follower of three partitions that broker 1 leads.
func follow(t *testing.T, version string) *follower {
	t.Helper()
	return followWith(t, version, nil)
}

func followWith(t *testing.T, version string, settings brokerport.Settings) *follower {
	t.Helper()
	v, err := kafka.ParseProtocolVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, brokerOptions{id: 1, release: version, settings: settings})
	f := &follower{leader: b}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := b.port.Listener(listener)
	f.server = wire.Serve(ln, wire.HandlerFunc(func(ctx context.Context, r *wire.Request) {
		if req, ok := r.Kafka.(*kmsg.FetchRequest); ok && f.note(r, req) {
			return
		}
		port.Handle(ctx, r)
	}), wire.ServerOptions{Table: b.port.Table()})
	t.Cleanup(f.server.Close)
	live := []kafka.Broker{b.asBroker(), {ID: 2, Endpoints: []kafka.Endpoint{{Listener: listener, Host: "127.0.0.1", Port: 1}}}}
	um := &control.UpdateMetadataRequest{Header: control.Header{ControllerID: 1, ControllerEpoch: 1, BrokerEpoch: -1}, Metadata: &control.Metadata{LiveBrokers: live}}
	li := &control.LeaderAndISRRequest{Header: um.Header}
	for n := range orders.n {
		p := &control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: orders.name, Partition: n}, TopicID: orders.id, IsNew: true,
			Leadership:        kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 1, ISR: []kafka.BrokerID{1, 2}}, ControllerEpoch: 1},
			ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1, 2}}}
		um.Partitions, li.Partitions = append(um.Partitions, p), append(li.Partitions, p)
	}
	b.control(t, um)
	b.control(t, li)
	f.Leaders = brokerport.NewLeaders(brokerport.LeadersOptions{Self: 2, Version: v, Listener: listener})
	t.Cleanup(f.Close)
	return f
}

// note writes down what a Fetch asks for; true: it was answered, too.
func (f *follower) note(r *wire.Request, req *kmsg.FetchRequest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := fmt.Sprintf("epoch %d:", req.SessionEpoch)
	if req.SessionEpoch <= 0 && req.SessionID != 0 {
		s = "old session, " + s
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			s += fmt.Sprintf(" %d@%d", p.Partition, p.FetchOffset)
		}
	}
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			s += fmt.Sprintf(" -%d", p)
		}
	}
	f.said = append(f.said, s)
	if f.fails == kafka.NoError {
		return false
	}
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	resp.ErrorCode = int16(f.fails)
	f.fails = kafka.NoError
	r.Reply(resp)
	return true
}

// ask fetches partitions, each from an offset on, and tells what was said and
// what came back: partitions, and how many bytes of records if there are any.
func (f *follower) ask(t *testing.T, r brokers.FetchRequest, offsets ...int64) (said, got string, err error) {
	t.Helper()
	f.mu.Lock()
	f.said = nil
	f.mu.Unlock()
	r.Replica, r.ReplicaEpoch, r.MinBytes, r.MaxBytes = 2, -1, 1, 1<<20
	for n, offset := range offsets {
		if offset >= 0 {
			r.Rows = append(r.Rows, brokers.FetchRow{Partition: kafka.TopicPartition{Topic: orders.name, Partition: int32(n)}, TopicID: orders.id, Offset: offset,
				LeaderEpoch: 0, LastFetchedEpoch: -1, MaxBytes: 1 << 20})
		}
	}
	server := f.leader.asBroker()
	server.Endpoints = []kafka.Endpoint{endpointOf(f.server.Addr())}
	results, err := f.Fetch(t.Context(), server, &r)
	var rows []string
	for _, res := range results {
		row := fmt.Sprint(res.Partition.Partition)
		if res.Error != kafka.NoError {
			row += " " + res.Error.String()
		}
		if len(res.Records) > 0 {
			row += " with records"
		}
		rows = append(rows, row)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.said, "; "), strings.Join(rows, ", "), err
}

// produce appends one record without waiting for the follower.
func (f *follower) produce(t *testing.T, partition int32) {
	t.Helper()
	answer := make(chan []brokers.ProduceResult, 1)
	f.leader.Produce(&brokers.ProduceRequest{Acks: brokers.AcksLeader, Rows: []brokers.ProduceRow{{Partition: kafka.TopicPartition{Topic: orders.name, Partition: partition},
		Records: batch("x")}}}, func(r []brokers.ProduceResult) { answer <- r })
	if r := <-answer; r[0].Error != kafka.NoError {
		t.Fatalf("produce: %s", r[0].Error)
	}
}

// The requests of a follower name what its leader does not know yet, as those of
// Kafka's followers do; a leader that lost the session is asked for everything.
func TestFollowersSession(t *testing.T) {
	for _, version := range []string{"3.9", "2.6"} { // topics by id and by name
		t.Run(version, func(t *testing.T) {
			f := follow(t, version)
			step := func(what, wantSaid, wantGot string, offsets ...int64) {
				t.Helper()
				said, got, err := f.ask(t, brokers.FetchRequest{}, offsets...)
				if said != wantSaid || got != wantGot || err != nil {
					t.Errorf("%s: said %q, got %q, %v; want %q and %q", what, said, got, err, wantSaid, wantGot)
				}
			}
			step("first", "epoch 0: 0@0 1@0 2@0", "0, 1, 2", 0, 0, 0)
			step("nothing new", "epoch 1:", "", 0, 0, 0)
			f.produce(t, 1)
			step("records", "epoch 2:", "1 with records", 0, 0, 0)
			step("another offset", "epoch 3: 1@1", "", 0, 1, 0)
			step("one less", "epoch 4: -2", "1", 0, 1, -1) // the high watermark that the last fetch moved
			step("it is back", "epoch 5: 2@0", "2", 0, 1, 0)
			step("out of range", "epoch 6: 0@7", "0 OFFSET_OUT_OF_RANGE", 7, 1, 0)
			step("and again", "epoch 7:", "0 OFFSET_OUT_OF_RANGE", 7, 1, 0)
			step("over", "epoch 8: 0@0", "0", 0, 1, 0)

			f.fails = 70 // FETCH_SESSION_ID_NOT_FOUND
			step("unknown session", "epoch 9:; epoch 0: 0@0 1@1 2@0", "0, 1, 2", 0, 1, 0)
			step("new session", "epoch 1:", "", 0, 1, 0)
			f.fails = 71 // INVALID_FETCH_SESSION_EPOCH
			step("wrong epoch", "epoch 2:; old session, epoch 0: 0@0 1@1 2@0", "0, 1, 2", 0, 1, 0)

			if said, got, err := f.ask(t, brokers.FetchRequest{Anew: true}, 0, 1, 0); said != "old session, epoch 0: 0@0 1@1 2@0" || got != "0, 1, 2" || err != nil {
				t.Errorf("anew: said %q, got %q, %v", said, got, err)
			}
			if said, _, _ := f.ask(t, brokers.FetchRequest{Fetcher: 1}, 0); said != "epoch 0: 0@0" {
				t.Errorf("another fetcher: said %q", said)
			}
			f.server.DropConnections()
			if _, _, err := f.ask(t, brokers.FetchRequest{}, 0, 1, 0); err == nil {
				t.Error("a broken connection is no error")
			}
			step("after a broken connection", "old session, epoch 0: 0@0 1@1 2@0", "0, 1, 2", 0, 1, 0)
			f.fails = kafka.UnknownServerError
			if _, _, err := f.ask(t, brokers.FetchRequest{}, 0, 1, 0); !errors.Is(err, kafka.UnknownServerError) {
				t.Errorf("another error: %v", err)
			}
			step("after another error", "old session, epoch 0: 0@0 1@1 2@0", "0, 1, 2", 0, 1, 0)
		})
	}
}

// Before Fetch version 7 there are no sessions, and a leader may have no room for
// one: each request names everything.
func TestFollowersWithoutSessions(t *testing.T) {
	for _, tc := range []struct {
		version string
		slots   string
		epoch   int // below version 7 none is sent
	}{{"1.0", "1000", -1}, {"3.9", "0", 0}} {
		f := followWith(t, tc.version, brokerport.Settings{"max.incremental.fetch.session.cache.slots": tc.slots})
		for range 3 {
			said, got, err := f.ask(t, brokers.FetchRequest{MaxWait: time.Millisecond}, 0, 0, 0)
			if said != fmt.Sprintf("epoch %d: 0@0 1@0 2@0", tc.epoch) || got != "0, 1, 2" || err != nil {
				t.Errorf("%s: said %q, got %q, %v", tc.version, said, got, err)
			}
		}
	}
}
