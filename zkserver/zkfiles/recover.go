package zkfiles

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// Node is one node of a snapshot. Stat is as the file holds it: Cversion is
// the count of creations of children, EphemeralOwner is raw (it tells container
// and TTL nodes, too), DataLength and NumChildren are 0.
type Node struct {
	Path string // "/" is the root
	Data []byte // nil is null
	ACL  []zkwire.ACL
	Stat zkwire.Stat
}

// Recovery takes what the files hold. Reset comes first, and again if a
// snapshot turns out to be unreadable and the one before it is read: it empties the tree
// to that of a fresh server. Nodes come parents first. Nobody else keeps or changes the
// slices, but nodes may share their ACL.
//
// Transactions come in the order of zxids and may have been applied already,
// in full or in part: a snapshot is written while the tree changes
// (spec/zookeeper.md §7). Such a snapshot of Apache's can lack the ACL of a
// node made meanwhile: ACL is nil then, and a TxnSetACL with the zxid of the
// node's creation follows.
type Recovery interface {
	Reset()
	Session(id int64, timeoutMS int32)
	Node(n Node) error
	Txn(t *zkwire.Txn) error
}

// recovery is one run of Recover.
type recovery struct {
	s       *Store
	to      Recovery
	last    int64 // zxid up to which all is there
	seen    int64 // zxid of the last entry read
	fresh   bool  // there is no snapshot under the logs
	fuzzyTo int64 // the snapshot may hold parts of transactions up to here
	owed    map[string]Node
}

// Recover reads the newest snapshot that is whole and the transactions behind
// it, and gives the last zxid; 0 on an empty folder. A torn tail of the last
// log, which was never acknowledged, is cut off. Damage that took acknowledged
// transactions is a *CorruptError or a *MissingError, and one that to gives is
// passed on. Call it once, before the first Append.
func (s *Store) Recover(to Recovery) (lastZxid int64, err error) {
	snaps, err := list(s.snapDir, snapPrefix)
	if err != nil {
		return 0, err
	}
	logs, err := list(s.logDir, logPrefix)
	if err != nil {
		return 0, err
	}
	r := &recovery{s: s, to: to, seen: -1, owed: map[string]Node{}}
	newest, err := r.snapshot(snaps, len(logs) > 0)
	if err != nil {
		return 0, err
	}
	if err := r.logs(logs); err != nil {
		return 0, err
	}
	if err := r.complete(newest); err != nil {
		return 0, err
	}
	s.mu.Lock()
	s.appended = r.last
	s.mu.Unlock()
	s.syncMu.Lock()
	s.durable = r.last
	s.syncMu.Unlock()
	return r.last, nil
}

// snapshot reads the newest whole snapshot. It gives the zxid of the newest
// one, whole or not: the data reached at least that far once.
func (r *recovery) snapshot(snaps []file, logs bool) (newest int64, err error) {
	var bad []error
	for i := len(snaps) - 1; i >= 0; i-- {
		f := snaps[i]
		newest = max(newest, f.zxid)
		r.to.Reset()
		clear(r.owed)
		if r.fuzzyTo, err = r.readSnapshot(f.path); err == nil {
			r.last = f.zxid
			return newest, nil
		}
		r.s.log.WithFields(logrus.Fields{"path": f.path, "error": err}).Warn("snapshot cannot be read, the one before it is tried")
		bad = append(bad, err)
	}
	r.to.Reset()
	clear(r.owed)
	r.fresh = true
	if len(bad) > 0 && !logs {
		return 0, fmt.Errorf("recover ZooKeeper's data: no snapshot can be read, and there is no log: %w", errors.Join(bad...))
	}
	return newest, nil
}

// complete tells whether the files gave all that they once held.
func (r *recovery) complete(newest int64) error {
	if r.last < newest {
		return &MissingError{After: r.last, Before: newest + 1,
			Remedy: "the newest snapshot cannot be read, and the logs do not reach as far as it did: restore one of them from a backup"}
	}
	for path := range r.owed {
		return fmt.Errorf("recover ZooKeeper's data: the snapshot holds %s without its ACL, and no log has it; restore the logs that belong to the snapshot", path)
	}
	if r.last < r.fuzzyTo {
		r.s.log.WithFields(logrus.Fields{"zxid": fmt.Sprintf("0x%x", r.last), "snapshot_to": fmt.Sprintf("0x%x", r.fuzzyTo)}).
			Warn("the snapshot was written while the tree changed, and the logs do not reach to its end: nodes may be newer than the zxid")
	}
	return nil
}

// logs replays what is behind r.last.
func (r *recovery) logs(files []file) error {
	for i, f := range files { // the first one that may hold the next transaction
		if f.zxid > r.last+1 {
			files = files[max(i-1, 0):]
			break
		}
		if i == len(files)-1 {
			files = files[i:]
		}
	}
	for i, f := range files {
		if err := r.log(f.path, i == len(files)-1); err != nil {
			return err
		}
	}
	return nil
}

func (r *recovery) log(path string, newest bool) error {
	lr, err := openLog(path)
	if errors.Is(err, errNoEntries) {
		if newest {
			return r.forget(path)
		}
		return nil // what it lacks, the next log's first zxid tells
	}
	if err != nil {
		return err
	}
	defer lr.close()
	for first := true; ; first = false {
		at := lr.off
		t, err := lr.next()
		if err != nil {
			return r.tail(lr, err, newest)
		}
		if _, failed := t.Record.(*zkwire.TxnError); failed && t.Zxid == r.seen {
			continue // Apache logs its answer to a body it cannot read, which costs no zxid, under the one before
		}
		if t.Zxid <= r.seen {
			return &CorruptError{Path: path, Offset: at, Reason: fmt.Sprintf("zxid 0x%x comes after 0x%x", t.Zxid, r.seen),
				Remedy: "move away the logs that belong to another history of the data"}
		}
		r.seen = t.Zxid
		if t.Zxid <= r.last {
			continue
		}
		if err := r.follows(t.Zxid, path, first); err != nil {
			return err
		}
		r.last = t.Zxid
		if err := r.apply(t); err != nil {
			return fmt.Errorf("replay zxid 0x%x, at offset %d of %s: %w", t.Zxid, at, path, err)
		}
	}
}

// follows tells whether zxid comes next. After an election an ensemble counts
// from the next epoch on. A hole between two logs is a lost log; inside of one
// nothing of ours can have lost it.
func (r *recovery) follows(zxid int64, path string, first bool) error {
	epoch, count := zxid>>32, uint32(zxid)
	switch {
	case zxid == r.last+1, epoch > r.last>>32 && count <= 1 && !r.fresh, r.fresh && r.last == 0 && epoch <= 1 && count == 1:
		r.fresh = false
		return nil
	case !first:
		r.s.log.WithFields(logrus.Fields{"path": path, "zxid": fmt.Sprintf("0x%x", zxid), "after": fmt.Sprintf("0x%x", r.last)}).
			Warn("the log leaves zxids out")
		return nil
	case r.fresh:
		return &MissingError{After: 0, Before: zxid, Path: path, Remedy: "there is no snapshot that can be read and that the logs continue: restore one from a backup"}
	}
	return &MissingError{After: r.last, Before: zxid, Path: path,
		Remedy: "restore the log that held them; without it, the state of before is had by moving this file and those behind it away"}
}

// tail looks at how a log ends, and cuts off what a killed writer left.
func (r *recovery) tail(lr *logReader, err error, newest bool) error {
	var torn errTorn
	switch isTorn := errors.As(err, &torn); {
	case !isTorn && err != io.EOF:
		return err
	case !isTorn:
		torn.reason = "zeros, as behind the last entry"
	}
	path := lr.f.Name()
	at, serr := lr.entryBehind(lr.off, r.seen)
	if errors.Is(serr, errTooDamaged) {
		return &CorruptError{Path: path, Offset: lr.off, Reason: torn.reason, Err: serr,
			Remedy: "restore the file from a backup; cutting it at this offset loses all behind it"}
	}
	if serr != nil {
		return serr
	}
	if at >= 0 {
		return &CorruptError{Path: path, Offset: lr.off, Reason: fmt.Sprintf("%s, but a whole entry follows at offset %d", torn.reason, at),
			Remedy: fmt.Sprintf("restore the file from a backup; if the machine lost its power just before, nothing behind was acknowledged: truncate -s %d %s", lr.off, path)}
	}
	if !newest {
		return nil // Apache begins a new log and leaves the torn one; the next zxid tells whether anything is missing
	}
	if lr.off == headerSize {
		return r.forget(path)
	}
	if err == io.EOF && !lr.dataBehind(lr.off) {
		return nil
	}
	r.s.log.WithFields(logrus.Fields{"path": path, "offset": lr.off, "bytes": lr.size - lr.off, "reason": torn.reason}).
		Info("the torn tail of the log is cut off; it was never acknowledged")
	return cut(path, lr.off)
}

// cut ends the file at size.
func cut(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cut a torn tail: %w", err)
	}
	defer f.Close()
	err = f.Truncate(size)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("cut the torn tail of %s: %w", path, err)
	}
	return nil
}

// forget removes a log without entries: the next one may get its name.
func (r *recovery) forget(path string) error {
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove a log without entries: %w", err)
	}
	return syncDir(r.s.logDir)
}

func (r *recovery) apply(t *zkwire.Txn) error {
	if err := r.to.Txn(t); err != nil {
		return err
	}
	if len(r.owed) == 0 {
		return nil
	}
	if m, ok := t.Record.(*zkwire.TxnMulti); ok {
		for _, p := range m.Parts {
			if err := r.settle(t, p); err != nil {
				return err
			}
		}
		return nil
	}
	return r.settle(t, t.Record)
}

// settle gives a node of the snapshot the ACL that the snapshot lacks: the node
// was made while the snapshot was written, so a log has its creation.
func (r *recovery) settle(t *zkwire.Txn, rec zkwire.TxnRecord) error {
	switch rec := rec.(type) {
	case *zkwire.TxnCreate:
		n, ok := r.owed[rec.Path]
		if !ok {
			return nil
		}
		delete(r.owed, rec.Path)
		late := *t
		late.Record = &zkwire.TxnSetACL{Path: rec.Path, ACL: rec.ACL, Version: n.Stat.Aversion}
		return r.to.Txn(&late)
	case *zkwire.TxnSetACL:
		delete(r.owed, rec.Path)
	case *zkwire.TxnDelete:
		delete(r.owed, rec.Path)
	case *zkwire.TxnCloseSession:
		for path, n := range r.owed {
			if n.Stat.EphemeralOwner == t.Session {
				delete(r.owed, path)
			}
		}
	}
	return nil
}
