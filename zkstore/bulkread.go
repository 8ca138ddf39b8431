package zkstore

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

const (
	bulkFrom    = 21        // reads in one call from which the bulk connection is used
	bulkOps     = 500       // operations in one multiRead
	bulkFirst   = 100       // as long as nothing is known of the size of the nodes
	bulkReply   = 512 << 10 // bytes wanted in one answer
	bulkWindow  = 4         // packets unanswered at a time
	bulkRequest = 512 << 10 // bytes in one request
)

// bulkRead is one call of Read over the bulk connection.
type bulkRead struct {
	b     *bulk
	p     *pipe
	ctx   context.Context
	floor int64 // answers must not be older
	reads []zkpaths.Read
	nodes []zkpaths.Node
	zxids []int64 // of the answer that each read came with
	depth int     // of the first path: nodes of one depth are about the same size

	bytes, count int // of the answers so far
}

// readBulk answers the reads, or returns errNoBulk: then the main connection
// must. A connection that breaks is tried once more.
func (s *Session) readBulk(ctx context.Context, reads []zkpaths.Read, nodes []zkpaths.Node) error {
	var err error
	for range 2 {
		if err = s.wait(ctx); err != nil {
			return err
		}
		var p *pipe
		if p, err = s.bulk.get(ctx); err != nil {
			break
		}
		r := &bulkRead{b: s.bulk, p: p, ctx: ctx, floor: s.link.zxid.Load(), reads: reads, nodes: nodes}
		if err = r.run(); err == nil || errors.Is(err, errNoBulk) {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.isOver() {
			return zkpaths.ErrSessionExpired
		}
	}
	if err != nil {
		s.stats.fallback.Add(1)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return errNoBulk
	}
	return nil
}

func (r *bulkRead) run() error {
	r.catchUp()
	if len(r.reads) < bulkFrom {
		return r.few()
	}
	r.zxids = make([]int64, len(r.reads))
	r.depth = strings.Count(r.reads[0].Path, "/")
	var flying []*chunk
	window := r.b.window()
	for next := 0; next < len(r.reads) || len(flying) > 0; window = bulkWindow {
		for next < len(r.reads) && len(flying) < window {
			c := r.cut(next)
			r.send(c)
			flying, next = append(flying, c), c.to
		}
		if err := r.take(flying[0]); err != nil {
			return err
		}
		flying = flying[1:]
	}
	r.b.learn(r.depth, r.bytes/max(1, r.count))
	if err := r.arm(); err != nil {
		return err
	}
	return r.denied()
}

// catchUp puts a sync in front when this connection is known to be behind, or
// when the main one brought a notice whose zxid is not known yet. Its answer is
// not waited for: what follows on this connection is executed after it.
func (r *bulkRead) catchUp() {
	if r.b.s.link.blind.Load() || r.b.lagged.Load() && r.b.acked.Load() < r.floor {
		r.p.sync(r.b.s.outer("/"))
	}
}

// chunk is the reads [from,to) in one multiRead.
type chunk struct {
	from, to int
	reply    *reply
}

// cut takes as many reads as make an answer of the wanted size.
func (r *bulkRead) cut(from int) *chunk {
	n := r.b.opsFor(r.depth)
	if r.count > 0 {
		n = opsOf(r.bytes / r.count)
	}
	size := 0
	to := from
	for ops := 0; to < len(r.reads) && ops < n && size < bulkRequest; to++ {
		ops += opCount(r.reads[to])
		size += len(r.reads[to].Path) + len(r.b.s.opt.Chroot) + 14
	}
	return &chunk{from: from, to: to}
}

// opCount is 2 for children: getData brings their node's Stat, which
// getChildren in a multiRead leaves out.
func opCount(rd zkpaths.Read) int {
	if rd.Op == zkpaths.GetChildren {
		return 2
	}
	return 1
}

func opsOf(bytes int) int { return min(bulkOps, max(1, bulkReply/max(1, bytes))) }

func (b *bulk) opsFor(depth int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.sizes[depth]; n > 0 {
		return opsOf(n)
	}
	return bulkFirst
}

func (b *bulk) learn(depth, bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes[depth], b.proven = bytes, true
}

// window is how many packets are sent before the first answer: one as long as
// it is not known that the server understands them.
func (b *bulk) window() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proven {
		return bulkWindow
	}
	return 1
}

func (r *bulkRead) send(c *chunk) {
	c.reply = r.p.send(zkwire.OpMultiRead, func(b []byte) []byte {
		for _, rd := range r.reads[c.from:c.to] {
			path := r.b.s.outer(rd.Path)
			b = (&zkwire.Op{Type: zkwire.OpGetData, Path: path}).Append(b)
			if rd.Op == zkpaths.GetChildren {
				b = (&zkwire.Op{Type: zkwire.OpGetChildren, Path: path}).Append(b)
			}
		}
		return zkwire.AppendMultiEnd(b)
	})
}

// take waits for a chunk's answer. One that is too old is asked for again,
// behind a sync.
func (r *bulkRead) take(c *chunk) error {
	for {
		if err := c.reply.wait(r.ctx, r.b.s.over); err != nil {
			return err
		}
		h := c.reply.hdr
		if h.Err == zkwire.ErrUnimplemented {
			r.b.giveUp(r.p)
			return errNoBulk
		}
		if h.Err != zkwire.OK {
			return errNoBulk
		}
		if h.Zxid >= r.floor {
			break
		}
		r.b.lagged.Store(true)
		r.p.sync(r.b.s.outer("/"))
		r.send(c)
	}
	d := zkwire.NewDecoder(c.reply.body)
	results := zkwire.DecodeResults(d, make([]zkwire.Result, 0, c.to-c.from))
	r.bytes += len(c.reply.body)
	for i := c.from; i < c.to; i++ {
		n := opCount(r.reads[i])
		if d.Err() != nil || len(results) < n {
			return errNoBulk
		}
		r.nodes[i], r.zxids[i] = nodeOf(r.reads[i].Op, results[:n]), c.reply.hdr.Zxid
		results, r.count = results[n:], r.count+n
	}
	return nil
}

// nodeOf makes the answer to a read out of the results of its operations.
func nodeOf(op zkpaths.ReadOp, rs []zkwire.Result) zkpaths.Node {
	last := rs[len(rs)-1]
	if rs[0].Err != zkwire.OK || last.Err != zkwire.OK {
		return failedNode(cmpErr(rs[0].Err, last.Err))
	}
	n := zkpaths.Node{Stat: wireStat(rs[0].Stat)}
	switch op {
	case zkpaths.GetData:
		n.Data = rs[0].Data
	case zkpaths.GetChildren:
		n.Children = last.Children
		slices.Sort(n.Children)
	}
	return n
}

func cmpErr(a, b zkwire.Err) zkwire.Err {
	if a != zkwire.OK {
		return a
	}
	return b
}

func failedNode(e zkwire.Err) zkpaths.Node {
	switch e {
	case zkwire.ErrNoNode:
		return zkpaths.Node{Code: zkpaths.NoNode}
	case zkwire.ErrNoAuth:
		return zkpaths.Node{Code: zkpaths.NoAuth}
	}
	return zkpaths.Node{Code: zkpaths.Failed, Err: e}
}

func wireStat(st zkwire.Stat) zkpaths.Stat {
	return zkpaths.Stat{Czxid: st.Czxid, Mzxid: st.Mzxid, Version: st.Version, EphemeralOwner: st.EphemeralOwner,
		NumChildren: st.NumChildren, Mtime: st.Mtime}
}

// denied asks again over the main connection what multiRead may not tell: an
// exists needs no right to read, a getData does.
func (r *bulkRead) denied() error {
	for i, rd := range r.reads {
		if r.nodes[i].Code == zkpaths.NoAuth && rd.Op == zkpaths.Exists {
			n, err := r.b.s.readOne(r.ctx, rd)
			if err != nil {
				return err
			}
			r.nodes[i] = n
		}
	}
	return nil
}

// arm sets the watches that were asked for and are not armed. multiRead ignores
// its watch flag (seen on 3.8.0, 3.8.4 and 3.9.5), so setWatches arms them,
// relative to the state that was read: what changed since is told at once.
func (r *bulkRead) arm() error {
	byZxid := map[int64]*watchLists{}
	marks := map[int64][]*arm{}
	for i, rd := range r.reads {
		n := r.nodes[i]
		if !rd.Watch || n.Code != zkpaths.OK && !(n.Code == zkpaths.NoNode && rd.Op == zkpaths.Exists) {
			continue
		}
		k := armKey{dataTable, r.b.s.outer(rd.Path)}
		if rd.Op == zkpaths.GetChildren {
			k.table = childTable
		}
		mark := r.b.s.arms.begin(k, onBulk)
		if mark == nil {
			continue
		}
		z := r.zxids[i]
		if byZxid[z] == nil {
			byZxid[z] = &watchLists{}
		}
		byZxid[z].add(k, n.Code == zkpaths.OK)
		marks[z] = append(marks[z], mark)
	}
	var replies []*reply
	for z, lists := range byZxid {
		replies = append(replies, lists.send(r.p, z)...)
	}
	for _, rep := range replies {
		if err := rep.wait(r.ctx, r.b.s.over); err != nil {
			return err
		}
		if rep.hdr.Err != zkwire.OK {
			return rep.hdr.Err
		}
	}
	for z, ms := range marks {
		for _, m := range ms {
			r.b.s.arms.commit(m, look{exists: !byZxid[z].missing[m.key.path]})
		}
	}
	return nil
}

// watchLists are the paths of setWatches requests.
type watchLists struct {
	data, exist, child []string
	missing            map[string]bool
}

func (w *watchLists) add(k armKey, exists bool) {
	switch {
	case k.table == childTable:
		w.child = append(w.child, k.path)
	case exists:
		w.data = append(w.data, k.path)
	default:
		w.exist = append(w.exist, k.path)
		if w.missing == nil {
			w.missing = map[string]bool{}
		}
		w.missing[k.path] = true
	}
}

// send arms them in requests of bounded size.
func (w *watchLists) send(p *pipe, rel int64) []*reply {
	var out []*reply
	part := zkwire.SetWatches{RelativeZxid: rel}
	size := 0
	flush := func() {
		if size > 0 {
			rec := part
			out = append(out, p.send(zkwire.OpSetWatches, rec.Append))
			part, size = zkwire.SetWatches{RelativeZxid: rel}, 0
		}
	}
	for i, list := range [][]string{w.data, w.exist, w.child} {
		for _, path := range list {
			if size+len(path)+4 > bulkRequest {
				flush()
			}
			size += len(path) + 4
			switch i {
			case 0:
				part.Data = append(part.Data, path)
			case 1:
				part.Exist = append(part.Exist, path)
			default:
				part.Child = append(part.Child, path)
			}
		}
	}
	flush()
	return out
}

// few reads a handful of nodes by plain requests, which arm their watches
// themselves: for nodes whose watches live on this connection.
func (r *bulkRead) few() error {
	replies := make([]*reply, len(r.reads))
	marks := make([]*arm, len(r.reads))
	ask := func(i int) {
		rd := r.reads[i]
		k := armKey{dataTable, r.b.s.outer(rd.Path)}
		op := zkwire.OpGetData
		if rd.Op == zkpaths.GetChildren {
			k.table, op = childTable, zkwire.OpGetChildren2
		} else if rd.Op == zkpaths.Exists {
			op = zkwire.OpExists
		}
		if rd.Watch && marks[i] == nil {
			marks[i] = r.b.s.arms.begin(k, onBulk)
		}
		replies[i] = r.p.send(op, zkwire.PathWatch{Path: k.path, Watch: marks[i] != nil}.Append)
	}
	for i := range r.reads {
		ask(i)
	}
	for i, rd := range r.reads {
		for {
			if err := replies[i].wait(r.ctx, r.b.s.over); err != nil {
				return err
			}
			if replies[i].hdr.Zxid >= r.floor {
				break
			}
			r.b.lagged.Store(true)
			r.p.sync(r.b.s.outer("/"))
			ask(i)
		}
		n, err := plainNode(rd.Op, replies[i])
		if err != nil {
			return err
		}
		r.nodes[i] = n
		if n.Code == zkpaths.OK || n.Code == zkpaths.NoNode && rd.Op == zkpaths.Exists {
			r.b.s.arms.commit(marks[i], look{exists: n.Code == zkpaths.OK})
		} else {
			r.b.s.arms.abort(marks[i])
		}
	}
	return nil
}

func plainNode(op zkpaths.ReadOp, rep *reply) (zkpaths.Node, error) {
	if rep.hdr.Err != zkwire.OK {
		return failedNode(rep.hdr.Err), nil
	}
	d := zkwire.NewDecoder(rep.body)
	var n zkpaths.Node
	var st zkwire.Stat
	switch op {
	case zkpaths.GetData:
		n.Data = d.Buffer()
	case zkpaths.GetChildren:
		n.Children = d.Strings()
		slices.Sort(n.Children)
	}
	st.Decode(d)
	n.Stat = wireStat(st)
	if d.Err() != nil {
		return n, errNoBulk
	}
	return n, nil
}
