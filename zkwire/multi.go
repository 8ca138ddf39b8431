package zkwire

import "fmt"

// Op is one operation of a multi or a multiRead. Which fields count depends on
// Type: Version for delete, setData and check; Data for create and setData; ACL
// and Flags for create; TTL for createTTL; Watch for getData and getChildren,
// where servers do not honour it.
type Op struct {
	Type    int32
	Path    string
	Data    []byte
	ACL     []ACL
	Flags   int32
	Version int32
	TTL     int64
	Watch   bool
}

// AppendMultiHeader appends what precedes each operation and each result.
func AppendMultiHeader(b []byte, typ int32, done bool, err Err) []byte {
	return AppendInt32(AppendBool(AppendInt32(b, typ), done), int32(err))
}

// AppendMultiEnd ends a multi's operations or results.
func AppendMultiEnd(b []byte) []byte { return AppendMultiHeader(b, -1, true, -1) }

// Append encodes the operation with its header.
func (o *Op) Append(b []byte) []byte {
	b = AppendMultiHeader(b, o.Type, false, -1)
	switch o.Type {
	case OpCreate, OpCreate2, OpCreateContainer:
		return (&CreateRequest{Path: o.Path, Data: o.Data, ACL: o.ACL, Flags: o.Flags}).Append(b)
	case OpCreateTTL:
		return (&CreateRequest{Path: o.Path, Data: o.Data, ACL: o.ACL, Flags: o.Flags, TTL: o.TTL}).AppendTTL(b)
	case OpDelete, OpCheck:
		return PathInt{o.Path, o.Version}.Append(b)
	case OpSetData:
		return (&SetDataRequest{o.Path, o.Data, o.Version}).Append(b)
	}
	return PathWatch{o.Path, o.Watch}.Append(b)
}

// DecodeOps reads the body of a multi or a multiRead. ErrOpType, with the type
// in its text, means that an operation of an unknown type is in it: where it
// ends cannot be known.
func DecodeOps(d *Decoder) []Op {
	var ops []Op
	for d.err == nil {
		typ, done, _ := d.Int32(), d.Bool(), d.Int32()
		if done || d.err != nil {
			break
		}
		o := Op{Type: typ}
		o.decode(d)
		ops = append(ops, o)
	}
	if d.err != nil {
		return nil
	}
	return ops
}

func (o *Op) decode(d *Decoder) {
	switch o.Type {
	case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
		var r CreateRequest
		if r.Decode(d); o.Type == OpCreateTTL {
			o.TTL = d.Int64()
		}
		o.Path, o.Data, o.ACL, o.Flags = r.Path, r.Data, r.ACL, r.Flags
	case OpDelete, OpCheck:
		var r PathInt
		r.Decode(d)
		o.Path, o.Version = r.Path, r.N
	case OpSetData:
		var r SetDataRequest
		r.Decode(d)
		o.Path, o.Data, o.Version = r.Path, r.Data, r.Version
	case OpGetData, OpGetChildren:
		var r PathWatch
		r.Decode(d)
		o.Path, o.Watch = r.Path, r.Watch
	default:
		d.fail(fmt.Errorf("%w: type %d", ErrOpType, o.Type))
	}
}

// Result is one answer of a multi or a multiRead. Type is that of the
// operation, or OpError: then only Err counts. In a failed multi every
// operation is an OpError, with OK for those before the failing one.
type Result struct {
	Type     int32
	Err      Err
	Path     string   // create
	Stat     Stat     // create2 and its kin, setData, getData
	Data     []byte   // getData
	Children []string // getChildren
}

// Append encodes the result with its header. OpCreate has only the path,
// OpCreate2 (which container and TTL creates are answered by) also the Stat.
func (r *Result) Append(b []byte) []byte {
	if r.Type == OpError {
		return AppendInt32(AppendMultiHeader(b, OpError, false, r.Err), int32(r.Err))
	}
	b = AppendMultiHeader(b, r.Type, false, OK)
	switch r.Type {
	case OpCreate:
		return AppendString(b, r.Path)
	case OpCreate2:
		return r.Stat.Append(AppendString(b, r.Path))
	case OpSetData:
		return r.Stat.Append(b)
	case OpGetData:
		return r.Stat.Append(AppendBuffer(b, r.Data))
	case OpGetChildren:
		return AppendStrings(b, r.Children)
	}
	return b // delete, check
}

// DecodeResults reads the answer to a multi or a multiRead, appending to dst.
func DecodeResults(d *Decoder, dst []Result) []Result {
	for d.err == nil {
		typ, done, _ := d.Int32(), d.Bool(), d.Int32()
		if done || d.err != nil {
			break
		}
		r := Result{Type: typ}
		r.decode(d)
		dst = append(dst, r)
	}
	if d.err != nil {
		return nil
	}
	return dst
}

func (r *Result) decode(d *Decoder) {
	switch r.Type {
	case OpError:
		r.Err = Err(d.Int32())
	case OpCreate:
		r.Path = d.String()
	case OpCreate2, OpCreateContainer, OpCreateTTL:
		r.Path = d.String()
		r.Stat.Decode(d)
	case OpSetData:
		r.Stat.Decode(d)
	case OpGetData:
		r.Data = d.Buffer()
		r.Stat.Decode(d)
	case OpGetChildren:
		r.Children = d.Strings()
	case OpDelete, OpCheck:
	default:
		d.fail(fmt.Errorf("%w: result of type %d", ErrOpType, r.Type))
	}
}
