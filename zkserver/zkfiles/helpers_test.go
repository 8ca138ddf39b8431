package zkfiles

import (
	"testing"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// taken is what a recovery gave.
type taken struct {
	Resets   int
	Sessions map[int64]int32
	Nodes    []Node
	Txns     []*zkwire.Txn
}

func (t *taken) Reset() {
	t.Resets++
	t.Sessions, t.Nodes, t.Txns = map[int64]int32{}, nil, nil
}
func (t *taken) Session(id int64, timeout int32) { t.Sessions[id] = timeout }
func (t *taken) Node(n Node) error               { t.Nodes = append(t.Nodes, n); return nil }
func (t *taken) Txn(x *zkwire.Txn) error         { t.Txns = append(t.Txns, x); return nil }

func openT(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func recoverT(t testing.TB, s *Store) (*taken, int64) {
	t.Helper()
	got := &taken{}
	last, err := s.Recover(got)
	if err != nil {
		t.Fatal(err)
	}
	return got, last
}

func syncT(t testing.TB, s *Store) {
	t.Helper()
	if _, err := s.Sync(); err != nil {
		t.Fatal(err)
	}
}
