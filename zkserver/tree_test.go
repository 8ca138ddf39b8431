package zkserver

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// script plays lines of a case file on a tree.
//
//	open S…                      sessions, which watch under their own id
//	close S
//	create S PATH [data=] [mode=] [acl=SCHEME:ID:PERMS,…] [ttl=]
//	delete|set|check|setacl S PATH [data=] [version=]
//	multi S                      ops on the following lines, without session
//	get|exists|children S PATH [watch]
//	watch S persistent|recursive PATH
//	rearm S seen=N data=… exist=… child=…
//	time MS · auth S scheme id · due · dump [PATH] · sweep PATH
//
// Results are codes, then what matters of the answer, then notices.
type script struct {
	tree *Tree
	now  int64
	auth map[int64][]Identity
}

var modes = map[string]Mode{"": Persistent, "ephemeral": Ephemeral, "seq": PersistentSequential, "eseq": EphemeralSequential,
	"container": Container, "ttl": PersistentTTL}

func TestTreeCases(t *testing.T) {
	datadriven.Walk(t, "testdata/tree", func(t *testing.T, path string) {
		s := &script{tree: NewTree(), auth: map[int64][]Identity{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "play" {
				t.Fatalf("%s: unknown directive %s", d.Pos, d.Cmd)
			}
			var out strings.Builder
			lines := strings.Split(strings.TrimSpace(d.Input), "\n")
			for i := 0; i < len(lines); i++ {
				words := strings.Fields(lines[i])
				if words[0] == "multi" {
					var ops []Op
					for i+1 < len(lines) && strings.HasPrefix(lines[i+1], " ") {
						i++
						ops = append(ops, s.op(t, strings.Fields(lines[i])))
					}
					s.result(&out, s.tree.Multi(s.who(words[1]), s.now, ops))
					continue
				}
				s.line(t, &out, words)
			}
			return out.String()
		})
	})
}

func sessionID(name string) int64 { return int64(name[0]) }

func (s *script) who(name string) Who {
	return Who{Session: sessionID(name), Identities: s.auth[sessionID(name)]}
}

func arg(words []string, key string) (string, bool) {
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v, true
		}
	}
	return "", false
}

func (s *script) op(t *testing.T, words []string) Op {
	kinds := map[string]OpKind{"create": OpCreate, "delete": OpDelete, "set": OpSet, "check": OpCheck, "setacl": OpSetACL}
	kind, ok := kinds[words[0]]
	if !ok {
		t.Fatalf("unknown op %v", words)
	}
	op := Op{Kind: kind, Version: AnyVersion, ACL: OpenACL()}
	var err error
	if op.Path, err = strconv.Unquote(`"` + words[1] + `"`); err != nil {
		t.Fatal(err)
	}
	if op.Path == "EMPTY" {
		op.Path = ""
	}
	if v, ok := arg(words, "data"); ok {
		op.Data = []byte(v)
	}
	if v, ok := arg(words, "version"); ok {
		n, _ := strconv.Atoi(v)
		op.Version = int32(n)
	}
	if v, ok := arg(words, "mode"); ok {
		if op.Mode, ok = modes[v]; !ok {
			op.Mode = 99
		}
	}
	if v, ok := arg(words, "ttl"); ok {
		op.TTL, _ = strconv.ParseInt(v, 10, 64)
	}
	if v, ok := arg(words, "acl"); ok {
		op.ACL = nil
		for _, e := range strings.Split(v, ",") {
			if p := strings.Split(e, "!"); len(p) == 3 {
				perms, _ := strconv.Atoi(p[2])
				op.ACL = append(op.ACL, ACL{Perms: int32(perms), Scheme: p[0], ID: p[1]})
			}
		}
	}
	return op
}

func (s *script) result(out *strings.Builder, r Result) {
	for i, o := range r.Ops {
		if i > 0 {
			out.WriteString(" | ")
		}
		out.WriteString(o.Code.String())
		if o.Path != "" {
			out.WriteString(" " + o.Path)
		}
		if o.Code == OK && o.Stat.Mzxid != 0 {
			fmt.Fprintf(out, " v%d", o.Stat.Version)
		}
	}
	if len(r.Ops) == 0 {
		out.WriteString("OK")
	}
	fmt.Fprintf(out, " zxid=%d\n", r.Zxid)
	fired(out, r.Fired)
}

func fired(out *strings.Builder, fs []Fired) {
	for _, f := range fs {
		fmt.Fprintf(out, "  -> %c %s %s\n", rune(f.Watcher), f.Type, f.Path)
	}
}

func stat(s Stat) string {
	return fmt.Sprintf("c=%d m=%d p=%d v=%d cv=%d av=%d owner=%d len=%d children=%d",
		s.Czxid, s.Mzxid, s.Pzxid, s.Version, s.Cversion, s.Aversion, s.EphemeralOwner, s.DataLength, s.NumChildren)
}

func (s *script) read(out *strings.Builder, words []string) {
	path, err := strconv.Unquote(`"` + words[2] + `"`)
	if err != nil {
		panic(err)
	}
	if path == "EMPTY" {
		path = ""
	}
	who, code, kind := s.who(words[1]), OK, DataWatch
	switch words[0] {
	case "get":
		data, st, c := s.tree.GetData(who, path)
		if code = c; c == OK {
			null := ""
			if data == nil {
				null = " null"
			}
			fmt.Fprintf(out, "OK %q%s %s\n", data, null, stat(st))
		}
	case "exists":
		st, c := s.tree.Exists(who, path)
		if code = c; c == OK {
			fmt.Fprintf(out, "OK %s\n", stat(st))
		}
	case "children":
		names, _, c := s.tree.GetChildren(who, path)
		kind = ChildWatch
		if code = c; c == OK {
			fmt.Fprintf(out, "OK %v\n", names)
		}
	}
	if code != OK {
		fmt.Fprintln(out, code)
	}
	if words[len(words)-1] == "watch" && (code == OK || code == NoNode && words[0] == "exists") {
		s.tree.Watch(Watcher(who.Session), kind, path)
	}
}

func (s *script) line(t *testing.T, out *strings.Builder, words []string) {
	list := func(key string) []string {
		v, ok := arg(words, key)
		if !ok {
			return nil
		}
		return strings.Split(v, ",")
	}
	switch words[0] {
	case "open":
		for _, n := range words[1:] {
			s.tree.OpenSession(sessionID(n))
		}
	case "close":
		s.result(out, s.tree.CloseSession(sessionID(words[1])))
	case "get", "exists", "children":
		s.read(out, words)
	case "watch":
		kind := PersistentWatch
		if words[2] == "recursive" {
			kind = RecursiveWatch
		}
		s.tree.Watch(Watcher(sessionID(words[1])), kind, words[3])
	case "unwatch":
		kind := map[string]WatchKind{"data": DataWatch, "child": ChildWatch, "persistent": PersistentWatch, "recursive": RecursiveWatch}[words[2]]
		fmt.Fprintln(out, s.tree.Unwatch(Watcher(sessionID(words[1])), kind, words[3]))
	case "rearm":
		seen, _ := arg(words, "seen")
		n, _ := strconv.ParseInt(seen, 10, 64)
		fired(out, s.tree.Rearm(Watcher(sessionID(words[1])), n, list("data"), list("exist"), list("child"), list("persistent"), list("recursive")))
	case "drop":
		s.tree.DropWatcher(Watcher(sessionID(words[1])))
	case "watching":
		w, p, c := s.tree.CountWatches()
		fmt.Fprintf(out, "%d watches on %d paths by %d\n", w, p, c)
	case "time":
		s.now, _ = strconv.ParseInt(words[1], 10, 64)
	case "extended":
		s.tree.ExtendedTypes = true
	case "auth":
		s.auth[sessionID(words[1])] = append(s.auth[sessionID(words[1])], Identity{words[2], strings.Join(words[3:], "")})
	case "due":
		fmt.Fprintln(out, s.tree.Due(s.now))
	case "sweep":
		s.result(out, s.tree.Write(Who{}, s.now, Op{Kind: OpSweep, Path: words[1]}))
	case "acl":
		acl, _, code := s.tree.GetACL(s.who(words[1]), words[2])
		fmt.Fprintln(out, code, acl)
	case "ephemerals":
		fmt.Fprintln(out, s.tree.Ephemerals(sessionID(words[1])))
	case "dump":
		s.tree.Walk(func(n Saved) {
			if len(words) == 1 || strings.HasPrefix(n.Path, words[1]) {
				fmt.Fprintf(out, "%s %q %s\n", n.Path, n.Data, stat(n.Stat))
			}
		})
	default:
		s.result(out, s.tree.Write(s.who(words[1]), s.now, s.op(t, append(words[:1:1], words[2:]...))))
	}
}
