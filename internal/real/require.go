package real

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The parts that REQUIRE_REAL can name.
const (
	Docker  = "docker"
	Java    = "java"
	Kafka   = "kafka"
	Browser = "browser"
)

// Required tells whether REQUIRE_REAL, a comma-separated list, names the part.
func Required(part string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv("REQUIRE_REAL"), ","), func(s string) bool {
		return strings.TrimSpace(s) == part
	})
}

// Missing ends a test for which a real part is not there: it fails when
// REQUIRE_REAL names the part, else skips; both say why and the remedy.
func Missing(t testing.TB, part, reason, remedy string) {
	t.Helper()
	if Required(part) {
		t.Fatalf("%s is required (REQUIRE_REAL) but %s; %s", part, reason, remedy)
	}
	t.Skipf("needs %s: %s; %s", part, reason, remedy)
}

// Require skips or fails the test when the part is not there. Java and Kafka
// are looked for by use; the other parts are for their own helpers to probe.
func Require(t testing.TB, part string) {
	t.Helper()
	switch part {
	case Java:
		if err := probeJava(); err != nil {
			Missing(t, part, err.Error(), "install a Java runtime 11 or later (Debian: default-jre-headless)")
		}
	case Kafka:
		Require(t, Java)
		if len(KafkaVersions()) == 0 {
			Missing(t, part, "no Kafka jars under "+JarsDir(),
				"run scripts/jars.sh .cache/jars 3.9.1 (another folder is named in ZKC_JARS)")
		}
	case Docker:
		if out, err := exec.Command("docker", "info").CombinedOutput(); err != nil {
			Missing(t, part, "docker info fails: "+firstLine(string(out)), "start Docker, or as root recipes/docker-up.sh")
		}
	case Browser:
		if !slices.ContainsFunc([]string{"chromium", "google-chrome"}, func(n string) bool { _, err := exec.LookPath(n); return err == nil }) {
			Missing(t, part, "no chromium on PATH", "apt-get install chromium")
		}
	default:
		t.Fatalf("real.Require: unknown part %q", part)
	}
}

func probeJava() error {
	out, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("java -version fails: %w: %s", err, firstLine(string(out)))
	}
	return nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// JarsDir is the folder whose sub-folders are sets of jars (3.9.1, zk-3.9.5, …):
// ZKC_JARS, else .cache/jars under the project's root.
func JarsDir() string {
	if d := os.Getenv("ZKC_JARS"); d != "" {
		return d
	}
	dir, err := os.Getwd()
	if err != nil {
		return filepath.Join(".cache", "jars")
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return filepath.Join(d, ".cache", "jars")
		}
		if d == filepath.Dir(d) {
			return filepath.Join(dir, ".cache", "jars")
		}
	}
}

// JarSet is the folder of one set of jars, or "" when it is not complete.
func JarSet(name string) string {
	d := filepath.Join(JarsDir(), name)
	if m, err := filepath.Glob(filepath.Join(d, "*.jar")); err != nil || len(m) == 0 {
		return ""
	}
	return d
}

// KafkaVersions are the Kafka versions whose jars are there, oldest first.
func KafkaVersions() []string {
	m, _ := filepath.Glob(filepath.Join(JarsDir(), "*", "kafka-clients-*.jar"))
	var out []string
	for _, p := range m {
		out = append(out, filepath.Base(filepath.Dir(p)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
