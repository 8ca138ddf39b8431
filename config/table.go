package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// row is one key: its default as text, what a good value looks like, other
// environment names than the rule gives, and how it is stored.
type row struct {
	key, def, want string
	env            []string
	set            func(c *Config, value string) error
}

// environment gives the variables of a key: ZKC_ and the key in capitals, dots
// as underscores, then the row's own names.
func (r row) environment() []string {
	name := strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(strings.TrimPrefix(r.key, "zkc.")))
	return append([]string{"ZKC_" + name}, r.env...)
}

const (
	aBool = "true or false"
	aMS   = "a whole number of milliseconds, without a unit"
	aList = "NAME://HOST:PORT, several with commas between"
)

// table has every key (spec/controller.md §8.1, spec/broker.md §11.1; defaults
// of Kafka 3.9).
var table = []row{
	{"broker.id", "-1", "a whole number from 0 on", nil, whole(-1, math.MaxInt32, func(c *Config) *int32 { return &c.BrokerID })},
	{"listeners", "", aList, nil, endpoints(func(c *Config) *[]Endpoint { return &c.Listeners })},
	{"advertised.listeners", "", aList, nil, endpoints(func(c *Config) *[]Endpoint { return &c.AdvertisedListeners })},
	{"listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
		"NAME:PROTOCOL, several with commas between; protocols are PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL", nil, protocolMap},
	{"inter.broker.listener.name", "", "the name of a listener", nil, listener(func(c *Config) *string { return &c.InterBrokerListener })},
	{"control.plane.listener.name", "", "the name of a listener", nil, listener(func(c *Config) *string { return &c.ControlPlaneListener })},
	{"broker.rack", "", "a name", nil, text(func(c *Config) *string { return &c.Rack })},
	{"inter.broker.protocol.version", "3.9", "a release such as 2.4, 2.7-IV2 or 0.10.2.2", nil, release},
	{"zookeeper.connect", "", "HOST:PORT[,HOST:PORT...][/chroot]", []string{"ZKC_ZOOKEEPER"}, zookeeper},
	{"zookeeper.session.timeout.ms", "18000", aMS, nil, millis(1, func(c *Config) *time.Duration { return &c.ZooKeeperSession })},
	{"zookeeper.connection.timeout.ms", "0", aMS, nil, millis(0, func(c *Config) *time.Duration { return &c.ZooKeeperConnection })},
	{"zookeeper.set.acl", "false", aBool, nil, boolean(func(c *Config) *bool { return &c.ZooKeeperSetACL })},
	{"unclean.leader.election.enable", "false", aBool, nil, boolean(func(c *Config) *bool { return &c.UncleanElection })},
	{"delete.topic.enable", "true", aBool, nil, boolean(func(c *Config) *bool { return &c.DeleteTopics })},
	{"auto.leader.rebalance.enable", "true", aBool, nil, boolean(func(c *Config) *bool { return &c.AutoRebalance })},
	{"leader.imbalance.check.interval.seconds", "300", "a whole number of seconds from 1 on, without a unit", nil,
		duration(time.Second, 1, func(c *Config) *time.Duration { return &c.ImbalanceCheck })},
	{"leader.imbalance.per.broker.percentage", "10", "a whole number from 0 on", nil, whole(0, math.MaxInt32, func(c *Config) *int { return &c.ImbalancePercent })},
	{"default.replication.factor", "1", "a whole number from 1 to 32767", nil, whole(1, math.MaxInt16, func(c *Config) *int16 { return &c.DefaultReplication })},
	{"num.partitions", "1", "a whole number from 1 on", nil, whole(1, math.MaxInt32, func(c *Config) *int32 { return &c.NumPartitions })},
	{"replica.lag.time.max.ms", "30000", aMS, nil, millis(1, func(c *Config) *time.Duration { return &c.ReplicaLag })},
	{"replica.fetch.wait.max.ms", "500", aMS, nil, millis(0, func(c *Config) *time.Duration { return &c.ReplicaFetchWait })},
	{"min.insync.replicas", "1", "a whole number from 1 on", nil, whole(1, math.MaxInt32, func(c *Config) *int { return &c.MinInsyncReplicas })},
	{"log.dirs", "", "folders with commas between", nil, list(func(c *Config) *[]string { return &c.LogDirs })},
	{"auto.create.topics.enable", "true", aBool, nil, boolean(func(c *Config) *bool { return &c.AutoCreateTopics })},
	{"offsets.topic.num.partitions", "50", "a whole number from 1 on", nil, whole(1, math.MaxInt32, func(c *Config) *int32 { return &c.OffsetsPartitions })},
	{"offsets.topic.replication.factor", "3", "a whole number from 1 to 32767", nil, whole(1, math.MaxInt16, func(c *Config) *int16 { return &c.OffsetsReplication })},
	{"controlled.shutdown.enable", "true", aBool, nil, boolean(func(c *Config) *bool { return &c.ControlledShutdown })},
	{"controlled.shutdown.max.retries", "3", "a whole number from 0 on", nil, whole(0, math.MaxInt32, func(c *Config) *int { return &c.ControlledRetries })},
	{"controlled.shutdown.retry.backoff.ms", "5000", aMS, nil, millis(0, func(c *Config) *time.Duration { return &c.ControlledRetryBackoff })},
	{"bootstrap.servers", "", "HOST:PORT, several with commas between", nil, text(func(c *Config) *string { return &c.BootstrapServers })},
	{"zkc.admin", "", "HOST:PORT with a loopback host, such as 127.0.0.1:9097; port 0 takes a free one", nil, loopback},
	{"zkc.log.level", "info", "one of error, warn, info, debug, trace", nil, oneOf(func(c *Config) *string { return &c.LogLevel }, "error", "warn", "info", "debug", "trace")},
	{"zkc.log.format", "text", "text or json", nil, oneOf(func(c *Config) *string { return &c.LogFormat }, "text", "json")},
	{digestKey, "", "USER:PASSWORD; better in a file or in ZKC_ZK_DIGEST than elsewhere", nil, digest},
	{"zkc.log.memory.bytes", "268435456", "a whole number of bytes, without a unit; -1 is no bound, 0 the built-in one", nil, whole(-1, math.MaxInt64, func(c *Config) *int64 { return &c.LogMemory })},
	{"zkc.zk.batch", "0", "a whole number from 0 on; 0 is the built-in limit, 1 writes one by one as Kafka does", nil, whole(0, 100_000, func(c *Config) *int { return &c.ZKBatch })},
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, value string) error {
		*field(c) = value
		return nil
	}
}

// listener stores a name; derive makes it that of the listener meant.
func listener(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, value string) error {
		*field(c) = value
		return nil
	}
}

func oneOf(field func(*Config) *string, allowed ...string) func(*Config, string) error {
	return func(c *Config, value string) error {
		for _, a := range allowed {
			if strings.EqualFold(value, a) {
				*field(c) = a
				return nil
			}
		}
		return fmt.Errorf("not an allowed value")
	}
}

func list(field func(*Config) *[]string) func(*Config, string) error {
	return func(c *Config, value string) error {
		*field(c) = split(value)
		return nil
	}
}

// split takes a comma-separated list apart as Kafka does: blanks around the
// members are dropped, and so are empty ones.
func split(value string) []string {
	var out []string
	for _, part := range strings.Split(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func boolean(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, value string) error {
		switch {
		case strings.EqualFold(value, "true"):
			*field(c) = true
		case strings.EqualFold(value, "false"):
			*field(c) = false
		default:
			return fmt.Errorf("not a boolean")
		}
		return nil
	}
}

func whole[T int | int16 | int32 | int64](lo, hi int64, field func(*Config) *T) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := number(value, lo, hi)
		if err == nil {
			*field(c) = T(n)
		}
		return err
	}
}

func millis(lo int64, field func(*Config) *time.Duration) func(*Config, string) error {
	return duration(time.Millisecond, lo, field)
}

func duration(unit time.Duration, lo int64, field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := number(value, lo, math.MaxInt64/int64(unit))
		if err == nil {
			*field(c) = time.Duration(n) * unit
		}
		return err
	}
}

func number(value string, lo, hi int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("not a whole number")
	case n < lo:
		return 0, fmt.Errorf("less than %d", lo)
	case n > hi:
		return 0, fmt.Errorf("more than %d", hi)
	}
	return n, nil
}

var releaseForm = regexp.MustCompile(`^[0-9]+(\.[0-9]+){1,3}(-IV[0-9]+)?$`)

// release checks the form only; which releases there are is kafka's matter.
func release(c *Config, value string) error {
	if !releaseForm.MatchString(value) {
		return fmt.Errorf("not a Kafka release")
	}
	c.InterBrokerProtocol = value
	return nil
}

func endpoints(field func(*Config) *[]Endpoint) func(*Config, string) error {
	return func(c *Config, value string) error {
		var out []Endpoint
		for _, part := range split(value) {
			e, err := parseEndpoint(part)
			if err != nil {
				return err
			}
			for _, o := range out {
				if strings.EqualFold(o.Name, e.Name) {
					return fmt.Errorf("the listener %s is named twice", e.Name)
				}
			}
			out = append(out, e)
		}
		*field(c) = out
		return nil
	}
}

func parseEndpoint(s string) (Endpoint, error) {
	name, address, ok := strings.Cut(s, "://")
	if !ok || name == "" {
		return Endpoint{}, fmt.Errorf("%q is not NAME://HOST:PORT", s)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q is not NAME://HOST:PORT", s)
	}
	n, err := number(port, 0, math.MaxUint16)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q has a port that is %w", s, err)
	}
	return Endpoint{Name: name, Host: host, Port: int(n)}, nil
}

func protocolMap(c *Config, value string) error {
	c.ListenerProtocols = map[string]string{}
	for _, part := range split(value) {
		name, protocol, ok := strings.Cut(part, ":")
		protocol = strings.ToUpper(strings.TrimSpace(protocol))
		switch {
		case !ok || strings.TrimSpace(name) == "":
			return fmt.Errorf("%q is not NAME:PROTOCOL", part)
		case protocol != "PLAINTEXT" && protocol != "SSL" && protocol != "SASL_PLAINTEXT" && protocol != "SASL_SSL":
			return fmt.Errorf("%q is no security protocol", protocol)
		}
		c.ListenerProtocols[strings.ToUpper(strings.TrimSpace(name))] = protocol
	}
	return nil
}

// zookeeper checks HOST:PORT[,HOST:PORT...][/chroot]; a missing port is 2181.
func zookeeper(c *Config, value string) error {
	c.ZooKeeperConnect = value
	if value == "" {
		return nil
	}
	hosts, chroot, has := strings.Cut(value, "/")
	if has && (strings.HasSuffix(chroot, "/") || strings.Contains(chroot, "//")) {
		return fmt.Errorf("the chroot /%s has an empty part", chroot)
	}
	servers := split(hosts)
	if len(servers) == 0 {
		return fmt.Errorf("no server is named")
	}
	for _, s := range servers {
		if host, port, err := net.SplitHostPort(s); err == nil {
			if n, err := number(port, 1, math.MaxUint16); err != nil || n == 0 || host == "" {
				return fmt.Errorf("%q is not HOST:PORT", s)
			}
		} else if strings.Contains(s, ":") {
			return fmt.Errorf("%q is not HOST:PORT", s)
		}
	}
	return nil
}

// loopback refuses to publish probes and profiles on a network.
func loopback(c *Config, value string) error {
	c.Admin = value
	if value == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("not HOST:PORT")
	}
	if _, err := number(port, 0, math.MaxUint16); err != nil {
		return fmt.Errorf("the port is %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("the host is not on loopback")
	}
	return nil
}

// digestKey has the credentials that ZooKeeper's digest scheme takes.
const digestKey = "zkc.zk.digest"

func digest(c *Config, value string) error {
	if user, password, ok := strings.Cut(value, ":"); value != "" && (!ok || user == "" || password == "") {
		return errors.New("it is not of the form USER:PASSWORD")
	}
	c.ZKDigest = value
	return nil
}
