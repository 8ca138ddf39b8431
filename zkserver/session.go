package zkserver

import (
	"cmp"
	"slices"
)

// OpenSession makes a session known; it costs a zxid.
func (t *Tree) OpenSession(id int64) (zxid int64) {
	t.zxid++
	t.AddSession(id)
	return t.zxid
}

// AddSession makes a session known that existed before a restart; it costs
// no zxid.
func (t *Tree) AddSession(id int64) { t.tenant(id).open = true }

// Alive tells whether a session is known.
func (t *Tree) Alive(id int64) bool {
	s := t.sessions[id]
	return s != nil && s.open
}

// Sessions lists the known sessions, sorted.
func (t *Tree) Sessions() []int64 {
	ids := make([]int64, 0, len(t.sessions))
	for id, s := range t.sessions {
		if s.open {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// owned is a node that goes with its session.
type owned struct {
	path string
	id   uint32
}

func (t *Tree) paths(ids []uint32) []owned {
	out := make([]owned, len(ids))
	for i, id := range ids {
		out[i] = owned{t.path(id), id}
	}
	slices.SortFunc(out, func(a, b owned) int { return cmp.Compare(a.path, b.path) })
	return out
}

// Ephemerals lists the ephemeral nodes of a session, sorted.
func (t *Tree) Ephemerals(id int64) []string {
	s := t.sessions[id]
	if s == nil {
		return []string{}
	}
	paths := make([]string, len(s.owned))
	for i, o := range t.paths(s.owned) {
		paths[i] = o.path
	}
	return paths
}

// EphemeralCount is the number of ephemeral nodes of all sessions.
func (t *Tree) EphemeralCount() int { return t.ephemerals }

// CloseSession ends a session: it costs one zxid, and its ephemerals go in
// it, sorted by path (ZooKeeper promises no order). An unknown session costs
// the zxid all the same.
func (t *Tree) CloseSession(id int64) Result {
	t.zxid++
	c := t.begin(Who{}, 0)
	res := Result{Zxid: t.zxid}
	if s := t.sessions[id]; s != nil && len(s.owned) > 0 {
		res.Closed = make([]string, 0, len(s.owned))
		for _, o := range t.paths(s.owned) {
			res.Closed = c.removeAll(o, res.Closed)
		}
	}
	delete(t.sessions, id)
	c.commit()
	res.Fired = t.watches.fire(c.told, t.zxid)
	return res
}

// removeAll removes a node and, first, whatever is below it: an ephemeral has
// children in a damaged snapshot alone, and then some may be gone already.
func (c *change) removeAll(o owned, closed []string) []string {
	t := c.t
	h := t.index.hash(o.path)
	if t.search(h, o.path) != o.id {
		return closed
	}
	if n := t.nodes.at(o.id); t.hasChildren(n) {
		for _, kid := range t.paths(slices.Clone(t.children(n))) {
			closed = c.removeAll(kid, closed)
		}
	}
	c.remove(h, o.id, o.path)
	return append(closed, o.path)
}

// RemoveOrphans deletes the ephemerals of sessions that nobody opened, and
// gives their paths. After a snapshot and the log behind it such a session
// ended before the crash (Apache does the same when it starts). No zxid, no
// watch.
func (t *Tree) RemoveOrphans() []string {
	var gone []string
	for id, s := range t.sessions {
		if s.open {
			continue
		}
		for _, o := range t.paths(s.owned) {
			t.uproot(o.path, t.zxid)
			gone = append(gone, o.path)
		}
		delete(t.sessions, id)
	}
	slices.Sort(gone)
	return gone
}
