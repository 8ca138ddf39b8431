package spec

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// skippedResult stands in the results for a tool that was skipped.
const skippedResult = "\x00skipped"

// ToolCall is an operator's command in a case: the fields it has.
type ToolCall struct {
	Cmd, Topic, Plan, Connect string
	Assignment                map[int32][]kafka.BrokerID
	Cancel                    []kafka.TopicPartition
}

// ToolAnswer is what a command gave: a result that has the fields the case may
// look at, and what it reported, one text a finding. Err is a finding, too.
type ToolAnswer struct {
	Result   any
	Findings []string
	Err      error
}

// Tool carries a command out on a ZooKeeper session.
type Tool func(ctx context.Context, zk controller.Store, call ToolCall) ToolAnswer

// toolStep runs an operator's command.
func toolStep(p *player, s *Step) error {
	if t := p.tools[s.Cmd]; t != nil {
		return p.runTool(t, s)
	}
	switch s.Cmd {
	case "create-topic":
		return createTopic(p, s)
	case "add-partitions":
		return addPartitions(p, s)
	}
	p.toolSkips = true
	p.toolWrites = p.toolWrites || s.Cmd != "doctor" && s.Cmd != "rehearse"
	p.results = append(p.results, skippedResult)
	if p.toolWrites {
		p.skip("the runner was not given the command %s", s.Cmd)
	} else {
		p.skip("%s is not built", s.Cmd)
	}
	return nil
}

func (p *player) runTool(t Tool, s *Step) error {
	call := ToolCall{Cmd: s.Cmd, Topic: s.Topic, Plan: s.Plan, Connect: s.Connect, Assignment: map[int32][]kafka.BrokerID{}}
	for n, ids := range s.Assignment {
		call.Assignment[n] = brokerIDs(ids)
	}
	if g := s.GenerateAssignment; g != nil {
		for n := range g.Partitions {
			call.Assignment[n] = brokerIDs(g.Replicas)
		}
	}
	if g := s.GeneratePlan; g != nil {
		var err error
		if call.Plan, err = p.generatePlan(g); err != nil {
			return err
		}
	}
	var err error
	if call.Cancel, err = parsePartitions(s.Cancel); err != nil {
		return err
	}
	got := t(context.Background(), sim.NewStore(p.w.ZK, func(zkpaths.Notice) {}), call)
	p.results = append(p.results, got.Result)
	for _, f := range got.Findings {
		p.problems = append(p.problems, problem{logrus.WarnLevel, f})
	}
	if got.Err != nil {
		p.problems = append(p.problems, problem{logrus.ErrorLevel, got.Err.Error()})
	}
	return nil
}

// generatePlan makes topics of one replica and the plan that moves them.
func (p *player) generatePlan(g *generated) (string, error) {
	var moves []zkpaths.Reassignment
	for i := range g.Topics {
		name := strings.ReplaceAll(g.TopicName, "{i}", strconv.Itoa(i))
		t := zkpaths.Topic{}
		for n := range g.PartitionsEach {
			tp := kafka.TopicPartition{Topic: name, Partition: n}
			moves = append(moves, zkpaths.Reassignment{Partition: tp, Replicas: brokerIDs(g.Replicas)})
			t.Partitions = append(t.Partitions, zkpaths.PartitionAssignment{Partition: n, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1}}})
		}
		if err := p.w.ZK.Seed(zkserver.Saved{Path: zkpaths.TopicPath(name), Data: zkpaths.EncodeTopic(t)}); err != nil {
			return "", err
		}
	}
	return string(zkpaths.EncodeReassignments(moves)), nil
}

// inCharge gives the active controller, electing one first if there is none:
// the commands go through it.
func (p *player) inCharge() error {
	if p.active() != nil {
		return nil
	}
	if len(p.c.Given.Brokers) == 0 {
		return fmt.Errorf("no broker is there to be controller")
	}
	id := p.c.Given.Brokers[0].ID
	if err := elect(p, &Step{Broker: &id}); err != nil {
		return err
	}
	p.settle()
	if p.active() == nil {
		return fmt.Errorf("broker %d was not elected", id)
	}
	return nil
}

func createTopic(p *player, s *Step) error {
	if err := p.inCharge(); err != nil {
		return err
	}
	t := events.NewTopic{Name: s.Topic, Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]kafka.BrokerID{}}
	for n, ids := range s.Assignment {
		t.Assignment[n] = brokerIDs(ids)
	}
	if g := s.GenerateAssignment; g != nil {
		for n := range g.Partitions {
			t.Assignment[n] = brokerIDs(g.Replicas)
		}
	}
	p.active().Put(events.CreateTopics{Topics: []events.NewTopic{t}, Reply: func(rows []events.NewTopicResult) {
		p.toolAnswer(s.Topic, rows[0].RowError)
	}})
	return nil
}

// toolAnswer adds what a command printed.
func (p *player) toolAnswer(about string, e events.RowError) {
	p.results = append(p.results, map[string]any{"error": e.Error.String()})
	if e.Error != kafka.NoError {
		p.problems = append(p.problems, problem{logrus.ErrorLevel, fmt.Sprintf("%s: %s: %s", about, e.Error, e.Message)})
	}
}

func addPartitions(p *player, s *Step) error {
	if err := p.inCharge(); err != nil {
		return err
	}
	more := events.MorePartitions{Topic: s.Topic, Count: int32(s.Count)}
	var count int32
	if json.Unmarshal(s.Partitions, &count) == nil && count > 0 {
		more.Count = count
	}
	if len(s.Assignment) > 0 {
		keys := make([]int32, 0, len(s.Assignment))
		for n := range s.Assignment {
			keys = append(keys, n)
		}
		slices.Sort(keys)
		for _, n := range keys {
			more.Assignment = append(more.Assignment, brokerIDs(s.Assignment[n]))
		}
		if more.Count == 0 {
			more.Count = keys[len(keys)-1] + 1
		}
	}
	p.active().Put(events.CreatePartitions{Topics: []events.MorePartitions{more}, Reply: func(rows []events.MorePartitionsResult) {
		p.toolAnswer(s.Topic, rows[0].RowError)
	}})
	return nil
}

func unquote(raw json.RawMessage, s *string) error {
	if err := json.Unmarshal(raw, s); err != nil {
		return fmt.Errorf("%.40s is not text", raw)
	}
	return nil
}

// sortedChanges gives the changes up to a time, in time order.
func sortedChanges(all []isrChange, until time.Duration) []isrChange {
	var out []isrChange
	for _, c := range all {
		if c.at <= until {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b isrChange) int { return cmp.Compare(a.at, b.at) })
	return out
}
