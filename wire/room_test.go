package wire

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceFrame is a Produce with acks=all and so many bytes of records.
func produceFrame(records int) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 3, -1
	topic, row := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	row.Records = make([]byte, records)
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, row)
	req.Topics = append(req.Topics, topic)
	return frame(req.AppendTo([]byte{0, 0, 0, 3, 0, 0, 0, 1, 0, 1, 'c'}))
}

// What producers of all connections of two listeners may have unanswered is
// shared: one that finds no room waits for another's answer, and one that is
// larger than all of it comes alone. Everybody else goes on.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := NewRoom(150)
		var mu sync.Mutex // handlers run on the connections' goroutines
		var produces []*Request
		others := 0
		handler := HandlerFunc(func(_ context.Context, r *Request) {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := r.Kafka.(*kmsg.ProduceRequest); ok {
				produces = append(produces, r)
				return
			}
			others++
			r.Done()
		})
		waiting := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(produces)
		}
		table := append([]APIVersion{offer(0, 3, 9)}, served...)
		var lns []*pipes
		for range 2 {
			ln := newPipes()
			s := Serve(ln, handler, ServerOptions{Table: table, Room: room})
			defer s.Close()
			lns = append(lns, ln)
		}
		send := func(n int, frames ...[]byte) net.Conn {
			nc := lns[n].dial()
			go func() {
				for _, f := range frames {
					if _, err := nc.Write(f); err != nil {
						return
					}
				}
				_, _ = nc.Read(make([]byte, 100))
			}()
			synctest.Wait()
			return nc
		}
		answerAll := func() {
			mu.Lock()
			all := produces
			produces = nil
			mu.Unlock()
			for _, r := range all {
				r.Reply(r.Kafka.ResponseKind())
			}
			synctest.Wait()
		}
		defer send(0, produceFrame(60)).Close()
		defer send(1, produceFrame(60)).Close()
		if waiting() != 1 {
			t.Fatalf("%d requests at once where there is room for one", waiting())
		}
		defer send(1, frame(metadata(0).AppendTo([]byte{0, 3, 0, 0, 0, 0, 0, 1, 0, 1, 'c'}))).Close()
		if others != 1 {
			t.Error("a request that brings no records waits for producers")
		}
		answerAll()
		if waiting() != 1 {
			t.Fatalf("%d requests after the first was answered, want the second", waiting())
		}
		defer send(0, produceFrame(1000)).Close()
		if waiting() != 1 {
			t.Fatal("a request larger than the room came though another was there")
		}
		answerAll()
		if waiting() != 1 || room.Used() != 150 {
			t.Fatalf("a request larger than the room never came; %d bytes used", room.Used())
		}
		gone := send(1, produceFrame(10)) // waits, and is given up: its turn frees what it takes
		gone.Close()
		answerAll()
		answerAll()
		if room.Used() != 0 {
			t.Errorf("%d bytes used when all was answered", room.Used())
		}
	})
}
