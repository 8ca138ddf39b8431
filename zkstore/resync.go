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
func (s *Session) resync(turn int, watches []*arm) bool {
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
	for _, n := range watches {
		g.Go(func() error { return s.reexamine(ctx, n) })
	}
	if g.Wait() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn == turn
}

// reexamine reads one watched node with a watch and compares.
func (s *Session) reexamine(ctx context.Context, n *arm) error {
	op := zkpaths.Exists
	if n.key.table == childTable {
		op = zkpaths.GetChildren
	}
	st, err := direct(ctx, s, func() (*zk.Stat, error) {
		_, st, err := s.request(op, n.key.path, true)
		return st, err
	})
	fate, code := judge(err)
	if fate != answered {
		return err
	}
	var told []zkpaths.NoticeType
	switch {
	case code == zkpaths.OK:
		told = s.arms.settle(n, lookAt(st), true)
	case code == zkpaths.NoNode:
		told = s.arms.settle(n, look{}, op == zkpaths.Exists)
	default:
		// It cannot be looked at, so it is told as changed.
		told = s.arms.settle(n, look{exists: true}, false)
	}
	s.tell(n.key.path, told)
	return nil
}

// tell queues notices of our own.
func (s *Session) tell(path string, types []zkpaths.NoticeType) {
	for _, t := range types {
		s.queue.put(zkpaths.Notice{Type: t, Path: s.inner(path)})
	}
}
