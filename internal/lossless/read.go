package lossless

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// readAll reads the topic as consumers do, and then each replica by itself.
func (r *round) readAll(ctx context.Context) (map[int32]map[int32][]At, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	ends, err := r.ends(ctx)
	if err != nil {
		return nil, err
	}
	// Versions below 13 name topics.
	if r.oneByOne, err = r.client(kgo.MaxVersions(kversion.V2_4_0())); err != nil {
		return nil, err
	}
	logs := map[int32]map[int32][]At{Reading: {}}
	for p, end := range ends {
		if logs[Reading][p], err = r.read(ctx, p, end); err != nil {
			return nil, err
		}
		replicas, err := r.readReplicas(ctx, p, end)
		if err != nil {
			return nil, err
		}
		for id, log := range replicas {
			if logs[id] == nil {
				logs[id] = map[int32][]At{}
			}
			logs[id][p] = log
		}
	}
	return logs, nil
}

// readReplicas reads a partition of all who have it. A broker may be the last to
// hear that the partition has moved: then it is asked for anew who that is.
func (r *round) readReplicas(ctx context.Context, p int32, end int64) (map[int32][]At, error) {
	for {
		logs := map[int32][]At{}
		topics, err := r.admin.ListTopics(ctx, r.o.Topic)
		if err != nil {
			return nil, fmt.Errorf("list the topic: %w", err)
		}
		for _, id := range topics[r.o.Topic].Partitions[p].Replicas {
			if logs[id], err = r.readReplica(ctx, id, p, end); err != nil {
				break
			}
		}
		if err == nil && len(logs) > 0 || err != nil && !kerr.IsRetriable(err) {
			return logs, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ends waits until consumers may read all partitions as far as records were
// acknowledged, which a leader that is new may find a moment later.
func (r *round) ends(ctx context.Context) (map[int32]int64, error) {
	want := map[int32]int64{}
	for _, a := range r.history.Acked {
		want[a.Partition] = max(want[a.Partition], a.Offset+1)
	}
	for {
		ends := map[int32]int64{}
		offsets, err := r.admin.ListEndOffsets(ctx, r.o.Topic)
		if err == nil {
			err = offsets.Error()
		}
		short := ""
		offsets.Each(func(o kadm.ListedOffset) {
			ends[o.Partition] = o.Offset
			if o.Offset < want[o.Partition] {
				short += fmt.Sprintf(" partition %d ends at %d, acknowledged up to %d;", o.Partition, o.Offset, want[o.Partition])
			}
		})
		// An unclean election, or what a script does, may take what was acknowledged;
		// Check tells of it.
		if err == nil && len(ends) == int(r.o.Partitions) && (short == "" || r.report.Unclean || r.o.Forgiving) {
			return ends, nil
		}
		select {
		case <-ctx.Done():
			if err == nil && len(ends) == int(r.o.Partitions) {
				return ends, nil // and Check tells what was lost
			}
			return nil, fmt.Errorf("ask for the ends of the logs:%s %w", short, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// read gives a partition as a consumer gets it from its leader.
func (r *round) read(ctx context.Context, partition int32, end int64) ([]At, error) {
	cl, err := r.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.o.Topic: {partition: kgo.NewOffset().At(0)}}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out []At
	for next := int64(0); next < end; {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read partition %d at %d of %d: %w", partition, next, end, err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			if rec.Offset >= end {
				return
			}
			out = append(out, at(partition, rec.Offset, rec.Value))
			next = rec.Offset + 1
		})
	}
	return out, nil
}

func at(partition int32, offset int64, value []byte) At {
	what, err := parse(value)
	if err != nil {
		what = Record{-1, -1}
	}
	return At{Position{partition, offset}, what}
}

// readReplica gives what one broker has of a partition, as it tells a consumer
// that prefers its replica.
func (r *round) readReplica(ctx context.Context, broker, partition int32, end int64) ([]At, error) {
	var out []At
	for next := int64(0); next < end; {
		rows, err := r.fetch(ctx, broker, partition, next)
		if err != nil {
			return nil, fmt.Errorf("read partition %d of broker %d at %d of %d: %w", partition, broker, next, end, err)
		}
		for _, rec := range rows {
			if rec.Offset >= next && rec.Offset < end {
				out = append(out, at(partition, rec.Offset, rec.Value))
				next = rec.Offset + 1
			}
		}
		if len(rows) == 0 {
			// A follower learns of a high watermark with its next fetch.
			select {
			case <-ctx.Done():
				return out, nil // too short: Check tells where it ends
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return out, nil
}

// fetch asks one broker once.
func (r *round) fetch(ctx context.Context, broker, partition int32, offset int64) ([]*kgo.Record, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, 100, 1, 8<<20
	req.SessionEpoch = -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = r.o.Topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.CurrentLeaderEpoch, p.PartitionMaxBytes = partition, offset, -1, 8<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := r.oneByOne.Broker(int(broker)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	got, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("a fetch was answered by a %T", resp)
	}
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return nil, err
	}
	if len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("a Fetch of one partition was answered by %d topics", len(got.Topics))
	}
	if err := kerr.ErrorForCode(got.Topics[0].Partitions[0].ErrorCode); err != nil {
		return nil, fmt.Errorf("fetch version %d: %w", got.Version, err)
	}
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: offset, Topic: r.o.Topic, Partition: partition}, &got.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	return fp.Records, fp.Err
}
