package controller

import (
	"context"
	"fmt"
	"strings"

	"github.com/zkcontroller/zkcontroller/events"
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

// brokerConfigChanged asks for elections where an unclean one may help now.
func (c *Controller) brokerConfigChanged(ctx context.Context) error {
	was := c.uncleanDefault()
	if err := c.loadBrokerConfigs(ctx); err != nil {
		return err
	}
	if was || !c.uncleanDefault() {
		return nil
	}
	c.log.Info("unclean leader elections are allowed by default now")
	c.queue.Put(events.UncleanElectionEnabled{})
	return nil
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

// onConfigChange reads the notifications that came since the last look and asks
// for elections where the configuration of a topic, or the brokers', now allows
// unclean ones (spec/controller.md §7.14). The notifications stay: brokers purge
// them. One that could not be followed counts as unseen, and the look is repeated.
func (c *Controller) onConfigChange(ctx context.Context) error {
	list, err := c.listWatched(ctx, zkpaths.ConfigChanges)
	if err != nil || list.Code == zkpaths.NoNode {
		return err
	}
	if list.Code != zkpaths.OK {
		return c.denied(zkpaths.ConfigChanges, list)
	}
	c.repaired(zkpaths.ConfigChanges)
	c.goneExcept(zkpaths.ConfigChanges, list.Children)
	var fresh []string
	for _, name := range list.Children {
		if _, ok := zkpaths.SequenceNumber(zkpaths.ConfigChangePath(name), zkpaths.ConfigChangePrefix); ok && !c.configs.seen[name] {
			fresh = append(fresh, name)
		}
	}
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, fresh, zkpaths.ConfigChangePath, false))
	if err != nil {
		return err
	}
	seen, followed := setOf(list.Children), map[string]bool{}
	var failed error
	for i, n := range nodes {
		err := c.followConfigChange(ctx, zkpaths.ConfigChangePath(fresh[i]), n, followed)
		if isFatal(err) {
			return err
		}
		if err != nil {
			delete(seen, fresh[i])
			failed = err
		}
	}
	c.configs.seen = seen
	return failed
}

// followConfigChange looks at the entity that a notification names, unless it
// is among those followed already.
func (c *Controller) followConfigChange(ctx context.Context, path string, n zkpaths.Node, followed map[string]bool) error {
	switch n.Code {
	case zkpaths.OK:
	case zkpaths.NoNode:
		return nil // purged
	default:
		return c.denied(path, n)
	}
	change, err := zkpaths.DecodeConfigChange(path, n.Data)
	if err != nil {
		c.report(err)
		return nil
	}
	c.repaired(path)
	entity := change.EntityPath
	topic, isTopic := strings.CutPrefix(entity, "topics/")
	switch {
	case followed[entity]:
		return nil
	case entity == defaultBroker, zkpaths.EntityConfigPath(entity) == zkpaths.BrokerConfigPath(c.opts.ID):
		err = c.brokerConfigChanged(ctx)
	case isTopic && c.state.Topic(topic) != nil:
		err = c.topicConfigChanged(ctx, topic)
	}
	followed[entity] = err == nil
	return err
}

func (c *Controller) topicConfigChanged(ctx context.Context, topic string) error {
	path := zkpaths.TopicConfigPath(topic)
	n, err := c.readOne(ctx, zkpaths.GetData, path, false)
	if err != nil || n.Code == zkpaths.NoNode {
		return err
	}
	if n.Code != zkpaths.OK {
		return c.denied(path, n)
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
	c.queue.Put(events.TopicUncleanElectionEnabled{Topic: topic})
	return nil
}

// onUncleanElectionEnabled elects leaders for what has none, of one topic or of
// all ("") (spec/controller.md §7.14). Whether an election may be unclean is
// looked up then: this event is only the occasion.
func (c *Controller) onUncleanElectionEnabled(ctx context.Context, topic string) error {
	_, err := c.triggerOnline(ctx, topic)
	return err
}
