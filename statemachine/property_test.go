package statemachine_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// world is a drawn memory with one partition, and the same facts as plain sets.
type world struct {
	c        *statemachine.Context
	p        *statemachine.Partition
	zk       kafka.Leadership
	live     map[kafka.BrokerID]bool // registered, not shutting down, directory fine
	present  map[kafka.BrokerID]bool // the same, but shutting down counts
	shutting map[kafka.BrokerID]bool
}

func idSlice(least, most int) *rapid.Generator[[]kafka.BrokerID] {
	return rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) kafka.BrokerID {
		return kafka.BrokerID(rapid.Int32Range(0, 7).Draw(t, "id"))
	}), least, most, rapid.ID[kafka.BrokerID])
}

func drawWorld(t *rapid.T) world {
	w := world{c: statemachine.NewContext(rapid.Bool().Draw(t, "recovery state"), true),
		live: map[kafka.BrokerID]bool{}, present: map[kafka.BrokerID]bool{}, shutting: map[kafka.BrokerID]bool{}}
	w.c.Epoch = 5
	rs := idSlice(1, 6).Draw(t, "replicas")
	rr := []kafka.BrokerID{}
	for _, id := range rs[1:] {
		if rapid.Bool().Draw(t, "removing") {
			rr = append(rr, id)
		}
	}
	w.p = w.c.SetAssignment(w.c.AddTopic("t"), 0, kafka.ReplicaAssignment{Replicas: rs, Removing: rr})
	w.p.State = statemachine.OnlinePartition
	for id := kafka.BrokerID(0); id < 8; id++ {
		switch rapid.SampledFrom([]string{"live", "live", "shutting", "failed", "dead"}).Draw(t, "broker") {
		case "live":
			w.c.SetBroker(kafka.Broker{ID: id})
			w.live[id], w.present[id] = true, true
		case "shutting":
			w.c.SetBroker(kafka.Broker{ID: id})
			w.c.SetShuttingDown(id)
			w.present[id], w.shutting[id] = true, true
		case "failed":
			w.c.SetBroker(kafka.Broker{ID: id})
			w.c.SetReplicaFailed(id, w.p.TopicPartition, true)
		}
	}
	w.zk = kafka.Leadership{ControllerEpoch: 5, LeaderAndISR: kafka.LeaderAndISR{ISR: idSlice(0, 5).Draw(t, "isr"), Leader: kafka.NoLeader,
		LeaderEpoch: rapid.Int32Range(0, 9).Draw(t, "epoch"), ZKVersion: rapid.Int32Range(0, 9).Draw(t, "version"),
		Recovery: kafka.LeaderRecoveryState(rapid.IntRange(0, 1).Draw(t, "recovery"))}}
	return w
}

// naive is spec/controller.md §4.7 once more, in loops over sets: leader, ISR
// and receivers; leader -1 is nobody.
func naive(w world, s statemachine.Strategy, allowed bool) (leader kafka.BrokerID, isr, to []kafka.BrokerID, unclean bool) {
	in := map[kafka.BrokerID]bool{}
	for _, id := range w.zk.ISR {
		in[id] = true
	}
	rs := w.p.Assignment.Replicas
	switch s {
	case statemachine.PreferredElection:
		if w.live[rs[0]] && in[rs[0]] {
			return rs[0], w.zk.ISR, rs, false
		}
		return -1, nil, nil, false
	case statemachine.ReassignElection:
		removing := map[kafka.BrokerID]bool{}
		for _, id := range w.p.Assignment.Removing {
			removing[id] = true
		}
		leader = -1
		for _, id := range rs {
			if removing[id] {
				continue
			}
			to = append(to, id)
			if leader < 0 && w.live[id] && in[id] {
				leader = id
			}
		}
		return leader, w.zk.ISR, to, false
	case statemachine.ControlledShutdownElection:
		leader = -1
		for _, id := range rs {
			if w.present[id] {
				to = append(to, id)
				if leader < 0 && in[id] && !w.shutting[id] {
					leader = id
				}
			}
		}
		for _, id := range w.zk.ISR {
			if !w.shutting[id] {
				isr = append(isr, id)
			}
		}
		return leader, isr, to, false
	}
	var online []kafka.BrokerID
	for _, id := range rs {
		if w.live[id] {
			online = append(online, id)
		}
	}
	for _, id := range online {
		if in[id] {
			for _, m := range w.zk.ISR {
				if w.live[m] {
					isr = append(isr, m)
				}
			}
			return id, isr, online, false
		}
	}
	if allowed && len(online) > 0 {
		return online[0], online[:1], online, true
	}
	return -1, nil, nil, false
}

// Elections are those of the naive version, for every strategy and any world.
func TestElectionsAreTheNaiveOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		s := statemachine.Strategy(rapid.IntRange(0, int(statemachine.ControlledShutdownElection)).Draw(t, "strategy"))
		allowed := rapid.Bool().Draw(t, "unclean allowed")
		leader, isr, to, unclean := naive(w, s, allowed)
		e, ok := w.c.Elect(w.p, w.zk, s, allowed)
		if ok != (leader >= 0) {
			t.Fatalf("%s of %v, ISR %v: elected %v, naive leader %d", s, w.p.Assignment, w.zk.ISR, ok, leader)
		}
		if !ok {
			return
		}
		l := e.Leadership
		if l.Leader != leader || !slices.Equal(l.ISR, isr) || !slices.Equal(e.Recipients, to) || e.Unclean != unclean {
			t.Fatalf("%s of %v, ISR %v: got %+v, naive leader %d ISR %v to %v unclean %v", s, w.p.Assignment, w.zk.ISR, e, leader, isr, to, unclean)
		}
		if l.LeaderEpoch != w.zk.LeaderEpoch+1 || l.ZKVersion != w.zk.ZKVersion {
			t.Fatalf("epoch %d, version %d after %d, %d", l.LeaderEpoch, l.ZKVersion, w.zk.LeaderEpoch, w.zk.ZKVersion)
		}
		// What must hold whoever wrote the rules: I-06, I-08.
		if !slices.Contains(l.ISR, l.Leader) {
			t.Fatalf("leader %d is not in ISR %v", l.Leader, l.ISR)
		}
		recovering := w.zk.Recovery == kafka.Recovering || e.Unclean && w.c.RecoveryState
		if !slices.Contains(w.zk.ISR, l.Leader) != e.Unclean || (l.Recovery == kafka.Recovering) != recovering {
			t.Fatalf("leader %d, ISR before %v, unclean %v, recovery %d", l.Leader, w.zk.ISR, e.Unclean, l.Recovery)
		}
	})
}

// znode is a state znode that leaders write to as well.
type znode struct{ kafka.Leadership }

func (z *znode) set(t *rapid.T, w zkpaths.Write) zkpaths.Outcome {
	if w.Version != z.ZKVersion {
		return zkpaths.Outcome{Code: zkpaths.BadVersion}
	}
	l, err := zkpaths.DecodePartitionState(kafka.TopicPartition{Topic: "t"}, w.Data, w.Version+1)
	if err != nil {
		t.Fatalf("unreadable: %v", err)
	}
	z.Leadership = l
	return zkpaths.Outcome{Version: l.ZKVersion}
}

// Replicas leave an ISR whatever a leader writes in between: in the end each is
// out, or the only one left; each write raises the epoch by one; a leader that
// left is none.
func TestRemovalsAgainstALeaderThatWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		isr := slices.DeleteFunc(slices.Clone(w.p.Assignment.Replicas), func(kafka.BrokerID) bool { return rapid.Bool().Draw(t, "out of sync") })
		if len(isr) == 0 {
			isr = w.p.Assignment.Replicas[:1]
		}
		z := &znode{kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: isr[0], ISR: isr, LeaderEpoch: 3, ZKVersion: 8}, ControllerEpoch: 5}}
		var rs []statemachine.Replica
		leave := map[kafka.BrokerID]bool{}
		for _, id := range w.p.Assignment.Replicas {
			if rapid.Bool().Draw(t, "leaves") {
				rs = append(rs, statemachine.Replica{Partition: w.p, Broker: id})
				leave[id] = true
			}
		}
		writes, done := int32(0), map[kafka.BrokerID]bool{}
		meddling := rapid.IntRange(0, 3).Draw(t, "leader's writes")
		for round := 0; len(rs) > 0; round++ {
			if round > 10 {
				t.Fatalf("does not end: %v left", rs)
			}
			plan := w.c.PlanRemovals(rs, map[*statemachine.Partition]statemachine.ZKState{w.p: {Leadership: z.Leadership}})
			out := make([]zkpaths.Outcome, len(plan.Writes))
			for i, wr := range plan.Writes {
				if meddling > 0 && z.Leader >= 0 && rapid.Bool().Draw(t, "leader writes now") {
					meddling--
					z.ZKVersion++ // an ISR write of the leader: version, not epoch
				}
				before := z.LeaderEpoch
				if out[i] = z.set(t, wr); out[i].OK() {
					writes++
					if z.LeaderEpoch != before+1 {
						t.Fatalf("epoch %d after %d", z.LeaderEpoch, before)
					}
				}
			}
			res := plan.Settle(out)
			if len(res.Failures)+len(res.Silent) > 0 {
				t.Fatalf("failures %v silent %v", res.Failures, res.Silent)
			}
			for _, step := range res.Done {
				if done[step.Broker] {
					t.Fatalf("%d done twice", step.Broker)
				}
				done[step.Broker] = true
			}
			if len(res.Next) > 0 && len(res.Retry) > 0 {
				t.Fatalf("one partition in both: next %v, retry %v", res.Next, res.Retry)
			}
			rs = append(res.Next, res.Retry...)
		}
		if z.LeaderEpoch != 3+writes {
			t.Fatalf("epoch %d after %d writes", z.LeaderEpoch, writes)
		}
		want := slices.DeleteFunc(slices.Clone(isr), func(id kafka.BrokerID) bool { return leave[id] })
		switch {
		case len(done) != len(leave):
			t.Fatalf("done %v, wanted %v", done, leave)
		case len(want) > 0 && !slices.Equal(z.ISR, want), len(want) == 0 && len(z.ISR) != 1:
			t.Fatalf("ISR %v of %v without %v", z.ISR, isr, leave)
		case leave[isr[0]] && z.Leader != kafka.NoLeader, !leave[isr[0]] && z.Leader != isr[0]:
			t.Fatalf("leader %d, was %d, leaving %v", z.Leader, isr[0], leave)
		}
	})
}

// Any sequence of changes to brokers and topics leaves the lists sorted and in
// step with what single questions answer.
func TestContextListsAreSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := statemachine.NewContext(true, true)
		brokers, topics := map[kafka.BrokerID]bool{}, map[string]bool{}
		t.Repeat(map[string]func(*rapid.T){
			"register": func(t *rapid.T) {
				id := kafka.BrokerID(rapid.IntRange(0, 5).Draw(t, "id"))
				c.SetBroker(kafka.Broker{ID: id})
				brokers[id] = true
			},
			"remove": func(t *rapid.T) {
				id := kafka.BrokerID(rapid.IntRange(0, 5).Draw(t, "id"))
				c.RemoveBroker(id)
				delete(brokers, id)
			},
			"topic": func(t *rapid.T) {
				name := fmt.Sprint("t", rapid.IntRange(0, 3).Draw(t, "topic"))
				topic := c.AddTopic(name)
				topics[name] = true
				p := c.SetAssignment(topic, rapid.Int32Range(0, 4).Draw(t, "partition"), kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1}})
				p.SetReplica(1, statemachine.OnlineReplica)
			},
			"forget": func(t *rapid.T) {
				name := fmt.Sprint("t", rapid.IntRange(0, 3).Draw(t, "topic"))
				c.RemoveTopic(name)
				delete(topics, name)
			},
			"": func(t *rapid.T) {
				if ids := c.BrokerIDs(); !slices.IsSorted(ids) || len(ids) != len(brokers) {
					t.Fatalf("broker ids %v, registered %v", ids, brokers)
				}
				var seen []kafka.TopicPartition
				c.EachPartition(func(p *statemachine.Partition) { seen = append(seen, p.TopicPartition) })
				if !slices.IsSortedFunc(seen, kafka.TopicPartition.Compare) || len(c.Topics()) != len(topics) {
					t.Fatalf("partitions %v, topics %v", seen, topics)
				}
				for _, tp := range seen {
					if !topics[tp.Topic] || c.Partition(tp) == nil {
						t.Fatalf("%s is listed but not known", tp)
					}
				}
			},
		})
	})
}
