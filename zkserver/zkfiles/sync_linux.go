package zkfiles

import (
	"errors"
	"os"
	"syscall"
)

// seekData is lseek's way to the next byte that is not in a hole.
const seekData = 3

// syncData makes the file's bytes durable, without its times.
func syncData(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}

// isNoData tells that lseek found nothing but a hole up to the end.
func isNoData(err error) bool { return errors.Is(err, syscall.ENXIO) }
