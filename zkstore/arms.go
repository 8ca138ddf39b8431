package zkstore

import (
	"sync"

	"github.com/go-zookeeper/zk"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// table is one of ZooKeeper's two tables of watches.
type table uint8

const (
	dataTable  table = iota // getData and exists
	childTable              // getChildren
)

// home is the connection that holds a watch.
type home uint8

const (
	onMain home = iota
	onBulk
)

type armKey struct {
	table table
	path  string // as the server knows it, with the chroot
}

// look is what was seen of a node: the base of its next comparison.
type look struct {
	exists              bool
	czxid, mzxid, pzxid int64
}

func lookAt(st *zk.Stat) look { return look{true, st.Czxid, st.Mzxid, st.Pzxid} }

// phase of a watch.
type phase uint8

const (
	pending   phase = iota // its request is on its way
	armed                  // a notice will come
	resyncing              // the connection was lost: it is looked at again
)

// arm is one watch.
type arm struct {
	key   armKey
	home  home
	phase phase
	known bool // base is set
	base  look
	held  zkpaths.NoticeType // a notice that came while it was resyncing; 0: none
}

// arms is the set of watches. A path is armed once: the library adds a channel
// for every request with a watch and never takes one away.
type arms struct {
	mu   sync.Mutex
	m    map[armKey]*arm
	away map[string]struct{} // paths that are watched, or were last, on the bulk connection
}

func newArms() *arms { return &arms{m: map[armKey]*arm{}, away: map[string]struct{}{}} }

// begin marks a watch before the request that arms it is sent, so that its
// notice finds the mark however fast it comes. nil: it is armed already.
func (a *arms) begin(k armKey, h home) *arm {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.m[k]; old != nil && old.phase != pending {
		return nil
	}
	n := &arm{key: k, home: h}
	a.m[k] = n
	return n
}

// commit notes that a request armed the watch, unless a notice took it since.
// If a resync overtook the caller, it gives the notices for what changed
// between the two.
func (a *arms) commit(n *arm, seen look) []zkpaths.NoticeType {
	if n == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m[n.key] != n {
		return nil
	}
	switch n.phase {
	case armed:
		return changes(n.key.table, seen, n.base)
	case pending:
		n.phase = armed
		if n.home == onBulk {
			a.away[n.key.path] = struct{}{}
		}
	}
	n.known, n.base = true, seen
	return nil
}

// abort takes a mark back whose request armed nothing.
func (a *arms) abort(n *arm) {
	if n == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m[n.key] == n {
		delete(a.m, n.key)
	}
}

// fire removes what a notice used up. False: a resync is looking at the node; it
// gives notice itself, since its comparison may say more.
func (a *arms) fire(t zkpaths.NoticeType, path string, from home) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	tell := true
	for _, tab := range consumed(t) {
		k := armKey{tab, path}
		switch n := a.m[k]; {
		case n == nil:
		case n.phase == resyncing && n.home == from:
			tell, n.held = false, t
		default:
			delete(a.m, k)
		}
	}
	if t == zkpaths.NodeDeleted {
		delete(a.away, path)
	}
	return tell
}

// consumed are the tables whose watch a notice uses up.
func consumed(t zkpaths.NoticeType) []table {
	switch t {
	case zkpaths.NodeChildrenChanged:
		return []table{childTable}
	case zkpaths.NodeDeleted:
		return []table{dataTable, childTable}
	}
	return []table{dataTable}
}

// suspend prepares the resync of the main connection's watches, and gives them.
// Requests on their way are among them: their answers may still come in.
func (a *arms) suspend() []*arm {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*arm
	for _, n := range a.m {
		if n.home == onMain {
			n.phase = resyncing
			out = append(out, n)
		}
	}
	return out
}

// settle takes what a resync saw, and gives the notices for what changed since
// the base. watched is false if the look left no watch. A notice that was held
// may have come before the look or have used up its watch: it is told unless
// the comparison tells something, and the watch is not counted on.
func (a *arms) settle(n *arm, now look, watched bool) []zkpaths.NoticeType {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m[n.key] != n || n.phase != resyncing {
		return nil
	}
	var out []zkpaths.NoticeType
	if n.known {
		out = changes(n.key.table, n.base, now)
	}
	if n.held != 0 && len(out) == 0 {
		out = []zkpaths.NoticeType{n.held}
	}
	if !watched || n.held != 0 {
		delete(a.m, n.key)
		return out
	}
	n.phase, n.known, n.base = armed, true, now
	return out
}

// changes gives the notices that a watch would have brought between two looks.
// A node deleted and made again gets both, in order.
func changes(t table, old, now look) []zkpaths.NoticeType {
	child := t == childTable
	switch {
	case !old.exists && !now.exists:
		return nil
	case !old.exists:
		return []zkpaths.NoticeType{zkpaths.NodeCreated}
	case !now.exists:
		return []zkpaths.NoticeType{zkpaths.NodeDeleted}
	case child && (old.pzxid != now.pzxid || old.czxid != now.czxid):
		return []zkpaths.NoticeType{zkpaths.NodeChildrenChanged}
	case !child && old.czxid != now.czxid:
		return []zkpaths.NoticeType{zkpaths.NodeDeleted, zkpaths.NodeCreated}
	case !child && old.mzxid != now.mzxid:
		return []zkpaths.NoticeType{zkpaths.NodeDataChanged}
	}
	return nil
}

// bulk copies the armed watches of the bulk connection.
func (a *arms) bulk() []arm {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []arm
	for _, n := range a.m {
		if n.home == onBulk && n.phase == armed {
			out = append(out, *n)
		}
	}
	return out
}

// anyBulk tells whether the bulk connection holds a watch.
func (a *arms) anyBulk() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.m {
		if n.home == onBulk && n.phase == armed {
			return true
		}
	}
	return false
}

// isAway tells whether a path's watch is, or was last, on the bulk connection:
// reading it there is as fresh as its notice, and arms it in one packet.
func (a *arms) isAway(path string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.away[path]
	return ok
}

// forget drops a watch, and makes the path's next one a main one.
func (a *arms) forget(k armKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.m, k)
	delete(a.away, k.path)
}
