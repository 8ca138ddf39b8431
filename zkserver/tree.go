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

// Tree is ZooKeeper's data tree with its sessions and watches: pure, without
// clock, goroutine or socket. Session ids, times (milliseconds) and watcher
// ids are arguments. Data and access lists that it is given are copied; what
// it hands out (data, names, access lists) are views that no later write
// changes, and that nobody else may change. The zero-copy views keep up to a
// page of 32 KiB alive. One lock for everything: GetChildren, Walk, Cursor
// and Ephemerals may put lists in order although they only read.
type Tree struct {
	nodes  slab[node]
	extras slab[extra]
	texts  texts
	index  pathIndex
	acls   aclTable

	sessions   map[int64]*tenant
	sweep      []uint32 // container and TTL nodes
	ephemerals int
	size       int64 // of all paths and data
	watches    watchTables
	zxid       int64
	change     change // the attempt under way; its memory is used again

	// ExtendedTypes allows TTL nodes (zookeeper.extendedTypesEnabled).
	ExtendedTypes bool
}

// configPath is the one node only a super user may change.
const configPath = "/zookeeper/config"

// NewTree gives the tree of a fresh server (spec/zookeeper.md §4.5): all
// zxids and times are 0, and the first write gets zxid 1.
func NewTree() *Tree {
	t := &Tree{
		texts:    texts{pages: make([]page, 1), spare: freeOfCare},
		index:    newPathIndex(),
		acls:     newACLTable(),
		sessions: map[int64]*tenant{},
		watches:  newWatchTables(),
	}
	root := t.nodes.at(t.nodes.take())
	t.write(rootID, root, "", []byte{})
	t.size = int64(len("/"))
	for _, p := range []string{"/zookeeper", "/zookeeper/quota", configPath} {
		parent, name := split(p)
		_, n := t.plant(t.index.hash(p), t.find(parent), p, name, []byte{}, openACL) // not counted as a creation, as in ZooKeeper
		if p == configPath {
			n.acl = t.acls.intern([]ACL{{Perms: PermRead, Scheme: "world", ID: "anyone"}})
			t.ext(n).aversion = -1
		}
	}
	return t
}

// split cuts a path that has a slash into its parent's ("" is the root) and
// its name.
func split(path string) (parent, name string) {
	slash := strings.LastIndexByte(path, '/')
	return path[:slash], path[slash+1:]
}

// Zxid is the zxid of the last write attempt.
func (t *Tree) Zxid() int64 { return t.zxid }

// AdvanceZxid raises the last zxid, for a server that starts from a snapshot
// or must begin above what it once handed out. It never lowers it.
func (t *Tree) AdvanceZxid(zxid int64) { t.zxid = max(t.zxid, zxid) }

// Len is the number of nodes, the root and ZooKeeper's own included.
func (t *Tree) Len() int { return t.index.used + 1 }

// DataSize is the sum of the lengths of all paths and data in bytes, as
// ZooKeeper reports it.
func (t *Tree) DataSize() int64 { return t.size }

// node gives the node at a path, nil if there is none.
func (t *Tree) node(path string) *node {
	if id := t.find(path); id != 0 {
		return t.nodes.at(id)
	}
	return nil
}

// readable gives the node at a path that who may read.
func (t *Tree) readable(who *Who, path string) (*node, Code) {
	n := t.node(path)
	switch {
	case n == nil:
		return nil, NoNode
	case !t.may(who, PermRead, n.acl):
		return nil, NoAuth
	}
	return n, OK
}

// Exists gives a node's Stat. Permission READ is needed (3.8.4 and later).
func (t *Tree) Exists(who Who, path string) (Stat, Code) {
	if strings.IndexByte(path, 0) >= 0 {
		return Stat{}, BadArguments
	}
	n, code := t.readable(&who, path)
	if code != OK {
		return Stat{}, code
	}
	return t.full(n), OK
}

// GetData gives a node's data (nil is null, which is not empty) and Stat. The
// data is a view: it never changes, and nobody may change it.
func (t *Tree) GetData(who Who, path string) ([]byte, Stat, Code) {
	n, code := t.readable(&who, path)
	if code != OK {
		return nil, Stat{}, code
	}
	return t.data(n), t.full(n), OK
}

// GetChildren gives the names of a node's children, sorted, and its Stat.
func (t *Tree) GetChildren(who Who, path string) ([]string, Stat, Code) {
	n, code := t.readable(&who, path)
	if code != OK {
		return nil, Stat{}, code
	}
	kids := t.children(n)
	return t.names(make([]string, 0, len(kids)), kids), t.full(n), OK
}

// AppendChildren is GetChildren into the memory of dst.
func (t *Tree) AppendChildren(dst []string, who Who, path string) ([]string, Stat, Code) {
	n, code := t.readable(&who, path)
	if code != OK {
		return dst, Stat{}, code
	}
	return t.names(dst, t.children(n)), t.full(n), OK
}

func (t *Tree) names(dst []string, kids []uint32) []string {
	for _, id := range kids {
		dst = append(dst, t.name(t.nodes.at(id)))
	}
	return dst
}

// GetACL gives a node's ACL; READ or ADMIN is needed. Without ADMIN the
// hashes of digest ids are masked.
func (t *Tree) GetACL(who Who, path string) ([]ACL, Stat, Code) {
	n := t.node(path)
	switch {
	case n == nil:
		return nil, Stat{}, NoNode
	case t.may(&who, PermAdmin, n.acl):
		return t.acls.entries(n.acl), t.full(n), OK
	case !t.may(&who, PermRead, n.acl):
		return nil, Stat{}, NoAuth
	}
	masked := slices.Clone(t.acls.entries(n.acl))
	for i, a := range masked {
		if user, _, ok := strings.Cut(a.ID, ":"); ok && a.Scheme == "digest" {
			masked[i].ID = user + ":x"
		}
	}
	return masked, t.full(n), OK
}

// CountDescendants is the number of nodes below path.
func (t *Tree) CountDescendants(who Who, path string) (int, Code) {
	n, code := t.readable(&who, path)
	if code != OK {
		return 0, code
	}
	return int(t.look(n).below), OK
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

// Walk visits every node: parents first, the children of each sorted by name.
func (t *Tree) Walk(visit func(Saved)) {
	c := t.Cursor()
	for batch := c.Next(walkBatch); batch != nil; batch = c.Next(walkBatch) {
		for _, s := range batch {
			visit(s)
		}
	}
}

const walkBatch = 512

func (t *Tree) saved(path string, n *node) Saved {
	e := t.look(n)
	s := Saved{Path: path, Data: t.data(n), ACL: t.acls.entries(n.acl), Mode: n.kind(), Created: e.created, Stat: t.full(n)}
	if s.Mode == PersistentTTL {
		s.TTL = e.owner
	}
	return s
}

// Restore puts a node in as it was saved: no zxid, no watch, no creation
// counted. Its parent must be there. An ephemeral's session need not: a
// snapshot that was taken while writes went on may hold nodes of a session
// whose opening is still to be replayed (RemoveOrphans). A node that is there
// already is replaced, its children stay.
func (t *Tree) Restore(s Saved) error {
	if fault := pathFault(s.Path); fault != "" {
		return fmt.Errorf("restore %q: the path %s", s.Path, fault)
	}
	if s.Path == "/" && s.Mode != Persistent {
		return fmt.Errorf("restore /: the root is persistent, not of mode %d", s.Mode)
	}
	id := t.find(s.Path)
	if id == 0 {
		parent, name := split(s.Path)
		above := t.find(parent)
		if above == 0 {
			return fmt.Errorf("restore %s: its parent is missing", s.Path)
		}
		id, _ = t.plant(t.index.hash(s.Path), above, s.Path, name, s.Data, t.acls.internOpen(s.ACL))
	} else {
		t.overwrite(id, s)
	}
	n := t.nodes.at(id)
	n.czxid, n.mzxid, n.ctime, n.mtime, n.version = s.Stat.Czxid, s.Stat.Mzxid, s.Stat.Ctime, s.Stat.Mtime, s.Stat.Version
	if s.Stat.Pzxid != n.czxid || s.Created != 0 || s.Stat.Aversion != 0 || n.extra != 0 {
		e := t.ext(n)
		e.pzxid, e.created, e.aversion = s.Stat.Pzxid, s.Created, s.Stat.Aversion
	}
	owner := s.TTL
	if s.Mode == Ephemeral {
		owner = s.Stat.EphemeralOwner
	}
	t.become(id, n, s.Mode, owner)
	t.zxid = max(t.zxid, s.Stat.Czxid, s.Stat.Mzxid, s.Stat.Pzxid)
	return nil
}

// overwrite gives a node new data and a new access list, and unlists it.
func (t *Tree) overwrite(id uint32, s Saved) {
	n := t.nodes.at(id)
	t.unlist(n)
	acl := t.acls.internOpen(s.ACL)
	t.acls.release(n.acl)
	n.acl = acl
	t.setData(id, n, s.Data)
}

// setData replaces a node's data for good.
func (t *Tree) setData(id uint32, n *node, data []byte) {
	pg, off := n.page, n.off
	t.size += int64(len(data) - t.dataLen(n))
	t.write(id, n, t.name(n), data)
	t.texts.release(pg, off)
	t.compact()
}

// pathFault is ZooKeeper's rule for a path that may be created
// (spec/zookeeper.md §4.5): "", or what is wrong with it.
func pathFault(path string) string {
	switch {
	case path == "":
		return "is empty"
	case path[0] != '/':
		return "does not begin with /"
	case path == "/":
		return ""
	case path[len(path)-1] == '/':
		return "ends with /"
	}
	odd, begin := false, 1
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			odd = odd || path[i] <= 0x1F || path[i] >= 0x7F
			continue
		}
		switch path[begin:i] {
		case "":
			return "has an empty part"
		case ".", "..":
			return "has a relative part"
		}
		begin = i + 1
	}
	if odd && strings.ContainsFunc(path, forbidden) {
		return "has a character that no path may have"
	}
	return ""
}

// forbidden: D800-F8FF covers the UTF-16 surrogates, so everything above FFFF too.
func forbidden(r rune) bool {
	return r <= 0x1F || r >= 0x7F && r <= 0x9F || r >= 0xD800 && r <= 0xF8FF || r >= 0xFFF0
}
