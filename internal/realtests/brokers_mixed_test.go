package realtests

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	zkclient "github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// createOn makes a topic whose replicas are given, as nobody but the test should
// choose them.
func createOn(ctx context.Context, t *testing.T, cl *kgo.Client, topic string, configs map[string]string, replicas ...[]int32) {
	t.Helper()
	await(t, "topic "+topic+" is made", func() bool {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 30_000
		row := kmsg.NewCreateTopicsRequestTopic()
		row.Topic, row.NumPartitions, row.ReplicationFactor = topic, -1, -1
		for p, ids := range replicas {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(p), ids
			row.ReplicaAssignment = append(row.ReplicaAssignment, a)
		}
		for k, v := range configs {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = k, &v
			row.Configs = append(row.Configs, c)
		}
		req.Topics = append(req.Topics, row)
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		if err != nil && !kerr.IsRetriable(err) {
			t.Logf("create %s: %v", topic, err)
		}
		return err == nil || err == kerr.TopicAlreadyExists
	})
}

// reassign moves partitions and waits until they are where they should be.
func reassign(ctx context.Context, t *testing.T, admin *kadm.Client, topic string, replicas map[int32][]int32) {
	t.Helper()
	var want kadm.AlterPartitionAssignmentsReq
	for p, ids := range replicas {
		want.Assign(topic, p, ids)
	}
	if got, err := admin.AlterPartitionAssignments(ctx, want); err != nil || got.Error() != nil {
		t.Fatalf("move %s to %v: %v, %v", topic, replicas, err, got)
	}
	await(t, fmt.Sprintf("%s moved to %v", topic, replicas), func() bool {
		topics, err := admin.ListTopics(ctx, topic)
		if err != nil || topics.Error() != nil {
			return false
		}
		for p, ids := range replicas {
			d := topics[topic].Partitions[p]
			isr := slices.Sorted(slices.Values(d.ISR))
			if !slices.Equal(d.Replicas, ids) || !slices.Equal(isr, slices.Sorted(slices.Values(ids))) {
				return false
			}
		}
		return true
	})
}

// lead makes the preferred replica the leader.
func lead(ctx context.Context, t *testing.T, admin *kadm.Client, topic string, leader int32) {
	t.Helper()
	await(t, fmt.Sprintf("%s led by %d", topic, leader), func() bool {
		topics, err := admin.ListTopics(ctx, topic)
		if err == nil && topics.Error() == nil && topics[topic].Partitions[0].Leader == leader {
			return true
		}
		_, _ = admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil) // what came of it is seen
		return false
	})
}

// produceMixed writes n records in all codecs.
func produceMixed(ctx context.Context, t *testing.T, seeds []string, topic string, from, n int) {
	t.Helper()
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.MetadataMinAge(100*time.Millisecond), kgo.UnknownTopicRetries(-1), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		var records []*kgo.Record
		for k := i; k < n; k += len(codecs) {
			records = append(records, &kgo.Record{Key: []byte(strconv.Itoa(from + k)), Value: []byte(strings.Repeat(strconv.Itoa(from+k)+" ", 1+k%50)),
				Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(strconv.Itoa(k))}}})
		}
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			t.Fatalf("produce to %s: %v", topic, err)
		}
		cl.Close()
	}
}

// checksum reads a partition from its leader up to n records: all of offsets,
// epochs, times, keys, values and headers counts.
func checksum(ctx context.Context, t *testing.T, seeds []string, topic string, n int) string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	h := sha256.New()
	for got := 0; got < n; {
		fetched := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %d of %d of %s: %v", got, n, topic, fetched.Err())
		}
		fetched.EachRecord(func(r *kgo.Record) {
			fmt.Fprintf(h, "%d %d %d %q %q %v\n", r.Offset, r.LeaderEpoch, r.Timestamp.UnixMilli(), r.Key, r.Value, r.Headers)
			got++
		})
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:16]
}

// One broker of Kafka's and two of ours have a topic's replicas. The leader is on
// either side; what consumers read of each of the three is the same.
func TestMixedCluster(t *testing.T) {
	requireOurs(t)
	for _, c := range []struct {
		release, ibp string
		ours         bool // our controller, else Kafka's broker is the one
	}{{"3.9.1", "3.9", false}, {"3.9.1", "3.9", true}, {"2.4.1", "2.4", false}} {
		who := "Kafka's"
		if c.ours {
			who = "our"
		}
		t.Run(fmt.Sprintf("%s broker of Kafka - %s controller", c.release, who), func(t *testing.T) {
			t.Parallel()
			mixedCluster(t, c.release, c.ibp, c.ours)
		})
	}
}

func mixedCluster(t *testing.T, release, ibp string, ours bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	zk := real.ZooKeeper(t).Addr()
	if ours {
		runController(t, zk, 1000)
		await(t, "controller elected", func() bool { s, ok := statusOf(t, zk); return ok && s.controlledBy(1000) })
	}
	theirs := startKafka(t, release, zk, 1, map[string]string{"replica.lag.time.max.ms": "3000", "inter.broker.protocol.version": ibp})
	awaitBrokers(t, zk, 1)
	settings := []string{"replica.lag.time.max.ms=3000", "inter.broker.protocol.version=" + ibp}
	two, three := startBroker(t, zk, 2, false, settings...), startBroker(t, zk, 3, false, settings...)
	awaitBrokers(t, zk, 1, 2, 3)
	seeds := []string{theirs.addr, two.addr, three.addr}
	cl := kafkaClient(t, seeds...)
	admin := kadm.NewClient(cl)
	createOn(ctx, t, cl, "mix", map[string]string{"min.insync.replicas": "2"}, []int32{1, 2, 3})
	awaitHealthy(t, zk, 1)
	if ibp == "3.9" {
		compareConfigs(t, configsOf(ctx, t, cl, 1, kmsg.ConfigResourceTypeBroker, "1"), configsOf(ctx, t, cl, 2, kmsg.ConfigResourceTypeBroker, "2"))
		theirs, ours := configsOf(ctx, t, cl, 1, kmsg.ConfigResourceTypeTopic, "mix"), configsOf(ctx, t, cl, 2, kmsg.ConfigResourceTypeTopic, "mix")
		compareConfigs(t, theirs, ours)
		if len(theirs) != len(ours) {
			t.Errorf("%d keys of a topic, Kafka has %d", len(ours), len(theirs))
		}
	}
	produceMixed(ctx, t, seeds, "mix", 0, 1000)
	reassign(ctx, t, admin, "mix", map[int32][]int32{0: {2, 1, 3}})
	lead(ctx, t, admin, "mix", 2)
	produceMixed(ctx, t, seeds, "mix", 1000, 1000)

	two.kill()
	await(t, "broker 2 is gone", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 3) && len(s.Leaderless) == 0 })
	produceMixed(ctx, t, seeds, "mix", 2000, 1000)
	two.again(t)
	awaitHealthy(t, zk, 1)
	theirs.kill()
	await(t, "Kafka's broker is gone", func() bool {
		s, ok := statusOf(t, zk)
		return ok && s.has(2, 3) && len(s.Leaderless) == 0 && (s.Controller != nil || !ours)
	})
	if ours { // else nobody elects
		produceMixed(ctx, t, seeds, "mix", 3000, 1000)
	}
	theirs.again(t)
	awaitHealthy(t, zk, 1)
	if !ours {
		produceMixed(ctx, t, seeds, "mix", 3000, 1000)
	}
	sums := map[string][]int32{}
	for _, leader := range []int32{1, 2, 3} {
		order := append([]int32{leader}, slices.DeleteFunc([]int32{1, 2, 3}, func(id int32) bool { return id == leader })...)
		reassign(ctx, t, admin, "mix", map[int32][]int32{0: order})
		lead(ctx, t, admin, "mix", leader)
		sum := checksum(ctx, t, seeds, "mix", 4000)
		sums[sum] = append(sums[sum], leader)
	}
	t.Logf("checksums of 4000 records, by leader: %v", sums)
	if len(sums) != 1 {
		t.Errorf("leaders differ: %v", sums)
	}
}

// configsOf gives what a broker tells of a configuration.
func configsOf(ctx context.Context, t *testing.T, cl *kgo.Client, broker int, kind kmsg.ConfigResourceType, name string) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	req.Resources = append(req.Resources, r)
	var resp kmsg.Response
	await(t, fmt.Sprintf("broker %d tells of %s %s", broker, kind, name), func() bool {
		var err error
		resp, err = cl.Broker(broker).RetriableRequest(ctx, req)
		return err == nil && resp.(*kmsg.DescribeConfigsResponse).Resources[0].ErrorCode == 0
	})
	all := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range resp.(*kmsg.DescribeConfigsResponse).Resources[0].Configs {
		all[c.Name] = c
	}
	return all
}

// compareConfigs wants every key of ours to be one of Kafka's, of the same type, as
// easy to change, with the same default and synonyms. Ports are not opened at run
// time here.
func compareConfigs(t *testing.T, theirs, ours map[string]kmsg.DescribeConfigsResponseResourceConfig) {
	t.Helper()
	fixed := []string{"listeners", "advertised.listeners", "listener.security.protocol.map"}
	text := func(c kmsg.DescribeConfigsResponseResourceConfig) string {
		s := fmt.Sprintf("%s, read-only %v, sensitive %v", c.ConfigType, c.ReadOnly, c.IsSensitive)
		for _, x := range c.ConfigSynonyms {
			if x.Source == kmsg.ConfigSourceDefaultConfig && x.Value != nil {
				s += fmt.Sprintf(", default of %s %q", x.Name, *x.Value)
			}
		}
		return s
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		theirs, ok := theirs[name]
		switch {
		case !ok && strings.HasPrefix(name, "zkc."):
		case !ok:
			t.Errorf("%s is no key of Kafka's", name)
		case slices.Contains(fixed, name):
		case text(theirs) != text(ours[name]):
			t.Errorf("%s:\n  Kafka's %s\n  ours    %s", name, text(theirs), text(ours[name]))
		}
	}
	t.Logf("%d keys of Kafka's %d are told as by Kafka", len(ours), len(theirs))
}

// Kafka 3.9.1 is the controller of our brokers, in its own way (AlterPartition)
// and with an old protocol (state znodes, announcements).
func TestKafkaControlsOurs(t *testing.T) {
	requireOurs(t)
	for _, ibp := range []string{"3.9", "2.6"} {
		t.Run("inter.broker.protocol.version "+ibp, func(t *testing.T) {
			t.Parallel()
			kafkaControls(t, ibp)
		})
	}
}

func kafkaControls(t *testing.T, ibp string) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	zk := real.ZooKeeper(t).Addr()
	kafka := startKafka(t, "3.9.1", zk, 100, map[string]string{"inter.broker.protocol.version": ibp, "auto.leader.rebalance.enable": "false"})
	awaitBrokers(t, zk, 100)
	var all []*ourBroker
	var seeds []string
	for id := 1; id <= 3; id++ {
		all = append(all, startBroker(t, zk, id, false, "inter.broker.protocol.version="+ibp, "replica.lag.time.max.ms=2000"))
		seeds = append(seeds, all[id-1].addr)
	}
	awaitBrokers(t, zk, 1, 2, 3, 100)
	conn := dialZooKeeper(t, zk)
	cl := kafkaClient(t, seeds...)
	admin := kadm.NewClient(cl)
	createOn(ctx, t, cl, "orders", nil, []int32{1, 2, 3}, []int32{2, 3, 1}, []int32{3, 1, 2}, []int32{1, 3, 2})
	awaitHealthy(t, zk, 4)
	roundTrip(t, "orders", 200, 200, seeds...)

	// A follower that stands still is left out, and comes back, by the controller's word.
	if err := all[2].fault(map[string]any{"op": "pause"}); err != nil {
		t.Fatal(err)
	}
	await(t, "broker 3 left the ISRs that it follows", func() bool {
		produceSome(ctx, t, cl, "orders")
		s, ok := statusOf(t, zk)
		return ok && len(s.UnderReplicated) == 3
	})
	if err := all[2].fault(map[string]any{"op": "resume"}); err != nil {
		t.Fatal(err)
	}
	awaitHealthy(t, zk, 4)

	reassign(ctx, t, admin, "orders", map[int32][]int32{0: {3, 2}, 1: {1, 2}})
	all[1].kill()
	await(t, "broker 2 is gone", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 3, 100) && len(s.Leaderless) == 0 })
	produceSome(ctx, t, cl, "orders")
	all[1].again(t)
	awaitHealthy(t, zk, 4)

	// A goodbye: the controller takes its leaderships first.
	all[0].leave(20 * time.Second)
	await(t, "broker 1 left, others lead", func() bool { s, ok := statusOf(t, zk); return ok && s.has(2, 3, 100) && len(s.Leaderless) == 0 })
	all[0].again(t)
	awaitHealthy(t, zk, 4)

	// A bounce that the controller sees as such alone, by the broker's epoch, and a
	// session that is lost.
	for _, op := range []string{"bounce", "expire-session"} {
		before := czxidOf(t, conn, 3)
		if err := all[2].fault(map[string]any{"op": op}); err != nil {
			t.Fatal(err)
		}
		await(t, "broker 3 is registered anew after "+op, func() bool { now := czxidOf(t, conn, 3); return now != 0 && now != before })
		produceSome(ctx, t, cl, "orders")
		awaitHealthy(t, zk, 4)
	}

	if _, err := admin.DeleteTopic(ctx, "orders"); err != nil {
		t.Fatalf("delete: %v", err)
	}
	await(t, "the topic is gone", func() bool { s, ok := statusOf(t, zk); return ok && s.Topics == 0 && len(s.Deletions) == 0 })
	for _, b := range all {
		left, err := filepath.Glob(filepath.Join(filepath.Dir(b.argv[3]), "logs", "orders-*"))
		if err != nil || len(left) > 0 && !onlyDeleted(left) {
			t.Errorf("broker %d keeps %v, %v", b.id, left, err)
		}
	}
	if out := kafka.out.String(); strings.Contains(out, "ERROR") {
		t.Logf("Kafka complained:\n%s", grep(out, "ERROR"))
	}
}

// czxidOf is the epoch of a broker's registration; 0: it is not registered.
func czxidOf(t *testing.T, conn *zkclient.Conn, id int) int64 {
	t.Helper()
	ok, stat, err := conn.Exists(fmt.Sprintf("/brokers/ids/%d", id))
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return 0
	}
	return stat.Czxid
}

// onlyDeleted tells whether folders are marked for deletion, as Kafka does it a minute before.
func onlyDeleted(paths []string) bool {
	return !slices.ContainsFunc(paths, func(p string) bool {
		_, err := os.Stat(p)
		return err == nil && !strings.HasSuffix(p, "-delete")
	})
}

func grep(text, word string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// produceSome writes a few records to all partitions.
func produceSome(ctx context.Context, t *testing.T, cl *kgo.Client, topic string) {
	t.Helper()
	var records []*kgo.Record
	for i := range 20 {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(i))})
	}
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
}
