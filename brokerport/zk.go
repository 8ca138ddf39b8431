package brokerport

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Store is what is needed of ZooKeeper; a brokers.Store is one.
type Store interface {
	Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error)
	Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
	Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
}

// maxZooKeeperRequests bounds how many requests of clients are at ZooKeeper at
// one time, so that those do not stand in the way of the broker's own.
const maxZooKeeperRequests = 16

var errNoStore = errors.New("this port has no way to ZooKeeper")

// atZooKeeper runs f as one of maxZooKeeperRequests.
func (p *Port) atZooKeeper(ctx context.Context, f func() error) error {
	if p.store == nil {
		return errNoStore
	}
	select {
	case p.reads <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("waiting for a turn at ZooKeeper: %w", ctx.Err())
	}
	defer func() { <-p.reads }()
	return f()
}

// configOf gives the configuration in a node that was read; a missing one is empty.
func configOf(path string, n zkpaths.Node) (map[string]string, error) {
	if n.Code == zkpaths.NoNode {
		return nil, nil
	}
	if err := n.Error(path); err != nil {
		return nil, err
	}
	return zkpaths.DecodeConfig(path, n.Data)
}

// tries bounds how often a write is tried that others are in the way of.
const tries = 10
