package brokerport

import (
	"context"

	"github.com/sirupsen/logrus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// What only a controller does, at a broker that can be none (spec/admin-api.md
// §1): the controller's endpoint knows where NOT_CONTROLLER goes in each answer,
// so it is asked over a loop that is never in charge.

// controllersAPIs are the requests that the controller's endpoint answers, as
// the controller or as a standby.
func controllersAPIs() []kmsg.Key {
	return []kmsg.Key{kmsg.ControlledShutdown, kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.CreatePartitions, kmsg.ElectLeaders,
		kmsg.AlterPartitionAssignments, kmsg.ListPartitionReassignments, kmsg.AlterPartition, kmsg.UpdateFeatures, kmsg.AllocateProducerIDs}
}

// neverInCharge is an endpoint.Loop that answers as a standby does.
type neverInCharge struct{ p *Port }

func newStandby(p *Port, log logrus.FieldLogger) *endpoint.Endpoint {
	return endpoint.Mount(endpoint.Options{ID: p.node.ID(), Loop: neverInCharge{p}, Log: log})
}

// Put answers an event at once.
func (n neverInCharge) Put(ev events.Event) {
	refused := events.RowError{Error: kafka.NotController, Message: "this broker is not the controller"}
	switch ev := ev.(type) {
	case events.AlterPartition:
		ev.Reply(kafka.NotController, nil)
	case events.ControlledShutdown:
		ev.Reply(kafka.NotController, nil)
	case events.AlterReassignments:
		ev.Reply(kafka.NotController, nil)
	case events.ListReassignments:
		ev.Reply(kafka.NotController, nil)
	case events.ElectLeaders:
		ev.Reply(kafka.NotController, nil)
	case events.AllocateProducerIDs:
		ev.Reply(kafka.NotController, 0, 0)
	case events.CreateTopics:
		rows := make([]events.NewTopicResult, len(ev.Topics))
		for i := range rows {
			rows[i] = events.NewTopicResult{RowError: refused, Partitions: -1, ReplicationFactor: -1}
		}
		ev.Reply(rows)
	case events.CreatePartitions:
		rows := make([]events.MorePartitionsResult, len(ev.Topics))
		for i := range rows {
			rows[i].RowError = refused
		}
		ev.Reply(rows)
	case events.DeleteTopics:
		rows := make([]events.DeletedTopic, len(ev.Topics))
		for i := range rows {
			rows[i] = events.DeletedTopic{RowError: refused, Name: ev.Topics[i].Name, ID: ev.Topics[i].ID}
		}
		ev.Reply(rows)
	case events.Describe:
		c, err := n.p.look(context.Background(), ev.Topics, ev.All)
		if err != nil {
			c = events.Cluster{}
		}
		if c.Controller == n.p.node.ID() {
			c.Controller = kafka.NoController // the cache is behind: we are none
		}
		ev.Reply(c)
	case events.Inspect:
		ev.Look()
	}
}
