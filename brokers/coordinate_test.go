package brokers_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// offsetsTopic lets a broker lead the one partition of the offsets topic.
func (c *cluster) offsetsTopic(t *testing.T, leader kafka.BrokerID, epoch int32) {
	t.Helper()
	live := []kafka.Broker{{ID: 1}, {ID: 2}, {ID: 3}}
	h := control.Header{ControllerID: 9, ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch}
	s := &control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: groups.Topic}, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1, 2, 3}},
		Leadership: kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: leader, LeaderEpoch: epoch, ISR: []kafka.BrokerID{1, 2, 3}, ZKVersion: epoch}, ControllerEpoch: 4}}
	for _, n := range c.host.Nodes() {
		for _, r := range []control.Request{&control.UpdateMetadataRequest{Header: h, Metadata: &control.Metadata{LiveBrokers: live, Partitions: []*control.PartitionState{s}}},
			&control.LeaderAndISRRequest{Header: h, Partitions: []*control.PartitionState{s}}} {
			if resp, err := n.HandleControl(t.Context(), r); err != nil || resp.Error != kafka.NoError {
				t.Fatal(resp.Error, err)
			}
		}
		synctest.Wait() // a follower that hears before its leader does is refused
	}
}

func coordinate(n *brokers.Node, req kmsg.Request) kmsg.Response {
	answer := make(chan kmsg.Response, 1)
	n.Coordinate(groups.Request{Request: req, ClientID: "c", ClientHost: "127.0.0.1", Reply: func(r kmsg.Response) { answer <- r }})
	return <-answer
}

func commit(n *brokers.Node, offset int64) kafka.ErrorCode {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, "g", -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "t"
	row := kmsg.NewOffsetCommitRequestTopicPartition()
	row.Offset = offset
	topic.Partitions = append(topic.Partitions, row)
	req.Topics = append(req.Topics, topic)
	return kafka.ErrorCode(coordinate(n, req).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

func committed(n *brokers.Node) (int64, kafka.ErrorCode) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = 7, "g"
	topic := kmsg.NewOffsetFetchRequestTopic()
	topic.Topic, topic.Partitions = "t", []int32{0}
	req.Topics = append(req.Topics, topic)
	resp := coordinate(n, req).(*kmsg.OffsetFetchResponse)
	if resp.ErrorCode != 0 {
		return -1, kafka.ErrorCode(resp.ErrorCode)
	}
	return resp.Topics[0].Partitions[0].Offset, kafka.NoError
}

// TestRestingPartition: a follower that rests from a partition whose leader did not
// lead yet asks for it again in time, also while it waits for records of others.
func TestRestingPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := groups.DefaultOptions()
		c := newClusterOf(t, func(b *brokers.Options) { b.Version, b.Logs, b.Groups = kafka.V3_9IV0, &brokers.LogOptions{}, &o }, nil)
		c.lead(t, 3, 6, 1, 2, 3)
		time.Sleep(time.Minute)
		c.offsetsTopic(t, 3, 0)
		began := time.Now()
		if code := commit(c.host.Node(3), 41); code != kafka.NoError {
			t.Fatalf("commit: %s after %s", code, time.Since(began))
		}
		// A rest of 1 s, and what is left of a fetch's wait of 0.5 s.
		if d := time.Since(began); d > 1500*time.Millisecond {
			t.Errorf("committed after %s", d)
		}
		c.end(t)
	})
}

// TestCoordinatorMoves: what a group committed is a record that all replicas
// have, and whoever leads the offsets partition next knows it.
func TestCoordinatorMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := groups.DefaultOptions()
		c := newClusterOf(t, func(b *brokers.Options) { b.Version, b.Logs, b.Groups = kafka.V3_9IV0, &brokers.LogOptions{}, &o }, nil)
		c.offsetsTopic(t, 1, 0)
		one, two := c.host.Node(1), c.host.Node(2)
		if code := commit(one, 41); code != kafka.NoError {
			t.Fatal(code)
		}
		if code := commit(one, 42); code != kafka.NoError {
			t.Fatal(code)
		}
		if code := commit(two, 43); code != kafka.NotCoordinator {
			t.Fatal(code)
		}
		if got, code := committed(one); got != 42 || code != kafka.NoError {
			t.Fatal(got, code)
		}
		c.offsetsTopic(t, 2, 1)
		time.Sleep(100 * time.Millisecond)
		if got, code := committed(two); got != 42 || code != kafka.NoError {
			t.Fatal(got, code)
		}
		if _, code := committed(one); code != kafka.NotCoordinator {
			t.Fatal(code)
		}
		// With a follower that is silent a commit waits, and times out with the append.
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "pause"})
		begin := time.Now()
		if code := commit(two, 44); code != kafka.RequestTimedOut && code != kafka.CoordinatorNotAvailable || time.Since(begin) != 5*time.Second {
			t.Fatal(code, time.Since(begin))
		}
		c.end(t)
	})
}
