package zkstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
	"github.com/zkcontroller/zkcontroller/zkwire"
	"pgregory.net/rapid"
)

// TestOutcomes writes thousands of operations, among them every kind that is
// refused: each gets its own outcome, and the others are applied.
func TestOutcomes(t *testing.T) {
	s := fresh(t, zkstore.Options{})
	const n = 3000
	ws := []zkpaths.Write{create("/p", "")}
	want := []zkpaths.Code{zkpaths.OK}
	add := func(c zkpaths.Code, w zkpaths.Write) { ws, want = append(ws, w), append(want, c) }
	for i := range n {
		p := fmt.Sprintf("/p/%04d", i)
		add(zkpaths.OK, create(p, "0"))
		switch i % 97 {
		case 3:
			add(zkpaths.NodeExists, create(p, "again"))
		case 11:
			add(zkpaths.BadVersion, set(p, "x", 7))
		case 23:
			add(zkpaths.NoNode, set(p+"-none", "x", 0))
		case 31:
			add(zkpaths.NoNode, create(p+"-none/child", ""))
		case 41:
			add(zkpaths.NotEmpty, remove("/p", -1))
		case 53:
			add(zkpaths.BadVersion, remove(p, 3))
		case 61:
			add(zkpaths.BadVersion, zkpaths.Write{Op: zkpaths.Check, Path: p, Version: 9})
		case 67:
			add(zkpaths.OK, zkpaths.Write{Op: zkpaths.Check, Path: p, Version: 0})
		case 71:
			add(zkpaths.Failed, create("no-slash", ""))
		case 73:
			add(zkpaths.OK, set(p, "1", 0))
			add(zkpaths.OK, set(p, "2", 1))
			add(zkpaths.BadVersion, set(p, "3", 1))
			add(zkpaths.OK, remove(p, 2))
			add(zkpaths.NoNode, remove(p, -1))
		}
	}
	outs, err := s.Write(t.Context(), 0, ws)
	if err != nil {
		t.Fatal(err)
	}
	got := codes(outs)
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("write %d, %v %s: %v, want %s", i, ws[i].Op, ws[i].Path, outs[i], want[i])
		}
	}
	children := read(t, s, zkpaths.Read{Op: zkpaths.GetChildren, Path: "/p"})[0].Children
	if removed := (n + 97 - 74) / 97; len(children) != n-removed {
		t.Fatalf("%d children, want %d", len(children), n-removed)
	}
	t.Logf("%d writes, %d of them refused, in %d packets", len(ws), len(ws)-count(got, zkpaths.OK), s.Stats().Packets)
}

func count(codes []zkpaths.Code, c zkpaths.Code) int {
	n := 0
	for _, d := range codes {
		if c == d {
			n++
		}
	}
	return n
}

// TestFence: the check of the epoch fails as "moved" or "lost", and nothing of
// the call is applied.
func TestFence(t *testing.T) {
	s := fresh(t, zkstore.Options{})
	mustApply(t, s, 0, create("/a", ""))
	outs, err := s.Write(t.Context(), 4, []zkpaths.Write{create("/b", ""), set("/a", "x", 0)})
	if !errors.Is(err, zkpaths.ErrControllerMoved) || outs[0].Code != zkpaths.Failed || outs[1].Code != zkpaths.Failed {
		t.Fatalf("%v %v", outs, err)
	}
	mustApply(t, s, zkpaths.Unfenced, set("/controller_epoch", "2", 0))
	var ws []zkpaths.Write
	for i := range 4000 {
		ws = append(ws, create(fmt.Sprintf("/c%d", i), ""))
	}
	if _, err = s.Write(t.Context(), 0, ws); !errors.Is(err, zkpaths.ErrControllerMoved) {
		t.Fatal(err)
	}
	mustApply(t, s, zkpaths.Unfenced, remove("/controller_epoch", -1))
	if _, err = s.Write(t.Context(), 0, ws[:3]); !errors.Is(err, zkpaths.ErrFenceLost) {
		t.Fatal(err)
	}
	diff(t, "children", []string{"a"}, read(t, s, zkpaths.Read{Op: zkpaths.GetChildren, Path: "/"})[0].Children)
}

func TestTransact(t *testing.T) {
	s := fresh(t, zkstore.Options{})
	eph := zkpaths.Write{Op: zkpaths.CreateEphemeral, Path: "/id"}
	outs, err := s.Transact(t.Context(), []zkpaths.Write{eph, set("/id", "me", 0)})
	if err != nil || !outs[0].OK() || outs[1].Version != 1 || outs[1].Zxid == 0 {
		t.Fatalf("%+v %v", outs, err)
	}
	n := read(t, s, get("/id"))[0]
	if n.Stat.Czxid != outs[1].Zxid || n.Stat.EphemeralOwner != s.ID() {
		t.Fatalf("%+v, written in %d by %d", n.Stat, outs[1].Zxid, s.ID())
	}
	outs, err = s.Transact(t.Context(), []zkpaths.Write{create("/x", ""), set("/id", "you", 5), remove("/id", -1)})
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "codes", []zkpaths.Code{zkpaths.Failed, zkpaths.BadVersion, zkpaths.Failed}, codes(outs))
	if !strings.Contains(outs[0].Err.Error(), "rolled back") || read(t, s, get("/x"))[0].Code != zkpaths.NoNode {
		t.Fatalf("%+v", outs)
	}
}

// TestTooLarge: what would cost the connection is refused here, alone.
func TestTooLarge(t *testing.T) {
	s := fresh(t, zkstore.Options{})
	big := bytes.Repeat([]byte("x"), 1_000_001)
	fits := big[:999_000]
	mustApply(t, s, 0, create("/a", ""))
	outs, err := s.Write(t.Context(), 0, []zkpaths.Write{create("/b", ""), {Op: zkpaths.Set, Path: "/a", Data: big}, {Op: zkpaths.Set, Path: "/a", Data: fits}, create("/c", "")})
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "codes", []zkpaths.Code{zkpaths.OK, zkpaths.TooLarge, zkpaths.OK, zkpaths.OK}, codes(outs))
	outs, err = s.Transact(t.Context(), []zkpaths.Write{create("/d", ""), {Op: zkpaths.Set, Path: "/a", Data: fits}, {Op: zkpaths.Set, Path: "/b", Data: fits[:9000]}})
	if err != nil || outs[1].Code != zkpaths.TooLarge || outs[0].Code != zkpaths.Failed {
		t.Fatalf("%v %v", codes(outs), err)
	}
	if d := s.Stats().Disconnects; d != 0 {
		t.Fatalf("%d disconnects", d)
	}
	// Large nodes come back over the bulk connection in answers of their own.
	var rs []zkpaths.Read
	for range 30 {
		rs = append(rs, get("/a"))
	}
	for _, n := range read(t, s, rs...) {
		if !bytes.Equal(n.Data, fits) {
			t.Fatalf("%d bytes read", len(n.Data))
		}
	}
}

// TestBatchOfOne is Kafka's way: a multi each, in the order of the writes, with
// several in flight.
func TestBatchOfOne(t *testing.T) {
	p := newTamper(t, shared.Get(t).Addr())
	s := open(t, zkstore.Options{Servers: []string{p.addr()}, Chroot: chroot(t), Batch: 1, InFlight: 10}, nil)
	mustApply(t, s, zkpaths.Unfenced, create("/controller_epoch", "1"))
	before := p.count(false, zkwire.OpMulti)
	var ws []zkpaths.Write
	for i := range 500 {
		ws = append(ws, create(fmt.Sprint("/", i), ""), zkpaths.Write{Op: zkpaths.Check, Path: "/controller_epoch"})
	}
	for i := range 500 {
		ws = append(ws, set(fmt.Sprint("/", i), "x", 0))
	}
	outs := mustApply(t, s, 0, ws...)
	if n := p.count(false, zkwire.OpMulti) - before; n != len(ws) {
		t.Fatalf("%d multis for %d writes", n, len(ws))
	}
	zxids := make([]int64, 0, 500)
	for _, o := range outs[1000:] {
		zxids = append(zxids, o.Zxid)
	}
	if !slices.IsSorted(zxids) {
		t.Fatal("the writes were not applied in order")
	}
}

// model is a tree in which writes are applied one after the other.
type model map[string]*modelNode

type modelNode struct {
	data    string
	version int32
}

func (m model) apply(w zkpaths.Write) zkpaths.Outcome {
	n, up := m[w.Path], m[w.Path[:max(1, strings.LastIndexByte(w.Path, '/'))]]
	wrong := func(v int32) bool { return w.Version != zkpaths.AnyVersion && w.Version != v }
	switch {
	case w.Op == zkpaths.Create && up == nil:
		return zkpaths.Outcome{Code: zkpaths.NoNode}
	case w.Op == zkpaths.Create && n != nil:
		return zkpaths.Outcome{Code: zkpaths.NodeExists}
	case w.Op == zkpaths.Create:
		m[w.Path] = &modelNode{data: string(w.Data)}
	case n == nil:
		return zkpaths.Outcome{Code: zkpaths.NoNode}
	case wrong(n.version):
		return zkpaths.Outcome{Code: zkpaths.BadVersion}
	case w.Op == zkpaths.Set:
		n.data, n.version = string(w.Data), n.version+1
		return zkpaths.Outcome{Version: n.version}
	case w.Op == zkpaths.Delete:
		for p := range m {
			if strings.HasPrefix(p, w.Path+"/") {
				return zkpaths.Outcome{Code: zkpaths.NotEmpty}
			}
		}
		delete(m, w.Path)
	}
	return zkpaths.Outcome{}
}

// TestAsIfInOrder holds batches of all sizes, many in flight, against the model:
// same outcomes, same tree.
func TestAsIfInOrder(t *testing.T) {
	z := shared.Get(t)
	root := chroot(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		s, err := zkstore.Dial(t.Context(), zkstore.Options{Servers: []string{z.Addr()}, Chroot: fmt.Sprint(root, "/", round),
			ConnectTimeout: patience, Batch: rapid.IntRange(1, 6).Draw(rt, "batch"), InFlight: rapid.IntRange(1, 8).Draw(rt, "inflight")},
			func(zkpaths.Notice) {})
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close(context.Background())
		m := model{"/": {}, "/controller_epoch": {}}
		mustApply(t, s, zkpaths.Unfenced, create("/controller_epoch", ""))
		paths := []string{"/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f", "/g"}
		ws := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) zkpaths.Write {
			return zkpaths.Write{
				Op:      rapid.SampledFrom([]zkpaths.WriteOp{zkpaths.Create, zkpaths.Create, zkpaths.Set, zkpaths.Delete, zkpaths.Check}).Draw(rt, "op"),
				Path:    rapid.SampledFrom(paths).Draw(rt, "path"),
				Data:    []byte(rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "data")),
				Version: rapid.SampledFrom([]int32{-1, -1, 0, 1, 2}).Draw(rt, "version"),
			}
		}), 1, 60).Draw(rt, "writes")
		want := make([]zkpaths.Outcome, len(ws))
		for i, w := range ws {
			want[i] = m.apply(w)
		}
		got, err := s.Write(t.Context(), 0, ws)
		if err != nil {
			rt.Fatal(err)
		}
		diff(rt, "outcomes", want, got, cmpopts.IgnoreFields(zkpaths.Outcome{}, "Zxid"))
		for i, n := range read(t, s, gets(paths, false)...) {
			if w := m[paths[i]]; (w != nil) != (n.Code == zkpaths.OK) || w != nil && (string(n.Data) != w.data || n.Stat.Version != w.version) {
				rt.Fatalf("%s: %+v, want %+v", paths[i], n, w)
			}
		}
	})
}
