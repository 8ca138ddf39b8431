package zkstore

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// verdict is what a node shows about a write whose answer was lost.
type verdict uint8

const (
	undecided  verdict = iota // its history since is not known
	applied                   // it looks as the write leaves it
	notApplied                // certainly not applied: the node shows what came instead
	notSeen                   // not applied, unless somebody undid it since
)

// finding is the verdict on one write. zxid is the transaction that made the
// node look like this, 0 if it is not to be seen.
type finding struct {
	verdict verdict
	zxid    int64
	out     zkpaths.Outcome // if it was applied
}

// lookUp decides what became of a multi whose answer was lost, after the
// session is connected again (whose resync begins with a sync, so that nothing
// of ours is still on its way). All writes of a multi share one transaction:
// one certain finding decides for all. If it was applied, or if that cannot be
// decided, its writes are settled and true is returned; false: send it again.
func (f *flight) lookUp(ops []*op, before int64) (bool, error) {
	found := make([]finding, len(ops))
	nodes, err := f.s.inspect(f.ctx, ops)
	if err != nil {
		return false, err
	}
	for i, o := range ops {
		if !o.lost {
			o.lost, o.before = true, before
		}
		if o.w.Op == zkpaths.CreateSequential {
			if found[i], err = f.s.findSequential(f.ctx, o.w, before); err != nil {
				return false, err
			}
			continue
		}
		found[i] = f.s.find(o.w, nodes[i], before)
	}
	switch v, zxid := conclude(found); v {
	case notApplied, notSeen:
		return false, nil
	case applied:
		for i, o := range ops {
			f.settle(o, whenApplied(o.w, found[i], zxid))
		}
	default:
		for i, o := range ops {
			f.settle(o, whenUndecided(o.w, found[i]))
		}
	}
	return true, nil
}

// inspect reads the nodes of the writes, with their data.
func (s *Session) inspect(ctx context.Context, ops []*op) ([]zkpaths.Node, error) {
	reads := make([]zkpaths.Read, len(ops))
	for i, o := range ops {
		reads[i] = zkpaths.Read{Op: zkpaths.GetData, Path: o.w.Path}
	}
	nodes := make([]zkpaths.Node, len(reads))
	return nodes, s.readMain(ctx, reads, nodes)
}

// find judges one write by the node it was meant for. before is a zxid from
// before it was sent.
func (s *Session) find(w zkpaths.Write, n zkpaths.Node, before int64) finding {
	missing := n.Code == zkpaths.NoNode
	if n.Code != zkpaths.OK && !missing {
		return finding{}
	}
	switch w.Op {
	case zkpaths.Set:
		return findSet(w, n, before)
	case zkpaths.Delete:
		switch {
		case missing:
			return finding{verdict: applied}
		case n.Stat.Czxid > before:
			return finding{} // perhaps deleted and made again
		}
		return finding{verdict: notApplied}
	case zkpaths.Create, zkpaths.CreateEphemeral:
		return s.findCreate(w, n, before)
	}
	return finding{verdict: notSeen} // a check leaves no trace, and may be sent again
}

func findSet(w zkpaths.Write, n zkpaths.Node, before int64) finding {
	same := n.Code == zkpaths.OK && sameData(w.Data, n.Data)
	switch {
	case n.Code != zkpaths.OK:
		return finding{}
	case n.Stat.Mzxid <= before, n.Stat.Version == w.Version && n.Stat.Czxid <= before:
		return finding{verdict: notApplied} // nothing was set since
	case w.Version == zkpaths.AnyVersion && same, n.Stat.Version == w.Version+1 && same:
		return finding{applied, n.Stat.Mzxid, zkpaths.Outcome{Version: n.Stat.Version, Zxid: n.Stat.Mzxid}}
	case w.Version == zkpaths.AnyVersion:
		return finding{verdict: notSeen}
	case n.Stat.Version == w.Version+1:
		return finding{verdict: notApplied} // somebody else's data took this version
	}
	return finding{}
}

func (s *Session) findCreate(w zkpaths.Write, n zkpaths.Node, before int64) finding {
	owner := int64(0)
	if w.Op == zkpaths.CreateEphemeral {
		owner = s.ID()
	}
	switch {
	case n.Code == zkpaths.NoNode:
		return finding{verdict: notSeen}
	case n.Stat.Czxid <= before || n.Stat.EphemeralOwner != owner:
		return finding{verdict: notApplied}
	case sameData(w.Data, n.Data) || owner != 0:
		return finding{applied, n.Stat.Czxid, zkpaths.Outcome{Zxid: n.Stat.Czxid}}
	case n.Stat.Version == 0:
		return finding{verdict: notApplied} // made by somebody else
	}
	return finding{}
}

// findSequential looks for a child that was made since with our data. One that
// somebody else made with the same name and data cannot be told apart, and
// serves as well.
func (s *Session) findSequential(ctx context.Context, w zkpaths.Write, before int64) (finding, error) {
	dir := parent(w.Path)
	list, err := s.readOne(ctx, zkpaths.Read{Op: zkpaths.GetChildren, Path: dir})
	if err != nil || list.Code != zkpaths.OK {
		return finding{}, err
	}
	prefix := w.Path[strings.LastIndexByte(w.Path, '/')+1:]
	for _, name := range slices.Backward(list.Children) {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		path := strings.TrimSuffix(dir, "/") + "/" + name
		n, err := s.readOne(ctx, zkpaths.Read{Op: zkpaths.GetData, Path: path})
		if err != nil {
			return finding{}, err
		}
		if n.Code == zkpaths.OK && n.Stat.Czxid > before && sameData(w.Data, n.Data) {
			return finding{applied, n.Stat.Czxid, zkpaths.Outcome{Zxid: n.Stat.Czxid, Path: path}}, nil
		}
	}
	return finding{verdict: notSeen}, nil
}

// conclude gives the verdict on a whole multi from those on its writes.
func conclude(found []finding) (verdict, int64) {
	var zxid int64
	some, all := false, true
	for _, f := range found {
		switch f.verdict {
		case notApplied:
			return notApplied, 0
		case applied:
			if f.zxid != 0 && zxid != 0 && f.zxid != zxid {
				// They look right but come from several transactions, so from others.
				return notApplied, 0
			}
			zxid = max(zxid, f.zxid)
			some = true
		case undecided:
			all = false
		}
	}
	unseen := slices.ContainsFunc(found, func(f finding) bool { return f.verdict == notSeen })
	switch {
	case zxid != 0:
		return applied, zxid
	case unseen:
		return notSeen, 0
	case some && all:
		return applied, 0 // deletes only, and all are gone
	}
	return undecided, 0
}

// whenApplied is the outcome of a write whose multi was carried out, whatever
// happened to its node since.
func whenApplied(w zkpaths.Write, f finding, zxid int64) zkpaths.Outcome {
	if f.verdict == applied {
		return f.out
	}
	out := zkpaths.Outcome{Zxid: zxid}
	if w.Op == zkpaths.Set {
		if w.Version == zkpaths.AnyVersion {
			// Which version it made is not to be known any more.
			return zkpaths.Outcome{Code: zkpaths.BadVersion}
		}
		out.Version = w.Version + 1
	}
	return out
}

// whenUndecided answers the code that makes the caller read again.
func whenUndecided(w zkpaths.Write, f finding) zkpaths.Outcome {
	switch {
	case w.Op == zkpaths.Delete && f.verdict == applied:
		return zkpaths.Outcome{}
	case w.Op == zkpaths.Set, w.Op == zkpaths.Check, w.Op == zkpaths.Delete:
		return zkpaths.Outcome{Code: zkpaths.BadVersion}
	}
	return zkpaths.Outcome{Code: zkpaths.NodeExists}
}

// afterLoss reconsiders a refusal of a write that may have been applied by an
// earlier multi whose answer was lost.
func (f *flight) afterLoss(o *op, refusal zkpaths.Outcome) (zkpaths.Outcome, error) {
	switch {
	case o.w.Op == zkpaths.Delete && refusal.Code == zkpaths.NoNode:
		return zkpaths.Outcome{}, nil
	case o.w.Op == zkpaths.Set && refusal.Code == zkpaths.BadVersion,
		(o.w.Op == zkpaths.Create || o.w.Op == zkpaths.CreateEphemeral) && refusal.Code == zkpaths.NodeExists:
		nodes, err := f.s.inspect(f.ctx, []*op{o})
		if err != nil {
			return refusal, err
		}
		if g := f.s.find(o.w, nodes[0], o.before); g.verdict == applied {
			return g.out, nil
		}
	}
	return refusal, nil
}

// sameData compares contents; null and empty are different.
func sameData(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
