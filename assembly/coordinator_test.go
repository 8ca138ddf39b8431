package assembly

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// A client that looks for its group's coordinator and only ever asks the
// controller, which is in the broker list, finds it, and the topic comes into being.
func TestCoordinatorByController(t *testing.T) {
	server, err := zkserver.New(zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	network := NewMemory().Network()
	o := ClusterOptions{Server: server, ControllerID: 1000, ControllerBind: "controller:0", Version: version(t, "3.9"), Network: network}
	for id := range kafka.BrokerID(2) {
		p := LocalBroker(id+1, fmt.Sprintf("broker-%d", id+1), 0, o.Version)
		p.KeepRecords()
		o.Brokers = append(o.Brokers, p)
	}
	c, err := StartCluster(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := wire.Dial(t.Context(), c.Controller(), wire.DialOptions{Dialer: network.Dial})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.SetVersion(4)
	req.CoordinatorKeys = []string{"some group"}
	for deadline := time.Now().Add(30 * time.Second); ; {
		resp, err := conn.Request(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		got := resp.(*kmsg.FindCoordinatorResponse).Coordinators[0]
		if kafka.ErrorCode(got.ErrorCode) == kafka.NoError {
			if got.NodeID != 1 && got.NodeID != 2 || got.Host != fmt.Sprintf("broker-%d", got.NodeID) {
				t.Errorf("%+v", got)
			}
			return
		}
		if kafka.ErrorCode(got.ErrorCode) != kafka.CoordinatorNotAvailable || time.Now().After(deadline) {
			t.Fatalf("%s: %s", kafka.ErrorCode(got.ErrorCode), *got.ErrorMessage)
		}
	}
}
