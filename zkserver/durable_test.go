package zkserver

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/zkserver/zkfiles"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

// killed gives a copy of a server's directory as a kill would leave it: it
// stands still meanwhile, but tidies up nothing.
func killed(t *testing.T, s *Server, dir string) string {
	t.Helper()
	left := t.TempDir()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.snap.running || s.keep.syncing { // their files would change under the copy
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return left
}

func image(s *Server) []Saved {
	var all []Saved
	s.Look(func(tree *Tree) { tree.Walk(func(n Saved) { all = append(all, n) }) })
	return all
}

func TestWhatWasAnsweredOutlivesAKill(t *testing.T) {
	for _, split := range []bool{false, true} {
		o := Options{Clock: NewManualClock(), DataDir: t.TempDir(), NoForceSync: true, ExtendedTypes: true}
		if split {
			o.LogDir = t.TempDir()
		}
		s := serverFor(t, o)
		if _, err := New(o); !errors.As(err, new(*zkfiles.LockedError)) {
			t.Fatalf("a second server on the directory: %v", err)
		}
		a, b := dial(t, s, 10*time.Second), dial(t, s, 20*time.Second)
		c := dial(t, s, 20*time.Second)
		a.create("/a", "1", 0)
		a.create("/a/s-", "2", zkwire.FlagSequential)
		a.create("/e", "", zkwire.FlagEphemeral)
		c.create("/gone", "", zkwire.FlagEphemeral)
		c.must(zkwire.OpCloseSession, nil)
		b.must(zkwire.OpCreateContainer, createBody("/c", "", zkwire.FlagContainer))
		b.must(zkwire.OpCreateTTL, (&zkwire.CreateRequest{Path: "/t", ACL: OpenACL(), Flags: zkwire.FlagTTL, TTL: 5000}).AppendTTL(nil))
		b.must(zkwire.OpCreate, (&zkwire.CreateRequest{Path: "/acl", ACL: []ACL{{Perms: 5, Scheme: "ip", ID: "127.0.0.1"}}}).Append(nil))
		for i := range 20 {
			a.set("/a", fmt.Sprint(i))
		}
		a.do(zkwire.OpDelete, zkwire.PathInt{Path: "/a", N: 3}.Append(nil)) // fails, and costs a zxid
		a.must(zkwire.OpMulti, zkwire.AppendMultiEnd((&zkwire.Op{Type: zkwire.OpCreate2, Path: "/m", ACL: OpenACL()}).Append(nil)))
		want, zxid := image(s), a.zxid

		o.Clock, o.DataDir = NewManualClock(), killed(t, s, o.DataDir)
		if split {
			o.LogDir = killed(t, s, o.LogDir)
		}
		again := serverFor(t, o)
		if diff := cmp.Diff(want, image(again)); diff != "" {
			t.Errorf("the tree after a kill (-want +got):\n%s", diff)
		}
		again.Look(func(tree *Tree) {
			if tree.Zxid() != zxid {
				t.Errorf("zxid %#x, want %#x", tree.Zxid(), zxid)
			}
		})
		a2, ok := resume(t, again, a)
		if !ok || !a2.exists("/e") {
			t.Error("a session and its ephemeral did not outlive the kill")
		}
		if got := a2.create("/a/s-", "", zkwire.FlagSequential); got != "/a/s-0000000001" {
			t.Errorf("the next sequential node is %s", got)
		}
		if n := len(again.Sessions()); n != 2 {
			t.Errorf("%d sessions, want two", n)
		}
		// The other one has its full timeout from now on.
		clock := o.Clock.(*ManualClock)
		clock.Advance(19 * time.Second)
		if n := len(again.Sessions()); n != 1 {
			t.Errorf("%d sessions after 19 s, want the one with 20 s", n)
		}
		clock.Advance(5 * time.Second)
		if n := len(again.Sessions()); n != 0 {
			t.Errorf("%d sessions after 24 s", n)
		}
	}
}

func TestSnapshotsAmidWritesAndPurge(t *testing.T) {
	o := Options{Clock: NewManualClock(), DataDir: t.TempDir(), NoForceSync: true, SnapCount: 100, PurgeInterval: time.Hour}
	s := serverFor(t, o)
	var wg sync.WaitGroup
	for w := range 4 {
		c := dial(t, s, 20*time.Second)
		wg.Go(func() {
			for i := range 1000 {
				c.create(fmt.Sprintf("/w%d-%d", w, i), "x", 0)
				c.set(fmt.Sprintf("/w%d-%d", w, i/2), "y")
				if i%7 == 6 {
					c.must(zkwire.OpDelete, zkwire.PathInt{Path: fmt.Sprintf("/w%d-%d", w, i/7*3), N: -1}.Append(nil))
				}
				if i%100 == 0 {
					c.create(fmt.Sprintf("/w%d-e%d", w, i), "", zkwire.FlagEphemeral)
				}
			}
		})
	}
	wg.Wait()
	want := image(s)
	again := serverFor(t, Options{DataDir: killed(t, s, o.DataDir), NoForceSync: true})
	if diff := cmp.Diff(want, image(again)); diff != "" {
		t.Errorf("the tree after a kill (-want +got):\n%s", diff)
	}
	moreSnapshots(t, s, "/w1-999")
	o.Clock.(*ManualClock).Advance(time.Hour)
	if err := s.Close(); err != nil { // waits for the purge
		t.Fatal(err)
	}
	if n := snapshots(t, o.DataDir); n != 3 {
		t.Errorf("%d snapshots after a purge, want 3", n)
	}
	third := serverFor(t, Options{DataDir: o.DataDir, NoForceSync: true, Clock: NewManualClock()})
	if third.Look(func(tree *Tree) {
		if got := tree.Len(); got < len(want)-40 { // the ephemerals of expired sessions may be gone
			t.Errorf("%d nodes after a purge, want about %d", got, len(want))
		}
	}); t.Failed() {
		return
	}
}

// moreSnapshots writes until there are five.
func moreSnapshots(t *testing.T, s *Server, path string) {
	t.Helper()
	c := dial(t, s, 20*time.Second)
	for i := 0; snapshots(t, s.o.DataDir) < 5; i++ {
		if i == 200 {
			t.Fatal("no more snapshots")
		}
		for range 200 {
			c.write(c.request(zkwire.OpSetData, setBody(path, "z")))
		}
		for range 200 {
			c.reply()
		}
	}
}

func TestPurgeAtTheStart(t *testing.T) {
	o := Options{Clock: NewManualClock(), DataDir: t.TempDir(), NoForceSync: true, SnapCount: 100}
	s := serverFor(t, o)
	moreSnapshots(t, s, "/")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	o.PurgeInterval = 24 * time.Hour
	s = serverFor(t, o)
	dial(t, s, time.Second)
	if err := s.Close(); err != nil { // waits for the purge
		t.Fatal(err)
	}
	if n := snapshots(t, o.DataDir); n < 3 || n > 4 { // one more may have been due behind the purge
		t.Errorf("%d snapshots after a start, want the 3 that a purge leaves", n)
	}
}

func snapshots(t *testing.T, dir string) int {
	t.Helper()
	files, err := os.ReadDir(dir + "/version-2")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "snapshot.") {
			n++
		}
	}
	return n
}

// gate is a log whose Sync waits until it is let through, or fails.
type gate struct {
	journal
	open    chan error // what Sync gets: nil lets it through
	waiting chan struct{}
}

func (g *gate) Sync() (int64, error) {
	g.waiting <- struct{}{}
	if err := <-g.open; err != nil {
		return 0, err
	}
	return g.journal.Sync()
}

// gated puts a gate before a server's log.
func gated(s *Server) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := &gate{journal: s.keep.log, open: make(chan error), waiting: make(chan struct{})}
	s.keep.log = g
	return g
}

// held tells how much is queued for a client, and whether it is being sent.
func (s *Server) held(c *rawClient) (bytes int, writing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sess := s.sessions[c.session]
	return len(sess.conn.out), sess.conn.writing
}

func TestNothingIsShownBeforeItIsDurable(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock(), DataDir: t.TempDir(), NoForceSync: true})
	w, r, other := dial(t, s, 20*time.Second), dial(t, s, 20*time.Second), dial(t, s, 20*time.Second)
	w.create("/n", "old", 0)
	w.create("/watched", "", 0)
	r.must(zkwire.OpGetData, watchBody("/n"))
	g := gated(s)
	w.write(w.request(zkwire.OpSetData, setBody("/n", "new")))
	<-g.waiting // the write is in the tree, and on its way to the disk
	// The notice, and a read that sees the new state, are held back as well.
	r.write(r.request(zkwire.OpGetData, pathBody("/n")))
	other.write(other.request(zkwire.OpPing, nil))
	for _, c := range []*rawClient{w, r, other} {
		for {
			n, writing := s.held(c)
			if writing {
				t.Fatal("something is sent before the disk has it")
			}
			if n > 0 && (c != r || n > 60) { // r: a notice of 37 bytes, and the answer
				break
			}
		}
	}
	g.open <- nil
	if h, _, err := w.reply(); err != nil || h.Err != zkwire.OK {
		t.Errorf("the writer: %v, %v", h.Err, err)
	}
	_, d, err := r.reply()
	if err != nil || string(d.Buffer()) != "new" {
		t.Errorf("the reader: %v", err)
	}
	r.heard(seen{EventDataChanged, "/n"})
	if h, _, err := other.reply(); err != nil || h.Xid != zkwire.XidPing {
		t.Errorf("the third: %v", err)
	}
	s.mu.Lock()
	s.keep.log = g.journal
	s.mu.Unlock()
}

func TestADiskThatFailsEndsTheServer(t *testing.T) {
	log, out := logged()
	s := serverFor(t, Options{Clock: NewManualClock(), DataDir: t.TempDir(), NoForceSync: true, Log: log})
	c := dial(t, s, 20*time.Second)
	g := gated(s)
	c.write(c.request(zkwire.OpCreate, createBody("/n", "", 0)))
	<-g.waiting
	full := errors.New("no space left on device")
	g.open <- full
	if _, _, err := c.reply(); err == nil {
		t.Error("a write was acknowledged that is not on disk")
	}
	c.gone()
	if err := s.failure(); !errors.Is(err, full) || !strings.Contains(out.String(), "no space left") {
		t.Errorf("failure %v, log %q", err, out)
	}
	if _, err := s.Dial(t.Context(), "", ""); !errors.Is(err, full) {
		t.Errorf("a new connection: %v", err)
	}
	s.mu.Lock()
	s.keep.log = g.journal
	s.mu.Unlock()
}

func TestTooManyPendingTransactionsStopTheReading(t *testing.T) {
	s := serverFor(t, Options{Clock: NewManualClock(), DataDir: t.TempDir(), NoForceSync: true})
	c, d := dial(t, s, 20*time.Second), dial(t, s, 20*time.Second)
	c.create("/n", "", 0)
	g := gated(s)
	c.write(c.request(zkwire.OpSetData, setBody("/n", "")))
	<-g.waiting
	const n = 5000
	go func() {
		for i := range n {
			d.nc.Write(framed(append(zkwire.RequestHeader{Xid: int32(i), Op: zkwire.OpSetData}.Append(nil), setBody("/n", "")...)))
		}
	}()
	var pending int64
	for pending <= maxBehind {
		s.Look(func(*Tree) { pending = s.keep.pending() })
	}
	go func() {
		for range g.waiting {
		}
	}()
	for range 100 {
		s.Look(func(*Tree) { pending = s.keep.pending() })
		if pending > maxBehind+batchFrames {
			t.Fatalf("%d transactions are pending", pending)
		}
	}
	close(g.open) // every Sync goes through from now on
	for i := range n {
		if h, _, err := d.reply(); err != nil || h.Xid != int32(i) || h.Err != zkwire.OK {
			t.Fatalf("answer %d: %+v, %v", i, h, err)
		}
	}
	if h, _, err := c.reply(); err != nil || h.Err != zkwire.OK {
		t.Errorf("the first one: %v, %v", h.Err, err)
	}
	s.Close()
	close(g.waiting)
}

// TestPasswordIsApaches compares with what java.util.Random makes of the ids.
func TestPasswordIsApaches(t *testing.T) {
	for id, want := range map[int64]string{
		0:                 "f22acd4a97e69d6d20a49bb638eadb38",
		42:                "c813ee495620c3a68794ef27a239e8a9",
		0x1a22ee7b7470016: "dfacc7c9ddf35d63d8ea884eb252766b",
		-5:                "d47144b5e45e45c49c3b7fdcd66257ba",
	} {
		if got := fmt.Sprintf("%x", javaPassword(id)); got != want {
			t.Errorf("id %d: %s, want %s", id, got, want)
		}
	}
}
