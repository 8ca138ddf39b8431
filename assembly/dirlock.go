package assembly

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// lockFile is what a broker holds in each of its log directories as long as it
// lives: real brokers hold the same one.
const lockFile = ".lock"

// errHeld says that another process holds a lock.
var errHeld = errors.New("it is held")

// lockLogDirs takes the log directories for this process, before anything in
// them is read: a log that is opened is cut where a crash left it torn, and a
// living writer's last batch looks just so. A directory where no file can be
// written is left to whoever opens it, who takes it as failed. The locks last
// until unlock, or until the process ends, however it ends.
func lockLogDirs(dirs []string) (unlock func(), err error) {
	var held []*os.File
	unlock = func() {
		for _, f := range held {
			f.Close()
		}
	}
	for _, dir := range slices.Compact(slices.Sorted(slices.Values(dirs))) {
		f, err := lockLogDir(dir)
		if errors.Is(err, errHeld) {
			unlock()
			return nil, refused("log.dirs: another process uses %s: it holds %s; stop it, or give this broker folders of its own", dir, filepath.Join(dir, lockFile))
		}
		if f != nil {
			held = append(held, f)
		}
	}
	return unlock, nil
}

func lockLogDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lockOpen(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
