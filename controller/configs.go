package controller

import (
	"context"
	"fmt"
	"strings"

	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// configWatch remembers how far /config/changes was read. In the original each
// broker watches it and tells its controller part; a controller on its own has
// to watch it itself (spec/admin-api.md §7.1).
type configWatch struct {
	// seen are the notifications that were there at the last look. Names, not the
	// highest number: a name somebody made up must not hide all later ones.
	seen map[string]bool
	// unclean is what brokers/<default> and brokers/<our id> say about unclean
	// elections; nil when they say nothing.
	unclean *bool
}

// defaultBroker is the entity that stands for all brokers.
const defaultBroker = "brokers/<default>"

// uncleanDefault tells whether topics without a word of their own may be led
// from outside the ISR: by what tools set at run time for this process, else
// for all, else by its own configuration (spec/controller.md §7.14).
func (c *Controller) uncleanDefault() bool {
	if c.configs.unclean != nil {
		return *c.configs.unclean
	}
	return c.opts.UncleanElection
}

// loadBrokerConfigs reads what tools set at run time. Unreadable nodes are
// reported and say nothing.
func (c *Controller) loadBrokerConfigs(ctx context.Context) error {
	paths := []string{zkpaths.EntityConfigPath(defaultBroker), zkpaths.BrokerConfigPath(c.opts.ID)}
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, paths, func(p string) string { return p }, false))
	if err != nil {
		return fmt.Errorf("loading the configuration of brokers: %w", err)
	}
	c.configs.unclean = nil
	for i, n := range nodes {
		if n.Code != zkpaths.OK {
			continue
		}
		config, err := zkpaths.DecodeConfig(paths[i], n.Data)
		if err != nil {
			c.report(err)
			continue
		}
		c.repaired(paths[i])
		if value, ok := config[uncleanKey]; ok {
			allowed := value == "true"
			c.configs.unclean = &allowed
		}
	}
	return nil
}

// brokerConfigChanged lets partitions elect that an unclean election may help now.
func (c *Controller) brokerConfigChanged(ctx context.Context) error {
	was := c.uncleanDefault()
	if err := c.loadBrokerConfigs(ctx); err != nil {
		return err
	}
	if was || !c.uncleanDefault() {
		return nil
	}
	c.log.Info("unclean leader elections are allowed by default now")
	_, err := c.triggerOnline(ctx, "")
	return err
}

// startConfigWatch arms the watch. What is there already needs no handling: a
// new controller reads a topic's configuration when an election depends on it.
func (c *Controller) startConfigWatch(ctx context.Context) error {
	n, err := c.listWatched(ctx, zkpaths.ConfigChanges)
	if err != nil {
		return err
	}
	if n.Code != zkpaths.OK && n.Code != zkpaths.NoNode {
		return c.denied(zkpaths.ConfigChanges, n)
	}
	c.repaired(zkpaths.ConfigChanges)
	c.configs.seen = setOf(n.Children)
	return c.brokerConfigChanged(ctx) // it may have changed since it was loaded, unseen
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// onConfigChange reads the notifications that came since the last look and lets
// partitions elect whose configuration, or the brokers', now allows unclean
// elections (spec/controller.md §7.14). The notifications stay: brokers purge them.
func (c *Controller) onConfigChange(ctx context.Context) error {
	list, err := c.listWatched(ctx, zkpaths.ConfigChanges)
	if err != nil || list.Code == zkpaths.NoNode {
		return err
	}
	if list.Code != zkpaths.OK {
		return c.denied(zkpaths.ConfigChanges, list)
	}
	c.repaired(zkpaths.ConfigChanges)
	var fresh []string
	for _, name := range list.Children {
		path := zkpaths.ConfigChangePath(name)
		if _, ok := zkpaths.SequenceNumber(path, zkpaths.ConfigChangePrefix); ok && !c.configs.seen[name] {
			fresh = append(fresh, path)
		}
	}
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, fresh, func(p string) string { return p }, false))
	if err != nil {
		return err
	}
	c.configs.seen = setOf(list.Children)
	topics := map[string]bool{}
	for i, n := range nodes {
		if n.Code != zkpaths.OK {
			continue
		}
		change, err := zkpaths.DecodeConfigChange(fresh[i], n.Data)
		if err != nil {
			c.report(err)
			continue
		}
		if change.EntityPath == defaultBroker || zkpaths.EntityConfigPath(change.EntityPath) == zkpaths.BrokerConfigPath(c.opts.ID) {
			if err := c.brokerConfigChanged(ctx); err != nil {
				return err
			}
		}
		if name, ok := strings.CutPrefix(change.EntityPath, "topics/"); ok && !topics[name] && c.state.Topic(name) != nil {
			topics[name] = true
			if err := c.topicConfigChanged(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Controller) topicConfigChanged(ctx context.Context, topic string) error {
	path := zkpaths.TopicConfigPath(topic)
	n, err := c.readOne(ctx, zkpaths.GetData, path, false)
	if err != nil || n.Code != zkpaths.OK {
		return err
	}
	config, err := zkpaths.DecodeConfig(path, n.Data)
	if err != nil {
		c.report(err)
		return nil
	}
	c.repaired(path)
	if config[uncleanKey] != "true" {
		return nil
	}
	c.log.WithField("topic", topic).Info("unclean leader elections are allowed for the topic now")
	return c.onTopicUncleanElectionEnabled(ctx, topic)
}
