package sim

import (
	"flag"
	"fmt"
	"math/rand"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

var (
	seeds     = flag.Int64("seeds", 30, "how many seeds TestSimulation runs")
	firstSeed = flag.Int64("first-seed", 1, "the first of them")
)

// versions the simulation goes through: both ways of changing an ISR, with and
// without topic ids.
var versions = []kafka.ProtocolVersion{kafka.V3_9IV0, kafka.V2_7IV0, kafka.V2_8IV1, kafka.V2_4IV1}

// chaos is what goes wrong, and what users do, in one run.
type chaos struct {
	t      *testing.T
	w      *World
	rng    *rand.Rand
	topics int
	story  []string
}

const simBrokers = 4

func (c *chaos) tell(format string, args ...any) {
	c.story = append(c.story, fmt.Sprintf(format, args...))
}

func (c *chaos) broker() kafka.BrokerID { return kafka.BrokerID(1 + c.rng.Intn(simBrokers)) }

func (c *chaos) replicas() []kafka.BrokerID {
	var out []kafka.BrokerID
	for _, i := range c.rng.Perm(simBrokers)[:1+c.rng.Intn(3)] {
		out = append(out, kafka.BrokerID(i+1))
	}
	return out
}

func (c *chaos) up(id kafka.BrokerID) bool { b := c.w.Brokers[id]; return b != nil && b.Session != 0 }

func (c *chaos) anyPartition() (tp kafka.TopicPartition, ok bool) {
	names, _, _ := c.w.ZK.Tree.GetChildren(zkserver.Who{}, zkpaths.BrokerTopics)
	if len(names) == 0 {
		return tp, false
	}
	return kafka.TopicPartition{Topic: names[c.rng.Intn(len(names))], Partition: int32(c.rng.Intn(2))}, true
}

func (c *chaos) write(op zkserver.Op) {
	op.ACL = zkserver.OpenACL()
	if op.Version == 0 {
		op.Version = zkserver.AnyVersion
	}
	c.w.ZK.Write(c.w.Admin, op)
}

func (c *chaos) start(id kafka.BrokerID) {
	if c.up(id) {
		return
	}
	if err := c.w.Start(id, nil); err != nil {
		c.t.Fatal(err)
	}
	c.w.Candidate(id).Put(events.Startup{})
}

// act does one thing, chosen by the seed.
func (c *chaos) act() {
	id := c.broker()
	switch c.rng.Intn(16) {
	case 0:
		c.tell("die %d", id)
		c.w.Crash(id)
	case 1, 2:
		c.tell("start %d", id)
		c.start(id)
	case 3:
		if c.up(id) {
			c.tell("bounce %d", id)
			c.w.Crash(id)
			c.start(id)
		}
	case 4:
		c.expire(id)
	case 5:
		c.tell("delete /controller")
		c.write(zkserver.Op{Kind: zkserver.OpDelete, Path: zkpaths.Controller})
	case 6, 7:
		c.createTopic()
	case 8, 9:
		c.reassign()
	case 10:
		if tp, ok := c.anyPartition(); ok {
			c.tell("preferred %s", tp)
			c.write(zkserver.Op{Path: zkpaths.PreferredElection, Data: zkpaths.EncodePreferredElection([]kafka.TopicPartition{tp})})
		}
	case 11:
		if tp, ok := c.anyPartition(); ok && c.rng.Intn(3) == 0 {
			c.tell("delete topic %s", tp.Topic)
			c.write(zkserver.Op{Path: zkpaths.DeleteTopicPath(tp.Topic)})
		}
	case 12:
		c.shutdown(id)
	case 13:
		c.disturb(id)
	default:
		c.tell("catch up")
		c.w.CatchUp()
	}
}

func (c *chaos) expire(id kafka.BrokerID) {
	if !c.up(id) {
		return
	}
	c.tell("session of %d expires", id)
	c.w.Kill(id)
	for range c.rng.Intn(20) {
		c.w.Shuffle()
	}
	// The old session's events are over before the new session exists
	// (spec/controller.md §2.6).
	for cand := c.w.Candidates[id]; cand != nil && cand.Queue.Len() > 0; {
		cand.Step()
	}
	if err := c.w.Renew(id, 0); err != nil {
		c.t.Fatal(err)
	}
}

func (c *chaos) createTopic() {
	c.topics++
	name := fmt.Sprintf("t%d", c.topics)
	t := zkpaths.Topic{Version: 2}
	for n := range int32(2) {
		t.Partitions = append(t.Partitions, zkpaths.PartitionAssignment{Partition: n, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: c.replicas()}})
	}
	c.tell("topic %s %v %v", name, t.Partitions[0].Replicas, t.Partitions[1].Replicas)
	c.write(zkserver.Op{Path: zkpaths.TopicPath(name), Data: zkpaths.EncodeTopic(t)})
}

func (c *chaos) reassign() {
	tp, ok := c.anyPartition()
	if !ok {
		return
	}
	target := c.replicas()
	if c.rng.Intn(2) == 0 {
		c.tell("reassign by znode %s %v", tp, target)
		c.write(zkserver.Op{Path: zkpaths.ReassignPartitions, Data: zkpaths.EncodeReassignments([]zkpaths.Reassignment{{Partition: tp, Replicas: target}})})
		return
	}
	cancel := c.rng.Intn(3) == 0
	if a := c.w.Active(); a != nil {
		c.tell("reassign by request %s %v cancel=%v", tp, target, cancel)
		a.Put(events.AlterReassignments{Partitions: []events.ReassignmentRow{{Partition: tp, Target: target, Cancel: cancel}},
			Reply: func(kafka.ErrorCode, []events.RowError) {}})
	}
}

func (c *chaos) shutdown(id kafka.BrokerID) {
	a := c.w.Active()
	if a == nil || !c.up(id) {
		return
	}
	c.tell("controlled shutdown %d", id)
	a.Put(events.ControlledShutdown{Broker: id, BrokerEpoch: c.w.Brokers[id].Epoch, Reply: func(kafka.ErrorCode, []kafka.TopicPartition) {}})
}

// disturb loses an answer, or lets a write fail once because somebody was faster.
func (c *chaos) disturb(id kafka.BrokerID) {
	cand := c.w.Candidates[id]
	if cand == nil {
		return
	}
	f := Fault{Op: []string{"set", "create", "delete"}[c.rng.Intn(3)], Path: "/brokers/topics/*", Effect: LoseAnswer}
	if c.rng.Intn(2) == 0 {
		f = Fault{Op: "set", Path: "/brokers/topics/*", Skip: c.rng.Intn(2), Code: zkpaths.BadVersion}
	}
	if c.rng.Intn(4) == 0 {
		f = Fault{Op: "create", Path: zkpaths.Controller, Effect: LoseAnswer}
	}
	c.tell("fault at %d: %s %s effect %d", id, f.Op, f.Path, f.Effect)
	cand.Store.Inject(f)
}

// heal brings everything back and demands that all becomes well.
func (c *chaos) heal() error {
	for _, id := range ids(c.w.Candidates) {
		c.w.Candidates[id].Store.ClearFaults()
	}
	if err := c.w.Settle(); err != nil {
		return err
	}
	for id := kafka.BrokerID(1); id <= simBrokers; id++ {
		c.w.Crash(id) // a broker that asked to leave stays unelectable until it registers again
		c.start(id)
		if err := c.w.Stabilize(); err != nil {
			return err
		}
	}
	return c.w.Stabilize()
}

func runSeed(t *testing.T, seed int64) (*World, *chaos, []string) {
	v := versions[int(seed)%len(versions)]
	w, err := NewWorld(seed, controller.Options{Version: v, DeleteTopics: true, ImbalancePercent: 10, ImbalanceCheck: time.Minute,
		AutoRebalance: seed%3 == 0, DefaultPartitions: 1, DefaultReplication: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := &chaos{t: t, w: w, rng: rand.New(rand.NewSource(seed))}
	c.tell("version %s", v)
	for id := kafka.BrokerID(1); id <= simBrokers; id++ {
		c.start(id)
	}
	for range 60 {
		c.act()
		for range c.rng.Intn(12) {
			if !w.Shuffle() {
				break
			}
		}
		if c.rng.Intn(8) == 0 {
			w.Advance(time.Duration(c.rng.Intn(90)) * time.Second)
		}
		if len(w.Violations()) > 0 {
			return w, c, w.Violations()
		}
	}
	if err := c.heal(); err != nil {
		return w, c, []string{err.Error()}
	}
	return w, c, slices.Concat(w.Violations(), w.Final())
}

// TestSimulation: safety under faults, then heal and demand progress.
func TestSimulation(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 10)
	}
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var c *chaos
			defer func() {
				if r := recover(); r != nil {
					t.Fatalf("seed %d panics: %v\n%s", seed, r, debug.Stack())
				}
			}()
			_, c, bad := runSeed(t, seed)
			if len(bad) > 0 {
				t.Errorf("seed %d (go test ./sim -run TestSimulation -first-seed %d -seeds 1):\n  %s\nstory:\n  %s",
					seed, seed, strings.Join(bad, "\n  "), strings.Join(c.story, "\n  "))
			}
		})
	}
}

// TestSameSeedSameRun: a run can be repeated to the last note.
func TestSameSeedSameRun(t *testing.T) {
	transcript := func() string {
		w, c, _ := runSeed(t, 7)
		var b strings.Builder
		b.WriteString(strings.Join(c.story, "\n"))
		for _, n := range w.Notes {
			switch n := n.(type) {
			case Wrote:
				fmt.Fprintf(&b, "wrote %d %s %q %s\n", n.Op.Kind, n.Op.Path, n.Op.Data, n.Result.Code)
			case Sent:
				fmt.Fprintf(&b, "sent %d->%d %s\n", n.From, n.To, n.Request.Kind())
			case Handled:
				fmt.Fprintf(&b, "handled by %d %s\n", n.By, n.Event.Name())
			case Milestone:
				fmt.Fprintf(&b, "%s %d\n", n.What, n.Who)
			}
		}
		return b.String()
	}
	a, b := transcript(), transcript()
	if a == b {
		return
	}
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			t.Fatalf("line %d of %d differs:\n%s\n%s", i, len(x), x[i], y[i])
		}
	}
	t.Fatalf("one run has %d lines, the other %d", len(x), len(y))
}
