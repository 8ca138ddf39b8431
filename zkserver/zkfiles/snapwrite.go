package zkfiles

import (
	"bufio"
	"errors"
	"fmt"
	"hash"
	"hash/adler32"
	"io"
	"os"
	"path/filepath"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// SnapshotWriter writes one snapshot: first the sessions, then the nodes,
// parents first, the root before all; then Commit or Abort. The tree may change
// meanwhile, as long as each change is appended to the Store.
type SnapshotWriter struct {
	s        *Store
	zxid     int64
	sessions []byte
	count    int32
	keys     map[string]int64 // encoded access lists
	table    []byte
	nodes    *os.File // beside the file, since the table comes before the nodes
	w        *bufio.Writer
	sum      hash.Hash32
	size     int64
	scratch  []byte
	begun    bool
	err      error
}

// BeginSnapshot begins a snapshot that holds all up to zxid, which was appended
// already. The next Append begins a new log, so that the old ones can be purged.
// It does not touch the disk.
func (s *Store) BeginSnapshot(zxid int64) (*SnapshotWriter, error) {
	s.mu.Lock()
	busy, failed := s.snapping, s.failed
	if !busy && !failed {
		s.roll, s.snapping = true, true
	}
	s.mu.Unlock()
	switch {
	case busy:
		return nil, errors.New("begin a snapshot: one is being written already")
	case failed:
		return nil, errors.New("begin a snapshot: the store is closed, or its log cannot be written")
	}
	return &SnapshotWriter{s: s, zxid: zxid, keys: map[string]int64{}, sum: adler32.New()}, nil
}

// create makes the file of the nodes, with the first of them: BeginSnapshot is
// called under the server's lock, which does not wait for a disk.
func (w *SnapshotWriter) create() (err error) {
	if w.nodes, err = os.Create(w.temporary("nodes")); err != nil {
		return fmt.Errorf("begin snapshot 0x%x: %w", w.zxid, err)
	}
	w.w = bufio.NewWriterSize(w.nodes, 256<<10)
	return nil
}

func (w *SnapshotWriter) temporary(what string) string {
	return filepath.Join(w.s.snapDir, tmpPrefix+what)
}

// Session adds a session; before the first node.
func (w *SnapshotWriter) Session(id int64, timeoutMS int32) {
	w.sessions = zkwire.AppendInt32(zkwire.AppendInt64(w.sessions, id), timeoutMS)
	w.count++
}

// Node adds a node. Its path is as Recovery.Node gets it; "" is the root, too.
// The error stays until Commit, which gives it again.
func (w *SnapshotWriter) Node(n Node) error {
	if w.err != nil {
		return w.err
	}
	path := n.Path
	if path == "/" {
		path = ""
	}
	if w.begun == (path == "") {
		w.err = fmt.Errorf("snapshot 0x%x: node %q is out of place: the root comes first, and once", w.zxid, n.Path)
		return w.err
	}
	if !w.begun {
		if w.err = w.create(); w.err != nil {
			return w.err
		}
	}
	w.begun = true
	key := w.key(n.ACL)
	b := zkwire.AppendInt64(zkwire.AppendBuffer(zkwire.AppendString(w.scratch[:0], path), n.Data), key)
	b = appendStat(b, &n.Stat)
	w.scratch = b
	w.put(b)
	return w.err
}

func appendStat(b []byte, s *zkwire.Stat) []byte {
	for _, v := range [...]int64{s.Czxid, s.Mzxid, s.Ctime, s.Mtime} {
		b = zkwire.AppendInt64(b, v)
	}
	for _, v := range [...]int32{s.Version, s.Cversion, s.Aversion} {
		b = zkwire.AppendInt32(b, v)
	}
	return zkwire.AppendInt64(zkwire.AppendInt64(b, s.EphemeralOwner), s.Pzxid)
}

// key gives an access list's number in the table.
func (w *SnapshotWriter) key(acl []zkwire.ACL) int64 {
	if len(acl) == 1 && acl[0] == (zkwire.ACL{Perms: zkwire.PermAll, Scheme: "world", ID: "anyone"}) {
		return openACL
	}
	w.scratch = zkwire.AppendACLs(w.scratch[:0], acl)
	key, ok := w.keys[string(w.scratch)]
	if !ok {
		key = int64(len(w.keys) + 1)
		w.keys[string(w.scratch)] = key
		w.table = append(zkwire.AppendInt64(w.table, key), w.scratch...)
	}
	return key
}

func (w *SnapshotWriter) put(b []byte) {
	if _, err := w.w.Write(b); err != nil {
		w.err = fmt.Errorf("write snapshot 0x%x: %w; make room on the disk", w.zxid, err)
		return
	}
	w.sum.Write(b)
	w.size += int64(len(b))
}

// Commit makes the snapshot durable under its name. It waits until the log
// holds all that the nodes may show, so the snapshot never runs ahead of it.
// After an error nothing of the snapshot is left, and the log is not touched.
func (w *SnapshotWriter) Commit() error {
	err := w.err
	if err == nil && !w.begun {
		err = fmt.Errorf("snapshot 0x%x has no root", w.zxid)
	}
	if err == nil {
		_, err = w.s.Sync()
	}
	if err == nil {
		err = w.commit()
	}
	w.done()
	return err
}

// Abort leaves the snapshot out.
func (w *SnapshotWriter) Abort() { w.done() }

func (w *SnapshotWriter) done() {
	if w.nodes != nil {
		w.nodes.Close()
		os.Remove(w.nodes.Name())
		w.nodes = nil
	}
	w.err = errors.New("snapshot: it has ended")
	w.s.mu.Lock()
	w.s.snapping = false
	w.s.mu.Unlock()
}

func (w *SnapshotWriter) commit() error {
	tmp := w.temporary("snapshot")
	defer os.Remove(tmp) // gone by its name when all went well
	f, err := os.Create(tmp)
	if err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	err = w.assemble(f)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	name := filepath.Join(w.s.snapDir, fileName(snapPrefix, w.zxid))
	if err == nil {
		err = os.Rename(tmp, name)
	}
	if err == nil {
		err = syncDir(w.s.snapDir)
	}
	if err != nil {
		return fmt.Errorf("write snapshot %s: %w; make room on the disk", name, err)
	}
	w.s.mu.Lock()
	w.s.bare = false
	w.s.mu.Unlock()
	return nil
}

// assemble writes what comes before the nodes, the nodes, and the seal.
func (w *SnapshotWriter) assemble(f *os.File) error {
	w.put(zkwire.AppendString(nil, "/"))
	if w.err != nil {
		return w.err
	}
	if err := w.w.Flush(); err != nil {
		return err
	}
	head := zkwire.AppendInt32(appendHeader(nil, snapMagic, -1), w.count)
	head = append(head, w.sessions...)
	head = zkwire.AppendInt32(head, int32(len(w.keys)))
	head = append(head, w.table...)
	if _, err := f.Write(head); err != nil {
		return err
	}
	if _, err := w.nodes.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if n, err := io.Copy(f, w.nodes); err != nil || n != w.size {
		return errors.Join(err, fmt.Errorf("%d of %d bytes of nodes were copied", n, w.size))
	}
	sum := combine(adler32.Checksum(head), w.sum.Sum32(), w.size)
	_, err := f.Write(zkwire.AppendString(zkwire.AppendInt64(nil, int64(sum)), "/"))
	return err
}

// combine gives the Adler-32 of two pieces behind each other, from that of each
// and the second one's length.
func combine(a, b uint32, size int64) uint32 {
	const mod = 65521
	n := uint32(size % mod)
	a1, a2, b1, b2 := a&0xffff, a>>16, b&0xffff, b>>16
	low := (a1 + b1 + mod - 1) % mod
	// Each byte of the second piece added what the first had summed up, less the 1 that a sum begins with.
	high := (uint64(a2) + uint64(b2) + uint64(n)*uint64(a1+mod-1)) % mod
	return uint32(high)<<16 | low
}
