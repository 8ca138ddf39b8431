package brokers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Store is a broker's ZooKeeper: one session. The only errors it returns are
// zkpaths.ErrSessionExpired, ErrUnknownOutcome (Transact alone) and a
// context's; all that concerns single operations stands in their own answers.
type Store interface {
	// Read answers every read, in order, no older than our last write.
	Read(ctx context.Context, reads []zkpaths.Read) ([]zkpaths.Node, error)
	// Write applies each write on its own. Brokers are not fenced: the fence is
	// always zkpaths.Unfenced.
	Write(ctx context.Context, fence int32, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
	// Transact applies all writes, or none.
	Transact(ctx context.Context, writes []zkpaths.Write) ([]zkpaths.Outcome, error)
	// Session is the id of the session in use, 0 while there is none.
	Session() int64
}

// ConflictError says that another session holds this broker's registration.
type ConflictError struct {
	Broker kafka.BrokerID
	Owner  int64 // session that owns the node; 0 is a persistent node
	Czxid  int64
	Host   string // first endpoint of the other registration, "" if unreadable
}

// Error names the path, the other session, and what to do.
func (e *ConflictError) Error() string {
	who := ""
	if e.Host != "" {
		who = " (" + e.Host + ")"
	}
	path := zkpaths.BrokerPath(e.Broker)
	if e.Owner == 0 {
		return fmt.Sprintf("%s is a persistent node%s that no broker owns: remove it if broker %d runs nowhere", path, who, e.Broker)
	}
	return fmt.Sprintf("%s is registered by the other session 0x%x%s: stop the other broker with id %d, or wait until its session has expired",
		path, uint64(e.Owner), who, e.Broker)
}

// EndpointTakenError says that another broker advertises one of our addresses.
type EndpointTakenError struct {
	Broker  kafka.BrokerID // we
	Address string
	Other   kafka.BrokerID
}

// Error names the path, the address, and what to do.
func (e *EndpointTakenError) Error() string {
	return fmt.Sprintf("%s: %s is already advertised by broker %d: give broker %d an address of its own",
		zkpaths.BrokerPath(e.Broker), e.Address, e.Other, e.Broker)
}

// registrar registers one process. It remembers the session of the last
// successful registration (spec/broker.md §1.4).
type registrar struct {
	opts    Options
	does    behaviour
	session int64
	payload []byte // made once: an expired broker writes the same again
}

// ownership says what an existing registration is to us.
type ownership uint8

const (
	ours      ownership = iota // made by the present session: an answer was lost
	ourElder                   // made by the session we registered with last, which the server has not ended yet
	somebodys                  // another process, or our own before a restart
)

// judge is the table of spec/broker.md §1.4.
func (d behaviour) judge(owner, current, previous int64) ownership {
	switch {
	case owner == current && current != 0:
		return ours
	case d.brokerEpochs && owner == previous && previous != 0:
		return ourElder
	}
	return somebodys
}

// maxRegisterRounds bounds how often one attempt starts over because the node
// came or went between two calls.
const maxRegisterRounds = 16

// register makes one attempt and gives the broker epoch: the czxid, or
// kafka.NoBrokerEpoch before 2.2. The errors are *ConflictError, the store's,
// and whatever ZooKeeper refused.
func (r *registrar) register(ctx context.Context, store Store, now time.Time) (epoch int64, err error) {
	if r.payload == nil {
		r.payload = zkpaths.EncodeBroker(zkpaths.Registration{
			Broker:  kafka.Broker{ID: r.opts.ID, Endpoints: r.opts.Endpoints, Rack: r.opts.Rack, HasRack: r.opts.HasRack},
			JMXPort: -1, Version: registrationVersion(r.opts), Timestamp: now.UnixMilli(),
		})
	}
	path := zkpaths.BrokerPath(r.opts.ID)
	for range maxRegisterRounds {
		session := store.Session()
		created, czxid, err := r.create(ctx, store, path)
		if err != nil && !errors.Is(err, zkpaths.ErrUnknownOutcome) {
			return 0, err
		}
		if !created {
			nodes, err := store.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: path}})
			if err != nil {
				return 0, fmt.Errorf("reading %s: %w", path, err)
			}
			node := nodes[0]
			if node.Code == zkpaths.NoNode {
				continue
			}
			if err := node.Error(path); err != nil {
				return 0, fmt.Errorf("reading a registration: %w", err)
			}
			switch r.does.judge(node.Stat.EphemeralOwner, session, r.session) {
			case ourElder:
				if err := r.remove(ctx, store, path, node.Stat.Version); err != nil {
					return 0, err
				}
				continue
			case somebodys:
				return 0, r.conflict(node)
			}
			czxid = node.Stat.Czxid
		}
		r.session = session
		if !r.does.brokerEpochs {
			czxid = kafka.NoBrokerEpoch
		}
		return czxid, nil
	}
	return 0, fmt.Errorf("%s came and went %d times while registering", path, maxRegisterRounds)
}

// create tries to make the node: in one transaction from 2.2 on, so that its
// data version is 1 and the transaction's id its czxid (spec/broker.md §1.3).
func (r *registrar) create(ctx context.Context, store Store, path string) (created bool, czxid int64, err error) {
	var writes []zkpaths.Write
	var out []zkpaths.Outcome
	if r.does.brokerEpochs {
		writes = []zkpaths.Write{{Op: zkpaths.CreateEphemeral, Path: path}, {Op: zkpaths.Set, Path: path, Data: r.payload, Version: 0}}
		out, err = store.Transact(ctx, writes)
	} else {
		writes = []zkpaths.Write{{Op: zkpaths.CreateEphemeral, Path: path, Data: r.payload}}
		out, err = store.Write(ctx, zkpaths.Unfenced, writes)
	}
	if err != nil {
		return false, 0, fmt.Errorf("registering at %s: %w", path, err)
	}
	if out[0].Code == zkpaths.NodeExists {
		return false, 0, nil
	}
	for _, o := range out {
		if err := o.Error(path); err != nil {
			return false, 0, fmt.Errorf("registering: %w", err)
		}
	}
	if czxid = out[len(out)-1].Zxid; czxid == 0 { // the store cannot tell: look it up
		return false, 0, nil
	}
	return true, czxid, nil
}

func (r *registrar) remove(ctx context.Context, store Store, path string, version int32) error {
	out, err := store.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Delete, Path: path, Version: version}})
	if err != nil {
		return fmt.Errorf("removing our registration of an older session: %w", err)
	}
	if c := out[0].Code; c != zkpaths.OK && c != zkpaths.NoNode && c != zkpaths.BadVersion {
		return fmt.Errorf("removing our registration of an older session: %w", out[0].Error(path))
	}
	return nil
}

func (r *registrar) conflict(node zkpaths.Node) error {
	e := &ConflictError{Broker: r.opts.ID, Owner: node.Stat.EphemeralOwner, Czxid: node.Stat.Czxid}
	if other, err := zkpaths.DecodeBroker(r.opts.ID, node.Data); err == nil && len(other.Endpoints) > 0 {
		e.Host = zkpaths.FormatEndpoint(other.Endpoints[0])
	}
	return e
}

// makeParents makes sure of the persistent nodes (spec/broker.md §1.1).
func makeParents(ctx context.Context, store Store, v kafka.ProtocolVersion) error {
	var writes []zkpaths.Write
	for _, path := range zkpaths.PersistentPaths(v) {
		writes = append(writes, zkpaths.Write{Op: zkpaths.Create, Path: path})
	}
	out, err := store.Write(ctx, zkpaths.Unfenced, writes)
	if err != nil {
		return fmt.Errorf("creating the persistent nodes: %w", err)
	}
	for i, o := range out {
		if o.Code != zkpaths.OK && o.Code != zkpaths.NodeExists {
			return fmt.Errorf("creating the persistent nodes: %w", o.Error(writes[i].Path))
		}
	}
	return nil
}

// checkEndpoints refuses an address that another broker advertises. A
// registration that cannot be read hides nothing from it but its own addresses.
func (r *registrar) checkEndpoints(ctx context.Context, store Store) error {
	nodes, err := store.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetChildren, Path: zkpaths.BrokerIDs}})
	if err != nil {
		return fmt.Errorf("listing brokers: %w", err)
	}
	if err := nodes[0].Error(zkpaths.BrokerIDs); err != nil {
		return fmt.Errorf("listing brokers: %w", err)
	}
	var ids []kafka.BrokerID
	var reads []zkpaths.Read
	for _, child := range nodes[0].Children {
		if id, ok := zkpaths.ParseBrokerID(child); ok && id != r.opts.ID {
			ids = append(ids, id)
			reads = append(reads, zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.BrokerPath(id)})
		}
	}
	if len(reads) == 0 {
		return nil
	}
	if nodes, err = store.Read(ctx, reads); err != nil {
		return fmt.Errorf("reading brokers: %w", err)
	}
	for i, node := range nodes {
		other, err := zkpaths.DecodeBroker(ids[i], node.Data)
		if node.Code != zkpaths.OK || err != nil {
			continue
		}
		for _, mine := range r.opts.Endpoints {
			for _, e := range other.Endpoints {
				if strings.EqualFold(e.Host, mine.Host) && e.Port == mine.Port {
					address := strings.TrimPrefix(zkpaths.FormatEndpoint(mine), mine.Listener+"://")
					return &EndpointTakenError{Broker: r.opts.ID, Address: address, Other: ids[i]}
				}
			}
		}
	}
	return nil
}
