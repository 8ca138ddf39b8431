package zkstore

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"golang.org/x/sync/errgroup"
)

// Read answers every read, in order, no older than our last write. The only
// errors are zkpaths.ErrSessionExpired and ctx's.
func (s *Session) Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error) {
	nodes := make([]zkpaths.Node, len(reads))
	if s.suitsBulk(reads) {
		if err := s.readBulk(ctx, reads, nodes); !errors.Is(err, errNoBulk) {
			if err != nil {
				return nil, err
			}
			return nodes, nil
		}
		clear(nodes)
	}
	if err := s.freshen(ctx); err != nil {
		return nil, err
	}
	if err := s.readMain(ctx, reads, nodes); err != nil {
		return nil, err
	}
	return nodes, nil
}

// suitsBulk tells whether reads go over the bulk connection: many do, and those
// whose watches live there.
func (s *Session) suitsBulk(reads []zkpaths.Read) bool {
	if slices.ContainsFunc(reads, func(r zkpaths.Read) bool { return checkPath(r.Path) != nil }) {
		return false
	}
	return len(reads) >= bulkFrom || slices.ContainsFunc(reads, func(r zkpaths.Read) bool { return s.arms.isAway(s.outer(r.Path)) })
}

// freshen lets the main connection's server catch up with what the bulk
// connection has shown: views never go back in time.
func (s *Session) freshen(ctx context.Context) error {
	blind := s.bulk.blind.Load()
	if s.bulk.seen.Load() >= blind && s.link.zxid.Load() >= s.bulk.shown.Load() {
		return nil
	}
	if err := s.Sync(ctx); err != nil {
		return err
	}
	raise(&s.bulk.seen, blind)
	return nil
}

// readMain reads over the main connection, InFlight at a time.
func (s *Session) readMain(ctx context.Context, reads []zkpaths.Read, nodes []zkpaths.Node) error {
	if len(reads) == 1 {
		var err error
		nodes[0], err = s.readOne(ctx, reads[0])
		return err
	}
	var g errgroup.Group
	g.SetLimit(s.opt.InFlight)
	for i := range reads {
		g.Go(func() (err error) {
			nodes[i], err = s.readOne(ctx, reads[i])
			return err
		})
	}
	return g.Wait()
}

// readOne repeats a read until it is answered.
func (s *Session) readOne(ctx context.Context, r zkpaths.Read) (zkpaths.Node, error) {
	for {
		n, err := call(ctx, s, func() (zkpaths.Node, error) { return s.ask(r) })
		if err == nil || stop(ctx, err) {
			return n, err
		}
	}
}

// ask sends one read. Its error is nil whenever ZooKeeper answered.
func (s *Session) ask(r zkpaths.Read) (zkpaths.Node, error) {
	if err := checkPath(r.Path); err != nil {
		return zkpaths.Node{Code: zkpaths.Failed, Err: err}, nil
	}
	path := s.outer(r.Path)
	var mark *arm
	if r.Watch {
		t := dataTable
		if r.Op == zkpaths.GetChildren {
			t = childTable
		}
		mark = s.arms.begin(armKey{t, path}, onMain)
	}
	n, st, err := s.request(r.Op, path, mark != nil)
	fate, code := judge(err)
	switch {
	case fate != answered:
		// It may have armed the watch: the mark stays for the resync to look at.
		return n, err
	case code == zkpaths.OK:
		s.tell(path, s.arms.commit(mark, lookAt(st)))
		n.Stat = stat(st)
	case code == zkpaths.NoNode && r.Op == zkpaths.Exists:
		s.tell(path, s.arms.commit(mark, look{}))
		n.Code = code
	default:
		s.arms.abort(mark)
		n = zkpaths.Node{Code: code}
		if code == zkpaths.Failed {
			n.Err = err
		}
	}
	return n, nil
}

func (s *Session) request(op zkpaths.ReadOp, path string, watch bool) (n zkpaths.Node, st *zk.Stat, err error) {
	if watch {
		s.link.watching(path)
		// A notice for an older watch may have taken the note away meanwhile.
		defer s.link.watching(path)
	}
	switch {
	case op == zkpaths.GetData && watch:
		n.Data, st, _, err = s.conn.GetW(path)
	case op == zkpaths.GetData:
		n.Data, st, err = s.conn.Get(path)
	case op == zkpaths.GetChildren && watch:
		n.Children, st, _, err = s.conn.ChildrenW(path)
	case op == zkpaths.GetChildren:
		n.Children, st, err = s.conn.Children(path)
	default:
		var ok bool
		if watch {
			ok, st, _, err = s.conn.ExistsW(path)
		} else {
			ok, st, err = s.conn.Exists(path)
		}
		if err == nil && !ok {
			err = zk.ErrNoNode
		}
	}
	slices.Sort(n.Children)
	return n, st, err
}

func stat(st *zk.Stat) zkpaths.Stat {
	return zkpaths.Stat{Czxid: st.Czxid, Mzxid: st.Mzxid, Version: st.Version, EphemeralOwner: st.EphemeralOwner,
		NumChildren: st.NumChildren, Mtime: st.Mtime}
}

// Sync waits until the server that serves the session has caught up with the
// ensemble's leader.
func (s *Session) Sync(ctx context.Context) error {
	_, err := retried(ctx, s, func() (string, error) { return s.conn.Sync(s.outer("/")) })
	return err
}
