package groups

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Acks of appends.
const (
	acksAll  int16 = -1
	acksNone int16 = 0
)

// maxTopic is far above what a topic's name may be, and fits into a record.
const maxTopic = 1024

// exists tells whether a partition is one to keep offsets of.
func (c *Coordinator) exists(tp kafka.TopicPartition) bool {
	return len(tp.Topic) <= maxTopic && (c.o.Known == nil || c.o.Known(tp))
}

// commit is an OffsetCommit request, sorted.
type commit struct {
	req      *kmsg.OffsetCommitRequest
	unknown  map[kafka.TopicPartition]bool // partitions that do not exist
	tooLarge map[kafka.TopicPartition]bool // with too much metadata
	offsets  map[kafka.TopicPartition]offset
	order    []kafka.TopicPartition // of offsets
}

func (c *Coordinator) newCommit(now time.Time, req *kmsg.OffsetCommitRequest) commit {
	cm := commit{req: req, unknown: map[kafka.TopicPartition]bool{}, tooLarge: map[kafka.TopicPartition]bool{}, offsets: map[kafka.TopicPartition]offset{}}
	for _, t := range req.Topics {
		for _, row := range t.Partitions {
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: row.Partition}
			o := committing(now, req, row)
			_, twice := cm.offsets[tp]
			switch {
			case !c.exists(tp):
				cm.unknown[tp] = true
			case utf16Len(o.metadata) > c.o.MaxOffsetMetadata || len(o.metadata) > maxString:
				cm.tooLarge[tp] = true
			default:
				if cm.offsets[tp] = o; !twice {
					cm.order = append(cm.order, tp)
				}
			}
		}
	}
	return cm
}

// answer gives every row its code: code itself, unless the partition does not
// exist or, once the group has let the request in, the row was not stored.
func (cm commit) answer(code kafka.ErrorCode, letIn bool) *kmsg.OffsetCommitResponse {
	resp := cm.req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range cm.req.Topics {
		topic := kmsg.OffsetCommitResponseTopic{Topic: t.Topic}
		for _, row := range t.Partitions {
			tp, code := kafka.TopicPartition{Topic: t.Topic, Partition: row.Partition}, code
			switch {
			case cm.unknown[tp]:
				code = unknownTopicOrPartition
			case letIn && cm.tooLarge[tp]:
				code = offsetMetadataTooLarge
			}
			topic.Partitions = append(topic.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: row.Partition, ErrorCode: int16(code)})
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// handleOffsetCommit stores offsets. Version 0 is served like the others,
// although Kafka keeps its offsets in ZooKeeper.
func (c *Coordinator) handleOffsetCommit(now time.Time, r Request, req *kmsg.OffsetCommitRequest) {
	cm := c.newCommit(now, req)
	if len(cm.order)+len(cm.tooLarge) == 0 { // the group is not even looked at
		r.Reply(cm.answer(kafka.NoError, false))
		return
	}
	g, code := c.groupForCommit(now, req)
	if code != kafka.NoError {
		r.Reply(cm.answer(code, false))
		return
	}
	if len(cm.order) == 0 {
		r.Reply(cm.answer(kafka.NoError, true))
		return
	}
	c.storeOffsets(now, g, cm, func(code kafka.ErrorCode) { r.Reply(cm.answer(code, true)) })
}

// committing is the offset that a row wants stored.
func committing(now time.Time, req *kmsg.OffsetCommitRequest, row kmsg.OffsetCommitRequestTopicPartition) offset {
	o := offset{offset: row.Offset, leaderEpoch: -1, committed: now.UnixMilli(), expires: noExpiry}
	if row.Metadata != nil {
		o.metadata = *row.Metadata
	}
	if req.Version >= 6 {
		o.leaderEpoch = row.LeaderEpoch
	}
	if req.Version == 1 && row.Timestamp != -1 {
		o.committed = row.Timestamp
	}
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis != -1 {
		o.expires = now.UnixMilli() + req.RetentionTimeMillis
	}
	return o
}

// groupForCommit finds the group that may commit, or makes it for a consumer
// that wants nothing but its offsets kept.
func (c *Coordinator) groupForCommit(now time.Time, req *kmsg.OffsetCommitRequest) (*group, kafka.ErrorCode) {
	generation, memberID, instance := req.Generation, req.MemberID, req.InstanceID
	if req.Version == 0 {
		generation = -1
	}
	p, code := c.find(req.Group, true)
	if code != kafka.NoError {
		return nil, code
	}
	g := p.groups[req.Group]
	if g == nil {
		if generation >= 0 {
			return nil, illegalGeneration
		}
		g = c.newGroup(now, p, req.Group)
	}
	switch {
	case generation < 0 && g.state == Empty:
		return g, kafka.NoError
	case generation < 0 && memberID == "" && instance == nil:
		return nil, unknownMemberID // where there are members, only they commit
	}
	m, code := g.current(memberID, instance)
	switch {
	case code != kafka.NoError:
		return nil, code
	case generation != g.generation:
		return nil, illegalGeneration
	case g.state == CompletingRebalance:
		return nil, rebalanceInProgress
	}
	c.expectHeartbeat(now, g, m, m.session)
	return g, kafka.NoError
}

func (c *Coordinator) storeOffsets(now time.Time, g *group, cm commit, reply func(kafka.ErrorCode)) {
	records := make([]record, 0, len(cm.order))
	for _, tp := range cm.order {
		records = append(records, record{key: offsetKey(g.id, tp), value: offsetValue(cm.offsets[tp], c.o.Version)})
	}
	var token Token
	token = c.append(now, g.partition, acksAll, records, func(now time.Time, code kafka.ErrorCode) {
		if g.state != Dead {
			for _, tp := range cm.order {
				if code == kafka.NoError {
					o := cm.offsets[tp]
					o.token = token
					g.commit(tp, o)
				} else {
					g.failed(tp, token)
				}
			}
		}
		reply(commitError(code))
	})
	for _, tp := range cm.order {
		g.uncommitted[tp] = token
	}
}

// handleOffsetFetch reads offsets, whatever state the group is in.
func (c *Coordinator) handleOffsetFetch(r Request, req *kmsg.OffsetFetchRequest) {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version >= 8 {
		for _, want := range req.Groups {
			resp.Groups = append(resp.Groups, c.fetch(want, req.RequireStable))
		}
		r.Reply(resp)
		return
	}
	want := kmsg.OffsetFetchRequestGroup{Group: req.Group}
	if req.Topics != nil {
		want.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		want.Topics = append(want.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	got := c.fetch(want, req.RequireStable)
	if req.Version < 2 && got.ErrorCode != 0 { // these have no place for it but the rows
		for _, t := range want.Topics {
			got.Topics = append(got.Topics, fetchedTopic(t.Topic, t.Partitions, func(int32) (offset, kafka.ErrorCode) {
				return noOffset(), kafka.ErrorCode(got.ErrorCode)
			}))
		}
	}
	resp.ErrorCode = got.ErrorCode
	for _, t := range got.Topics {
		topic := kmsg.OffsetFetchResponseTopic{Topic: t.Topic}
		for _, row := range t.Partitions {
			topic.Partitions = append(topic.Partitions, kmsg.OffsetFetchResponseTopicPartition{Partition: row.Partition, Offset: row.Offset,
				LeaderEpoch: row.LeaderEpoch, Metadata: row.Metadata, ErrorCode: row.ErrorCode})
		}
		resp.Topics = append(resp.Topics, topic)
	}
	r.Reply(resp)
}

// noOffset is the answer where nothing was committed.
func noOffset() offset { return offset{offset: -1, leaderEpoch: -1} }

// fetch reads one group's offsets; no topics at all means all that there are.
// Offsets on their way are not told to whoever requires stable ones.
func (c *Coordinator) fetch(want kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.OffsetFetchResponseGroup{Group: want.Group}
	p, code := c.find(want.Group, true)
	if code != kafka.NoError {
		resp.ErrorCode = int16(code)
		return resp
	}
	g := p.groups[want.Group]
	topics := want.Topics
	if topics == nil && g != nil {
		for _, tp := range g.partitions() {
			if n := len(topics); n == 0 || topics[n-1].Topic != tp.Topic {
				topics = append(topics, kmsg.OffsetFetchRequestGroupTopic{Topic: tp.Topic})
			}
			t := &topics[len(topics)-1]
			t.Partitions = append(t.Partitions, tp.Partition)
		}
	}
	for _, t := range topics {
		resp.Topics = append(resp.Topics, fetchedTopic(t.Topic, t.Partitions, func(n int32) (offset, kafka.ErrorCode) {
			if g == nil {
				return noOffset(), kafka.NoError
			}
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: n}
			if _, coming := g.uncommitted[tp]; coming && stable {
				return noOffset(), unstableOffsetCommit
			}
			if o, ok := g.offsets[tp]; ok {
				return o, kafka.NoError
			}
			return noOffset(), kafka.NoError
		}))
	}
	return resp
}

func fetchedTopic(topic string, partitions []int32, get func(int32) (offset, kafka.ErrorCode)) kmsg.OffsetFetchResponseGroupTopic {
	t := kmsg.OffsetFetchResponseGroupTopic{Topic: topic}
	for _, n := range partitions {
		o, code := get(n)
		t.Partitions = append(t.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{Partition: n, Offset: o.offset, LeaderEpoch: o.leaderEpoch,
			Metadata: &o.metadata, ErrorCode: int16(code)})
	}
	return t
}

// handleOffsetDelete forgets offsets of topics that no member is subscribed to.
func (c *Coordinator) handleOffsetDelete(now time.Time, r Request, req *kmsg.OffsetDeleteRequest) {
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	defer func() { r.Reply(resp) }()
	codes := map[kafka.TopicPartition]kafka.ErrorCode{}
	var known []kafka.TopicPartition
	for _, t := range req.Topics {
		for _, row := range t.Partitions {
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: row.Partition}
			if _, twice := codes[tp]; twice {
				continue
			}
			if codes[tp] = unknownTopicOrPartition; c.exists(tp) {
				codes[tp] = kafka.NoError
				known = append(known, tp)
			}
		}
	}
	if code := c.deleteOffsets(now, req.Group, known, codes); code != kafka.NoError {
		resp.ErrorCode = int16(code)
		return
	}
	for _, t := range req.Topics {
		topic := kmsg.OffsetDeleteResponseTopic{Topic: t.Topic}
		for _, row := range t.Partitions {
			code := codes[kafka.TopicPartition{Topic: t.Topic, Partition: row.Partition}]
			topic.Partitions = append(topic.Partitions, kmsg.OffsetDeleteResponseTopicPartition{Partition: row.Partition, ErrorCode: int16(code)})
		}
		resp.Topics = append(resp.Topics, topic)
	}
}

func (c *Coordinator) deleteOffsets(now time.Time, id string, tps []kafka.TopicPartition, codes map[kafka.TopicPartition]kafka.ErrorCode) kafka.ErrorCode {
	p, code := c.find(id, false)
	if code != kafka.NoError {
		return code
	}
	g := p.groups[id]
	switch {
	case g == nil:
		return groupIDNotFound
	case g.state != Empty && g.protocolType != consumerProtocol:
		return nonEmptyGroup
	}
	var free []kafka.TopicPartition
	for _, tp := range tps {
		if g.state != Empty && g.mayConsume(tp.Topic) {
			codes[tp] = groupSubscribedToTopic
			continue
		}
		free = append(free, tp)
	}
	if len(free) > 0 {
		c.forget(now, g, g.without(free))
	}
	return kafka.NoError
}

// forget writes tombstones for offsets that a group has no more, and lets the
// group go if nothing is left of it.
func (c *Coordinator) forget(now time.Time, g *group, gone []kafka.TopicPartition) {
	if g.state == Empty && !g.hasOffsets() {
		c.move(now, g, Dead, "neither members nor offsets are left")
	}
	records := make([]record, 0, len(gone)+1)
	for _, tp := range gone {
		records = append(records, record{key: offsetKey(g.id, tp)})
	}
	if g.state == Dead {
		delete(g.partition.groups, g.id)
		c.due.remove(g)
		if g.generation > 0 { // otherwise no record of the group was ever written
			records = append(records, record{key: groupKey(g.id)})
		}
	}
	if len(records) > 0 {
		c.append(now, g.partition, acksNone, records, nil)
	}
}
