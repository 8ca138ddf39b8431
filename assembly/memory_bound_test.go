package assembly

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/brokers"
)

// Clients of brokers whose logs in memory are full: what they produce is taken, the
// beginning of the log moves on, and a consumer that stands before it is told so.
func TestClientsOfFullMemory(t *testing.T) {
	w := overTheWire(t, version(t, "3.9"), 2, func(p *BrokerOptions) { p.Broker.Logs.MemoryBytes = 256 << 10 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const n = 200
	producer := w.client(kgo.DefaultProduceTopic("t"), kgo.UnknownTopicRetries(-1), kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := range n {
		if err := producer.ProduceSync(ctx, &kgo.Record{Value: make([]byte, 10<<10)}).FirstErr(); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	starts, err := kadm.NewClient(producer).ListStartOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	start, _ := starts.Lookup("t", 0)
	if start.Err != nil || start.Offset < n-25 || start.Offset >= n {
		t.Fatalf("the log begins at %d, %v", start.Offset, start.Err)
	}
	old := w.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(3)}}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	for {
		fs := old.PollFetches(ctx)
		if errs := fs.Errors(); len(errs) > 0 {
			if !errors.Is(errs[0].Err, kerr.OffsetOutOfRange) {
				t.Errorf("a consumer at what is gone: %v", errs[0].Err)
			}
			break
		}
		if fs.NumRecords() > 0 {
			t.Fatal("records that are gone were read")
		}
	}
	fresh := w.client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for next := start.Offset; next < n; {
		fs := fresh.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("at %d: %v", next, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset != next {
				t.Errorf("record %d, want %d", r.Offset, next)
			}
			next = r.Offset + 1
		})
	}
	for _, p := range w.processes { // followers have no more than their leader
		s, err := p.Fault(ctx, brokers.FaultRequest{Broker: p.running[0].node.ID(), Op: "status"})
		if err != nil || s.State == nil || len(s.State.Partitions) != 1 {
			t.Fatalf("%+v %v", s, err)
		}
		if l := s.State.Partitions[0].Log; l.Size > 256<<10 || l.End != n {
			t.Errorf("broker %d: %+v", p.running[0].node.ID(), l)
		}
	}
}
