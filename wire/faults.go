package wire

import (
	"net"
	"sync"
	"time"
)

// A client at fault tends to connect again at once and to do the same: each
// host's fault of one kind is told once in faultPause, with how often it came in
// between. Of more than maxFaults kinds the oldest knowledge is dropped.
const (
	faultPause = time.Minute
	maxFaults  = 256
)

// fault is one kind of fault of one host.
type fault struct {
	host         string
	reason       string
	key, version int16
}

// faults remembers what was told.
type faults struct {
	mu   sync.Mutex
	told map[fault]*toldFault
	full time.Time // when there were too many kinds last
}

type toldFault struct {
	at   time.Time
	more int // came since
}

// note counts a complaint and says whether to tell it, and how many like it
// came since the last time.
func (f *faults) note(remote net.Addr, c *complaint, now time.Time) (more int, tell bool) {
	host, _, err := net.SplitHostPort(remote.String())
	if err != nil {
		host = remote.String()
	}
	kind := fault{host, c.reason, c.key, c.version}
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.told[kind]
	switch {
	case t == nil && len(f.told) >= maxFaults && now.Sub(f.full) < faultPause:
		return 0, false
	case t == nil:
		if len(f.told) >= maxFaults {
			f.told, f.full = nil, now
		}
		if f.told == nil {
			f.told = map[fault]*toldFault{}
		}
		f.told[kind] = &toldFault{at: now}
		return 0, true
	case now.Sub(t.at) < faultPause:
		t.more++
		return 0, false
	}
	more = t.more
	t.at, t.more = now, 0
	return more, true
}
