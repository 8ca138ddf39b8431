package zkserver

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// TestTreeAgainstModel plays random histories on the tree and on the model,
// and compares all that either can tell after every step. A snapshot is taken
// in pieces meanwhile: with the log behind it, it must be the tree.
func TestTreeAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDriver(rt, func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "pick") })
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			d.step()
		}
		d.finish()
	})
}

// FuzzTree plays the history that the bytes choose.
func FuzzTree(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 1, 1, 2, 0, 0})
	f.Add(bytes.Repeat([]byte{0, 0, 6, 1, 3, 5, 9, 2, 7, 4, 8}, 40))
	f.Fuzz(func(t *testing.T, choices []byte) {
		d := newDriver(t, func(n int) int {
			if len(choices) == 0 {
				return 0
			}
			c := int(choices[0]) % n
			choices = choices[1:]
			return c
		})
		d.every = 8
		for steps := 0; len(choices) > 0 && steps < 100; steps++ {
			d.step()
		}
		d.finish()
	})
}

type fataler interface{ Fatalf(string, ...any) }

// driver does the same to both trees; pick(n) chooses below n.
type driver struct {
	t    fataler
	pick func(n int) int
	tree *Tree
	m    *model
	now  int64
	log  []*zkwire.Txn

	steps, every int // how many steps there were, and after how many trees are compared

	cursor   *Cursor // a snapshot under way
	since    int64
	sessions []int64
	saved    []Saved
	held     map[string][]byte // what GetData once gave, by its contents then
}

func newDriver(t fataler, pick func(int) int) *driver {
	d := &driver{t: t, pick: pick, tree: NewTree(), m: newModel(), every: 1, held: map[string][]byte{}}
	d.tree.texts.spare = 100 // so that pages are cleared all the time
	d.m.extended = pick(3) > 0
	d.tree.ExtendedTypes = d.m.extended
	for s := int64(1); s <= 3; s++ {
		d.open(s)
	}
	return d
}

func (d *driver) logged(session int64, r zkwire.TxnRecord) {
	d.log = append(d.log, &zkwire.Txn{Session: session, Zxid: d.tree.Zxid(), Time: d.now, Record: r})
}

var somePaths = []string{"/a", "/b", "/a/a", "/a/b", "/a-", "/a/a/a", "/b/a", "/", "", "/a/", "//a", "a", "/b/..", "/b/\x00", "/a/\uf001", configPath}

func (d *driver) path() string {
	if d.pick(3) > 0 {
		known := []string{}
		for p := range d.m.nodes {
			known = append(known, p)
		}
		slices.Sort(known)
		p := known[d.pick(len(known))]
		if d.pick(4) == 0 && p != "/" {
			p += "/c"
		}
		return p
	}
	return somePaths[d.pick(len(somePaths))]
}

func (d *driver) data() []byte {
	return [][]byte{nil, {}, []byte("x"), []byte("yy"), bytes.Repeat([]byte("8"), 8000), bytes.Repeat([]byte("9"), 9000)}[d.pick(6)]
}

func (d *driver) op() Op {
	kind := []OpKind{OpCreate, OpCreate, OpCreate, OpDelete, OpDelete, OpSet, OpSet, OpCheck, OpSetACL, OpSweep, 77}[d.pick(11)]
	op := Op{Kind: kind, Path: d.path(), Version: []int32{-1, -1, -1, 0, 1, 2}[d.pick(6)], Data: d.data()}
	if kind == OpCreate || kind == OpSetACL {
		op.ACL = lists[max(0, d.pick(len(lists)+6)-6)].asked
	}
	if kind == OpCreate {
		op.Mode, op.TTL = Mode(d.pick(9)-1), int64(d.pick(3)*10)
	}
	return op
}

// crowd is many ops at once: children that come, or all children that go.
func (d *driver) crowd() []Op {
	path, ops := d.path(), []Op{}
	if path == "/" || d.pick(3) == 0 {
		for _, name := range d.m.children(clean(path)) {
			ops = append(ops, Op{Kind: OpDelete, Path: strings.TrimSuffix(path, "/") + "/" + name, Version: AnyVersion})
		}
		return ops
	}
	for range min(40, max(0, 150-len(d.m.nodes))) {
		ops = append(ops, Op{Path: path + "/s", Mode: PersistentSequential, ACL: OpenACL(), Data: []byte("0123456789")})
	}
	return ops
}

func (d *driver) step() {
	session := int64(1 + d.pick(3))
	d.now += int64(d.pick(8))
	switch d.pick(16) {
	case 0:
		d.open(session)
	case 1:
		d.close(session)
	case 2, 3, 4:
		d.watch()
	case 5:
		d.rearm()
	case 6:
		d.read(someone(session))
	case 7:
		d.write(session, d.crowd(), true)
	case 8, 9, 10:
		ops := []Op{}
		for range d.pick(6) {
			ops = append(ops, d.op())
		}
		d.write(session, ops, true)
	default:
		d.write(session, []Op{d.op()}, false)
	}
	if d.steps++; d.steps%d.every == 0 {
		d.compare()
	}
	d.snapshot()
}

func (d *driver) open(session int64) {
	if !d.m.alive[session] {
		d.tree.OpenSession(session)
		d.m.alive[session] = true
		d.m.zxid++
		d.logged(session, &zkwire.TxnCreateSession{Timeout: 1000})
	}
}

func (d *driver) close(session int64) {
	closed, fired := d.m.close(session)
	r := d.tree.CloseSession(session)
	d.equal("closed", closed, r.Closed)
	d.equal("notices", fired, notices(r.Fired, true))
	d.tree.DropWatcher(Watcher(session))
	d.m.watches = slices.DeleteFunc(d.m.watches, func(a armed) bool { return a.who == Watcher(session) })
	d.logged(session, &zkwire.TxnCloseSession{Paths: r.Closed, Known: true})
}

func (d *driver) write(session int64, ops []Op, multi bool) {
	want, fired := d.m.multi(session, d.now, ops)
	r := d.tree.Multi(someone(session), d.now, ops)
	if multi {
		d.logged(session, r.Record(ops))
	} else {
		d.logged(session, LogRecord(ops[0], r.Ops[0]))
	}
	for i := range ops { // what was given may be used again
		ops[i].Data = append([]byte(nil), ops[i].Data...)
		for j := range ops[i].Data {
			ops[i].Data[j] = '!'
		}
	}
	var got []outcome
	for _, o := range r.Ops {
		got = append(got, outcome{code: o.Code, path: o.Path, stat: o.Stat})
	}
	for i := range want {
		want[i].told = nil
	}
	if fmt.Sprint(want) != fmt.Sprint(append([]outcome{}, got...)) {
		d.t.Fatalf("ops %.300s\nmodel %+v\ntree  %+v", fmt.Sprint(ops), want, got)
	}
	d.equal("notices", fired, notices(r.Fired, true))
}

func notices(fired []Fired, acl bool) []string {
	var out []string
	for _, f := range fired {
		s := fmt.Sprintf("%d %s %s", f.Watcher, f.Type, f.Path)
		if acl {
			s += fmt.Sprintf(" %v", f.ACL)
		}
		out = append(out, s)
	}
	return out
}

func (d *driver) watch() {
	a := armed{Watcher(1 + d.pick(3)), WatchKind(d.pick(int(watchKinds))), d.path()}
	key := armed{a.who, a.kind, clean(a.path)}
	switch d.pick(5) {
	case 0:
		if got, want := d.tree.Unwatch(a.who, a.kind, a.path), d.m.unwatch(key); got != want {
			d.t.Fatalf("unwatch %v: model %v, tree %v", a, want, got)
		}
	case 1: // a crowd on one node
		for w := range Watcher(20) {
			d.tree.Watch(100+w, a.kind, a.path)
			d.m.watch(armed{100 + w, a.kind, key.path})
		}
	case 2: // half of it leaves
		for w := range Watcher(12) {
			d.tree.DropWatcher(100 + w)
		}
		d.m.watches = slices.DeleteFunc(d.m.watches, func(a armed) bool { return a.who >= 100 && a.who < 112 })
	default:
		d.tree.Watch(a.who, a.kind, a.path)
		d.m.watch(key)
	}
	if got, want := d.tree.Watches(a.who, a.kind, a.path), slices.Contains(d.m.watches, key); got != want {
		d.t.Fatalf("watches %v: model %v, tree %v", a, want, got)
	}
}

func (d *driver) rearm() {
	who, seen := Watcher(1+d.pick(3)), d.m.zxid-int64(d.pick(4))
	var lists [5][]string
	var want []string
	for i, kind := range []WatchKind{DataWatch, DataWatch, ChildWatch, PersistentWatch, RecursiveWatch} {
		for range d.pick(3) {
			p := clean(d.path())
			lists[i] = append(lists[i], p)
			want = append(want, d.m.rearm(who, seen, kind, i == 1, p)...)
		}
	}
	d.equal("missed", want, notices(d.tree.Rearm(who, seen, lists[0], lists[1], lists[2], lists[3], lists[4]), false))
}

// read compares what somebody may see of a node.
func (d *driver) read(who Who) {
	path := d.path()
	n, there := d.m.nodes[clean(path)]
	want := OK
	switch {
	case !there:
		want = NoNode
	case !allowed(who.Session, PermRead, n.acl):
		want = NoAuth
	}
	data, _, c1 := d.tree.GetData(who, path)
	names, _, c2 := d.tree.GetChildren(who, path)
	_, c3 := d.tree.Exists(who, path)
	if c1 != want || c2 != want || c3 != want && !strings.Contains(path, "\x00") {
		d.t.Fatalf("read %q by %v: model %v, tree %v %v %v", path, who, want, c1, c2, c3)
	}
	if want == OK {
		d.held[string(data)] = data
		d.equal("children", d.m.children(clean(path)), names)
	}
}

// compare all that model and tree can tell, and the tree with itself.
func (d *driver) compare() {
	d.equal("trees", d.m.dump(d.now), dumpTree(d.tree, d.now))
	for s := int64(1); s <= 3; s++ {
		d.equal("ephemerals", d.m.ephemerals(s), d.tree.Ephemerals(s))
	}
	for then, now := range d.held {
		if then != string(now) {
			d.t.Fatalf("data that was handed out has changed: %.20q is %.20q", then, now)
		}
	}
	if err := checkInside(d.tree); err != nil {
		d.t.Fatalf("%v", err)
	}
}

func (d *driver) equal(what string, want, got []string) {
	if len(want)+len(got) > 0 && !slices.Equal(want, got) {
		d.t.Fatalf("%s (-model +tree):\n%s", what, cmp.Diff(want, got))
	}
}

// snapshot goes on with the one that is being taken, or begins one.
func (d *driver) snapshot() {
	switch {
	case d.cursor == nil && d.pick(4) == 0:
		d.cursor, d.since, d.sessions, d.saved = d.tree.Cursor(), d.tree.Zxid(), d.tree.Sessions(), nil
	case d.cursor != nil:
		d.saved = append(d.saved, d.cursor.Next(1+d.pick(4))...)
	}
}

// finish recovers from the snapshot and the log behind it, from the log
// alone, and from a snapshot of the end.
func (d *driver) finish() {
	d.compare()
	d.recovers(nil, 0, nil)
	if d.cursor != nil {
		for s := d.cursor.Next(7); s != nil; s = d.cursor.Next(7) {
			d.saved = append(d.saved, s...)
		}
		d.recovers(d.sessions, d.since, d.saved)
	}
	var all []Saved
	d.tree.Walk(func(s Saved) { all = append(all, s) })
	d.recovers(d.tree.Sessions(), d.tree.Zxid(), all)
}

func (d *driver) recovers(sessions []int64, since int64, saved []Saved) {
	again := NewTree()
	for _, s := range sessions {
		again.AddSession(s)
	}
	for _, s := range saved {
		if err := again.Restore(s); err != nil {
			d.t.Fatalf("%v", err)
		}
	}
	for _, txn := range d.log {
		if txn.Zxid > since {
			if err := again.Replay(txn); err != nil {
				d.t.Fatalf("%v", err)
			}
		}
	}
	again.AdvanceZxid(since)
	if orphans := again.RemoveOrphans(); len(orphans) > 0 {
		d.t.Fatalf("nodes of sessions that are not: %v", orphans)
	}
	again.watches = d.tree.watches // recovery loses them: not compared
	d.equal("recovered", dumpTree(d.tree, d.now), dumpTree(again, d.now))
	if err := checkInside(again); err != nil {
		d.t.Fatalf("recovered: %v", err)
	}
}

// dumpTree is the model's dump of a tree.
func dumpTree(t *Tree, now int64) []string {
	var out []string
	super := someone(3)
	t.Walk(func(s Saved) {
		names, stat, _ := t.GetChildren(super, s.Path)
		below, _ := t.CountDescendants(super, s.Path)
		if stat != s.Stat {
			out = append(out, fmt.Sprintf("%s: read %+v, saved %+v", s.Path, stat, s.Stat))
		}
		out = append(out, fmt.Sprintf("%s %.9q %v %v ttl=%d %+v made=%d acl=%v children=%v below=%d",
			s.Path, s.Data, s.Data == nil, s.Mode, s.TTL, stat, s.Created, s.ACL, names, below))
	})
	slices.Sort(out)
	w, p, c := t.CountWatches()
	due := append([]string{}, t.Due(now)...)
	return append(out, fmt.Sprintf("zxid=%d nodes=%d size=%d ephemerals=%d due=%v alive=%v watches=%d,%d,%d", t.Zxid(), t.Len(), t.DataSize(),
		t.EphemeralCount(), due, t.Sessions(), w, p, c))
}

// checkInside compares the tree's counters and places with what is there.
func checkInside(t *Tree) error {
	refs, live, extras := map[uint32]int{}, int64(0), 0
	var visit func(id uint32) error
	visit = func(id uint32) error {
		n := t.nodes.at(id)
		refs[n.acl]++
		live += int64(entryHead + int(n.nameLen) + t.dataLen(n))
		if n.extra != 0 {
			extras++
		}
		if path := t.path(id); t.find(path) != id {
			return fmt.Errorf("%s is not found", path)
		}
		for i, kid := range t.children(n) {
			if k := t.nodes.at(kid); k.parent != id || int(k.slot) != i {
				return fmt.Errorf("%s has a wrong parent or slot", t.path(kid))
			}
			if err := visit(kid); err != nil {
				return err
			}
		}
		return nil
	}
	if err := visit(rootID); err != nil {
		return err
	}
	size := int64(0)
	for _, p := range t.texts.pages {
		size += int64(len(p.buf))
	}
	switch {
	case live != t.texts.live || size != t.texts.size:
		return fmt.Errorf("texts: %d of %d bytes live, counted %d of %d", live, size, t.texts.live, t.texts.size)
	case size-live > live/waste+t.texts.spare+pageSize:
		return fmt.Errorf("texts: %d of %d bytes are dead", size-live, size)
	case int(t.nodes.next)-len(t.nodes.free) != t.Len() || int(t.extras.next)-len(t.extras.free) != extras:
		return fmt.Errorf("%d nodes and %d extras are taken, there are %d and %d", int(t.nodes.next)-len(t.nodes.free),
			int(t.extras.next)-len(t.extras.free), t.Len(), extras)
	}
	for acl, l := range t.acls.lists {
		if acl != openACL && l.refs != refs[uint32(acl)] {
			return fmt.Errorf("access list %d has %d references, counted %d", acl, l.refs, refs[uint32(acl)])
		}
	}
	return nil
}
