package groups

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

const (
	// maxString is the longest string of a record, in bytes.
	maxString = 1<<15 - 1
	// idRoom is what a member id has beside the client's or the instance's id.
	idRoom = 64
)

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

// encodeBatch makes one batch of records, as of a time.
func encodeBatch(records []record, now time.Time) []byte {
	rs := make([]commitlog.Record, len(records))
	for i, r := range records {
		rs[i] = commitlog.Record{Timestamp: now.UnixMilli(), Key: r.key, Value: r.value}
	}
	return commitlog.Encode(rs...)
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
		if max(len(m.MemberID), len(m.ClientID), len(m.ClientHost), len(val.ProtocolType), len(*val.Protocol)) > maxString {
			return nil, errors.New("a string is too long") // the forms that we write have no place for it
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
