package zkstore_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

// grow makes n nodes below /n in their own batch and gives their paths.
func grow(t testing.TB, s *zkstore.Session, n int) []string {
	t.Helper()
	ws := []zkpaths.Write{create("/n", "")}
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("/n/%05d", i)
		ws = append(ws, create(paths[i], fmt.Sprint("value of ", i)))
	}
	mustApply(t, s, zkpaths.Unfenced, ws...)
	return paths
}

func gets(paths []string, watch bool) []zkpaths.Read {
	rs := make([]zkpaths.Read, len(paths))
	for i, p := range paths {
		rs[i] = zkpaths.Read{Op: zkpaths.GetData, Path: p, Watch: watch}
	}
	return rs
}

// TestBulkRead reads and watches thousands of nodes on every server at hand,
// and counts the packets.
func TestBulkRead(t *testing.T) {
	for _, sets := range [][]string{{"debian"}, {"zk-3.9.5"}, {"3.9.1"}, {"2.8.2", "2.4.1"}} {
		t.Run(sets[0], func(t *testing.T) {
			set := sets[0]
			for _, s := range sets {
				if real.JarSet(s) != "" {
					set = s
				}
			}
			if set != "debian" && real.JarSet(set) == "" {
				real.Missing(t, real.Java, "no jars of set "+set, "run scripts/jars.sh .cache/jars "+set)
			}
			z := real.ZooKeeper(t, real.WithJars(set))
			old := strings.HasPrefix(z.Version, "3.5.") // does not know multiRead
			p := newTamper(t, z.Addr())
			box := newInbox()
			s := open(t, zkstore.Options{Servers: []string{p.addr()}, Chroot: "/ch"}, box.notify)
			other := open(t, zkstore.Options{Servers: []string{z.Addr()}, Chroot: "/ch"}, nil)
			const n = 3000
			paths := grow(t, s, n)

			rs := gets(paths, true)
			rs = append(rs, watched(zkpaths.Exists, "/n/none"), watched(zkpaths.Exists, "/n/00007"), watched(zkpaths.GetChildren, "/n"),
				get("/n/gone"), watched(zkpaths.GetChildren, "/absent"))
			nodes := read(t, s, rs...)
			for i := range n {
				if got := string(nodes[i].Data); got != fmt.Sprint("value of ", i) || nodes[i].Stat.Czxid == 0 {
					t.Fatalf("%s: %q %+v", paths[i], got, nodes[i])
				}
			}
			tail := nodes[n:]
			if tail[0].Code != zkpaths.NoNode || tail[1].Code != zkpaths.OK || tail[1].Data != nil || len(tail[2].Children) != n ||
				tail[2].Stat.NumChildren != n || tail[2].Children[9] != "00009" || tail[3].Code != zkpaths.NoNode || tail[4].Code != zkpaths.NoNode {
				t.Fatalf("%+v", tail[:2])
			}
			if packets := p.count(true, zkwire.OpMultiRead) + p.count(true, zkwire.OpSetWatches); !old && packets > 20 {
				t.Errorf("%d packets for %d watched nodes", packets, n)
			}
			t.Logf("%+v", s.Stats())

			mustApply(t, other, zkpaths.Unfenced, set2("/n/00005"), remove("/n/00007", 0), create("/n/none", "x"))
			for _, want := range []zkpaths.Notice{{Type: zkpaths.NodeDataChanged, Path: "/n/00005"}, {Type: zkpaths.NodeDeleted, Path: "/n/00007"},
				{Type: zkpaths.NodeChildrenChanged, Path: "/n"}, {Type: zkpaths.NodeCreated, Path: "/n/none"}} {
				box.await(t, want)
			}
			// Read again: what fired is armed again, what did not is not armed twice.
			before := p.count(true, zkwire.OpSetWatches)
			again := read(t, s, watched(zkpaths.GetData, "/n/00005"))
			if string(again[0].Data) != "changed" {
				t.Fatalf("after its notice: %q", again[0].Data)
			}
			read(t, s, gets(paths[:1000], true)...)
			if got := p.count(true, zkwire.OpSetWatches); got != before {
				t.Errorf("watches were armed twice: %d more requests", got-before)
			}
			mustApply(t, other, zkpaths.Unfenced, remove("/n/00005", zkpaths.AnyVersion))
			box.await(t, zkpaths.Notice{Type: zkpaths.NodeDeleted, Path: "/n/00005"})
			if old != (p.count(true, zkwire.OpMultiRead) <= 1) {
				t.Errorf("multiReads: %d", p.count(true, zkwire.OpMultiRead))
			}
		})
	}
}

func set2(path string) zkpaths.Write { return set(path, "changed", zkpaths.AnyVersion) }

// TestBulkLags: an answer older than our last write is not taken; the
// connection is made to catch up.
func TestBulkLags(t *testing.T) {
	p := newTamper(t, shared.Get(t).Addr())
	s := open(t, zkstore.Options{Servers: []string{p.addr()}, Chroot: chroot(t)}, nil)
	paths := grow(t, s, 100)
	var stale atomic.Int64
	p.onReply(func(c *relay, op int32, h zkwire.ReplyHeader, body []byte) (zkwire.ReplyHeader, []byte) {
		if !c.bulk || op != zkwire.OpMultiRead || p.count(true, zkwire.OpSync) > 1 {
			return h, body
		}
		// What a follower would have said that has not seen the last transaction.
		stale.Add(1)
		h.Zxid -= 1000
		rs := zkwire.DecodeResults(zkwire.NewDecoder(body), nil)
		var out []byte
		for i := range rs {
			rs[i].Data = []byte("old")
			out = rs[i].Append(out)
		}
		return h, zkwire.AppendMultiEnd(out)
	})
	for i, n := range read(t, s, gets(paths, false)...) {
		if string(n.Data) != fmt.Sprint("value of ", i) {
			t.Fatalf("node %d: %q", i, n.Data)
		}
	}
	if stale.Load() == 0 {
		t.Fatal("no stale answer was given: the test shows nothing")
	}
	// Having lagged once, it is synced in front, without asking in vain.
	syncs, asked := p.count(true, zkwire.OpSync), p.count(true, zkwire.OpMultiRead)
	mustApply(t, s, zkpaths.Unfenced, set2(paths[3]))
	if n := read(t, s, gets(paths, false)...); string(n[3].Data) != "changed" {
		t.Fatalf("not our own write: %q", n[3].Data)
	}
	if p.count(true, zkwire.OpSync) != syncs+1 || p.count(true, zkwire.OpMultiRead) != asked+1 {
		t.Fatalf("%d syncs, %d multiReads", p.count(true, zkwire.OpSync)-syncs, p.count(true, zkwire.OpMultiRead)-asked)
	}
}

// TestMainFollowsBulk: once the bulk connection showed a state, the main one
// does not show an older one.
func TestMainFollowsBulk(t *testing.T) {
	p := newTamper(t, shared.Get(t).Addr())
	root := chroot(t)
	box := newInbox()
	s := open(t, zkstore.Options{Servers: []string{p.addr()}, Chroot: root}, box.notify)
	other := open(t, zkstore.Options{Servers: []string{shared.Get(t).Addr()}, Chroot: root}, nil)
	paths := grow(t, s, 50)
	read(t, s, gets(paths, true)...)
	read(t, s, get("/"))
	syncs := p.count(false, zkwire.OpSync)
	mustApply(t, other, zkpaths.Unfenced, set2(paths[1]))
	box.await(t, zkpaths.Notice{Type: zkpaths.NodeDataChanged, Path: paths[1]})
	read(t, s, get("/"))
	if got := p.count(false, zkwire.OpSync) - syncs; got != 1 {
		t.Fatalf("%d syncs on the main connection after a notice on the bulk one, want 1", got)
	}
	read(t, s, get("/"))
	if got := p.count(false, zkwire.OpSync) - syncs; got != 1 {
		t.Fatalf("%d syncs, want still 1", got)
	}
	// The watched node itself is read, and armed, where its watch was: one packet.
	n := p.count(true, zkwire.OpGetData)
	if got := read(t, s, watched(zkpaths.GetData, paths[1])); string(got[0].Data) != "changed" {
		t.Fatalf("%q", got[0].Data)
	}
	if p.count(true, zkwire.OpGetData) != n+1 {
		t.Fatal("the node was not read over the bulk connection")
	}
	mustApply(t, other, zkpaths.Unfenced, remove(paths[1], -1))
	box.await(t, zkpaths.Notice{Type: zkpaths.NodeDeleted, Path: paths[1]})
}

// TestBulkReconnect: watches of the bulk connection survive its loss, and tell
// what changed meanwhile.
func TestBulkReconnect(t *testing.T) {
	z := shared.Get(t)
	p := newTamper(t, z.Addr())
	root := chroot(t)
	box := newInbox()
	s := open(t, zkstore.Options{Servers: []string{p.addr()}, Chroot: root}, box.notify)
	other := open(t, zkstore.Options{Servers: []string{z.Addr()}, Chroot: root}, nil)
	paths := grow(t, s, 100)
	read(t, s, append(gets(paths, true), watched(zkpaths.Exists, "/n/later"), watched(zkpaths.GetChildren, "/n"))...)

	// No connection is accepted while the tree changes.
	release := make(chan struct{})
	p.hold(release)
	p.drop()
	mustApply(t, other, zkpaths.Unfenced, set2(paths[4]), remove(paths[5], -1), create("/n/later", ""))
	close(release)
	for _, want := range []zkpaths.Notice{{Type: zkpaths.NodeDataChanged, Path: paths[4]}, {Type: zkpaths.NodeDeleted, Path: paths[5]},
		{Type: zkpaths.NodeCreated, Path: "/n/later"}, {Type: zkpaths.NodeChildrenChanged, Path: "/n"}} {
		box.await(t, want)
	}
	// What did not change is still armed.
	mustApply(t, other, zkpaths.Unfenced, set2(paths[50]))
	box.await(t, zkpaths.Notice{Type: zkpaths.NodeDataChanged, Path: paths[50]})
	if c := box.count(zkpaths.Notice{Type: zkpaths.NodeDataChanged, Path: paths[51]}); c != 0 {
		t.Fatalf("%d notices for a node that did not change", c)
	}
}

// TestUnimplemented: a server that answers -6 to multiRead and closes, as those
// before 3.6 do, is read over the main connection from then on.
func TestUnimplemented(t *testing.T) {
	p := newTamper(t, shared.Get(t).Addr())
	s := open(t, zkstore.Options{Servers: []string{p.addr()}, Chroot: chroot(t)}, nil)
	paths := grow(t, s, 60)
	p.onReply(func(c *relay, op int32, h zkwire.ReplyHeader, body []byte) (zkwire.ReplyHeader, []byte) {
		if op == zkwire.OpMultiRead {
			return zkwire.ReplyHeader{Xid: h.Xid, Zxid: -1, Err: zkwire.ErrUnimplemented}, nil
		}
		return h, body
	})
	for range 2 {
		for i, n := range read(t, s, gets(paths, true)...) {
			if string(n.Data) != fmt.Sprint("value of ", i) {
				t.Fatalf("node %d: %q", i, n.Data)
			}
		}
	}
	if n := p.count(true, zkwire.OpMultiRead); n != 1 {
		t.Fatalf("%d multiReads", n)
	}
	if n := p.count(false, zkwire.OpGetData); n != 120 {
		t.Fatalf("%d reads over the main connection", n)
	}
}

// TestBulkLapses: if the bulk connection stays away for a session time-out, its
// watches are told as changed, so that they are read and armed anew elsewhere.
func TestBulkLapses(t *testing.T) {
	z := real.ZooKeeper(t, real.WithTick(50*time.Millisecond))
	p := newTamper(t, z.Addr())
	box := newInbox()
	s := open(t, zkstore.Options{Servers: []string{p.addr()}, SessionTimeout: time.Second}, box.notify)
	paths := grow(t, s, 30)
	read(t, s, append(gets(paths, true), watched(zkpaths.Exists, "/n/none"), watched(zkpaths.GetChildren, "/n"))...)
	p.mu.Lock()
	p.noBulk = true
	p.mu.Unlock()
	p.drop()
	for _, want := range []zkpaths.Notice{{Type: zkpaths.NodeDataChanged, Path: paths[29]}, {Type: zkpaths.NodeCreated, Path: "/n/none"},
		{Type: zkpaths.NodeChildrenChanged, Path: "/n"}} {
		box.await(t, want)
	}
	// Read again, they are watched over the main connection.
	seen := box.count(zkpaths.Notice{Type: zkpaths.NodeDataChanged, Path: paths[29]})
	read(t, s, gets(paths, true)...)
	mustApply(t, s, zkpaths.Unfenced, set2(paths[29]))
	await(t, "the notice", func() bool {
		return box.count(zkpaths.Notice{Type: zkpaths.NodeDataChanged, Path: paths[29]}) > seen
	})
	if s.Stats().Fallbacks == 0 {
		t.Fatal("no read fell back to the main connection")
	}
}
