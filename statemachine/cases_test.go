package statemachine_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// TestCases plays testdata/statemachine. What the lines of the files mean:
//
//	setup live=1,2,3 [shutting=2] [epoch=7] [no-recovery]    an empty memory
//	partition T-0 rs=1,2 [rr=] [ar=] [state=] [leader= le= isr= pe= ce= recovering]
//	                                                          in memory and, with isr, in ZooKeeper
//	zk T-0 leader= … | missing | unreadable                   ZooKeeper alone
//	failed N T-0       a replica's log directory is offline
//	queue T            the topic is queued for deletion
//	elect T-0 by=STRATEGY [unclean]
//	move T-0,… to=STATE [by=STRATEGY] [unclean=true|error] [answers=ok,bad-version,…]
//	remove T-0 of=1,2 [answers=…]
//	bump T-0 [answers=…]
//	matrix
//
// Answers are those of ZooKeeper to the plan's writes, in order; ok when none is given.
func TestCases(t *testing.T) {
	datadriven.Walk(t, "../testdata/statemachine", func(t *testing.T, path string) {
		s := newStory(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d, s.out = t, d, strings.Builder{}
			s.play()
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

type story struct {
	t   *testing.T
	d   *datadriven.TestData
	out strings.Builder
	c   *statemachine.Context
	zk  map[*statemachine.Partition]statemachine.ZKState
}

func newStory(t *testing.T) *story {
	s := &story{t: t, zk: map[*statemachine.Partition]statemachine.ZKState{}}
	s.c = statemachine.NewContext(true, true)
	s.c.Epoch = 7
	return s
}

func (s *story) play() {
	switch s.d.Cmd {
	case "setup":
		*s = story{t: s.t, d: s.d, zk: map[*statemachine.Partition]statemachine.ZKState{}, c: statemachine.NewContext(!s.d.HasArg("no-recovery"), true)}
		s.c.Epoch = int32(s.number("epoch", 7))
		for _, id := range s.ids("live") {
			s.c.SetBroker(kafka.Broker{ID: id, Epoch: int64(id)})
		}
		for _, id := range s.ids("shutting") {
			s.c.SetBroker(kafka.Broker{ID: id, Epoch: int64(id)})
			s.c.SetShuttingDown(id)
		}
	case "partition":
		s.partition()
	case "zk":
		s.readAs(s.parts()[0])
	case "failed":
		n, _ := strconv.Atoi(s.d.CmdArgs[0].Key)
		s.c.SetReplicaFailed(kafka.BrokerID(n), s.tp(s.d.CmdArgs[1].Key), true)
	case "queue":
		s.c.Queue(s.d.CmdArgs[0].Key)
	case "elect":
		s.elect()
	case "move":
		s.move()
	case "remove":
		s.remove()
	case "bump":
		s.settlePlan(s.c.PlanBumps(s.parts(), s.zk))
	case "matrix":
		s.out.WriteString(statemachine.Matrix())
	default:
		s.d.Fatalf(s.t, "unknown directive %s", s.d.Cmd)
	}
}

func (s *story) value(key string) (string, bool) {
	for _, a := range s.d.CmdArgs {
		if a.Key == key {
			return strings.Join(a.Vals, ","), true
		}
	}
	return "", false
}

func (s *story) number(key string, otherwise int) int {
	v, ok := s.value(key)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		s.d.Fatalf(s.t, "%s: %v", key, err)
	}
	return n
}

func (s *story) ids(key string) []kafka.BrokerID {
	v, _ := s.value(key)
	out := []kafka.BrokerID{}
	for _, w := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(strings.TrimSpace(w))
		if err != nil {
			s.d.Fatalf(s.t, "%s: %v", key, err)
		}
		out = append(out, kafka.BrokerID(n))
	}
	return out
}

func (s *story) tp(name string) kafka.TopicPartition {
	tp, err := kafka.ParseTopicPartition(name)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	return tp
}

// parts gives the partitions that the words without value name.
func (s *story) parts() []*statemachine.Partition {
	var out []*statemachine.Partition
	for _, a := range s.d.CmdArgs {
		if len(a.Vals) > 0 || !strings.Contains(a.Key, "-") || a.Key == "no-recovery" {
			continue
		}
		for _, name := range strings.Split(a.Key, ",") {
			p := s.c.RecordedPartition(s.tp(name))
			if p == nil {
				s.d.Fatalf(s.t, "no partition %s", name)
			}
			out = append(out, p)
		}
	}
	return out
}

func (s *story) partition() {
	tp := s.tp(s.d.CmdArgs[0].Key)
	p := s.c.SetAssignment(s.c.AddTopic(tp.Topic), tp.Partition, kafka.ReplicaAssignment{Replicas: s.ids("rs"), Adding: s.ids("ar"), Removing: s.ids("rr")})
	if name, ok := s.value("state"); ok {
		p.State = stateNamed(s.d, s.t, name)
	}
	if s.d.HasArg("isr") {
		s.readAs(p)
		p.SetLeadership(s.zk[p].Leadership)
	}
}

func stateNamed(d *datadriven.TestData, t *testing.T, name string) statemachine.PartitionState {
	for st := statemachine.NonExistentPartition; st <= statemachine.OfflinePartition; st++ {
		if st.String() == name {
			return st
		}
	}
	d.Fatalf(t, "unknown state %q", name)
	return 0
}

func (s *story) readAs(p *statemachine.Partition) {
	switch {
	case s.d.HasArg("missing"):
		s.zk[p] = statemachine.ZKState{Err: statemachine.ErrNoState}
		return
	case s.d.HasArg("unreadable"):
		s.zk[p] = statemachine.ZKState{Err: &zkpaths.PayloadError{Path: zkpaths.PartitionStatePath(p.TopicPartition), Reason: "is not JSON", Remedy: "repair it"}}
		return
	}
	l := kafka.Leadership{ControllerEpoch: int32(s.number("ce", 7)), LeaderAndISR: kafka.LeaderAndISR{Leader: kafka.BrokerID(s.number("leader", -1)),
		LeaderEpoch: int32(s.number("le", 0)), ISR: s.ids("isr"), ZKVersion: int32(s.number("pe", 0))}}
	if s.d.HasArg("recovering") {
		l.Recovery = kafka.Recovering
	}
	s.zk[p] = statemachine.ZKState{Leadership: l}
}

func (s *story) strategy() statemachine.Strategy {
	name, ok := s.value("by")
	if !ok {
		return statemachine.OfflineElection
	}
	for st := statemachine.OfflineElection; st <= statemachine.ControlledShutdownElection; st++ {
		if st.String() == name {
			return st
		}
	}
	s.d.Fatalf(s.t, "unknown strategy %q", name)
	return 0
}

func (s *story) print(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func leads(l kafka.LeaderAndISR) string {
	text := fmt.Sprintf("L=%d LE=%d ISR=%v", l.Leader, l.LeaderEpoch, l.ISR)
	if l.Recovery == kafka.Recovering {
		text += " RECOVERING"
	}
	return text
}

func (s *story) elect() {
	p := s.parts()[0]
	e, ok := s.c.Elect(p, s.zk[p].Leadership, s.strategy(), s.d.HasArg("unclean"))
	if !ok {
		s.print("nobody")
		return
	}
	text := leads(e.Leadership)
	if e.Unclean {
		text += " unclean"
	}
	s.print("%s to=%v", text, e.Recipients)
}

// outcomes are the answers to writes.
func (s *story) outcomes(writes []zkpaths.Write) []zkpaths.Outcome {
	codes := map[string]zkpaths.Code{"ok": zkpaths.OK, "bad-version": zkpaths.BadVersion, "node-exists": zkpaths.NodeExists, "no-node": zkpaths.NoNode, "failed": zkpaths.Failed}
	v, _ := s.value("answers")
	words := strings.FieldsFunc(v, func(r rune) bool { return r == ',' })
	out := make([]zkpaths.Outcome, len(writes))
	ops := map[zkpaths.WriteOp]string{zkpaths.Create: "create", zkpaths.Set: "set"}
	for i, w := range writes {
		answer := "ok"
		if i < len(words) {
			answer = strings.TrimSpace(words[i])
		}
		code, known := codes[answer]
		if !known {
			s.d.Fatalf(s.t, "unknown answer %q", answer)
		}
		out[i].Code = code
		text := fmt.Sprintf("write  %s %s", ops[w.Op], w.Path)
		if w.Data != nil {
			text += " " + string(w.Data)
		}
		if w.Op == zkpaths.Set {
			out[i].Version = w.Version + 1
			text += fmt.Sprintf(" if-version=%d", w.Version)
		}
		s.print("%s", text)
		if code != zkpaths.OK {
			s.print("answer %s", answer)
		}
	}
	return out
}

func (s *story) move() {
	name, _ := s.value("to")
	to := stateNamed(s.d, s.t, name)
	unclean, _ := s.value("unclean")
	ps := s.parts()
	for _, p := range statemachine.NeedState(ps, to) {
		s.print("read   %s", p.TopicPartition)
	}
	s.settlePlan(s.c.PlanPartitions(ps, to, s.strategy(), s.zk, func(topic string) (bool, error) {
		s.print("config %s", topic)
		if unclean == "error" {
			return false, fmt.Errorf("no right to read it")
		}
		return unclean == "true", nil
	}))
}

func (s *story) settlePlan(plan *statemachine.PartitionPlan) {
	res := plan.Settle(s.outcomes(plan.Writes))
	for _, ch := range res.Done {
		s.print("state  %s %s -> %s", ch.TopicPartition, ch.From, ch.To)
		if ch.Leadership != nil {
			text := ""
			if ch.IsNew {
				text = " new"
			}
			if ch.Unclean {
				text += " unclean"
			}
			s.print("lead   %s %s PE=%d CE=%d to=%v%s", ch.TopicPartition, leads(ch.Leadership.LeaderAndISR), ch.Leadership.ZKVersion, ch.Leadership.ControllerEpoch, ch.Recipients, text)
			s.zk[ch.Partition] = statemachine.ZKState{Leadership: *ch.Leadership}
		}
	}
	s.c.CommitPartitions(res.Done)
	for _, p := range res.Retry {
		s.print("retry  %s", p.TopicPartition)
	}
	for _, f := range res.Failures {
		s.print("fail   %s", f.Error())
	}
}

func (s *story) remove() {
	var rs []statemachine.Replica
	for _, p := range s.parts() {
		for _, id := range s.ids("of") {
			rs = append(rs, statemachine.Replica{Partition: p, Broker: id})
		}
	}
	slices.SortFunc(rs, func(a, b statemachine.Replica) int { return a.Name().Compare(b.Name()) })
	plan := s.c.PlanRemovals(rs, s.zk)
	res := plan.Settle(s.outcomes(plan.Writes))
	for _, step := range res.Done {
		how := "written"
		if step.Write < 0 {
			how = "cached"
		}
		s.print("%s %s %s PE=%d CE=%d", how, step.Name(), leads(step.Leadership.LeaderAndISR), step.Leadership.ZKVersion, step.Leadership.ControllerEpoch)
		s.zk[step.Partition] = statemachine.ZKState{Leadership: step.Leadership}
	}
	for _, r := range res.Next {
		s.print("next   %s", r.Name())
	}
	for _, r := range res.Retry {
		s.print("retry  %s", r.Name())
	}
	for _, f := range res.Failures {
		s.print("fail   %s", f.Error())
	}
	for _, r := range res.Silent {
		s.print("silent %s", r.Name())
	}
}
