package main

import (
	"cmp"
	"context"
	"net"
	"strconv"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run", Short: "Be a controller, or stand by to become it", Args: cobra.NoArgs,
		Long: `Takes part in the election for /controller and controls the cluster while elected. Without --listener it is
hidden: no broker and no client asks it anything, which is enough for brokers before 2.7-IV2. SIGINT and SIGTERM
give the role back; the second one ends at once.`,
	}
	f := cmd.Flags()
	zookeeperFlag(f)
	keyFlag(f, "broker-id", "broker.id", "the controller's id; no broker may have it")
	keyFlag(f, "listener", "listeners", "PLAINTEXT://HOST:PORT; several with commas between")
	keyFlag(f, "advertised-listener", "advertised.listeners", "what brokers and clients are told, if not the listener itself")
	keyFlag(f, "rack", "broker.rack", "shown with the listener")
	keyFlag(f, "inter-broker-protocol-version", "inter.broker.protocol.version", "what the controller assumes of the cluster: 2.4, 2.7-IV2, 0.10.2.2")
	keyFlag(f, "admin", "zkc.admin", "loopback HOST:PORT for /metrics, /livez, /readyz and pprof")
	keyFlag(f, "zk-batch", "zkc.zk.batch", "writes per ZooKeeper transaction; 1 is Kafka's order")
	record := f.String("record", "", "append a record of every event to this file, one JSON object a line")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, log, err := loadConfig(cmd)
		if err != nil {
			return err
		}
		if err := needZooKeeper(c); err != nil {
			return err
		}
		if c.BrokerID < 0 {
			return usageError("no id: give --broker-id or broker.id, one that no broker has")
		}
		o, err := controllerOptions(c, log)
		if err != nil {
			return err
		}
		if o.Listeners, err = controllerListeners(c, log); err != nil {
			return err
		}
		o.Record, o.Admin = *record, c.Admin
		controller, err := assembly.NewController(cmd.Context(), o)
		if err != nil {
			return unlessLeaving(cmd.Context(), err)
		}
		return controller.Run(cmd.Context())
	}
	return cmd
}

// unlessLeaving drops an error that came of a signal while a process started.
func unlessLeaving(ctx context.Context, err error) error {
	if ctx.Err() != nil && exitCode(err) != 2 {
		return nil
	}
	return err
}

// controllerOptions gives a controller its part of the configuration. Its
// listeners are not among it: a broker's candidate has none of its own.
func controllerOptions(c *config.Config, log logrus.FieldLogger) (assembly.ControllerOptions, error) {
	v, err := protocolVersion(c)
	if err != nil {
		return assembly.ControllerOptions{}, err
	}
	store, err := storeOptions(c, log)
	if err != nil {
		return assembly.ControllerOptions{}, err
	}
	return assembly.ControllerOptions{
		Rules: controller.Options{
			ID: kafka.BrokerID(c.BrokerID), Version: v,
			UncleanElection: c.UncleanElection, DeleteTopics: c.DeleteTopics,
			AutoRebalance: c.AutoRebalance, ImbalancePercent: c.ImbalancePercent, ImbalanceCheck: c.ImbalanceCheck,
			DefaultPartitions: c.NumPartitions, DefaultReplication: c.DefaultReplication,
			// Where brokers are addressed.
			ControlListener: cmp.Or(c.ControlPlaneListener, c.InterBrokerListener), KafkaOrder: c.ZKBatch == 1,
		},
		ZooKeeper: store, Rack: c.Rack, Log: log,
	}, nil
}

// controllerListeners gives the configured ports. Only PLAINTEXT is served:
// listeners of other protocols are left shut with a warning, so that a broker's
// own server.properties can be used.
func controllerListeners(c *config.Config, log logrus.FieldLogger) ([]assembly.Listener, error) {
	var served []assembly.Listener
	for _, l := range c.Listeners {
		if l.Protocol != kafka.Plaintext.String() {
			log.WithFields(logrus.Fields{"listener": l.Name, "protocol": l.Protocol}).Warn("only PLAINTEXT listeners are served; this one stays shut")
			continue
		}
		s := assembly.Listener{Name: l.Name, Bind: hostPort(l)}
		for _, a := range c.AdvertisedListeners {
			if a.Name == l.Name {
				s.Advertise = append(s.Advertise, kafka.Endpoint{Listener: a.Name, Protocol: kafka.Plaintext, Host: a.Host, Port: int32(a.Port)})
			}
		}
		served = append(served, s)
	}
	if len(c.Listeners) > 0 && len(served) == 0 {
		return nil, usageError("none of the listeners is PLAINTEXT; add one, or leave listeners out to be a hidden controller")
	}
	return served, nil
}

func hostPort(e config.Endpoint) string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }
