package zkfiles

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// minRetain is Apache's least number of snapshots to keep.
const minRetain = 3

// Purge keeps the newest snapshots, retain of them but at least 3, and the logs
// that continue the oldest of those; the rest is removed. Snapshots that are
// visibly not whole do not count.
func (s *Store) Purge(retain int) error {
	snaps, err := list(s.snapDir, snapPrefix)
	if err != nil {
		return err
	}
	keep := len(snaps)
	for n := 0; keep > 0 && n < max(retain, minRetain); {
		keep--
		if looksWhole(snaps[keep].path) {
			n++
		}
	}
	if keep == 0 {
		return nil
	}
	logs, err := list(s.logDir, logPrefix)
	if err != nil {
		return err
	}
	// The last log that begins at or before the next zxid may hold it.
	needed := 0
	for i, f := range logs {
		if f.zxid <= snaps[keep].zxid+1 {
			needed = i
		}
	}
	for _, f := range append(snaps[:keep:keep], logs[:needed]...) {
		if err := os.Remove(f.path); err != nil {
			return fmt.Errorf("purge ZooKeeper's files: %w", err)
		}
	}
	return nil
}

// looksWhole tells whether a snapshot ends as one does. Compressed ones are believed.
func looksWhole(path string) bool {
	if strings.HasSuffix(path, ".gz") || strings.HasSuffix(path, ".snappy") {
		return true
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	const end = "\x00\x00\x00\x01/"
	b := make([]byte, len(end))
	if _, err := f.Seek(-int64(len(end)), io.SeekEnd); err != nil {
		return false
	}
	_, err = io.ReadFull(f, b)
	return err == nil && string(b) == end
}
