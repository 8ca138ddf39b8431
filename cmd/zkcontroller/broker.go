package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func brokerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "broker", Short: "Be one or many emulated brokers", Args: cobra.NoArgs,
		Long: `Emulated brokers register in ZooKeeper, obey a controller and report ISR changes as brokers of the chosen
release do. They keep records, replicate them, and serve producers, consumers and their groups; with --records=false they
keep none, and followers keep up by the clock alone. With --ids many run in one process on loopback, by default with the
manners of 2.4 to 2.7-IV1 (leaders write state znodes and announce it). With --config one runs like a real broker of the
release that inter.broker.protocol.version names, by default 3.9 (from 2.4 to 2.7: like 2.8 under that version); with
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
	records := f.Bool("records", true, "keep records: in log.dirs or, with --ids or without log.dirs, in memory")
	controller := f.Bool("controller", false, "be a candidate for the controller, too (with a configuration)")
	record := f.String("record", "", "append to this file, one JSON object a line, every change of an ISR and its cause; with --controller a record of every event, too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, log, err := loadConfig(cmd, brokerport.Known)
		if err != nil {
			return err
		}
		if err := needZooKeeper(c); err != nil {
			return err
		}
		o := assembly.BrokersOptions{Log: log, Admin: c.Admin, Record: *record}
		switch {
		case *idList != "" && c.Given("broker.id"):
			return usageError("--ids and broker.id: give one")
		case *idList != "" && *controller:
			return usageError("--controller goes with --config: many brokers in one process would be many candidates; run the controller beside them (zkcontroller run)")
		case *idList != "":
			o.Brokers, err = plansOfIDs(*idList, *portBase, *profile, c)
			o.Patience = idsPatience // else as long as controlled shutdown takes
		case f.Changed("profile") || f.Changed("port-base"):
			return usageError("--profile and --port-base go with --ids; a configuration has inter.broker.protocol.version and listeners")
		default:
			o.Brokers, err = planOfConfig(c)
		}
		if err != nil {
			return err
		}
		if *records {
			keepRecords(o.Brokers)
		}
		if o.ZooKeeper, err = storeOptions(c, log); err != nil {
			return err
		}
		if *controller {
			candidate, err := controllerOptions(c, log)
			if err != nil {
				return err
			}
			candidate.Record = *record
			o.Candidate = &candidate
		}
		defaultsOfRelease(c, &o)
		o.LogMemory = c.LogMemory
		defer tuneBrokers()()
		all, err := assembly.NewBrokers(cmd.Context(), o)
		if err != nil {
			if cmd.Context().Err() != nil {
				return nil
			}
			return err
		}
		return all.Run(cmd.Context())
	}
	cmd.AddCommand(brokerFaultCommand())
	return cmd
}

// defaultsOfRelease sets what older releases have other defaults for (spec/broker.md
// §11.1), for the one broker of a configuration.
func defaultsOfRelease(c *config.Config, o *assembly.BrokersOptions) {
	release := o.Brokers[0].Broker.Release
	if !o.Brokers[0].LikeReal {
		return
	}
	if release.Less(kafka.ProtocolVersion{Major: 2, Minor: 5}) && !c.Given("zookeeper.session.timeout.ms") {
		o.ZooKeeper.SessionTimeout = 6 * time.Second
	}
	if o.Candidate == nil {
		return
	}
	o.Candidate.ZooKeeper.SessionTimeout = o.ZooKeeper.SessionTimeout
	if release.Less(kafka.V0_11_0IV0) && !c.Given("unclean.leader.election.enable") {
		o.Candidate.Rules.UncleanElection = true
	}
}

// With --ids nobody waits for Kafka's three times five seconds when there is no
// controller to say goodbye to.
const (
	idsRetryBackoff = 500 * time.Millisecond
	idsPatience     = 4500 * time.Millisecond
)

func plansOfIDs(list string, portBase int, profile string, c *config.Config) ([]assembly.BrokerOptions, error) {
	ids, err := parseIDs(list)
	if err != nil {
		return nil, err
	}
	v, err := parseProfile(profile)
	if err != nil {
		return nil, err
	}
	var all []assembly.BrokerOptions
	for _, id := range ids {
		port := 0
		if portBase != 0 {
			if port = portBase + int(id); port < 1 || port > 65535 {
				return nil, usageError("--port-base %d: broker %d would have port %d", portBase, id, port)
			}
		}
		name := kafka.Plaintext.String()
		p := assembly.BrokerOptions{
			Bind:     []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(port))},
			Broker:   brokerOptions(c, id, v, []kafka.Endpoint{{Listener: name, Host: "127.0.0.1", Port: int32(port)}}),
			Settings: brokerSettings(c),
		}
		if !c.Given("offsets.topic.replication.factor") {
			p.Settings["offsets.topic.replication.factor"] = strconv.Itoa(min(3, len(ids)))
		}
		if !c.Given("controlled.shutdown.retry.backoff.ms") {
			p.Broker.ControlledShutdown.RetryBackoff = idsRetryBackoff
		}
		all = append(all, p)
	}
	return all, nil
}

// parseProfile reads a release, or the letter of a profile.
func parseProfile(profile string) (kafka.ProtocolVersion, error) {
	if release, ok := map[string]string{"A": "2.3", "B": "2.6", "C": "3.9"}[strings.ToUpper(profile)]; ok {
		profile = release
	}
	v, err := kafka.ParseProtocolVersion(profile)
	if err != nil {
		return v, usageError("--profile: %w, or A, B, C", err)
	}
	return v, nil
}

func planOfConfig(c *config.Config) ([]assembly.BrokerOptions, error) {
	if c.BrokerID < 0 {
		return nil, usageError("no broker: give --ids, or --config with broker.id")
	}
	v, err := protocolVersion(c)
	if err != nil {
		return nil, err
	}
	p := assembly.BrokerOptions{LikeReal: true, Settings: brokerSettings(c)}
	p.LogDirs = p.Settings.Logs().Dirs // log.dirs, or log.dir
	var bind []config.Endpoint
	for _, l := range c.Listeners {
		if l.Protocol != kafka.Plaintext.String() {
			return nil, usageError("listener %s: emulated brokers serve PLAINTEXT only", l)
		}
		bind = append(bind, l)
	}
	if len(bind) == 0 {
		name := kafka.Plaintext.String()
		bind = []config.Endpoint{{Name: name, Protocol: name, Port: 9092}} // Kafka's default of listeners
	}
	var advertised []kafka.Endpoint
	for _, l := range bind {
		p.Bind = append(p.Bind, hostPort(l))
		e := kafka.Endpoint{Listener: l.Name, Host: l.Host, Port: int32(l.Port)}
		for _, a := range c.AdvertisedListeners {
			if a.Name == l.Name {
				e.Host, e.Port = a.Host, int32(a.Port)
			}
		}
		if e.Host, err = assembly.ReachableHost(e.Host); err != nil {
			return nil, fmt.Errorf("listener %s: %w; give advertised.listeners", l, err)
		}
		advertised = append(advertised, e)
	}
	p.Broker = brokerOptions(c, kafka.BrokerID(c.BrokerID), v, advertised)
	p.Broker.Release = brokers.ReleaseOf(v) // a configuration does not tell the program that it is for
	return []assembly.BrokerOptions{p}, nil
}

func brokerOptions(c *config.Config, id kafka.BrokerID, v kafka.ProtocolVersion, advertised []kafka.Endpoint) brokers.Options {
	o := brokers.Options{
		ID: id, Endpoints: advertised, Rack: c.Rack, HasRack: c.Rack != "", Version: v, InterBrokerListener: c.InterBrokerListener,
		ControlledShutdown: brokers.ControlledShutdownOptions{Disabled: !c.ControlledShutdown, MaxRetries: c.ControlledRetries,
			RetryBackoff: c.ControlledRetryBackoff},
	}
	setReplicaTimes(c, &o)
	return o
}

// setReplicaTimes leaves the release's own defaults where nothing was given.
func setReplicaTimes(c *config.Config, o *brokers.Options) {
	if c.Given("replica.lag.time.max.ms") {
		o.ReplicaLagTimeMax = c.ReplicaLag
	}
	if c.Given("replica.fetch.wait.max.ms") {
		o.ReplicaFetchWait = c.ReplicaFetchWait
	}
}

// brokerSettings are those of Kafka's keys that were set, and what else the file
// has: a broker shows it.
func brokerSettings(c *config.Config) brokerport.Settings {
	all := brokerport.Settings(c.Others())
	for _, s := range c.Settings() {
		if c.Given(s.Key) && !strings.HasPrefix(s.Key, "zkc.") && s.Key != "bootstrap.servers" {
			all[s.Key] = s.Value
		}
	}
	return all
}

// keepRecords makes brokers keep records.
func keepRecords(all []assembly.BrokerOptions) {
	for i := range all {
		all[i].KeepRecords()
	}
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
