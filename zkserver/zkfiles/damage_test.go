package zkfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// rootOnly is the least that a snapshot can hold.
var rootOnly = []Node{{Path: "/", Data: []byte{}, ACL: world}}

// written is a folder with a snapshot at 0 and a log from 1 to n, whose last
// entries are of all sizes and kinds.
func written(t testing.TB, n int64) (dir string, log []byte, ends []int) {
	t.Helper()
	dir = t.TempDir()
	s := openT(t, dir)
	recoverT(t, s)
	snapshotT(t, s, 0, rootOnly)
	for z := int64(1); z <= n; z++ {
		s.Append(sample(z))
		syncT(t, s)
		ends = append(ends, int(s.out.size))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(dir, versionFolder, "log.1"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, log, ends
}

func sample(z int64) *zkwire.Txn {
	x := setData(z, strings.Repeat("d", int(z)))
	switch z % 5 {
	case 1:
		x.Record = &zkwire.TxnError{Err: zkwire.ErrBadVersion}
	case 2:
		x.Record = &zkwire.TxnMulti{Parts: []zkwire.TxnRecord{&zkwire.TxnCheck{Path: "/a", Version: 1}, &zkwire.TxnDelete{Op: zkwire.OpDelete, Path: "/b"}}}
	case 3:
		x.Record = &zkwire.TxnCreate{Op: zkwire.OpCreate, Path: "/a/b", ACL: world, Ephemeral: true, ParentCreated: 4}
	case 4:
		x.Record = &zkwire.TxnCloseSession{Paths: []string{"/a/b", "/c"}, Known: true}
	}
	return x
}

// TestCutAtEveryByte kills the writer at every byte of the last entries: with
// the file ending there, with zeros behind (as in an open log), and with the
// stale bytes of another log behind.
func TestCutAtEveryByte(t *testing.T) {
	const n = 6
	dir, log, ends := written(t, n)
	path := filepath.Join(dir, versionFolder, "log.1")
	behind := map[string][]byte{"end of file": nil, "zeros": make([]byte, 5000), "garbage": bytes.Repeat([]byte{0xaa, 0, 0, 0, 0, 1}, 99)}
	for what, rest := range behind {
		for at := ends[3]; at <= len(log); at++ {
			whole := int64(0)
			for _, e := range ends {
				if e <= at {
					whole++
				}
			}
			write(t, path, append(log[:at:at], rest...))
			s := openT(t, dir)
			got, last := recoverT(t, s)
			if last != whole || int64(len(got.Txns)) != whole {
				t.Fatalf("%s at %d: %d transactions to zxid %d, not %d", what, at, len(got.Txns), last, whole)
			}
			if what != "zeros" && at%7 != 0 || at%3 != 0 {
				s.Close()
				continue
			}
			// What is acknowledged from here on is there after another kill.
			s.Append(setData(whole+1, "on"))
			s.Append(setData(whole+2, "on"))
			syncT(t, s)
			again := copyT(t, dir)
			s2 := openT(t, again)
			got, last = recoverT(t, s2)
			if last != whole+2 || int64(len(got.Txns)) != whole+2 {
				t.Fatalf("%s at %d, written on: %d transactions to zxid %d, not %d", what, at, len(got.Txns), last, whole+2)
			}
			if d := cmp.Diff(setData(whole+2, "on"), got.Txns[whole+1]); d != "" {
				t.Fatal(d)
			}
			s2.Close()
			s.Close()
			os.RemoveAll(again)
			os.Remove(filepath.Join(dir, versionFolder, fileName(logPrefix, whole+1)))
		}
	}
}

// TestCutFirst kills the writer while it begins the first log.
func TestCutFirst(t *testing.T) {
	dir, log, ends := written(t, 1)
	path := filepath.Join(dir, versionFolder, "log.1")
	for at := 0; at < ends[0]; at++ {
		for _, zeros := range []int{0, 300} {
			write(t, path, append(log[:at:at], make([]byte, zeros)...))
			s := openT(t, dir)
			if _, last := recoverT(t, s); last != 0 {
				t.Fatalf("cut at %d: last zxid %d", at, last)
			}
			s.Append(sample(1)) // its log has the same name
			syncT(t, s)
			s.Close()
			s = openT(t, dir)
			if _, last := recoverT(t, s); last != 1 {
				t.Fatalf("cut at %d and written on: last zxid %d", at, last)
			}
			s.Close()
		}
	}
}

// TestDamage flips every byte of a log that later entries follow: never are
// fewer transactions given without an error that tells where.
func TestDamage(t *testing.T) {
	const n = 6
	dir, log, ends := written(t, n)
	path := filepath.Join(dir, versionFolder, "log.1")
	for at := 0; at < ends[n-2]; at++ {
		if at >= 8 && at < headerSize {
			continue // the dbid says nothing
		}
		bad := bytes.Clone(log)
		bad[at] ^= 0xff
		write(t, path, bad)
		s := openT(t, dir)
		_, err := s.Recover(&taken{})
		s.Close()
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			t.Fatalf("byte %d flipped: %v", at, err)
		}
		start := 0
		if at >= headerSize {
			for start = headerSize; ; {
				next := ends[nth(ends, start)]
				if next > at {
					break
				}
				start = next
			}
		}
		if corrupt.Path != path || corrupt.Offset != int64(start) || corrupt.Remedy == "" || corrupt.Reason == "" {
			t.Errorf("byte %d flipped: %v, but its entry begins at %d", at, err, start)
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, bad) {
			t.Fatalf("a damaged log was changed (%v)", err)
		}
	}
}

func nth(ends []int, start int) int {
	for i, e := range ends {
		if e > start {
			return i
		}
	}
	return len(ends) - 1
}

// TestZeroedBlock: a block of zeros is not taken for the end of the log if
// entries follow it.
func TestZeroedBlock(t *testing.T) {
	dir, log, ends := written(t, 6)
	path := filepath.Join(dir, versionFolder, "log.1")
	clear(log[ends[1]:ends[3]])
	write(t, path, log)
	s := openT(t, dir)
	_, err := s.Recover(&taken{})
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Offset != int64(ends[1]) || !strings.Contains(corrupt.Reason, fmt.Sprint(ends[3])) {
		t.Errorf("zeros from %d to %d: %v", ends[1], ends[3], err)
	}
	// The remedy for a power cut works.
	if err := os.Truncate(path, corrupt.Offset); err != nil {
		t.Fatal(err)
	}
	if _, last := recoverT(t, s); last != 2 {
		t.Errorf("cut as advised: last zxid %d", last)
	}
}

// logs writes zxids from to to into a folder, each range into a log of its own.
func logsT(t *testing.T, dir string, ranges ...[2]int64) {
	t.Helper()
	s := openT(t, dir)
	for _, r := range ranges {
		s.roll = true
		for z := r[0]; z <= r[1]; z++ {
			s.Append(setData(z, "x"))
		}
		syncT(t, s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.Remove(filepath.Join(dir, versionFolder, n)); err != nil {
			t.Fatal(err)
		}
	}
}

func snapshotsT(t *testing.T, dir string, zxids ...int64) {
	t.Helper()
	s := openT(t, dir)
	for _, z := range zxids {
		snapshotT(t, s, z, rootOnly)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRecoverFiles(t *testing.T) {
	spoil := func(t *testing.T, dir, name string) {
		t.Helper()
		p := filepath.Join(dir, versionFolder, name)
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		write(t, p, b)
	}
	for _, tc := range []struct {
		what  string
		build func(t *testing.T, dir string)
		last  int64
		txns  int
		warns int
		err   string // a part of the error
	}{
		{what: "nothing", build: func(*testing.T, string) {}},
		{what: "a snapshot alone", build: func(t *testing.T, dir string) { snapshotsT(t, dir, 40) }, last: 40},
		{what: "several logs", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			logsT(t, dir, [2]int64{1, 5}, [2]int64{6, 6}, [2]int64{7, 9})
		}, last: 9, txns: 9},
		{what: "a snapshot in the middle of a log", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0, 7)
			logsT(t, dir, [2]int64{1, 5}, [2]int64{6, 9})
		}, last: 9, txns: 2},
		{what: "a snapshot between logs", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 5)
			logsT(t, dir, [2]int64{1, 5}, [2]int64{6, 9})
			remove(t, dir, "log.1")
		}, last: 9, txns: 4},
		{what: "logs without a snapshot, but whole", build: func(t *testing.T, dir string) { logsT(t, dir, [2]int64{1, 5}) }, last: 5, txns: 5},
		{what: "logs without a snapshot", build: func(t *testing.T, dir string) { logsT(t, dir, [2]int64{3, 5}) },
			err: "no snapshot that can be read"},
		{what: "a lost log", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			logsT(t, dir, [2]int64{1, 3}, [2]int64{4, 6}, [2]int64{7, 9})
			remove(t, dir, "log.4")
		}, err: "between zxid 0x3 and 0x7 are missing"},
		{what: "a lost log behind the snapshot", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 4)
			logsT(t, dir, [2]int64{7, 9})
		}, err: "between zxid 0x4 and 0x7 are missing"},
		{what: "a lost log before the snapshot", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 6)
			logsT(t, dir, [2]int64{1, 2}, [2]int64{7, 9})
		}, last: 9, txns: 3},
		{what: "a torn log that another follows", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			logsT(t, dir, [2]int64{1, 4}, [2]int64{4, 6})
			p := filepath.Join(dir, versionFolder, "log.1")
			b, _ := os.ReadFile(p)
			write(t, p, append(b[:len(b)-7:len(b)-7], make([]byte, 99)...))
		}, last: 6, txns: 6},
		{what: "a damaged last entry that was acknowledged", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			logsT(t, dir, [2]int64{1, 4}, [2]int64{5, 6})
			p := filepath.Join(dir, versionFolder, "log.1")
			b, _ := os.ReadFile(p)
			write(t, p, b[:len(b)-7])
		}, err: "between zxid 0x3 and 0x5 are missing"},
		{what: "an empty log in the middle", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			logsT(t, dir, [2]int64{1, 4}, [2]int64{5, 6})
			write(t, filepath.Join(dir, versionFolder, "log.3"), nil)
		}, last: 6, txns: 6},
		{what: "a failure logged under the zxid before, as Apache does", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			s := openT(t, dir)
			for _, txn := range []*zkwire.Txn{setData(1, "x"), sample(1), sample(1), setData(2, "y")} {
				s.Append(txn)
			}
			syncT(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}, last: 2, txns: 2},
		{what: "a change under the zxid before", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			logsT(t, dir, [2]int64{1, 4}, [2]int64{4, 6})
		}, err: "zxid 0x4 comes after 0x4"},
		{what: "a log of another history", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			logsT(t, dir, [2]int64{1, 4}, [2]int64{3, 6})
		}, err: "zxid 0x3 comes after 0x4"},
		{what: "an election", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			logsT(t, dir, [2]int64{1<<32 | 1, 1<<32 | 3}, [2]int64{3<<32 | 1, 3<<32 | 2})
		}, last: 3<<32 | 2, txns: 5},
		{what: "the newest snapshot is damaged", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0, 4)
			logsT(t, dir, [2]int64{1, 4}, [2]int64{5, 6})
			spoil(t, dir, "snapshot.4")
		}, last: 6, txns: 6, warns: 1},
		{what: "all snapshots are damaged, the logs are whole", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0, 4)
			logsT(t, dir, [2]int64{1, 4}, [2]int64{5, 6})
			spoil(t, dir, "snapshot.4")
			spoil(t, dir, "snapshot.0")
		}, last: 6, txns: 6, warns: 2},
		{what: "the newest snapshot is damaged, logs were purged", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0, 4)
			logsT(t, dir, [2]int64{5, 6})
			spoil(t, dir, "snapshot.4")
		}, warns: 1, err: "between zxid 0x0 and 0x5 are missing"},
		{what: "the newest snapshot is damaged, the logs end before it", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0, 9)
			logsT(t, dir, [2]int64{1, 6})
			spoil(t, dir, "snapshot.9")
		}, warns: 1, err: "the logs do not reach as far"},
		{what: "no snapshot can be read", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 4)
			spoil(t, dir, "snapshot.4")
		}, warns: 1, err: "no snapshot can be read"},
		{what: "a snapshot that Apache was writing", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0, 4)
			logsT(t, dir, [2]int64{1, 4})
			p := filepath.Join(dir, versionFolder, "snapshot.4")
			b, _ := os.ReadFile(p)
			write(t, p, b[:30])
		}, last: 4, txns: 4, warns: 1},
		{what: "files that are none of ours", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			logsT(t, dir, [2]int64{1, 4})
			for _, n := range []string{"log.txt", "snapshot", "log.9.bak", "snapshot.zz", "acceptedEpoch", "currentEpoch", "log.9.gz"} {
				write(t, filepath.Join(dir, versionFolder, n), []byte("1"))
			}
		}, last: 4, txns: 4},
		{what: "a file that is no log", build: func(t *testing.T, dir string) {
			snapshotsT(t, dir, 0)
			write(t, filepath.Join(dir, versionFolder, "log.1"), []byte("these are the words of another program"))
		}, err: "it does not begin as a log of ZooKeeper does"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			dir := t.TempDir()
			tc.build(t, dir)
			var warns counter
			log := logrus.New()
			log.SetOutput(&warns)
			log.SetLevel(logrus.WarnLevel)
			s, err := Open(Options{DataDir: dir, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			got := &taken{}
			last, err := s.Recover(got)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, not one with %q", err, tc.err)
				}
			} else if err != nil || last != tc.last || len(got.Txns) != tc.txns {
				t.Errorf("%d transactions to zxid 0x%x, not %d to 0x%x: %v", len(got.Txns), last, tc.txns, tc.last, err)
			}
			if int(warns) != tc.warns {
				t.Errorf("%d warnings, not %d", warns, tc.warns)
			}
		})
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c++; return len(p), nil }

func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// copyT copies a folder as a kill leaves it.
func copyT(t testing.TB, dir string) string {
	t.Helper()
	to, err := os.MkdirTemp(t.TempDir(), "copy")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		return copySparse(filepath.Join(to, rel), p)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// copySparse copies a file's bytes up to the zeros at its end, which it makes a hole of.
func copySparse(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	r := &logReader{f: in, size: st.Size()}
	buf := make([]byte, 64<<10)
	for off := int64(0); off < st.Size(); {
		if off = r.skipHole(off); off >= st.Size() {
			break
		}
		n, _ := in.ReadAt(buf, off)
		if _, err := out.WriteAt(buf[:n], off); err != nil {
			return err
		}
		off += int64(n)
	}
	return out.Truncate(st.Size())
}
