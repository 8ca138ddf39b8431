package endpoint

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// describeConfigs: spec/admin-api.md §7.3. Topics are answered from their znode;
// we have no configuration of a broker, and so no defaults, but for the one that
// kafka-topics cannot do without.
func (e *Endpoint) describeConfigs(ctx context.Context, req *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, r := range req.Resources {
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		set, source, err := e.resourceConfigs(ctx, r)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		why := rowOf(err)
		out.ErrorCode, out.ErrorMessage = int16(why.Error), message(why)
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if wantsConfig(r, name) {
				out.Configs = append(out.Configs, configEntry(req, name, set[name], source))
			}
		}
		if _, ok := set[minISR]; !ok && err == nil && r.ResourceType == kmsg.ConfigResourceTypeTopic && wantsConfig(r, minISR) {
			out.Configs = append(out.Configs, configEntry(req, minISR, "1", kmsg.ConfigSourceDefaultConfig))
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

// minISR is what kafka-topics --describe compares the ISR with.
const minISR = "min.insync.replicas"

func wantsConfig(r kmsg.DescribeConfigsRequestResource, name string) bool {
	return r.ConfigNames == nil || slices.Contains(r.ConfigNames, name)
}

// resourceConfigs gives what is set on one resource, and where it is set. An
// error wraps the code to answer.
func (e *Endpoint) resourceConfigs(ctx context.Context, r kmsg.DescribeConfigsRequestResource) (map[string]string, kmsg.ConfigSource, error) {
	switch r.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if why := kafka.ValidTopicName(r.ResourceName); why != "" {
			return nil, 0, &Refusal{refuse(kafka.InvalidTopicException, "%s", why)}
		}
		if err := e.reads.enter(ctx); err != nil {
			return nil, 0, err
		}
		defer e.reads.leave()
		set, err := e.configs.Topic(ctx, r.ResourceName)
		return set, kmsg.ConfigSourceDynamicTopicConfig, err
	case kmsg.ConfigResourceTypeBroker:
		if r.ResourceName == "" {
			if err := e.reads.enter(ctx); err != nil {
				return nil, 0, err
			}
			defer e.reads.leave()
			set, err := e.configs.BrokerDefaults(ctx)
			return set, kmsg.ConfigSourceDynamicDefaultBrokerConfig, err
		}
		if why := e.ownBroker(r.ResourceName); why.Error != kafka.NoError {
			return nil, 0, &Refusal{why}
		}
		return nil, 0, nil
	}
	return nil, 0, &Refusal{refuse(kafka.InvalidRequest, "resources of type %d have no configuration here", r.ResourceType)}
}

// Refusal is a row's code and message as an error.
type Refusal struct{ events.RowError }

// Error is the message.
func (r *Refusal) Error() string { return r.Message }

// Unwrap gives the code.
func (r *Refusal) Unwrap() error { return r.RowError.Error }

// Refuse makes a Refusal.
func Refuse(code kafka.ErrorCode, format string, args ...any) error {
	return &Refusal{refuse(code, format, args...)}
}

// ownBroker refuses a broker resource that is not our own.
func (e *Endpoint) ownBroker(name string) events.RowError {
	if name == strconv.Itoa(int(e.id)) {
		return events.RowError{}
	}
	return refuse(kafka.InvalidRequest, "this is node %d, which does not serve the configuration of broker %q; ask that broker", e.id, name)
}

func configEntry(req *kmsg.DescribeConfigsRequest, name, value string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.Source, c.ConfigType = name, new(value), source, configType(name)
	c.IsDefault = source == kmsg.ConfigSourceDefaultConfig
	if req.IncludeSynonyms {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Value, s.Source = name, new(value), source
		c.ConfigSynonyms = append(c.ConfigSynonyms, s)
	}
	return c
}

// configType is Kafka's number of a configuration's type, 0 if we do not know it.
func configType(name string) kmsg.ConfigType {
	c, _ := kafka.TopicConfigFor(name)
	return kmsg.ConfigType(c.Type)
}
