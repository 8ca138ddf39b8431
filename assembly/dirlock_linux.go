package assembly

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// openFileLock is Linux's F_OFD_SETLK: the lock is the open file's, and one that
// Java takes (a record lock of its process) stands against it.
const openFileLock = 37

func lockOpen(f *os.File) error {
	err := syscall.FcntlFlock(f.Fd(), openFileLock, &syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return errHeld
	}
	return err
}
