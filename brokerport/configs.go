package brokerport

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// configured is where a configuration may be set, the strongest first
// (spec/admin-api.md §7.3).
type configured struct {
	source kmsg.ConfigSource
	set    map[string]string
}

// layers are the configurations of this broker: its own entity, that of all
// brokers, and what it was started with.
func (p *Port) layers(own, all map[string]string) []configured {
	return []configured{{kmsg.ConfigSourceDynamicBrokerConfig, own}, {kmsg.ConfigSourceDynamicDefaultBrokerConfig, all},
		{kmsg.ConfigSourceStaticBrokerConfig, p.settings}}
}

// describeConfigs: spec/admin-api.md §7.3.
func (l *Listener) describeConfigs(ctx context.Context, req *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for i := range req.Resources {
		r := &req.Resources[i]
		row := kmsg.NewDescribeConfigsResponseResource()
		row.ResourceType, row.ResourceName = r.ResourceType, r.ResourceName
		configs, err := l.resourceConfigs(ctx, r)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			row.ErrorCode, row.ErrorMessage = int16(codeOf(err)), new(err.Error())
		}
		for _, c := range configs {
			if !req.IncludeSynonyms {
				c.ConfigSynonyms = nil
			}
			if r.ConfigNames == nil || slices.Contains(r.ConfigNames, c.Name) {
				row.Configs = append(row.Configs, c)
			}
		}
		resp.Resources = append(resp.Resources, row)
	}
	return resp, nil
}

// resourceConfigs gives all of a resource, in order. An error wraps the code to
// answer.
func (p *Port) resourceConfigs(ctx context.Context, r *kmsg.DescribeConfigsRequestResource) ([]kmsg.DescribeConfigsResponseResourceConfig, error) {
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if why := kafka.ValidTopicName(r.ResourceName); why != "" {
			return nil, endpoint.Refuse(kafka.InvalidTopicException, "%s", why)
		}
		if p.node.Metadata().Topic(r.ResourceName) == nil {
			return nil, endpoint.Refuse(kafka.UnknownTopicOrPartition, "there is no topic %q", r.ResourceName)
		}
		sets, err := p.readConfigs(ctx, zkpaths.BrokerConfigPath(p.node.ID()), defaultBrokerPath, zkpaths.TopicConfigPath(r.ResourceName))
		if err != nil {
			return nil, err
		}
		return p.topicConfigs(sets[2], p.layers(sets[0], sets[1])), nil
	case kmsg.ConfigResourceTypeBroker:
		if r.ResourceName == "" {
			sets, err := p.readConfigs(ctx, defaultBrokerPath)
			if err != nil {
				return nil, err
			}
			return defaultEntityConfigs(sets[0]), nil
		}
		if err := p.ownName(r.ResourceName); err != nil {
			return nil, err
		}
		sets, err := p.readConfigs(ctx, zkpaths.BrokerConfigPath(p.node.ID()), defaultBrokerPath)
		if err != nil {
			return nil, err
		}
		return brokerConfigs(p.layers(sets[0], sets[1])), nil
	}
	return nil, endpoint.Refuse(kafka.InvalidRequest, "resources of type %d have no configuration here", r.ResourceType)
}

// defaultBrokerPath has what is set for all brokers.
const defaultBrokerPath = zkpaths.ConfigBrokers + "/" + zkpaths.DefaultEntity

// ownName refuses a broker resource that is not this broker.
func (p *Port) ownName(name string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return endpoint.Refuse(kafka.InvalidRequest, "%q is no broker's id", name)
	}
	if kafka.BrokerID(id) != p.node.ID() {
		return endpoint.Refuse(kafka.InvalidRequest, "this is broker %d, which does not serve the configuration of broker %d; ask that broker", p.node.ID(), id)
	}
	return nil
}

// readConfigs gives the configurations in nodes; missing ones are empty.
func (p *Port) readConfigs(ctx context.Context, paths ...string) ([]map[string]string, error) {
	reads := make([]zkpaths.Read, len(paths))
	for i, path := range paths {
		reads[i] = zkpaths.Read{Op: zkpaths.GetData, Path: path}
	}
	sets := make([]map[string]string, len(paths))
	err := p.atZooKeeper(ctx, func() error {
		nodes, err := p.store.Read(ctx, reads)
		if err != nil {
			return fmt.Errorf("read configurations: %w", err)
		}
		for i, path := range paths {
			if sets[i], err = configOf(path, nodes[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return sets, err
}

// topicConfigs shows a topic for which set is set.
func (p *Port) topicConfigs(set map[string]string, layers []configured) []kmsg.DescribeConfigsResponseResourceConfig {
	table, keys := brokerSettings(), inherited()
	var out []kmsg.DescribeConfigsResponseResourceConfig
	for _, name := range topicKeys(p.node.Options().Release) {
		known, _ := kafka.TopicConfigFor(name)
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.ConfigType, c.Source, c.IsDefault = name, kmsg.ConfigType(known.Type), kmsg.ConfigSourceDefaultConfig, true
		value := known.Default
		if version := p.node.Options().Version; name == "message.format.version" && version.Less(kafka.ProtocolVersion{Major: 3, IV: 1}) {
			value = version.String()
		}
		if key := keys[name]; key != "" {
			c.ConfigSynonyms = synonyms(table, key, layers)
			if len(c.ConfigSynonyms) > 0 && c.ConfigSynonyms[0].Source != kmsg.ConfigSourceDefaultConfig {
				value = *c.ConfigSynonyms[0].Value
			} else if v, ok := p.settings.inMilliseconds(key); ok { // in a larger unit
				value = v
			}
		}
		if own, ok := set[name]; ok {
			value = own
			s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			s.Name, s.Value, s.Source = name, new(own), kmsg.ConfigSourceDynamicTopicConfig
			c.ConfigSynonyms = slices.Insert(c.ConfigSynonyms, 0, s)
		}
		if len(c.ConfigSynonyms) > 0 {
			c.Source = c.ConfigSynonyms[0].Source
			c.IsDefault = c.Source == kmsg.ConfigSourceDefaultConfig
		}
		c.Value = &value
		out = append(out, c)
	}
	return out
}

type synonym = kmsg.DescribeConfigsResponseResourceConfigConfigSynonym

// synonyms gives what a broker's configuration is set to, and what it would be
// otherwise, the strongest first. Settings in larger units stand behind those in
// milliseconds, and are told only behind one in milliseconds, as brokers of 3.9 do.
func synonyms(table map[string]setting, key string, layers []configured) []synonym {
	names := []string{key}
	for _, c := range coarser[key] {
		names = append(names, c.name)
	}
	var out []synonym
	add := func(name, value string, source kmsg.ConfigSource) {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Value, s.Source = name, new(strings.TrimSpace(value)), source
		out = append(out, s)
	}
	for _, layer := range layers {
		for _, name := range names {
			if value, ok := layer.set[name]; ok {
				add(name, value, layer.source)
			}
		}
	}
	for _, name := range names {
		if known, ok := table[name]; ok && !known.null && !known.volatile {
			add(name, known.def, kmsg.ConfigSourceDefaultConfig)
		}
	}
	first := slices.IndexFunc(out, func(s synonym) bool { return s.Name == key })
	if first < 0 {
		return nil
	}
	return out[first:]
}

// brokerConfigs shows the broker itself: what it acts on, and what else is set. Of
// that, what is not known may be a secret.
func brokerConfigs(layers []configured) []kmsg.DescribeConfigsResponseResourceConfig {
	table := brokerSettings()
	names := map[string]bool{}
	for name, known := range table {
		names[name] = !known.volatile && !known.idle
	}
	for _, layer := range layers {
		for name := range layer.set {
			names[name] = true
		}
	}
	var out []kmsg.DescribeConfigsResponseResourceConfig
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if names[name] {
			out = append(out, brokerConfig(table, name, layers))
		}
	}
	return out
}

func brokerConfig(table map[string]setting, name string, layers []configured) kmsg.DescribeConfigsResponseResourceConfig {
	known, ok := table[name]
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.ConfigType, c.ReadOnly = name, known.kind, !known.dynamic && !known.fixed || known.idle
	c.IsSensitive = !ok || known.kind == kmsg.ConfigTypePassword
	c.Source, c.IsDefault = kmsg.ConfigSourceDefaultConfig, true
	c.ConfigSynonyms = synonyms(table, name, layers)
	if len(c.ConfigSynonyms) > 0 {
		first := c.ConfigSynonyms[0]
		c.Value, c.Source, c.IsDefault = first.Value, first.Source, first.Source == kmsg.ConfigSourceDefaultConfig
	}
	if c.IsSensitive {
		c.Value = nil
		for i := range c.ConfigSynonyms {
			c.ConfigSynonyms[i].Value = nil
		}
	}
	return c
}

// defaultEntityConfigs shows what is set for all brokers, and nothing else.
func defaultEntityConfigs(set map[string]string) []kmsg.DescribeConfigsResponseResourceConfig {
	table := brokerSettings()
	var out []kmsg.DescribeConfigsResponseResourceConfig
	for _, name := range slices.Sorted(maps.Keys(set)) {
		c := brokerConfig(table, name, []configured{{kmsg.ConfigSourceDynamicDefaultBrokerConfig, set}})
		out = append(out, c)
	}
	return out
}
