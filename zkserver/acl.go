package zkserver

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// Permissions of an ACL entry.
const (
	PermRead int32 = 1 << iota
	PermWrite
	PermCreate
	PermDelete
	PermAdmin
	PermAll int32 = 31
)

// ACL is one entry of a node's access list.
type ACL = zkwire.ACL

// OpenACL lets everyone do everything.
func OpenACL() []ACL { return []ACL{{Perms: PermAll, Scheme: "world", ID: "anyone"}} }

// Identity is one proven identity of a client: (ip, address), (digest,
// user:hash) or (super, "").
type Identity struct{ Scheme, ID string }

// Who asks: the session that writes belong to, and the identities that
// permissions are checked against.
type Who struct {
	Session    int64
	Identities []Identity
}

// may tells whether any entry grants any of the wanted permissions.
func (w Who) may(want int32, acl []ACL) bool { return Permits(w.Identities, want, acl) }

// Permits tells whether an access list grants a permission to somebody with
// these identities. The server also asks it before it delivers a watch notice.
func Permits(ids []Identity, want int32, acl []ACL) bool {
	for _, id := range ids {
		if id.Scheme == "super" {
			return true
		}
	}
	for _, a := range acl {
		if a.Perms&want == 0 {
			continue
		}
		if a.Scheme == "world" {
			return true
		}
		for _, id := range ids {
			if id.Scheme == a.Scheme && matches(a, id) {
				return true
			}
		}
	}
	return false
}

func matches(a ACL, id Identity) bool {
	if a.Scheme != "ip" {
		return a.ID == id.ID
	}
	addr, err := netip.ParseAddr(id.ID)
	if err != nil {
		return false
	}
	prefix, ok := ipPrefix(a.ID)
	return ok && prefix.Contains(addr.Unmap())
}

// ipPrefix reads a.b.c.d, a.b.c.d/bits or an IPv6 address.
func ipPrefix(s string) (netip.Prefix, bool) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		return p, err == nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

// fixACL is what create and setACL do to a list before it is stored
// (spec/zookeeper.md §4.9). Nil means it is invalid.
func fixACL(who Who, acl []ACL) []ACL {
	var out []ACL
	add := func(a ACL) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, a := range acl {
		switch a.Scheme {
		case "world":
			if a.ID != "anyone" {
				return nil
			}
			add(a)
		case "auth":
			found := false
			for _, id := range who.Identities {
				if id.Scheme != "ip" && id.Scheme != "super" {
					add(ACL{Perms: a.Perms, Scheme: id.Scheme, ID: id.ID})
					found = true
				}
			}
			if !found {
				return nil
			}
		case "digest":
			if strings.Count(a.ID, ":") != 1 {
				return nil
			}
			add(a)
		case "ip":
			if _, ok := ipPrefix(a.ID); !ok {
				return nil
			}
			add(a)
		default:
			return nil
		}
	}
	return out
}
