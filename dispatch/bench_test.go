package dispatch

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// fastSink reads requests without looking at them and answers from what was
// prepared, so that a benchmark measures the dispatcher.
func fastSink(b *testing.B, leaderAndISR []byte) kafka.Endpoint {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r := bufio.NewReaderSize(c, 1<<18)
		for {
			h, err := r.Peek(12)
			if err != nil {
				return
			}
			key, corr := binary.BigEndian.Uint16(h[4:]), append([]byte(nil), h[8:12]...)
			if _, err := io.CopyN(io.Discard, r, 4+int64(binary.BigEndian.Uint32(h))); err != nil {
				return
			}
			body := []byte{0, 0, 0, 0} // header tags, error, tags
			switch key {
			case 18:
				body = []byte{0, 0, 4, 0, 4, 0, 0, 0, 7, 0, 0, 5, 0, 0, 0, 4, 0, 0, 6, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0}
			case 4:
				body = leaderAndISR
			}
			out := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
			if _, err := c.Write(append(append(out, corr...), body...)); err != nil {
				return
			}
		}
	})
	b.Cleanup(func() { ln.Close(); wg.Wait() })
	return kafka.Endpoint{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: int32(ln.Addr().(*net.TCPAddr).Port)}
}

// BenchmarkFlush100k is one batch of a controller that was just elected: five
// brokers, 1000 topics of 100 partitions with three replicas, over loopback. It
// ends when all answers have come.
func BenchmarkFlush100k(b *testing.B) {
	var parts []*control.PartitionState
	byBroker := map[kafka.BrokerID][]*control.PartitionState{}
	for i := range 1000 {
		topic := fmt.Sprintf("topic-%04d", i)
		for n := range int32(100) {
			p := state(topic, n, 0, 3)
			p.TopicID = kafka.TopicID{1, byte(i), byte(i >> 8)}
			p.Replicas = nil
			for r := range int32(3) {
				p.Replicas = append(p.Replicas, kafka.BrokerID(1+(n+r)%5))
			}
			p.ISR, p.Leader = p.Replicas, p.Replicas[0]
			parts = append(parts, p)
			for _, id := range p.Replicas {
				byBroker[id] = append(byBroker[id], p)
			}
		}
	}
	for _, failuresOnly := range []bool{false, true} {
		b.Run(fmt.Sprintf("failures-only=%t", failuresOnly), func(b *testing.B) {
			var brokers []kafka.Broker
			for id := range kafka.BrokerID(5) {
				req := &control.LeaderAndISRRequest{Partitions: byBroker[id+1]}
				resp := success(req)
				resp.Kind, resp.Request = req.Kind(), req
				brokers = append(brokers, kafka.Broker{ID: id + 1, Epoch: 1, Endpoints: []kafka.Endpoint{fastSink(b, wire.AppendResponse([]byte{0}, &resp, 7))}})
			}
			answers := make(chan events.Event, 10)
			d := New(Options{ControllerID: 9, Version: kafka.V3_9IV0, FailuresOnly: failuresOnly, Put: func(ev events.Event) { answers <- ev }})
			b.Cleanup(d.Close) // before the sinks, which wait for their connections' ends
			for _, k := range brokers {
				d.Add(k)
			}
			b.ReportAllocs()
			for b.Loop() {
				m := &control.Metadata{Partitions: parts, LiveBrokers: slices.Clone(brokers)}
				for _, k := range brokers {
					d.Send(k.ID, lisr(k, byBroker[k.ID]...))
				}
				for _, k := range brokers {
					d.Send(k.ID, umr(k, m))
				}
				for range 2 * len(brokers) {
					<-answers
				}
			}
		})
	}
}

// BenchmarkRoundTrip is one small request to one broker, from Send to event.
func BenchmarkRoundTrip(b *testing.B) {
	k := kafka.Broker{ID: 1, Epoch: 1, Endpoints: []kafka.Endpoint{fastSink(b, nil)}}
	answers := make(chan events.Event, 1)
	d := New(Options{ControllerID: 9, Version: kafka.V3_9IV0, Put: func(ev events.Event) { answers <- ev }})
	b.Cleanup(d.Close)
	d.Add(k)
	b.ReportAllocs()
	for b.Loop() {
		d.Send(1, numbered(k, 0))
		<-answers
	}
}
