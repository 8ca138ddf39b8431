package endpoint

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// What stock tools ask of every node in the broker list, and so of us, who are
// in it only to be found (spec/control-plane.md §5.2).

// initProducerID gives an id to an idempotent producer, which asks any node. A
// transactional one asks its coordinator, which we never are.
func (e *Endpoint) initProducerID(ctx context.Context, req *kmsg.InitProducerIDRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = int16(kafka.NotCoordinator)
		return resp, nil
	}
	if err := e.reads.enter(ctx); err != nil {
		return nil, err
	}
	defer e.reads.leave()
	id, err := e.producers.NextID(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil: // the code after which producers ask again, as brokers answer it
		e.log.WithField("error", err).Debug("no producer id")
		resp.ErrorCode = int16(kafka.CoordinatorLoadInProgress)
	default:
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	return resp, nil
}

func (e *Endpoint) listGroups(_ context.Context, req *kmsg.ListGroupsRequest) (kmsg.Response, error) {
	return req.ResponseKind(), nil
}

func (e *Endpoint) listTransactions(_ context.Context, req *kmsg.ListTransactionsRequest) (kmsg.Response, error) {
	return req.ResponseKind(), nil
}

// describeLogDirs shows one directory without topics: Java's client takes an
// empty list for a lack of rights.
func (e *Endpoint) describeLogDirs(_ context.Context, req *kmsg.DescribeLogDirsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = "controller-without-logs"
	resp.Dirs = append(resp.Dirs, dir)
	return resp, nil
}

// updateFeatures: no release on ZooKeeper has a feature to update (spec/admin-api.md §9).
func (e *Endpoint) updateFeatures(ctx context.Context, req *kmsg.UpdateFeaturesRequest) (kmsg.Response, error) {
	c, err := e.describe(ctx, nil)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	if c.Controller != e.id {
		resp.ErrorCode, resp.ErrorMessage = int16(kafka.NotController), message(notController)
		return resp, nil
	}
	for _, f := range req.FeatureUpdates {
		row := kmsg.NewUpdateFeaturesResponseResult()
		row.Feature, row.ErrorCode = f.Feature, int16(kafka.InvalidRequest)
		row.ErrorMessage = new("the cluster does not support feature " + strconv.Quote(f.Feature))
		resp.Results = append(resp.Results, row)
	}
	return resp, nil
}
