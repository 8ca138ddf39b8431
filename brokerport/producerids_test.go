package brokerport_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// blockNode is a ZooKeeper that has /latest_producer_id_block alone.
type blockNode struct {
	mu      sync.Mutex
	data    []byte
	version int32
	exists  bool
	rival   bool // somebody else takes a block between a read and its write, once
	down    bool
}

func (n *blockNode) Read(context.Context, []zkpaths.Read) ([]zkpaths.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, zkpaths.ErrSessionExpired
	}
	if !n.exists {
		return []zkpaths.Node{{Code: zkpaths.NoNode}}, nil
	}
	return []zkpaths.Node{{Data: n.data, Stat: zkpaths.Stat{Version: n.version}}}, nil
}

func (n *blockNode) Write(_ context.Context, _ int32, ws []zkpaths.Write) ([]zkpaths.Outcome, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rival {
		n.rival, n.exists = false, true
		n.version++
		n.data = zkpaths.EncodeProducerBlock(zkpaths.ProducerBlock{Broker: 1, Start: 5000, End: 5999})
	}
	w := ws[0]
	switch {
	case w.Op == zkpaths.Create && n.exists:
		return []zkpaths.Outcome{{Code: zkpaths.NodeExists}}, nil
	case w.Op == zkpaths.Set && w.Version != n.version:
		return []zkpaths.Outcome{{Code: zkpaths.BadVersion}}, nil
	}
	n.data, n.exists = w.Data, true
	n.version++
	return []zkpaths.Outcome{{Version: n.version}}, nil
}

// Ids come from blocks that are ours alone, one after the other, also past the
// end of a block, past a rival and when two processes take turns.
func TestProducerIDs(t *testing.T) {
	node := &blockNode{rival: true}
	of := func(self kafka.BrokerID) *brokerport.ProducerIDs {
		return brokerport.NewProducerIDs(func(ctx context.Context) (zkpaths.ProducerBlock, error) {
			return brokerport.TakeProducerIDs(ctx, node, self)
		})
	}
	a, b := of(9999), of(9998)
	seen := map[int64]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range []*brokerport.ProducerIDs{a, b, a, b} {
		wg.Go(func() {
			for range zkpaths.ProducerBlockSize {
				id, err := p.NextID(t.Context())
				mu.Lock()
				if err != nil || seen[id] || id < 6000 {
					t.Errorf("id %d (given before: %v), %v", id, seen[id], err)
				}
				seen[id] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	last, _, err := zkpaths.DecodeProducerBlock(node.data)
	if err != nil || last.End != 9999 {
		t.Errorf("the last block is %+v, %v; want four blocks behind 5999", last, err)
	}
	node.down = true
	if _, err := a.NextID(t.Context()); !errors.Is(err, zkpaths.ErrSessionExpired) {
		t.Errorf("without ZooKeeper: %v", err)
	}
	node.down = false
	if id, err := a.NextID(t.Context()); err != nil || id != 10000 {
		t.Errorf("after it: %d, %v", id, err)
	}
}
