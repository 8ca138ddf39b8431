package zkfiles_test

import (
	"bytes"
	cmp64 "cmp"
	"flag"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/zkserver"
	"github.com/zkcontroller/zkcontroller/zkserver/zkfiles"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

var record = flag.Bool("record", false, "keep the files that Apache ZooKeeper writes under testdata")

// The sets of jars, the snapshot compression that the second run of each uses,
// and where -record puts the files.
var apaches = []struct{ set, compression, keep string }{
	{"zk-3.9.5", "gz", "apache-3.9.5"},
	{"debian", "snappy", "apache-3.8.0"},
	{"3.9.1", "", "apache-3.8.4"},
	{"2.4.1", "", "apache-3.5.7"},
}

// TestApache lets Apache ZooKeeper write and reads it, writes the same and more
// and lets Apache serve it, lets Apache write on and reads that.
func TestApache(t *testing.T) {
	for _, a := range apaches {
		t.Run(a.keep, func(t *testing.T) {
			theirs := t.TempDir()
			z := start(t, theirs, a.set, "")
			script(t, z.Addr())
			want := dump(t, z.Addr())
			served := lastZxid(t, z)
			z.Kill()
			m, last := recovered(t, copyFolder(t, filepath.Join(theirs, "data")))
			equal(t, "what Apache wrote", want, m.String())
			keep(t, a.keep+"/log", filepath.Join(theirs, "data"), want)
			kinds(t, m.txns)
			if last != served {
				t.Errorf("the last zxid is 0x%x, Apache's 0x%x", last, served)
			}

			ours := t.TempDir()
			m = rewrite(t, filepath.Join(theirs, "data"), filepath.Join(ours, "data"))
			newestOnly(t, filepath.Join(ours, "data")) // or Apache might not need our snapshot
			z = start(t, ours, a.set, a.compression)
			want = dump(t, z.Addr())
			equal(t, "what we wrote", want, m.String())
			more(t, z.Addr())
			want = dump(t, z.Addr())
			served = lastZxid(t, z)
			z.Kill()
			m, last = recovered(t, copyFolder(t, filepath.Join(ours, "data")))
			if last != served {
				t.Errorf("behind ours, the last zxid is 0x%x, Apache's 0x%x", last, served)
			}
			equal(t, "what Apache wrote behind ours", want, m.String())
			newestOnly(t, filepath.Join(ours, "data"))
			keep(t, a.keep+"/snapshot", filepath.Join(ours, "data"), want)
		})
	}
}

// TestApacheAfterServer lets our server write, Apache ZooKeeper serve it and
// write on, and our server serve that.
func TestApacheAfterServer(t *testing.T) {
	for _, a := range apaches[:2] { // 3.9.5 and 3.8.0
		t.Run(a.keep, func(t *testing.T) {
			dir := t.TempDir()
			data := filepath.Join(dir, "data")
			addr, stop := serve(t, data)
			script(t, addr)
			want := dump(t, addr)
			stop()
			z := start(t, dir, a.set, a.compression)
			equal(t, "what our server wrote", dump(t, z.Addr()), want)
			more(t, z.Addr())
			want = dump(t, z.Addr())
			z.Kill()
			addr, stop = serve(t, data)
			equal(t, "what Apache wrote behind our server", want, dump(t, addr))
			stop()
		})
	}
}

// serve runs our server on the folder.
func serve(t *testing.T, data string) (addr string, stop func()) {
	t.Helper()
	s, err := zkserver.New(zkserver.Options{DataDir: data, ExtendedTypes: true, SnapCount: 10, MaxSessionTimeout: 10 * time.Minute, FourLetterWords: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop = sync.OnceFunc(func() {
		s.Close()
		<-done
	})
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func start(t *testing.T, dir, set, compression string) *real.ZKServer {
	t.Helper()
	real.Require(t, real.Java)
	if _, err := os.Stat("/usr/share/java/zookeeper.jar"); set == "debian" && err != nil {
		real.Missing(t, real.Java, "there is no Debian ZooKeeper", "apt-get install zookeeper")
	}
	if set != "debian" && real.JarSet(set) == "" {
		real.Missing(t, real.Java, "there are no jars "+set, "run scripts/jars.sh .cache/jars "+set)
	}
	opts := []real.ZKOption{real.WithJars(set), real.WithKey("maxSessionTimeout", "600000"), real.WithProperty("zookeeper.extendedTypesEnabled", "true")}
	if compression != "" {
		opts = append(opts, real.WithProperty("zookeeper.snapshot.compression.method", compression))
	}
	z, err := real.StartZooKeeper(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(z.Kill)
	t.Logf("real: %s", z)
	return z
}

// client opens a session that outlives restarts of the server.
func client(t *testing.T, addr string) *zk.Conn {
	t.Helper()
	c, events, err := zk.Connect([]string{addr}, 10*time.Minute, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	if err := c.AddAuth("digest", []byte("user:secret")); err != nil {
		t.Fatal(err)
	}
	return c
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// lastZxid asks the server.
func lastZxid(t *testing.T, z *real.ZKServer) int64 {
	t.Helper()
	s, err := real.FourLetterWord(z.Addr(), "srvr")
	if err != nil {
		t.Fatal(err)
	}
	_, s, _ = strings.Cut(s, "Zxid: ")
	s, _, _ = strings.Cut(s, "\n")
	zxid, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return zxid
}

// script makes transactions of all kinds. One session is closed, one is left
// open: its ephemerals stay.
func script(t *testing.T, addr string) {
	t.Helper()
	c, other := client(t, addr), client(t, addr)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(err, want error) {
		t.Helper()
		if err != want {
			t.Fatalf("%v, not %v", err, want)
		}
	}
	all, mine := zk.WorldACL(zk.PermAll), zk.DigestACL(zk.PermAll, "user", "secret")
	create := func(c *zk.Conn, p string, data []byte, flags int32, acl []zk.ACL) {
		t.Helper()
		_, err := c.Create(p, data, flags, acl)
		must(err)
	}
	create(c, "/a", []byte("one"), 0, all)
	create(c, "/a/null", nil, 0, all)
	create(c, "/a/empty", []byte{}, 0, all)
	create(c, "/a/ünïcode ☃", bytes.Repeat([]byte("0123456789"), 300), 0, mine)
	create(c, "/a/seq-", []byte("s"), zk.FlagSequence, all)
	create(c, "/a/seq-", []byte("s"), zk.FlagSequence, all)
	create(c, "/eph", nil, zk.FlagEphemeral, all)
	create(c, "/a/eph-", []byte("e"), zk.FlagEphemeral|zk.FlagSequence, mine)
	create(other, "/gone-1", nil, zk.FlagEphemeral, all)
	create(other, "/a/gone-2", nil, zk.FlagEphemeral, all)
	_, err := c.CreateContainer("/box", []byte("c"), zk.FlagContainer, all)
	must(err)
	create(c, "/box/in", nil, 0, all)
	_, err = c.CreateTTL("/ttl", []byte("t"), zk.FlagTTL, all, time.Hour)
	must(err)
	_, err = c.Set("/a", []byte("two"), -1)
	must(err)
	_, err = c.SetACL("/a/seq-0000000003", append(zk.DigestACL(zk.PermAll, "user", "secret"), zk.WorldACL(zk.PermRead)...), -1)
	must(err)
	must(c.Delete("/a/empty", 0))
	_, err = c.Multi(&zk.CreateRequest{Path: "/m", Data: []byte("m"), Acl: all}, &zk.CreateRequest{Path: "/m/kid", Acl: mine},
		&zk.SetDataRequest{Path: "/m", Data: []byte("n"), Version: 0}, &zk.CheckVersionRequest{Path: "/a", Version: 1}, &zk.DeleteRequest{Path: "/m/kid", Version: -1})
	must(err)
	_, err = c.Multi(&zk.CreateRequest{Path: "/n", Acl: all}, &zk.CheckVersionRequest{Path: "/a", Version: 9})
	refused(err, zk.ErrBadVersion)
	_, err = c.Set("/a", nil, 77)
	refused(err, zk.ErrBadVersion)
	_, err = c.Create("/no/parent", nil, 0, all)
	refused(err, zk.ErrNoNode)
	refused(c.Delete("/a", -1), zk.ErrNotEmpty)
	other.Close()
	create(c, "/last", []byte("written behind the closed session"), 0, all)
}

// more lets Apache write on a tree that we wrote.
func more(t *testing.T, addr string) {
	t.Helper()
	c := client(t, addr)
	for range 3 {
		if _, err := c.Create("/a/seq-", []byte("more"), zk.FlagSequence, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete("/last", -1); err != nil {
		t.Fatal(err)
	}
}

// kinds demands that the script left a transaction of each kind.
func kinds(t *testing.T, txns []*zkwire.Txn) {
	t.Helper()
	got := map[int32]bool{}
	for _, x := range txns {
		got[x.Record.Type()] = true
	}
	for _, want := range []int32{zkwire.OpCreateSession, zkwire.OpCloseSession, zkwire.OpCreate, zkwire.OpCreateContainer, zkwire.OpCreateTTL,
		zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpDelete, zkwire.OpMulti, zkwire.OpError} {
		if !got[want] {
			t.Errorf("no transaction of type %d is in Apache's log", want)
		}
	}
}

// rewrite writes the transactions of one folder into another as our own, with a
// snapshot in the middle, and adds those that only we make.
func rewrite(t *testing.T, from, to string) *model {
	t.Helper()
	src := open(t, copyFolder(t, from))
	whole, last := recoverInto(t, src)
	s := open(t, to)
	m, _ := recoverInto(t, s)
	first := &model{}
	first.Reset()
	for _, n := range freshNodes() {
		first.Node(n)
	}
	save(t, s, 0, first)
	half := len(whole.txns) / 2
	m = first
	put := func(x *zkwire.Txn) {
		t.Helper()
		s.Append(x)
		if err := m.Txn(x); err != nil {
			t.Fatal(err)
		}
	}
	for i, x := range whole.txns {
		if i == half {
			save(t, s, x.Zxid-1, m)
		}
		put(x)
		if i%3 == 0 {
			if _, err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	box := m.nodes["/box"].Stat.Cversion
	root := m.nodes["/"].Stat.Cversion
	world := []zkwire.ACL{{Perms: zkwire.PermAll, Scheme: "world", ID: "anyone"}}
	session := int64(0x1234_0000_0000_0001)
	for _, rec := range []zkwire.TxnRecord{
		&zkwire.TxnCreateSession{Timeout: 500_000},
		&zkwire.TxnCreate{Op: zkwire.OpCreate2, Path: "/create2", Data: []byte("x"), ACL: world, ParentCreated: root + 1},
		&zkwire.TxnCreate{Op: zkwire.OpCreate2, Path: "/eph2", ACL: world, Ephemeral: true, ParentCreated: root + 2},
		&zkwire.TxnCreate{Op: zkwire.OpCreate2, Path: "/eph3", ACL: world, Ephemeral: true, ParentCreated: root + 3},
		&zkwire.TxnDelete{Op: zkwire.OpDelete, Path: "/box/in"},
		&zkwire.TxnDelete{Op: zkwire.OpDeleteContainer, Path: "/box"},
		&zkwire.TxnMulti{},
		&zkwire.TxnMulti{Parts: []zkwire.TxnRecord{
			&zkwire.TxnCreate{Op: zkwire.OpCreateContainer, Path: "/box", ACL: world, ParentCreated: root + 4},
			&zkwire.TxnCreate{Op: zkwire.OpCreateTTL, Path: "/box/ttl", ACL: world, ParentCreated: box, TTL: 3_600_000},
			&zkwire.TxnCreate{Op: zkwire.OpCreate2, Path: "/eph4", ACL: world, Ephemeral: true, ParentCreated: root + 5},
			&zkwire.TxnSetData{Path: "/create2", Data: nil, Version: 1},
			&zkwire.TxnCheck{Path: "/create2", Version: 1},
			&zkwire.TxnDelete{Op: zkwire.OpDelete, Path: "/eph2"},
		}},
		&zkwire.TxnMulti{Parts: []zkwire.TxnRecord{&zkwire.TxnError{}, &zkwire.TxnError{Err: zkwire.ErrNoNode}, &zkwire.TxnError{Err: zkwire.ErrRuntimeInconsistency}}},
		&zkwire.TxnError{Err: zkwire.ErrBadVersion},
		&zkwire.TxnSetACL{Path: "/create2", ACL: []zkwire.ACL{{Perms: zkwire.PermRead, Scheme: "world", ID: "anyone"}}, Version: 1},
		&zkwire.TxnCloseSession{}, // takes /eph3 and /eph4
	} {
		last++
		put(&zkwire.Txn{Session: session, Cxid: int32(last), Zxid: last, Time: 1_700_000_000_000 + last, Record: rec})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, got := recovered(t, copyFolder(t, to))
	equal(t, "what we read of ours", m.String(), again.String())
	if got != last {
		t.Errorf("we read up to zxid 0x%x, not 0x%x", got, last)
	}
	return m
}

func save(t *testing.T, s *zkfiles.Store, zxid int64, m *model) {
	t.Helper()
	w, err := s.BeginSnapshot(zxid)
	if err != nil {
		t.Fatal(err)
	}
	for id, timeout := range m.sessions {
		w.Session(id, timeout)
	}
	for _, n := range m.list() {
		if err := w.Node(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

// freshNodes is the tree of a new server.
func freshNodes() []zkfiles.Node {
	world := []zkwire.ACL{{Perms: zkwire.PermAll, Scheme: "world", ID: "anyone"}}
	read := []zkwire.ACL{{Perms: zkwire.PermRead, Scheme: "world", ID: "anyone"}}
	return []zkfiles.Node{
		{Path: "/", Data: []byte{}, ACL: world},
		{Path: "/zookeeper", Data: []byte{}, ACL: world},
		{Path: "/zookeeper/config", Data: []byte{}, ACL: read, Stat: zkwire.Stat{Aversion: -1}},
		{Path: "/zookeeper/quota", Data: []byte{}, ACL: world},
	}
}

// dump shows the tree as a client sees it, in the form of model.String.
func dump(t *testing.T, addr string) string {
	t.Helper()
	c := client(t, addr)
	defer c.Close()
	var lines []string
	var walk func(p string)
	walk = func(p string) {
		data, s, err := c.Get(p)
		if err != nil {
			t.Fatalf("get %s: %v", p, err)
		}
		acl, _, err := c.GetACL(p)
		if err != nil {
			t.Fatalf("getACL %s: %v", p, err)
		}
		var list []zkwire.ACL
		for _, a := range acl {
			list = append(list, zkwire.ACL{Perms: a.Perms, Scheme: a.Scheme, ID: a.ID})
		}
		lines = append(lines, line(p, data, list, zkwire.Stat{Czxid: s.Czxid, Mzxid: s.Mzxid, Pzxid: s.Pzxid, Ctime: s.Ctime, Mtime: s.Mtime,
			Version: s.Version, Cversion: s.Cversion, Aversion: s.Aversion, EphemeralOwner: s.EphemeralOwner, DataLength: s.DataLength, NumChildren: s.NumChildren}))
		kids, _, err := c.Children(p)
		if err != nil {
			t.Fatalf("children %s: %v", p, err)
		}
		slices.Sort(kids)
		for _, k := range kids {
			walk(path.Join(p, k))
		}
	}
	walk("/")
	return strings.Join(lines, "")
}

// equal compares two shown trees, line by line in any order.
func equal(t *testing.T, what, want, got string) {
	t.Helper()
	sorted := func(s string) []string {
		l := strings.Split(s, "\n")
		slices.Sort(l)
		return l
	}
	if d := cmp.Diff(sorted(want), sorted(got)); d != "" {
		t.Errorf("%s is another tree than Apache serves (-Apache +ours):\n%s", what, d)
	}
}

// newestOnly leaves the newest snapshot and the newest log.
func newestOnly(t *testing.T, data string) {
	t.Helper()
	for _, kind := range []string{"snapshot.*", "log.*"} {
		files, err := filepath.Glob(filepath.Join(data, "version-2", kind))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s in %s (%v)", kind, data, err)
		}
		zxid := func(f string) int64 {
			z, err := strconv.ParseInt(strings.Split(filepath.Base(f), ".")[1], 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return z
		}
		newest := slices.MaxFunc(files, func(a, b string) int { return cmp64.Compare(zxid(a), zxid(b)) })
		for _, f := range files {
			if f == newest {
				continue
			}
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// keep puts files and the tree that Apache served under testdata, without the
// zeros behind the logs.
func keep(t *testing.T, name, data, tree string) {
	if !*record {
		return
	}
	dir := filepath.Join("testdata", name)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "version-2"), os.DirFS(filepath.Join(data, "version-2"))); err != nil {
		t.Fatal(err)
	}
	logs, _ := filepath.Glob(filepath.Join(dir, "version-2", "log.*"))
	for _, l := range logs {
		b, err := os.ReadFile(l)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(l, append(bytes.TrimRight(b, "\x00"), make([]byte, 64)...), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	os.Remove(filepath.Join(dir, "version-2", "zkserver.lock"))
	if err := os.WriteFile(filepath.Join(dir, "tree.txt"), []byte(tree), 0o644); err != nil {
		t.Fatal(err)
	}
	fmt.Println("recorded", dir)
}
