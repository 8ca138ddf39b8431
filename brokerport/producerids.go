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
	id, err := l.producers.NextID(ctx)
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

// ProducerIDs gives out ids of idempotent producers, from blocks that nobody else
// of the cluster has (spec/controller.md §7.17).
type ProducerIDs struct {
	block func(ctx context.Context) (zkpaths.ProducerBlock, error)
	turn  chan struct{} // held by who takes an id: it may wait for the next block
	rest  zkpaths.ProducerBlock
}

// NewProducerIDs makes one that gets its blocks from block.
func NewProducerIDs(block func(ctx context.Context) (zkpaths.ProducerBlock, error)) *ProducerIDs {
	return &ProducerIDs{block: block, turn: make(chan struct{}, 1), rest: zkpaths.ProducerBlock{Start: 0, End: -1}}
}

// NextID gives an id that no other producer of the cluster has or will get. The
// error is the context's or that of the block.
func (g *ProducerIDs) NextID(ctx context.Context) (int64, error) {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-g.turn }()
	if g.rest.Start > g.rest.End {
		block, err := g.block(ctx)
		if err != nil {
			return 0, err
		}
		g.rest = block
	}
	g.rest.Start++
	return g.rest.Start - 1, nil
}

// TakeProducerIDs takes a block in ZooKeeper, as brokers below 3.0-IV0 and the
// controller do.
func TakeProducerIDs(ctx context.Context, z interface {
	Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error)
	Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
}, self kafka.BrokerID) (zkpaths.ProducerBlock, error) {
	for range tries {
		nodes, err := z.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: zkpaths.ProducerIDBlock}})
		if err != nil {
			return zkpaths.ProducerBlock{}, fmt.Errorf("take producer ids: %w", err)
		}
		w, block, err := zkpaths.TakeProducerBlock(nodes[0], self)
		if err != nil {
			return zkpaths.ProducerBlock{}, err
		}
		out, err := z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{w})
		if err != nil {
			return zkpaths.ProducerBlock{}, fmt.Errorf("take producer ids: %w", err)
		}
		switch out[0].Code {
		case zkpaths.OK:
			return block, nil
		case zkpaths.BadVersion, zkpaths.NodeExists: // somebody was faster
		default:
			return zkpaths.ProducerBlock{}, out[0].Error(w.Path)
		}
	}
	return zkpaths.ProducerBlock{}, errors.New(zkpaths.ProducerIDBlock + ": somebody else changes it all the time; the producer asks again")
}

// producerBlock gets a block from the controller, from 3.0-IV0 on, or takes it.
func (p *Port) producerBlock(ctx context.Context) (block zkpaths.ProducerBlock, err error) {
	if p.toController != nil && p.node.Options().Version.AtLeast(kafka.V3_0IV0) {
		return p.allocatedBlock(ctx)
	}
	err = p.atZooKeeper(ctx, func() error {
		block, err = TakeProducerIDs(ctx, p.store, p.node.ID())
		return err
	})
	return block, err
}

func (p *Port) allocatedBlock(ctx context.Context) (zkpaths.ProducerBlock, error) {
	none := zkpaths.ProducerBlock{}
	id, controller, ok := p.node.Metadata().Controller()
	if !ok {
		return none, fmt.Errorf("ask for producer ids: the controller (%d) is not known here", id)
	}
	epoch, err := p.brokerEpoch(ctx)
	if err != nil {
		return none, err
	}
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = int32(p.node.ID()), epoch
	resp, err := p.toController.Ask(ctx, controller, req, 0, 0)
	if err != nil {
		return none, err
	}
	got, ok := resp.(*kmsg.AllocateProducerIDsResponse)
	switch {
	case !ok:
		return none, fmt.Errorf("AllocateProducerIds was answered by a %T", resp)
	case got.ErrorCode != 0:
		return none, fmt.Errorf("controller %d gives no producer ids: %w", controller.ID, kafka.ErrorCode(got.ErrorCode))
	case got.ProducerIDStart < 0 || got.ProducerIDLen <= 0:
		return none, fmt.Errorf("controller %d gave the impossible block of %d producer ids from %d on", controller.ID, got.ProducerIDLen, got.ProducerIDStart)
	}
	return zkpaths.ProducerBlock{Broker: p.node.ID(), Start: got.ProducerIDStart, End: got.ProducerIDStart + int64(got.ProducerIDLen) - 1}, nil
}

// brokerEpoch reads the czxid of our registration.
func (p *Port) brokerEpoch(ctx context.Context) (epoch int64, err error) {
	path := zkpaths.BrokerPath(p.node.ID())
	err = p.atZooKeeper(ctx, func() error {
		nodes, err := p.store.Read(ctx, []zkpaths.Read{{Op: zkpaths.Exists, Path: path}})
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
