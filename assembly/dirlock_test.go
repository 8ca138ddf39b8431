package assembly

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Log directories are used by one process at a time; who comes second hears who
// has what, and has nothing.
func TestLockLogDirs(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("locks of log directories are Linux's")
	}
	root := t.TempDir()
	a, b := filepath.Join(root, "a"), filepath.Join(root, "b")
	unlock, err := lockLogDirs([]string{a, b, a})
	if err != nil {
		t.Fatal(err)
	}
	c := filepath.Join(root, "c")
	_, err = lockLogDirs([]string{c, b})
	var refusal *Error
	if !errors.As(err, &refusal) || refusal.Kind != Refused || !strings.Contains(err.Error(), filepath.Join(b, lockFile)) {
		t.Errorf("a second process: %v", err)
	}
	if again, err := lockLogDirs([]string{c}); err != nil {
		t.Errorf("what was refused keeps a lock: %v", err)
	} else {
		again()
	}
	unlock()
	unlock, err = lockLogDirs([]string{b})
	if err != nil {
		t.Fatalf("after the first one's end: %v", err)
	}
	unlock()
}

// A directory in which nothing can be written is not refused here: the broker
// goes on with its others.
func TestLockLogDirsThatFail(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	unlock, err := lockLogDirs([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
