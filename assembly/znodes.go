package assembly

import (
	"context"
	"fmt"

	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Znodes is what is needed of ZooKeeper; *zkstore.Session is one.
type Znodes interface {
	Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error)
	Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
	Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
}

// get reads one node; ok is false where it is missing.
func get(ctx context.Context, z Znodes, path string) (n zkpaths.Node, ok bool, err error) {
	nodes, err := z.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: path}})
	if err != nil {
		return n, false, fmt.Errorf("read %s: %w", path, err)
	}
	if nodes[0].Code == zkpaths.NoNode {
		return n, false, nil
	}
	return nodes[0], nodes[0].Code == zkpaths.OK, nodes[0].Error(path)
}
