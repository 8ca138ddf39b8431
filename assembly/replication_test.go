package assembly

import (
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// Brokers with logs under our controller: records reach all replicas, a changed
// configuration reaches the brokers, and the leader's end loses nothing.
func TestRecordsInACluster(t *testing.T) {
	for _, text := range []string{"2.6", "3.9"} {
		t.Run(text, func(t *testing.T) { recordsInACluster(t, version(t, text)) })
	}
}

func recordsInACluster(t *testing.T, v kafka.ProtocolVersion) {
	server, err := zkserver.New(zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var plans []BrokerOptions
	for id, host := range []string{"a", "b", "c"} {
		p := LocalBroker(kafka.BrokerID(id+1), host, 0, v)
		p.Broker.Logs = &brokers.LogOptions{}
		p.Broker.ReplicaLagTimeMax = 2 * time.Second
		plans = append(plans, p)
	}
	c, err := StartCluster(t.Context(), ClusterOptions{Server: server, ControllerID: 1000, ControllerBind: "controller:0", Version: v, Brokers: plans,
		Network: NewMemory().Network()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.CreateTopic(t.Context(), Topic{Name: "t", Partitions: 1, Replication: 3}); err != nil {
		t.Fatal(err)
	}
	tp := kafka.TopicPartition{Topic: "t"}
	produce := func(value string) brokers.ProduceResult {
		for {
			var r brokers.ProduceResult
			for _, n := range c.brokers.host.Nodes() {
				answer := make(chan []brokers.ProduceResult, 1)
				n.Produce(&brokers.ProduceRequest{Acks: brokers.AcksAll, Timeout: 10 * time.Second, Rows: []brokers.ProduceRow{{Partition: tp,
					Records: commitlog.Encode(commitlog.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(value)})}}}, func(r []brokers.ProduceResult) { answer <- r })
				select {
				case rs := <-answer:
					if r = rs[0]; r.Error == kafka.NoError || r.Error == kafka.NotEnoughReplicas {
						return r
					}
				case <-n.Ended():
				}
			}
			if t.Context().Err() != nil {
				return r
			}
		}
	}
	for i := range int64(20) {
		if r := produce("x"); r.Error != kafka.NoError || r.BaseOffset != i {
			t.Fatalf("%+v", r)
		}
	}
	nodes := c.brokers.host.Nodes()
	leaderOf := func() kafka.BrokerID { return nodes[1].Metadata().Topic("t").Partitions[0].Leader }
	first := leaderOf()
	if resp, err := c.Fault(t.Context(), brokers.FaultRequest{Broker: first, Op: "kill"}); err != nil || resp.Error != "" {
		t.Fatal(resp.Error, err)
	}
	if r := produce("y"); r.Error != kafka.NoError || r.BaseOffset != 20 {
		t.Fatalf("after the leader's end: %+v", r)
	}
	if resp, err := c.Fault(t.Context(), brokers.FaultRequest{Broker: first, Op: "restart"}); err != nil || resp.Error != "" {
		t.Fatal(resp.Error, err)
	}
	z := c.brokers.running[1]
	err = AlterTopicConfig(t.Context(), z, "t", func(map[string]string) (map[string]string, error) {
		return map[string]string{"min.insync.replicas": "4"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		for n.TopicConfig("t").MinISR != 4 { // a restarted broker reads it when it hosts the topic again
			if _, err := n.Gauges(t.Context(), false); err != nil { // a round trip to its loop
				t.Fatal(err)
			}
			if t.Context().Err() != nil {
				t.Fatalf("broker %d never heard of the changed configuration", n.ID())
			}
		}
	}
}
