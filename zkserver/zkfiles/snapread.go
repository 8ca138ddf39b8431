package zkfiles

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/adler32"
	"io"
	"os"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

const (
	// openACL is the key of world:anyone with all permissions; the table does not hold it.
	openACL = -1
	// maxField is the longest string or buffer that we read from a snapshot.
	maxField = 256 << 20
	// statSize is a node's stat without what is counted: 4 longs, 3 ints, owner, pzxid.
	statSize = 4*8 + 3*4 + 2*8
	sealSize = 8 + 4 + 1
	// digestSize is a zxid, the version of the digest and the tree's digest.
	digestSize = 8 + 4 + 8
)

// snapReader reads the fields of a snapshot and sums them up. The first error
// stays; later reads give zero values.
type snapReader struct {
	path string
	br   *bufio.Reader
	sum  hash.Hash32
	off  int64
	err  error
	buf  [256]byte
}

// openSnapshot opens a snapshot, which its suffix says to be compressed or not.
func openSnapshot(path string) (*snapReader, io.Closer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read a snapshot: %w", err)
	}
	r, err := uncompressed(path, bufio.NewReaderSize(f, 256<<10))
	if err != nil {
		f.Close()
		return nil, nil, &CorruptError{Path: path, Reason: "it cannot be uncompressed", Err: err}
	}
	return &snapReader{path: path, br: r, sum: adler32.New()}, f, nil
}

func uncompressed(path string, r *bufio.Reader) (*bufio.Reader, error) {
	switch {
	case strings.HasSuffix(path, ".gz"):
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		return bufio.NewReaderSize(z, 64<<10), nil
	case strings.HasSuffix(path, ".snappy"):
		return bufio.NewReaderSize(&snappyReader{r: r}, 64<<10), nil
	}
	return r, nil
}

func (r *snapReader) fail(reason string, err error) {
	if r.err == nil {
		r.err = &CorruptError{Path: r.path, Offset: r.off, Reason: reason, Err: err}
	}
}

// fixed reads n bytes, at most 256, which hold until the next read.
func (r *snapReader) fixed(n int) []byte {
	p := r.buf[:n]
	r.fill(p)
	return p
}

func (r *snapReader) fill(p []byte) {
	if r.err == nil {
		if _, err := io.ReadFull(r.br, p); err == io.EOF || err == io.ErrUnexpectedEOF {
			r.fail("it ends inside a field", nil)
		} else if err != nil {
			r.fail("it cannot be read", err)
		}
	}
	if r.err != nil {
		clear(p)
		return
	}
	r.sum.Write(p)
	r.off += int64(len(p))
}

func (r *snapReader) int32() int32 { return int32(binary.BigEndian.Uint32(r.fixed(4))) }
func (r *snapReader) int64() int64 { return int64(binary.BigEndian.Uint64(r.fixed(8))) }

// length reads the length of a field; -1 is null.
func (r *snapReader) length() int {
	n := r.int32()
	if n < -1 || n > maxField {
		r.fail(fmt.Sprintf("a field of %d bytes is impossible", n), nil)
		return -1
	}
	return int(n)
}

// buffer reads a buffer of its own; nil is null.
func (r *snapReader) buffer() []byte {
	n := r.length()
	if n < 0 {
		return nil
	}
	const step = 1 << 20
	b := make([]byte, min(n, step))
	r.fill(b)
	for len(b) < n && r.err == nil {
		part := min(n-len(b), len(b))
		b = append(b, make([]byte, part)...)
		r.fill(b[len(b)-part:])
	}
	return b
}

func (r *snapReader) string() string {
	n := r.length()
	if n <= len(r.buf) {
		return string(r.fixed(max(n, 0)))
	}
	b := make([]byte, 0, min(n, 1<<20))
	for len(b) < n && r.err == nil {
		b = append(b, r.fixed(min(n-len(b), len(r.buf)))...)
	}
	return string(b)
}

// seal checks the checksum of all before it.
func (r *snapReader) seal() {
	sum := uint64(r.sum.Sum32())
	at := r.off
	if got := uint64(r.int64()); r.err == nil && got != sum {
		r.off = at
		r.fail("its checksum does not match its bytes", nil)
	}
	if r.string() != "/" {
		r.fail("its seal is broken", nil)
	}
}

// readSnapshot gives the whole snapshot to the recovery. fuzzyTo is the zxid up
// to which changes may be in it, 0 if the file does not tell.
func (r *recovery) readSnapshot(path string) (fuzzyTo int64, err error) {
	in, c, err := openSnapshot(path)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if h := in.fixed(headerSize); in.err == nil && string(h[:8]) != string(appendHeader(nil, snapMagic, 0)[:8]) {
		in.off = 0
		in.fail(fmt.Sprintf("it does not begin as a snapshot of ZooKeeper does (% x)", h), nil)
	}
	for n := in.int32(); n > 0 && in.err == nil; n-- {
		id, timeout := in.int64(), in.int32()
		if in.err == nil {
			r.to.Session(id, timeout)
		}
	}
	acls := in.acls()
	if err := r.nodes(in, acls); err != nil {
		return 0, err
	}
	in.seal()
	if in.err != nil {
		return 0, in.err
	}
	return r.sections(in)
}

// acls reads the table of access lists.
func (r *snapReader) acls() map[int64][]zkwire.ACL {
	table := map[int64][]zkwire.ACL{openACL: {{Perms: zkwire.PermAll, Scheme: "world", ID: "anyone"}}}
	for n := r.int32(); n > 0 && r.err == nil; n-- {
		key := r.int64()
		v := []zkwire.ACL{}
		for m := r.int32(); m > 0 && r.err == nil; m-- {
			v = append(v, zkwire.ACL{Perms: r.int32(), Scheme: r.string(), ID: r.string()})
		}
		table[key] = v
	}
	return table
}

// nodes reads all nodes, parents first; the path "/" ends them.
func (r *recovery) nodes(in *snapReader, acls map[int64][]zkwire.ACL) error {
	for first := true; ; first = false {
		at := in.off
		path := in.string()
		if in.err != nil {
			return in.err
		}
		if path == "/" {
			if first {
				in.fail("it has no root", nil)
			}
			return in.err
		}
		if path == "" {
			path = "/"
		}
		n := Node{Path: path, Data: in.buffer()}
		key := in.int64()
		n.Stat = in.stat()
		if in.err != nil {
			return in.err
		}
		if first != (path == "/") || path[0] != '/' {
			in.off = at
			in.fail(fmt.Sprintf("node %q is out of place", path), nil)
			return in.err
		}
		var known bool
		if n.ACL, known = acls[key]; !known {
			r.owed[path] = Node{Path: path, Stat: n.Stat}
		}
		if err := r.to.Node(n); err != nil {
			in.off = at
			in.fail(fmt.Sprintf("node %s does not fit", path), err)
			return in.err
		}
	}
}

func (r *snapReader) stat() zkwire.Stat {
	d := zkwire.NewDecoder(r.fixed(statSize))
	return zkwire.Stat{Czxid: d.Int64(), Mzxid: d.Int64(), Ctime: d.Int64(), Mtime: d.Int64(),
		Version: d.Int32(), Cversion: d.Int32(), Aversion: d.Int32(), EphemeralOwner: d.Int64(), Pzxid: d.Int64()}
}

// sections reads what later versions put behind the first seal, each with a
// seal of its own: the digest (3.6), the last zxid (3.9). What it does not know
// is left out: the nodes are whole.
func (r *recovery) sections(in *snapReader) (fuzzyTo int64, err error) {
	const both = digestSize + sealSize + 8 + sealSize
	rest, err := in.br.Peek(both + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		in.fail("it cannot be read", err)
		return 0, in.err
	}
	switch len(rest) {
	case 0:
	case 8 + sealSize:
		fuzzyTo = in.int64()
		in.seal()
	case digestSize + sealSize, both:
		fuzzyTo = in.int64()
		in.fixed(digestSize - 8)
		if in.seal(); len(rest) == both {
			fuzzyTo = max(fuzzyTo, in.int64())
			in.seal()
		}
	default:
		r.s.log.WithFields(logrus.Fields{"path": in.path, "offset": in.off}).Warn("the snapshot ends with bytes that are not known and left out")
	}
	return fuzzyTo, in.err
}
