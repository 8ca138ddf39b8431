package zkstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
)

// Options says how to reach ZooKeeper. Servers is required; the zero value of
// everything else has a default.
type Options struct {
	Servers        []string      // HOST:PORT each
	Chroot         string        // "" or an absolute path; made when it is missing
	SessionTimeout time.Duration // asked of the server, which may grant another; default 18 s
	ConnectTimeout time.Duration // for the first session; default SessionTimeout
	Auth           []Auth        // sent on every connection
	SecureACL      bool          // zookeeper.set.acl: creator all, world read (spec/controller.md §1.0)

	Batch    int // writes in one multi, default 500; 1 is Kafka's own order and count
	InFlight int // requests unanswered at a time, default 32

	Log    logrus.FieldLogger
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error) // default net.Dialer
}

// Auth is one credential, say {"digest", "user:password"}.
type Auth struct {
	Scheme string
	Data   []byte
}

const (
	defaultSessionTimeout = 18 * time.Second
	defaultBatch          = 500
	defaultInFlight       = 32
)

// withDefaults checks the options and fills in what is not given.
func (o Options) withDefaults() (Options, error) {
	if len(o.Servers) == 0 {
		return o, errors.New("ZooKeeper: no servers given (HOST:PORT[,HOST:PORT…][/chroot])")
	}
	for _, s := range o.Servers {
		if err := checkServer(s); err != nil {
			return o, err
		}
	}
	chroot, err := cleanChroot(o.Chroot)
	if err != nil {
		return o, err
	}
	o.Chroot = chroot
	if o.SessionTimeout <= 0 {
		o.SessionTimeout = defaultSessionTimeout
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = o.SessionTimeout
	}
	o.Batch = orDefault(o.Batch, defaultBatch)
	o.InFlight = orDefault(o.InFlight, defaultInFlight)
	if o.Dialer == nil {
		o.Dialer = (&net.Dialer{}).DialContext
	}
	if o.Log == nil {
		l := logrus.New()
		l.SetOutput(io.Discard)
		o.Log = l
	}
	return o, nil
}

func orDefault(n, d int) int {
	if n <= 0 {
		return d
	}
	return n
}

// ParseConnect reads zookeeper.connect: HOST:PORT[,HOST:PORT…][/chroot]. A host
// without a port gets 2181, as in Kafka; IPv6 hosts stand in brackets.
func ParseConnect(s string) (servers []string, chroot string, err error) {
	hosts := s
	if i := strings.IndexByte(s, '/'); i >= 0 {
		hosts, chroot = s[:i], s[i:]
	}
	if chroot, err = cleanChroot(chroot); err != nil {
		return nil, "", fmt.Errorf("zookeeper connect string %q: %w", s, err)
	}
	for _, h := range strings.Split(hosts, ",") {
		if h = strings.TrimSpace(h); h == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(h); err != nil && !strings.HasSuffix(h, ":") &&
			(strings.Count(h, ":") == 0 || strings.HasSuffix(h, "]")) {
			h += ":2181"
		}
		if err := checkServer(h); err != nil {
			return nil, "", fmt.Errorf("zookeeper connect string %q: %w", s, err)
		}
		servers = append(servers, h)
	}
	if len(servers) == 0 {
		return nil, "", fmt.Errorf("zookeeper connect string %q names no server; write HOST:PORT[,HOST:PORT…][/chroot]", s)
	}
	return servers, chroot, nil
}

func checkServer(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("server %q: %w; write HOST:PORT, IPv6 as [ADDRESS]:PORT", s, err)
	}
	if n, err := strconv.Atoi(port); host == "" || err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("server %q: want HOST:PORT with a port from 1 to 65535", s)
	}
	return nil
}

// cleanChroot gives "" for none, else an absolute path without a final slash.
func cleanChroot(s string) (string, error) {
	s = strings.TrimRight(s, "/")
	if s == "" {
		return "", nil
	}
	if s[0] != '/' {
		return "", fmt.Errorf("chroot %q must begin with /", s)
	}
	for _, part := range strings.Split(s[1:], "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\x00,") {
			return "", fmt.Errorf("chroot %q is not a ZooKeeper path", s)
		}
	}
	return s, nil
}
