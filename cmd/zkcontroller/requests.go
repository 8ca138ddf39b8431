package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// kafkaClient talks to brokers; it finds the controller by itself and asks it
// again when it moved.
func kafkaClient(servers string, timeout time.Duration) (*kgo.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(servers, ",")...), kgo.ClientID("zkcontroller"),
		kgo.DialTimeout(min(timeout, 5*time.Second)), kgo.RetryTimeout(timeout))
	if err != nil {
		return nil, usageError("--bootstrap-server %s: %w", servers, err)
	}
	return client, nil
}

// requester is a client, which finds the right broker, or one broker.
type requester interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// ask sends one request. A broker that cannot be reached is exit code 3.
func ask[R kmsg.Response](ctx context.Context, client requester, req kmsg.Request) (R, error) {
	var none R
	answer, err := client.Request(ctx, req)
	if err != nil {
		return none, withCode(3, fmt.Errorf("ask the brokers (%s): %w", kmsg.NameForKey(req.Key()), err))
	}
	r, ok := answer.(R)
	if !ok {
		return none, fmt.Errorf("%s was answered by a %T", kmsg.NameForKey(req.Key()), answer)
	}
	return r, nil
}

// answered is nil for no error, else the code with the broker's words.
func answered(code int16, message *string) error {
	e := kafka.ErrorCode(code)
	if e == kafka.NoError {
		return nil
	}
	if message != nil && *message != "" {
		return fmt.Errorf("%w: %s", e, *message)
	}
	return e
}

// requestTopics acts by requests to the controller (spec/admin-api.md §2–§4).
type requestTopics struct {
	client  *kgo.Client
	timeout time.Duration
}

func (a requestTopics) millis() int32 { return int32(min(a.timeout.Milliseconds(), 1<<30)) }

func (a requestTopics) create(ctx context.Context, t newTopic) error {
	row := kmsg.NewCreateTopicsRequestTopic()
	row.Topic, row.NumPartitions, row.ReplicationFactor = t.name, int32(t.partitions), int16(t.factor)
	for i, ids := range t.rows {
		row.NumPartitions, row.ReplicationFactor = -1, -1
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), numbers(ids)
		row.ReplicaAssignment = append(row.ReplicaAssignment, a)
	}
	for key, value := range t.config {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = key, &value
		row.Configs = append(row.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.Topics = a.millis(), []kmsg.CreateTopicsRequestTopic{row}
	resp, err := ask[*kmsg.CreateTopicsResponse](ctx, a.client, req)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("the answer has %d topics, one was asked for", len(resp.Topics))
	}
	err = answered(resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage)
	if errors.Is(err, kafka.TopicAlreadyExists) {
		return fmt.Errorf("%w: %w", errTopicExists, err)
	}
	return err
}

func (a requestTopics) addPartitions(ctx context.Context, topic string, count int, rows [][]kafka.BrokerID) error {
	row := kmsg.NewCreatePartitionsRequestTopic()
	row.Topic, row.Count = topic, int32(count)
	if rows != nil {
		topics, err := a.describe(ctx, []string{topic}, false)
		if err != nil {
			return err
		}
		if len(topics) == 0 {
			return errTopicMissing
		}
		for _, ids := range rows[min(len(topics[0].Partitions), len(rows)):] {
			as := kmsg.NewCreatePartitionsRequestTopicAssignment()
			as.Replicas = numbers(ids)
			row.Assignment = append(row.Assignment, as)
		}
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis, req.Topics = a.millis(), []kmsg.CreatePartitionsRequestTopic{row}
	resp, err := ask[*kmsg.CreatePartitionsResponse](ctx, a.client, req)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("the answer has %d topics, one was asked for", len(resp.Topics))
	}
	return answered(resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage)
}

func (a requestTopics) alterConfig(ctx context.Context, topic string, set map[string]string, drop []string) error {
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for key, value := range set {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = key, kmsg.IncrementalAlterConfigOpSet, &value
		res.Configs = append(res.Configs, c)
	}
	for _, key := range drop {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op = key, kmsg.IncrementalAlterConfigOpDelete
		res.Configs = append(res.Configs, c)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	controller, err := a.controller(ctx)
	if err != nil {
		return err
	}
	resp, err := ask[*kmsg.IncrementalAlterConfigsResponse](ctx, controller, req)
	if err != nil {
		return err
	}
	if len(resp.Resources) != 1 {
		return fmt.Errorf("the answer has %d resources, one was asked for", len(resp.Resources))
	}
	return answered(resp.Resources[0].ErrorCode, resp.Resources[0].ErrorMessage)
}

// controller is asked for what any broker does in Kafka: emulated brokers serve
// no configurations, the controller always does.
func (a requestTopics) controller(ctx context.Context) (requester, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := ask[*kmsg.MetadataResponse](ctx, a.client, req)
	if err != nil {
		return nil, err
	}
	if resp.ControllerID < 0 {
		return a.client, nil // none known: any broker may do it
	}
	return a.client.Broker(int(resp.ControllerID)), nil
}

func (a requestTopics) remove(ctx context.Context, topic string) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis, req.TopicNames = a.millis(), []string{topic}
	row := kmsg.NewDeleteTopicsRequestTopic()
	row.Topic = &topic
	req.Topics = append(req.Topics, row) // version 6 asks by this list, older ones by names
	resp, err := ask[*kmsg.DeleteTopicsResponse](ctx, a.client, req)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("the answer has %d topics, one was asked for", len(resp.Topics))
	}
	err = answered(resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage)
	if errors.Is(err, kafka.UnknownTopicOrPartition) {
		return fmt.Errorf("%w: %w", errTopicMissing, err)
	}
	return err
}

// describe asks any broker; a broker knows what it was told, so that topics
// which never had a live replica are missing.
func (a requestTopics) describe(ctx context.Context, names []string, all bool) ([]topicView, error) {
	req := kmsg.NewPtrMetadataRequest()
	if !all {
		req.Topics = []kmsg.MetadataRequestTopic{}
	}
	for _, name := range names {
		row := kmsg.NewMetadataRequestTopic()
		row.Topic = &name
		req.Topics = append(req.Topics, row)
	}
	resp, err := ask[*kmsg.MetadataResponse](ctx, a.client, req)
	if err != nil {
		return nil, err
	}
	var topics []topicView
	for _, row := range resp.Topics {
		if kafka.ErrorCode(row.ErrorCode) == kafka.UnknownTopicOrPartition || row.Topic == nil {
			continue
		}
		t := topicView{Name: *row.Topic, Partitions: []partitionView{}}
		if id := kafka.TopicID(row.TopicID); !id.IsZero() {
			t.ID = id.String()
		}
		if err := answered(row.ErrorCode, nil); err != nil {
			t.Error = err.Error()
		}
		for _, p := range row.Partitions {
			t.Partitions = append(t.Partitions, partitionView{Partition: p.Partition, Leader: kafka.BrokerID(p.Leader),
				Replicas: ids(p.Replicas), ISR: ids(p.ISR), Epoch: p.LeaderEpoch})
		}
		slices.SortFunc(t.Partitions, func(a, b partitionView) int { return cmp.Compare(a.Partition, b.Partition) })
		topics = append(topics, t)
	}
	slices.SortFunc(topics, func(a, b topicView) int { return strings.Compare(a.Name, b.Name) })
	return topics, nil
}

func numbers(ids []kafka.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}

func ids(numbers []int32) []kafka.BrokerID {
	out := make([]kafka.BrokerID, len(numbers))
	for i, n := range numbers {
		out[i] = kafka.BrokerID(n)
	}
	return out
}
