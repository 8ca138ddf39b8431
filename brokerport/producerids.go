package brokerport

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// initProducerID gives an id to an idempotent producer. With a transactional id
// it is refused: FindCoordinator has told the client why.
func (l *Listener) initProducerID(ctx context.Context, req *kmsg.InitProducerIDRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = int16(transactionalIDAuthorizationFailed)
		if *req.TransactionalID == "" {
			resp.ErrorCode = int16(kafka.InvalidRequest)
		}
		return resp, nil
	}
	id, err := l.producers.next(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil: // the code after which producers ask again
		l.log.WithField("error", err).Warn("no producer id could be had; the producer asks again")
		resp.ErrorCode = int16(kafka.CoordinatorLoadInProgress)
	default:
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	return resp, nil
}

// producerIDs gives out ids from blocks: of the controller's, from 3.0-IV0 on,
// or taken in ZooKeeper (spec/controller.md §7.17).
type producerIDs struct {
	p          *Port
	controller Controller
	turn       chan struct{} // held by who takes an id: it may wait for the next block
	first, end int64         // of the block in use; end is not part of it
}

func newProducerIDs(p *Port, c Controller) *producerIDs {
	return &producerIDs{p: p, controller: c, turn: make(chan struct{}, 1)}
}

// next gives an id that no other producer of the cluster has or will get.
func (g *producerIDs) next(ctx context.Context) (int64, error) {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-g.turn }()
	if g.first >= g.end {
		start, n, err := g.block(ctx)
		if err != nil {
			return 0, err
		}
		g.first, g.end = start, start+n
	}
	g.first++
	return g.first - 1, nil
}

func (g *producerIDs) block(ctx context.Context) (start, n int64, err error) {
	if g.controller != nil && g.p.node.Options().Version.AtLeast(kafka.V3_0IV0) {
		return g.fromController(ctx)
	}
	err = g.p.atZooKeeper(ctx, func() error {
		start, n, err = g.fromZooKeeper(ctx)
		return err
	})
	return start, n, err
}

func (g *producerIDs) fromController(ctx context.Context) (start, n int64, err error) {
	id, controller, ok := g.p.node.Metadata().Controller()
	if !ok {
		return 0, 0, fmt.Errorf("ask for producer ids: the controller (%d) is not known here", id)
	}
	epoch, err := g.brokerEpoch(ctx)
	if err != nil {
		return 0, 0, err
	}
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = int32(g.p.node.ID()), epoch
	resp, err := g.controller.Ask(ctx, controller, req, 0, 0)
	if err != nil {
		return 0, 0, err
	}
	got, ok := resp.(*kmsg.AllocateProducerIDsResponse)
	switch {
	case !ok:
		return 0, 0, fmt.Errorf("AllocateProducerIds was answered by a %T", resp)
	case got.ErrorCode != 0:
		return 0, 0, fmt.Errorf("controller %d gives no producer ids: %w", controller.ID, kafka.ErrorCode(got.ErrorCode))
	case got.ProducerIDStart < 0 || got.ProducerIDLen <= 0:
		return 0, 0, fmt.Errorf("controller %d gave the impossible block of %d producer ids from %d on", controller.ID, got.ProducerIDLen, got.ProducerIDStart)
	}
	return got.ProducerIDStart, int64(got.ProducerIDLen), nil
}

// brokerEpoch reads the czxid of our registration.
func (g *producerIDs) brokerEpoch(ctx context.Context) (epoch int64, err error) {
	path := zkpaths.BrokerPath(g.p.node.ID())
	err = g.p.atZooKeeper(ctx, func() error {
		nodes, err := g.p.store.Read(ctx, []zkpaths.Read{{Op: zkpaths.Exists, Path: path}})
		if err != nil {
			return err
		}
		epoch = nodes[0].Stat.Czxid
		return nodes[0].Error(path)
	})
	if err != nil {
		return 0, fmt.Errorf("ask for producer ids: our broker epoch: %w", err)
	}
	return epoch, nil
}

func (g *producerIDs) fromZooKeeper(ctx context.Context) (start, n int64, err error) {
	for range tries {
		nodes, err := g.p.store.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: zkpaths.ProducerIDBlock}})
		if err != nil {
			return 0, 0, fmt.Errorf("take producer ids: %w", err)
		}
		w, block, err := zkpaths.TakeProducerBlock(nodes[0], g.p.node.ID())
		if err != nil {
			return 0, 0, err
		}
		out, err := g.p.store.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{w})
		if err != nil {
			return 0, 0, fmt.Errorf("take producer ids: %w", err)
		}
		switch out[0].Code {
		case zkpaths.OK:
			return block.Start, block.End - block.Start + 1, nil
		case zkpaths.BadVersion, zkpaths.NodeExists: // somebody was faster
		default:
			return 0, 0, out[0].Error(w.Path)
		}
	}
	return 0, 0, errors.New(zkpaths.ProducerIDBlock + ": somebody else changes it all the time; the producer asks again")
}
