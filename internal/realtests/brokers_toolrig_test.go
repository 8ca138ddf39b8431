package realtests

import (
	"bufio"
	"context"
	"encoding/base64"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// tools are Kafka 3.9.1's own commands, in one JVM (testdata/Tools.java): they run
// one after the other.
type tools struct {
	bootstrap string
	mu        sync.Mutex
	number    int // of the last command
	in        io.Writer
	answers   chan string // a line each; closed when the JVM has ended
	stderr    output
}

// tool is the tools within one test. What goes wrong is often told in a command's
// output alone: the exit code says little (spec/environment.md §6).
type tool struct {
	*tools
	t *testing.T
}

func startTools(t *testing.T, bootstrap string) *tools {
	t.Helper()
	real.Require(t, real.Kafka)
	jars := real.JarSet("3.9.1")
	if jars == "" {
		real.Missing(t, real.Kafka, "the jars of Kafka 3.9.1 are not under "+real.JarsDir(), "scripts/jars.sh .cache/jars 3.9.1")
	}
	log4j := filepath.Join(t.TempDir(), "log4j.properties")
	write(t, log4j, "log4j.rootLogger=WARN, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\nlog4j.appender.stderr.target=System.err\n"+
		"log4j.appender.stderr.follow=true\nlog4j.appender.stderr.layout=org.apache.log4j.PatternLayout\nlog4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n\n")
	k := &tools{bootstrap: bootstrap, answers: make(chan string, 1)}
	cmd := exec.Command("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j.configuration=file:"+log4j,
		"-cp", filepath.Join(jars, "*"), filepath.Join("testdata", "Tools.java"))
	cmd.Stderr = &k.stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the tools: %v", err)
	}
	k.in = in
	go func() {
		defer close(k.answers)
		for r := bufio.NewReader(out); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			k.answers <- strings.TrimSuffix(line, "\n")
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		for range k.answers {
		}
		_ = cmd.Wait() // it was killed
	})
	t.Log("real: tools of Kafka 3.9.1")
	return k
}

// on gives the tools to a test.
func (k *tools) on(t *testing.T) tool { return tool{k, t} }

// word is a word of a command as Tools.java reads it.
func word(s string) string {
	if s == "" {
		return "-"
	}
	return base64.StdEncoding.EncodeToString([]byte(s))
}

// run gives what a command printed to standard output and error. It is given the
// bootstrap servers, unless its arguments say otherwise.
func (k tool) run(stdin, class string, args ...string) string {
	k.t.Helper()
	args = append([]string{"--bootstrap-server", k.bootstrap}, args...)
	if class == clusterTool { // its first argument is what to do
		args = append(args[2:3:3], append(args[:2:2], args[3:]...)...)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.number++
	number := strconv.Itoa(k.number)
	line := number + " " + word(class) + " " + word(stdin)
	for _, a := range args {
		line += " " + word(a)
	}
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	begin := time.Now()
	if _, err := io.WriteString(k.in, line+"\n"); err != nil {
		k.t.Fatalf("%s: the tools have ended: %v\n%s", class, err, k.stderr.String())
	}
	for {
		select {
		case answer, ok := <-k.answers:
			words := strings.Split(answer, " ")
			if ok && words[0] != number { // of a command that somebody had no patience with
				continue
			}
			if len(words) != 3 {
				k.t.Fatalf("%s %s: no answer: %q\n%s", class, strings.Join(args, " "), answer, k.stderr.String())
			}
			out, err := base64.StdEncoding.DecodeString(words[2])
			if err != nil {
				k.t.Fatal(err)
			}
			k.t.Logf("%5d ms, exit code %s: %s %s", time.Since(begin).Milliseconds(), words[1], class[strings.LastIndex(class, ".")+1:], strings.Join(args[2:], " "))
			return string(out)
		case <-ctx.Done():
			k.t.Fatalf("%s %s: not within %v", class, strings.Join(args, " "), patience)
		}
	}
}

// once runs a command that changes something: its output must have all of the patterns.
func (k tool) once(patterns []string, class string, args ...string) {
	k.t.Helper()
	out := k.run("", class, args...)
	if p := missing(out, patterns); p != "" {
		k.t.Errorf("%s %s: no %q in\n%s", class, strings.Join(args, " "), p, out)
	}
}

// want runs a command that looks until its output has all of the patterns: what
// one broker was told another one may show a moment later.
func (k tool) want(patterns []string, class string, args ...string) string {
	k.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; <-tick.C {
		out := k.run("", class, args...)
		p := missing(out, patterns)
		if p == "" {
			return out
		}
		if time.Since(begin) > patience/4 {
			k.t.Errorf("%s %s: no %q in\n%s", class, strings.Join(args, " "), p, out)
			return out
		}
	}
}

// missing gives the first pattern that the text does not match; "" is none.
func missing(text string, patterns []string) string {
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(text) {
			return p
		}
	}
	return ""
}

// whole gives the number that a pattern's group has.
func whole(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
