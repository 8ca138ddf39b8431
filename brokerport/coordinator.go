package brokerport

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// What FindCoordinator can be asked for.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
	shareCoordinator       = 2
)

const noTransactions = "transactions are not offered here: leave transactional.id out"

// coordinator is where a group, say, is coordinated.
type coordinator struct {
	code    kafka.ErrorCode
	message string
	node    kafka.BrokerID
	kafka.Endpoint
}

// findCoordinator: spec/admin-api.md §8.
func (l *Listener) findCoordinator(ctx context.Context, req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version < 4 {
		c := l.coordinatorOf(ctx, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.NodeID, resp.Host, resp.Port = int16(c.code), int32(c.node), c.Host, c.Port
		if c.code != kafka.NoError {
			resp.ErrorMessage = new(c.message)
		}
		return resp, ctx.Err()
	}
	for _, key := range req.CoordinatorKeys {
		c := l.coordinatorOf(ctx, req.CoordinatorType, key)
		row := kmsg.NewFindCoordinatorResponseCoordinator()
		row.Key, row.ErrorCode, row.NodeID, row.Host, row.Port = key, int16(c.code), int32(c.node), c.Host, c.Port
		if c.code != kafka.NoError {
			row.ErrorMessage = new(c.message)
		}
		resp.Coordinators = append(resp.Coordinators, row)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return resp, nil
}

func (l *Listener) coordinatorOf(ctx context.Context, kind int8, key string) coordinator {
	refuse := func(code kafka.ErrorCode, message string) coordinator {
		return coordinator{code: code, message: message, node: -1, Endpoint: kafka.Endpoint{Port: -1}}
	}
	switch kind {
	case groupCoordinator:
	case transactionCoordinator:
		return refuse(kafka.InvalidRequest, noTransactions)
	case shareCoordinator:
		return refuse(kafka.CoordinatorNotAvailable, "share groups are not offered here")
	default:
		return refuse(kafka.InvalidRequest, "there is no such kind of coordinator")
	}
	cache := l.node.Metadata()
	t := cache.Topic(groups.Topic)
	if t == nil {
		l.createTopic(ctx, l.planned(groups.Topic)) // what went wrong was logged; the client asks again
		return refuse(kafka.CoordinatorNotAvailable, "the topic "+groups.Topic+" is being created")
	}
	p := findPartition(t, kafka.GroupPartition(key, int32(len(t.Partitions))))
	if p != nil {
		for _, b := range cache.Brokers() {
			if ep, ok := b.Endpoint(l.name); ok && b.ID == p.Leader {
				return coordinator{node: b.ID, Endpoint: ep}
			}
		}
	}
	return refuse(kafka.CoordinatorNotAvailable, "nobody leads the group's partition of "+groups.Topic)
}

// coordinate passes a request of the group protocol on.
func (l *Listener) coordinate(_ context.Context, r *wire.Request) error {
	host, _, err := net.SplitHostPort(r.Remote.String())
	if err != nil {
		host = r.Remote.String()
	}
	l.node.Coordinate(groups.Request{Request: r.Kafka, ClientID: r.ClientID, ClientHost: host, Reply: r.Reply})
	return nil
}
