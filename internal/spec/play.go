package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// player carries one case out.
type player struct {
	c *Case
	w *sim.World

	step      int // of when, for messages
	fails     []string
	skips     []string
	toolSkips bool // a tool whose findings are expected was skipped
	// toolWrites: a tool that changes znodes was skipped
	toolWrites bool
	tools      map[string]Tool

	replies  []any
	results  []any
	problems []problem
	epochs   map[int64]int64 // broker epochs of the case -> czxids of the run, where they differ
	clients  map[string]*client
	marked   int // notes before mark-requests
	first    int // notes before the first elect; -1 before it
	isr      *announcements
	brokers  map[string]*brokerProcess
	faults   []func(*sim.Store)
}

// problem is something the sequence reported.
type problem struct {
	level logrus.Level
	text  string
}

// outcome of a case.
type outcome struct{ fails, skips []string }

// play runs a case from its given to its then.
func play(c *Case, tools map[string]Tool) (out outcome) {
	p := &player{c: c, tools: tools, epochs: map[int64]int64{}, clients: map[string]*client{}, first: -1, brokers: map[string]*brokerProcess{}}
	defer func() {
		if r := recover(); r != nil {
			p.fail("panic: %v at %s", r, firstOwnLine(debug.Stack()))
		}
		out = outcome{p.fails, p.skips}
	}()
	if err := p.begin(); err != nil {
		p.fail("given: %v", err)
		return outcome{}
	}
	for i := range c.When {
		p.step = i + 1
		p.do(&c.When[i])
		if len(p.fails) > 8 {
			return outcome{}
		}
	}
	p.step = 0
	p.settle()
	p.expect(&c.Then)
	for _, v := range p.w.Violations() {
		p.fail("invariant %s", v)
	}
	return outcome{}
}

// firstOwnLine finds where a panic came from.
func firstOwnLine(stack []byte) string {
	after := false
	for _, line := range strings.Split(string(stack), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic(") {
			after = true
		} else if after && strings.HasPrefix(line, "/") && !strings.Contains(line, "/runtime/") {
			return line[strings.LastIndexByte(line, '/')+1:]
		}
	}
	return "an unknown place"
}

func (p *player) fail(format string, args ...any) {
	p.fails = append(p.fails, p.where()+fmt.Sprintf(format, args...))
}

func (p *player) skip(format string, args ...any) {
	p.skips = append(p.skips, p.where()+fmt.Sprintf(format, args...))
}

func (p *player) where() string {
	if p.step == 0 {
		return "then: "
	}
	return fmt.Sprintf("step %d: ", p.step)
}

// options are those of the controllers in a case.
func (c *Case) options() controller.Options {
	cfg := c.Given.Config
	v := kafka.V2_7IV2
	switch {
	case cfg.ISRVia == "zk":
		v = kafka.V2_7IV0
	case cfg.LeaderRecovery:
		v = kafka.V3_9IV0
	case cfg.TopicIDs:
		v = kafka.V2_8IV1
	}
	return controller.Options{
		Version: v, UncleanElection: cfg.Unclean, DeleteTopics: cfg.DeleteTopics == nil || *cfg.DeleteTopics,
		AutoRebalance: cfg.AutoRebalance, ImbalancePercent: 10, ImbalanceCheck: 300e9,
		DefaultPartitions: 1, DefaultReplication: 1,
	}
}

// begin makes the world of the case.
func (p *player) begin() error {
	w, err := sim.NewWorld(1, p.c.options())
	if err != nil {
		return err
	}
	p.w = w
	w.ElectByHand, w.HoldDeletes = true, true
	registered := map[string]bool{}
	for _, b := range p.c.Given.Brokers {
		registered[zkpaths.BrokerPath(kafka.BrokerID(b.ID))] = true
		if err := p.startGiven(kafka.BrokerID(b.ID), b.Epoch); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(p.c.Given.Znodes)) {
		if registered[path] {
			continue
		}
		n := zkserver.Saved{Path: path, Data: bytesOf(p.c.Given.Znodes[path]), Stat: zkserver.Stat{Czxid: 1, Mzxid: 1, Pzxid: 1}}
		if err := p.applyStat(path, &n); err != nil {
			return err
		}
		if err := w.ZK.Seed(n); err != nil {
			return err
		}
	}
	return nil
}

func bytesOf(s *string) []byte {
	if s == nil {
		return nil
	}
	return []byte(*s)
}

func (p *player) applyStat(path string, n *zkserver.Saved) error {
	s, ok := p.c.Given.Stat[path]
	if !ok {
		return nil
	}
	if s.Version != nil {
		n.Stat.Version = *s.Version
	}
	if s.Czxid != nil {
		n.Stat.Czxid, n.Stat.Mzxid, n.Stat.Pzxid = *s.Czxid, *s.Czxid, *s.Czxid
	}
	if s.Owner != nil {
		id, err := parseSession(*s.Owner)
		if err != nil {
			return err
		}
		p.w.ZK.Tree.AddSession(id)
		n.Mode, n.Stat.EphemeralOwner = zkserver.Ephemeral, id
	}
	return nil
}

// startGiven puts a broker in that is there from the start.
func (p *player) startGiven(id kafka.BrokerID, epoch int64) error {
	path := zkpaths.BrokerPath(id)
	data := caseRegistration(id)
	if d, ok := p.c.Given.Znodes[path]; ok {
		data = bytesOf(d)
	}
	n := zkserver.Saved{Path: path, Data: data, Mode: zkserver.Ephemeral, Stat: zkserver.Stat{Czxid: epoch, Mzxid: epoch, Pzxid: epoch}}
	if err := p.applyStat(path, &n); err != nil {
		return err
	}
	if n.Stat.EphemeralOwner == 0 {
		n.Stat.EphemeralOwner = int64(0x5e55_0000_0000_0000) + int64(id)
		p.w.ZK.Tree.AddSession(n.Stat.EphemeralOwner)
	}
	b := sim.NewBroker(id)
	b.Epoch, b.Session = epoch, n.Stat.EphemeralOwner
	p.w.Brokers[id] = b
	return p.w.ZK.Seed(n)
}

// settle lets the controllers work until nothing is left to do.
func (p *player) settle() {
	if err := p.w.Settle(); err != nil {
		p.fail("%v", err)
	}
}

// do carries a step out, and settles unless it holds.
func (p *player) do(s *Step) {
	f := stepOf(s.Do)
	if f == nil {
		p.fail("unknown step %q", s.Do)
		return
	}
	if err := f(p, s); err != nil {
		p.fail("%s: %v", s.Do, err)
		return
	}
	if !s.Hold && s.Do != "expect" && s.Do != "mark-requests" {
		p.settle()
	}
}

// active is the controller in charge; without one, the last one made.
func (p *player) active() *sim.Candidate { return p.w.Active() }

// logged gives the lines of the log since the start as problems, and those
// that decoding and tools added.
func (p *player) reported() []problem {
	out := slices.Clone(p.problems)
	for _, n := range p.w.Notes {
		if l, ok := n.(sim.Logged); ok && l.Level <= logrus.InfoLevel {
			out = append(out, problem{l.Level, logText(l)})
		}
	}
	return out
}

// logText gives message and fields as one text; a topic and partition field
// are also joined.
func logText(l sim.Logged) string {
	var b strings.Builder
	b.WriteString(l.Message)
	for _, k := range slices.Sorted(maps.Keys(l.Fields)) {
		fmt.Fprintf(&b, " %s=%v", k, l.Fields[k])
	}
	topic, hasTopic := l.Fields["topic"]
	if n, ok := l.Fields["partition"]; ok && hasTopic {
		fmt.Fprintf(&b, " %v-%v", topic, n)
	}
	return b.String()
}

// epochOf translates a broker epoch of the case into the run's.
func (p *player) epochOf(e int64) int64 {
	if z, ok := p.epochs[e]; ok {
		return z
	}
	return e
}

func text(raw json.RawMessage) (data []byte, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("data %.40s is not text", raw)
	}
	return []byte(s), nil
}
