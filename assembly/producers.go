package assembly

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// producerIDs gives out the ids of idempotent producers that ask our port, from
// blocks taken in ZooKeeper as brokers take theirs (spec/controller.md §7.17).
type producerIDs struct {
	self  kafka.BrokerID
	store func() Znodes
	turn  chan struct{} // held by who takes an id: it may wait for ZooKeeper
	block zkpaths.ProducerBlock
}

func newProducerIDs(self kafka.BrokerID, store func() Znodes) *producerIDs {
	return &producerIDs{self: self, store: store, turn: make(chan struct{}, 1), block: zkpaths.ProducerBlock{Start: 0, End: -1}}
}

// NextID is endpoint.Producers's.
func (p *producerIDs) NextID(ctx context.Context) (int64, error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-p.turn }()
	if p.block.Start > p.block.End {
		b, err := p.take(ctx)
		if err != nil {
			return 0, fmt.Errorf("take producer ids: %w", err)
		}
		p.block = b
	}
	id := p.block.Start
	p.block.Start++
	return id, nil
}

func (p *producerIDs) take(ctx context.Context) (zkpaths.ProducerBlock, error) {
	z := p.store()
	for range 10 {
		nodes, err := z.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: zkpaths.ProducerIDBlock}})
		if err != nil {
			return zkpaths.ProducerBlock{}, err
		}
		w, block, err := zkpaths.TakeProducerBlock(nodes[0], p.self)
		if err != nil {
			return zkpaths.ProducerBlock{}, err
		}
		out, err := z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{w})
		if err != nil {
			return zkpaths.ProducerBlock{}, err
		}
		switch out[0].Code {
		case zkpaths.OK:
			return block, nil
		case zkpaths.BadVersion, zkpaths.NodeExists: // somebody was faster
		default:
			return zkpaths.ProducerBlock{}, out[0].Error(w.Path)
		}
	}
	return zkpaths.ProducerBlock{}, errors.New(zkpaths.ProducerIDBlock + ": somebody else changes it all the time; try again")
}
