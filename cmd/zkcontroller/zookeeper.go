package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// storeOptions gives zkstore its part of the configuration.
func storeOptions(c *config.Config, log logrus.FieldLogger) (zkstore.Options, error) {
	servers, chroot, err := zkstore.ParseConnect(c.ZooKeeperConnect)
	if err != nil {
		return zkstore.Options{}, withCode(2, err)
	}
	if c.ZooKeeperSetACL && c.ZKDigest == "" { // every create would be refused, and nobody elected
		return zkstore.Options{}, usageError("zookeeper.set.acl=true needs an authenticated connection to ZooKeeper: give zkc.zk.digest=USER:PASSWORD (SASL is not supported), or set it to false")
	}
	opt := zkstore.Options{
		Servers: servers, Chroot: chroot, SessionTimeout: c.ZooKeeperSession, ConnectTimeout: c.ZooKeeperConnection,
		Batch: c.ZKBatch, SecureACL: c.ZooKeeperSetACL, Log: log,
	}
	if c.ZKDigest != "" {
		opt.Auth = []zkstore.Auth{{Scheme: "digest", Data: []byte(c.ZKDigest)}}
	}
	return opt, nil
}

// dialZooKeeper opens a session for a tool. Watches are not used.
func dialZooKeeper(ctx context.Context, c *config.Config, log logrus.FieldLogger) (znodes, func(), error) {
	opt, err := storeOptions(c, log)
	if err != nil {
		return nil, nil, err
	}
	s, err := zkstore.Dial(ctx, opt, func(zkpaths.Notice) {})
	if err != nil {
		return nil, nil, withCode(3, fmt.Errorf("reach ZooKeeper %s: %w", c.ZooKeeperConnect, err))
	}
	return s, func() {
		// The tool is done; a server that does not answer ends the session by itself.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			log.WithError(err).Debug("closing the ZooKeeper session")
		}
	}, nil
}
