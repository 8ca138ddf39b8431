package assembly

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// maxQueueAge is how long an event may wait before the loop counts as stuck. A
// failover of a large cluster on a slow ZooKeeper takes minutes.
const maxQueueAge = 10 * time.Minute

// serveAdmin serves the controller's metrics and probes.
func serveAdmin(p *process) (func(), error) {
	m := &controllerMetrics{p: p}
	_, stop, err := serveHTTP(p.o.Admin, p.log, m, probes{live: p.live, ready: m.ready}, nil)
	return stop, err
}

func (p *process) live(context.Context) error {
	if age := p.queue.Oldest(); age > maxQueueAge {
		return fmt.Errorf("the first event has waited for %v", age.Round(time.Second))
	}
	return nil
}

// controllerMetrics has the names that jmx_exporter's example rules give to the
// beans of Kafka's controller (spec/controller.md §8.2), and zkc_ ones.
type controllerMetrics struct {
	p *process

	mu   sync.Mutex
	last controller.Gauges // from the last time the loop had time
	at   time.Time
}

// gauges asks the loop. While it is busy with a long event the last figures
// stand, which age tells.
func (m *controllerMetrics) gauges(ctx context.Context) (g controller.Gauges, age time.Duration, ok bool) {
	answer := make(chan controller.Gauges, 1)
	m.p.queue.Put(events.Inspect{Look: func() { answer <- m.p.controller.Gauges() }})
	select {
	case g = <-answer:
		m.mu.Lock()
		m.last, m.at = g, time.Now()
	case <-ctx.Done():
		m.mu.Lock()
	}
	defer m.mu.Unlock()
	return m.last, time.Since(m.at), !m.at.IsZero()
}

// ready: in charge with the failover done, or standing by for somebody.
func (m *controllerMetrics) ready(ctx context.Context) error {
	if s := m.p.session.Load().State(); s != zkstore.Connected {
		return fmt.Errorf("the ZooKeeper session is %s", s)
	}
	g, age, ok := m.gauges(ctx)
	switch {
	case !ok || age > 5*time.Second:
		return errors.New("the loop is busy")
	case g.Active && !g.Ready:
		return errors.New("taking over")
	case !g.Active && g.Controller < 0:
		return errors.New("nobody is controller")
	}
	return nil
}

// eventTimes are histograms of events, by Kafka's name.
type eventTimes struct{ took, waited *prometheus.HistogramVec }

func newEventTimes() eventTimes {
	make := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 11)}, []string{"event"}) // 0.1 ms to 105 s
	}
	return eventTimes{make("zkc_event_seconds", "Time events took, by Kafka's name."),
		make("zkc_event_wait_seconds", "Time events waited before they were taken up, by Kafka's name.")}
}

func (t eventTimes) observe(name string, waited, took time.Duration) {
	t.took.WithLabelValues(name).Observe(took.Seconds())
	t.waited.WithLabelValues(name).Observe(waited.Seconds())
}

// timerName is Kafka's ControllerStats timer of a state (spec/controller.md
// §2.3); "" for the states without one.
func timerName(k events.Kind) string {
	switch k {
	case events.Idle, events.UpdateMetadataResponseKind:
		return ""
	case events.BrokerChangeKind:
		return "leaderelectionrateandtimems"
	case events.AlterPartitionReassignmentKind:
		return "partitionreassignmentrateandtimems"
	}
	return lower(k.String()) + "rateandtimems"
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Describe sends nothing: the set of timers and brokers changes while we run.
func (m *controllerMetrics) Describe(chan<- *prometheus.Desc) {}

// collected is one scrape under way.
type collected struct{ ch chan<- prometheus.Metric }

func (c collected) put(t prometheus.ValueType, name, help string, v float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	c.ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), t, v, values...)
}

func (c collected) gauge(name, help string, v float64, labels ...string) {
	c.put(prometheus.GaugeValue, name, help, v, labels...)
}

func (c collected) counter(name, help string, v float64, labels ...string) {
	c.put(prometheus.CounterValue, name, help, v, labels...)
}

// summary is a count and a sum, as jmx_exporter shows a timer without its percentiles.
func (c collected) summary(name, help string, count uint64, sum float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	c.ch <- prometheus.MustNewConstSummary(prometheus.NewDesc(name, help, names, nil), count, sum, nil, values...)
}

// Collect is prometheus.Collector's.
func (m *controllerMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	c := collected{ch}
	if g, age, ok := m.gauges(ctx); ok {
		c.controller(g, age)
	}
	c.loop(m.p)
	c.channels(m.p)
	c.zookeeper(m.p)
}

func (c collected) controller(g controller.Gauges, age time.Duration) {
	const k = "kafka_controller_kafkacontroller_"
	active := 0.0
	if g.Active {
		active = 1
	}
	c.gauge(k+"activecontrollercount", "1 while this process is the controller.", active)
	c.gauge(k+"activebrokercount", "Registered brokers, those shutting down included.", float64(g.ActiveBrokers))
	c.gauge(k+"offlinepartitionscount", "Partitions without a leader.", float64(g.OfflinePartitions))
	c.gauge(k+"preferredreplicaimbalancecount", "Partitions not led by their first replica.", float64(g.PreferredReplicaImbalance))
	c.gauge(k+"globaltopiccount", "Topics.", float64(g.Topics))
	c.gauge(k+"globalpartitioncount", "Partitions with leadership.", float64(g.Partitions))
	c.gauge(k+"topicstodeletecount", "Topics queued for deletion.", float64(g.TopicsToDelete))
	c.gauge(k+"replicastodeletecount", "Replicas of queued topics that are not deleted yet.", float64(g.ReplicasToDelete))
	c.gauge(k+"topicsineligibletodeletecount", "Topics whose deletion must wait.", float64(g.TopicsIneligibleToDelete))
	c.gauge(k+"replicasineligibletodeletecount", "Replicas whose deletion must wait.", float64(g.ReplicasIneligibleToDelete))
	c.gauge(k+"fencedbrokercount", "Always 0 on ZooKeeper.", 0)
	c.gauge(k+"zkmigrationstate", "4: on ZooKeeper.", 4)
	c.counter("kafka_controller_controllerstats_uncleanleaderelections_total", "Leaders taken from outside the ISR.", float64(g.UncleanElections))
	c.gauge("kafka_server_metadataloader_currentcontrollerid", "Who /controller names; -1 nobody.", float64(g.Controller))
	c.gauge("zkc_reassigning_partitions", "Partitions being reassigned.", float64(g.Reassigning))
	c.gauge("zkc_under_replicated_partitions", "Partitions whose ISR lacks a replica.", float64(g.UnderReplicated))
	c.gauge("zkc_leaderless_partitions", "Partitions without a live leader.", float64(g.Leaderless))
	c.gauge("zkc_controller_epoch", "Epoch this process was elected with; 0 while it is not.", float64(g.ControllerEpoch))
	c.counter("zkc_failed_transitions_total", "State changes that failed.", float64(g.Failures))
	c.gauge("zkc_damaged_znodes", "Znodes that cannot be read; the log names them.", float64(len(g.Damaged)))
	c.gauge("zkc_snapshot_age_seconds", "How old these figures are: the loop was busy since.", age.Seconds())
}

func (c collected) loop(p *process) {
	s := p.controller.Stats()
	c.gauge("kafka_controller_kafkacontroller_controllerstate", "Kafka's ControllerState of the event in progress.", float64(s.State))
	c.gauge("kafka_controller_controllereventmanager_eventqueuesize", "Events that wait.", float64(p.queue.Len()))
	c.summary("kafka_controller_controllereventmanager_eventqueuetimems", "Time events waited.", s.QueueCount, millis(s.QueueTime))
	c.gauge("zkc_event_queue_age_seconds", "How long the first event has waited.", p.queue.Oldest().Seconds())
	timers := map[string]controller.EventStats{}
	for k := events.Idle; k <= events.UpdateFeaturesKind; k++ { // Kafka's are there from the start
		if t := timerName(k); t != "" {
			timers[t] = controller.EventStats{}
		}
	}
	for name, e := range s.Events {
		c.gauge("zkc_event_seconds_max", "Longest event so far.", e.Max.Seconds(), "event", name)
		if t := timerName(e.Kind); t != "" {
			sum := timers[t]
			sum.Count += e.Count
			sum.Total += e.Total
			timers[t] = sum
		}
	}
	p.times.took.Collect(c.ch)
	p.times.waited.Collect(c.ch)
	for name, e := range timers {
		c.summary("kafka_controller_controllerstats_"+name, "Time events of this state took.", e.Count, millis(e.Total))
	}
}

func (c collected) channels(p *process) {
	const k = "kafka_controller_controllerchannelmanager_"
	s := p.dispatcher.Stats()
	c.gauge(k+"totalqueuesize", "Control requests that wait, for all brokers.", float64(s.TotalQueueSize))
	for id, b := range s.Brokers {
		broker := strconv.Itoa(int(id))
		c.gauge(k+"queuesize", "Control requests that wait.", float64(b.QueueSize), "broker_id", broker)
		c.summary(k+"requestrateandqueuetimems", "Time requests waited before they were sent.", b.Requests, millis(b.QueueTime), "broker_id", broker)
		connected := 0.0
		if b.Connected {
			connected = 1
		}
		c.gauge("zkc_channel_connected", "1 while the broker is connected.", connected, "broker_id", broker)
		c.counter("zkc_channel_failures_total", "Attempts that failed.", float64(b.Failures), "broker_id", broker)
	}
}

func (c collected) zookeeper(p *process) {
	s := p.zkStats()
	const k = "kafka_server_sessionexpirelistener_"
	c.counter(k+"zookeeperdisconnects_total", "Connections to ZooKeeper that were lost.", float64(s.Disconnects))
	c.counter(k+"zookeeperexpires_total", "Sessions that expired.", float64(s.Expiries))
	c.counter(k+"zookeepersyncconnects_total", "Connections to ZooKeeper, new and resumed sessions alike.", float64(s.Connects))
	for _, name := range []string{"zookeeperauthfailures", "zookeeperreadonlyconnects", "zookeepersaslauthentications"} {
		c.counter(k+name+"_total", "Always 0: such connections are not made.", 0)
	}
	c.gauge(k+"sessionstate", "1 in the state that the label names.", 1, "state", p.session.Load().State().String())
	c.counter("zkc_zookeeper_packets_total", "Frames sent, bulk reads apart.", float64(s.Packets))
	c.counter("zkc_zookeeper_bulk_packets_total", "Frames of bulk reads.", float64(s.BulkPackets))
	c.counter("zkc_zookeeper_bytes_total", "Bytes sent.", float64(s.Bytes+s.BulkBytes))
	c.counter("zkc_zookeeper_notices_total", "Watches that fired.", float64(s.Notices))
	c.gauge("zkc_zookeeper_watches", "Armed watches.", float64(s.Watches))
	buckets := map[float64]uint64{}
	var count uint64
	for i, n := range s.Latency {
		count += uint64(n)
		if i < len(s.Latency)-1 { // the last is the rest
			buckets[(125 * time.Microsecond << i).Seconds()] = count
		}
	}
	ms := map[float64]uint64{}
	for le, n := range buckets {
		ms[le*1000] = n
	}
	c.ch <- prometheus.MustNewConstHistogram(prometheus.NewDesc("zkc_zookeeper_request_seconds", "Time from request to answer.", nil, nil),
		count, s.LatencySpan.Seconds(), buckets)
	c.ch <- prometheus.MustNewConstHistogram(prometheus.NewDesc("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", "Time from request to answer.", nil, nil),
		count, millis(s.LatencySpan), ms)
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
