package zkfiles

import (
	"fmt"
	"os"
)

// lockName is the file that a process holds as long as it uses the folder.
const lockName = "zkserver.lock"

// LockedError says that another process uses the data.
type LockedError struct {
	Path   string // of the lock
	Holder string // what the holder wrote about itself; may be empty
}

// Error names the holder and the remedy.
func (e *LockedError) Error() string {
	who := e.Holder
	if who == "" {
		who = "another process"
	}
	return fmt.Sprintf("ZooKeeper's data are in use: %s holds %s; stop it, or name another data folder", who, e.Path)
}

func writeHolder(f *os.File) error {
	err := f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "process %d\n", os.Getpid()), 0)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	return nil
}
