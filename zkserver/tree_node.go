package zkserver

import "slices"

// node is one znode: 64 bytes without a pointer. What few nodes need is in
// its extra; its name and data are in a page of texts, its access list in the
// table of lists.
type node struct {
	czxid, mzxid, ctime, mtime int64

	page    uint32 // with off: where its text begins
	off     uint16
	mode    uint8 // Persistent, Ephemeral, Container or PersistentTTL
	null    bool  // no data, which is not empty data
	nameLen uint32
	parent  uint32
	slot    uint32 // its place in the parent's dir
	version int32
	acl     uint32
	extra   uint32 // 0: pzxid is czxid, and the rest is 0
}

func (n *node) kind() Mode { return Mode(n.mode) }

// extra is what a node gets with its first child, owner, TTL or setACL.
// created counts the creations of children: sequence numbers are drawn from
// it, and Stat's cversion is derived from it.
type extra struct {
	pzxid    int64
	owner    int64 // session of an ephemeral, TTL in ms of a TTL node
	created  int32
	aversion int32
	below    int32  // how many nodes are below it
	listed   uint32 // its place among its session's ephemerals, or in the sweep list
	dir      *dir
}

// tenant is a session and the ephemerals that it owns.
type tenant struct {
	open  bool // false: a snapshot names it as an owner, and nobody has opened it yet
	owned []uint32
}

// rootID is the root's number; its name is "" and it has no parent.
const rootID = 1

// ext gives a node its extra.
func (t *Tree) ext(n *node) *extra {
	if n.extra == 0 {
		n.extra = t.extras.take()
		t.extras.at(n.extra).pzxid = n.czxid
	}
	return t.extras.at(n.extra)
}

// look gives a node's extra for reading alone.
func (t *Tree) look(n *node) extra {
	if n.extra == 0 {
		return extra{pzxid: n.czxid}
	}
	return *t.extras.at(n.extra)
}

func (t *Tree) hasChildren(n *node) bool {
	if n.extra == 0 {
		return false
	}
	d := t.extras.at(n.extra).dir
	return d != nil && d.live > 0
}

// full is the Stat that ZooKeeper tells.
func (t *Tree) full(n *node) Stat {
	s := Stat{Czxid: n.czxid, Mzxid: n.mzxid, Pzxid: n.czxid, Ctime: n.ctime, Mtime: n.mtime, Version: n.version,
		DataLength: int32(t.dataLen(n))}
	if n.extra == 0 {
		return s
	}
	e := t.extras.at(n.extra)
	s.Pzxid, s.Aversion = e.pzxid, e.aversion
	if e.dir != nil {
		s.NumChildren = int32(e.dir.live)
	}
	s.Cversion = 2*e.created - s.NumChildren
	if n.kind() == Ephemeral {
		s.EphemeralOwner = e.owner
	}
	return s
}

// plant makes a persistent node with a reference to an access list, without
// any trace in its parent's counters.
func (t *Tree) plant(h, parent uint32, path, name string, data []byte, acl uint32) (uint32, *node) {
	id := t.nodes.take()
	n := t.nodes.at(id)
	n.parent, n.acl = parent, acl
	t.write(id, n, name, data)
	t.link(h, id, n, path)
	return id, n
}

// link enters a node wherever nodes are listed; unlink is its reverse. What
// the node itself has stays as it is.
func (t *Tree) link(h, id uint32, n *node, path string) {
	t.index.insert(h, id)
	t.addChild(t.ext(t.nodes.at(n.parent)), id, n)
	t.count(n.parent, 1)
	t.size += int64(len(path) + t.dataLen(n))
	t.enlist(id, n)
}

func (t *Tree) unlink(h, id uint32, n *node, path string) {
	t.unlist(n)
	t.size -= int64(len(path) + t.dataLen(n))
	t.count(n.parent, -1)
	t.dropChild(t.extras.at(t.nodes.at(n.parent).extra), n)
	t.index.remove(h, id)
}

// count adds to the number of nodes below a node and below all above it.
func (t *Tree) count(id uint32, by int32) {
	for ; id != 0; id = t.nodes.at(id).parent {
		t.extras.at(t.nodes.at(id).extra).below += by
	}
}

// list is where nodes of this one's kind are listed, nil for most.
func (t *Tree) list(n *node) *[]uint32 {
	switch n.kind() {
	case Ephemeral:
		return &t.tenant(t.extras.at(n.extra).owner).owned
	case Container, PersistentTTL:
		return &t.sweep
	}
	return nil
}

func (t *Tree) tenant(session int64) *tenant {
	s := t.sessions[session]
	if s == nil {
		s = &tenant{}
		t.sessions[session] = s
	}
	return s
}

func (t *Tree) enlist(id uint32, n *node) {
	list := t.list(n)
	if list == nil {
		return
	}
	if n.kind() == Ephemeral {
		t.ephemerals++
	}
	t.ext(n).listed = uint32(len(*list))
	*list = append(*list, id)
}

func (t *Tree) unlist(n *node) {
	list := t.list(n)
	if list == nil {
		return
	}
	if n.kind() == Ephemeral {
		t.ephemerals--
	}
	at, last := t.extras.at(n.extra).listed, len(*list)-1
	moved := (*list)[last]
	(*list)[at] = moved
	t.extras.at(t.nodes.at(moved).extra).listed = at
	*list = (*list)[:last]
	if cap(*list) > 1024 && last*4 < cap(*list) {
		*list = slices.Clone(*list)
	}
}

// become makes an unlisted node one of another kind and lists it.
func (t *Tree) become(id uint32, n *node, mode Mode, owner int64) {
	n.mode = uint8(mode)
	if owner != 0 || mode != Persistent {
		t.ext(n).owner = owner
	}
	t.enlist(id, n)
}

// forget gives back all that a node which is linked nowhere had.
func (t *Tree) forget(id uint32) {
	n := t.nodes.at(id)
	t.texts.release(n.page, n.off)
	t.acls.release(n.acl)
	if n.extra != 0 {
		t.extras.give(n.extra)
	}
	t.nodes.give(id)
}
