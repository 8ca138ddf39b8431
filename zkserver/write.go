package zkserver

import (
	"fmt"
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
	ACL     []ACL  // OpCreate, OpSetACL
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

// change is one attempt under way: what to undo, and what it would fire.
type change struct {
	t    *Tree
	who  Who
	now  int64
	zxid int64
	undo []func()
	told []happened
}

// happened is one node event that watches may be interested in.
type happened struct {
	kind EventType
	path string
	acl  []ACL
}

// Write tries one op.
func (t *Tree) Write(who Who, now int64, op Op) Result { return t.Multi(who, now, []Op{op}) }

// Multi tries ops as one transaction: each sees the effects of those before
// it, and if one fails nothing happened, sequence numbers included.
func (t *Tree) Multi(who Who, now int64, ops []Op) Result {
	t.zxid++
	c := &change{t: t, who: who, now: now, zxid: t.zxid}
	res := Result{Zxid: t.zxid, Ops: make([]OpResult, len(ops))}
	for i, op := range ops {
		res.Ops[i] = c.apply(op)
		if res.Ops[i].Code == OK {
			continue
		}
		c.rollback()
		for j := range ops {
			switch {
			case j < i:
				res.Ops[j] = OpResult{}
			case j > i:
				res.Ops[j] = OpResult{Code: RuntimeInconsistency}
			}
		}
		return res
	}
	res.Fired = t.watches.fire(c.told, c.zxid)
	return res
}

func (c *change) rollback() {
	for _, undo := range slices.Backward(c.undo) {
		undo()
	}
}

func (c *change) apply(op Op) OpResult {
	if _, alive := c.t.sessions[c.who.Session]; !alive && op.Kind != OpSweep {
		return OpResult{Code: SessionExpired}
	}
	switch op.Kind {
	case OpCreate:
		return c.create(op)
	case OpDelete:
		return OpResult{Code: c.delete(op)}
	case OpSet:
		return c.set(op)
	case OpCheck:
		return OpResult{Code: c.check(op)}
	case OpSetACL:
		return c.setACL(op)
	case OpSweep:
		return OpResult{Code: c.sweepNode(op.Path)}
	}
	return OpResult{Code: Unimplemented}
}

// create checks in ZooKeeper's order (spec/zookeeper.md §4.5).
func (c *change) create(op Op) OpResult {
	t := c.t
	if code := t.checkMode(op); code != OK {
		return OpResult{Code: code}
	}
	slash := strings.LastIndexByte(op.Path, '/')
	if slash < 0 || strings.IndexByte(op.Path, 0) >= 0 {
		return OpResult{Code: BadArguments}
	}
	acl := fixACL(c.who, op.ACL)
	if acl == nil {
		return OpResult{Code: InvalidACL}
	}
	parentPath := op.Path[:slash]
	parent := t.lookup(parentPath)
	if parent == nil {
		return OpResult{Code: NoNode}
	}
	if !c.who.may(PermCreate, parent.acl) {
		return OpResult{Code: NoAuth}
	}
	path := op.Path
	if op.Mode.sequential() {
		path += fmt.Sprintf("%010d", parent.created)
	}
	switch {
	case validatePath(path) != nil:
		return OpResult{Code: BadArguments}
	case t.nodes[path] != nil:
		return OpResult{Code: NodeExists}
	case parent.mode == Ephemeral:
		return OpResult{Code: NoChildrenForEphemerals}
	}

	n := &node{data: op.Data, acl: acl, stat: Stat{Czxid: c.zxid, Mzxid: c.zxid, Pzxid: c.zxid, Ctime: c.now, Mtime: c.now}}
	switch {
	case op.Mode.ephemeral():
		n.mode, n.stat.EphemeralOwner = Ephemeral, c.who.Session
		t.sessions[c.who.Session][path] = struct{}{}
	case op.Mode == Container:
		n.mode = Container
		t.sweep[path] = struct{}{}
	case op.Mode.ttl():
		n.mode, n.ttl = PersistentTTL, op.TTL
		t.sweep[path] = struct{}{}
	}
	pzxid := parent.stat.Pzxid
	t.nodes[path] = n
	parent.addChild(path)
	parent.created++
	parent.stat.Pzxid = c.zxid
	c.undo = append(c.undo, func() {
		t.unlist(path, n)
		delete(t.nodes, path)
		delete(parent.children, path[slash+1:])
		parent.created--
		parent.stat.Pzxid = pzxid
	})
	c.told = append(c.told, happened{EventCreated, path, acl}, happened{EventChildrenChanged, rootName(parentPath), parent.acl})
	return OpResult{Path: path, Stat: n.full(), ACL: acl, ParentCreated: parent.created}
}

func (t *Tree) checkMode(op Op) Code {
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

func rootName(path string) string {
	if path == "" {
		return "/"
	}
	return path
}

func (c *change) delete(op Op) Code {
	switch op.Path {
	case "/", "/zookeeper", "/zookeeper/quota", configPath:
		return BadArguments
	}
	slash := strings.LastIndexByte(op.Path, '/')
	if slash < 0 || strings.IndexByte(op.Path, 0) >= 0 {
		return BadArguments
	}
	parent, n := c.t.lookup(op.Path[:slash]), c.t.nodes[op.Path]
	switch {
	case parent == nil:
		return NoNode
	case !c.who.may(PermDelete, parent.acl):
		return NoAuth
	case n == nil:
		return NoNode
	case op.Version != AnyVersion && op.Version != n.stat.Version:
		return BadVersion
	case len(n.children) > 0:
		return NotEmpty
	}
	c.remove(op.Path, n, parent)
	return OK
}

// remove takes a childless node out and notes how to put it back.
func (c *change) remove(path string, n, parent *node) {
	t, name := c.t, path[strings.LastIndexByte(path, '/')+1:]
	pzxid := parent.stat.Pzxid
	_, swept := t.sweep[path]
	t.unlist(path, n)
	delete(t.nodes, path)
	delete(parent.children, name)
	parent.stat.Pzxid = c.zxid
	c.undo = append(c.undo, func() {
		t.nodes[path] = n
		parent.children[name] = struct{}{}
		parent.stat.Pzxid = pzxid
		if n.mode == Ephemeral {
			t.sessions[n.stat.EphemeralOwner][path] = struct{}{}
		}
		if swept {
			t.sweep[path] = struct{}{}
		}
	})
	c.told = append(c.told, happened{EventDeleted, path, n.acl},
		happened{EventChildrenChanged, rootName(path[:len(path)-len(name)-1]), parent.acl})
}

func (c *change) set(op Op) OpResult {
	if validatePath(op.Path) != nil {
		return OpResult{Code: BadArguments}
	}
	n := c.t.nodes[op.Path]
	switch {
	case n == nil:
		return OpResult{Code: NoNode}
	case !c.who.may(PermWrite, n.acl):
		return OpResult{Code: NoAuth}
	case op.Version != AnyVersion && op.Version != n.stat.Version:
		return OpResult{Code: BadVersion}
	}
	data, stat := n.data, n.stat
	n.data = op.Data
	n.stat.Version++
	n.stat.Mzxid, n.stat.Mtime = c.zxid, c.now
	c.undo = append(c.undo, func() {
		n.data, n.stat.Version, n.stat.Mzxid, n.stat.Mtime = data, stat.Version, stat.Mzxid, stat.Mtime
	})
	c.told = append(c.told, happened{EventDataChanged, op.Path, n.acl})
	return OpResult{Stat: n.full()}
}

func (c *change) check(op Op) Code {
	if validatePath(op.Path) != nil {
		return BadArguments
	}
	n := c.t.nodes[op.Path]
	switch {
	case n == nil:
		return NoNode
	case !c.who.may(PermRead, n.acl):
		return NoAuth
	case op.Version != AnyVersion && op.Version != n.stat.Version:
		return BadVersion
	}
	return OK
}

func (c *change) setACL(op Op) OpResult {
	if validatePath(op.Path) != nil {
		return OpResult{Code: BadArguments}
	}
	acl := fixACL(c.who, op.ACL)
	n := c.t.nodes[op.Path]
	switch {
	case acl == nil:
		return OpResult{Code: InvalidACL}
	case n == nil:
		return OpResult{Code: NoNode}
	case !c.who.may(PermAdmin, n.acl):
		return OpResult{Code: NoAuth}
	case op.Version != AnyVersion && op.Version != n.stat.Aversion:
		return OpResult{Code: BadVersion}
	}
	old := n.acl
	n.acl = acl
	n.stat.Aversion++
	c.undo = append(c.undo, func() {
		n.acl = old
		n.stat.Aversion--
	})
	return OpResult{Stat: n.full(), ACL: acl}
}

// Due lists the container and TTL nodes that may be swept, sorted: childless
// containers that had children once, childless TTL nodes untouched for longer
// than their TTL. Each is then deleted by its own OpSweep.
func (t *Tree) Due(now int64) []string {
	var due []string
	for p := range t.sweep {
		if t.isDue(t.nodes[p], now) {
			due = append(due, p)
		}
	}
	slices.Sort(due)
	return due
}

func (t *Tree) isDue(n *node, now int64) bool {
	switch {
	case n == nil || len(n.children) > 0:
		return false
	case n.mode == Container:
		return n.created > 0
	}
	return n.mode == PersistentTTL && now-n.stat.Mtime > n.ttl
}

func (c *change) sweepNode(path string) Code {
	n := c.t.nodes[path]
	switch {
	case n == nil:
		return NoNode
	case !c.t.isDue(n, c.now):
		return NotEmpty
	}
	c.remove(path, n, c.t.parentOf(path))
	return OK
}
