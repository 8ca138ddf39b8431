package lossless_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/internal/lossless"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

var (
	rounds    = flag.Int("lossless.rounds", 10, "how many rounds are played")
	seed      = flag.Uint64("lossless.seed", 0, "seed of the first round; 0 draws one, which is told")
	faultTime = flag.Duration("lossless.time", 2*time.Second, "how long there are faults in a round")
)

// inProcess is a whole cluster in this process. Brokers die without warning, but
// what they had written stays, as it does when a process is killed.
type inProcess struct {
	*assembly.Cluster
	zk  *zk.Conn
	ids []int32
}

const controllerID = 1000

// startInProcess starts n brokers with the manners of a release, as tune has them.
func startInProcess(t *testing.T, n int, release string, tune func(*assembly.ClusterOptions)) *inProcess {
	t.Helper()
	v, err := kafka.ParseProtocolVersion(release)
	if err != nil {
		t.Fatal(err)
	}
	server, err := zkserver.New(zkserver.Options{TickTime: 250 * time.Millisecond, MaxSessionTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // nothing is kept
	o := assembly.ClusterOptions{Server: server, ControllerID: controllerID, Version: v, SessionTimeout: 1500 * time.Millisecond}
	c := &inProcess{}
	for id := 1; id <= n; id++ {
		p := assembly.LocalBroker(kafka.BrokerID(id), "127.0.0.1", 0, v)
		p.KeepRecords()
		p.Broker.Logs.FetchBackoff = 100 * time.Millisecond
		p.Broker.ReplicaLagTimeMax = time.Second
		o.Brokers = append(o.Brokers, p)
		c.ids = append(c.ids, int32(id))
	}
	tune(&o)
	if c.Cluster, err = assembly.StartCluster(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the cluster: %v", err)
		}
	})
	c.zk, _, err = zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second, zk.WithLogger(silent{}), zk.WithDialer(func(_, _ string, _ time.Duration) (net.Conn, error) {
		return server.Dial(context.Background(), "tcp", "127.0.0.1:2181")
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.zk.Close)
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

type silent struct{}

// Printf says nothing.
func (silent) Printf(string, ...any) {}

// Seeds is lossless.Cluster's.
func (c *inProcess) Seeds() []string { return c.Bootstrap() }

// Brokers is lossless.Cluster's.
func (c *inProcess) Brokers() []int32 { return c.ids }

// Peers is lossless.Cluster's.
func (c *inProcess) Peers() []int32 { return append([]int32{controllerID}, c.ids...) }

// Ops is lossless.Cluster's.
func (c *inProcess) Ops() []lossless.Op {
	return []lossless.Op{lossless.Kill, lossless.Crash, lossless.Restart, lossless.Pause, lossless.Resume, lossless.Slow, lossless.Cut, lossless.Mend,
		lossless.Expire, lossless.Failover}
}

// Do is lossless.Cluster's.
func (c *inProcess) Do(ctx context.Context, a lossless.Act) error {
	if a.Op == lossless.Failover {
		return c.zk.Delete("/controller", -1)
	}
	r := brokers.FaultRequest{Broker: kafka.BrokerID(a.Broker), Op: string(a.Op), BytesPerSecond: a.Bytes}
	switch a.Op {
	case lossless.Restart:
		// As whoever watches over real brokers has to: not before the old session is gone.
		if there, _, err := c.zk.Exists(fmt.Sprintf("/brokers/ids/%d", a.Broker)); err != nil {
			return err
		} else if there {
			return fmt.Errorf("broker %d is still registered", a.Broker)
		}
	case lossless.Cut:
		peer := kafka.BrokerID(a.Peer)
		r.Peer = &peer
	case lossless.Expire:
		r.Op = "expire-session"
	}
	resp, err := c.Fault(ctx, r)
	if err == nil && resp.Error != "" {
		err = errors.New(resp.Error)
	}
	return err
}

// Heal is lossless.Cluster's.
func (c *inProcess) Heal(ctx context.Context) error {
	for _, id := range c.ids {
		for {
			resp, err := c.Fault(ctx, brokers.FaultRequest{Broker: kafka.BrokerID(id), Op: "status"})
			if err != nil {
				return err
			}
			if resp.State.Phase != "down" {
				break
			}
			if err := c.Do(ctx, lossless.Act{Op: lossless.Restart, Broker: id}); err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
		for _, op := range []lossless.Op{lossless.Resume, lossless.Mend, "clear"} {
			if err := c.Do(ctx, lossless.Act{Op: op, Broker: id}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Uncleanly is lossless.Cluster's.
func (c *inProcess) Uncleanly(ctx context.Context) (unclean bool, err error) {
	err = c.Await(ctx, func(g controller.Gauges) bool {
		unclean = g.UncleanElections > 0
		return true
	})
	return unclean, err
}

// What was acknowledged is read back once and in order, whatever the seed does to
// three or four brokers of each profile, in memory or on disk. Where the topic allows
// unclean elections, that holds as long as there was none; and whatever came of one,
// all replicas have the same in the end.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1 << 32)
	}
	releases := []string{"2.6", "3.9", "2.3", "3.5"}
	for i := range *rounds {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel() // a round mostly waits
			onDisk, unclean := seed%3 == 0, seed%5 == 0
			c := startInProcess(t, 3+int(seed/8%2), releases[seed%4], func(o *assembly.ClusterOptions) {
				for i := range o.Brokers {
					if onDisk {
						o.Brokers[i].Broker.Logs.Dirs = []string{t.TempDir()}
					}
				}
			})
			o := lossless.Options{Seed: seed, MinISR: 1 + int(seed/4%2), Faults: *faultTime, Log: t.Logf, Unclean: unclean, Forgiving: unclean}
			report, err := lossless.Run(t.Context(), c, o)
			t.Logf("seed %d, %s, %d brokers, min.insync.replicas %d, on disk %v, unclean allowed %v: %s", seed, releases[seed%4], len(c.ids), o.MinISR, onDisk, unclean, report)
			if err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			for _, broken := range report.Complaints {
				if report.Unclean && unclean && !strings.HasPrefix(broken, "replica: ") && !strings.HasPrefix(broken, "gap: ") && !strings.HasPrefix(broken, "unsent: ") {
					t.Logf("after an unclean election, which was allowed: %s", broken)
					continue
				}
				t.Errorf("seed %d: %s", seed, broken)
			}
			for why, n := range report.Refused {
				if !report.Unclean {
					t.Errorf("seed %d: a producer that never gives up gave up %d records: %s", seed, n, why)
				}
			}
			if report.Unclean && !unclean {
				t.Errorf("seed %d: a leader from outside an ISR, which was not allowed", seed)
			}
			if err == nil && report.Acked == 0 {
				t.Errorf("seed %d: nothing was acknowledged, so nothing was judged", seed)
			}
		})
	}
}
