package sim

import (
	"fmt"
	"time"

	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// ZooKeeper is a Tree with virtual time whose watch notices reach callbacks.
type ZooKeeper struct {
	Tree *zkserver.Tree
	// Now is the virtual time since the start of the run; the World moves it.
	Now time.Duration
	// OnWrite, if set, sees every write attempt of every session.
	OnWrite func(session int64, op zkserver.Op, res zkserver.OpResult)

	listeners map[zkserver.Watcher]func(zkpaths.Notice)
	next      int64
}

// epochMillis is the wall-clock time at which virtual time begins.
const epochMillis = 1_690_000_000_000

// NewZooKeeper gives an empty server.
func NewZooKeeper() *ZooKeeper {
	return &ZooKeeper{Tree: zkserver.NewTree(), listeners: map[zkserver.Watcher]func(zkpaths.Notice){}, next: 0x7a0000000000000}
}

// Millis is the virtual wall-clock time.
func (z *ZooKeeper) Millis() int64 { return epochMillis + z.Now.Milliseconds() }

// Time is the virtual wall-clock time.
func (z *ZooKeeper) Time() time.Time { return time.UnixMilli(z.Millis()).UTC() }

// NewSession opens a session with the next free id.
func (z *ZooKeeper) NewSession() int64 {
	z.next++
	z.Tree.OpenSession(z.next)
	return z.next
}

// OpenSession opens a session with an id of the caller's choice.
func (z *ZooKeeper) OpenSession(id int64) {
	if !z.Tree.Alive(id) {
		z.Tree.OpenSession(id)
	}
}

// Listen routes the notices of a watcher. Nil stops them.
func (z *ZooKeeper) Listen(w zkserver.Watcher, f func(zkpaths.Notice)) {
	if f == nil {
		delete(z.listeners, w)
		z.Tree.DropWatcher(w)
		return
	}
	z.listeners[w] = f
}

// EndSession expires or closes a session: its ephemerals go, and its own
// watches are silent from then on.
func (z *ZooKeeper) EndSession(id int64) {
	z.Listen(zkserver.Watcher(id), nil)
	z.deliver(z.Tree.CloseSession(id).Fired)
}

// Write tries one op of a session.
func (z *ZooKeeper) Write(session int64, op zkserver.Op) zkserver.OpResult {
	return z.Multi(session, []zkserver.Op{op}).Ops[0]
}

// Multi tries ops of a session as one transaction.
func (z *ZooKeeper) Multi(session int64, ops []zkserver.Op) zkserver.Result {
	res := z.Tree.Multi(zkserver.Who{Session: session}, z.Millis(), ops)
	if z.OnWrite != nil {
		for i, op := range ops {
			z.OnWrite(session, op, res.Ops[i])
		}
	}
	z.deliver(res.Fired)
	return res
}

func (z *ZooKeeper) deliver(fired []zkserver.Fired) {
	for _, f := range fired {
		if l := z.listeners[f.Watcher]; l != nil {
			l(zkpaths.Notice{Type: zkpaths.NoticeType(f.Type), Path: f.Path})
		}
	}
}

// Seed creates a node and its missing parents with no session's help, as part
// of what was there before the run.
func (z *ZooKeeper) Seed(n zkserver.Saved) error {
	for i := 1; i < len(n.Path); i++ {
		if n.Path[i] != '/' {
			continue
		}
		if _, code := z.Tree.Exists(zkserver.Who{}, n.Path[:i]); code == zkserver.NoNode {
			if err := z.Tree.Restore(zkserver.Saved{Path: n.Path[:i]}); err != nil {
				return fmt.Errorf("seed %s: %w", n.Path, err)
			}
		}
	}
	return z.Tree.Restore(n)
}

// RemoveAll deletes a node and everything below it, deepest first.
func (z *ZooKeeper) RemoveAll(session int64, path string) zkserver.Code {
	names, _, code := z.Tree.GetChildren(zkserver.Who{}, path)
	if code != zkserver.OK {
		return code
	}
	for _, name := range names {
		if code := z.RemoveAll(session, path+"/"+name); code != zkserver.OK {
			return code
		}
	}
	return z.Write(session, zkserver.Op{Kind: zkserver.OpDelete, Path: path, Version: zkserver.AnyVersion}).Code
}
