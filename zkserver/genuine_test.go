package zkserver

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// What follows was asked of Apache 3.9.5 beside this server.

func TestASessionTakenUpWithAShorterTimeout(t *testing.T) {
	clock := NewManualClock()
	s := serverFor(t, Options{Clock: clock, TickTime: time.Second})
	a, b := dial(t, s, 15*time.Second), dial(t, s, 20*time.Second)
	a.create("/a", "", zkwire.FlagEphemeral)
	a.timeout = 3000
	if _, ok := resume(t, s, a); !ok {
		t.Fatal("the session was not taken up")
	}
	clock.Advance(3999 * time.Millisecond)
	if !b.exists("/a") {
		t.Error("the session expired before its tick")
	}
	clock.Advance(time.Millisecond)
	if b.exists("/a") {
		t.Error("the session kept its former timeout")
	}
}

// TestOnlyItsOpCodeMakesAContainer: create and create2 with a container's flags
// make a node that stays, but in a multi.
func TestOnlyItsOpCodeMakesAContainer(t *testing.T) {
	clock := NewManualClock()
	s := serverFor(t, Options{Clock: clock, TickTime: time.Second})
	c := dial(t, s, 20*time.Second)
	c.create("/create", "", zkwire.FlagContainer)
	c.must(zkwire.OpCreate2, createBody("/create2", "", zkwire.FlagContainer))
	c.must(zkwire.OpCreateContainer, createBody("/op", "", 0))
	c.must(zkwire.OpMulti, multiBody(zkwire.OpCreate, createBody("/multi", "", zkwire.FlagContainer)))
	paths := []string{"/create", "/create2", "/op", "/multi"}
	for _, p := range paths {
		c.create(p+"/x", "", 0)
		c.must(zkwire.OpDelete, zkwire.PathInt{Path: p + "/x", N: -1}.Append(nil))
	}
	for range 6 {
		clock.Advance(10 * time.Second)
		c.must(zkwire.OpPing, nil)
	}
	var left []string
	for _, p := range paths {
		if c.exists(p) {
			left = append(left, p)
		}
	}
	if diff := cmp.Diff([]string{"/create", "/create2"}, left); diff != "" {
		t.Errorf("left after a sweep (-want +got):\n%s", diff)
	}
}

// multiBody is a multi or multiRead of one operation.
func multiBody(op int32, body []byte) []byte {
	b := zkwire.AppendInt32(append(zkwire.AppendInt32(nil, op), 0), -1)
	return zkwire.AppendMultiEnd(append(b, body...))
}

func TestWhatCannotBeReadHasNoBody(t *testing.T) {
	c := dial(t, serverFor(t, Options{Clock: NewManualClock(), ExtendedTypes: true}), time.Second)
	for name, r := range map[string]struct {
		op   int32
		body []byte
	}{
		"exists in a multiRead":              {zkwire.OpMultiRead, multiBody(zkwire.OpExists, pathBody("/"))},
		"a multiRead cut off":                {zkwire.OpMultiRead, multiBody(zkwire.OpGetData, pathBody("/"))[:12]},
		"a multi with flags of no mode":      {zkwire.OpMulti, multiBody(zkwire.OpCreate, createBody("/a", "", 9))},
		"a multi with flags below all":       {zkwire.OpMulti, multiBody(zkwire.OpCreate, createBody("/a", "", -1))},
		"a multi with a TTL's flags, no TTL": {zkwire.OpMulti, multiBody(zkwire.OpCreate2, createBody("/a", "", zkwire.FlagTTL))},
	} {
		if err, d := c.do(r.op, r.body); err != zkwire.ErrMarshalling || len(d.Rest()) != 0 {
			t.Errorf("%s: %v with %d bytes behind, want %v with none", name, err, len(d.Rest()), zkwire.ErrMarshalling)
		}
	}
}

func TestEphemeralsWithABlankPrefix(t *testing.T) {
	c := dial(t, serverFor(t, Options{Clock: NewManualClock()}), time.Second)
	c.create("/a", "", zkwire.FlagEphemeral)
	for _, tc := range []struct {
		prefix []byte
		want   int32
	}{
		{zkwire.AppendString(nil, ""), 1}, {zkwire.AppendString(nil, " "), 1}, {zkwire.AppendInt32(nil, -1), 1},
		{zkwire.AppendString(nil, "/"), 1}, {zkwire.AppendString(nil, "/a"), 1}, {zkwire.AppendString(nil, " /a"), 0}, {zkwire.AppendString(nil, "/b"), 0},
	} {
		if n := c.must(zkwire.OpGetEphemerals, tc.prefix).Int32(); n != tc.want {
			t.Errorf("prefix %q: %d nodes, want %d", tc.prefix, n, tc.want)
		}
	}
}

func TestFixACL(t *testing.T) {
	who := Who{Identities: []Identity{{"digest", "v:q"}, {"digest", "u:p"}, {"super", ""}, {"ip", "127.0.0.1"}}}
	for _, tc := range []struct {
		acl  []ACL
		want string
	}{
		{nil, "[]"},
		{[]ACL{entry(31, "digest", "u:")}, "[]"},
		{[]ACL{entry(31, "digest", "u")}, "[]"},
		{[]ACL{entry(31, "digest", "::")}, "[]"},
		{[]ACL{entry(31, "digest", "u:h:x")}, "[]"},
		{[]ACL{entry(31, "digest", ":h")}, "[{31 digest :h}]"},
		{[]ACL{entry(31, "digest", "u:h::")}, "[{31 digest u:h::}]"},
		{[]ACL{entry(31, "digest", "u:h"), entry(1, "world", "anyone"), entry(31, "digest", "u:h")}, "[{31 digest u:h} {1 world anyone}]"},
		{[]ACL{entry(31, "auth", ""), entry(31, "auth", "")}, "[{31 digest v:q} {31 digest u:p}]"},
		{[]ACL{entry(31, "auth", ""), entry(31, "digest", "u:p")}, "[{31 digest v:q} {31 digest u:p} {31 digest u:p}]"},
		{[]ACL{entry(31, "super", "")}, "[]"},
	} {
		if got := fmt.Sprint(fixACL(who, tc.acl)); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.acl, got, tc.want)
		}
	}
}

// TestWordsWaitForAServerThatIsReady: srvr and ruok are the sign that sessions
// are accepted, also when the first snapshot takes its time.
func TestWordsWaitForAServerThatIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Options{FourLetterWords: []string{"*"}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.snap.first = true
		answer := make(chan string, 1)
		c := dialRaw(t, s)
		go func() {
			b, _ := io.ReadAll(c.nc)
			answer <- string(b)
		}()
		c.nc.Write([]byte("ruok"))
		for _, ready := range []func(){
			func() { s.mu.Lock(); s.paused, s.snap.first = true, false; s.resumed.Broadcast(); s.mu.Unlock() },
			s.Resume,
		} {
			synctest.Wait()
			select {
			case got := <-answer:
				t.Fatalf("ruok is answered by %q before the server is ready", got)
			default:
			}
			ready()
		}
		if got := <-answer; got != "imok" {
			t.Errorf("ruok is answered by %q", got)
		}
	})
}

// TestHandshake: what is asked for decides the answer's form, and who has seen
// more than this server hears nothing.
func TestHandshake(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	for _, asks := range []bool{false, true} {
		c := dialRaw(t, s)
		c.write((&zkwire.ConnectRequest{Timeout: 10_000, Password: make([]byte, 16), HasReadOnly: asks}).Append(nil))
		b, err := c.frame()
		if want := 36 + map[bool]int{true: 1}[asks]; err != nil || len(b) != want {
			t.Errorf("asked for the flag: %v; the answer has %d bytes (%v), want %d", asks, len(b), err, want)
		}
	}
	var zxid int64
	s.Look(func(tree *Tree) { zxid = tree.Zxid() })
	if dialRaw(t, s).connect(zkwire.ConnectRequest{Timeout: 10_000, Password: make([]byte, 16), LastZxid: zxid + 1}) {
		t.Error("a client that is ahead got a session")
	}
	if !dialRaw(t, s).connect(zkwire.ConnectRequest{Timeout: 10_000, Password: make([]byte, 16), LastZxid: zxid}) {
		t.Error("a client that is not ahead got none")
	}
}

func TestTheLongestRequest(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock(), MaxBuffer: 2000})
	c := dial(t, s, 10*time.Second)
	const head = 8 + 4 + 1 // header, length and flag
	if err, _ := c.do(zkwire.OpExists, pathBody("/"+strings.Repeat("x", 2000-head-1))); err != zkwire.ErrNoNode {
		t.Errorf("a request of 2000 bytes: %v", err)
	}
	c.write(c.request(zkwire.OpExists, pathBody("/"+strings.Repeat("x", 2001-head-1))))
	c.gone()
}

func TestWatchesEndWithTheirConnection(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	a := dial(t, s, 10*time.Second)
	a.do(zkwire.OpExists, watchBody("/a"))
	a.must(zkwire.OpGetChildren, watchBody("/"))
	if b, ok := resume(t, s, a); !ok { // which closes the first one
		t.Error("the session was not taken up")
	} else {
		b.must(zkwire.OpPing, nil)
	}
	s.Look(func(tree *Tree) {
		if n, _, _ := tree.CountWatches(); n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}
