package zkpaths_test

import (
	"testing"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

var (
	// As Kafka 3.9.1 writes it.
	benchState = []byte(`{"controller_epoch":1,"leader":1001,"version":1,"leader_epoch":17,"isr":[1001,1002,1003]}`)
	// Beyond the fast path.
	benchOddState = []byte(`{"controller_epoch":1,"leader":1001,"version":1,"leader_epoch":17,"isr":[1001,1002,1003],"note":"x"}`)
	sink          int
)

func BenchmarkDecodePartitionState(b *testing.B) {
	for name, data := range map[string][]byte{"usual": benchState, "odd": benchOddState} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				l, err := zkpaths.DecodePartitionState(orders0, data, 1)
				if err != nil {
					b.Fatal(err)
				}
				sink += len(l.ISR)
			}
		})
	}
}

func BenchmarkEncodePartitionState(b *testing.B) {
	l := state(1001, 17, 3, 0, 1001, 1002, 1003)
	b.ReportAllocs()
	for b.Loop() {
		sink += len(zkpaths.EncodePartitionState(l))
	}
}

func BenchmarkAppendPartitionState(b *testing.B) {
	l := state(1001, 17, 3, 0, 1001, 1002, 1003)
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		buf = zkpaths.AppendPartitionState(buf[:0], l)
	}
	sink += len(buf)
}

func benchTopic(partitions int32, moving bool) zkpaths.Topic {
	t := zkpaths.Topic{Version: 3, ID: topicID("q3nZk0V9TyWc1xE5oRr8tg")}
	for n := range partitions {
		p := replicas(n, kafka.BrokerID(n%12), kafka.BrokerID((n+1)%12), kafka.BrokerID((n+2)%12))
		if moving {
			p.Adding, p.Removing = p.Replicas[:1], p.Replicas[2:]
		}
		t.Partitions = append(t.Partitions, p)
	}
	return t
}

var benchTopics = map[string]zkpaths.Topic{"1": benchTopic(1, false), "100": benchTopic(100, false), "100moving": benchTopic(100, true), "10000": benchTopic(10000, false)}

func BenchmarkDecodeTopic(b *testing.B) {
	for name, topic := range benchTopics {
		data := zkpaths.EncodeTopic(topic)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				t, err := zkpaths.DecodeTopic("orders", data)
				if err != nil {
					b.Fatal(err)
				}
				sink += len(t.Partitions)
			}
		})
	}
}

func BenchmarkEncodeTopic(b *testing.B) {
	for name, topic := range benchTopics {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink += len(zkpaths.EncodeTopic(topic))
			}
		})
	}
}

// TestAllocations holds what the benchmarks show: a failover decodes every
// state of the cluster.
func TestAllocations(t *testing.T) {
	l, topic := state(1001, 17, 3, 0, 1001, 1002, 1003), benchTopic(100, false)
	data := zkpaths.EncodeTopic(topic)
	buf := make([]byte, 0, 256)
	for _, e := range []struct {
		what string
		most float64
		run  func()
	}{
		{"DecodePartitionState", 1, func() { _, _ = zkpaths.DecodePartitionState(orders0, benchState, 1) }},
		{"EncodePartitionState", 1, func() { _ = zkpaths.EncodePartitionState(l) }},
		{"AppendPartitionState", 0, func() { _ = zkpaths.AppendPartitionState(buf[:0], l) }},
		{"DecodeTopic", 2, func() { _, _ = zkpaths.DecodeTopic("orders", data) }},
		{"EncodeTopic", 1, func() { _ = zkpaths.EncodeTopic(topic) }},
	} {
		if got := testing.AllocsPerRun(100, e.run); got > e.most {
			t.Errorf("%s allocates %v times, at most %v are allowed", e.what, got, e.most)
		}
	}
}
