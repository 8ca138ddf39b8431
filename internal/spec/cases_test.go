package spec

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const caseDir = "../../testdata/cases"

// TestFieldCases plays every field case of testdata; one subtest a case.
func TestFieldCases(t *testing.T) {
	files, err := caseFiles([]string{caseDir})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 70 {
		t.Fatalf("only %d cases in %s", len(files), caseDir)
	}
	for _, f := range files {
		c, err := readCase(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.ID, func(t *testing.T) {
			out := play(c, nil)
			for _, why := range out.fails {
				t.Errorf("%s: %s", c.Title, why)
			}
			for _, why := range out.skips {
				t.Log(why)
			}
		})
	}
}

// TestRunReport: one line a case and the totals last.
func TestRunReport(t *testing.T) {
	var out strings.Builder
	passed, failed, skipped, err := Run([]string{filepath.Join(caseDir, "R-001.json"), filepath.Join(caseDir, "R-153.json")}, &out)
	if err != nil {
		t.Fatal(err)
	}
	if passed != 1 || failed != 0 || skipped != 1 {
		t.Errorf("passed %d, failed %d, skipped %d", passed, failed, skipped)
	}
	want := regexp.MustCompile(`^pass R-001 .*\nskip R-153 .*doctor.*\n1 passed, 0 failed, 1 skipped\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("report:\n%s", out.String())
	}
}

// TestExpectationsCanFail: a case whose expectation is turned around fails.
// Each row breaks one expectation of a case that holds.
func TestExpectationsCanFail(t *testing.T) {
	for _, row := range []struct{ file, from, to, says string }{
		{"R-027.json", `\"leader\":-1`, `\"leader\":2`, "expected"},
		{"R-027.json", `"version": 4`, `"version": 5`, "version of"},
		{"R-027.json", `OfflineReplica`, `OnlineReplica`, "state of orders-0/1"},
		{"R-025.json", `"leader_epoch": 5, "isr": [1, 2]`, `"leader_epoch": 5, "isr": [2, 1]`, "not sent"},
		{"R-123.json", `-103, -2`, `-103, 0`, "result"},
	} {
		data, err := os.ReadFile(filepath.Join(caseDir, row.file))
		if err != nil {
			t.Fatal(err)
		}
		then := strings.Index(string(data), `"then"`)
		changed := string(data[:then]) + strings.ReplaceAll(string(data[then:]), row.from, row.to)
		if changed == string(data) {
			t.Errorf("%s has no %s to change", row.file, row.from)
			continue
		}
		f := filepath.Join(t.TempDir(), row.file)
		if err := os.WriteFile(f, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readCase(f)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(play(c, nil).fails, "\n"); !strings.Contains(got, row.says) {
			t.Errorf("%s with %s: expected a failure that says %q, got %q", row.file, row.to, row.says, got)
		}
	}
}

// TestBadCaseFiles: the error names the file, and the line where it can.
func TestBadCaseFiles(t *testing.T) {
	dir := t.TempDir()
	for name, row := range map[string]struct{ data, says string }{
		"R-1.json": {"{\n\"id\": \"R-1\",\n oops", "R-1.json:3: not a case file"},
		"R-2.json": {`{"id":"R-2","when":[{"do":"dance"}]}`, `R-2.json: not a case file: when[0]: unknown step "dance"`},
		"R-3.json": {`{"id":"R-3","when":[]}`, `R-3.json: not a case file: field "when"`},
		"R-4.json": {`{"when":[{"do":"elect"}]}`, `field "id" is missing`},
		"R-5.json": {`{"id":"R-5","whenever":[]}`, `unknown field "whenever"`},
		"R-6.json": {`{"id":7}`, `R-6.json:1: not a case file`},
	} {
		f := filepath.Join(dir, name)
		if err := os.WriteFile(f, []byte(row.data), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		_, _, _, err := Run([]string{f}, &out)
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: expected an error that says %q, got %v", name, row.says, err)
		}
	}
	if _, _, _, err := Run([]string{filepath.Join(dir, "nothing")}, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a missing path: got %v", err)
	}
}
