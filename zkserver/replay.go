package zkserver

import (
	"fmt"
	"slices"

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
		return t.replayCreate(txn, r)
	case *zkwire.TxnDelete:
		t.uproot(r.Path, txn.Zxid)
	case *zkwire.TxnSetData:
		if id := t.find(r.Path); id != 0 {
			n := t.nodes.at(id)
			t.setData(id, n, r.Data)
			n.version, n.mzxid, n.mtime = r.Version, txn.Zxid, txn.Time
		}
	case *zkwire.TxnSetACL:
		if n := t.node(r.Path); n != nil {
			acl := t.acls.internOpen(r.ACL)
			t.acls.release(n.acl)
			n.acl = acl
			t.ext(n).aversion = r.Version
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
func (t *Tree) replayCreate(txn *zkwire.Txn, r *zkwire.TxnCreate) error {
	if fault := pathFault(r.Path); fault != "" {
		return fmt.Errorf("replay zxid 0x%x, create %q: the path %s", txn.Zxid, r.Path, fault)
	}
	above, name := split(r.Path)
	aboveID := t.find(above)
	if aboveID == 0 {
		return nil // deleted later, and the snapshot knows
	}
	h := t.index.hash(r.Path)
	there := t.search(h, r.Path) != 0
	e := t.ext(t.nodes.at(aboveID))
	switch {
	case r.ParentCreated == -1 && e.created >= 0: // logs of old servers do not say
		if !there {
			e.created++
		}
	case r.ParentCreated-e.created > 0: // the difference, so that it may overflow
		e.created = r.ParentCreated
	}
	e.pzxid = max(e.pzxid, txn.Zxid)
	if there {
		return nil
	}
	id, n := t.plant(h, aboveID, r.Path, name, r.Data, t.acls.internOpen(r.ACL))
	n.czxid, n.mzxid, n.ctime, n.mtime = txn.Zxid, txn.Zxid, txn.Time, txn.Time
	switch {
	case r.Op == zkwire.OpCreateContainer:
		t.become(id, n, Container, 0)
	case r.Op == zkwire.OpCreateTTL:
		t.become(id, n, PersistentTTL, r.TTL)
	case r.Ephemeral:
		t.become(id, n, Ephemeral, txn.Session)
	}
	return nil
}

// uproot takes a node out with all below it: whatever a snapshot has there is
// of a later time, and its transactions are still to come. The parent learns
// of it even if the node is gone already.
func (t *Tree) uproot(path string, zxid int64) {
	if path == "" || path == "/" || path[0] != '/' {
		return
	}
	above, _ := split(path)
	parent := t.node(above)
	if parent == nil {
		return
	}
	e := t.ext(parent)
	e.pzxid = max(e.pzxid, zxid)
	h := t.index.hash(path)
	id := t.search(h, path)
	if id == 0 {
		return
	}
	n := t.nodes.at(id)
	for _, kid := range slices.Clone(t.children(n)) {
		t.uproot(t.path(kid), zxid)
	}
	t.unlink(h, id, n, path)
	t.forget(id)
	t.compact()
}

func (t *Tree) replayClose(txn *zkwire.Txn, r *zkwire.TxnCloseSession) {
	for _, p := range r.Paths {
		t.uproot(p, txn.Zxid)
	}
	if s := t.sessions[txn.Session]; s != nil {
		for _, o := range t.paths(s.owned) {
			t.uproot(o.path, txn.Zxid)
		}
	}
	delete(t.sessions, txn.Session)
}
