package assembly

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// serveBrokerAdmin serves faults beside metrics and probes of emulated brokers,
// and of the controller that is in the same process, or nil.
func serveBrokerAdmin(address string, host *brokers.Host, c *process, log logrus.FieldLogger) (net.Addr, func(), error) {
	var m *controllerMetrics
	if c != nil {
		m = &controllerMetrics{p: c}
	}
	ready := func(ctx context.Context) error {
		for _, n := range host.Nodes() {
			s, err := snapshot(ctx, host, n.ID())
			if err != nil {
				return err
			}
			if !s.Registered {
				return fmt.Errorf("broker %d is not registered", n.ID())
			}
		}
		if m != nil {
			return m.ready(ctx)
		}
		return nil
	}
	metrics, live := prometheus.Collector(brokerMetrics{host}), func(context.Context) error { return nil }
	if c != nil {
		metrics, live = together{metrics, m}, c.live
	}
	return serveHTTP(address, log, metrics, probes{live: live, ready: ready}, map[string]http.HandlerFunc{"POST /fault": faultHandler(host)})
}

// together is several collectors as one, whose set of metrics may change.
type together []prometheus.Collector

// Describe sends nothing, which tells that.
func (together) Describe(chan<- *prometheus.Desc) {}

// Collect is prometheus.Collector's.
func (t together) Collect(ch chan<- prometheus.Metric) {
	for _, c := range t {
		c.Collect(ch)
	}
}

func snapshot(ctx context.Context, host *brokers.Host, id kafka.BrokerID) (*brokers.Snapshot, error) {
	resp, err := host.Fault(ctx, brokers.FaultRequest{Broker: id, Op: "status"})
	switch {
	case err != nil:
		return nil, fmt.Errorf("broker %d: %w", id, err)
	case resp.State == nil:
		return nil, fmt.Errorf("broker %d: %s", id, resp.Error)
	}
	return resp.State, nil
}

func faultHandler(host *brokers.Host) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var req brokers.FaultRequest
		d := json.NewDecoder(io.LimitReader(r.Body, 1<<20))
		d.DisallowUnknownFields()
		if err := d.Decode(&req); err != nil {
			http.Error(w, "not a fault request: "+err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 30*time.Second)
		defer cancel()
		resp, err := host.Fault(ctx, req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if resp.Error != "" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		// The client is gone if this fails.
		_ = json.NewEncoder(w).Encode(resp)
	}
}

// brokerMetrics has the names that dashboards know from Kafka's replica manager
// (spec/broker.md §11.2, §11.3), by broker.
type brokerMetrics struct{ host *brokers.Host }

var (
	brokerDesc = func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("kafka_server_replicamanager_"+name, help, []string{"broker"}, nil)
	}
	leaderCount     = brokerDesc("leadercount", "Partitions this broker leads.")
	partitionCount  = brokerDesc("partitioncount", "Partitions this broker hosts.")
	underReplicated = brokerDesc("underreplicatedpartitions", "Led partitions whose ISR lacks a replica.")
	offlineReplicas = brokerDesc("offlinereplicacount", "Partitions in a failed log directory.")
	isrShrinks      = brokerDesc("isrshrinks_total", "Confirmed shrinks of an ISR.")
	isrExpands      = brokerDesc("isrexpands_total", "Confirmed expansions of an ISR.")
	failedISR       = brokerDesc("failedisrupdates_total", "Refused or failed changes of an ISR.")
)

// Describe is prometheus.Collector's.
func (m brokerMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaderCount, partitionCount, underReplicated, offlineReplicas, isrShrinks, isrExpands, failedISR} {
		ch <- d
	}
}

// Collect is prometheus.Collector's. A broker that does not answer is left out.
func (m brokerMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, n := range m.host.Nodes() {
		s, err := snapshot(ctx, m.host, n.ID())
		if err != nil {
			continue
		}
		leads, under, offline := 0, 0, 0
		for _, p := range s.Partitions {
			if p.Offline {
				offline++
			}
			if p.Leader == s.ID {
				leads++
				if len(p.ISR) < len(p.Replicas) {
					under++
				}
			}
		}
		id := strconv.Itoa(int(s.ID))
		gauge := func(d *prometheus.Desc, v int) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), id)
		}
		gauge(leaderCount, leads)
		gauge(partitionCount, len(s.Partitions))
		gauge(underReplicated, under)
		gauge(offlineReplicas, offline)
		for d, v := range map[*prometheus.Desc]int{isrShrinks: s.Counters.ISRShrinks, isrExpands: s.Counters.ISRExpands, failedISR: s.Counters.FailedISRUpdates} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), id)
		}
	}
}
