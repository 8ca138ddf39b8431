package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

func quietLog() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// A timer's event is queued in time, unless it was stopped, or all were.
func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts := &timers{queue: controller.NewQueue(nil)}
		ts.After(time.Minute, events.BrokerChange{})
		stop := ts.After(time.Minute, events.TopicChange{})
		stop()
		time.Sleep(time.Minute + time.Second) // virtual
		synctest.Wait()
		if n := ts.queue.Len(); n != 1 {
			t.Fatalf("%d events, want 1", n)
		}
		ts.After(time.Minute, events.BrokerChange{})
		ts.stopAll()
		ts.After(time.Minute, events.BrokerChange{})
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := ts.queue.Len(); n != 1 || len(ts.armed) != 0 {
			t.Errorf("%d events and %d timers after all were stopped", n, len(ts.armed))
		}
	})
}

// What is bound is what is told, with picked ports; other protocols stay shut.
func TestBindListeners(t *testing.T) {
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
	b, err := bindListeners(load("IN://127.0.0.1:0,TLS://127.0.0.1:0,OUT://127.0.0.1:0", "IN://127.0.0.1:0,OUT://out.example:9999"), quietLog())
	if err != nil {
		t.Fatal(err)
	}
	defer b.closeUnserved()
	if len(b.open) != 2 || len(b.advertised) != 2 {
		t.Fatalf("%d ports open, %v told", len(b.open), b.advertised)
	}
	picked := int32(b.open[0].Addr().(*net.TCPAddr).Port)
	want := []kafka.Endpoint{{Listener: "IN", Host: "127.0.0.1", Port: picked}, {Listener: "OUT", Host: "out.example", Port: 9999}}
	if d := cmp.Diff(want, b.advertised); d != "" {
		t.Error(d)
	}
	if _, err := bindListeners(load("TLS://127.0.0.1:0", ""), quietLog()); exitCode(err) != 2 {
		t.Errorf("only TLS: %v", err)
	}
	taken := load("IN://"+b.open[0].Addr().String(), "")
	if _, err := bindListeners(taken, quietLog()); err == nil || !strings.Contains(err.Error(), "another port") {
		t.Errorf("a taken port: %v", err)
	}
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

func TestRandomTopicIDs(t *testing.T) {
	seen := map[kafka.TopicID]bool{}
	for range 2000 {
		id := randomTopicID()
		if seen[id] || id[6]>>4 != 4 || id[8]>>6 != 2 || strings.HasPrefix(id.String(), "-") {
			t.Fatalf("bad id %s", id)
		}
		seen[id] = true
	}
}

func TestNeededUpdateMetadata(t *testing.T) {
	for v, want := range map[string]int16{"0.9": 0, "0.10.0": 2, "0.10.2": 3, "1.0": 4, "2.3": 5, "2.4": 6, "2.7": 6, "2.8": 7, "3.3": 7, "3.9": 8} {
		p, err := kafka.ParseProtocolVersion(v)
		if err != nil {
			t.Fatal(err)
		}
		if got := neededUpdateMetadata(p); got != want {
			t.Errorf("%s: %d, want %d", v, got, want)
		}
	}
}

// Names that dashboards ask for (spec/controller.md §8.2, as jmx_exporter writes them).
func TestControllerMetricNames(t *testing.T) {
	ch := make(chan prometheus.Metric, 100)
	collected{ch}.controller(controller.Gauges{Active: true, Gauges: statemachine.Gauges{OfflinePartitions: 3}}, 0)
	close(ch)
	var b strings.Builder
	for m := range ch {
		b.WriteString(m.Desc().String() + "\n")
	}
	for _, name := range []string{"activecontrollercount", "offlinepartitionscount", "preferredreplicaimbalancecount", "globaltopiccount",
		"globalpartitioncount", "topicstodeletecount", "replicastodeletecount", "topicsineligibletodeletecount",
		"replicasineligibletodeletecount", "activebrokercount", "fencedbrokercount"} {
		if !strings.Contains(b.String(), `"kafka_controller_kafkacontroller_`+name+`"`) {
			t.Errorf("no kafka_controller_kafkacontroller_%s", name)
		}
	}
	for kind, want := range map[events.Kind]string{events.Idle: "", events.BrokerChangeKind: "leaderelectionrateandtimems",
		events.ControllerChangeKind: "controllerchangerateandtimems", events.IsrChangeKind: "isrchangerateandtimems",
		events.AlterPartitionReassignmentKind: "partitionreassignmentrateandtimems", events.UpdateMetadataResponseKind: ""} {
		if got := timerName(kind); got != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}

// How long events wait and take is there as histograms that can be added up.
func TestEventTimes(t *testing.T) {
	times := newEventTimes()
	times.observe("BrokerChange", time.Second, 2*time.Millisecond)
	times.observe("BrokerChange", 0, 3*time.Second)
	r := prometheus.NewRegistry()
	r.MustRegister(times.took, times.waited)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			h := m.GetHistogram()
			got[f.GetName()+" "+m.Label[0].GetValue()+" sum"] = h.GetSampleSum()
			got[f.GetName()+" "+m.Label[0].GetValue()+" below a tenth"] = float64(h.Bucket[5].GetCumulativeCount())
		}
	}
	want := map[string]float64{"zkc_event_seconds BrokerChange sum": 3.002, "zkc_event_seconds BrokerChange below a tenth": 1,
		"zkc_event_wait_seconds BrokerChange sum": 1, "zkc_event_wait_seconds BrokerChange below a tenth": 1}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Counters go on over sessions; gauges are the present one's.
func TestSessionStatsAddUp(t *testing.T) {
	past := zkstore.Stats{Packets: 5, Latency: []int64{1, 2, 3}, LatencySpan: time.Second}
	sum := sumStats(past, zkstore.Stats{Packets: 7, Watches: 9, Latency: []int64{10, 20, 30}, LatencySpan: time.Second})
	if d := cmp.Diff(zkstore.Stats{Packets: 12, Watches: 9, Latency: []int64{11, 22, 33}, LatencySpan: 2 * time.Second}, sum); d != "" {
		t.Error(d)
	}
}

// Probes answer 200 or 503 with the reason, faults 400 for what is no fault.
func TestProbes(t *testing.T) {
	r := httptest.NewRecorder()
	probe(func(context.Context) error { return nil })(r, httptest.NewRequest("GET", "/livez", nil))
	if r.Code != http.StatusOK {
		t.Errorf("code %d", r.Code)
	}
	r = httptest.NewRecorder()
	probe(func(context.Context) error { return zkpaths.ErrSessionExpired })(r, httptest.NewRequest("GET", "/readyz", nil))
	if r.Code != http.StatusServiceUnavailable || !strings.Contains(r.Body.String(), "expired") {
		t.Errorf("code %d: %s", r.Code, r.Body)
	}
	r = httptest.NewRecorder()
	faultHandler(nil)(r, httptest.NewRequest("POST", "/fault", strings.NewReader(`{"brokre":1}`)))
	if r.Code != http.StatusBadRequest {
		t.Errorf("code %d: %s", r.Code, r.Body)
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
