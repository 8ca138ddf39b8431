package real

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/zkserver"
)

// ZKKind is what serves as ZooKeeper.
type ZKKind string

const (
	Embedded ZKKind = "embedded" // zkserver in the test's own process
	Process  ZKKind = "process"  // "zkcontroller zookeeper" as a child process; needs WithProgram
	Apache   ZKKind = "apache"   // Apache ZooKeeper as a Java child process
)

// Chosen is the kind that TEST_ZOOKEEPER names, Embedded if it is unset. It is
// for tests that do not care, which run on both so: "make test" plays them again
// with TEST_ZOOKEEPER=apache. A test that cares says On.
func Chosen(t testing.TB) ZKKind {
	t.Helper()
	switch k := ZKKind(os.Getenv("TEST_ZOOKEEPER")); k {
	case "":
		return Embedded
	case Embedded, Apache:
		return k
	default:
		t.Fatalf("TEST_ZOOKEEPER=%s: it can be %s or %s", k, Embedded, Apache)
		return ""
	}
}

// ZKOption changes how a ZooKeeper server is started.
type ZKOption func(*zkConfig)

type zkConfig struct {
	kind     ZKKind
	program  string // built zkcontroller, of Process
	jars     string // set of jars; "" picks
	tick     time.Duration
	keys     map[string]string
	props    []string
	heap     string
	patience time.Duration
}

// On picks the kind of server whatever TEST_ZOOKEEPER says.
func On(k ZKKind) ZKOption { return func(c *zkConfig) { c.kind = k } }

// WithProgram makes it a Process of the built zkcontroller at path.
func WithProgram(path string) ZKOption {
	return func(c *zkConfig) { c.kind, c.program = Process, path }
}

// WithJars makes it Apache's from a set of jars: "zk-3.9.5", "3.9.1" (ZooKeeper
// 3.8.4), "2.4.1" (3.5.7), or "debian" for /usr/share/java (3.8.0).
func WithJars(set string) ZKOption { return func(c *zkConfig) { c.kind, c.jars = Apache, set } }

// WithTick sets tickTime, 500 ms unless given. Session time-outs are between 2 and 20 ticks.
func WithTick(d time.Duration) ZKOption { return func(c *zkConfig) { c.tick = d } }

// WithKey sets a key of zoo.cfg; forceSync is no unless given.
func WithKey(key, value string) ZKOption { return func(c *zkConfig) { c.keys[key] = value } }

// WithProperty adds a -D system property.
func WithProperty(key, value string) ZKOption {
	return func(c *zkConfig) { c.props = append(c.props, "-D"+key+"="+value) }
}

// WithHeap sets -Xmx of Apache's, 256m unless given.
func WithHeap(s string) ZKOption { return func(c *zkConfig) { c.heap = s } }

// ZKServer is a running ZooKeeper on 127.0.0.1.
type ZKServer struct {
	Version  string           // as srvr says it: 3.9.5-…
	Kind     ZKKind           // what it is
	Set      string           // the set of jars, of Apache's
	Embedded *zkserver.Server // of Embedded; another one after each Restart
	cfg      zkConfig
	dir      string
	port     int
	cmd      *exec.Cmd
	out      *tail
	exited   chan struct{} // closed when it has ended
}

// errNoZooKeeper says that no jars are there.
var errNoZooKeeper = errors.New("no ZooKeeper jars")

// ZooKeeper starts a server for one test and stops it with the test.
func ZooKeeper(t testing.TB, opts ...ZKOption) *ZKServer {
	t.Helper()
	opts = chosen(t, opts)
	z, err := StartZooKeeper(t.TempDir(), opts...)
	requireStarted(t, err)
	t.Cleanup(z.Kill)
	t.Logf("real: %s", z)
	return z
}

// chosen puts the kind that TEST_ZOOKEEPER names first, so that On overrules it,
// and looks whether what it needs is there.
func chosen(t testing.TB, opts []ZKOption) []ZKOption {
	t.Helper()
	opts = append([]ZKOption{On(Chosen(t))}, opts...)
	var c zkConfig
	c.keys = map[string]string{}
	for _, o := range opts {
		o(&c)
	}
	if c.kind == Apache {
		Require(t, Java)
	}
	return opts
}

func requireStarted(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errNoZooKeeper) {
		Missing(t, Java, err.Error(), "run scripts/jars.sh .cache/jars zk-3.9.5 (another folder is named in ZKC_JARS), or apt-get install zookeeper")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// SharedZooKeeper is one server for all tests of a package: started by the
// first Get, stopped by Stop, which TestMain calls.
type SharedZooKeeper struct {
	Options []ZKOption

	once sync.Once
	z    *ZKServer
	dir  string
	err  error
}

// Get gives the server, or skips or fails the test.
func (s *SharedZooKeeper) Get(t testing.TB) *ZKServer {
	t.Helper()
	opts := chosen(t, s.Options)
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "zookeeper"); s.err == nil {
			s.z, s.err = StartZooKeeper(s.dir, opts...)
		}
	})
	requireStarted(t, s.err)
	t.Logf("real: %s (shared)", s.z)
	return s.z
}

// Stop ends the server, if one was started, and removes its data.
func (s *SharedZooKeeper) Stop() {
	if s.z != nil {
		s.z.Kill()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

// StartZooKeeper starts a server with its data in dir and waits until it
// accepts sessions (srvr shows a Mode). Without On it is Apache's. The caller ends
// it with Stop or Kill.
func StartZooKeeper(dir string, opts ...ZKOption) (*ZKServer, error) {
	cfg := zkConfig{kind: Apache, tick: 500 * time.Millisecond, keys: map[string]string{"forceSync": "no"}, heap: "256m", patience: 3 * time.Minute}
	for _, o := range opts {
		o(&cfg)
	}
	z := &ZKServer{Kind: cfg.kind, cfg: cfg, dir: dir}
	var err error
	if cfg.kind == Apache {
		if z.Set, _, err = zkClasspath(cfg.jars); err != nil {
			return nil, err
		}
	}
	for range 3 {
		if z.port, err = FreePort(); err != nil {
			return nil, err
		}
		if err = z.start(); err == nil || !strings.Contains(err.Error(), "in use") {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return z, nil
}

func zkClasspath(set string) (name, classpath string, err error) {
	debian := "/usr/share/java/zookeeper.jar"
	if set != "debian" {
		for _, s := range []string{set, "zk-3.9.5", "3.9.1"} {
			if s != "" && JarSet(s) != "" {
				return s, filepath.Join(JarSet(s), "*"), nil
			}
			if set != "" {
				return "", "", fmt.Errorf("%w: set %s is not under %s", errNoZooKeeper, set, JarsDir())
			}
		}
	}
	if _, err := os.Stat(debian); err != nil {
		return "", "", fmt.Errorf("%w under %s, and no %s", errNoZooKeeper, JarsDir(), debian)
	}
	return "debian", debian + ":/usr/share/java/slf4j-simple.jar", nil
}

// FreePort finds a port of 127.0.0.1 that nobody listens on at the moment. It is
// below those that systems give to connections, one of which might have it before
// the server has started, or while it is restarted. Tests that run beside each
// other, in other processes too, get different ones: a file has the next.
func FreePort() (int, error) {
	const first, ports = 10_000, 8_000
	path := filepath.Join(os.TempDir(), "zkc-test-ports")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer file.Close() // and with it the lock
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return 0, fmt.Errorf("find a free port: lock %s: %w", path, err)
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return 0, fmt.Errorf("find a free port: read %s: %w", path, err)
	}
	next, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || next < 0 {
		next = rand.IntN(ports)
	}
	for range ports {
		port := first + next%ports
		next = (next + 1) % ports
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		l.Close()
		if _, err := file.WriteAt([]byte(fmt.Sprintf("%8d\n", next)), 0); err != nil {
			return 0, fmt.Errorf("find a free port: write %s: %w", path, err)
		}
		return port, nil
	}
	return 0, errors.New("find a free port: none from 10000 to 17999")
}

// start writes zoo.cfg and starts whatever serves on it.
func (z *ZKServer) start() error {
	var cfg bytes.Buffer
	fmt.Fprintf(&cfg, "clientPort=%d\nclientPortAddress=127.0.0.1\ndataDir=%s\ntickTime=%d\n", z.port, filepath.Join(z.dir, "data"), z.cfg.tick.Milliseconds())
	cfg.WriteString("admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\ninitLimit=40\nsyncLimit=20\n")
	for k, v := range z.cfg.keys {
		fmt.Fprintf(&cfg, "%s=%s\n", k, v)
	}
	file := filepath.Join(z.dir, "zoo.cfg")
	if err := os.WriteFile(file, cfg.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write ZooKeeper's configuration: %w", err)
	}
	z.out = &tail{}
	switch z.Kind {
	case Embedded:
		return z.embed(file)
	case Process:
		cmd := exec.Command(z.cfg.program, "zookeeper", file)
		cmd.Env = append(os.Environ(), "SERVER_JVMFLAGS="+strings.Join(z.cfg.props, " "))
		return z.run(cmd)
	}
	_, classpath, err := zkClasspath(z.Set)
	if err != nil {
		return err
	}
	args := []string{"-Xmx" + z.cfg.heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}
	args = append(args, z.cfg.props...)
	return z.run(exec.Command("java", append(args, "-cp", classpath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)...))
}

// run starts a process and waits until it serves.
func (z *ZKServer) run(cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = z.out, z.out
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start ZooKeeper: %w", err)
	}
	exited := make(chan struct{})
	z.cmd, z.exited = cmd, exited
	go func() { cmd.Wait(); close(exited) }()
	return z.awaitMode()
}

// embed serves in this process, by the same zoo.cfg.
func (z *ZKServer) embed(file string) error {
	cfg, err := zkserver.ParseZooCfg(file, strings.Join(z.cfg.props, " "))
	if err != nil {
		return fmt.Errorf("read the embedded ZooKeeper's configuration: %w", err)
	}
	log := logrus.New()
	log.SetOutput(z.out)
	cfg.Options.Log = log
	l, err := net.Listen("tcp", z.Addr())
	if err != nil {
		return fmt.Errorf("the embedded ZooKeeper's port: %w", err)
	}
	s, err := zkserver.New(cfg.Options)
	if err != nil {
		l.Close()
		return fmt.Errorf("start the embedded ZooKeeper: %w", err)
	}
	exited := make(chan struct{})
	z.Embedded, z.exited = s, exited
	go func() {
		if err := s.Serve(l); err != nil {
			log.WithError(err).Error("the embedded ZooKeeper ended")
		}
		close(exited)
	}()
	return z.awaitMode()
}

// awaitMode polls srvr: it is the sign to wait for (spec/zookeeper.md §8).
func (z *ZKServer) awaitMode() error {
	deadline := time.Now().Add(z.cfg.patience)
	each := 50 * time.Millisecond
	if z.Kind != Apache {
		each = time.Millisecond
	}
	poll := time.NewTicker(each)
	defer poll.Stop()
	for time.Now().Before(deadline) {
		select {
		case <-z.exited:
			return fmt.Errorf("ZooKeeper (%s) ended before it served: %s", z.Set, z.out)
		case <-poll.C:
		}
		// A server that is just starting may accept and never answer.
		s, err := fourLetterWord(z.Addr(), "srvr", time.Second)
		if err == nil && strings.Contains(s, "Mode: ") {
			v, _, _ := strings.Cut(strings.TrimPrefix(firstLine(s), "Zookeeper version: "), ",")
			z.Version, _, _ = strings.Cut(v, "-")
			return nil
		}
	}
	z.Kill()
	return fmt.Errorf("ZooKeeper (%s) did not serve within %s: %s", z.Set, z.cfg.patience, z.out)
}

// String says which server ran.
func (z *ZKServer) String() string {
	switch z.Kind {
	case Embedded:
		return fmt.Sprintf("embedded ZooKeeper, in-process, on %s", z.Addr())
	case Process:
		return fmt.Sprintf("embedded ZooKeeper, a process of its own, on %s", z.Addr())
	}
	return fmt.Sprintf("Apache ZooKeeper %s (%s) on %s", z.Version, z.Set, z.Addr())
}

// Addr is HOST:PORT.
func (z *ZKServer) Addr() string { return fmt.Sprintf("127.0.0.1:%d", z.port) }

// PID is the id of the server's process, or of the test's for Embedded.
func (z *ZKServer) PID() int {
	if z.Kind == Embedded {
		return os.Getpid()
	}
	return z.cmd.Process.Pid
}

// Stop ends the server in good order (SIGTERM) and waits for it.
func (z *ZKServer) Stop() { z.end(syscall.SIGTERM) }

// Kill ends the server by SIGKILL and waits for it. Embedded cannot be killed
// without the test: it ends in good order, but without a word to its clients, as
// every ZooKeeper does.
func (z *ZKServer) Kill() { z.end(syscall.SIGKILL) }

func (z *ZKServer) end(sig syscall.Signal) {
	if z.Kind != Embedded {
		z.cmd.Process.Signal(sig)
	} else if err := z.Embedded.Close(); err != nil {
		fmt.Fprintf(os.Stderr, "close %s: %v\n", z, err)
	}
	<-z.exited
}

// Signal sends SIGSTOP or SIGCONT. A paused process does not reliably expire
// sessions: cut the network instead.
func (z *ZKServer) Signal(sig syscall.Signal) error {
	switch {
	case z.Kind != Embedded:
		return z.cmd.Process.Signal(sig)
	case sig == syscall.SIGSTOP:
		z.Embedded.Pause()
	case sig == syscall.SIGCONT:
		z.Embedded.Resume()
	default:
		return fmt.Errorf("%s: an embedded server knows no %s", z, sig)
	}
	return nil
}

// Restart starts the stopped server on the same port and data.
func (z *ZKServer) Restart() error { return z.start() }

// FourLetterWord asks an administrative word of a ZooKeeper server.
func FourLetterWord(addr, word string) (string, error) {
	return fourLetterWord(addr, word, 10*time.Second)
}

func fourLetterWord(addr, word string, patience time.Duration) (string, error) {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte(word)); err != nil {
		return "", err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// tail keeps the last bytes a process wrote.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if over := len(t.b) - 8192; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.b) == 0 {
		return "(it printed nothing)"
	}
	return strings.TrimSpace(string(t.b))
}
