package assembly

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

func idleEmulated() *emulated {
	e := &emulated{unlock: func() {}, log: quietLog(), changed: make(chan struct{})}
	e.ctx, e.stop = context.WithCancel(context.Background())
	return e
}

func idleSession() *zkSession {
	return &zkSession{Session: new(zkstore.Session), left: make(chan struct{})}
}

// A session that was left on purpose is not watched any more: a broker whose
// sessions are ended by faults all day must not keep them.
func TestLeftSessionIsLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := idleEmulated()
		defer e.stop()
		s := idleSession()
		e.use(s)
		e.watchSession()
		if e.take() != s || e.take() != nil {
			t.Error("the session in use was not the one given")
		}
		ended := false
		go func() { e.tasks.Wait(); ended = true }()
		synctest.Wait()
		if !ended {
			t.Error("the session is still watched")
		}
	})
}

// A session that comes after close is not taken into use: nobody would end it.
func TestNoSessionAfterClose(t *testing.T) {
	e := idleEmulated()
	e.close()
	if e.use(idleSession()) || e.session != nil {
		t.Error("a session was taken into use after close")
	}
}

// A broker asks the controller under its own id, as Kafka's do.
func TestControllerLinkNamesItself(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 1)
	s := wire.Serve(ln, wire.HandlerFunc(func(_ context.Context, r *wire.Request) {
		asked <- r.ClientID
		r.Reply(r.Kafka.ResponseKind())
	}), wire.ServerOptions{Table: []wire.APIVersion{{Key: 18, VersionRange: kafka.VersionRange{Max: 4}}, {Key: 7, VersionRange: kafka.VersionRange{Max: 3}}}})
	defer s.Close()
	l := &controllerLink{self: 4, listener: "PLAINTEXT"}
	defer l.close()
	at := kafka.Broker{ID: 9, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "127.0.0.1", Port: int32(ln.Addr().(*net.TCPAddr).Port)}}}
	if _, _, err := l.ControlledShutdown(t.Context(), at, 4, 100); err != nil {
		t.Fatal(err)
	}
	if id := <-asked; id != "4" {
		t.Errorf("client id %q, want the broker's", id)
	}
}

// DescribeConfigs shows a broker of flags as it would one of server.properties.
func TestShownSettings(t *testing.T) {
	p := LocalBroker(7, "127.0.0.1", 9099, kafka.V3_9IV0)
	p.Broker.Rack, p.Broker.HasRack = "r1", true
	p.Settings = brokerport.Settings{"num.partitions": "4"}
	want := brokerport.Settings{"broker.id": "7", "listeners": "PLAINTEXT://127.0.0.1:9099", "broker.rack": "r1", "num.partitions": "4"}
	if diff := cmp.Diff(want, p.shown()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	p.Settings["listeners"] = "PLAINTEXT://:9099" // as it was given
	if got := p.shown()["listeners"]; got != "PLAINTEXT://:9099" {
		t.Errorf("listeners=%s", got)
	}
}
