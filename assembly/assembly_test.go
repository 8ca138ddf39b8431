package assembly

import (
	"context"
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

func TestRandomTopicIDs(t *testing.T) {
	seen := map[kafka.TopicID]bool{}
	for range 2000 {
		id := RandomTopicID()
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

// What is bound is what is told, with picked ports.
func TestBindListeners(t *testing.T) {
	told := func(name, host string, port int32) []kafka.Endpoint {
		return []kafka.Endpoint{{Listener: name, Host: host, Port: port}}
	}
	b, err := bindListeners(Network{}, []Listener{{"IN", "127.0.0.1:0", told("IN", "127.0.0.1", 0)}, {"OUT", "127.0.0.1:0", told("OUT", "out.example", 9999)}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.closeUnserved()
	if len(b.open) != 2 || len(b.advertised) != 2 {
		t.Fatalf("%d ports open, %v told", len(b.open), b.advertised)
	}
	picked := int32(b.open[0].Addr().(*net.TCPAddr).Port)
	if d := cmp.Diff(append(told("IN", "127.0.0.1", picked), told("OUT", "out.example", 9999)...), b.advertised); d != "" {
		t.Error(d)
	}
	if _, err := bindListeners(Network{}, []Listener{{Name: "IN", Bind: b.open[0].Addr().String()}}); err == nil || !strings.Contains(err.Error(), "another port") {
		t.Errorf("a taken port: %v", err)
	}
}
