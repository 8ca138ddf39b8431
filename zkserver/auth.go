package zkserver

import (
	"crypto/sha1"
	"encoding/base64"
	"slices"
	"strings"

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
		for _, id := range c.s.digest(string(req.Auth)) {
			if !slices.Contains(c.who.Identities, id) {
				// Identities that answers may still point to are not changed in place.
				c.who.Identities = append([]Identity{id}, c.who.Identities...)
			}
		}
		c.reply(xid, 0, zkwire.OK)
	case "ip":
		c.reply(xid, 0, zkwire.OK)
	default:
		c.reply(xid, 0, zkwire.ErrAuthFailed)
		c.closing = true
	}
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
