package endpoint

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// metadataTopic is the name that a KRaft cluster keeps for itself.
const metadataTopic = "__cluster_metadata"

// maxNewPartitions bounds what one request may ask for. A topic's assignment is
// one znode, which holds some 100 000 partitions at ZooKeeper's own limit.
const maxNewPartitions = 1_000_000

// createTopics: spec/admin-api.md §2.
func (e *Endpoint) createTopics(ctx context.Context, req *kmsg.CreateTopicsRequest) (kmsg.Response, error) {
	deadline := deadlineOf(req.TimeoutMillis)
	early, late := checkNewTopics(req)
	if err := e.settleRefused(ctx, early, late, func(i int) string { return req.Topics[i].Topic }); err != nil {
		return nil, err
	}
	results, err := askOthers(ctx, e, req.TimeoutMillis, early, req.Topics, newTopic,
		func(r *events.NewTopicResult) *events.RowError { return &r.RowError },
		func(wanted []events.NewTopic, reply func([]events.NewTopicResult)) events.Event {
			return events.CreateTopics{Topics: wanted, ValidateOnly: req.ValidateOnly, Reply: reply}
		})
	if err != nil {
		return nil, err
	}
	if !req.ValidateOnly {
		waits := make([]wait, len(results))
		for i := range results {
			r := &results[i]
			waits[i] = forLeaders(req.Topics[i].Topic, int(r.Partitions), r.Pending, &r.RowError)
		}
		if err := e.finish(ctx, req.TimeoutMillis, deadline, waits); err != nil {
			return nil, err
		}
	}
	return createTopicsAnswer(req, results), nil
}

// checkNewTopics finds the rows that are refused whatever the cluster has:
// early before anything else is looked at, late only if there is no such topic
// yet (the order of spec/admin-api.md §2).
func checkNewTopics(req *kmsg.CreateTopicsRequest) (early, late map[int]events.RowError) {
	early, late = map[int]events.RowError{}, map[int]events.RowError{}
	count := map[string]int{}
	for _, t := range req.Topics {
		count[t.Topic]++
	}
	partitions := int64(0)
	for i, t := range req.Topics {
		switch {
		case t.Topic == metadataTopic:
			early[i] = refuse(kafka.InvalidRequest, "the name %s is reserved", metadataTopic)
			continue
		case count[t.Topic] > 1:
			early[i] = refuse(kafka.InvalidRequest, "topic %q is in the request %d times", t.Topic, count[t.Topic])
			continue
		}
		if why := checkNewTopic(t); why.Error != kafka.NoError {
			late[i] = why
		} else if partitions += max(int64(t.NumPartitions), int64(len(t.ReplicaAssignment)), 0); partitions > maxNewPartitions {
			late[i] = refuse(kafka.InvalidPartitions, "the request asks for more than %d new partitions", maxNewPartitions)
		}
	}
	return early, late
}

func checkNewTopic(t kmsg.CreateTopicsRequestTopic) events.RowError {
	for _, c := range t.Configs {
		if c.Value == nil {
			return refuse(kafka.InvalidConfig, "configuration %q has a null value", c.Name)
		}
	}
	if len(t.ReplicaAssignment) == 0 {
		return events.RowError{}
	}
	if t.NumPartitions != -1 || t.ReplicationFactor != -1 {
		return refuse(kafka.InvalidRequest, "an assignment was given together with a number of partitions or a replication factor; give one or the other (-1 leaves a number out)")
	}
	if why := kafka.ValidTopicName(t.Topic); why != "" {
		return events.RowError{Error: kafka.InvalidTopicException, Message: why}
	}
	seen := map[int32]bool{}
	for _, a := range t.ReplicaAssignment {
		if seen[a.Partition] {
			return refuse(kafka.InvalidReplicaAssignment, "the assignment has partition %d twice", a.Partition)
		}
		seen[a.Partition] = true
	}
	return events.RowError{}
}

func newTopic(t kmsg.CreateTopicsRequestTopic) events.NewTopic {
	n := events.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
	if len(t.ReplicaAssignment) > 0 {
		n.Assignment = make(map[int32][]kafka.BrokerID, len(t.ReplicaAssignment))
		for _, a := range t.ReplicaAssignment {
			n.Assignment[a.Partition] = brokerIDs(a.Replicas)
		}
	}
	if len(t.Configs) > 0 {
		n.Configs = make(map[string]string, len(t.Configs))
		for _, c := range t.Configs {
			n.Configs[c.Name] = *c.Value
		}
	}
	return n
}

func createTopicsAnswer(req *kmsg.CreateTopicsRequest, results []events.NewTopicResult) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	for i, r := range results {
		row := kmsg.NewCreateTopicsResponseTopic()
		row.Topic, row.ErrorCode, row.ErrorMessage = req.Topics[i].Topic, int16(r.Error), message(r.RowError)
		row.NumPartitions, row.ReplicationFactor = -1, -1
		// Never null: Java's client fails on null configurations next to counts (spec/control-plane.md §5.2).
		row.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
		if r.Error == kafka.NoError {
			row.NumPartitions, row.ReplicationFactor = r.Partitions, r.ReplicationFactor
			if !req.ValidateOnly {
				row.TopicID = r.ID
			}
		}
		resp.Topics = append(resp.Topics, row)
	}
	return resp
}

// createPartitions: spec/admin-api.md §4.
func (e *Endpoint) createPartitions(ctx context.Context, req *kmsg.CreatePartitionsRequest) (kmsg.Response, error) {
	deadline := deadlineOf(req.TimeoutMillis)
	topics, refused := checkMorePartitions(req)
	if err := e.settleRefused(ctx, refused, nil, nil); err != nil {
		return nil, err
	}
	results, err := askOthers(ctx, e, req.TimeoutMillis, refused, topics, morePartitions,
		func(r *events.MorePartitionsResult) *events.RowError { return &r.RowError },
		func(wanted []events.MorePartitions, reply func([]events.MorePartitionsResult)) events.Event {
			return events.CreatePartitions{Topics: wanted, ValidateOnly: req.ValidateOnly, Reply: reply}
		})
	if err != nil {
		return nil, err
	}
	if !req.ValidateOnly {
		waits := make([]wait, len(results))
		for i := range results {
			r := &results[i]
			waits[i] = forLeaders(topics[i].Topic, int(topics[i].Count), r.Pending, &r.RowError)
		}
		if err := e.finish(ctx, req.TimeoutMillis, deadline, waits); err != nil {
			return nil, err
		}
	}
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	for i, r := range results {
		row := kmsg.NewCreatePartitionsResponseTopic()
		row.Topic, row.ErrorCode, row.ErrorMessage = topics[i].Topic, int16(r.Error), message(r.RowError)
		resp.Topics = append(resp.Topics, row)
	}
	return resp, nil
}

// checkMorePartitions gives each topic of the request once, and the rows that
// are refused whatever the cluster has.
func checkMorePartitions(req *kmsg.CreatePartitionsRequest) ([]kmsg.CreatePartitionsRequestTopic, map[int]events.RowError) {
	var topics []kmsg.CreatePartitionsRequestTopic
	at := map[string]int{}
	refused := map[int]events.RowError{}
	partitions := int64(0)
	for _, t := range req.Topics {
		if i, twice := at[t.Topic]; twice {
			refused[i] = refuse(kafka.InvalidRequest, "topic %q is in the request more than once", t.Topic)
			continue
		}
		at[t.Topic] = len(topics)
		if partitions += max(int64(t.Count), 0); partitions > maxNewPartitions {
			refused[len(topics)] = refuse(kafka.InvalidPartitions, "the request asks for more than %d partitions", maxNewPartitions)
		}
		topics = append(topics, t)
	}
	return topics, refused
}

func morePartitions(t kmsg.CreatePartitionsRequestTopic) events.MorePartitions {
	m := events.MorePartitions{Topic: t.Topic, Count: t.Count}
	if t.Assignment != nil {
		m.Assignment = make([][]kafka.BrokerID, len(t.Assignment))
		for i, a := range t.Assignment {
			m.Assignment[i] = brokerIDs(a.Replicas)
		}
	}
	return m
}

// deleteTopics: spec/admin-api.md §3.
func (e *Endpoint) deleteTopics(ctx context.Context, req *kmsg.DeleteTopicsRequest) (kmsg.Response, error) {
	deadline := deadlineOf(req.TimeoutMillis)
	refs, refused := deletedRefs(req)
	if err := e.settleRefused(ctx, refused, nil, nil); err != nil {
		return nil, err
	}
	// A topic that is asked for twice is deleted once and answered twice.
	var wanted []events.TopicRef
	at := map[events.TopicRef]int{}
	for i, ref := range refs {
		_, bad := refused[i]
		if _, seen := at[ref]; !seen && !bad {
			at[ref] = len(wanted)
			wanted = append(wanted, ref)
		}
	}
	rows, err := askRows(ctx, e, req.TimeoutMillis, len(wanted),
		func(i int) events.DeletedTopic {
			return events.DeletedTopic{RowError: requestTimedOut, Name: wanted[i].Name, ID: wanted[i].ID}
		},
		func(reply func([]events.DeletedTopic)) events.Event {
			return events.DeleteTopics{Topics: wanted, Reply: reply}
		})
	if err != nil {
		return nil, err
	}
	var waits []wait
	for i := range rows {
		r := &rows[i]
		waits = append(waits, wait{ref: wanted[i], row: &r.RowError, pending: r.Pending,
			done: func(t events.TopicDescription) bool {
				return t.Error != kafka.NoError || !r.ID.IsZero() && t.ID != r.ID // another one took its name
			}})
	}
	if err := e.finish(ctx, req.TimeoutMillis, deadline, waits); err != nil {
		return nil, err
	}
	results := make([]events.DeletedTopic, len(refs))
	for i, ref := range refs {
		if why, bad := refused[i]; bad {
			results[i].RowError = why
		} else {
			results[i] = rows[at[ref]]
		}
	}
	return deleteTopicsAnswer(req, refs, results), nil
}

// deletedRefs gives the topics asked for, and the rows that are refused
// whatever the cluster has. One row with both name and id refuses them all.
func deletedRefs(req *kmsg.DeleteTopicsRequest) ([]events.TopicRef, map[int]events.RowError) {
	var refs []events.TopicRef
	refused := map[int]events.RowError{}
	add := func(name *string, id kafka.TopicID) {
		ref := events.TopicRef{ID: id}
		switch {
		case name != nil && *name != "":
			ref.Name = *name
		case name != nil: // the loop would take the empty name for "by id"
			refused[len(refs)] = refuse(kafka.UnknownTopicOrPartition, "there is no topic with an empty name")
		case id.IsZero():
			refused[len(refs)] = refuse(kafka.UnknownTopicID, "a topic was given neither by name nor by id")
		}
		refs = append(refs, ref)
	}
	if req.Version < 6 {
		for i := range req.TopicNames {
			add(&req.TopicNames[i], kafka.TopicID{})
		}
		return refs, refused
	}
	both := false
	for _, t := range req.Topics {
		add(t.Topic, t.TopicID)
		both = both || t.Topic != nil && t.TopicID != [16]byte{}
	}
	if both {
		for i := range refs {
			refused[i] = refuse(kafka.InvalidRequest, "a topic of the request has a name and an id; give one of them")
		}
	}
	return refs, refused
}

func deleteTopicsAnswer(req *kmsg.DeleteTopicsRequest, refs []events.TopicRef, results []events.DeletedTopic) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	for i, r := range results {
		if r.Error == kafka.TopicDeletionDisabled && req.Version < 3 {
			r.Error = kafka.InvalidRequest // 73 came with version 3
		}
		row := kmsg.NewDeleteTopicsResponseTopic()
		row.ErrorCode, row.ErrorMessage, row.TopicID = int16(r.Error), message(r.RowError), refs[i].ID
		switch {
		case req.Version < 6:
			row.Topic = &req.TopicNames[i]
		case req.Topics[i].Topic != nil:
			row.Topic = req.Topics[i].Topic
		case r.Name != "": // by id: null as long as the id is unknown
			row.Topic = new(r.Name)
		}
		resp.Topics = append(resp.Topics, row)
	}
	return resp
}

// askRows asks the loop for n rows, which have to be answered while the request's
// own time lasts; after it row i is late(i).
func askRows[T any](ctx context.Context, e *Endpoint, timeoutMillis int32, n int, late func(i int) T, build func(reply func([]T)) events.Event) ([]T, error) {
	if n == 0 {
		return nil, nil
	}
	bounded, cancel := timeoutContext(ctx, timeoutMillis)
	defer cancel()
	rows, err := ask(bounded, e, e.clients, build)
	if timedOut(ctx, err) {
		rows = make([]T, n)
		for i := range rows {
			rows[i] = late(i)
		}
		return rows, nil
	}
	return rows, oneEach(err, n, len(rows))
}

// askOthers asks the loop for the rows of a request that were not refused here,
// and gives the results of all rows in the request's order. rowOf is where a
// result keeps its code.
func askOthers[Row, Want, Result any](ctx context.Context, e *Endpoint, timeoutMillis int32, refused map[int]events.RowError, rows []Row,
	want func(Row) Want, rowOf func(*Result) *events.RowError, build func(wanted []Want, reply func([]Result)) events.Event) ([]Result, error) {
	results := make([]Result, len(rows))
	var wanted []Want
	var at []int
	for i, row := range rows {
		if why, bad := refused[i]; bad {
			*rowOf(&results[i]) = why
			continue
		}
		wanted, at = append(wanted, want(row)), append(at, i)
	}
	late := func(int) (r Result) {
		*rowOf(&r) = requestTimedOut
		return r
	}
	answers, err := askRows(ctx, e, timeoutMillis, len(wanted), late, func(reply func([]Result)) events.Event { return build(wanted, reply) })
	if err != nil {
		return nil, err
	}
	for k, r := range answers {
		results[at[k]] = r
	}
	return results, nil
}

// forLeaders waits until all of a topic's partitions, count of them, have leaders.
func forLeaders(topic string, count int, pending bool, row *events.RowError) wait {
	return wait{ref: events.TopicRef{Name: topic}, row: row, pending: pending,
		done: func(t events.TopicDescription) bool { return allLed(t, count) }}
}

// deadlineOf is when the time is over that a client gives its request.
func deadlineOf(timeoutMillis int32) time.Time {
	return time.Now().Add(time.Duration(timeoutMillis) * time.Millisecond)
}

// settleRefused puts the right reason to the rows that this package refused:
// NOT_CONTROLLER on all if we are not, TOPIC_ALREADY_EXISTS on a late one whose
// topic exists. Late ones end up in early.
func (e *Endpoint) settleRefused(ctx context.Context, early, late map[int]events.RowError, name func(int) string) error {
	if len(early)+len(late) == 0 {
		return nil
	}
	var refs []events.TopicRef
	var at []int
	for i := range late {
		refs, at = append(refs, events.TopicRef{Name: name(i)}), append(at, i)
	}
	cluster, err := e.describe(ctx, refs)
	if err != nil {
		return err
	}
	for i, why := range late {
		early[i] = why
	}
	for k, t := range cluster.Topics {
		if t.Error == kafka.NoError {
			early[at[k]] = refuse(kafka.TopicAlreadyExists, "topic %q already exists", t.Name)
		}
	}
	if cluster.Controller != e.id {
		for i := range early {
			early[i] = notController
		}
	}
	return nil
}
