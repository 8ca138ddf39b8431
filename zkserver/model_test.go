package zkserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// model is a second, naive tree: flat values that are copied before every
// transaction, no undo, no tables turned around, nothing counted.
type model struct {
	nodes    map[string]flat
	alive    map[int64]bool
	watches  []armed // in the order of arming
	zxid     int64
	extended bool
}

type flat struct {
	data       string
	null       bool
	mode       Mode
	owner, ttl int64
	stat       Stat // without what is derived
	made       int32
	acl        string
}

type armed struct {
	who  Watcher
	kind WatchKind
	path string
}

func newModel() *model {
	open := fmt.Sprint(OpenACL())
	m := &model{nodes: map[string]flat{}, alive: map[int64]bool{}}
	for _, p := range []string{"/", "/zookeeper", "/zookeeper/quota"} {
		m.nodes[p] = flat{acl: open}
	}
	m.nodes[configPath] = flat{acl: fmt.Sprint([]ACL{entry(1, "world", "anyone")}), stat: Stat{Aversion: -1}}
	return m
}

// someone is a writer of the model's world: a session and what it may do.
// 1 is nobody, 2 is u:h, 3 is super.
func someone(session int64) Who {
	ids := []Identity{{"ip", "10.0.0.1"}}
	switch session {
	case 2:
		ids = append(ids, Identity{"digest", "u:h"})
	case 3:
		ids = append(ids, Identity{"super", ""})
	}
	return Who{Session: session, Identities: ids}
}

func entry(perms int32, scheme, id string) ACL { return ACL{Perms: perms, Scheme: scheme, ID: id} }

// lists are the access lists that ops ask for, and what is stored ("" is
// refused); of "auth" it depends on who asks.
var lists = []struct {
	asked  []ACL
	stored string
}{
	{OpenACL(), "[{31 world anyone}]"},
	{[]ACL{entry(31, "world", "anyone"), entry(31, "world", "anyone")}, "[{31 world anyone}]"},
	{nil, ""},
	{[]ACL{entry(31, "digest", "u:h")}, "[{31 digest u:h}]"},
	{[]ACL{entry(1, "world", "anyone"), entry(30, "digest", "u:h")}, "[{1 world anyone} {30 digest u:h}]"},
	{[]ACL{entry(1, "world", "anyone")}, "[{1 world anyone}]"},
	{[]ACL{entry(31, "auth", "")}, "auth"},
	{[]ACL{entry(31, "kerberos", "x")}, ""},
}

func stored(session int64, acl []ACL) string {
	for _, l := range lists {
		if !slices.Equal(l.asked, acl) {
			continue
		}
		if l.stored == "auth" && session == 2 {
			return "[{31 digest u:h}]"
		}
		if l.stored == "auth" {
			return ""
		}
		return l.stored
	}
	return ""
}

// allowed goes by the printed lists above.
func allowed(session int64, want int32, acl string) bool {
	switch {
	case session == 3 || acl == "[{31 world anyone}]":
		return true
	case session == 2 && want == PermRead:
		return true // each of them lets u:h read
	case session == 2:
		return strings.Contains(acl, "digest u:h")
	}
	return want == PermRead && strings.Contains(acl, "{1 world anyone}")
}

// clean is "" as the other name of the root.
func clean(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

func up(path string) string { return clean(path[:strings.LastIndexByte(path, '/')]) }

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

func (m *model) stat(path string) Stat { return m.nodes[path].full(len(m.children(path))) }

func (n flat) full(children int) Stat {
	s := n.stat
	s.NumChildren = int32(children)
	s.Cversion = 2*n.made - s.NumChildren
	s.DataLength = int32(len(n.data))
	s.EphemeralOwner = n.owner
	return s
}

func goodPath(p string) bool {
	return p == "/" || strings.HasPrefix(p, "/") && !strings.HasSuffix(p, "/") && !strings.Contains(p, "//") && !strings.ContainsAny(p, "\x00\uf001") &&
		!slices.Contains(strings.Split(p, "/"), "..")
}

// outcome is what one op did: a code, its result and what it tells, as "TYPE
// path acl".
type outcome struct {
	code Code
	path string
	stat Stat
	told []event
}

type event struct {
	kind      EventType
	path, acl string
}

func refuse(c Code) outcome { return outcome{code: c} }

func (m *model) one(session, now int64, op Op) outcome {
	if op.Kind == OpSweep {
		return m.sweep(now, op.Path)
	}
	if op.Kind == OpCreate {
		switch {
		case op.Mode < 0 || op.Mode > 6:
			return refuse(BadArguments)
		case op.Mode >= 5 && !m.extended:
			return refuse(Unimplemented)
		case op.Mode >= 5 && op.TTL <= 0:
			return refuse(BadArguments)
		}
	}
	if !m.alive[session] {
		return refuse(SessionExpired)
	}
	switch op.Kind {
	case OpCreate:
		return m.create(session, now, op)
	case OpDelete:
		return m.delete(session, op)
	}
	if op.Kind > OpSweep {
		return refuse(Unimplemented)
	}
	n, there := m.nodes[op.Path]
	acl := stored(session, op.ACL)
	need := map[OpKind]int32{OpSet: PermWrite, OpCheck: PermRead, OpSetACL: PermAdmin}[op.Kind]
	version := n.stat.Version
	if op.Kind == OpSetACL {
		version = n.stat.Aversion
	}
	switch {
	case !goodPath(op.Path):
		return refuse(BadArguments)
	case op.Kind == OpSetACL && acl == "":
		return refuse(InvalidACL)
	case !there:
		return refuse(NoNode)
	case !allowed(session, need, n.acl):
		return refuse(NoAuth)
	case op.Version != AnyVersion && op.Version != version:
		return refuse(BadVersion)
	}
	var told []event
	switch op.Kind {
	case OpCheck:
		return outcome{}
	case OpSet:
		n.data, n.null, n.stat.Mzxid, n.stat.Mtime = string(op.Data), op.Data == nil, m.zxid, now
		n.stat.Version++
		told = []event{{EventDataChanged, op.Path, n.acl}}
	case OpSetACL:
		n.acl = acl
		n.stat.Aversion++
	}
	m.nodes[op.Path] = n
	return outcome{stat: m.stat(op.Path), told: told}
}

func (m *model) create(session, now int64, op Op) outcome {
	if !strings.Contains(op.Path, "/") || strings.Contains(op.Path, "\x00") {
		return refuse(BadArguments)
	}
	acl := stored(session, op.ACL)
	if acl == "" {
		return refuse(InvalidACL)
	}
	parent, ok := m.nodes[up(op.Path)]
	if !ok {
		return refuse(NoNode)
	}
	if !allowed(session, PermCreate, parent.acl) {
		return refuse(NoAuth)
	}
	path := op.Path
	if op.Mode.sequential() {
		path = fmt.Sprintf("%s%010d", op.Path, parent.made)
	}
	switch _, there := m.nodes[path]; {
	case !goodPath(path):
		return refuse(BadArguments)
	case there:
		return refuse(NodeExists)
	case parent.mode == Ephemeral:
		return refuse(NoChildrenForEphemerals)
	}
	n := flat{data: string(op.Data), null: op.Data == nil, acl: acl, stat: Stat{Czxid: m.zxid, Mzxid: m.zxid, Pzxid: m.zxid, Ctime: now, Mtime: now}}
	switch {
	case op.Mode.ephemeral():
		n.mode, n.owner = Ephemeral, session
	case op.Mode == Container:
		n.mode = Container
	case op.Mode.ttl():
		n.mode, n.ttl = PersistentTTL, op.TTL
	}
	m.nodes[path] = n
	parent.made++
	parent.stat.Pzxid = m.zxid
	m.nodes[up(path)] = parent
	return outcome{path: path, stat: m.stat(path), told: []event{{EventCreated, path, acl}, {EventChildrenChanged, up(path), parent.acl}}}
}

func (m *model) delete(session int64, op Op) outcome {
	if slices.Contains([]string{"/", "/zookeeper", "/zookeeper/quota", configPath}, op.Path) ||
		!strings.Contains(op.Path, "/") || strings.Contains(op.Path, "\x00") {
		return refuse(BadArguments)
	}
	parent, ok := m.nodes[up(op.Path)]
	n, there := m.nodes[op.Path]
	switch {
	case !ok:
		return refuse(NoNode)
	case !allowed(session, PermDelete, parent.acl):
		return refuse(NoAuth)
	case !there:
		return refuse(NoNode)
	case op.Version != AnyVersion && op.Version != n.stat.Version:
		return refuse(BadVersion)
	case len(m.children(op.Path)) > 0:
		return refuse(NotEmpty)
	}
	return outcome{told: m.drop(op.Path)}
}

func (m *model) due(path string, now int64) bool {
	n := m.nodes[path]
	return len(m.children(path)) == 0 && (n.mode == Container && n.made > 0 || n.mode == PersistentTTL && now-n.stat.Mtime > n.ttl)
}

func (m *model) sweep(now int64, path string) outcome {
	if _, ok := m.nodes[path]; !ok {
		return refuse(NoNode)
	}
	if !m.due(path, now) {
		return refuse(NotEmpty)
	}
	return outcome{told: m.drop(path)}
}

func (m *model) drop(path string) []event {
	n, parent := m.nodes[path], m.nodes[up(path)]
	delete(m.nodes, path)
	parent.stat.Pzxid = m.zxid
	m.nodes[up(path)] = parent
	return []event{{EventDeleted, path, n.acl}, {EventChildrenChanged, up(path), parent.acl}}
}

// multi gives the outcome of each op, and the notices.
func (m *model) multi(session, now int64, ops []Op) ([]outcome, []string) {
	m.zxid++
	before := maps.Clone(m.nodes)
	out := make([]outcome, len(ops))
	var told []event
	for i, op := range ops {
		out[i] = m.one(session, now, op)
		if out[i].code != OK {
			m.nodes = before
			clear(out[:i])
			for j := i + 1; j < len(ops); j++ {
				out[j] = refuse(RuntimeInconsistency)
			}
			return out, nil
		}
		told = append(told, out[i].told...)
	}
	return out, m.fire(told)
}

// fire gives "who TYPE path acl", a watcher once per event: data, child,
// persistent, then recursive watches upwards.
func (m *model) fire(told []event) []string {
	var out []string
	for _, e := range told {
		hit := []Watcher{}
		look := func(kind WatchKind, path string) {
			for _, a := range m.watches {
				if a.kind == kind && a.path == path && !slices.Contains(hit, a.who) {
					hit = append(hit, a.who)
				}
			}
			if kind == DataWatch || kind == ChildWatch {
				m.watches = slices.DeleteFunc(m.watches, func(a armed) bool { return a.kind == kind && a.path == path })
			}
		}
		if e.kind != EventChildrenChanged {
			look(DataWatch, e.path)
		}
		if e.kind == EventDeleted || e.kind == EventChildrenChanged {
			look(ChildWatch, e.path)
		}
		look(PersistentWatch, e.path)
		for p := e.path; e.kind != EventChildrenChanged; p = up(p) {
			if look(RecursiveWatch, p); p == "/" {
				break
			}
		}
		for _, w := range hit {
			out = append(out, fmt.Sprintf("%d %s %s %s", w, e.kind, e.path, e.acl))
		}
	}
	return out
}

func (m *model) close(session int64) (closed, fired []string) {
	m.zxid++
	var told []event
	for _, p := range m.ephemerals(session) {
		told = append(told, m.drop(p)...)
		closed = append(closed, p)
	}
	delete(m.alive, session)
	return closed, m.fire(told)
}

func (m *model) ephemerals(session int64) []string {
	paths := []string{}
	for p, n := range m.nodes {
		if n.mode == Ephemeral && n.owner == session {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

func (m *model) watch(a armed) {
	if !slices.Contains(m.watches, a) {
		m.watches = append(m.watches, a)
	}
}

func (m *model) unwatch(a armed) Code {
	i := slices.Index(m.watches, a)
	if i < 0 {
		return NoWatcher
	}
	m.watches = slices.Delete(m.watches, i, i+1)
	return OK
}

// rearm catches up with one path of a kind; exist tells that the node was
// absent when it was watched.
func (m *model) rearm(who Watcher, seen int64, kind WatchKind, exist bool, path string) []string {
	n, there := m.nodes[path]
	tell := func(e EventType) []string { return []string{fmt.Sprintf("%d %s %s", who, e, path)} }
	switch {
	case exist && there:
		return tell(EventCreated)
	case !exist && !there && kind <= ChildWatch:
		return tell(EventDeleted)
	case kind == DataWatch && !exist && n.stat.Mzxid > seen:
		return tell(EventDataChanged)
	case kind == ChildWatch && n.stat.Pzxid > seen:
		return tell(EventChildrenChanged)
	}
	m.watch(armed{who, kind, path})
	return nil
}

// dump is a line for every node and every fact that the model can tell.
func (m *model) dump(now int64) []string {
	var out []string
	size, ephemerals, due := 0, 0, []string{}
	kids, below := map[string][]string{}, map[string]int{}
	for _, p := range slices.Sorted(maps.Keys(m.nodes)) {
		if p != "/" {
			kids[up(p)] = append(kids[up(p)], p[strings.LastIndexByte(p, '/')+1:])
		}
		for ; p != "/"; p = up(p) {
			below[up(p)]++
		}
	}
	for p, n := range m.nodes {
		out = append(out, fmt.Sprintf("%s %.9q %v %v ttl=%d %+v made=%d acl=%s children=%v below=%d",
			p, n.data, n.null, n.mode, n.ttl, n.full(len(kids[p])), n.made, n.acl, kids[p], below[p]))
		size += len(p) + len(n.data)
		if n.mode == Ephemeral {
			ephemerals++
		}
		if m.due(p, now) {
			due = append(due, p)
		}
	}
	slices.Sort(due)
	paths, watchers := map[string]bool{}, map[Watcher]bool{}
	for _, a := range m.watches {
		paths[a.path], watchers[a.who] = true, true
	}
	slices.Sort(out)
	return append(out, fmt.Sprintf("zxid=%d nodes=%d size=%d ephemerals=%d due=%v alive=%v watches=%d,%d,%d", m.zxid, len(m.nodes), size, ephemerals, due,
		slices.Sorted(maps.Keys(m.alive)), len(m.watches), len(paths), len(watchers)))
}
