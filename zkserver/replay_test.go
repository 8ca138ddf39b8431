package zkserver

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// logTree has sessions 1 and 2 and these nodes: /p, its ephemeral /p/e of 1.
func logTree(t *testing.T) *Tree {
	tree := NewTree()
	tree.OpenSession(1)
	tree.OpenSession(2)
	r := tree.Multi(Who{Session: 1}, 5, []Op{{Path: "/p", ACL: OpenACL()}, {Path: "/p/e", Mode: Ephemeral, ACL: OpenACL()}})
	if r.Code() != OK {
		t.Fatal(r)
	}
	return tree
}

func replayed(t *testing.T, tree *Tree, session, zxid int64, r zkwire.TxnRecord) {
	t.Helper()
	if err := tree.Replay(&zkwire.Txn{Session: session, Zxid: zxid, Time: 9, Record: r}); err != nil {
		t.Fatal(err)
	}
}

func TestReplayOfForeignLogs(t *testing.T) {
	multi := func(parts ...zkwire.TxnRecord) zkwire.TxnRecord { return &zkwire.TxnMulti{Parts: parts} }
	create := func(path string, made int32) *zkwire.TxnCreate {
		return &zkwire.TxnCreate{Op: zkwire.OpCreate2, Path: path, ParentCreated: made}
	}
	for _, row := range []struct {
		name   string
		record zkwire.TxnRecord
		path   string // whose Stat is told
		want   string // "" is: no such node
	}{
		{"Apache logs the parts before the failing one as if they stood",
			multi(create("/x", 9), &zkwire.TxnError{Err: zkwire.ErrBadVersion}), "/x", ""},
		{"a multi of one part", multi(create("/x", 9)), "/x", "c=9 m=9 p=9 v=0 cv=0 av=0 owner=0 len=0 children=0"},
		{"an old log does not know the parent's count", create("/p/x", -1), "/p", "c=3 m=3 p=9 v=0 cv=2 av=0 owner=0 len=0 children=2"},
		{"nor does it raise it again", create("/p/e", -1), "/p", "c=3 m=3 p=9 v=0 cv=1 av=0 owner=0 len=0 children=1"},
		{"a create that the snapshot has raises the parent", create("/p/e", 7), "/p", "c=3 m=3 p=9 v=0 cv=13 av=0 owner=0 len=0 children=1"},
		{"and leaves the node", create("/p/e", 7), "/p/e", "c=3 m=3 p=3 v=0 cv=0 av=0 owner=1 len=0 children=0"},
		{"a create below a node that is gone", create("/gone/x", 1), "/gone/x", ""},
		{"a delete takes what came later along", &zkwire.TxnDelete{Path: "/p"}, "/p/e", ""},
		{"a delete of nothing is told to the parent", &zkwire.TxnDelete{Path: "/p/x"}, "/p", "c=3 m=3 p=9 v=0 cv=1 av=0 owner=0 len=0 children=1"},
		{"a set has the version of the log", &zkwire.TxnSetData{Path: "/p", Data: []byte("xy"), Version: 4}, "/p", "c=3 m=9 p=3 v=4 cv=1 av=0 owner=0 len=2 children=1"},
		{"a set of nothing", &zkwire.TxnSetData{Path: "/q", Version: 4}, "/q", ""},
		{"an access list, and none is the open one", &zkwire.TxnSetACL{Path: "/p", Version: 3}, "/p", "c=3 m=3 p=3 v=0 cv=1 av=3 owner=0 len=0 children=1"},
		{"an old log does not name the ephemerals", &zkwire.TxnCloseSession{}, "/p/e", ""},
		{"a container", &zkwire.TxnCreate{Op: zkwire.OpCreateContainer, Path: "/c", ParentCreated: 2}, "/c", "c=9 m=9 p=9 v=0 cv=0 av=0 owner=0 len=0 children=0"},
		{"a check changes nothing", multi(&zkwire.TxnCheck{Path: "/p"}), "/p", "c=3 m=3 p=3 v=0 cv=1 av=0 owner=0 len=0 children=1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			tree := logTree(t)
			replayed(t, tree, 1, 9, row.record)
			got := ""
			if st, code := tree.Exists(Who{}, row.path); code == OK {
				got = stat(st)
			}
			if got != row.want || tree.Zxid() != 9 {
				t.Errorf("%s at zxid %d: %q, want %q", row.path, tree.Zxid(), got, row.want)
			}
			if err := checkInside(tree); err != nil {
				t.Error(err)
			}
		})
	}
}

// The snapshot may know what the log behind it has lost: nothing is lowered.
func TestReplayOfThePast(t *testing.T) {
	for _, r := range []zkwire.TxnRecord{&zkwire.TxnCreate{Path: "/p/e"}, &zkwire.TxnCreate{Path: "/p/e", ParentCreated: -1}, &zkwire.TxnDelete{Path: "/p/x"}} {
		tree := logTree(t)
		replayed(t, tree, 1, 2, r)
		if st, _ := tree.Exists(Who{}, "/p"); stat(st) != "c=3 m=3 p=3 v=0 cv=1 av=0 owner=0 len=0 children=1" || tree.Zxid() != 3 {
			t.Errorf("%T: %s at zxid %d", r, stat(st), tree.Zxid())
		}
	}
}

func TestReplayRefuses(t *testing.T) {
	tree := logTree(t)
	for _, row := range []struct {
		record zkwire.TxnRecord
		want   string
	}{
		{&zkwire.TxnCreate{Path: "p"}, `replay zxid 0x1f, create "p": the path does not begin with /`},
		{nil, "replay zxid 0x1f: a transaction of type <nil> is not known"},
		{&zkwire.TxnMulti{Parts: []zkwire.TxnRecord{nil}}, "replay zxid 0x1f: a transaction of type <nil> is not known"},
	} {
		if err := tree.Replay(&zkwire.Txn{Zxid: 31, Record: row.record}); err == nil || err.Error() != row.want {
			t.Errorf("%v: %v, want %s", row.record, err, row.want)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	tree := NewTree()
	for path, want := range map[string]string{
		"":      `restore "": the path is empty`,
		"/a//b": `restore "/a//b": the path has an empty part`,
		"/a/b":  "restore /a/b: its parent is missing",
		"/":     "restore /: the root is persistent, not of mode 1",
	} {
		if err := tree.Restore(Saved{Path: path, Mode: Ephemeral}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A snapshot may hold nodes of a session that was opened after it was begun:
// its opening is in the log. Without it the session ended before the crash.
func TestOrphans(t *testing.T) {
	tree := NewTree()
	for path, owner := range map[string]int64{"/a": 7, "/b": 8} {
		if err := tree.Restore(Saved{Path: path, Mode: Ephemeral, Stat: Stat{Czxid: 3, EphemeralOwner: owner}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.Restore(Saved{Path: "/b/damaged", Mode: Ephemeral, Stat: Stat{EphemeralOwner: 7}}); err != nil {
		t.Fatal(err)
	}
	replayed(t, tree, 7, 4, &zkwire.TxnCreateSession{})
	if got := tree.RemoveOrphans(); !slices.Equal(got, []string{"/b"}) || tree.Zxid() != 4 {
		t.Errorf("removed %v at zxid %d", got, tree.Zxid())
	}
	if got := tree.Ephemerals(7); !slices.Equal(got, []string{"/a"}) || !tree.Alive(7) || tree.Alive(8) {
		t.Errorf("left: %v", got)
	}
	if err := checkInside(tree); err != nil {
		t.Error(err)
	}
}

// An ephemeral with children is a damaged snapshot's; its session ends all the same.
func TestCloseOfDamagedEphemerals(t *testing.T) {
	tree := NewTree()
	tree.AddSession(7)
	for _, s := range []Saved{{Path: "/e", Mode: Ephemeral}, {Path: "/e/e", Mode: Ephemeral}, {Path: "/e/p"}} {
		s.Stat.EphemeralOwner = 7
		if err := tree.Restore(s); err != nil {
			t.Fatal(err)
		}
	}
	if r := tree.CloseSession(7); !slices.Equal(r.Closed, []string{"/e/e", "/e/p", "/e"}) {
		t.Error(r.Closed)
	}
	if err := checkInside(tree); err != nil || tree.Len() != 4 {
		t.Error(err, tree.Len())
	}
}

func TestRecords(t *testing.T) {
	tree := logTree(t)
	tree.ExtendedTypes = true
	ops := []Op{
		{Path: "/p/s-", Mode: EphemeralSequential, Data: []byte("d"), ACL: OpenACL()},
		{Path: "/c", Mode: Container, ACL: OpenACL()},
		{Path: "/t", Mode: PersistentTTL, TTL: 60, ACL: OpenACL()},
		{Kind: OpSet, Path: "/p", Version: AnyVersion},
		{Kind: OpSetACL, Path: "/p", Version: AnyVersion, ACL: append(OpenACL(), OpenACL()...)},
		{Kind: OpCheck, Path: "/p", Version: 1},
		{Kind: OpDelete, Path: "/c", Version: AnyVersion},
	}
	want := []zkwire.TxnRecord{
		&zkwire.TxnCreate{Op: zkwire.OpCreate, Path: "/p/s-0000000001", Data: []byte("d"), ACL: OpenACL(), Ephemeral: true, ParentCreated: 2},
		&zkwire.TxnCreate{Op: zkwire.OpCreateContainer, Path: "/c", ACL: OpenACL(), ParentCreated: 2},
		&zkwire.TxnCreate{Op: zkwire.OpCreateTTL, Path: "/t", ACL: OpenACL(), ParentCreated: 3, TTL: 60},
		&zkwire.TxnSetData{Path: "/p", Version: 1},
		&zkwire.TxnSetACL{Path: "/p", Version: 1, ACL: OpenACL()},
		&zkwire.TxnCheck{Path: "/p", Version: 1},
		&zkwire.TxnDelete{Op: zkwire.OpDelete, Path: "/c"},
	}
	r := tree.Multi(Who{Session: 1}, 5, ops)
	if d := cmp.Diff(&zkwire.TxnMulti{Parts: want}, r.Record(ops)); d != "" {
		t.Errorf("multi (-want +got):\n%s", d)
	}
	ops = []Op{{Kind: OpCheck, Path: "/p", Version: AnyVersion}, {Kind: OpDelete, Path: "/p", Version: AnyVersion}, {Path: "/q"}}
	r = tree.Multi(Who{Session: 1}, 5, ops)
	failed := &zkwire.TxnMulti{Parts: []zkwire.TxnRecord{&zkwire.TxnError{}, &zkwire.TxnError{Err: zkwire.ErrNotEmpty}, &zkwire.TxnError{Err: zkwire.ErrRuntimeInconsistency}}}
	if d := cmp.Diff(failed, r.Record(ops)); d != "" {
		t.Errorf("failed multi (-want +got):\n%s", d)
	}
	if d := cmp.Diff(&zkwire.TxnError{Err: zkwire.ErrNotEmpty}, LogRecord(ops[1], r.Ops[1])); d != "" {
		t.Errorf("failed op (-want +got):\n%s", d)
	}
	sweep := Op{Kind: OpSweep, Path: "/t"}
	swept := tree.Write(Who{}, 66, sweep)
	if d := cmp.Diff(&zkwire.TxnDelete{Op: zkwire.OpDeleteContainer, Path: "/t"}, LogRecord(sweep, swept.Ops[0])); d != "" {
		t.Errorf("sweep (-want +got):\n%s", d)
	}
}

// Behind 2147483647 sequence numbers are negative (spec/zookeeper.md §4.5);
// a transaction that fails there gives the number back, and a log tells it.
func TestSequenceOverflow(t *testing.T) {
	tree := NewTree()
	tree.OpenSession(1)
	if err := tree.Restore(Saved{Path: "/s", Created: math.MaxInt32 - 1}); err != nil {
		t.Fatal(err)
	}
	again := NewTree()
	if err := again.Restore(Saved{Path: "/s", Created: math.MaxInt32 - 1}); err != nil {
		t.Fatal(err)
	}
	op := Op{Path: "/s/n", Mode: PersistentSequential, ACL: OpenACL()}
	for _, want := range []string{"/s/n2147483646", "/s/n2147483647", "/s/n-2147483648", "/s/n-2147483647"} {
		if r := tree.Multi(Who{Session: 1}, 0, []Op{op, op, {Kind: OpDelete, Path: "/none"}}); r.Code() != NoNode {
			t.Fatal(r)
		}
		r := tree.Write(Who{Session: 1}, 0, op)
		if r.Ops[0].Path != want {
			t.Errorf("made %s, want %s", r.Ops[0].Path, want)
		}
		replayed(t, again, 1, r.Zxid, LogRecord(op, r.Ops[0]))
	}
	for _, tree := range []*Tree{tree, again} {
		if got := tree.saved("/s", tree.node("/s")).Created; got != math.MinInt32+2 {
			t.Errorf("created: %d", got)
		}
	}
	for created, want := range map[int32]string{0: "x0000000000", 7: "x0000000007", -1: "x-000000001", -1234567890: "x-1234567890"} {
		if got := sequential("x", created); got != want {
			t.Errorf("%d: %s, want %s", created, got, want)
		}
	}
}

func TestWatchedPaths(t *testing.T) {
	tree := NewTree()
	for _, w := range []armed{{3, DataWatch, "/b"}, {1, ChildWatch, "/b"}, {1, DataWatch, "/b"}, {2, RecursiveWatch, "/"}, {2, PersistentWatch, "/a"}} {
		tree.Watch(w.who, w.kind, w.path)
	}
	var got []string
	tree.WatchedPaths(func(path string, who []Watcher) {
		for _, w := range who {
			got = append(got, path+string(rune('0'+w)))
		}
	})
	if want := "/2 /a2 /b1 /b3"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestAppendChildren(t *testing.T) {
	tree := logTree(t)
	room := make([]string, 0, 4)
	names, st, code := tree.AppendChildren(room, Who{}, "/p")
	if !slices.Equal(names, []string{"e"}) || st.NumChildren != 1 || code != OK || &names[0] != &room[:1][0] {
		t.Error(names, st, code)
	}
	if names, _, code = tree.AppendChildren(room, Who{}, "/q"); len(names) != 0 || code != NoNode {
		t.Error(names, code)
	}
}
