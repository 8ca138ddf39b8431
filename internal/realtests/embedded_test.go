package realtests

import (
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

var record = flag.Int("record", 0, "lives on Apache ZooKeeper whose warnings are added to "+kafkaWarnings)

// What Kafka's brokers warned of on Apache ZooKeeper, one kind of line a line.
const kafkaWarnings = "testdata/kafka-3.9.1-warnings.txt"

// TestKafkaOnEmbedded lets two brokers of Kafka 3.9.1 live on the embedded
// server, durable and in a process of its own, with their own controller in
// charge. They may warn of nothing that they do not warn of on Apache
// ZooKeeper 3.9.5 in the same life; that is recorded, by -record N.
func TestKafkaOnEmbedded(t *testing.T) {
	real.Require(t, real.Kafka)
	if *record > 0 {
		recordWarnings(t, *record)
	}
	recorded, err := os.ReadFile(kafkaWarnings)
	if err != nil {
		t.Fatal(err)
	}
	known := strings.Split(strings.TrimSpace(string(recorded)), "\n")
	options := []real.ZKOption{real.WithProgram(binary)}
	if real.Chosen(t) == real.Apache { // is what was recorded what it does today?
		options = []real.ZKOption{real.WithJars("zk-3.9.5")}
	}
	seen := liveOn(t, real.ZooKeeper(t, append(options, real.WithKey("forceSync", "yes"))...))
	for _, line := range slices.Sorted(maps.Keys(seen)) {
		if !slices.Contains(known, line) {
			t.Errorf("a warning that Kafka does not have on Apache ZooKeeper: %s\n  as in: %s", line, seen[line])
		}
	}
	t.Logf("%d kinds of warnings, %d are known from Apache ZooKeeper", len(seen), len(known))
}

// recordWarnings adds to what is recorded: which warnings come is a matter of
// chance, and of how busy the machine is.
func recordWarnings(t *testing.T, lives int) {
	all := map[string]string{}
	if b, err := os.ReadFile(kafkaWarnings); err == nil {
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			all[line] = ""
		}
	}
	for range lives {
		maps.Copy(all, liveOn(t, real.ZooKeeper(t, real.WithJars("zk-3.9.5"), real.WithKey("forceSync", "yes"))))
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kafkaWarnings, []byte(strings.Join(slices.Sorted(maps.Keys(all)), "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// liveOn plays one life of two brokers and gives the kinds of warnings and
// errors that they printed, each with one example.
func liveOn(t *testing.T, z *real.ZKServer) map[string]string {
	zk := z.Addr() + "/kafka"
	proxies := []*real.Proxy{real.NewProxy(t, z.Addr()), real.NewProxy(t, z.Addr())}
	var brokers []*kafkaBroker
	for i, p := range proxies {
		brokers = append(brokers, startKafka(t, "3.9.1", p.Addr()+"/kafka", i+1, map[string]string{
			"offsets.topic.replication.factor": "2", "min.insync.replicas": "1", "default.replication.factor": "2"}))
	}
	seeds := []string{brokers[0].addr, brokers[1].addr}
	both := func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2) && s.healthy() }
	only := func(id int) func() bool {
		return func() bool {
			s, ok := statusOf(t, zk)
			return ok && s.has(id) && s.controlledBy(id) && len(s.Leaderless) == 0
		}
	}
	await(t, "brokers registered, one of them controller", both)
	admin := kadm.NewClient(kafkaClient(t, seeds...))
	made := 0
	create := func(topic string) {
		t.Helper()
		// Right after a controller has moved, a broker may still name the one before.
		await(t, topic+" is created", func() bool {
			_, err := admin.CreateTopic(t.Context(), 4, 2, nil, topic)
			return err == nil || strings.Contains(err.Error(), "TOPIC_ALREADY_EXISTS")
		})
		made += 4
		await(t, topic+" is led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions >= made && s.healthy() })
	}
	create("orders")
	roundTrip(t, "orders", 100, 100, seeds...)

	brokers[1].kill()
	await(t, "broker 2 is gone", only(1))
	roundTrip(t, "orders", 100, 200, seeds[0])
	brokers[1].again(t)
	await(t, "broker 2 is back and in sync", both)

	brokers[0].leaveKafka()
	if !contains(brokers[0].child, "Controlled shutdown request returned successfully") {
		t.Error("broker 1 left without a controlled shutdown")
	}
	await(t, "broker 1 has left, broker 2 is controller", only(2))
	brokers[0].again(t)
	await(t, "broker 1 is back and in sync", both)

	before, _ := statusOf(t, zk)
	proxies[1].Cut() // the controller's session
	await(t, "broker 2's session has expired, broker 1 is controller", only(1))
	proxies[1].Restore()
	await(t, "broker 2 is registered anew and in sync", both)
	after, _ := statusOf(t, zk)
	if before.epochOf(1) != after.epochOf(1) || before.epochOf(2) == after.epochOf(2) {
		t.Errorf("broker epochs %+v before the expiry of 2, %+v after it", before.Brokers, after.Brokers)
	}
	create("payments")

	z.Kill()
	if err := z.Restart(); err != nil {
		t.Fatal(err)
	}
	await(t, "both live on after the server's kill", both)
	create("refunds") // through sessions that go on
	roundTrip(t, "refunds", 100, 100, seeds...)
	roundTrip(t, "orders", 100, 300, seeds...)
	if again, _ := statusOf(t, zk); again.epochOf(1) != after.epochOf(1) || again.epochOf(2) != after.epochOf(2) {
		t.Errorf("broker epochs %+v before the restart, %+v after it: a session was lost", after.Brokers, again.Brokers)
	}
	if _, err := admin.DeleteTopics(t.Context(), "orders", "payments", "refunds"); err != nil {
		t.Errorf("delete topics: %v", err)
	}
	await(t, "the topics are gone", func() bool { s, ok := statusOf(t, zk); return ok && s.Topics <= 1 && len(s.Deletions) == 0 })
	brokers[1].leaveKafka()
	await(t, "broker 2 has left", only(1))
	brokers[0].leaveKafka()
	seen := map[string]string{}
	for _, b := range brokers {
		for _, earlier := range append(b.earlier, b.child) {
			for kind, line := range warnings(earlier.out.String()) {
				seen[kind] = line
			}
		}
	}
	return seen
}

func (s status) epochOf(id int) int64 {
	for _, b := range s.Brokers {
		if b.ID == id {
			return b.Epoch
		}
	}
	return -1
}

// What differs between two lives that are alike.
var (
	warning = regexp.MustCompile(`^\[[-0-9 :,]+\] (WARN|ERROR|FATAL) (.*)$`)
	same    = []struct {
		what *regexp.Regexp
		is   string
	}{
		{regexp.MustCompile(`^(.*\(type=\w+), .* (\([\w.]+\))$`), "$1…) $2"}, // a request with all its fields
		{regexp.MustCompile(`/[^ ,)]*/logs\b`), "LOGS"},
		{regexp.MustCompile(`\b(orders|payments|refunds|__consumer_offsets)\b`), "TOPIC"},
		{regexp.MustCompile(`\b[A-Za-z0-9_-]{22}\b`), "ID"},
		{regexp.MustCompile(`0x[0-9a-f]+`), "#"},
		{regexp.MustCompile(`[0-9]+`), "#"},
		{regexp.MustCompile(`(TOPIC-#(, ?)?)+`), "TOPIC-#"},
	}
)

// warnings gives the kinds of warnings in a broker's log, each with one line.
func warnings(log string) map[string]string {
	out := map[string]string{}
	for _, line := range strings.Split(log, "\n") {
		m := warning.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		kind := m[2]
		for _, s := range same {
			kind = s.what.ReplaceAllString(kind, s.is)
		}
		out[m[1]+" "+kind] = line
	}
	return out
}
