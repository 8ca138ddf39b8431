package zkserver

import (
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// request carries out one request of a connection, under the lock, and queues
// its answer. now is in milliseconds.
func (c *conn) request(frame []byte, now int64) {
	d := zkwire.NewDecoder(frame)
	var h zkwire.RequestHeader
	if h.Decode(d); d.Err() != nil {
		c.complain("a request has no header", d.Err())
		c.closing = true
		return
	}
	c.info.op, c.info.cxid = h.Op, h.Xid
	s := c.s
	switch h.Op {
	case zkwire.OpPing:
		c.reply(zkwire.XidPing, s.tree.Zxid(), zkwire.OK) // whatever xid it came with
	case zkwire.OpGetData, zkwire.OpExists, zkwire.OpGetChildren, zkwire.OpGetChildren2:
		c.read(h, d)
	case zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL,
		zkwire.OpDelete, zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpDeleteContainer:
		c.write1(h, d, now)
	case zkwire.OpMulti:
		c.multi(h, d, now)
	case zkwire.OpMultiRead:
		c.multiRead(h, d)
	case zkwire.OpGetACL, zkwire.OpSync, zkwire.OpGetEphemerals, zkwire.OpGetAllChildrenNumber, zkwire.OpWhoAmI:
		c.look(h, d)
	case zkwire.OpSetWatches, zkwire.OpSetWatches2, zkwire.OpAddWatch, zkwire.OpCheckWatches, zkwire.OpRemoveWatches:
		c.watch(h, d)
	case zkwire.OpAuth:
		c.auth(h.Xid, d)
	case zkwire.OpSASL:
		// Without SASL configured a token is answered with none.
		m := c.begin(h.Xid, 0, zkwire.OK)
		c.out = zkwire.AppendBuffer(c.out, nil)
		c.finish(m)
	case zkwire.OpReconfig:
		c.reconfig(h, d, now)
	case zkwire.OpCloseSession:
		c.closing = true
		s.endSession(c.sess, h.Xid)
		c.reply(h.Xid, s.tree.Zxid(), zkwire.OK)
	case zkwire.OpCreateSession:
		c.greet()
	default:
		c.reply(h.Xid, -1, zkwire.ErrUnimplemented)
		c.closing = true
	}
}

// begin starts an answer; finish(m) ends it.
func (c *conn) begin(xid int32, zxid int64, err zkwire.Err) (m int) {
	m = c.send()
	c.out = zkwire.ReplyHeader{Xid: xid, Zxid: zxid, Err: err}.Append(c.out)
	return m
}

// reply queues an answer without a body.
func (c *conn) reply(xid int32, zxid int64, err zkwire.Err) {
	c.finish(c.begin(xid, zxid, err))
}

// ok starts a good answer with the zxid of now.
func (c *conn) ok(h zkwire.RequestHeader) (m int) {
	return c.begin(h.Xid, c.s.tree.Zxid(), zkwire.OK)
}

// fail queues an error with the zxid of now.
func (c *conn) fail(h zkwire.RequestHeader, code Code) {
	c.reply(h.Xid, c.s.tree.Zxid(), zkwire.Err(code))
}

// malformed answers a body that cannot be read: the connection stays.
func (c *conn) malformed(h zkwire.RequestHeader) {
	c.reply(h.Xid, c.s.tree.Zxid(), zkwire.ErrMarshalling)
}

// refuse answers an attempt that fails before the tree is asked, and costs a
// zxid all the same.
func (c *conn) refuse(h zkwire.RequestHeader, now int64, err zkwire.Err) {
	s := c.s
	s.tree.AdvanceZxid(s.tree.Zxid() + 1)
	if s.durable() {
		s.append(&zkwire.Txn{Session: c.who.Session, Cxid: h.Xid, Zxid: s.tree.Zxid(), Time: now, Record: &zkwire.TxnError{Err: err}})
	}
	c.reply(h.Xid, s.tree.Zxid(), err)
}

// reconfig fails either way: a server alone has no ensemble to change.
func (c *conn) reconfig(h zkwire.RequestHeader, d *zkwire.Decoder, now int64) {
	var r zkwire.ReconfigRequest
	switch r.Decode(d); {
	case d.Err() != nil:
		c.malformed(h)
	case !c.s.o.Reconfig:
		c.refuse(h, now, zkwire.ErrReconfigDisabled)
	default:
		c.refuse(h, now, zkwire.ErrUnimplemented)
	}
}

// read answers getData, exists, getChildren and getChildren2.
func (c *conn) read(h zkwire.RequestHeader, d *zkwire.Decoder) {
	path, ok := d.NullString()
	watch := d.Bool()
	if d.Err() != nil || !ok {
		c.malformed(h)
		return
	}
	t := c.s.tree
	var code Code
	var stat Stat
	var data []byte
	var names []string
	kind := DataWatch
	switch h.Op {
	case zkwire.OpGetData:
		data, stat, code = t.GetData(c.who, path)
	case zkwire.OpExists:
		stat, code = t.Exists(c.who, path)
	default:
		kind = ChildWatch
		names, stat, code = t.AppendChildren(c.s.names[:0], c.who, path)
		c.s.names = names
	}
	if watch && (code == OK || code == NoNode && h.Op == zkwire.OpExists) {
		t.Watch(c.id, kind, path)
	}
	if code != OK {
		c.fail(h, code)
		return
	}
	m := c.ok(h)
	switch h.Op {
	case zkwire.OpGetData:
		c.out = zkwire.AppendBuffer(c.out, data)
	case zkwire.OpGetChildren, zkwire.OpGetChildren2:
		c.out = zkwire.AppendStrings(c.out, names)
	}
	if h.Op != zkwire.OpGetChildren {
		c.out = stat.Append(c.out)
	}
	c.finish(m)
}

// look answers the reads that have one path at most, and no watch.
func (c *conn) look(h zkwire.RequestHeader, d *zkwire.Decoder) {
	t := c.s.tree
	if h.Op == zkwire.OpWhoAmI {
		m := c.ok(h)
		c.out = zkwire.AppendClientInfos(c.out, c.whoAmI())
		c.finish(m)
		return
	}
	path, ok := d.NullString()
	if d.Err() != nil || !ok && h.Op != zkwire.OpGetEphemerals {
		c.malformed(h)
		return
	}
	switch h.Op {
	case zkwire.OpSync:
		m := c.ok(h)
		c.out = zkwire.AppendString(c.out, path)
		c.finish(m)
	case zkwire.OpGetACL:
		acl, stat, code := t.GetACL(c.who, path)
		if code != OK {
			c.fail(h, code)
			return
		}
		m := c.ok(h)
		c.out = stat.Append(zkwire.AppendACLs(c.out, acl))
		c.finish(m)
	case zkwire.OpGetEphemerals:
		if strings.TrimSpace(path) == "" {
			path = "/" // a blank prefix is every prefix
		}
		paths := slices.DeleteFunc(t.Ephemerals(c.who.Session), func(p string) bool { return !strings.HasPrefix(p, path) })
		m := c.ok(h)
		c.out = zkwire.AppendStrings(c.out, paths)
		c.finish(m)
	case zkwire.OpGetAllChildrenNumber:
		n, code := t.CountDescendants(c.who, path)
		if code != OK {
			c.fail(h, code)
			return
		}
		m := c.ok(h)
		c.out = zkwire.AppendInt32(c.out, int32(n))
		c.finish(m)
	}
}

// decodeWrite reads the body of a single write; data stay in the request's
// bytes, which the tree copies. whole is false if it cannot be
// read, named if its path is not null.
func decodeWrite(op int32, d *zkwire.Decoder) (o Op, named, whole bool) {
	if op == zkwire.OpDeleteContainer {
		// Its body is the bare path: servers send it to themselves alone.
		return Op{Kind: OpSweep, Path: string(d.Rest())}, true, true
	}
	o.Path, named = d.NullString()
	switch op {
	case zkwire.OpDelete:
		o.Kind, o.Version = OpDelete, d.Int32()
	case zkwire.OpSetData:
		o.Kind, o.Data, o.Version = OpSet, d.Buffer(), d.Int32()
	case zkwire.OpSetACL:
		o.Kind, o.ACL, o.Version = OpSetACL, d.ACLs(), d.Int32()
	default:
		o.Kind, o.Data, o.ACL = OpCreate, d.Buffer(), d.ACLs()
		flags := d.Int32()
		if op == zkwire.OpCreateTTL {
			o.TTL = d.Int64()
		}
		o.Mode = createMode(op, flags)
	}
	return o, named, d.Err() == nil
}

// createMode is the kind of node that an op code and its flags ask for; what
// cannot be gives a mode that the tree refuses.
func createMode(op, flags int32) Mode {
	mode := Mode(flags)
	switch {
	case op == zkwire.OpCreateTTL && !mode.ttl():
		return -1
	case op == zkwire.OpCreateContainer && !mode.ttl() && mode >= Persistent && mode <= Container:
		return Container
	}
	return mode
}

// write1 carries out a single write.
func (c *conn) write1(h zkwire.RequestHeader, d *zkwire.Decoder, now int64) {
	op, named, whole := decodeWrite(h.Op, d)
	switch {
	case !whole:
		c.malformed(h)
		return
	case !named:
		c.refuse(h, now, zkwire.ErrMarshalling)
		return
	}
	if op.Mode == Container && h.Op != zkwire.OpCreateContainer {
		op.Mode = Persistent // the op code makes a container, flags do so in a multi alone
	}
	s := c.s
	clear(s.ops) // nothing of the last request is held on to
	s.ops = append(s.ops[:0], op)
	res := s.tree.MultiInto(c.who, now, s.ops, s.results)
	s.results = res.Ops
	if s.durable() {
		s.append(&zkwire.Txn{Session: c.who.Session, Cxid: h.Xid, Zxid: res.Zxid, Time: now, Record: LogRecord(op, res.Ops[0])})
	}
	s.deliver(res.Fired)
	r := &res.Ops[0]
	m := c.begin(h.Xid, res.Zxid, zkwire.Err(r.Code))
	if r.Code == OK {
		switch h.Op {
		case zkwire.OpCreate:
			c.out = zkwire.AppendString(c.out, r.Path)
		case zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL:
			c.out = r.Stat.Append(zkwire.AppendString(c.out, r.Path))
		case zkwire.OpSetData, zkwire.OpSetACL:
			c.out = r.Stat.Append(c.out)
		}
	}
	c.finish(m)
}

// multi carries out a transaction (spec/zookeeper.md §4.6).
func (c *conn) multi(h zkwire.RequestHeader, d *zkwire.Decoder, now int64) {
	s := c.s
	ops, whole := s.decodeMulti(d)
	if !whole {
		c.refuse(h, now, zkwire.ErrMarshalling)
		return
	}
	res := s.tree.MultiInto(c.who, now, ops, s.results)
	s.results = res.Ops
	if s.durable() {
		s.append(&zkwire.Txn{Session: c.who.Session, Cxid: h.Xid, Zxid: res.Zxid, Time: now, Record: res.Record(ops)})
	}
	s.deliver(res.Fired)
	m := c.begin(h.Xid, res.Zxid, zkwire.OK)
	failed := res.Code() != OK
	for i := range res.Ops {
		r := &res.Ops[i]
		w := zkwire.Result{Type: zkwire.OpError, Err: zkwire.Err(r.Code)}
		if !failed {
			w = zkwire.Result{Path: r.Path, Stat: r.Stat, Type: resultType(s.opTypes[i], &ops[i])}
		}
		c.out = w.Append(c.out)
	}
	c.out = zkwire.AppendMultiEnd(c.out)
	c.finish(m)
}

// decodeMulti reads the operations of a multi, and their op codes, into the
// server's scratch.
func (s *Server) decodeMulti(d *zkwire.Decoder) (ops []Op, whole bool) {
	clear(s.ops) // nothing of the last one is held on to
	ops, s.opTypes = s.ops[:0], s.opTypes[:0]
	for {
		typ, done := d.Int32(), d.Bool()
		d.Int32()
		if d.Err() != nil {
			return nil, false
		}
		if done {
			break
		}
		var op Op
		switch {
		case typ == zkwire.OpCheck:
			op = Op{Kind: OpCheck, Path: d.String(), Version: d.Int32()}
		case multiWrite(typ):
			op, _, _ = decodeWrite(typ, d)
			if op.Mode < Persistent || op.Mode > PersistentSequentialTTL || op.Mode.ttl() && typ != zkwire.OpCreateTTL {
				return nil, false // flags that say no kind of node cannot be read
			}
		default:
			return nil, false
		}
		if d.Err() != nil {
			return nil, false
		}
		ops, s.opTypes = append(ops, op), append(s.opTypes, typ)
	}
	s.ops = ops
	return ops, true
}

// multiWrite tells whether an op code is one of those that a multi has.
func multiWrite(typ int32) bool {
	switch typ {
	case zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpCheck:
		return true
	}
	return false
}

// resultType is the op code that a multi's result has: creations that are
// answered with a Stat are all create2.
func resultType(typ int32, op *Op) int32 {
	if op.Kind == OpCreate && (typ != zkwire.OpCreate || op.Mode == Container || op.Mode.ttl()) {
		return zkwire.OpCreate2
	}
	return typ
}

// multiRead answers several reads; one that fails does not stop the others.
func (c *conn) multiRead(h zkwire.RequestHeader, d *zkwire.Decoder) {
	t := c.s.tree
	m := c.ok(h)
	for n := 0; ; n++ {
		typ, done := d.Int32(), d.Bool()
		d.Int32()
		if done && d.Err() == nil {
			break
		}
		path := ""
		readable := typ == zkwire.OpGetData || typ == zkwire.OpGetChildren
		if readable {
			path = d.String()
			d.Bool()
		}
		if !readable || d.Err() != nil {
			c.out = c.out[:m] // an error has no body, but for writes: no results
			if n > 0 || !multiWrite(typ) {
				c.malformed(h)
				return
			}
			m = c.begin(h.Xid, t.Zxid(), zkwire.ErrMarshalling)
			break
		}
		r := zkwire.Result{Type: typ}
		var code Code
		if typ == zkwire.OpGetData {
			r.Data, r.Stat, code = t.GetData(c.who, path)
		} else {
			r.Children, _, code = t.AppendChildren(c.s.names[:0], c.who, path)
			c.s.names = r.Children
		}
		if code != OK {
			r = zkwire.Result{Type: zkwire.OpError, Err: zkwire.Err(code)}
		}
		c.out = r.Append(c.out)
		if len(c.out) > c.s.sendMax {
			c.overrun("a multiRead has too long an answer; the connection is closed")
			return
		}
	}
	c.out = zkwire.AppendMultiEnd(c.out)
	c.finish(m)
}

// watch arms, checks and removes watches.
func (c *conn) watch(h zkwire.RequestHeader, d *zkwire.Decoder) {
	switch h.Op {
	case zkwire.OpSetWatches, zkwire.OpSetWatches2:
		c.setWatches(h, d)
		return
	}
	path, ok := d.NullString()
	n := d.Int32()
	if d.Err() != nil || !ok {
		c.malformed(h)
		return
	}
	t := c.s.tree
	if h.Op == zkwire.OpAddWatch {
		switch n {
		case zkwire.WatchPersistent:
			t.Watch(c.id, PersistentWatch, path)
		case zkwire.WatchPersistentRecursive:
			t.Watch(c.id, RecursiveWatch, path)
		default:
			c.malformed(h)
			return
		}
		m := c.ok(h)
		c.out = zkwire.AppendInt32(c.out, 0)
		c.finish(m)
		return
	}
	kinds, ok := watchKindsOf(n)
	if !ok {
		c.malformed(h)
		return
	}
	found := false
	for _, k := range kinds {
		if h.Op == zkwire.OpCheckWatches {
			found = found || t.Watches(c.id, k, path)
		} else if t.Unwatch(c.id, k, path) == OK {
			found = true
		}
	}
	if !found {
		c.fail(h, NoWatcher)
		return
	}
	c.finish(c.ok(h))
}

// watchKindsOf is what a type of removeWatches and checkWatches means.
func watchKindsOf(typ int32) ([]WatchKind, bool) {
	switch typ {
	case zkwire.WatcherChildren:
		return []WatchKind{ChildWatch}, true
	case zkwire.WatcherData:
		return []WatchKind{DataWatch}, true
	case zkwire.WatcherAny:
		return []WatchKind{ChildWatch, DataWatch, PersistentWatch, RecursiveWatch}, true
	case 4:
		return []WatchKind{PersistentWatch}, true
	case 5:
		return []WatchKind{RecursiveWatch}, true
	}
	return nil, false
}

// setWatches arms what a client watched before it reconnected; what it missed
// is told before the answer.
func (c *conn) setWatches(h zkwire.RequestHeader, d *zkwire.Decoder) {
	var r zkwire.SetWatches
	if h.Op == zkwire.OpSetWatches2 {
		r.Decode2(d)
	} else {
		r.Decode(d)
	}
	if d.Err() != nil {
		c.malformed(h)
		return
	}
	missed := c.s.tree.Rearm(c.id, r.RelativeZxid, r.Data, r.Exist, r.Child, r.Persistent, r.PersistentRecursive)
	for i := range missed {
		missed[i].Zxid = -1 // no transaction of now
	}
	c.s.deliver(missed)
	c.finish(c.ok(h))
}
