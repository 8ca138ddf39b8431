package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// Scenario is a World driven by lines of text. Its defaults are those of
// spec/controller.md §10: brokers 1, 2 and 3 live, each with a candidate, 1 in
// charge with epoch 1, partition t-0 on [1,2,3], the latest protocol version.
//
// What acts, then settles unless "hold" stands before it:
//
//	brokers 4,5               start these
//	topic T 0=1,2 1=2,1       create a topic's znode
//	elect N                   start a candidate
//	die N,M   bounce N        sessions end (in one go); end and come back in one go
//	start N,M                 start brokers that died
//	stop N                    the process ends in good order (no controlled shutdown)
//	expire N                  the candidate's session ends, then it gets a new one
//	create|set PATH DATA      znodes by hand; no DATA is null, "" is empty
//	delete|rmr PATH
//	reassign T-0=4,5 …        write /admin/reassign_partitions
//	preferred T-0 …           write /admin/preferred_replica_election
//	isr T-0 1,2               the leader asks for this ISR
//	catchup                   followers join ISRs until all is stable
//	lag N   unlag N           N does not catch up any more; does again
//	mute N  unmute N          requests to N are not delivered; are again
//	hold-deletes              answers to deletions wait for
//	answer N [ERROR]          N's held answers come, with this error for each partition
//	dir-fail N T-0 …          a log directory of N fails
//	repair N T-0 …            it is replaced: works after a restart
//	lead T-0 N                write a state with this leader by hand, epoch and all else as they are
//	pause N  unpause N        N's controller process hangs; goes on with what waits for it
//	tick · advance 5s · go    auto-balancing; virtual time; just settle
//	fault N OP PATH EFFECT [TIMES|always]   N's next such operation: a code, lose, expire
//	before N OP PATH | CMD | CMD …          ahead of N's next such operation, in the middle of its handler, others act
//	step N [COUNT]            N handles one event; with "hold" nobody else does anything
//	version V                 the protocol version of candidates started from now on
//	unclean-default <default>|N true|false  the broker-wide configuration, as kafka-configs changes it
//	answer-top N ERROR        N's held answers come as an error of the whole request
//	event N NAME              put an event without content into N's queue
//	api …                     a request to the one in charge; see scenarioAPI
//
// What shows:
//
//	state [T-0 …]   partitions with their znode and state; all known if none is named
//	assign T-0      the topic znode's lists
//	replicas T-0    replica states
//	sent            requests since the last sent, merged over receivers
//	writes          state, topic and other znodes written by candidates since the last writes
//	answers         what brokers answered since the last answers
//	reports         reports about znodes since the last reports: path, reason, remedy
//	handled         events processed since the last handled
//	active          who believes to be the controller · hosts N · meter (unclean elections) · metadata N
//	znode PATH · stat PATH · topic-id T · children PATH · controller · gauges · queues · log [LEVEL]
type Scenario struct {
	w       *sim.World
	out     strings.Builder
	shown   int // notes that sent has shown, and so on
	written int
	logged  int

	answered, told, handled int

	nobody bool                     // brokers start without a candidate, until one was elected by hand
	ids    map[string]kafka.TopicID // that topic-id has shown
}

// NewScenario makes a world. Options are words: "version=2.4", "controller=3",
// "brokers=1,2", "empty" (no topic), "nobody" (no candidate yet), "unclean",
// "no-deletion", "rebalance", "kafka-order" (no step shares a batch with another, as in the original).
func NewScenario(options []string) (*Scenario, error) {
	opts := controller.Options{Version: kafka.V3_9IV0, DeleteTopics: true, ImbalancePercent: 10, ImbalanceCheck: 300 * time.Second,
		DefaultPartitions: 1, DefaultReplication: 1}
	first, list, nobody, empty := kafka.BrokerID(1), []kafka.BrokerID{1, 2, 3}, false, false
	for _, o := range options {
		var err error
		key, value, _ := strings.Cut(o, "=")
		switch key {
		case "version":
			opts.Version, err = kafka.ParseProtocolVersion(value)
		case "controller":
			first, err = parseID(value)
		case "brokers":
			list, err = parseIDs(value)
		case "empty":
			empty = true
		case "nobody":
			nobody, empty = true, true
		case "unclean":
			opts.UncleanElection = true
		case "no-deletion":
			opts.DeleteTopics = false
		case "rebalance":
			opts.AutoRebalance = true
		case "kafka-order":
			opts.KafkaOrder = true
		default:
			err = fmt.Errorf("unknown option %q", o)
		}
		if err != nil {
			return nil, err
		}
	}
	w, err := sim.NewWorld(1, opts)
	if err != nil {
		return nil, err
	}
	s := &Scenario{w: w, nobody: nobody}
	for _, id := range list {
		if err := w.Start(id, nil); err != nil {
			return nil, err
		}
	}
	if !nobody {
		for _, id := range append([]kafka.BrokerID{first}, list...) {
			if w.Candidates[id] == nil {
				w.Candidate(id).Put(events.Startup{})
				if err := w.Settle(); err != nil {
					return nil, err
				}
			}
		}
	}
	if !empty {
		if err := s.act("topic", []string{"t", "0=1,2,3"}, ""); err != nil {
			return nil, err
		}
		err = w.Stabilize()
	}
	s.shown, s.written, s.logged = len(w.Notes), len(w.Notes), len(w.Notes)
	return s, err
}

// World is the world underneath.
func (s *Scenario) World() *sim.World { return s.w }

// Play runs a script and gives what its lines showed.
func (s *Scenario) Play(script string) (string, error) {
	s.out.Reset()
	for _, line := range strings.Split(script, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.line(line); err != nil {
			return s.out.String(), fmt.Errorf("%s: %w", line, err)
		}
	}
	for _, v := range s.w.Violations() {
		fmt.Fprintf(&s.out, "INVARIANT %s\n", v)
	}
	return s.out.String(), nil
}

func (s *Scenario) line(line string) error {
	rest, hold := strings.CutPrefix(line, "hold ")
	words := strings.Fields(rest)
	if show := s.shower(words[0]); show != nil {
		return show(words[1:])
	}
	if words[0] == "before" {
		return s.before(rest)
	}
	if err := s.act(words[0], words[1:], rest); err != nil || hold {
		return err
	}
	return s.w.Settle()
}

func parseID(s string) (kafka.BrokerID, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is no broker id", s)
	}
	return kafka.BrokerID(n), nil
}

func parseIDs(s string) ([]kafka.BrokerID, error) {
	out := []kafka.BrokerID{}
	for _, part := range strings.Split(s, ",") {
		if part == "" {
			continue
		}
		id, err := parseID(part)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// each calls f for the ids in the first word.
func each(words []string, f func(kafka.BrokerID) error) error {
	if len(words) == 0 {
		return errWhich
	}
	list, err := parseIDs(words[0])
	if err != nil {
		return err
	}
	for _, id := range list {
		if err := f(id); err != nil {
			return err
		}
	}
	return nil
}

func (s *Scenario) act(cmd string, words []string, line string) error {
	switch cmd {
	case "brokers", "start":
		return each(words, s.start)
	case "topic":
		return s.topic(words)
	case "elect":
		s.nobody = false
		return each(words, func(id kafka.BrokerID) error { s.w.Candidate(id).Put(events.Startup{}); return nil })
	case "stop":
		return each(words, s.stop)
	case "die":
		return each(words, func(id kafka.BrokerID) error { s.w.Crash(id); return nil })
	case "bounce":
		return each(words, func(id kafka.BrokerID) error {
			s.w.Crash(id)
			return s.start(id)
		})
	case "expire":
		return each(words, func(id kafka.BrokerID) error {
			s.w.Kill(id)
			if err := s.w.Settle(); err != nil {
				return err
			}
			return s.w.Renew(id, 0)
		})
	case "create", "set", "delete", "rmr":
		return s.node(cmd, words, line)
	case "reassign":
		return s.reassign(words)
	case "preferred":
		return s.preferred(words)
	case "isr":
		return s.isr(words)
	case "catchup":
		return s.w.Stabilize()
	case "go":
		return nil
	}
	return s.disturb(cmd, words)
}

func (s *Scenario) disturb(cmd string, words []string) error {
	switch cmd {
	case "lag", "unlag":
		return each(words, func(id kafka.BrokerID) error { s.w.Lagging[id] = cmd == "lag"; return nil })
	case "mute", "unmute":
		return each(words, func(id kafka.BrokerID) error { s.w.Mute[id] = cmd == "mute"; return nil })
	case "pause", "unpause":
		return each(words, func(id kafka.BrokerID) error { s.w.Candidate(id).Paused = cmd == "pause"; return nil })
	case "repair":
		return s.repair(words)
	case "lead":
		return s.lead(words)
	case "hold-deletes":
		s.w.HoldDeletes = true
		return nil
	case "answer":
		return s.answer(words)
	case "dir-fail":
		return s.dirFail(words)
	case "tick":
		return s.put(events.AutoPreferredElection{})
	case "advance":
		d, err := time.ParseDuration(strings.Join(words, ""))
		s.w.Advance(d)
		return err
	case "unclean-default":
		return s.uncleanDefault(words)
	case "version":
		return s.setVersion(words)
	case "step":
		return s.step(words)
	case "answer-top":
		return s.answerTop(words)
	case "fault":
		return s.fault(words)
	case "event":
		return s.event(words)
	case "api":
		return s.api(words)
	}
	return fmt.Errorf("unknown command %q", cmd)
}

func (s *Scenario) start(id kafka.BrokerID) error {
	if err := s.w.Start(id, nil); err != nil {
		return err
	}
	if !s.nobody {
		s.w.Candidate(id).Put(events.Startup{})
	}
	return nil
}

func (s *Scenario) stop(id kafka.BrokerID) error {
	if c := s.w.Candidates[id]; c != nil {
		c.Queue.ClearAndPut(events.Shutdown{})
		if err := s.w.Settle(); err != nil {
			return err
		}
	}
	s.w.Crash(id)
	return nil
}

func (s *Scenario) put(ev events.Event) error {
	c := s.w.Active()
	if c == nil {
		return fmt.Errorf("nobody is controller")
	}
	c.Put(ev)
	return nil
}

// parseAssignment reads words like 0=1,2.
func parseAssignment(words []string) ([]zkpaths.PartitionAssignment, error) {
	var out []zkpaths.PartitionAssignment
	for _, w := range words {
		n, list, ok := strings.Cut(w, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not partition=replicas", w)
		}
		number, err := strconv.ParseInt(n, 10, 32)
		if err != nil {
			return nil, err
		}
		ids, err := parseIDs(list)
		if err != nil {
			return nil, err
		}
		out = append(out, zkpaths.PartitionAssignment{Partition: int32(number), ReplicaAssignment: kafka.ReplicaAssignment{Replicas: ids}})
	}
	return out, nil
}

func (s *Scenario) topic(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("which topic?")
	}
	parts, err := parseAssignment(words[1:])
	if err != nil {
		return err
	}
	t := zkpaths.Topic{Version: 1, Partitions: parts}
	path := zkpaths.TopicPath(words[0])
	old, _, code := s.w.ZK.Tree.GetData(zkserver.Who{}, path)
	if code != zkserver.OK {
		return s.write(zkserver.Op{Path: path, Data: zkpaths.EncodeTopic(t), ACL: zkserver.OpenACL()})
	}
	if before, err := zkpaths.DecodeTopic(words[0], old); err == nil { // CreatePartitions keeps id and moves
		t.ID, t.Version = before.ID, before.Version
		for _, p := range before.Partitions {
			if !slices.ContainsFunc(parts, func(q zkpaths.PartitionAssignment) bool { return q.Partition == p.Partition }) {
				t.Partitions = append(t.Partitions, p)
			}
		}
	}
	return s.write(zkserver.Op{Kind: zkserver.OpSet, Path: path, Data: zkpaths.EncodeTopic(t), Version: zkserver.AnyVersion})
}

func (s *Scenario) write(op zkserver.Op) error {
	if r := s.w.ZK.Write(s.w.Admin, op); r.Code != zkserver.OK {
		return r.Code
	}
	return nil
}

func (s *Scenario) node(cmd string, words []string, line string) error {
	if len(words) == 0 {
		return fmt.Errorf("which path?")
	}
	op := zkserver.Op{Path: words[0], Version: zkserver.AnyVersion, ACL: zkserver.OpenACL()}
	if len(words) > 1 {
		op.Data = []byte(strings.TrimSpace(line[strings.Index(line, words[0])+len(words[0]):]))
		if string(op.Data) == `""` {
			op.Data = []byte{}
		}
	}
	switch cmd {
	case "set":
		op.Kind = zkserver.OpSet
	case "delete":
		op.Kind = zkserver.OpDelete
	case "rmr":
		if code := s.w.ZK.RemoveAll(s.w.Admin, words[0]); code != zkserver.OK {
			return code
		}
		return nil
	}
	return s.write(op)
}

func parseMoves(words []string) ([]zkpaths.Reassignment, error) {
	var moves []zkpaths.Reassignment
	for _, w := range words {
		name, list, _ := strings.Cut(w, "=")
		tp, err := kafka.ParseTopicPartition(name)
		if err != nil {
			return nil, err
		}
		var ids []kafka.BrokerID
		if list != "cancel" {
			if ids, err = parseIDs(list); err != nil {
				return nil, err
			}
		}
		moves = append(moves, zkpaths.Reassignment{Partition: tp, Replicas: ids})
	}
	return moves, nil
}

func (s *Scenario) reassign(words []string) error {
	moves, err := parseMoves(words)
	if err != nil {
		return err
	}
	return s.write(zkserver.Op{Path: zkpaths.ReassignPartitions, Data: zkpaths.EncodeReassignments(moves), ACL: zkserver.OpenACL()})
}

func parsePartitions(words []string) ([]kafka.TopicPartition, error) {
	var out []kafka.TopicPartition
	for _, w := range words {
		tp, err := kafka.ParseTopicPartition(w)
		if err != nil {
			return nil, err
		}
		out = append(out, tp)
	}
	return out, nil
}

func (s *Scenario) preferred(words []string) error {
	tps, err := parsePartitions(words)
	if err != nil {
		return err
	}
	return s.write(zkserver.Op{Path: zkpaths.PreferredElection, Data: zkpaths.EncodePreferredElection(tps), ACL: zkserver.OpenACL()})
}

func (s *Scenario) isr(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("want a partition and a list")
	}
	tps, err := parsePartitions(words[:1])
	if err != nil {
		return err
	}
	ids, err := parseIDs(words[1])
	if err != nil {
		return err
	}
	l, _ := s.w.Leadership(tps[0])
	b := s.w.Brokers[l.Leader]
	if b == nil || !s.w.ChangeISR(b, tps[0], ids) {
		return fmt.Errorf("leader %d cannot ask", l.Leader)
	}
	return nil
}

func (s *Scenario) answer(words []string) error {
	code := kafka.NoError
	if len(words) > 1 {
		var ok bool
		if code, ok = errorCodes()[words[1]]; !ok {
			return fmt.Errorf("unknown error code %q", words[1])
		}
	}
	return each(words, func(id kafka.BrokerID) error {
		held := s.w.Held
		s.w.Held = nil
		found := false
		for _, a := range held {
			if a.From != id {
				s.w.Held = append(s.w.Held, a)
				continue
			}
			found = true
			if code != kafka.NoError {
				for tp := range a.Response.Errors {
					a.Response.Errors[tp] = code
				}
			}
			s.w.Answer(a)
		}
		if !found {
			return fmt.Errorf("broker %d has no answer to give", id)
		}
		return nil
	})
}

func (s *Scenario) dirFail(words []string) error {
	tps, err := parsePartitions(words[1:])
	if err != nil {
		return err
	}
	return each(words, func(id kafka.BrokerID) error {
		for _, tp := range tps {
			s.w.Brokers[id].Offline[tp] = true
		}
		return s.write(zkserver.Op{Path: zkpaths.LogDirNotificationPrefix, Mode: zkserver.PersistentSequential, ACL: zkserver.OpenACL(),
			Data: zkpaths.EncodeLogDirEvent(zkpaths.LogDirEvent{Broker: id, Event: zkpaths.LogDirFailure})})
	})
}

func (s *Scenario) repair(words []string) error {
	tps, err := parsePartitions(words[1:])
	if err != nil {
		return err
	}
	return each(words, func(id kafka.BrokerID) error {
		for _, tp := range tps {
			delete(s.w.Brokers[id].Offline, tp)
		}
		return nil
	})
}

func (s *Scenario) lead(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("want a partition and a broker")
	}
	tps, err := parsePartitions(words[:1])
	if err != nil {
		return err
	}
	l, ok := s.w.Leadership(tps[0])
	if !ok {
		return fmt.Errorf("%s has no state", tps[0])
	}
	if l.Leader, err = parseID(words[1]); err != nil {
		return err
	}
	return s.write(zkserver.Op{Kind: zkserver.OpSet, Path: zkpaths.PartitionStatePath(tps[0]), Data: zkpaths.EncodePartitionState(l), Version: zkserver.AnyVersion})
}

func (s *Scenario) fault(words []string) error {
	if len(words) != 4 && len(words) != 5 {
		return fmt.Errorf("want broker, op, path, effect and perhaps how often")
	}
	f := sim.Fault{Op: words[1], Path: words[2]}
	codes := map[string]zkpaths.Code{"no-node": zkpaths.NoNode, "node-exists": zkpaths.NodeExists, "bad-version": zkpaths.BadVersion,
		"not-empty": zkpaths.NotEmpty, "no-auth": zkpaths.NoAuth, "too-large": zkpaths.TooLarge, "failed": zkpaths.Failed}
	switch words[3] {
	case "lose":
		f.Effect = sim.LoseAnswer
	case "expire":
		f.Effect = sim.Expire
	default:
		var ok bool
		if f.Code, ok = codes[words[3]]; !ok {
			return fmt.Errorf("unknown effect %q", words[3])
		}
	}
	if err := s.faultTimes(&f, words); err != nil {
		return err
	}
	return each(words, func(id kafka.BrokerID) error { s.w.Candidate(id).Store.Inject(f); return nil })
}

func (s *Scenario) event(words []string) error {
	known := map[string]events.Event{}
	for _, ev := range []events.Event{events.Startup{}, events.ControllerChange{}, events.Reelect{}, events.Expire{}, events.Shutdown{},
		events.BrokerChange{}, events.TopicChange{}, events.TopicDeletion{}, events.ISRChangeNotification{}, events.LogDirEvent{},
		events.ZkPartitionReassignment{}, events.PreferredElectionZnode{}} {
		known[ev.Name()] = ev
	}
	if len(words) != 2 || known[words[1]] == nil {
		return fmt.Errorf("want a broker and the name of an event without content")
	}
	return each(words, func(id kafka.BrokerID) error { s.w.Candidate(id).Put(known[words[1]]); return nil })
}

// ---- what shows

func (s *Scenario) shower(cmd string) func(words []string) error {
	switch cmd {
	case "state":
		return s.showState
	case "assign":
		return s.showAssign
	case "replicas":
		return s.showReplicas
	case "sent":
		return func([]string) error { s.showSent(); return nil }
	case "writes":
		return func([]string) error { s.showWrites(); return nil }
	case "forget":
		return func([]string) error {
			s.forget()
			return nil
		}
	case "znode":
		return s.showNode
	case "stat":
		return func(words []string) error {
			st, code := s.w.ZK.Tree.Exists(zkserver.Who{}, words[0])
			s.print("%s %s version=%d", words[0], code, st.Version)
			return nil
		}
	case "topic-id":
		return s.showTopicID
	case "children":
		return func(words []string) error {
			names, _, code := s.w.ZK.Tree.GetChildren(zkserver.Who{}, words[0])
			s.print("%s %s %v", words[0], code, names)
			return nil
		}
	case "controller":
		return func([]string) error { s.showController(); return nil }
	case "gauges":
		return func([]string) error { s.showGauges(); return nil }
	case "queues":
		return func([]string) error { s.showQueues(); return nil }
	case "log":
		return s.showLog
	case "metadata":
		return s.showMetadata
	}
	return s.showerOfMore(cmd)
}

// forget makes all showers begin from here.
func (s *Scenario) forget() {
	n := len(s.w.Notes)
	s.shown, s.written, s.logged, s.answered, s.told, s.handled = n, n, n, n, n, n
}

func (s *Scenario) print(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func list(ids []kafka.BrokerID) string { return "[" + joined(ids) + "]" }

func joined[T any](ids []T) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, id)
	}
	return b.String()
}

func leadership(l kafka.Leadership) string {
	text := fmt.Sprintf("L=%d LE=%d ISR=%s PE=%d CE=%d", l.Leader, l.LeaderEpoch, list(l.ISR), l.ZKVersion, l.ControllerEpoch)
	if l.Recovery == kafka.Recovering {
		text += " RECOVERING"
	}
	return text
}

func (s *Scenario) context() *statemachine.Context {
	if c := s.w.Active(); c != nil {
		return c.Controller().State()
	}
	return statemachine.NewContext(true, true)
}

func (s *Scenario) showState(words []string) error {
	tps, err := parsePartitions(words)
	if err != nil {
		return err
	}
	st := s.context()
	if len(tps) == 0 {
		st.EachPartition(func(p *statemachine.Partition) { tps = append(tps, p.TopicPartition) })
	}
	for _, tp := range tps {
		state := statemachine.NonExistentPartition
		if p := st.RecordedPartition(tp); p != nil {
			state = p.State
		}
		if l, ok := s.w.Leadership(tp); ok {
			s.print("%s %s %s", tp, leadership(l), state)
		} else {
			s.print("%s no state znode, %s", tp, state)
		}
	}
	return nil
}

func (s *Scenario) showAssign(words []string) error {
	tps, err := parsePartitions(words)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		data, _, code := s.w.ZK.Tree.GetData(zkserver.Who{}, zkpaths.TopicPath(tp.Topic))
		t, err := zkpaths.DecodeTopic(tp.Topic, data)
		i := slices.IndexFunc(t.Partitions, func(p zkpaths.PartitionAssignment) bool { return p.Partition == tp.Partition })
		if code != zkserver.OK || err != nil || i < 0 {
			s.print("%s no assignment (%s)", tp, code)
			continue
		}
		a := t.Partitions[i]
		text := "RS=" + list(a.Replicas)
		if a.Reassigning() {
			text += " AR=" + list(a.Adding) + " RR=" + list(a.Removing)
		}
		s.print("%s %s", tp, text)
	}
	return nil
}

func (s *Scenario) showReplicas(words []string) error {
	tps, err := parsePartitions(words)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		p := s.context().RecordedPartition(tp)
		if p == nil {
			s.print("%s unknown", tp)
			continue
		}
		var out []string
		for id := kafka.BrokerID(0); id < 200; id++ {
			if r := p.Replica(id); r != statemachine.NonExistentReplica {
				out = append(out, fmt.Sprintf("%d:%s", id, strings.TrimSuffix(r.String(), "Replica")))
			}
		}
		s.print("%s %s", tp, strings.Join(out, " "))
	}
	return nil
}

// showSent merges requests that differ only in their receiver, as long as
// nothing but requests of the same kind to others stands between them.
func (s *Scenario) showSent() {
	type group struct {
		text string
		kind control.Kind
		to   []kafka.BrokerID
	}
	var groups []group
	for ; s.shown < len(s.w.Notes); s.shown++ {
		sent, ok := s.w.Notes[s.shown].(sim.Sent)
		if !ok {
			continue
		}
		text := requestText(sent.Request)
		at := -1
		for i := len(groups) - 1; i >= 0; i-- {
			if groups[i].kind != sent.Request.Kind() || slices.Contains(groups[i].to, sent.To) {
				break
			}
			if groups[i].text == text {
				at = i
				break
			}
		}
		if at < 0 {
			groups = append(groups, group{text: text, kind: sent.Request.Kind()})
			at = len(groups) - 1
		}
		groups[at].to = append(groups[at].to, sent.To)
	}
	for _, g := range groups {
		slices.Sort(g.to)
		name, rest, _ := strings.Cut(g.text, " ")
		if rest != "" {
			rest = "; " + rest
		}
		s.print("%s(%s%s)", name, joined(g.to), rest)
	}
}

func requestText(r control.Request) string {
	var rows []string
	name := "UMR"
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		name = "LISR"
		for _, p := range r.Partitions {
			text := fmt.Sprintf("%s L=%d LE=%d ISR=%s", p.TopicPartition, p.Leader, p.LeaderEpoch, list(p.ISR))
			if p.Reassigning() {
				text += fmt.Sprintf(" RS=%s AR=%s RR=%s", list(p.Replicas), list(p.Adding), list(p.Removing))
			}
			if p.IsNew {
				text += " new"
			}
			rows = append(rows, text)
		}
	case *control.UpdateMetadataRequest:
		for _, p := range r.Partitions {
			text := fmt.Sprintf("%s L=%d", p.TopicPartition, p.Leader)
			if len(p.Offline) > 0 {
				text += " offline=" + list(p.Offline)
			}
			rows = append(rows, text)
		}
	case *control.StopReplicaRequest:
		name = "SR"
		for _, p := range r.Partitions {
			text := fmt.Sprintf("%s LE=%d", p.TopicPartition, p.LeaderEpoch)
			if p.Delete {
				text += " delete"
			}
			rows = append(rows, text)
		}
	}
	return strings.TrimSpace(name + " " + strings.Join(rows, ", "))
}

// showWrites shows what candidates wrote, in order.
func (s *Scenario) showWrites() {
	kinds := map[zkserver.OpKind]string{zkserver.OpCreate: "create", zkserver.OpSet: "set", zkserver.OpDelete: "delete"}
	for ; s.written < len(s.w.Notes); s.written++ {
		n, ok := s.w.Notes[s.written].(sim.Wrote)
		if !ok || n.Session == s.w.Admin || n.Op.Kind == zkserver.OpCreate && n.Result.Code == zkserver.NodeExists {
			continue
		}
		text := n.Op.Path
		if tp, ok := zkpaths.ParsePartitionStatePath(n.Op.Path); ok && n.Op.Kind != zkserver.OpDelete {
			if l, err := zkpaths.DecodePartitionState(tp, n.Op.Data, n.Result.Stat.Version); err == nil {
				text = tp.String() + " " + leadership(l)
			}
		} else if topic, ok := zkpaths.ParseTopicPath(n.Op.Path); ok && n.Op.Kind != zkserver.OpDelete {
			if t, err := zkpaths.DecodeTopic(topic, n.Op.Data); err == nil {
				for _, p := range t.Partitions {
					text += fmt.Sprintf(" %d=%s", p.Partition, list(p.Replicas))
					if p.Reassigning() {
						text += fmt.Sprintf("+%s-%s", list(p.Adding), list(p.Removing))
					}
				}
			}
		}
		if n.Result.Code != zkserver.OK {
			text += " " + n.Result.Code.String()
		}
		s.print("%s %s", kinds[n.Op.Kind], text)
	}
}

func (s *Scenario) showNode(words []string) error {
	for _, path := range words {
		data, stat, code := s.w.ZK.Tree.GetData(zkserver.Who{}, path)
		if code != zkserver.OK {
			s.print("%s %s", path, code)
			continue
		}
		s.print("%s v%d %s", path, stat.Version, quotedOrPlain(data))
	}
	return nil
}

func quotedOrPlain(data []byte) string {
	switch {
	case data == nil:
		return "null"
	case len(data) == 0:
		return `""`
	}
	return string(data)
}

func (s *Scenario) showController() {
	data, stat, _ := s.w.ZK.Tree.GetData(zkserver.Who{}, zkpaths.ControllerEpoch)
	if c := s.w.Active(); c != nil {
		s.print("controller %d epoch %s (znode version %d)", c.ID, data, stat.Version)
		return
	}
	owner := "absent"
	if d, _, code := s.w.ZK.Tree.GetData(zkserver.Who{}, zkpaths.Controller); code == zkserver.OK {
		owner = quotedOrPlain(d)
	}
	s.print("no controller, /controller %s, epoch %s (znode version %d)", owner, quotedOrPlain(data), stat.Version)
}

func (s *Scenario) showGauges() {
	st := s.context()
	partitions := 0
	st.EachPartition(func(p *statemachine.Partition) {
		if p.HasLeadership {
			partitions++
		}
	})
	s.print("offline=%d imbalance=%d topics=%d partitions=%d", gauge(st, "offline_partitions"), gauge(st, "preferred_replica_imbalance"), len(st.Topics()), partitions)
}

func (s *Scenario) showQueues() {
	st := s.context()
	s.print("deleting=%v ineligible=%v moving=%v shutting-down=%s", st.QueuedTopics(), st.IneligibleTopics(), names(st.MovingPartitions()), list(st.ShuttingDownIDs()))
}

// showLog counts lines of the log by level since the last time: the texts are
// not part of the spec.
func (s *Scenario) showLog(words []string) error {
	counts := map[logrus.Level]int{}
	for ; s.logged < len(s.w.Notes); s.logged++ {
		if l, ok := s.w.Notes[s.logged].(sim.Logged); ok {
			counts[l.Level]++
			if len(words) > 0 && l.Level.String() == words[0] {
				s.print("%s", logText(l))
			}
		}
	}
	s.print("errors=%d warnings=%d", counts[logrus.ErrorLevel], counts[logrus.WarnLevel])
	return nil
}

func (s *Scenario) showMetadata(words []string) error {
	return each(words, func(id kafka.BrokerID) error {
		b := s.w.Brokers[id]
		var live []kafka.BrokerID
		for n := range b.Live {
			live = append(live, n)
		}
		slices.Sort(live)
		s.print("%d knows %v, live %s", id, names(b.Knows()), list(live))
		return nil
	})
}
