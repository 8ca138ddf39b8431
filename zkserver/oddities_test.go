package zkserver

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// null is a string, buffer or vector that is null.
var null = zkwire.AppendInt32(nil, -1)

func join(parts ...[]byte) []byte {
	var b []byte
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

func num(n int32) []byte   { return zkwire.AppendInt32(nil, n) }
func text(s string) []byte { return zkwire.AppendString(nil, s) }

// openList is the open access list behind a node's null data.
var openList = join(null, zkwire.AppendACLs(nil, OpenACL()))

// TestOddRequests keeps what Apache 3.9.5 answers to requests that few clients
// send: the error, how many zxids it costs, and whether the connection ends.
func TestOddRequests(t *testing.T) {
	zeros := zkwire.AppendInt64(nil, 0)
	for _, tc := range []struct {
		name string
		op   int32
		body []byte
		want string // the error, what it costs, bytes of the answer's body
	}{
		{"setData of null", zkwire.OpSetData, join(null, null, null), "-8 +1 0"},
		{"setACL of null", zkwire.OpSetACL, join(null, num(0), null), "-8 +1 0"},
		{"delete of null", zkwire.OpDelete, join(null, null), "-5 +1 0"},
		{"create of null", zkwire.OpCreate, join(null, openList, num(0)), "-5 +1 0"},
		{"create of null, flags of no mode", zkwire.OpCreate, join(null, openList, num(77)), "-8 +1 0"},
		{"create with a list shorter than null", zkwire.OpCreate, join(text("/x"), null, num(-7), num(0)), "-114 +1 0"},
		{"sync of null", zkwire.OpSync, null, "0 +0 4"},
		{"sync of what is no text", zkwire.OpSync, text("/\xff\xfe"), "0 +0 11"},
		{"addWatch of null", zkwire.OpAddWatch, join(null, num(1)), "0 +0 4"},
		{"checkWatches of null", zkwire.OpCheckWatches, join(null, num(3)), "-121 +0 0"},
		{"removeWatches of null", zkwire.OpRemoveWatches, join(null, num(3)), "-121 +0 0"},
		{"setWatches with a null list", zkwire.OpSetWatches, join(zeros, null, num(0), num(0)), "-5 +0 0"},
		{"setWatches with a list shorter than null", zkwire.OpSetWatches, join(zeros, num(-2), num(0), num(0)), "0 +0 0"},
		{"setWatches2 with a null list", zkwire.OpSetWatches2, join(zeros, num(0), num(0), num(0), num(0), null), "-5 +0 0"},
		{"a token of SASL", zkwire.OpSASL, join(num(1), []byte("x")), "0 +0 4"},
		{"no token of SASL", zkwire.OpSASL, null, "closed"},
		{"a token of SASL cut off", zkwire.OpSASL, nil, "closed"},
		{"digest without credentials", zkwire.OpAuth, join(num(0), text("digest"), null), "-115 +0 0"},
		{"digest with empty credentials", zkwire.OpAuth, join(num(0), text("digest"), num(0)), "0 +0 0"},
		{"createSession", zkwire.OpCreateSession, num(8000), "greeted"},
		{"createSession cut off", zkwire.OpCreateSession, nil, "-5 +1 0"},
		{"deleteContainer of the root", zkwire.OpDeleteContainer, text("/"), "-8 +1 0"},
		{"deleteContainer of null", zkwire.OpDeleteContainer, null, "-5 +0 0"},
		{"deleteContainer of nothing", zkwire.OpDeleteContainer, text("/x"), "-101 +1 0"},
		{"deleteContainer of an ephemeral", zkwire.OpDeleteContainer, text("/e"), "-103 +1 0"},
		{"deleteContainer of a parent", zkwire.OpDeleteContainer, text("/p"), "-111 +1 0"},
		{"deleteContainer of another node", zkwire.OpDeleteContainer, text("/p/q"), "0 +1 0"},
		{"deleteContainer cut off", zkwire.OpDeleteContainer, []byte("/"), "-5 +0 0"},
		{"multi with a null path", zkwire.OpMulti, multiBody(zkwire.OpCheck, join(null, null)), "-5 +1 0"},
		{"multi with a null access list", zkwire.OpMulti, multiBody(zkwire.OpCreate, join(text("/x"), null, null, num(0))), "-5 +0 0"},
		{"multi with a null access list, TTL", zkwire.OpMulti, multiBody(zkwire.OpCreateTTL, join(text("/x"), null, null, num(5), zkwire.AppendInt64(nil, 9))), "0 +1 22"},
		{"multi with a null access list, flags of no mode", zkwire.OpMulti, multiBody(zkwire.OpCreate, join(text("/x"), null, null, num(9))), "-5 +1 0"},
		{"multiRead of a write", zkwire.OpMultiRead, multiBody(zkwire.OpCheck, join(text("/"), null)), "-5 +0 9"},
		{"multiRead of a write with flags of no mode", zkwire.OpMultiRead, multiBody(zkwire.OpCreate, join(text("/x"), openList, num(9))), "-5 +0 0"},
		{"multiRead of a write, then a read", zkwire.OpMultiRead, append(multiBody(zkwire.OpCheck, join(text("/"), null))[:18], multiBody(zkwire.OpGetData, pathBody("/"))...), "-5 +0 0"},
		{"multi with an empty access list", zkwire.OpMulti, multiBody(zkwire.OpCreate, join(text("/x"), null, num(0), num(0))), "0 +1 22"},
		{"multiRead of null", zkwire.OpMultiRead, multiBody(zkwire.OpGetData, join(null, []byte{0})), "-5 +0 9"},
		{"createTTL with flags of no TTL", zkwire.OpCreateTTL, join(text("/x"), openList, num(4), zkwire.AppendInt64(nil, 1000)), "-8 +1 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := serverFor(t, Options{Clock: NewManualClock(), ExtendedTypes: true})
			c := dial(t, s, time.Second)
			c.create("/e", "", zkwire.FlagEphemeral)
			c.create("/p", "", 0)
			c.create("/p/q", "", 0)
			before := treeZxid(s)
			c.write(c.request(tc.op, tc.body))
			b, err := c.frame()
			got := "closed"
			if err == nil {
				d := zkwire.NewDecoder(b)
				var h zkwire.ReplyHeader
				h.Decode(d)
				got = fmt.Sprintf("%d +%d %d", int32(h.Err), treeZxid(s)-before, len(d.Rest()))
				if h.Xid == 0 && treeZxid(s) == before+1 {
					got = "greeted"
				}
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func treeZxid(s *Server) (zxid int64) {
	s.Look(func(tree *Tree) { zxid = tree.Zxid() })
	return zxid
}

// TestSequentialContainers: a container's flags may ask for a number.
func TestSequentialContainers(t *testing.T) {
	c := dial(t, serverFor(t, Options{Clock: NewManualClock()}), time.Second)
	for flags, want := range []string{"/c0-", "/c1-", "/c2-0000000002", "/c3-0000000003", "/c4-"} {
		body := createBody(fmt.Sprintf("/c%d-", flags), "", int32(flags))
		d := c.must(zkwire.OpCreateContainer, body)
		var stat zkwire.Stat
		if path := d.String(); path != want {
			t.Errorf("flags %d: %s, want %s", flags, path, want)
		}
		if stat.Decode(d); stat.EphemeralOwner != 0 {
			t.Errorf("flags %d: the container has an owner", flags)
		}
	}
}

// TestCreateTTLWithoutATTLInAMulti is an ordinary create with these flags.
func TestCreateTTLWithoutATTLInAMulti(t *testing.T) {
	c := dial(t, serverFor(t, Options{Clock: NewManualClock(), ExtendedTypes: true}), time.Second)
	for flags, want := range []int32{zkwire.OpCreate, zkwire.OpCreate, zkwire.OpCreate, zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreate2, zkwire.OpCreate2} {
		body := join(createBody(fmt.Sprintf("/%d-", flags), "", int32(flags)), zkwire.AppendInt64(nil, 1000))
		if typ := c.must(zkwire.OpMulti, multiBody(zkwire.OpCreateTTL, body)).Int32(); typ != want {
			t.Errorf("flags %d: a result of type %d, want %d", flags, typ, want)
		}
	}
	if n := c.must(zkwire.OpGetEphemerals, text("/")).Int32(); n != 2 {
		t.Errorf("%d ephemerals, want those of flags 1 and 3", n)
	}
}

// TestOrderOfIdentities: the scheme auth gives Apache's order, which is that of
// a Java hash table.
func TestOrderOfIdentities(t *testing.T) {
	c := dial(t, serverFor(t, Options{Clock: NewManualClock(), SuperDigest: "super:D/InIHSb7yEEbrWz8b9l71RjZJU="}), time.Second)
	for _, user := range []string{"a:b", "c:d", "e:f", "super:test", "user:secret", "\xff\xfe:b"} {
		c.must(zkwire.OpAuth, join(num(0), text("digest"), text(user)))
	}
	acl := []ACL{{Perms: 31, Scheme: "auth"}}
	c.must(zkwire.OpCreate, (&zkwire.CreateRequest{Path: "/x", ACL: acl}).Append(nil))
	var got []string
	for _, e := range c.must(zkwire.OpGetACL, text("/x")).ACLs() {
		got = append(got, e.ID)
	}
	want := []string{
		"a:3OptnM09ILoVSfbZtd3mB0IViII=", "e:LoxZfmfSRq3ocgXwRWp8xu69Ljc=", "c:JW0uwAqVIVi/U/OdKDCihoUkdus=",
		"\ufffd\ufffd:7Ib0q8DzZWqT7oNAxrBzEB8b3Iw=", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=", "user:5w9W4eL3797Y4Wq8AcKUPPk8ha4=",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestIPOfAnAccessList keeps which texts Apache takes for addresses.
func TestIPOfAnAccessList(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1": "127.0.0.1/32", "127.0.0.001": "127.0.0.1/32", "+127.0.0.1": "127.0.0.1/32", "127.0.0.1/+8": "127.0.0.1/8",
		"127.0.0.1/08": "127.0.0.1/8", "127.0.0.1/0": "127.0.0.1/0", "::1": "::1/128", "::1/-0": "::1/0", "::1/0128": "::1/128", "::ffff:7f00:1": "::ffff:127.0.0.1/128",
		"127.0.0.1.": "", "-127.0.0.1": "", "127.0.0.1/": "", "127.0.0.1/33": "", "127.0.0.1/8/8": "", "127.0.0": "", "256.0.0.1": "", "": "", "/8": "",
		"localhost": "", "::1/129": "", "::ffff:127.0.0.1": "", "::1.2.3.4": "", "fe80::1%lo": "", "[::1]": "", "127.0.0.1 ": "",
	} {
		got := ""
		if p, ok := ipPrefix(in); ok {
			got = p.String()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestEndIsNoReset: whoever goes on sending after the server has closed its
// connection finds the last answer and an orderly end, not a reset.
func TestEndIsNoReset(t *testing.T) {
	s := serverFor(t, Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := &rawClient{t: t, nc: nc}
	if !c.connect(zkwire.ConnectRequest{Timeout: 5000, Password: make([]byte, 16)}) {
		t.Fatal("no session was opened")
	}
	ping := framed(c.request(zkwire.OpPing, nil))
	nc.Write(append(framed(c.request(99, nil)), ping...))
	if h, _, err := c.reply(); err != nil || h.Err != zkwire.ErrUnimplemented {
		t.Fatalf("an unknown op: %v, %v", h.Err, err)
	}
	c.gone()
	for range 5 {
		if _, err := nc.Write(ping); err != nil {
			t.Fatalf("the server has reset the connection: %v", err)
		}
	}
	s.mu.Lock()
	n := len(s.ending)
	s.mu.Unlock()
	if n != 1 {
		t.Errorf("%d connections are ending, want this one", n)
	}
}

// TestWatchesOfTheClosingSession: a client that closes its session still hears
// its own ephemerals go, before the answer.
func TestWatchesOfTheClosingSession(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	c := dial(t, s, time.Second)
	c.create("/e", "", zkwire.FlagEphemeral)
	c.must(zkwire.OpExists, watchBody("/e"))
	c.must(zkwire.OpCloseSession, nil)
	c.heard(seen{EventDeleted, "/e"})
	c.gone()
	if n := len(s.Sessions()); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestSetWatchesTellsOfWhatMayNotBeRead: what a client missed is told without
// a look at access lists, unlike what happens while it watches.
func TestSetWatchesTellsOfWhatMayNotBeRead(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock()})
	c := dial(t, s, time.Second)
	c.must(zkwire.OpCreate, (&zkwire.CreateRequest{Path: "/x", ACL: []ACL{{Perms: PermWrite, Scheme: "world", ID: "anyone"}}}).Append(nil))
	w := zkwire.SetWatches{Data: []string{"/x"}, Exist: []string{"/x"}, Child: []string{"/x"}}
	c.must(zkwire.OpSetWatches, w.Append(nil))
	c.heard(seen{EventDataChanged, "/x"}, seen{EventCreated, "/x"}, seen{EventChildrenChanged, "/x"})
	w = zkwire.SetWatches{Data: []string{"/x"}, Exist: []string{}, Child: []string{}, RelativeZxid: 1 << 62}
	c.must(zkwire.OpSetWatches, w.Append(nil))
	c.set("/x", "y")
	c.must(zkwire.OpPing, nil)
	c.heard()
}
