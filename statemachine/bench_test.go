package statemachine_test

import (
	"fmt"
	"testing"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// cluster has n partitions in topics of 100, three replicas each on six
// brokers, all led by their first replica.
func cluster(n int) (*statemachine.Context, []*statemachine.Partition, map[*statemachine.Partition]statemachine.ZKState) {
	c := statemachine.NewContext(true, true)
	c.Epoch = 7
	for id := range kafka.BrokerID(6) {
		c.SetBroker(kafka.Broker{ID: id})
	}
	ps := make([]*statemachine.Partition, n)
	zk := make(map[*statemachine.Partition]statemachine.ZKState, n)
	for i := range ps {
		first := kafka.BrokerID(i % 6)
		rs := []kafka.BrokerID{first, (first + 1) % 6, (first + 2) % 6}
		p := c.SetAssignment(c.AddTopic(fmt.Sprintf("topic-%03d", i/100)), int32(i%100), kafka.ReplicaAssignment{Replicas: rs})
		p.State = statemachine.OfflinePartition
		p.SetLeadership(kafka.Leadership{ControllerEpoch: 7, LeaderAndISR: kafka.LeaderAndISR{Leader: first, ISR: rs}})
		ps[i], zk[p] = p, statemachine.ZKState{Leadership: p.Leadership}
	}
	return c, ps, zk
}

func perPartition(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/partition")
}

// Elections of 10 000 partitions whose leader is gone: plan and settle.
func BenchmarkElections(b *testing.B) {
	const n = 10_000
	c, ps, zk := cluster(n)
	c.RemoveBroker(0)
	never := func(string) (bool, error) { return false, nil }
	b.ReportAllocs()
	for b.Loop() {
		plan := c.PlanPartitions(ps, statemachine.OnlinePartition, statemachine.OfflineElection, zk, never)
		if res := plan.Settle(make([]zkpaths.Outcome, len(plan.Writes))); len(res.Done) != n {
			b.Fatalf("%d elected, %d failed", len(res.Done), len(res.Failures))
		}
	}
	perPartition(b, n)
}

// One broker leaves 10 000 ISRs.
func BenchmarkRemovals(b *testing.B) {
	const n = 10_000
	c, ps, zk := cluster(n)
	rs := make([]statemachine.Replica, n)
	for i, p := range ps {
		rs[i] = statemachine.Replica{Partition: p, Broker: p.Assignment.Replicas[0]}
	}
	b.ReportAllocs()
	for b.Loop() {
		plan := c.PlanRemovals(rs, zk)
		if res := plan.Settle(make([]zkpaths.Outcome, len(plan.Writes))); len(res.Done) != n {
			b.Fatalf("%d done", len(res.Done))
		}
	}
	perPartition(b, n)
}

func BenchmarkGauges(b *testing.B) {
	const n = 10_000
	c, _, _ := cluster(n)
	b.ReportAllocs()
	for b.Loop() {
		if g := c.Gauges(); g.Partitions != n {
			b.Fatal(g)
		}
	}
	perPartition(b, n)
}
