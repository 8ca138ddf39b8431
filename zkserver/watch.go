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

// watchTables has all watches, by kind and path and by watcher.
type watchTables struct {
	kinds   [watchKinds]map[string]*watchList
	clients map[Watcher]*client
	count   int
	turn    uint64    // numbers the events, so that nobody is told of one twice
	hit     []*client // who is told of the present one
}

// watchList is who watches one path in one way, in the order of arming. One
// that left is a hole (nil) until the holes are the half.
type watchList struct {
	kind WatchKind
	path string
	who  []*client
	left int // how many are no holes
	one  [1]*client
}

// client is a watcher, and where it stands in the lists it is in.
type client struct {
	id    Watcher
	armed map[*watchList]uint32
	told  uint64 // the last turn it was told of
}

func newWatchTables() watchTables {
	w := watchTables{clients: map[Watcher]*client{}}
	for k := range w.kinds {
		w.kinds[k] = map[string]*watchList{}
	}
	return w
}

func (w *watchTables) add(who Watcher, kind WatchKind, path string) {
	path = rootName(path)
	c := w.clients[who]
	if c == nil {
		c = &client{id: who, armed: map[*watchList]uint32{}}
		w.clients[who] = c
	}
	l := w.kinds[kind][path]
	if l == nil {
		l = &watchList{kind: kind, path: path}
		l.who = l.one[:0]
		w.kinds[kind][path] = l
	}
	if _, ok := c.armed[l]; ok {
		return
	}
	c.armed[l] = uint32(len(l.who))
	l.who = append(l.who, c)
	l.left++
	w.count++
}

// armed gives the list in which a watcher stands, nil if it does not.
func (w *watchTables) armed(who Watcher, kind WatchKind, path string) (*client, *watchList) {
	c, l := w.clients[who], w.kinds[kind][rootName(path)]
	if c == nil || l == nil {
		return nil, nil
	}
	if _, ok := c.armed[l]; !ok {
		return nil, nil
	}
	return c, l
}

// disarm takes a client out of a list in which it stands.
func (w *watchTables) disarm(c *client, l *watchList) {
	l.who[c.armed[l]] = nil
	delete(c.armed, l)
	l.left--
	w.count--
	switch {
	case l.left == 0:
		delete(w.kinds[l.kind], l.path)
	case l.left*2 < len(l.who):
		l.who = slices.DeleteFunc(l.who, func(o *client) bool { return o == nil })
		for i, o := range l.who {
			o.armed[l] = uint32(i)
		}
	}
}

// take hits all of a path's one-shot watches, and uses them up.
func (w *watchTables) take(kind WatchKind, path string) {
	l := w.kinds[kind][path]
	if l == nil {
		return
	}
	w.hitAll(l)
	for _, c := range l.who {
		if c != nil {
			delete(c.armed, l)
		}
	}
	w.count -= l.left
	delete(w.kinds[kind], path)
}

func (w *watchTables) hitAll(l *watchList) {
	if l == nil {
		return
	}
	for _, c := range l.who {
		if c != nil && c.told != w.turn {
			c.told = w.turn
			w.hit = append(w.hit, c)
		}
	}
}

// hitAbove hits the recursive watches of a path and of all paths above it.
func (w *watchTables) hitAbove(path string) {
	table := w.kinds[RecursiveWatch]
	if len(table) == 0 {
		return
	}
	for ; path != "" && path != "/"; path = path[:strings.LastIndexByte(path, '/')] {
		w.hitAll(table[path])
	}
	w.hitAll(table["/"])
}

// fire finds who is told about what happened, in order, and uses up the
// one-shot watches (spec/zookeeper.md §4.8). Nobody hears of one thing twice.
func (w *watchTables) fire(told []happened, zxid int64) []Fired {
	var out []Fired
	for i := range told {
		h := &told[i]
		w.turn++
		w.hit = w.hit[:0]
		if h.kind != EventChildrenChanged {
			w.take(DataWatch, h.path)
		}
		if h.kind == EventChildrenChanged || h.kind == EventDeleted {
			w.take(ChildWatch, h.path)
		}
		w.hitAll(w.kinds[PersistentWatch][h.path])
		if h.kind != EventChildrenChanged {
			w.hitAbove(h.path)
		}
		for _, c := range w.hit {
			out = append(out, Fired{Watcher: c.id, Type: h.kind, Path: h.path, Zxid: zxid, ACL: h.acl})
		}
	}
	clear(w.hit)
	return out
}

// Watch arms a watch. A path that this watcher has armed already in the same
// table is not armed twice. Whether a read may arm one (getData and
// getChildren only on a node that exists, exists always) is the caller's to see.
func (t *Tree) Watch(who Watcher, kind WatchKind, path string) { t.watches.add(who, kind, path) }

// Unwatch takes a watch back; NoWatcher if there was none.
func (t *Tree) Unwatch(who Watcher, kind WatchKind, path string) Code {
	c, l := t.watches.armed(who, kind, path)
	if c == nil {
		return NoWatcher
	}
	t.watches.disarm(c, l)
	return OK
}

// Watches tells whether a watch is armed.
func (t *Tree) Watches(who Watcher, kind WatchKind, path string) bool {
	c, _ := t.watches.armed(who, kind, path)
	return c != nil
}

// CountWatches gives the number of watches, watched paths and watchers.
func (t *Tree) CountWatches() (watches, paths, watchers int) {
	w := &t.watches
	for kind, table := range w.kinds {
		for path := range table {
			first := true
			for k := range kind {
				first = first && w.kinds[k][path] == nil
			}
			if first {
				paths++
			}
		}
	}
	for _, c := range w.clients {
		if len(c.armed) > 0 {
			watchers++
		}
	}
	return w.count, paths, watchers
}

// WatchedPaths visits every watched path in order, with those who watch it,
// sorted and each once.
func (t *Tree) WatchedPaths(visit func(path string, who []Watcher)) {
	paths := map[string][]Watcher{}
	for _, table := range t.watches.kinds {
		for p, l := range table {
			for _, c := range l.who {
				if c != nil {
					paths[p] = append(paths[p], c.id)
				}
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		who := paths[p]
		slices.Sort(who)
		visit(p, slices.Compact(who))
	}
}

// DropWatcher forgets a connection that ended, with all its watches.
func (t *Tree) DropWatcher(who Watcher) {
	c := t.watches.clients[who]
	if c == nil {
		return
	}
	for l := range c.armed {
		t.watches.disarm(c, l)
	}
	delete(t.watches.clients, who)
}

// noZxid is the zxid of a notice that no transaction set off.
const noZxid int64 = -1

// Rearm is setWatches: it arms what a client watched before it reconnected
// and gives the notices it missed since the zxid it saw last, in the order of
// the lists. Persistent kinds are armed without catching up.
func (t *Tree) Rearm(who Watcher, seen int64, data, exist, child, persistent, recursive []string) []Fired {
	var missed []Fired
	tell := func(e EventType, path string, n *node) {
		acl := uint32(openACL)
		if n != nil {
			acl = n.acl
		}
		missed = append(missed, Fired{Watcher: who, Type: e, Path: path, Zxid: noZxid, ACL: t.acls.entries(acl)})
	}
	for _, p := range data {
		switch n := t.node(p); {
		case n == nil:
			tell(EventDeleted, p, nil)
		case n.mzxid > seen:
			tell(EventDataChanged, p, n)
		default:
			t.Watch(who, DataWatch, p)
		}
	}
	for _, p := range exist {
		if n := t.node(p); n != nil {
			tell(EventCreated, p, n)
		} else {
			t.Watch(who, DataWatch, p)
		}
	}
	for _, p := range child {
		switch n := t.node(p); {
		case n == nil:
			tell(EventDeleted, p, nil)
		case t.look(n).pzxid > seen:
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
