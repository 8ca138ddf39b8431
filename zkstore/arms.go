package zkstore

import (
	"sync"

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

// arm is one armed watch, or one that a request on its way will arm.
type arm struct {
	key    armKey
	home   home
	armed  bool
	exists bool  // false: the watch waits for the node to be created
	czxid  int64 // what was seen when it was armed: the base of a resync
	mzxid  int64
	pzxid  int64
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
	if old := a.m[k]; old != nil && old.armed {
		return nil
	}
	n := &arm{key: k, home: h}
	a.m[k] = n
	return n
}

// commit notes that the request armed the watch, unless a notice took it since.
func (a *arms) commit(n *arm, seen arm) {
	if n == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m[n.key] == n {
		n.armed, n.exists = true, seen.exists
		n.czxid, n.mzxid, n.pzxid = seen.czxid, seen.mzxid, seen.pzxid
		if n.home == onBulk {
			a.away[n.key.path] = struct{}{}
		}
	}
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

// fire removes what a notice used up.
func (a *arms) fire(t zkpaths.NoticeType, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t != zkpaths.NodeChildrenChanged {
		delete(a.m, armKey{dataTable, path})
	}
	if t == zkpaths.NodeChildrenChanged || t == zkpaths.NodeDeleted {
		delete(a.m, armKey{childTable, path})
	}
	if t == zkpaths.NodeDeleted {
		delete(a.away, path)
	}
}

// all copies the watches of one connection.
func (a *arms) all(h home) []arm {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []arm
	for _, n := range a.m {
		if n.home == h && n.armed {
			out = append(out, *n)
		}
	}
	return out
}

// any tells whether a connection holds a watch.
func (a *arms) any(h home) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.m {
		if n.home == h && n.armed {
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

// leave makes a path's next watch a main one.
func (a *arms) leave(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.away, path)
}

// forget drops the mark of a path.
func (a *arms) forget(k armKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.m, k)
}
