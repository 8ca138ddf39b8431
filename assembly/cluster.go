package assembly

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// ClusterOptions say what a whole cluster in this process is like. Server,
// ControllerID, Version and Brokers are required.
type ClusterOptions struct {
	// Server is the ZooKeeper that controller and brokers reach in memory, as who
	// else wants to does by its Dial or a listener. Close leaves it alone.
	Server *zkserver.Server

	ControllerID   kafka.BrokerID // one that no broker has
	ControllerBind string         // HOST:PORT; "" is any free port of 127.0.0.1
	Version        kafka.ProtocolVersion
	Brokers        []BrokerOptions

	SessionTimeout time.Duration // of controller and brokers; 0 is 6 s
	Admin          string        // loopback HOST:PORT of faults, metrics and probes; "" is none
	LogMemory      int64         // see BrokersOptions
	Network        Network
	Log            logrus.FieldLogger // nil: nothing is said
	// ISRChanged is told of each confirmed change of an ISR by its leader, with the
	// cause; it is called on the brokers' goroutines, which wait for it. Nil: nobody is.
	ISRChanged func(kafka.TopicPartition, brokers.ISRChange)
}

// LocalBroker is an emulated broker on loopback; port 0 takes any free one. It
// has the manners of an inter.broker.protocol.version.
func LocalBroker(id kafka.BrokerID, host string, port int, version kafka.ProtocolVersion) BrokerOptions {
	return BrokerOptions{
		Bind: []string{net.JoinHostPort(host, strconv.Itoa(port))},
		Broker: brokers.Options{ID: id, Version: version,
			Endpoints: []kafka.Endpoint{{Listener: kafka.Plaintext.String(), Host: host, Port: int32(port)}},
			// The whole cluster goes at once: there is nobody to hand leaderships to.
			ControlledShutdown: brokers.ControlledShutdownOptions{Disabled: true}},
	}
}

// KeepRecords makes an emulated broker keep records in memory, and coordinate
// consumer groups.
func (p *BrokerOptions) KeepRecords() {
	logs, group := p.Settings.Logs(), p.Settings.Groups()
	if logs.Dirs = nil; p.LikeReal {
		logs.Dirs = p.LogDirs
	}
	if _, given := p.Settings[rebalanceDelay]; !given && !p.LikeReal {
		group.InitialRebalanceDelay = 0 // on one machine members need not wait for others to come
	}
	p.Broker.Logs, p.Broker.Groups = &logs, &group
}

const rebalanceDelay = "group.initial.rebalance.delay.ms"

// fewBrokers lets the offsets topic have no more replicas than there are brokers,
// unless it is said how many.
func fewBrokers(all []BrokerOptions) []BrokerOptions {
	const key = "offsets.topic.replication.factor"
	all = slices.Clone(all)
	for i := range all {
		if _, given := all[i].Settings[key]; !given && len(all) < 3 {
			all[i].Settings = maps.Clone(all[i].Settings)
			if all[i].Settings == nil {
				all[i].Settings = brokerport.Settings{}
			}
			all[i].Settings[key] = strconv.Itoa(len(all))
		}
	}
	return all
}

// offsetsTopic is what brokers that coordinate groups make of that topic; nil:
// there are none.
func offsetsTopic(all []BrokerOptions) *events.NewTopic {
	for _, p := range all {
		if p.Broker.Groups != nil {
			t := p.Settings.OffsetsTopic()
			return &t
		}
	}
	return nil
}

// autoTopic is what brokers that serve producers make of a topic that a client
// asks for; nil: they make none.
func autoTopic(all []BrokerOptions) *events.NewTopic {
	for _, p := range all {
		if p.Broker.Logs != nil {
			return p.Settings.AutoTopic()
		}
	}
	return nil
}

// Cluster is a controller and emulated brokers on a ZooKeeper server in this
// process.
type Cluster struct {
	o          ClusterOptions
	controller *Controller
	brokers    *Brokers

	stopController, stopBrokers context.CancelFunc
	controllerDone, brokersDone chan struct{}
	brokersErr                  error // behind brokersDone
	once                        sync.Once
}

const clusterSessionTimeout = 6 * time.Second

// StartCluster opens all ports and starts everything. Ready waits until it can
// be used.
func StartCluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	o.Log = orQuiet(o.Log)
	if o.SessionTimeout == 0 {
		o.SessionTimeout = clusterSessionTimeout
	}
	if o.ControllerBind == "" {
		o.ControllerBind = "127.0.0.1:0"
	}
	c := &Cluster{o: o, controllerDone: make(chan struct{}), brokersDone: make(chan struct{})}
	c.endOldSessions()
	// Any name will do as address: every connection goes to the server.
	store := zkstore.Options{Servers: []string{"zookeeper:2181"}, SessionTimeout: o.SessionTimeout, Dialer: o.Server.Dial, Log: o.Log}
	host, _, err := net.SplitHostPort(o.ControllerBind)
	if err != nil {
		return nil, misconfigured(fmt.Errorf("the controller's address: %w", err))
	}
	name := kafka.Plaintext.String()
	plans := fewBrokers(o.Brokers)
	for i := range plans {
		plans[i].Broker.ISRChanged = o.ISRChanged
	}
	c.controller, err = NewController(ctx, ControllerOptions{OffsetsTopic: offsetsTopic(plans), AutoTopic: autoTopic(plans),
		Rules: Defaults(o.ControllerID, o.Version), ZooKeeper: store, Network: o.Network, Log: o.Log.WithField("controller", int32(o.ControllerID)),
		Listeners: []Listener{{Name: name, Bind: o.ControllerBind, Advertise: []kafka.Endpoint{{Listener: name, Host: host}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("start the controller: %w", err)
	}
	c.brokers, err = NewBrokers(ctx, BrokersOptions{identify: true, Brokers: plans, ZooKeeper: store, Beside: c.controller,
		Patience: idlePatience, LogMemory: o.LogMemory, Admin: o.Admin, Network: o.Network, Log: o.Log})
	if err != nil {
		c.controller.Close()
		return nil, fmt.Errorf("start the brokers: %w", err)
	}
	c.run(ctx)
	return c, nil
}

// idlePatience is for brokers that leave together with their whole cluster.
const idlePatience = 2 * time.Second

// run starts both; they outlive ctx until Close.
func (c *Cluster) run(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	var controllerCtx, brokersCtx context.Context
	controllerCtx, c.stopController = context.WithCancel(ctx)
	brokersCtx, c.stopBrokers = context.WithCancel(ctx)
	go func() {
		defer close(c.controllerDone)
		c.awaitRegistrations(controllerCtx)
		// Run has no errors but those it has told.
		_ = c.controller.Run(controllerCtx)
	}()
	go func() {
		defer close(c.brokersDone)
		c.brokersErr = c.brokers.Run(brokersCtx)
	}()
}

// registerPatience is how long the controller waits for brokers that do not
// come; then it begins without them.
const registerPatience = 2 * time.Second

// awaitRegistrations lets the brokers come first. A controller that was there
// before them would find the leaders that a server with data remembers dead, and
// make ISRs smaller for a moment.
func (c *Cluster) awaitRegistrations(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, registerPatience)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !c.registered() {
		select {
		case <-tick.C:
		case <-c.brokersDone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// registered tells whether all brokers are.
func (c *Cluster) registered() bool {
	all := true
	c.o.Server.Look(func(t *zkserver.Tree) {
		for _, b := range c.o.Brokers {
			_, code := t.Exists(zkserver.Who{}, zkpaths.BrokerPath(b.Broker.ID))
			all = all && code == zkserver.OK
		}
	})
	return all
}

// endOldSessions ends what an earlier life of this cluster left in a server that
// kept its data: nobody else has these ids, and their sessions would be waited for.
func (c *Cluster) endOldSessions() {
	paths := []string{zkpaths.Controller}
	for _, b := range c.o.Brokers {
		paths = append(paths, zkpaths.BrokerPath(b.Broker.ID))
	}
	for _, s := range c.o.Server.Sessions() {
		if s.Client == "" && slices.ContainsFunc(s.Ephemerals, func(p string) bool { return slices.Contains(paths, p) }) {
			c.o.Server.Expire(s.ID)
		}
	}
}

// Ready waits until the controller is in charge and knows all brokers: topics
// can be created from then on.
func (c *Cluster) Ready(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := c.onBrokersEnd(func(err error) { cancel(err) })
	defer stop()
	err := c.controller.Await(ctx, func(g controller.Gauges) bool { return g.Ready && g.ActiveBrokers >= len(c.o.Brokers) })
	if err != nil {
		return fmt.Errorf("wait for the cluster: %w", err)
	}
	return nil
}

func (c *Cluster) onBrokersEnd(f func(error)) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c.brokersDone:
			f(errors.Join(errors.New("the brokers have ended"), c.brokersErr))
		case <-over:
		}
	}()
	return func() { close(over); <-done }
}

// Await waits until enough says so of the controller's figures, see
// Controller.Await.
func (c *Cluster) Await(ctx context.Context, enough func(controller.Gauges) bool) error {
	return c.controller.Await(ctx, enough)
}

// Topic is one to create.
type Topic struct {
	Name        string
	Partitions  int // -1: num.partitions, which is 1
	Replication int // -1: default.replication.factor, which is 1
}

// CreateTopic asks the controller for a topic, as any client does. When it
// returns without an error every partition has a leader.
func (c *Cluster) CreateTopic(ctx context.Context, t Topic) error {
	conn, err := wire.Dial(ctx, c.Controller(), wire.DialOptions{ClientID: "zkcontroller", Dialer: c.o.Network.Dial})
	if err != nil {
		return fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	defer conn.Close()
	row := kmsg.NewCreateTopicsRequestTopic()
	row.Topic, row.NumPartitions, row.ReplicationFactor = t.Name, int32(t.Partitions), int16(t.Replication)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(createTopicsVersion)
	req.TimeoutMillis, req.Topics = 30_000, []kmsg.CreateTopicsRequestTopic{row}
	answer, err := conn.Request(ctx, req)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	resp, ok := answer.(*kmsg.CreateTopicsResponse)
	if !ok || len(resp.Topics) != 1 {
		return fmt.Errorf("create topic %s: answered by a %T that is not about one topic", t.Name, answer)
	}
	if code := kafka.ErrorCode(resp.Topics[0].ErrorCode); code != kafka.NoError {
		why := ""
		if m := resp.Topics[0].ErrorMessage; m != nil {
			why = ": " + *m
		}
		return fmt.Errorf("create topic %s: %w%s", t.Name, code, why)
	}
	return nil
}

// createTopicsVersion takes defaults for -1 (spec/admin-api.md §2).
const createTopicsVersion = 5

// Fault makes a broker misbehave, or tells its state.
func (c *Cluster) Fault(ctx context.Context, r brokers.FaultRequest) (brokers.FaultResponse, error) {
	return c.brokers.Fault(ctx, r)
}

// Controller is the HOST:PORT of the controller.
func (c *Cluster) Controller() string { return address(c.controller.Advertised()[0]) }

// Bootstrap is the HOST:PORT of every broker, in the order of the options.
func (c *Cluster) Bootstrap() []string {
	var all []string
	for _, endpoints := range c.brokers.Advertised() {
		all = append(all, address(endpoints[0]))
	}
	return all
}

func address(e kafka.Endpoint) string { return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))) }

// Admin is the address of the admin port; "" where there is none.
func (c *Cluster) Admin() string { return c.brokers.Admin() }

// Done is closed when no broker lives any more: after Close, or because none
// could go on, which Err tells.
func (c *Cluster) Done() <-chan struct{} { return c.brokersDone }

// Err is why the brokers ended, once Done is closed.
func (c *Cluster) Err() error {
	<-c.brokersDone
	return c.brokersErr
}

// Close ends the controller and then the brokers, so that partitions keep their
// leaders and ISRs: with a server that keeps its data the next cluster finds
// them as they were. It waits until nothing is left of them.
func (c *Cluster) Close() error {
	c.once.Do(func() {
		c.stopController()
		<-c.controllerDone
		c.stopBrokers()
		<-c.brokersDone
	})
	return c.brokersErr
}
