package brokerport

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// metadata answers at once, unless topics are to be created for it.
func (l *Listener) metadata(ctx context.Context, r *wire.Request) error {
	req, ok := r.Kafka.(*kmsg.MetadataRequest)
	if !ok {
		return fmt.Errorf("request %T under key %d", r.Kafka, r.Key)
	}
	create := l.toCreate(req)
	if len(create) == 0 {
		return quick(func(l *Listener, ctx context.Context, req *kmsg.MetadataRequest) (kmsg.Response, error) {
			return endpoint.AnswerMetadata(ctx, req, l.name, l.look)
		})(l, ctx, r)
	}
	return slow(func(l *Listener, ctx context.Context, req *kmsg.MetadataRequest) (kmsg.Response, error) {
		codes := map[string]kafka.ErrorCode{}
		for _, name := range create {
			codes[name] = l.createTopic(ctx, l.planned(name))
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		return endpoint.AnswerMetadata(ctx, req, l.name, func(ctx context.Context, refs []events.TopicRef, all bool) (events.Cluster, error) {
			c, err := l.look(ctx, refs, all)
			for i := range c.Topics {
				if code, ok := codes[c.Topics[i].Name]; ok && c.Topics[i].Error == kafka.UnknownTopicOrPartition {
					c.Topics[i].Error = code
				}
			}
			return c, err
		})
	})(l, ctx, r)
}

// maxCreated is how many topics one Metadata request creates at most: a client
// that wants more asks again.
const maxCreated = 100

// toCreate gives the topics that a request names, that do not exist, and that
// may be created for it (spec/admin-api.md §8).
func (l *Listener) toCreate(req *kmsg.MetadataRequest) []string {
	if l.store == nil || l.node.Options().Logs == nil || req.Version >= 4 && !req.AllowAutoTopicCreation || !l.settings.bool("auto.create.topics.enable") {
		return nil
	}
	var names []string
	for _, t := range req.Topics {
		if t.Topic == nil || t.TopicID != [16]byte{} || kafka.ValidTopicName(*t.Topic) != "" || l.node.Metadata().Topic(*t.Topic) != nil ||
			slices.Contains(names, *t.Topic) {
			continue
		}
		if names = append(names, *t.Topic); len(names) == maxCreated {
			break
		}
	}
	return names
}

func (l *Listener) describeCluster(ctx context.Context, req *kmsg.DescribeClusterRequest) (kmsg.Response, error) {
	return endpoint.AnswerDescribeCluster(ctx, req, l.name, l.look)
}

// look is endpoint.Look: what the last UpdateMetadata requests told.
func (p *Port) look(ctx context.Context, refs []events.TopicRef, all bool) (events.Cluster, error) {
	return Cluster(p.node.Metadata(), p.clusterID(ctx), refs, all), nil
}

// Cluster describes the cluster as a broker's metadata cache has it, with the
// topics that are named or all of them.
func Cluster(cache *brokers.MetadataCache, id string, refs []events.TopicRef, all bool) events.Cluster {
	c := events.Cluster{ID: id, Brokers: cache.Brokers()}
	c.Controller, _, _ = cache.Controller()
	if all {
		for _, t := range cache.Topics() {
			c.Topics = append(c.Topics, described(t))
		}
	}
	for _, r := range refs {
		t := cache.Topic(r.Name)
		if !r.ID.IsZero() {
			t = cache.TopicByID(r.ID)
		}
		if t == nil {
			c.Topics = append(c.Topics, events.TopicDescription{Error: kafka.UnknownTopicOrPartition, Name: r.Name, ID: r.ID})
		} else {
			c.Topics = append(c.Topics, described(t))
		}
	}
	return c
}

func described(t *brokers.TopicMetadata) events.TopicDescription {
	d := events.TopicDescription{Name: t.Name, ID: t.ID, Partitions: make([]control.PartitionState, len(t.Partitions))}
	for i, p := range t.Partitions {
		d.Partitions[i] = *p
	}
	return d
}

// partitionOf gives what the metadata cache has of a partition, or nil.
func (p *Port) partitionOf(tp kafka.TopicPartition) *control.PartitionState {
	t := p.node.Metadata().Topic(tp.Topic)
	if t == nil {
		return nil
	}
	return findPartition(t, tp.Partition)
}

func findPartition(t *brokers.TopicMetadata, n int32) *control.PartitionState {
	if n >= 0 && int(n) < len(t.Partitions) && t.Partitions[n].Partition == n { // hardly ever are there holes
		return t.Partitions[n]
	}
	for _, p := range t.Partitions {
		if p.Partition == n {
			return p
		}
	}
	return nil
}
