package zkserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// Code is an error code of ZooKeeper's protocol; it is an error, so that it
// can be returned and compared as one.
type Code int32

// The codes a Tree answers (spec/zookeeper.md §4.4).
const (
	OK                      Code = 0
	RuntimeInconsistency    Code = -2 // multi: an operation behind the failing one
	Unimplemented           Code = -6
	BadArguments            Code = -8
	NoNode                  Code = -101
	NoAuth                  Code = -102
	BadVersion              Code = -103
	NoChildrenForEphemerals Code = -108
	NodeExists              Code = -110
	NotEmpty                Code = -111
	SessionExpired          Code = -112
	InvalidACL              Code = -114
	NoWatcher               Code = -121
)

var codeNames = map[Code]string{
	OK: "OK", RuntimeInconsistency: "RUNTIMEINCONSISTENCY", Unimplemented: "UNIMPLEMENTED", BadArguments: "BADARGUMENTS",
	NoNode: "NONODE", NoAuth: "NOAUTH", BadVersion: "BADVERSION", NoChildrenForEphemerals: "NOCHILDRENFOREPHEMERALS",
	NodeExists: "NODEEXISTS", NotEmpty: "NOTEMPTY", SessionExpired: "SESSIONEXPIRED", InvalidACL: "INVALIDACL", NoWatcher: "NOWATCHER",
}

// String gives ZooKeeper's name of the code.
func (c Code) String() string {
	if s, ok := codeNames[c]; ok {
		return s
	}
	return fmt.Sprintf("Code(%d)", int32(c))
}

// Error makes a code usable as a Go error.
func (c Code) Error() string { return c.String() }

// Stat is what ZooKeeper tells about a node. Times are milliseconds.
// EphemeralOwner is 0 for container and TTL nodes, too.
type Stat = zkwire.Stat

// Mode is the kind of node a create makes; the values are the flags of the protocol.
type Mode int32

const (
	Persistent Mode = iota
	Ephemeral
	PersistentSequential
	EphemeralSequential
	Container
	PersistentTTL
	PersistentSequentialTTL
)

func (m Mode) ephemeral() bool { return m == Ephemeral || m == EphemeralSequential }
func (m Mode) ttl() bool       { return m == PersistentTTL || m == PersistentSequentialTTL }
func (m Mode) sequential() bool {
	return m == PersistentSequential || m == EphemeralSequential || m == PersistentSequentialTTL
}

// maxTTL is the longest TTL in milliseconds that ZooKeeper can store.
const maxTTL = 0x00FF_FFFF_FFFF

// node is one znode. created counts the creations of children: sequence
// numbers are drawn from it, and Stat's cversion is derived from it.
type node struct {
	data     []byte
	acl      []ACL
	stat     Stat // Cversion, DataLength and NumChildren are filled in by the reader
	mode     Mode // Persistent, Ephemeral, Container or PersistentTTL
	ttl      int64
	created  int32
	children map[string]struct{}
}

func (n *node) full() Stat {
	s := n.stat
	s.NumChildren = int32(len(n.children))
	s.Cversion = 2*n.created - s.NumChildren
	s.DataLength = int32(len(n.data))
	return s
}

// Tree is ZooKeeper's data tree with its sessions and watches: pure, without
// clock, goroutine or socket. Session ids, times (milliseconds) and watcher
// ids are arguments. Data slices are kept and handed out as they are: nobody
// may change them.
type Tree struct {
	nodes    map[string]*node
	sessions map[int64]map[string]struct{} // the ephemerals of each live session
	sweep    map[string]struct{}           // container and TTL nodes
	watches  watchTables
	zxid     int64

	// ExtendedTypes allows TTL nodes (zookeeper.extendedTypesEnabled).
	ExtendedTypes bool
}

// configPath is the one node only a super user may change.
const configPath = "/zookeeper/config"

// NewTree gives the tree of a fresh server (spec/zookeeper.md §4.5): all
// zxids and times are 0, and the first write gets zxid 1.
func NewTree() *Tree {
	t := &Tree{
		nodes:    map[string]*node{},
		sessions: map[int64]map[string]struct{}{},
		sweep:    map[string]struct{}{},
		watches:  newWatchTables(),
	}
	for _, p := range []string{"/", "/zookeeper", "/zookeeper/quota", configPath} {
		n := &node{data: []byte{}, acl: OpenACL()}
		if p == configPath {
			n.acl = []ACL{{Perms: PermRead, Scheme: "world", ID: "anyone"}}
			n.stat.Aversion = -1
		}
		t.nodes[p] = n
		if p != "/" {
			t.parentOf(p).addChild(p) // not counted as a creation, as in ZooKeeper
		}
	}
	return t
}

func (n *node) addChild(path string) {
	if n.children == nil {
		n.children = map[string]struct{}{}
	}
	n.children[path[strings.LastIndexByte(path, '/')+1:]] = struct{}{}
}

// Zxid is the zxid of the last write attempt.
func (t *Tree) Zxid() int64 { return t.zxid }

// AdvanceZxid raises the last zxid, for a server that starts from a snapshot
// or must begin above what it once handed out. It never lowers it.
func (t *Tree) AdvanceZxid(zxid int64) { t.zxid = max(t.zxid, zxid) }

// lookup finds a node; "" is another name of the root (spec/zookeeper.md §4.5).
func (t *Tree) lookup(path string) *node {
	if path == "" {
		path = "/"
	}
	return t.nodes[path]
}

func (t *Tree) parentOf(path string) *node {
	return t.lookup(path[:strings.LastIndexByte(path, '/')])
}

// Len is the number of nodes, the root and ZooKeeper's own included.
func (t *Tree) Len() int { return len(t.nodes) }

// DataSize is the sum of the lengths of all paths and data in bytes, as
// ZooKeeper reports it.
func (t *Tree) DataSize() int64 {
	size := int64(0)
	for p, n := range t.nodes {
		size += int64(len(p) + len(n.data))
	}
	return size
}

// Exists gives a node's Stat. Permission READ is needed (3.8.4 and later).
func (t *Tree) Exists(who Who, path string) (Stat, Code) {
	if strings.IndexByte(path, 0) >= 0 {
		return Stat{}, BadArguments
	}
	n := t.lookup(path)
	switch {
	case n == nil:
		return Stat{}, NoNode
	case !who.may(PermRead, n.acl):
		return Stat{}, NoAuth
	}
	return n.full(), OK
}

// GetData gives a node's data (nil is null, which is not empty) and Stat.
func (t *Tree) GetData(who Who, path string) ([]byte, Stat, Code) {
	n := t.lookup(path)
	switch {
	case n == nil:
		return nil, Stat{}, NoNode
	case !who.may(PermRead, n.acl):
		return nil, Stat{}, NoAuth
	}
	return n.data, n.full(), OK
}

// GetChildren gives the names of a node's children, sorted, and its Stat.
func (t *Tree) GetChildren(who Who, path string) ([]string, Stat, Code) {
	n := t.lookup(path)
	switch {
	case n == nil:
		return nil, Stat{}, NoNode
	case !who.may(PermRead, n.acl):
		return nil, Stat{}, NoAuth
	}
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, n.full(), OK
}

// GetACL gives a node's ACL; READ or ADMIN is needed. Without ADMIN the
// hashes of digest ids are masked.
func (t *Tree) GetACL(who Who, path string) ([]ACL, Stat, Code) {
	n := t.lookup(path)
	switch {
	case n == nil:
		return nil, Stat{}, NoNode
	case who.may(PermAdmin, n.acl):
		return n.acl, n.full(), OK
	case !who.may(PermRead, n.acl):
		return nil, Stat{}, NoAuth
	}
	masked := slices.Clone(n.acl)
	for i, a := range masked {
		if user, _, ok := strings.Cut(a.ID, ":"); ok && a.Scheme == "digest" {
			masked[i].ID = user + ":x"
		}
	}
	return masked, n.full(), OK
}

// CountDescendants is the number of nodes below path.
func (t *Tree) CountDescendants(who Who, path string) (int, Code) {
	n := t.lookup(path)
	switch {
	case n == nil:
		return 0, NoNode
	case !who.may(PermRead, n.acl):
		return 0, NoAuth
	}
	prefix := strings.TrimSuffix(path, "/") + "/"
	count := 0
	for p := range t.nodes {
		if strings.HasPrefix(p, prefix) && p != "/" {
			count++
		}
	}
	return count, OK
}

// Saved is one node as a snapshot holds it.
type Saved struct {
	Path    string
	Data    []byte
	ACL     []ACL
	Mode    Mode // Persistent, Ephemeral, Container or PersistentTTL
	TTL     int64
	Created int32 // how many children were ever created: the next sequence number
	Stat    Stat
}

// Walk visits every node, parents first and otherwise sorted by path.
func (t *Tree) Walk(visit func(Saved)) {
	paths := make([]string, 0, len(t.nodes))
	for p := range t.nodes {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		n := t.nodes[p]
		visit(Saved{Path: p, Data: n.data, ACL: n.acl, Mode: n.mode, TTL: n.ttl, Created: n.created, Stat: n.full()})
	}
}

// Restore puts a node in as it was saved: no zxid, no watch, no creation
// counted. Its parent must be there, and so must the session of an ephemeral
// (AddSession). A node that is there already is replaced, its children stay.
func (t *Tree) Restore(s Saved) error {
	if err := validatePath(s.Path); err != nil {
		return fmt.Errorf("restore %q: %w", s.Path, err)
	}
	n := &node{data: s.Data, acl: s.ACL, stat: s.Stat, mode: s.Mode, ttl: s.TTL, created: s.Created}
	if len(n.acl) == 0 {
		n.acl = OpenACL()
	}
	if old := t.nodes[s.Path]; old != nil {
		n.children = old.children
		t.unlist(s.Path, old)
	} else {
		parent := t.parentOf(s.Path)
		if parent == nil {
			return fmt.Errorf("restore %s: its parent is missing", s.Path)
		}
		parent.addChild(s.Path)
	}
	if n.mode == Ephemeral {
		owned, ok := t.sessions[n.stat.EphemeralOwner]
		if !ok {
			return fmt.Errorf("restore %s: its session 0x%x is not alive", s.Path, n.stat.EphemeralOwner)
		}
		owned[s.Path] = struct{}{}
	}
	if n.mode == Container || n.mode == PersistentTTL {
		t.sweep[s.Path] = struct{}{}
	}
	t.nodes[s.Path] = n
	t.zxid = max(t.zxid, s.Stat.Czxid, s.Stat.Mzxid, s.Stat.Pzxid)
	return nil
}

// unlist takes a node out of its session's ephemerals and out of the sweep list.
func (t *Tree) unlist(path string, n *node) {
	if n.mode == Ephemeral {
		delete(t.sessions[n.stat.EphemeralOwner], path)
	}
	delete(t.sweep, path)
}

// validatePath is ZooKeeper's rule for a path that may be created
// (spec/zookeeper.md §4.5).
func validatePath(path string) error {
	switch {
	case path == "":
		return fmt.Errorf("the path is empty")
	case path[0] != '/':
		return fmt.Errorf("the path does not begin with /")
	case path == "/":
		return nil
	case path[len(path)-1] == '/':
		return fmt.Errorf("the path ends with /")
	}
	for _, part := range strings.Split(path[1:], "/") {
		switch part {
		case "":
			return fmt.Errorf("the path has an empty part")
		case ".", "..":
			return fmt.Errorf("the path has the relative part %q", part)
		}
	}
	for _, r := range path {
		// D800-F8FF covers the UTF-16 surrogates, so everything above FFFF too.
		if r <= 0x1F || r >= 0x7F && r <= 0x9F || r >= 0xD800 && r <= 0xF8FF || r >= 0xFFF0 {
			return fmt.Errorf("the path has the character %U", r)
		}
	}
	return nil
}
