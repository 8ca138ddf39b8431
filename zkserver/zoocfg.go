package zkserver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ZooCfg is a zoo.cfg together with the settings of SERVER_JVMFLAGS.
type ZooCfg struct {
	Options    Options
	ClientAddr string      // HOST:PORT of the plain port; "": none
	SecureAddr string      // HOST:PORT of the TLS port; "": none
	TLS        *tls.Config // of the TLS port
	Warnings   []string    // what was ignored, and why
}

// settings are the keys of a configuration, each with where it came from. take
// removes what it gives, so that what is left is unknown.
type settings struct {
	values map[string]string
	from   map[string]string
	err    error
}

// Where keys come from besides a file's line: -Dzookeeper.KEY, and -DKEY, which
// may as well be a setting of another library, such as logging.
const (
	jvmFlags   = "SERVER_JVMFLAGS"
	otherFlags = jvmFlags + " (-D)"
)

// ParseZooCfg reads a zoo.cfg, and the -D settings of jvmflags over it. Keys
// nobody knows become warnings; a value that cannot be is an error that names
// its key. TLS keys that cannot be used are warnings, and that port stays shut.
func ParseZooCfg(path, jvmflags string) (*ZooCfg, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the server's configuration: %w", err)
	}
	defer file.Close()
	s := settings{values: map[string]string{}, from: map[string]string{}}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		i := strings.IndexAny(line, "=: \t")
		if i < 0 {
			return nil, fmt.Errorf("%s:%d: %q has no value: write key=value", path, n, line)
		}
		key := line[:i]
		rest := strings.TrimLeft(line[i:], " \t")
		if rest != "" && (rest[0] == '=' || rest[0] == ':') {
			rest = rest[1:]
		}
		s.values[key] = strings.TrimSpace(rest)
		s.from[key] = fmt.Sprintf("%s:%d", path, n)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the server's configuration %s: %w", path, err)
	}
	for flag := range strings.FieldsSeq(jvmflags) {
		def, ok := strings.CutPrefix(flag, "-D")
		if !ok {
			continue // a matter of Java
		}
		name, value, _ := strings.Cut(def, "=")
		key := strings.TrimPrefix(name, "zookeeper.")
		s.values[key] = value
		s.from[key] = jvmFlags
		if key == name {
			s.from[key] = otherFlags
		}
	}
	return s.config()
}

// config turns settings into options.
func (s *settings) config() (*ZooCfg, error) {
	cfg := &ZooCfg{}
	o := &cfg.Options
	o.DataDir, o.LogDir = s.take("dataDir"), s.take("dataLogDir")
	o.TickTime = s.millis("tickTime")
	o.MinSessionTimeout, o.MaxSessionTimeout = max(0, s.millis("minSessionTimeout")), max(0, s.millis("maxSessionTimeout"))
	o.MaxClientCnxns = s.number("maxClientCnxns", 60)
	if words := s.take("4lw.commands.whitelist"); words != "" {
		for w := range strings.SplitSeq(words, ",") {
			o.FourLetterWords = append(o.FourLetterWords, strings.TrimSpace(w))
		}
	}
	o.ExtendedTypes = s.yes("extendedTypesEnabled", false)
	o.Reconfig = s.yes("reconfigEnabled", false)
	o.SuperDigest = s.take("DigestAuthenticationProvider.superDigest")
	o.NoForceSync = !s.yes("forceSync", true)
	o.MaxBuffer = s.decode("jute.maxbuffer")
	o.SnapCount = s.decode("snapCount")
	o.PurgeRetain = max(3, s.number("autopurge.snapRetainCount", 3))
	o.PurgeInterval = time.Duration(s.number("autopurge.purgeInterval", 0)) * time.Hour
	o.ContainerCheck = time.Duration(s.decode("znode.container.checkIntervalMs")) * time.Millisecond
	host := s.take("clientPortAddress")
	secureHost := s.take("secureClientPortAddress")
	o.ClientPort = s.number("clientPort", 0)
	securePort := s.number("secureClientPort", 0)
	if s.err != nil {
		return nil, s.err
	}
	if n := s.ensemble(); n > 1 {
		return nil, fmt.Errorf("server.N names %d servers, but this is one server and no ensemble: each of them would keep data of its own. Take Apache ZooKeeper, or leave these lines out", n)
	}
	if o.ClientPort != 0 {
		cfg.ClientAddr = net.JoinHostPort(host, strconv.Itoa(o.ClientPort))
	}
	if conf, err := s.tls(); securePort != 0 {
		if err != nil {
			cfg.Warnings = append(cfg.Warnings, fmt.Sprintf("the secure client port %d stays shut: %v", securePort, err))
		} else {
			o.SecureClientPort = securePort
			cfg.SecureAddr, cfg.TLS = net.JoinHostPort(secureHost, strconv.Itoa(securePort)), conf
		}
	}
	switch {
	case cfg.ClientAddr == "" && securePort == 0:
		return nil, errors.New("neither clientPort nor secureClientPort is set: write clientPort=2181")
	case cfg.ClientAddr == "" && cfg.SecureAddr == "":
		return nil, fmt.Errorf("no port would be open: %s; mend it, or write clientPort=2181", cfg.Warnings[0])
	}
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if s.from[key] == otherFlags {
			continue
		}
		cfg.Warnings = append(cfg.Warnings, fmt.Sprintf("%s: the key %s is not known here and is ignored", s.from[key], key))
	}
	if _, err := o.withDefaults(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// ensemble counts the servers of an ensemble.
func (s *settings) ensemble() int {
	n := 0
	for key := range s.values {
		if strings.HasPrefix(key, "server.") {
			n++
		}
	}
	return n
}

func (s *settings) take(key string) string {
	v := s.values[key]
	delete(s.values, key)
	return v
}

func (s *settings) fail(key, value, want string) {
	if s.err == nil {
		s.err = fmt.Errorf("%s: %s is %q: it must be %s", s.from[key], key, value, want)
	}
}

// number gives a key's whole number, or def without it.
func (s *settings) number(key string, def int) int { return s.integer(key, def, 10) }

// decode gives a key's whole number, 0 without it. It is one of those that
// Apache takes from Java's system properties, which may be hexadecimal, and
// octal behind a 0.
func (s *settings) decode(key string) int { return s.integer(key, 0, 0) }

func (s *settings) integer(key string, def, base int) int {
	v := s.take(key)
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, base, 32)
	if err != nil {
		s.fail(key, v, "a whole number")
		return def
	}
	return int(n)
}

func (s *settings) millis(key string) time.Duration {
	return time.Duration(s.number(key, 0)) * time.Millisecond
}

func (s *settings) yes(key string, def bool) bool {
	switch v := s.take(key); strings.ToLower(v) {
	case "":
		return def
	case "true", "yes":
		return true
	case "false", "no":
		return false
	default:
		s.fail(key, v, "true or false")
		return def
	}
}
