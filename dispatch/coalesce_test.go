package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// model is what a broker keeps of control requests, as far as they could
// depend on each other (spec/broker.md §9, spec/control-plane.md §1.3 to §1.5).
type model struct {
	Live     []string
	Cache    map[kafka.TopicPartition]string
	TopicIDs map[string]kafka.TopicID
	Replicas map[kafka.TopicPartition]string // hosted
	// Offsets has, for every group partition the broker leads, the topics that
	// its loaded groups have offsets of.
	Offsets map[kafka.TopicPartition]map[string]bool
	Done    []string // what was done on LeaderAndIsr and StopReplica, in order
}

func newModel() *model {
	return &model{Cache: map[kafka.TopicPartition]string{}, TopicIDs: map[string]kafka.TopicID{}, Replicas: map[kafka.TopicPartition]string{}, Offsets: map[kafka.TopicPartition]map[string]bool{}}
}

const groups = "g" // stands for __consumer_offsets

func (m *model) apply(r control.Request) {
	switch r := r.(type) {
	case *control.UpdateMetadataRequest:
		m.updateMetadata(r)
	case *control.LeaderAndISRRequest:
		for _, p := range r.Partitions {
			alive := slices.ContainsFunc(m.Live, func(b string) bool { return b == fmt.Sprint(p.Leader) || b == fmt.Sprint(p.Leader, "*") })
			m.Done = append(m.Done, fmt.Sprintf("lead %s %d/%d alive=%t", p.TopicPartition, p.Leader, p.LeaderEpoch, alive))
			if alive {
				m.Replicas[p.TopicPartition] = fmt.Sprint(p.Leader, p.LeaderEpoch)
			} else if _, ok := m.Replicas[p.TopicPartition]; !ok {
				m.Replicas[p.TopicPartition] = "log"
			}
			if p.Topic == groups {
				m.Offsets[p.TopicPartition] = map[string]bool{"a": true, "b": true}
			}
		}
	case *control.StopReplicaRequest:
		for _, p := range r.Partitions {
			m.Done = append(m.Done, fmt.Sprintf("stop %s delete=%t known=%q", p.TopicPartition, p.Delete, m.Cache[p.TopicPartition]))
			if p.Delete {
				delete(m.Replicas, p.TopicPartition)
			}
		}
	}
}

func (m *model) updateMetadata(r *control.UpdateMetadataRequest) {
	m.Live = nil
	for _, b := range r.LiveBrokers {
		name := fmt.Sprint(b.ID)
		if b.HasRack {
			name = fmt.Sprint(b.ID, "*")
		}
		m.Live = append(m.Live, name)
	}
	for _, p := range r.Partitions {
		if p.Leader == kafka.LeaderDuringDelete {
			delete(m.Cache, p.TopicPartition)
			if !m.has(p.Topic) {
				delete(m.TopicIDs, p.Topic)
			}
			for _, topics := range m.Offsets {
				delete(topics, p.Topic)
			}
			continue
		}
		m.Cache[p.TopicPartition] = fmt.Sprint(p.Leader, p.LeaderEpoch)
		m.TopicIDs[p.Topic] = p.TopicID
	}
}

func (m *model) has(topic string) bool {
	for tp := range m.Cache {
		if tp.Topic == topic {
			return true
		}
	}
	return false
}

// drawQueue makes a queue as a loop could fill it, and stranger ones.
func drawQueue(t *rapid.T, s *bodies) []item {
	lives := [][]kafka.Broker{{{ID: 1}, {ID: 2}}, {{ID: 1}}, {{ID: 1}, {ID: 2, HasRack: true}}, nil}
	lives = append(lives, slices.Clone(lives[0])) // equal, but another list
	topics := rapid.SampledFrom([]string{"a", "b", groups})
	states := func(t *rapid.T) []*control.PartitionState {
		byTP := map[kafka.TopicPartition]*control.PartitionState{}
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			p := state(topics.Draw(t, "topic"), rapid.Int32Range(0, 2).Draw(t, "partition"), kafka.BrokerID(rapid.SampledFrom([]int32{1, 2, 1, 2, -1, -2}).Draw(t, "leader")), rapid.Int32Range(0, 9).Draw(t, "epoch"))
			if rapid.IntRange(0, 9).Draw(t, "other id") == 0 {
				p.TopicID[5] = 1
			}
			byTP[p.TopicPartition] = p
		}
		parts := slices.Collect(maps.Values(byTP))
		sort.Slice(parts, func(i, j int) bool { return parts[i].Compare(parts[j].TopicPartition) < 0 })
		for i := 1; i < len(parts); i++ { // one id per topic and request
			if parts[i].Topic == parts[i-1].Topic {
				parts[i].TopicID = parts[i-1].TopicID
			}
		}
		return parts
	}
	var q []item
	for range rapid.IntRange(0, 25).Draw(t, "requests") {
		b := kafka.Broker{Epoch: 1}
		if rapid.IntRange(0, 15).Draw(t, "other epoch") == 0 {
			b.Epoch = 2
		}
		switch rapid.SampledFrom([]int{4, 6, 6, 6, 5}).Draw(t, "key") {
		case 4:
			q = append(q, item{req: lisr(b, states(t)...)})
		case 6:
			m := &control.Metadata{Partitions: states(t), LiveBrokers: rapid.SampledFrom(lives).Draw(t, "live")}
			if rapid.IntRange(0, 3).Draw(t, "usual brokers") > 0 {
				m.LiveBrokers = lives[0]
			}
			q = append(q, item{req: umr(b, m), body: s.of(m)})
		default:
			q = append(q, item{req: sr(b, control.StopPartition{TopicPartition: tp(topics.Draw(t, "topic"), rapid.Int32Range(0, 2).Draw(t, "partition")), Delete: rapid.Bool().Draw(t, "delete")})})
		}
	}
	return q
}

// A broker that is sent the shortened queue ends where one that is sent every
// request does, and no request that was handed over has changed.
func TestCoalesceChangesNothing(t *testing.T) {
	merged := 0
	rapid.Check(t, func(t *rapid.T) {
		var s bodies
		q := drawQueue(t, &s)
		want := newModel()
		var before []string
		for _, it := range q {
			want.apply(it.req)
			before = append(before, fmt.Sprintf("%x", wire.AppendRequest(nil, it.req, wire.MaxVersion(it.req.Kind()))))
		}
		short := coalesce(slices.Clone(q), &s)
		got := newModel()
		for _, it := range short {
			got.apply(it.req)
			if um, ok := it.req.(*control.UpdateMetadataRequest); ok && it.body.given != um.Metadata {
				t.Fatal("a body that is not the request's")
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("from %d to %d requests (-all +shortened):\n%s", len(q), len(short), diff)
		}
		for i, it := range q {
			if now := fmt.Sprintf("%x", wire.AppendRequest(nil, it.req, wire.MaxVersion(it.req.Kind()))); now != before[i] {
				t.Fatalf("request %d was changed", i)
			}
		}
		merged += len(q) - len(short)
	})
	if merged == 0 {
		t.Error("nothing was ever merged")
	}
}

// The usual cases, so that the property above is not met by merging too little.
func TestCoalesceShortens(t *testing.T) {
	b := kafka.Broker{Epoch: 1}
	two, one := []kafka.Broker{{ID: 1}, {ID: 2}}, []kafka.Broker{{ID: 1}}
	u := func(live []kafka.Broker, parts ...*control.PartitionState) control.Request {
		return umr(b, &control.Metadata{Partitions: parts, LiveBrokers: live})
	}
	l := lisr(b, state("a", 0, 1, 1))
	stop := sr(b, control.StopPartition{TopicPartition: tp("a", 0)})
	gone := state("a", 0, kafka.LeaderDuringDelete, 0)
	for name, c := range map[string]struct {
		in   []control.Request
		want string
	}{
		"neighbours":               {[]control.Request{u(two, state("a", 0, 1, 1)), u(two, state("a", 0, 2, 2)), u(two, state("b", 0, 1, 1))}, "U(a-0/2 b-0/1)"},
		"neighbours, broker gone":  {[]control.Request{u(two, state("a", 0, 1, 1)), u(one)}, "U(a-0/1)"},
		"past LeaderAndIsr":        {[]control.Request{u(two), l, u(two, state("a", 0, 1, 1)), l, u(two, state("a", 1, 1, 1))}, "U(a-0/1 a-1/1) L L"},
		"not past, broker gone":    {[]control.Request{u(two), l, u(one), l, u(one, state("a", 0, 1, 1))}, "U() L U(a-0/1) L"},
		"not past StopReplica":     {[]control.Request{u(two), stop, u(two), u(two)}, "U() S U()"},
		"deletions":                {[]control.Request{u(two, gone), u(two, gone)}, "U(a-0/-2)"},
		"created again":            {[]control.Request{u(two, gone), u(two, state("a", 0, 1, 1))}, "U(a-0/-2) U(a-0/1)"},
		"deletion not past":        {[]control.Request{u(two), l, u(two, gone)}, "U() L U(a-0/-2)"},
		"another controller epoch": {[]control.Request{u(two), &control.UpdateMetadataRequest{Metadata: &control.Metadata{LiveBrokers: two}}}, "U() U()"},
	} {
		var s bodies
		var q []item
		for _, r := range c.in {
			it := item{req: r}
			if um, ok := r.(*control.UpdateMetadataRequest); ok {
				it.body = s.of(um.Metadata)
			}
			q = append(q, it)
		}
		got := ""
		for _, it := range coalesce(q, &s) {
			switch r := it.req.(type) {
			case *control.LeaderAndISRRequest:
				got += " L"
			case *control.StopReplicaRequest:
				got += " S"
			case *control.UpdateMetadataRequest:
				parts := ""
				for _, p := range r.Partitions {
					parts += fmt.Sprintf(" %s/%d", p.TopicPartition, p.Leader)
				}
				got += fmt.Sprintf(" U(%s)", parts[min(1, len(parts)):])
			}
		}
		if got[1:] != c.want {
			t.Errorf("%s: %s, want %s", name, got[1:], c.want)
		}
	}
}

// A queue that grew while its broker was silent goes out shortened; brokers
// that were silent together share the merged body.
func TestLongQueue(t *testing.T) {
	const batches = 500
	release := make(chan struct{})
	hold := func(r *wire.Request) bool { <-release; return false }
	sinks := []*sink{newSink(t, 1, table(7, 8, 4), hold), newSink(t, 2, table(7, 8, 4), hold)}
	d, q := newDispatcher(t, Options{})
	want := newModel()
	for _, s := range sinks {
		d.Add(s.broker)
		d.Send(s.broker.ID, numbered(s.broker, 0))
	}
	want.apply(numbered(sinks[0].broker, 0))
	for _, s := range sinks {
		s.wait(1)
	}
	live := []kafka.Broker{{ID: 1}, {ID: 2}}
	for n := range int32(batches) {
		p := state("orders", n%7, kafka.BrokerID(1+n%2), n)
		m := &control.Metadata{Partitions: []*control.PartitionState{p}, LiveBrokers: live}
		for _, s := range sinks {
			d.Send(s.broker.ID, lisr(s.broker, p))
			d.Send(s.broker.ID, umr(s.broker, m))
		}
		want.apply(lisr(sinks[0].broker, p))
		want.apply(umr(sinks[0].broker, m))
	}
	if st := d.Stats(); st.TotalQueueSize != 4*batches {
		t.Errorf("%d wait, want %d", st.TotalQueueSize, 4*batches)
	}
	close(release)
	for range 2 * (batches + 2) {
		q.take(t)
	}
	for _, s := range sinks {
		seen := s.wait(batches + 2)
		got := newModel()
		for _, r := range seen {
			got.apply(r.req)
		}
		want.Done, got.Done = nil, nil // of the first LeaderAndIsr: no broker was known yet, then
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("broker %d (-want +got):\n%s", s.broker.ID, diff)
		}
		if st := d.Stats().Brokers[s.broker.ID]; st.Merged != batches-1 || st.Answers != batches+2 {
			t.Errorf("broker %d: stats %+v", s.broker.ID, st)
		}
	}
}
