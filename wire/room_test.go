package wire

import (
	"context"
	"io"
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
		var servers []*Server
		for range 2 {
			ln := newPipes()
			s := Serve(ln, handler, ServerOptions{Table: table, Room: room})
			defer s.Close()
			lns, servers = append(lns, ln), append(servers, s)
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
		gone = send(0, produceFrame(60)) // comes, and is given up: it takes room until it is answered
		gone.Close()
		synctest.Wait()
		if room.Used() == 0 {
			t.Error("the room of a request is free while the handler has it")
		}
		answerAll()
		if room.Used() != 0 {
			t.Errorf("%d bytes used when the last was answered", room.Used())
		}
		gone = send(0, produceFrame(60)) // never answered: the server's end frees it
		gone.Close()
		synctest.Wait()
		for _, s := range servers {
			s.Close()
		}
		if room.Used() != 0 {
			t.Errorf("%d bytes used after the servers' end", room.Used())
		}
	})
}

// A Produce that is announced and not sent keeps no other producer out: what is
// taken for it grows with what has come. One that comes, if slowly, gets all it needs.
func TestRoomIsTakenAsItComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := NewRoom(16 << 20)
		came := 0
		handler := HandlerFunc(func(_ context.Context, r *Request) {
			came++
			r.Reply(r.Kafka.ResponseKind())
		})
		ln := newPipes()
		s := Serve(ln, handler, ServerOptions{Table: []APIVersion{offer(0, 3, 9)}, Room: room})
		defer s.Close()
		whole := produceFrame(10 << 20)
		send := func(b []byte) net.Conn {
			nc := ln.dial()
			go func() { _, _ = nc.Write(b) }()
			synctest.Wait()
			return nc
		}
		for range 8 {
			defer send(whole[:1000]).Close()
		}
		if room.Used() != 8<<20 {
			t.Errorf("%d bytes taken for 8 requests of which a kilobyte came, want a megabyte each", room.Used())
		}
		nc := send(produceFrame(3 << 20))
		defer nc.Close()
		if _, err := nc.Read(make([]byte, 100)); err != nil || came != 1 {
			t.Errorf("a producer between those that send nothing: %d came, %v", came, err)
		}
	})
}

// Requests without records unfold to many times their size: those that are not
// small share a room, too, and who finds none in time is told to go. Small ones,
// and a controller's, go on.
func TestLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := NewRoom(150 << 10)
		var mu sync.Mutex
		var got []*Request
		handler := HandlerFunc(func(_ context.Context, r *Request) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r)
		})
		waiting := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(got)
		}
		ln := newPipes()
		s := Serve(ln, handler, ServerOptions{Table: served, Large: large})
		defer s.Close()
		names := func(n int) []byte {
			req := metadata(0)
			for range n {
				topic := kmsg.NewMetadataRequestTopic()
				topic.Topic = kmsg.StringPtr("a-name-of-20-letters")
				req.Topics = append(req.Topics, topic)
			}
			return frame(req.AppendTo([]byte{0, 3, 0, 0, 0, 0, 0, 1, 0, 1, 'c'}))
		}
		send := func(b []byte) net.Conn {
			nc := ln.dial()
			go func() { _, _ = nc.Write(b) }()
			synctest.Wait()
			return nc
		}
		defer send(names(4000)).Close()
		second := send(names(4000))
		defer second.Close()
		if waiting() != 1 {
			t.Fatalf("%d large requests at once where there is room for one", waiting())
		}
		tooLarge := send([]byte{1, 0x10, 0, 0, 0, 3, 0, 0, 0}) // 17 MiB
		if n, err := tooLarge.Read(make([]byte, 100)); err != io.EOF {
			t.Errorf("a request for topics of 17 MiB: %d bytes, %v", n, err)
		}
		defer send(names(1)).Close()
		if waiting() != 2 {
			t.Error("a small request waits for large ones")
		}
		if n, err := second.Read(make([]byte, 100)); err == nil {
			t.Errorf("a request that found no room in time was answered with %d bytes", n)
		}
		if waiting() != 2 {
			t.Errorf("%d requests came, want the first large and the small one", waiting())
		}
	})
}

// Servers that are told the same share the room for large requests.
func TestLargeIsShared(t *testing.T) {
	shared := &Shared{}
	one, two := ServerOptions{Shared: shared}.withDefaults(), ServerOptions{Shared: shared}.withDefaults()
	other := ServerOptions{}.withDefaults()
	if one.Large != two.Large || one.Large == other.Large || other.Large == nil {
		t.Errorf("rooms %p, %p and of another process %p", one.Large, two.Large, other.Large)
	}
}
