package zkstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

const (
	// maxRequest is what we send at most: a frame above 1 048 575 bytes makes the
	// server close the connection without a word, and with it everything in
	// flight (spec/zookeeper.md §1.3, 9).
	maxRequest = 1_000_000

	// batchBytes is what one multi holds, unless a single write is larger.
	batchBytes = 256 << 10

	controllerEpoch = "/controller_epoch"

	multiHeader = 9 // of each operation, and of the end
	frameHeader = 8 // xid and opcode
)

// op is one write on its way.
type op struct {
	i    int // index in the caller's list
	w    zkpaths.Write
	req  any // the library's request
	size int

	lost   bool  // it was in a multi whose answer was lost
	before int64 // a zxid from before that multi was sent
}

// newOp encodes a write for the library.
func (s *Session) newOp(i int, w zkpaths.Write) *op {
	path := s.outer(w.Path)
	o := &op{i: i, w: w, size: multiHeader + 4 + len(path) + 4}
	switch w.Op {
	case zkpaths.Set:
		o.req = &zk.SetDataRequest{Path: path, Data: w.Data, Version: w.Version}
		o.size += 4 + len(w.Data)
	case zkpaths.Delete:
		o.req = &zk.DeleteRequest{Path: path, Version: w.Version}
	case zkpaths.Check:
		o.req = &zk.CheckVersionRequest{Path: path, Version: w.Version}
	default:
		var flags int32
		if w.Op == zkpaths.CreateEphemeral {
			flags = zk.FlagEphemeral
		} else if w.Op == zkpaths.CreateSequential {
			flags = zk.FlagSequence
		}
		acl := s.aclFor(w.Path)
		o.req = &zk.CreateRequest{Path: path, Data: w.Data, Acl: acl, Flags: flags}
		o.size += 4 + len(w.Data) + aclBytes(acl)
	}
	return o
}

// fenceSize is what a multi costs besides its writes.
func (s *Session) fenceSize() int {
	return frameHeader + 2*multiHeader + 4 + len(s.opt.Chroot) + len(controllerEpoch) + 4
}

// Write applies each write on its own, as if one after the other in this order,
// while /controller_epoch has the version fence; zkpaths.Unfenced leaves that
// check out. Every write gets an Outcome. The errors are
// zkpaths.ErrControllerMoved, ErrFenceLost, ErrSessionExpired and ctx's; writes
// that were not settled by then are Failed with that error.
func (s *Session) Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error) {
	f := &flight{s: s, fence: fence, outs: make([]zkpaths.Outcome, len(writes)), settled: make([]bool, len(writes)),
		claims: claims{paths: map[string]int{}, under: map[string]int{}}}
	f.idle = sync.NewCond(&f.mu)
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	defer f.cancel(nil)
	f.launch(writes)
	f.wg.Wait()
	err := f.err()
	for i := range writes {
		if !f.settled[i] {
			f.outs[i] = zkpaths.Outcome{Code: zkpaths.Failed, Err: fmt.Errorf("not settled: %w", err)}
		}
	}
	return f.outs, err
}

// flight is one call of Write: batches under way and what became of the writes.
type flight struct {
	s      *Session
	fence  int32
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	idle    *sync.Cond // a batch has ended
	running int
	claims  claims
	outs    []zkpaths.Outcome
	settled []bool
}

func (f *flight) err() error {
	if f.ctx.Err() == nil {
		return nil
	}
	return context.Cause(f.ctx)
}

// launch cuts the writes into batches and starts each as soon as nothing it
// depends on is still under way: a batch in flight may be cut and sent again,
// behind those that were sent after it.
func (f *flight) launch(writes []zkpaths.Write) {
	var batch []*op
	room := batchBytes - f.s.fenceSize()
	size := 0
	send := func() {
		if len(batch) > 0 {
			f.start(batch)
			batch, size = nil, 0
		}
	}
	for i, w := range writes {
		if f.ctx.Err() != nil {
			return
		}
		o := f.s.newOp(i, w)
		if o.size+f.s.fenceSize() > maxRequest {
			f.settle(o, zkpaths.Outcome{Code: zkpaths.TooLarge})
			continue
		}
		if err := checkPath(w.Path); err != nil {
			f.settle(o, zkpaths.Outcome{Code: zkpaths.Failed, Err: err})
			continue
		}
		if len(batch) == f.s.opt.Batch || size+o.size > room {
			send()
		}
		if f.conflicts(w) {
			send()
			f.awaitClear(w)
		}
		batch, size = append(batch, o), size+o.size
	}
	send()
}

// start runs a batch on a goroutine of its own, InFlight of them at a time.
func (f *flight) start(batch []*op) {
	f.mu.Lock()
	for f.running >= f.s.opt.InFlight && f.ctx.Err() == nil {
		f.idle.Wait()
	}
	f.running++
	for _, o := range batch {
		f.claims.add(o.w, 1)
	}
	f.mu.Unlock()
	// The first multi of a batch goes out before the next batch starts.
	turn := make(chan struct{})
	f.wg.Add(1)
	go func() {
		defer f.wg.Done()
		f.run(batch, turn)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running--
		for _, o := range batch {
			f.claims.add(o.w, -1)
		}
		f.idle.Broadcast()
	}()
	<-turn
}

func (f *flight) conflicts(w zkpaths.Write) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.claims.conflict(w)
}

func (f *flight) awaitClear(w zkpaths.Write) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.claims.conflict(w) {
		f.idle.Wait()
	}
}

func (f *flight) settle(o *op, out zkpaths.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outs[o.i], f.settled[o.i] = out, true
}

// run sends one batch until each of its writes is settled: the failing one is
// found by its index and taken out, what was found good before it goes next,
// and pieces grow again while they succeed.
func (f *flight) run(todo []*op, turn chan struct{}) {
	limit := len(todo)
	first := sync.OnceFunc(func() { close(turn) })
	defer first()
	for len(todo) > 0 && f.ctx.Err() == nil {
		n := min(limit, len(todo))
		before := f.s.link.zxid.Load()
		answers, err := f.s.multi(f.ctx, f.s.fenced(f.fence, todo[:n]), first)
		fate, _ := judge(err)
		switch {
		case stop(f.ctx, err) || fate == expired:
			f.fail(err)
		case fate == unsent:
		case fate == unknown:
			f.s.stats.lost.Add(1)
			applied, err := f.lookUp(todo[:n], before)
			if err != nil {
				f.fail(err)
			} else if applied {
				todo = todo[n:]
			}
		case err == nil:
			f.applied(todo[:n], answers)
			todo = todo[n:]
			limit = min(2*limit, f.s.opt.Batch)
		default:
			todo, limit = f.refuse(todo, n, answers, err)
		}
	}
}

// fail ends the whole flight.
func (f *flight) fail(err error) {
	if err == nil {
		err = zkpaths.ErrSessionExpired
	} else if fate, _ := judge(err); fate == expired {
		err = zkpaths.ErrSessionExpired
	}
	f.cancel(err)
	f.mu.Lock()
	f.idle.Broadcast()
	f.mu.Unlock()
}

// fenced puts the check of the controller epoch in front.
func (s *Session) fenced(fence int32, ops []*op) []any {
	reqs := make([]any, 0, len(ops)+1)
	if fence != zkpaths.Unfenced {
		reqs = append(reqs, &zk.CheckVersionRequest{Path: s.outer(controllerEpoch), Version: fence})
	}
	for _, o := range ops {
		reqs = append(reqs, o.req)
	}
	return reqs
}

// applied settles the writes of a multi that was carried out.
func (f *flight) applied(ops []*op, answers []zk.MultiResponse) {
	if f.fence != zkpaths.Unfenced {
		answers = answers[min(1, len(answers)):]
	}
	zxid := multiZxid(answers)
	for j, o := range ops {
		f.settle(o, f.s.success(o.w, answers, j, zxid))
	}
}

// multiZxid is the transaction that all operations of a multi share, where one
// of them tells it; else 0.
func multiZxid(answers []zk.MultiResponse) int64 {
	for _, a := range answers {
		if a.Stat != nil {
			return a.Stat.Mzxid
		}
	}
	return 0
}

func (s *Session) success(w zkpaths.Write, answers []zk.MultiResponse, j int, zxid int64) zkpaths.Outcome {
	out := zkpaths.Outcome{Zxid: zxid}
	if j >= len(answers) {
		return out
	}
	if st := answers[j].Stat; st != nil {
		out.Version, out.Zxid = st.Version, st.Mzxid
	}
	if w.Op == zkpaths.CreateSequential {
		out.Path = s.inner(answers[j].String)
	}
	return out
}

// refuse takes the failing operation out of the first n and says how many to
// send next.
func (f *flight) refuse(todo []*op, n int, answers []zk.MultiResponse, err error) ([]*op, int) {
	k, opErr := failing(answers)
	if f.fence != zkpaths.Unfenced && k >= 0 {
		if k == 0 {
			f.fenceFailed(opErr)
			return todo, n
		}
		k--
	}
	if k < 0 || k >= n {
		// The multi was refused as a whole: halve it until one is left.
		if n > 1 {
			return todo, n / 2
		}
		k, opErr = 0, err
	}
	o := todo[k]
	_, code := judge(opErr)
	out := refused(code, opErr)
	if o.lost {
		var err error
		if out, err = f.afterLoss(o, out); err != nil {
			f.fail(err)
			return todo, n
		}
	}
	f.settle(o, out)
	rest := append(append(make([]*op, 0, len(todo)-1), todo[:k]...), todo[k+1:]...)
	if k > 0 {
		return rest, k
	}
	return rest, max(1, n/2)
}

// failing finds the operation that made a multi fail: those before it say ok,
// those behind it a code of their own.
func failing(answers []zk.MultiResponse) (int, error) {
	for i, a := range answers {
		if a.Error != nil {
			return i, a.Error
		}
	}
	return -1, nil
}

// fenceFailed ends the flight by what the check of the epoch said.
func (f *flight) fenceFailed(err error) {
	switch {
	case errors.Is(err, zk.ErrBadVersion):
		f.fail(zkpaths.ErrControllerMoved)
	case errors.Is(err, zk.ErrNoNode):
		f.fail(zkpaths.ErrFenceLost)
	default:
		f.fail(fmt.Errorf("check %s: %w", controllerEpoch, err))
	}
}

// multi sends one transaction. Multis leave in the order in which they were
// asked for: each holds the way out until its frame is on the socket. sent is
// called then, or when it will not be sent.
func (s *Session) multi(ctx context.Context, reqs []any, sent func()) ([]zk.MultiResponse, error) {
	if sent != nil {
		defer sent()
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	select {
	case s.multis <- struct{}{}:
	case <-s.over:
		s.leave()
		return nil, zkpaths.ErrSessionExpired
	case <-ctx.Done():
		s.leave()
		return nil, ctx.Err()
	}
	for len(s.link.sent) > 0 {
		<-s.link.sent
	}
	returned := make(chan struct{})
	go func() {
		select {
		case <-s.link.sent:
		case <-returned:
		case <-s.over:
		}
		<-s.multis
		if sent != nil {
			sent()
		}
	}()
	return direct(ctx, s, func() ([]zk.MultiResponse, error) {
		defer s.leave()
		defer close(returned)
		return s.conn.Multi(reqs...)
	})
}

// claims are the paths that batches in flight touch.
type claims struct {
	paths map[string]int // touched themselves
	under map[string]int // parents of what is created or deleted
}

func (c claims) add(w zkpaths.Write, d int) {
	bump(c.paths, claimPath(w), d)
	if changesTree(w) {
		bump(c.under, parent(w.Path), d)
	}
}

func bump(m map[string]int, k string, d int) {
	if m[k] += d; m[k] == 0 {
		delete(m, k)
	}
}

// conflict tells whether w may have to see what is in flight: the same path,
// its parent being made or deleted, or its children.
func (c claims) conflict(w zkpaths.Write) bool {
	if c.paths[claimPath(w)] > 0 {
		return true
	}
	return changesTree(w) && (c.paths[parent(w.Path)] > 0 || c.under[w.Path] > 0)
}

func changesTree(w zkpaths.Write) bool { return w.Op != zkpaths.Set && w.Op != zkpaths.Check }

// claimPath is the path a write claims for itself. Sequential nodes of one
// parent keep their order, whatever their names begin with.
func claimPath(w zkpaths.Write) string {
	if w.Op == zkpaths.CreateSequential {
		return parent(w.Path) + "/\x00sequence"
	}
	return w.Path
}

func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}
