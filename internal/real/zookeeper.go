package real

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ZKOption changes how a ZooKeeper server is started.
type ZKOption func(*zkConfig)

type zkConfig struct {
	jars     string // set of jars; "" picks
	tick     time.Duration
	keys     map[string]string
	props    []string
	heap     string
	patience time.Duration
}

// WithJars picks the set of jars: "zk-3.9.5", "3.9.1" (ZooKeeper 3.8.4),
// "2.4.1" (3.5.7), or "debian" for /usr/share/java (3.8.0).
func WithJars(set string) ZKOption { return func(c *zkConfig) { c.jars = set } }

// WithTick sets tickTime, 500 ms unless given. Session time-outs are between 2 and 20 ticks.
func WithTick(d time.Duration) ZKOption { return func(c *zkConfig) { c.tick = d } }

// WithKey adds a line to zoo.cfg.
func WithKey(key, value string) ZKOption { return func(c *zkConfig) { c.keys[key] = value } }

// WithProperty adds a -D system property.
func WithProperty(key, value string) ZKOption {
	return func(c *zkConfig) { c.props = append(c.props, "-D"+key+"="+value) }
}

// WithHeap sets -Xmx, 256m unless given.
func WithHeap(s string) ZKOption { return func(c *zkConfig) { c.heap = s } }

// ZKServer is a running Apache ZooKeeper on 127.0.0.1.
type ZKServer struct {
	Version string // as srvr says it: 3.9.5-…
	Set     string // the set of jars it came from
	cfg     zkConfig
	dir     string
	port    int
	cmd     *exec.Cmd
	out     *tail
	exited  chan struct{}
}

// errNoZooKeeper says that no jars are there.
var errNoZooKeeper = errors.New("no ZooKeeper jars")

// ZooKeeper starts a server for one test and stops it with the test.
func ZooKeeper(t testing.TB, opts ...ZKOption) *ZKServer {
	t.Helper()
	Require(t, Java)
	z, err := StartZooKeeper(t.TempDir(), opts...)
	requireStarted(t, err)
	t.Cleanup(z.Kill)
	t.Logf("real: %s", z)
	return z
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
	Require(t, Java)
	s.once.Do(func() {
		if s.dir, s.err = os.MkdirTemp("", "zookeeper"); s.err == nil {
			s.z, s.err = StartZooKeeper(s.dir, s.Options...)
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
// accepts sessions (srvr shows a Mode). The caller ends it with Stop or Kill.
func StartZooKeeper(dir string, opts ...ZKOption) (*ZKServer, error) {
	cfg := zkConfig{tick: 500 * time.Millisecond, keys: map[string]string{}, heap: "256m", patience: 3 * time.Minute}
	for _, o := range opts {
		o(&cfg)
	}
	set, cp, err := zkClasspath(cfg.jars)
	if err != nil {
		return nil, err
	}
	z := &ZKServer{Set: set, cfg: cfg, dir: dir}
	for range 3 {
		if z.port, err = FreePort(); err != nil {
			return nil, err
		}
		if err = z.start(cp); err == nil || !strings.Contains(err.Error(), "in use") {
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

// FreePort finds a port of 127.0.0.1 that nobody listens on at the moment.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (z *ZKServer) start(classpath string) error {
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
	args := []string{"-Xmx" + z.cfg.heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}
	args = append(args, z.cfg.props...)
	args = append(args, "-cp", classpath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	z.out = &tail{}
	z.cmd = exec.Command("java", args...)
	z.cmd.Stdout, z.cmd.Stderr = z.out, z.out
	z.cmd.SysProcAttr = dieWithParent()
	if err := z.cmd.Start(); err != nil {
		return fmt.Errorf("start ZooKeeper: %w", err)
	}
	cmd, exited := z.cmd, make(chan struct{})
	z.exited = exited
	go func() { cmd.Wait(); close(exited) }()
	return z.awaitMode()
}

// awaitMode polls srvr: it is the sign to wait for (spec/zookeeper.md §8).
func (z *ZKServer) awaitMode() error {
	deadline := time.Now().Add(z.cfg.patience)
	poll := time.NewTicker(50 * time.Millisecond)
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
	return fmt.Sprintf("Apache ZooKeeper %s (%s) on %s", z.Version, z.Set, z.Addr())
}

// Addr is HOST:PORT.
func (z *ZKServer) Addr() string { return fmt.Sprintf("127.0.0.1:%d", z.port) }

// PID is the process id of the JVM.
func (z *ZKServer) PID() int { return z.cmd.Process.Pid }

// Stop ends the server by SIGTERM and waits for it.
func (z *ZKServer) Stop() { z.end(syscall.SIGTERM) }

// Kill ends the server by SIGKILL and waits for it.
func (z *ZKServer) Kill() { z.end(syscall.SIGKILL) }

func (z *ZKServer) end(sig syscall.Signal) {
	z.cmd.Process.Signal(sig)
	<-z.exited
}

// Signal sends a signal to the server, say SIGSTOP and SIGCONT. A paused
// server does not reliably expire sessions: cut the network instead.
func (z *ZKServer) Signal(sig syscall.Signal) error { return z.cmd.Process.Signal(sig) }

// Restart starts the stopped server on the same port and data.
func (z *ZKServer) Restart() error {
	_, cp, err := zkClasspath(z.Set)
	if err != nil {
		return err
	}
	return z.start(cp)
}

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
