package zkserver

import (
	"cmp"
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// auth adds an identity to the connection (spec/zookeeper.md §4.9). Its answer
// has zxid 0; a scheme that nobody can prove ends the connection.
func (c *conn) auth(xid int32, d *zkwire.Decoder) {
	var req zkwire.AuthRequest
	if req.Decode(d); d.Err() != nil {
		c.complain("an auth request cannot be read", d.Err())
		c.closing = true
		return
	}
	switch req.Scheme {
	case "digest":
		if req.Auth == nil { // null credentials prove nothing, empty ones a user without a name
			break
		}
		for _, id := range c.s.digest(asText(string(req.Auth))) {
			if !slices.Contains(c.who.Identities, id) {
				// Identities that answers may still point to are not changed in place.
				c.who.Identities = inApacheOrder(append(slices.Clone(c.who.Identities), id))
			}
		}
		c.reply(xid, 0, zkwire.OK)
		return
	case "ip":
		c.reply(xid, 0, zkwire.OK)
		return
	}
	c.reply(xid, 0, zkwire.ErrAuthFailed)
	c.closing = true
}

// inApacheOrder puts identities in the order in which Apache tells of them and
// puts them into access lists of the scheme auth: it keeps them in a hash
// table, whose places are twice as many whenever three quarters are taken.
func inApacheOrder(ids []Identity) []Identity {
	size := uint32(16)
	for len(ids) >= int(size)*3/4 {
		size *= 2
	}
	place := func(id Identity) uint32 {
		h := (17*37+javaHash(id.Scheme))*37 + javaHash(id.ID)
		return (h ^ h>>16) & (size - 1)
	}
	slices.SortStableFunc(ids, func(a, b Identity) int { return cmp.Compare(place(a), place(b)) })
	return ids
}

// javaHash is the hash of a Java string.
func javaHash(s string) uint32 {
	h := uint32(0)
	for _, u := range utf16.Encode([]rune(s)) {
		h = h*31 + uint32(u)
	}
	return h
}

// digest gives the identities that user:password proves.
func (s *Server) digest(credentials string) []Identity {
	user, _, _ := strings.Cut(credentials, ":")
	sum := sha1.Sum([]byte(credentials))
	id := Identity{Scheme: "digest", ID: user + ":" + base64.StdEncoding.EncodeToString(sum[:])}
	if s.o.SuperDigest != "" && id.ID == s.o.SuperDigest {
		return []Identity{{Scheme: "super"}, id}
	}
	return []Identity{id}
}

// whoAmI lists the connection's identities without their secrets.
func (c *conn) whoAmI() []zkwire.ClientInfo {
	var infos []zkwire.ClientInfo
	for _, id := range c.who.Identities {
		user := id.ID
		if id.Scheme == "digest" {
			user, _, _ = strings.Cut(user, ":")
		}
		infos = append(infos, zkwire.ClientInfo{Scheme: id.Scheme, User: user})
	}
	return infos
}
