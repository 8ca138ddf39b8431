package zkserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// LogRecord is what a server's log says of a single op and its result: what
// it did, or TxnError if it failed.
func LogRecord(op Op, r OpResult) zkwire.TxnRecord {
	if r.Code != OK {
		return &zkwire.TxnError{Err: zkwire.Err(r.Code)}
	}
	switch op.Kind {
	case OpCreate:
		typ := zkwire.OpCreate
		switch {
		case op.Mode == Container:
			typ = zkwire.OpCreateContainer
		case op.Mode.ttl():
			typ = zkwire.OpCreateTTL
		}
		return &zkwire.TxnCreate{Op: typ, Path: r.Path, Data: op.Data, ACL: r.ACL, Ephemeral: op.Mode.ephemeral(),
			ParentCreated: r.ParentCreated, TTL: op.TTL}
	case OpDelete:
		return &zkwire.TxnDelete{Op: zkwire.OpDelete, Path: op.Path}
	case OpSweep:
		return &zkwire.TxnDelete{Op: zkwire.OpDeleteContainer, Path: op.Path}
	case OpSet:
		return &zkwire.TxnSetData{Path: op.Path, Data: op.Data, Version: r.Stat.Version}
	case OpSetACL:
		return &zkwire.TxnSetACL{Path: op.Path, ACL: r.ACL, Version: r.Stat.Aversion}
	case OpCheck:
		return &zkwire.TxnCheck{Path: op.Path, Version: op.Version}
	}
	return &zkwire.TxnError{Err: zkwire.ErrUnimplemented}
}

// Record is what a server's log says of a multi of these ops. Every part of
// a failed one is a TxnError.
func (r Result) Record(ops []Op) zkwire.TxnRecord {
	failed := r.Code() != OK
	parts := make([]zkwire.TxnRecord, len(ops))
	for i, op := range ops {
		if failed {
			parts[i] = &zkwire.TxnError{Err: zkwire.Err(r.Ops[i].Code)}
			continue
		}
		parts[i] = LogRecord(op, r.Ops[i])
	}
	return &zkwire.TxnMulti{Parts: parts}
}

// Replay applies a logged transaction to a tree that was restored from a
// snapshot which may hold some of its effects already, and effects of later
// ones: a snapshot is taken while writes go on (spec/zookeeper.md §7). When
// all transactions behind the snapshot's zxid were replayed in order, the
// tree is the one that was logged. It fires no watch and checks nothing; the
// only error is a record it does not know.
func (t *Tree) Replay(txn *zkwire.Txn) error {
	t.zxid = max(t.zxid, txn.Zxid)
	return t.replay(txn, txn.Record)
}

func (t *Tree) replay(txn *zkwire.Txn, record zkwire.TxnRecord) error {
	switch r := record.(type) {
	case *zkwire.TxnCreate:
		t.replayCreate(txn, r)
	case *zkwire.TxnDelete:
		t.replayDelete(txn.Zxid, r.Path)
	case *zkwire.TxnSetData:
		if n := t.nodes[r.Path]; n != nil {
			n.data = r.Data
			n.stat.Version, n.stat.Mzxid, n.stat.Mtime = r.Version, txn.Zxid, txn.Time
		}
	case *zkwire.TxnSetACL:
		if n := t.nodes[r.Path]; n != nil {
			n.acl, n.stat.Aversion = r.ACL, r.Version
		}
	case *zkwire.TxnCreateSession:
		t.AddSession(txn.Session)
	case *zkwire.TxnCloseSession:
		t.replayClose(txn, r)
	case *zkwire.TxnMulti:
		return t.replayMulti(txn, r)
	case *zkwire.TxnCheck, *zkwire.TxnError:
	default:
		return fmt.Errorf("replay zxid 0x%x: a transaction of type %T is not known", txn.Zxid, record)
	}
	return nil
}

// replayMulti: one failed part, and none of them happened. Apache's log has
// the parts before the failing one as if they had succeeded.
func (t *Tree) replayMulti(txn *zkwire.Txn, m *zkwire.TxnMulti) error {
	for _, p := range m.Parts {
		if _, failed := p.(*zkwire.TxnError); failed {
			return nil
		}
	}
	for _, p := range m.Parts {
		if err := t.replay(txn, p); err != nil {
			return err
		}
	}
	return nil
}

// replayCreate raises the parent's counters even if the node is there
// already: the snapshot may have met the parent before this create, and the
// node behind it. It never lowers them: the snapshot may know later ones.
func (t *Tree) replayCreate(txn *zkwire.Txn, r *zkwire.TxnCreate) {
	parent := t.parentOf(r.Path)
	if parent == nil {
		return // deleted later, and the snapshot knows
	}
	there := t.nodes[r.Path] != nil
	switch {
	case r.ParentCreated == -1 && !there: // logs of old servers do not say
		parent.created++
	case r.ParentCreated-parent.created > 0: // so that it may overflow, as in Java
		parent.created = r.ParentCreated
	}
	parent.stat.Pzxid = max(parent.stat.Pzxid, txn.Zxid)
	if there {
		return
	}
	n := &node{data: r.Data, acl: r.ACL, stat: Stat{Czxid: txn.Zxid, Mzxid: txn.Zxid, Pzxid: txn.Zxid, Ctime: txn.Time, Mtime: txn.Time}}
	if len(n.acl) == 0 {
		n.acl = OpenACL()
	}
	switch {
	case r.Op == zkwire.OpCreateContainer:
		n.mode = Container
		t.sweep[r.Path] = struct{}{}
	case r.Op == zkwire.OpCreateTTL:
		n.mode, n.ttl = PersistentTTL, r.TTL
		t.sweep[r.Path] = struct{}{}
	case r.Ephemeral:
		n.mode, n.stat.EphemeralOwner = Ephemeral, txn.Session
		t.AddSession(txn.Session)
		t.sessions[txn.Session][r.Path] = struct{}{}
	}
	t.nodes[r.Path] = n
	parent.addChild(r.Path)
}

// replayDelete takes a node out with all below it: whatever a snapshot has
// there is of a later time, and its transactions are still to come.
func (t *Tree) replayDelete(zxid int64, path string) {
	parent := t.parentOf(path)
	if parent == nil {
		return
	}
	parent.stat.Pzxid = max(parent.stat.Pzxid, zxid)
	n := t.nodes[path]
	if n == nil {
		return
	}
	for name := range n.children {
		t.replayDelete(zxid, path+"/"+name)
	}
	t.unlist(path, n)
	delete(t.nodes, path)
	delete(parent.children, path[strings.LastIndexByte(path, '/')+1:])
}

func (t *Tree) replayClose(txn *zkwire.Txn, r *zkwire.TxnCloseSession) {
	for _, p := range r.Paths {
		t.replayDelete(txn.Zxid, p)
	}
	for _, p := range t.Ephemerals(txn.Session) {
		t.replayDelete(txn.Zxid, p)
	}
	delete(t.sessions, txn.Session)
}

// Cursor goes over a tree in pieces, for a snapshot that does not stop the
// world.
type Cursor struct {
	t     *Tree
	stack []frame
	begun bool
}

// frame is a node whose children are being visited; last is the name of the
// newest one.
type frame struct{ path, last string }

// Cursor begins at the root.
func (t *Tree) Cursor() *Cursor { return &Cursor{t: t} }

// Next gives up to max more nodes, parents before children, and nil at the
// end. The tree may be written to between two calls: then what comes out is
// not the tree of any one moment, but with the transactions since Cursor was
// called, replayed in order, it is the present one.
func (c *Cursor) Next(max int) []Saved {
	var out []Saved
	if !c.begun {
		c.begun = true
		out = append(out, c.t.saved("/"))
		c.stack = append(c.stack, frame{path: "/"})
	}
	for len(out) < max && len(c.stack) > 0 {
		top := &c.stack[len(c.stack)-1]
		name := c.t.childAfter(top.path, top.last)
		if name == "" {
			c.stack = c.stack[:len(c.stack)-1]
			continue
		}
		top.last = name
		path := strings.TrimSuffix(top.path, "/") + "/" + name
		out = append(out, c.t.saved(path))
		c.stack = append(c.stack, frame{path: path})
	}
	return out
}

func (t *Tree) childAfter(path, last string) string {
	n := t.lookup(path)
	if n == nil {
		return ""
	}
	best := ""
	for name := range n.children {
		if name > last && (best == "" || name < best) {
			best = name
		}
	}
	return best
}

func (t *Tree) saved(path string) Saved {
	n := t.nodes[path]
	return Saved{Path: path, Data: n.data, ACL: slices.Clone(n.acl), Mode: n.mode, TTL: n.ttl, Created: n.created, Stat: n.full()}
}
