package zkserver

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// open reads what a fresh connection begins with: a four-letter word, which is
// answered and ends it, or the request for a session. False: the connection
// has no session and ends.
func (c *conn) open() bool {
	for c.in.w < 4 {
		if err := c.in.fill(c.nc); err != nil {
			c.gone(err)
			return false
		}
	}
	if word := string(c.in.buf[:4]); isFourLetterWord(word) {
		c.fourLetter(word)
		return false
	}
	for {
		frame, err := c.in.peek()
		if err != nil {
			c.complain("what came is not ZooKeeper's protocol", err)
			return false
		}
		if frame != nil {
			c.in.skip(frame)
			return c.connect(frame)
		}
		if err := c.in.fill(c.nc); err != nil {
			c.gone(err)
			return false
		}
	}
}

// connect answers the request for a session (spec/zookeeper.md §4.2).
func (c *conn) connect(frame []byte) bool {
	var req zkwire.ConnectRequest
	d := zkwire.NewDecoder(frame)
	if req.Decode(d); d.Err() != nil {
		c.complain("the request for a session cannot be read", d.Err())
		return false
	}
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.admit() {
		return false
	}
	s.stats.received++
	c.info.received++
	if zxid := s.tree.Zxid(); req.LastZxid > zxid {
		c.complain("a client is ahead of this server", fmt.Errorf("it has seen zxid %#x, the last one here is %#x", req.LastZxid, zxid))
		return false
	}
	c.readOnly = req.HasReadOnly
	timeout := s.clamp(req.Timeout)
	if req.SessionID == 0 {
		c.attach(s.openSession(timeout))
	} else if sess := s.resume(c, &req); sess != nil {
		sess.timeout = timeout
		s.touch(sess, s.ticks())
		c.attach(sess)
	} else {
		c.closing = true
	}
	c.greet()
	s.settle(c)
	return !c.closing
}

func (c *conn) attach(sess *session) {
	sess.conn, c.sess, c.who.Session = c, sess, sess.id
	c.info.session = sess.id
}

// resume finds the session that a client wants back. Whoever is connected to
// it loses its connection first, whether the password is right or not.
func (s *Server) resume(c *conn, req *zkwire.ConnectRequest) *session {
	sess := s.sessions[req.SessionID]
	if sess == nil {
		return nil
	}
	if old := sess.conn; old != nil && old != c {
		s.cut(old)
	}
	if subtle.ConstantTimeCompare(req.Password, s.password(sess.id)) != 1 {
		s.log.WithField("client", c.host).WithField("session", hexID(sess.id)).Warn("a client asked for a session with a wrong password")
		return nil
	}
	return sess
}

// greet queues the answer to connect; without a session it is a refusal.
func (c *conn) greet() {
	resp := zkwire.ConnectResponse{Password: make([]byte, 16), HasReadOnly: c.readOnly}
	if c.sess != nil {
		resp.Timeout = int32(c.sess.timeout / time.Millisecond)
		resp.SessionID = c.sess.id
		resp.Password = c.s.password(c.sess.id)
	}
	m := c.send()
	c.out = resp.Append(c.out)
	c.finish(m)
}

// newSecret is what the passwords of a server in memory are made with.
func newSecret() []byte {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return b
}

// password gives a session's password. In memory it is a MAC of the id with a
// secret of this process. On a directory it is what Apache makes of the id:
// a session then outlives the change from Apache's server to this one and
// back. It is no secret to whoever knows the id; access lists are not
// weakened, as identities belong to connections and not to sessions.
func (s *Server) password(id int64) []byte {
	if s.keep.secret == nil {
		return javaPassword(id)
	}
	mac := hmac.New(sha256.New, s.keep.secret)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(id)))
	return mac.Sum(nil)[:16]
}

// javaPassword is 16 bytes of Java's linear congruential generator, seeded
// with the id and Apache's constant.
func javaPassword(id int64) []byte {
	const mult, mask = 0x5DEECE66D, 1<<48 - 1
	seed := (uint64(id) ^ 0xB3415C00 ^ mult) & mask
	p := make([]byte, 0, 16)
	for range 4 {
		seed = (seed*mult + 0xB) & mask
		p = binary.LittleEndian.AppendUint32(p, uint32(seed>>16))
	}
	return p
}

func hexID(id int64) string { return fmt.Sprintf("0x%x", uint64(id)) }
