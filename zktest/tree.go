package zktest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/zkserver"
)

// Node is a znode at one moment, seen past all access lists.
type Node struct {
	Path string
	Data []byte
	ACL  []zkserver.ACL
	Stat zkserver.Stat
}

// Node looks at a znode; ok is false where there is none.
func (z *ZooKeeper) Node(path string) (n Node, ok bool) {
	z.server.Look(func(t *zkserver.Tree) {
		data, stat, code := t.GetData(super(), path)
		if code != zkserver.OK {
			return
		}
		acl, _, _ := t.GetACL(super(), path)
		n, ok = Node{Path: path, Data: slices.Clone(data), ACL: slices.Clone(acl), Stat: stat}, true
	})
	return n, ok
}

// Data gives a znode's data as text; "" where there is none.
func (z *ZooKeeper) Data(path string) string {
	n, _ := z.Node(path)
	return string(n.Data)
}

// Exists tells whether there is a znode.
func (z *ZooKeeper) Exists(path string) bool {
	_, ok := z.Node(path)
	return ok
}

// Children lists a znode's children by name; none where there is no such znode.
func (z *ZooKeeper) Children(path string) []string {
	var names []string
	z.server.Look(func(t *zkserver.Tree) {
		children, _, _ := t.GetChildren(super(), path)
		names = slices.Sorted(slices.Values(children))
	})
	return names
}

// Paths lists all znodes from a root on, parents first. The nodes of ZooKeeper
// itself, /zookeeper and below, are left out of those of "/".
func (z *ZooKeeper) Paths(root string) []string {
	var paths []string
	z.walk(root, func(s zkserver.Saved) { paths = append(paths, s.Path) })
	return paths
}

// Dump shows znodes from a root on, one a line: path, data in quotes, version,
// and for ephemeral ones the owner. It is for people, and for golden files of
// trees without ephemerals.
func (z *ZooKeeper) Dump(root string) string {
	var b strings.Builder
	z.walk(root, func(s zkserver.Saved) {
		fmt.Fprintf(&b, "%s %q v%d", s.Path, s.Data, s.Stat.Version)
		if s.Stat.EphemeralOwner != 0 && s.Mode == zkserver.Ephemeral {
			fmt.Fprintf(&b, " owner 0x%x", s.Stat.EphemeralOwner)
		}
		b.WriteByte('\n')
	})
	return b.String()
}

// super is who may read everything.
func super() zkserver.Who {
	return zkserver.Who{Identities: []zkserver.Identity{{Scheme: "super"}}}
}

func (z *ZooKeeper) walk(root string, visit func(zkserver.Saved)) {
	root = path.Clean(root)
	z.server.Look(func(t *zkserver.Tree) {
		t.Walk(func(s zkserver.Saved) {
			switch {
			case root == "/":
				if s.Path == "/" || s.Path == "/zookeeper" || strings.HasPrefix(s.Path, "/zookeeper/") {
					return
				}
			case s.Path != root && !strings.HasPrefix(s.Path, root+"/"):
				return
			}
			visit(s)
		})
	})
}
