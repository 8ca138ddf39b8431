package zkfiles

import (
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
