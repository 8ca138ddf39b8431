package realtests

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkcontroller/zkcontroller/internal/lossless"
	"github.com/zkcontroller/zkcontroller/internal/real"
)

var (
	losslessRounds = flag.Int("lossless.rounds", 1, "rounds of TestLossless, each with three brokers as processes that are killed and frozen")
	losslessSeed   = flag.Uint64("lossless.seed", 0, "seed of the first round; 0 draws one, which is told")
)

// processes are brokers in processes of their own: killed by SIGKILL, frozen by
// SIGSTOP, and hurt through their admin ports if they have some.
type processes struct {
	t       *testing.T
	zk      *zk.Conn
	members map[int32]*kafkaBroker
	ours    map[int32]*ourBroker
}

// Seeds is lossless.Cluster's.
func (p *processes) Seeds() (seeds []string) {
	for _, id := range p.Brokers() {
		seeds = append(seeds, p.members[id].addr)
	}
	return seeds
}

// Brokers is lossless.Cluster's.
func (p *processes) Brokers() (ids []int32) {
	for id := int32(1); int(id) <= len(p.members); id++ {
		ids = append(ids, id)
	}
	return ids
}

// Peers is lossless.Cluster's.
func (p *processes) Peers() []int32 { return p.Brokers() }

// Ops is lossless.Cluster's.
func (p *processes) Ops() []lossless.Op {
	ops := []lossless.Op{lossless.Crash, lossless.Restart, lossless.Freeze, lossless.Resume, lossless.Failover}
	if len(p.ours) > 0 {
		ops = append(ops, lossless.Pause, lossless.Slow, lossless.Cut, lossless.Mend, lossless.Expire)
	}
	return ops
}

// Do is lossless.Cluster's.
func (p *processes) Do(ctx context.Context, a lossless.Act) error {
	m, ours := p.members[a.Broker], p.ours[a.Broker]
	switch a.Op {
	case lossless.Pause, lossless.Slow, lossless.Cut, lossless.Mend, lossless.Expire:
		if ours == nil {
			return errors.New("a broker of Kafka's cannot be asked to misbehave")
		}
	}
	switch a.Op {
	case lossless.Crash:
		m.kill()
	case lossless.Restart:
		return p.restart(ctx, m)
	case lossless.Freeze:
		return m.cmd.Process.Signal(syscall.SIGSTOP)
	case lossless.Resume:
		if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil || ours == nil {
			return err
		}
		return ours.fault(map[string]any{"op": "resume"})
	case lossless.Pause:
		return ours.fault(map[string]any{"op": "pause"})
	case lossless.Slow:
		return ours.fault(map[string]any{"op": "slow", "bytes_per_second": a.Bytes})
	case lossless.Cut:
		return ours.fault(map[string]any{"op": "cut", "peer": a.Peer})
	case lossless.Mend:
		return ours.fault(map[string]any{"op": "mend"})
	case lossless.Expire:
		return ours.fault(map[string]any{"op": "expire-session"})
	case lossless.Failover:
		return p.zk.Delete("/controller", -1)
	default:
		return fmt.Errorf("unknown deed %s", a)
	}
	return nil
}

// restart starts a killed broker once its registration is gone, as whoever
// watches over real brokers has to.
func (p *processes) restart(ctx context.Context, m *kafkaBroker) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		there, _, err := p.zk.Exists(fmt.Sprintf("/brokers/ids/%d", m.id))
		if err == nil && !there {
			m.again(p.t)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("broker %d is still registered: %w", m.id, errors.Join(ctx.Err(), err))
		case <-poll.C:
		}
	}
}

// Heal is lossless.Cluster's.
func (p *processes) Heal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, id := range p.Brokers() {
		m := p.members[id]
		select {
		case <-m.done:
			if err := p.restart(ctx, m); err != nil {
				return err
			}
			continue // faults ended with the process
		default:
		}
		if err := m.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		if ours := p.ours[id]; ours != nil {
			for _, op := range []string{"resume", "mend", "clear"} {
				if err := p.untilDone(ctx, m, func() error { return ours.fault(map[string]any{"op": op}) }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// untilDone tries again what a broker that was just started cannot do yet.
func (p *processes) untilDone(ctx context.Context, m *kafkaBroker, do func() error) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-m.done:
			return err
		case <-poll.C:
		}
	}
}

var uncleanElections = regexp.MustCompile(`(?m)^kafka_controller_controllerstats_uncleanleaderelections_total ([0-9.e+]+)$`)

// Uncleanly is lossless.Cluster's. Counters end with their process: a death hides what was counted.
func (p *processes) Uncleanly(context.Context) (bool, error) {
	for _, m := range p.ours {
		client := http.Client{Timeout: 5 * time.Second}
		resp, err := client.Get("http://" + m.admin + "/metrics")
		if err != nil {
			return false, err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			return false, err
		}
		if got := uncleanElections.FindSubmatch(text); got != nil && string(got[1]) != "0" {
			return true, nil
		}
	}
	return false, nil
}

// round plays one and fails the test if a promise was broken.
func losslessRound(t *testing.T, c lossless.Cluster, o lossless.Options) {
	t.Helper()
	o.Log = t.Logf
	report, err := lossless.Run(t.Context(), c, o)
	t.Logf("seed %d, min.insync.replicas %d: %s", o.Seed, o.MinISR, report)
	if err != nil {
		t.Errorf("seed %d: %v", o.Seed, err)
	}
	for _, broken := range report.Complaints {
		t.Errorf("seed %d: %s", o.Seed, broken)
	}
	for why, n := range report.Refused {
		t.Errorf("seed %d: a producer that never gives up gave up %d records: %s", o.Seed, n, why)
	}
	if report.Unclean {
		t.Errorf("seed %d: an unclean election, which was not allowed", o.Seed)
	}
}

func firstSeed() uint64 {
	if *losslessSeed != 0 {
		return *losslessSeed
	}
	return rand.Uint64N(1 << 32)
}

// Three brokers, each a process that is killed and frozen, with its logs on disk:
// what was acknowledged is read back once, in order.
func TestLossless(t *testing.T) {
	first := firstSeed()
	for i := range *losslessRounds {
		seed := first + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			ibp := []string{"3.9", "2.6", "3.5"}[seed%3]
			f := startFleet(t, 3, "zookeeper.session.timeout.ms=2000", "replica.lag.time.max.ms=1500", "inter.broker.protocol.version="+ibp)
			p := &processes{t: t, zk: dialZooKeeper(t, f.zk), members: map[int32]*kafkaBroker{}, ours: map[int32]*ourBroker{}}
			for _, b := range f.brokers {
				p.members[int32(b.id)], p.ours[int32(b.id)] = b.kafkaBroker, b
			}
			losslessRound(t, p, lossless.Options{Seed: seed, MinISR: 1 + int(seed/3%2), Faults: 10 * time.Second})
		})
	}
}

// The judge judges Kafka's own brokers: it must find nothing.
func TestLosslessOfKafka(t *testing.T) {
	if *losslessSeed == 0 {
		t.Skip("asked for by -lossless.seed: then the judge is itself judged, by the original brokers")
	}
	zk := real.ZooKeeper(t).Addr()
	p := &processes{t: t, zk: dialZooKeeper(t, zk), members: map[int32]*kafkaBroker{}}
	more := map[string]string{"zookeeper.session.timeout.ms": "4000", "replica.lag.time.max.ms": "3000"}
	for id := 1; id <= 3; id++ {
		p.members[int32(id)] = startKafka(t, "3.9.1", zk, id, more)
	}
	awaitBrokers(t, zk, 1, 2, 3)
	losslessRound(t, p, lossless.Options{Seed: *losslessSeed, MinISR: 2, Faults: 20 * time.Second, Every: 5 * time.Millisecond})
}

// One broker of Kafka's among three of ours, each side following the other: what
// either acknowledged is read back from both.
func TestLosslessMixed(t *testing.T) {
	if *losslessSeed == 0 {
		t.Skip("asked for by -lossless.seed: one original broker and three of ours under faults")
	}
	for i := range max(1, *losslessRounds) {
		seed := *losslessSeed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			f := startFleet(t, 3, "zookeeper.session.timeout.ms=3000", "replica.lag.time.max.ms=2000", "inter.broker.protocol.version=3.9")
			theirs := startKafka(t, "3.9.1", f.zk, 4, map[string]string{"zookeeper.session.timeout.ms": "3000", "replica.lag.time.max.ms": "2000"})
			awaitBrokers(t, f.zk, 1, 2, 3, 4)
			p := &processes{t: t, zk: dialZooKeeper(t, f.zk), members: map[int32]*kafkaBroker{4: theirs}, ours: map[int32]*ourBroker{}}
			for _, b := range f.brokers {
				p.members[int32(b.id)], p.ours[int32(b.id)] = b.kafkaBroker, b
			}
			losslessRound(t, p, lossless.Options{Seed: seed, MinISR: 1 + int(seed%2), Replicas: 3, Partitions: 4, Faults: 20 * time.Second, Every: 4 * time.Millisecond})
		})
	}
}
