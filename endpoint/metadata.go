package endpoint

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Operations that everybody may do, as bits, since there is no authorizer.
const (
	topicOperations   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11 // read … describe, describe and alter configs
	clusterOperations = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12       // create, alter, describe, cluster action, configs, idempotent write
)

// internalTopics are those that brokers create for themselves.
var internalTopics = []string{kafka.OffsetsTopic, "__transaction_state"}

// nodes are the brokers that show an endpoint for this listener.
type nodes struct {
	listed map[kafka.BrokerID]kafka.Endpoint
	alive  map[kafka.BrokerID]bool
}

func nodesOf(c events.Cluster, listener string) nodes {
	n := nodes{listed: map[kafka.BrokerID]kafka.Endpoint{}, alive: map[kafka.BrokerID]bool{}}
	for _, b := range c.Brokers {
		n.alive[b.ID] = true
		if ep, ok := b.Endpoint(listener); ok {
			n.listed[b.ID] = ep
		}
	}
	return n
}

// controller is the controller's id if clients can find it in the broker list:
// an id that is not in it makes them wait until they time out.
func (n nodes) controller(c events.Cluster) int32 {
	if _, ok := n.listed[c.Controller]; ok {
		return int32(c.Controller)
	}
	return int32(kafka.NoController)
}

func (e *Endpoint) metadata(ctx context.Context, req *kmsg.MetadataRequest) (kmsg.Response, error) {
	if e.auto == nil || req.Version >= 4 && !req.AllowAutoTopicCreation {
		return AnswerMetadata(ctx, req, e.listener, e.look)
	}
	return AnswerMetadata(ctx, req, e.listener, func(ctx context.Context, refs []events.TopicRef, all bool) (events.Cluster, error) {
		c, err := e.look(ctx, refs, all)
		if err == nil && !all && len(c.Topics) == len(refs) { // a controller standing by knows of none
			err = e.createMissing(ctx, refs, c.Topics)
		}
		return c, err
	})
}

// maxCreated is how many topics one Metadata request creates at most: a client
// that wants more asks again.
const maxCreated = 100

// createMissing creates what was asked for by name and does not exist, as every
// node of the broker list does: a client may never ask another one. The client is
// told to ask again, or why there is no such topic (spec/admin-api.md §8).
func (e *Endpoint) createMissing(ctx context.Context, refs []events.TopicRef, topics []events.TopicDescription) error {
	missing := map[string]*events.TopicDescription{}
	var wanted []events.NewTopic
	for i := range topics {
		t, name := &topics[i], refs[i].Name
		if t.Error != kafka.UnknownTopicOrPartition || name == "" || missing[name] != nil || len(wanted) == maxCreated {
			continue
		}
		missing[name] = t
		topic := *e.auto
		if name == kafka.OffsetsTopic && e.offsets != nil {
			topic = *e.offsets
		}
		topic.Name = name
		wanted = append(wanted, topic)
	}
	if len(wanted) == 0 {
		return nil
	}
	rows, err := ask(ctx, e, e.clients, func(reply func([]events.NewTopicResult)) events.Event {
		return events.CreateTopics{Topics: wanted, Reply: reply}
	})
	for i := range rows[:min(len(rows), len(wanted))] {
		t := missing[wanted[i].Name]
		if t.Error = rows[i].Error; t.Error == kafka.NoError || t.Error == kafka.TopicAlreadyExists {
			t.Error = kafka.LeaderNotAvailable
		}
	}
	return err
}

func (e *Endpoint) look(ctx context.Context, refs []events.TopicRef, all bool) (events.Cluster, error) {
	if all {
		return e.describeAll(ctx)
	}
	return e.describe(ctx, refs)
}

// Look gives what a node knows of the cluster, and of the topics named or of all.
type Look func(ctx context.Context, refs []events.TopicRef, all bool) (events.Cluster, error)

// AnswerMetadata answers Metadata on a listener (spec/admin-api.md §8). Topics
// are created by look, if at all. An error is look's.
func AnswerMetadata(ctx context.Context, req *kmsg.MetadataRequest, listener string, look Look) (kmsg.Response, error) {
	refs, all, why := metadataRefs(req)
	if why.Error != kafka.NoError {
		return refusedMetadata(req, why), nil
	}
	var asked []events.TopicRef
	for _, r := range refs { // illegal names are answered here and not asked for
		if !r.ID.IsZero() || kafka.ValidTopicName(r.Name) == "" {
			asked = append(asked, r)
		}
	}
	c, err := look(ctx, asked, all)
	if err != nil {
		return nil, err
	}
	n := nodesOf(c, listener)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	n.describe(req, c, resp)
	if all {
		for _, t := range c.Topics {
			if t.Error == kafka.NoError && len(t.Partitions) > 0 {
				resp.Topics = append(resp.Topics, n.topic(req, t))
			}
		}
		return resp, nil
	}
	found := make(map[events.TopicRef]events.TopicDescription, len(asked))
	if len(c.Topics) == len(asked) { // none from a controller standing by
		for i, t := range c.Topics {
			found[asked[i]] = t
		}
	}
	for _, r := range refs {
		resp.Topics = append(resp.Topics, n.namedTopic(req, r, found))
	}
	return resp, nil
}

// describe fills in what the answer says about the cluster.
func (n nodes) describe(req *kmsg.MetadataRequest, c events.Cluster, resp *kmsg.MetadataResponse) {
	if c.ID != "" {
		resp.ClusterID = new(c.ID)
	}
	resp.ControllerID = n.controller(c)
	for _, b := range c.Brokers {
		if ep, ok := n.listed[b.ID]; ok {
			row := kmsg.NewMetadataResponseBroker()
			row.NodeID, row.Host, row.Port, row.Rack = int32(b.ID), ep.Host, ep.Port, rack(b)
			resp.Brokers = append(resp.Brokers, row)
		}
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOperations
	}
}

// metadataRefs gives the topics asked for, each once; all stands for every topic.
func metadataRefs(req *kmsg.MetadataRequest) (refs []events.TopicRef, all bool, why events.RowError) {
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		return nil, true, why
	}
	seen := map[events.TopicRef]bool{}
	for _, t := range req.Topics {
		ref := events.TopicRef{ID: t.TopicID}
		switch {
		case req.Version < 12 && !ref.ID.IsZero():
			return nil, false, refuse(kafka.InvalidRequest, "topic ids need Metadata version 12")
		case req.Version < 12 && t.Topic == nil:
			return nil, false, refuse(kafka.InvalidRequest, "a topic without a name needs Metadata version 12")
		case ref.ID.IsZero() && t.Topic != nil:
			ref.Name = *t.Topic
		}
		if !seen[ref] {
			seen[ref] = true
			refs = append(refs, ref)
		}
	}
	return refs, false, why
}

func refusedMetadata(req *kmsg.MetadataRequest, why events.RowError) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ControllerID = int32(kafka.NoController)
	for _, t := range req.Topics {
		row := kmsg.NewMetadataResponseTopic()
		row.ErrorCode, row.TopicID, row.Topic = int16(why.Error), t.TopicID, new("")
		if t.Topic != nil {
			row.Topic = t.Topic
		}
		resp.Topics = append(resp.Topics, row)
	}
	return resp
}

// namedTopic answers one topic that was asked for.
func (n nodes) namedTopic(req *kmsg.MetadataRequest, r events.TopicRef, found map[events.TopicRef]events.TopicDescription) kmsg.MetadataResponseTopic {
	t, ok := found[r]
	switch {
	case r.ID.IsZero() && kafka.ValidTopicName(r.Name) != "":
		t = events.TopicDescription{Error: kafka.InvalidTopicException, Name: r.Name}
	case !ok: // standing by: we do not know, and the client shall ask again
		t = events.TopicDescription{Error: kafka.LeaderNotAvailable, Name: r.Name, ID: r.ID}
	case t.Error == kafka.NoError && len(t.Partitions) == 0:
		t = events.TopicDescription{Error: kafka.UnknownTopicOrPartition}
	}
	if t.Error == kafka.NoError {
		return n.topic(req, t)
	}
	if !r.ID.IsZero() && t.Error == kafka.UnknownTopicOrPartition {
		t.Error = kafka.UnknownTopicID
	}
	row := kmsg.NewMetadataResponseTopic()
	row.ErrorCode, row.TopicID = int16(t.Error), r.ID
	if r.ID.IsZero() {
		row.Topic, row.IsInternal = new(r.Name), slices.Contains(internalTopics, r.Name)
	}
	return row
}

func (n nodes) topic(req *kmsg.MetadataRequest, t events.TopicDescription) kmsg.MetadataResponseTopic {
	row := kmsg.NewMetadataResponseTopic()
	row.Topic, row.TopicID, row.IsInternal = new(t.Name), t.ID, slices.Contains(internalTopics, t.Name)
	if req.IncludeTopicAuthorizedOperations {
		row.AuthorizedOperations = topicOperations
	}
	for _, p := range t.Partitions {
		row.Partitions = append(row.Partitions, n.partition(req.Version, p))
	}
	return row
}

func (n nodes) partition(version int16, p control.PartitionState) kmsg.MetadataResponseTopicPartition {
	row := kmsg.NewMetadataResponseTopicPartition()
	row.Partition, row.Leader, row.LeaderEpoch = p.Partition, int32(p.Leader), p.LeaderEpoch
	replicas, isr := p.Replicas, p.ISR
	if version == 0 { // old clients cannot look up what is not in the broker list
		replicas, isr = n.reachable(replicas), n.reachable(isr)
	}
	row.Replicas, row.ISR = rawIDs(replicas), rawIDs(isr)
	for _, id := range p.Replicas {
		if _, ok := n.listed[id]; !ok || slices.Contains(p.Offline, id) {
			row.OfflineReplicas = append(row.OfflineReplicas, int32(id))
		}
	}
	_, led := n.listed[p.Leader]
	switch {
	case led && (len(replicas) < len(p.Replicas) || len(isr) < len(p.ISR)):
		row.ErrorCode = int16(kafka.ReplicaNotAvailable)
	case !led:
		row.Leader, row.ErrorCode = int32(kafka.NoLeader), int16(kafka.LeaderNotAvailable)
		if n.alive[p.Leader] && version >= 6 {
			row.ErrorCode = int16(kafka.ListenerNotFound)
		}
	}
	return row
}

func (n nodes) reachable(ids []kafka.BrokerID) []kafka.BrokerID {
	var out []kafka.BrokerID
	for _, id := range ids {
		if _, ok := n.listed[id]; ok {
			out = append(out, id)
		}
	}
	return out
}

func rack(b kafka.Broker) *string {
	if !b.HasRack {
		return nil
	}
	return new(b.Rack)
}

func (e *Endpoint) describeCluster(ctx context.Context, req *kmsg.DescribeClusterRequest) (kmsg.Response, error) {
	return AnswerDescribeCluster(ctx, req, e.listener, e.look)
}

// AnswerDescribeCluster answers DescribeCluster on a listener
// (spec/admin-api.md §8). An error is look's.
func AnswerDescribeCluster(ctx context.Context, req *kmsg.DescribeClusterRequest, listener string, look Look) (kmsg.Response, error) {
	const brokerEndpoints = 1
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.EndpointType, resp.ControllerID = brokerEndpoints, int32(kafka.NoController)
	if req.Version >= 1 && req.EndpointType != brokerEndpoints {
		resp.ErrorCode = int16(kafka.MismatchedEndpointType)
		resp.ErrorMessage = new("this port serves brokers' endpoints (type 1) only")
		return resp, nil
	}
	c, err := look(ctx, nil, false)
	if err != nil {
		return nil, err
	}
	n := nodesOf(c, listener)
	resp.ClusterID, resp.ControllerID = c.ID, n.controller(c)
	for _, b := range c.Brokers {
		if ep, ok := n.listed[b.ID]; ok {
			row := kmsg.NewDescribeClusterResponseBroker()
			row.NodeID, row.Host, row.Port, row.Rack = int32(b.ID), ep.Host, ep.Port, rack(b)
			resp.Brokers = append(resp.Brokers, row)
		}
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp, nil
}
