package brokerport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Changing configurations: any broker changes those of topics and of all
// brokers, and each its own (spec/admin-api.md §7.1, §7.2).

func (l *Listener) incrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) (kmsg.Response, error) {
	return endpoint.AnswerIncrementalAlterConfigs(ctx, req, l.alterConfig)
}

func (l *Listener) alterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest) (kmsg.Response, error) {
	return endpoint.AnswerAlterConfigs(ctx, req, l.alterConfig)
}

// alterConfig changes one resource. An error wraps the code to answer.
func (p *Port) alterConfig(ctx context.Context, c endpoint.ConfigChange, validateOnly bool) error {
	e := entity{keys: p.brokerKeys()}
	switch {
	case c.Type == kmsg.ConfigResourceTypeTopic:
		if err := endpoint.CheckTopicResource(c.Name); err != nil {
			return err
		}
		if p.node.Metadata().Topic(c.Name) == nil {
			return endpoint.Refuse(kafka.UnknownTopicOrPartition, "there is no topic %q", c.Name)
		}
		e = entity{name: "topics/" + zkpaths.SanitizeEntity(c.Name), path: zkpaths.TopicConfigPath(c.Name), topic: c.Name, keys: p.topicChecks()}
	case c.Type == kmsg.ConfigResourceTypeBroker && c.Name == "":
		e.name, e.path = "brokers/"+zkpaths.DefaultEntity, defaultBrokerPath
	case c.Type == kmsg.ConfigResourceTypeBroker:
		if err := p.ownName(c.Name); err != nil {
			return err
		}
		e.name, e.path = "brokers/"+strconv.Itoa(int(p.node.ID())), zkpaths.BrokerConfigPath(p.node.ID())
	default:
		return endpoint.Refuse(kafka.InvalidRequest, "resources of type %d have no configuration that can be changed here", c.Type)
	}
	return p.atZooKeeper(ctx, func() error { return p.alterEntity(ctx, e, c, validateOnly) })
}

// entity is what has a configuration in ZooKeeper.
type entity struct {
	name, path string // below /config, and whole
	topic      string // that must exist; "": none
	keys       endpoint.ConfigKeys
}

// alterEntity changes an entity under the version that was read, and again if
// somebody wrote first, then announces it.
func (p *Port) alterEntity(ctx context.Context, e entity, c endpoint.ConfigChange, validateOnly bool) error {
	reads := []zkpaths.Read{{Op: zkpaths.GetData, Path: e.path}}
	if e.topic != "" {
		reads = append(reads, zkpaths.Read{Op: zkpaths.Exists, Path: zkpaths.TopicPath(e.topic)})
	}
	for range tries {
		nodes, err := p.store.Read(ctx, reads)
		if err != nil {
			return fmt.Errorf("read %s: %w", e.path, err)
		}
		if e.topic != "" && nodes[1].Code == zkpaths.NoNode {
			return endpoint.Refuse(kafka.UnknownTopicOrPartition, "there is no topic %q", e.topic)
		}
		have, err := configOf(e.path, nodes[0])
		if err != nil {
			return err
		}
		set, err := c.Apply(have, e.keys)
		if err != nil || validateOnly {
			return err
		}
		w := zkpaths.Write{Op: zkpaths.Set, Path: e.path, Data: zkpaths.EncodeConfig(set), Version: nodes[0].Stat.Version}
		if nodes[0].Code == zkpaths.NoNode {
			w.Op = zkpaths.Create
		}
		out, err := p.store.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{w})
		if err != nil {
			return fmt.Errorf("write %s: %w", e.path, err)
		}
		switch out[0].Code {
		case zkpaths.OK:
			return p.announce(ctx, e.name)
		case zkpaths.BadVersion, zkpaths.NodeExists: // somebody was faster
		case zkpaths.NoNode: // deleted just now, or the first of its kind
			if err := p.makeParent(ctx, e.path); err != nil {
				return err
			}
		default:
			return out[0].Error(e.path)
		}
	}
	return errors.New(e.path + ": somebody else changes it all the time; try again")
}

// makeParent creates what an entity's node stands below, if it is not there.
func (p *Port) makeParent(ctx context.Context, path string) error {
	parent := path[:strings.LastIndexByte(path, '/')]
	out, err := p.store.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Create, Path: zkpaths.Config}, {Op: zkpaths.Create, Path: parent}})
	if err != nil {
		return fmt.Errorf("create %s: %w", parent, err)
	}
	if out[1].Code == zkpaths.OK || out[1].Code == zkpaths.NodeExists {
		return nil
	}
	return out[1].Error(parent)
}

// announce tells all brokers that an entity, such as topics/orders, has another
// configuration.
func (p *Port) announce(ctx context.Context, name string) error {
	note := zkpaths.EncodeConfigChange(zkpaths.ConfigChange{EntityPath: name})
	out, err := p.store.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.CreateSequential, Path: zkpaths.ConfigChangePrefix, Data: note}})
	if err != nil {
		return fmt.Errorf("announce the change below %s: %w", zkpaths.ConfigChanges, err)
	}
	return out[0].Error(zkpaths.ConfigChanges)
}

// topicChecks are the configurations of topics that the broker's release has.
func (p *Port) topicChecks() endpoint.ConfigKeys {
	all, keys := endpoint.TopicKeys(), topicKeys(p.node.Options().Release)
	find, check := all.Find, all.Check
	all.Find = func(name string) (string, bool, bool) {
		def, list, known := find(name)
		return def, list, known && slices.Contains(keys, name)
	}
	all.Check = func(set map[string]string) events.RowError {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if !slices.Contains(keys, name) {
				return events.RowError{Error: kafka.InvalidConfig, Message: fmt.Sprintf("there is no topic configuration %q here", name)}
			}
		}
		return check(set)
	}
	return all
}

// brokerKeys are the configurations of brokers, of one or of all. Keys that Kafka
// does not know are stored: they may be a plug-in's. What Kafka changes at run time
// and has no effect here is refused, but for throttles: they are kept for tools that
// set and remove them around a move, which here goes on at full speed.
func (p *Port) brokerKeys() endpoint.ConfigKeys {
	table := brokerSettings()
	return endpoint.ConfigKeys{
		Find: func(name string) (string, bool, bool) {
			known, ok := table[name]
			return p.settings.text(name), known.kind == kmsg.ConfigTypeList, ok
		},
		Check: func(set map[string]string) events.RowError {
			for _, name := range slices.Sorted(maps.Keys(set)) {
				if why := checkBrokerKey(table, name, set[name]); why != "" {
					return events.RowError{Error: kafka.InvalidRequest, Message: why}
				}
			}
			return events.RowError{}
		},
		BadOperation: kafka.InvalidRequest,
	}
}

// KeysOfAllBrokers are the configurations that a controller lets be set for all
// brokers, which may be real ones: those, too, that have no effect on emulated ones.
func KeysOfAllBrokers() endpoint.ConfigKeys {
	table := brokerSettings()
	return endpoint.ConfigKeys{
		Find: func(name string) (string, bool, bool) {
			known, ok := table[name]
			return known.def, known.kind == kmsg.ConfigTypeList, ok
		},
		Check: func(set map[string]string) events.RowError {
			for _, name := range slices.Sorted(maps.Keys(set)) {
				if known := table[name]; known.idle && known.dynamic {
					continue
				}
				if why := checkBrokerKey(table, name, set[name]); why != "" {
					return events.RowError{Error: kafka.InvalidRequest, Message: why}
				}
			}
			return events.RowError{}
		},
		BadOperation: kafka.InvalidRequest,
	}
}

// checkBrokerKey tells why a key cannot be set so at run time, or "".
func checkBrokerKey(table map[string]setting, name, value string) string {
	known, ok := table[name]
	switch {
	case known.idle && known.dynamic, strings.HasPrefix(name, "listener.name."):
		return fmt.Sprintf("configuration %s means nothing to an emulated broker, so that it cannot be changed", name)
	case !ok:
		return ""
	case !known.dynamic:
		return fmt.Sprintf("configuration %s cannot be changed at run time", name)
	}
	if why := known.check(value); why != "" {
		return fmt.Sprintf("configuration %s: %s", name, why)
	}
	for topicKey, key := range inherited() {
		if key == name {
			if c, _ := kafka.TopicConfigFor(topicKey); c.Check(value) != "" {
				return fmt.Sprintf("configuration %s: %s", name, c.Check(value))
			}
		}
	}
	return ""
}
