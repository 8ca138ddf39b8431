package endpoint

import (
	"cmp"
	"slices"
	"testing"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

const selfID kafka.BrokerID = 9999

// smallLoop keeps the contract of events/requests.go for a few topics in
// memory: enough of a controller to talk to real clients, none of its rules
// beyond what the endpoint's answers depend on.
type smallLoop struct {
	queue    chan events.Event
	standby  bool
	brokers  []kafka.Broker
	topics   map[string]*smallTopic
	noDelete bool

	leaderless bool // new partitions get no leader
	slowDelete bool // deletion is marked and does not start
	seen       []string
}

type smallTopic struct {
	id       kafka.TopicID
	parts    []control.PartitionState
	deleting bool
}

func newSmallLoop() *smallLoop {
	l := &smallLoop{queue: make(chan events.Event, 1000), topics: map[string]*smallTopic{}}
	for id := kafka.BrokerID(1); id <= 3; id++ {
		l.brokers = append(l.brokers, kafka.Broker{ID: id, Epoch: 100 + int64(id), HasRack: id == 1, Rack: "r",
			Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: int32(id)}}})
	}
	l.brokers = append(l.brokers, kafka.Broker{ID: selfID, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: 4}}})
	return l
}

// start runs the loop until the test ends.
func (l *smallLoop) start(t testing.TB) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev := range l.queue {
			l.process(ev)
		}
	}()
	t.Cleanup(func() { close(l.queue); <-done })
}

func (l *smallLoop) Put(ev events.Event) { l.queue <- ev }

// do runs f on the loop and waits for it.
func (l *smallLoop) do(f func()) {
	done := make(chan struct{})
	l.Put(events.Inspect{Look: func() { f(); close(done) }})
	<-done
}

func (l *smallLoop) process(ev events.Event) {
	if ev.Name() != "Describe" && ev.Name() != "Inspect" {
		l.seen = append(l.seen, ev.Name())
	}
	switch ev := ev.(type) {
	case events.Inspect:
		ev.Look()
	case events.Describe:
		ev.Reply(l.describe(ev))
	case events.CreateTopics:
		ev.Reply(each(ev.Topics, func(t events.NewTopic) events.NewTopicResult { return l.create(t, ev.ValidateOnly) }))
	case events.CreatePartitions:
		ev.Reply(each(ev.Topics, func(m events.MorePartitions) events.MorePartitionsResult { return l.more(m, ev.ValidateOnly) }))
	case events.DeleteTopics:
		ev.Reply(each(ev.Topics, l.delete))
	case events.ElectLeaders:
		l.elect(ev)
	case events.AlterReassignments:
		l.reassign(ev)
	case events.ListReassignments:
		l.list(ev)
	case events.AlterPartition:
		l.alter(ev)
	case events.ControlledShutdown:
		if l.standby {
			ev.Reply(kafka.NotController, nil)
			return
		}
		ev.Reply(kafka.NoError, []kafka.TopicPartition{{Topic: "left", Partition: int32(ev.Broker)}})
	case events.AllocateProducerIDs:
		if l.standby {
			ev.Reply(kafka.NotController, 0, 0)
			return
		}
		ev.Reply(kafka.NoError, 5000, 1000)
	}
}

func each[A, B any](as []A, f func(A) B) []B {
	out := make([]B, len(as))
	for i, a := range as {
		out[i] = f(a)
	}
	return out
}

func row(code kafka.ErrorCode) events.RowError { return events.RowError{Error: code} }

func (l *smallLoop) describe(ev events.Describe) events.Cluster {
	c := events.Cluster{ID: "small-cluster", Controller: selfID, Brokers: l.brokers}
	if l.standby {
		c.Controller = 1
		return c
	}
	refs := ev.Topics
	if ev.All {
		for name := range l.topics {
			refs = append(refs, events.TopicRef{Name: name})
		}
		slices.SortFunc(refs, func(a, b events.TopicRef) int { return cmp.Compare(a.Name, b.Name) })
	}
	for _, ref := range refs {
		name, t := l.lookup(ref)
		switch {
		case t != nil && (!t.deleting || l.slowDelete):
			c.Topics = append(c.Topics, events.TopicDescription{Name: name, ID: t.id, Partitions: slices.Clone(t.parts)})
		case ref.Name == "":
			c.Topics = append(c.Topics, events.TopicDescription{Error: kafka.UnknownTopicID})
		default:
			c.Topics = append(c.Topics, events.TopicDescription{Error: kafka.UnknownTopicOrPartition})
		}
	}
	return c
}

func (l *smallLoop) lookup(ref events.TopicRef) (string, *smallTopic) {
	for name, t := range l.topics {
		if name == ref.Name || ref.Name == "" && t.id == ref.ID {
			return name, t
		}
	}
	return "", nil
}

func (l *smallLoop) create(n events.NewTopic, validateOnly bool) events.NewTopicResult {
	if l.standby {
		return events.NewTopicResult{RowError: row(kafka.NotController)}
	}
	if l.topics[n.Name] != nil {
		return events.NewTopicResult{RowError: row(kafka.TopicAlreadyExists)}
	}
	if why := kafka.ValidTopicName(n.Name); why != "" {
		return events.NewTopicResult{RowError: events.RowError{Error: kafka.InvalidTopicException, Message: why}}
	}
	if n.ReplicationFactor > 3 {
		return events.NewTopicResult{RowError: row(kafka.InvalidReplicationFactor)}
	}
	if n.Assignment == nil {
		n.Assignment = map[int32][]kafka.BrokerID{}
		for p := range max(n.Partitions, 1) {
			n.Assignment[p] = []kafka.BrokerID{1, 2, 3}[:max(n.ReplicationFactor, 1)]
		}
	}
	t := &smallTopic{}
	copy(t.id[:], "id of "+n.Name+"................")
	for p := range int32(len(n.Assignment)) {
		t.add(n.Name, n.Assignment[p], l.leaderless)
	}
	if !validateOnly {
		l.topics[n.Name] = t
	}
	return events.NewTopicResult{Pending: l.leaderless, ID: t.id, Partitions: int32(len(t.parts)), ReplicationFactor: int16(len(t.parts[0].Replicas))}
}

func (t *smallTopic) add(topic string, replicas []kafka.BrokerID, leaderless bool) {
	p := control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: topic, Partition: int32(len(t.parts))}, TopicID: t.id}
	p.Replicas, p.ISR, p.Leader = replicas, replicas, replicas[0]
	if leaderless {
		p.Leader = kafka.NoLeader
	}
	t.parts = append(t.parts, p)
}

func (l *smallLoop) more(m events.MorePartitions, validateOnly bool) events.MorePartitionsResult {
	t := l.topics[m.Topic]
	switch {
	case l.standby:
		return events.MorePartitionsResult{RowError: row(kafka.NotController)}
	case t == nil:
		return events.MorePartitionsResult{RowError: row(kafka.UnknownTopicOrPartition)}
	case int(m.Count) <= len(t.parts):
		return events.MorePartitionsResult{RowError: row(kafka.InvalidPartitions)}
	case m.Assignment != nil && len(m.Assignment) != int(m.Count)-len(t.parts):
		return events.MorePartitionsResult{RowError: row(kafka.InvalidReplicaAssignment)}
	}
	if validateOnly {
		return events.MorePartitionsResult{}
	}
	for i := 0; len(t.parts) < int(m.Count); i++ {
		replicas := t.parts[0].Replicas
		if m.Assignment != nil {
			replicas = m.Assignment[i]
		}
		t.add(m.Topic, replicas, l.leaderless)
	}
	return events.MorePartitionsResult{Pending: l.leaderless}
}

func (l *smallLoop) delete(ref events.TopicRef) events.DeletedTopic {
	name, t := l.lookup(ref)
	switch {
	case l.standby:
		return events.DeletedTopic{RowError: row(kafka.NotController), ID: ref.ID}
	case l.noDelete:
		return events.DeletedTopic{RowError: row(kafka.TopicDeletionDisabled)}
	case t == nil && ref.Name == "":
		return events.DeletedTopic{RowError: row(kafka.UnknownTopicID), ID: ref.ID}
	case t == nil:
		return events.DeletedTopic{RowError: row(kafka.UnknownTopicOrPartition), Name: ref.Name}
	}
	t.deleting = true
	if !l.slowDelete {
		delete(l.topics, name)
	}
	return events.DeletedTopic{Pending: l.slowDelete, Name: name, ID: t.id}
}

func (l *smallLoop) partition(tp kafka.TopicPartition) *control.PartitionState {
	if t := l.topics[tp.Topic]; t != nil && tp.Partition >= 0 && int(tp.Partition) < len(t.parts) {
		return &t.parts[tp.Partition]
	}
	return nil
}

func (l *smallLoop) all() []kafka.TopicPartition {
	var out []kafka.TopicPartition
	for _, t := range l.topics {
		for _, p := range t.parts {
			out = append(out, p.TopicPartition)
		}
	}
	kafka.SortPartitions(out)
	return out
}

func (l *smallLoop) elect(ev events.ElectLeaders) {
	if l.standby {
		ev.Reply(kafka.NotController, nil)
		return
	}
	if ev.All {
		ev.Partitions = l.all()
	}
	var rows []events.ElectionResult
	for _, tp := range ev.Partitions {
		r := events.ElectionResult{Partition: tp}
		switch p := l.partition(tp); {
		case p == nil:
			r.Error = kafka.UnknownTopicOrPartition
		case p.Leader == p.Replicas[0]:
			r.Error = kafka.ElectionNotNeeded
		default:
			p.Leader = p.Replicas[0]
		}
		if !ev.All || r.Error != kafka.ElectionNotNeeded {
			rows = append(rows, r)
		}
	}
	ev.Reply(kafka.NoError, rows)
}

func (l *smallLoop) reassign(ev events.AlterReassignments) {
	if l.standby {
		ev.Reply(kafka.NotController, nil)
		return
	}
	ev.Reply(kafka.NoError, each(ev.Partitions, func(r events.ReassignmentRow) events.RowError {
		p := l.partition(r.Partition)
		switch {
		case !r.Cancel && len(r.Target) == 0:
			return events.RowError{Error: kafka.InvalidReplicaAssignment, Message: "empty"}
		case p == nil:
			return row(kafka.UnknownTopicOrPartition)
		case r.Cancel && !p.Reassigning():
			return row(kafka.NoReassignmentInProgress)
		case r.Cancel:
			p.ReplicaAssignment = p.ReassignTo(p.Original())
		default:
			p.ReplicaAssignment = p.ReassignTo(r.Target)
		}
		return events.RowError{}
	}))
}

func (l *smallLoop) list(ev events.ListReassignments) {
	if l.standby {
		ev.Reply(kafka.NotController, nil)
		return
	}
	if ev.All {
		ev.Partitions = l.all()
	}
	var rows []events.OngoingReassignment
	for _, tp := range ev.Partitions {
		if p := l.partition(tp); p != nil && p.Reassigning() {
			rows = append(rows, events.OngoingReassignment{Partition: tp, ReplicaAssignment: p.ReplicaAssignment})
		}
	}
	ev.Reply(kafka.NoError, rows)
}

func (l *smallLoop) alter(ev events.AlterPartition) {
	if l.standby {
		ev.Reply(kafka.NotController, nil)
		return
	}
	if ev.BrokerEpoch != 100+int64(ev.Broker) {
		ev.Reply(kafka.StaleBrokerEpoch, nil)
		return
	}
	ev.Reply(kafka.NoError, each(ev.Partitions, func(r events.AlterPartitionRow) events.AlterPartitionResult {
		name, t := l.lookup(events.TopicRef{Name: r.Topic, ID: r.ID})
		if t == nil {
			if r.Topic == "" {
				return events.AlterPartitionResult{Error: kafka.UnknownTopicID}
			}
			return events.AlterPartitionResult{Error: kafka.UnknownTopicOrPartition}
		}
		p := l.partition(kafka.TopicPartition{Topic: name, Partition: r.Partition})
		if p == nil {
			return events.AlterPartitionResult{Error: kafka.UnknownTopicOrPartition}
		}
		p.ISR, p.Recovery, p.ZKVersion = r.ISR, kafka.LeaderRecoveryState(r.Recovery), r.ZKVersion+1
		return events.AlterPartitionResult{LeaderAndISR: p.LeaderAndISR}
	}))
}
