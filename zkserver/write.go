package zkserver

import (
	"slices"
	"strings"
)

// OpKind is the kind of a write.
type OpKind uint8

const (
	OpCreate OpKind = iota
	OpDelete
	OpSet
	OpCheck
	OpSetACL
	OpSweep // deletes a container or TTL node if it is still due
)

// AnyVersion makes a delete, set, check or setACL unconditional.
const AnyVersion int32 = -1

// Op is one write.
type Op struct {
	Kind    OpKind
	Path    string
	Data    []byte // nil is null
	Version int32  // expected; OpSetACL compares it with aversion
	Mode    Mode   // OpCreate
	TTL     int64  // OpCreate of a TTL mode, milliseconds
	// OpCreate: the path gets a number also if Mode does not say so.
	Sequential bool
	ACL        []ACL // OpCreate, OpSetACL
}

// OpResult is what became of one Op.
type OpResult struct {
	Code Code
	Path string // OpCreate: the path it got
	Stat Stat   // OpCreate, OpSet, OpSetACL: after the change
	// What a log has to know besides (LogRecord): the access list as it was
	// stored (OpCreate, OpSetACL), and the parent's creations after OpCreate.
	ACL           []ACL
	ParentCreated int32
}

// Result is what became of a write attempt, a multi or a session's end.
type Result struct {
	Zxid  int64 // every attempt costs one, also a failing one
	Ops   []OpResult
	Fired []Fired // the watches it set off, in order
	// Closed: the ephemerals that CloseSession deleted, in its order.
	Closed []string
}

// Code is the first failure, or OK.
func (r Result) Code() Code {
	for _, o := range r.Ops {
		if o.Code != OK && o.Code != RuntimeInconsistency {
			return o.Code
		}
	}
	return OK
}

// change is one attempt under way: what it did so far, and what it would fire.
// It lives in the tree, whose next attempt uses its memory again.
type change struct {
	t    *Tree
	who  Who
	now  int64
	done []done
	told []happened
}

// done is one step: what to know to undo it, and to finish it for good.
type done struct {
	what    step
	null    bool
	off     uint16 // with page: the text before a set
	id      uint32
	page    uint32
	acl     uint32 // before a setACL
	version int32  // before a set
	path    string // of a create or delete
	zxid    int64  // mzxid before a set, the parent's pzxid before a create or delete
	time    int64  // mtime before a set
}

type step uint8

const (
	created step = iota
	deleted
	wrote
	relisted // a new access list
)

// happened is one node event that watches may be interested in.
type happened struct {
	kind EventType
	path string
	acl  []ACL
}

// keptDone is how long a change's lists may be and still be kept for the next.
const keptDone = 4096

func (t *Tree) begin(who Who, now int64) *change {
	c := &t.change
	if cap(c.done) > keptDone {
		c.done, c.told = nil, nil
	}
	clear(c.done)
	clear(c.told)
	c.t, c.who, c.now, c.done, c.told = t, who, now, c.done[:0], c.told[:0]
	return c
}

// tell notes an event, if anybody watches anything.
func (c *change) tell(kind EventType, path string, acl uint32) {
	if c.t.watches.count > 0 {
		c.told = append(c.told, happened{kind, path, c.t.acls.entries(acl)})
	}
}

// Write tries one op.
func (t *Tree) Write(who Who, now int64, op Op) Result { return t.Multi(who, now, []Op{op}) }

// Multi tries ops as one transaction: each sees the effects of those before
// it, and if one fails nothing happened, sequence numbers included.
func (t *Tree) Multi(who Who, now int64, ops []Op) Result { return t.MultiInto(who, now, ops, nil) }

// MultiInto is Multi with the memory of room for the results.
func (t *Tree) MultiInto(who Who, now int64, ops []Op, room []OpResult) Result {
	t.zxid++
	c := t.begin(who, now)
	out := slices.Grow(room[:0], len(ops))[:len(ops)]
	clear(out)
	res := Result{Zxid: t.zxid, Ops: out}
	alive := t.Alive(who.Session)
	for i := range ops {
		if out[i].Code = c.apply(&ops[i], &out[i], alive); out[i].Code == OK {
			continue
		}
		c.rollback()
		failed := out[i].Code
		clear(out)
		out[i].Code = failed
		for j := i + 1; j < len(out); j++ {
			out[j].Code = RuntimeInconsistency
		}
		return res
	}
	c.commit()
	res.Fired = t.watches.fire(c.told, t.zxid)
	return res
}

// apply tries one op. The order of checks is ZooKeeper's (spec/zookeeper.md §4.5).
func (c *change) apply(op *Op, r *OpResult, alive bool) Code {
	switch {
	case op.Kind == OpSweep:
		return c.sweepNode(op.Path)
	case op.Kind == OpCreate:
		if code := c.t.checkMode(op); code != OK {
			return code
		}
	}
	if !alive {
		return SessionExpired
	}
	switch op.Kind {
	case OpCreate:
		return c.create(op, r)
	case OpDelete:
		return c.delete(op)
	case OpSet:
		return c.set(op, r)
	case OpCheck:
		return c.check(op)
	case OpSetACL:
		return c.setACL(op, r)
	}
	return Unimplemented
}

func (c *change) create(op *Op, r *OpResult) Code {
	t := c.t
	if strings.LastIndexByte(op.Path, '/') < 0 || strings.IndexByte(op.Path, 0) >= 0 {
		return BadArguments
	}
	fixed := op.ACL
	if !isOpen(fixed) {
		if fixed = fixACL(c.who, op.ACL); fixed == nil {
			return InvalidACL
		}
	}
	path := op.Path
	above, name := split(path)
	aboveID := t.find(above)
	if aboveID == 0 {
		return NoNode
	}
	parent := t.nodes.at(aboveID)
	if !t.may(&c.who, PermCreate, parent.acl) {
		return NoAuth
	}
	if op.Sequential || op.Mode.sequential() {
		path = sequential(path, t.look(parent).created)
		name = path[len(above)+1:]
	}
	if pathFault(path) != "" {
		return BadArguments
	}
	h := t.index.hash(path)
	switch {
	case t.search(h, path) != 0:
		return NodeExists
	case parent.kind() == Ephemeral:
		return NoChildrenForEphemerals
	}

	id, n := t.plant(h, aboveID, path, name, op.Data, t.acls.intern(fixed))
	n.czxid, n.mzxid, n.ctime, n.mtime = t.zxid, t.zxid, c.now, c.now
	c.own(id, n, op)
	e := t.ext(parent)
	c.done = append(c.done, done{what: created, id: id, path: path, zxid: e.pzxid})
	e.created++
	e.pzxid = t.zxid
	c.tell(EventCreated, path, n.acl)
	c.tell(EventChildrenChanged, rootName(above), parent.acl)
	r.Path, r.Stat, r.ACL, r.ParentCreated = path, t.full(n), t.acls.entries(n.acl), e.created
	return OK
}

// own makes a new node what the op's mode says.
func (c *change) own(id uint32, n *node, op *Op) {
	switch {
	case op.Mode.ephemeral():
		c.t.become(id, n, Ephemeral, c.who.Session)
	case op.Mode == Container:
		c.t.become(id, n, Container, 0)
	case op.Mode.ttl():
		c.t.become(id, n, PersistentTTL, op.TTL)
	}
}

// sequential appends the count of creations as ten digits, the sign among
// them: behind 2147483647 comes -2147483648, as in Java.
func sequential(path string, created int32) string {
	var buf [11]byte
	i, most, left := len(buf), 1, int64(created)
	if created < 0 {
		most, left = 2, -left
	}
	for ; i > most || left > 0; left /= 10 {
		i--
		buf[i] = byte('0' + left%10)
	}
	if created < 0 {
		i--
		buf[i] = '-'
	}
	return path + string(buf[i:])
}

func (t *Tree) checkMode(op *Op) Code {
	switch {
	case op.Mode < Persistent || op.Mode > PersistentSequentialTTL:
		return BadArguments
	case op.Mode.ttl() && !t.ExtendedTypes:
		return Unimplemented
	case op.Mode.ttl() && (op.TTL <= 0 || op.TTL > maxTTL):
		return BadArguments
	}
	return OK
}

// isEphemeral tells whether there is a node and it ends with its session.
func (t *Tree) isEphemeral(path string) bool {
	n := t.node(path)
	return n != nil && n.kind() == Ephemeral
}

func rootName(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

func (c *change) delete(op *Op) Code {
	switch op.Path {
	case "/", "/zookeeper", "/zookeeper/quota", configPath:
		return BadArguments
	}
	if strings.LastIndexByte(op.Path, '/') < 0 || strings.IndexByte(op.Path, 0) >= 0 {
		return BadArguments
	}
	t := c.t
	above, _ := split(op.Path)
	parent := t.node(above)
	switch {
	case parent == nil:
		return NoNode
	case !t.may(&c.who, PermDelete, parent.acl):
		return NoAuth
	}
	h := t.index.hash(op.Path)
	id := t.search(h, op.Path)
	if id == 0 {
		return NoNode
	}
	n := t.nodes.at(id)
	switch {
	case op.Version != AnyVersion && op.Version != n.version:
		return BadVersion
	case t.hasChildren(n):
		return NotEmpty
	}
	c.remove(h, id, op.Path)
	return OK
}

// remove takes a childless node out. It is forgotten when the change stands.
func (c *change) remove(h, id uint32, path string) {
	t := c.t
	n := t.nodes.at(id)
	parent := t.nodes.at(n.parent)
	e := t.extras.at(parent.extra)
	t.unlink(h, id, n, path)
	c.done = append(c.done, done{what: deleted, id: id, path: path, zxid: e.pzxid})
	e.pzxid = t.zxid
	c.tell(EventDeleted, path, n.acl)
	above, _ := split(path)
	c.tell(EventChildrenChanged, rootName(above), parent.acl)
}

func (c *change) set(op *Op, r *OpResult) Code {
	t := c.t
	id := t.search(t.index.hash(op.Path), op.Path)
	if id == 0 {
		return missing(op.Path)
	}
	n := t.nodes.at(id)
	switch {
	case !t.may(&c.who, PermWrite, n.acl):
		return NoAuth
	case op.Version != AnyVersion && op.Version != n.version:
		return BadVersion
	}
	c.done = append(c.done, done{what: wrote, id: id, page: n.page, off: n.off, null: n.null, version: n.version, zxid: n.mzxid, time: n.mtime})
	t.size += int64(len(op.Data) - t.dataLen(n))
	t.write(id, n, t.name(n), op.Data)
	n.version++
	n.mzxid, n.mtime = t.zxid, c.now
	c.tell(EventDataChanged, op.Path, n.acl)
	r.Stat = t.full(n)
	return OK
}

// missing is the answer to a write of a path that no node has: what is wrong
// with the path itself comes first. A path that a node has is a good one.
func missing(path string) Code {
	if pathFault(path) != "" {
		return BadArguments
	}
	return NoNode
}

func (c *change) check(op *Op) Code {
	t := c.t
	id := t.search(t.index.hash(op.Path), op.Path)
	if id == 0 {
		return missing(op.Path)
	}
	n := t.nodes.at(id)
	switch {
	case !t.may(&c.who, PermRead, n.acl):
		return NoAuth
	case op.Version != AnyVersion && op.Version != n.version:
		return BadVersion
	}
	return OK
}

func (c *change) setACL(op *Op, r *OpResult) Code {
	t := c.t
	if pathFault(op.Path) != "" {
		return BadArguments
	}
	acl := fixACL(c.who, op.ACL)
	id := t.find(op.Path)
	switch {
	case acl == nil:
		return InvalidACL
	case id == 0:
		return NoNode
	}
	n := t.nodes.at(id)
	switch {
	case !t.may(&c.who, PermAdmin, n.acl):
		return NoAuth
	case op.Version != AnyVersion && op.Version != t.look(n).aversion:
		return BadVersion
	}
	c.done = append(c.done, done{what: relisted, id: id, acl: n.acl})
	n.acl = t.acls.intern(acl)
	t.ext(n).aversion++
	r.Stat, r.ACL = t.full(n), t.acls.entries(n.acl)
	return OK
}

// rollback undoes all steps, the last one first.
func (c *change) rollback() {
	t := c.t
	for i := len(c.done) - 1; i >= 0; i-- {
		d := &c.done[i]
		n := t.nodes.at(d.id)
		switch d.what {
		case created:
			e := t.extras.at(t.nodes.at(n.parent).extra)
			e.created--
			e.pzxid = d.zxid
			t.unlink(t.index.hash(d.path), d.id, n, d.path)
			t.forget(d.id)
		case deleted:
			t.extras.at(t.nodes.at(n.parent).extra).pzxid = d.zxid
			t.link(t.index.hash(d.path), d.id, n, d.path)
		case wrote:
			page, off, now := n.page, n.off, t.dataLen(n)
			n.page, n.off, n.null, n.version, n.mzxid, n.mtime = d.page, d.off, d.null, d.version, d.zxid, d.time
			t.size += int64(t.dataLen(n) - now)
			t.texts.release(page, off)
		case relisted:
			t.acls.release(n.acl)
			n.acl = d.acl
			t.extras.at(n.extra).aversion--
		}
	}
	t.compact()
}

// commit gives back what only an undo would have needed.
func (c *change) commit() {
	t := c.t
	for i := range c.done {
		switch d := &c.done[i]; d.what {
		case deleted:
			t.forget(d.id)
		case wrote:
			t.texts.release(d.page, d.off)
		case relisted:
			t.acls.release(d.acl)
		}
	}
	t.compact()
}

// Due lists the container and TTL nodes that may be swept, sorted: childless
// containers that had children once, childless TTL nodes untouched for longer
// than their TTL. Each is then deleted by its own OpSweep.
func (t *Tree) Due(now int64) []string {
	var due []string
	for _, id := range t.sweep {
		if t.isDue(t.nodes.at(id), now) {
			due = append(due, t.path(id))
		}
	}
	slices.Sort(due)
	return due
}

func (t *Tree) isDue(n *node, now int64) bool {
	switch {
	case t.hasChildren(n):
		return false
	case n.kind() == Container:
		return t.look(n).created > 0
	}
	return n.kind() == PersistentTTL && now-n.mtime > t.look(n).owner
}

func (c *change) sweepNode(path string) Code {
	t := c.t
	h := t.index.hash(path)
	id := t.search(h, path)
	switch {
	case id == 0:
		return NoNode
	case !t.isDue(t.nodes.at(id), c.now):
		return NotEmpty
	}
	c.remove(h, id, path)
	return OK
}
