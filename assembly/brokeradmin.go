package assembly

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
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
