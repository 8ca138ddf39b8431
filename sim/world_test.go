package sim

import (
	"errors"
	"strings"
	"testing"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

func smallWorld(t *testing.T) *World {
	t.Helper()
	w, err := NewWorld(1, controller.Options{Version: kafka.V3_9IV0, DeleteTopics: true, ImbalancePercent: 10})
	if err != nil {
		t.Fatal(err)
	}
	for id := kafka.BrokerID(1); id <= 3; id++ {
		if err := w.Start(id, nil); err != nil {
			t.Fatal(err)
		}
		w.Candidate(id).Put(events.Startup{})
	}
	topic := zkpaths.Topic{Partitions: []zkpaths.PartitionAssignment{{ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1, 2}}}}}
	if err := w.ZK.Seed(zkserver.Saved{Path: zkpaths.TopicPath("t"), Data: zkpaths.EncodeTopic(topic)}); err != nil {
		t.Fatal(err)
	}
	if err := w.Stabilize(); err != nil {
		t.Fatal(err)
	}
	if bad := append(w.Violations(), w.Final()...); len(bad) > 0 {
		t.Fatalf("a healthy world: %v", bad)
	}
	return w
}

// TestCheckerSees: each row is what no controller may write, and the invariant
// that has to notice.
func TestCheckerSees(t *testing.T) {
	state := zkpaths.PartitionStatePath(kafka.TopicPartition{Topic: "t"})
	for _, row := range []struct{ path, data, invariant string }{
		{state, `{"version":1,"leader":3,"leader_epoch":1,"controller_epoch":1,"isr":[1,2]}`, "I-06"},
		{state, `{"version":1,"leader":-1,"leader_epoch":1,"controller_epoch":1,"isr":[]}`, "I-07"},
		{state, `{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":7,"isr":[1,2]}`, "I-03"},
		{state, `{"version":1,"leader":2,"leader_epoch":0,"controller_epoch":1,"isr":[1,2]}`, "I-04"},
		{state, `{"version":1,"leader":1,"leader_epoch":2,"controller_epoch":1,"isr":[1,2]}`, "I-04"},
		{state, `{"version":1,"leader":3,"leader_epoch":1,"controller_epoch":1,"isr":[3]}`, "I-08"},
		{state, `nothing`, "unreadable"},
		{zkpaths.ControllerEpoch, `1`, "I-01"},
		{zkpaths.TopicPath("t"), `{"version":3,"partitions":{"0":[1,2]},"adding_replicas":{"0":[3]},"removing_replicas":{}}`, "I-10"},
		{zkpaths.TopicPath("t"), `{"version":3,"partitions":{"0":[1,2,3]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[1]}}`, "I-10"},
		{zkpaths.TopicPath("t"), `{"version":3,"partitions":{"0":[3,1,2]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[3]}}`, "I-10"},
	} {
		w := smallWorld(t)
		w.ZK.Write(w.Candidates[1].Store.Session(), zkserver.Op{Kind: zkserver.OpSet, Path: row.path, Data: []byte(row.data), Version: zkserver.AnyVersion})
		if got := strings.Join(w.Violations(), "; "); !strings.Contains(got, row.invariant) {
			t.Errorf("%s written to %s: expected %s to be broken, got %q", row.data, row.path, row.invariant, got)
		}
	}
}

// TestFinalSees: what is not well at the end is named.
func TestFinalSees(t *testing.T) {
	for name, hurt := range map[string]func(w *World){
		"nobody is controller": func(w *World) { w.Crash(1); w.Crash(2); w.Crash(3) },
		"which is not up":      func(w *World) { w.Crash(1); w.Crash(2) },
		"topics still wait": func(w *World) {
			w.Crash(2)
			w.ZK.Write(w.Admin, zkserver.Op{Path: zkpaths.DeleteTopicPath("t"), ACL: zkserver.OpenACL()})
		},
		"does not know its epoch":  func(w *World) { w.Mute[1], w.Mute[2] = true, true; w.ZK.Write(w.Admin, reassignTo(2)) },
		zkpaths.ReassignPartitions: func(w *World) { w.Lagging[3] = true; w.ZK.Write(w.Admin, reassignTo(3)) },
		"still moving":             func(w *World) { w.Lagging[3] = true; w.ZK.Write(w.Admin, reassignTo(3)) },
		zkpaths.PreferredElection: func(w *World) {
			w.Candidates[1].Paused = true
			w.ZK.Write(w.Admin, zkserver.Op{Path: zkpaths.PreferredElection, ACL: zkserver.OpenACL()})
		},
	} {
		w := smallWorld(t)
		hurt(w)
		if err := w.Settle(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(w.Final(), "; "); !strings.Contains(got, name) {
			t.Errorf("expected %q, got %q", name, got)
		}
	}
}

func reassignTo(id kafka.BrokerID) zkserver.Op {
	return zkserver.Op{Path: zkpaths.ReassignPartitions, ACL: zkserver.OpenACL(),
		Data: zkpaths.EncodeReassignments([]zkpaths.Reassignment{{Partition: kafka.TopicPartition{Topic: "t"}, Replicas: []kafka.BrokerID{id}}})}
}

// TestStore: faults do what they say, and a fence stops writes.
func TestStore(t *testing.T) {
	zk := NewZooKeeper()
	var notices []zkpaths.Notice
	s := NewStore(zk, func(n zkpaths.Notice) { notices = append(notices, n) })
	ctx := t.Context()
	one := func(fence int32, w zkpaths.Write) (zkpaths.Outcome, error) {
		out, err := s.Write(ctx, fence, []zkpaths.Write{w})
		if len(out) == 0 {
			return zkpaths.Outcome{}, err
		}
		return out[0], err
	}
	if _, err := one(0, zkpaths.Write{Path: "/a"}); !errors.Is(err, zkpaths.ErrFenceLost) {
		t.Errorf("without /controller_epoch: %v", err)
	}
	if _, err := one(zkpaths.Unfenced, zkpaths.Write{Path: epochPath, Data: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if _, err := one(1, zkpaths.Write{Path: "/a"}); !errors.Is(err, zkpaths.ErrControllerMoved) {
		t.Errorf("with an old fence: %v", err)
	}
	s.Inject(Fault{Op: "create", Path: "/a", Skip: 1, Code: zkpaths.NoAuth})
	for i, want := range []zkpaths.Code{zkpaths.OK, zkpaths.NoAuth, zkpaths.NodeExists} {
		if out, err := one(0, zkpaths.Write{Path: "/a"}); err != nil || out.Code != want {
			t.Errorf("create %d: %v %v, expected %s", i, out, err, want)
		}
	}
	if _, err := s.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: "/a", Watch: true}, {Op: zkpaths.Exists, Path: "/b", Watch: true},
		{Op: zkpaths.GetChildren, Path: "/nosuch", Watch: true}}); err != nil {
		t.Fatal(err)
	}
	s.Inject(Fault{Op: "set", Effect: LoseAnswer})
	if out, err := one(0, zkpaths.Write{Op: zkpaths.Set, Path: "/a", Version: 0}); err != nil || out.Code != zkpaths.BadVersion {
		t.Errorf("a conditional set whose answer was lost meets itself: %v %v", out, err)
	}
	s.Inject(Fault{Op: "create", Path: "/b*", Effect: LoseAnswer})
	if _, err := s.Transact(ctx, []zkpaths.Write{{Path: "/b"}}); !errors.Is(err, zkpaths.ErrUnknownOutcome) {
		t.Errorf("a transaction whose answer was lost: %v", err)
	}
	want := []zkpaths.Notice{{Type: zkpaths.NodeDataChanged, Path: "/a"}, {Type: zkpaths.NodeCreated, Path: "/b"}}
	if len(notices) != 2 || notices[0] != want[0] || notices[1] != want[1] {
		t.Errorf("notices %v, expected %v", notices, want)
	}
	if out, _ := one(0, zkpaths.Write{Path: "/big", Data: make([]byte, maxFrame)}); out.Code != zkpaths.TooLarge {
		t.Errorf("a write of a mebibyte: %v", out)
	}
	s.Inject(Fault{Effect: Expire})
	if _, err := s.Read(ctx, []zkpaths.Read{{Op: zkpaths.Exists, Path: "/a"}}); !errors.Is(err, zkpaths.ErrSessionExpired) {
		t.Errorf("after expiry: %v", err)
	}
	if _, err := one(0, zkpaths.Write{Path: "/c"}); !errors.Is(err, zkpaths.ErrSessionExpired) {
		t.Errorf("after expiry: %v", err)
	}
}
