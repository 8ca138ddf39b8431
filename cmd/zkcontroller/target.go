package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/config"
)

// target is where a tool acts: on ZooKeeper, or through brokers.
type target struct{ timeout time.Duration }

func targetFlags(cmd *cobra.Command) *target {
	t := &target{}
	zookeeperFlag(cmd.Flags())
	keyFlag(cmd.Flags(), "bootstrap-server", "bootstrap.servers", "HOST:PORT of brokers, several with commas between")
	keyFlag(cmd.Flags(), "inter-broker-protocol-version", "inter.broker.protocol.version", "what the cluster's znodes may contain")
	cmd.Flags().DurationVar(&t.timeout, "timeout", 30*time.Second, "give up after this")
	return t
}

// act loads the configuration and calls one of the two with a time limit. With
// neither flag, ZooKeeper comes first if both are configured.
func (t *target) act(cmd *cobra.Command, onZooKeeper func(context.Context, *config.Config, znodes) error, onBrokers func(context.Context, *kgo.Client) error) error {
	c, log, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	zk, brokers := cmd.Flags().Changed("zookeeper"), cmd.Flags().Changed("bootstrap-server")
	switch {
	case zk && brokers:
		return usageError("give --zookeeper or --bootstrap-server, not both")
	case !zk && !brokers:
		zk, brokers = c.ZooKeeperConnect != "", c.ZooKeeperConnect == "" && c.BootstrapServers != ""
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), t.timeout,
		fmt.Errorf("no answer within %v (--timeout): %w", t.timeout, context.DeadlineExceeded))
	defer cancel()
	switch {
	case zk && onZooKeeper == nil:
		return usageError("this works only through brokers: give --bootstrap-server")
	case zk:
		if err := needZooKeeper(c); err != nil {
			return err
		}
		z, closeZK, err := dialZooKeeper(ctx, c, log)
		if err != nil {
			return timedOut(ctx, err)
		}
		defer closeZK()
		return timedOut(ctx, onZooKeeper(ctx, c, z))
	case brokers && onBrokers == nil:
		return usageError("this works only on znodes: give --zookeeper")
	case brokers:
		client, err := kafkaClient(c.BootstrapServers, t.timeout)
		if err != nil {
			return err
		}
		defer client.Close()
		return timedOut(ctx, onBrokers(ctx, client))
	}
	return usageError("no cluster: give --zookeeper or --bootstrap-server")
}

// timedOut makes an error that came of the time limit say so.
func timedOut(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) && exitCode(err) != 2 {
		return withCode(3, fmt.Errorf("%w: %w", context.Cause(ctx), err))
	}
	return err
}

func withTopics(cmd *cobra.Command, t *target, do func(context.Context, topicAdmin) error) error {
	return t.act(cmd, func(ctx context.Context, c *config.Config, z znodes) error {
		v, err := protocolVersion(c)
		if err != nil {
			return err
		}
		return do(ctx, zkTopics{z: z, version: v, random: randomIndex,
			defaultPartitions: int(c.NumPartitions), defaultReplication: int(c.DefaultReplication)})
	}, func(ctx context.Context, client *kgo.Client) error {
		return do(ctx, requestTopics{client: client, timeout: t.timeout})
	})
}
