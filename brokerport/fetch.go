package brokerport

import (
	"bytes"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// answered is one row of a Fetch with its answer.
type answered struct {
	row    *cachedRow
	topic  string // "" where the id is unknown
	result brokers.FetchResult
}

// fetch: spec/broker.md §8.6, §7.7 on the leader's side.
func (l *Listener) fetch(r *wire.Request, req *kmsg.FetchRequest) {
	rows, forgotten := fetchRows(req)
	fc := l.sessions.open(req, rows, forgotten)
	if fc.err != kafka.NoError {
		r.Reply(&fetchResponse{err: fc.err})
		return
	}
	ask := &brokers.FetchRequest{Replica: kafka.BrokerID(req.ReplicaID), ReplicaEpoch: kafka.NoBrokerEpoch,
		MaxWait: time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond, Committed: req.IsolationLevel == 1, FromFollower: req.Version >= 11}
	if req.Version >= 15 {
		ask.Replica, ask.ReplicaEpoch = kafka.BrokerID(req.ReplicaState.ID), req.ReplicaState.Epoch
	}
	ask.MaxBytes = min(int(max(req.MaxBytes, 0)), l.fetchMaxBytes)
	ask.MinBytes = min(int(req.MinBytes), ask.MaxBytes)
	all := l.resolve(req.Version, fc.rows, ask)
	answer := func(results []brokers.FetchResult) {
		r.Reply(&fetchResponse{build: func(resp *fetchResponse) { l.fetchAnswer(resp, req, ask, fc, all, results) }})
	}
	if len(ask.Rows) == 0 {
		answer(nil)
		return
	}
	l.node.Fetch(ask, answer)
}

// fetchRows gives what a request names. A partition that comes twice counts as
// it came last.
func fetchRows(req *kmsg.FetchRequest) (rows []*cachedRow, forgotten []rowKey) {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	room := make([]cachedRow, 0, n)
	at := make(map[rowKey]*cachedRow, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			key := keyOf(req.Version, t.Topic, t.TopicID, p.Partition)
			row := cachedRow{rowKey: key, high: noOffset, logStart: noOffset, ask: brokers.FetchRow{TopicID: key.id, Offset: p.FetchOffset,
				LogStartOffset: -1, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: int(max(p.PartitionMaxBytes, 0))}}
			if req.Version >= 5 {
				row.ask.LogStartOffset = p.LogStartOffset
			}
			if req.Version >= 9 {
				row.ask.LeaderEpoch = p.CurrentLeaderEpoch
			}
			if req.Version >= 12 {
				row.ask.LastFetchedEpoch = p.LastFetchedEpoch
			}
			if have := at[key]; have != nil {
				have.ask = row.ask
				continue
			}
			room = append(room, row)
			at[key] = &room[len(room)-1]
			rows = append(rows, at[key])
		}
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, p := range t.Partitions {
			forgotten = append(forgotten, keyOf(req.Version, t.Topic, t.TopicID, p))
		}
	}
	return rows, forgotten
}

func keyOf(version int16, topic string, id kafka.TopicID, partition int32) rowKey {
	if version >= 13 {
		return rowKey{id: id, partition: partition}
	}
	return rowKey{topic: topic, partition: partition}
}

// resolve looks the rows up in the metadata cache: what exists goes into ask,
// the rest has its answer.
func (l *Listener) resolve(version int16, rows []*cachedRow, ask *brokers.FetchRequest) []answered {
	all := make([]answered, 0, len(rows))
	ask.Rows = make([]brokers.FetchRow, 0, len(rows))
	cache := l.node.Metadata()
	var last *brokers.TopicMetadata // rows of one topic come together
	for _, row := range rows {
		t := last
		if t == nil || version >= 13 && t.ID != row.id || version < 13 && t.Name != row.topic {
			if version >= 13 {
				t = cache.TopicByID(row.id)
			} else {
				t = cache.Topic(row.topic)
			}
			last = t
		}
		a := answered{row: row, topic: row.topic}
		switch {
		case t == nil && version >= 13:
			a.result = refusedRow(kafka.UnknownTopicID)
		case t == nil:
			a.result = refusedRow(kafka.UnknownTopicOrPartition)
		default:
			a.topic = t.Name
			if findPartition(t, row.partition) == nil {
				a.result = refusedRow(kafka.UnknownTopicOrPartition)
				break
			}
			q := row.ask
			q.Partition = kafka.TopicPartition{Topic: t.Name, Partition: row.partition}
			ask.Rows = append(ask.Rows, q)
		}
		all = append(all, a)
	}
	return all
}

func refusedRow(code kafka.ErrorCode) brokers.FetchResult {
	return brokers.FetchResult{Error: code, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1}
}

// fetchAnswer puts the Node's results into the rows, then leaves out what the
// session has told already. It runs on the connection's goroutine.
func (l *Listener) fetchAnswer(resp *fetchResponse, req *kmsg.FetchRequest, ask *brokers.FetchRequest, fc fetchContext, all []answered, results []brokers.FetchResult) {
	next := 0
	for i := range all {
		a := &all[i]
		if a.result.Error != kafka.NoError {
			continue
		}
		if next >= len(results) || results[next].Partition.Topic != a.topic || results[next].Partition.Partition != a.row.partition {
			a.result = refusedRow(kafka.UnknownServerError)
			continue
		}
		a.result = results[next]
		next++
		if a.result.Error != kafka.NoError {
			a.result.HighWatermark, a.result.LastStableOffset, a.result.LogStartOffset, a.result.Records = -1, -1, -1, nil
		}
	}
	follower := ask.Replica >= 0
	switch {
	case fc.session != nil:
		var ok bool
		resp.session = fc.session.id
		if all, ok = fc.session.settle(fc.epoch, all); !ok {
			resp.err, all = invalidFetchSessionEpoch, nil
		}
	case fc.begin:
		for i := range all {
			all[i].note(all[i].row)
		}
		resp.session = l.sessions.begun(follower, req.Version >= 13, fc.rows)
	}
	resp.committed = ask.Committed && !follower
	resp.rows = all
	if resp.version < 4 {
		for i := range resp.rows {
			l.downconvert(&resp.rows[i], resp.version)
		}
	}
	l.hint(resp, follower)
}

// downconvert puts the records of a row into the format that a version of Fetch
// below 4 knows. The first batch is answered whole however small the client's
// bound is, in these versions too: Kafka cuts it off, and the client gives up.
func (l *Listener) downconvert(a *answered, version int16) {
	if len(a.result.Records) == 0 {
		return
	}
	if l.node.TopicConfig(a.topic).NoDownconversion {
		a.result = refusedRow(kafka.UnsupportedVersion)
		return
	}
	records := bytes.Join(a.result.Records, nil)
	room := 0
	for b, err := range commitlog.Batches(records) {
		if err == nil && b.Compression() != commitlog.Uncompressed {
			room = 2 * commitlog.DefaultMaxDecompressed // unpacked in either format
		}
	}
	var set []byte
	err := l.unpacking.hold(room, func() (err error) {
		set, err = commitlog.Downconvert(records, int8(version/2), a.row.ask.Offset)
		return err
	})
	if err != nil {
		a.result = refusedRow(commitlog.Code(err))
		return
	}
	a.result.Records = [][]byte{set}
}

// hint tells clients who the leader is now where it is somebody else.
func (l *Listener) hint(resp *fetchResponse, follower bool) {
	if resp.version < 12 || follower {
		return
	}
	hints := leaderHints{l: l}
	for _, a := range resp.rows {
		if code := a.result.Error; code != kafka.NotLeaderOrFollower && code != kafka.FencedLeaderEpoch {
			continue
		}
		if resp.leaders == nil {
			resp.leaders = map[*cachedRow]leaderHint{}
		}
		id, epoch := hints.of(kafka.TopicPartition{Topic: a.topic, Partition: a.row.partition})
		resp.leaders[a.row] = leaderHint{id, epoch}
	}
	if resp.version >= 16 {
		resp.brokers = hints.brokers
	}
}

type leaderHint struct{ id, epoch int32 }
