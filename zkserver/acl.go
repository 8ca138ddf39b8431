package zkserver

import (
	"net/netip"
	"slices"
	"strconv"
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

// may tells whether any entry of a list grants any of the wanted permissions.
func (t *Tree) may(who *Who, want int32, acl uint32) bool {
	l := &t.acls.lists[acl]
	return l.world&want != 0 || Permits(who.Identities, want, l.entries)
}

// aclTable has every access list once, and nodes have its number. A list
// that no node has any more is forgotten.
type aclTable struct {
	lists  []aclList
	free   []uint32
	number map[string]uint32 // by the list's bytes on the wire
	key    []byte
}

type aclList struct {
	entries []ACL // never changed: results and notices share it
	world   int32 // what everyone may
	refs    int
	key     string
}

// openACL is the number of OpenACL; it is always there.
const openACL = 0

func newACLTable() aclTable {
	return aclTable{lists: []aclList{{entries: OpenACL(), world: PermAll}}, number: map[string]uint32{}}
}

func (a *aclTable) entries(acl uint32) []ACL { return a.lists[acl].entries }

func isOpen(entries []ACL) bool {
	return len(entries) == 1 && entries[0].Perms == PermAll && entries[0].Scheme == "world" && entries[0].ID == "anyone"
}

// internOpen is intern, and an absent list is the open one.
func (a *aclTable) internOpen(entries []ACL) uint32 {
	if len(entries) == 0 {
		return openACL
	}
	return a.intern(entries)
}

// intern gives the number of a list for one more node.
func (a *aclTable) intern(entries []ACL) uint32 {
	if isOpen(entries) {
		return openACL
	}
	a.key = zkwire.AppendACLs(a.key[:0], entries)
	acl, ok := a.number[string(a.key)]
	if !ok {
		acl = uint32(len(a.lists))
		if n := len(a.free); n > 0 {
			acl, a.free = a.free[n-1], a.free[:n-1]
		} else {
			a.lists = append(a.lists, aclList{})
		}
		l := aclList{entries: slices.Clone(entries), key: string(a.key)}
		for _, e := range entries {
			if e.Scheme == "world" {
				l.world |= e.Perms
			}
		}
		a.lists[acl] = l
		a.number[l.key] = acl
	}
	a.lists[acl].refs++
	return acl
}

func (a *aclTable) release(acl uint32) {
	if acl == openACL {
		return
	}
	l := &a.lists[acl]
	if l.refs--; l.refs == 0 {
		delete(a.number, l.key)
		*l = aclList{}
		a.free = append(a.free, acl)
	}
}

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

// ipPrefix reads a.b.c.d or an IPv6 address, with /bits or without. As in
// Apache's server numbers may have a sign and zeros in front, and an IPv6
// address neither a zone nor the form with dots.
func ipPrefix(s string) (netip.Prefix, bool) {
	text, suffix, short := strings.Cut(s, "/")
	a, ok := ipAddr(text)
	if !ok {
		return netip.Prefix{}, false
	}
	bits := a.BitLen()
	if short {
		n, err := strconv.ParseInt(suffix, 10, 32)
		if err != nil || n < 0 || n > int64(bits) {
			return netip.Prefix{}, false
		}
		bits = int(n)
	}
	return netip.PrefixFrom(a, bits), true
}

func ipAddr(s string) (netip.Addr, bool) {
	if strings.Contains(s, ":") {
		a, err := netip.ParseAddr(s)
		return a, err == nil && !strings.ContainsAny(s, ".%")
	}
	parts := strings.Split(s, ".")
	var b [4]byte
	if len(parts) != len(b) {
		return netip.Addr{}, false
	}
	for i, p := range parts {
		n, err := strconv.ParseInt(p, 10, 32)
		if err != nil || n < 0 || n > 255 {
			return netip.Addr{}, false
		}
		b[i] = byte(n)
	}
	return netip.AddrFrom4(b), true
}

// fixACL is what create and setACL do to a list before it is stored
// (spec/zookeeper.md §4.9). Nil means it is invalid.
func fixACL(who Who, acl []ACL) []ACL {
	var out []ACL
	add := func(a ACL) { out = append(out, a) }
	for i, a := range acl {
		if slices.Contains(acl[:i], a) {
			continue
		}
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
			if strings.Count(strings.TrimRight(a.ID, ":"), ":") != 1 { // colons at the end do not count
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
