package zkserver

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// Options of a Server. The zero value is a server in memory with Apache's
// defaults, which serves nobody until Serve or Dial.
type Options struct {
	// TickTime is the unit of session expiry, 3 s if 0. Session timeouts are
	// clamped to [MinSessionTimeout, MaxSessionTimeout], 2 and 20 ticks if 0.
	TickTime, MinSessionTimeout, MaxSessionTimeout time.Duration

	MaxClientCnxns  int           // connections per client address; 0: no limit
	FourLetterWords []string      // those that are answered; {"*"}: all; nil: srvr
	ExtendedTypes   bool          // TTL nodes are allowed
	Reconfig        bool          // reconfig is answered as a server alone does, instead of as disabled
	SuperDigest     string        // user:base64(sha1(user:password)) of the super user; "": none
	MaxBuffer       int           // longest request in bytes, 1 048 575 if 0
	ContainerCheck  time.Duration // how often container and TTL nodes are swept, 60 s if 0

	DataDir, LogDir string        // where snapshots and transaction logs are; DataDir "": in memory; LogDir "": DataDir
	NoForceSync     bool          // do not fsync the log: a crash of the machine may lose the newest writes, one of the process may not
	SnapCount       int           // transactions from one snapshot to the next, besides one for each node; 100 000 if 0
	PurgeRetain     int           // snapshots that a purge leaves, 3 if 0
	PurgeInterval   time.Duration // how often old files are purged; 0: never

	Clock Clock              // nil: the real one
	Log   logrus.FieldLogger // nil: none

	ClientPort, SecureClientPort int // what conf tells, 0: none; Serve listens where it is told to
}

// withDefaults fills in what is not set.
func (o Options) withDefaults() (Options, error) {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&o.TickTime, 3*time.Second)
	set(&o.MinSessionTimeout, 2*o.TickTime)
	set(&o.MaxSessionTimeout, 20*o.TickTime)
	set(&o.ContainerCheck, time.Minute)
	if o.MaxBuffer == 0 {
		o.MaxBuffer = zkwire.MaxFrame
	}
	if o.SnapCount == 0 {
		o.SnapCount = 100_000
	}
	if o.PurgeRetain == 0 {
		o.PurgeRetain = 3
	}
	if o.FourLetterWords == nil {
		o.FourLetterWords = []string{"srvr"}
	}
	if o.Clock == nil {
		o.Clock = realClock{}
	}
	if o.Log == nil {
		l := logrus.New()
		l.SetOutput(io.Discard)
		o.Log = l
	}
	switch {
	case o.TickTime < time.Millisecond:
		return o, fmt.Errorf("tickTime is %v: it must be at least 1 ms", o.TickTime)
	case o.MinSessionTimeout < 0 || o.MaxSessionTimeout < o.MinSessionTimeout:
		return o, fmt.Errorf("session timeouts from %v to %v: the longest must not be below the shortest", o.MinSessionTimeout, o.MaxSessionTimeout)
	case o.MaxBuffer < 1024:
		return o, fmt.Errorf("jute.maxbuffer is %d bytes: less than 1024 leaves no room for a request", o.MaxBuffer)
	case o.MaxClientCnxns < 0 || o.SnapCount < 0 || o.PurgeRetain < 0 || o.ContainerCheck < 0:
		return o, errors.New("maxClientCnxns, snapCount, autopurge.snapRetainCount and the container interval must not be negative")
	case o.LogDir != "" && o.DataDir == "":
		return o, errors.New("dataLogDir is set but dataDir is not: give both or none")
	}
	return o, nil
}

// mayAsk tells whether a four-letter word is in the whitelist.
func (o *Options) mayAsk(word string) bool {
	return slices.Contains(o.FourLetterWords, "*") || slices.Contains(o.FourLetterWords, word)
}

// Clock is where a server has its time from: sessions expire and containers are
// swept by it. Handshakes end by the connection's own deadlines.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f once, d from now. stop keeps it from being called.
	AfterFunc(d time.Duration, f func()) (stop func())
}

type realClock struct{}

func (realClock) Now() time.Time { return time.Now() }
func (realClock) AfterFunc(d time.Duration, f func()) func() {
	t := time.AfterFunc(d, f)
	return func() { t.Stop() }
}

// ManualClock is a clock that stands still until it is moved.
type ManualClock struct {
	mu    sync.Mutex
	now   time.Time
	due   []*alarm
	moved sync.Mutex // one Advance at a time
}

type alarm struct {
	at time.Time
	f  func()
}

// NewManualClock gives a clock that shows the time it is made at.
func NewManualClock() *ManualClock { return &ManualClock{now: time.Now()} }

// Now is the time it shows.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc has f called by the Advance that reaches it.
func (c *ManualClock) AfterFunc(d time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &alarm{at: c.now.Add(d), f: f}
	c.due = append(c.due, a)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.due = slices.DeleteFunc(c.due, func(o *alarm) bool { return o == a })
	}
}

// Advance moves the clock, and on its way calls what is due, in order of time.
// When it returns, sessions that had to expire by then have expired.
func (c *ManualClock) Advance(d time.Duration) {
	c.moved.Lock()
	defer c.moved.Unlock()
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		var next *alarm
		for _, a := range c.due {
			if !a.at.After(end) && (next == nil || a.at.Before(next.at)) {
				next = a
			}
		}
		if next == nil {
			break
		}
		c.due = slices.DeleteFunc(c.due, func(o *alarm) bool { return o == next })
		if next.at.After(c.now) {
			c.now = next.at
		}
		c.mu.Unlock()
		next.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}
