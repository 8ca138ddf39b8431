package zkfiles

import (
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

func setData(zxid int64, data string) *zkwire.Txn {
	return &zkwire.Txn{Session: 7, Cxid: int32(zxid), Zxid: zxid, Time: 1000 + zxid, Record: &zkwire.TxnSetData{Path: "/a", Data: []byte(data), Version: int32(zxid)}}
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	if _, last := recoverT(t, s); last != 0 || !s.NeedsSnapshot() {
		t.Fatalf("an empty folder: last %d, needs snapshot %v", last, s.NeedsSnapshot())
	}
	nodes := []Node{
		{Path: "/", Data: []byte{}, ACL: world, Stat: zkwire.Stat{Cversion: 3, Pzxid: 9}},
		{Path: "/a", Data: nil, ACL: []zkwire.ACL{{Perms: 1, Scheme: "digest", ID: "u:p"}}, Stat: zkwire.Stat{Czxid: 4, EphemeralOwner: 77}},
		{Path: "/b", Data: []byte("x"), ACL: []zkwire.ACL{{Perms: 1, Scheme: "digest", ID: "u:p"}}, Stat: zkwire.Stat{Mtime: 5, Aversion: -1}},
	}
	var want []*zkwire.Txn
	for z := int64(1); z <= 5; z++ {
		s.Append(setData(z, "old"))
	}
	snapshotT(t, s, 5, nodes)
	for z := int64(6); z <= 9; z++ {
		want = append(want, setData(z, "new"))
		s.Append(want[len(want)-1])
	}
	syncT(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openT(t, dir)
	got, last := recoverT(t, s)
	if last != 9 {
		t.Errorf("last zxid %d, not 9", last)
	}
	if d := cmp.Diff(&taken{Resets: 1, Sessions: map[int64]int32{77: 4000}, Nodes: nodes, Txns: want}, got); d != "" {
		t.Error(d)
	}
}

var world = []zkwire.ACL{{Perms: zkwire.PermAll, Scheme: "world", ID: "anyone"}}

func snapshotT(t testing.TB, s *Store, zxid int64, nodes []Node) {
	t.Helper()
	w, err := s.BeginSnapshot(zxid)
	if err != nil {
		t.Fatal(err)
	}
	w.Session(77, 4000)
	for _, n := range nodes {
		if err := w.Node(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// TestWriteErrorStays: after a write that fails nothing is durable, and what
// was durable before is there after a restart.
func TestWriteErrorStays(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	s.Append(sample(1))
	syncT(t, s)
	full, err := os.Open(s.out.f.Name()) // cannot be written, as a full disk
	if err != nil {
		t.Fatal(err)
	}
	whole := s.out.f
	s.out.f = full
	s.Append(sample(2))
	_, first := s.Sync()
	if first == nil || !strings.Contains(first.Error(), "log.1") {
		t.Fatalf("a write that cannot be: %v", first)
	}
	s.out.f = whole // the disk is well again, the store is not
	s.Append(sample(3))
	if durable, err := s.Sync(); durable != 1 || err != first {
		t.Errorf("durable to %d (%v) after a failed write", durable, err)
	}
	if len(s.buf) != 0 {
		t.Errorf("%d bytes are kept that nobody will write", len(s.buf))
	}
	if _, err := s.BeginSnapshot(3); err == nil {
		t.Error("a snapshot of what is not durable was begun")
	}
	if err := s.Close(); err != first {
		t.Errorf("close: %v", err)
	}
	s = openT(t, dir)
	if _, last := recoverT(t, s); last != 1 {
		t.Errorf("last zxid %d after the restart", last)
	}
}

// TestSnapshotError: a snapshot that cannot be written leaves nothing and does
// not touch the log.
func TestSnapshotError(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	s.Append(sample(1))
	w, err := s.BeginSnapshot(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.BeginSnapshot(1); err == nil {
		t.Error("two snapshots at once")
	}
	if err := w.Node(Node{Path: "/a"}); err == nil {
		t.Error("a node before the root was taken")
	}
	if err := w.Commit(); err == nil {
		t.Error("a snapshot without its root was written")
	}
	if w, err = s.BeginSnapshot(1); err != nil {
		t.Fatal(err)
	}
	if err := w.Node(Node{Path: "/"}); err != nil {
		t.Fatal(err)
	}
	w.nodes.Close() // as a full disk
	for range 5 {
		err = w.Node(Node{Path: "/x", Data: make([]byte, 100_000)})
	}
	if err == nil || w.Commit() == nil {
		t.Errorf("a snapshot that was not written is said to be: %v", err)
	}
	if w, err = s.BeginSnapshot(1); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if err := os.Mkdir(w.temporary("nodes"), 0o755); err != nil { // where the file would be
		t.Fatal(err)
	}
	if w, err = s.BeginSnapshot(1); err != nil {
		t.Fatalf("the disk was asked: %v", err)
	}
	if w.Node(Node{Path: "/"}) == nil || w.Commit() == nil {
		t.Error("a snapshot without a file was written")
	}
	if err := os.Remove(w.temporary("nodes")); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, versionFolder, "*"))
	for _, p := range left {
		if n := filepath.Base(p); n != lockName && n != "log.1" {
			t.Errorf("%s is left", n)
		}
	}
	s.Append(sample(2))
	syncT(t, s)
}

// TestUnfinishedSnapshot: what a killed writer left is swept away.
func TestUnfinishedSnapshot(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	w, err := s.BeginSnapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Node(Node{Path: "/"}); err != nil {
		t.Fatal(err)
	}
	s.unlock() // a kill
	s = openT(t, dir)
	left, _ := filepath.Glob(filepath.Join(dir, versionFolder, tmpPrefix+"*"))
	if len(left) > 0 || !s.NeedsSnapshot() {
		t.Errorf("%v are left, needs a snapshot: %v", left, s.NeedsSnapshot())
	}
}

func TestLock(t *testing.T) {
	dir, logs := t.TempDir(), t.TempDir()
	s, err := Open(Options{DataDir: dir, LogDir: logs})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{DataDir: dir}, {DataDir: dir, LogDir: t.TempDir()}, {DataDir: t.TempDir(), LogDir: logs}, {DataDir: logs}} {
		_, err := Open(o)
		var locked *LockedError
		if !errors.As(err, &locked) || locked.Holder != fmt.Sprintf("process %d", os.Getpid()) || !strings.Contains(err.Error(), locked.Path) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(Options{DataDir: dir, LogDir: logs}); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// TestSplitFolders: logs in a folder of their own, and a pair of folders that
// would leave files out is refused.
func TestSplitFolders(t *testing.T) {
	data, logs := t.TempDir(), t.TempDir()
	s, err := Open(Options{DataDir: data, LogDir: logs})
	if err != nil {
		t.Fatal(err)
	}
	snapshotT(t, s, 0, rootOnly)
	s.Append(sample(1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(Options{DataDir: data, LogDir: logs}); err != nil {
		t.Fatal(err)
	}
	if _, last := recoverT(t, s); last != 1 {
		t.Errorf("last zxid %d", last)
	}
	s.Close()
	for _, o := range []Options{{DataDir: logs, LogDir: data}, {DataDir: t.TempDir(), LogDir: data}, {DataDir: logs, LogDir: t.TempDir()}} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "is not in the folder for it") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Open(Options{}); err == nil {
		t.Error("no folder at all was opened")
	}
}

func TestPurge(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	z := int64(0)
	for range 6 {
		snapshotT(t, s, z, rootOnly)
		for range 5 {
			z++
			s.Append(sample(z))
		}
		syncT(t, s)
	}
	write(t, filepath.Join(dir, versionFolder, "snapshot.1d"), []byte("not whole"))
	want := func(names ...string) {
		t.Helper()
		var got []string
		for _, p := range []string{logPrefix, snapPrefix} {
			files, err := list(s.snapDir, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				got = append(got, filepath.Base(f.path))
			}
		}
		if d := cmp.Diff(names, got); d != "" {
			t.Error(d)
		}
	}
	if err := s.Purge(4); err != nil {
		t.Fatal(err)
	}
	want("log.b", "log.10", "log.15", "log.1a", "snapshot.a", "snapshot.f", "snapshot.14", "snapshot.19", "snapshot.1d")
	if err := s.Purge(1); err != nil {
		t.Fatal(err)
	}
	want("log.10", "log.15", "log.1a", "snapshot.f", "snapshot.14", "snapshot.19", "snapshot.1d")
	s.Append(sample(z + 1))
	syncT(t, s)
	s.Close()
	s = openT(t, dir)
	if _, last := recoverT(t, s); last != z+1 {
		t.Errorf("after the purge, last zxid %d, not %d", last, z+1)
	}
}

// TestRoll: each snapshot begins a new log, however Sync cuts the work.
func TestRoll(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	for z := int64(1); z <= 9; z++ {
		s.Append(sample(z))
		if z%3 == 0 {
			w, err := s.BeginSnapshot(z)
			if err != nil {
				t.Fatal(err)
			}
			w.Abort()
		}
	}
	syncT(t, s) // all at once
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := list(s.logDir, logPrefix)
	if err != nil || len(files) != 3 || files[1].zxid != 4 || files[2].zxid != 7 {
		t.Errorf("logs %v (%v)", files, err)
	}
	s = openT(t, dir)
	if got, last := recoverT(t, s); last != 9 || len(got.Txns) != 9 {
		t.Errorf("%d transactions to zxid %d", len(got.Txns), last)
	}
}

// TestLongCloseSession: Apache reads no entry above twice its jute.maxbuffer.
func TestLongCloseSession(t *testing.T) {
	dir := t.TempDir()
	s := openT(t, dir)
	var paths []string
	for i := range 30_000 {
		paths = append(paths, fmt.Sprintf("/%060d/%060d", i, i))
	}
	s.Append(&zkwire.Txn{Session: 5, Zxid: 1, Record: &zkwire.TxnCloseSession{Paths: paths[:2], Known: true}})
	s.Append(&zkwire.Txn{Session: 5, Zxid: 2, Record: &zkwire.TxnCloseSession{Paths: paths, Known: true}})
	syncT(t, s)
	s.Close()
	s = openT(t, dir)
	got, _ := recoverT(t, s)
	want := []*zkwire.Txn{{Session: 5, Zxid: 1, Record: &zkwire.TxnCloseSession{Paths: paths[:2], Known: true}}, {Session: 5, Zxid: 2, Record: &zkwire.TxnCloseSession{}}}
	if d := cmp.Diff(want, got.Txns); d != "" {
		t.Error(d)
	}
}

// TestConcurrent runs what the server runs at once; the race detector watches.
func TestConcurrent(t *testing.T) {
	const n = 3000
	dir := t.TempDir()
	s := openT(t, dir)
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Add(2)
	go func() { // the committer
		defer wg.Done()
		for last := int64(0); last < n; {
			durable, err := s.Sync()
			if err != nil || durable < last {
				t.Errorf("durable to %d after %d: %v", durable, last, err)
				return
			}
			last = durable
		}
	}()
	var mu sync.Mutex // the server's lock
	zxid := int64(0)
	go func() {
		defer wg.Done()
		for {
			select {
			case <-done:
				return
			default:
			}
			mu.Lock()
			w, err := s.BeginSnapshot(zxid)
			mu.Unlock()
			if err == nil {
				err = w.Node(rootOnly[0])
			}
			if err == nil {
				err = w.Commit()
			}
			if err == nil {
				err = s.Purge(3)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for z := int64(1); z <= n; z++ {
		mu.Lock()
		s.Append(setData(z, "x"))
		zxid = z
		mu.Unlock()
	}
	close(done)
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openT(t, dir)
	if _, last := recoverT(t, s); last != n {
		t.Errorf("last zxid %d, not %d", last, n)
	}
}

// TestCombine compares sums of pieces with the sum of the whole.
func TestCombine(t *testing.T) {
	b := make([]byte, 200_000)
	for i := range b {
		b[i] = byte(i * i)
	}
	for _, at := range []int{0, 1, 65520, 65521, 65522, 131_042, len(b)} {
		got := combine(adler32.Checksum(b[:at]), adler32.Checksum(b[at:]), int64(len(b)-at))
		if want := adler32.Checksum(b); got != want {
			t.Errorf("cut at %d: %08x, not %08x", at, got, want)
		}
	}
}

// raw builds a snapshot without the writer's help: /a has an access list of the
// number key, which the table has only if acls is set.
func raw(key int64, acls bool, sections ...[]byte) []byte {
	b := appendHeader(nil, snapMagic, -1)
	b = zkwire.AppendInt32(b, 0)
	if acls {
		b = zkwire.AppendACLs(zkwire.AppendInt64(zkwire.AppendInt32(b, 1), key), secret)
	} else {
		b = zkwire.AppendInt32(b, 0)
	}
	for _, n := range []struct {
		path string
		key  int64
	}{{"", -1}, {"/a", key}} {
		b = zkwire.AppendInt64(zkwire.AppendBuffer(zkwire.AppendString(b, n.path), []byte{}), n.key)
		b = appendStat(b, &zkwire.Stat{Aversion: 2})
	}
	b = zkwire.AppendString(b, "/")
	for _, s := range append([][]byte{nil}, sections...) {
		b = append(b, s...)
		b = zkwire.AppendString(zkwire.AppendInt64(b, int64(adler32.Checksum(b))), "/")
	}
	return b
}

var secret = []zkwire.ACL{{Perms: 31, Scheme: "digest", ID: "u:p"}}

// TestLateACL: a node made while Apache writes a snapshot can have an access
// list that the table lacks; a log behind has it.
func TestLateACL(t *testing.T) {
	create := &zkwire.Txn{Session: 1, Zxid: 5, Record: &zkwire.TxnCreate{Op: zkwire.OpCreate, Path: "/a", ACL: secret, ParentCreated: 1}}
	late := &zkwire.Txn{Session: 1, Zxid: 5, Record: &zkwire.TxnSetACL{Path: "/a", ACL: secret, Version: 2}}
	multi := &zkwire.Txn{Session: 1, Zxid: 5, Record: &zkwire.TxnMulti{Parts: []zkwire.TxnRecord{create.Record}}}
	closed := &zkwire.Txn{Session: 1, Zxid: 5, Record: &zkwire.TxnDelete{Op: zkwire.OpDelete, Path: "/a"}}
	for _, tc := range []struct {
		what  string
		known bool
		log   *zkwire.Txn
		want  []*zkwire.Txn
		err   bool
	}{
		{"known", true, setData(5, ""), []*zkwire.Txn{setData(5, "")}, false},
		{"created", false, create, []*zkwire.Txn{create, late}, false},
		{"created in a multi", false, multi, []*zkwire.Txn{multi, late}, false},
		{"deleted", false, closed, []*zkwire.Txn{closed}, false},
		{"never told", false, setData(5, ""), nil, true},
	} {
		t.Run(tc.what, func(t *testing.T) {
			dir := t.TempDir()
			s := openT(t, dir)
			s.Append(tc.log)
			s.Close()
			write(t, filepath.Join(dir, versionFolder, "snapshot.4"), raw(9, tc.known))
			s = openT(t, dir)
			got := &taken{}
			_, err := s.Recover(got)
			if (err != nil) != tc.err {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got.Txns); !tc.err && d != "" {
				t.Error(d)
			}
			if acl := got.Nodes[1].ACL; (acl != nil) != tc.known {
				t.Errorf("access list %v", acl)
			}
		})
	}
}

// TestSections: what stands behind the first seal is checked, or left out.
func TestSections(t *testing.T) {
	digest := append(zkwire.AppendInt32(zkwire.AppendInt64(nil, 6), 2), make([]byte, 8)...)
	last := zkwire.AppendInt64(nil, 7)
	for _, tc := range []struct {
		what     string
		sections [][]byte
		to       int64
	}{
		{"none", nil, 0}, {"digest", [][]byte{digest}, 6}, {"last zxid", [][]byte{last}, 7}, {"both", [][]byte{digest, last}, 7},
	} {
		b := raw(9, true, tc.sections...)
		path := filepath.Join(t.TempDir(), "snapshot.4")
		try := func(b []byte) (int64, error) {
			t.Helper()
			write(t, path, b)
			s := openT(t, t.TempDir())
			defer s.Close()
			return (&recovery{s: s, to: &taken{Sessions: map[int64]int32{}}, owed: map[string]Node{}}).readSnapshot(path)
		}
		if to, err := try(b); err != nil || to != tc.to {
			t.Errorf("%s: up to %d (%v)", tc.what, to, err)
		}
		for i := headerSize; i < len(b); i++ {
			b[i] ^= 0x10
			if _, err := try(b); err == nil {
				t.Errorf("%s: byte %d of %d is flipped, and nobody sees it", tc.what, i, len(b))
			}
			b[i] ^= 0x10
		}
		if _, err := try(append(b, 1, 2, 3)); err != nil {
			t.Errorf("%s: bytes that later versions may add: %v", tc.what, err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	s := openT(b, b.TempDir())
	x := setData(1, strings.Repeat("x", 100))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.Zxid++
		s.Append(x)
		if i%1000 == 999 {
			syncT(b, s)
		}
	}
}

func BenchmarkSync(b *testing.B) {
	for _, force := range []bool{false, true} {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("force=%v/entries=%d", force, n), func(b *testing.B) {
				s, err := Open(Options{DataDir: b.TempDir(), ForceSync: force})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				x := setData(1, strings.Repeat("x", 100))
				for b.Loop() {
					for range n {
						x.Zxid++
						s.Append(x)
					}
					syncT(b, s)
				}
			})
		}
	}
}

// drop takes a recovery and keeps nothing.
type drop struct{}

func (drop) Reset()                {}
func (drop) Session(int64, int32)  {}
func (drop) Node(Node) error       { return nil }
func (drop) Txn(*zkwire.Txn) error { return nil }

func BenchmarkSnapshot(b *testing.B) {
	const nodes = 100_000
	s := openT(b, b.TempDir())
	data := make([]byte, 100)
	paths := make([]string, nodes)
	for i := range paths {
		paths[i] = fmt.Sprintf("/bench/node-%07d", i)
	}
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w, err := s.BeginSnapshot(5)
			if err != nil {
				b.Fatal(err)
			}
			w.Node(rootOnly[0])
			for _, p := range paths {
				w.Node(Node{Path: p, Data: data, ACL: world})
			}
			if err := w.Commit(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Recover(drop{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
