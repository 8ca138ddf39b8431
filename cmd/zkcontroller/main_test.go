package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

var shared real.SharedZooKeeper

func TestMain(m *testing.M) {
	testscript.Main(stopAfter{m}, map[string]func(){"zkcontroller": main})
}

// stopAfter ends the shared ZooKeeper when all tests have run.
type stopAfter struct{ m *testing.M }

func (s stopAfter) Run() int {
	defer shared.Stop()
	return s.m.Run()
}

// TestScripts runs the commands as a shell would. Scripts under zookeeper/ get a
// chroot of their own on a real ZooKeeper.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Cmds: commands})
}

func TestScriptsOnZooKeeper(t *testing.T) {
	z := shared.Get(t)
	var n atomic.Int64
	testscript.Run(t, testscript.Params{
		Dir: "testdata/zookeeper", Cmds: commands,
		Setup: func(e *testscript.Env) error {
			port, err := real.FreePort()
			if err != nil {
				return err
			}
			e.Setenv("ZK", fmt.Sprintf("%s/test%d", z.Addr(), n.Add(1)))
			e.Setenv("PORT", strconv.Itoa(port))
			return nil
		},
	})
}

var commands = map[string]func(ts *testscript.TestScript, neg bool, args []string){
	"code":  exits,
	"until": until,
}

// exits runs zkcontroller and wants an exit code: code 2 topics bogus.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec("zkcontroller", args[1:]...)
	got := 0
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// until runs zkcontroller again and again until its output matches.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN ARGS...")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; <-tick.C {
		err := ts.Exec("zkcontroller", args[1:]...)
		if err == nil || strings.Contains(err.Error(), "exit status") {
			if pattern.MatchString(ts.ReadFile("stdout") + ts.ReadFile("stderr")) {
				return
			}
		}
		if time.Since(begin) > time.Minute {
			ts.Fatalf("%q does not come", args[0])
		}
	}
}

// The second signal must not wait for anything; the first one ends a one-shot
// command with 130.
func TestInterrupted(t *testing.T) {
	if os.Getenv("ZKC_TEST_INTERRUPT") != "" {
		signal.Reset()
		os.Args = []string{"zkcontroller", "topics", "list", "--zookeeper", "127.0.0.1:1"}
		main()
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestInterrupted$")
	cmd.Env = append(os.Environ(), "ZKC_TEST_INTERRUPT=1")
	ready, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "ZKC_LOG_LEVEL=trace")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Its first words tell that it waits for ZooKeeper and takes signals.
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatalf("it said nothing: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d, want 130", code)
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		args string
		want int
	}{
		{"version", 0},
		{"", 2},
		{"bogus", 2},
		{"topics", 2},
		{"topics bogus", 2},
		{"topics list --bogus", 2},
		{"topics list", 2},
		{"topics list --zookeeper a:1 --bootstrap-server b:2", 2},
		{"topics create --zookeeper 127.0.0.1:1", 2},
		{"topics create --zookeeper 127.0.0.1:1 --topic a/b", 2},
		{"topics create --zookeeper 127.0.0.1:1 --topic t --replica-assignment 1:1", 2},
		{"topics create --zookeeper 127.0.0.1:1 --topic t --replica-assignment 1:2,1", 2},
		{"topics create --zookeeper 127.0.0.1:1 --topic t --config x", 2},
		{"topics alter --zookeeper 127.0.0.1:1 --topic t", 2},
		{"reassign execute --zookeeper 127.0.0.1:1 --reassignment-json-file /does/not/exist", 2},
		{"elect preferred --zookeeper 127.0.0.1:1", 2},
		{"elect unclean --zookeeper 127.0.0.1:1 --all-topic-partitions", 2},
		{"run", 2},
		{"run --zookeeper a:1", 2},
		{"run --zookeeper a:1 --broker-id x", 2},
		{"run --zookeeper a:1 --broker-id 1 --inter-broker-protocol-version 7.7", 2},
		{"run --zookeeper a:1 --broker-id 1 --listener SSL://127.0.0.1:0", 2},
		{"broker --zookeeper a:1", 2},
		{"broker --zookeeper a:1 --ids 3-1", 2},
		{"broker --zookeeper a:1 --ids 1 --profile Z", 2},
		{"broker fault", 2},
		{"broker fault --admin 127.0.0.1:1 --broker 1 --op kill", 3},
		{"status --watch", 2},
		{"cases run /does/not/exist", 2},
		{"topics list --zookeeper 127.0.0.1:1 --timeout 300ms", 3},
		{"topics list --bootstrap-server 127.0.0.1:1 --timeout 300ms", 3},
		{"status --zookeeper 127.0.0.1:1 --timeout 300ms", 3},
	} {
		t.Run(tc.args, func(t *testing.T) {
			var out strings.Builder
			err := run(context.Background(), strings.Fields(tc.args), &out)
			if got := exitCode(err); got != tc.want {
				t.Errorf("exit code %d, want %d: %v", got, tc.want, err)
			}
			if tc.want != 0 && out.Len() != 0 {
				t.Errorf("stdout has %q", out.String())
			}
		})
	}
}

// The files that Kafka's tools read: what is refused, and with which words.
func TestReadPlan(t *testing.T) {
	for _, tc := range []struct{ content, want string }{
		{`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}`, ""},
		{`{"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["any"]}]}`, ""},
		{`{"version":1,"partitions":[]}`, "names no partitions"},
		{`{"version":2,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}`, "version 2 is unknown"},
		{`[1]`, "the form is"},
		{`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}],"more":1}`, "unknown field"},
		{`{"version":1,"partitions":[{"topic":"t","replicas":[1]}]}`, "lacks topic or partition"},
		{`{"version":1,"partitions":[{"topic":"t","partition":-1,"replicas":[1]}]}`, "is no partition"},
		{`{"version":1,"partitions":[{"topic":"..","partition":0,"replicas":[1]}]}`, "is no partition"},
		{`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[]}]}`, "no replicas"},
		{`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,1]}]}`, "broker 1 twice"},
		{`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[-1]}]}`, "ids start at 0"},
		{`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]}`, "named twice"},
		{`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1],"log_dirs":["/d"]}]}`, "log_dirs"},
	} {
		file := filepath.Join(t.TempDir(), "plan.json")
		if err := os.WriteFile(file, []byte(tc.content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readPlan(file)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || exitCode(err) != 2) {
			t.Errorf("%s: %v", tc.content, err)
		}
	}
}

// A file or a port of this machine is no server that cannot be reached.
func TestExitCodeOfLocalErrors(t *testing.T) {
	_, file := os.Open("/does/not/exist")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, taken := net.Listen("tcp", ln.Addr().String())
	_, unreachable := net.Dial("tcp", "127.0.0.1:1")
	for _, tc := range []struct {
		err  error
		want int
	}{{file, 1}, {taken, 1}, {unreachable, 3}} {
		if got := exitCode(fmt.Errorf("broker 1: %w", tc.err)); got != tc.want {
			t.Errorf("%v: exit code %d, want %d", tc.err, got, tc.want)
		}
	}
}
