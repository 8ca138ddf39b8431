package real

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/wire"
)

// KafkaServer is a running Apache Kafka broker in ZooKeeper mode on 127.0.0.1,
// with one PLAINTEXT listener.
type KafkaServer struct {
	ID      int
	Version string // the set of jars: 3.9.1
	port    int
	dir     string
	cmd     *exec.Cmd
	out     *tail
	exited  chan struct{}
}

// KafkaBroker starts a broker for one test and stops it with the test. zk is
// zookeeper.connect, chroot included; version is a set of jars, such as 3.9.1;
// props are lines of server.properties, broker.id=1 unless they say otherwise.
func KafkaBroker(t testing.TB, zk, version string, props ...string) *KafkaServer {
	t.Helper()
	Require(t, Kafka)
	if JarSet(version) == "" {
		Missing(t, Kafka, "no jars of Kafka "+version+" under "+JarsDir(), "run scripts/jars.sh .cache/jars "+version+" (another folder is named in ZKC_JARS)")
	}
	dir, err := os.MkdirTemp("", "kafka") // a test's name may have a comma, which log.dirs would take for the end of a path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k, err := StartKafka(dir, zk, version, props...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Kill)
	t.Logf("real: %s", k)
	return k
}

// StartKafka starts a broker with its data in dir and waits until it answers
// ApiVersions, which brokers do only once they are registered. The caller ends
// it with Stop or Kill.
func StartKafka(dir, zk, version string, props ...string) (*KafkaServer, error) {
	port, err := FreePort()
	if err != nil {
		return nil, err
	}
	k := &KafkaServer{ID: 1, Version: version, port: port, dir: dir}
	var cfg bytes.Buffer
	fmt.Fprintf(&cfg, "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:%d\nzookeeper.connect=%s\nlog.dirs=%s\n", port, zk, filepath.Join(dir, "logs"))
	cfg.WriteString("zookeeper.session.timeout.ms=18000\nnum.partitions=1\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=4\n" +
		"transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\ntransaction.state.log.num.partitions=4\n" +
		"group.initial.rebalance.delay.ms=0\nlog.cleaner.dedupe.buffer.size=2097152\ncontrolled.shutdown.retry.backoff.ms=500\n")
	for _, p := range props { // of a key that comes twice, the last counts
		fmt.Fprintln(&cfg, p)
		if id, ok := strings.CutPrefix(p, "broker.id="); ok {
			if _, err := fmt.Sscan(id, &k.ID); err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
		}
	}
	log4j := "log4j.rootLogger=WARN, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\nlog4j.appender.stderr.target=System.err\n" +
		"log4j.appender.stderr.layout=org.apache.log4j.PatternLayout\nlog4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
	for name, text := range map[string]string{"server.properties": cfg.String(), "log4j.properties": log4j} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("write Kafka's configuration: %w", err)
		}
	}
	return k, k.Start()
}

// Start starts a stopped broker again, on the same port and data.
func (k *KafkaServer) Start() error {
	k.out = &tail{}
	k.cmd = exec.Command("java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dlog4j.configuration=file:"+filepath.Join(k.dir, "log4j.properties"), "-cp", filepath.Join(JarSet(k.Version), "*"),
		"kafka.Kafka", filepath.Join(k.dir, "server.properties"))
	k.cmd.Stdout, k.cmd.Stderr = k.out, k.out
	k.cmd.SysProcAttr = dieWithParent()
	if err := k.cmd.Start(); err != nil {
		return fmt.Errorf("start Kafka %s: %w", k.Version, err)
	}
	cmd, exited := k.cmd, make(chan struct{})
	k.exited = exited
	go func() { cmd.Wait(); close(exited) }()
	return k.awaitAnswer(3 * time.Minute)
}

func (k *KafkaServer) awaitAnswer(patience time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-k.exited:
			return fmt.Errorf("broker of Kafka %s ended before it served: %s", k.Version, k.out)
		case <-ctx.Done():
			k.Kill()
			return fmt.Errorf("broker of Kafka %s did not serve within %s: %s", k.Version, patience, k.out)
		case <-poll.C:
		}
		if k.answers(ctx) {
			return nil
		}
	}
}

func (k *KafkaServer) answers(ctx context.Context) bool {
	c, err := wire.Dial(ctx, k.Addr(), wire.DialOptions{ClientID: "test"})
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.APIVersions(ctx)
	return err == nil
}

// String says which broker ran.
func (k *KafkaServer) String() string {
	return fmt.Sprintf("Apache Kafka %s, broker %d on %s", k.Version, k.ID, k.Addr())
}

// Addr is HOST:PORT.
func (k *KafkaServer) Addr() string { return fmt.Sprintf("127.0.0.1:%d", k.port) }

// Port is the listener's port.
func (k *KafkaServer) Port() int { return k.port }

// Output is the end of what the broker printed: warnings and errors.
func (k *KafkaServer) Output() string { return k.out.String() }

// Stop ends the broker by SIGTERM, which is a controlled shutdown, and waits.
func (k *KafkaServer) Stop() { k.end(syscall.SIGTERM) }

// Kill ends the broker by SIGKILL and waits for it.
func (k *KafkaServer) Kill() { k.end(syscall.SIGKILL) }

func (k *KafkaServer) end(sig syscall.Signal) {
	k.cmd.Process.Signal(sig)
	<-k.exited
}

// Signal sends a signal to the broker, say SIGSTOP and SIGCONT.
func (k *KafkaServer) Signal(sig syscall.Signal) error { return k.cmd.Process.Signal(sig) }
