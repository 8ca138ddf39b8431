package zkstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// fate is what an error of the library means for the request.
type fate uint8

const (
	answered fate = iota // ZooKeeper's own answer; the code says which
	unsent               // it was never sent
	expired              // the session is over
	unknown              // it may or may not have been executed
)

// judge sorts errors by exclusion: whatever is not known to be ZooKeeper's
// answer may hide a success (spec/zookeeper.md §1.3, 15).
func judge(err error) (fate, zkpaths.Code) {
	switch {
	case err == nil:
		return answered, zkpaths.OK
	case errors.Is(err, zk.ErrNoServer):
		return unsent, zkpaths.Failed
	case errors.Is(err, zk.ErrSessionExpired):
		return expired, zkpaths.Failed
	case errors.Is(err, zk.ErrSessionMoved):
		// The server ignored it and will close the connection.
		return unsent, zkpaths.Failed
	case errors.Is(err, zk.ErrNoNode):
		return answered, zkpaths.NoNode
	case errors.Is(err, zk.ErrNodeExists):
		return answered, zkpaths.NodeExists
	case errors.Is(err, zk.ErrBadVersion):
		return answered, zkpaths.BadVersion
	case errors.Is(err, zk.ErrNotEmpty):
		return answered, zkpaths.NotEmpty
	case errors.Is(err, zk.ErrNoAuth):
		return answered, zkpaths.NoAuth
	case isAnswer(err):
		return answered, zkpaths.Failed
	}
	return unknown, zkpaths.Failed
}

// isAnswer knows the other answers: named errors, local refusals, and codes the
// library has no name for.
func isAnswer(err error) bool {
	for _, e := range []error{zk.ErrAPIError, zk.ErrNoChildrenForEphemerals, zk.ErrInvalidACL, zk.ErrInvalidFlags,
		zk.ErrAuthFailed, zk.ErrNothing, zk.ErrReconfigDisabled, zk.ErrBadArguments, zk.ErrInvalidPath} {
		if errors.Is(err, e) {
			return true
		}
	}
	return strings.HasPrefix(err.Error(), "unknown error: ")
}

// outcome gives the Outcome of a refused operation.
func refused(code zkpaths.Code, err error) zkpaths.Outcome {
	o := zkpaths.Outcome{Code: code}
	if code == zkpaths.Failed {
		o.Err = fmt.Errorf("ZooKeeper refused it: %w", err)
	}
	return o
}
