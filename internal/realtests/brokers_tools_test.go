package realtests

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

const (
	topicTool    = "org.apache.kafka.tools.TopicCommand"
	configTool   = "kafka.admin.ConfigCommand"
	producerTool = "kafka.tools.ConsoleProducer"
	consumerTool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	groupTool    = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
	moveTool     = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
	electTool    = "org.apache.kafka.tools.LeaderElectionCommand"
	logDirsTool  = "org.apache.kafka.tools.LogDirsCommand"
	offsetsTool  = "org.apache.kafka.tools.GetOffsetShell"
	trimTool     = "org.apache.kafka.tools.DeleteRecordsCommand"
	versionsTool = "kafka.admin.BrokerApiVersionsCommand"
	clusterTool  = "org.apache.kafka.tools.ClusterTool"
)

// Kafka 3.9.1's own tools, unchanged, over three brokers.
func TestStockTools(t *testing.T) { runTools(t, startTarget(t).bootstrap()) }

// The same over "dev", whose controller is a node of the broker list, too: tools ask
// any node, and some ask all of them.
func TestStockToolsOnDev(t *testing.T) {
	real.Require(t, real.Kafka)
	dev := start(t, "dev", binary, "dev", "--profile", "3.9", "--", "sh", "-c", "echo bootstrap $ZKC_BOOTSTRAP_SERVERS .; while kill -0 $PPID 2>/dev/null; do sleep 0.2; done")
	var said []string
	await(t, "dev has told where it is", func() bool {
		said = regexp.MustCompile(`bootstrap (\S+) \.`).FindStringSubmatch(dev.out.String())
		return said != nil
	})
	runTools(t, said[1])
}

// runTools runs all groups. They build upon each other: the first makes the topic,
// the last deletes it.
func runTools(t *testing.T, bootstrap string) {
	k := startTools(t, bootstrap)
	for _, group := range []struct {
		name string
		run  func(k tool)
	}{
		{"topics", topicsTools}, {"configs", configsTools}, {"console", consoleTools}, {"consumer groups", groupsTools}, {"get-offsets", offsetsTools},
		{"log-dirs", logDirsTools}, {"reassign-partitions", reassignTools}, {"leader-election", electionTools}, {"delete-records", trimTools},
		{"versions and cluster", versionsTools}, {"deletion", deletionTools},
	} {
		if !t.Run(group.name, func(t *testing.T) { group.run(k.on(t)) }) {
			t.Logf("%s failed; what comes after may fail for that reason", group.name)
		}
	}
}

func topicsTools(k tool) {
	k.once([]string{`Created topic tools`}, topicTool, "--create", "--topic", "tools", "--partitions", "3", "--replication-factor", "3", "--config", "retention.ms=86400000")
	k.want([]string{`(?m)^tools$`}, topicTool, "--list")
	k.want([]string{`PartitionCount: 3`, `ReplicationFactor: 3`, `retention.ms=86400000`, `Partition: 2\s+Leader: [123]\s+Replicas: [123],[123],[123]\s+Isr: [123],[123],[123]`},
		topicTool, "--describe", "--topic", "tools")
	k.once([]string{`exists`}, topicTool, "--create", "--topic", "tools", "--partitions", "3", "--replication-factor", "3")
	k.run("", topicTool, "--alter", "--topic", "tools", "--partitions", "4")
	k.want([]string{`PartitionCount: 4`, `Partition: 3\s+Leader: [123]`}, topicTool, "--describe", "--topic", "tools")
	if out := k.run("", topicTool, "--describe", "--under-replicated-partitions"); strings.Contains(out, "tools") {
		k.t.Errorf("under-replicated:\n%s", out)
	}
}

func configsTools(k tool) {
	entity := []string{"--entity-type", "topics", "--entity-name", "tools"}
	of := func(args ...string) []string { return append(args, entity...) }
	k.once([]string{`Completed updating config for topic tools`}, configTool, of("--alter", "--add-config", "max.message.bytes=2000000,min.insync.replicas=2")...)
	k.want([]string{`max.message.bytes=2000000`, `min.insync.replicas=2`, `DYNAMIC_TOPIC_CONFIG`}, configTool, of("--describe")...)
	k.once([]string{`Completed updating config for topic tools`}, configTool, of("--alter", "--delete-config", "max.message.bytes")...)
	if out := k.run("", configTool, of("--describe")...); strings.Contains(out, "max.message.bytes") || !strings.Contains(out, "min.insync.replicas=2") {
		k.t.Errorf("after --delete-config:\n%s", out)
	}
	k.want([]string{`cleanup.policy=delete.*DEFAULT_CONFIG`, `min.insync.replicas=2`}, configTool, of("--describe", "--all")...)
	k.once([]string{`(?i)invalid|error`}, configTool, of("--alter", "--add-config", "no.such.key=1")...)

	entity = []string{"--entity-type", "brokers", "--entity-default"}
	k.once([]string{`Completed updating default config for brokers in the cluster`}, configTool, of("--alter", "--add-config", "log.retention.ms=7200000")...)
	k.want([]string{`log.retention.ms=7200000.*DYNAMIC_DEFAULT_BROKER_CONFIG`}, configTool, of("--describe")...)
	entity = []string{"--entity-type", "brokers", "--entity-name", "2"}
	k.want([]string{`log.retention.ms=7200000.*DYNAMIC_DEFAULT_BROKER_CONFIG`, `broker.id=2.*STATIC_BROKER_CONFIG`}, configTool, of("--describe", "--all")...)
	k.once([]string{`(?i)cannot|error`}, configTool, of("--alter", "--add-config", "broker.rack=r9")...)
	entity = []string{"--entity-type", "brokers", "--entity-default"}
	k.once([]string{`Completed updating default config for brokers in the cluster`}, configTool, of("--alter", "--delete-config", "log.retention.ms")...)
}

const consoleRecords = 200 // each time

// consoleTools: what the console producer sends, in every codec, the console
// consumer reads, each key in order.
func consoleTools(k tool) {
	var lines strings.Builder
	for i := range consoleRecords {
		fmt.Fprintf(&lines, "k%d:v%d\n", i%10, i)
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		if out := k.run(lines.String(), producerTool, "--topic", "tools", "--property", "parse.key=true", "--property", "key.separator=:",
			"--producer-property", "acks=all", "--compression-codec", codec); strings.Contains(out, "ERROR") || strings.Contains(out, "Exception") {
			k.t.Errorf("console producer, %s:\n%s", codec, out)
		}
	}
	out := k.run("", consumerTool, "--topic", "tools", "--from-beginning", "--max-messages", "1000", "--timeout-ms", "60000", "--group", "readers", "--property", "print.key=true")
	read, next := 0, map[string]int{}
	for _, line := range strings.Split(out, "\n") {
		key, value, ok := strings.Cut(line, "\tv")
		n, err := strconv.Atoi(value)
		if !ok || err != nil {
			continue
		}
		read++
		if want, ok := next[key]; ok && n != want {
			k.t.Errorf("key %s: v%d, want v%d", key, n, want)
		}
		next[key] = (n + 10) % consoleRecords
	}
	if read != 5*consoleRecords {
		k.t.Errorf("the console consumer read %d records of %d:\n%.2000s", read, 5*consoleRecords, out)
	}
}

func groupsTools(k tool) {
	of := func(args ...string) []string { return append(args, "--group", "readers") }
	k.want([]string{`(?m)^readers$`}, groupTool, "--list")
	k.want([]string{`(?m)^readers\s+tools\s+\d\s+\d+\s+\d+\s+0\s`}, groupTool, of("--describe")...)
	k.want([]string{`readers\s.*Empty\s+0`}, groupTool, of("--describe", "--state")...)
	k.once([]string{`readers\s+tools\s+\d\s+0`}, groupTool, of("--reset-offsets", "--topic", "tools", "--to-earliest", "--execute")...)
	k.want([]string{`(?m)^readers\s+tools\s+\d\s+0\s+(\d+)\s+(\d+)\s`}, groupTool, of("--describe")...)
	k.once([]string{`(?s)tools\s+0\s+Successful`}, groupTool, of("--delete-offsets", "--topic", "tools:0")...)
	k.once([]string{`Deletion of requested consumer groups \('readers'\) was successful`}, groupTool, of("--delete")...)
	k.want([]string{`does not exist`}, groupTool, of("--describe")...)
}

// sumOfOffsets adds up the offsets of all partitions at a time.
func sumOfOffsets(k tool, at string) (n int) {
	out := k.run("", offsetsTool, "--topic", "tools", "--time", at)
	rows := regexp.MustCompile(`(?m)^tools:\d:(\d+)$`).FindAllStringSubmatch(out, -1)
	for _, m := range rows {
		n += whole(k.t, m[1])
	}
	if len(rows) != 4 && !strings.HasPrefix(at, "1") { // by time, those without a record are left out
		k.t.Errorf("offsets at %s of %d partitions, want 4:\n%s", at, len(rows), out)
	}
	return n
}

func offsetsTools(k tool) {
	for at, want := range map[string]int{"-1": 5 * consoleRecords, "-2": 0, "latest": 5 * consoleRecords, "earliest": 0,
		strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10): 0} {
		if n := sumOfOffsets(k, at); n != want {
			k.t.Errorf("offsets at %s add up to %d, want %d", at, n, want)
		}
	}
}

func logDirsTools(k tool) {
	out := k.want([]string{`"brokers"`}, logDirsTool, "--describe", "--topic-list", "tools")
	var got struct {
		Brokers []struct {
			LogDirs []struct {
				Partitions []struct {
					Partition string
					Size      int64
				}
			}
		}
	}
	at := strings.Index(out, `{"`)
	if at < 0 {
		k.t.Fatalf("log-dirs printed no JSON:\n%s", out)
	}
	if err := json.Unmarshal([]byte(strings.Split(out[at:], "\n")[0]), &got); err != nil {
		k.t.Fatalf("%v in\n%s", err, out)
	}
	replicas, size := 0, int64(0)
	for _, b := range got.Brokers {
		for _, d := range b.LogDirs {
			replicas += len(d.Partitions)
			for _, p := range d.Partitions {
				size += p.Size
			}
		}
	}
	if replicas != 12 || size < 3*5_000 {
		k.t.Errorf("%d replicas of %d bytes, want 12 of more than 15 000", replicas, size)
	}
}

func reassignTools(k tool) {
	dir := k.t.TempDir()
	topics, plan := filepath.Join(dir, "topics.json"), filepath.Join(dir, "plan.json")
	write(k.t, topics, `{"version":1,"topics":[{"topic":"tools"}]}`)
	k.want([]string{`Proposed partition reassignment configuration`, `"topic":"tools","partition":3`}, moveTool, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3")
	write(k.t, plan, `{"version":1,"partitions":[{"topic":"tools","partition":0,"replicas":[3,1]},{"topic":"tools","partition":1,"replicas":[2,3]},`+
		`{"topic":"tools","partition":2,"replicas":[1,2]},{"topic":"tools","partition":3,"replicas":[2,1]}]}`)
	k.once([]string{`inter-broker throttle limit was set to 50000000`, `Successfully started partition reassignments for tools-0,tools-1,tools-2,tools-3`},
		moveTool, "--execute", "--reassignment-json-file", plan, "--throttle", "50000000")
	rates := []string{"--describe", "--entity-type", "brokers", "--entity-name", "1"}
	k.want([]string{`leader.replication.throttled.rate=50000000`}, configTool, rates...)
	k.want([]string{`Reassignment of partition tools-0 is completed`, `Reassignment of partition tools-3 is completed`, `Clearing broker-level throttles on brokers 1,2,3`},
		moveTool, "--verify", "--reassignment-json-file", plan)
	if out := k.run("", configTool, rates...); strings.Contains(out, "throttled.rate") {
		k.t.Errorf("after --verify:\n%s", out)
	}
	k.want([]string{`No partition reassignments found`}, moveTool, "--list")
}

func electionTools(k tool) {
	k.once([]string{`Successfully completed leader election|Valid replica already elected|^\s*$`}, electTool, "--election-type", "preferred", "--all-topic-partitions")
	k.want([]string{`Partition: 0\s+Leader: 3\s`, `Partition: 1\s+Leader: 2\s`, `Partition: 2\s+Leader: 1\s`, `Partition: 3\s+Leader: 2\s`}, topicTool, "--describe", "--topic", "tools")
}

func trimTools(k tool) {
	file := filepath.Join(k.t.TempDir(), "trim.json")
	write(k.t, file, `{"version":1,"partitions":[{"topic":"tools","partition":0,"offset":-1}]}`)
	k.once([]string{`partition: tools-0\s+low_watermark: \d+`}, trimTool, "--offset-json-file", file)
	first, last := k.run("", offsetsTool, "--topic-partitions", "tools:0", "--time", "-2"), k.run("", offsetsTool, "--topic-partitions", "tools:0", "--time", "-1")
	if first != last {
		k.t.Errorf("after all were deleted: begins %q, ends %q", first, last)
	}
}

func versionsTools(k tool) {
	k.want([]string{`\(id: 1 rack: null\) -> \(`, `Produce\(0\): `, `OffsetCommit\(8\): `}, versionsTool)
	k.want([]string{`Cluster ID: \S+`}, clusterTool, "cluster-id")
}

func deletionTools(k tool) {
	k.run("", topicTool, "--delete", "--topic", "tools")
	k.want([]string{`^(?:__consumer_offsets\s*|\s*)$`}, topicTool, "--list")
}
