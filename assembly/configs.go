package assembly

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// topicConfigs is the endpoint's way to configurations: any broker reads and
// writes them itself, the controller's loop is not asked (spec/admin-api.md §7).
type topicConfigs struct {
	session *atomic.Pointer[zkstore.Session]
}

// Topic gives the keys set for a topic.
func (r topicConfigs) Topic(ctx context.Context, topic string) (map[string]string, error) {
	nodes, err := r.session.Load().Read(ctx, []zkpaths.Read{{Op: zkpaths.Exists, Path: zkpaths.TopicPath(topic)},
		{Op: zkpaths.GetData, Path: zkpaths.TopicConfigPath(topic)}})
	if err != nil {
		return nil, fmt.Errorf("read the configuration of topic %s: %w", topic, err)
	}
	if nodes[0].Code == zkpaths.NoNode {
		return nil, fmt.Errorf("topic %s: %w", topic, kafka.UnknownTopicOrPartition)
	}
	return configOf(zkpaths.TopicConfigPath(topic), nodes[1])
}

// AlterTopic replaces a topic's keys and tells all brokers.
func (r topicConfigs) AlterTopic(ctx context.Context, topic string, change func(map[string]string) (map[string]string, error)) error {
	return AlterTopicConfig(ctx, r.session.Load(), topic, change)
}

// BrokerDefaults gives the dynamic configuration of all brokers.
func (r topicConfigs) BrokerDefaults(ctx context.Context) (map[string]string, error) {
	nodes, err := r.session.Load().Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: allBrokers}})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", allBrokers, err)
	}
	return configOf(allBrokers, nodes[0])
}

// allBrokers has the dynamic configuration of all brokers.
const allBrokers = zkpaths.ConfigBrokers + "/" + zkpaths.DefaultEntity

// BrokerKeys are the keys that it may have.
func (topicConfigs) BrokerKeys() endpoint.ConfigKeys { return brokerport.KeysOfAllBrokers() }

// AlterBrokerDefaults replaces that, and tells all brokers.
func (r topicConfigs) AlterBrokerDefaults(ctx context.Context, change func(map[string]string) (map[string]string, error)) error {
	return alterConfig(ctx, r.session.Load(), allBrokers, "brokers/"+zkpaths.DefaultEntity, zkpaths.ConfigBrokers, change)
}

func configOf(path string, n zkpaths.Node) (map[string]string, error) {
	if n.Code == zkpaths.NoNode {
		return nil, nil
	}
	if err := n.Error(path); err != nil {
		return nil, err
	}
	return zkpaths.DecodeConfig(path, n.Data)
}

// AlterTopicConfig changes a topic's overrides and announces it.
func AlterTopicConfig(ctx context.Context, z Znodes, topic string, change func(map[string]string) (map[string]string, error)) error {
	return alterConfig(ctx, z, zkpaths.TopicConfigPath(topic), "topics/"+zkpaths.SanitizeEntity(topic), zkpaths.TopicPath(topic), change)
}

// alterConfig changes what is set at path under the version that was read, and
// again if somebody wrote first, then announces entity. Without the node that is
// named owner there is nothing to configure (spec/admin-api.md §7.1).
func alterConfig(ctx context.Context, z Znodes, path, entity, owner string, change func(map[string]string) (map[string]string, error)) error {
	for range 10 {
		nodes, err := z.Read(ctx, []zkpaths.Read{{Op: zkpaths.Exists, Path: owner}, {Op: zkpaths.GetData, Path: path}})
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if nodes[0].Code == zkpaths.NoNode {
			return fmt.Errorf("%s is not there: %w", owner, kafka.UnknownTopicOrPartition)
		}
		have, err := configOf(path, nodes[1])
		if err != nil {
			return err
		}
		config, err := change(have)
		if err != nil {
			return err
		}
		w := zkpaths.Write{Op: zkpaths.Set, Path: path, Data: zkpaths.EncodeConfig(config), Version: nodes[1].Stat.Version}
		if nodes[1].Code == zkpaths.NoNode {
			w.Op = zkpaths.Create
		}
		out, err := z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{w})
		if err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		switch out[0].Code {
		case zkpaths.OK:
			return AnnounceConfig(ctx, z, entity)
		case zkpaths.BadVersion, zkpaths.NodeExists, zkpaths.NoNode: // somebody was faster
		default:
			return out[0].Error(path)
		}
	}
	return errors.New(path + ": somebody else changes it all the time; try again")
}

// AnnounceConfig tells all brokers that an entity, such as topics/orders, has
// another configuration.
func AnnounceConfig(ctx context.Context, z Znodes, entity string) error {
	note := zkpaths.EncodeConfigChange(zkpaths.ConfigChange{EntityPath: entity})
	out, err := z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.CreateSequential, Path: zkpaths.ConfigChangePrefix, Data: note}})
	if err != nil {
		return fmt.Errorf("announce the change below %s: %w", zkpaths.ConfigChanges, err)
	}
	return out[0].Error(zkpaths.ConfigChanges)
}
