package zkfiles_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/zkserver/zkfiles"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

// actor makes transactions that a server could have made, of a small tree.
type actor struct {
	m     *model
	zxid  int64
	shown map[int64]string // the tree after each zxid, if it is not nil
}

func newActor() *actor {
	m := &model{}
	m.Reset()
	for _, n := range freshNodes() {
		m.Node(n)
	}
	return &actor{m: m, shown: map[int64]string{0: m.String()}}
}

var actorACLs = [][]zkwire.ACL{
	{{Perms: zkwire.PermAll, Scheme: "world", ID: "anyone"}},
	{{Perms: zkwire.PermAll, Scheme: "digest", ID: "a:b"}},
	{{Perms: zkwire.PermRead, Scheme: "ip", ID: "127.0.0.1"}, {Perms: zkwire.PermAll, Scheme: "digest", ID: "c:d"}},
}

// next makes a transaction from chance, a number for each choice.
func (a *actor) next(chance func(n int) int) *zkwire.Txn {
	a.zxid++
	t := &zkwire.Txn{Session: int64(chance(3) + 1), Cxid: int32(a.zxid), Zxid: a.zxid, Time: 1_000_000 + a.zxid}
	if chance(8) == 0 {
		t.Record = a.multi(t, chance)
	} else {
		t.Record = a.record(t, chance)
	}
	if err := a.m.Txn(t); err != nil {
		panic(fmt.Sprintf("%+v: %v", t.Record, err))
	}
	if a.shown != nil {
		a.shown[a.zxid] = a.m.String()
	}
	return t
}

// multi makes parts on nodes of their own, so that each could be done.
func (a *actor) multi(t *zkwire.Txn, chance func(n int) int) zkwire.TxnRecord {
	if chance(4) == 0 {
		return &zkwire.TxnMulti{Parts: []zkwire.TxnRecord{&zkwire.TxnError{}, &zkwire.TxnError{Err: zkwire.ErrNoNode}}}
	}
	part := a.record(t, chance)
	switch part.(type) {
	case *zkwire.TxnError, *zkwire.TxnCloseSession: // the one would fail all, the other may not be in it
		part = &zkwire.TxnCheck{Path: "/", Version: 0}
	}
	return &zkwire.TxnMulti{Parts: []zkwire.TxnRecord{
		&zkwire.TxnSetData{Path: "/zookeeper", Data: fmt.Append(nil, a.zxid), Version: a.m.nodes["/zookeeper"].Stat.Version + 1}, part,
	}}
}

func (a *actor) record(t *zkwire.Txn, chance func(n int) int) zkwire.TxnRecord {
	parent := []string{"", "/p", "/q"}[chance(3)]
	path := parent + "/" + []string{"a", "b", "c"}[chance(3)]
	if parent != "" && a.m.nodes[parent] == nil {
		path, parent = parent, ""
	}
	if parent == "" {
		parent = "/"
	}
	n, above := a.m.nodes[path], a.m.nodes[parent]
	if n == nil {
		rec := &zkwire.TxnCreate{Op: []int32{zkwire.OpCreate, zkwire.OpCreate, zkwire.OpCreateContainer, zkwire.OpCreateTTL}[chance(4)], Path: path,
			Data: fmt.Append(nil, "created ", a.zxid), ACL: actorACLs[chance(3)], ParentCreated: above.Stat.Cversion + 1}
		if rec.Op == zkwire.OpCreateTTL {
			rec.TTL = 1000
		}
		rec.Ephemeral = rec.Op == zkwire.OpCreate && len(path) == 4 && chance(2) == 0
		return rec
	}
	switch chance(6) {
	case 0, 1:
		return &zkwire.TxnSetData{Path: path, Data: fmt.Append(nil, "set ", a.zxid), Version: n.Stat.Version + 1}
	case 2:
		return &zkwire.TxnSetACL{Path: path, ACL: actorACLs[chance(3)], Version: n.Stat.Aversion + 1}
	case 3:
		return a.close(t.Session)
	case 4:
		return &zkwire.TxnError{Err: zkwire.ErrBadVersion}
	}
	for p := range a.m.nodes {
		if strings.HasPrefix(p, path+"/") {
			return &zkwire.TxnError{Err: zkwire.ErrNotEmpty}
		}
	}
	return &zkwire.TxnDelete{Op: zkwire.OpDelete, Path: path}
}

func (a *actor) close(session int64) zkwire.TxnRecord {
	rec := &zkwire.TxnCloseSession{Known: true}
	for _, n := range a.m.list() {
		if n.Stat.EphemeralOwner == session {
			rec.Paths = append(rec.Paths, n.Path)
		}
	}
	return rec
}

// TestCrash interleaves appends, syncs, snapshots written in pieces while the
// tree changes, purges and kills: what comes back is the tree as it was at a
// zxid that is at least the last one that was called durable.
func TestCrash(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp("", "zkfiles")
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { os.RemoveAll(dir) }()
		a := newActor()
		chance := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "choice") }
		s := openRapid(rt, dir)
		defer func() { s.Close() }()
		must := func(err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		var w *zkfiles.SnapshotWriter
		var paths []string
		durable := int64(0)
		begin := func() {
			if w, err = s.BeginSnapshot(a.zxid); err != nil {
				rt.Fatal(err)
			}
			paths = nil
			for _, n := range a.m.list() {
				paths = append(paths, n.Path)
			}
		}
		piece := func(n int) {
			for ; n > 0 && len(paths) > 0; n-- {
				// A node that is gone by now is left out with all below it, as
				// by a cursor; one that came meanwhile may be left out.
				if node := a.m.nodes[paths[0]]; node != nil {
					must(w.Node(*node))
				}
				paths = paths[1:]
			}
		}
		begin()
		piece(99)
		must(w.Commit())
		w = nil
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch c := chance(20); {
			case c < 11:
				s.Append(a.next(chance))
			case c < 14:
				durable, err = s.Sync()
				must(err)
				if durable != a.zxid {
					rt.Fatalf("durable to %d of %d", durable, a.zxid)
				}
			case c < 15 && w == nil:
				begin()
			case c < 17 && w != nil:
				piece(1 + chance(4))
				if len(paths) == 0 {
					must(w.Commit())
					w, durable = nil, a.zxid
				}
			case c == 17:
				must(s.Purge(3))
			case c == 18: // a kill: what was not synced is lost
				w = nil
				copied, err := os.MkdirTemp("", "zkfiles")
				must(err)
				must(copyTo(copied, dir))
				s.Close()
				os.RemoveAll(dir)
				dir = copied
				s = openRapid(rt, dir)
				m := &model{fuzzy: true}
				last, err := s.Recover(m)
				must(err)
				if last < durable || last > a.zxid {
					rt.Fatalf("recovered to %d: durable was %d, appended %d", last, durable, a.zxid)
				}
				if got := m.String(); got != a.shown[last] {
					rt.Fatalf("at zxid %d the tree was\n%s\nand came back as\n%s", last, a.shown[last], got)
				}
				a.m, a.zxid, durable = m, last, last
				m.fuzzy = false
			}
		}
	})
}

func openRapid(rt *rapid.T, dir string) *zkfiles.Store {
	s, err := zkfiles.Open(zkfiles.Options{DataDir: dir, Log: nil})
	if err != nil {
		rt.Fatal(err)
	}
	return s
}

// TestKill kills a process that appends, syncs, snapshots and purges, again and again
// on the same folder. What it said to be durable is there.
func TestKill(t *testing.T) {
	if dir := os.Getenv("ZKFILES_VICTIM"); dir != "" {
		victim(dir)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for round := range 10 {
		cmd := exec.Command(exe, "-test.run=^TestKill$")
		cmd.Env = append(os.Environ(), "ZKFILES_VICTIM="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		durable := int64(-1)
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			zxid, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err != nil {
				t.Fatalf("the victim said %q", lines.Text())
			}
			durable = zxid
			if n == 20+round*17 {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		if durable < 0 {
			t.Fatal("the victim did nothing")
		}
		s := open(t, dir)
		m := &model{fuzzy: true}
		last, err := s.Recover(m)
		if err != nil {
			t.Fatal(err)
		}
		if last < durable {
			t.Fatalf("round %d: zxid %d was durable, only %d came back", round, durable, last)
		}
		if want := replayed(last).String(); m.String() != want {
			t.Fatalf("round %d: at zxid %d the tree was\n%s\nand came back as\n%s", round, last, want, m)
		}
		s.Close()
	}
}

// chanceAt gives the choices for a zxid, the same in every process.
func chanceAt(zxid int64) func(n int) int {
	r := rand.New(rand.NewPCG(uint64(zxid), 7))
	return r.IntN
}

// replayed is the tree that the victim has at a zxid.
func replayed(zxid int64) *model {
	return actorAt(zxid).m
}

// actorAt is the actor that has made all up to zxid.
func actorAt(zxid int64) *actor {
	a := newActor()
	for a.shown = nil; a.zxid < zxid; {
		a.next(chanceAt(a.zxid + 1))
	}
	return a
}

func victim(dir string) {
	s, err := zkfiles.Open(zkfiles.Options{DataDir: dir, ForceSync: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	m := &model{fuzzy: true}
	last, err := s.Recover(m)
	if err != nil {
		fmt.Println(err)
		return
	}
	a := actorAt(last)
	snapshot := func() error {
		w, err := s.BeginSnapshot(a.zxid)
		if err != nil {
			return err
		}
		for _, n := range a.m.list() {
			if err := w.Node(n); err != nil {
				return err
			}
		}
		if err := w.Commit(); err != nil {
			return err
		}
		return s.Purge(3)
	}
	if s.NeedsSnapshot() {
		if err := snapshot(); err != nil {
			fmt.Println(err)
			return
		}
	}
	for {
		for range 1 + a.zxid%5 {
			s.Append(a.next(chanceAt(a.zxid + 1)))
		}
		durable, err := s.Sync()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(durable)
		if a.zxid%11 == 0 {
			if err := snapshot(); err != nil {
				fmt.Println(err)
				return
			}
		}
	}
}
