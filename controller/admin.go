package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

func rowError(code kafka.ErrorCode, format string, args ...any) events.RowError {
	return events.RowError{Error: code, Message: fmt.Sprintf(format, args...)}
}

// plannedTopic is a topic that passed the checks so far.
type plannedTopic struct {
	row    int
	name   string
	node   zkpaths.Topic
	config map[string]string
}

// onCreateTopics checks, writes and at once leads new topics (spec/admin-api.md
// §2). The original writes on a request thread and waits for its own watch;
// the znodes and their order are the same.
func (c *Controller) onCreateTopics(ctx context.Context, e events.CreateTopics) error {
	rows := make([]events.NewTopicResult, len(e.Topics))
	names := c.collisions()
	var planned []plannedTopic
	total := 0
	for i, t := range e.Topics {
		rows[i] = events.NewTopicResult{Partitions: -1, ReplicationFactor: -1}
		node, failure := c.planTopic(t, names, maxPartitions-total)
		if failure.Error != kafka.NoError {
			rows[i].RowError = failure
			continue
		}
		total += len(node.Partitions)
		planned = append(planned, plannedTopic{row: i, name: t.Name, node: node, config: t.Configs})
	}
	planned, err := c.checkAbsent(ctx, planned, rows, e.ValidateOnly)
	if err == nil && !e.ValidateOnly {
		planned, err = c.createTopics(ctx, planned, rows)
	}
	for _, p := range planned {
		row := &rows[p.row]
		if err != nil {
			row.RowError = rowError(topLevel(err), "%v", err)
			continue
		}
		row.Partitions, row.ReplicationFactor = int32(len(p.node.Partitions)), 0
		if len(p.node.Partitions) > 0 {
			row.ReplicationFactor = int16(len(p.node.Partitions[0].Replicas))
		}
		row.Configs = p.config
		if !e.ValidateOnly {
			row.ID, row.Pending = p.node.ID, c.leaderless(p.name)
		}
	}
	e.Reply(rows)
	return err
}

// collisions maps known topic names, with dots read as underscores, to themselves.
func (c *Controller) collisions() func(string) (string, bool) {
	var names map[string]string
	return func(name string) (string, bool) {
		if !strings.ContainsAny(name, "._") {
			return "", false
		}
		if names == nil {
			names = map[string]string{}
			for _, t := range c.state.Topics() {
				if strings.ContainsAny(t.Name, "._") {
					names[strings.ReplaceAll(t.Name, ".", "_")] = t.Name
				}
			}
		}
		other, ok := names[strings.ReplaceAll(name, ".", "_")]
		return other, ok && other != name
	}
}

// planTopic runs the checks that need no reading, in the original's order.
func (c *Controller) planTopic(t events.NewTopic, collides func(string) (string, bool), room int) (zkpaths.Topic, events.RowError) {
	node := zkpaths.Topic{Version: c.policy.TopicVersion()}
	if c.state.Queued(t.Name) {
		return node, rowError(kafka.TopicAlreadyExists, "topic %q is marked for deletion", t.Name)
	}
	if c.state.Topic(t.Name) != nil {
		return node, rowError(kafka.TopicAlreadyExists, "topic %q exists already", t.Name)
	}
	if t.Assignment == nil {
		if failure := c.assignTopic(&node, t, room); failure.Error != kafka.NoError {
			return node, failure
		}
	}
	if reason := kafka.ValidTopicName(t.Name); reason != "" {
		return node, rowError(kafka.InvalidTopicException, "%s", reason)
	}
	if other, ok := collides(t.Name); ok {
		return node, rowError(kafka.InvalidTopicException, "topic %q collides with topic %q: they differ only in '.' and '_'", t.Name, other)
	}
	if t.Assignment != nil {
		if failure := c.givenAssignment(&node, t.Assignment); failure.Error != kafka.NoError {
			return node, failure
		}
	}
	if reason := kafka.CheckTopicConfigs(t.Configs); reason != "" {
		return node, rowError(kafka.InvalidConfig, "%s", reason)
	}
	if c.opts.Version.AtLeast(kafka.V2_8IV0) {
		node.ID = c.opts.UUID()
	}
	return node, events.RowError{}
}

// maxPartitions is how many partitions one request may ask us to place; each
// costs memory here long before ZooKeeper sees any.
const maxPartitions = 200_000

// tooMany tells why partitions cannot be placed, or "". It is asked before they
// are, so that a number alone costs nothing. crowded: the request has too many as it is.
func tooMany(partitions, factor int32, crowded bool) string {
	if crowded {
		return fmt.Sprintf("more than %d partitions in one request; ask for them in several", maxPartitions)
	}
	return reassign.TooLarge(int(partitions), int(factor))
}

// assignTopic places the replicas of a new topic on live brokers.
func (c *Controller) assignTopic(node *zkpaths.Topic, t events.NewTopic, room int) events.RowError {
	partitions, factor := t.Partitions, t.ReplicationFactor
	if partitions == -1 {
		partitions = c.opts.DefaultPartitions
	}
	if factor == -1 {
		factor = c.opts.DefaultReplication
	}
	live := c.racks(c.state.LiveBrokers())
	switch {
	case partitions <= 0:
		return rowError(kafka.InvalidPartitions, "the number of partitions must be above 0, not %d", partitions)
	case factor <= 0:
		return rowError(kafka.InvalidReplicationFactor, "the replication factor must be above 0, not %d", factor)
	case int(factor) > len(live):
		return rowError(kafka.InvalidReplicationFactor, "replication factor %d is above the number of live brokers, %d", factor, len(live))
	}
	if reason := tooMany(partitions, int32(factor), int(partitions) > room); reason != "" {
		return rowError(kafka.InvalidPartitions, "%s", reason)
	}
	a, err := reassign.AutoAssign(live, int(partitions), int(factor), c.opts.Rand(len(live)), c.opts.Rand(len(live)), 0)
	if err != nil {
		return rowError(kafka.UnknownServerError, "%v", err)
	}
	node.Partitions = assignments(a)
	return events.RowError{}
}

func assignments(a map[int32][]kafka.BrokerID) []zkpaths.PartitionAssignment {
	out := make([]zkpaths.PartitionAssignment, 0, len(a))
	for n, ids := range a {
		out = append(out, zkpaths.PartitionAssignment{Partition: n, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: ids}})
	}
	slices.SortFunc(out, func(a, b zkpaths.PartitionAssignment) int { return cmp.Compare(a.Partition, b.Partition) })
	return out
}

// racks gives brokers with their racks. We are no home for replicas ourselves.
func (c *Controller) racks(bs []kafka.Broker) []reassign.BrokerRack {
	var out []reassign.BrokerRack
	for _, b := range bs {
		out = append(out, reassign.BrokerRack{ID: b.ID, Rack: b.Rack, HasRack: b.HasRack})
	}
	return out
}

// givenAssignment checks a manual assignment. Unlike the original it refuses
// empty lists and, where we are no broker, our own id (spec/admin-api.md §2).
func (c *Controller) givenAssignment(node *zkpaths.Topic, a map[int32][]kafka.BrokerID) events.RowError {
	node.Partitions = assignments(a)
	if len(node.Partitions) == 0 {
		return rowError(kafka.InvalidReplicaAssignment, "the assignment has no partitions")
	}
	width := len(node.Partitions[0].Replicas)
	for i, p := range node.Partitions {
		if p.Partition != int32(i) {
			return rowError(kafka.InvalidReplicaAssignment, "partition ids must be 0 to %d without holes", len(a)-1)
		}
		if failure := c.checkReplicas(p.Replicas, width); failure.Error != kafka.NoError {
			return failure
		}
	}
	return events.RowError{}
}

func (c *Controller) checkReplicas(ids []kafka.BrokerID, width int) events.RowError {
	if r := reassign.CheckTarget(ids); r != nil {
		return events.RowError{Error: r.Code, Message: r.Reason}
	}
	if len(ids) != width {
		return rowError(kafka.InvalidReplicaAssignment, "all partitions must have the same number of replicas; %v has not %d", ids, width)
	}
	if slices.Contains(ids, c.opts.ID) && !c.state.Registered(c.opts.ID) {
		return rowError(kafka.InvalidReplicaAssignment, "broker %d is the controller, which hosts no replicas", c.opts.ID)
	}
	return events.RowError{}
}

// checkAbsent reads whether topics are marked for deletion. Whether they exist
// shows when they are created; only a validation has to ask.
func (c *Controller) checkAbsent(ctx context.Context, planned []plannedTopic, rows []events.NewTopicResult, validate bool) ([]plannedTopic, error) {
	reads := readsOf(zkpaths.Exists, planned, func(p plannedTopic) string { return zkpaths.DeleteTopicPath(p.name) }, false)
	if validate {
		reads = append(reads, readsOf(zkpaths.Exists, planned, func(p plannedTopic) string { return zkpaths.TopicPath(p.name) }, false)...)
	}
	nodes, err := c.read(ctx, reads)
	if err != nil {
		return planned, err
	}
	var out []plannedTopic
	for i, p := range planned {
		switch {
		case nodes[i].Code == zkpaths.OK:
			rows[p.row].RowError = rowError(kafka.TopicAlreadyExists, "topic %q is marked for deletion", p.name)
		case validate && nodes[len(planned)+i].Code == zkpaths.OK:
			rows[p.row].RowError = rowError(kafka.TopicAlreadyExists, "topic %q exists already", p.name)
		default:
			out = append(out, p)
		}
	}
	return out, nil
}

// writeNewTopics writes configuration, then topic, of each, for topics too
// large for one transaction (spec/controller.md §7.18).
func (c *Controller) writeNewTopics(ctx context.Context, planned []plannedTopic, rows []events.NewTopicResult) ([]plannedTopic, error) {
	var writes []zkpaths.Write
	for _, p := range planned {
		writes = append(writes,
			zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.TopicConfigPath(p.name), Data: zkpaths.EncodeConfig(p.config)},
			zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.TopicPath(p.name), Data: zkpaths.EncodeTopic(p.node)})
	}
	out, err := c.write(ctx, writes)
	if err != nil {
		return planned, err
	}
	var done []plannedTopic
	var configs []zkpaths.Write
	for i, p := range planned {
		cfg, topic := out[2*i], out[2*i+1]
		switch {
		case topic.OK():
			done = append(done, p)
			if cfg.Code == zkpaths.NodeExists { // left over from an earlier topic of that name
				configs = append(configs, zkpaths.Write{Op: zkpaths.Set, Path: writes[2*i].Path, Data: writes[2*i].Data, Version: zkpaths.AnyVersion})
			}
		case topic.Code == zkpaths.NodeExists:
			rows[p.row].RowError = rowError(kafka.TopicAlreadyExists, "topic %q exists already", p.name)
		default:
			rows[p.row].RowError = rowError(kafka.UnknownServerError, "%v", topic.Error(writes[2*i+1].Path))
		}
	}
	_, err = c.write(ctx, configs)
	return done, err
}

// leadNewTopics arms the topics' watches and elects first leaders.
func (c *Controller) leadNewTopics(ctx context.Context, planned []plannedTopic) error {
	names := make([]string, len(planned))
	for i, p := range planned {
		names[i] = p.name
	}
	topics, err := c.loadTopics(ctx, names, false)
	if err != nil {
		return err
	}
	return c.createTopicsFound(ctx, topics)
}

// leaderless tells whether some partition of a topic has no leader.
func (c *Controller) leaderless(topic string) bool {
	t := c.state.Topic(topic)
	return t == nil || slices.ContainsFunc(t.Partitions(), func(p *statemachine.Partition) bool { return !p.HasLeadership || p.Leader < 0 })
}

// onCreatePartitions adds partitions to topics (spec/admin-api.md §4).
func (c *Controller) onCreatePartitions(ctx context.Context, e events.CreatePartitions) error {
	rows := make([]events.MorePartitionsResult, len(e.Topics))
	extra := map[*statemachine.Topic][]zkpaths.PartitionAssignment{}
	row := map[*statemachine.Topic]int{}
	var topics []*statemachine.Topic
	total := 0
	for i, req := range e.Topics {
		t := c.state.Topic(req.Topic)
		more, failure := c.planPartitions(t, req, maxPartitions-total)
		total += len(more)
		if rows[i].RowError = failure; failure.Error != kafka.NoError || e.ValidateOnly {
			continue
		}
		extra[t], row[t] = more, i
		topics = append(topics, t)
	}
	err := c.addPartitions(ctx, topics, extra, func(t *statemachine.Topic, why error) {
		rows[row[t]].RowError = rowError(kafka.UnknownServerError, "%v", why)
	})
	for _, t := range topics {
		r := &rows[row[t]]
		if err != nil {
			r.RowError = rowError(topLevel(err), "%v", err)
		} else if r.Error == kafka.NoError {
			r.Pending = c.leaderless(t.Name)
		}
	}
	e.Reply(rows)
	return err
}

// planPartitions runs the checks in the original's order and assigns replicas.
func (c *Controller) planPartitions(t *statemachine.Topic, req events.MorePartitions, room int) ([]zkpaths.PartitionAssignment, events.RowError) {
	if c.state.Queued(req.Topic) {
		return nil, rowError(kafka.InvalidTopicException, "topic %q is being deleted", req.Topic)
	}
	if t == nil {
		return nil, rowError(kafka.UnknownTopicOrPartition, "there is no topic %q", req.Topic)
	}
	if t.Damaged {
		return nil, rowError(kafka.UnknownServerError, "%v", errDamaged)
	}
	parts := t.Partitions()
	for _, p := range parts {
		if p.Assignment.Reassigning() {
			return nil, rowError(kafka.ReassignmentInProgress, "partition %s is being reassigned", p.TopicPartition)
		}
	}
	present := int32(len(parts))
	if req.Count <= present {
		return nil, rowError(kafka.InvalidPartitions, "topic %q has %d partitions already; the number can only grow", req.Topic, present)
	}
	first := c.state.Partition(kafka.TopicPartition{Topic: req.Topic, Partition: 0})
	if first == nil || len(first.Assignment.Replicas) == 0 {
		return nil, rowError(kafka.UnknownServerError, "partition 0 of topic %q is missing, so the replication factor is not known", req.Topic)
	}
	factor := len(first.Assignment.Replicas)
	if req.Assignment != nil {
		return c.givenPartitions(req, present, factor)
	}
	if reason := tooMany(req.Count, int32(factor), int(req.Count-present) > room); reason != "" {
		return nil, rowError(kafka.InvalidPartitions, "%s", reason)
	}
	brokers := c.racks(c.state.Brokers())
	start := max(0, slices.IndexFunc(brokers, func(b reassign.BrokerRack) bool { return b.ID >= first.Assignment.Replicas[0] }))
	a, err := reassign.AutoAssign(brokers, int(req.Count-present), factor, start, start, present)
	if err != nil {
		return nil, rowError(kafka.InvalidReplicationFactor, "%v", err)
	}
	return assignments(a), events.RowError{}
}

func (c *Controller) givenPartitions(req events.MorePartitions, present int32, factor int) ([]zkpaths.PartitionAssignment, events.RowError) {
	for _, ids := range req.Assignment {
		for _, id := range ids {
			if !c.state.Registered(id) {
				return nil, rowError(kafka.InvalidReplicaAssignment, "broker %d is not registered", id)
			}
		}
	}
	if len(req.Assignment) != int(req.Count-present) {
		return nil, rowError(kafka.InvalidReplicaAssignment, "%d partitions are to be added, but %d are assigned", req.Count-present, len(req.Assignment))
	}
	var out []zkpaths.PartitionAssignment
	for i, ids := range req.Assignment {
		if failure := c.checkReplicas(ids, factor); failure.Error != kafka.NoError {
			return nil, failure
		}
		out = append(out, zkpaths.PartitionAssignment{Partition: present + int32(i), ReplicaAssignment: kafka.ReplicaAssignment{Replicas: ids}})
	}
	return out, events.RowError{}
}

// addPartitions writes topics with their new partitions and leads those.
func (c *Controller) addPartitions(ctx context.Context, topics []*statemachine.Topic, more map[*statemachine.Topic][]zkpaths.PartitionAssignment, failed func(*statemachine.Topic, error)) error {
	var ps []*statemachine.Partition
	for _, t := range topics {
		w := zkpaths.Write{Op: zkpaths.Set, Path: zkpaths.TopicPath(t.Name), Data: c.topicNode(t, asKnown, more[t]...), Version: t.ZKVersion}
		out, err := c.write(ctx, []zkpaths.Write{w})
		if err != nil {
			return err
		}
		if !out[0].OK() {
			failed(t, out[0].Error(w.Path))
			continue
		}
		t.ZKVersion = out[0].Version
		for _, p := range more[t] {
			ps = append(ps, c.state.SetAssignment(t, p.Partition, p.ReplicaAssignment))
		}
	}
	return c.createPartitions(ctx, ps)
}

// onDeleteTopics marks topics for deletion and starts it (spec/admin-api.md §3).
func (c *Controller) onDeleteTopics(ctx context.Context, e events.DeleteTopics) error {
	rows := make([]events.DeletedTopic, len(e.Topics))
	var names []string
	var writes []zkpaths.Write
	for i, ref := range e.Topics {
		rows[i] = events.DeletedTopic{Name: ref.Name, ID: ref.ID}
		t, code := c.refTopic(ref)
		switch {
		case !c.opts.DeleteTopics:
			rows[i].RowError = rowError(kafka.TopicDeletionDisabled, "deletion of topics is switched off (delete.topic.enable)")
		case t == nil:
			rows[i].RowError = rowError(code, "there is no such topic")
		default:
			rows[i].Name, rows[i].ID = t.Name, t.ID
			if !slices.Contains(names, t.Name) {
				names = append(names, t.Name)
				writes = append(writes, zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.DeleteTopicPath(t.Name)})
			}
		}
	}
	out, err := c.write(ctx, writes)
	failed := map[string]error{}
	if err == nil {
		for i, o := range out {
			if !o.OK() && o.Code != zkpaths.NodeExists {
				failed[names[i]] = o.Error(writes[i].Path)
			}
		}
		err = c.queueDeletions(ctx, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return failed[n] != nil || c.state.Topic(n) == nil }))
	}
	for i := range rows {
		switch {
		case rows[i].Error != kafka.NoError:
		case err != nil:
			rows[i].RowError = rowError(topLevel(err), "%v", err)
		case failed[rows[i].Name] != nil:
			rows[i].RowError = rowError(kafka.UnknownServerError, "%v", failed[rows[i].Name])
		default:
			rows[i].Pending = c.state.Topic(rows[i].Name) != nil && !c.state.DeletionStarted(rows[i].Name)
		}
	}
	e.Reply(rows)
	return err
}

// refTopic finds a topic by name or id.
func (c *Controller) refTopic(ref events.TopicRef) (*statemachine.Topic, kafka.ErrorCode) {
	if ref.Name != "" {
		return c.state.Topic(ref.Name), kafka.UnknownTopicOrPartition
	}
	return c.state.TopicByID(ref.ID), kafka.UnknownTopicID
}

// onDescribe answers what clients' metadata requests need.
func (c *Controller) onDescribe(ctx context.Context, e events.Describe) error {
	err := c.learnClusterID(ctx)
	out := events.Cluster{ID: c.clusterID, Controller: c.known}
	if err == nil && !c.active {
		out.Brokers, err = c.readBrokersUnwatched(ctx)
	}
	if c.active {
		out.Brokers = c.announced()
		out.Topics = c.describeTopics(e)
	}
	e.Reply(out)
	return err
}

// learnClusterID reads /cluster/id until it is there; it never changes.
func (c *Controller) learnClusterID(ctx context.Context) error {
	if c.clusterID != "" {
		return nil
	}
	n, err := c.readOne(ctx, zkpaths.GetData, zkpaths.ClusterID, false)
	if err != nil || n.Code != zkpaths.OK {
		return err
	}
	if c.clusterID, err = zkpaths.DecodeClusterID(n.Data); c.report(err) {
		err = nil
	}
	return err
}

// announced is the list of brokers that UpdateMetadata tells: the registered
// ones and, unless hidden, ourselves.
func (c *Controller) announced() []kafka.Broker {
	bs := c.state.Brokers()
	if c.opts.Self != nil && !c.state.Registered(c.opts.ID) {
		bs = append(bs, *c.opts.Self)
	}
	return bs
}

// readBrokersUnwatched lists brokers for a standby, which watches nothing but /controller.
func (c *Controller) readBrokersUnwatched(ctx context.Context) ([]kafka.Broker, error) {
	list, err := c.readOne(ctx, zkpaths.GetChildren, zkpaths.BrokerIDs, false)
	if err != nil {
		return nil, err
	}
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, list.Children, func(name string) string { return zkpaths.BrokerIDs + "/" + name }, false))
	if err != nil {
		return nil, err
	}
	var out []kafka.Broker
	for i, n := range nodes {
		id, ok := zkpaths.ParseBrokerID(list.Children[i])
		if !ok || n.Code != zkpaths.OK {
			continue
		}
		if r, err := zkpaths.DecodeBroker(id, n.Data); err == nil {
			r.Broker.ID, r.Broker.Epoch = id, n.Stat.Czxid
			out = append(out, r.Broker)
		}
	}
	return out, nil
}

func (c *Controller) describeTopics(e events.Describe) []events.TopicDescription {
	var out []events.TopicDescription
	describe := func(t *statemachine.Topic) {
		d := events.TopicDescription{Name: t.Name, ID: t.ID}
		for _, p := range t.Partitions() {
			if p.HasLeadership {
				d.Partitions = append(d.Partitions, *c.state.LeaderAndISREntry(p, p.Leadership, false))
			}
		}
		out = append(out, d)
	}
	if e.All {
		for _, t := range c.state.Topics() {
			if !c.state.DeletionStarted(t.Name) {
				describe(t)
			}
		}
		return out
	}
	for _, ref := range e.Topics {
		t, code := c.refTopic(ref)
		if t == nil || c.state.DeletionStarted(t.Name) {
			out = append(out, events.TopicDescription{Error: code, Name: ref.Name, ID: ref.ID})
			continue
		}
		describe(t)
	}
	return out
}
