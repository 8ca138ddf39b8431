package zkwire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// record is what every type here can do.
type record interface {
	Append([]byte) []byte
	Decode(*Decoder)
}

func str(t *rapid.T) string { return rapid.StringN(0, 12, -1).Draw(t, "string") }
func i32(t *rapid.T) int32  { return rapid.Int32().Draw(t, "int") }
func i64(t *rapid.T) int64  { return rapid.Int64().Draw(t, "long") }
func boo(t *rapid.T) bool   { return rapid.Bool().Draw(t, "bool") }

// buf may be null or empty, which must stay apart.
func buf(t *rapid.T) []byte {
	if boo(t) {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "buffer")
}

func strs(t *rapid.T) []string {
	n := rapid.IntRange(0, 4).Draw(t, "count")
	v := make([]string, n)
	for i := range v {
		v[i] = str(t)
	}
	return v
}

func acls(t *rapid.T) []ACL {
	v := make([]ACL, rapid.IntRange(0, 3).Draw(t, "count"))
	for i := range v {
		v[i] = ACL{Perms: i32(t), Scheme: str(t), ID: str(t)}
	}
	return v
}

func stat(t *rapid.T) Stat {
	return Stat{Czxid: i64(t), Mzxid: i64(t), Ctime: i64(t), Mtime: i64(t), Version: i32(t), Cversion: i32(t), Aversion: i32(t),
		EphemeralOwner: i64(t), DataLength: i32(t), NumChildren: i32(t), Pzxid: i64(t)}
}

// TestRoundTrip: what was encoded is read back, to the last byte.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := stat(t)
		ro := boo(t)
		pairs := []struct{ in, out record }{
			{&ConnectRequest{i32(t), i64(t), i32(t), i64(t), buf(t), ro && boo(t), ro}, &ConnectRequest{}},
			{&ConnectResponse{i32(t), i32(t), i64(t), buf(t), ro && boo(t), ro}, &ConnectResponse{}},
			{&RequestHeader{i32(t), i32(t)}, &RequestHeader{}},
			{&ReplyHeader{i32(t), i64(t), Err(i32(t))}, &ReplyHeader{}},
			{&st, &Stat{}},
			{&PathWatch{str(t), boo(t)}, &PathWatch{}},
			{&PathInt{str(t), i32(t)}, &PathInt{}},
			{&SetDataRequest{str(t), buf(t), i32(t)}, &SetDataRequest{}},
			{&CreateRequest{Path: str(t), Data: buf(t), ACL: acls(t), Flags: i32(t)}, &CreateRequest{}},
			{&SetACLRequest{str(t), acls(t), i32(t)}, &SetACLRequest{}},
			{&SetWatches{RelativeZxid: i64(t), Data: strs(t), Exist: strs(t), Child: strs(t)}, &SetWatches{}},
			{&AuthRequest{i32(t), str(t), buf(t)}, &AuthRequest{}},
			{&ReconfigRequest{buf(t), buf(t), buf(t), i64(t)}, &ReconfigRequest{}},
			{&DataReply{buf(t), st}, &DataReply{}},
			{&ChildrenReply{strs(t), st}, &ChildrenReply{}},
			{&CreateReply{str(t), st}, &CreateReply{}},
			{&ACLReply{acls(t), st}, &ACLReply{}},
			{&WatcherEvent{i32(t), i32(t), str(t)}, &WatcherEvent{}},
		}
		for _, p := range pairs {
			b := p.in.Append([]byte("before"))
			d := NewDecoder(b[6:])
			if p.out.Decode(d); d.Err() != nil || d.Len() != 0 {
				t.Fatalf("%T: %v, %d bytes left", p.in, d.Err(), d.Len())
			}
			if diff := cmp.Diff(p.in, p.out); diff != "" {
				t.Fatalf("%T (-in +out):\n%s", p.in, diff)
			}
			// Cut anywhere, it is an error, unless the cut leaves out the optional end.
			cut := rapid.IntRange(0, len(b)-7).Draw(t, "cut")
			d = NewDecoder(b[6 : 6+cut])
			if p.out.Decode(d); d.Err() == nil && !(ro && cut == len(b)-7) {
				t.Fatalf("%T: cut to %d of %d bytes, and no error", p.in, cut, len(b)-6)
			}
		}
	})
}

func TestMultiRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ops []Op
		var results []Result
		var b, rb []byte
		for range rapid.IntRange(0, 6).Draw(t, "ops") {
			o := Op{Type: rapid.SampledFrom([]int32{1, 2, 4, 5, 8, 13, 15, 19, 21}).Draw(t, "type"), Path: str(t)}
			r := Result{Type: o.Type}
			switch o.Type {
			case OpCreate, OpCreate2, OpCreateContainer, OpCreateTTL:
				o.Data, o.ACL, o.Flags = buf(t), acls(t), i32(t)
				if o.Type == OpCreateTTL {
					o.TTL = i64(t)
				}
				if r.Path = str(t); o.Type != OpCreate {
					r.Type, r.Stat = OpCreate2, stat(t)
				}
			case OpDelete, OpCheck:
				o.Version = i32(t)
			case OpSetData:
				o.Data, o.Version, r.Stat = buf(t), i32(t), stat(t)
			case OpGetData:
				o.Watch, r.Data, r.Stat = boo(t), buf(t), stat(t)
			case OpGetChildren:
				o.Watch, r.Children = boo(t), strs(t)
			}
			if rapid.IntRange(0, 4).Draw(t, "failed") == 0 {
				r = Result{Type: OpError, Err: Err(i32(t))}
			}
			ops, results = append(ops, o), append(results, r)
			b, rb = o.Append(b), r.Append(rb)
		}
		d := NewDecoder(AppendMultiEnd(b))
		if diff := cmp.Diff(ops, DecodeOps(d)); diff != "" || d.Err() != nil || d.Len() != 0 {
			t.Fatalf("ops: %v %s", d.Err(), diff)
		}
		d = NewDecoder(AppendMultiEnd(rb))
		if diff := cmp.Diff(results, DecodeResults(d, nil)); diff != "" || d.Err() != nil || d.Len() != 0 {
			t.Fatalf("results: %v %s", d.Err(), diff)
		}
	})
}

// TestBytes holds layouts against bytes as measured (spec/zookeeper.md §4.1–4.8).
func TestBytes(t *testing.T) {
	cases := []struct {
		name string
		got  []byte
		want string
	}{
		{"old connect request, 44 bytes", (&ConnectRequest{Timeout: 2000, Password: make([]byte, 16)}).Append(nil),
			"00000000 0000000000000000 000007d0 0000000000000000 00000010 00000000000000000000000000000000"},
		{"ping", RequestHeader{XidPing, OpPing}.Append(nil), "fffffffe 0000000b"},
		{"null and empty data", AppendBuffer(AppendBuffer(nil, nil), []byte{}), "ffffffff 00000000"},
		{"create /a null open", (&CreateRequest{Path: "/a", ACL: []ACL{{31, "world", "anyone"}}}).Append(nil),
			"00000002 2f61 ffffffff 00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000000"},
		{"multi of one check", AppendMultiEnd((&Op{Type: OpCheck, Path: "/a", Version: 3}).Append(nil)),
			"0000000d 00 ffffffff 00000002 2f61 00000003 ffffffff 01 ffffffff"},
		{"failed operation of a multi", (&Result{Type: OpError, Err: ErrBadVersion}).Append(nil),
			"ffffffff 00 ffffff99 ffffff99"},
		{"notice", (&WatcherEvent{NodeDataChanged, StateSyncConnected, "/a"}).Append(ReplyHeader{-1, -1, 0}.Append(nil)),
			"ffffffff ffffffffffffffff 00000000 00000003 00000003 00000002 2f61"},
		{"vectors are never null", AppendStrings(AppendACLs(nil, nil), nil), "00000000 00000000"},
	}
	for _, c := range cases {
		if want := strings.ReplaceAll(c.want, " ", ""); hex.EncodeToString(c.got) != want {
			t.Errorf("%s:\n got %x\nwant %s", c.name, c.got, want)
		}
	}
	var st Stat
	if n := len(st.Append(nil)); n != StatSize {
		t.Errorf("a Stat has %d bytes, want %d", n, StatSize)
	}
}

// TestBadLengths: lengths that lie are errors, null is none, and a vector below that is empty, as in Java.
func TestBadLengths(t *testing.T) {
	at := func(n int32, rest ...byte) *Decoder {
		return NewDecoder(append(AppendInt32(nil, n), rest...))
	}
	cases := []struct {
		name string
		err  error
		read func() error
	}{
		{"buffer -2", ErrLength, func() error { d := at(-2); d.Buffer(); return d.Err() }},
		{"buffer too long", ErrShort, func() error { d := at(9, 1, 2); d.Buffer(); return d.Err() }},
		{"string min int", ErrLength, func() error { d := at(-1 << 31); _ = d.String(); return d.Err() }},
		{"null string", nil, func() error { d := at(-1); _ = d.String(); return d.Err() }},
		{"vector of 2^31-1", ErrLength, func() error { d := at(1<<31 - 1); d.Strings(); return d.Err() }},
		{"vector of -5", nil, func() error { d := at(-5); d.ACLs(); return d.Err() }},
		{"null vector", nil, func() error { d := at(-1); d.Strings(); return d.Err() }},
		{"multi without end", ErrShort, func() error { d := NewDecoder(nil); DecodeOps(d); return d.Err() }},
		{"ping in a multi", ErrOpType, func() error {
			d := NewDecoder(AppendMultiHeader(nil, OpPing, false, -1))
			DecodeOps(d)
			return d.Err()
		}},
	}
	for _, c := range cases {
		if err := c.read(); !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
		}
	}
}

func TestFrames(t *testing.T) {
	b, mark := BeginFrame([]byte("x"))
	b = EndFrame(append(b, "hello"...), mark)
	got, err := ReadFrame(bytes.NewReader(b[1:]), nil, 5)
	if err != nil || string(got) != "hello" {
		t.Fatalf("%q %v", got, err)
	}
	if _, err := ReadFrame(bytes.NewReader(b[1:]), nil, 4); !errors.Is(err, ErrFrameSize) {
		t.Fatalf("a frame above the limit: %v", err)
	}
	if _, err := ReadFrame(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}), nil, 1<<30); !errors.Is(err, ErrFrameSize) {
		t.Fatalf("a negative frame: %v", err)
	}
	if _, err := ReadFrame(bytes.NewReader(b[1:7]), nil, 100); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("a frame cut off: %v", err)
	}
	// A length of a gigabyte with nothing behind it costs one step.
	lie := AppendInt32(nil, 1<<30)
	if n := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ReadFrame(bytes.NewReader(lie), nil, 1<<30)
		}
	}).AllocedBytesPerOp(); n > 1<<20 {
		t.Fatalf("a lying length allocated %d bytes", n)
	}
}

// FuzzDecode gives any bytes to every decoder: no panic, and what they allocate
// is bounded by what they were given.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add((&Op{Type: OpCreate, Path: "/a", Data: []byte("x"), ACL: []ACL{{31, "world", "anyone"}}}).Append(nil))
	f.Add((&Result{Type: OpGetChildren, Children: []string{"a", "b"}}).Append(nil))
	f.Add((&SetWatches{Data: []string{"/a"}, Exist: []string{"/b"}}).Append2(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, r := range []record{&ConnectRequest{}, &ConnectResponse{}, &RequestHeader{}, &ReplyHeader{},
			&Stat{}, &PathWatch{}, &PathInt{}, &SetDataRequest{}, &CreateRequest{}, &SetACLRequest{},
			&SetWatches{}, &AuthRequest{}, &ReconfigRequest{}, &DataReply{}, &ChildrenReply{},
			&CreateReply{}, &ACLReply{}, &WatcherEvent{}} {
			r.Decode(NewDecoder(b))
		}
		new(SetWatches).Decode2(NewDecoder(b))
		new(CreateRequest).DecodeTTL(NewDecoder(b))
		NewDecoder(b).ClientInfos()
		if ops := DecodeOps(NewDecoder(b)); len(ops) > len(b)/9 {
			t.Fatalf("%d operations out of %d bytes", len(ops), len(b))
		}
		d := NewDecoder(b)
		rs := DecodeResults(d, nil)
		if len(rs) > len(b)/9 {
			t.Fatalf("%d results out of %d bytes", len(rs), len(b))
		}
		if d.Err() == nil { // what was understood is encoded to something understood alike
			var again []byte
			for i := range rs {
				again = rs[i].Append(again)
			}
			back := DecodeResults(NewDecoder(AppendMultiEnd(again)), nil)
			if len(back) != len(rs) {
				t.Fatalf("%d results became %d", len(rs), len(back))
			}
		}
		if p, err := ReadFrame(bytes.NewReader(b), nil, 1<<20); err == nil && len(p) > len(b) {
			t.Fatalf("a frame of %d bytes out of %d", len(p), len(b))
		}
	})
}

func BenchmarkMultiRead(b *testing.B) {
	var body, reply []byte
	for range 500 {
		body = (&Op{Type: OpGetData, Path: "/brokers/topics/orders/partitions/12/state"}).Append(body)
		reply = (&Result{Type: OpGetData, Data: make([]byte, 80)}).Append(reply)
	}
	reply = AppendMultiEnd(reply)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		out := make([]byte, 0, len(body)*2)
		for b.Loop() {
			out = out[:0]
			for range 500 {
				out = (&Op{Type: OpGetData, Path: "/brokers/topics/orders/partitions/12/state"}).Append(out)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var rs []Result
		for b.Loop() {
			rs = DecodeResults(NewDecoder(reply), rs[:0])
		}
	})
}
