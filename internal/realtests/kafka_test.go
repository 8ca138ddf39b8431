package realtests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

func contains(c *child, text string) bool { return strings.Contains(c.out.String(), text) }

// kafkaBroker is one of Kafka's own brokers.
type kafkaBroker struct {
	*child
	id      int
	addr    string
	argv    []string
	earlier []*child // its processes before this one
}

// startKafka starts a broker of a release whose jars are there. Its own
// candidacy is lost as long as our controller was elected first.
func startKafka(t *testing.T, release, zk string, id int, more map[string]string) *kafkaBroker {
	t.Helper()
	real.Require(t, real.Kafka)
	jars := real.JarSet(release)
	if jars == "" {
		real.Missing(t, real.Kafka, "the jars of Kafka "+release+" are not under "+real.JarsDir(), "scripts/jars.sh .cache/jars "+release)
	}
	port, err := real.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t)
	b := &kafkaBroker{id: id, addr: fmt.Sprintf("127.0.0.1:%d", port)}
	props := map[string]string{
		"broker.id": strconv.Itoa(id), "listeners": "PLAINTEXT://" + b.addr, "zookeeper.connect": zk, "log.dirs": filepath.Join(dir, "logs"),
		"zookeeper.session.timeout.ms": "9000", "offsets.topic.num.partitions": "4", "offsets.topic.replication.factor": "1",
		"log.cleaner.dedupe.buffer.size": "2097152", "group.initial.rebalance.delay.ms": "0", "controlled.shutdown.retry.backoff.ms": "500",
	}
	for k, v := range more {
		props[k] = v
	}
	var text strings.Builder
	for k, v := range props {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	config, log4j := filepath.Join(dir, "server.properties"), filepath.Join(dir, "log4j.properties")
	for file, content := range map[string]string{config: text.String(), log4j: "log4j.rootLogger=WARN, stderr\n" +
		"log4j.logger.kafka.server=INFO\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\nlog4j.appender.stderr.target=System.err\n" +
		"log4j.appender.stderr.layout=org.apache.log4j.PatternLayout\nlog4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n\n"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.argv = []string{"java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", jars + "/*",
		"-Dlog4j.configuration=file:" + log4j, "kafka.Kafka", config}
	b.child = start(t, fmt.Sprintf("kafka %s broker %d", release, id), b.argv...)
	t.Logf("real: Kafka %s broker %d", release, id)
	return b
}

// again starts the broker anew, with its logs.
func (b *kafkaBroker) again(t *testing.T) {
	b.earlier = append(b.earlier, b.child)
	b.child = start(t, b.name, b.argv...)
}

func kafkaClient(t *testing.T, seeds ...string) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.RetryTimeout(patience), kgo.MetadataMinAge(100*time.Millisecond),
		// A broker on a busy machine may learn of a new topic a second after its leader was elected.
		kgo.RecordDeliveryTimeout(patience), kgo.UnknownTopicRetries(-1), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// roundTrip produces n records and reads the topic from its beginning until it has want of them.
func roundTrip(t *testing.T, topic string, n, want int, seeds ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := kafkaClient(t, seeds...)
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(i))})
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	got := 0
	for got < want {
		fetched := reader.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("read %d of %d records of %s: %v", got, want, topic, err)
		}
		got += fetched.NumRecords()
	}
	if got != want {
		t.Errorf("%d records of %s, want %d", got, topic, want)
	}
}

// Brokers of 3.9.1 under our visible controller: create, produce, consume, a
// leader killed, back again, moved away, shut down in good order, deleted.
func TestKafka391(t *testing.T) {
	real.Require(t, real.Kafka)
	z := real.ZooKeeper(t)
	zk := z.Addr() + "/kafka"
	c := startController(t, zk, 1000)
	await(t, "controller elected", func() bool { s, ok := statusOf(t, zk); return ok && s.controlledBy(1000) })
	brokers := []*kafkaBroker{startKafka(t, "3.9.1", zk, 1, nil), startKafka(t, "3.9.1", zk, 2, nil), startKafka(t, "3.9.1", zk, 3, nil)}
	seeds := []string{brokers[0].addr, brokers[1].addr, brokers[2].addr}
	await(t, "brokers registered", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2, 3) })
	admin := kadm.NewClient(kafkaClient(t, seeds...))
	await(t, "clients see the controller", func() bool {
		m, err := admin.BrokerMetadata(t.Context())
		return err == nil && m.Controller == 1000
	})
	if _, err := admin.CreateTopic(t.Context(), 4, 2, nil, "orders"); err != nil {
		t.Fatalf("create: %v", err)
	}
	await(t, "4 partitions led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions == 4 && s.healthy() })
	roundTrip(t, "orders", 100, 100, seeds...)

	brokers[0].kill()
	await(t, "broker 1 is gone", func() bool { s, ok := statusOf(t, zk); return ok && s.has(2, 3) && len(s.Leaderless) == 0 })
	roundTrip(t, "orders", 100, 200, seeds[1:]...)
	brokers[0].again(t)
	await(t, "broker 1 is back and in sync", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2, 3) && s.healthy() })

	plan := filepath.Join(t.TempDir(), "plan.json")
	moves := `{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2,3]},{"topic":"orders","partition":1,"replicas":[3,2]},` +
		`{"topic":"orders","partition":2,"replicas":[2,3]},{"topic":"orders","partition":3,"replicas":[3,2]}]}`
	if err := os.WriteFile(plan, []byte(moves), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "reassign", "execute", "--bootstrap-server", seeds[1], "--reassignment-json-file", plan)
	await(t, "moves complete", func() bool {
		_, code := zkc(t, "reassign", "verify", "--zookeeper", zk, "--reassignment-json-file", plan)
		return code == 0
	})
	roundTrip(t, "orders", 100, 300, seeds[1:]...)

	brokers[1].leaveKafka()
	await(t, "broker 2 left in good order", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 3) && len(s.Leaderless) == 0 })
	if !contains(brokers[1].child, "Controlled shutdown request returned successfully") {
		t.Error("broker 2 did not get leave from the controller")
	}
	brokers[1].again(t)
	await(t, "broker 2 is back and in sync", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2, 3) && s.healthy() })
	if _, err := admin.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatalf("delete: %v", err)
	}
	await(t, "the topic is gone", func() bool { s, ok := statusOf(t, zk); return ok && s.Topics == 0 && len(s.Deletions) == 0 })
	c.leave(5 * time.Second)
}

// leaveKafka asks a broker of Kafka to stop and waits for it; a JVM ends with 143.
func (b *kafkaBroker) leaveKafka() {
	b.t.Helper()
	if err := b.cmd.Process.Signal(os.Interrupt); err != nil {
		b.t.Fatalf("%s had ended: %v", b.name, err)
	}
	select {
	case <-b.done:
	case <-time.After(patience):
		b.t.Fatalf("%s does not stop", b.name)
	}
}

// Brokers of 2.4.1 under a hidden controller: everything goes by znodes.
func TestKafka241(t *testing.T) {
	real.Require(t, real.Kafka)
	z := real.ZooKeeper(t)
	zk := z.Addr()
	c := start(t, "controller 1000", binary, "run", "--zookeeper", zk, "--broker-id", "1000", "--inter-broker-protocol-version", "2.4")
	await(t, "controller elected", func() bool { s, ok := statusOf(t, zk); return ok && s.controlledBy(1000) })
	brokers := []*kafkaBroker{startKafka(t, "2.4.1", zk, 1, nil), startKafka(t, "2.4.1", zk, 2, nil)}
	await(t, "brokers registered", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2) })
	must(t, "topics", "create", "--zookeeper", zk, "--topic", "t", "--replica-assignment", "1:2,2:1", "--inter-broker-protocol-version", "2.4")
	await(t, "2 partitions led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions == 2 && s.healthy() })
	roundTrip(t, "t", 50, 50, brokers[0].addr, brokers[1].addr)
	brokers[1].kill()
	await(t, "broker 2 is gone", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1) && len(s.Leaderless) == 0 })
	roundTrip(t, "t", 50, 100, brokers[0].addr)
	brokers[1].again(t)
	await(t, "broker 2 is back and in sync", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2) && s.healthy() })
	must(t, "elect", "preferred", "--zookeeper", zk, "--all-topic-partitions")
	await(t, "preferred leaders lead", func() bool {
		return strings.Contains(must(t, "status", "--zookeeper", zk), "not led by preferred  0")
	})
	must(t, "topics", "delete", "--zookeeper", zk, "--topic", "t")
	await(t, "the topic is gone", func() bool { s, ok := statusOf(t, zk); return ok && s.Topics == 0 && len(s.Deletions) == 0 })
	c.leave(5 * time.Second)
}
