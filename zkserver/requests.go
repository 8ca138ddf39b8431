package zkserver

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

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
		if token := d.Buffer(); token == nil {
			c.closing = true // there is none, or it cannot be read
			return
		}
		// Without SASL configured a token is answered with none.
		m := c.begin(h.Xid, 0, zkwire.OK)
		c.out = zkwire.AppendBuffer(c.out, nil)
		c.finish(m)
	case zkwire.OpReconfig:
		c.reconfig(h, d, now)
	case zkwire.OpCloseSession:
		// Its own watches still see its ephemerals go.
		sess := c.sess
		sess.conn, c.sess = nil, nil
		s.endSession(sess, h.Xid)
		c.closing = true
		c.reply(h.Xid, s.tree.Zxid(), zkwire.OK)
	case zkwire.OpCreateSession:
		c.createSession(h, d, now)
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

// createSession is the server's own op. A client that sends it is greeted once
// more, as if it had just been connected.
func (c *conn) createSession(h zkwire.RequestHeader, d *zkwire.Decoder, now int64) {
	if d.Int32(); d.Err() != nil {
		c.refuse(h, now, zkwire.ErrMarshalling)
		return
	}
	s := c.s
	s.tree.AdvanceZxid(s.tree.Zxid() + 1)
	if s.durable() {
		s.append(&zkwire.Txn{Session: c.sess.id, Cxid: h.Xid, Zxid: s.tree.Zxid(), Time: now,
			Record: &zkwire.TxnCreateSession{Timeout: int32(c.sess.timeout / time.Millisecond)}})
	}
	c.greet()
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
	path, named := d.NullString()
	if d.Err() != nil || !named && h.Op != zkwire.OpGetEphemerals && h.Op != zkwire.OpSync {
		c.malformed(h)
		return
	}
	switch h.Op {
	case zkwire.OpSync:
		m := c.ok(h)
		if named {
			c.out = zkwire.AppendString(c.out, asText(path))
		} else {
			c.out = zkwire.AppendBuffer(c.out, nil)
		}
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
		if p := strings.TrimFunc(path, func(r rune) bool { return r <= ' ' }); p == "" || p == "/" {
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
	o.Path, named = d.NullString()
	switch op {
	case zkwire.OpDeleteContainer:
		o.Kind, o.Version = OpDelete, AnyVersion
	case zkwire.OpDelete:
		o.Kind, o.Version = OpDelete, d.Int32()
	case zkwire.OpCheck:
		o.Kind, o.Version = OpCheck, d.Int32()
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
		// A container's flags may ask for a number behind its name.
		o.Sequential = op == zkwire.OpCreateContainer && Mode(flags).sequential()
	}
	return o, named, d.Err() == nil
}

// createMode is the kind of node that an op code and its flags ask for; what
// cannot be gives a mode that the tree refuses.
func createMode(op, flags int32) Mode {
	mode := Mode(flags)
	switch {
	case op == zkwire.OpCreateContainer && !mode.ttl() && mode >= Persistent && mode <= Container:
		return Container
	}
	return mode
}

// write1 carries out a single write.
func (c *conn) write1(h zkwire.RequestHeader, d *zkwire.Decoder, now int64) {
	op, named, whole := decodeWrite(h.Op, d)
	if !whole || !named && h.Op == zkwire.OpDeleteContainer {
		c.malformed(h)
		return
	}
	s := c.s
	switch {
	case h.Op == zkwire.OpCreateTTL && !op.Mode.ttl():
		op.Mode = -1 // in a multi it is an ordinary create
	case op.Mode == Container && h.Op != zkwire.OpCreateContainer:
		op.Mode = Persistent // the op code makes a container, flags do so in a multi alone
	}
	switch code := s.tree.checkMode(&op); {
	case named:
	case op.Kind == OpCreate && code != OK:
		c.refuse(h, now, zkwire.Err(code))
		return
	case op.Kind == OpSet || op.Kind == OpSetACL:
		c.refuse(h, now, zkwire.ErrBadArguments)
		return
	default:
		c.refuse(h, now, zkwire.ErrMarshalling)
		return
	}
	if h.Op == zkwire.OpDeleteContainer && s.tree.isEphemeral(op.Path) {
		c.refuse(h, now, zkwire.ErrBadVersion)
		return
	}
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
	ops, fault := s.decodeMulti(d)
	switch fault {
	case multiUnreadable:
		c.refuse(h, now, zkwire.ErrMarshalling)
		return
	case multiNullACL:
		c.malformed(h)
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

// multiFault is why a multi is not tried.
type multiFault uint8

const (
	multiFine       multiFault = iota
	multiUnreadable            // costs a zxid all the same
	multiNullACL               // costs none; an empty list is tried, and so is a null one with a TTL
)

// decodeMulti reads the operations of a multi, and their op codes, into the
// server's scratch. The first fault counts.
func (s *Server) decodeMulti(d *zkwire.Decoder) (ops []Op, fault multiFault) {
	clear(s.ops) // nothing of the last one is held on to
	ops, s.opTypes = s.ops[:0], s.opTypes[:0]
	for {
		typ, done := d.Int32(), d.Bool()
		d.Int32()
		if d.Err() != nil {
			return nil, multiUnreadable
		}
		if done {
			break
		}
		if !multiWrite(typ) {
			return nil, multiUnreadable
		}
		op, named, whole := decodeWrite(typ, d)
		if whole = whole && named; whole && op.Kind == OpCreate {
			if op.ACL == nil && typ != zkwire.OpCreateTTL && op.Mode >= Persistent && op.Mode <= PersistentSequentialTTL {
				return nil, multiNullACL
			}
			typ, whole = multiCreate(typ, op.Mode)
		}
		if !whole {
			return nil, multiUnreadable
		}
		ops, s.opTypes = append(ops, op), append(s.opTypes, typ)
	}
	s.ops = ops
	return ops, multiFine
}

// multiWrite tells whether an op code is one of those that a multi has.
func multiWrite(typ int32) bool {
	switch typ {
	case zkwire.OpCreate, zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpCheck:
		return true
	}
	return false
}

// multiCreate is the op code that a creation in a multi counts as. Flags that
// say no kind of node cannot be read there, unless a TTL is with them; and
// createTTL with the flags of a node without one is create.
func multiCreate(typ int32, mode Mode) (as int32, ok bool) {
	switch plain := mode >= Persistent && mode <= Container; {
	case typ != zkwire.OpCreateTTL:
		return typ, plain
	case plain:
		return zkwire.OpCreate, true
	}
	return typ, true
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
	all := *d
	m := c.ok(h)
	for n := 0; ; n++ {
		typ, done := d.Int32(), d.Bool()
		d.Int32()
		if done && d.Err() == nil {
			break
		}
		path, named := "", true
		readable := typ == zkwire.OpGetData || typ == zkwire.OpGetChildren
		if readable {
			path, named = d.NullString()
			d.Bool()
		}
		if !readable || d.Err() != nil {
			c.out = c.out[:m] // an error has no body, but for a multi of writes: no results
			if n > 0 || !multiWrite(typ) {
				c.malformed(h)
				return
			}
			if _, fault := c.s.decodeMulti(&all); fault != multiFine {
				c.malformed(h)
				return
			}
			m = c.begin(h.Xid, t.Zxid(), zkwire.ErrMarshalling)
			break
		}
		if !named { // the results so far stay
			zkwire.ReplyHeader{Xid: h.Xid, Zxid: t.Zxid(), Err: zkwire.ErrMarshalling}.Append(c.out[:m+4])
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
	path, named := d.NullString()
	n := d.Int32()
	if d.Err() != nil {
		c.malformed(h)
		return
	}
	t := c.s.tree
	if !named {
		path = "\x00" // null: can be watched, and nothing happens to it
	}
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
	whole := r.Data != nil && r.Exist != nil && r.Child != nil && (h.Op == zkwire.OpSetWatches || r.Persistent != nil && r.PersistentRecursive != nil)
	if !whole { // lists before the null one count
		dropBehindNull(&r)
	}
	missed := c.s.tree.Rearm(c.id, r.RelativeZxid, r.Data, r.Exist, r.Child, r.Persistent, r.PersistentRecursive)
	for i := range missed {
		missed[i].Zxid = -1 // no transaction of now
		c.notice(&missed[i])
	}
	if !whole {
		c.malformed(h)
		return
	}
	c.finish(c.ok(h))
}

// dropBehindNull empties the lists behind the first that is null.
func dropBehindNull(r *zkwire.SetWatches) {
	null := false
	for _, l := range []*[]string{&r.Data, &r.Exist, &r.Child, &r.Persistent, &r.PersistentRecursive} {
		if null = null || *l == nil; null {
			*l = nil
		}
	}
}

// asText is what Java makes of a string's bytes: each that is no UTF-8 becomes U+FFFD.
func asText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}
