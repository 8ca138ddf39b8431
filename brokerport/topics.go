package brokerport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Topics that a broker creates for a client, straight in ZooKeeper: the
// controller learns of them by its watches (spec/admin-api.md §8).

// newTopic is what such a topic is to be like.
type newTopic struct {
	name        string
	partitions  int
	replication int
	configs     map[string]string
}

// planned gives what a topic is like that is created because it was asked for.
func (p *Port) planned(name string) newTopic {
	if name == groups.Topic {
		t := p.settings.OffsetsTopic()
		return newTopic{name: name, partitions: int(t.Partitions), replication: int(t.ReplicationFactor), configs: t.Configs}
	}
	return newTopic{name: name, partitions: int(p.settings.number("num.partitions")), replication: int(p.settings.number("default.replication.factor"))}
}

// AutoTopic is what a topic is to be like that is created because a client asked
// for it, but for its name; nil: none is.
func (s Settings) AutoTopic() *events.NewTopic {
	if !s.bool("auto.create.topics.enable") {
		return nil
	}
	return &events.NewTopic{Partitions: int32(s.number("num.partitions")), ReplicationFactor: int16(s.number("default.replication.factor"))}
}

// OffsetsTopic is what __consumer_offsets is to be like where it is created.
func (s Settings) OffsetsTopic() events.NewTopic {
	return events.NewTopic{Name: groups.Topic, Partitions: int32(s.number("offsets.topic.num.partitions")),
		ReplicationFactor: int16(s.number("offsets.topic.replication.factor")),
		Configs: map[string]string{"cleanup.policy": "compact", "compression.type": "producer",
			"segment.bytes": strconv.FormatInt(s.number("offsets.topic.segment.bytes"), 10)}}
}

// createTopic creates a topic, and gives the code for the client that asked for
// it: LEADER_NOT_AVAILABLE when it is there now, though not yet in the cache.
func (p *Port) createTopic(ctx context.Context, t newTopic) kafka.ErrorCode {
	err := p.atZooKeeper(ctx, func() error { return p.writeTopic(ctx, t) })
	code := kafka.NoError
	if err != nil {
		code = codeOf(err)
	}
	switch code {
	case kafka.NoError:
		p.log.WithFields(logrus.Fields{"topic": t.name, "partitions": t.partitions, "replication_factor": t.replication}).Info("topic created for a client")
		return kafka.LeaderNotAvailable
	case kafka.TopicAlreadyExists:
		return kafka.LeaderNotAvailable
	}
	if ctx.Err() == nil {
		p.log.WithFields(logrus.Fields{"topic": t.name, "error": err}).Warn("a topic that a client asked for was not created")
	}
	return code
}

// writeTopic runs the checks of spec/admin-api.md §2 in their order, then writes
// configuration and assignment. An error wraps the code of the check that failed.
func (p *Port) writeTopic(ctx context.Context, t newTopic) error {
	reads := []zkpaths.Read{{Op: zkpaths.Exists, Path: zkpaths.DeleteTopicPath(t.name)}, {Op: zkpaths.Exists, Path: zkpaths.TopicPath(t.name)},
		{Op: zkpaths.Exists, Path: zkpaths.TopicConfigPath(t.name)}, {Op: zkpaths.GetChildren, Path: zkpaths.BrokerIDs}}
	if strings.ContainsAny(t.name, "._") {
		reads = append(reads, zkpaths.Read{Op: zkpaths.GetChildren, Path: zkpaths.BrokerTopics})
	}
	nodes, err := p.store.Read(ctx, reads)
	if err != nil {
		return fmt.Errorf("look for topic %s: %w", t.name, err)
	}
	// First of all: a broker that was just started knows of no topic and no broker,
	// and clients give up what INVALID_REPLICATION_FACTOR is said of.
	if nodes[0].Code == zkpaths.OK || nodes[1].Code == zkpaths.OK {
		return endpoint.Refuse(kafka.TopicAlreadyExists, "topic %q exists, or is being deleted", t.name)
	}
	topic, err := p.assign(t, nodes[3].Children)
	if err != nil {
		return err
	}
	if len(nodes) > 4 {
		for _, other := range nodes[4].Children {
			if other != t.name && strings.ReplaceAll(other, ".", "_") == strings.ReplaceAll(t.name, ".", "_") {
				return endpoint.Refuse(kafka.InvalidTopicException, "topic %q collides with topic %q: they differ only in '.' and '_'", t.name, other)
			}
		}
	}
	config := zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.TopicConfigPath(t.name), Data: zkpaths.EncodeConfig(t.configs), Version: zkpaths.AnyVersion}
	if nodes[2].Code == zkpaths.OK { // left over from a topic of that name
		config.Op = zkpaths.Set
	}
	create := zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.TopicPath(t.name), Data: zkpaths.EncodeTopic(topic)}
	out, err := p.store.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{config, create})
	if err != nil {
		return fmt.Errorf("create topic %s: %w", t.name, err)
	}
	if out[1].Code == zkpaths.NodeExists {
		return endpoint.Refuse(kafka.TopicAlreadyExists, "topic %q was created just now", t.name)
	}
	return out[1].Error(create.Path)
}

// assign places the replicas on the live brokers of the metadata cache. A
// controller that is no broker is among those, but is not registered.
func (p *Port) assign(t newTopic, registered []string) (zkpaths.Topic, error) {
	var live []reassign.BrokerRack
	for _, b := range p.node.Metadata().Brokers() {
		if slices.Contains(registered, strconv.Itoa(int(b.ID))) {
			live = append(live, reassign.BrokerRack{ID: b.ID, Rack: b.Rack, HasRack: b.HasRack})
		}
	}
	if t.name == groups.Topic && p.node.Options().Release.Less(kafka.V0_11_0IV0) { // later releases wait for enough brokers
		t.replication = min(t.replication, len(live))
	}
	if t.replication > len(live) || t.replication < 1 {
		return zkpaths.Topic{}, endpoint.Refuse(kafka.InvalidReplicationFactor, "replication factor %d, live brokers: %d", t.replication, len(live))
	}
	if why := reassign.TooLarge(t.partitions, t.replication); why != "" {
		return zkpaths.Topic{}, endpoint.Refuse(kafka.InvalidPartitions, "%s", why)
	}
	rows, err := reassign.AutoAssign(live, t.partitions, t.replication, rand.IntN(len(live)), rand.IntN(len(live)), 0)
	if err != nil {
		return zkpaths.Topic{}, fmt.Errorf("place topic %s: %w", t.name, err)
	}
	version := p.node.Options().Version
	topic := zkpaths.Topic{Version: 1}
	switch {
	case version.AtLeast(kafka.V2_8IV0):
		topic.Version, topic.ID = 3, p.topicID()
	case version.AtLeast(kafka.V2_4IV0):
		topic.Version = 2
	}
	for n := range int32(t.partitions) {
		topic.Partitions = append(topic.Partitions, zkpaths.PartitionAssignment{Partition: n, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: rows[n]}})
	}
	return topic, nil
}
