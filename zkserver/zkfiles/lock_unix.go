//go:build unix

package zkfiles

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// lock takes the file for this process. The kernel gives it back when the
// process ends, however it ends; the text inside only tells who has it.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock ZooKeeper's data: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			who, _ := os.ReadFile(path)
			return nil, &LockedError{Path: path, Holder: strings.TrimSpace(string(who))}
		}
		return nil, fmt.Errorf("lock %s: %w; name a folder on a local disk", path, err)
	}
	if err := writeHolder(f); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
