package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "zkcontroller",
		Short:         "Kafka's ZooKeeper-mode control plane: controller, emulated brokers, tools",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          nothingNamed,
	}
	f := root.PersistentFlags()
	f.String("config", "", "YAML file or Kafka server.properties (ZKC_CONFIG)")
	keyFlag(f, "log-level", "zkc.log.level", "error, warn, info, debug or trace")
	keyFlag(f, "log-format", "zkc.log.format", "text or json")
	root.AddCommand(devCommand(), zookeeperCommand(), runCommand(), brokerCommand(), topicsCommand(), reassignCommand(), electCommand(), statusCommand(), casesCommand(), configCommand(), versionCommand())
	return root
}

// nothingNamed is what a command does that only has subcommands.
func nothingNamed(cmd *cobra.Command, _ []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usageError("name one of: %s; see %s --help", strings.Join(names, ", "), cmd.CommandPath())
}

// keyAnnotation ties a flag to the key of the configuration it sets.
const keyAnnotation = "configuration-key"

// keyFlag adds a flag that gives a key of the configuration.
func keyFlag(f *pflag.FlagSet, name, key, usage string) {
	f.String(name, "", usage+" ("+key+")")
	if err := f.SetAnnotation(name, keyAnnotation, []string{key}); err != nil {
		panic(err) // the flag was added one line above
	}
}

func zookeeperFlag(f *pflag.FlagSet) {
	keyFlag(f, "zookeeper", "zookeeper.connect", "HOST:PORT[,HOST:PORT...][/chroot]")
}

// loadConfig reads all sources of a command, and logs the one warning about
// unknown keys: those of the file that neither config's table has nor also tells of.
func loadConfig(cmd *cobra.Command, also ...func(key string) bool) (*config.Config, *logrus.Logger, error) {
	src := config.Source{Flags: map[string]config.Flag{}}
	if len(also) > 0 {
		src.Also = also[0]
	}
	// Under topics, --config is Kafka's KEY=VALUE of a topic; there only the variable names a file.
	if f := cmd.Flags().Lookup("config"); f.Value.Type() == "string" {
		src.File = f.Value.String()
	}
	src.File = cmp.Or(src.File, os.Getenv("ZKC_CONFIG"))
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if key := f.Annotations[keyAnnotation]; len(key) == 1 {
			src.Flags[key[0]] = config.Flag{Name: f.Name, Value: f.Value.String()}
		}
	})
	c, err := config.Load(src)
	if err != nil {
		return nil, nil, withCode(2, err)
	}
	log := logrus.New()
	log.SetOutput(cmd.ErrOrStderr())
	level, err := logrus.ParseLevel(c.LogLevel)
	if err != nil {
		return nil, nil, withCode(2, err)
	}
	log.SetLevel(level)
	if c.LogFormat == "json" {
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, TimestampFormat: "2006-01-02T15:04:05.000Z07:00", DisableColors: !isTerminal(os.Stderr)})
	}
	if w := c.Warning(); w != "" {
		log.Warn(w)
	}
	return c, log, nil
}

// protocolVersion reads the inter-broker protocol version that was configured.
func protocolVersion(c *config.Config) (kafka.ProtocolVersion, error) {
	v, err := kafka.ParseProtocolVersion(c.InterBrokerProtocol)
	if err != nil {
		return v, withCode(2, err)
	}
	return v, nil
}

// needZooKeeper refuses a command that was not told where ZooKeeper is.
func needZooKeeper(c *config.Config) error {
	if c.ZooKeeperConnect == "" {
		return usageError("no ZooKeeper: give --zookeeper, ZKC_ZOOKEEPER or zookeeper.connect")
	}
	return nil
}

// isTerminal takes every character device but the null device for one.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version, commit and Go release", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return errors.New("this binary was built without build information")
			}
			revision, dirty := "unknown commit", ""
			for _, s := range info.Settings {
				switch {
				case s.Key == "vcs.revision":
					revision = s.Value
				case s.Key == "vcs.modified" && s.Value == "true":
					dirty = " (modified)"
				}
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "zkcontroller %s %s%s %s\n", info.Main.Version, revision, dirty, info.GoVersion)
			return err
		},
	}
}

func configCommand() *cobra.Command {
	group := &cobra.Command{Use: "config", Short: "The configuration and where it comes from", Args: cobra.NoArgs, RunE: nothingNamed}
	show := &cobra.Command{
		Use: "show", Short: "Print every key, its value and, with --origin, where it was set", Args: cobra.NoArgs,
	}
	origin := show.Flags().Bool("origin", false, "tell flag, environment variable, file or default")
	format := formatFlag(show)
	zookeeperFlag(show.Flags())
	keyFlag(show.Flags(), "broker-id", "broker.id", "the controller's id")
	keyFlag(show.Flags(), "listener", "listeners", "NAME://HOST:PORT")
	show.RunE = func(cmd *cobra.Command, _ []string) error {
		c, _, err := loadConfig(cmd)
		if err != nil {
			return err
		}
		settings := c.Settings()
		rows := make([][]string, len(settings))
		for i, s := range settings {
			rows[i] = []string{s.Key, s.Value}
			if *origin {
				rows[i] = append(rows[i], s.Origin)
			} else {
				settings[i].Origin = ""
			}
		}
		head := []string{"KEY", "VALUE", "ORIGIN"}[:len(rows[0])]
		return printData(cmd.OutOrStdout(), *format, settings, head, rows)
	}
	group.AddCommand(show)
	return group
}
