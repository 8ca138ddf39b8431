package zkwire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// ErrTxnType: a transaction, or a part of a multi, is of a type that is not
// known; where it ends and what it did cannot be told.
var ErrTxnType = errors.New("zkwire: unknown type of transaction")

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
	Ephemeral     bool  // its owner is the transaction's session
	ParentCreated int32 // -1: not told (logs before 3.4), one more than the parent has
	TTL           int64 // ms, OpCreateTTL alone
}

// TxnDelete took a node away. Container sweeps are OpDeleteContainer.
type TxnDelete struct {
	Op   int32 // OpDelete or OpDeleteContainer
	Path string
}

// TxnSetData wrote a node. Version is the one after it. A reconfig of an
// ensemble is read as one, too: it wrote /zookeeper/config.
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

// TxnMulti is several at once. In a failed one every part is a TxnError, OK
// before the failing one.
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

// digestSize is what a server with digests puts behind the record: an int,
// the version of the digest, and the tree's digest, a long.
const digestSize = 4 + 8

// AppendTxn encodes a transaction as a log holds it, without a digest
// (spec/zookeeper.md §7). An OpCreate2 inside of a multi becomes an OpCreate,
// which did the same: servers up to 3.8.0 do not know it there.
func AppendTxn(b []byte, t *Txn) []byte {
	b = AppendInt64(b, t.Session)
	b = AppendInt32(b, t.Cxid)
	b = AppendInt64(b, t.Zxid)
	b = AppendInt64(b, t.Time)
	b = AppendInt32(b, t.Record.Type())
	return appendTxnRecord(b, t.Record)
}

func appendTxnRecord(b []byte, r TxnRecord) []byte {
	switch r := r.(type) {
	case *TxnCreate:
		return r.append(b)
	case *TxnDelete:
		return AppendString(b, r.Path)
	case *TxnSetData:
		return AppendInt32(AppendBuffer(AppendString(b, r.Path), r.Data), r.Version)
	case *TxnSetACL:
		return AppendInt32(AppendACLs(AppendString(b, r.Path), r.ACL), r.Version)
	case *TxnCheck:
		return AppendInt32(AppendString(b, r.Path), r.Version)
	case *TxnCreateSession:
		return AppendInt32(b, r.Timeout)
	case *TxnCloseSession:
		if !r.Known {
			return b
		}
		return AppendStrings(b, r.Paths)
	case *TxnError:
		return AppendInt32(b, int32(r.Err))
	case *TxnMulti:
		b = AppendInt32(b, int32(len(r.Parts)))
		for _, p := range r.Parts {
			typ := p.Type()
			if typ == OpCreate2 {
				typ = OpCreate
			}
			var mark int
			b, mark = BeginFrame(AppendInt32(b, typ)) // a buffer begins as a frame does
			b = EndFrame(appendTxnRecord(b, p), mark)
		}
	}
	return b
}

func (t *TxnCreate) append(b []byte) []byte {
	b = AppendACLs(AppendBuffer(AppendString(b, t.Path), t.Data), t.ACL)
	if t.Op == OpCreate || t.Op == OpCreate2 {
		b = AppendBool(b, t.Ephemeral)
	}
	b = AppendInt32(b, t.ParentCreated)
	if t.Op == OpCreateTTL {
		b = AppendInt64(b, t.TTL)
	}
	return b
}

// DecodeTxn reads a transaction. Nothing of it aliases b. What follows the
// record (a digest, or what a later version may add) is left out. Old logs'
// closeSession without paths and create without a count of the parent's
// creations are read as such.
func DecodeTxn(b []byte) (*Txn, error) {
	d := NewDecoder(b)
	t := &Txn{Session: d.Int64(), Cxid: d.Int32(), Zxid: d.Int64(), Time: d.Int64()}
	typ := d.Int32()
	if d.err != nil {
		return nil, fmt.Errorf("header of a transaction: %w", d.err)
	}
	t.Record = decodeTxnRecord(d, typ, false)
	if d.err != nil {
		return nil, fmt.Errorf("transaction 0x%x of type %d: %w", t.Zxid, typ, d.err)
	}
	return t, nil
}

// decodeTxnRecord reads the record of the type. Failures are left in d.
func decodeTxnRecord(d *Decoder, typ int32, part bool) TxnRecord {
	switch typ {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		return decodeTxnCreate(d, typ)
	case OpDelete, OpDeleteContainer:
		return &TxnDelete{typ, d.String()}
	case OpSetData, OpReconfig:
		return &TxnSetData{d.String(), bytes.Clone(d.Buffer()), d.Int32()}
	case OpSetACL:
		return &TxnSetACL{d.String(), d.ACLs(), d.Int32()}
	case OpCheck:
		return &TxnCheck{d.String(), d.Int32()}
	case OpCreateSession:
		return &TxnCreateSession{d.Int32()}
	case OpCloseSession:
		return decodeTxnClose(d)
	case OpError:
		return &TxnError{Err(d.Int32())}
	case OpMulti:
		if !part {
			return decodeTxnMulti(d)
		}
	}
	d.fail(fmt.Errorf("%w: %d", ErrTxnType, typ))
	return nil
}

func decodeTxnCreate(d *Decoder, typ int32) TxnRecord {
	t := &TxnCreate{Op: typ, Path: d.String(), Data: bytes.Clone(d.Buffer()), ACL: d.ACLs()}
	if typ == OpCreate || typ == OpCreate2 {
		if t.Ephemeral = d.Bool(); typ == OpCreate && d.err == nil && d.Len() == 0 {
			t.ParentCreated = -1
			return t
		}
	}
	t.ParentCreated = d.Int32()
	if typ == OpCreateTTL {
		t.TTL = d.Int64()
	}
	return t
}

// decodeTxnClose reads the paths, if they are there. Twelve bytes that begin
// with the version of a digest are one: two paths do not fit into the rest.
func decodeTxnClose(d *Decoder) TxnRecord {
	if d.err == nil && (d.Len() == 0 || d.Len() == digestSize && NewDecoder(d.b).Int32() == 2) {
		return &TxnCloseSession{}
	}
	return &TxnCloseSession{d.Strings(), true}
}

func decodeTxnMulti(d *Decoder) TxnRecord {
	n := max(d.count(8), 0)
	t := &TxnMulti{}
	for range n {
		typ, body := d.Int32(), NewDecoder(d.Buffer())
		p := decodeTxnRecord(body, typ, true)
		if d.err == nil && body.err != nil {
			d.fail(body.err)
		}
		if d.err != nil {
			return nil
		}
		t.Parts = append(t.Parts, p)
	}
	t.fail()
	return t
}

// fail makes errors of all parts if one is: Apache logs the parts before the
// failing one as if they had been done, and leaves them out when it replays.
func (t *TxnMulti) fail() {
	first := slices.IndexFunc(t.Parts, func(p TxnRecord) bool { return p.Type() == OpError })
	if first < 0 {
		return
	}
	for i, p := range t.Parts {
		switch {
		case p.Type() == OpError:
		case i < first:
			t.Parts[i] = &TxnError{}
		default:
			t.Parts[i] = &TxnError{ErrRuntimeInconsistency}
		}
	}
}
