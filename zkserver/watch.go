package zkserver

import (
	"maps"
	"slices"
	"strings"
)

// EventType is the kind of a watch notice; the values are the protocol's.
type EventType int32

const (
	EventCreated EventType = iota + 1
	EventDeleted
	EventDataChanged
	EventChildrenChanged
)

var eventNames = [...]string{"", "NodeCreated", "NodeDeleted", "NodeDataChanged", "NodeChildrenChanged"}

// String gives ZooKeeper's name of the event.
func (e EventType) String() string { return eventNames[e] }

// Watcher is whoever watches: one connection, in ZooKeeper's terms.
type Watcher int64

// Fired is one notice to one watcher. A server delivers it only if the
// watcher's identities may read ACL (3.8.3 and later).
type Fired struct {
	Watcher Watcher
	Type    EventType
	Path    string
	Zxid    int64
	ACL     []ACL
}

// WatchKind is a table of watches.
type WatchKind uint8

const (
	DataWatch       WatchKind = iota // one-shot, by getData and exists
	ChildWatch                       // one-shot, by getChildren
	PersistentWatch                  // all events of one node, until removed
	RecursiveWatch                   // created, deleted, changed of a node and all below, until removed
	watchKinds
)

// watchSet is one table: path, and who watches it in which order.
type watchSet map[string][]Watcher

// watchTables has all watches. byWatcher makes the end of a connection cheap.
type watchTables struct {
	kinds     [watchKinds]watchSet
	byWatcher map[Watcher]map[watchKey]struct{}
}

type watchKey struct {
	kind WatchKind
	path string
}

func newWatchTables() watchTables {
	w := watchTables{byWatcher: map[Watcher]map[watchKey]struct{}{}}
	for k := range w.kinds {
		w.kinds[k] = watchSet{}
	}
	return w
}

func (w *watchTables) add(who Watcher, kind WatchKind, path string) {
	key := watchKey{kind, rootName(path)}
	if _, ok := w.byWatcher[who][key]; ok {
		return
	}
	if w.byWatcher[who] == nil {
		w.byWatcher[who] = map[watchKey]struct{}{}
	}
	w.byWatcher[who][key] = struct{}{}
	w.kinds[kind][key.path] = append(w.kinds[kind][key.path], who)
}

func (w *watchTables) remove(who Watcher, kind WatchKind, path string) bool {
	key := watchKey{kind, rootName(path)}
	if _, ok := w.byWatcher[who][key]; !ok {
		return false
	}
	delete(w.byWatcher[who], key)
	if len(w.byWatcher[who]) == 0 {
		delete(w.byWatcher, who)
	}
	left := slices.DeleteFunc(w.kinds[kind][key.path], func(o Watcher) bool { return o == who })
	if len(left) == 0 {
		delete(w.kinds[kind], key.path)
	} else {
		w.kinds[kind][key.path] = left
	}
	return true
}

// take removes all one-shot watches of a path from a table.
func (w *watchTables) take(kind WatchKind, path string) []Watcher {
	who := slices.Clone(w.kinds[kind][path])
	for _, o := range who {
		w.remove(o, kind, path)
	}
	return who
}

// fire finds who is told about what happened, in order, and uses up the
// one-shot watches (spec/zookeeper.md §4.8). Nobody hears of one thing twice.
func (w *watchTables) fire(told []happened, zxid int64) []Fired {
	var out []Fired
	for _, h := range told {
		var who []Watcher
		switch h.kind {
		case EventChildrenChanged:
			who = w.take(ChildWatch, h.path)
		case EventDeleted:
			who = append(w.take(DataWatch, h.path), w.take(ChildWatch, h.path)...)
		default:
			who = w.take(DataWatch, h.path)
		}
		who = append(who, w.kinds[PersistentWatch][h.path]...)
		if h.kind != EventChildrenChanged {
			for p := h.path; ; p = p[:strings.LastIndexByte(p, '/')] {
				who = append(who, w.kinds[RecursiveWatch][rootName(p)]...)
				if p == "" || p == "/" {
					break
				}
			}
		}
		for i, o := range who {
			if !slices.Contains(who[:i], o) {
				out = append(out, Fired{Watcher: o, Type: h.kind, Path: h.path, Zxid: zxid, ACL: h.acl})
			}
		}
	}
	return out
}

// Watch arms a watch. A path that this watcher has armed already in the same
// table is not armed twice. Whether a read may arm one (getData and
// getChildren only on a node that exists, exists always) is the caller's to see.
func (t *Tree) Watch(who Watcher, kind WatchKind, path string) { t.watches.add(who, kind, path) }

// Unwatch takes a watch back; NoWatcher if there was none.
func (t *Tree) Unwatch(who Watcher, kind WatchKind, path string) Code {
	if !t.watches.remove(who, kind, path) {
		return NoWatcher
	}
	return OK
}

// Watches tells whether a watch is armed.
func (t *Tree) Watches(who Watcher, kind WatchKind, path string) bool {
	_, ok := t.watches.byWatcher[who][watchKey{kind, rootName(path)}]
	return ok
}

// CountWatches gives the number of watches, watched paths and watchers.
func (t *Tree) CountWatches() (watches, paths, watchers int) {
	seen := map[string]struct{}{}
	for _, keys := range t.watches.byWatcher {
		watches += len(keys)
		for k := range keys {
			seen[k.path] = struct{}{}
		}
	}
	return watches, len(seen), len(t.watches.byWatcher)
}

// WatchedPaths visits every watched path in order, with those who watch it,
// sorted and each once.
func (t *Tree) WatchedPaths(visit func(path string, who []Watcher)) {
	paths := map[string][]Watcher{}
	for w, keys := range t.watches.byWatcher {
		for k := range keys {
			paths[k.path] = append(paths[k.path], w)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		who := paths[p]
		slices.Sort(who)
		visit(p, slices.Compact(who))
	}
}

// DropWatcher forgets all watches of a connection that ended.
func (t *Tree) DropWatcher(who Watcher) {
	for k := range t.watches.byWatcher[who] {
		t.watches.remove(who, k.kind, k.path)
	}
}

// Rearm is setWatches: it arms what a client watched before it reconnected
// and gives the notices it missed since the zxid it saw last, in the order of
// the lists. Persistent kinds are armed without catching up.
func (t *Tree) Rearm(who Watcher, seen int64, data, exist, child, persistent, recursive []string) []Fired {
	var missed []Fired
	tell := func(e EventType, path string, n *node) {
		f := Fired{Watcher: who, Type: e, Path: path, Zxid: t.zxid, ACL: OpenACL()}
		if n != nil {
			f.ACL = n.acl
		}
		missed = append(missed, f)
	}
	for _, p := range data {
		switch n := t.lookup(p); {
		case n == nil:
			tell(EventDeleted, p, nil)
		case n.stat.Mzxid > seen:
			tell(EventDataChanged, p, n)
		default:
			t.Watch(who, DataWatch, p)
		}
	}
	for _, p := range exist {
		if n := t.lookup(p); n != nil {
			tell(EventCreated, p, n)
		} else {
			t.Watch(who, DataWatch, p)
		}
	}
	for _, p := range child {
		switch n := t.lookup(p); {
		case n == nil:
			tell(EventDeleted, p, nil)
		case n.stat.Pzxid > seen:
			tell(EventChildrenChanged, p, n)
		default:
			t.Watch(who, ChildWatch, p)
		}
	}
	for _, p := range persistent {
		t.Watch(who, PersistentWatch, p)
	}
	for _, p := range recursive {
		t.Watch(who, RecursiveWatch, p)
	}
	return missed
}
