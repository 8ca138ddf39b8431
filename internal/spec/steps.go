package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// stepOf gives what carries a step of a case's when out, or nil.
func stepOf(do string) func(*player, *Step) error {
	switch do {
	case "elect":
		return elect
	case "create", "set", "delete", "rmr":
		return changeNode
	case "register":
		return register
	case "unregister", "broker-kill":
		return unregister
	case "session-expired":
		return sessionExpired
	case "resume":
		return resume
	case "request":
		return request
	case "reply":
		return reply
	case "deliver":
		return deliver
	case "expect":
		return func(p *player, s *Step) error { p.expect(&s.Expect); return nil }
	case "tick":
		return tick
	case "topic-unclean-enabled":
		return func(*player, *Step) error { return nil } // the controller watches /config/changes itself
	case "race":
		return race
	case "repeat":
		return repeat
	case "settle":
		return settleStep
	case "decode":
		return decodeStep
	case "tool":
		return toolStep
	case "generate-topics":
		return generateTopics
	case "generate-znodes":
		return generateZnodes
	case "mark-requests":
		return func(p *player, _ *Step) error { p.marked = len(p.w.Notes); return nil }
	}
	return edgeStepOf(do)
}

// edgeStepOf has the steps about sessions, connections and clocks.
func edgeStepOf(do string) func(*player, *Step) error {
	switch do {
	case "zk":
		return zkCall
	case "zk-disconnect":
		return zkDisconnect
	case "zk-reconnect":
		return zkReconnect
	case "zk-expire":
		return zkExpire
	case "zk-connect":
		return zkConnect
	case "zk-acl":
		return zkACL
	case "zk-fault":
		return zkFault
	case "zk-state", "zk-server":
		return func(p *player, s *Step) error {
			p.skip("%s: a server's own states and restarts are not played here", s.Do)
			return nil
		}
	case "broker-session":
		return brokerSession
	case "broker-start":
		return brokerStart
	case "broker-config":
		return brokerConfig
	case "isr-changed":
		return isrChanged
	case "clock":
		return clock
	}
	return nil
}

var errWhich = errors.New("it does not say which broker")

func elect(p *player, s *Step) error {
	if s.Broker == nil {
		return errWhich
	}
	if p.first < 0 {
		p.first = len(p.w.Notes)
	}
	c := p.w.Candidate(kafka.BrokerID(*s.Broker))
	for _, f := range p.faults {
		f(c.Store)
	}
	c.Put(events.Startup{})
	return nil
}

func changeNode(p *player, s *Step) error {
	data, err := text(s.Data)
	if err != nil {
		return err
	}
	op := zkserver.Op{Path: s.Path, Data: data, Version: zkserver.AnyVersion, ACL: zkserver.OpenACL()}
	if s.ExpectVersion != nil {
		op.Version = *s.ExpectVersion
	}
	var code zkserver.Code
	switch s.Do {
	case "create":
		p.needParent(s.Path)
		code = p.w.ZK.Write(p.w.Admin, op).Code
	case "set":
		op.Kind = zkserver.OpSet
		code = p.w.ZK.Write(p.w.Admin, op).Code
	case "delete":
		op.Kind = zkserver.OpDelete
		code = p.w.ZK.Write(p.w.Admin, op).Code
	case "rmr":
		code = p.w.ZK.RemoveAll(p.w.Admin, s.Path)
	}
	return wantCode(code, s.RC)
}

// needParent makes what a create stands on, for a case's parents exist.
func (p *player) needParent(path string) {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			p.w.ZK.Write(p.w.Admin, zkserver.Op{Path: path[:i], ACL: zkserver.OpenACL()})
		}
	}
}

func wantCode(got zkserver.Code, want string) error {
	if want == "" {
		want = "OK"
	}
	if got.String() != want {
		return fmt.Errorf("expected %s, got %s", want, got)
	}
	return nil
}

func register(p *player, s *Step) error {
	if s.Broker == nil {
		return errWhich
	}
	id := kafka.BrokerID(*s.Broker)
	data, err := text(s.Data)
	if err != nil {
		return err
	}
	b := p.w.Brokers[id]
	if b == nil {
		b = sim.NewBroker(id)
		p.w.Brokers[id] = b
	}
	b.Restart()
	session := p.w.ZK.NewSession()
	if s.Epoch > 0 {
		p.w.ZK.Tree.AdvanceZxid(s.Epoch - 1)
	}
	if data == nil {
		data = caseRegistration(id)
	}
	if err := p.w.Register(id, session, data); err != nil {
		return err
	}
	if s.Epoch > 0 && b.Epoch != s.Epoch {
		p.epochs[s.Epoch] = b.Epoch
	}
	return nil
}

func unregister(p *player, s *Step) error {
	if s.Broker == nil {
		return errWhich
	}
	id := kafka.BrokerID(*s.Broker)
	if p.w.Brokers[id] == nil || p.w.Brokers[id].Session == 0 {
		return fmt.Errorf("broker %d is not registered", id)
	}
	path := zkpaths.BrokerPath(id)
	if c := p.w.Candidates[id]; c != nil && c.Active() { // its session goes on: it stays controller
		return wantCode(p.w.ZK.Write(p.w.Admin, zkserver.Op{Kind: zkserver.OpDelete, Path: path, Version: zkserver.AnyVersion}).Code, s.RC)
	}
	p.w.Kill(id)
	return nil
}

func sessionExpired(p *player, s *Step) error {
	if s.Broker == nil {
		return errWhich
	}
	id := kafka.BrokerID(*s.Broker)
	if c := p.w.Candidates[id]; c != nil && s.Paused {
		c.Paused = true
	}
	if p.w.Brokers[id] == nil {
		return fmt.Errorf("broker %d has no session", id)
	}
	p.w.Kill(id)
	return nil
}

// resume wakes a paused process with a session of its own, so that only the
// fence stands between it and the cluster.
func resume(p *player, s *Step) error {
	if s.Broker == nil {
		return errWhich
	}
	c := p.w.Candidates[kafka.BrokerID(*s.Broker)]
	if c == nil || !c.Paused {
		return fmt.Errorf("broker %d has no paused process", *s.Broker)
	}
	handlers := map[string]events.Event{"brokerchange": events.BrokerChange{}, "topicchange": events.TopicChange{},
		"topicdeletion": events.TopicDeletion{}, "isrchangenotification": events.ISRChangeNotification{},
		"partitionreassignment": events.ZkPartitionReassignment{}, "preferredelection": events.PreferredElectionZnode{},
		"autopreferredelection": events.AutoPreferredElection{}, "controllerchange": events.ControllerChange{}}
	ev, ok := handlers[strings.ToLower(strings.NewReplacer("-", "", "_", "", "zk", "").Replace(s.Handle))]
	if !ok {
		return fmt.Errorf("unknown handler %q", s.Handle)
	}
	c.Store.Reconnect()
	c.Queue.ClearAndPut(ev)
	c.Put(events.Expire{}) // of which it learns when it has done that
	c.Paused = false
	return nil
}

func request(p *player, s *Step) error {
	slot := len(p.replies)
	p.replies = append(p.replies, nil)
	answer := func(v any) { p.replies[slot] = v }
	var ev events.Event
	var err error
	switch s.API {
	case "AlterPartition":
		ev, err = p.alterPartition(s, answer)
	case "AlterPartitionReassignments":
		ev, err = alterReassignments(s, answer)
	case "ControlledShutdown":
		ev, err = p.controlledShutdown(s, answer)
	case "ElectLeaders":
		ev, err = electLeaders(s, answer)
	default:
		return fmt.Errorf("unknown api %q", s.API)
	}
	if err != nil {
		return err
	}
	if c := p.active(); c != nil {
		c.Put(ev)
	} else {
		controller.Preempt(ev)
	}
	return nil
}

func (p *player) alterPartition(s *Step, answer func(any)) (events.Event, error) {
	tp, err := kafka.ParseTopicPartition(s.Partition)
	if err != nil {
		return nil, err
	}
	if s.From == nil || s.BrokerEpoch == nil {
		return nil, errors.New(`"from" and "broker_epoch" are needed`)
	}
	version := int16(1)
	if s.Version != nil {
		version = int16(*s.Version)
	}
	row := events.AlterPartitionRow{Topic: tp.Topic, Partition: tp.Partition, LeaderEpoch: s.LeaderEpoch,
		ISR: brokerIDs(s.ISR), Recovery: s.Recovery, ZKVersion: s.PartitionEpoch}
	return events.AlterPartition{Broker: kafka.BrokerID(*s.From), BrokerEpoch: p.epochOf(*s.BrokerEpoch), Version: version,
		Partitions: []events.AlterPartitionRow{row},
		Reply: func(top kafka.ErrorCode, rows []events.AlterPartitionResult) {
			if top != kafka.NoError || len(rows) != 1 {
				answer(top.String())
			} else {
				answer(rows[0].Error.String())
			}
		}}, nil
}

func brokerIDs(in []int32) []kafka.BrokerID {
	out := make([]kafka.BrokerID, len(in))
	for i, id := range in {
		out[i] = kafka.BrokerID(id)
	}
	return out
}

func alterReassignments(s *Step, answer func(any)) (events.Event, error) {
	names, lists, err := orderedLists(s.Partitions)
	if err != nil {
		return nil, err
	}
	ev := events.AlterReassignments{}
	for i, name := range names {
		tp, err := kafka.ParseTopicPartition(name)
		if err != nil {
			return nil, err
		}
		ev.Partitions = append(ev.Partitions, events.ReassignmentRow{Partition: tp, Target: brokerIDs(lists[i]), Cancel: lists[i] == nil})
	}
	ev.Reply = func(top kafka.ErrorCode, rows []events.RowError) {
		if top != kafka.NoError {
			answer(map[string]any{"error": top.String()})
			return
		}
		got := map[string]any{}
		for i, r := range rows {
			got[names[i]] = r.Error.String()
		}
		answer(got)
	}
	return ev, nil
}

// orderedLists reads an object of lists, in the order of the file.
func orderedLists(raw json.RawMessage) (names []string, lists [][]int32, err error) {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, fmt.Errorf("partitions %.40s is not an object", raw)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, nil, err
		}
		var list []int32
		if err := dec.Decode(&list); err != nil {
			return nil, nil, err
		}
		names, lists = append(names, name.(string)), append(lists, list)
	}
	return names, lists, nil
}

func (p *player) controlledShutdown(s *Step, answer func(any)) (events.Event, error) {
	if s.Broker == nil {
		return nil, errWhich
	}
	epoch := kafka.NoBrokerEpoch
	if s.BrokerEpoch != nil {
		epoch = p.epochOf(*s.BrokerEpoch)
	}
	return events.ControlledShutdown{Broker: kafka.BrokerID(*s.Broker), BrokerEpoch: epoch,
		Reply: func(code kafka.ErrorCode, remaining []kafka.TopicPartition) {
			if code != kafka.NoError {
				answer(code.String())
				return
			}
			left := []any{}
			for _, tp := range remaining {
				left = append(left, tp.String())
			}
			answer(left)
		}}, nil
}

func electLeaders(s *Step, answer func(any)) (events.Event, error) {
	ev := events.ElectLeaders{Unclean: strings.EqualFold(s.What, "unclean"), All: len(s.Partitions) == 0 || string(s.Partitions) == "null"}
	if !ev.All {
		var names []string
		if err := json.Unmarshal(s.Partitions, &names); err != nil {
			return nil, fmt.Errorf("partitions %.40s is not a list: %w", s.Partitions, err)
		}
		for _, n := range names {
			tp, err := kafka.ParseTopicPartition(n)
			if err != nil {
				return nil, err
			}
			ev.Partitions = append(ev.Partitions, tp)
		}
	}
	ev.Reply = func(top kafka.ErrorCode, rows []events.ElectionResult) {
		if top != kafka.NoError {
			answer(map[string]any{"error": top.String()})
			return
		}
		got := map[string]any{}
		for _, r := range rows {
			got[r.Partition.String()] = r.Error.String()
		}
		answer(got)
	}
	return ev, nil
}

// errorCodes gives Kafka's error codes by name.
func errorCodes() map[string]kafka.ErrorCode {
	m := map[string]kafka.ErrorCode{}
	for c := kafka.ErrorCode(-1); c < 130; c++ {
		m[c.String()] = c
	}
	return m
}

// reply is a broker's answer to the controller's last request of that kind.
func reply(p *player, s *Step) error {
	if s.From == nil {
		return errWhich
	}
	c := p.active()
	if c == nil {
		return errors.New("nobody is controller")
	}
	from := kafka.BrokerID(*s.From)
	codes := map[kafka.TopicPartition]kafka.ErrorCode{}
	if len(s.Partitions) > 0 {
		var names map[string]string
		if err := json.Unmarshal(s.Partitions, &names); err != nil {
			return err
		}
		for name, code := range names {
			tp, err := kafka.ParseTopicPartition(name)
			if err != nil {
				return err
			}
			e, ok := errorCodes()[code]
			if !ok {
				return fmt.Errorf("unknown error code %q", code)
			}
			codes[tp] = e
		}
	}
	last := p.lastRequest(from, s)
	if last == nil && s.API == "StopReplica" && !s.Delete {
		// A plain stop may have gone out together with the deletion: its answer
		// is then one to a request of the same rows that deletes nothing.
		stop := &control.StopReplicaRequest{}
		for tp := range codes {
			stop.Partitions = append(stop.Partitions, control.StopPartition{TopicPartition: tp})
		}
		last = stop
		c.Put(events.StopReplicaResponse{Broker: from, Errors: codes, Request: stop})
	}
	if last == nil {
		return fmt.Errorf("broker %d was sent no %s to answer", from, s.API)
	}
	p.w.Answer(sim.Answered{From: from, To: c.ID, Response: control.Response{Kind: last.Kind(), Error: errorCodes()[orNone(s.Error)], Errors: codes, Request: last}})
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "NONE"
	}
	return s
}

// lastRequest finds the last request that a scripted reply answers. Deletions
// the script did not answer yet stay pending in one broker's later answers, so
// a StopReplica is looked for that names the partitions, too.
func (p *player) lastRequest(to kafka.BrokerID, s *Step) control.Request {
	for _, n := range slices.Backward(p.w.Notes) {
		sent, ok := n.(sim.Sent)
		if !ok || sent.To != to || sent.Request.Kind().String() != s.API {
			continue
		}
		stop, ok := sent.Request.(*control.StopReplicaRequest)
		if !ok {
			return sent.Request
		}
		if slices.ContainsFunc(stop.Partitions, func(q control.StopPartition) bool {
			return q.Delete == s.Delete && strings.Contains(string(s.Partitions), strconv.Quote(q.String()))
		}) {
			return stop
		}
	}
	return nil
}

func deliver(p *player, s *Step) error {
	if s.To == nil {
		return errWhich
	}
	b, err := p.running(kafka.BrokerID(*s.To))
	if err != nil {
		return err
	}
	req, tp, err := p.controlRequest(s)
	if err != nil {
		return err
	}
	var resp control.Response
	answered := false
	b.happen(brokers.Control{Request: req, Reply: func(r control.Response) { resp, answered = r, true }})
	switch {
	case !answered:
		return fmt.Errorf("broker %d gave no answer", *s.To)
	case resp.Error != kafka.NoError:
		p.replies = append(p.replies, resp.Error.String())
	case s.API == "UpdateMetadata":
		p.replies = append(p.replies, "NONE")
	default:
		p.replies = append(p.replies, map[string]any{tp.String(): resp.Errors[tp].String()})
	}
	return nil
}

func (p *player) controlRequest(s *Step) (control.Request, kafka.TopicPartition, error) {
	tp, err := kafka.ParseTopicPartition(s.Partition)
	if err != nil {
		return nil, tp, err
	}
	h := control.Header{ControllerID: kafka.BrokerID(s.ControllerID), ControllerEpoch: s.ControllerEpoch, BrokerEpoch: kafka.NoBrokerEpoch}
	if s.BrokerEpoch != nil {
		h.BrokerEpoch = p.epochOf(*s.BrokerEpoch)
	}
	leader := kafka.NoLeader
	if s.Leader != nil {
		leader = kafka.BrokerID(*s.Leader)
	}
	var replicas []int32
	if len(s.Replicas) > 0 {
		if err := json.Unmarshal(s.Replicas, &replicas); err != nil {
			return nil, tp, err
		}
	}
	state := &control.PartitionState{TopicPartition: tp, IsNew: s.IsNew,
		Leadership: kafka.Leadership{ControllerEpoch: s.ControllerEpoch, LeaderAndISR: kafka.LeaderAndISR{Leader: leader,
			LeaderEpoch: s.LeaderEpoch, ISR: brokerIDs(s.ISR), ZKVersion: s.ZKVersion}},
		ReplicaAssignment: kafka.ReplicaAssignment{Replicas: brokerIDs(replicas)}}
	switch s.API {
	case "LeaderAndIsr":
		return &control.LeaderAndISRRequest{Header: h, Partitions: []*control.PartitionState{state}}, tp, nil
	case "UpdateMetadata":
		return &control.UpdateMetadataRequest{Header: h, Metadata: &control.Metadata{Partitions: []*control.PartitionState{state}}}, tp, nil
	case "StopReplica":
		return &control.StopReplicaRequest{Header: h, Partitions: []control.StopPartition{{TopicPartition: tp, LeaderEpoch: s.LeaderEpoch, Delete: s.Delete}}}, tp, nil
	}
	return nil, tp, fmt.Errorf("unknown api %q", s.API)
}

func tick(p *player, s *Step) error {
	if s.What != "auto-leader-rebalance" {
		return fmt.Errorf("unknown periodic job %q", s.What)
	}
	if c := p.active(); c != nil {
		c.Put(events.AutoPreferredElection{})
	}
	return nil
}

// race runs the inner step between two operations of the active controller.
func race(p *player, s *Step) error {
	c := p.active()
	if c == nil || s.Then == nil || len(s.Between) != 2 {
		return errors.New(`needs a controller, two names in "between" and a step in "then"`)
	}
	state := 0
	c.Store.Before = func(st sim.Step) {
		switch {
		case state == 0 && st.String() == s.Between[0]:
			state = 1
		case state == 1 && st.String() == s.Between[1]:
			state = 2
			inner := *s.Then
			inner.Hold = true
			p.do(&inner)
		}
	}
	p.settle()
	c.Store.Before = nil
	if state != 2 {
		return fmt.Errorf("the controller never did %q and then %q", s.Between[0], s.Between[1])
	}
	return nil
}

func repeat(p *player, s *Step) error {
	for i := range s.Times {
		var inner Step
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(s.Event), "{i}", strconv.Itoa(i))), &inner); err != nil {
			return fmt.Errorf("event: %w", err)
		}
		inner.Hold = inner.Hold || s.Hold
		p.do(&inner)
		if len(p.fails) > 0 {
			return nil
		}
	}
	return nil
}

func settleStep(p *player, s *Step) error {
	if !s.BrokersAnswer {
		return nil
	}
	p.w.HoldDeletes = false
	defer func() { p.w.HoldDeletes = true }()
	for {
		p.settle()
		held := p.w.Held
		p.w.Held = nil
		if len(held) == 0 {
			return nil
		}
		for _, a := range held {
			p.w.Answer(a)
		}
	}
}

func brokerConfig(p *player, s *Step) error {
	p.skip("broker-config: changing a running process's configuration is not built")
	return nil
}

// zkACL denies reading or writing of a path to the controllers, from now on.
func zkACL(p *player, s *Step) error {
	deny := string(s.Deny)
	inject := func(st *sim.Store) {
		ops := []string{}
		if deny == "" || strings.Contains(deny, "read") {
			ops = append(ops, "get", "children", "exists")
		}
		if deny == "" || strings.Contains(deny, "write") {
			ops = append(ops, "create", "set", "delete")
		}
		for _, op := range ops {
			st.Inject(sim.Fault{Op: op, Path: s.Path, Times: -1, Code: zkpaths.NoAuth})
		}
	}
	p.everyStore(inject)
	return nil
}

// everyStore applies a fault to the stores of all candidates, those to come too.
func (p *player) everyStore(f func(*sim.Store)) {
	p.faults = append(p.faults, f)
	for _, c := range p.w.Candidates {
		f(c.Store)
	}
}

func generateTopics(p *player, s *Step) error {
	var lists [][]int32
	if err := json.Unmarshal(s.Replicas, &lists); err != nil {
		var one []int32
		if err := json.Unmarshal(s.Replicas, &one); err != nil {
			return fmt.Errorf("replicas %.40s is no list of broker ids: %w", s.Replicas, err)
		}
		lists = [][]int32{one}
	}
	var partitions int32
	if err := json.Unmarshal(s.Partitions, &partitions); err != nil || partitions < 1 || len(lists) == 0 {
		return errors.New(`"partitions" has to be a number, and "replicas" a list of lists`)
	}
	for i := range s.Count {
		name := strings.ReplaceAll(s.Name, "{i}", strconv.Itoa(i))
		t := zkpaths.Topic{}
		for n := range partitions {
			replicas := brokerIDs(lists[int(n)%len(lists)])
			t.Partitions = append(t.Partitions, zkpaths.PartitionAssignment{Partition: n, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: replicas}})
			l := kafka.Leadership{ControllerEpoch: 3, LeaderAndISR: kafka.LeaderAndISR{Leader: replicas[0], ISR: replicas}}
			tp := kafka.TopicPartition{Topic: name, Partition: n}
			if err := p.w.ZK.Seed(zkserver.Saved{Path: zkpaths.PartitionStatePath(tp), Data: zkpaths.EncodePartitionState(l)}); err != nil {
				return err
			}
		}
		if err := p.w.ZK.Seed(zkserver.Saved{Path: zkpaths.TopicPath(name), Data: zkpaths.EncodeTopic(t)}); err != nil {
			return err
		}
	}
	return nil
}

func generateZnodes(p *player, s *Step) error {
	data, err := text(s.Data)
	if err != nil {
		return err
	}
	for i := range max(s.Count, 1) {
		n := strconv.Itoa(i)
		d := data
		if d != nil {
			d = []byte(strings.ReplaceAll(string(data), "{i}", n))
		}
		if err := p.w.ZK.Seed(zkserver.Saved{Path: strings.ReplaceAll(s.Path, "{i}", n), Data: d}); err != nil {
			return err
		}
	}
	return nil
}

func clock(p *player, s *Step) error {
	at := max(s.StartMS, s.AtMS)
	if d := time.Duration(at)*time.Millisecond - p.w.ZK.Now; d > 0 {
		p.w.Advance(d)
	}
	return nil
}
