package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

func quietLog() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// What cannot work is refused before anything is tried.
func TestStoreOptions(t *testing.T) {
	for _, tc := range []struct {
		key, value, want string
	}{
		{"zookeeper.set.acl", "true", "zookeeper.set.acl"},
		{"zookeeper.connect", "zk:2181/a/./b", "chroot"},
	} {
		flags := map[string]config.Flag{"zookeeper.connect": {Name: "zookeeper", Value: "zk:2181"}}
		flags[tc.key] = config.Flag{Name: "x", Value: tc.value}
		c, err := config.Load(config.Source{Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := storeOptions(c, quietLog()); exitCode(err) != 2 || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s=%s: %v", tc.key, tc.value, err)
		}
	}
}

// With credentials, nodes can belong to their creator.
func TestStoreCredentials(t *testing.T) {
	c, err := config.Load(config.Source{Flags: map[string]config.Flag{"zookeeper.connect": {Name: "zookeeper", Value: "zk:2181"},
		"zookeeper.set.acl": {Name: "x", Value: "true"}, "zkc.zk.digest": {Name: "x", Value: "kafka:se:cret"}}})
	if err != nil {
		t.Fatal(err)
	}
	opt, err := storeOptions(c, quietLog())
	if err != nil || !opt.SecureACL || len(opt.Auth) != 1 || opt.Auth[0].Scheme != "digest" || string(opt.Auth[0].Data) != "kafka:se:cret" {
		t.Errorf("%+v, %v", opt, err)
	}
	for _, s := range c.Settings() {
		if strings.Contains(s.Value, "cret") {
			t.Errorf("%s shows the password: %s", s.Key, s.Value)
		}
	}
	if _, err := config.Load(config.Source{Flags: map[string]config.Flag{"zkc.zk.digest": {Name: "x", Value: "kafka"}}}); err == nil {
		t.Error("credentials without a password are taken")
	}
}

// What status counts, from a handful of topics.
func TestStatusCounts(t *testing.T) {
	s := &status{Brokers: []statusBroker{{ID: 1}, {ID: 2}}}
	part := func(n int32, leader kafka.BrokerID, replicas, isr []kafka.BrokerID) partitionView {
		return partitionView{Partition: n, Leader: leader, Replicas: replicas, ISR: isr}
	}
	one, both := []kafka.BrokerID{1}, []kafka.BrokerID{1, 2}
	s.add(topicView{Name: "t", Partitions: []partitionView{part(0, 1, both, both), part(1, 1, both, one), part(2, -1, both, one), part(3, 2, both, both)}})
	s.add(topicView{Name: "going", Deleting: true, Partitions: []partitionView{part(0, -1, both, nil)}})
	s.add(topicView{Name: "moving", Partitions: []partitionView{{Partition: 0, Leader: 1, Replicas: both, Adding: []kafka.BrokerID{2}, ISR: one}}})
	s.add(topicView{Name: "bad", Error: "/brokers/topics/bad: broken (repair it)"})
	got := map[string]any{"topics": s.Topics, "partitions": s.Partitions, "leaderless": s.Leaderless, "under": s.UnderReplicated,
		"not preferred": s.NotPreferred, "problems": s.Problems, "leads": s.Brokers[0].Leads, "replicas": s.Brokers[1].Replicas}
	want := map[string]any{"topics": 4, "partitions": 6, "leaderless": []string{"t-2"}, "under": []string{"t-1"},
		"not preferred": 1, "problems": []string{"/brokers/topics/bad: broken (repair it)"}, "leads": 3, "replicas": 6}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if !s.unwell() {
		t.Error("that is not well")
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// The three fates of a move, and the exit code that tells them.
func TestVerify(t *testing.T) {
	topics := []topicView{{Name: "t", Partitions: []partitionView{
		{Partition: 0, Replicas: []kafka.BrokerID{1, 2}}, {Partition: 1, Replicas: []kafka.BrokerID{3, 1}, Adding: []kafka.BrokerID{3}, Removing: []kafka.BrokerID{1}},
		{Partition: 2, Replicas: []kafka.BrokerID{2, 1}}}}}
	move := func(n int32, ids ...kafka.BrokerID) zkpaths.Reassignment {
		return zkpaths.Reassignment{Partition: kafka.TopicPartition{Topic: "t", Partition: n}, Replicas: ids}
	}
	moving := joinOngoing(topics, []zkpaths.Reassignment{move(2, 1)})
	for _, tc := range []struct {
		moves []zkpaths.Reassignment
		want  string
		code  int
	}{
		{[]zkpaths.Reassignment{move(0, 1, 2)}, "complete", 0},
		{[]zkpaths.Reassignment{move(0, 2, 1)}, "failed", 1}, // order counts: the first is preferred
		{[]zkpaths.Reassignment{move(1, 3)}, "in progress", 5},
		{[]zkpaths.Reassignment{move(1, 2)}, "failed", 1},
		{[]zkpaths.Reassignment{move(2, 1)}, "in progress", 5}, // waits in the node
		{[]zkpaths.Reassignment{move(7, 1)}, "failed", 1},
		{[]zkpaths.Reassignment{move(1, 3), move(0, 1, 2)}, "in progress complete", 5},
		{[]zkpaths.Reassignment{move(0, 9), move(1, 3)}, "failed in progress", 1},
	} {
		results, code := verify(topics, moving, tc.moves)
		var words []string
		for _, r := range results {
			words = append(words, r.Result)
		}
		if got := strings.Join(words, " "); got != tc.want || code != tc.code {
			t.Errorf("%v: %s with code %d, want %s with %d", tc.moves, got, code, tc.want, tc.code)
		}
	}
}

// What is bound is what is told; other protocols stay shut.
func TestControllerListeners(t *testing.T) {
	load := func(listeners, advertised string) *config.Config {
		t.Helper()
		flags := map[string]config.Flag{"listeners": {Name: "listener", Value: listeners}}
		if advertised != "" {
			flags["advertised.listeners"] = config.Flag{Name: "advertised-listener", Value: advertised}
		}
		flags["listener.security.protocol.map"] = config.Flag{Name: "x", Value: "IN:PLAINTEXT,OUT:PLAINTEXT,TLS:SSL"}
		c, err := config.Load(config.Source{Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	got, err := controllerListeners(load("IN://127.0.0.1:0,TLS://127.0.0.1:0,OUT://127.0.0.1:7", "IN://127.0.0.1:0,OUT://out.example:9999"), quietLog())
	if err != nil {
		t.Fatal(err)
	}
	want := []assembly.Listener{{Name: "IN", Bind: "127.0.0.1:0", Advertise: []kafka.Endpoint{{Listener: "IN", Host: "127.0.0.1"}}},
		{Name: "OUT", Bind: "127.0.0.1:7", Advertise: []kafka.Endpoint{{Listener: "OUT", Host: "out.example", Port: 9999}}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := controllerListeners(load("TLS://127.0.0.1:0", ""), quietLog()); exitCode(err) != 2 {
		t.Errorf("only TLS: %v", err)
	}
}

// A configuration tells the protocol version alone; what the broker does besides is
// what the release does that most likely has it. Many brokers at once are of 3.9.
func TestReleaseOfBrokers(t *testing.T) {
	for _, tc := range []struct{ version, config, ids string }{
		{"0.10.1", "0.10.1-IV2", "0.10.1-IV2"}, // 0.10.1.1
		{"0.10.2.2", "0.10.2-IV0", "0.10.2-IV0"},
		{"2.3", "2.3-IV1", "2.3-IV1"},
		{"2.4-IV0", "2.8-IV0", "3.9-IV0"},
		{"2.6", "2.8-IV0", "3.9-IV0"},
		{"2.7-IV2", "2.8-IV0", "3.9-IV0"},
		{"2.8", "2.8-IV1", "3.9-IV0"},
		{"3.5", "3.5-IV2", "3.9-IV0"},
		{"3.9", "3.9-IV0", "3.9-IV0"},
		{"", "3.9-IV0", "3.9-IV0"},
	} {
		flags := map[string]config.Flag{"broker.id": {Name: "x", Value: "1"}, "listeners": {Name: "x", Value: "PLAINTEXT://127.0.0.1:9092"}}
		if tc.version != "" {
			flags["inter.broker.protocol.version"] = config.Flag{Name: "x", Value: tc.version}
		}
		c, err := config.Load(config.Source{Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		plans, err := planOfConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := releaseIn(t, plans[0]); got != tc.config {
			t.Errorf("with --config, %q is of release %s, want %s", tc.version, got, tc.config)
		}
		if tc.version == "" {
			continue
		}
		if plans, err = plansOfIDs("1", 0, tc.version, c); err != nil {
			t.Fatal(err)
		}
		if got := releaseIn(t, plans[0]); got != tc.ids {
			t.Errorf("with --ids, %q is of release %s, want %s", tc.version, got, tc.ids)
		}
	}
}

// releaseIn is the release of the broker that a plan makes.
func releaseIn(t *testing.T, p assembly.BrokerOptions) string {
	t.Helper()
	b, err := brokers.New(p.Broker, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return brokers.NewNode(b, brokers.World{}).Options().Release.String()
}

// TestDefaultsOfRelease: what is not given has the default of the release that a
// configuration names.
func TestDefaultsOfRelease(t *testing.T) {
	for _, tc := range []struct {
		version, session, unclean string
		wantSession               time.Duration
		wantUnclean               bool
	}{
		{"0.10.2", "", "", 6 * time.Second, true},
		{"0.10.2", "9000", "false", 9 * time.Second, false},
		{"0.11.0", "", "", 6 * time.Second, false},
		{"2.3", "", "", 6 * time.Second, false},
		{"2.6", "", "", 18 * time.Second, false},
		{"3.9", "", "true", 18 * time.Second, true},
	} {
		flags := map[string]config.Flag{}
		for key, value := range map[string]string{"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092", "zookeeper.connect": "z:2181",
			"inter.broker.protocol.version": tc.version, "zookeeper.session.timeout.ms": tc.session, "unclean.leader.election.enable": tc.unclean} {
			if value != "" {
				flags[key] = config.Flag{Name: "x", Value: value}
			}
		}
		c, err := config.Load(config.Source{Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		candidate, err := controllerOptions(c, quietLog())
		if err != nil {
			t.Fatal(err)
		}
		o := assembly.BrokersOptions{Candidate: &candidate}
		if o.Brokers, err = planOfConfig(c); err != nil {
			t.Fatal(err)
		}
		if o.ZooKeeper, err = storeOptions(c, quietLog()); err != nil {
			t.Fatal(err)
		}
		defaultsOfRelease(c, &o)
		if o.ZooKeeper.SessionTimeout != tc.wantSession || candidate.ZooKeeper.SessionTimeout != tc.wantSession || candidate.Rules.UncleanElection != tc.wantUnclean {
			t.Errorf("%+v: sessions of %v and %v, unclean %v", tc, o.ZooKeeper.SessionTimeout, candidate.ZooKeeper.SessionTimeout, candidate.Rules.UncleanElection)
		}
	}
}

// TestBrokersKeys: what server.properties says about logs, groups and replication
// has its effect; what means nothing here is kept to be shown.
func TestBrokersKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	text := "broker.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092\nlog.dir=/d\nlog.retention.minutes=2\nmessage.max.bytes=77\nlog.segment.bytes=4096\n" +
		"log.cleanup.policy=compact\nlog.message.timestamp.type=LogAppendTime\nproducer.id.expiration.ms=60000\nlog.retention.check.interval.ms=1000\n" +
		"num.replica.fetchers=3\nreplica.fetch.max.bytes=10\nreplica.fetch.min.bytes=2\nreplica.fetch.response.max.bytes=11\nreplica.fetch.backoff.ms=12\n" +
		"replica.high.watermark.checkpoint.interval.ms=13\nmin.insync.replicas=2\n" +
		"group.min.session.timeout.ms=14\ngroup.max.session.timeout.ms=15\ngroup.max.size=16\ngroup.initial.rebalance.delay.ms=17\n" +
		"offsets.retention.minutes=18\noffsets.retention.check.interval.ms=19\noffsets.commit.timeout.ms=20\noffset.metadata.max.bytes=21\n" +
		"num.io.threads=8\nmy.key=x\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Source{File: file, Also: brokerport.Known})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"my.key", "num.io.threads"}, c.Unknown()); d != "" {
		t.Error("unknown", d)
	}
	plans, err := planOfConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	keepRecords(plans)
	p := plans[0]
	topic := brokers.DefaultTopicConfig()
	topic.Retention, topic.MaxMessageBytes, topic.SegmentBytes, topic.Delete, topic.Compact = 2*time.Minute, 77, 4096, false, true
	topic.LogAppendTime, topic.ProducerIDExpiration, topic.MinISR = true, time.Minute, 2
	if d := cmp.Diff(brokers.LogOptions{Dirs: []string{"/d"}, Topic: topic, Fetchers: 3, FetchMinBytes: 2, FetchMaxBytes: 11, FetchPartitionBytes: 10,
		FetchBackoff: 12 * time.Millisecond, Checkpoint: 13 * time.Millisecond, RetentionCheck: time.Second}, *p.Broker.Logs); d != "" {
		t.Error("logs", d)
	}
	if d := cmp.Diff(groups.Options{MinSessionTimeout: 14 * time.Millisecond, MaxSessionTimeout: 15 * time.Millisecond, MaxSize: 16, InitialRebalanceDelay: 17 * time.Millisecond,
		OffsetsRetention: 18 * time.Minute, RetentionCheck: 19 * time.Millisecond, CommitTimeout: 20 * time.Millisecond, MaxOffsetMetadata: 21}, *p.Broker.Groups); d != "" {
		t.Error("groups", d)
	}
	if p.Settings["my.key"] != "x" || p.Settings["num.io.threads"] != "8" || p.LogDirs[0] != "/d" {
		t.Errorf("%v, %v", p.Settings, p.LogDirs)
	}
}

// TestAllKeysOfABroker: a broker of 3.9.1 told these of itself. None is fatal, what
// is not used is reported, and what is used has no other default here.
func TestAllKeysOfABroker(t *testing.T) {
	c, err := config.Load(config.Source{File: "testdata/kafka-3.9.1.properties", Also: brokerport.Known})
	if err != nil {
		t.Fatal(err)
	}
	plans, err := planOfConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	keepRecords(plans)
	if err := plans[0].Settings.Check(); err != nil {
		t.Error(err)
	}
	if len(plans[0].Settings) != 254 || len(c.Unknown()) != 180 {
		t.Errorf("%d keys, %d of them not used, want 254 and 180: a key that has got an effect is to be told in docs/broker-keys.md", len(plans[0].Settings), len(c.Unknown()))
	}
	if d := cmp.Diff(brokers.DefaultTopicConfig(), plans[0].Broker.Logs.Topic); d != "" {
		t.Error("Kafka's defaults are", d)
	}
	want := groups.DefaultOptions()
	want.InitialRebalanceDelay = 0 // it was started so
	if d := cmp.Diff(want, *plans[0].Broker.Groups); d != "" {
		t.Error("Kafka's defaults are", d)
	}
}
