package zkserver

import (
	"time"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// expiry is the sessions by the tick at which they end (spec/zookeeper.md
// §4.9): deadline = ((now + timeout)/tick + 1) ticks. A packet only moves a
// session's deadline; the bucket it lies in is looked at when its tick comes,
// and those whose deadline has moved on are filed again.
type expiry struct {
	buckets map[int64]map[*session]struct{}
	seen    int64 // buckets up to this tick are gone
}

// ticks is the time since the server was made, in ms.
func (s *Server) ticks() int64 { return s.o.Clock.Now().Sub(s.began).Milliseconds() }

// touch gives a session its full timeout from now (milliseconds since the start).
func (s *Server) touch(sess *session, now int64) {
	tick := s.o.TickTime.Milliseconds()
	sess.deadline = (now+sess.timeout.Milliseconds())/tick + 1
	if sess.deadline < sess.filed { // it was taken up with a shorter timeout
		s.unfile(sess)
	}
	if sess.filed == 0 {
		s.file(sess)
	}
}

func (s *Server) file(sess *session) {
	sess.filed = sess.deadline
	b := s.expiry.buckets[sess.filed]
	if b == nil {
		b = map[*session]struct{}{}
		s.expiry.buckets[sess.filed] = b
	}
	b[sess] = struct{}{}
}

func (s *Server) unfile(sess *session) {
	if b := s.expiry.buckets[sess.filed]; b != nil {
		if delete(b, sess); len(b) == 0 {
			delete(s.expiry.buckets, sess.filed)
		}
	}
	sess.filed = 0
}

// expire ends the sessions whose tick has come.
func (s *Server) expire() {
	now := s.ticks() / s.o.TickTime.Milliseconds()
	for s.expiry.seen < now {
		s.expiry.seen++
		tick := s.expiry.seen
		for sess := range s.expiry.buckets[tick] {
			if s.unfile(sess); sess.deadline > now {
				s.file(sess)
				continue
			}
			s.log.WithField("session", hexID(sess.id)).WithField("timeout", sess.timeout).Info("a session has expired")
			s.endSession(sess, 0)
		}
	}
}

// sweep deletes the container and TTL nodes that are due, each in a
// transaction of its own (spec/zookeeper.md §4.5).
func (s *Server) sweep() {
	now := s.now()
	for _, path := range s.tree.Due(now) {
		op := Op{Kind: OpSweep, Path: path}
		res := s.tree.Write(Who{}, now, op)
		if s.durable() {
			s.append(&zkwire.Txn{Zxid: res.Zxid, Time: now, Record: LogRecord(op, res.Ops[0])})
		}
		s.deliver(res.Fired)
	}
}

// clamp brings a wanted session timeout into the server's bounds.
func (s *Server) clamp(wanted int32) time.Duration {
	return min(max(time.Duration(wanted)*time.Millisecond, s.o.MinSessionTimeout), s.o.MaxSessionTimeout)
}
