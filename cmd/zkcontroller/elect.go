package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

func electCommand() *cobra.Command {
	group := &cobra.Command{
		Use: "elect", Short: "Ask for elections of leaders", Args: cobra.NoArgs, RunE: nothingNamed,
	}
	group.AddCommand(
		electOne("preferred", "Make the first replica the leader where it is in sync", 0),
		electOne("unclean", "Make any live replica the leader where there is none; records may be lost (through brokers only)", 1))
	return group
}

func electOne(name, short string, kind int8) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}
	f := cmd.Flags()
	topic := f.String("topic", "", "name, with --partition")
	partition := f.Int32("partition", -1, "number, with --topic")
	file := f.String("path-to-json-file", "", `{"partitions":[{"topic":"t","partition":0}]}`)
	all := f.Bool("all-topic-partitions", false, "every partition")
	m, at := mutationFlags(cmd), targetFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		tps, err := electionPartitions(*topic, *partition, *file, *all)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s election of %v", name, tps)
		if *all {
			line = name + " election of all partitions"
		}
		if kind == 1 {
			line += "; records that only dead replicas have are lost"
		}
		var byZnode func(context.Context, *config.Config, znodes) error
		if kind == 0 {
			byZnode = func(ctx context.Context, _ *config.Config, z znodes) error {
				return electByZnode(ctx, cmd, m, z, tps, *all, line)
			}
		}
		return at.act(cmd, byZnode, func(ctx context.Context, client *kgo.Client) error {
			if ok, err := m.approve(cmd, []string{line}); !ok {
				return err
			}
			results, err := electByRequest(ctx, client, kind, tps, *all, int32(at.timeout.Milliseconds()))
			if err != nil {
				return err
			}
			return m.finish(cmd, results)
		})
	}
	return cmd
}

func electionPartitions(topic string, partition int32, file string, all bool) ([]kafka.TopicPartition, error) {
	ways := 0
	for _, given := range []bool{topic != "", file != "", all} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return nil, usageError("give one of --topic with --partition, --path-to-json-file, --all-topic-partitions")
	}
	switch {
	case all:
		return nil, nil
	case topic != "":
		if partition < 0 || kafka.ValidTopicName(topic) != "" {
			return nil, usageError("--topic %s --partition %d: no such partition can be", topic, partition)
		}
		return []kafka.TopicPartition{{Topic: topic, Partition: partition}}, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, usageError("--path-to-json-file: %w", err)
	}
	var asked struct {
		Version    int `json:"version"`
		Partitions []struct {
			Topic     string `json:"topic"`
			Partition *int32 `json:"partition"`
		} `json:"partitions"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&asked); err != nil || len(asked.Partitions) == 0 {
		return nil, usageError(`%s: want {"partitions":[{"topic":"t","partition":0}]} (%v)`, file, err)
	}
	var tps []kafka.TopicPartition
	for i, p := range asked.Partitions {
		if p.Partition == nil || *p.Partition < 0 || kafka.ValidTopicName(p.Topic) != "" {
			return nil, usageError("%s: entry %d is no partition", file, i)
		}
		tp := kafka.TopicPartition{Topic: p.Topic, Partition: *p.Partition}
		if slices.Contains(tps, tp) {
			return nil, usageError("%s: %s is named twice", file, tp)
		}
		tps = append(tps, tp)
	}
	return tps, nil
}

// electByZnode writes /admin/preferred_replica_election. What is there must
// have been seen to exist: a controller answers a node by its disappearance only.
func electByZnode(ctx context.Context, cmd *cobra.Command, m *mutation, z znodes, tps []kafka.TopicPartition, all bool, line string) error {
	var names []string
	for _, tp := range tps {
		if !slices.Contains(names, tp.Topic) {
			names = append(names, tp.Topic)
		}
	}
	topics, err := readTopics(ctx, z, names, all)
	if err != nil {
		return err
	}
	if all {
		for _, t := range topics {
			for _, p := range t.Partitions {
				tps = append(tps, kafka.TopicPartition{Topic: t.Name, Partition: p.Partition})
			}
		}
		if len(tps) == 0 {
			return fmt.Errorf("there are no partitions")
		}
	}
	for _, tp := range tps {
		if _, ok := findPartition(topics, tp); !ok {
			return fmt.Errorf("there is no partition %s", tp)
		}
	}
	if ok, err := m.approve(cmd, []string{line}); !ok {
		return err
	}
	existed, err := createOnly(ctx, z, zkpaths.PreferredElection, zkpaths.EncodePreferredElection(tps))
	if err != nil {
		return err
	}
	if existed {
		return refused("%s exists: an election is in progress; try again when it is gone", zkpaths.PreferredElection)
	}
	var results []result
	for _, tp := range tps {
		results = append(results, result{Item: tp.String(), Result: "asked for"})
	}
	return m.finish(cmd, results)
}

func electByRequest(ctx context.Context, client *kgo.Client, kind int8, tps []kafka.TopicPartition, all bool, millis int32) ([]result, error) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType, req.TimeoutMillis, req.Topics = kind, millis, nil
	for _, tp := range tps {
		i := slices.IndexFunc(req.Topics, func(t kmsg.ElectLeadersRequestTopic) bool { return t.Topic == tp.Topic })
		if i < 0 {
			t := kmsg.NewElectLeadersRequestTopic()
			t.Topic = tp.Topic
			req.Topics, i = append(req.Topics, t), len(req.Topics)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, tp.Partition)
	}
	resp, err := ask[*kmsg.ElectLeadersResponse](ctx, client, req)
	if err != nil {
		return nil, err
	}
	if err := answered(resp.ErrorCode, nil); err != nil {
		return nil, err
	}
	results := []result{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			r := result{Item: kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}.String(), Result: "elected"}
			err := answered(p.ErrorCode, p.ErrorMessage)
			switch {
			case err == nil:
			case kafka.ErrorCode(p.ErrorCode) == kafka.ElectionNotNeeded:
				r.Result = "not needed"
			default:
				r.Result, r.Error = "failed", err.Error()
			}
			results = append(results, r)
		}
	}
	return results, nil
}
