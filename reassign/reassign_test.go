package reassign_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
	"github.com/zkcontroller/zkcontroller/statemachine"
)

// TestRefusals plays testdata/reassign/refusals:
//
//	target 1,2,-1                                        CheckTarget
//	request live=… rs= [ar= rr=] leader= isr= to=1,2      CheckLive, then CheckLeader
//	end live=… rs= ar= rr= leader= isr=                   Complete and MayEnd
func TestRefusals(t *testing.T) {
	datadriven.RunTest(t, "../testdata/reassign/refusals", func(t *testing.T, d *datadriven.TestData) string {
		list := func(key string) []kafka.BrokerID {
			out := []kafka.BrokerID{}
			for _, a := range d.CmdArgs {
				words := a.Vals
				if key == "" {
					words = strings.Split(a.Key, ",")
				} else if a.Key != key {
					continue
				}
				for _, w := range strings.Split(strings.Join(words, ","), ",") {
					if w = strings.TrimSpace(w); w == "" || w == "none" {
						continue
					}
					n, err := strconv.Atoi(w)
					if err != nil {
						d.Fatalf(t, "%v", err)
					}
					out = append(out, kafka.BrokerID(n))
				}
			}
			return out
		}
		if d.Cmd == "target" {
			return say(reassign.CheckTarget(list("")))
		}
		c := statemachine.NewContext(true, true)
		for _, id := range list("live") {
			c.SetBroker(kafka.Broker{ID: id})
		}
		p := c.SetAssignment(c.AddTopic("t"), 0, kafka.ReplicaAssignment{Replicas: list("rs"), Adding: list("ar"), Removing: list("rr")})
		leader := kafka.NoLeader
		if l := list("leader"); len(l) > 0 {
			leader = l[0]
		}
		if d.HasArg("isr") {
			p.SetLeadership(kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: leader, ISR: list("isr")}})
		}
		switch d.Cmd {
		case "request":
			return say(reassign.CheckLive(c, p.Assignment, list("to"))) + say(reassign.CheckLeader(c, p, p.Assignment.ReassignTo(list("to"))))
		case "end":
			return fmt.Sprintf("in sync %v, may end %v\n", reassign.Complete(p.Assignment, p.ISR), reassign.MayEnd(c, p, p.Assignment, p.Leadership))
		}
		d.Fatalf(t, "unknown directive %s", d.Cmd)
		return ""
	})
}

func say(r *reassign.Refusal) string {
	if r == nil {
		return "fine\n"
	}
	return r.Error() + "\n"
}

// Which policy a protocol version has, and what it writes (design decision D7).
func TestPolicies(t *testing.T) {
	moving := kafka.ReplicaAssignment{Replicas: ids(3, 1), Adding: ids(3), Removing: ids(1)}
	for version, want := range map[string]reassign.Policy{"0.9.0": reassign.TwelveSteps, "0.10.2.2": reassign.TwelveSteps, "2.3": reassign.TwelveSteps,
		"2.4-IV0": reassign.KIP455, "2.4": reassign.KIP455, "3.9": reassign.KIP455} {
		v, err := kafka.ParseProtocolVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		p := reassign.PolicyOf(v)
		if p != want || p.Strict() != (want == reassign.KIP455) {
			t.Errorf("%s: policy %d, strict %v", version, p, p.Strict())
		}
		stored, node := p.Stored(moving), p.TopicVersion()
		if want == reassign.KIP455 && (!stored.Equal(moving) || node != 3) {
			t.Errorf("%s stores %+v in a node of version %d", version, stored, node)
		}
		if want == reassign.TwelveSteps && (stored.Reassigning() || len(stored.Replicas) != 2 || node != 1) {
			t.Errorf("%s stores %+v in a node of version %d", version, stored, node)
		}
	}
}
