package assembly

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Ports of a network in memory are taken, found and shut like others.
func TestMemory(t *testing.T) {
	m := NewMemory()
	first, err := m.Listen("a:0")
	if err != nil {
		t.Fatal(err)
	}
	second, err := m.Listen("a:0")
	if err != nil {
		t.Fatal(err)
	}
	if first.Addr().String() != "a:9092" || second.Addr().String() != "a:9093" {
		t.Errorf("picked %s and %s", first.Addr(), second.Addr())
	}
	for _, bad := range []string{"a:9092", "a", "a:x", "a:-1"} {
		if _, err := m.Listen(bad); err == nil {
			t.Errorf("listens at %s", bad)
		}
	}
	go func() {
		c, err := second.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, c.LocalAddr().String())
		c.Close()
	}()
	c, err := m.Dial(t.Context(), "tcp", "a:9093")
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(c); err != nil || string(said) != c.RemoteAddr().String() {
		t.Errorf("%q, %v", said, err)
	}
	c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Dial(ctx, "tcp", "a:9092"); !errors.Is(err, context.Canceled) { // nobody accepts
		t.Errorf("dialled in no time: %v", err)
	}
	first.Close()
	second.Close()
	if _, err := m.Dial(t.Context(), "tcp", "a:9092"); !errors.Is(err, errNobodyListens) {
		t.Errorf("a shut port: %v", err)
	}
	if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept on a shut port: %v", err)
	}
	again, err := m.Listen("a:9092")
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func version(t *testing.T, text string) kafka.ProtocolVersion {
	t.Helper()
	v, err := kafka.ParseProtocolVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A cluster that cannot start leaves nothing, whichever port is taken, and says
// what to do.
func TestClusterThatCannotStart(t *testing.T) {
	for _, taken := range []string{"controller:9092", "broker:9092"} {
		server, err := zkserver.New(zkserver.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := NewMemory()
		ln, err := m.Listen(taken)
		if err != nil {
			t.Fatal(err)
		}
		v := version(t, "3.9")
		_, err = StartCluster(t.Context(), ClusterOptions{Server: server, ControllerID: 1000, ControllerBind: "controller:9092", Version: v,
			Brokers: []BrokerOptions{LocalBroker(1, "other", 9092, v), LocalBroker(2, "broker", 9092, v)}, Network: m.Network()})
		if err == nil || !strings.Contains(err.Error(), taken) || !strings.Contains(err.Error(), "another port") {
			t.Errorf("%s is taken: %v", taken, err)
		}
		if n := len(server.Sessions()); n != 0 {
			t.Errorf("%s is taken: %d sessions are left", taken, n)
		}
		ln.Close()
		if len(m.ports) != 0 {
			t.Errorf("%s is taken: %d ports are left open", taken, len(m.ports))
		}
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Kinds of trouble, which commands tell by their exit codes.
func TestErrorKinds(t *testing.T) {
	v := version(t, "2.6")
	server, err := zkserver.New(zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	m := NewMemory()
	start := func(id kafka.BrokerID, brokers ...BrokerOptions) (*Cluster, error) {
		return StartCluster(t.Context(), ClusterOptions{Server: server, ControllerID: id, ControllerBind: "controller:0", Version: v, Brokers: brokers, Network: m.Network()})
	}
	c, err := start(1000, LocalBroker(1, "a", 0, v))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	crooked := LocalBroker(7, "b", 0, v)
	crooked.Bind = nil
	for _, tc := range []struct {
		what  string
		start func() (*Cluster, error)
		want  Kind
	}{
		{"a broker has the controller's id", func() (*Cluster, error) { return start(1, LocalBroker(8, "b", 0, v)) }, Refused},
		{"a broker without ports", func() (*Cluster, error) { return start(1001, crooked) }, Misconfigured},
		{"two brokers of one id", func() (*Cluster, error) { return start(1001, LocalBroker(7, "b", 0, v), LocalBroker(7, "b", 0, v)) }, Misconfigured},
	} {
		c, err := tc.start()
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != tc.want {
			t.Errorf("%s: %v", tc.what, err)
		}
		if err == nil {
			c.Close()
		}
	}
}
