package spec

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// spec/broker.md §12 numbers its rows from 1 to this.
const lastBrokerScenario = 121

// brokerCases are where those rows are told: case files, and Go tests whose
// comment begins with the number.
var (
	brokerCases = []string{"brokers/testdata/b/*", "brokers/testdata/*", "isrnotify/testdata/*"}
	brokerTests = []string{"brokers/*_test.go", "brokers/commitlog/*_test.go", "isrnotify/*_test.go"}
)

var (
	// heading is how the comment above a case or a test begins: "B-099, B-103. text",
	// "B-028 to B-030. text", "Field case R-112, B-120: text".
	heading   = regexp.MustCompile(`^(?:Field case R-\d+, )?(B-\d{3}(?:(?:, | and | to )B-\d{3})*)[.:,]?\s*`)
	brokerRow = regexp.MustCompile(`B-(\d{3})`)
	rowRange  = regexp.MustCompile(`B-(\d{3}) to B-(\d{3})`)
	goTest    = regexp.MustCompile(`(?m)((?:^//.*\n)+)func (Test\w+)\(`)
)

// numbersOf gives the rows that a comment is the head of, and what it says.
func numbersOf(comment string) (rows []int, text string) {
	m := heading.FindStringSubmatch(comment)
	if m == nil {
		return nil, ""
	}
	for _, n := range brokerRow.FindAllStringSubmatch(m[1], -1) {
		row, _ := strconv.Atoi(n[1])
		rows = append(rows, row)
	}
	for _, r := range rowRange.FindAllStringSubmatch(m[1], -1) {
		from, _ := strconv.Atoi(r[1])
		to, _ := strconv.Atoi(r[2])
		for n := from + 1; n < to; n++ {
			rows = append(rows, n)
		}
	}
	slices.Sort(rows)
	return rows, comment[len(m[0]):]
}

// caseComments gives the comment above each directive of a case file that has
// something to show: a lone # or an empty line ends a paragraph, and the last one counts.
func caseComments(data string) (out []string) {
	var comment []string
	for line := range strings.Lines(data) {
		line = strings.TrimRight(line, "\n")
		text, isComment := strings.CutPrefix(line, "#")
		switch {
		case isComment && strings.TrimSpace(text) != "":
			comment = append(comment, strings.TrimSpace(text))
			continue
		case !isComment && line != "" && len(comment) > 0:
			out = append(out, strings.Join(comment, " "))
		}
		comment = nil
	}
	return out
}

func globbed(t *testing.T, patterns []string) (paths []string) {
	t.Helper()
	for _, pattern := range patterns {
		files, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if st, err := os.Stat(f); err == nil && !st.IsDir() {
				paths = append(paths, f)
			}
		}
	}
	return paths
}

// brokerTellings gives the cases and tests of each row.
func brokerTellings(t *testing.T) map[int][]told {
	t.Helper()
	out := map[int][]told{}
	add := func(where, comment string) {
		rows, text := numbersOf(comment)
		for _, row := range rows {
			out[row] = append(out[row], told{where, text})
		}
	}
	read := func(path string) (string, string) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimPrefix(path, root), string(data)
	}
	for _, path := range globbed(t, brokerCases) {
		name, data := read(path)
		for _, c := range caseComments(data) {
			add(name, c)
		}
	}
	for _, path := range globbed(t, brokerTests) {
		name, data := read(path)
		for _, m := range goTest.FindAllStringSubmatch(data, -1) {
			var comment []string
			for line := range strings.Lines(m[1]) {
				comment = append(comment, strings.TrimSpace(strings.TrimPrefix(line, "//")))
			}
			add(name+" "+m[2], strings.Join(comment, " "))
		}
	}
	return out
}

// writeBrokerScenarios writes the second table of docs/scenarios.md, and fails
// for a row of spec/broker.md §12 that no case and no test is headed with.
func writeBrokerScenarios(t *testing.T, doc *bytes.Buffer) {
	t.Helper()
	doc.WriteString("\n# Scenarios of spec/broker.md §12\n\n" +
		"Written by the same test from the comments above the cases. Case files of `brokers/` and `isrnotify/` are run by their `TestStories`.\n\n" +
		"| number | file | what the case says |\n|---|---|---|\n")
	byRow := brokerTellings(t)
	for n := 1; n <= lastBrokerScenario; n++ {
		list := byRow[n]
		delete(byRow, n)
		if len(list) == 0 {
			t.Errorf("B-%03d: no case in %v begins with it, and no test in %v", n, brokerCases, brokerTests)
		}
		var files, texts []string
		for _, s := range list {
			if !slices.Contains(files, s.file) {
				files = append(files, s.file)
			}
			if text := strings.ReplaceAll(s.text, "|", "\\|"); text != "" && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
		fmt.Fprintf(doc, "| B-%03d | %s | %s |\n", n, strings.Join(files, ", "), strings.Join(texts, " / "))
	}
	if len(byRow) > 0 {
		t.Errorf("numbers that spec/broker.md does not have: %v", slices.Sorted(maps.Keys(byRow)))
	}
}

// What counts as a row's case is its head, not any place that mentions it.
func TestHeadings(t *testing.T) {
	for comment, want := range map[string][]int{
		"B-001. Become leader":                    {1},
		"B-009, B: it lags still":                 {9},
		"B-099 and B-103. Out of range":           {99, 103},
		"B-032, B-118. Who is not alive":          {32, 118},
		"B-028 to B-030. Expansion":               {28, 29, 30},
		"B-093 to B-095, B-103. Caches":           {93, 94, 95, 103},
		"Field case R-112, B-120: another":        {120},
		"B-015. Several leave; B-011: the rest":   {15},
		"B-041.":                                  {41},
		"Direct writes: as B-021, one request":    nil,
		"caches themselves (B-106, B-107): other": nil,
	} {
		if rows, _ := numbersOf(comment); !slices.Equal(rows, want) {
			t.Errorf("%q is the head of %v, want %v", comment, rows, want)
		}
	}
	have := caseComments("# A file's head (B-001).\n\n# B-002. First\n# line.\nlead\n----\nok\n\n# Of all.\n#\n# B-003. Two.\nf\n----\n# B-004. Alone.\n\nf\n")
	if want := []string{"B-002. First line.", "B-003. Two."}; !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}
