package assembly

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/endpoint"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// brokerTable is what a broker of some release offers; one that may be the
// controller offers what that one does besides.
func brokerTable(o brokers.Options, controller *endpoint.Endpoint) []wire.APIVersion {
	var table []wire.APIVersion
	for _, r := range brokers.APIVersions(o) {
		table = append(table, wire.APIVersion{Key: r.Key, VersionRange: kafka.VersionRange{Min: r.Min, Max: r.Max}})
	}
	if controller == nil {
		return table
	}
	for _, row := range controller.Table() {
		if !slices.ContainsFunc(table, func(v wire.APIVersion) bool { return v.Key == row.Key }) {
			table = append(table, row)
		}
	}
	return table
}

// brokerHandler answers the requests of one listener of an emulated broker that
// keeps no records.
type brokerHandler struct {
	node       *brokers.Node
	listener   string
	clusterID  func(context.Context) string
	controller *endpoint.Endpoint // nil: only a broker
}

// Handle is wire.Handler's.
func (h brokerHandler) Handle(ctx context.Context, r *wire.Request) {
	if r.Control != nil {
		answer, err := h.node.HandleControl(ctx, r.Control)
		if err != nil {
			r.Hangup()
			return
		}
		r.ReplyControl(answer)
		return
	}
	var resp kmsg.Response
	var err error
	switch req := r.Kafka.(type) {
	case *kmsg.MetadataRequest:
		resp, err = endpoint.AnswerMetadata(ctx, req, h.listener, h.look)
	case *kmsg.DescribeClusterRequest:
		resp, err = endpoint.AnswerDescribeCluster(ctx, req, h.listener, h.look)
	default:
		if h.controller != nil {
			h.controller.Handle(ctx, r)
			return
		}
		err = fmt.Errorf("a %T is not served", req)
	}
	if err != nil {
		r.Hangup()
		return
	}
	r.Reply(resp)
}

// look gives what the last UpdateMetadata requests told.
func (h brokerHandler) look(ctx context.Context, refs []events.TopicRef, all bool) (events.Cluster, error) {
	return brokerport.Cluster(h.node.Metadata(), h.clusterID(ctx), refs, all), nil
}

// controllerLink is an emulated broker's way to the controller: one connection,
// one request in flight, as Kafka's channel manager has it.
type controllerLink struct {
	self     kafka.BrokerID
	listener string
	protocol kafka.ProtocolVersion // inter.broker.protocol.version; zero: the newest
	dialer   dialer                // nil: TCP

	mu      sync.Mutex
	conn    *wire.Conn
	address string
	offered wire.Versions
}

const controllerTimeout = 30 * time.Second // request.timeout.ms

func (l *controllerLink) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

func (l *controllerLink) drop() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// Ask is brokerport.Controller's.
func (l *controllerLink) Ask(ctx context.Context, controller kafka.Broker, req kmsg.Request, lo, hi int16) (kmsg.Response, error) {
	e, ok := controller.Endpoint(l.listener)
	if !ok {
		return nil, fmt.Errorf("controller %d has no listener %s", controller.ID, l.listener)
	}
	address := net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
	ctx, cancel := context.WithTimeout(ctx, controllerTimeout)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.address != address {
		l.drop()
		conn, err := wire.Dial(ctx, address, wire.DialOptions{ClientID: strconv.Itoa(int(l.self)), Dialer: l.dialer})
		if err != nil {
			return nil, fmt.Errorf("reach controller %d: %w", controller.ID, err)
		}
		l.conn, l.address = conn, address
		if l.offered, err = conn.APIVersions(ctx); err != nil {
			l.drop()
			return nil, fmt.Errorf("ask controller %d what it serves: %w", controller.ID, err)
		}
	}
	r, ok := l.offered[req.Key()]
	version := min(r.Max, hi)
	if !ok || version < max(r.Min, lo) {
		return nil, fmt.Errorf("controller %d does not serve %s in a version from %d to %d", controller.ID, kmsg.NameForKey(req.Key()), lo, hi)
	}
	req.SetVersion(version)
	resp, err := l.conn.Request(ctx, req)
	if err != nil {
		l.drop()
		return nil, fmt.Errorf("%s to controller %d: %w", kmsg.NameForKey(req.Key()), controller.ID, err)
	}
	return resp, nil
}

// AlterPartition is brokers.ControllerClient's.
func (l *controllerLink) AlterPartition(ctx context.Context, controller kafka.Broker, r *brokers.AlterPartitionRequest) (brokers.AlterPartitionAnswer, error) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.BrokerID, req.BrokerEpoch = int32(r.Broker), r.BrokerEpoch
	names := map[kafka.TopicID]string{}
	for _, p := range r.Partitions {
		names[p.TopicID] = p.Partition.Topic
		i := slices.IndexFunc(req.Topics, func(t kmsg.AlterPartitionRequestTopic) bool { return t.Topic == p.Partition.Topic })
		if i < 0 {
			t := kmsg.NewAlterPartitionRequestTopic()
			t.Topic, t.TopicID = p.Partition.Topic, p.TopicID
			req.Topics, i = append(req.Topics, t), len(req.Topics)
		}
		row := kmsg.NewAlterPartitionRequestTopicPartition()
		row.Partition, row.LeaderEpoch, row.PartitionEpoch = p.Partition.Partition, p.LeaderEpoch, p.PartitionEpoch
		row.NewISR = numbers(p.ISR)
		for _, id := range p.ISR { // version 3; an epoch of -1 is not checked
			e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			e.BrokerID, e.BrokerEpoch = int32(id), kafka.NoBrokerEpoch
			row.NewEpochISR = append(row.NewEpochISR, e)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, row)
	}
	lo, hi := int16(0), int16(1)
	if r.ByID {
		lo, hi = 2, 3
	}
	resp, err := l.Ask(ctx, controller, req, lo, hi)
	if err != nil {
		return brokers.AlterPartitionAnswer{}, err
	}
	got, ok := resp.(*kmsg.AlterPartitionResponse)
	if !ok {
		return brokers.AlterPartitionAnswer{}, fmt.Errorf("AlterPartition was answered by a %T", resp)
	}
	answer := brokers.AlterPartitionAnswer{Error: kafka.ErrorCode(got.ErrorCode), Partitions: map[kafka.TopicPartition]brokers.AlterPartitionResult{}}
	for _, t := range got.Topics {
		topic := t.Topic
		if r.ByID {
			topic = names[kafka.TopicID(t.TopidID)]
		}
		for _, p := range t.Partitions {
			answer.Partitions[kafka.TopicPartition{Topic: topic, Partition: p.Partition}] = brokers.AlterPartitionResult{
				Error: kafka.ErrorCode(p.ErrorCode),
				LeaderAndISR: kafka.LeaderAndISR{Leader: kafka.BrokerID(p.LeaderID), LeaderEpoch: p.LeaderEpoch, ISR: ids(p.ISR),
					Recovery: kafka.LeaderRecoveryState(p.LeaderRecoveryState), ZKVersion: p.PartitionEpoch},
			}
		}
	}
	return answer, nil
}

// shutdownVersion is that of ControlledShutdown under a protocol version
// (spec/broker.md §1.8); the oldest we know, 0.9, has version 1.
func shutdownVersion(v kafka.ProtocolVersion) int16 {
	switch {
	case v == kafka.ProtocolVersion{} || v.AtLeast(kafka.ProtocolVersion{Major: 2, Minor: 4, IV: 1}):
		return 3
	case v.AtLeast(kafka.ProtocolVersion{Major: 2, Minor: 2}):
		return 2
	}
	return 1
}

// ControlledShutdown is brokers.ControllerClient's.
func (l *controllerLink) ControlledShutdown(ctx context.Context, controller kafka.Broker, self kafka.BrokerID, epoch int64) (kafka.ErrorCode, []kafka.TopicPartition, error) {
	req := kmsg.NewPtrControlledShutdownRequest()
	req.BrokerID, req.BrokerEpoch = int32(self), epoch
	resp, err := l.Ask(ctx, controller, req, 0, shutdownVersion(l.protocol))
	if err != nil {
		return 0, nil, err
	}
	got, ok := resp.(*kmsg.ControlledShutdownResponse)
	if !ok {
		return 0, nil, fmt.Errorf("ControlledShutdown was answered by a %T", resp)
	}
	var remaining []kafka.TopicPartition
	for _, p := range got.PartitionsRemaining {
		remaining = append(remaining, kafka.TopicPartition{Topic: p.Topic, Partition: p.Partition})
	}
	return kafka.ErrorCode(got.ErrorCode), remaining, nil
}

var (
	_ brokers.ControllerClient = (*controllerLink)(nil)
	_ brokerport.Controller    = (*controllerLink)(nil)
)

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
