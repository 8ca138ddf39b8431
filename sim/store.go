package sim

import (
	"context"
	"fmt"
	"strings"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// maxFrame is jute.maxbuffer, the largest request a server takes.
const maxFrame = 0xFFFFF

// epochPath is the node whose version fences a controller's writes.
const epochPath = "/controller_epoch"

var _ controller.Store = (*Store)(nil)

// Store is a controller's view of a ZooKeeper through one session: answers
// are immediate, each fenced write is a transaction of its own, and notices go
// to a callback in the order they fired, before the call that caused them
// returns.
type Store struct {
	zk      *ZooKeeper
	session int64
	notice  func(zkpaths.Notice)
	faults  []*Fault

	// Before, if set, is called ahead of every single read and write: the
	// place for what happens between two steps of a handler.
	Before func(step Step)
	// After, if set, is called when a write has taken effect and its notices are
	// out, ahead of the answer. Of a transaction of several it names the first.
	After func(step Step)
}

// Step names one operation of a handler, as case files name it: "children
// /brokers/ids", "get /brokers/ids/3", "set /controller_epoch".
type Step struct{ Op, Path string }

// String gives op and path.
func (s Step) String() string { return s.Op + " " + s.Path }

// Effect is what a Fault does.
type Effect uint8

const (
	FailWith   Effect = iota // the operation is not done; Code is its answer
	LoseAnswer               // the operation is done; its answer is ErrUnknownOutcome, or a conflict
	Expire                   // the session is gone from here on
)

// Fault disturbs operations on purpose.
type Fault struct {
	Op     string // "get", "children", "exists", "create", "set", "delete", "check"; "" is any
	Path   string // a path, or a prefix that ends with *; "" is any
	Skip   int    // let this many pass first
	Times  int    // then disturb this many; 0 is one, negative is all
	Effect Effect
	Code   zkpaths.Code
}

// NewStore gives a Store with a session of its own.
func NewStore(zk *ZooKeeper, notice func(zkpaths.Notice)) *Store {
	s := &Store{zk: zk, notice: notice}
	s.Reconnect()
	return s
}

// Reconnect gives the store a new session, as a client does after expiry.
func (s *Store) Reconnect() { s.Attach(s.zk.NewSession()) }

// Attach makes the store use a session that is already open.
func (s *Store) Attach(session int64) {
	s.session = session
	s.zk.Listen(zkserver.Watcher(session), s.notice)
}

// Session is the id of the session in use.
func (s *Store) Session() int64 { return s.session }

// Inject adds a fault. Faults are tried in the order they were added.
func (s *Store) Inject(f Fault) {
	if f.Times == 0 {
		f.Times = 1
	}
	s.faults = append(s.faults, &f)
}

// ClearFaults takes back what has not happened yet.
func (s *Store) ClearFaults() { s.faults = nil }

// fault finds the fault that hits a step, and uses it up.
func (s *Store) fault(st Step) *Fault {
	for _, f := range s.faults {
		if f.Times == 0 || f.Op != "" && f.Op != st.Op || !matchPath(f.Path, st.Path) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		f.Times--
		return f
	}
	return nil
}

func matchPath(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(path, prefix)
	}
	return pattern == "" || pattern == path
}

// begin runs what comes before every operation; an error ends the call.
func (s *Store) begin(ctx context.Context, st Step) (*Fault, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.Before != nil {
		s.Before(st)
	}
	f := s.fault(st)
	if f != nil && f.Effect == Expire {
		s.zk.EndSession(s.session)
	}
	if !s.zk.Tree.Alive(s.session) {
		return nil, zkpaths.ErrSessionExpired
	}
	return f, nil
}

var readNames = map[zkpaths.ReadOp]string{zkpaths.GetData: "get", zkpaths.GetChildren: "children", zkpaths.Exists: "exists"}

// Read answers every read in order.
func (s *Store) Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error) {
	out := make([]zkpaths.Node, len(reads))
	for i, r := range reads {
		f, err := s.begin(ctx, Step{readNames[r.Op], r.Path})
		if err != nil {
			return out[:i], err
		}
		if f != nil && f.Effect == FailWith {
			out[i] = zkpaths.Node{Code: f.Code, Err: fmt.Errorf("%s %s: fault injected", readNames[r.Op], r.Path)}
			continue
		}
		out[i] = s.read(r)
	}
	return out, nil
}

func (s *Store) read(r zkpaths.Read) zkpaths.Node {
	var n zkpaths.Node
	var stat zkserver.Stat
	var code zkserver.Code
	kind := zkserver.DataWatch
	who := zkserver.Who{Session: s.session}
	switch r.Op {
	case zkpaths.GetData:
		n.Data, stat, code = s.zk.Tree.GetData(who, r.Path)
	case zkpaths.GetChildren:
		kind = zkserver.ChildWatch
		n.Children, stat, code = s.zk.Tree.GetChildren(who, r.Path)
	case zkpaths.Exists:
		stat, code = s.zk.Tree.Exists(who, r.Path)
	}
	if r.Watch && (code == zkserver.OK || code == zkserver.NoNode && r.Op == zkpaths.Exists) {
		s.zk.Tree.Watch(zkserver.Watcher(s.session), kind, r.Path)
	}
	n.Code, n.Err = codeOf(code)
	n.Stat = zkpaths.Stat{Czxid: stat.Czxid, Mzxid: stat.Mzxid, Version: stat.Version,
		EphemeralOwner: stat.EphemeralOwner, NumChildren: stat.NumChildren, Mtime: stat.Mtime}
	return n
}

func codeOf(c zkserver.Code) (zkpaths.Code, error) {
	switch c {
	case zkserver.OK:
		return zkpaths.OK, nil
	case zkserver.NoNode:
		return zkpaths.NoNode, nil
	case zkserver.NodeExists:
		return zkpaths.NodeExists, nil
	case zkserver.BadVersion:
		return zkpaths.BadVersion, nil
	case zkserver.NotEmpty:
		return zkpaths.NotEmpty, nil
	case zkserver.NoAuth:
		return zkpaths.NoAuth, nil
	}
	return zkpaths.Failed, c
}

var writeNames = map[zkpaths.WriteOp]string{zkpaths.Create: "create", zkpaths.CreateEphemeral: "create",
	zkpaths.CreateSequential: "create", zkpaths.Set: "set", zkpaths.Delete: "delete", zkpaths.Check: "check"}

func opOf(w zkpaths.Write) zkserver.Op {
	op := zkserver.Op{Path: w.Path, Data: w.Data, Version: w.Version}
	switch w.Op {
	case zkpaths.Create:
		op.ACL = zkserver.OpenACL()
	case zkpaths.CreateEphemeral:
		op.Mode, op.ACL = zkserver.Ephemeral, zkserver.OpenACL()
	case zkpaths.CreateSequential:
		op.Mode, op.ACL = zkserver.PersistentSequential, zkserver.OpenACL()
	case zkpaths.Set:
		op.Kind = zkserver.OpSet
	case zkpaths.Delete:
		op.Kind = zkserver.OpDelete
	case zkpaths.Check:
		op.Kind = zkserver.OpCheck
	}
	return op
}

func outcomeOf(r zkserver.OpResult) zkpaths.Outcome {
	out := zkpaths.Outcome{Version: r.Stat.Version, Zxid: r.Stat.Mzxid, Path: r.Path}
	out.Code, out.Err = codeOf(r.Code)
	return out
}

// Write applies each write on its own, fenced by the version of
// /controller_epoch. A lost answer is settled as a real store does it: the
// write is tried again, so it meets its own effect.
func (s *Store) Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	out := make([]zkpaths.Outcome, len(writes))
	for i, w := range writes {
		f, err := s.begin(ctx, Step{writeNames[w.Op], w.Path})
		if err != nil {
			return out[:i], err
		}
		if f != nil && f.Effect == FailWith {
			out[i] = zkpaths.Outcome{Code: f.Code, Err: fmt.Errorf("%s %s: fault injected", writeNames[w.Op], w.Path)}
			continue
		}
		if len(w.Path)+len(w.Data)+256 > maxFrame {
			out[i] = zkpaths.Outcome{Code: zkpaths.TooLarge}
			continue
		}
		if f != nil && f.Effect == LoseAnswer {
			if _, err := s.write(fence, w); err != nil {
				return out[:i], err
			}
		}
		if out[i], err = s.write(fence, w); err != nil {
			return out[:i], err
		}
	}
	return out, nil
}

func (s *Store) write(fence int32, w zkpaths.Write) (zkpaths.Outcome, error) {
	if fence == zkpaths.Unfenced {
		res := s.zk.Multi(s.session, []zkserver.Op{opOf(w)})
		s.took(res, w)
		return outcomeOf(res.Ops[0]), nil
	}
	res := s.zk.Multi(s.session, []zkserver.Op{{Kind: zkserver.OpCheck, Path: epochPath, Version: fence}, opOf(w)})
	s.took(res, w)
	switch res.Ops[0].Code {
	case zkserver.BadVersion:
		return zkpaths.Outcome{}, zkpaths.ErrControllerMoved
	case zkserver.NoNode:
		return zkpaths.Outcome{}, zkpaths.ErrFenceLost
	}
	return outcomeOf(res.Ops[1]), nil
}

// took calls After if a transaction took effect.
func (s *Store) took(res zkserver.Result, first zkpaths.Write) {
	if s.After != nil && res.Code() == zkserver.OK {
		s.After(Step{writeNames[first.Op], first.Path})
	}
}

// Transact applies all writes, or none. A fault on any of them is one on all.
func (s *Store) Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	lost := false
	ops := make([]zkserver.Op, len(writes))
	for i, w := range writes {
		f, err := s.begin(ctx, Step{writeNames[w.Op], w.Path})
		if err != nil {
			return nil, err
		}
		if f != nil && f.Effect == FailWith {
			out := make([]zkpaths.Outcome, len(writes))
			for j := range out {
				out[j] = zkpaths.Outcome{Code: zkpaths.Failed, Err: zkserver.RuntimeInconsistency}
			}
			out[i] = zkpaths.Outcome{Code: f.Code, Err: fmt.Errorf("%s %s: fault injected", writeNames[w.Op], w.Path)}
			return out, nil
		}
		lost = lost || f != nil && f.Effect == LoseAnswer
		ops[i] = opOf(w)
	}
	res := s.zk.Multi(s.session, ops)
	if len(writes) > 0 {
		s.took(res, writes[0])
	}
	if lost {
		return nil, zkpaths.ErrUnknownOutcome
	}
	out := make([]zkpaths.Outcome, len(writes))
	for i, r := range res.Ops {
		out[i] = outcomeOf(r)
	}
	return out, nil
}
