package spec

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root        = "../../"
	scenarioDir = root + "testdata/scenarios"
	// spec/controller.md §10 numbers its rows from 1 to this.
	lastScenario = 159
)

// told is one scenario of a file: the file's name and the comment above it.
type told struct{ file, text string }

var rowNumber = regexp.MustCompile(`^C-\d{3}$`)

// tellings gives the comment above each directive of the scenario files.
func tellings(t *testing.T) []told {
	t.Helper()
	files, err := filepath.Glob(scenarioDir + "/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenario files: %v", err)
	}
	var out []told
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var comment []string
		for _, line := range strings.Split(string(data), "\n") {
			text, isComment := strings.CutPrefix(line, "# ")
			switch {
			case isComment:
				comment = append(comment, text)
			case strings.HasPrefix(line, "scenario") || line == "then":
				out = append(out, told{filepath.Base(path), strings.Join(comment, " ")})
				comment = nil
			default:
				comment = nil
			}
		}
	}
	return out
}

// note is a line of testdata/scenario-notes.
type note struct{ file, test, text string }

func notes(t *testing.T) map[string]note {
	t.Helper()
	data, err := os.ReadFile("testdata/scenario-notes")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]note{}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, "|", 3)
		if len(parts) != 3 {
			t.Fatalf("testdata/scenario-notes: %q is not number | test | note", line)
		}
		n := note{text: strings.TrimSpace(parts[2])}
		if test := strings.TrimSpace(parts[1]); test != "-" {
			n.file, n.test, _ = strings.Cut(test, " ")
		}
		id := strings.TrimSpace(parts[0])
		if _, twice := out[id]; twice || !rowNumber.MatchString(id) {
			t.Fatalf("testdata/scenario-notes: %q is no number, or there twice", id)
		}
		out[id] = n
	}
	return out
}

var rewriteDocs = func() bool { f := flag.Lookup("rewrite"); return f != nil && f.Value.String() == "true" }

// TestEveryScenarioIsTold: each number of spec/controller.md §10 stands at the
// head of a scenario, or is named by a Go test, or has a reason why not; and
// docs/scenarios.md says so, with those of spec/broker.md §12 behind them. It is
// written anew with -rewrite.
func TestEveryScenarioIsTold(t *testing.T) {
	byNumber := map[string][]told{}
	for _, s := range tellings(t) {
		if id, text, ok := strings.Cut(s.text, " "); ok && rowNumber.MatchString(id) {
			byNumber[id] = append(byNumber[id], told{s.file, text})
		}
	}
	remarks := notes(t)
	var doc bytes.Buffer
	doc.WriteString("# Scenarios of spec/controller.md §10\n\n" +
		"Written by `go test ./internal/spec -run TestEveryScenarioIsTold -rewrite` from `testdata/scenarios/` and\n" +
		"`internal/spec/testdata/scenario-notes`. The test is `TestScenarios/<file>` in `internal/spec` unless another one is named.\n\n" +
		"| number | file | what the scenario says | note |\n|---|---|---|---|\n")
	for i := 1; i <= lastScenario; i++ {
		id := fmt.Sprintf("C-%03d", i)
		list, n := byNumber[id], remarks[id]
		delete(byNumber, id)
		delete(remarks, id)
		if n.test != "" {
			checkTestNames(t, id, n)
			list = append(list, told{n.file + " " + n.test, ""})
		}
		if len(list) == 0 && !strings.HasPrefix(n.text, "not told: ") {
			t.Errorf("%s: no scenario begins with it, no test is named for it, and no reason is given", id)
		}
		var files, texts []string
		for _, s := range list {
			if !slices.Contains(files, s.file) {
				files = append(files, s.file)
			}
			if s.text != "" {
				texts = append(texts, strings.ReplaceAll(s.text, "|", "\\|"))
			}
		}
		fmt.Fprintf(&doc, "| %s | %s | %s | %s |\n", id, strings.Join(files, ", "), strings.Join(texts, " / "), n.text)
	}
	if len(byNumber)+len(remarks) > 0 {
		t.Errorf("numbers that the spec does not have: %v %v", slices.Sorted(maps.Keys(byNumber)), slices.Sorted(maps.Keys(remarks)))
	}
	writeBrokerScenarios(t, &doc)
	path := root + "docs/scenarios.md"
	if rewriteDocs() {
		if err := os.WriteFile(path, doc.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, doc.Bytes()) {
		t.Errorf("docs/scenarios.md is not what the scenarios say (%v): run this test with -rewrite", err)
	}
}

// checkTestNames: the test exists, and its comment names the number.
func checkTestNames(t *testing.T, id string, n note) {
	t.Helper()
	data, err := os.ReadFile(root + n.file)
	if err != nil {
		t.Errorf("%s: %v", id, err)
		return
	}
	before, _, ok := strings.Cut(string(data), "func "+n.test+"(")
	i := strings.LastIndex(before, "\n\n")
	if !ok || !strings.Contains(before[max(i, 0):], id) {
		t.Errorf("%s: %s has no test %s whose comment names it", id, n.file, n.test)
	}
}

// betterTraces are the rows of traces/better.md.
var betterTraces = []string{
	"damage-topic-null-data", "topic-create-malformed-znode", "damage-state-lacks-field", "damage-broker-id-not-a-number",
	"elect-znode-never-led", "elect-api-never-led", "reassign-znode-no-replicas", "reassign-znode-duplicate-replica",
	"reassign-znode-malformed", "reassign-znode-unknown-field", "reassign-znode-without-partitions-at-failover",
	"reassign-znode-replaced-while-moving", "delete-while-moving-by-znode", "damage-topic-ids",
}

// betterRules are its rules without a trace, by how their scenarios begin.
var betterRules = []string{
	"No request takes the last in-sync leader away", "Nothing found at failover makes a controller give up",
	"A missing /controller_epoch",
}

// TestEveryDifferenceIsTold: each row and rule of traces/better.md is the head
// of a scenario in testdata/scenarios/better and stands in docs/where-we-differ.md,
// and every Go test which that page names exists.
func TestEveryDifferenceIsTold(t *testing.T) {
	page, err := os.ReadFile(root + "docs/where-we-differ.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(betterTraces, betterRules) {
		if !slices.ContainsFunc(tellings(t), func(s told) bool { return s.file == "better" && strings.HasPrefix(s.text, name) }) {
			t.Errorf("no scenario in %s/better begins with %q", scenarioDir, name)
		}
		if !bytes.Contains(page, []byte(name)) {
			t.Errorf("docs/where-we-differ.md does not name %q", name)
		}
	}
	for _, m := range regexp.MustCompile("`([a-z/]+_test\\.go) (Test\\w+)`").FindAllStringSubmatch(string(page), -1) {
		if data, err := os.ReadFile(root + m[1]); err != nil || !bytes.Contains(data, []byte("func "+m[2]+"(")) {
			t.Errorf("docs/where-we-differ.md names %s in %s, which is not there (%v)", m[2], m[1], err)
		}
	}
}
