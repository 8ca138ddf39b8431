package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zktest"
)

func TestParseTopic(t *testing.T) {
	for text, want := range map[string]string{
		"orders": "", "orders:6": "", "orders:6:3": "", "a.b_c-d:1:1": "",
		"": "empty", "a/b": "character", "orders:x": "invalid syntax", "orders:0": "out of range", "orders:1:-1": "out of range",
		"orders:1:1:1": "too many", "..": "cannot be named", "orders:": "invalid syntax",
	} {
		got, err := parseTopic(text)
		if want == "" && (err != nil || got.Name != strings.Split(text, ":")[0]) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != 2) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// Who takes the signals has them all; before that the first and the others differ.
func TestSignalDesk(t *testing.T) {
	told := make(chan string, 10)
	d := &signalDesk{takers: make(chan chan<- os.Signal), first: func(s os.Signal) { told <- "first " + s.String() }, more: func() { told <- "more" }}
	signals := make(chan os.Signal)
	go d.run(signals)
	signals <- syscall.SIGTERM
	signals <- syscall.SIGINT
	if a, b := <-told, <-told; a != "first terminated" || b != "more" {
		t.Errorf("%s, %s", a, b)
	}
	taker := make(chan os.Signal, 1)
	d.takers <- taker
	signals <- syscall.SIGINT
	if s := <-taker; s != syscall.SIGINT {
		t.Errorf("got %v", s)
	}
	for range 5 { // one that does not look holds nobody up
		signals <- syscall.SIGTERM
	}
	if len(told) != 0 {
		t.Errorf("told %s", <-told)
	}
}

// installed is this test's own binary under the command's name (testscript.Main
// has put it into the PATH).
func installed(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("zkcontroller")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// built is the command as people have it: a test's own binary starts slower.
func built(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "zkcontroller")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return path
}

// BenchmarkDev measures from the start of the process until a topic of three
// partitions is created and led, beside memory and the time to leave.
func BenchmarkDev(b *testing.B) {
	path := built(b)
	var rss, leave float64
	for b.Loop() {
		cmd := exec.Command(path, "dev", "--topic", "orders:3:2")
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "Ready in ") {
		}
		b.StopTimer()
		begun := time.Now()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		leave += time.Since(begun).Seconds() * 1000
		rss += float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms-to-topic")
	b.ReportMetric(rss/float64(b.N), "MiB-RSS")
	b.ReportMetric(leave/float64(b.N), "ms-to-leave")
}

// BenchmarkZooKeeperStart measures from the start of the process until srvr says Mode.
func BenchmarkZooKeeperStart(b *testing.B) {
	path := built(b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for b.Loop() {
		cmd := exec.Command(path, "zookeeper", "--listen", address)
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		for !strings.Contains(fourLetters(address, "srvr"), "Mode: standalone") {
		}
		b.StopTimer()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/1000/float64(b.N), "ms-to-srvr")
}

// fourLetters asks a server; "" while it does not answer.
func fourLetters(address, word string) string {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return ""
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, word); err != nil {
		return ""
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return ""
	}
	return string(answer)
}

// runDev runs dev in this process until its context ends.
func runDev(t *testing.T, args ...string) (lines *bufio.Scanner, end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, append([]string{"dev"}, args...), w)
		w.Close()
	}()
	return bufio.NewScanner(r), func() error {
		cancel(interruption{syscall.SIGINT})
		go io.Copy(io.Discard, r)
		return <-done
	}
}

// Addresses are told at once, every command that is shown works as it stands,
// and an interruption is its good end.
func TestDev(t *testing.T) {
	lines, end := runDev(t, "--brokers", "2", "--topic", "orders:1:2")
	ours := regexp.MustCompile(`(topics|status|broker) .*--.*`)
	var shown []string
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "Ready in ") {
		if line := ours.FindString(lines.Text()); line != "" {
			shown = append(shown, line)
		}
	}
	if len(shown) != 5 {
		t.Fatalf("%d commands are shown: %q", len(shown), shown)
	}
	for _, line := range shown {
		ctx, cancel := context.WithCancelCause(t.Context())
		out := &watchedWriter{seen: func(text string) {
			if strings.Contains(line, "--watch") && strings.Contains(text, "BROKER") {
				cancel(interruption{syscall.SIGINT})
			}
		}}
		if err := run(ctx, strings.Fields(line), out); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if out.text == "" {
			t.Errorf("%s says nothing", line)
		}
		cancel(nil)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

type watchedWriter struct {
	text string
	seen func(string)
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	w.text += string(p)
	w.seen(w.text)
	return len(p), nil
}

// A follower that hangs leaves the ISR when records come that it does not get, and
// comes back behind the last of them; both are told with their cause.
func TestDevTellsOfISRs(t *testing.T) {
	lines, end := runDev(t, "--topic", "orders:1:3", "--lag-time-ms", "1500")
	var bootstrap []string
	var admin string
	next := func(want string) string {
		t.Helper()
		for lines.Scan() {
			line := lines.Text()
			if rest, ok := strings.CutPrefix(line, "Brokers "); ok {
				bootstrap = strings.Split(strings.TrimSpace(rest), ",")
			}
			if rest, ok := strings.CutPrefix(line, "Faults "); ok {
				admin = strings.Fields(rest)[0]
			}
			if m := regexp.MustCompile(want).FindString(line); m != "" {
				return m
			}
		}
		t.Fatalf("no line says %s: %v", want, lines.Err())
		return ""
	}
	next("^Ready in ")
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.DefaultProduceTopic("orders"), kgo.RequiredAcks(kgo.AllISRAcks()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	metadata, err := kadm.NewClient(client).Metadata(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	leader := metadata.Topics["orders"].Partitions[0].Leader
	fault := func(op string) {
		if err := run(t.Context(), []string{"broker", "fault", "--admin", admin, "--broker", strconv.Itoa(int(leader%3 + 1)), "--op", op}, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	produce := func(value string) {
		if err := client.ProduceSync(t.Context(), kgo.StringRecord(value)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce("all have it")
	fault("pause")
	produce("acknowledged as soon as the follower is out")
	out := next("ISR of orders-0 shrinks from .*")
	fault("resume")
	in := next("ISR of orders-0 grows from .*")
	follower := strconv.Itoa(int(leader%3 + 1))
	if !regexp.MustCompile(`^ISR of orders-0 shrinks from \[\d \d \d\] to \[\d \d\]: broker ` + follower + ` last caught up \d\.\d s ago, LEO 1 of 2$`).MatchString(out) {
		t.Error(out)
	}
	if !regexp.MustCompile(`^ISR of orders-0 grows from \[\d \d\] to \[\d \d \d\]: broker ` + follower + ` reached LEO 2 of 2, high watermark 2$`).MatchString(in) {
		t.Error(in)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// Changes that come faster than they can be written are counted; nobody waits.
func TestISRChangesAreNeverWaitedFor(t *testing.T) {
	c := newISRChanges()
	const all = 250
	for range all {
		c.add(kafka.TopicPartition{Topic: "t", Partition: 1}, brokers.ISRChange{From: []kafka.BrokerID{1, 2}, To: []kafka.BrokerID{1}, Cause: "why"})
	}
	told, missed := 0, 0
	done := make(chan struct{})
	out := &watchedWriter{seen: func(text string) {
		told = strings.Count(text, "ISR of t-1 shrinks from [1 2] to [1]: why\n")
		if i := strings.Index(text, "and "); i >= 0 && missed == 0 {
			fmt.Sscanf(text[i:], "and %d more", &missed)
			close(done)
		}
	}}
	end := c.tellTo(out)
	<-done
	end()
	if told+missed != all || told == 0 || missed == 0 {
		t.Errorf("%d told, %d counted", told, missed)
	}
}

// Another run on the same folder has the records that were acknowledged before.
func TestDevKeepsRecords(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for n := range 3 {
		lines, end := runDev(t, "--data-dir", dir, "--topic", "orders:2:3")
		var bootstrap []string
		for lines.Scan() && !strings.HasPrefix(lines.Text(), "Ready in ") {
			if rest, ok := strings.CutPrefix(lines.Text(), "Brokers "); ok {
				bootstrap = strings.Split(strings.TrimSpace(rest), ",")
			}
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			want = append(want, fmt.Sprintf("run %d, record %d", n, i))
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(want[len(want)-1])}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for len(got) < len(want) {
			fetches := client.PollFetches(t.Context())
			if err := fetches.Err(); err != nil {
				t.Fatalf("run %d, %d of %d records: %v", n, len(got), len(want), err)
			}
			fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("run %d: got %q", n, got)
		}
		client.Close()
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

// Another run on the same folder has the topics, and its brokers register
// again, also when the run before was killed.
func TestDevKeepsZnodes(t *testing.T) {
	dir := t.TempDir()
	path := installed(t)
	for n := range 3 {
		script := `zkcontroller topics list; zkcontroller status --watch=false -o json`
		args := []string{"dev", "--data-dir", dir, "--topic", "orders:3:2", "--", "sh", "-c", strings.ReplaceAll(script, "zkcontroller", path) + ` | tr -d ' \n'`}
		if n == 1 { // this one has no time to leave
			args[len(args)-1] = "kill -9 $PPID"
		}
		out, err := exec.Command(path, args...).Output()
		if n == 1 {
			if err == nil {
				t.Error("it was not killed")
			}
			continue
		}
		if err != nil {
			t.Fatalf("run %d: %v\n%s", n, err, out)
		}
		if !strings.Contains(string(out), `"topics":1,"partitions":3,"leaderless":[],"under_replicated":[]`) {
			t.Errorf("run %d:\n%s", n, out)
		}
	}
}

// The command's status, environment and signals are those of the command.
func TestDevCommand(t *testing.T) {
	path := installed(t)
	for _, tc := range []struct {
		what string
		args []string
		code int
		out  string
	}{
		{"status", []string{"sh", "-c", "exit 7"}, 7, "^$"},
		{"environment", []string{"sh", "-c", "echo $ZKC_ZOOKEEPER $ZKC_BOOTSTRAP_SERVERS"}, 0, `^127\.0\.0\.1:\d+ 127\.0\.0\.1:\d+,127\.0\.0\.1:\d+\n$`},
		{"it works there", []string{"sh", "-c", path + " topics create --bootstrap-server $ZKC_BOOTSTRAP_SERVERS --topic t --partitions 2 && " + path + " topics list"}, 0, `t +created\nt\n$`},
		{"standard input", []string{"cat"}, 0, "^said$"},
		{"killed by a signal", []string{"sh", "-c", "kill -KILL $$"}, 128 + 9, "^$"},
		{"no such program", []string{"/does/not/exist"}, 127, "^$"},
		{"no program", []string{os.TempDir()}, 126, "^$"},
		{"signals are passed on", []string{"sh", "-c", "trap 'echo caught; exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.01; done"}, 9, "^caught\n$"},
		{"and the second one, too", []string{"sh", "-c", "trap 'n=x$n; kill -INT $PPID; [ $n = xx ] && exit 9' INT; kill -INT $PPID; while :; do sleep 0.01; done"}, 9, "^$"},
		{"hangup", []string{"sh", "-c", "trap 'exit 5' HUP; kill -HUP $PPID; while :; do sleep 0.01; done"}, 5, "^$"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(path, append([]string{"dev", "--brokers", "2", "--"}, tc.args...)...)
			cmd.Stdin = strings.NewReader("said")
			out, err := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != tc.code || !regexp.MustCompile(tc.out).Match(out) {
				t.Errorf("exit code %d, want %d; %v; stdout %q", code, tc.code, err, out)
			}
		})
	}
}

// A disk that takes no transaction ends dev at once, and is the reason it gives.
func TestDevOnADiskThatFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "version-2", "log.1"), 0o755); err != nil { // where the first log would be
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--", "true"}} {
		err := run(t.Context(), append([]string{"dev", "--data-dir", dir}, args...), io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), "make transactions durable: begin a log") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// Ports that are taken, and words that mean nothing, are told with a remedy.
func TestDevRefuses(t *testing.T) {
	taken := zktest.StartZooKeeper(t)
	for _, tc := range []struct {
		args, want string
		code       int
	}{
		{"--listen " + taken.Connect(), "stop who has the port", 1},
		{"--brokers 0", "give 1 to", 2},
		{"--brokers 2 --topic t:1:3", "as many brokers", 2},
		{"--topic t:x", "NAME:PARTITIONS:RF", 2},
		{"--profile 7", "or A, B, C", 2},
		{"--port-base 65535", "would have port", 2},
		{"sh", "behind --", 2},
		{"--listen here:there:everywhere", "HOST:PORT", 2},
	} {
		var out strings.Builder
		err := run(t.Context(), append([]string{"dev"}, strings.Fields(tc.args)...), &out)
		if err == nil || exitCode(err) != tc.code || !strings.Contains(err.Error(), tc.want) || out.Len() != 0 {
			t.Errorf("%s: %v (exit code %d), stdout %q; want %q and %d", tc.args, err, exitCode(err), out.String(), tc.want, tc.code)
		}
	}
}

// A zoo.cfg with keys that nobody knows, settings of SERVER_JVMFLAGS, a clean
// end, and the data found again by the next one, also after a kill.
func TestZooKeeperCommand(t *testing.T) {
	path := installed(t)
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cfg := filepath.Join(dir, "zoo.cfg")
	text := "tickTime=500\ndataDir=" + dir + "/data\nclientPort=" + port + "\nmaxClientCnxns=0\nadmin.enableServer=false\n"
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", port)
	for n := range 3 {
		var said strings.Builder
		cmd := exec.Command(path, "zookeeper", cfg)
		cmd.Env = append(os.Environ(), "SERVER_JVMFLAGS=-Xmx64m -Dzookeeper.4lw.commands.whitelist=srvr,mntr")
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for cmd.ProcessState == nil && !strings.Contains(fourLetters(address, "srvr"), "Mode: standalone") {
		}
		if got := fourLetters(address, "ruok"); strings.Contains(got, "imok") {
			t.Errorf("ruok, which is not whitelisted, answers %q", got)
		}
		second := exec.Command(path, "zookeeper", cfg)
		if out, err := second.CombinedOutput(); second.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "stop who has the port") {
			t.Errorf("a second server: %v\n%s", err, out)
		}
		var out strings.Builder
		if err := run(t.Context(), []string{"topics", "list", "--zookeeper", address + "/run" + string(rune('0'+n))}, &out); err != nil {
			t.Errorf("run %d: %v", n, err)
		}
		if mntr := fourLetters(address, "mntr"); !strings.Contains(mntr, "zk_znode_count\t"+string(rune('6'+n))) { // the root, /zookeeper's four, a chroot each
			t.Errorf("run %d has other nodes: %s", n, mntr)
		}
		if n == 1 {
			cmd.Process.Kill()
			_ = cmd.Wait()
			continue
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("run %d: %v", n, err)
		}
		if !strings.Contains(said.String(), "admin.enableServer") || !strings.Contains(said.String(), "loopback alone") {
			t.Errorf("it said: %s", said.String())
		}
	}
}

// A folder that another server holds, and words that mean nothing.
func TestZooKeeperRefuses(t *testing.T) {
	dir := t.TempDir()
	zktest.StartZooKeeper(t, zktest.DataDir(dir))
	cfg := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(cfg, []byte("tickTime=soon\nclientPort=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args, want string
		code       int
	}{
		{"--listen 127.0.0.1:0 --data-dir " + dir, "in use", 4},
		{cfg, "tickTime", 2},
		{"/does/not/exist.cfg", "no such file", 2},
		{"", "ZOO.CFG or --listen", 2},
		{cfg + " --listen 2181", "ZOO.CFG or --listen", 2},
		{cfg + " --data-dir x", "goes with --listen", 2},
		{"--listen nowhere.invalid:1", "an address of this machine", 1},
		{"--listen a:b:c", "HOST:PORT", 2},
	} {
		err := run(t.Context(), append([]string{"zookeeper"}, strings.Fields(tc.args)...), io.Discard)
		if err == nil || exitCode(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v (exit code %d); want %q and %d", tc.args, err, exitCode(err), tc.want, tc.code)
		}
	}
}
