package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/magiconair/properties"
	"github.com/spf13/viper"
	"go.yaml.in/yaml/v3"
)

// Config has every setting under the name Kafka gives it. Fields of brokers
// are unused by a controller and the other way round.
type Config struct {
	BrokerID               int32             // broker.id; -1 is not given
	Listeners              []Endpoint        // listeners: where to bind; none is hidden
	AdvertisedListeners    []Endpoint        // advertised.listeners: what others are told; defaults to Listeners
	ListenerProtocols      map[string]string // listener.security.protocol.map: listener name to protocol
	InterBrokerListener    string            // inter.broker.listener.name; "" is PLAINTEXT
	ControlPlaneListener   string            // control.plane.listener.name; "" is the inter-broker listener
	Rack                   string            // broker.rack
	InterBrokerProtocol    string            // inter.broker.protocol.version
	ZooKeeperConnect       string            // zookeeper.connect: HOST:PORT[,HOST:PORT...][/chroot]
	ZooKeeperSession       time.Duration     // zookeeper.session.timeout.ms
	ZooKeeperConnection    time.Duration     // zookeeper.connection.timeout.ms; 0 is the session timeout
	ZooKeeperSetACL        bool              // zookeeper.set.acl
	UncleanElection        bool              // unclean.leader.election.enable
	DeleteTopics           bool              // delete.topic.enable
	AutoRebalance          bool              // auto.leader.rebalance.enable
	ImbalanceCheck         time.Duration     // leader.imbalance.check.interval.seconds
	ImbalancePercent       int               // leader.imbalance.per.broker.percentage
	DefaultReplication     int16             // default.replication.factor
	NumPartitions          int32             // num.partitions
	ReplicaLag             time.Duration     // replica.lag.time.max.ms
	ReplicaFetchWait       time.Duration     // replica.fetch.wait.max.ms
	MinInsyncReplicas      int               // min.insync.replicas
	LogDirs                []string          // log.dirs
	AutoCreateTopics       bool              // auto.create.topics.enable
	OffsetsPartitions      int32             // offsets.topic.num.partitions
	OffsetsReplication     int16             // offsets.topic.replication.factor
	ControlledShutdown     bool              // controlled.shutdown.enable
	ControlledRetries      int               // controlled.shutdown.max.retries
	ControlledRetryBackoff time.Duration     // controlled.shutdown.retry.backoff.ms
	BootstrapServers       string            // bootstrap.servers: for the tools
	Admin                  string            // zkc.admin: HOST:PORT of metrics, probes and pprof; "" is off
	LogLevel               string            // zkc.log.level
	LogFormat              string            // zkc.log.format: text or json
	LogMemory              int64             // zkc.log.memory.bytes: what the logs of this process's brokers may hold in memory; -1 is no bound, 0 the built-in one
	ZKDigest               string            // zkc.zk.digest: USER:PASSWORD for ZooKeeper's digest scheme; "" is no credentials
	ZKBatch                int               // zkc.zk.batch: writes per ZooKeeper transaction; 0 is the built-in limit, 1 Kafka's order
	settings               []Setting         // in table order
	others                 map[string]string // the file's keys that no row of the table names
	unknown                []string          // those of them that Source.Also does not know
	file                   string            // the file that was read
	fileSet                map[string]bool   // known keys that the file has
}

// Endpoint is one listener: name, security protocol, host ("" is all
// interfaces) and port.
type Endpoint struct {
	Name     string
	Protocol string
	Host     string
	Port     int
}

// String gives NAME://host:port, as Kafka writes it.
func (e Endpoint) String() string {
	host := e.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return fmt.Sprintf("%s://%s:%d", e.Name, host, e.Port)
}

// Setting is one value and where it came from: "flag --zookeeper",
// "environment ZKC_ZOOKEEPER", "file server.properties" or "default".
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin,omitempty"`
}

// ValueError says which value is wrong, where it stands and what helps.
type ValueError struct {
	Key, Value, Origin string
	Reason             string
	Remedy             string
}

// Error gives key, value, origin, reason and remedy in one line.
func (e *ValueError) Error() string {
	return fmt.Sprintf("%s=%q (%s): %s; %s", e.Key, e.Value, e.Origin, e.Reason, e.Remedy)
}

// Source is where Load looks, strongest first: Flags, the process's ZKC_*
// variables, File.
type Source struct {
	// Flags has the values given on the command line by Kafka's key, each with
	// the flag's name as origin.
	Flags map[string]Flag
	// File is a YAML file (.yaml, .yml) or a server.properties (any other name); "" is none.
	File string
	// Also tells which further keys of the file the command uses, see Others. Nil: none.
	Also func(key string) bool
}

// Flag is a value from the command line.
type Flag struct {
	Name  string // without dashes
	Value string
}

// delimiter never occurs in a key, so viper does not split any.
const delimiter = "\x00"

// Load reads all sources and checks every value by itself, then Validate
// checks them against each other.
func Load(src Source) (*Config, error) {
	v := viper.NewWithOptions(viper.KeyDelimiter(delimiter))
	c := &Config{file: src.File, fileSet: map[string]bool{}, others: map[string]string{}}
	if src.File != "" {
		values, err := readFile(src.File)
		if err != nil {
			return nil, err
		}
		known := map[string]any{}
		for key, value := range values {
			if slices.ContainsFunc(table, func(r row) bool { return r.key == key }) {
				known[key] = value
				c.fileSet[key] = true
				continue
			}
			c.others[key] = strings.TrimSpace(value)
			if src.Also == nil || !src.Also(key) {
				c.unknown = append(c.unknown, key)
			}
		}
		slices.Sort(c.unknown)
		if err := v.MergeConfigMap(known); err != nil {
			return nil, fmt.Errorf("read %s: %w", src.File, err)
		}
	}
	for _, r := range table {
		v.SetDefault(r.key, r.def)
		if err := v.BindEnv(append([]string{r.key}, r.environment()...)...); err != nil {
			return nil, fmt.Errorf("bind the environment of %s: %w", r.key, err)
		}
		if f, ok := src.Flags[r.key]; ok {
			v.Set(r.key, f.Value)
		}
	}
	for _, r := range table {
		s := Setting{Key: r.key, Value: strings.TrimSpace(v.GetString(r.key)), Origin: c.origin(r, src)}
		if err := r.set(c, s.Value); err != nil {
			return nil, &ValueError{Key: s.Key, Value: s.Value, Origin: s.Origin, Reason: err.Error(), Remedy: "give " + r.want}
		}
		c.settings = append(c.settings, s)
	}
	for key, f := range src.Flags {
		if !slices.ContainsFunc(table, func(r row) bool { return r.key == key }) {
			return nil, fmt.Errorf("flag --%s sets %s, which is no key of the configuration", f.Name, key)
		}
	}
	c.derive()
	return c, c.Validate()
}

func (c *Config) origin(r row, src Source) string {
	if f, ok := src.Flags[r.key]; ok {
		return "flag --" + f.Name
	}
	for _, name := range r.environment() {
		if os.Getenv(name) != "" {
			return "environment " + name
		}
	}
	if c.fileSet[r.key] {
		return "file " + src.File
	}
	return "default"
}

// derive fills what Kafka takes from another key when its own is not given.
func (c *Config) derive() {
	c.nameListeners()
	protocols := func(es []Endpoint) {
		for i, e := range es {
			es[i].Protocol = e.Name
			if p, ok := c.ListenerProtocols[strings.ToUpper(e.Name)]; ok {
				es[i].Protocol = p
			}
		}
	}
	if len(c.AdvertisedListeners) == 0 {
		c.AdvertisedListeners = slices.Clone(c.Listeners)
	}
	protocols(c.Listeners)
	protocols(c.AdvertisedListeners)
	if c.ZooKeeperConnection == 0 {
		c.ZooKeeperConnection = c.ZooKeeperSession
	}
}

// nameListeners puts names in capitals, as Kafka does with those of its files,
// but for those of a flag: they are told to the cluster as given. A name that
// means a listener of another spelling becomes that one's.
func (c *Config) nameListeners() {
	named := func(key, name string) string {
		if strings.HasPrefix(c.find(key).Origin, "flag ") {
			return name
		}
		return strings.ToUpper(name)
	}
	for i, e := range c.Listeners {
		c.Listeners[i].Name = named("listeners", e.Name)
	}
	meant := func(key, name string) string {
		for _, l := range c.Listeners {
			if strings.EqualFold(l.Name, name) {
				return l.Name
			}
		}
		return named(key, name)
	}
	for i, e := range c.AdvertisedListeners {
		c.AdvertisedListeners[i].Name = meant("advertised.listeners", e.Name)
	}
	c.InterBrokerListener = meant("inter.broker.listener.name", c.InterBrokerListener)
	c.ControlPlaneListener = meant("control.plane.listener.name", c.ControlPlaneListener)
}

// Settings gives every key, value and origin in the order of the table.
// The password of zkc.zk.digest is not among them.
func (c *Config) Settings() []Setting {
	out := slices.Clone(c.settings)
	for i := range out {
		if user, _, ok := strings.Cut(out[i].Value, ":"); ok && out[i].Key == digestKey {
			out[i].Value = user + ":(hidden)"
		}
	}
	return out
}

// Given tells whether a key was set by anything but its default.
func (c *Config) Given(key string) bool { return c.find(key).Origin != "default" }

// Others gives the file's keys that the table does not have, case kept, with their
// values as text: Kafka's brokers have many more, see Source.Also.
func (c *Config) Others() map[string]string { return maps.Clone(c.others) }

// Unknown gives the file's keys that mean nothing here, sorted, case kept.
func (c *Config) Unknown() []string { return slices.Clone(c.unknown) }

// Warning is the one line to log about unknown keys, or "".
func (c *Config) Warning() string {
	if len(c.unknown) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %d keys are not used here and have no effect: %s", c.file, len(c.unknown), strings.Join(c.unknown, " "))
}

func (c *Config) find(key string) Setting {
	for _, s := range c.settings {
		if s.Key == key {
			return s
		}
	}
	return Setting{Key: key, Origin: "default"}
}

// readFile gives the file's keys as written, with their values as text.
func readFile(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w; give --config a readable YAML file or server.properties", err)
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".yaml", ".yml":
		var tree map[string]any
		if err := yaml.Unmarshal(data, &tree); err != nil {
			return nil, fmt.Errorf("%s is not YAML: %w; correct the line named", path, err)
		}
		out := map[string]string{}
		if err := flatten(out, "", tree); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return out, nil
	}
	// Java reads these files as Latin-1 and expands nothing.
	loader := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		return nil, fmt.Errorf("%s is no server.properties: %w; correct the line named", path, err)
	}
	return p.Map(), nil
}

// flatten joins nested names with dots, so that broker: {id: 1} and
// "broker.id": 1 say the same; a list is Kafka's comma-separated text.
func flatten(out map[string]string, prefix string, tree map[string]any) error {
	for name, value := range tree {
		key := prefix + name
		var text string
		switch v := value.(type) {
		case map[string]any:
			if err := flatten(out, key+".", v); err != nil {
				return err
			}
			continue
		case []any:
			parts := make([]string, len(v))
			for i, e := range v {
				switch e.(type) {
				case map[string]any, []any:
					return fmt.Errorf("%s: a list inside a list means nothing here; give plain values", key)
				}
				parts[i] = fmt.Sprint(e)
			}
			text = strings.Join(parts, ",")
		case nil:
		default:
			text = fmt.Sprint(v)
		}
		if _, twice := out[key]; twice {
			return fmt.Errorf("%s is given twice, nested and with dots; keep one", key)
		}
		out[key] = text
	}
	return nil
}
