package zkstore

import (
	"strings"

	"github.com/go-zookeeper/zk"
)

// aclFor is the ACL of a new node, by its path without the chroot: open, or
// with SecureACL creator-all and world-read, without the latter where secrets
// are (spec/controller.md §1.0).
func (s *Session) aclFor(path string) []zk.ACL {
	switch {
	case !s.opt.SecureACL || isUnder(path, "/consumers"):
		return s.acls.open
	case isUnder(path, "/config/users"), isUnder(path, "/config/brokers"), isUnder(path, "/delegation_token/tokens"):
		return s.acls.secret
	}
	return s.acls.secure
}

type aclSet struct{ open, secure, secret []zk.ACL }

func newACLs() aclSet {
	creator := zk.AuthACL(zk.PermAll)
	return aclSet{
		open:   zk.WorldACL(zk.PermAll),
		secure: append(creator[:len(creator):len(creator)], zk.WorldACL(zk.PermRead)...),
		secret: creator,
	}
}

func isUnder(path, root string) bool {
	return path == root || strings.HasPrefix(path, root) && path[len(root)] == '/'
}

// aclBytes is the size of an ACL list on the wire.
func aclBytes(acl []zk.ACL) int {
	n := 4
	for _, a := range acl {
		n += 4 + 4 + len(a.Scheme) + 4 + len(a.ID)
	}
	return n
}
