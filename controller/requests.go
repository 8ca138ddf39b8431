package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/isrnotify"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// onControlledShutdown takes leaderships and ISR memberships from a broker
// that is about to leave (spec/controller.md §7.11).
func (c *Controller) onControlledShutdown(ctx context.Context, e events.ControlledShutdown) error {
	b, registered := c.state.Broker(e.Broker)
	switch {
	case !registered && e.BrokerEpoch == kafka.NoBrokerEpoch:
		e.Reply(kafka.BrokerNotAvailable, nil)
		return nil
	case !registered:
		e.Reply(kafka.UnknownServerError, nil)
		return nil
	case e.BrokerEpoch != kafka.NoBrokerEpoch && e.BrokerEpoch < b.Epoch:
		e.Reply(kafka.StaleBrokerEpoch, nil)
		return nil
	}
	c.log.WithField("broker", e.Broker).Info("broker asks to shut down")
	c.state.SetShuttingDown(e.Broker)
	if err := c.emptyBroker(ctx, e.Broker); err != nil {
		code := kafka.UnknownServerError
		if isFatal(err) {
			code = kafka.StaleControllerEpoch
		}
		e.Reply(code, nil)
		return err
	}
	var remaining []kafka.TopicPartition
	c.eachOn(e.Broker, func(p *statemachine.Partition) {
		if p.Leader == e.Broker {
			remaining = append(remaining, p.TopicPartition)
		}
	})
	e.Reply(kafka.NoError, remaining)
	return nil
}

// eachOn calls f for every led partition on a broker that has other replicas
// and is not being deleted.
func (c *Controller) eachOn(id kafka.BrokerID, f func(*statemachine.Partition)) {
	c.state.EachPartition(func(p *statemachine.Partition) {
		if len(p.Assignment.Replicas) > 1 && p.HasLeadership && slices.Contains(p.Assignment.Replicas, id) && !c.state.Queued(p.TopicPartition.Topic) {
			f(p)
		}
	})
}

func (c *Controller) emptyBroker(ctx context.Context, id kafka.BrokerID) error {
	var led []*statemachine.Partition
	var followed []statemachine.Replica
	c.eachOn(id, func(p *statemachine.Partition) {
		if p.Leader == id {
			led = append(led, p)
		} else {
			followed = append(followed, statemachine.Replica{Partition: p, Broker: id})
		}
	})
	return c.together(func() error {
		if _, err := c.movePartitions(ctx, led, statemachine.OnlinePartition, statemachine.ControlledShutdownElection); err != nil {
			return err
		}
		return c.moveReplicas(ctx, followed, statemachine.OfflineReplica)
	})
}

// alterPartitions tells whether a batch of events is one of AlterPartition requests.
func alterPartitions(batch []events.Event) ([]events.AlterPartition, bool) {
	var out []events.AlterPartition
	for _, ev := range batch {
		e, ok := ev.(events.AlterPartition)
		if !ok {
			return nil, false
		}
		out = append(out, e)
	}
	return out, true
}

// isrChange is one accepted row of an AlterPartition, before it is written.
type isrChange struct {
	*statemachine.Partition
	next     kafka.Leadership
	req, row int
}

// onAlterPartition decides ISR changes that leaders ask for (spec/controller.md
// §7.12). Requests that came together are written together, unless two of them
// are about the same partition.
func (c *Controller) onAlterPartition(ctx context.Context, reqs []events.AlterPartition) error {
	if !c.active {
		for _, r := range reqs {
			Preempt(r)
		}
		return nil
	}
	for len(reqs) > 0 {
		n := disjoint(reqs)
		if err := c.alterPartitionsTogether(ctx, reqs[:n]); err != nil {
			for _, r := range reqs[n:] {
				r.Reply(topLevel(err), nil)
			}
			return err
		}
		reqs = reqs[n:]
	}
	return nil
}

// disjoint counts the requests from the front that name no partition twice.
func disjoint(reqs []events.AlterPartition) int {
	if len(reqs) == 1 {
		return 1
	}
	type key struct {
		topic     string
		id        kafka.TopicID
		partition int32
	}
	seen := map[key]int{}
	for i, r := range reqs {
		for _, row := range r.Partitions {
			k := key{row.Topic, row.ID, row.Partition}
			if at, ok := seen[k]; ok && at != i {
				return i
			}
			seen[k] = i
		}
	}
	return len(reqs)
}

func (c *Controller) alterPartitionsTogether(ctx context.Context, reqs []events.AlterPartition) error {
	answers := make([][]events.AlterPartitionResult, len(reqs))
	top := make([]kafka.ErrorCode, len(reqs))
	var changes []isrChange
	var named []*statemachine.Partition
	for i, r := range reqs {
		if b, ok := c.state.Broker(r.Broker); !ok || b.Epoch != r.BrokerEpoch {
			top[i] = kafka.StaleBrokerEpoch
			continue
		}
		if slices.ContainsFunc(r.Partitions, func(row events.AlterPartitionRow) bool { return row.Recovery != 0 && row.Recovery != 1 }) {
			top[i] = kafka.UnknownServerError // C-137: the whole request cannot be understood
			continue
		}
		answers[i] = make([]events.AlterPartitionResult, len(r.Partitions))
		for j, row := range r.Partitions {
			p, code := c.partitionOfRow(row)
			if p != nil {
				named = append(named, p)
			}
			if code == kafka.NoError {
				var change *isrChange
				if change, answers[i][j] = c.decideISR(p, r, row); change != nil {
					change.req, change.row = i, j
					changes = append(changes, *change)
				}
				continue
			}
			answers[i][j].Error = code
		}
	}
	written, err := c.writeISRs(ctx, changes, answers)
	if err != nil {
		for _, r := range reqs {
			r.Reply(topLevel(err), nil)
		}
		return err
	}
	if slices.Contains(top, kafka.NoError) { // a request refused as a whole changes nothing and tells nothing
		c.tellMetadata(c.state.BrokerIDs(), named)
	}
	for i, r := range reqs {
		r.Reply(top[i], answers[i])
	}
	if err := c.completeMoves(ctx, written); err != nil {
		return err
	}
	c.send() // if no completed move has taken the metadata along
	return nil
}

func (c *Controller) partitionOfRow(row events.AlterPartitionRow) (*statemachine.Partition, kafka.ErrorCode) {
	name := row.Topic
	if name == "" {
		t := c.state.TopicByID(row.ID)
		if t == nil {
			return nil, kafka.UnknownTopicID
		}
		name = t.Name
	}
	p := c.state.Partition(kafka.TopicPartition{Topic: name, Partition: row.Partition})
	if p == nil || !p.HasLeadership {
		return nil, kafka.UnknownTopicOrPartition
	}
	return p, kafka.NoError
}

// decideISR applies the table of spec/controller.md §7.12 to one row: either a
// change to write, or the answer.
func (c *Controller) decideISR(p *statemachine.Partition, r events.AlterPartition, row events.AlterPartitionRow) (*isrChange, events.AlterPartitionResult) {
	reject := func(code kafka.ErrorCode) (*isrChange, events.AlterPartitionResult) {
		return nil, events.AlterPartitionResult{Error: code}
	}
	recovery := kafka.LeaderRecoveryState(row.Recovery)
	switch {
	case row.ZKVersion > p.ZKVersion || row.LeaderEpoch > p.LeaderEpoch:
		return reject(kafka.NotController)
	case row.LeaderEpoch < p.LeaderEpoch:
		return reject(kafka.FencedLeaderEpoch)
	case p.Leader == r.Broker && slices.Equal(p.ISR, row.ISR) && p.Recovery == recovery:
		return nil, events.AlterPartitionResult{LeaderAndISR: p.LeaderAndISR}
	case row.ZKVersion < p.ZKVersion:
		return reject(kafka.InvalidUpdateVersion)
	case recovery == kafka.Recovering && len(row.ISR) > 1,
		recovery == kafka.Recovering && p.Recovery == kafka.Recovered:
		return reject(kafka.InvalidRequest)
	case slices.ContainsFunc(row.ISR, func(id kafka.BrokerID) bool { return !c.state.Live(id) }):
		if r.Version > 1 {
			return reject(kafka.IneligibleReplica)
		}
		return reject(kafka.OperationNotAttempted)
	}
	next := kafka.Leadership{ControllerEpoch: c.state.Epoch, LeaderAndISR: kafka.LeaderAndISR{Leader: r.Broker,
		LeaderEpoch: row.LeaderEpoch, ISR: row.ISR, Recovery: recovery, ZKVersion: row.ZKVersion}}
	return &isrChange{Partition: p, next: next}, events.AlterPartitionResult{}
}

// writeISRs writes accepted changes and fills in their answers. It gives the
// partitions that were written.
func (c *Controller) writeISRs(ctx context.Context, changes []isrChange, answers [][]events.AlterPartitionResult) ([]*statemachine.Partition, error) {
	writes := make([]zkpaths.Write, len(changes))
	for i, ch := range changes {
		writes[i] = statemachine.SetState(ch.TopicPartition, ch.next, ch.next.ZKVersion)
	}
	out, err := c.write(ctx, writes)
	if err != nil {
		return nil, err
	}
	var written, stale []*statemachine.Partition
	for i, ch := range changes {
		answer := &answers[ch.req][ch.row]
		switch out[i].Code {
		case zkpaths.OK:
			ch.next.ZKVersion = out[i].Version
			ch.Partition.SetLeadership(ch.next)
			answer.LeaderAndISR = ch.next.LeaderAndISR
			written = append(written, ch.Partition)
		case zkpaths.BadVersion:
			answer.Error = kafka.InvalidUpdateVersion
			stale = append(stale, ch.Partition)
		default:
			answer.Error = kafka.UnknownServerError
			c.log.WithFields(partitionFields(ch.TopicPartition)).WithError(out[i].Error(writes[i].Path)).Error("an ISR change could not be written")
		}
	}
	return written, c.cacheStates(ctx, stale)
}

// onISRChangeNotification reads the announcements of leaders that write their
// ISRs themselves (spec/controller.md §7.7).
func (c *Controller) onISRChangeNotification(ctx context.Context) error {
	list, nodes, err := c.readChildren(ctx, zkpaths.ISRNotifications)
	if err != nil || len(list) == 0 {
		return err
	}
	announced := make([]isrnotify.Announcement, 0, len(list))
	for i, n := range nodes {
		if n.Code == zkpaths.OK {
			announced = append(announced, isrnotify.Announcement{Path: zkpaths.ISRNotificationPath(list[i]), Data: n.Data})
		}
	}
	tps, bad := isrnotify.Union(announced)
	for _, err := range bad {
		c.report(err)
	}
	work := c.isrsChanged(ctx, tps)
	if err := c.deleteAll(ctx, zkpaths.ISRNotifications, list); err != nil {
		return err
	}
	return work
}

func (c *Controller) isrsChanged(ctx context.Context, tps []kafka.TopicPartition) error {
	if len(tps) == 0 {
		return nil
	}
	var ps []*statemachine.Partition
	for _, tp := range tps {
		if p := c.state.Partition(tp); p != nil {
			ps = append(ps, p)
		}
	}
	if err := c.cacheStates(ctx, ps); err != nil {
		return err
	}
	c.tellMetadata(c.state.BrokerIDs(), ps)
	if err := c.completeMoves(ctx, ps); err != nil {
		return err
	}
	c.send()
	return nil
}

// onAllocateProducerIDs hands out the next block (spec/controller.md §7.17).
// The write is conditional but not fenced: old brokers write the node themselves.
func (c *Controller) onAllocateProducerIDs(ctx context.Context, e events.AllocateProducerIDs) error {
	b, ok := c.state.Broker(e.Broker)
	switch {
	case !ok:
		e.Reply(kafka.BrokerIDNotRegistered, 0, 0)
		return nil
	case b.Epoch != e.BrokerEpoch:
		e.Reply(kafka.StaleBrokerEpoch, 0, 0)
		return nil
	}
	start, err := c.nextProducerBlock(ctx, e.Broker)
	if err != nil {
		e.Reply(topLevel(err), 0, 0)
		if c.report(err) {
			return nil
		}
		return err
	}
	e.Reply(kafka.NoError, start, zkpaths.ProducerBlockSize)
	return nil
}

func (c *Controller) nextProducerBlock(ctx context.Context, broker kafka.BrokerID) (int64, error) {
	for range maxRetries {
		n, err := c.readOne(ctx, zkpaths.GetData, zkpaths.ProducerIDBlock, false)
		if err != nil {
			return 0, err
		}
		w, block, err := zkpaths.TakeProducerBlock(n, broker)
		if err != nil {
			return 0, err
		}
		out, err := c.store.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{w})
		if err != nil {
			return 0, err
		}
		c.rec.writes([]zkpaths.Write{w}, out)
		if out[0].OK() {
			return block.Start, nil
		}
		if out[0].Code != zkpaths.BadVersion && out[0].Code != zkpaths.NodeExists {
			return 0, out[0].Error(w.Path)
		}
	}
	return 0, fmt.Errorf("%s: other writers won too often", zkpaths.ProducerIDBlock)
}
