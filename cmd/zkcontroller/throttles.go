package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// What a throttled move leaves in the configurations, and "verify" takes away
// when no move is in progress, as Kafka's tool does.
var (
	topicThrottles  = []string{"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
	brokerThrottles = []string{"leader.replication.throttled.rate", "follower.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"}
)

// leftOver says what was taken away and where: "/config/topics/orders: ...".
func leftOver(where string, removed []string) string {
	return where + ": throttle left over, removed: " + strings.Join(removed, " ")
}

// dropByZnode removes the throttles of the topics and of all brokers, those
// that are not registered now included. What it removed comes back even with
// an error; entities after a failed one are still done.
func dropByZnode(ctx context.Context, z znodes, topics []string) (removed []string, err error) {
	names, err := children(ctx, z, zkpaths.ConfigBrokers)
	if err != nil {
		return nil, err
	}
	var failed []error
	drop := func(entity string, keys []string) {
		gone, err := dropConfig(ctx, z, entity, keys)
		if err != nil {
			failed = append(failed, err)
		}
		if len(gone) > 0 {
			removed = append(removed, leftOver(zkpaths.EntityConfigPath(entity), gone))
		}
	}
	for _, name := range names {
		if name != zkpaths.DefaultEntity { // what all brokers have in common is not a move's
			drop("brokers/"+name, brokerThrottles)
		}
	}
	for _, topic := range topics {
		drop("topics/"+topic, topicThrottles)
	}
	return removed, errors.Join(failed...)
}

// dropConfig removes keys of one entity's configuration under the version that
// was read, and announces that; without such keys it writes nothing.
func dropConfig(ctx context.Context, z znodes, entity string, keys []string) (removed []string, err error) {
	path := zkpaths.EntityConfigPath(entity)
	for range 10 {
		node, ok, err := get(ctx, z, path)
		if err != nil || !ok {
			return nil, err
		}
		config, err := zkpaths.DecodeConfig(path, node.Data)
		if err != nil {
			return nil, err
		}
		removed = nil
		for _, key := range keys {
			if value, ok := config[key]; ok {
				removed = append(removed, key+"="+value)
				delete(config, key)
			}
		}
		if removed == nil {
			return nil, nil
		}
		out, err := z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Set, Path: path, Data: zkpaths.EncodeConfig(config), Version: node.Stat.Version}})
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		switch out[0].Code {
		case zkpaths.OK:
			return removed, assembly.AnnounceConfig(ctx, z, entity)
		case zkpaths.BadVersion, zkpaths.NoNode: // somebody was faster
		default:
			return nil, out[0].Error(path)
		}
	}
	return nil, errors.New(path + ": somebody else changes it all the time; try again")
}

// dropByRequest does the same through brokers. Each broker's throttles are its
// own matter; one that knows no such requests, as emulated ones, has none.
func dropByRequest(ctx context.Context, client *kgo.Client, topics []string) (removed []string, err error) {
	brokers, err := metadataBrokers(ctx, client)
	if err != nil {
		return nil, err
	}
	var failed []error
	drop := func(at requester, kind kmsg.ConfigResourceType, name string, keys []string) {
		gone, err := dropConfigAt(ctx, at, kind, name, keys)
		what := strings.ToLower(kind.String()) + " " + name
		if err != nil {
			failed = append(failed, fmt.Errorf("throttles of %s: %w", what, err))
		}
		if len(gone) > 0 {
			removed = append(removed, leftOver(what, gone))
		}
	}
	for _, b := range brokers {
		at := client.Broker(int(b.ID))
		offers, err := ask[*kmsg.ApiVersionsResponse](ctx, at, kmsg.NewPtrApiVersionsRequest())
		if err != nil {
			failed = append(failed, fmt.Errorf("throttles of broker %d: %w", b.ID, err))
			continue
		}
		if slices.ContainsFunc(offers.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == int16(kmsg.IncrementalAlterConfigs) }) {
			drop(at, kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(b.ID)), brokerThrottles)
		}
	}
	at, err := requestTopics{client: client}.controller(ctx)
	if err != nil {
		return removed, errors.Join(append(failed, err)...)
	}
	for _, topic := range topics {
		drop(at, kmsg.ConfigResourceTypeTopic, topic, topicThrottles)
	}
	return removed, errors.Join(failed...)
}

// dropConfigAt deletes those of the keys that are set on this one resource.
func dropConfigAt(ctx context.Context, at requester, kind kmsg.ConfigResourceType, name string, keys []string) (removed []string, err error) {
	look := kmsg.NewPtrDescribeConfigsRequest()
	look.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	have, err := ask[*kmsg.DescribeConfigsResponse](ctx, at, look)
	if err != nil {
		return nil, err
	}
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kind, name
	for _, r := range have.Resources {
		if err := answered(r.ErrorCode, r.ErrorMessage); err != nil {
			return nil, err
		}
		for _, c := range r.Configs {
			// What all brokers have in common, or a file says, is not a move's.
			own := c.Source == kmsg.ConfigSourceDynamicTopicConfig || c.Source == kmsg.ConfigSourceDynamicBrokerConfig
			if !own || c.Value == nil || !slices.Contains(keys, c.Name) {
				continue
			}
			del := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			del.Name, del.Op = c.Name, kmsg.IncrementalAlterConfigOpDelete
			res.Configs = append(res.Configs, del)
			removed = append(removed, c.Name+"="+*c.Value)
		}
	}
	if removed == nil {
		return nil, nil
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	resp, err := ask[*kmsg.IncrementalAlterConfigsResponse](ctx, at, req)
	if err != nil {
		return nil, err
	}
	for _, r := range resp.Resources {
		if err := answered(r.ErrorCode, r.ErrorMessage); err != nil {
			return nil, err
		}
	}
	return removed, nil
}
