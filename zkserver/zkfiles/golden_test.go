package zkfiles_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/zkserver/zkfiles"
	"github.com/zkcontroller/zkcontroller/zkwire"
)

// TestGolden reads what Apache ZooKeeper of several versions wrote (the real
// test records it): logs with and without digests, closeSession with and without
// paths, snapshots plain, gzip and snappy with no, one and two more sections.
func TestGolden(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join("testdata", "apache-*", "*"))
	if err != nil || len(dirs) < 8 {
		t.Fatalf("%d golden folders (%v)", len(dirs), err)
	}
	for _, dir := range dirs {
		t.Run(filepath.ToSlash(dir), func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(dir, "tree.txt"))
			if err != nil {
				t.Fatal(err)
			}
			m, last := recovered(t, copyFolder(t, dir))
			equal(t, "what Apache wrote", string(want), m.String())
			if m.resets != 1 {
				t.Errorf("the newest snapshot was not taken: %d resets", m.resets)
			}
			if last == 0 || len(m.txns) == 0 {
				t.Errorf("%d transactions up to zxid %d", len(m.txns), last)
			}
		})
	}
}

// TestGoldenPaths: 3.6 and later log what a closed session took with it.
func TestGoldenPaths(t *testing.T) {
	for dir, known := range map[string]bool{"apache-3.5.7": false, "apache-3.8.0": true, "apache-3.8.4": true, "apache-3.9.5": true} {
		m, _ := recovered(t, copyFolder(t, filepath.Join("testdata", dir, "log")))
		n := 0
		for _, x := range m.txns {
			if c, ok := x.Record.(*zkwire.TxnCloseSession); ok {
				if n++; c.Known != known || known && n == 1 && len(c.Paths) != 2 {
					t.Errorf("%s: closeSession %+v", dir, c)
				}
			}
		}
		if n == 0 {
			t.Errorf("%s: no session was closed", dir)
		}
	}
}

// TestWriteAsApache compares our bytes with Apache's: what a Store writes of
// Apache's transactions is Apache's log without its digests.
func TestWriteAsApache(t *testing.T) {
	dir := filepath.Join("testdata", "apache-3.5.7", "log") // a version without digests
	m, _ := recovered(t, copyFolder(t, dir))
	theirs, err := os.ReadFile(filepath.Join(dir, "version-2", "log.1"))
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	s, err := zkfiles.Open(zkfiles.Options{DataDir: to})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range m.txns {
		s.Append(x)
	}
	if _, err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(to, "version-2", "log.1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(ours) != 64<<20 {
		t.Errorf("the open log has %d bytes, Apache's 64 MiB", len(ours))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(entries(theirs), entries(ours)); d != "" {
		t.Error(d)
	}
}

// entries cuts a log into its header and entries. Of a failed multi, where
// Apache keeps the parts that would have held, only the transaction's header is left.
func entries(b []byte) [][]byte {
	out := [][]byte{b[:16]}
	for b = b[16:]; len(b) > 12; {
		n := binary.BigEndian.Uint32(b[8:])
		if n == 0 {
			break
		}
		e := b[:12+n+1]
		x, err := zkwire.DecodeTxn(e[12 : 12+n])
		if m, ok := x.Record.(*zkwire.TxnMulti); err == nil && ok && m.Parts[0].Type() == zkwire.OpError {
			e = e[12:44]
		}
		out, b = append(out, e), b[12+n+1:]
	}
	return out
}
