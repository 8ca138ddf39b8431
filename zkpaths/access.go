package zkpaths

import (
	"errors"
	"fmt"
)

// AnyVersion makes a Set or Delete unconditional.
const AnyVersion int32 = -1

// Code is what ZooKeeper said about one operation.
type Code int

const (
	OK         Code = iota
	NoNode          // the node, or a created node's parent, is not there
	NodeExists      // create: already there
	BadVersion      // the expected version is not the present one
	NotEmpty        // delete: has children
	NoAuth          // an ACL forbids it
	TooLarge        // refused by us: the request would exceed jute.maxbuffer and cost the connection
	Failed          // anything else; Err says what
)

var codeNames = [...]string{"ok", "no-node", "node-exists", "bad-version", "not-empty", "no-auth", "too-large", "failed"}

// String gives the word that case files use.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code(%d)", int(c))
}

// WriteOp is the kind of a Write.
type WriteOp uint8

const (
	Create WriteOp = iota
	CreateEphemeral
	CreateSequential // persistent; Outcome.Path has the name ZooKeeper gave
	Set
	Delete
	Check // only the version is compared
)

// Write is one intended change of one znode. Data nil is a null payload, which
// is not the same as an empty one.
type Write struct {
	Op      WriteOp
	Path    string
	Data    []byte
	Version int32 // Set, Delete, Check: the expected version, or AnyVersion
}

// Outcome is what became of a Write.
type Outcome struct {
	Code    Code
	Version int32  // Set: the version after it; Create: 0
	Zxid    int64  // Set: mzxid after it, where known (the registration's czxid is read off this)
	Path    string // CreateSequential: the path with its number
	Err     error  // Failed: the reason
}

// OK tells whether the write was applied.
func (o Outcome) OK() bool { return o.Code == OK }

// Error gives the outcome as an error with its path, or nil.
func (o Outcome) Error(path string) error {
	switch {
	case o.Code == OK:
		return nil
	case o.Err != nil:
		return fmt.Errorf("%s: %w", path, o.Err)
	case o.Code == TooLarge:
		return fmt.Errorf("%s: the request would be larger than ZooKeeper takes (jute.maxbuffer, 1048575 bytes); nothing was sent", path)
	}
	return fmt.Errorf("%s: %s", path, o.Code)
}

// ReadOp is the kind of a Read.
type ReadOp uint8

const (
	GetData ReadOp = iota
	GetChildren
	Exists // with Watch it also arms a watch on a missing node
)

// Read is one wanted answer. Watch arms a one-shot watch; a path that is armed
// already is not armed twice. Data watches and child watches are separate.
type Read struct {
	Op    ReadOp
	Path  string
	Watch bool
}

// Stat is the part of ZooKeeper's Stat that is used.
type Stat struct {
	Czxid          int64
	Mzxid          int64
	Version        int32
	EphemeralOwner int64
	NumChildren    int32
	Mtime          int64
}

// Node is the answer to a Read.
type Node struct {
	Code     Code
	Data     []byte // nil is a null payload
	Stat     Stat
	Children []string // GetChildren: names, sorted
	Err      error    // Failed: the reason
}

// Error gives a node's code as an error with its path; nil when it was read.
func (n Node) Error(path string) error { return Outcome{Code: n.Code, Err: n.Err}.Error(path) }

// NoticeType is what a watch told.
type NoticeType uint8

const (
	NodeCreated NoticeType = iota + 1
	NodeDeleted
	NodeDataChanged
	NodeChildrenChanged
)

// Notice is a fired watch. It says where to look, never what was there.
type Notice struct {
	Type NoticeType
	Path string
}

var (
	// ErrControllerMoved: the fence failed; another controller was elected.
	ErrControllerMoved = errors.New("controller moved: /controller_epoch has another version")
	// ErrSessionExpired: the ZooKeeper session is over or must be treated so.
	ErrSessionExpired = errors.New("ZooKeeper session expired")
	// ErrUnknownOutcome: the answer to a transaction was lost. The caller looks it up.
	ErrUnknownOutcome = errors.New("ZooKeeper's answer was lost; the outcome is unknown")
	// ErrFenceLost: /controller_epoch is gone, so nothing can be written safely.
	ErrFenceLost = errors.New("/controller_epoch is missing: no write can be fenced")
)

// PayloadError says that a znode's content cannot be read.
type PayloadError struct {
	Path   string
	Reason string
	Remedy string // what an operator does about it
}

// Error gives path, reason and remedy in one line.
func (e *PayloadError) Error() string {
	return fmt.Sprintf("%s: %s (%s)", e.Path, e.Reason, e.Remedy)
}

// Unfenced as the fence of a write means: no check of /controller_epoch.
const Unfenced int32 = -1
