package attack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// TestEpochTampered: whatever happens to /controller_epoch while somebody is in
// charge, there is a controller again that can write, or, as long as the node
// says nothing, one clear report and nobody in charge.
func TestEpochTampered(t *testing.T) {
	for name, tamper := range map[string]func(*attack){
		"raised":      func(a *attack) { a.put(zkpaths.ControllerEpoch, []byte("50")) },
		"same value":  func(a *attack) { e, _ := a.get(zkpaths.ControllerEpoch); a.put(zkpaths.ControllerEpoch, e) },
		"deleted":     func(a *attack) { a.remove(zkpaths.ControllerEpoch) },
		"with blanks": func(a *attack) { a.put(zkpaths.ControllerEpoch, []byte(" 7\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, kafka.V3_9IV0, false)
			tamper(a)
			a.w.Crash(2)
			a.fenced(t)
			a.pass("a broker's death after it")
			if err := a.w.Start(2, nil); err != nil {
				t.Fatal(err)
			}
			a.pass("its return")
		})
	}
	for _, garbage := range []string{"x", "", "-1", "1.5", "2147483648", "2147483647", `{"version":1}`} {
		t.Run(fmt.Sprintf("garbage %q", garbage), func(t *testing.T) {
			a := start(t, kafka.V3_9IV0, false)
			a.put(zkpaths.ControllerEpoch, []byte(garbage))
			a.w.Crash(2)
			a.fenced(t)
			if err := a.settle(); err != nil {
				t.Fatal(err)
			}
			if bad := a.quiet(); bad != "" {
				t.Errorf("with that epoch: %s", bad)
			}
			if now, _ := a.get(zkpaths.ControllerEpoch); string(now) != garbage {
				t.Errorf("the epoch was overwritten with %q", now)
			}
			if n := a.lines("/controller_epoch: "); n < 1 || n > 3 {
				t.Errorf("reported %d times", n)
			}
			a.put(zkpaths.ControllerEpoch, []byte("9"))
			a.pass("repaired")
			if c := a.w.Active(); c.Controller().State().Epoch != 10 {
				t.Errorf("controller epoch %d after a repair with 9", c.Controller().State().Epoch)
			}
		})
	}
}

// fenced lets the time pass that a fenced controller waits for whoever raised
// the epoch.
func (a *attack) fenced(t *testing.T) {
	t.Helper()
	if err := a.settle(); err != nil {
		t.Fatal(err)
	}
	a.w.Advance(20 * time.Second)
}

func (a *attack) remove(path string) {
	a.w.ZK.Write(a.w.Admin, zkserver.Op{Kind: zkserver.OpDelete, Path: path, Version: zkserver.AnyVersion})
}

// TestEpochLostAmongHugeOnes: the epoch goes on above what states say, but not
// above the largest number there is.
func TestEpochLostAmongHugeOnes(t *testing.T) {
	a := start(t, kafka.V3_9IV0, false)
	a.put(zkpaths.TopicPath("v0"), []byte(`{"version":3,"partitions":{"0":[1,2]}}`))
	a.pass("a topic more")
	a.put(zkpaths.PartitionStatePath(kafka.TopicPartition{Topic: "v0"}), []byte(`{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":2147483647,"isr":[1,2]}`))
	a.remove(zkpaths.ControllerEpoch)
	a.failover()
	a.pass("failover")
	a.w.Crash(2)
	a.pass("a broker's death")
}

// TestLeaderEpochs: an epoch that cannot be raised, or that no controller
// writes, is damage: the partition is left alone.
func TestLeaderEpochs(t *testing.T) {
	for _, state := range []string{
		`{"version":1,"leader":1,"leader_epoch":2147483647,"controller_epoch":1,"isr":[1,2]}`,
		`{"version":1,"leader":1,"leader_epoch":-1,"controller_epoch":1,"isr":[1,2]}`,
		`{"version":1,"leader":1,"leader_epoch":-2147483648,"controller_epoch":1,"isr":[1,2]}`,
		`{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":-1,"isr":[1,2]}`,
		`{"version":1,"leader":-2,"leader_epoch":0,"controller_epoch":1,"isr":[1,2]}`,
		`{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":2147483647,"isr":[1,2]}`,
	} {
		for _, failover := range []bool{false, true} {
			t.Run(fmt.Sprint(state, failover), func(t *testing.T) {
				a := start(t, kafka.V3_9IV0, false)
				a.put(zkpaths.TopicPath("v0"), []byte(`{"version":3,"partitions":{"0":[1,2]}}`))
				a.pass("a topic more")
				path := zkpaths.PartitionStatePath(kafka.TopicPartition{Topic: "v0"})
				good, _ := a.get(path)
				a.put(path, []byte(state))
				if failover {
					a.failover()
				}
				a.w.Crash(1)
				a.pass("a broker's death")
				if now, _ := a.get(path); string(now) != state {
					t.Errorf("the state was overwritten: %s", now)
				}
				a.put(path, good)
				a.pass("repaired")
				if err := a.w.Start(1, nil); err != nil {
					t.Fatal(err)
				}
				a.pass("return")
				a.w.Crash(2)
				a.pass("the other one's death")
				if l := a.leader("v0", 0); l.Leader != 1 {
					t.Errorf("not led by 1: %s", l)
				}
			})
		}
	}
}

// TestDeniedPaths: what a controller may not read or list, but can do without,
// does not keep it from taking over, and is told once.
func TestDeniedPaths(t *testing.T) {
	for _, path := range []string{zkpaths.Feature, zkpaths.DeleteTopics, zkpaths.ISRNotifications, zkpaths.LogDirNotifications, zkpaths.ReassignPartitions,
		zkpaths.PreferredElection, zkpaths.ConfigChanges, zkpaths.ConfigBrokers + "/<default>", zkpaths.TopicConfigPath("h0"), zkpaths.TopicPath("v0"),
		zkpaths.PartitionStatePath(kafka.TopicPartition{Topic: "v0"}), zkpaths.BrokerPath(4), zkpaths.ClusterID, zkpaths.ProducerIDBlock} {
		t.Run(path, func(t *testing.T) {
			a := start(t, kafka.V2_7IV0, false)
			a.put(zkpaths.TopicPath("v0"), []byte(`{"version":2,"partitions":{"0":[1,2]}}`))
			a.pass("a topic more")
			if _, ok := a.get(path); !ok {
				a.put(path, []byte("{}"))
			}
			a.next++
			c := a.w.Candidate(a.next)
			for _, op := range []string{"get", "children"} {
				c.Store.Inject(deny(op, path))
			}
			a.w.Crash(a.next - 1)
			c.Put(events.Startup{})
			if err := a.settle(); err != nil {
				t.Fatal(err)
			}
			if bad := check(a.healthy(), a.quiet(), a.told(0, 3)); bad != "" {
				t.Fatal(bad)
			}
			a.w.Crash(3)
			if err := a.settle(); err != nil {
				t.Fatal(err)
			}
			if bad := check(a.healthy(), a.quiet(), a.told(0, 3)); bad != "" {
				t.Fatal(bad)
			}
		})
	}
}

// TestCannotTakeOver: who may not list the brokers, or the topics, gives the
// role up, tells why once, and tries again in growing pauses, which are short
// again once a failover went well.
func TestCannotTakeOver(t *testing.T) {
	for _, dir := range []string{zkpaths.BrokerIDs, zkpaths.BrokerTopics} {
		t.Run(dir, func(t *testing.T) {
			a := start(t, kafka.V3_9IV0, false)
			a.w.Crash(a.next)
			a.next++
			c := a.w.Candidate(a.next)
			for range 2 {
				from := len(a.w.Notes)
				c.Store.Inject(deny("children", dir))
				c.Put(events.Startup{})
				var elected []int // in which second
				for second := range 120 {
					before := len(a.w.Notes)
					if err := a.w.Settle(); err != nil {
						t.Fatal(err)
					}
					for _, n := range a.w.Notes[before:] {
						if w, ok := n.(sim.Wrote); ok && w.Op.Path == zkpaths.Controller && w.Op.Kind == zkserver.OpCreate {
							elected = append(elected, second)
						}
					}
					a.w.Advance(time.Second)
				}
				if want := []int{0, 1, 3, 7, 15, 31, 63, 95}; !slices.Equal(elected, want) {
					t.Errorf("elected in seconds %v, want %v", elected, want)
				}
				lines := map[string]int{}
				for _, n := range a.w.Notes[from:] {
					if l, ok := n.(sim.Logged); ok && l.Level <= logrus.InfoLevel {
						lines[l.Message]++
					}
				}
				for message, n := range lines {
					if n > 1 && !strings.Contains(message, "resign") || n > 2 { // out of office twice in round two
						t.Errorf("told %d times: %s", n, message)
					}
				}
				if lines["cannot take over; giving the role up until it can"] != 1 {
					t.Errorf("the reason is not told: %v", lines)
				}
				c.Store.ClearFaults()
				a.w.Advance(32 * time.Second)
				a.pass("the right is given")
				a.remove(zkpaths.Controller) // the next round starts with an election
			}
		})
	}
}
