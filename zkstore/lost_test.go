package zkstore_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

// TestLostAnswers loses the answer to a multi, executed or not, lets somebody
// else write in between or not, and demands the truth of every outcome.
func TestLostAnswers(t *testing.T) {
	eph := func(path, data string) zkpaths.Write {
		return zkpaths.Write{Op: zkpaths.CreateEphemeral, Path: path, Data: []byte(data)}
	}
	any := func(w zkpaths.Write) zkpaths.Write { w.Version = zkpaths.AnyVersion; return w }
	ok, bad := zkpaths.OK, zkpaths.BadVersion
	cases := []struct {
		name     string
		executed bool
		writes   []zkpaths.Write
		between  []zkpaths.Write // by somebody else, before the answer is looked up
		want     []zkpaths.Code
		fence    bool // somebody else becomes controller
	}{
		{"set, executed", true, []zkpaths.Write{set("/a", "new", 0)}, nil, []zkpaths.Code{ok}, false},
		{"set, not executed", false, []zkpaths.Write{set("/a", "new", 0)}, nil, []zkpaths.Code{ok}, false},
		{"set, not executed, another's came", false, []zkpaths.Write{set("/a", "new", 0)}, []zkpaths.Write{set("/a", "theirs", 0)}, []zkpaths.Code{bad}, false},
		{"set, executed, another's on top", true, []zkpaths.Write{set("/a", "new", 0)}, []zkpaths.Write{set("/a", "theirs", 1)}, []zkpaths.Code{bad}, false},
		{"two sets, executed, another's on top of one", true, []zkpaths.Write{set("/a", "new", 0), set("/b", "new", 0)}, []zkpaths.Write{set("/a", "theirs", 1)}, []zkpaths.Code{ok, ok}, false},
		{"two sets, not executed, another's on one", false, []zkpaths.Write{set("/a", "new", 0), set("/b", "new", 0)}, []zkpaths.Write{set("/a", "theirs", 0)}, []zkpaths.Code{bad, ok}, false},
		{"unconditional set, executed", true, []zkpaths.Write{any(set("/a", "new", 0))}, nil, []zkpaths.Code{ok}, false},
		{"unconditional set, not executed", false, []zkpaths.Write{any(set("/a", "new", 0))}, nil, []zkpaths.Code{ok}, false},
		{"create, executed", true, []zkpaths.Write{create("/c", "new")}, nil, []zkpaths.Code{ok}, false},
		{"create, not executed", false, []zkpaths.Write{create("/c", "new")}, nil, []zkpaths.Code{ok}, false},
		{"create, not executed, another's came", false, []zkpaths.Write{create("/c", "new")}, []zkpaths.Write{create("/c", "theirs")}, []zkpaths.Code{zkpaths.NodeExists}, false},
		{"ephemeral, executed", true, []zkpaths.Write{eph("/c", "new")}, nil, []zkpaths.Code{ok}, false},
		{"ephemeral, not executed, another's came", false, []zkpaths.Write{eph("/c", "same")}, []zkpaths.Write{eph("/c", "same")}, []zkpaths.Code{zkpaths.NodeExists}, false},
		{"delete, executed", true, []zkpaths.Write{remove("/a", 0)}, nil, []zkpaths.Code{ok}, false},
		{"delete, not executed", false, []zkpaths.Write{remove("/a", 0)}, nil, []zkpaths.Code{ok}, false},
		{"delete, not executed, changed by another", false, []zkpaths.Write{remove("/a", 0)}, []zkpaths.Write{set("/a", "theirs", 0)}, []zkpaths.Code{bad}, false},
		{"delete and create, executed", true, []zkpaths.Write{remove("/a", 0), create("/a", "new"), set("/b", "new", 0)}, nil, []zkpaths.Code{ok, ok, ok}, false},
		{"sequential, executed", true, []zkpaths.Write{{Op: zkpaths.CreateSequential, Path: "/q_", Data: []byte("n")}}, nil, []zkpaths.Code{ok}, false},
		{"sequential, not executed", false, []zkpaths.Write{{Op: zkpaths.CreateSequential, Path: "/q_", Data: []byte("n")}}, nil, []zkpaths.Code{ok}, false},
		{"one is refused, not executed", false, []zkpaths.Write{set("/a", "new", 9), set("/b", "new", 0)}, nil, []zkpaths.Code{bad, ok}, false},
		{"set, executed, then fenced", true, []zkpaths.Write{set("/a", "new", 0)}, nil, []zkpaths.Code{ok}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			z := shared.Get(t)
			p := newTamper(t, z.Addr())
			root := chroot(t)
			other := open(t, zkstore.Options{Servers: []string{z.Addr()}, Chroot: root}, nil)
			mustApply(t, other, zkpaths.Unfenced, create("/controller_epoch", "1"), create("/a", "old"), create("/b", "old"))
			s := open(t, zkstore.Options{Servers: []string{p.addr()}, Chroot: root}, nil)

			release := make(chan struct{})
			var lost atomic.Bool
			p.onRequest(func(r *relay, op int32, _ []byte) action {
				if op != zkwire.OpMulti || !lost.CompareAndSwap(false, true) {
					return pass
				}
				p.hold(release)
				if c.executed {
					return passMute
				}
				return cut
			})
			type result struct {
				outs []zkpaths.Outcome
				err  error
			}
			done := make(chan result, 1)
			go func() {
				outs, err := s.Write(t.Context(), 0, c.writes)
				done <- result{outs, err}
			}()
			awaitState(t, s, zkstore.Suspended)
			if c.executed {
				awaitTrace(t, other, c.writes[len(c.writes)-1])
			}
			if len(c.between) > 0 {
				mustApply(t, other, zkpaths.Unfenced, c.between...)
			}
			if c.fence {
				mustApply(t, other, zkpaths.Unfenced, set("/controller_epoch", "2", 0))
			}
			close(release)
			r := <-done
			if r.err != nil {
				t.Fatal(r.err)
			}
			diff(t, "codes", c.want, codes(r.outs))
			if got := s.Stats().LostAnswers; got != 1 {
				t.Fatalf("%d lost answers", got)
			}
			for i, w := range c.writes {
				check(t, other, w, r.outs[i])
			}
		})
	}
}

// check compares an outcome that says applied with the tree.
func check(t *testing.T, s *zkstore.Session, w zkpaths.Write, o zkpaths.Outcome) {
	t.Helper()
	if !o.OK() || w.Op == zkpaths.Delete {
		return
	}
	path := w.Path
	if w.Op == zkpaths.CreateSequential {
		path = o.Path
	}
	n := read(t, s, get(path))[0]
	if n.Code != zkpaths.OK || string(n.Data) != string(w.Data) && string(n.Data) != "theirs" {
		t.Fatalf("%s: %+v", path, n)
	}
	if w.Op == zkpaths.Set && string(n.Data) != "theirs" && (o.Version != n.Stat.Version || o.Zxid != n.Stat.Mzxid) {
		t.Fatalf("%s: outcome %+v, node %+v", path, o, n.Stat)
	}
}

// awaitState waits until the session is in a state.
func awaitState(t *testing.T, s *zkstore.Session, want zkstore.State) {
	t.Helper()
	await(t, fmt.Sprintf("state %s", want), func() bool { return s.State() == want })
}

// awaitTrace waits until a write has been executed by the server.
func awaitTrace(t *testing.T, s *zkstore.Session, w zkpaths.Write) {
	t.Helper()
	await(t, "the write", func() bool {
		switch w.Op {
		case zkpaths.CreateSequential:
			return read(t, s, get(w.Path+"0000000003"))[0].Code == zkpaths.OK
		case zkpaths.Delete:
			return read(t, s, get(w.Path))[0].Code == zkpaths.NoNode
		}
		n := read(t, s, get(w.Path))[0]
		return n.Code == zkpaths.OK && string(n.Data) == string(w.Data)
	})
}

// TestTransactLost: a transaction whose answer is lost is not guessed at.
func TestTransactLost(t *testing.T) {
	p := newTamper(t, shared.Get(t).Addr())
	s := open(t, zkstore.Options{Servers: []string{p.addr()}, Chroot: chroot(t)}, nil)
	p.onRequest(func(_ *relay, op int32, _ []byte) action {
		if op == zkwire.OpMulti {
			return passMute
		}
		return pass
	})
	if _, err := s.Transact(t.Context(), []zkpaths.Write{create("/a", "")}); !errors.Is(err, zkpaths.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	p.onRequest(nil)
	if n := read(t, s, get("/a"))[0]; n.Code != zkpaths.OK {
		t.Fatalf("%+v", n)
	}
}
