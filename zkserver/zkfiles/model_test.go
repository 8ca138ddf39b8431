package zkfiles_test

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zkcontroller/zkcontroller/zkserver/zkfiles"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

// model is a naive tree: what Apache's files mean, in as few lines as can be.
type model struct {
	nodes    map[string]*zkfiles.Node
	sessions map[int64]int32
	txns     []*zkwire.Txn
	resets   int
	fuzzy    bool // what is not there was deleted later: as Apache, go on
}

func (m *model) Reset() {
	m.resets++
	m.nodes, m.sessions, m.txns = map[string]*zkfiles.Node{}, map[int64]int32{}, nil
}

func (m *model) Session(id int64, timeout int32) { m.sessions[id] = timeout }

func (m *model) Node(n zkfiles.Node) error {
	if n.Path != "/" && m.nodes[path.Dir(n.Path)] == nil {
		return fmt.Errorf("no parent")
	}
	m.nodes[n.Path] = &n
	return nil
}

func (m *model) Txn(t *zkwire.Txn) error {
	m.txns = append(m.txns, t)
	multi, ok := t.Record.(*zkwire.TxnMulti)
	parts := []zkwire.TxnRecord{t.Record}
	if ok {
		parts = multi.Parts
	}
	for _, p := range parts {
		if err := m.apply(t, p); err != nil && !m.fuzzy {
			return err
		}
	}
	return nil
}

func (m *model) apply(t *zkwire.Txn, rec zkwire.TxnRecord) error {
	switch rec := rec.(type) {
	case *zkwire.TxnCreate:
		return m.create(t, rec)
	case *zkwire.TxnDelete:
		return m.remove(t, rec.Path)
	case *zkwire.TxnSetData:
		n := m.nodes[rec.Path]
		if n == nil {
			return zkwire.ErrNoNode
		}
		n.Data, n.Stat.Mzxid, n.Stat.Mtime, n.Stat.Version = rec.Data, t.Zxid, t.Time, rec.Version
	case *zkwire.TxnSetACL:
		n := m.nodes[rec.Path]
		if n == nil {
			return zkwire.ErrNoNode
		}
		n.ACL, n.Stat.Aversion = rec.ACL, rec.Version
	case *zkwire.TxnCreateSession:
		m.sessions[t.Session] = rec.Timeout
	case *zkwire.TxnCloseSession:
		paths := rec.Paths
		if !rec.Known {
			for p, n := range m.nodes {
				if n.Stat.EphemeralOwner == t.Session {
					paths = append(paths, p)
				}
			}
		}
		delete(m.sessions, t.Session)
		for _, p := range paths {
			if err := m.remove(t, p); err != nil && !m.fuzzy {
				return err
			}
		}
	}
	return nil
}

const (
	containerOwner = -1 << 63
	ttlOwner       = -1 << 56
)

func (m *model) create(t *zkwire.Txn, rec *zkwire.TxnCreate) error {
	parent := m.nodes[path.Dir(rec.Path)]
	if parent == nil {
		return zkwire.ErrNoNode
	}
	n := &zkfiles.Node{Path: rec.Path, Data: rec.Data, ACL: rec.ACL, Stat: zkwire.Stat{Czxid: t.Zxid, Mzxid: t.Zxid, Pzxid: t.Zxid, Ctime: t.Time, Mtime: t.Time}}
	switch {
	case rec.Ephemeral:
		n.Stat.EphemeralOwner = t.Session
	case rec.Op == zkwire.OpCreateContainer:
		n.Stat.EphemeralOwner = containerOwner
	case rec.Op == zkwire.OpCreateTTL:
		n.Stat.EphemeralOwner = ttlOwner | rec.TTL
	}
	if m.nodes[rec.Path] == nil {
		m.nodes[rec.Path] = n
	}
	if rec.ParentCreated > parent.Stat.Cversion {
		parent.Stat.Cversion, parent.Stat.Pzxid = rec.ParentCreated, t.Zxid
	}
	return nil
}

func (m *model) remove(t *zkwire.Txn, p string) error {
	if parent := m.nodes[path.Dir(p)]; parent != nil { // even if a fuzzy snapshot has met it before the child went
		parent.Stat.Pzxid = max(parent.Stat.Pzxid, t.Zxid)
	}
	if m.nodes[p] == nil {
		return zkwire.ErrNoNode
	}
	delete(m.nodes, p)
	return nil
}

// list gives the nodes, parents first.
func (m *model) list() []zkfiles.Node {
	var out []zkfiles.Node
	for _, p := range slices.Sorted(maps.Keys(m.nodes)) {
		out = append(out, *m.nodes[p])
	}
	return out
}

// String shows the tree as a client sees it.
func (m *model) String() string {
	children := map[string]int32{}
	for p := range m.nodes {
		if p != "/" {
			children[path.Dir(p)]++
		}
	}
	var b strings.Builder
	for _, n := range m.list() {
		s := n.Stat
		s.NumChildren, s.DataLength = children[n.Path], int32(len(n.Data))
		s.Cversion = 2*s.Cversion - s.NumChildren
		if s.EphemeralOwner>>56 == -1 || s.EphemeralOwner == containerOwner {
			s.EphemeralOwner = 0
		}
		b.WriteString(line(n.Path, n.Data, n.ACL, s))
	}
	return b.String()
}

// line shows one node.
func line(p string, data []byte, acl []zkwire.ACL, s zkwire.Stat) string {
	text := fmt.Sprintf("%q", data)
	if len(data) > 100 {
		text = fmt.Sprintf("%d bytes, CRC %08x", len(data), crc32.ChecksumIEEE(data))
	}
	return fmt.Sprintf("%q data=%s acl=%v czxid=%d mzxid=%d pzxid=%d ctime=%d mtime=%d version=%d cversion=%d aversion=%d owner=%x length=%d children=%d\n",
		p, text, acl, s.Czxid, s.Mzxid, s.Pzxid, s.Ctime, s.Mtime, s.Version, s.Cversion, s.Aversion, uint64(s.EphemeralOwner), s.DataLength, s.NumChildren)
}

// recovered reads a folder.
func recovered(t testing.TB, dir string) (*model, int64) {
	t.Helper()
	s := open(t, dir)
	defer s.Close()
	return recoverInto(t, s)
}

func recoverInto(t testing.TB, s *zkfiles.Store) (*model, int64) {
	t.Helper()
	m := &model{}
	last, err := s.Recover(m)
	if err != nil {
		t.Fatal(err)
	}
	return m, last
}

func open(t testing.TB, dir string) *zkfiles.Store {
	t.Helper()
	s, err := zkfiles.Open(zkfiles.Options{DataDir: dir, ForceSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// copyFolder copies the files of a version-2 folder under a fresh data folder.
func copyFolder(t testing.TB, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := copyTo(dir, from); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyTo copies the logs and snapshots of a data folder into another, without
// the zeros behind the logs: the file systems of tests need not know holes.
func copyTo(to, from string) error {
	to = filepath.Join(to, "version-2")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(from, "version-2", "*.*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := copyFile(filepath.Join(to, filepath.Base(name)), name); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	var b []byte
	for piece := make([]byte, 64<<10); ; {
		n, err := f.Read(piece)
		if err != nil && err != io.EOF {
			return err
		}
		// No entry of these tests is as long as a piece: zeros are the end.
		if n == 0 || len(bytes.TrimRight(piece[:n], "\x00")) == 0 {
			return os.WriteFile(to, b, 0o644)
		}
		b = append(b, piece[:n]...)
	}
}
