package zkpaths

import "fmt"

// ACLEntry is one rule in /kafka-acl/<ResourceType>/<name>.
type ACLEntry struct {
	Principal      string // User:alice
	PermissionType string // Allow or Deny
	Operation      string
	Host           string // * is any
}

// EncodeACLs gives the payload of an ACL node, entries in the order given.
func EncodeACLs(acls []ACLEntry) []byte {
	b := append(make([]byte, 0, 32+96*len(acls)), `{"version":1,"acls":[`...)
	for i, a := range acls {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"principal":`...)
		b = appendText(b, a.Principal)
		b = append(b, `,"permissionType":`...)
		b = appendText(b, a.PermissionType)
		b = append(b, `,"operation":`...)
		b = appendText(b, a.Operation)
		b = append(b, `,"host":`...)
		b = append(appendText(b, a.Host), '}')
	}
	return append(b, ']', '}')
}

// DecodeACLs reads the ACL node at path.
func DecodeACLs(path string, data []byte) ([]ACLEntry, error) {
	o, err := parseObject(data)
	if err != nil {
		return nil, aclError(path, err)
	}
	list, err := o.list("acls")
	if err != nil {
		return nil, aclError(path, err)
	}
	acls := make([]ACLEntry, len(list))
	for i, raw := range list {
		entry, err := asObject(raw)
		for _, f := range []struct {
			name string
			to   *string
		}{{"principal", &acls[i].Principal}, {"permissionType", &acls[i].PermissionType}, {"operation", &acls[i].Operation}, {"host", &acls[i].Host}} {
			if err == nil {
				*f.to, err = entry.text(f.name)
			}
		}
		if err != nil {
			return nil, aclError(path, fmt.Errorf("entry %d of \"acls\": %w", i, err))
		}
	}
	return acls, nil
}

func aclError(path string, err error) error {
	return &PayloadError{Path: path, Reason: err.Error(), Remedy: "no rule in it is known; write it again with kafka-acls"}
}

// DelegationToken is the payload of /delegation_token/tokens/<id>. Its times
// are milliseconds.
type DelegationToken struct {
	Version         int
	Owner           string
	Requester       string // "" below version 3
	Renewers        []string
	IssueTimestamp  int64
	MaxTimestamp    int64
	ExpiryTimestamp int64
	TokenID         string
}

// DecodeDelegationToken reads the token at path, of any version. Nobody but
// brokers writes tokens.
func DecodeDelegationToken(path string, data []byte) (DelegationToken, error) {
	t, err := decodeDelegationToken(data)
	if err != nil {
		return DelegationToken{}, &PayloadError{Path: path, Reason: err.Error(),
			Remedy: "the token cannot be used; remove the node and ask for another"}
	}
	return t, nil
}

func decodeDelegationToken(data []byte) (t DelegationToken, err error) {
	o, err := parseObject(data)
	if err != nil {
		return t, err
	}
	version, err := o.int32("version")
	if err != nil {
		return t, err
	}
	t.Version = int(version)
	if t.Owner, err = o.text("owner"); err != nil {
		return t, err
	}
	if o.has("tokenRequester") {
		if t.Requester, err = o.text("tokenRequester"); err != nil {
			return t, err
		}
	}
	renewers, err := o.list("renewers")
	if err != nil {
		return t, err
	}
	for _, raw := range renewers {
		r, err := asText(raw)
		if err != nil {
			return t, field("renewers", err)
		}
		t.Renewers = append(t.Renewers, r)
	}
	if t.IssueTimestamp, err = o.textInteger("issueTimestamp"); err != nil {
		return t, err
	}
	if t.MaxTimestamp, err = o.textInteger("maxTimestamp"); err != nil {
		return t, err
	}
	if t.ExpiryTimestamp, err = o.textInteger("expiryTimestamp"); err != nil {
		return t, err
	}
	t.TokenID, err = o.text("tokenId")
	return t, err
}
