package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// expect checks everything an expectation names.
func (p *player) expect(e *Expect) {
	p.expectNodes(e)
	p.expectStates(e.States)
	p.expectRequests(e)
	if e.Order != nil {
		p.expectOrder(e.Order)
	}
	if e.Replies != nil {
		p.expectReplies(e.Replies)
	}
	p.expectErrors(e.Errors)
	if e.Result != nil {
		p.expectResult(e.Result)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Counters)) {
		p.expectCounter(name, e.Counters[name])
	}
	p.expectWatches(e)
	if e.Notifications != nil {
		p.expectNotifications(e.Notifications)
	}
	if e.AllPartitions != nil {
		p.expectAllPartitions(e.AllPartitions)
	}
}

func (p *player) expectNodes(e *Expect) {
	tree := p.w.ZK.Tree
	for _, path := range slices.Sorted(maps.Keys(e.Znodes)) {
		data, _, code := tree.GetData(zkserver.Who{}, path)
		if code != zkserver.OK {
			p.fail("%s: expected %s, got %s", path, show(e.Znodes[path]), code)
		} else if before, ok := p.c.Given.Znodes[path]; p.toolWrites && ok && string(bytesOf(before)) == string(data) && !sameNode(bytesOf(e.Znodes[path]), data) {
			p.skip("%s is as it was before", path)
		} else if !sameNode(bytesOf(e.Znodes[path]), data) {
			p.fail("%s: expected %s, got %s", path, show(e.Znodes[path]), quoted(data))
		}
	}
	for _, path := range e.Absent {
		if data, _, code := tree.GetData(zkserver.Who{}, path); code != zkserver.NoNode {
			p.fail("%s: expected absent, got %s", path, quoted(data))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(e.Stat)) {
		p.expectStat(path, e.Stat[path])
	}
	for _, path := range slices.Sorted(maps.Keys(e.ChildCount)) {
		names, _, _ := tree.GetChildren(zkserver.Who{}, path)
		if len(names) != e.ChildCount[path] {
			p.fail("%s: expected %d children, got %d", path, e.ChildCount[path], len(names))
		}
	}
}

func (p *player) expectStat(path string, want NodeStat) {
	got, code := p.w.ZK.Tree.Exists(zkserver.Who{}, path)
	if code != zkserver.OK {
		p.fail("stat of %s: got %s", path, code)
		return
	}
	if want.Version != nil && got.Version != *want.Version {
		p.fail("version of %s: expected %d, got %d", path, *want.Version, got.Version)
	}
	if want.Czxid != nil && got.Czxid != p.epochOf(*want.Czxid) {
		p.fail("czxid of %s: expected %d, got %d", path, *want.Czxid, got.Czxid)
	}
	if want.Owner != nil {
		if owner, err := parseSession(*want.Owner); err != nil || got.EphemeralOwner != owner {
			p.fail("owner of %s: expected %s, got 0x%x", path, *want.Owner, got.EphemeralOwner)
		}
	}
}

func show(s *string) string {
	if s == nil {
		return "null"
	}
	return quoted([]byte(*s))
}

func quoted(data []byte) string {
	if data == nil {
		return "null"
	}
	if len(data) > 400 {
		return fmt.Sprintf("%q… (%d bytes)", data[:400], len(data))
	}
	return strconv.Quote(string(data))
}

// sameNode compares payloads: as JSON values when both are objects or lists,
// else byte by byte. A null payload and an empty one are the same here only if
// the case says "" for what the program wrote as null, which cases do.
func sameNode(want, got []byte) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	var a, b any
	if want[0] != '{' && want[0] != '[' || json.Unmarshal(want, &a) != nil || json.Unmarshal(got, &b) != nil {
		return string(want) == string(got)
	}
	return reflect.DeepEqual(a, b)
}

// expectStates compares the controller's memory.
func (p *player) expectStates(want map[string]any) {
	if len(want) == 0 {
		return
	}
	c := p.active()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if name == "controller" {
			p.expectController(want[name])
			continue
		}
		if c == nil {
			if name == "epoch" {
				p.expectEpoch(want[name])
			} else if !emptyList(want[name]) {
				p.fail("states.%s: nobody is controller", name)
			}
			continue
		}
		st := c.Controller().State()
		switch name {
		case "epoch":
			p.compare("states.epoch", want[name], st.Epoch)
		case "live":
			var live []kafka.BrokerID
			for _, b := range st.LiveBrokers() {
				live = append(live, b.ID)
			}
			p.compareSet("states.live", want[name], live)
		case "shutting_down":
			p.compareSet("states.shutting_down", want[name], st.ShuttingDownIDs())
		case "reassigning":
			p.compareSet("states.reassigning", want[name], names(st.MovingPartitions()))
		case "deleting":
			p.compareSet("states.deleting", want[name], st.QueuedTopics())
		case "ineligible":
			p.compareSet("states.ineligible", want[name], st.IneligibleTopics())
		case "partitions", "replicas":
			p.expectStateMap(st, name, want[name])
		default:
			p.fail("states.%s is unknown", name)
		}
	}
}

func emptyList(v any) bool { l, ok := v.([]any); return ok && len(l) == 0 }

func names(tps []kafka.TopicPartition) []string {
	out := make([]string, len(tps))
	for i, tp := range tps {
		out[i] = tp.String()
	}
	return out
}

func (p *player) expectController(want any) {
	got := int(kafka.NoController)
	if c := p.active(); c != nil {
		got = int(c.ID)
	}
	p.compare("states.controller", want, got)
}

func (p *player) expectEpoch(want any) {
	data, _, _ := p.w.ZK.Tree.GetData(zkserver.Who{}, zkpaths.ControllerEpoch)
	p.compare("states.epoch", want, json.Number(data))
}

func (p *player) expectStateMap(st *statemachine.Context, what string, want any) {
	m, ok := want.(map[string]any)
	if !ok {
		p.fail("states.%s is not an object", what)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		part, broker, isReplica := strings.Cut(key, "/")
		tp, err := kafka.ParseTopicPartition(part)
		if err != nil {
			p.fail("states.%s: %v", what, err)
			continue
		}
		rec := st.RecordedPartition(tp)
		got := statemachine.NonExistentPartition.String()
		switch {
		case isReplica && rec == nil:
			got = statemachine.NonExistentReplica.String()
		case isReplica:
			id, _ := strconv.Atoi(broker)
			got = rec.Replica(kafka.BrokerID(id)).String()
		case rec != nil:
			got = rec.State.String()
		}
		p.compare("state of "+key, m[key], got)
	}
}

// plain turns a value into what JSON would make of it.
func plain(v any) any {
	data, err := json.Marshal(v)
	if err != nil {
		return v
	}
	var out any
	if json.Unmarshal(data, &out) != nil {
		return v
	}
	return out
}

func (p *player) compare(what string, want, got any) {
	if g := plain(got); !reflect.DeepEqual(want, g) {
		p.fail("%s: expected %s, got %s", what, asJSON(want), asJSON(g))
	}
}

func (p *player) compareSet(what string, want, got any) {
	w, ok1 := want.([]any)
	g, ok2 := plain(got).([]any)
	if got == nil || plain(got) == nil {
		g, ok2 = []any{}, true
	}
	if !ok1 || !ok2 || !sameSet(w, g) {
		p.fail("%s: expected %s, got %s", what, asJSON(want), asJSON(plain(got)))
	}
}

func sameSet(a, b []any) bool {
	key := func(l []any) []string {
		out := []string{}
		for _, v := range l {
			out = append(out, asJSON(v))
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(key(a), key(b))
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// expectReplies compares answers; an error may be given as name or as
// {"error": name}.
func (p *player) expectReplies(want []any) {
	if len(want) != len(p.replies) {
		p.fail("replies: expected %s, got %s", asJSON(want), asJSON(p.replies))
		return
	}
	bare := func(v any) any {
		if m, ok := v.(map[string]any); ok && len(m) == 1 && m["error"] != nil {
			return m["error"]
		}
		return v
	}
	for i := range want {
		if !reflect.DeepEqual(bare(want[i]), bare(plain(p.replies[i]))) {
			p.fail("reply %d: expected %s, got %s", i+1, asJSON(want[i]), asJSON(p.replies[i]))
		}
	}
}

// expectErrors looks for each error among what was reported: the text names
// about and contains says.
func (p *player) expectErrors(want []expectedError) {
	if len(want) == 0 {
		return
	}
	reported := p.reported()
	for _, e := range want {
		limit := logrus.WarnLevel
		if e.Severity == "info" {
			limit = logrus.InfoLevel
		}
		found := slices.ContainsFunc(reported, func(r problem) bool {
			return r.level <= limit && strings.Contains(r.text, e.About) && strings.Contains(r.text, e.Says)
		})
		switch {
		case found:
		case p.toolSkips:
			p.skip("finding %s about %s was not looked for", e.Kind, e.About)
		default:
			p.fail("nothing reported names %q and says %q (%s); tools reported %s", e.About, e.Says, e.Kind, texts(p.problems))
		}
	}
}

func texts(ps []problem) string {
	out := []string{}
	for _, p := range ps {
		out = append(out, p.text)
	}
	return asJSON(out)
}

// expectCounter compares a metric.
func (p *player) expectCounter(name string, want any) {
	var got int
	c := p.active()
	switch name {
	case "offline_partitions", "preferred_replica_imbalance":
		if c != nil {
			got = gauge(c.Controller().State(), name)
		}
	case "election_failures":
		for _, n := range p.since(p.first) {
			if l, ok := n.(sim.Logged); ok && l.Level <= logrus.WarnLevel && strings.Contains(l.Message, "elect") {
				got++
			}
		}
	case "topic_change_events":
		for _, n := range p.since(p.first) {
			if h, ok := n.(sim.Handled); ok && h.Event == (events.TopicChange{}) {
				got++
			}
		}
	default:
		p.fail("counter %s is unknown", name)
		return
	}
	if m, ok := want.(map[string]any); ok {
		p.expectRange("counter "+name, m, float64(got))
		return
	}
	p.compare("counter "+name, want, got)
}

func (p *player) expectRange(what string, m map[string]any, got float64) {
	if least, ok := m["at_least"].(float64); ok && got < least {
		p.fail("%s: expected at least %v, got %v", what, least, got)
	}
	if most, ok := m["at_most"].(float64); ok && got > most {
		p.fail("%s: expected at most %v, got %v", what, most, got)
	}
}

func (p *player) since(from int) []sim.Note {
	if from < 0 {
		return nil
	}
	return p.w.Notes[from:]
}

// expectResult compares what decode, tools and transactions gave: a list in
// order, or one; of each only the given fields count.
func (p *player) expectResult(want any) {
	list, ok := want.([]any)
	if !ok {
		if len(p.results) == 0 && p.toolSkips {
			p.skip("result was not looked at")
			return
		}
		var last any
		if len(p.results) > 0 {
			last = p.results[len(p.results)-1]
		}
		p.expectPart("result", want, plain(last))
		return
	}
	if len(list) > len(p.results) && p.toolSkips {
		p.skip("results were not looked at")
		return
	}
	if len(list) != len(p.results) {
		p.fail("result: expected %d results, got %d: %s", len(list), len(p.results), asJSON(p.results))
		return
	}
	for i := range list {
		p.expectPart(fmt.Sprintf("result %d", i+1), list[i], plain(p.results[i]))
	}
}

// expectPart compares the fields that want has.
func (p *player) expectPart(what string, want, got any) {
	if got == skippedResult {
		p.skip("%s was not looked at", what)
		return
	}
	m, ok := want.(map[string]any)
	if !ok {
		if !reflect.DeepEqual(want, got) {
			p.fail("%s: expected %s, got %s", what, asJSON(want), asJSON(got))
		}
		return
	}
	g, ok := got.(map[string]any)
	if !ok {
		p.fail("%s: expected %s, got %s", what, asJSON(want), asJSON(got))
		return
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if base, ok := strings.CutSuffix(k, "_min"); ok {
			n, _ := g[base].(float64)
			p.expectRange(what+"."+base, map[string]any{"at_least": m[k]}, n)
			continue
		}
		p.expectPart(what+"."+k, m[k], g[k])
	}
}

// expectAllPartitions wants the same of every partition of every topic.
func (p *player) expectAllPartitions(want map[string]any) {
	c := p.active()
	if c == nil {
		p.fail("all_partitions: nobody is controller")
		return
	}
	for _, t := range c.Controller().State().Topics() {
		for _, part := range t.Partitions() {
			got := map[string]any{"state": part.State.String()}
			if l, ok := p.w.Leadership(part.TopicPartition); ok {
				got["leader"], got["leader_epoch"], got["isr"], got["controller_epoch"] = l.Leader, l.LeaderEpoch, l.ISR, l.ControllerEpoch
				got["version"] = l.ZKVersion
			}
			p.expectPart("all_partitions "+part.TopicPartition.String(), want, plain(got))
			if len(p.fails) > 8 {
				return
			}
		}
	}
}

// gauge computes a gauge from the controller's memory (spec/controller.md §8.2).
func gauge(st *statemachine.Context, name string) int {
	n := 0
	st.EachPartition(func(p *statemachine.Partition) {
		switch {
		case name == "offline_partitions":
			if p.State == statemachine.OfflinePartition && !st.DeletionStarted(p.TopicPartition.Topic) {
				n++
			}
		case st.Queued(p.TopicPartition.Topic) || !p.HasLeadership || len(p.Assignment.Replicas) == 0:
		case p.Leader != p.Assignment.Replicas[0]:
			preferred := p.Assignment.Replicas[0]
			if !slices.Contains(p.Assignment.Adding, preferred) || slices.Contains(p.ISR, preferred) {
				n++
			}
		}
	})
	return n
}
