package zkserver

import (
	"bufio"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// benchConn opens a session over TCP, or in memory.
func benchConn(b *testing.B, s *Server, tcp bool) net.Conn {
	b.Helper()
	nc, err := s.Dial(b.Context(), "", "")
	if tcp {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			b.Fatal(err)
		}
		go s.Serve(l)
		nc, err = net.Dial("tcp", l.Addr().String())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { nc.Close() })
	if _, err := nc.Write(framed((&zkwire.ConnectRequest{Timeout: 60_000, Password: make([]byte, 16)}).Append(nil))); err != nil {
		b.Fatal(err)
	}
	if _, err := zkwire.ReadFrame(nc, nil, 100); err != nil {
		b.Fatal(err)
	}
	return nc
}

// run sends b.N requests, at most window of them unanswered.
func run(b *testing.B, nc net.Conn, window int, op int32, body func(i int) []byte) {
	b.ReportAllocs()
	b.ResetTimer()
	slots := make(chan struct{}, window)
	go func() {
		w := bufio.NewWriterSize(nc, 64<<10)
		for i := range b.N {
			select {
			case slots <- struct{}{}:
			default:
				w.Flush()
				slots <- struct{}{}
			}
			w.Write(framed(append(zkwire.RequestHeader{Xid: int32(i), Op: op}.Append(nil), body(i)...)))
		}
		w.Flush()
	}()
	r := bufio.NewReaderSize(nc, 64<<10)
	var buf []byte
	for range b.N {
		var err error
		if buf, err = zkwire.ReadFrame(r, buf[:0], 1<<20); err != nil {
			b.Fatal(err)
		}
		<-slots
	}
}

func BenchmarkServer(b *testing.B) {
	for _, where := range []string{"memory", "tcp", "disk", "fsync"} {
		for _, window := range []int{1, 50} {
			for _, what := range []string{"get", "set", "create"} {
				b.Run(fmt.Sprintf("%s/window=%d/%s", where, window, what), func(b *testing.B) {
					o := Options{NoForceSync: where == "disk"}
					if where == "disk" || where == "fsync" {
						o.DataDir = b.TempDir()
					}
					s, err := New(o)
					if err != nil {
						b.Fatal(err)
					}
					defer s.Close()
					nc := benchConn(b, s, where != "memory")
					nc.Write(framed(append(zkwire.RequestHeader{Op: zkwire.OpCreate}.Append(nil), createBody("/n", "", 0)...)))
					if _, err := zkwire.ReadFrame(nc, nil, 100); err != nil {
						b.Fatal(err)
					}
					data := string(make([]byte, 100))
					switch what {
					case "get":
						run(b, nc, window, zkwire.OpGetData, func(int) []byte { return pathBody("/n") })
					case "set":
						run(b, nc, window, zkwire.OpSetData, func(int) []byte { return setBody("/n", data) })
					case "create":
						run(b, nc, window, zkwire.OpCreate, func(i int) []byte { return createBody(fmt.Sprintf("/n/%d", i), data, 0) })
					}
				})
			}
		}
	}
}

// BenchmarkStart is a server's life from New to the first session and Close.
func BenchmarkStart(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(fmt.Sprintf("durable=%v", durable), func(b *testing.B) {
			for range b.N {
				o := Options{TickTime: time.Second}
				if durable {
					o.DataDir = b.TempDir()
				}
				s, err := New(o)
				if err != nil {
					b.Fatal(err)
				}
				benchConn(b, s, false)
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
