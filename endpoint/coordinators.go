package endpoint

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

const groupCoordinator = 0 // the kind that FindCoordinator v0 asks for

// findCoordinator names the broker that coordinates a group, as every node of the
// broker list does: a client may never ask another one. We are the coordinator of
// nobody (spec/admin-api.md §8).
func (e *Endpoint) findCoordinator(ctx context.Context, req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	find := func(string) (kafka.BrokerID, kafka.Endpoint, events.RowError) {
		return -1, kafka.Endpoint{Port: -1}, refuse(kafka.CoordinatorNotAvailable, "the controller's port knows the coordinators of groups only; ask a broker")
	}
	if req.CoordinatorType == groupCoordinator {
		c, err := e.describe(ctx, []events.TopicRef{{Name: kafka.OffsetsTopic}})
		if err != nil {
			return nil, err
		}
		find = func(group string) (kafka.BrokerID, kafka.Endpoint, events.RowError) {
			return coordinatorIn(c, e.listener, group)
		}
		if e.offsets != nil && len(c.Topics) == 1 && c.Topics[0].Error == kafka.UnknownTopicOrPartition {
			if err := e.createOffsetsTopic(ctx); err != nil {
				return nil, err
			}
		}
	}
	if req.Version < 4 {
		id, ep, why := find(req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = int16(why.Error), message(why)
		resp.NodeID, resp.Host, resp.Port = int32(id), ep.Host, ep.Port
		return resp, nil
	}
	for _, key := range req.CoordinatorKeys {
		id, ep, why := find(key)
		row := kmsg.NewFindCoordinatorResponseCoordinator()
		row.Key, row.NodeID, row.Host, row.Port = key, int32(id), ep.Host, ep.Port
		row.ErrorCode, row.ErrorMessage = int16(why.Error), message(why)
		resp.Coordinators = append(resp.Coordinators, row)
	}
	return resp, nil
}

// coordinatorIn finds a group's coordinator in a description of the offsets topic.
func coordinatorIn(c events.Cluster, listener, group string) (kafka.BrokerID, kafka.Endpoint, events.RowError) {
	why := refuse(kafka.CoordinatorNotAvailable, "the topic %s is not there yet", kafka.OffsetsTopic)
	if len(c.Topics) == 1 && c.Topics[0].Error == kafka.NoError && len(c.Topics[0].Partitions) > 0 {
		parts := c.Topics[0].Partitions
		leader, n := kafka.NoLeader, kafka.GroupPartition(group, int32(len(parts)))
		for i := range parts {
			if parts[i].Partition == n {
				leader = parts[i].Leader
			}
		}
		for _, b := range c.Brokers {
			if ep, ok := b.Endpoint(listener); ok && b.ID == leader {
				return b.ID, ep, events.RowError{}
			}
		}
		why = refuse(kafka.CoordinatorNotAvailable, "nobody leads the group's partition of %s", kafka.OffsetsTopic)
	}
	return -1, kafka.Endpoint{Port: -1}, why
}

// createOffsetsTopic asks for the offsets topic. Whether it succeeds, the client
// sees when it asks again.
func (e *Endpoint) createOffsetsTopic(ctx context.Context) error {
	rows, err := ask(ctx, e, e.clients, func(reply func([]events.NewTopicResult)) events.Event {
		return events.CreateTopics{Topics: []events.NewTopic{*e.offsets}, Reply: reply}
	})
	if err == nil && len(rows) == 1 && rows[0].Error != kafka.NoError {
		e.log.WithField("topic", kafka.OffsetsTopic).WithField("error", rows[0].RowError).Debug("the offsets topic was not created")
	}
	return err
}
