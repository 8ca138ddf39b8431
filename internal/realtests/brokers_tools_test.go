package realtests

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// brokersOf says whose brokers the client tests talk to: ours, or Kafka's, to
// see that the tests ask for nothing that Kafka does not do.
var brokersOf = flag.String("brokers.of", "none", "whose brokers the clients and tools are given: ours, kafka as the baseline, or none to leave these tests out")

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

// tool is one of Kafka 3.9.1's own commands. What goes wrong is often told in its
// output alone: the exit code says little (spec/environment.md §6).
type tool struct {
	t     *testing.T
	log4j string
	jars  string
}

func newTool(t *testing.T) *tool {
	t.Helper()
	real.Require(t, real.Kafka)
	jars := real.JarSet("3.9.1")
	if jars == "" {
		real.Missing(t, real.Kafka, "the jars of Kafka 3.9.1 are not under "+real.JarsDir(), "scripts/jars.sh .cache/jars 3.9.1")
	}
	file := filepath.Join(t.TempDir(), "log4j.properties")
	text := "log4j.rootLogger=WARN, stderr\nlog4j.appender.stderr=org.apache.log4j.ConsoleAppender\nlog4j.appender.stderr.target=System.err\n" +
		"log4j.appender.stderr.layout=org.apache.log4j.PatternLayout\nlog4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &tool{t, file, jars}
}

// oneJVM keeps the tools from running side by side.
var oneJVM sync.Mutex

// run gives what a tool printed, stdout and stderr.
func (k *tool) run(stdin, class string, args ...string) string {
	k.t.Helper()
	oneJVM.Lock()
	defer oneJVM.Unlock()
	ctx, cancel := context.WithTimeout(k.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j.configuration=file:" + k.log4j,
		"-cp", filepath.Join(k.jars, "*"), class}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	k.t.Logf("%s %s: %d ms, %v", class[strings.LastIndex(class, ".")+1:], strings.Join(args, " "), time.Since(begin).Milliseconds(), err)
	return string(out)
}

// want runs a tool until its output has all of these patterns, for a while: what
// a tool shows may come a moment after what another one did.
func (k *tool) want(patterns []string, class string, args ...string) string {
	k.t.Helper()
	out := ""
	for range 5 {
		out = k.run("", class, args...)
		if missing(out, patterns) == "" {
			return out
		}
	}
	k.t.Errorf("%s %s: no %q in\n%s", class, strings.Join(args, " "), missing(out, patterns), out)
	return out
}

// missing gives the first pattern that the text does not match; "" is none.
func missing(text string, patterns []string) string {
	for _, p := range patterns {
		if !regexp.MustCompile(p).MatchString(text) {
			return p
		}
	}
	return ""
}

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
	verifyTool   = "org.apache.kafka.tools.VerifiableProducer"
	clusterTool  = "org.apache.kafka.tools.ClusterTool"
)

// Kafka 3.9.1's own tools, unchanged, over three brokers: topics, configurations,
// console producer and consumer, groups, moves, elections, log directories, offsets.
func TestStockTools(t *testing.T) {
	k := newTool(t)
	c := startTarget(t)
	at := func(args ...string) []string { return append([]string{"--bootstrap-server", c.bootstrap()}, args...) }
	on := func(k *tool, t *testing.T) *tool { return &tool{t, k.log4j, k.jars} }

	t.Run("topics", func(t *testing.T) {
		k := on(k, t)
		k.want([]string{`Created topic tools`}, topicTool, at("--create", "--topic", "tools", "--partitions", "3", "--replication-factor", "3", "--config", "retention.ms=86400000")...)
		k.want([]string{`(?m)^tools$`}, topicTool, at("--list")...)
		k.want([]string{`PartitionCount: 3`, `ReplicationFactor: 3`, `retention.ms=86400000`, `Partition: 2\s+Leader: [123]\s+Replicas: [123],[123],[123]\s+Isr: [123],[123],[123]`},
			topicTool, at("--describe", "--topic", "tools")...)
		k.want([]string{`exists`}, topicTool, at("--create", "--topic", "tools", "--partitions", "3", "--replication-factor", "3")...)
		k.run("", topicTool, at("--alter", "--topic", "tools", "--partitions", "4")...)
		k.want([]string{`PartitionCount: 4`, `Partition: 3\s+Leader: [123]`}, topicTool, at("--describe", "--topic", "tools")...)
	})
	t.Run("configs", func(t *testing.T) {
		k := on(k, t)
		entity := []string{"--entity-type", "topics", "--entity-name", "tools"}
		k.want([]string{`Completed updating config for topic tools`}, configTool, append(at("--alter", "--add-config", "max.message.bytes=2000000,min.insync.replicas=2"), entity...)...)
		k.want([]string{`max.message.bytes=2000000`, `min.insync.replicas=2`, `DYNAMIC_TOPIC_CONFIG`}, configTool, append(at("--describe"), entity...)...)
		k.want([]string{`Completed updating config for topic tools`}, configTool, append(at("--alter", "--delete-config", "max.message.bytes"), entity...)...)
		if out := k.run("", configTool, append(at("--describe"), entity...)...); strings.Contains(out, "max.message.bytes") || !strings.Contains(out, "min.insync.replicas=2") {
			t.Errorf("after --delete-config:\n%s", out)
		}
		k.want([]string{`cleanup.policy=delete.*DEFAULT_CONFIG`, `min.insync.replicas=2`}, configTool, append(at("--describe", "--all"), entity...)...)
		k.want([]string{`(?i)invalid|error`}, configTool, append(at("--alter", "--add-config", "no.such.key=1"), entity...)...)
	})
	t.Run("console", func(t *testing.T) {
		k := on(k, t)
		var lines strings.Builder
		for i := range 200 {
			fmt.Fprintf(&lines, "k%d:v%d\n", i%10, i)
		}
		for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
			if out := k.run(lines.String(), producerTool, at("--topic", "tools", "--property", "parse.key=true", "--property", "key.separator=:",
				"--producer-property", "acks=all", "--compression-codec", codec)...); strings.Contains(out, "ERROR") || strings.Contains(out, "Exception") {
				t.Errorf("console producer, %s:\n%s", codec, out)
			}
		}
		out := k.run("", consumerTool, at("--topic", "tools", "--from-beginning", "--max-messages", "1000", "--timeout-ms", "60000", "--group", "readers", "--property", "print.key=true")...)
		last := map[string]int{}
		for _, line := range strings.Split(out, "\n") {
			key, value, ok := strings.Cut(line, "\tv")
			n, err := strconv.Atoi(value)
			if !ok || err != nil {
				continue
			}
			last["n"]++
			if n%200 < last[key]%200 && n < last[key] && n > 9 { // a round begins with 0 to 9
				t.Errorf("key %s: v%d behind v%d", key, n, last[key])
			}
			last[key] = n
		}
		if last["n"] != 1000 {
			t.Errorf("the console consumer read %d records of 1000:\n%.2000s", last["n"], out)
		}
	})
	t.Run("consumer groups", func(t *testing.T) {
		k := on(k, t)
		k.want([]string{`(?m)^readers$`}, groupTool, at("--list")...)
		k.want([]string{`(?m)^readers\s+tools\s+\d\s+\d+\s+\d+\s+0\s`}, groupTool, at("--describe", "--group", "readers")...)
		k.want([]string{`readers\s.*Empty\s+0`}, groupTool, at("--describe", "--group", "readers", "--state")...)
		k.want([]string{`readers\s+tools\s+\d\s+0`}, groupTool, at("--reset-offsets", "--group", "readers", "--topic", "tools", "--to-earliest", "--execute")...)
		k.want([]string{`(?m)^readers\s+tools\s+\d\s+0\s+(\d+)\s+(\d+)\s`}, groupTool, at("--describe", "--group", "readers")...)
		k.want([]string{`(?s)tools\s+0\s+Successful`}, groupTool, at("--delete-offsets", "--group", "readers", "--topic", "tools:0")...)
		k.want([]string{`Deletion of requested consumer groups \('readers'\) was successful`}, groupTool, at("--delete", "--group", "readers")...)
		k.want([]string{`does not exist`}, groupTool, at("--describe", "--group", "readers")...)
	})
	t.Run("offsets", func(t *testing.T) {
		k := on(k, t)
		sum := func(time string) (n int) {
			out := k.run("", offsetsTool, at("--topic", "tools", "--time", time)...)
			for _, m := range regexp.MustCompile(`(?m)^tools:\d:(\d+)$`).FindAllStringSubmatch(out, -1) {
				v, err := strconv.Atoi(m[1])
				if err != nil {
					t.Fatal(err)
				}
				n += v
			}
			return n
		}
		if n := sum("-1"); n != 1000 {
			t.Errorf("ends add up to %d, want 1000", n)
		}
		if n := sum("-2"); n != 0 {
			t.Errorf("beginnings add up to %d, want 0", n)
		}
		if n := sum(strconv.FormatInt(time.Now().Add(-time.Hour).UnixMilli(), 10)); n != 0 {
			t.Errorf("offsets of an hour ago add up to %d, want 0", n)
		}
	})
	t.Run("log dirs", func(t *testing.T) {
		k := on(k, t)
		out := k.want([]string{`"brokers"`}, logDirsTool, at("--describe", "--topic-list", "tools")...)
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
			t.Fatalf("log-dirs printed no JSON:\n%s", out)
		}
		if err := json.Unmarshal([]byte(strings.Split(out[at:], "\n")[0]), &got); err != nil {
			t.Fatalf("%v in\n%s", err, out)
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
			t.Errorf("%d replicas of %d bytes, want 12 of more than 15 000", replicas, size)
		}
	})
	t.Run("reassign", func(t *testing.T) {
		k := on(k, t)
		dir := t.TempDir()
		topics, plan := filepath.Join(dir, "topics.json"), filepath.Join(dir, "plan.json")
		write(t, topics, `{"version":1,"topics":[{"topic":"tools"}]}`)
		k.want([]string{`Proposed partition reassignment configuration`, `"topic":"tools","partition":3`}, moveTool, at("--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3")...)
		write(t, plan, `{"version":1,"partitions":[{"topic":"tools","partition":0,"replicas":[3,1]},{"topic":"tools","partition":1,"replicas":[2,3]},`+
			`{"topic":"tools","partition":2,"replicas":[1,2]},{"topic":"tools","partition":3,"replicas":[2,1]}]}`)
		k.want([]string{`Successfully started partition reassignments for tools-0,tools-1,tools-2,tools-3`}, moveTool, at("--execute", "--reassignment-json-file", plan)...)
		k.want([]string{`Reassignment of partition tools-0 is completed`, `Reassignment of partition tools-3 is completed`}, moveTool, at("--verify", "--reassignment-json-file", plan)...)
		k.want([]string{`No partition reassignments found`}, moveTool, at("--list")...)
	})
	t.Run("elect", func(t *testing.T) {
		k := on(k, t)
		out := k.run("", electTool, at("--election-type", "preferred", "--all-topic-partitions")...)
		if !regexp.MustCompile(`Successfully completed leader election|Valid replica already elected|^\s*$`).MatchString(out) {
			t.Errorf("preferred election:\n%s", out)
		}
		k.want([]string{`Partition: 0\s+Leader: 3\s`, `Partition: 1\s+Leader: 2\s`, `Partition: 2\s+Leader: 1\s`, `Partition: 3\s+Leader: 2\s`}, topicTool, at("--describe", "--topic", "tools")...)
	})
	t.Run("delete records", func(t *testing.T) {
		k := on(k, t)
		file := filepath.Join(t.TempDir(), "trim.json")
		write(t, file, `{"version":1,"partitions":[{"topic":"tools","partition":0,"offset":-1}]}`)
		k.want([]string{`partition: tools-0\s+low_watermark: \d+`}, trimTool, at("--offset-json-file", file)...)
		first, last := k.run("", offsetsTool, at("--topic-partitions", "tools:0", "--time", "-2")...), k.run("", offsetsTool, at("--topic-partitions", "tools:0", "--time", "-1")...)
		if first != last {
			t.Errorf("after all were deleted: begins %q, ends %q", first, last)
		}
	})
	t.Run("versions and cluster", func(t *testing.T) {
		k := on(k, t)
		k.want([]string{`\(id: 1 rack: null\) -> \(`, `Produce\(0\): `, `OffsetCommit\(8\): `}, versionsTool, at()...)
		k.want([]string{`Cluster ID: \S+`}, clusterTool, append([]string{"cluster-id"}, at()...)...)
		k.want([]string{`"sent":500,"acked":500`}, verifyTool, at("--topic", "tools", "--max-messages", "500", "--acks", "-1")...)
	})
	t.Run("deletion", func(t *testing.T) {
		k := on(k, t)
		k.run("", topicTool, at("--delete", "--topic", "tools")...)
		for range 5 {
			if !slices.Contains(strings.Split(k.run("", topicTool, at("--list")...), "\n"), "tools") {
				return
			}
		}
		t.Error("the topic is still there")
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
