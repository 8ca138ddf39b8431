package assembly

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
)

// A directory that a file system refuses is told and left to the broker, which
// has others; with none that works, and with somebody else's data, there is no start.
func TestLogDirs(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(at("file"), "")
	write(at("other/meta.properties"), "version=0\nbroker.id=9\n")
	write(at("cluster/meta.properties"), "version=0\nbroker.id=1\ncluster.id=x\n")
	if err := os.Symlink(at("good"), at("alias")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at("good"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		dirs, want string
		kind       Kind
		told       int
	}{
		{"good", "", 0, 0},
		{"good new", "", 0, 0},
		{"file good", "", 0, 2}, // by the check and by the claim
		{"file", "not a directory", 0, 0},
		{"good other", "data of broker 9", Refused, 0},
		{"good cluster", "data of cluster x", Refused, 0},
		{"good good", "one folder", Misconfigured, 0},
		{"good new/../good", "one folder", Misconfigured, 0},
		{"good alias", "one folder", Misconfigured, 0},
	} {
		var dirs []string
		for name := range strings.FieldsSeq(tc.dirs) {
			dirs = append(dirs, root+"/"+name)
		}
		log, hook := test.NewNullLogger()
		err := checkLogDirs(dirs, 1, log)
		if err == nil {
			err = claimLogDirs(dirs, 1, "ours", log)
		}
		var known *Error
		kind := Kind(0)
		if errors.As(err, &known) {
			kind = known.Kind
		}
		if kind != tc.kind || tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) || len(hook.AllEntries()) != tc.told {
			t.Errorf("%s: kind %d, %v, %d lines of the log; want kind %d, %q, %d lines", tc.dirs, kind, err, len(hook.AllEntries()), tc.kind, tc.want, tc.told)
		}
	}
}
