//go:build unix

package zkfiles

import (
	"os"
	"syscall"
	"testing"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// noMoreFiles keeps the process from opening any until the test calls back.
func noMoreFiles(t *testing.T) (back func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	now := was
	now.Cur = 512
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	var open []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		open = append(open, f)
	}
	done := false
	back = func() {
		if done {
			return
		}
		done = true
		for _, f := range open {
			f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(back)
	return back
}

// TestLogsOutliveAFullTableOfFiles: clients can use up all files. The first log
// is begun all the same, the one that is written to goes on for a later one,
// and nothing is lost.
func TestLogsOutliveAFullTableOfFiles(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Options{DataDir: dir, ForceSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	back := noMoreFiles(t)
	zxid := int64(0)
	put := func() {
		t.Helper()
		zxid++
		s.Append(&zkwire.Txn{Session: 5, Zxid: zxid, Record: &zkwire.TxnError{Err: -101}})
		syncT(t, s)
	}
	put()
	f, err := os.Open(os.DevNull) // whoever waits for a file takes the one that was free
	if err == nil {
		defer f.Close()
	}
	s.roll = true
	put()
	back()
	s.roll = true
	put()
	s.Close()
	files, err := list(s.logDir, logPrefix)
	if err != nil || len(files) != 2 || files[0].zxid != 1 || files[1].zxid != 3 {
		t.Errorf("logs %v (%v), want those of zxids 1 and 3", files, err)
	}
	if got, last := recoverT(t, openT(t, dir)); last != zxid || len(got.Txns) != int(zxid) {
		t.Errorf("%d transactions to zxid %d, want %d", len(got.Txns), last, zxid)
	}
}
