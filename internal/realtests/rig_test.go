package realtests

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "realtests")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "zkcontroller")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/zkcontroller")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the program: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// patience is how long anything may take on a busy machine.
const patience = 2 * time.Minute

// await looks at a condition until it holds, and tells how long that took.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(begin) > patience {
			t.Fatalf("%s: not within %v", what, patience)
		}
		<-tick.C
	}
	t.Logf("%-58s %6d ms", what, time.Since(begin).Milliseconds())
}

// folder is t.TempDir for brokers: its path has no comma, which log.dirs would take
// for the end of a path.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "broker")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// output keeps what a process wrote.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// child is a process that ends with its test; its output is shown if the test fails.
type child struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when it has ended
}

func start(t *testing.T, name string, argv ...string) *child {
	t.Helper()
	c := &child{t: t, name: name, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // how it ended is read off ProcessState
		close(c.done)
	}()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			lines := strings.Split(c.out.String(), "\n")
			t.Logf("the last lines of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	})
	return c
}

// kill is SIGKILL; it waits until the process is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	<-c.done
}

// leave is SIGTERM; the exit code must be 0 within the time.
func (c *child) leave(within time.Duration) {
	c.t.Helper()
	begin := time.Now()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatalf("%s had ended: %v", c.name, err)
	}
	select {
	case <-c.done:
	case <-time.After(within):
		c.t.Fatalf("%s does not leave within %v", c.name, within)
	}
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		c.t.Fatalf("%s left with exit code %d", c.name, code)
	}
	c.t.Logf("%-58s %6d ms", c.name+" left", time.Since(begin).Milliseconds())
}

// zkc runs a one-shot command and gives its output and exit code.
func zkc(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("run zkcontroller: %v", err)
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		return string(out) + stderr.String(), code
	}
	return string(out), 0
}

// must is zkc that has to succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, code := zkc(t, args...)
	if code != 0 {
		t.Fatalf("zkcontroller %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return out
}
