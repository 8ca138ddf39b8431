package deletion_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/zkcontroller/zkcontroller/deletion"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
)

// TestPasses plays testdata/deletion. What the lines of the files mean:
//
//	setup live=1,2 [disabled]
//	replicas T-0 1=Started 2=Ineligible …     the replica list and states, in short names
//	topic T                                   a topic without partitions
//	leads T-0 N                               cached leadership
//	queue T,… · started T · ineligible T · moving T-0
//	resume · begin T,… · failover             what is decided; nothing changes
func TestPasses(t *testing.T) {
	datadriven.Walk(t, "../testdata/deletion", func(t *testing.T, path string) {
		var c *statemachine.Context
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			p := passes{t, d, c, &strings.Builder{}}
			p.play()
			c = p.c
			if p.out.Len() == 0 {
				return "ok\n"
			}
			return p.out.String()
		})
	})
}

type passes struct {
	t   *testing.T
	d   *datadriven.TestData
	c   *statemachine.Context
	out *strings.Builder
}

var short = map[string]statemachine.ReplicaState{"New": statemachine.NewReplica, "Online": statemachine.OnlineReplica, "Offline": statemachine.OfflineReplica,
	"Started": statemachine.ReplicaDeletionStarted, "Successful": statemachine.ReplicaDeletionSuccessful, "Ineligible": statemachine.ReplicaDeletionIneligible}

func (p passes) print(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

func (p passes) words() []string { return strings.Split(p.d.CmdArgs[0].Key, ",") }

func (p passes) id(s string) kafka.BrokerID {
	n, err := strconv.Atoi(s)
	if err != nil {
		p.d.Fatalf(p.t, "%v", err)
	}
	return kafka.BrokerID(n)
}

func (p *passes) play() {
	switch p.d.Cmd {
	case "setup":
		p.c = statemachine.NewContext(true, !p.d.HasArg("disabled"))
		for _, a := range p.d.CmdArgs {
			if a.Key == "live" {
				for _, v := range strings.Split(strings.Join(a.Vals, ","), ",") {
					p.c.SetBroker(kafka.Broker{ID: p.id(v)})
				}
			}
		}
	case "leads":
		tp, err := kafka.ParseTopicPartition(p.d.CmdArgs[0].Key)
		if err != nil {
			p.d.Fatalf(p.t, "%v", err)
		}
		p.c.Partition(tp).SetLeadership(kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: p.id(p.d.CmdArgs[1].Key)}})
	case "topic":
		p.c.AddTopic(p.d.CmdArgs[0].Key)
	case "replicas":
		tp, err := kafka.ParseTopicPartition(p.d.CmdArgs[0].Key)
		if err != nil {
			p.d.Fatalf(p.t, "%v", err)
		}
		var rs []kafka.BrokerID
		for _, a := range p.d.CmdArgs[1:] {
			rs = append(rs, p.id(a.Key))
		}
		part := p.c.SetAssignment(p.c.AddTopic(tp.Topic), tp.Partition, kafka.ReplicaAssignment{Replicas: rs})
		for _, a := range p.d.CmdArgs[1:] {
			st, ok := short[a.Vals[0]]
			if !ok {
				p.d.Fatalf(p.t, "unknown state %q", a.Vals[0])
			}
			part.SetReplica(p.id(a.Key), st)
		}
	case "queue", "started", "ineligible", "moving":
		for _, w := range p.words() {
			switch p.d.Cmd {
			case "queue":
				p.c.Queue(w)
			case "started":
				p.c.SetDeletionStarted(w)
			case "ineligible":
				p.c.SetIneligible(w)
			case "moving":
				tp, err := kafka.ParseTopicPartition(w)
				if err != nil {
					p.d.Fatalf(p.t, "%v", err)
				}
				p.c.SetMoving(tp, true)
			}
		}
	case "resume":
		p.showPass(deletion.Resume(p.c))
	case "begin":
		p.showStart(deletion.Begin(p.c, p.words()))
	case "failover":
		p.print("must wait %v", deletion.IneligibleAtFailover(p.c))
	default:
		p.d.Fatalf(p.t, "unknown directive %s", p.d.Cmd)
	}
}

func names(rs []statemachine.Replica) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Name().String())
	}
	return out
}

func (p passes) showPass(pass deletion.Pass) {
	p.print("complete %v, back to offline %v, start %v", pass.Complete, names(pass.Retry), pass.Start)
}

func partitions(ps []*statemachine.Partition) []string {
	var out []string
	for _, part := range ps {
		out = append(out, part.TopicPartition.String())
	}
	return out
}

func (p passes) showStart(s deletion.Start) {
	p.print("first time %v %v", s.Topics, partitions(s.Unseen))
	p.print("tell       %v", partitions(s.All))
	p.print("dead       %v, must wait %v", names(s.Dead), s.Ineligible)
	p.print("delete     %v", names(s.Live))
}

// Whatever the states are: a topic is complete only with every replica
// deleted, starts only while none is being deleted and nothing forbids it, and
// no topic is in two lists.
func TestResumeRules(t *testing.T) {
	states := []statemachine.ReplicaState{statemachine.OnlineReplica, statemachine.OfflineReplica, statemachine.ReplicaDeletionStarted,
		statemachine.ReplicaDeletionSuccessful, statemachine.ReplicaDeletionIneligible}
	n := 0
	for _, a := range states {
		for _, b := range states {
			for _, forbidden := range []bool{false, true} {
				n++
				c := statemachine.NewContext(true, true)
				p := c.SetAssignment(c.AddTopic("t"), 0, kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1, 2}})
				p.SetReplica(1, a)
				p.SetReplica(2, b)
				c.Queue("t")
				if forbidden {
					c.SetIneligible("t")
				}
				pass := deletion.Resume(c)
				is := func(s statemachine.ReplicaState) bool { return a == s || b == s }
				all := a == statemachine.ReplicaDeletionSuccessful && b == a
				started := is(statemachine.ReplicaDeletionStarted)
				if got := slices.Contains(pass.Complete, "t"); got != all {
					t.Errorf("%s, %s: complete %v", a, b, got)
				}
				if got := slices.Contains(pass.Start, "t"); got != (!all && !started && !forbidden) {
					t.Errorf("%s, %s, forbidden %v: start %v", a, b, forbidden, got)
				}
				if got := len(pass.Retry) > 0; got != (!started && is(statemachine.ReplicaDeletionIneligible)) {
					t.Errorf("%s, %s: retry %v", a, b, names(pass.Retry))
				}
			}
		}
	}
	if n != 50 {
		t.Fatalf("%d combinations", n)
	}
}
