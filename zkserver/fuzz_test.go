package zkserver

import (
	"runtime"
	"testing"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// FuzzRequests sends any body with any op code: no panic, one answer or the
// end of the connection, and no more memory than the request gives reason for.
func FuzzRequests(f *testing.F) {
	acl := OpenACL()
	for op, body := range map[int32][]byte{
		zkwire.OpCreate:          (&zkwire.CreateRequest{Path: "/a", ACL: acl}).Append(nil),
		zkwire.OpCreate2:         (&zkwire.CreateRequest{Path: "/b-", ACL: acl, Flags: 3}).Append(nil),
		zkwire.OpCreateContainer: (&zkwire.CreateRequest{Path: "/c", ACL: acl, Flags: 4}).Append(nil),
		zkwire.OpCreateTTL:       (&zkwire.CreateRequest{Path: "/t", ACL: acl, Flags: 5, TTL: 1000}).AppendTTL(nil),
		zkwire.OpDelete:          zkwire.PathInt{Path: "/n", N: 0}.Append(nil),
		zkwire.OpExists:          watchBody("/x"),
		zkwire.OpGetData:         watchBody("/n"),
		zkwire.OpSetData:         setBody("/n", "data"),
		zkwire.OpGetACL:          zkwire.AppendString(nil, "/n"),
		zkwire.OpSetACL:          (&zkwire.SetACLRequest{Path: "/n", ACL: acl, Version: -1}).Append(nil),
		zkwire.OpGetChildren:     watchBody("/"),
		zkwire.OpGetChildren2:    watchBody("/n"),
		zkwire.OpSync:            zkwire.AppendString(nil, "/"),
		zkwire.OpPing:            nil,
		zkwire.OpCheck:           zkwire.PathInt{Path: "/n", N: 0}.Append(nil),
		zkwire.OpMulti: zkwire.AppendMultiEnd((&zkwire.Op{Type: zkwire.OpCheck, Path: "/n", Version: 0}).Append(
			(&zkwire.Op{Type: zkwire.OpCreate2, Path: "/m", ACL: acl}).Append(nil))),
		zkwire.OpMultiRead: zkwire.AppendMultiEnd((&zkwire.Op{Type: zkwire.OpGetData, Path: "/n"}).Append(
			(&zkwire.Op{Type: zkwire.OpGetChildren, Path: "/"}).Append(nil))),
		zkwire.OpReconfig:             (&zkwire.ReconfigRequest{}).Append(nil),
		zkwire.OpCheckWatches:         zkwire.PathInt{Path: "/n", N: 3}.Append(nil),
		zkwire.OpRemoveWatches:        zkwire.PathInt{Path: "/n", N: 1}.Append(nil),
		zkwire.OpDeleteContainer:      []byte("/n"),
		zkwire.OpAuth:                 (&zkwire.AuthRequest{Scheme: "digest", Auth: []byte("u:p")}).Append(nil),
		zkwire.OpSetWatches:           (&zkwire.SetWatches{Data: []string{"/n"}, Exist: []string{"/x"}, Child: []string{"/"}}).Append(nil),
		zkwire.OpSetWatches2:          (&zkwire.SetWatches{Persistent: []string{"/n"}, PersistentRecursive: []string{"/"}}).Append2(nil),
		zkwire.OpSASL:                 zkwire.AppendBuffer(nil, []byte("x")),
		zkwire.OpGetEphemerals:        zkwire.AppendString(nil, "/"),
		zkwire.OpGetAllChildrenNumber: zkwire.AppendString(nil, "/"),
		zkwire.OpAddWatch:             zkwire.PathInt{Path: "/n", N: 1}.Append(nil),
		zkwire.OpWhoAmI:               nil,
		zkwire.OpCreateSession:        nil,
		zkwire.OpCloseSession:         nil,
		99:                            nil,
	} {
		f.Add(op, body)
	}
	f.Fuzz(func(t *testing.T, op int32, body []byte) {
		s, err := New(Options{Clock: NewManualClock(), ExtendedTypes: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		client, server := newPipe()
		defer client.Close()
		c := newConn(s, server)
		s.mu.Lock()
		defer s.mu.Unlock()
		c.id = 1
		s.conns[1] = c
		c.attach(s.openSession(1e9))
		s.tree.Write(c.who, 1, Op{Path: "/n", Data: []byte("x"), ACL: OpenACL()})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		zxid, sent := s.tree.Zxid(), c.info.sent
		frame := append(zkwire.RequestHeader{Xid: 7, Op: op}.Append(nil), body...)
		c.request(frame, 2)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20+400*uint64(len(frame)) {
			t.Errorf("a request of %d bytes had %d bytes allocated", len(frame), got)
		}
		if c.info.sent == sent && !c.closing {
			t.Error("no answer, and the connection stays")
		}
		if cost := s.tree.Zxid() - zxid; cost < 0 || cost > 1 {
			t.Errorf("it cost %d zxids", cost)
		}
		// All frames in out are whole.
		d := zkwire.NewDecoder(c.out)
		for d.Len() > 0 {
			if d.Buffer(); d.Err() != nil {
				t.Fatalf("the answer is not made of frames: %v", d.Err())
			}
		}
	})
}

// FuzzHandshake begins a connection with any bytes: no panic, and a second
// connection still gets its session.
func FuzzHandshake(f *testing.F) {
	for _, b := range [][]byte{
		framed((&zkwire.ConnectRequest{Timeout: 1000, Password: make([]byte, 16), HasReadOnly: true}).Append(nil)),
		framed((&zkwire.ConnectRequest{Timeout: 1000, SessionID: 5}).Append(nil)),
		[]byte("ruok"), []byte("mntr"), []byte("wchp"), []byte("GET / HTTP/1.1\r\n\r\n"), {0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff}, {0x16, 3, 1, 0, 5, 1},
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := New(Options{Clock: NewManualClock(), FourLetterWords: []string{"*"}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c := dialRaw(t, s)
		c.nc.Write(b)
		c.nc.(*pipeEnd).out.closeWriter()
		c.gone()
		if !dialRaw(t, s).connect(zkwire.ConnectRequest{Timeout: 1000}) {
			t.Error("no session for the next client")
		}
	})
}
