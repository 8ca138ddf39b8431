package zkpaths_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
)

const goldenDir = "../testdata/znodes"

// golden is a payload exactly as a real Kafka stored it.
type golden struct {
	file, codec, kafka string
	data               []byte
}

// goldens reads testdata/znodes. A file is named codec.what.kafka-version.json.
func goldens(t *testing.T) []golden {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden payloads: %v", err)
	}
	var out []golden
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(f)
		codec, _, _ := strings.Cut(name, ".")
		_, kafka, ok := strings.Cut(strings.TrimSuffix(name, ".json"), ".kafka-")
		if !ok {
			t.Fatalf("%s does not name the Kafka version that wrote it", name)
		}
		out = append(out, golden{name, codec, kafka, data})
	}
	return out
}

// TestGolden: every payload that a real Kafka stored is read, and what we write
// for it is the same JSON, in our key order. testdata/golden/written has what
// we write, for review; -rewrite records it again.
func TestGolden(t *testing.T) {
	byName := map[string]golden{}
	for _, g := range goldens(t) {
		byName[g.file] = g
	}
	seen := map[string]bool{}
	datadriven.RunTest(t, "testdata/golden/written", func(t *testing.T, d *datadriven.TestData) string {
		g, ok := byName[d.CmdArgs[0].Key]
		if !ok {
			d.Fatalf(t, "no file %s in testdata/znodes", d.CmdArgs[0].Key)
		}
		seen[g.file] = true
		c := find(t, g.codec)
		v, err := c.decode(g.data)
		if err != nil {
			return "error: " + err.Error()
		}
		check(t, c, g.data)
		written := c.encode(v)
		if diff := cmp.Diff(jsonValue(t, g.data), jsonValue(t, written)); diff != "" {
			t.Errorf("%s: written differently than Kafka %s did (-Kafka +ours):\n%s", g.file, g.kafka, diff)
		}
		return string(written)
	})
	for name := range byName {
		if !seen[name] {
			t.Errorf("testdata/znodes/%s is in no case of testdata/golden/written", name)
		}
	}
}

func jsonValue(t *testing.T, data []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return v
}
