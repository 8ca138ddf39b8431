package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/zkserver"
)

// embeddedTick is the tickTime of servers that no zoo.cfg describes: sessions
// may be as short as 1.6 s and as long as 16 s.
const embeddedTick = 800 * time.Millisecond

func zookeeperCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "zookeeper [ZOO.CFG]", Short: "Be a ZooKeeper server", Args: cobra.MaximumNArgs(1),
		Long: `Serves ZooKeeper's protocol as one Apache ZooKeeper 3.9 standalone server does: with the settings of a zoo.cfg, which
those of SERVER_JVMFLAGS (-Dzookeeper.KEY=VALUE) override, or with --listen. With a data directory it writes
ZooKeeper's own transaction logs and snapshots, so either server can go on where the other one ended. Without a
clientPortAddress it listens on loopback. There are no ensembles: for more than one machine take Apache ZooKeeper.
SIGINT and SIGTERM end it; the second one ends at once.`,
	}
	f := cmd.Flags()
	listen := f.String("listen", "", "HOST:PORT, or a port on loopback; port 0 takes any free one")
	dataDir := f.String("data-dir", "", "with --listen: where logs and snapshots are kept; none is in memory")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		_, log, err := loadConfig(cmd)
		if err != nil {
			return err
		}
		var cfg *zkserver.ZooCfg
		switch {
		case (len(args) == 1) == (*listen != ""):
			return usageError("give a ZOO.CFG or --listen HOST:PORT")
		case len(args) == 1 && *dataDir != "":
			return usageError("--data-dir goes with --listen; a zoo.cfg has dataDir")
		case len(args) == 1:
			if cfg, err = zkserver.ParseZooCfg(args[0], os.Getenv("SERVER_JVMFLAGS")); err != nil {
				return withCode(2, err)
			}
		default:
			if cfg, err = listenConfig(*listen, *dataDir); err != nil {
				return err
			}
		}
		return serveZooKeeper(cmd.Context(), cfg, log)
	}
	return cmd
}

// listenConfig is what a zoo.cfg would say for --listen: it is meant for
// loopback, so nothing is kept from anyone.
func listenConfig(listen, dataDir string) (*zkserver.ZooCfg, error) {
	if !strings.Contains(listen, ":") {
		listen = net.JoinHostPort("127.0.0.1", listen)
	}
	if _, _, err := net.SplitHostPort(listen); err != nil {
		return nil, usageError("--listen %s: %w; give HOST:PORT, IPv6 as [ADDRESS]:PORT", listen, err)
	}
	return &zkserver.ZooCfg{ClientAddr: listen, Options: embeddedOptions(dataDir)}, nil
}

func embeddedOptions(dataDir string) zkserver.Options {
	return zkserver.Options{TickTime: embeddedTick, FourLetterWords: []string{"*"}, DataDir: dataDir}
}

// serveZooKeeper serves until ctx ends.
func serveZooKeeper(ctx context.Context, cfg *zkserver.ZooCfg, log *logrus.Logger) error {
	for _, w := range cfg.Warnings {
		log.Warn(w)
	}
	if os.Getenv("GOGC") == "" { // else it is somebody's wish
		defer zkserver.TuneGC(nil)()
	}
	z, err := startZooKeeper(cfg, log)
	if err != nil {
		return err
	}
	select {
	case <-z.failed:
		err = z.why
	case <-ctx.Done():
		log.WithField("why", context.Cause(ctx)).Info("leaving")
	}
	return errors.Join(err, z.close())
}

// listenZooKeeper opens the ports of a configuration, the plain one first.
func listenZooKeeper(cfg *zkserver.ZooCfg, log *logrus.Logger) ([]net.Listener, error) {
	var open []net.Listener
	for _, p := range []struct {
		address, key string
		conf         *tls.Config
	}{{cfg.ClientAddr, "clientPortAddress", nil}, {cfg.SecureAddr, "secureClientPortAddress", cfg.TLS}} {
		if p.address == "" {
			continue
		}
		ls, err := listenAddress(p.address, p.key, cfg.Options.ClientPort != 0 || p.conf != nil, log)
		if err != nil {
			for _, l := range open {
				l.Close()
			}
			return nil, withCode(1, fmt.Errorf("open %s: %w; %s", p.address, err, portRemedy(err)))
		}
		for _, l := range ls {
			if p.conf != nil {
				l = tls.NewListener(l, p.conf)
			} else if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
				log.WithField("address", l.Addr().String()).Warn("whoever reaches this port can read and write everything that no ACL guards; listen on 127.0.0.1 unless others need it")
			}
			open = append(open, l)
		}
	}
	return open, nil
}

// listenAddress opens one address. That of a zoo.cfg that names no host is
// loopback, by both of its addresses where a machine has them: clients may know
// it as localhost.
func listenAddress(address, key string, isFile bool, log *logrus.Logger) ([]net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host != "" || !isFile {
		l, err := net.Listen("tcp", address)
		return []net.Listener{l}, err
	}
	log.WithFields(logrus.Fields{"port": port, "key": key}).Info("no address is given: listening on loopback alone; 0.0.0.0 is all interfaces")
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return nil, err
	}
	ls := []net.Listener{l}
	if l, err := net.Listen("tcp", net.JoinHostPort("::1", port)); err == nil {
		ls = append(ls, l)
	}
	return ls, nil
}

func portRemedy(err error) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return "stop who has the port, or give another one"
	}
	return "give an address of this machine and a port that may be opened"
}

// zookeeper is a server with its ports.
type zookeeper struct {
	server  *zkserver.Server
	ports   []net.Listener
	serving sync.WaitGroup
	failed  chan struct{} // closed when a port is served no more
	why     error         // behind failed
	failing sync.Once
	once    sync.Once
	err     error
}

// startZooKeeper opens the ports, recovers what is to be recovered, and serves.
func startZooKeeper(cfg *zkserver.ZooCfg, log *logrus.Logger) (*zookeeper, error) {
	ports, err := listenZooKeeper(cfg, log)
	if err != nil {
		return nil, err
	}
	o := cfg.Options
	o.Log = log
	if o.ClientPort == 0 && cfg.ClientAddr != "" {
		o.ClientPort = ports[0].Addr().(*net.TCPAddr).Port
	}
	z := &zookeeper{ports: ports, failed: make(chan struct{})}
	if z.server, err = zkserver.New(o); err != nil {
		for _, l := range ports {
			l.Close()
		}
		return nil, err
	}
	for _, l := range ports {
		log.WithField("address", l.Addr().String()).Info("serving ZooKeeper")
		z.serving.Go(func() {
			if err := z.server.Serve(l); err != nil && !errors.Is(err, zkserver.ErrServerClosed) {
				z.failing.Do(func() {
					z.why = err
					close(z.failed)
				})
			}
		})
	}
	return z, nil
}

// whileServing gives a context that ends with a port, too; what then fails has
// this one cause. Its end has to be called.
func (z *zookeeper) whileServing(ctx context.Context) (serving context.Context, end func()) {
	serving, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-z.failed:
			cancel()
		case <-serving.Done():
		}
	}()
	return serving, cancel
}

// cause is why a port is served no more, or else the error itself.
func (z *zookeeper) cause(err error) error {
	select {
	case <-z.failed:
		return z.why
	default:
		return err
	}
}

func (z *zookeeper) address() string { return z.ports[0].Addr().String() }

// close ends the server when all that was answered is safe.
func (z *zookeeper) close() error {
	z.once.Do(func() {
		z.err = z.server.Close()
		z.serving.Wait()
	})
	return z.err
}
