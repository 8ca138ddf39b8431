package zkwire

// ConnectRequest opens or resumes a session. Old clients leave ReadOnly out;
// the answer has the field only if the request had it.
type ConnectRequest struct {
	Protocol    int32
	LastZxid    int64
	Timeout     int32 // ms
	SessionID   int64 // 0: a new one
	Password    []byte
	ReadOnly    bool
	HasReadOnly bool
}

// Append encodes the record.
func (r *ConnectRequest) Append(b []byte) []byte {
	b = AppendInt32(b, r.Protocol)
	b = AppendInt64(b, r.LastZxid)
	b = AppendInt32(b, r.Timeout)
	b = AppendInt64(b, r.SessionID)
	b = AppendBuffer(b, r.Password)
	if r.HasReadOnly {
		b = AppendBool(b, r.ReadOnly)
	}
	return b
}

// Decode reads the record, which is all that is left.
func (r *ConnectRequest) Decode(d *Decoder) {
	r.Protocol, r.LastZxid, r.Timeout, r.SessionID, r.Password = d.Int32(), d.Int64(), d.Int32(), d.Int64(), d.Buffer()
	if r.HasReadOnly = d.Len() > 0; r.HasReadOnly {
		r.ReadOnly = d.Bool()
	}
}

// ConnectResponse answers it. Timeout and SessionID 0: refused, the session is over.
type ConnectResponse struct {
	Protocol    int32
	Timeout     int32 // ms
	SessionID   int64
	Password    []byte
	ReadOnly    bool
	HasReadOnly bool
}

// Append encodes the record.
func (r *ConnectResponse) Append(b []byte) []byte {
	b = AppendInt32(b, r.Protocol)
	b = AppendInt32(b, r.Timeout)
	b = AppendInt64(b, r.SessionID)
	b = AppendBuffer(b, r.Password)
	if r.HasReadOnly {
		b = AppendBool(b, r.ReadOnly)
	}
	return b
}

// Decode reads the record, which is all that is left.
func (r *ConnectResponse) Decode(d *Decoder) {
	r.Protocol, r.Timeout, r.SessionID, r.Password = d.Int32(), d.Int32(), d.Int64(), d.Buffer()
	if r.HasReadOnly = d.Len() > 0; r.HasReadOnly {
		r.ReadOnly = d.Bool()
	}
}

// RequestHeader begins every request but the first.
type RequestHeader struct {
	Xid int32
	Op  int32
}

// Append encodes the header.
func (h RequestHeader) Append(b []byte) []byte { return AppendInt32(AppendInt32(b, h.Xid), h.Op) }

// Decode reads the header.
func (h *RequestHeader) Decode(d *Decoder) { h.Xid, h.Op = d.Int32(), d.Int32() }

// ReplyHeader begins every answer but the first, and every notice. Zxid is the
// last transaction the server had applied; a body follows only if Err is OK.
type ReplyHeader struct {
	Xid  int32
	Zxid int64
	Err  Err
}

// Append encodes the header.
func (h ReplyHeader) Append(b []byte) []byte {
	return AppendInt32(AppendInt64(AppendInt32(b, h.Xid), h.Zxid), int32(h.Err))
}

// Decode reads the header.
func (h *ReplyHeader) Decode(d *Decoder) { h.Xid, h.Zxid, h.Err = d.Int32(), d.Int64(), Err(d.Int32()) }

// Stat is a node's bookkeeping. Times are ms since 1970.
type Stat struct {
	Czxid, Mzxid, Ctime, Mtime  int64
	Version, Cversion, Aversion int32
	EphemeralOwner              int64
	DataLength, NumChildren     int32
	Pzxid                       int64
}

// StatSize is the size of a Stat in bytes.
const StatSize = 68

// Append encodes the record.
func (s *Stat) Append(b []byte) []byte {
	b = AppendInt64(b, s.Czxid)
	b = AppendInt64(b, s.Mzxid)
	b = AppendInt64(b, s.Ctime)
	b = AppendInt64(b, s.Mtime)
	b = AppendInt32(b, s.Version)
	b = AppendInt32(b, s.Cversion)
	b = AppendInt32(b, s.Aversion)
	b = AppendInt64(b, s.EphemeralOwner)
	b = AppendInt32(b, s.DataLength)
	b = AppendInt32(b, s.NumChildren)
	return AppendInt64(b, s.Pzxid)
}

// Decode reads the record.
func (s *Stat) Decode(d *Decoder) {
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime = d.Int64(), d.Int64(), d.Int64(), d.Int64()
	s.Version, s.Cversion, s.Aversion = d.Int32(), d.Int32(), d.Int32()
	s.EphemeralOwner, s.DataLength, s.NumChildren, s.Pzxid = d.Int64(), d.Int32(), d.Int32(), d.Int64()
}

// ACL is one entry of an access list.
type ACL struct {
	Perms  int32
	Scheme string
	ID     string
}

// AppendACLs appends a vector of entries; never null.
func AppendACLs(b []byte, v []ACL) []byte {
	b = AppendInt32(b, int32(len(v)))
	for _, a := range v {
		b = AppendString(AppendString(AppendInt32(b, a.Perms), a.Scheme), a.ID)
	}
	return b
}

// ACLs reads a vector of entries; nil is null.
func (d *Decoder) ACLs() []ACL {
	n := d.count(12)
	if n < 0 {
		return nil
	}
	v := make([]ACL, n)
	for i := range v {
		v[i] = ACL{d.Int32(), d.String(), d.String()}
	}
	if d.err != nil {
		return nil
	}
	return v
}

// PathWatch is the body of exists, getData, getChildren and getChildren2.
type PathWatch struct {
	Path  string
	Watch bool
}

// Append encodes the record.
func (r PathWatch) Append(b []byte) []byte { return AppendBool(AppendString(b, r.Path), r.Watch) }

// Decode reads the record.
func (r *PathWatch) Decode(d *Decoder) { r.Path, r.Watch = d.String(), d.Bool() }

// PathInt is the body of delete and check (the number is a version), of
// addWatch (a mode), and of checkWatches and removeWatches (a type). The bodies
// of sync, getACL, getEphemerals and getAllChildrenNumber, and the answer of
// create and sync, are a single string.
type PathInt struct {
	Path string
	N    int32
}

// Append encodes the record.
func (r PathInt) Append(b []byte) []byte { return AppendInt32(AppendString(b, r.Path), r.N) }

// Decode reads the record.
func (r *PathInt) Decode(d *Decoder) { r.Path, r.N = d.String(), d.Int32() }

// SetDataRequest is the body of setData.
type SetDataRequest struct {
	Path    string
	Data    []byte
	Version int32
}

// Append encodes the record.
func (r *SetDataRequest) Append(b []byte) []byte {
	return AppendInt32(AppendBuffer(AppendString(b, r.Path), r.Data), r.Version)
}

// Decode reads the record.
func (r *SetDataRequest) Decode(d *Decoder) {
	r.Path, r.Data, r.Version = d.String(), d.Buffer(), d.Int32()
}

// CreateRequest is the body of create, create2 and createContainer; for
// createTTL a TTL in ms follows, which AppendTTL and DecodeTTL have.
type CreateRequest struct {
	Path  string
	Data  []byte
	ACL   []ACL
	Flags int32
	TTL   int64
}

// Append encodes the record without its TTL.
func (r *CreateRequest) Append(b []byte) []byte {
	return AppendInt32(AppendACLs(AppendBuffer(AppendString(b, r.Path), r.Data), r.ACL), r.Flags)
}

// Decode reads the record without its TTL.
func (r *CreateRequest) Decode(d *Decoder) {
	r.Path, r.Data, r.ACL, r.Flags = d.String(), d.Buffer(), d.ACLs(), d.Int32()
}

// AppendTTL encodes the record with its TTL.
func (r *CreateRequest) AppendTTL(b []byte) []byte { return AppendInt64(r.Append(b), r.TTL) }

// DecodeTTL reads the record with its TTL.
func (r *CreateRequest) DecodeTTL(d *Decoder) { r.Decode(d); r.TTL = d.Int64() }

// SetACLRequest is the body of setACL; Version is compared with aversion.
type SetACLRequest struct {
	Path    string
	ACL     []ACL
	Version int32
}

// Append encodes the record.
func (r *SetACLRequest) Append(b []byte) []byte {
	return AppendInt32(AppendACLs(AppendString(b, r.Path), r.ACL), r.Version)
}

// Decode reads the record.
func (r *SetACLRequest) Decode(d *Decoder) {
	r.Path, r.ACL, r.Version = d.String(), d.ACLs(), d.Int32()
}

// SetWatches arms watches again after a reconnect: what changed after
// RelativeZxid is told at once, the rest is armed. The last two lists are of
// setWatches2 alone.
type SetWatches struct {
	RelativeZxid int64
	Data         []string
	Exist        []string
	Child        []string

	Persistent          []string
	PersistentRecursive []string
}

// Append encodes the body of setWatches.
func (r *SetWatches) Append(b []byte) []byte {
	return AppendStrings(AppendStrings(AppendStrings(AppendInt64(b, r.RelativeZxid), r.Data), r.Exist), r.Child)
}

// Decode reads the body of setWatches.
func (r *SetWatches) Decode(d *Decoder) {
	r.RelativeZxid, r.Data, r.Exist, r.Child = d.Int64(), d.Strings(), d.Strings(), d.Strings()
}

// Append2 encodes the body of setWatches2.
func (r *SetWatches) Append2(b []byte) []byte {
	return AppendStrings(AppendStrings(r.Append(b), r.Persistent), r.PersistentRecursive)
}

// Decode2 reads the body of setWatches2.
func (r *SetWatches) Decode2(d *Decoder) {
	r.Decode(d)
	r.Persistent, r.PersistentRecursive = d.Strings(), d.Strings()
}

// AuthRequest adds a credential to the connection. Type is 0.
type AuthRequest struct {
	Type   int32
	Scheme string
	Auth   []byte
}

// Append encodes the record.
func (r *AuthRequest) Append(b []byte) []byte {
	return AppendBuffer(AppendString(AppendInt32(b, r.Type), r.Scheme), r.Auth)
}

// Decode reads the record.
func (r *AuthRequest) Decode(d *Decoder) {
	r.Type, r.Scheme, r.Auth = d.Int32(), d.String(), d.Buffer()
}

// ReconfigRequest is the body of reconfig. The lists may be null.
type ReconfigRequest struct {
	Joining, Leaving, NewMembers []byte
	ConfigID                     int64
}

// Append encodes the record.
func (r *ReconfigRequest) Append(b []byte) []byte {
	return AppendInt64(AppendBuffer(AppendBuffer(AppendBuffer(b, r.Joining), r.Leaving), r.NewMembers), r.ConfigID)
}

// Decode reads the record.
func (r *ReconfigRequest) Decode(d *Decoder) {
	r.Joining, r.Leaving, r.NewMembers, r.ConfigID = d.Buffer(), d.Buffer(), d.Buffer(), d.Int64()
}

// DataReply answers getData, and reconfig.
type DataReply struct {
	Data []byte
	Stat Stat
}

// Append encodes the record.
func (r *DataReply) Append(b []byte) []byte { return r.Stat.Append(AppendBuffer(b, r.Data)) }

// Decode reads the record.
func (r *DataReply) Decode(d *Decoder) { r.Data = d.Buffer(); r.Stat.Decode(d) }

// ChildrenReply answers getChildren2; getChildren is answered by the strings
// alone, as is getEphemerals.
type ChildrenReply struct {
	Children []string
	Stat     Stat
}

// Append encodes the record.
func (r *ChildrenReply) Append(b []byte) []byte { return r.Stat.Append(AppendStrings(b, r.Children)) }

// Decode reads the record.
func (r *ChildrenReply) Decode(d *Decoder) { r.Children = d.Strings(); r.Stat.Decode(d) }

// CreateReply answers create2, createContainer and createTTL.
type CreateReply struct {
	Path string
	Stat Stat
}

// Append encodes the record.
func (r *CreateReply) Append(b []byte) []byte { return r.Stat.Append(AppendString(b, r.Path)) }

// Decode reads the record.
func (r *CreateReply) Decode(d *Decoder) { r.Path = d.String(); r.Stat.Decode(d) }

// ACLReply answers getACL.
type ACLReply struct {
	ACL  []ACL
	Stat Stat
}

// Append encodes the record.
func (r *ACLReply) Append(b []byte) []byte { return r.Stat.Append(AppendACLs(b, r.ACL)) }

// Decode reads the record.
func (r *ACLReply) Decode(d *Decoder) { r.ACL = d.ACLs(); r.Stat.Decode(d) }

// ClientInfo is one row of the answer to whoAmI.
type ClientInfo struct{ Scheme, User string }

// AppendClientInfos encodes the answer to whoAmI.
func AppendClientInfos(b []byte, v []ClientInfo) []byte {
	b = AppendInt32(b, int32(len(v)))
	for _, c := range v {
		b = AppendString(AppendString(b, c.Scheme), c.User)
	}
	return b
}

// ClientInfos reads the answer to whoAmI.
func (d *Decoder) ClientInfos() []ClientInfo {
	n := d.count(8)
	if n < 0 {
		return nil
	}
	v := make([]ClientInfo, n)
	for i := range v {
		v[i] = ClientInfo{d.String(), d.String()}
	}
	if d.err != nil {
		return nil
	}
	return v
}

// WatcherEvent is the body of a notice.
type WatcherEvent struct {
	Type  int32
	State int32
	Path  string
}

// Append encodes the record.
func (r *WatcherEvent) Append(b []byte) []byte {
	return AppendString(AppendInt32(AppendInt32(b, r.Type), r.State), r.Path)
}

// Decode reads the record.
func (r *WatcherEvent) Decode(d *Decoder) { r.Type, r.State, r.Path = d.Int32(), d.Int32(), d.String() }
