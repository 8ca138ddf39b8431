package zkfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

const (
	logMagic   = 0x5a4b4c47 // ZKLG
	snapMagic  = 0x5a4b534e // ZKSN
	version    = 2
	headerSize = 16
	// preallocated is how far a log is grown at a time; the zeros behind the
	// last entry say that it is the last. They are a hole and cost no disk.
	preallocated = 64 << 20
)

func appendHeader(b []byte, magic int32, dbid int64) []byte {
	return zkwire.AppendInt64(zkwire.AppendInt32(zkwire.AppendInt32(b, magic), version), dbid)
}

// logFile is the log that is written to; the zero value is none.
type logFile struct {
	f       *os.File
	size    int64 // bytes of header and entries
	reached int64 // the file's size with its zeros
}

// makeLog makes the file of the log whose first transaction is zxid.
func makeLog(dir string, zxid int64) (*os.File, error) {
	path := filepath.Join(dir, fileName(logPrefix, zxid))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("begin a log: %w", err)
	}
	return f, nil
}

// begin makes f, which makeLog has made in dir, the log that is written to.
func (l *logFile) begin(f, dir *os.File, sync bool) error {
	*l = logFile{f: f}
	if err := l.put(appendHeader(nil, logMagic, 0)); err != nil {
		return err
	}
	if sync {
		if err := dir.Sync(); err != nil {
			return fmt.Errorf("sync folder %s: %w", dir.Name(), err)
		}
	}
	return nil
}

// outOfFiles tells whether a file could not be opened because too many are.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// append writes entries behind the last one.
func (l *logFile) append(b []byte, sync bool) error {
	if err := l.put(b); err != nil {
		return err
	}
	if sync {
		if err := syncData(l.f); err != nil {
			return fmt.Errorf("sync %s: %w; look at the disk, then start again", l.f.Name(), err)
		}
	}
	return nil
}

func (l *logFile) put(b []byte) error {
	// Zeros must follow the last entry, a length of four bytes at least.
	if need := l.size + int64(len(b)) + headerSize; need > l.reached {
		l.reached = (need + preallocated - 1) / preallocated * preallocated
		if err := l.f.Truncate(l.reached); err != nil {
			return fmt.Errorf("grow a log to %d bytes: %w", l.reached, err)
		}
	}
	if _, err := l.f.WriteAt(b, l.size); err != nil {
		return fmt.Errorf("append to the log: %w; make room on the disk, then start again", err)
	}
	l.size += int64(len(b))
	return nil
}

// close cuts the zeros off and closes the log, if one is open.
func (l *logFile) close(sync bool) error {
	if l.f == nil {
		return nil
	}
	f, size := l.f, l.size
	*l = logFile{}
	err := f.Truncate(size)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("end a log: %w", err)
	}
	return nil
}

// abandon closes the log as it is.
func (l *logFile) abandon() {
	if l.f != nil {
		l.f.Close()
		*l = logFile{}
	}
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync a folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync folder %s: %w", dir, err)
	}
	return nil
}
