package zkfiles

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// seeds gives all golden files of a kind to the fuzzer.
func seeds(f *testing.F, pattern string, add func(name string, b []byte)) {
	f.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "apache-*", "*", versionFolder, pattern))
	if err != nil || len(names) == 0 {
		f.Fatalf("no %s in testdata (%v)", pattern, err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			f.Fatal(err)
		}
		add(n, b)
	}
}

// frugal runs f and fails if it allocated out of proportion to n bytes of input.
func frugal(t *testing.T, n int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20+uint64(n)*200 {
		t.Fatalf("%d bytes were allocated for %d bytes of input", used, n)
	}
}

// FuzzLog recovers from any bytes: an error, or transactions, and then the
// same ones again, also behind one more.
func FuzzLog(f *testing.F) {
	seeds(f, "log.*", func(_ string, b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, versionFolder), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, versionFolder, "snapshot.0"), raw(1, true))
		write(t, filepath.Join(dir, versionFolder, "log.1"), b)
		frugal(t, len(b), func() {
			s := openT(t, dir)
			got := &taken{}
			last, err := s.Recover(got)
			if err != nil {
				s.Close()
				return
			}
			if last > 1<<62 {
				s.Close()
				return
			}
			s.Append(setData(last+1, "on"))
			syncT(t, s)
			s.Close()
			s = openT(t, dir)
			defer s.Close()
			again := &taken{}
			if l, err := s.Recover(again); err != nil || l != last+1 || len(again.Txns) != len(got.Txns)+1 {
				t.Fatalf("%d transactions to 0x%x at first, then %d to 0x%x: %v", len(got.Txns), last, len(again.Txns), l, err)
			}
		})
	})
}

// FuzzSnapshot reads any bytes as a snapshot, plain and compressed; what can be
// read is written again and read alike.
func FuzzSnapshot(f *testing.F) {
	kinds := []string{"", ".gz", ".snappy"}
	seeds(f, "snapshot.*", func(name string, b []byte) {
		for i, k := range kinds {
			if strings.HasSuffix(name, k) && (k != "" || !strings.HasSuffix(name, ".gz") && !strings.HasSuffix(name, ".snappy")) {
				f.Add(b, byte(i))
			}
		}
	})
	f.Add(raw(1, true), byte(0))
	f.Add(raw(1, false), byte(0))
	f.Fuzz(func(t *testing.T, b []byte, kind byte) {
		k := kinds[int(kind)%len(kinds)]
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, versionFolder), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, versionFolder, "snapshot.7"+k), b)
		n := len(b)
		if k != "" {
			n *= 1100 // what compression can make of it
		}
		got := &taken{}
		s := openT(t, dir)
		defer s.Close()
		var err error
		frugal(t, n, func() { _, err = s.Recover(got) })
		if err != nil {
			return
		}
		w, err := s.BeginSnapshot(8)
		if err != nil {
			t.Fatal(err)
		}
		for id, timeout := range got.Sessions {
			w.Session(id, timeout)
		}
		for _, n := range got.Nodes {
			if err := w.Node(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		again, last := recoverT(t, s)
		if last != 8 || again.Resets != 1 || len(again.Nodes) != len(got.Nodes) || len(again.Sessions) != len(got.Sessions) {
			t.Fatalf("%d nodes became %d", len(got.Nodes), len(again.Nodes))
		}
	})
}
