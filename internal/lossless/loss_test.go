package lossless_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/internal/lossless"
	"github.com/zkcontroller/zkcontroller/isrnotify"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// stage is a cluster of two brokers and a round that is played on it.
type stage struct {
	t   *testing.T
	c   *inProcess
	dir string // of logs, by broker
	lossless.Scene
}

// deed tries until it succeeds: a broker dies at once, its registration goes later.
func (s *stage) deed(ctx context.Context, op lossless.Op, id int32) error {
	return s.await(ctx, fmt.Sprintf("%s %d", op, id), func() (bool, error) {
		err := s.c.Do(ctx, lossless.Act{Op: op, Broker: id})
		return err == nil, err
	})
}

// await looks at a condition until it holds; the last error tells why it did not.
func (s *stage) await(ctx context.Context, what string, ok func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := ok()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

func (s *stage) partition(ctx context.Context) (kadm.PartitionDetail, error) {
	topics, err := s.Admin.ListTopics(ctx, s.Topic)
	if err == nil {
		err = topics.Error()
	}
	return topics[s.Topic].Partitions[0], err
}

// awaitLed waits for a leader and the ISR, in any order.
func (s *stage) awaitLed(ctx context.Context, leader int32, isr ...int32) error {
	return s.await(ctx, fmt.Sprintf("leader %d and ISR %v", leader, isr), func() (bool, error) {
		p, err := s.partition(ctx)
		slices.Sort(p.ISR)
		return p.Leader == leader && slices.Equal(p.ISR, isr), err
	})
}

// awaitMore waits until a number of records more is acknowledged.
func (s *stage) awaitMore(ctx context.Context, n int) error {
	n += s.Acked()
	return s.await(ctx, "more acknowledged records", func() (bool, error) { return s.Acked() >= n, nil })
}

// checkpointed is how many records take longer than it takes to a checkpoint: three
// producers send one every two milliseconds at most.
const checkpointed = 300

// alone lets the leader have records that its follower lacks, then ends it. It
// gives who leads and who follows.
func (s *stage) alone(ctx context.Context) (leader, follower int32, err error) {
	if err := s.await(ctx, "a leader", func() (bool, error) {
		p, err := s.partition(ctx)
		leader = p.Leader
		return err == nil && leader > 0 && len(p.ISR) == 2, err
	}); err != nil {
		return 0, 0, err
	}
	follower = 3 - leader
	for _, step := range []func() error{
		func() error { return s.awaitMore(ctx, checkpointed) },
		func() error { return s.deed(ctx, lossless.Kill, follower) },
		func() error { return s.awaitLed(ctx, leader, leader) },
		func() error { return s.awaitMore(ctx, checkpointed) },
		func() error { return s.deed(ctx, lossless.Kill, leader) },
	} {
		if err := step(); err != nil {
			return 0, 0, err
		}
	}
	return leader, follower, nil
}

// wipe takes a dead broker's disk away. A file may still be on its way there.
func (s *stage) wipe(ctx context.Context, id int32) error {
	return s.await(ctx, "wipe", func() (bool, error) {
		err := os.RemoveAll(filepath.Join(s.dir, fmt.Sprint(id)))
		return err == nil, err
	})
}

// lost is how many committed records the brokers say they have lost.
func (s *stage) lost() (n int64) {
	s.t.Helper()
	for _, id := range s.c.ids {
		resp, err := s.c.Fault(s.t.Context(), brokers.FaultRequest{Broker: kafka.BrokerID(id), Op: "status"})
		if err != nil {
			s.t.Fatal(err)
		}
		n += resp.State.Counters.CommittedRecordsLost
	}
	return n
}

// loss is a story of records that only one broker has, and whether they are lost.
type loss struct {
	name                string
	allowed             bool // unclean.leader.election.enable
	disk                bool
	then                func(ctx context.Context, s *stage) error
	lost, unclean, said bool
}

func losses() []loss {
	return []loss{
		{"allowed", true, false, func(ctx context.Context, s *stage) error {
			_, follower, err := s.alone(ctx)
			return errors.Join(err, s.deed(ctx, lossless.Restart, follower), s.awaitLed(ctx, follower, follower), s.awaitMore(ctx, 50))
		}, true, true, true},
		{"asked for", false, false, func(ctx context.Context, s *stage) error {
			_, follower, err := s.alone(ctx)
			return errors.Join(err, s.deed(ctx, lossless.Restart, follower), s.await(ctx, "elect unclean", func() (bool, error) {
				p, err := s.partition(ctx)
				if p.Leader != follower {
					_, err = s.Admin.ElectLeaders(ctx, kadm.ElectLiveReplica, nil)
				}
				return p.Leader == follower, err
			}), s.awaitMore(ctx, 50))
		}, true, true, true},
		{"not allowed", false, false, func(ctx context.Context, s *stage) error {
			leader, follower, err := s.alone(ctx)
			if err = errors.Join(err, s.deed(ctx, lossless.Restart, follower), s.awaitLed(ctx, -1, leader)); err != nil {
				return err
			}
			acked := s.Acked()
			// Asked while the follower lives: the controller has dealt with its return before it answers.
			err = s.await(ctx, "the follower lives", func() (bool, error) {
				b, err := s.Admin.BrokerMetadata(ctx)
				return slices.Contains(b.Brokers.NodeIDs(), follower), err
			})
			_, asked := s.Admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
			if err = errors.Join(err, asked, s.awaitLed(ctx, -1, leader)); err == nil && s.Acked() != acked {
				err = errors.New("records were acknowledged without a leader")
			}
			return err
		}, false, false, false},
		{"the only one in the ISR lost its disk", false, true, func(ctx context.Context, s *stage) error {
			leader, _, err := s.alone(ctx)
			return errors.Join(err, s.wipe(ctx, leader), s.deed(ctx, lossless.Restart, leader), s.awaitLed(ctx, leader, leader), s.awaitMore(ctx, 5))
		}, true, false, true},
		{"one of two in the ISR lost its disk", false, true, func(ctx context.Context, s *stage) error {
			err := s.awaitMore(ctx, 50)
			p, more := s.partition(ctx)
			return errors.Join(err, more, s.deed(ctx, lossless.Kill, p.Leader), s.wipe(ctx, p.Leader), s.awaitLed(ctx, 3-p.Leader, 3-p.Leader), s.awaitMore(ctx, 50),
				s.deed(ctx, lossless.Restart, p.Leader), s.awaitLed(ctx, 3-p.Leader, 1, 2))
		}, false, false, false},
	}
}

// Acknowledged records are lost where an election from outside the ISR was allowed
// or asked for, and where the only broker that had them lost its disk; the judge
// sees it, and it is said. Where it is not allowed, the partition waits for the
// broker that has them, and they are all there again.
func TestLossIsAllowedSeenAndSaid(t *testing.T) {
	for _, tc := range losses() {
		for _, release := range []string{"2.6", "3.9"} {
			t.Run(tc.name+", "+release, func(t *testing.T) { tc.play(t, release) })
		}
	}
}

func (tc loss) play(t *testing.T, release string) {
	t.Helper()
	log, said := test.NewNullLogger()
	log.SetLevel(logrus.WarnLevel)
	s := &stage{t: t, dir: t.TempDir()}
	s.c = startInProcess(t, 2, release, func(o *assembly.ClusterOptions) {
		o.Log = log
		for i := range o.Brokers {
			b := &o.Brokers[i].Broker
			b.Announcements = isrnotify.Options{CheckPeriod: 50 * time.Millisecond, Linger: 50 * time.Millisecond}
			// Brokers tell of what they know to be committed: as of the last checkpoint.
			b.Logs.Checkpoint = 50 * time.Millisecond
			if tc.disk {
				b.Logs.Dirs = []string{filepath.Join(s.dir, fmt.Sprint(i+1))}
			}
		}
	})
	o := lossless.Options{Seed: 1, Partitions: 1, Replicas: 2, Unclean: tc.allowed, Forgiving: tc.lost, Patience: 30 * time.Second, Log: t.Logf}
	o.Script = func(ctx context.Context, scene lossless.Scene) error {
		ctx, cancel := context.WithTimeout(ctx, o.Patience)
		defer cancel()
		s.Scene = scene
		return tc.then(ctx, s)
	}
	report, err := lossless.Run(t.Context(), s.c, o)
	t.Logf("%s; %v", report, report.Complaints)
	if err != nil {
		t.Fatal(err)
	}
	seen := slices.ContainsFunc(report.Complaints, func(c string) bool { return strings.HasPrefix(c, "lost: ") })
	if seen != tc.lost || !tc.lost && len(report.Complaints) > 0 || report.Unclean != tc.unclean {
		t.Errorf("lost %v, unclean %v, want %v and %v: %v", seen, report.Unclean, tc.lost, tc.unclean, report.Complaints)
	}
	if n := s.lost(); n > 0 != tc.said {
		t.Errorf("brokers tell of %d lost records", n)
	}
	var lines []string
	for _, e := range said.AllEntries() {
		lines = append(lines, e.Message)
	}
	all := strings.Join(lines, "\n")
	if strings.Contains(all, "committed records are lost") != tc.said || strings.Contains(all, "unclean leader election: ") != tc.unclean {
		t.Errorf("said: %s", all)
	}
}
