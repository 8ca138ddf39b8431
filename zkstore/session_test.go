package zkstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sirupsen/logrus"
	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
	"github.com/zkcontroller/zkcontroller/zkwire"
	"go.uber.org/goleak"
)

// inbox collects notices and lets a test wait for them.
type inbox struct {
	mu   sync.Mutex
	all  []zkpaths.Notice
	more chan struct{}
}

func newInbox() *inbox { return &inbox{more: make(chan struct{})} }

func (b *inbox) notify(n zkpaths.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, n)
	close(b.more)
	b.more = make(chan struct{})
}

// await waits until the notice has come, and gives all up to then.
func (b *inbox) await(t *testing.T, want zkpaths.Notice) []zkpaths.Notice {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		b.mu.Lock()
		all, more := append([]zkpaths.Notice(nil), b.all...), b.more
		b.mu.Unlock()
		for _, n := range all {
			if n == want {
				return all
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("notice %v did not come; came: %v", want, all)
		}
	}
}

func (b *inbox) count(n zkpaths.Notice) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := 0
	for _, m := range b.all {
		if m == n {
			c++
		}
	}
	return c
}

// patience bounds every wait of a test; nothing is decided by it.
const patience = 2 * time.Minute

// testLog sends log lines to the test.
func testLog(t *testing.T) logrus.FieldLogger {
	l := logrus.New()
	l.SetOutput(writer{t})
	return l
}

type writer struct{ t *testing.T }

func (w writer) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// chroot gives each test its own tree.
func chroot(t *testing.T) string {
	return fmt.Sprintf("/%s-%d", strings.NewReplacer("/", "_", " ", "_", ",", "").Replace(t.Name()), time.Now().UnixNano())
}

// open dials with the test's defaults and closes with the test.
func open(t *testing.T, opt zkstore.Options, notify func(zkpaths.Notice)) *zkstore.Session {
	t.Helper()
	if opt.SessionTimeout == 0 {
		opt.SessionTimeout = 10 * time.Second
	}
	if opt.ConnectTimeout == 0 {
		opt.ConnectTimeout = patience
	}
	if opt.Log == nil {
		opt.Log = testLog(t)
	}
	if notify == nil {
		notify = func(zkpaths.Notice) {}
	}
	s, err := zkstore.Dial(t.Context(), opt, notify)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// fresh opens a session on the shared server in a tree of its own that has a
// controller epoch at version 0.
func fresh(t *testing.T, opt zkstore.Options) *zkstore.Session {
	t.Helper()
	opt.Servers = []string{shared.Get(t).Addr()}
	opt.Chroot = chroot(t)
	s := open(t, opt, nil)
	mustApply(t, s, zkpaths.Unfenced, create("/controller_epoch", "1"))
	return s
}

func create(path, data string) zkpaths.Write {
	return zkpaths.Write{Op: zkpaths.Create, Path: path, Data: []byte(data)}
}

func set(path, data string, version int32) zkpaths.Write {
	return zkpaths.Write{Op: zkpaths.Set, Path: path, Data: []byte(data), Version: version}
}

func remove(path string, version int32) zkpaths.Write {
	return zkpaths.Write{Op: zkpaths.Delete, Path: path, Version: version}
}

// mustApply writes and demands that all of it was applied.
func mustApply(t testing.TB, s *zkstore.Session, fence int32, ws ...zkpaths.Write) []zkpaths.Outcome {
	t.Helper()
	outs, err := s.Write(t.Context(), fence, ws)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range outs {
		if !o.OK() {
			t.Fatalf("write %d: %v", i, o.Error(ws[i].Path))
		}
	}
	return outs
}

func read(t testing.TB, s *zkstore.Session, rs ...zkpaths.Read) []zkpaths.Node {
	t.Helper()
	nodes, err := s.Read(t.Context(), rs)
	if err != nil {
		t.Fatal(err)
	}
	return nodes
}

func get(path string) zkpaths.Read { return zkpaths.Read{Op: zkpaths.GetData, Path: path} }

func watched(op zkpaths.ReadOp, path string) zkpaths.Read {
	return zkpaths.Read{Op: op, Path: path, Watch: true}
}

func codes(outs []zkpaths.Outcome) []zkpaths.Code {
	out := make([]zkpaths.Code, len(outs))
	for i, o := range outs {
		out[i] = o.Code
	}
	return out
}

func diff(t interface {
	Helper()
	Fatalf(string, ...any)
}, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if d := cmp.Diff(want, got, append(opts, cmpopts.EquateErrors())...); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func TestReadWriteWatch(t *testing.T) {
	box := newInbox()
	z := shared.Get(t)
	s := open(t, zkstore.Options{Servers: []string{z.Addr()}, Chroot: chroot(t) + "/deep/er"}, box.notify)
	if s.State() != zkstore.Connected || s.ID() == 0 || s.Timeout() != 10*time.Second {
		t.Fatalf("state %s, id %d, timeout %s", s.State(), s.ID(), s.Timeout())
	}
	n := read(t, s, watched(zkpaths.Exists, "/a"), watched(zkpaths.GetChildren, "/"), watched(zkpaths.GetData, "/a"))
	diff(t, "codes", []zkpaths.Code{zkpaths.NoNode, zkpaths.OK, zkpaths.NoNode}, []zkpaths.Code{n[0].Code, n[1].Code, n[2].Code})

	outs := mustApply(t, s, zkpaths.Unfenced, zkpaths.Write{Op: zkpaths.Create, Path: "/a"}, create("/a/b", ""), set("/a", "x", 0))
	if outs[2].Version != 1 || outs[2].Zxid == 0 || outs[0].Zxid != outs[2].Zxid {
		t.Fatalf("outcomes %+v", outs)
	}
	box.await(t, zkpaths.Notice{Type: zkpaths.NodeCreated, Path: "/a"})
	box.await(t, zkpaths.Notice{Type: zkpaths.NodeChildrenChanged, Path: "/"})

	n = read(t, s, get("/a"), get("/a/b"), zkpaths.Read{Op: zkpaths.GetChildren, Path: "/a"})
	diff(t, "nodes", [][]byte{[]byte("x"), {}, nil}, [][]byte{n[0].Data, n[1].Data, n[2].Data})
	diff(t, "children", []string{"b"}, n[2].Children)
	if n[0].Stat.Version != 1 || n[0].Stat.NumChildren != 1 || n[0].Stat.Mzxid != outs[2].Zxid {
		t.Fatalf("stat %+v", n[0].Stat)
	}
	seq := mustApply(t, s, zkpaths.Unfenced, zkpaths.Write{Op: zkpaths.CreateSequential, Path: "/a/n_"})
	diff(t, "sequential", "/a/n_0000000001", seq[0].Path)
}

func TestClose(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	z := shared.Get(t)
	s := open(t, zkstore.Options{Servers: []string{z.Addr()}}, nil)
	mustApply(t, s, zkpaths.Unfenced, zkpaths.Write{Op: zkpaths.CreateEphemeral, Path: "/mine-" + fmt.Sprint(s.ID())})
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context(), []zkpaths.Read{get("/")}); err != zkpaths.ErrSessionExpired {
		t.Fatalf("read after Close: %v", err)
	}
	if err := goleak.Find(ignore); err != nil {
		t.Fatal(err)
	}
	dump, err := real.FourLetterWord(z.Addr(), "dump")
	if err != nil || strings.Contains(dump, "mine-") {
		t.Fatalf("the ephemeral node outlived Close: %v %s", err, dump)
	}
}

// A write that is under way when Close is called gets its answer.
func TestCloseAwaitsAnswers(t *testing.T) {
	p := newTamper(t, shared.Get(t).Addr())
	s := open(t, zkstore.Options{Servers: []string{p.addr()}, Chroot: chroot(t)}, nil)
	executed, release := make(chan struct{}), make(chan struct{})
	p.onReply(func(_ *relay, op int32, h zkwire.ReplyHeader, body []byte) (zkwire.ReplyHeader, []byte) {
		if op == zkwire.OpMulti {
			close(executed)
			<-release
		}
		return h, body
	})
	type result struct {
		outs []zkpaths.Outcome
		err  error
	}
	done, closed := make(chan result, 1), make(chan error, 1)
	go func() {
		outs, err := s.Write(t.Context(), zkpaths.Unfenced, []zkpaths.Write{create("/a", "1")})
		done <- result{outs, err}
	}()
	<-executed
	go func() { closed <- s.Close(context.Background()) }()
	awaitState(t, s, zkstore.Closed)
	close(release)
	if r := <-done; r.err != nil || !r.outs[0].OK() {
		t.Errorf("%+v, %v: it was applied, and the answer was on its way", r.outs, r.err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
