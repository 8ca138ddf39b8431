package zkstore

import (
	"context"

	"github.com/go-zookeeper/zk"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"golang.org/x/sync/errgroup"
)

// resync looks at every watched path again after a reconnect, before the gate
// opens: the library re-arms watches too late and with a zxid that may be too
// new, so that notices can be lost (spec/zookeeper.md §1.3, 2). What changed
// since it was armed gets a notice of our own. False: the connection went down
// again, and another resync follows.
func (s *Session) resync(turn int) bool {
	ctx := context.Background()
	// A notice does not count into the zxid that the handshake compares, so the
	// new server may be behind what was told already.
	if _, err := direct(ctx, s, func() (string, error) { return s.conn.Sync(s.outer("/")) }); err != nil {
		if fate, _ := judge(err); fate != answered {
			return false
		}
	}
	var g errgroup.Group
	g.SetLimit(s.opt.InFlight)
	for _, old := range s.arms.all(onMain) {
		g.Go(func() error { return s.reexamine(ctx, old) })
	}
	if g.Wait() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn == turn
}

// reexamine reads one watched node with a watch and compares.
func (s *Session) reexamine(ctx context.Context, old arm) error {
	op := zkpaths.Exists
	if old.key.table == childTable {
		op = zkpaths.GetChildren
	}
	// A fresh mark, since the read arms anew whatever the server still has.
	s.arms.forget(old.key)
	mark := s.arms.begin(old.key, onMain)
	st, err := direct(ctx, s, func() (*zk.Stat, error) {
		_, st, err := s.request(op, old.key.path, true)
		return st, err
	})
	fate, code := judge(err)
	if fate != answered {
		return err
	}
	now := arm{}
	switch {
	case code == zkpaths.OK:
		now = seen(st)
		s.arms.commit(mark, now)
	case code == zkpaths.NoNode && op == zkpaths.Exists:
		s.arms.commit(mark, now)
	default:
		s.arms.abort(mark)
		if code != zkpaths.NoNode {
			// It cannot be looked at, so say that it may have changed.
			now = arm{exists: true, czxid: old.czxid}
		}
	}
	for _, t := range changes(old, now) {
		s.queue.put(zkpaths.Notice{Type: t, Path: s.inner(old.key.path)})
	}
	return nil
}

// changes gives the notices that a watch would have brought between two looks.
// A node deleted and made again gets both, in order.
func changes(old, now arm) []zkpaths.NoticeType {
	child := old.key.table == childTable
	switch {
	case !old.armed:
		// Its answer was lost with the connection: the reader asks again.
		return nil
	case !old.exists && !now.exists:
		return nil
	case !old.exists:
		return []zkpaths.NoticeType{zkpaths.NodeCreated}
	case !now.exists:
		return []zkpaths.NoticeType{zkpaths.NodeDeleted}
	case old.czxid != now.czxid && !child:
		return []zkpaths.NoticeType{zkpaths.NodeDeleted, zkpaths.NodeCreated}
	case child && (old.pzxid != now.pzxid || old.czxid != now.czxid):
		return []zkpaths.NoticeType{zkpaths.NodeChildrenChanged}
	case !child && old.mzxid != now.mzxid:
		return []zkpaths.NoticeType{zkpaths.NodeDataChanged}
	}
	return nil
}
