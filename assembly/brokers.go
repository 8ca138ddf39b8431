package assembly

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// BrokerOptions is one emulated broker: where it listens, and how it behaves.
type BrokerOptions struct {
	// Bind has HOST:PORT of each of Broker.Endpoints. An endpoint with port 0 gets
	// the port that was bound.
	Bind   []string
	Broker brokers.Options
	// Settings are what server.properties would give, under Kafka's keys; what is
	// missing has Kafka's default.
	Settings brokerport.Settings
	// LikeReal: it makes /cluster/id if nobody has, and claims LogDirs.
	LikeReal bool
	LogDirs  []string
}

// BrokersOptions is one process of emulated brokers.
type BrokersOptions struct {
	Brokers   []BrokerOptions
	ZooKeeper zkstore.Options // each broker has a session of its own; Log is filled in where it is not given
	// Candidate makes the one broker a candidate for the controller, too, under its
	// own id. Its Listeners and Admin are not used.
	Candidate *ControllerOptions
	// Beside is a controller in the same process: the admin port shows it, too.
	Beside *Controller
	// LogMemory is what the logs of all these brokers may hold in memory, in equal
	// shares, in bytes: 0 is brokers.DefaultMemoryBytes, -1 no bound.
	LogMemory int64
	shared    *wire.Shared // what all of them are told
	identify  bool         // the first makes /cluster/id if nobody has
	unpacking *brokerport.Unpacking
	Patience  time.Duration // for brokers that leave; 0 has no limit
	Admin     string        // loopback HOST:PORT of faults, metrics and probes; "" is none
	Network   Network
	// Record is a file that gets a line for every confirmed change of an ISR, with
	// its cause, as a JSON object; "" is none. Candidate has its own.
	Record string
	Log    logrus.FieldLogger // nil: nothing is said
}

// Brokers are emulated brokers with their ports and ZooKeeper sessions.
type Brokers struct {
	o         BrokersOptions
	host      *brokers.Host
	running   []*emulated
	candidate *candidate // of the one broker; nil: there is none
	stopAdmin func()
	admin     net.Addr
	recorder  *recordFile
	once      sync.Once
}

// NewBrokers opens ports and sessions; Run makes the brokers live. An error
// names the broker, and leaves nothing open.
func NewBrokers(ctx context.Context, o BrokersOptions) (*Brokers, error) {
	o.Log = orQuiet(o.Log)
	if o.ZooKeeper.Log == nil {
		o.ZooKeeper.Log = o.Log
	}
	if o.Candidate != nil && len(o.Brokers) != 1 {
		return nil, misconfigured(fmt.Errorf("%d brokers would be one candidate: give one broker", len(o.Brokers)))
	}
	for _, p := range o.Brokers {
		if err := checkLogDirs(p.LogDirs, int32(p.Broker.ID), o.Log); err != nil {
			return nil, err
		}
		if err := p.Settings.Check(); err != nil {
			return nil, misconfigured(fmt.Errorf("broker %d: %w", p.Broker.ID, err))
		}
	}
	o.Brokers, o.shared = shareMemory(o.Brokers, o.LogMemory), &wire.Shared{}
	o.unpacking = brokerport.NewUnpacking()
	recorder, err := openRecorder(o.Record, o.Log)
	if err != nil {
		return nil, err
	}
	b := &Brokers{o: o, host: brokers.NewHost(o.Log), stopAdmin: func() {}, recorder: recorder}
	for _, p := range o.Brokers {
		p.Broker.ISRChanged = recorder.isrChanged(p.Broker.ID, p.Broker.ISRChanged)
		if err := b.add(ctx, p); err != nil {
			b.Close()
			return nil, fmt.Errorf("broker %d: %w", p.Broker.ID, err)
		}
	}
	c := b.candidate.shown()
	if o.Beside != nil {
		c = &o.Beside.process
	}
	if b.admin, b.stopAdmin, err = serveBrokerAdmin(o.Admin, b.host, c, o.Log); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// shareMemory gives the brokers that keep records in memory equal shares of what
// they may hold together; one that has a bound of its own keeps it.
func shareMemory(all []BrokerOptions, total int64) []BrokerOptions {
	if total == 0 {
		total = brokers.DefaultMemoryBytes
	}
	some := func(p BrokerOptions) bool {
		return p.Broker.Logs != nil && len(p.Broker.Logs.Dirs) == 0 && p.Broker.Logs.MemoryBytes == 0
	}
	n := int64(0)
	for _, p := range all {
		if some(p) {
			n++
		}
	}
	all = slices.Clone(all)
	for i, p := range all {
		if some(p) {
			logs := *p.Broker.Logs
			if logs.MemoryBytes = -1; total > 0 {
				logs.MemoryBytes = max(total/n, 1)
			}
			all[i].Broker.Logs = &logs
		}
	}
	return all
}

func (b *Brokers) add(ctx context.Context, p BrokerOptions) error {
	e, err := newEmulated(ctx, b.o, p)
	if e != nil {
		b.running = append(b.running, e)
	}
	if err == nil {
		err = e.join(b.host)
	}
	if err == nil && b.o.Candidate != nil {
		e.candidate, err = newCandidate(ctx, *b.o.Candidate)
		b.candidate = e.candidate
	}
	if err == nil {
		err = e.serve()
	}
	return err
}

// Run runs all brokers until each has ended. One that fails leaves the others
// alone. When ctx ends all are asked to leave in good order, and those that have
// not left after Patience end like crashed ones. Everything is closed then.
func (b *Brokers) Run(ctx context.Context) error {
	defer b.Close()
	for _, e := range b.running {
		e.watchSession()
		e.watchConfigs()
	}
	if b.candidate != nil {
		id := b.running[0].node.ID()
		b.candidate.run(ctx, func(ctx context.Context) bool {
			s, err := snapshot(ctx, b.host, id)
			return err == nil && s.Registered
		})
	}
	// The brokers outlive ctx: they leave in good order.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		b.candidate.leave()
		b.host.Stop()
		if b.o.Patience > 0 {
			time.AfterFunc(b.o.Patience, end)
		}
	})
	defer stop()
	err := b.host.Run(life)
	var taken *brokers.ConflictError
	var address *brokers.EndpointTakenError
	if errors.As(err, &taken) || errors.As(err, &address) {
		return &Error{Refused, err}
	}
	return err
}

// Close ends brokers that do not run: ports shut, sessions closed. Run does it
// by itself.
func (b *Brokers) Close() {
	b.once.Do(func() {
		b.stopAdmin()
		for _, e := range b.running {
			e.close()
		}
		b.recorder.close()
	})
}

// Fault makes the broker that the request names misbehave, or tells its state.
func (b *Brokers) Fault(ctx context.Context, r brokers.FaultRequest) (brokers.FaultResponse, error) {
	return b.host.Fault(ctx, r)
}

// Advertised gives what each broker tells of its ports, in the order of
// BrokersOptions.
func (b *Brokers) Advertised() [][]kafka.Endpoint {
	all := make([][]kafka.Endpoint, len(b.running))
	for i, e := range b.running {
		all[i] = slices.Clone(e.plan.Broker.Endpoints)
	}
	return all
}

// Admin is the address of the admin port; "" where there is none.
func (b *Brokers) Admin() string {
	if b.admin == nil {
		return ""
	}
	return b.admin.String()
}

// bindPorts opens a broker's ports and puts the picked ones into its options.
func bindPorts(n Network, p *BrokerOptions) ([]net.Listener, error) {
	if len(p.Bind) != len(p.Broker.Endpoints) {
		return nil, misconfigured(fmt.Errorf("%d ports to bind for %d endpoints: give one for each", len(p.Bind), len(p.Broker.Endpoints)))
	}
	var open []net.Listener
	for i, address := range p.Bind {
		e := &p.Broker.Endpoints[i]
		ln, port, err := n.open(e.Listener, address)
		if err != nil {
			for _, o := range open {
				o.Close()
			}
			return nil, err
		}
		open = append(open, ln)
		// The same port again when it is shut and opened.
		if host, _, err := net.SplitHostPort(address); err == nil {
			p.Bind[i] = net.JoinHostPort(host, strconv.Itoa(int(port)))
		}
		if e.Port == 0 {
			e.Port = port
		}
	}
	return open, nil
}
