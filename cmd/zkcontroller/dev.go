package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// devController is the controller's id under dev: far from those of its brokers.
const devController = 1000

func devCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dev [flags] [-- CMD ARGS...]", Short: "Be a whole cluster: ZooKeeper, a controller and emulated brokers in one process", Args: cobra.ArbitraryArgs,
		Long: `Everything listens on loopback, on any free ports unless they are given, and is told where. With a command behind --
that command is run with the addresses in ZKC_ZOOKEEPER and ZKC_BOOTSTRAP_SERVERS; dev passes signals on to it and ends with its
status. Without one it lives until SIGINT or SIGTERM, and tells of every change of an ISR and why; a second signal ends it at once.
The brokers have what a configuration (--config) says of Kafka's keys for brokers.`,
		Example: "  zkcontroller dev --topic orders:6:3\n  zkcontroller dev --brokers 5 -- sh -c 'zkcontroller topics list'",
	}
	d := dev{}
	f := cmd.Flags()
	f.IntVar(&d.brokers, "brokers", 3, "how many brokers; their ids begin at 1")
	f.StringArrayVar(&d.topicTexts, "topic", nil, "NAME:PARTITIONS:RF of a topic to create; may be given again")
	f.StringVar(&d.dataDir, "data-dir", "", "folder that keeps znodes and records from one run to the next; none is in memory")
	f.StringVar(&d.listen, "listen", "127.0.0.1:0", "HOST:PORT of ZooKeeper, or a port on loopback; port 0 takes any free one")
	f.IntVar(&d.portBase, "port-base", 0, "broker N listens on 127.0.0.1, port base + N, the controller on the base; 0 takes any free ports")
	f.BoolVar(&d.records, "records", true, "brokers keep records, and serve producers and consumers; in memory without --data-dir")
	f.StringVar(&d.profile, "profile", "2.6", "release whose manners the brokers have, or A (2.3), B (2.6), C (3.9)")
	keyFlag(f, "admin", "zkc.admin", "loopback HOST:PORT for faults, /metrics and probes; any free one if it is not given")
	keyFlag(f, "lag-time-ms", "replica.lag.time.max.ms", "how long a follower may be behind before it leaves the ISR, in ms; else the release's default")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dash := cmd.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
			return usageError("%s: a command to run comes behind --", args[0])
		}
		c, log, err := loadConfig(cmd, brokerport.Known)
		if err != nil {
			return err
		}
		if !c.Given("zkc.log.level") {
			log.SetLevel(logrus.WarnLevel) // what it says by itself is enough
		}
		d.config, d.admin, d.log = c, c.Admin, log
		if d.admin == "" {
			d.admin = "127.0.0.1:0"
		}
		if err := d.check(); err != nil {
			return err
		}
		return d.run(cmd, args)
	}
	return cmd
}

// dev is one run of the command.
type dev struct {
	brokers, portBase               int
	topicTexts                      []string
	dataDir, listen, profile, admin string
	records                         bool
	config                          *config.Config
	log                             *logrus.Logger

	version kafka.ProtocolVersion
	topics  []assembly.Topic
	began   time.Time
}

// check reads what was given.
func (d *dev) check() (err error) {
	if d.brokers < 1 || d.brokers >= devController {
		return usageError("--brokers %d: give 1 to %d", d.brokers, devController-1)
	}
	if d.portBase < 0 || d.portBase+d.brokers > 65535 {
		return usageError("--port-base %d: broker %d would have port %d", d.portBase, d.brokers, d.portBase+d.brokers)
	}
	if d.version, err = parseProfile(d.profile); err != nil {
		return err
	}
	for _, text := range d.topicTexts {
		t, err := parseTopic(text)
		if err != nil {
			return err
		}
		if t.Replication > d.brokers {
			return usageError("--topic %s: %d replicas need as many brokers, there are %d", text, t.Replication, d.brokers)
		}
		d.topics = append(d.topics, t)
	}
	return nil
}

// parseTopic reads NAME:PARTITIONS:RF; what is left out is 1.
func parseTopic(text string) (assembly.Topic, error) {
	parts := strings.Split(text, ":")
	t := assembly.Topic{Name: parts[0], Partitions: 1, Replication: 1}
	var err error
	if why := kafka.ValidTopicName(t.Name); why != "" {
		err = errors.New(why)
	} else if len(parts) > 3 {
		err = errors.New("too many parts")
	}
	for i, n := range []*int{&t.Partitions, &t.Replication} {
		if i+1 < len(parts) && err == nil {
			*n, err = strconv.Atoi(parts[i+1])
			if err == nil && (*n < 1 || *n > 100_000) {
				err = fmt.Errorf("%d is out of range", *n)
			}
		}
	}
	if err != nil {
		return t, usageError("--topic %s: %w; give NAME:PARTITIONS:RF such as orders:6:3", text, err)
	}
	return t, nil
}

// run is the cluster's whole life.
func (d *dev) run(cmd *cobra.Command, command []string) error {
	d.began = time.Now()
	ctx := cmd.Context()
	cfg, err := listenConfig(d.listen, d.dataDir)
	if err != nil {
		return err
	}
	zk, err := startZooKeeper(cfg, d.log)
	if err != nil {
		return err
	}
	defer zk.close()
	serving, end := zk.whileServing(ctx)
	defer end()
	defer tuneBrokers()()
	o := d.cluster(zk.server)
	changes := newISRChanges()
	o.ISRChanged = changes.add
	cluster, err := assembly.StartCluster(serving, o)
	if err != nil {
		return unlessLeaving(ctx, zk.cause(err))
	}
	defer cluster.Close()
	out := cmd.OutOrStdout()
	if len(command) > 0 {
		out = cmd.ErrOrStderr() // stdout is the command's
	}
	d.tell(out, zk, cluster, len(command) > 0)
	if err := d.prepare(serving, cluster); err != nil {
		if err = zk.cause(err); len(command) > 0 {
			return err
		}
		return unlessLeaving(ctx, err)
	}
	fmt.Fprintf(out, "Ready in %d ms.\n", time.Since(d.began).Milliseconds())
	if len(command) > 0 {
		return runChild(cmd, command, []string{"ZKC_ZOOKEEPER=" + zk.address(), "ZKC_BOOTSTRAP_SERVERS=" + strings.Join(cluster.Bootstrap(), ",")})
	}
	defer changes.tellTo(out)()
	select {
	case <-ctx.Done():
	case <-zk.failed:
		return zk.why
	case <-cluster.Done():
		return errors.Join(errors.New("no broker lives any more"), cluster.Err())
	}
	return errors.Join(cluster.Close(), zk.close())
}

func (d *dev) cluster(server *zkserver.Server) assembly.ClusterOptions {
	o := assembly.ClusterOptions{Server: server, ControllerID: devController, Version: d.version, LogMemory: d.config.LogMemory, Admin: d.admin, Log: d.log}
	if d.config.Given("zookeeper.session.timeout.ms") {
		o.SessionTimeout = d.config.ZooKeeperSession
	}
	port := func(n int) int {
		if d.portBase == 0 {
			return 0
		}
		return d.portBase + n
	}
	o.ControllerBind = net.JoinHostPort("127.0.0.1", strconv.Itoa(port(0)))
	for id := 1; id <= d.brokers; id++ {
		p := assembly.LocalBroker(kafka.BrokerID(id), "127.0.0.1", port(id), d.version)
		p.Settings = brokerSettings(d.config)
		setReplicaTimes(d.config, &p.Broker)
		if d.records {
			p.KeepRecords()
		}
		if d.records && d.dataDir != "" {
			p.LikeReal = true // its folder says whose it is
			p.LogDirs = []string{filepath.Join(d.dataDir, fmt.Sprintf("broker-%d", id))}
			p.Broker.Logs.Dirs = p.LogDirs
		}
		o.Brokers = append(o.Brokers, p)
	}
	return o
}

// prepare waits for the cluster, and creates the topics that are not there yet.
func (d *dev) prepare(ctx context.Context, c *assembly.Cluster) error {
	if err := c.Ready(ctx); err != nil {
		return err
	}
	for _, t := range d.topics {
		if err := c.CreateTopic(ctx, t); err != nil && !errors.Is(err, kafka.TopicAlreadyExists) {
			return err
		}
	}
	return nil
}

// tell says where everything is, and what can be done with it.
func (d *dev) tell(w io.Writer, server *zookeeper, c *assembly.Cluster, brief bool) {
	zk, bootstrap := server.address(), c.Bootstrap()
	fmt.Fprintf(w, "ZooKeeper   %s\nBrokers     %s\nController  %s\nFaults      %s (also /metrics)\n", zk, strings.Join(bootstrap, ","), c.Controller(), c.Admin())
	if brief {
		return
	}
	me := invocation()
	fmt.Fprintf(w, "\nTry in another terminal:\n")
	for _, line := range []string{
		"topics create --bootstrap-server " + bootstrap[0] + fmt.Sprintf(" --topic %s --partitions 3 --replication-factor %d", d.freeName(server.server), min(2, d.brokers)),
		"topics describe --zookeeper " + zk,
		"status --watch --zookeeper " + zk,
		fmt.Sprintf("broker fault --admin %s --broker %d --op kill", c.Admin(), min(2, d.brokers)),
		fmt.Sprintf("broker fault --admin %s --broker %d --op restart", c.Admin(), min(2, d.brokers)),
	} {
		fmt.Fprintf(w, "  %s %s\n", me, line)
	}
	kept := "nothing is kept"
	if d.dataDir != "" {
		kept = "everything stays in " + d.dataDir
	}
	fmt.Fprintf(w, "Ctrl-C ends all of it; %s.\n\n", kept)
}

// freeName is a topic's that neither is there nor was asked for.
func (d *dev) freeName(server *zkserver.Server) string {
	for n := 1; ; n++ {
		name := "orders"
		if n > 1 {
			name += strconv.Itoa(n)
		}
		code := zkserver.OK
		server.Look(func(t *zkserver.Tree) { _, code = t.Exists(zkserver.Who{}, zkpaths.TopicPath(name)) })
		if code != zkserver.OK && !slices.ContainsFunc(d.topics, func(t assembly.Topic) bool { return t.Name == name }) {
			return name
		}
	}
}

// invocation is how this program was called, as far as it can be called so again.
func invocation() string {
	if self, err := os.Executable(); err == nil && strings.Contains(filepath.ToSlash(self), "/go-build") {
		return "go run ./cmd/zkcontroller"
	}
	return os.Args[0]
}
