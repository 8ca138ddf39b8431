package dispatch

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func tp(topic string, n int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: topic, Partition: n}
}

func header(b kafka.Broker) control.Header {
	return control.Header{ControllerID: 9999, ControllerEpoch: 7, BrokerEpoch: b.Epoch}
}

func state(topic string, n int32, leader kafka.BrokerID, epoch int32) *control.PartitionState {
	p := &control.PartitionState{TopicPartition: tp(topic, n)}
	if topic != "" {
		p.TopicID = kafka.TopicID{1, topic[0], topic[len(topic)-1]}
	}
	p.Leader, p.LeaderEpoch, p.ControllerEpoch = leader, epoch, 7
	p.ISR, p.Replicas = []kafka.BrokerID{1, 2}, []kafka.BrokerID{1, 2}
	return p
}

func lisr(b kafka.Broker, parts ...*control.PartitionState) *control.LeaderAndISRRequest {
	return &control.LeaderAndISRRequest{Header: header(b), Partitions: parts}
}

func umr(b kafka.Broker, m *control.Metadata) *control.UpdateMetadataRequest {
	return &control.UpdateMetadataRequest{Header: header(b), Metadata: m}
}

func sr(b kafka.Broker, parts ...control.StopPartition) *control.StopReplicaRequest {
	return &control.StopReplicaRequest{Header: header(b), Partitions: parts}
}

// The three requests of a batch arrive in order, once, with what was put in,
// and their answers become events.
func TestBatch(t *testing.T) {
	s := newSink(t, 1, table(7, 8, 4), nil)
	d, q := newDispatcher(t, Options{})
	d.Add(s.broker)
	parts := []*control.PartitionState{state("orders", 0, 1, 3), state("orders", 1, 2, 4), state("sales", 0, 1, 0)}
	stop := sr(s.broker, control.StopPartition{TopicPartition: tp("gone", 0), LeaderEpoch: -2, Delete: true}, control.StopPartition{TopicPartition: tp("moved", 1), LeaderEpoch: 5})
	d.Send(1, lisr(s.broker, parts...))
	d.Send(1, umr(s.broker, &control.Metadata{Partitions: parts, LiveBrokers: []kafka.Broker{{ID: 1, Epoch: -1, Endpoints: s.broker.Endpoints}}}))
	d.Send(1, stop)

	got := s.wait(3)
	want := []seen{{7, lisr(s.broker, parts...)}, {8, umr(s.broker, &control.Metadata{Partitions: parts, LiveBrokers: []kafka.Broker{{ID: 1, Epoch: -1, Endpoints: s.broker.Endpoints}}})}, {4, stop}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(seen{})); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	ok := map[kafka.TopicPartition]kafka.ErrorCode{tp("orders", 0): 0, tp("orders", 1): 0, tp("sales", 0): 0}
	wantEvents := []events.Event{
		events.LeaderAndISRResponse{Broker: 1, Errors: ok},
		events.UpdateMetadataResponse{Broker: 1},
		events.StopReplicaResponse{Broker: 1, Errors: map[kafka.TopicPartition]kafka.ErrorCode{tp("gone", 0): 0, tp("moved", 1): 0}, Request: stop},
	}
	for _, w := range wantEvents {
		if diff := cmp.Diff(w, q.take(t)); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
}

// The channel of a broker that was removed and added again, as one that
// registered anew is, waits until the old one has let go of its connection.
func TestAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		var dials atomic.Int32
		d := New(Options{Put: func(events.Event) {}, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				<-hold // and be it longer than ctx
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		b := kafka.Broker{ID: 1, Epoch: 10, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}}}
		d.Add(b)
		synctest.Wait()
		d.Remove(1)
		b.Epoch = 11
		d.Add(b)
		synctest.Wait()
		if n := dials.Load(); n != 1 {
			t.Errorf("%d connections, the old one is not over", n)
		}
		close(hold)
		synctest.Wait()
		if n := dials.Load(); n != 2 {
			t.Errorf("%d connections, want another one", n)
		}
		d.Close()
	})
}
