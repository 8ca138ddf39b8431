package zktest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zktest"
)

// Each fault does to a broker with records what it says, and ends.
func TestFaults(t *testing.T) {
	tp := kafka.TopicPartition{Topic: "t"}
	for _, tc := range []struct {
		name        string
		begin, heal func(ctx context.Context, c *zktest.Cluster, follower, leader kafka.BrokerID) error
		stays       bool // in the ISR
	}{
		{"Pause", func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error { return c.Pause(ctx, id) },
			func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error { return c.Resume(ctx, id) }, false},
		{"Slow", func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error { return c.Slow(ctx, id, 1) },
			func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error { return c.Resume(ctx, id) }, false},
		{"Cut", func(ctx context.Context, c *zktest.Cluster, id, leader kafka.BrokerID) error {
			return c.Cut(ctx, id, leader)
		},
			func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error { return c.Mend(ctx, id) }, false},
		{"Kill", func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error { return c.Kill(ctx, id) },
			func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error { return c.Restart(ctx, id) }, false},
		{"FailLogDir", func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error {
			return c.FailLogDir(ctx, id, tp)
		},
			func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error {
				if err := c.Kill(ctx, id); err != nil {
					return err
				}
				return c.Restart(ctx, id)
			}, false},
		// A clock two minutes fast ends no session, and makes nobody late who has all.
		{"Skew", func(ctx context.Context, c *zktest.Cluster, _, leader kafka.BrokerID) error {
			return c.Skew(ctx, leader, 2*time.Minute)
		}, func(ctx context.Context, c *zktest.Cluster, _, leader kafka.BrokerID) error {
			return c.Skew(ctx, leader, 0)
		}, true},
		{"Bounce", func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error {
			before := c.ZooKeeper.SessionOf(fmt.Sprintf("/brokers/ids/%d", id))
			if err := c.Bounce(ctx, id); err != nil {
				return err
			}
			return c.Await(ctx, func() bool {
				s := c.ZooKeeper.SessionOf(fmt.Sprintf("/brokers/ids/%d", id))
				return s != 0 && s != before
			})
		}, func(context.Context, *zktest.Cluster, kafka.BrokerID, kafka.BrokerID) error { return nil }, true},
		{"ExpireBroker", func(ctx context.Context, c *zktest.Cluster, id, _ kafka.BrokerID) error {
			c.ExpireBroker(id)
			return c.Await(ctx, func() bool { return c.Registered(id) })
		}, func(context.Context, *zktest.Cluster, kafka.BrokerID, kafka.BrokerID) error { return nil }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := zktest.StartCluster(t, zktest.InMemory(), zktest.Release("3.9"), zktest.Topic("t", 1, 3))
				ctx := t.Context()
				leader := c.Leader("t", 0)
				follower := leader%3 + 1
				client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.Dialer(c.DialKafka), kgo.DefaultProduceTopic("t"), kgo.UnknownTopicRetries(-1))
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				in := func(want bool) {
					t.Helper()
					if err := client.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil { // acks=all
						t.Fatal(err)
					}
					if err := c.Await(ctx, func() bool { p, _ := c.Partition("t", 0); return slices.Contains(p.ISR, follower) == want }); err != nil {
						t.Fatal(err)
					}
				}
				in(true)
				if err := tc.begin(ctx, c, follower, leader); err != nil {
					t.Fatal(err)
				}
				in(tc.stays)
				if err := tc.heal(ctx, c, follower, leader); err != nil {
					t.Fatal(err)
				}
				in(true)
			})
		})
	}
}
