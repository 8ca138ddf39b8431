package zkserver

import "slices"

// OpenSession makes a session known; it costs a zxid.
func (t *Tree) OpenSession(id int64) (zxid int64) {
	t.zxid++
	t.AddSession(id)
	return t.zxid
}

// AddSession makes a session known that existed before a restart; it costs
// no zxid.
func (t *Tree) AddSession(id int64) {
	if t.sessions[id] == nil {
		t.sessions[id] = map[string]struct{}{}
	}
}

// Alive tells whether a session is known.
func (t *Tree) Alive(id int64) bool { _, ok := t.sessions[id]; return ok }

// Sessions lists the known sessions, sorted.
func (t *Tree) Sessions() []int64 {
	ids := make([]int64, 0, len(t.sessions))
	for id := range t.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Ephemerals lists the ephemeral nodes of a session, sorted.
func (t *Tree) Ephemerals(id int64) []string {
	paths := make([]string, 0, len(t.sessions[id]))
	for p := range t.sessions[id] {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	return paths
}

// CloseSession ends a session: it costs one zxid, and its ephemerals go in
// it, sorted by path (ZooKeeper promises no order). An unknown session costs
// the zxid all the same.
func (t *Tree) CloseSession(id int64) Result {
	t.zxid++
	c := &change{t: t, zxid: t.zxid}
	closed := t.Ephemerals(id)
	for _, p := range closed {
		c.remove(p, t.nodes[p], t.parentOf(p))
	}
	delete(t.sessions, id)
	return Result{Zxid: t.zxid, Fired: t.watches.fire(c.told, c.zxid), Closed: closed}
}

// EphemeralCount is the number of ephemeral nodes of all sessions.
func (t *Tree) EphemeralCount() int {
	n := 0
	for _, owned := range t.sessions {
		n += len(owned)
	}
	return n
}
