package zkwire

// Txn is one committed transaction, as a server's log holds it. Time is ms
// since 1970, Cxid the xid of the request that asked for it. An attempt that
// failed is a transaction too (TxnError): it cost a zxid.
type Txn struct {
	Session int64
	Cxid    int32
	Zxid    int64
	Time    int64
	Record  TxnRecord
}

// TxnRecord is what a transaction did; its Type is the op code that the log
// names it by.
type TxnRecord interface{ Type() int32 }

// TxnCreate made a node. The type tells the kind: OpCreate or OpCreate2,
// OpCreateContainer, OpCreateTTL. ParentCreated is the parent's count of
// creations after it (Apache calls it parentCVersion).
type TxnCreate struct {
	Op            int32
	Path          string
	Data          []byte // nil is null
	ACL           []ACL
	Ephemeral     bool // its owner is the transaction's session
	ParentCreated int32
	TTL           int64 // ms, OpCreateTTL alone
}

// TxnDelete took a node away. Container sweeps are OpDeleteContainer.
type TxnDelete struct {
	Op   int32 // OpDelete or OpDeleteContainer
	Path string
}

// TxnSetData wrote a node. Version is the one after it.
type TxnSetData struct {
	Path    string
	Data    []byte
	Version int32
}

// TxnSetACL changed a node's access list. Version is the aversion after it.
type TxnSetACL struct {
	Path    string
	ACL     []ACL
	Version int32
}

// TxnCheck is a check that held, inside a multi.
type TxnCheck struct {
	Path    string
	Version int32
}

// TxnCreateSession opened a session. Timeout is in ms.
type TxnCreateSession struct{ Timeout int32 }

// TxnCloseSession ended a session with its ephemerals. Old logs leave the
// paths out (Known false): then all that the session owns go.
type TxnCloseSession struct {
	Paths []string
	Known bool
}

// TxnError is an attempt that failed.
type TxnError struct{ Err Err }

// TxnMulti is several at once. In a failed one every part is a TxnError.
type TxnMulti struct{ Parts []TxnRecord }

// Type is the op code that the log names the record by.
func (t *TxnCreate) Type() int32 { return t.Op }

// Type is the op code that the log names the record by.
func (t *TxnDelete) Type() int32 { return t.Op }

// Type is the op code that the log names the record by.
func (*TxnSetData) Type() int32 { return OpSetData }

// Type is the op code that the log names the record by.
func (*TxnSetACL) Type() int32 { return OpSetACL }

// Type is the op code that the log names the record by.
func (*TxnCheck) Type() int32 { return OpCheck }

// Type is the op code that the log names the record by.
func (*TxnCreateSession) Type() int32 { return OpCreateSession }

// Type is the op code that the log names the record by.
func (*TxnCloseSession) Type() int32 { return OpCloseSession }

// Type is the op code that the log names the record by.
func (*TxnError) Type() int32 { return OpError }

// Type is the op code that the log names the record by.
func (*TxnMulti) Type() int32 { return OpMulti }
