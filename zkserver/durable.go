package zkserver

import (
	"fmt"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// maxBehind is how many transactions may wait for the disk before requests
// are no longer read, as in Apache's server.
const maxBehind = 1000

// journal is where transactions are made durable. Append is called in order of
// zxids, under the server's lock, and does not wait for the disk. Sync writes
// all that was appended before it and tells up to which zxid all is durable;
// one at a time, Append may run meanwhile.
type journal interface {
	Append(t *zkwire.Txn)
	Sync() (zxid int64, err error)
	Close() error
}

// keeper is what a server knows of its durability. Nothing that shows a state
// is sent before that state is durable, reads and notices included: what a
// client has seen, no crash takes back.
type keeper struct {
	log      journal
	secret   []byte // of session passwords; nil: Apache's rule
	appended int64  // newest zxid that was appended
	durable  int64  // newest zxid that is durable
	syncing  bool   // somebody is in Sync, or about to be
	failed   error  // Sync's error: the server answers no more
	waiting  []*conn
}

// durable tells whether the server keeps its tree in files.
func (s *Server) durable() bool { return s.keep.log != nil }

// pending is how many transactions are appended and not durable: each has a
// zxid, one above the one before.
func (k *keeper) pending() int64 { return k.appended - k.durable }

// behind tells whether the disk is too far behind to take more requests.
func (s *Server) behind() bool { return s.keep.pending() > maxBehind || s.keep.failed != nil }

func (s *Server) append(t *zkwire.Txn) {
	s.keep.log.Append(t)
	s.keep.appended = t.Zxid
	s.snap.since++
}

// commit makes durable what was appended, if nobody else is at it. The
// connection own, whose reader calls, does one Sync itself: in the common case
// its own answers are what everybody waits for, and a switch of goroutines
// would cost more than the write. What was appended meanwhile is for a goroutine.
func (s *Server) commit(own *conn) {
	k := &s.keep
	if k.syncing || k.appended <= k.durable || k.failed != nil {
		return
	}
	k.syncing = true
	if own != nil {
		s.sync(own)
	}
	if k.appended > k.durable && k.failed == nil {
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			s.mu.Lock()
			defer s.mu.Unlock()
			for k.appended > k.durable && k.failed == nil {
				s.sync(nil)
			}
			k.syncing = false
		}()
		return
	}
	k.syncing = false
}

// sync does one Sync, giving up the lock meanwhile, and sends what waited for
// it; own's output is left to the caller.
func (s *Server) sync(own *conn) {
	k := &s.keep
	s.mu.Unlock()
	zxid, err := k.log.Sync()
	s.mu.Lock()
	if err != nil {
		s.fail(err)
		return
	}
	k.durable = zxid
	waiting := k.waiting
	k.waiting = nil
	for _, c := range waiting {
		c.waiting = false
		if c != own {
			s.wake(c)
		}
		if n := len(c.marks); !c.dead && n > 0 && c.marks[n-1].zxid > zxid {
			c.waiting = true
			k.waiting = append(k.waiting, c)
		}
	}
	s.resumed.Broadcast()
}

// fail stops the server from answering: what cannot be made durable must not
// be acknowledged.
func (s *Server) fail(err error) {
	s.keep.failed = fmt.Errorf("make transactions durable: %w", err)
	s.log.WithError(err).Error("transactions cannot be made durable: the server stops. Free space or mend the disk under dataDir and dataLogDir, then start it again")
	for _, c := range s.conns {
		s.cut(c)
	}
	for l := range s.lists {
		l.Close()
	}
}
