package zkwire

import "fmt"

// Op codes (spec/zookeeper.md §4.4).
const (
	OpCreate               int32 = 1
	OpDelete               int32 = 2
	OpExists               int32 = 3
	OpGetData              int32 = 4
	OpSetData              int32 = 5
	OpGetACL               int32 = 6
	OpSetACL               int32 = 7
	OpGetChildren          int32 = 8
	OpSync                 int32 = 9
	OpPing                 int32 = 11
	OpGetChildren2         int32 = 12
	OpCheck                int32 = 13
	OpMulti                int32 = 14
	OpCreate2              int32 = 15
	OpReconfig             int32 = 16
	OpCheckWatches         int32 = 17
	OpRemoveWatches        int32 = 18
	OpCreateContainer      int32 = 19
	OpDeleteContainer      int32 = 20
	OpCreateTTL            int32 = 21
	OpMultiRead            int32 = 22
	OpAuth                 int32 = 100
	OpSetWatches           int32 = 101
	OpSASL                 int32 = 102
	OpGetEphemerals        int32 = 103
	OpGetAllChildrenNumber int32 = 104
	OpSetWatches2          int32 = 105
	OpAddWatch             int32 = 106
	OpWhoAmI               int32 = 107
	OpCreateSession        int32 = -10
	OpCloseSession         int32 = -11
	OpError                int32 = -1
)

// Xids with a meaning of their own.
const (
	XidNotice     int32 = -1
	XidPing       int32 = -2
	XidAuth       int32 = -4
	XidSetWatches int32 = -8
)

// Create flags.
const (
	FlagPersistent           int32 = 0
	FlagEphemeral            int32 = 1
	FlagSequential           int32 = 2
	FlagEphemeralSequential  int32 = 3
	FlagContainer            int32 = 4
	FlagTTL                  int32 = 5
	FlagPersistentSequentTTL int32 = 6
)

// Permissions of an ACL.
const (
	PermRead   int32 = 1
	PermWrite  int32 = 2
	PermCreate int32 = 4
	PermDelete int32 = 8
	PermAdmin  int32 = 16
	PermAll    int32 = 31
)

// Types of a watch notice, and the state that all of them carry.
const (
	NodeCreated         int32 = 1
	NodeDeleted         int32 = 2
	NodeDataChanged     int32 = 3
	NodeChildrenChanged int32 = 4

	StateSyncConnected int32 = 3
)

// Modes of addWatch, and types of removeWatches.
const (
	WatchPersistent          int32 = 0
	WatchPersistentRecursive int32 = 1

	WatcherChildren int32 = 1
	WatcherData     int32 = 2
	WatcherAny      int32 = 3
)

// AnyVersion matches every version of a node.
const AnyVersion int32 = -1

// MaxFrame is the longest request a server with the default jute.maxbuffer takes.
const MaxFrame = 0xFFFFF

// Err is ZooKeeper's error code. 0 is no error.
type Err int32

// Error codes (spec/zookeeper.md §4.4).
const (
	OK                         Err = 0
	ErrSystem                  Err = -1
	ErrRuntimeInconsistency    Err = -2
	ErrDataInconsistency       Err = -3
	ErrConnectionLoss          Err = -4
	ErrMarshalling             Err = -5
	ErrUnimplemented           Err = -6
	ErrOperationTimeout        Err = -7
	ErrBadArguments            Err = -8
	ErrUnknownSession          Err = -12
	ErrNewConfigNoQuorum       Err = -13
	ErrReconfigInProgress      Err = -14
	ErrAPI                     Err = -100
	ErrNoNode                  Err = -101
	ErrNoAuth                  Err = -102
	ErrBadVersion              Err = -103
	ErrNoChildrenForEphemerals Err = -108
	ErrNodeExists              Err = -110
	ErrNotEmpty                Err = -111
	ErrSessionExpired          Err = -112
	ErrInvalidCallback         Err = -113
	ErrInvalidACL              Err = -114
	ErrAuthFailed              Err = -115
	ErrSessionMoved            Err = -118
	ErrNotReadOnly             Err = -119
	ErrEphemeralOnLocalSession Err = -120
	ErrNoWatcher               Err = -121
	ErrRequestTimeout          Err = -122
	ErrReconfigDisabled        Err = -123
	ErrSessionClosedNeedsSASL  Err = -124
	ErrQuotaExceeded           Err = -125
	ErrThrottled               Err = -127
)

// Error gives the code with its name.
func (e Err) Error() string {
	if n := e.name(); n != "" {
		return fmt.Sprintf("ZooKeeper: %s (%d)", n, int32(e))
	}
	return fmt.Sprintf("ZooKeeper: error %d", int32(e))
}

func (e Err) name() string {
	switch e {
	case OK:
		return "ok"
	case ErrSystem:
		return "system error"
	case ErrRuntimeInconsistency:
		return "runtime inconsistency"
	case ErrDataInconsistency:
		return "data inconsistency"
	case ErrConnectionLoss:
		return "connection loss"
	case ErrMarshalling:
		return "the request could not be read"
	case ErrUnimplemented:
		return "operation not implemented"
	case ErrOperationTimeout:
		return "operation timed out"
	case ErrBadArguments:
		return "bad arguments"
	case ErrUnknownSession:
		return "unknown session"
	case ErrNoNode:
		return "no node"
	case ErrNoAuth:
		return "not allowed by the ACL"
	case ErrBadVersion:
		return "bad version"
	case ErrNoChildrenForEphemerals:
		return "ephemeral nodes have no children"
	case ErrNodeExists:
		return "node exists"
	case ErrNotEmpty:
		return "node has children"
	case ErrSessionExpired:
		return "session expired"
	case ErrInvalidACL:
		return "invalid ACL"
	case ErrAuthFailed:
		return "authentication failed"
	case ErrSessionMoved:
		return "session moved"
	case ErrNoWatcher:
		return "no such watch"
	case ErrReconfigDisabled:
		return "reconfiguration is disabled"
	case ErrQuotaExceeded:
		return "quota exceeded"
	case ErrThrottled:
		return "throttled"
	}
	return ""
}
