package assembly

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"
)

// probes say whether the process lives and whether it can do its work; nil is yes.
type probes struct {
	live, ready func(ctx context.Context) error
}

// serveHTTP serves metrics, probes and profiles on a loopback address until stop
// is called; "" serves nothing. more adds handlers.
func serveHTTP(address string, log logrus.FieldLogger, metrics prometheus.Collector, p probes, more map[string]http.HandlerFunc) (at net.Addr, stop func(), err error) {
	if address == "" {
		return nil, func() {}, nil
	}
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", probe(p.live))
	mux.HandleFunc("GET /readyz", probe(p.ready))
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	for pattern, h := range more {
		mux.HandleFunc(pattern, h)
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("open --admin %s: %w; give another port", address, err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.WithError(err).Error("the admin port ended")
		}
	}()
	log.WithField("address", ln.Addr().String()).Info("metrics, probes and profiles")
	return ln.Addr(), func() {
		server.Close()
		<-done
	}, nil
}

func probe(check func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		if err := check(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
