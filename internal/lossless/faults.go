package lossless

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Op is something to do to a cluster.
type Op string

// What may happen to a cluster. Kill to Resume are a broker's; Cut parts it and a
// peer; Expire ends a session. Move and Prefer are done by Run itself.
const (
	Kill     Op = "kill"     // the process ends, nobody is told
	Crash    Op = "crash"    // and its session lasts until its timeout
	Restart  Op = "restart"  // with its logs
	Pause    Op = "pause"    // it does not follow
	Freeze   Op = "freeze"   // the whole process stands still
	Resume   Op = "resume"   // it goes on after Pause, Slow and Freeze
	Slow     Op = "slow"     // it follows at so many bytes a second
	Cut      Op = "cut"      // nothing passes between it and a peer
	Mend     Op = "mend"     // it does again
	Expire   Op = "expire"   // its ZooKeeper session ends
	Failover Op = "failover" // another controller, or another term of the same
	Move     Op = "move"     // a partition's replicas change places, or change
	Prefer   Op = "prefer"   // preferred leaders are elected
)

// Act is one deed.
type Act struct {
	Op     Op
	Broker int32
	Peer   int32 // with Cut
	Bytes  int64 // with Slow: a second
}

// String gives the deed in short form.
func (a Act) String() string {
	s := string(a.Op)
	if !slices.Contains([]Op{Failover, Move, Prefer}, a.Op) {
		s += fmt.Sprintf(" %d", a.Broker)
	}
	if a.Op == Cut {
		s += fmt.Sprintf("-%d", a.Peer)
	}
	if a.Op == Slow {
		s += fmt.Sprintf(" %d B/s", a.Bytes)
	}
	return s
}

// Cluster is what is judged. Topics are made with a client.
type Cluster interface {
	Seeds() []string // HOST:PORT
	Brokers() []int32
	Peers() []int32 // from whom brokers can be cut: each other and, maybe, controllers
	Ops() []Op      // those that Do knows
	Do(ctx context.Context, a Act) error
	// Heal undoes all that Do did; brokers may need a while from then on.
	Heal(ctx context.Context) error
	// Uncleanly tells whether any leader was elected from outside an ISR so far.
	Uncleanly(ctx context.Context) (bool, error)
}

// fate draws what happens next.
type fate struct {
	rng    *rand.Rand
	ids    []int32
	peers  []int32
	ops    []Op
	down   map[int32]bool // killed or crashed
	frozen map[int32]bool
}

func newFate(seed uint64, c Cluster) *fate {
	f := &fate{rng: rand.New(rand.NewPCG(seed, 0x6c6f73736c657373)), ids: slices.Clone(c.Brokers()), peers: slices.Clone(c.Peers()), down: map[int32]bool{}, frozen: map[int32]bool{}}
	f.ops = append(slices.Clone(c.Ops()), Move, Prefer)
	slices.Sort(f.ids)
	slices.Sort(f.peers)
	slices.Sort(f.ops)
	return f
}

// next draws a pause and a deed that makes sense.
func (f *fate) next() (time.Duration, Act) {
	pause := time.Duration(20+f.rng.IntN(380)) * time.Millisecond
	for {
		a := Act{Op: f.ops[f.rng.IntN(len(f.ops))], Broker: f.ids[f.rng.IntN(len(f.ids))]}
		gone := f.down[a.Broker]
		switch a.Op {
		case Kill, Crash:
			if gone || f.frozen[a.Broker] {
				continue
			}
			f.down[a.Broker] = true
		case Restart:
			// Of those that are down one comes back, so that more live than not.
			if len(f.down) == 0 {
				continue
			}
			a.Broker = f.oneOf(f.down)
			delete(f.down, a.Broker)
		case Freeze:
			if gone || len(f.frozen) > 0 {
				continue
			}
			f.frozen[a.Broker] = true
		case Resume:
			if len(f.frozen) > 0 {
				a.Broker = f.oneOf(f.frozen)
				delete(f.frozen, a.Broker)
			} else if gone {
				continue
			}
		case Cut:
			if a.Peer = f.peers[f.rng.IntN(len(f.peers))]; a.Peer == a.Broker || gone || f.frozen[a.Broker] {
				continue
			}
		case Slow:
			if a.Bytes = 1 << (9 + f.rng.IntN(8)); gone || f.frozen[a.Broker] {
				continue
			}
		case Pause, Mend, Expire:
			if gone || f.frozen[a.Broker] {
				continue
			}
		}
		return pause, a
	}
}

// undo takes back what next noted of a deed that failed.
func (f *fate) undo(a Act) {
	switch a.Op {
	case Kill, Crash:
		delete(f.down, a.Broker)
	case Restart:
		f.down[a.Broker] = true
	case Freeze:
		delete(f.frozen, a.Broker)
	}
}

func (f *fate) oneOf(set map[int32]bool) int32 {
	var ids []int32
	for id := range set {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids[f.rng.IntN(len(ids))]
}

// summary counts deeds by kind: "3 kill, 2 move".
func summary(acts []Act) string {
	count := map[Op]int{}
	for _, a := range acts {
		count[a.Op]++
	}
	var parts []string
	for op, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, op))
	}
	slices.SortFunc(parts, func(a, b string) int { // by name
		_, a, _ = strings.Cut(a, " ")
		_, b, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return strings.Join(parts, ", ")
}
