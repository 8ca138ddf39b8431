//go:build !unix

package zkfiles

import (
	"errors"
	"os"
)

// lock needs a lock that ends with the process, which is made with flock.
func lock(path string) (*os.File, error) {
	return nil, errors.New("lock " + path + ": data on disk needs a Unix system; run the server in memory (without a data folder), or in a container")
}
