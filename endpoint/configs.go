package endpoint

import (
	"context"
	"errors"
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
		if err != nil {
			code := kafka.UnknownServerError
			errors.As(err, &code)
			out.ErrorCode, out.ErrorMessage = int16(code), new(err.Error())
		}
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
			return nil, 0, rowErr{refuse(kafka.InvalidTopicException, "%s", why)}
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
			return nil, 0, rowErr{why}
		}
		return nil, 0, nil
	}
	return nil, 0, rowErr{refuse(kafka.InvalidRequest, "resources of type %d have no configuration here", r.ResourceType)}
}

// rowErr is a row's code and message as an error.
type rowErr struct{ events.RowError }

func (r rowErr) Error() string { return r.Message }
func (r rowErr) Unwrap() error { return r.RowError.Error }

// ownBroker refuses a broker resource that is not our own.
func (e *Endpoint) ownBroker(name string) events.RowError {
	if name == strconv.Itoa(int(e.id)) {
		return events.RowError{}
	}
	return refuse(kafka.InvalidRequest, "this is node %d, which does not serve the configuration of broker %q; ask that broker", e.id, name)
}

func configEntry(req *kmsg.DescribeConfigsRequest, name, value string, source kmsg.ConfigSource) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.Source, c.ConfigType = name, new(value), source, configTypes[name]
	c.IsDefault = source == kmsg.ConfigSourceDefaultConfig
	if req.IncludeSynonyms {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Value, s.Source = name, new(value), source
		c.ConfigSynonyms = append(c.ConfigSynonyms, s)
	}
	return c
}

// alterConfigs and incrementalAlterConfigs take what tools set on every node of
// the broker list, throttles mostly, and do nothing: we replicate no logs
// (spec/control-plane.md §5.2).
func (e *Endpoint) alterConfigs(_ context.Context, req *kmsg.AlterConfigsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	for _, r := range req.Resources {
		row := kmsg.NewAlterConfigsResponseResource()
		row.ResourceType, row.ResourceName = r.ResourceType, r.ResourceName
		why := e.alterable(r.ResourceType, r.ResourceName)
		row.ErrorCode, row.ErrorMessage = int16(why.Error), message(why)
		resp.Resources = append(resp.Resources, row)
	}
	return resp, nil
}

func (e *Endpoint) incrementalAlterConfigs(_ context.Context, req *kmsg.IncrementalAlterConfigsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, r := range req.Resources {
		row := kmsg.NewIncrementalAlterConfigsResponseResource()
		row.ResourceType, row.ResourceName = r.ResourceType, r.ResourceName
		why := e.alterable(r.ResourceType, r.ResourceName)
		row.ErrorCode, row.ErrorMessage = int16(why.Error), message(why)
		resp.Resources = append(resp.Resources, row)
	}
	return resp, nil
}

func (e *Endpoint) alterable(kind kmsg.ConfigResourceType, name string) events.RowError {
	if kind == kmsg.ConfigResourceTypeBroker {
		return e.ownBroker(name)
	}
	return refuse(kafka.InvalidRequest, "the controller's port does not change the configuration of resources of type %d; ask a broker", kind)
}

// configTypes are the types of topic configurations (spec/admin-api.md §7.4);
// a key that is missing has no known type.
var configTypes = map[string]kmsg.ConfigType{
	"cleanup.policy":                          kmsg.ConfigTypeList,
	"compression.gzip.level":                  kmsg.ConfigTypeInt,
	"compression.lz4.level":                   kmsg.ConfigTypeInt,
	"compression.type":                        kmsg.ConfigTypeString,
	"compression.zstd.level":                  kmsg.ConfigTypeInt,
	"delete.retention.ms":                     kmsg.ConfigTypeLong,
	"file.delete.delay.ms":                    kmsg.ConfigTypeLong,
	"flush.messages":                          kmsg.ConfigTypeLong,
	"flush.ms":                                kmsg.ConfigTypeLong,
	"follower.replication.throttled.replicas": kmsg.ConfigTypeList,
	"index.interval.bytes":                    kmsg.ConfigTypeInt,
	"leader.replication.throttled.replicas":   kmsg.ConfigTypeList,
	"local.retention.bytes":                   kmsg.ConfigTypeLong,
	"local.retention.ms":                      kmsg.ConfigTypeLong,
	"max.compaction.lag.ms":                   kmsg.ConfigTypeLong,
	"max.message.bytes":                       kmsg.ConfigTypeInt,
	"message.downconversion.enable":           kmsg.ConfigTypeBoolean,
	"message.format.version":                  kmsg.ConfigTypeString,
	"message.timestamp.after.max.ms":          kmsg.ConfigTypeLong,
	"message.timestamp.before.max.ms":         kmsg.ConfigTypeLong,
	"message.timestamp.difference.max.ms":     kmsg.ConfigTypeLong,
	"message.timestamp.type":                  kmsg.ConfigTypeString,
	"min.cleanable.dirty.ratio":               kmsg.ConfigTypeDouble,
	"min.compaction.lag.ms":                   kmsg.ConfigTypeLong,
	"min.insync.replicas":                     kmsg.ConfigTypeInt,
	"preallocate":                             kmsg.ConfigTypeBoolean,
	"remote.log.copy.disable":                 kmsg.ConfigTypeBoolean,
	"remote.log.delete.on.disable":            kmsg.ConfigTypeBoolean,
	"remote.storage.enable":                   kmsg.ConfigTypeBoolean,
	"retention.bytes":                         kmsg.ConfigTypeLong,
	"retention.ms":                            kmsg.ConfigTypeLong,
	"segment.bytes":                           kmsg.ConfigTypeInt,
	"segment.index.bytes":                     kmsg.ConfigTypeInt,
	"segment.jitter.ms":                       kmsg.ConfigTypeLong,
	"segment.ms":                              kmsg.ConfigTypeLong,
	"unclean.leader.election.enable":          kmsg.ConfigTypeBoolean,
}
