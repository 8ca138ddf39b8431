package attack

import (
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// start gives a cluster of four brokers with three healthy topics, h0 to h2,
// and candidate 101 in charge; visible means that it shows itself as a broker.
func start(t *testing.T, version kafka.ProtocolVersion, visible bool) *attack {
	t.Helper()
	opts := controller.Options{Version: version, DeleteTopics: true, ImbalancePercent: 10, ImbalanceCheck: time.Minute, DefaultPartitions: 1, DefaultReplication: 1}
	if visible {
		opts.Self = &kafka.Broker{ID: 101, Epoch: kafka.NoBrokerEpoch, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "c", Port: 9}}}
	}
	w, err := sim.NewWorld(1, opts)
	if err != nil {
		t.Fatal(err)
	}
	a := &attack{t: t, w: w, rng: rand.New(rand.NewSource(1)), bad: map[string]damage{}, next: 100}
	for id := kafka.BrokerID(1); id <= brokers; id++ {
		if err := w.Start(id, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"h0", "h1", "h2"} {
		a.topic(name)
	}
	a.candidate()
	a.pass("the start")
	return a
}

// pass lets things happen and demands that healthy topics are well.
func (a *attack) pass(when string) {
	a.t.Helper()
	if err := a.settle(); err != nil {
		a.t.Fatalf("%s: %v", when, err)
	}
	if bad := check(a.healthy(), a.untouched(), a.quiet()); bad != "" {
		a.t.Fatalf("%s: %s", when, bad)
	}
}

// lines counts lines of the log at level warn or worse that contain text.
func (a *attack) lines(text string) int {
	n := 0
	for _, note := range a.w.Notes {
		if l, ok := note.(sim.Logged); ok && l.Level <= logrus.WarnLevel {
			s, err := (&logrus.TextFormatter{DisableTimestamp: true}).Format(&logrus.Entry{Logger: logrus.New(), Data: l.Fields, Message: l.Message, Level: l.Level})
			if err == nil && strings.Contains(string(s), text) {
				n++
			}
		}
	}
	return n
}

func (a *attack) leader(name string, n int32) kafka.Leadership {
	l, _ := a.w.Leadership(kafka.TopicPartition{Topic: name, Partition: n})
	return l
}

// failover replaces the controller.
func (a *attack) failover() {
	a.w.Crash(a.next)
	a.candidate()
}

// TestTopicRepairedUnderATopicChange: the repair of a topic that was unreadable
// at failover is found by a listing, not by the watch on its node. It has states
// already, so it is not new.
func TestTopicRepairedUnderATopicChange(t *testing.T) {
	a := start(t, kafka.V3_9IV0, false)
	a.topic("v0")
	a.pass("a topic more")
	good, _ := a.get(zkpaths.TopicPath("v0"))
	a.put(zkpaths.TopicPath("v0"), []byte("{"))
	a.failover()
	a.pass("failover with an unreadable topic")
	a.topic("other") // its notice comes first
	a.put(zkpaths.TopicPath("v0"), good)
	a.pass("repair")
	for id := kafka.BrokerID(1); id <= brokers; id++ {
		a.w.Crash(id)
		a.pass("a broker's death")
		if l := a.leader("v0", 0); l.Leader == id || l.Leader < 0 {
			t.Errorf("v0-0 is led by %d after the death of %d: %s", l.Leader, id, l)
		}
		if err := a.w.Start(id, nil); err != nil {
			t.Fatal(err)
		}
		a.pass("its return")
	}
	if n := a.lines("node-exists"); n > 0 {
		t.Errorf("%d times a state was to be created that was there", n)
	}
}

// TestPartitionPutBack: a partition that the topic's znode lacked at failover,
// and that comes back with its state, is left for the next controller, as in
// Kafka (spec/controller.md §10.2, C-032); that one takes it up as it is.
func TestPartitionPutBack(t *testing.T) {
	a := start(t, kafka.V2_7IV0, false)
	a.put(zkpaths.TopicPath("v0"), []byte(`{"version":2,"partitions":{"0":[1,2],"1":[2,3]}}`))
	a.pass("a topic more")
	a.put(zkpaths.TopicPath("v0"), []byte(`{"version":2,"partitions":{"0":[1,2]}}`))
	a.failover()
	a.pass("failover without the partition")
	a.put(zkpaths.TopicPath("v0"), []byte(`{"version":2,"partitions":{"0":[1,2],"1":[2,3]}}`))
	a.pass("the partition is back")
	a.failover()
	a.pass("the next failover")
	a.w.Crash(2)
	a.pass("its leader's death")
	if l := a.leader("v0", 1); l.Leader != 3 || l.LeaderEpoch == 0 {
		t.Errorf("v0-1 is not led by 3 in a later epoch: %s", l)
	}
}

// TestScrubNegativeID: where a visible controller finds itself among the
// replicas of a new topic it chooses another broker, whatever stands beside it.
func TestScrubNegativeID(t *testing.T) {
	a := start(t, kafka.V3_9IV0, true)
	a.put(zkpaths.TopicPath("v0"), []byte(`{"version":3,"partitions":{"0":[-7,101],"1":[-2147483648,101],"2":[101]}}`))
	a.pass("a topic with negative replica ids")
	for n := range int32(3) {
		if l := a.leader("v0", n); l.Leader < 1 || l.Leader > brokers {
			t.Errorf("v0-%d is led by nobody: %s", n, l)
		}
	}
}

// TestTopicLosesItsPartitions: an object that says nothing of the partitions of
// a known topic is damage, not a topic to be given its id back.
func TestTopicLosesItsPartitions(t *testing.T) {
	for _, text := range []string{`{}`, `{"version":3}`, `{"version":3,"partitions":{},"adding_replicas":{},"removing_replicas":{}}`} {
		a := start(t, kafka.V3_9IV0, false)
		a.topic("v0")
		a.pass("a topic more")
		good, _ := a.get(zkpaths.TopicPath("v0"))
		a.put(zkpaths.TopicPath("v0"), []byte(text))
		a.pass("its partitions are gone")
		a.w.Crash(1)
		a.pass("a broker's death")
		if now, _ := a.get(zkpaths.TopicPath("v0")); string(now) != text {
			t.Errorf("%s became %s", text, now)
		}
		if l := a.leader("v0", 0); l.Leader < 2 {
			t.Errorf("v0-0 is led by nobody: %s", l)
		}
		if n := a.lines("lost its partitions"); n != 1 {
			t.Errorf("%s: told %d times", text, n)
		}
		a.put(zkpaths.TopicPath("v0"), good)
		a.pass("repaired")
	}
}

// TestNotificationThatStays: a notification that has children cannot be
// deleted; that is told once, however many come after it.
func TestNotificationThatStays(t *testing.T) {
	a := start(t, kafka.V2_7IV0, false)
	for _, dir := range []string{zkpaths.ISRNotifications, zkpaths.LogDirNotifications, zkpaths.DeleteTopics} {
		a.put(dir+"/x/y", []byte("?"))
		for range 5 {
			a.w.Crash(2)
			a.pass("a broker's death")
			if err := a.w.Start(2, nil); err != nil {
				t.Fatal(err)
			}
			a.pass("its return")
			a.put(dir+"/other", []byte("?"))
			a.pass("another notification")
		}
		if n := a.lines("path=" + dir + "/x "); n > 2 || n == 0 {
			t.Errorf("%s/x: told %d times", dir, n)
		}
		if n := a.lines("path=" + dir + "/other"); n > 5 {
			t.Errorf("%s/other: told %d times", dir, n)
		}
	}
}

// TestConfigChangeWithAHugeNumber: a name somebody made up does not hide later notifications.
func TestConfigChangeWithAHugeNumber(t *testing.T) {
	a := start(t, kafka.V3_9IV0, false)
	a.put(zkpaths.TopicPath("v0"), []byte(`{"version":3,"partitions":{"0":[1,2]}}`))
	a.pass("a topic more")
	a.put(zkpaths.ConfigChanges+"/config_change_9223372036854775807", []byte("?"))
	a.w.Lagging[2] = true
	a.w.Crash(2)
	a.pass("a follower's death")
	if err := a.w.Start(2, nil); err != nil {
		t.Fatal(err)
	}
	a.pass("its return, out of sync")
	a.w.Crash(1)
	if err := a.settle(); err != nil {
		t.Fatal(err)
	}
	if l := a.leader("v0", 0); l.Leader != -1 {
		t.Fatalf("led by somebody out of sync: %s", l)
	}
	a.put(zkpaths.TopicConfigPath("v0"), []byte(`{"version":1,"config":{"unclean.leader.election.enable":"true"}}`))
	a.put(zkpaths.ConfigChanges+"/config_change_0000000000", zkpaths.EncodeConfigChange(zkpaths.ConfigChange{EntityPath: "topics/v0"}))
	if err := a.settle(); err != nil {
		t.Fatal(err)
	}
	if l := a.leader("v0", 0); l.Leader != 2 {
		t.Errorf("the change of configuration went unseen: %s", l)
	}
}
