package zkfiles

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/zkwire"
)

// versionFolder is where Apache keeps the files under dataDir and dataLogDir.
const versionFolder = "version-2"

// Options say where the files are.
type Options struct {
	DataDir string // snapshots; made if it is not there
	LogDir  string // logs; "" is DataDir
	// ForceSync makes Sync wait until the disk has the bytes. Without it they
	// survive a kill of the process, not a power cut.
	ForceSync bool
	Log       logrus.FieldLogger // nil: silent
}

// Store is one server's files. Append, Sync and a snapshot may run at once;
// Recover runs before them.
type Store struct {
	opts    Options
	snapDir string
	logDir  string
	log     logrus.FieldLogger
	locks   []*os.File

	mu       sync.Mutex // guards what follows, never held while the disk works
	buf      []byte     // entries appended, not yet handed to Sync
	starts   []start    // where in buf new logs begin
	roll     bool       // the next Append begins a new log
	appended int64      // zxid of the last Append
	failed   bool
	snapping bool
	bare     bool // there is no snapshot

	syncMu  sync.Mutex // guards what follows
	spare   []byte     // the other buffer
	spareS  []start
	out     logFile
	logDirF *os.File // the open folder of the logs
	reserve *os.File // nothing but a file that can be closed for another one
	durable int64
	err     error // the first write error; it stays
}

// start says that a new log begins at an offset of a buffer.
type start struct {
	at   int
	zxid int64
}

// Open makes the folders and takes their lock, which ends with Close or with
// the process. Another holder is a *LockedError.
func Open(o Options) (*Store, error) {
	if o.DataDir == "" {
		return nil, errors.New("open ZooKeeper's data: no folder is named; set DataDir")
	}
	if o.LogDir == "" {
		o.LogDir = o.DataDir
	}
	s := &Store{opts: o, log: o.Log, roll: true,
		snapDir: filepath.Join(o.DataDir, versionFolder), logDir: filepath.Join(o.LogDir, versionFolder)}
	if s.log == nil {
		l := logrus.New()
		l.SetOutput(io.Discard)
		s.log = l
	}
	if err := s.open(); err != nil {
		s.unlock()
		return nil, err
	}
	return s, nil
}

func (s *Store) open() error {
	dirs := []string{s.snapDir}
	if s.logDir != s.snapDir {
		dirs = append(dirs, s.logDir)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make ZooKeeper's folder: %w; name one that can be written", err)
		}
		l, err := lock(filepath.Join(dir, lockName))
		if err != nil {
			return err
		}
		s.locks = append(s.locks, l)
	}
	if s.logDir != s.snapDir {
		if err := s.checkSplit(); err != nil {
			return err
		}
	}
	for _, f := range []**os.File{&s.logDirF, &s.reserve} {
		var err error
		if *f, err = os.Open(s.logDir); err != nil {
			return fmt.Errorf("open ZooKeeper's folder: %w", err)
		}
	}
	snaps, err := list(s.snapDir, snapPrefix)
	if err != nil {
		return err
	}
	s.bare = len(snaps) == 0
	return s.sweepTemporary()
}

// checkSplit refuses a pair of folders that were swapped or joined: logs or
// snapshots would silently be left out.
func (s *Store) checkSplit() error {
	for _, c := range []struct{ dir, prefix, option string }{{s.snapDir, logPrefix, "LogDir (dataLogDir)"}, {s.logDir, snapPrefix, "DataDir (dataDir)"}} {
		files, err := list(c.dir, c.prefix)
		if err != nil {
			return err
		}
		if len(files) > 0 {
			return fmt.Errorf("open ZooKeeper's data: %s is not in the folder for it; move it, or name this folder as %s", files[0].path, c.option)
		}
	}
	return nil
}

// NeedsSnapshot tells whether there is no snapshot: then Apache would refuse
// the folder as soon as it has logs, so a server writes one before it serves.
func (s *Store) NeedsSnapshot() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bare
}

// entryHead is an entry's checksum, a long, and its length, an int.
const entryHead = 12

// endMark ends an entry.
const endMark = 0x42

// maxEntry is the longest entry that Apache reads with the default
// jute.maxbuffer, twice of which it allows.
const maxEntry = 2 * zkwire.MaxFrame

// Append takes the transaction into memory; Sync makes it durable. Calls come
// in the order of zxids. It never waits for the disk.
func (s *Store) Append(t *zkwire.Txn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed {
		return
	}
	if s.roll {
		s.starts = append(s.starts, start{len(s.buf), t.Zxid})
		s.roll = false
	}
	at := len(s.buf)
	s.buf = appendEntry(s.buf, t)
	if c, ok := t.Record.(*zkwire.TxnCloseSession); ok && c.Known && len(s.buf)-at > maxEntry {
		// Apache would not read so long an entry. Without its paths it says the
		// same: all that the session owns goes.
		whole := *t
		whole.Record = &zkwire.TxnCloseSession{}
		s.buf = appendEntry(s.buf[:at], &whole)
	}
	s.appended = t.Zxid
}

// appendEntry encodes an entry whose checksum is not there yet: Sync fills it
// in, outside of the server's lock.
func appendEntry(b []byte, t *zkwire.Txn) []byte {
	at := len(b)
	b = append(b, make([]byte, entryHead)...)
	b = zkwire.AppendTxn(b, t)
	binary.BigEndian.PutUint32(b[at+8:], uint32(len(b)-at-entryHead))
	return append(b, endMark)
}

// seal fills in the checksums of all entries in b.
func seal(b []byte) {
	for len(b) > 0 {
		end := entryHead + int(binary.BigEndian.Uint32(b[8:]))
		binary.BigEndian.PutUint64(b, uint64(adler32.Checksum(b[entryHead:end])))
		b = b[end+1:]
	}
}

// maxSpare is the largest buffer kept for the next round.
const maxSpare = 4 << 20

// Sync writes all that was appended, with one write for each log, and waits for the
// disk if ForceSync is set. It gives the zxid up to which all is durable. The
// first error stays: nothing is durable after it, and the server has to stop.
func (s *Store) Sync() (durable int64, err error) {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.err != nil {
		return s.durable, s.err
	}
	s.mu.Lock()
	buf, starts, last := s.buf, s.starts, s.appended
	s.buf, s.starts = s.spare[:0], s.spareS[:0]
	s.mu.Unlock()
	s.spare, s.spareS = nil, nil
	if len(buf) > 0 {
		seal(buf)
		if s.err = s.write(buf, starts); s.err != nil {
			s.mu.Lock()
			s.failed, s.buf, s.starts = true, nil, nil
			s.mu.Unlock()
			return s.durable, s.err
		}
		s.durable = last
	}
	if cap(buf) <= maxSpare {
		s.spare = buf
	}
	s.spareS = starts
	return s.durable, nil
}

// write puts the entries into the log that is open and those that begin in buf.
func (s *Store) write(buf []byte, starts []start) error {
	for i := 0; ; i++ {
		end := len(buf)
		if i < len(starts) {
			end = starts[i].at
		}
		from := 0
		if i > 0 {
			from = starts[i-1].at
		}
		if end > from {
			if err := s.out.append(buf[from:end], s.opts.ForceSync); err != nil {
				return err
			}
		}
		if i == len(starts) {
			return nil
		}
		f, err := s.makeLog(starts[i].zxid)
		switch {
		case err == nil:
		case s.out.f != nil && outOfFiles(err):
			s.log.WithError(err).Warn("too many files are open to begin a log; the one before goes on")
			continue
		default:
			return err
		}
		if err := s.out.close(s.opts.ForceSync); err != nil {
			f.Close()
			return err
		}
		if err := s.out.begin(f, s.logDirF, s.opts.ForceSync); err != nil {
			return err
		}
	}
}

// makeLog makes a log's file. Clients can use up the files that the process may
// open, so the store has one in reserve: that is no reason for it to fail.
func (s *Store) makeLog(zxid int64) (*os.File, error) {
	f, err := makeLog(s.logDir, zxid)
	if err != nil && outOfFiles(err) && s.reserve != nil {
		s.reserve.Close()
		s.reserve = nil
		f, err = makeLog(s.logDir, zxid)
	}
	if s.reserve == nil {
		s.reserve, _ = os.Open(s.logDir) // none: the next time is early enough
	}
	return f, err
}

// Close makes durable what was appended, closes the log and gives the lock
// back. It gives the first error, also that of an earlier Sync.
func (s *Store) Close() error {
	_, err := s.Sync()
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.err == nil {
		s.err = errors.New("ZooKeeper's data: the store is closed")
		if cerr := s.out.close(s.opts.ForceSync); err == nil {
			err = cerr
		}
	} else {
		s.out.abandon()
	}
	s.mu.Lock()
	s.failed = true
	s.mu.Unlock()
	s.unlock()
	return err
}

func (s *Store) unlock() {
	for _, f := range []**os.File{&s.logDirF, &s.reserve} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
	for _, l := range s.locks {
		l.Close() // the lock goes with the descriptor
	}
	s.locks = nil
}
