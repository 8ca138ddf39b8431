package assembly

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// A broker that is the controller leaves in good order: its registration goes
// first, /controller behind it, as with the one session of a real broker
// (spec/broker.md §1.8; run 0.10.2.2, 2.8.2), and with everything else it did.
func TestCandidateLeavesInOrder(t *testing.T) {
	for _, text := range []string{"0.10.2", "3.9"} {
		t.Run(text, func(t *testing.T) { candidateLeavesInOrder(t, version(t, text)) })
	}
}

func candidateLeavesInOrder(t *testing.T, v kafka.ProtocolVersion) {
	server, err := zkserver.New(zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	// Nothing here is left to a session's timeout, which is longer than the test may take.
	store := zkstore.Options{Servers: []string{"zookeeper:2181"}, SessionTimeout: 60 * time.Second, Dialer: server.Dial}
	net := NewMemory().Network()
	p := LocalBroker(1, "b1", 0, v)
	b, err := NewBrokers(t.Context(), BrokersOptions{Brokers: []BrokerOptions{p}, ZooKeeper: store, Network: net,
		Candidate: &ControllerOptions{Rules: Defaults(1, v), ZooKeeper: store, Network: net}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()

	notices := make(chan zkpaths.Notice, 100)
	s, err := zkstore.Dial(t.Context(), store, func(n zkpaths.Notice) { notices <- n })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	there := func(path string) bool {
		nodes, err := s.Read(t.Context(), []zkpaths.Read{{Op: zkpaths.Exists, Path: path, Watch: true}})
		if err != nil {
			t.Fatal(err)
		}
		return nodes[0].Code == zkpaths.OK
	}
	for !there(zkpaths.Controller) {
		<-notices // it was created
	}
	if !there(zkpaths.BrokerPath(1)) {
		t.Fatal("the controller is no broker")
	}
	leave()
	if err := <-ended; err != nil {
		t.Errorf("it left with %v", err)
	}
	want := []zkpaths.Notice{{Type: zkpaths.NodeDeleted, Path: zkpaths.BrokerPath(1)}, {Type: zkpaths.NodeDeleted, Path: zkpaths.Controller}}
	if d := cmp.Diff(want, []zkpaths.Notice{<-notices, <-notices}); d != "" {
		t.Errorf("notices, in order (-want +got):\n%s", d)
	}
}
