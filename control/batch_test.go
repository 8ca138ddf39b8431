package control_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func broker(id kafka.BrokerID) kafka.Broker {
	return kafka.Broker{ID: id, Epoch: 100 + int64(id), Endpoints: []kafka.Endpoint{
		{Listener: "INTERNAL", Protocol: kafka.Plaintext, Host: fmt.Sprint("i", id), Port: 9093},
		{Listener: "PLAINTEXT", Protocol: kafka.Plaintext, Host: fmt.Sprint("h", id), Port: 9092},
	}}
}

func sender(ids ...kafka.BrokerID) control.Sender {
	s := control.Sender{ID: 9, Epoch: 4}
	for _, id := range ids {
		s.Brokers = append(s.Brokers, broker(id))
	}
	return s
}

func state(topic string, n int32, leader kafka.BrokerID, epoch int32, isNew bool) *control.PartitionState {
	return &control.PartitionState{TopicPartition: kafka.TopicPartition{Topic: topic, Partition: n}, IsNew: isNew,
		Leadership: kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: leader, LeaderEpoch: epoch}}}
}

// text prints flushed requests: one line each.
func text(out []control.Addressed) []string {
	var lines []string
	for _, a := range out {
		line := fmt.Sprintf("%s to %d epoch %d:", a.Request.Kind(), a.To, a.Request.Epoch())
		switch r := a.Request.(type) {
		case *control.LeaderAndISRRequest:
			for _, p := range r.Partitions {
				line += fmt.Sprintf(" %s L=%d LE=%d new=%v", p.TopicPartition, p.Leader, p.LeaderEpoch, p.IsNew)
			}
			for _, l := range r.LiveLeaders {
				line += fmt.Sprintf(" [%d at %s:%d]", l.ID, l.Host, l.Port)
			}
		case *control.UpdateMetadataRequest:
			for _, p := range r.Partitions {
				line += fmt.Sprintf(" %s L=%d LE=%d", p.TopicPartition, p.Leader, p.LeaderEpoch)
			}
			line += " live="
			for _, b := range r.LiveBrokers {
				line += fmt.Sprint(b.ID, ";")
			}
		case *control.StopReplicaRequest:
			for _, p := range r.Partitions {
				line += fmt.Sprintf(" %s LE=%d delete=%v", p.TopicPartition, p.LeaderEpoch, p.Delete)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func check(t *testing.T, out []control.Addressed, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, text(out)); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
}

// spec/controller.md §6.2: the last entry counts, but "new" and "delete" stick.
func TestLastEntryCounts(t *testing.T) {
	var b control.Batch
	b.LeaderAndISR([]kafka.BrokerID{1, 2}, state("t", 0, 1, 0, true))
	b.LeaderAndISR([]kafka.BrokerID{2}, state("t", 0, 2, 1, false))
	b.Stop(1, control.StopPartition{TopicPartition: kafka.TopicPartition{Topic: "t"}, LeaderEpoch: 1, Delete: true})
	b.Stop(1, control.StopPartition{TopicPartition: kafka.TopicPartition{Topic: "t"}, LeaderEpoch: 2})
	b.Metadata([]kafka.BrokerID{1}, state("t", 0, 1, 0, false))
	b.Metadata([]kafka.BrokerID{2}, state("t", 0, 2, 1, false))
	check(t, b.Flush(sender(1, 2)),
		"LeaderAndIsr to 1 epoch 101: t-0 L=1 LE=0 new=true [1 at h1:9092]",
		"LeaderAndIsr to 2 epoch 102: t-0 L=2 LE=1 new=true [2 at h2:9092]",
		"UpdateMetadata to 1 epoch 101: t-0 L=2 LE=1 live=1;2;",
		"UpdateMetadata to 2 epoch 102: t-0 L=2 LE=1 live=1;2;",
		"StopReplica to 1 epoch 101: t-0 LE=2 delete=true")
	if !b.Empty() || b.Flush(sender(1, 2)) != nil {
		t.Error("a flush leaves something behind")
	}
}

// Only registered brokers get anything, ids below 0 are dropped, partitions
// are sorted, and a broker list alone is an UpdateMetadata without partitions.
func TestReceivers(t *testing.T) {
	var b control.Batch
	b.LeaderAndISR([]kafka.BrokerID{-1, 3, 1}, state("t", 1, 3, 0, false))
	b.LeaderAndISR([]kafka.BrokerID{1}, state("t", 0, -1, 0, false))
	b.LeaderAndISR([]kafka.BrokerID{1}, state("a", 7, 1, 0, false))
	b.Stop(-1, control.StopPartition{})
	b.Stop(3, control.StopPartition{})
	b.Metadata([]kafka.BrokerID{2, 3, -2})
	check(t, b.Flush(sender(1, 2)),
		"LeaderAndIsr to 1 epoch 101: a-7 L=1 LE=0 new=false t-0 L=-1 LE=0 new=false t-1 L=3 LE=0 new=false [1 at h1:9092]",
		"UpdateMetadata to 2 epoch 102: live=1;2;")
	b.Stop(-1, control.StopPartition{})
	if !b.Empty() {
		t.Error("an id below 0 counts")
	}
}

// A controller that shows itself is in the broker list, in its place, once;
// leaders' addresses are those of the control listener.
func TestSelfAndListener(t *testing.T) {
	self := broker(2)
	s := sender(1, 2, 3)
	s.Self, s.Listener = &self, "INTERNAL"
	var b control.Batch
	b.LeaderAndISR([]kafka.BrokerID{1}, state("t", 0, 3, 0, false))
	b.Metadata([]kafka.BrokerID{1})
	check(t, b.Flush(s), "LeaderAndIsr to 1 epoch 101: t-0 L=3 LE=0 new=false [3 at i3:9093]", "UpdateMetadata to 1 epoch 101: live=1;2;3;")
	s.Brokers = []kafka.Broker{broker(1), broker(3)}
	b.Metadata([]kafka.BrokerID{3})
	check(t, b.Flush(s), "UpdateMetadata to 3 epoch 103: live=1;2;3;")
}

// naiveBatch keeps maps, as spec/controller.md §6.2 tells it.
type naiveBatch struct {
	leaders map[kafka.BrokerID]map[kafka.TopicPartition]control.PartitionState
	meta    map[kafka.TopicPartition]*control.PartitionState
	metaTo  map[kafka.BrokerID]bool
	stops   map[kafka.BrokerID]map[kafka.TopicPartition]control.StopPartition
}

func (n *naiveBatch) reset() {
	*n = naiveBatch{map[kafka.BrokerID]map[kafka.TopicPartition]control.PartitionState{}, map[kafka.TopicPartition]*control.PartitionState{},
		map[kafka.BrokerID]bool{}, map[kafka.BrokerID]map[kafka.TopicPartition]control.StopPartition{}}
}

func sortedOf[V any](m map[kafka.TopicPartition]V) []kafka.TopicPartition {
	var out []kafka.TopicPartition
	for tp := range m {
		out = append(out, tp)
	}
	kafka.SortPartitions(out)
	return out
}

func (n *naiveBatch) flush(brokers []kafka.Broker) []string {
	var lines []string
	for _, b := range brokers {
		if m := n.leaders[b.ID]; len(m) > 0 {
			line := fmt.Sprintf("LeaderAndIsr to %d", b.ID)
			for _, tp := range sortedOf(m) {
				line += fmt.Sprintf(" %s LE=%d new=%v", tp, m[tp].LeaderEpoch, m[tp].IsNew)
			}
			lines = append(lines, line)
		}
	}
	for _, b := range brokers {
		if n.metaTo[b.ID] {
			line := fmt.Sprintf("UpdateMetadata to %d", b.ID)
			for _, tp := range sortedOf(n.meta) {
				line += fmt.Sprintf(" %s LE=%d", tp, n.meta[tp].LeaderEpoch)
			}
			lines = append(lines, line)
		}
	}
	for _, b := range brokers {
		if m := n.stops[b.ID]; len(m) > 0 {
			line := fmt.Sprintf("StopReplica to %d", b.ID)
			for _, tp := range sortedOf(m) {
				line += fmt.Sprintf(" %s LE=%d delete=%v", tp, m[tp].LeaderEpoch, m[tp].Delete)
			}
			lines = append(lines, line)
		}
	}
	n.reset()
	return lines
}

func plain(out []control.Addressed) []string {
	var lines []string
	for _, a := range out {
		line := fmt.Sprintf("%s to %d", a.Request.Kind(), a.To)
		switch r := a.Request.(type) {
		case *control.LeaderAndISRRequest:
			for _, p := range r.Partitions {
				line += fmt.Sprintf(" %s LE=%d new=%v", p.TopicPartition, p.LeaderEpoch, p.IsNew)
			}
		case *control.UpdateMetadataRequest:
			for _, p := range r.Partitions {
				line += fmt.Sprintf(" %s LE=%d", p.TopicPartition, p.LeaderEpoch)
			}
		case *control.StopReplicaRequest:
			for _, p := range r.Partitions {
				line += fmt.Sprintf(" %s LE=%d delete=%v", p.TopicPartition, p.LeaderEpoch, p.Delete)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// The batch is the naive one, whatever is added in whatever order; and what was
// added is never changed, since several requests share it.
func TestBatchIsTheNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b control.Batch
		var n naiveBatch
		n.reset()
		var added []*control.PartitionState
		var copies []control.PartitionState
		ids := rapid.SliceOfNDistinct(rapid.Int32Range(0, 4), 0, 5, rapid.ID[int32])
		brokers := func(name string) []kafka.BrokerID {
			var out []kafka.BrokerID
			for _, id := range ids.Draw(t, name) {
				out = append(out, kafka.BrokerID(id))
			}
			return out
		}
		tp := func() kafka.TopicPartition {
			return kafka.TopicPartition{Topic: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "topic"), Partition: rapid.Int32Range(0, 2).Draw(t, "partition")}
		}
		entry := func() *control.PartitionState {
			at := tp()
			p := state(at.Topic, at.Partition, 1, rapid.Int32Range(0, 99).Draw(t, "epoch"), rapid.Bool().Draw(t, "new"))
			added, copies = append(added, p), append(copies, *p)
			return p
		}
		t.Repeat(map[string]func(*rapid.T){
			"leader and isr": func(*rapid.T) {
				p, to := entry(), brokers("to")
				b.LeaderAndISR(to, p)
				for _, id := range to {
					if n.leaders[id] == nil {
						n.leaders[id] = map[kafka.TopicPartition]control.PartitionState{}
					}
					next := *p
					next.IsNew = p.IsNew || n.leaders[id][p.TopicPartition].IsNew
					n.leaders[id][p.TopicPartition] = next
				}
			},
			"metadata": func(*rapid.T) {
				to := brokers("to")
				var ps []*control.PartitionState
				for range rapid.IntRange(0, 2).Draw(t, "partitions") {
					ps = append(ps, entry())
				}
				b.Metadata(to, ps...)
				for _, id := range to {
					n.metaTo[id] = true
				}
				for _, p := range ps {
					n.meta[p.TopicPartition] = p
				}
			},
			"stop": func(*rapid.T) {
				s := control.StopPartition{TopicPartition: tp(), LeaderEpoch: rapid.Int32Range(-2, 9).Draw(t, "epoch"), Delete: rapid.Bool().Draw(t, "delete")}
				for _, id := range brokers("to") {
					b.Stop(id, s)
					if n.stops[id] == nil {
						n.stops[id] = map[kafka.TopicPartition]control.StopPartition{}
					}
					next := s
					next.Delete = s.Delete || n.stops[id][s.TopicPartition].Delete
					n.stops[id][s.TopicPartition] = next
				}
			},
			"flush": func(t *rapid.T) {
				registered := brokers("registered")
				slices.Sort(registered)
				s := sender(registered...)
				if got, want := plain(b.Flush(s)), n.flush(s.Brokers); !slices.Equal(got, want) {
					t.Fatalf("got\n%q\nwant\n%q", got, want)
				}
				if !b.Empty() {
					t.Fatal("not empty after a flush")
				}
			},
			"": func(t *rapid.T) {
				for i := range added {
					if added[i].IsNew != copies[i].IsNew || added[i].LeaderEpoch != copies[i].LeaderEpoch {
						t.Fatalf("entry %d was changed", i)
					}
				}
			},
		})
	})
}

// A flush of what an election of 10 000 partitions says to six brokers.
func BenchmarkFlush(b *testing.B) {
	const n = 10_000
	states := make([]*control.PartitionState, n)
	for i := range states {
		states[i] = state(fmt.Sprintf("topic-%03d", i/100), int32(i%100), kafka.BrokerID(i%6), 1, false)
	}
	s := sender(0, 1, 2, 3, 4, 5)
	all := []kafka.BrokerID{0, 1, 2, 3, 4, 5}
	b.ReportAllocs()
	for b.Loop() {
		var batch control.Batch
		for i, p := range states {
			batch.LeaderAndISR([]kafka.BrokerID{kafka.BrokerID(i % 6), kafka.BrokerID((i + 1) % 6), kafka.BrokerID((i + 2) % 6)}, p)
			batch.Metadata(all, p)
		}
		if out := batch.Flush(s); len(out) != 12 {
			b.Fatalf("%d requests", len(out))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/partition")
}
