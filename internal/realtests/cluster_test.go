package realtests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// status is the part of "status -o json" that is looked at.
type status struct {
	Controller *struct {
		ID int `json:"id"`
	} `json:"controller"`
	Epoch   *int32 `json:"controller_epoch"`
	Brokers []struct {
		ID    int   `json:"id"`
		Epoch int64 `json:"epoch"`
	} `json:"brokers"`
	Topics          int      `json:"topics"`
	Partitions      int      `json:"partitions"`
	Leaderless      []string `json:"leaderless"`
	UnderReplicated []string `json:"under_replicated"`
	Reassignments   []any    `json:"reassignments"`
	Deletions       []string `json:"deletions"`
	Problems        []string `json:"problems"`
}

// statusOf asks ZooKeeper; ok is false where it does not answer.
func statusOf(t *testing.T, zk string) (s status, ok bool) {
	t.Helper()
	out, code := zkc(t, "status", "--zookeeper", zk, "-o", "json", "--timeout", "5s")
	if code > 1 {
		return s, false
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	return s, true
}

func (s status) controlledBy(id int) bool { return s.Controller != nil && s.Controller.ID == id }

func (s status) has(ids ...int) bool {
	var have []int
	for _, b := range s.Brokers {
		have = append(have, b.ID)
	}
	return slices.Equal(have, ids)
}

func (s status) healthy() bool {
	return s.Controller != nil && len(s.Leaderless)+len(s.UnderReplicated)+len(s.Problems) == 0
}

// sessionTimeout is short, so that expiry is seen soon.
const sessionTimeout = 4 * time.Second

// startController starts "run" with a listener. Its sessions, and those of whatever
// else the test starts, end soon.
func startController(t *testing.T, zk string, id int, more ...string) *child {
	t.Helper()
	t.Setenv("ZKC_ZOOKEEPER_SESSION_TIMEOUT_MS", strconv.FormatInt(sessionTimeout.Milliseconds(), 10))
	return runController(t, zk, id, more...)
}

// runController does so with the usual sessions, for tests that run in parallel.
func runController(t *testing.T, zk string, id int, more ...string) *child {
	t.Helper()
	port, err := real.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, fmt.Sprintf("controller %d", id), append([]string{binary, "run", "--zookeeper", zk, "--broker-id", strconv.Itoa(id),
		"--listener", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", port)}, more...)...)
}

// startEmulated starts emulated brokers 1 to 3 that ask the controller, as those of 3.9 do.
func startEmulated(t *testing.T, zk string) *child {
	t.Helper()
	return start(t, "brokers", binary, "broker", "--zookeeper", zk, "--ids", "1-3", "--profile", "3.9")
}

// An ensemble loses its leader, then the controller is killed: topics keep
// leaders, writes go through, the standby takes over with the next epoch.
func TestEnsembleFailover(t *testing.T) {
	requireDocker(t)
	nodes := startEnsemble(t)
	zk := connectString(nodes)
	a := startController(t, zk, 1000)
	await(t, "controller 1000 elected", func() bool { s, ok := statusOf(t, zk); return ok && s.controlledBy(1000) })
	b := startController(t, zk, 1001)
	brokers := startEmulated(t, zk)
	await(t, "brokers registered", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2, 3) })
	must(t, "topics", "create", "--zookeeper", zk, "--topic", "before", "--partitions", "20", "--replication-factor", "3")
	await(t, "20 partitions led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions == 20 && s.healthy() })
	first, _ := statusOf(t, zk)

	old := leaderOf(nodes)
	if old < 0 {
		t.Fatal("the ensemble has no leader")
	}
	nodes[old].killNow(t)
	await(t, "another ZooKeeper leads", func() bool { l := leaderOf(nodes); return l >= 0 && l != old })
	await(t, "a topic is created through the new leader", func() bool {
		_, code := zkc(t, "topics", "create", "--if-not-exists", "--zookeeper", zk, "--topic", "after", "--partitions", "5", "--replication-factor", "3", "--timeout", "10s")
		return code == 0
	})
	await(t, "25 partitions led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions == 25 && s.healthy() })

	a.kill()
	await(t, "controller 1001 took over", func() bool { s, ok := statusOf(t, zk); return ok && s.controlledBy(1001) })
	s, _ := statusOf(t, zk)
	if *s.Epoch <= *first.Epoch {
		t.Errorf("controller epoch %d, it was %d", *s.Epoch, *first.Epoch)
	}
	must(t, "topics", "delete", "--zookeeper", zk, "--topic", "before")
	await(t, "deletion by the new controller", func() bool {
		s, ok := statusOf(t, zk)
		return ok && s.Topics == 1 && len(s.Deletions) == 0 && s.healthy()
	})
	brokers.leave(10 * time.Second)
	b.leave(5 * time.Second)
	if s, ok := statusOf(t, zk); !ok || s.Controller != nil || len(s.Brokers) != 0 {
		t.Errorf("after all have left: %+v", s)
	}
}

// ZooKeeper is cut off for longer than the sessions live: controller and
// brokers are made anew, with the next epochs, and work goes on.
func TestSessionsExpire(t *testing.T) {
	t.Run("of a container off its network", func(t *testing.T) {
		requireDocker(t)
		z := startZooKeeper(t, nil, serving())
		sessionsExpire(t, z.addr, z.addr, func() (heal func()) { return z.cut(t) })
	})
	t.Run("behind a proxy", func(t *testing.T) {
		z := real.ZooKeeper(t)
		p := real.NewProxy(t, z.Addr())
		sessionsExpire(t, p.Addr(), z.Addr(), func() (heal func()) { p.Cut(); return p.Restore })
	})
}

// sessionsExpire has controller and brokers connect to one address, that can be
// cut off, and looks through another.
func sessionsExpire(t *testing.T, to, lookAt string, cut func() (heal func())) {
	t.Helper()
	zk := lookAt + "/kafka"
	a := startController(t, to+"/kafka", 1000)
	await(t, "controller elected", func() bool { s, ok := statusOf(t, zk); return ok && s.controlledBy(1000) })
	brokers := startEmulated(t, to+"/kafka")
	await(t, "brokers registered", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2, 3) })
	must(t, "topics", "create", "--zookeeper", zk, "--topic", "t", "--partitions", "6", "--replication-factor", "2")
	await(t, "all led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions == 6 && s.healthy() })
	before, _ := statusOf(t, zk)

	heal := cut()
	// The sessions end on the server's clock; the controller knows by its own.
	await(t, "the controller resigned by itself", func() bool { return contains(a, "session expired") })
	heal()
	await(t, "elected again", func() bool {
		s, ok := statusOf(t, zk)
		return ok && s.controlledBy(1000) && s.has(1, 2, 3) && *s.Epoch > *before.Epoch && s.healthy()
	})
	s, _ := statusOf(t, zk)
	for i, b := range s.Brokers {
		if b.Epoch == before.Brokers[i].Epoch {
			t.Errorf("broker %d still has epoch %d", b.ID, b.Epoch)
		}
	}
	must(t, "topics", "create", "--zookeeper", zk, "--topic", "u", "--partitions", "2", "--replication-factor", "3")
	await(t, "a new topic is led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions == 8 && s.healthy() })
	brokers.leave(10 * time.Second)
	a.leave(5 * time.Second)
}

// The embedded server is told that sessions are over, whenever one likes: the
// controller hears it from the server, and is elected anew at once, ten times.
func TestSessionsEnded(t *testing.T) {
	z := real.ZooKeeper(t, real.On(real.Embedded))
	zk := z.Addr() + "/kafka"
	a := startController(t, zk, 1000)
	brokers := startEmulated(t, zk)
	all := func() (status, bool) {
		s, ok := statusOf(t, zk)
		return s, ok && s.controlledBy(1000) && s.has(1, 2, 3) && s.healthy()
	}
	await(t, "controller elected, brokers registered", func() bool { _, ok := all(); return ok })
	must(t, "topics", "create", "--zookeeper", zk, "--topic", "t", "--partitions", "6", "--replication-factor", "2")
	await(t, "all led", func() bool { s, ok := all(); return ok && s.Partitions == 6 })
	for i := range 10 {
		before, _ := statusOf(t, zk)
		for _, s := range z.Embedded.Sessions() {
			if i%2 == 0 || len(s.Ephemerals) == 1 { // all, or one at a time
				z.Embedded.Expire(s.ID)
			}
			if i%2 == 1 && len(s.Ephemerals) == 1 {
				break
			}
		}
		await(t, "all are there again, with later epochs", func() bool {
			s, ok := all()
			if !ok || len(s.Brokers) != 3 {
				return false
			}
			later := *s.Epoch - *before.Epoch
			for i := range s.Brokers {
				if s.Brokers[i].Epoch > before.Brokers[i].Epoch {
					later++
				}
			}
			return later >= 1 && (i%2 == 1 || later >= 4)
		})
	}
	brokers.leave(10 * time.Second)
	a.leave(5 * time.Second)
}

// The server stops and starts again within the sessions' time: nobody loses
// anything, and what changed meanwhile is seen.
func TestZooKeeperRestarts(t *testing.T) {
	requireDocker(t)
	z := startZooKeeper(t, map[string]string{"ZOO_TICK_TIME": "3000"}, serving())
	zk := z.addr
	a := start(t, "controller 1000", binary, "run", "--zookeeper", zk, "--broker-id", "1000")
	await(t, "controller elected", func() bool { s, ok := statusOf(t, zk); return ok && s.controlledBy(1000) })
	before, _ := statusOf(t, zk)
	grace := 5 * time.Second
	if err := z.Stop(t.Context(), &grace); err != nil {
		t.Fatal(err)
	}
	if err := z.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	brokers := start(t, "brokers", binary, "broker", "--zookeeper", zk, "--ids", "1-3") // profile B: the controller is hidden
	await(t, "brokers registered", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2, 3) })
	must(t, "topics", "create", "--zookeeper", zk, "--topic", "t", "--partitions", "3", "--replication-factor", "3")
	await(t, "the topic is led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions == 3 && s.healthy() })
	after, _ := statusOf(t, zk)
	t.Logf("controller epoch %d before the restart, %d after it", *before.Epoch, *after.Epoch)
	brokers.leave(10 * time.Second)
	a.leave(5 * time.Second)
}

// ZooKeeper goes away for good: the controller still leaves within its time.
func TestLeaveWithoutZooKeeper(t *testing.T) {
	z := real.ZooKeeper(t)
	a := startController(t, z.Addr(), 1000)
	await(t, "controller elected", func() bool { s, ok := statusOf(t, z.Addr()); return ok && s.controlledBy(1000) })
	z.Kill()
	a.leave(5 * time.Second)
}
