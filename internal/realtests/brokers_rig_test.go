package realtests

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// ourBroker is one of our brokers as a process of its own, with logs on disk.
type ourBroker struct {
	*kafkaBroker
	admin string
}

// startBroker starts "broker --config FILE", with a candidate for the controller
// if the broker is to be one. more are lines of server.properties.
func startBroker(t *testing.T, zk string, id int, candidate bool, more ...string) *ourBroker {
	t.Helper()
	var ports [2]int
	for i := range ports {
		var err error
		if ports[i], err = real.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	b := &ourBroker{kafkaBroker: &kafkaBroker{id: id, addr: fmt.Sprintf("127.0.0.1:%d", ports[0])}, admin: fmt.Sprintf("127.0.0.1:%d", ports[1])}
	dir := folder(t)
	lines := append([]string{fmt.Sprintf("broker.id=%d", id), "listeners=PLAINTEXT://" + b.addr, "zookeeper.connect=" + zk, "zkc.admin=" + b.admin,
		"log.dirs=" + filepath.Join(dir, "logs"), "zookeeper.session.timeout.ms=6000", "offsets.topic.num.partitions=4", "group.initial.rebalance.delay.ms=0",
		"controlled.shutdown.retry.backoff.ms=500"}, more...)
	config := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.argv = []string{binary, "broker", "--config", config, "--records"}
	if candidate {
		b.argv = append(b.argv, "--controller")
	}
	b.child = start(t, fmt.Sprintf("our broker %d", id), b.argv...)
	return b
}

// fault asks the broker to misbehave; the request is that of the admin port.
func (b *ourBroker) fault(request map[string]any) error {
	request["broker"] = b.id
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Post("http://"+b.admin+"/fault", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body) // it is only shown
		return fmt.Errorf("fault %v: %s", request["op"], text)
	}
	return nil
}

// dialZooKeeper gives a session that ends with the test.
func dialZooKeeper(t *testing.T, server string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{server}, 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

type silent struct{}

// Printf says nothing.
func (silent) Printf(string, ...any) {}

// awaitBrokers waits until exactly these brokers are registered and somebody is in charge.
func awaitBrokers(t *testing.T, zk string, ids ...int) {
	t.Helper()
	await(t, fmt.Sprintf("brokers %v registered", ids), func() bool {
		s, ok := statusOf(t, zk)
		return ok && s.has(ids...) && s.Controller != nil
	})
}

// awaitHealthy waits until every partition has a leader and a full ISR.
func awaitHealthy(t *testing.T, zk string, partitions int) {
	t.Helper()
	await(t, fmt.Sprintf("%d partitions led and in sync", partitions), func() bool {
		s, ok := statusOf(t, zk)
		return ok && s.Partitions == partitions && s.healthy()
	})
}

// fleet is a cluster of brokers of ours, each a process and a candidate.
type fleet struct {
	zk      string
	brokers []*ourBroker
}

func startFleet(t *testing.T, n int, more ...string) *fleet {
	t.Helper()
	f := &fleet{zk: real.ZooKeeper(t).Addr()}
	var ids []int
	for id := 1; id <= n; id++ {
		f.brokers = append(f.brokers, startBroker(t, f.zk, id, true, more...))
		ids = append(ids, id)
	}
	awaitBrokers(t, f.zk, ids...)
	return f
}

func (f *fleet) seeds() []string {
	var all []string
	for _, b := range f.brokers {
		all = append(all, b.addr)
	}
	return slices.Clone(all)
}

// brokersOf says whose brokers the client tests talk to: ours, or Kafka's, to
// see that the tests ask for nothing that Kafka does not do.
var brokersOf = flag.String("brokers.of", "ours", "whose brokers the clients and tools are given: ours, kafka as the baseline, or none to leave these tests out")

// target is a cluster of three brokers, with ids 1 to 3, for clients.
type target struct {
	zk    string
	seeds []string
}

func (c target) bootstrap() string { return strings.Join(c.seeds, ",") }

func requireOurs(t *testing.T) {
	t.Helper()
	if *brokersOf == "none" {
		t.Skip("left out by -brokers.of=none")
	}
}

// startTarget starts our brokers as processes, each a candidate, or Kafka's.
func startTarget(t *testing.T) target {
	t.Helper()
	requireOurs(t)
	if *brokersOf == "ours" {
		f := startFleet(t, 3, "num.partitions=1", "default.replication.factor=3")
		return target{f.zk, f.seeds()}
	}
	c := target{zk: real.ZooKeeper(t).Addr()}
	for id := 1; id <= 3; id++ {
		c.seeds = append(c.seeds, startKafka(t, "3.9.1", c.zk, id, map[string]string{"default.replication.factor": "3", "offsets.topic.replication.factor": "3"}).addr)
	}
	awaitBrokers(t, c.zk, 1, 2, 3)
	return c
}
