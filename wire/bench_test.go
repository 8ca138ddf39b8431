package wire

import (
	"fmt"
	"testing"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// manyPartitions gives 1000 topics of 100 partitions with 3 replicas.
func manyPartitions() []*control.PartitionState {
	var out []*control.PartitionState
	for i := range 1000 {
		topic := fmt.Sprintf("topic-with-a-usual-name-%04d", i)
		for n := range int32(100) {
			first := kafka.BrokerID(n % 5)
			replicas := ids(1+first, 1+(first+1)%5, 1+(first+2)%5)
			p := &control.PartitionState{TopicPartition: tp(topic, n), TopicID: kafka.TopicID{1, byte(i), byte(i >> 8)}}
			p.Leadership = kafka.Leadership{ControllerEpoch: 5, LeaderAndISR: kafka.LeaderAndISR{Leader: replicas[0], LeaderEpoch: 3, ISR: replicas, ZKVersion: 4}}
			p.Replicas = replicas
			out = append(out, p)
		}
	}
	return out
}

func benchmarkEncode(b *testing.B, r control.Request) {
	version := MaxVersion(r.Kind())
	buf := AppendRequest(nil, r, version)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendRequest(buf[:0], r, version)
	}
}

func BenchmarkEncodeUpdateMetadata100k(b *testing.B) {
	benchmarkEncode(b, &control.UpdateMetadataRequest{Metadata: &control.Metadata{Partitions: manyPartitions()}})
}

func BenchmarkEncodeLeaderAndISR100k(b *testing.B) {
	benchmarkEncode(b, &control.LeaderAndISRRequest{Partitions: manyPartitions()})
}

func BenchmarkEncodeStopReplica100k(b *testing.B) {
	r := &control.StopReplicaRequest{}
	for _, p := range manyPartitions() {
		r.Partitions = append(r.Partitions, control.StopPartition{TopicPartition: p.TopicPartition, Delete: true})
	}
	benchmarkEncode(b, r)
}

func BenchmarkSendable100k(b *testing.B) {
	r := &control.LeaderAndISRRequest{Partitions: manyPartitions()}
	b.ReportAllocs()
	for b.Loop() {
		Sendable(r)
	}
}

func BenchmarkDecodeUpdateMetadata100k(b *testing.B) {
	buf := AppendRequest(nil, &control.UpdateMetadataRequest{Metadata: &control.Metadata{Partitions: manyPartitions()}}, 8)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := DecodeRequest(control.UpdateMetadataKey, 8, buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeLeaderAndISRAnswer100k(b *testing.B) {
	benchmarkAnswer(b, func(r control.Request, buf []byte) error { _, err := DecodeResponse(r, 7, buf); return err })
}

func BenchmarkDecodeLeaderAndISRFailures100k(b *testing.B) {
	benchmarkAnswer(b, func(r control.Request, buf []byte) error { _, _, err := DecodeFailures(r, 7, buf); return err })
}

func benchmarkAnswer(b *testing.B, decode func(control.Request, []byte) error) {
	r := &control.LeaderAndISRRequest{Partitions: manyPartitions()}
	errs := map[kafka.TopicPartition]kafka.ErrorCode{}
	eachAsked(r, func(tp kafka.TopicPartition) { errs[tp] = 0 })
	buf := AppendResponse(nil, &control.Response{Kind: control.LeaderAndISRKey, Request: r, Errors: errs}, 7)
	b.SetBytes(int64(len(buf)))
	b.ReportAllocs()
	for b.Loop() {
		if err := decode(r, buf); err != nil {
			b.Fatal(err)
		}
	}
}
