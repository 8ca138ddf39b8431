package groups

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// loader gathers what a partition's log says, record by record.
type loader struct {
	groups  map[string]*group
	offsets map[groupPartition]loaded
	open    map[int64]map[groupPartition]loaded // transactions neither committed nor aborted, by producer
}

type groupPartition struct {
	group string
	tp    kafka.TopicPartition
}

// loaded is an offset, and where the log has it. Nil is a tombstone.
type loaded struct {
	offset *offset
	at     int64
}

func newLoader() *loader {
	return &loader{groups: map[string]*group{}, offsets: map[groupPartition]loaded{}, open: map[int64]map[groupPartition]loaded{}}
}

// maxErrors is how much is told of a log that is damaged all over.
const maxErrors = 10

// batches reads whole batches, one behind the other. What cannot be read is
// left out, up to the end if not even its length can be trusted.
func (l *loader) batches(src []byte) error {
	var errs []error
	failed := func(err error) {
		if len(errs) < maxErrors {
			errs = append(errs, err)
		}
	}
	for b, err := range commitlog.Batches(src) {
		if err != nil {
			failed(err)
			continue
		}
		l.batch(b, failed)
	}
	return errors.Join(errs...)
}

func (l *loader) batch(b commitlog.Batch, failed func(error)) {
	if !b.CheckCRC() {
		failed(fmt.Errorf("the batch at offset %d has a wrong checksum", b.BaseOffset()))
		return
	}
	records, err := b.Records()
	if err != nil {
		failed(fmt.Errorf("the batch at offset %d: %w", b.BaseOffset(), err))
		return
	}
	offsets := l.offsets
	if b.Transactional() {
		if offsets = l.open[b.ProducerID()]; offsets == nil {
			offsets = map[groupPartition]loaded{}
			l.open[b.ProducerID()] = offsets
		}
	}
	for _, r := range records {
		if b.Control() {
			err = l.marker(b.ProducerID(), r.Key)
		} else {
			err = l.record(r, offsets)
		}
		if err != nil {
			failed(fmt.Errorf("the record at offset %d: %w", r.Offset, err))
		}
	}
}

// marker ends a producer's transaction.
func (l *loader) marker(producer int64, key []byte) error {
	if len(key) < 4 {
		return errors.New("the transaction's marker cannot be read")
	}
	const commit = 1
	if binary.BigEndian.Uint16(key[2:]) == commit {
		for at, o := range l.open[producer] {
			// What was committed behind it in the log is newer.
			if have, ok := l.offsets[at]; !ok || have.at < o.at {
				l.offsets[at] = o
			}
		}
	}
	delete(l.open, producer)
	return nil
}

func (l *loader) record(r commitlog.Record, offsets map[groupPartition]loaded) error {
	if len(r.Key) < 2 {
		return errors.New("it has no key")
	}
	switch version := int16(binary.BigEndian.Uint16(r.Key)); version {
	case 0, offsetKeyVersion:
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(r.Key); err != nil {
			return fmt.Errorf("the key of an offset: %w", err)
		}
		at := groupPartition{k.Group, kafka.TopicPartition{Topic: k.Topic, Partition: k.Partition}}
		if r.Value == nil {
			offsets[at] = loaded{at: r.Offset}
			return nil
		}
		o, err := readOffset(r.Value)
		if err != nil {
			return fmt.Errorf("the offset of group %q in %s: %w", at.group, at.tp, err)
		}
		offsets[at] = loaded{&o, r.Offset}
	case groupKeyVersion:
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(r.Key); err != nil {
			return fmt.Errorf("the key of a group: %w", err)
		}
		if r.Value == nil {
			delete(l.groups, k.Group)
			return nil
		}
		g, err := readGroup(k.Group, r.Value)
		if err != nil {
			return fmt.Errorf("group %q: %w", k.Group, err)
		}
		l.groups[k.Group] = g
	}
	// Other versions belong to protocols that came later: not to these groups.
	return nil
}

// finish gives the groups that the log has, in order. A group that has offsets
// alone was written by consumers without membership, and is empty.
func (l *loader) finish(p *partition, now time.Time) []*group {
	for at, o := range l.offsets {
		if o.offset == nil {
			continue
		}
		g := l.groups[at.group]
		if g == nil {
			g = newGroup(p, at.group, now)
			l.groups[at.group] = g
		}
		g.offsets[at.tp] = *o.offset
	}
	groups := make([]*group, 0, len(l.groups))
	for _, g := range l.groups {
		g.partition = p
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b *group) int { return strings.Compare(a.id, b.id) })
	return groups
}
