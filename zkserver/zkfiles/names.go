package zkfiles

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	logPrefix  = "log"
	snapPrefix = "snapshot"
	// tmpPrefix begins the names of files that are not whole yet: Apache takes
	// none for its own.
	tmpPrefix = "writing-"
)

func fileName(prefix string, zxid int64) string {
	return prefix + "." + strconv.FormatUint(uint64(zxid), 16)
}

// file is a log or a snapshot and the zxid in its name.
type file struct {
	path string
	zxid int64
}

// list gives the files of a kind by rising zxid. A snapshot may be compressed.
func list(dir, prefix string) ([]file, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list ZooKeeper's files: %w", err)
	}
	var out []file
	for _, e := range entries {
		parts := strings.Split(e.Name(), ".")
		if parts[0] != prefix || len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && !compressed(prefix, parts[2]) {
			continue
		}
		zxid, err := strconv.ParseUint(parts[1], 16, 64)
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		out = append(out, file{filepath.Join(dir, e.Name()), int64(zxid)})
	}
	slices.SortFunc(out, func(a, b file) int { return cmp.Or(cmp.Compare(a.zxid, b.zxid), cmp.Compare(a.path, b.path)) })
	return out, nil
}

func compressed(prefix, suffix string) bool {
	return prefix == snapPrefix && (suffix == "gz" || suffix == "snappy")
}

// sweepTemporary removes snapshots that a killed process left unfinished.
func (s *Store) sweepTemporary() error {
	old, err := filepath.Glob(filepath.Join(s.snapDir, tmpPrefix+"*"))
	if err != nil {
		return err
	}
	for _, p := range old {
		if err := os.Remove(p); err != nil {
			return fmt.Errorf("remove an unfinished snapshot: %w", err)
		}
	}
	return nil
}
