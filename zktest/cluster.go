package zktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// controllerID is the controller's id.
const controllerID kafka.BrokerID = 1000

// startPatience is how long a cluster may take to be ready. It takes
// milliseconds; on a machine that is very busy it may take longer.
const startPatience = time.Minute

// Cluster is a controller and emulated brokers on a ZooKeeper of their own, all
// in this process. Its methods may be called from any goroutine.
type Cluster struct {
	// ZooKeeper is the server, with all that can be done to it.
	ZooKeeper *ZooKeeper

	parts  *assembly.Cluster
	memory *assembly.Memory // nil: sockets
	once   sync.Once
	err    error
}

// StartCluster starts a cluster that ends with the test. When it returns the
// controller is in charge, knows all brokers, and every Topic has its leaders.
func StartCluster(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	c, err := NewCluster(t.Context(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// NewCluster starts a cluster for programs that are no tests; they call Close.
// ctx bounds the start alone.
func NewCluster(ctx context.Context, options ...Option) (*Cluster, error) {
	s, err := settingsOf(options)
	if err != nil {
		return nil, err
	}
	version, err := kafka.ParseProtocolVersion(s.release)
	if err != nil {
		return nil, fmt.Errorf("zktest: Release: %w", err)
	}
	c := &Cluster{}
	if c.ZooKeeper, err = newZooKeeper(s); err != nil {
		return nil, err
	}
	o := assembly.ClusterOptions{Server: c.ZooKeeper.server, ControllerID: controllerID, Version: version,
		SessionTimeout: s.sessionTimeout, Log: s.log}
	host := func(string) string { return "127.0.0.1" }
	if s.inMemory {
		c.memory = assembly.NewMemory()
		o.Network = c.memory.Network()
		host = func(name string) string { return name }
	}
	o.ControllerBind = net.JoinHostPort(host("controller"), "0")
	for _, id := range s.brokers {
		p := assembly.LocalBroker(id, host(fmt.Sprintf("broker-%d", id)), 0, version)
		if s.records {
			p.KeepRecords()
		}
		o.Brokers = append(o.Brokers, p)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if c.parts, err = assembly.StartCluster(ctx, o); err == nil {
		err = c.begin(ctx, s.topics)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("zktest: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) begin(ctx context.Context, topics []assembly.Topic) error {
	if err := c.parts.Ready(ctx); err != nil {
		return err
	}
	for _, t := range topics {
		if err := c.parts.CreateTopic(ctx, t); err != nil && !errors.Is(err, kafka.TopicAlreadyExists) { // a DataDir had it
			return err
		}
	}
	return nil
}

// Close ends everything and waits until nothing is left.
func (c *Cluster) Close() error {
	c.once.Do(func() {
		if c.parts != nil {
			if err := c.parts.Close(); err != nil {
				c.err = fmt.Errorf("zktest: close the brokers: %w", err)
			}
		}
		c.err = errors.Join(c.err, c.ZooKeeper.Close())
	})
	return c.err
}

// Bootstrap is HOST:PORT of every broker. In memory these are names that only
// DialKafka understands.
func (c *Cluster) Bootstrap() []string { return c.parts.Bootstrap() }

// BootstrapServers is Bootstrap with commas between, as configurations want it.
func (c *Cluster) BootstrapServers() string { return strings.Join(c.Bootstrap(), ",") }

// Controller is the controller's HOST:PORT.
func (c *Cluster) Controller() string { return c.parts.Controller() }

// DialKafka connects to a broker or the controller, in memory or by TCP; it
// fits franz-go's kgo.Dialer.
func (c *Cluster) DialKafka(ctx context.Context, network, address string) (net.Conn, error) {
	if c.memory != nil {
		return c.memory.Dial(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// CreateTopic asks the controller for a topic. When it returns without an error
// every partition has a leader.
func (c *Cluster) CreateTopic(ctx context.Context, name string, partitions, replication int) error {
	return c.parts.CreateTopic(ctx, assembly.Topic{Name: name, Partitions: partitions, Replication: replication})
}

// Partition is a partition's leadership as ZooKeeper has it; Leader is -1
// without one.
type Partition = kafka.Leadership

// Partition looks at a partition; ok is false where it never had a leader.
func (c *Cluster) Partition(topic string, partition int32) (p Partition, ok bool) {
	tp := kafka.TopicPartition{Topic: topic, Partition: partition}
	n, ok := c.ZooKeeper.Node(zkpaths.PartitionStatePath(tp))
	if !ok {
		return p, false
	}
	p, err := zkpaths.DecodePartitionState(tp, n.Data, n.Stat.Version)
	return p, err == nil
}

// Leader is who leads a partition; -1: nobody.
func (c *Cluster) Leader(topic string, partition int32) kafka.BrokerID {
	p, ok := c.Partition(topic, partition)
	if !ok {
		return kafka.NoLeader
	}
	return p.Leader
}

// AwaitLeader waits until a partition is led by somebody else than the brokers
// named, and gives who leads it.
func (c *Cluster) AwaitLeader(ctx context.Context, topic string, partition int32, but ...kafka.BrokerID) (kafka.BrokerID, error) {
	leader := kafka.NoLeader
	err := c.ZooKeeper.Await(ctx, func() bool {
		leader = c.Leader(topic, partition)
		for _, id := range but {
			if leader == id {
				return false
			}
		}
		return leader != kafka.NoLeader
	})
	if err != nil {
		return leader, fmt.Errorf("%w; %s-%d is led by %d", err, topic, partition, leader)
	}
	return leader, nil
}

// Await waits until ok, which is called again and again, is true.
func (c *Cluster) Await(ctx context.Context, ok func() bool) error { return c.ZooKeeper.Await(ctx, ok) }

// Registered tells whether a broker is in /brokers/ids.
func (c *Cluster) Registered(id kafka.BrokerID) bool {
	return c.ZooKeeper.Exists(zkpaths.BrokerPath(id))
}

// FaultRequest is a fault, see Fault.
type FaultRequest = brokers.FaultRequest

// Fault makes a broker misbehave, or tells its state: brokers.FaultOps lists
// the operations.
func (c *Cluster) Fault(ctx context.Context, r FaultRequest) (*brokers.Snapshot, error) {
	resp, err := c.parts.Fault(ctx, r)
	if err == nil && resp.Error != "" {
		err = errors.New(resp.Error)
	}
	if err != nil {
		return nil, fmt.Errorf("zktest: %s: %w", r.Op, err)
	}
	return resp.State, nil
}

func (c *Cluster) fault(ctx context.Context, id kafka.BrokerID, op string) error {
	_, err := c.Fault(ctx, FaultRequest{Broker: id, Op: op})
	return err
}

// Kill ends a broker: its port is shut, its session closed at once.
func (c *Cluster) Kill(ctx context.Context, id kafka.BrokerID) error { return c.fault(ctx, id, "kill") }

// Crash ends a broker as a power cut does: its session lives until it expires.
func (c *Cluster) Crash(ctx context.Context, id kafka.BrokerID) error {
	return c.fault(ctx, id, "crash")
}

// Restart starts a killed or crashed broker again.
func (c *Cluster) Restart(ctx context.Context, id kafka.BrokerID) error {
	return c.fault(ctx, id, "restart")
}

// Pause makes a broker's fetchers stand still: leaders take it out of their ISRs
// after replica.lag.time.max.ms, 30 s. Resume ends it.
func (c *Cluster) Pause(ctx context.Context, id kafka.BrokerID) error {
	return c.fault(ctx, id, "pause")
}

// Resume ends a Pause.
func (c *Cluster) Resume(ctx context.Context, id kafka.BrokerID) error {
	return c.fault(ctx, id, "resume")
}

// Slow lets a broker's fetchers copy no more than so many bytes a second, all
// together. Resume ends it.
func (c *Cluster) Slow(ctx context.Context, id kafka.BrokerID, bytesPerSecond int64) error {
	_, err := c.Fault(ctx, FaultRequest{Broker: id, Op: "slow", BytesPerSecond: bytesPerSecond})
	return err
}

// Cut lets nothing pass between a broker and another, or the controller. Mend
// ends it.
func (c *Cluster) Cut(ctx context.Context, id, peer kafka.BrokerID) error {
	_, err := c.Fault(ctx, FaultRequest{Broker: id, Op: "cut", Peer: &peer})
	return err
}

// Mend ends all Cuts of a broker.
func (c *Cluster) Mend(ctx context.Context, id kafka.BrokerID) error { return c.fault(ctx, id, "mend") }

// Bounce ends a broker and starts it again at once, with another session.
func (c *Cluster) Bounce(ctx context.Context, id kafka.BrokerID) error {
	return c.fault(ctx, id, "bounce")
}

// FailLogDir lets a broker lose the disk of some partitions, or of all: they are
// offline there until it is killed and restarted, and the controller hears of it
// through /log_dir_event_notification.
func (c *Cluster) FailLogDir(ctx context.Context, id kafka.BrokerID, partitions ...kafka.TopicPartition) error {
	r := FaultRequest{Broker: id, Op: "fail-log-dir"}
	for _, tp := range partitions {
		r.Partitions = append(r.Partitions, tp.String())
	}
	_, err := c.Fault(ctx, r)
	return err
}

// Skew makes a broker's clock fast, or slow by a negative time; 0 sets it right.
func (c *Cluster) Skew(ctx context.Context, id kafka.BrokerID, fast time.Duration) error {
	_, err := c.Fault(ctx, FaultRequest{Broker: id, Op: "skew", DelayMS: fast.Milliseconds()})
	return err
}

// ExpireBroker ends a broker's session on the server. The broker hears of it and
// registers again. False: it is not registered.
func (c *Cluster) ExpireBroker(id kafka.BrokerID) bool {
	return c.ZooKeeper.Expire(c.ZooKeeper.SessionOf(zkpaths.BrokerPath(id)))
}

// ExpireController ends the session of the controller in charge, which is
// elected anew with another epoch. False: nobody is in charge.
func (c *Cluster) ExpireController() bool {
	return c.ZooKeeper.Expire(c.ZooKeeper.SessionOf(zkpaths.Controller))
}

// ControllerEpoch is how many controllers there have been; 0 before the first.
func (c *Cluster) ControllerEpoch() int32 {
	n, ok := c.ZooKeeper.Node(zkpaths.ControllerEpoch)
	if !ok {
		return 0
	}
	epoch, err := zkpaths.DecodeEpoch(n.Data)
	if err != nil {
		return 0
	}
	return epoch
}
