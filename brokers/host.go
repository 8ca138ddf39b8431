package brokers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Host keeps many brokers in one process. They share a Board and nothing else.
// All are added before Run.
type Host struct {
	board *Board
	logs  logrus.FieldLogger
	nodes []*Node // by id
}

// NewHost makes an empty Host.
func NewHost(logs logrus.FieldLogger) *Host {
	h := &Host{logs: logs}
	h.board = NewBoard(func(leader kafka.BrokerID, ev FollowerChanged) {
		if n := h.Node(leader); n != nil {
			n.Post(ev)
		}
	})
	return h
}

// Add makes a broker and its Node.
func (h *Host) Add(opts Options, w World) (*Node, error) {
	if h.Node(opts.ID) != nil {
		return nil, fmt.Errorf("broker %d is given twice", opts.ID)
	}
	b, err := New(opts, h.board, h.logs)
	if err != nil {
		return nil, err
	}
	n := NewNode(b, w)
	n.peers = h.Node
	h.nodes = append(h.nodes, n)
	slices.SortFunc(h.nodes, func(a, b *Node) int { return cmp.Compare(a.ID(), b.ID()) })
	return n, nil
}

// Node gives the broker with an id, or nil.
func (h *Host) Node(id kafka.BrokerID) *Node {
	i, ok := slices.BinarySearchFunc(h.nodes, id, func(n *Node, id kafka.BrokerID) int { return cmp.Compare(n.ID(), id) })
	if !ok {
		return nil
	}
	return h.nodes[i]
}

// Nodes gives all brokers by id.
func (h *Host) Nodes() []*Node { return slices.Clone(h.nodes) }

// Run runs all brokers until each has ended. One that fails leaves the others
// alone; the errors of all come back together.
func (h *Host) Run(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, len(h.nodes))
	for i, n := range h.nodes {
		all.Go(func() {
			if err := n.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				errs[i] = fmt.Errorf("broker %d: %w", n.ID(), err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Stop asks all brokers to stop in good order, all at once.
func (h *Host) Stop() {
	for _, n := range h.nodes {
		n.Stop()
	}
}

// Fault carries out an admin operation on the broker it names.
func (h *Host) Fault(ctx context.Context, r FaultRequest) (FaultResponse, error) {
	n := h.Node(r.Broker)
	if n == nil {
		return FaultResponse{Broker: r.Broker, Op: r.Op, Error: fmt.Sprintf("broker %d does not run in this process", r.Broker)}, nil
	}
	return n.Fault(ctx, r)
}
