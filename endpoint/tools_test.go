package endpoint

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// kafkaTools runs Kafka's own command-line tools against addr.
type kafkaTools struct {
	t         *testing.T
	classpath string
	log4j     string
	addr      string
}

func newKafkaTools(t *testing.T, version, addr string) kafkaTools {
	dir := real.JarSet(version)
	if dir == "" {
		real.Missing(t, real.Kafka, "no jars of Kafka "+version+" under "+real.JarsDir(), "run scripts/jars.sh .cache/jars "+version)
	}
	log4j := filepath.Join(t.TempDir(), "log4j.properties")
	config := "log4j.rootLogger=WARN, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\nlog4j.appender.stderr.target=System.err\n" +
		"log4j.appender.stderr.layout=org.apache.log4j.PatternLayout\nlog4j.appender.stderr.layout.ConversionPattern=%p %m (%c)%n\n"
	if err := os.WriteFile(log4j, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return kafkaTools{t, filepath.Join(dir, "*"), log4j, addr}
}

// run gives a tool's output, and whether it ended well.
func (k kafkaTools) run(main string, args ...string) (string, bool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 2*time.Minute)
	defer cancel()
	java := []string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j.configuration=file:" + k.log4j, "-cp", k.classpath, main, "--bootstrap-server", k.addr}
	cmd := exec.CommandContext(ctx, "java", append(java, args...)...)
	cmd.Stdin = strings.NewReader("a line\n") // for the producer
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		k.t.Fatalf("%s %v did not end: %s", main, args, out)
	}
	return string(out), err == nil
}

// want runs a tool and compares its end and what must and must not stand in its output.
func (k kafkaTools) want(ok bool, contains []string, main string, args ...string) {
	k.t.Helper()
	out, ended := k.run(main, args...)
	for _, c := range contains {
		if !strings.Contains(out, c) {
			k.t.Errorf("%s %v: the output lacks %q:\n%s", main, args, c, out)
		}
	}
	if ended != ok || ok && strings.Contains(out, "Exception") {
		k.t.Errorf("%s %v: ended well: %v, want %v:\n%s", main, args, ended, ok, out)
	}
}

// Kafka's own tools are content with the endpoint as their only bootstrap
// server (spec/control-plane.md §5.3).
func TestKafkaTools(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some twenty JVMs; left out with -short")
	}
	real.Require(t, real.Kafka)
	addr, l, controller := serveSmall(t, nil)
	k := newKafkaTools(t, "3.9.1", addr)
	const (
		topics   = "org.apache.kafka.tools.TopicCommand"
		reassign = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
		election = "org.apache.kafka.tools.LeaderElectionCommand"
		configs  = "kafka.admin.ConfigCommand"
	)
	has := func(s ...string) []string { return s }

	k.want(true, has("Created topic orders"), topics, "--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "2", "--config", "retention.ms=1000")
	k.want(false, has("TopicExistsException"), topics, "--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "2")
	k.want(true, nil, topics, "--create", "--if-not-exists", "--topic", "orders", "--partitions", "2", "--replication-factor", "2")
	k.want(true, has("Created topic byhand"), topics, "--create", "--topic", "byhand", "--replica-assignment", "1:2,2:1")
	k.want(true, has("orders", "byhand"), topics, "--list")
	k.want(true, nil, topics, "--alter", "--topic", "orders", "--partitions", "3")
	k.want(true, has("PartitionCount: 3", "retention.ms=1000", "Leader: 1", "Replicas: 1,2"), topics, "--describe", "--topic", "orders")
	k.want(true, nil, topics, "--describe", "--topic", "orders", "--under-min-isr-partitions")
	k.want(true, nil, topics, "--delete", "--topic", "byhand")
	k.want(false, has("does not exist"), topics, "--delete", "--topic", "byhand")

	file := filepath.Join(t.TempDir(), "moves.json")
	plan := `{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2]}]}`
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	k.want(true, has("Successfully started partition reassignment for orders-0"), reassign, "--reassignment-json-file", file, "--execute")
	k.want(true, has("orders-0: replicas: 2,1. removing: 1."), reassign, "--list")
	k.want(true, has("Completed updating config for topic orders"), configs, "--entity-type", "topics", "--entity-name", "orders", "--alter", "--add-config", "min.insync.replicas=2")
	k.want(false, has("InvalidConfigurationException"), configs, "--entity-type", "topics", "--entity-name", "orders", "--alter", "--add-config", "retention.ms=1d")
	k.want(true, has("Successfully cancelled"), reassign, "--reassignment-json-file", file, "--cancel")
	k.want(true, has("No partition reassignments found"), reassign, "--list")
	// The move is done: --verify takes throttles off every node, us included.
	l.do(func() {
		l.topics["orders"].parts[0].ReplicaAssignment = kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{2}}
	})
	k.want(true, has("Reassignment of partition orders-0 is completed", "Clearing broker-level throttles"), reassign, "--reassignment-json-file", file, "--verify")

	l.do(func() { l.topics["orders"].parts[1].Leader = 2 })
	k.want(true, has("Successfully completed leader election (PREFERRED) for partitions orders-0, orders-1"), election, "--election-type", "preferred", "--all-topic-partitions")
	k.want(true, has("Valid replica already elected for partitions orders-1"), election, "--election-type", "preferred", "--topic", "orders", "--partition", "1")

	k.want(true, has("retention.ms=1000", "min.insync.replicas=2"), configs, "--entity-type", "topics", "--entity-name", "orders", "--describe")
	k.want(true, has("Dynamic configs for broker 9999"), configs, "--entity-type", "brokers", "--entity-name", "9999", "--describe")
	k.want(true, has("log.retention.ms=5"), configs, "--entity-type", "brokers", "--entity-default", "--describe")
	k.want(true, has(`"broker":9999`), "org.apache.kafka.tools.LogDirsCommand", "--describe")
	k.want(true, nil, "org.apache.kafka.tools.FeatureCommand", "describe")
	k.want(true, nil, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list")
	k.want(true, nil, "org.apache.kafka.tools.TransactionsCommand", "list")
	k.want(true, has("id: 9999", "CreateTopics(19): 0 to 7 [usable: 7]"), "kafka.admin.BrokerApiVersionsCommand")

	// Idempotent, as Java's producers are unless told otherwise: it gets its id
	// here and fails later, since nobody here takes records.
	out, _ := k.run("kafka.tools.ConsoleProducer", "--topic", "orders", "--max-block-ms", "2000", "--message-send-max-retries", "1")
	if ids := controller.producers.(*smallProducers).next.Load(); ids == 0 || strings.Contains(out, "INIT_PRODUCER_ID") {
		t.Errorf("the producer took %d ids:\n%s", ids, out)
	}

	var seen []string
	l.do(func() { seen = slices.Clone(l.seen) })
	for _, want := range []events.Event{events.CreateTopics{}, events.CreatePartitions{}, events.DeleteTopics{}, events.AlterReassignments{}, events.ListReassignments{}, events.ElectLeaders{}} {
		if !slices.Contains(seen, want.Name()) {
			t.Errorf("no tool led to %s: %v", want.Name(), seen)
		}
	}
}
