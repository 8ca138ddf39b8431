package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// znodes is what the tools need of ZooKeeper.
type znodes = assembly.Znodes

// topicView is one topic as ZooKeeper has it.
type topicView struct {
	Name       string            `json:"topic"`
	ID         string            `json:"topic_id,omitempty"`
	Config     map[string]string `json:"config,omitempty"`
	Deleting   bool              `json:"marked_for_deletion,omitempty"`
	Partitions []partitionView   `json:"partitions"`
	Error      string            `json:"error,omitempty"`

	payload zkpaths.Topic
	version int32
}

// partitionView is one partition; Leader is -1 where nobody leads.
type partitionView struct {
	Partition int32            `json:"partition"`
	Leader    kafka.BrokerID   `json:"leader"`
	Replicas  []kafka.BrokerID `json:"replicas"`
	ISR       []kafka.BrokerID `json:"isr"`
	Adding    []kafka.BrokerID `json:"adding,omitempty"`
	Removing  []kafka.BrokerID `json:"removing,omitempty"`
	Epoch     int32            `json:"leader_epoch"`
	Error     string           `json:"error,omitempty"`
}

func (p partitionView) assignment() kafka.ReplicaAssignment {
	return kafka.ReplicaAssignment{Replicas: p.Replicas, Adding: p.Adding, Removing: p.Removing}
}

// underReplicated tells whether the ISR lacks a replica that is not just being added.
func (p partitionView) underReplicated() bool {
	return len(kafka.Without(p.assignment().Original(), p.ISR)) > 0
}

func (t topicView) find(partition int32) (partitionView, bool) {
	i, ok := slices.BinarySearchFunc(t.Partitions, partition, func(p partitionView, n int32) int { return int(p.Partition - n) })
	if !ok {
		return partitionView{}, false
	}
	return t.Partitions[i], true
}

// children lists a node's children; a missing node has none.
func children(ctx context.Context, z znodes, path string) ([]string, error) {
	nodes, err := z.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetChildren, Path: path}})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	if nodes[0].Code == zkpaths.NoNode {
		return nil, nil
	}
	return nodes[0].Children, nodes[0].Error(path)
}

// get reads one node; ok is false where it is missing.
func get(ctx context.Context, z znodes, path string) (n zkpaths.Node, ok bool, err error) {
	nodes, err := z.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: path}})
	if err != nil {
		return n, false, fmt.Errorf("read %s: %w", path, err)
	}
	if nodes[0].Code == zkpaths.NoNode {
		return n, false, nil
	}
	return nodes[0], nodes[0].Code == zkpaths.OK, nodes[0].Error(path)
}

// readBrokers gives the registered brokers sorted by id, and what could not be read.
func readBrokers(ctx context.Context, z znodes) (brokers []zkpaths.Registration, problems []string, err error) {
	names, err := children(ctx, z, zkpaths.BrokerIDs)
	if err != nil {
		return nil, nil, err
	}
	var ids []kafka.BrokerID
	var reads []zkpaths.Read
	for _, name := range names {
		id, ok := zkpaths.ParseBrokerID(name)
		if !ok {
			problems = append(problems, fmt.Sprintf("%s/%s: not a broker id (remove the node)", zkpaths.BrokerIDs, name))
			continue
		}
		ids = append(ids, id)
		reads = append(reads, zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.BrokerPath(id)})
	}
	nodes, err := z.Read(ctx, reads)
	if err != nil {
		return nil, nil, fmt.Errorf("read the brokers: %w", err)
	}
	for i, n := range nodes {
		if n.Code == zkpaths.NoNode {
			continue // left between the two reads
		}
		r, err := zkpaths.DecodeBroker(ids[i], n.Data)
		if e := n.Error(reads[i].Path); e != nil {
			err = e
		}
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		r.Epoch = n.Stat.Czxid
		brokers = append(brokers, r)
	}
	slices.SortFunc(brokers, func(a, b zkpaths.Registration) int { return int(a.ID) - int(b.ID) })
	return brokers, problems, nil
}

// readTopics gives the named topics, or all, with their partitions' leadership;
// a topic that is not there is left out. What cannot be read has its Error set.
func readTopics(ctx context.Context, z znodes, names []string, all bool) ([]topicView, error) {
	if all {
		var err error
		if names, err = children(ctx, z, zkpaths.BrokerTopics); err != nil {
			return nil, err
		}
	}
	reads := make([]zkpaths.Read, 0, 3*len(names))
	for _, name := range names {
		reads = append(reads, zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.TopicPath(name)},
			zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.TopicConfigPath(name)},
			zkpaths.Read{Op: zkpaths.Exists, Path: zkpaths.DeleteTopicPath(name)})
	}
	nodes, err := z.Read(ctx, reads)
	if err != nil {
		return nil, fmt.Errorf("read the topics: %w", err)
	}
	var topics []topicView
	for i, name := range names {
		node, configNode, mark := nodes[3*i], nodes[3*i+1], nodes[3*i+2]
		if node.Code == zkpaths.NoNode {
			continue
		}
		t := topicView{Name: name, Deleting: mark.Code == zkpaths.OK, version: node.Stat.Version, Partitions: []partitionView{}}
		err := node.Error(zkpaths.TopicPath(name))
		if err == nil {
			t.payload, err = zkpaths.DecodeTopic(name, node.Data)
		}
		if err == nil && configNode.Code == zkpaths.OK {
			t.Config, err = zkpaths.DecodeConfig(zkpaths.TopicConfigPath(name), configNode.Data)
		}
		if err != nil {
			t.Error = err.Error()
		}
		if !t.payload.ID.IsZero() {
			t.ID = t.payload.ID.String()
		}
		for _, p := range t.payload.Partitions {
			t.Partitions = append(t.Partitions, partitionView{Partition: p.Partition, Leader: kafka.NoLeader, Replicas: p.Replicas,
				Adding: p.Adding, Removing: p.Removing, ISR: []kafka.BrokerID{}, Epoch: kafka.NoEpoch})
		}
		topics = append(topics, t)
	}
	return topics, readLeadership(ctx, z, topics)
}

func readLeadership(ctx context.Context, z znodes, topics []topicView) error {
	var reads []zkpaths.Read
	var into []*partitionView
	var tps []kafka.TopicPartition
	for i := range topics {
		for j := range topics[i].Partitions {
			p := &topics[i].Partitions[j]
			tp := kafka.TopicPartition{Topic: topics[i].Name, Partition: p.Partition}
			reads = append(reads, zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.PartitionStatePath(tp)})
			into, tps = append(into, p), append(tps, tp)
		}
	}
	nodes, err := z.Read(ctx, reads)
	if err != nil {
		return fmt.Errorf("read the partition states: %w", err)
	}
	for i, n := range nodes {
		if n.Code == zkpaths.NoNode {
			continue // never led
		}
		l, err := zkpaths.DecodePartitionState(tps[i], n.Data, n.Stat.Version)
		if e := n.Error(reads[i].Path); e != nil {
			err = e
		}
		if err != nil {
			into[i].Error = err.Error()
			continue
		}
		into[i].Leader, into[i].Epoch, into[i].ISR = l.Leader, l.LeaderEpoch, l.ISR
	}
	return nil
}

// createOnly creates one node and tells whether it was there before.
func createOnly(ctx context.Context, z znodes, path string, data []byte) (existed bool, err error) {
	out, err := z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Create, Path: path, Data: data}})
	switch {
	case err != nil:
		return false, fmt.Errorf("create %s: %w", path, err)
	case out[0].Code == zkpaths.NodeExists:
		return true, nil
	case out[0].Code == zkpaths.NoNode:
		return false, fmt.Errorf("create %s: its parent is missing; no broker or controller has prepared this ZooKeeper yet, start one", path)
	}
	if err := out[0].Error(path); err != nil {
		return false, fmt.Errorf("create: %w", err)
	}
	return false, nil
}

// setOrCreate makes a node hold data, whatever it held.
func setOrCreate(ctx context.Context, z znodes, path string, data []byte) error {
	for range 3 {
		out, err := z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Set, Path: path, Data: data, Version: zkpaths.AnyVersion}})
		if err != nil {
			return fmt.Errorf("set %s: %w", path, err)
		}
		if out[0].Code != zkpaths.NoNode {
			return out[0].Error(path)
		}
		existed, err := createOnly(ctx, z, path, data)
		if err != nil || !existed {
			return err
		}
	}
	return errors.New(path + ": somebody creates and deletes it at the same time; try again")
}
