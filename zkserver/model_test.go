package zkserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model is a second, naive tree: flat values that are copied before every
// transaction, no undo, no tables turned around.
type model struct {
	nodes   map[string]flat
	alive   map[int64]bool
	watches []armed // in the order of arming
	zxid    int64
}

type flat struct {
	data                string
	null                bool
	owner               int64
	czxid, mzxid, pzxid int64
	version, made, gone int32
}

type armed struct {
	who   Watcher
	child bool
	path  string
}

func up(path string) string {
	p := path[:strings.LastIndexByte(path, '/')]
	if p == "" {
		return "/"
	}
	return p
}

func (m *model) children(path string) []string {
	names := []string{}
	for p := range m.nodes {
		if p != "/" && up(p) == path {
			names = append(names, p[strings.LastIndexByte(p, '/')+1:])
		}
	}
	slices.Sort(names)
	return names
}

// one applies an op and tells what happened, as "TYPE path".
func (m *model) one(session, zxid int64, op Op) (Code, string, []string) {
	n, there := m.nodes[op.Path]
	switch {
	case !m.alive[session]:
		return SessionExpired, "", nil
	case op.Kind == OpCreate:
		parent, ok := m.nodes[up(op.Path)]
		path := op.Path
		if op.Mode.sequential() {
			path = fmt.Sprintf("%s%010d", op.Path, parent.made)
		}
		_, there = m.nodes[path]
		switch {
		case !ok:
			return NoNode, "", nil
		case there:
			return NodeExists, "", nil
		case parent.owner != 0:
			return NoChildrenForEphemerals, "", nil
		}
		owner := int64(0)
		if op.Mode.ephemeral() {
			owner = session
		}
		m.nodes[path] = flat{data: string(op.Data), null: op.Data == nil, owner: owner, czxid: zxid, mzxid: zxid, pzxid: zxid}
		parent.made++
		parent.pzxid = zxid
		m.nodes[up(path)] = parent
		return OK, path, []string{"NodeCreated " + path, "NodeChildrenChanged " + up(path)}
	case !there:
		return NoNode, "", nil
	case op.Version != AnyVersion && op.Version != n.version:
		return BadVersion, "", nil
	case op.Kind == OpDelete:
		if len(m.children(op.Path)) > 0 {
			return NotEmpty, "", nil
		}
		return OK, "", m.drop(zxid, op.Path)
	case op.Kind == OpSet:
		n.data, n.null, n.mzxid = string(op.Data), op.Data == nil, zxid
		n.version++
		m.nodes[op.Path] = n
		return OK, "", []string{"NodeDataChanged " + op.Path}
	}
	return OK, "", nil
}

func (m *model) drop(zxid int64, path string) []string {
	delete(m.nodes, path)
	parent := m.nodes[up(path)]
	parent.gone++
	parent.pzxid = zxid
	m.nodes[up(path)] = parent
	return []string{"NodeDeleted " + path, "NodeChildrenChanged " + up(path)}
}

func (m *model) multi(session int64, ops []Op) ([]Code, []string) {
	m.zxid++
	before := maps.Clone(m.nodes)
	codes := make([]Code, len(ops))
	var told []string
	for i, op := range ops {
		code, _, t := m.one(session, m.zxid, op)
		if code != OK {
			m.nodes = before
			clear(codes[:i])
			codes[i] = code
			for j := i + 1; j < len(ops); j++ {
				codes[j] = RuntimeInconsistency
			}
			return codes, nil
		}
		told = append(told, t...)
	}
	return codes, m.fire(told)
}

// fire gives "who TYPE path", a watcher once per happening, data watches first.
func (m *model) fire(told []string) []string {
	var out []string
	for _, h := range told {
		typ, path, _ := strings.Cut(h, " ")
		var hit [2][]Watcher
		m.watches = slices.DeleteFunc(m.watches, func(a armed) bool {
			tables := map[string][2]bool{"NodeCreated": {true, false}, "NodeDataChanged": {true, false},
				"NodeDeleted": {true, true}, "NodeChildrenChanged": {false, true}}[typ]
			if a.path != path || a.child && !tables[1] || !a.child && !tables[0] {
				return false
			}
			k := 0
			if a.child {
				k = 1
			}
			hit[k] = append(hit[k], a.who)
			return true
		})
		var seen []Watcher
		for _, w := range slices.Concat(hit[0], hit[1]) {
			if !slices.Contains(seen, w) {
				seen = append(seen, w)
				out = append(out, fmt.Sprintf("%d %s", w, h))
			}
		}
	}
	return out
}

func (m *model) close(session int64) []string {
	m.zxid++
	var told []string
	for _, p := range slices.Sorted(maps.Keys(m.nodes)) {
		if m.nodes[p].owner == session {
			told = append(told, m.drop(m.zxid, p)...)
		}
	}
	delete(m.alive, session)
	return m.fire(told)
}

func (m *model) dump() []string {
	var out []string
	for p, n := range m.nodes {
		out = append(out, fmt.Sprintf("%s %q %v owner=%d c=%d m=%d p=%d v=%d cv=%d children=%v",
			p, n.data, n.null, n.owner, n.czxid, n.mzxid, n.pzxid, n.version, n.made+n.gone, m.children(p)))
	}
	slices.Sort(out)
	return out
}

func dumpTree(t *Tree) []string {
	var out []string
	t.Walk(func(s Saved) {
		if strings.HasPrefix(s.Path, "/zookeeper") {
			return
		}
		names, _, _ := t.GetChildren(Who{}, s.Path)
		cv := s.Stat.Cversion
		if s.Path == "/" { // its child /zookeeper was never created
			names = slices.DeleteFunc(names, func(n string) bool { return n == "zookeeper" })
			cv++
		}
		out = append(out, fmt.Sprintf("%s %q %v owner=%d c=%d m=%d p=%d v=%d cv=%d children=%v", s.Path, s.Data, s.Data == nil,
			s.Stat.EphemeralOwner, s.Stat.Czxid, s.Stat.Mzxid, s.Stat.Pzxid, s.Stat.Version, cv, names))
	})
	slices.Sort(out)
	return out
}

func TestTreeAgainstModel(t *testing.T) {
	paths := []string{"/a", "/b", "/a/a", "/a/b", "/a/a/a", "/b/a", "/b/b"}
	rapid.Check(t, func(rt *rapid.T) {
		tree := NewTree()
		m := &model{nodes: map[string]flat{"/": {data: ""}}, alive: map[int64]bool{}}
		drawOp := func() Op {
			op := Op{Kind: rapid.SampledFrom([]OpKind{OpCreate, OpCreate, OpDelete, OpSet, OpCheck}).Draw(rt, "op"),
				Path: rapid.SampledFrom(paths).Draw(rt, "path"), ACL: OpenACL(),
				Version: rapid.SampledFrom([]int32{-1, -1, 0, 1, 2}).Draw(rt, "version")}
			if rapid.Bool().Draw(rt, "data") {
				op.Data = []byte(rapid.SampledFrom([]string{"", "x", "y"}).Draw(rt, "bytes"))
			}
			if op.Kind == OpCreate {
				op.Mode = Mode(rapid.IntRange(0, 3).Draw(rt, "mode"))
			}
			return op
		}
		steps := rapid.IntRange(1, 60).Draw(rt, "steps")
		for range steps {
			session := rapid.Int64Range(1, 3).Draw(rt, "session")
			switch rapid.SampledFrom([]string{"open", "close", "watch", "watch", "write", "write", "write", "multi"}).Draw(rt, "do") {
			case "open":
				if !m.alive[session] {
					tree.OpenSession(session)
					m.alive[session] = true
					m.zxid++
				}
			case "close":
				if m.alive[session] {
					compare(rt, m.close(session), tree.CloseSession(session))
				}
			case "watch":
				a := armed{Watcher(session), rapid.Bool().Draw(rt, "child"), rapid.SampledFrom(append(paths, "/")).Draw(rt, "path")}
				kind := DataWatch
				if a.child {
					kind = ChildWatch
				}
				tree.Watch(a.who, kind, a.path)
				if !slices.Contains(m.watches, a) {
					m.watches = append(m.watches, a)
				}
			case "write":
				op := drawOp()
				codes, fired := m.multi(session, []Op{op})
				compare(rt, fired, tree.Write(Who{Session: session}, 0, op), codes...)
			case "multi":
				var ops []Op
				for range rapid.IntRange(0, 5).Draw(rt, "ops") {
					ops = append(ops, drawOp())
				}
				codes, fired := m.multi(session, ops)
				compare(rt, fired, tree.Multi(Who{Session: session}, 0, ops), codes...)
			}
			if d := cmp.Diff(m.dump(), dumpTree(tree)); d != "" {
				rt.Fatalf("trees differ (-model +tree):\n%s", d)
			}
			if m.zxid != tree.Zxid() {
				rt.Fatalf("zxid: model %d, tree %d", m.zxid, tree.Zxid())
			}
		}
		checkRestore(rt, tree)
	})
}

func compare(rt *rapid.T, fired []string, r Result, codes ...Code) {
	var got []string
	for _, f := range r.Fired {
		got = append(got, fmt.Sprintf("%d %s %s", f.Watcher, f.Type, f.Path))
	}
	if d := cmp.Diff(fired, got); d != "" {
		rt.Fatalf("notices differ (-model +tree):\n%s", d)
	}
	var gotCodes []Code
	for _, o := range r.Ops {
		gotCodes = append(gotCodes, o.Code)
	}
	if len(codes)+len(gotCodes) > 0 && !slices.Equal(codes, gotCodes) {
		rt.Fatalf("codes: model %v, tree %v", codes, gotCodes)
	}
}

// checkRestore: a tree that is saved and restored is the same tree, and goes
// on giving the same names.
func checkRestore(rt *rapid.T, tree *Tree) {
	again := NewTree()
	for _, s := range tree.Sessions() {
		again.AddSession(s)
	}
	tree.Walk(func(s Saved) {
		if err := again.Restore(s); err != nil {
			rt.Fatal(err)
		}
	})
	again.AdvanceZxid(tree.Zxid())
	for _, t := range []*Tree{tree, again} {
		t.OpenSession(9)
		t.Write(Who{Session: 9}, 0, Op{Path: "/s-", Mode: EphemeralSequential, ACL: OpenACL()})
		for _, s := range t.Sessions() {
			t.CloseSession(s)
		}
	}
	if d := cmp.Diff(dumpTree(tree), dumpTree(again)); d != "" {
		rt.Fatalf("restored tree differs:\n%s", d)
	}
}
