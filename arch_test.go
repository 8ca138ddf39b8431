package zkcontroller_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/zkcontroller/zkcontroller"

type importRule struct {
	folder string
	may    []string
	pure   bool
}

// mayImport is the table of who may import whom: each top folder, and the
// other top folders it may name. A folder that no row names fails the test.
var mayImport = []importRule{
	{"kafka", nil, true},
	{"zkpaths", []string{"kafka"}, true},
	{"control", []string{"kafka"}, true},
	{"events", []string{"kafka", "control"}, true},
	{"statemachine", []string{"kafka", "zkpaths", "control"}, true},
	{"reassign", []string{"kafka", "statemachine"}, true},
	{"deletion", []string{"kafka", "statemachine"}, true},
	{"isrnotify", []string{"kafka", "zkpaths"}, true},
	{"controller", []string{"kafka", "zkpaths", "control", "events", "statemachine", "reassign", "deletion", "isrnotify"}, false},
	{"brokers", []string{"kafka", "zkpaths", "control", "isrnotify"}, false},
	{"listeners", []string{"events", "zkpaths", "kafka"}, false},
	{"zkstore", []string{"zkpaths", "zkwire", "kafka"}, false},
	{"dispatch", []string{"control", "events", "kafka", "wire"}, false},
	{"zkserver", []string{"zkwire"}, false},
	{"wire", []string{"kafka", "control"}, false},
	{"endpoint", []string{"kafka", "control", "events", "wire"}, false},
	{"brokerport", []string{"kafka", "control", "events", "zkpaths", "reassign", "brokers", "wire", "endpoint"}, false},
	{"zkwire", nil, false},
	{"dashboard", []string{"statemachine"}, false},
	{"config", nil, false},
	{"sim", anythingButCmd, false},
	{"assembly", anythingButCmd, false},
	{"zktest", anythingButCmd, false},
	{"internal", anythingButCmd, false},
	{"bench", nil, false},
	{"cmd", anything, false},
}

var (
	anything       = []string{"*"}
	anythingButCmd = []string{"*", "-cmd"}
)

// impure are the packages that pure folders leave alone, by exact path or, with
// a trailing slash, by prefix.
var impure = []string{"os", "os/", "net", "net/", "sync", "sync/", "context", "math/rand", "math/rand/", "crypto/rand", "syscall",
	"log", "log/", "io/ioutil", "runtime", "unsafe", "github.com/sirupsen/logrus", "github.com/go-zookeeper/", "github.com/spf13/"}

// clocks are the names of package time that read a clock or wait for one.
var clocks = []string{"Now", "Sleep", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Timer", "Ticker"}

// check gives one line per broken rule in one file of a folder.
func check(folder, name string, src any) ([]string, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	top, _, _ := strings.Cut(folder, "/")
	i := slices.IndexFunc(mayImport, func(r importRule) bool { return r.folder == top })
	if i < 0 {
		return []string{fmt.Sprintf("%s: the folder %s has no row in the table", name, top)}, nil
	}
	rule := mayImport[i]
	var broken []string
	timeName := ""
	for _, imp := range f.Imports {
		p, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			return nil, err
		}
		if p == "time" {
			timeName = "time"
			if imp.Name != nil {
				timeName = imp.Name.Name
			}
		}
		if to, ours := strings.CutPrefix(p, module+"/"); ours {
			if !allowed(rule.may, top, to) {
				broken = append(broken, fmt.Sprintf("%s: %s may not import %s", name, top, to))
			}
		} else if rule.pure && slices.ContainsFunc(impure, func(bad string) bool {
			return p == bad || strings.HasSuffix(bad, "/") && strings.HasPrefix(p, bad)
		}) {
			broken = append(broken, fmt.Sprintf("%s: %s is pure and may not import %s", name, top, p))
		}
	}
	if rule.pure {
		broken = append(broken, effects(fset, f, name, top, timeName)...)
	}
	return broken, nil
}

func allowed(may []string, from, to string) bool {
	top, _, _ := strings.Cut(to, "/")
	switch {
	case top == from:
		return true // a folder's own sub-folders
	case slices.Contains(may, "-"+top):
		return false
	case slices.Contains(may, "*"):
		return true
	}
	return slices.Contains(may, top)
}

// effects finds clocks, goroutines, channels and init functions.
func effects(fset *token.FileSet, f *ast.File, name, top, timeName string) []string {
	var broken []string
	say := func(n ast.Node, what string) {
		broken = append(broken, fmt.Sprintf("%s:%d: %s is pure: no %s", name, fset.Position(n.Pos()).Line, top, what))
	}
	if timeName == "." {
		broken = append(broken, fmt.Sprintf("%s: %s is pure: no dot import of time", name, top))
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && timeName != "" && id.Name == timeName && slices.Contains(clocks, n.Sel.Name) {
				say(n, "time."+n.Sel.Name)
			}
		case *ast.GoStmt:
			say(n, "goroutine")
		case *ast.ChanType:
			say(n, "channel")
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				say(n, "init function")
			}
		}
		return true
	})
	return broken
}

// TestImports holds every package of the module to the table. Test files may
// import what they need, since nothing depends on them.
func TestImports(t *testing.T) {
	checked := map[string]bool{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if n := d.Name(); p != "." && (strings.HasPrefix(n, ".") || n == "testdata" || n == "out" || n == "bin") {
				return fs.SkipDir
			}
			// A folder with a go.mod of its own is another module.
			if _, err := os.Stat(filepath.Join(p, "go.mod")); p != "." && err == nil {
				return fs.SkipDir
			}
			if n := d.Name(); n == "utils" || n == "util" || n == "common" || n == "helpers" {
				t.Errorf("%s: a folder is named after what is in it", p)
			}
			return nil
		case !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go"):
			return nil
		}
		folder := path.Dir(filepath.ToSlash(p))
		if folder == "." {
			t.Errorf("%s: the root has no code", p)
			return nil
		}
		top, _, _ := strings.Cut(folder, "/")
		checked[top] = true
		broken, err := check(folder, filepath.ToSlash(p), nil)
		for _, b := range broken {
			t.Error(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"kafka", "zkpaths", "control", "events", "controller", "config"} {
		if !checked[must] {
			t.Errorf("no file of %s/ was looked at", must)
		}
	}
}

// TestCheckerCatches feeds the checker small files that break one rule each.
func TestCheckerCatches(t *testing.T) {
	imports := func(p string) string { return "package x\nimport _ \"" + p + "\"\n" }
	ours := func(p string) string { return imports(module + "/" + p) }
	for _, tc := range []struct{ what, folder, src, want string }{
		{"arrow up", "kafka", ours("zkpaths"), "kafka may not import zkpaths"},
		{"arrow across", "isrnotify", ours("statemachine"), "isrnotify may not import statemachine"},
		{"edge from the loop", "controller", ours("zkstore"), "controller may not import zkstore"},
		{"edge to edge", "zkserver", ours("kafka"), "zkserver may not import kafka"},
		{"brokers know no machine", "brokers", ours("statemachine"), "brokers may not import statemachine"},
		{"config stands alone", "config", ours("kafka"), "config may not import kafka"},
		{"dispatch speaks wire", "dispatch", ours("wire"), ""},
		{"zkstore must not dispatch", "zkstore", ours("dispatch"), "zkstore may not import dispatch"},
		{"sim may have all", "sim", ours("zkserver"), ""},
		{"sim but cmd", "sim", ours("cmd/zkcontroller"), "sim may not import cmd"},
		{"internal but cmd", "internal/spec", ours("cmd/zkcontroller"), "internal may not import cmd"},
		{"cmd may have all", "cmd/zkcontroller", ours("internal/spec"), ""},
		{"own sub-folder", "statemachine/election", ours("statemachine"), ""},
		{"unknown folder", "helpers", "package x\n", "no row in the table"},
		{"sockets", "reassign", imports("net"), "may not import net"},
		{"below a prefix", "reassign", imports("net/netip"), "may not import net/netip"},
		{"locks", "control", imports("sync/atomic"), "may not import sync/atomic"},
		{"context", "events", imports("context"), "may not import context"},
		{"chance", "statemachine", imports("math/rand/v2"), "may not import math/rand/v2"},
		{"files", "zkpaths", imports("os"), "may not import os"},
		{"logs", "deletion", imports("github.com/sirupsen/logrus"), "may not import github.com/sirupsen/logrus"},
		{"zk", "zkpaths", imports("github.com/go-zookeeper/zk"), "may not import github.com/go-zookeeper/zk"},
		{"viper", "kafka", imports("github.com/spf13/viper"), "may not import github.com/spf13/viper"},
		{"the loop may log", "controller", imports("github.com/sirupsen/logrus"), ""},
		{"clock", "isrnotify", "package x\nimport \"time\"\nvar t = time.Now()\n", "no time.Now"},
		{"renamed clock", "isrnotify", "package x\nimport clock \"time\"\nfunc f() { clock.Sleep(1) }\n", "no time.Sleep"},
		{"timer", "control", "package x\nimport \"time\"\nvar t *time.Timer\n", "no time.Timer"},
		{"dot import", "control", "package x\nimport . \"time\"\n", "dot import"},
		{"a time argument is fine", "isrnotify", "package x\nimport \"time\"\nfunc f(now time.Time, d time.Duration) bool { return now.Add(d).IsZero() }\n", ""},
		{"goroutine", "kafka", "package x\nfunc f() { go f() }\n", "no goroutine"},
		{"channel", "kafka", "package x\nvar c chan int\n", "no channel"},
		{"init", "kafka", "package x\nfunc init() {}\n", "no init function"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			broken, err := check(tc.folder, tc.folder+"/x.go", tc.src)
			got := strings.Join(broken, "\n")
			if err != nil || tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
		})
	}
}
