package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func brokerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "broker", Short: "Be one or many emulated brokers", Args: cobra.NoArgs,
		Long: `Emulated brokers register in ZooKeeper, obey a controller and report ISR changes as brokers of the chosen
release do; they keep no records. With --ids many run in one process on loopback, by default with the manners of 2.4 to
2.7-IV1 (leaders write state znodes and announce it). With --config one runs like a real broker of 3.9; with
--controller it also takes part in the election of a controller under its id, as every real broker does.
SIGINT and SIGTERM shut them down in good order; the second one ends at once.`,
	}
	f := cmd.Flags()
	zookeeperFlag(f)
	idList := f.String("ids", "", "ids and ranges: 1-3,7")
	portBase := f.Int("port-base", 0, "broker N listens on 127.0.0.1, port base + N; 0 takes any free port")
	profile := f.String("profile", "2.6", "release whose manners the brokers have, or A (2.3), B (2.6), C (3.9)")
	keyFlag(f, "rack", "broker.rack", "rack of all brokers")
	keyFlag(f, "admin", "zkc.admin", "loopback HOST:PORT for faults, /metrics and probes")
	controller := f.Bool("controller", false, "be a candidate for the controller, too (with a configuration)")
	record := f.String("record", "", "with --controller: append a record of every event to this file, one JSON object a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, log, err := loadConfig(cmd)
		if err != nil {
			return err
		}
		if err := needZooKeeper(c); err != nil {
			return err
		}
		var all []brokerPlan
		patience := time.Duration(0) // as long as controlled shutdown takes
		switch {
		case *idList != "" && c.Given("broker.id"):
			return usageError("--ids and broker.id: give one")
		case *idList != "" && *controller:
			return usageError("--controller goes with --config: many brokers in one process would be many candidates; run the controller beside them (zkcontroller run)")
		case *record != "" && !*controller:
			return usageError("--record goes with --controller")
		case *idList != "":
			all, err = plansOfIDs(*idList, *portBase, *profile, c)
			patience = idsPatience
		case f.Changed("profile") || f.Changed("port-base"):
			return usageError("--profile and --port-base go with --ids; a configuration has inter.broker.protocol.version and listeners")
		default:
			all, err = planOfConfig(c)
		}
		if err != nil {
			return err
		}
		run := brokerRun{config: c, log: log, patience: patience, controller: *controller, record: *record}
		return run.brokers(cmd.Context(), all)
	}
	cmd.AddCommand(brokerFaultCommand())
	return cmd
}

// brokerPlan is one broker to run: where it listens, and how it behaves.
type brokerPlan struct {
	bind    []config.Endpoint
	options brokers.Options
	// likeReal: it makes /cluster/id if nobody has, and claims logDirs.
	likeReal bool
	logDirs  []string
}

// With --ids nobody waits for Kafka's three times five seconds when there is no
// controller to say goodbye to.
const (
	idsRetryBackoff = 500 * time.Millisecond
	idsPatience     = 4500 * time.Millisecond
)

func plansOfIDs(list string, portBase int, profile string, c *config.Config) ([]brokerPlan, error) {
	ids, err := parseIDs(list)
	if err != nil {
		return nil, err
	}
	if release, ok := map[string]string{"A": "2.3", "B": "2.6", "C": "3.9"}[strings.ToUpper(profile)]; ok {
		profile = release
	}
	v, err := kafka.ParseProtocolVersion(profile)
	if err != nil {
		return nil, usageError("--profile: %w, or A, B, C", err)
	}
	var all []brokerPlan
	for _, id := range ids {
		port := 0
		if portBase != 0 {
			if port = portBase + int(id); port < 1 || port > 65535 {
				return nil, usageError("--port-base %d: broker %d would have port %d", portBase, id, port)
			}
		}
		name := kafka.Plaintext.String()
		p := brokerPlan{
			bind:    []config.Endpoint{{Name: name, Protocol: name, Host: "127.0.0.1", Port: port}},
			options: brokerOptions(c, id, v, []kafka.Endpoint{{Listener: name, Host: "127.0.0.1", Port: int32(port)}}),
		}
		if !c.Given("controlled.shutdown.retry.backoff.ms") {
			p.options.ControlledShutdown.RetryBackoff = idsRetryBackoff
		}
		all = append(all, p)
	}
	return all, nil
}

func planOfConfig(c *config.Config) ([]brokerPlan, error) {
	if c.BrokerID < 0 {
		return nil, usageError("no broker: give --ids, or --config with broker.id")
	}
	v, err := protocolVersion(c)
	if err != nil {
		return nil, err
	}
	if err := checkLogDirs(c.LogDirs, c.BrokerID); err != nil {
		return nil, err
	}
	p := brokerPlan{likeReal: true, logDirs: c.LogDirs}
	for _, l := range c.Listeners {
		if l.Protocol != kafka.Plaintext.String() {
			return nil, usageError("listener %s: emulated brokers serve PLAINTEXT only", l)
		}
		p.bind = append(p.bind, l)
	}
	if len(p.bind) == 0 {
		name := kafka.Plaintext.String()
		p.bind = []config.Endpoint{{Name: name, Protocol: name, Port: 9092}} // Kafka's default of listeners
	}
	var advertised []kafka.Endpoint
	for _, l := range p.bind {
		e := kafka.Endpoint{Listener: l.Name, Host: l.Host, Port: int32(l.Port)}
		for _, a := range c.AdvertisedListeners {
			if a.Name == l.Name {
				e.Host, e.Port = a.Host, int32(a.Port)
			}
		}
		if e.Host, err = reachableHost(e.Host); err != nil {
			return nil, fmt.Errorf("listener %s: %w; give advertised.listeners", l, err)
		}
		advertised = append(advertised, e)
	}
	p.options = brokerOptions(c, kafka.BrokerID(c.BrokerID), v, advertised)
	return []brokerPlan{p}, nil
}

func brokerOptions(c *config.Config, id kafka.BrokerID, v kafka.ProtocolVersion, advertised []kafka.Endpoint) brokers.Options {
	o := brokers.Options{
		ID: id, Endpoints: advertised, Rack: c.Rack, HasRack: c.Rack != "", Version: v, InterBrokerListener: c.InterBrokerListener,
		ControlledShutdown: brokers.ControlledShutdownOptions{Disabled: !c.ControlledShutdown, MaxRetries: c.ControlledRetries,
			RetryBackoff: c.ControlledRetryBackoff},
	}
	if c.Given("replica.lag.time.max.ms") { // else the release's own default
		o.ReplicaLagTimeMax = c.ReplicaLag
	}
	if c.Given("replica.fetch.wait.max.ms") {
		o.ReplicaFetchWait = c.ReplicaFetchWait
	}
	return o
}

// parseIDs reads 1-3,7.
func parseIDs(list string) ([]kafka.BrokerID, error) {
	var ids []kafka.BrokerID
	for _, part := range strings.Split(list, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.ParseInt(low, 10, 32)
		to := from
		if isRange && err == nil {
			to, err = strconv.ParseInt(high, 10, 32)
		}
		if err != nil || to < from || to-from > 100_000 {
			return nil, usageError("--ids %q: want ids and ranges such as 1-3,7", list)
		}
		for id := from; id <= to; id++ {
			if slices.Contains(ids, kafka.BrokerID(id)) {
				return nil, usageError("--ids %q: %d is named twice", list, id)
			}
			ids = append(ids, kafka.BrokerID(id))
		}
	}
	return ids, nil
}

// brokerRun is one process of emulated brokers.
type brokerRun struct {
	config     *config.Config
	log        *logrus.Logger
	patience   time.Duration // for brokers that leave; 0 has no limit
	controller bool          // the one broker is a candidate, too
	record     string
}

// brokers runs all of them until each has ended. One that fails leaves the
// others alone; a signal asks all to leave in good order, and those that have
// not left after patience end like crashed ones.
func (r brokerRun) brokers(ctx context.Context, all []brokerPlan) error {
	host := brokers.NewHost(r.log)
	var running []*emulated
	defer func() {
		for _, e := range running {
			e.close()
		}
	}()
	for _, p := range all {
		e, err := newEmulated(ctx, r.config, r.log, p)
		if e != nil {
			running = append(running, e)
		}
		if err == nil {
			err = e.join(host)
		}
		if err == nil && r.controller {
			e.candidate, err = newCandidate(ctx, r.config, r.log, r.record)
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("broker %d: %w", p.options.ID, err)
		}
	}
	var candidate *candidate // of the one broker
	if r.controller {
		candidate = running[0].candidate
	}
	stopAdmin, err := serveBrokerAdmin(r.config.Admin, host, candidate, r.log)
	if err != nil {
		return err
	}
	defer stopAdmin()
	for _, e := range running {
		e.watchSession()
	}
	if r.controller {
		id := running[0].node.ID()
		candidate.run(ctx, func(ctx context.Context) bool {
			s, err := snapshot(ctx, host, id)
			return err == nil && s.Registered
		})
	}
	// The brokers outlive ctx: they leave in good order.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		candidate.leave()
		host.Stop()
		if r.patience > 0 {
			time.AfterFunc(r.patience, end)
		}
	})
	defer stop()
	err = host.Run(life)
	var taken *brokers.ConflictError
	var address *brokers.EndpointTakenError
	if errors.As(err, &taken) || errors.As(err, &address) {
		return withCode(4, err)
	}
	return err
}

// bindPorts opens a plan's ports and puts the picked ones into the options.
func bindPorts(p *brokerPlan) ([]net.Listener, error) {
	var open []net.Listener
	for i, l := range p.bind {
		ln, err := net.Listen("tcp", net.JoinHostPort(l.Host, strconv.Itoa(l.Port)))
		if err != nil {
			for _, o := range open {
				o.Close()
			}
			return nil, fmt.Errorf("open listener %s: %w; give another port, or stop who has it", l, err)
		}
		open = append(open, ln)
		p.bind[i].Port = ln.Addr().(*net.TCPAddr).Port
		if p.options.Endpoints[i].Port == 0 {
			p.options.Endpoints[i].Port = int32(p.bind[i].Port)
		}
	}
	return open, nil
}
