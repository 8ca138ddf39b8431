package zkserver

import (
	"fmt"
	"math"
	"time"

	"github.com/zkcontroller/zkcontroller/zkserver/zkfiles"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

// Owners by which Apache's files tell container and TTL nodes from others: the
// lowest number there is, and 0xFF in the highest byte with the TTL below
// (spec/zookeeper.md §7).
const (
	containerOwner = math.MinInt64
	ttlOwnerMask   = -1 << 56
)

// snapshotPiece is how many nodes a snapshot takes in one hold of the lock.
const snapshotPiece = 256

// recover opens the directory and brings back what was in it. Sessions that
// were alive go on, with their timeout from the start of serving.
func (s *Server) recover() error {
	store, err := zkfiles.Open(zkfiles.Options{DataDir: s.o.DataDir, LogDir: s.o.LogDir, ForceSync: !s.o.NoForceSync, Log: s.log})
	if err != nil {
		return err
	}
	if err := s.recoverFrom(store); err != nil {
		store.Close() // the first error counts
		return err
	}
	return nil
}

func (s *Server) recoverFrom(store *zkfiles.Store) error {
	r := &recovery{s: s}
	r.Reset()
	zxid, err := store.Recover(r)
	if err != nil {
		return err
	}
	s.tree = r.tree
	s.tree.AdvanceZxid(zxid)
	s.store, s.keep.log = store, store
	s.keep.appended, s.keep.durable = zxid, zxid
	s.snap.since = r.txns
	for id, timeout := range r.timeouts {
		s.sessions[id] = &session{id: id, timeout: time.Duration(timeout) * time.Millisecond}
	}
	if gone := s.tree.RemoveOrphans(); len(gone) > 0 {
		s.log.WithField("paths", gone).Warn("ephemeral nodes whose session had ended were removed")
	}
	if store.NeedsSnapshot() {
		s.firstSnapshot()
	}
	return nil
}

// firstSnapshot writes the snapshot without which Apache would refuse the
// logs. No client gets a session, and so nothing gets into a log, before it is
// there; but the server starts meanwhile, since a disk may take its time.
func (s *Server) firstSnapshot() {
	s.snap.first, s.snap.running = true, true
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		err := s.snapshot()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.snap.first, s.snap.running = false, false
		if err != nil {
			s.fail(err)
		}
		s.resumed.Broadcast()
	}()
}

// recovery makes a tree of what the files hold.
type recovery struct {
	s        *Server
	tree     *Tree
	timeouts map[int64]int32 // of live sessions, ms
	txns     int
}

// Reset begins anew.
func (r *recovery) Reset() {
	r.tree = NewTree()
	r.tree.ExtendedTypes = r.s.o.ExtendedTypes
	r.timeouts = map[int64]int32{}
	r.txns = 0
}

// Session is a live session of the snapshot.
func (r *recovery) Session(id int64, timeoutMS int32) {
	r.timeouts[id] = timeoutMS
	r.tree.AddSession(id)
}

// Node is a node of the snapshot.
func (r *recovery) Node(n zkfiles.Node) error {
	saved := Saved{Path: n.Path, Data: n.Data, ACL: n.ACL, Created: n.Stat.Cversion, Stat: n.Stat}
	switch owner := n.Stat.EphemeralOwner; {
	case owner == 0:
	case owner == containerOwner:
		saved.Mode, saved.Stat.EphemeralOwner = Container, 0
	case owner&ttlOwnerMask == ttlOwnerMask:
		saved.Mode, saved.TTL, saved.Stat.EphemeralOwner = PersistentTTL, owner&maxTTL, 0
	default:
		saved.Mode = Ephemeral // its session may have been opened or closed while the snapshot was written: the log tells
	}
	return r.tree.Restore(saved)
}

// Txn is a transaction of the log.
func (r *recovery) Txn(t *zkwire.Txn) error {
	r.txns++
	switch rec := t.Record.(type) {
	case *zkwire.TxnCreateSession:
		r.timeouts[t.Session] = rec.Timeout
	case *zkwire.TxnCloseSession:
		delete(r.timeouts, t.Session)
	}
	return r.tree.Replay(t)
}

// snap is the state of snapshots.
type snap struct {
	since   int // transactions since the newest one
	running bool
	first   bool // the one under way is what requests wait for
}

// maybeSnapshot begins a snapshot if there were enough transactions since the
// last one: more for a larger tree, so that under a storm of writes the disk
// does not spend more on snapshots than on the log. Under the lock.
func (s *Server) maybeSnapshot() {
	if s.store == nil || s.snap.since < s.o.SnapCount+s.tree.Len() || s.snap.running || s.closed || s.keep.failed != nil {
		return
	}
	s.snap.running = true
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		if err := s.snapshot(); err != nil {
			s.log.WithError(err).Error("a snapshot could not be written; the log goes on, and the next one is tried later")
		}
		s.mu.Lock()
		s.snap.running = false
		s.mu.Unlock()
	}()
}

// snapshot writes the tree in pieces, between which requests go on: the log
// makes up for what changes meanwhile.
func (s *Server) snapshot() error {
	s.mu.Lock()
	w, err := s.store.BeginSnapshot(s.tree.Zxid())
	if err != nil {
		s.mu.Unlock()
		return err
	}
	s.snap.since = 0
	for _, sess := range s.sessions {
		w.Session(sess.id, int32(sess.timeout/time.Millisecond))
	}
	cursor := s.tree.Cursor()
	for {
		nodes := cursor.Next(snapshotPiece)
		ending := s.closed
		s.mu.Unlock()
		if len(nodes) == 0 {
			return w.Commit()
		}
		if ending {
			w.Abort()
			return nil
		}
		for i := range nodes {
			if err := w.Node(fileNode(&nodes[i])); err != nil {
				w.Abort()
				return fmt.Errorf("write %s into a snapshot: %w", nodes[i].Path, err)
			}
		}
		s.mu.Lock()
	}
}

// fileNode is a node as the files have it.
func fileNode(n *Saved) zkfiles.Node {
	f := zkfiles.Node{Path: n.Path, Data: n.Data, ACL: n.ACL, Stat: n.Stat}
	f.Stat.Cversion = n.Created
	switch n.Mode {
	case Container:
		f.Stat.EphemeralOwner = containerOwner
	case PersistentTTL:
		f.Stat.EphemeralOwner = ttlOwnerMask | n.TTL
	}
	return f
}

// purge removes old snapshots and logs, outside of the lock.
func (s *Server) purge() {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		if err := s.store.Purge(s.o.PurgeRetain); err != nil {
			s.log.WithError(err).Warn("old snapshots and logs could not be removed; it is tried again at the next purge")
		}
	}()
}

// closeFiles makes durable what was appended and gives the directory back.
func (s *Server) closeFiles() error {
	if s.keep.log == nil {
		return nil
	}
	if err := s.keep.log.Close(); err != nil {
		return fmt.Errorf("close the transaction log: %w", err)
	}
	return nil
}
