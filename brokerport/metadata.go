package brokerport

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func (l *Listener) metadata(ctx context.Context, req *kmsg.MetadataRequest) (kmsg.Response, error) {
	return endpoint.AnswerMetadata(ctx, req, l.name, l.look)
}

func (l *Listener) describeCluster(ctx context.Context, req *kmsg.DescribeClusterRequest) (kmsg.Response, error) {
	return endpoint.AnswerDescribeCluster(ctx, req, l.name, l.look)
}

// look is endpoint.Look: what the last UpdateMetadata requests told.
func (p *Port) look(ctx context.Context, refs []events.TopicRef, all bool) (events.Cluster, error) {
	cache := p.node.Metadata()
	c := events.Cluster{ID: p.clusterID(ctx), Brokers: cache.Brokers()}
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
	return c, nil
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
