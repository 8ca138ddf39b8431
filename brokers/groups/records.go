package groups

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
)

const (
	// maxString is the longest string of a record, in bytes.
	maxString = 1<<15 - 1
	// idRoom is what a member id has beside the client's or the instance's id.
	idRoom = 64
)

func utf16Of(s string) []uint16 { return utf16.Encode([]rune(s)) }

func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n += utf16.RuneLen(r)
	}
	return n
}

// record is one of the offsets topic. A nil value is a tombstone.
type record struct{ key, value []byte }

// Versions of keys, which tell what a record is about.
const (
	offsetKeyVersion int16 = 1 // and 0
	groupKeyVersion  int16 = 2
)

func offsetKey(group string, tp kafka.TopicPartition) []byte {
	k := kmsg.OffsetCommitKey{Version: offsetKeyVersion, Group: group, Topic: tp.Topic, Partition: tp.Partition}
	return k.AppendTo(nil)
}

func groupKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: groupKeyVersion, Group: group}
	return k.AppendTo(nil)
}

// Protocol versions from which on records have a newer form.
var (
	v0_10_1 = kafka.ProtocolVersion{Major: 0, Minor: 1001}
	v2_1    = kafka.ProtocolVersion{Major: 2, Minor: 1}
	v2_1IV1 = kafka.ProtocolVersion{Major: 2, Minor: 1, IV: 1}
	v2_3    = kafka.ProtocolVersion{Major: 2, Minor: 3}
)

// before tells whether a version that was told is older than another.
func before(v, o kafka.ProtocolVersion) bool { return v != kafka.ProtocolVersion{} && v.Less(o) }

// offsetValue writes an offset as brokers of a protocol version read it. An
// expiry of its own needs the old form.
func offsetValue(o offset, v kafka.ProtocolVersion) []byte {
	val := kmsg.OffsetCommitValue{Version: 3, Offset: o.offset, LeaderEpoch: o.leaderEpoch, Metadata: o.metadata, CommitTimestamp: o.committed, ExpireTimestamp: o.expires}
	switch {
	case o.expires != noExpiry || before(v, v2_1):
		val.Version = 1
	case before(v, v2_1IV1):
		val.Version = 2
	}
	return val.AppendTo(nil)
}

// groupValue writes a group, with an assignment, as brokers of a protocol
// version read it.
func groupValue(g *group, assignment map[string][]byte, v kafka.ProtocolVersion) []byte {
	val := kmsg.GroupMetadataValue{Version: 3, ProtocolType: g.protocolType, Generation: g.generation, Protocol: g.protocol, CurrentStateTimestamp: g.since}
	switch {
	case before(v, v0_10_1):
		val.Version = 0
	case before(v, v2_1):
		val.Version = 1
	case before(v, v2_3):
		val.Version = 2
	}
	if g.leader != "" {
		val.Leader = &g.leader
	}
	for _, m := range g.order {
		var metadata []byte
		if g.protocol != nil {
			metadata = m.metadata(*g.protocol)
		}
		val.Members = append(val.Members, kmsg.GroupMetadataValueMember{MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost,
			RebalanceTimeoutMillis: int32(m.rebalance.Milliseconds()), SessionTimeoutMillis: int32(m.session.Milliseconds()),
			Subscription: metadata, Assignment: assignment[m.id]})
	}
	return val.AppendTo(nil)
}

// Places in a record batch of format v2.
const (
	batchLength  = 8 // of what follows it
	batchMagic   = 16
	batchCRC     = 17 // over what follows it
	batchAttrs   = 21
	batchProd    = 43
	batchCount   = 57
	batchHeader  = 61
	lengthToEnd  = 12 // what the length does not count
	attrCodec    = 0x07
	attrTxn      = 0x10
	attrControl  = 0x20
	formatV2     = 2
	minRecordLen = 7
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encodeBatch makes one batch of records, uncompressed, as of a time.
func encodeBatch(records []record, now time.Time) []byte {
	ms := uint64(now.UnixMilli())
	b := make([]byte, 0, 256)
	b = binary.BigEndian.AppendUint64(b, 0)          // base offset
	b = binary.BigEndian.AppendUint32(b, 0)          // length, below
	b = binary.BigEndian.AppendUint32(b, ^uint32(0)) // leader epoch
	b = append(b, formatV2)
	b = binary.BigEndian.AppendUint32(b, 0) // CRC, below
	b = binary.BigEndian.AppendUint16(b, 0) // attributes
	b = binary.BigEndian.AppendUint32(b, uint32(len(records)-1))
	b = binary.BigEndian.AppendUint64(b, ms)
	b = binary.BigEndian.AppendUint64(b, ms)
	b = binary.BigEndian.AppendUint64(b, ^uint64(0)) // no producer
	b = binary.BigEndian.AppendUint16(b, ^uint16(0))
	b = binary.BigEndian.AppendUint32(b, ^uint32(0))
	b = binary.BigEndian.AppendUint32(b, uint32(len(records)))
	var body []byte
	for i, r := range records {
		body = append(body[:0], 0) // attributes
		body = kbin.AppendVarlong(body, 0)
		body = kbin.AppendVarint(body, int32(i))
		body = kbin.AppendVarintBytes(body, r.key)
		body = kbin.AppendVarintBytes(body, r.value)
		body = kbin.AppendVarint(body, 0) // headers
		b = kbin.AppendVarint(b, int32(len(body)))
		b = append(b, body...)
	}
	binary.BigEndian.PutUint32(b[batchLength:], uint32(len(b)-lengthToEnd))
	binary.BigEndian.PutUint32(b[batchCRC:], crc32.Checksum(b[batchAttrs:], castagnoli))
	return b
}

// batch is one of a log, as far as it is looked at.
type batch struct {
	base     int64
	attrs    uint16
	producer int64
	count    int32
	records  []byte // as they are, or compressed
}

// nextBatch takes the first batch off some bytes.
func nextBatch(src []byte) (b batch, rest []byte, err error) {
	if len(src) < batchHeader {
		return b, nil, fmt.Errorf("%d bytes are no record batch", len(src))
	}
	b.base = int64(binary.BigEndian.Uint64(src))
	n := int64(int32(binary.BigEndian.Uint32(src[batchLength:]))) + lengthToEnd
	if n < batchHeader || n > int64(len(src)) {
		return b, nil, fmt.Errorf("the batch at offset %d says that it has %d bytes, of %d", b.base, n, len(src))
	}
	src, rest = src[:n], src[n:]
	if magic := int8(src[batchMagic]); magic != formatV2 {
		return b, rest, fmt.Errorf("the batch at offset %d has message format v%d; only v2 is read", b.base, magic)
	}
	if crc := crc32.Checksum(src[batchAttrs:], castagnoli); crc != binary.BigEndian.Uint32(src[batchCRC:]) {
		return b, rest, fmt.Errorf("the batch at offset %d has a wrong checksum", b.base)
	}
	b.attrs = binary.BigEndian.Uint16(src[batchAttrs:])
	b.producer = int64(binary.BigEndian.Uint64(src[batchProd:]))
	b.count = int32(binary.BigEndian.Uint32(src[batchCount:]))
	b.records = src[batchHeader:]
	return b, rest, nil
}

// each reads the records of a batch; f keeps nothing of them.
func (b batch) each(f func(record) error) error {
	src, err := decompress(int8(b.attrs&attrCodec), b.records)
	if err != nil {
		return fmt.Errorf("the batch at offset %d: %w", b.base, err)
	}
	if b.count < 0 || int64(b.count)*minRecordLen > int64(len(src)) {
		return fmt.Errorf("the batch at offset %d says that it has %d records, in %d bytes", b.base, b.count, len(src))
	}
	r := kbin.Reader{Src: src}
	var errs []error
	for range b.count {
		one := kbin.Reader{Src: r.Span(int(r.Varint()))}
		one.Int8()
		one.Varlong()
		delta := one.Varint()
		rec := record{key: one.VarintBytes(), value: one.VarintBytes()}
		if !r.Ok() || !one.Ok() {
			return errors.Join(append(errs, fmt.Errorf("the batch at offset %d has a record that cannot be read", b.base))...)
		}
		if err := f(rec); err != nil {
			errs = append(errs, fmt.Errorf("the record at offset %d: %w", b.base+int64(delta), err))
		}
	}
	return errors.Join(errs...)
}

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

// batches reads whole batches, one behind the other.
func (l *loader) batches(src []byte) error {
	var errs []error
	for more := 0; len(src) > 0; {
		b, rest, err := nextBatch(src)
		if err == nil {
			err = l.batch(b)
		}
		if src = rest; err == nil {
			continue
		}
		if more++; more <= maxErrors {
			errs = append(errs, err)
		} else if more == maxErrors+1 {
			errs = append(errs, errors.New("and more"))
		}
	}
	return errors.Join(errs...)
}

func (l *loader) batch(b batch) error {
	switch {
	case b.attrs&attrControl != 0:
		return b.each(func(r record) error { return l.marker(b.producer, r.key) })
	case b.attrs&attrTxn != 0:
		return b.each(func(r record) error {
			if l.open[b.producer] == nil {
				l.open[b.producer] = map[groupPartition]loaded{}
			}
			return l.record(b, r, l.open[b.producer])
		})
	}
	return b.each(func(r record) error { return l.record(b, r, l.offsets) })
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

func (l *loader) record(b batch, r record, offsets map[groupPartition]loaded) error {
	if len(r.key) < 2 {
		return errors.New("it has no key")
	}
	switch version := int16(binary.BigEndian.Uint16(r.key)); version {
	case 0, offsetKeyVersion:
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(r.key); err != nil {
			return fmt.Errorf("the key of an offset: %w", err)
		}
		at := groupPartition{k.Group, kafka.TopicPartition{Topic: k.Topic, Partition: k.Partition}}
		if r.value == nil {
			offsets[at] = loaded{at: b.base}
			return nil
		}
		o, err := readOffset(r.value)
		if err != nil {
			return fmt.Errorf("the offset of group %q in %s: %w", at.group, at.tp, err)
		}
		offsets[at] = loaded{&o, b.base}
	case groupKeyVersion:
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(r.key); err != nil {
			return fmt.Errorf("the key of a group: %w", err)
		}
		if r.value == nil {
			delete(l.groups, k.Group)
			return nil
		}
		g, err := readGroup(k.Group, r.value)
		if err != nil {
			return fmt.Errorf("group %q: %w", k.Group, err)
		}
		l.groups[k.Group] = g
	}
	// Other versions belong to protocols that came later: not to these groups.
	return nil
}

// maxValueVersion is the newest form of either value.
const maxValueVersion = 4

func valueVersion(value []byte) (int16, error) {
	if len(value) < 2 {
		return 0, errors.New("the value has no version")
	}
	v := int16(binary.BigEndian.Uint16(value))
	if v < 0 || v > maxValueVersion {
		return 0, fmt.Errorf("value version %d is not known; 0 to %d are", v, maxValueVersion)
	}
	return v, nil
}

func readOffset(value []byte) (offset, error) {
	version, err := valueVersion(value)
	if err != nil {
		return offset{}, err
	}
	var val kmsg.OffsetCommitValue
	if err := val.ReadFrom(value); err != nil {
		return offset{}, err
	}
	o := offset{offset: val.Offset, leaderEpoch: -1, metadata: val.Metadata, committed: val.CommitTimestamp, expires: noExpiry}
	if version >= 3 {
		o.leaderEpoch = val.LeaderEpoch
	}
	if version == 1 {
		o.expires = val.ExpireTimestamp
	}
	return o, nil
}

// readGroup reads a group: stable if it has members, since what was going on
// when another coordinator ended is lost.
func readGroup(id string, value []byte) (*group, error) {
	version, err := valueVersion(value)
	if err != nil {
		return nil, err
	}
	var val kmsg.GroupMetadataValue
	if err := val.ReadFrom(value); err != nil {
		return nil, err
	}
	if len(val.Members) > 0 && (val.Protocol == nil || val.ProtocolType == "") {
		return nil, errors.New("there are members but no protocol")
	}
	g := newGroup(nil, id, time.Time{})
	if g.since = -1; version >= 2 {
		g.since = val.CurrentStateTimestamp
	}
	g.generation, g.protocol = val.Generation, val.Protocol
	if len(val.Members) > 0 {
		g.state = Stable
	}
	for _, m := range val.Members {
		if g.members[m.MemberID] != nil || m.InstanceID != nil && g.static[*m.InstanceID] != "" {
			return nil, fmt.Errorf("member %q is there twice", m.MemberID)
		}
		rebalance := millis(m.RebalanceTimeoutMillis)
		if version == 0 {
			rebalance = millis(m.SessionTimeoutMillis)
		}
		g.add(&member{id: m.MemberID, instance: m.InstanceID, clientID: m.ClientID, clientHost: m.ClientHost, rebalance: rebalance, session: millis(m.SessionTimeoutMillis),
			protocols: []protocol{{*val.Protocol, slices.Clone(m.Subscription)}}, assignment: slices.Clone(m.Assignment)}, val.ProtocolType)
	}
	g.protocolType = val.ProtocolType
	if val.Leader != nil && g.members[*val.Leader] != nil {
		g.leader = *val.Leader
	}
	g.subscribe()
	return g, nil
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
