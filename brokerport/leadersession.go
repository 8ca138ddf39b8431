package brokerport

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// A follower's side of a fetch session (KIP-227): what its leader remembers of
// the partitions that one fetcher asks for, so that a request names only those
// that are new, changed or gone, and an answer only those with news.

// fetcherKey names a fetcher: its leader, and its number among those of that leader.
type fetcherKey struct {
	leader kafka.BrokerID
	index  int
}

// leaderSession is one fetcher's session at its leader. Only who took it from
// Leaders.sessions touches it.
type leaderSession struct {
	id    int32 // noSession: the leader gave none
	epoch int32 // of the next request; fullFetch begins a session, and ends the one with the id
	byID  bool  // topics are named by id
	rows  map[kafka.TopicPartition]*sentRow
	round int // of requests
	topic map[kafka.TopicID]string
}

// sentRow is what the leader knows of a partition.
type sentRow struct {
	brokers.FetchRow
	round int // in which it was asked for last
}

// forget lets the next request name everything.
func (s *leaderSession) forget() { s.epoch = fullFetch }

// fill puts into a request what the leader does not know yet, and notes that it
// will. Below version 7 that is everything, every time.
func (s *leaderSession) fill(req *kmsg.FetchRequest, r *brokers.FetchRequest) {
	if byID := req.Version >= 13; s.rows == nil || s.byID != byID || req.Version < 7 {
		s.byID = byID
		s.forget()
	}
	if s.epoch == fullFetch {
		s.rows, s.topic = make(map[kafka.TopicPartition]*sentRow, len(r.Rows)), map[kafka.TopicID]string{}
	}
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	req.Topics, req.ForgottenTopics = nil, nil
	s.round++
	for i := range r.Rows {
		row := &r.Rows[i]
		sent := s.rows[row.Partition]
		if sent != nil && s.byID && sent.TopicID != row.TopicID {
			s.forgets(req, &sent.FetchRow) // another topic of the same name
			sent = nil
		}
		if sent == nil {
			sent = &sentRow{}
			s.rows[row.Partition] = sent
			s.topic[row.TopicID] = row.Partition.Topic
		} else if sent.round = s.round; sent.asksAs(row) {
			continue
		}
		sent.FetchRow, sent.round = *row, s.round
		addFetchRow(req, row)
	}
	if len(s.rows) == len(r.Rows) {
		return
	}
	clear(s.topic)
	for tp, sent := range s.rows {
		if sent.round != s.round {
			s.forgets(req, &sent.FetchRow)
			delete(s.rows, tp)
			continue
		}
		s.topic[sent.TopicID] = tp.Topic
	}
}

// asksAs tells whether two rows mean the same to a leader.
func (sent *sentRow) asksAs(row *brokers.FetchRow) bool {
	return sent.Offset == row.Offset && sent.LogStartOffset == row.LogStartOffset && sent.LeaderEpoch == row.LeaderEpoch &&
		sent.LastFetchedEpoch == row.LastFetchedEpoch && sent.MaxBytes == row.MaxBytes
}

// forgets takes a partition out of the session. It is not asked for in the same
// request: that would be for nothing.
func (s *leaderSession) forgets(req *kmsg.FetchRequest, row *brokers.FetchRow) {
	if n := len(req.ForgottenTopics); n == 0 || req.ForgottenTopics[n-1].Topic != row.Partition.Topic || req.ForgottenTopics[n-1].TopicID != row.TopicID {
		t := kmsg.NewFetchRequestForgottenTopic()
		t.Topic, t.TopicID = row.Partition.Topic, row.TopicID
		req.ForgottenTopics = append(req.ForgottenTopics, t)
	}
	t := &req.ForgottenTopics[len(req.ForgottenTopics)-1]
	t.Partitions = append(t.Partitions, row.Partition.Partition)
}

func addFetchRow(req *kmsg.FetchRequest, row *brokers.FetchRow) {
	if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != row.Partition.Topic || req.Topics[n-1].TopicID != row.TopicID {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = row.Partition.Topic, row.TopicID
		req.Topics = append(req.Topics, t)
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.LogStartOffset = row.Partition.Partition, row.Offset, row.LogStartOffset
	p.CurrentLeaderEpoch, p.LastFetchedEpoch, p.PartitionMaxBytes = row.LeaderEpoch, row.LastFetchedEpoch, int32(row.MaxBytes)
	t := &req.Topics[len(req.Topics)-1]
	t.Partitions = append(t.Partitions, p)
}

// took notes what the leader answered. again: the session is over, and a request
// for everything will be understood.
func (s *leaderSession) took(resp *kmsg.FetchResponse) (again bool, err error) {
	code, full := kafka.ErrorCode(resp.ErrorCode), s.epoch == fullFetch
	switch {
	case code != kafka.NoError:
		s.forget()
		if code == fetchSessionIDNotFound {
			s.id = noSession // nothing to end
		}
		ours := code == fetchSessionIDNotFound || code == invalidFetchSessionEpoch || code == fetchSessionTopicIDError
		return ours && !full, fmt.Errorf("refuses to be fetched from: %w", code)
	case resp.Version < 7:
	case full:
		if s.id = resp.SessionID; s.id != noSession {
			s.epoch = 1
		}
	case resp.SessionID != s.id: // the leader ended it, with this answer
		s.id = noSession
		s.forget()
	default:
		s.epoch = nextEpoch(s.epoch)
	}
	return false, nil
}

// results gives the answers, without those that nobody asked for.
func (s *leaderSession) results(resp *kmsg.FetchResponse) []brokers.FetchResult {
	n := 0
	for i := range resp.Topics {
		n += len(resp.Topics[i].Partitions)
	}
	results := make([]brokers.FetchResult, 0, n)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		topic := t.Topic
		if resp.Version >= 13 {
			topic = s.topic[t.TopicID]
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			tp := kafka.TopicPartition{Topic: topic, Partition: p.Partition}
			if s.rows[tp] == nil {
				continue
			}
			res := brokers.FetchResult{Partition: tp, Error: kafka.ErrorCode(p.ErrorCode), HighWatermark: p.HighWatermark,
				LastStableOffset: p.LastStableOffset, LogStartOffset: p.LogStartOffset}
			if resp.Version >= 12 && p.DivergingEpoch.Epoch >= 0 {
				res.Diverging, res.DivergingEpoch, res.DivergingEnd = true, p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset
			}
			if len(p.RecordBatches) > 0 {
				res.Records = [][]byte{p.RecordBatches}
			}
			results = append(results, res)
		}
	}
	return results
}
