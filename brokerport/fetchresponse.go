package brokerport

import (
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// fetchResponse is the answer to a Fetch of version 0 to 17. It is encoded
// here, since kmsg's would copy all records.
type fetchResponse struct {
	version   int16
	err       kafka.ErrorCode
	session   int32
	rows      []answered
	committed bool // the list of aborted transactions is there, and empty
	leaders   map[*cachedRow]leaderHint
	brokers   []hintedBroker
	build     func(*fetchResponse) // fills in the rest when it is encoded; nil: it is there
}

var _ wire.Scattered = (*fetchResponse)(nil)

// Key is Fetch's.
func (r *fetchResponse) Key() int16 { return int16(kmsg.Fetch) }

// MaxVersion is the newest that can be encoded.
func (r *fetchResponse) MaxVersion() int16 { return 17 }

// SetVersion sets the version to encode.
func (r *fetchResponse) SetVersion(v int16) { r.version = v }

// GetVersion gives it.
func (r *fetchResponse) GetVersion() int16 { return r.version }

// IsFlexible tells whether the version has tagged fields.
func (r *fetchResponse) IsFlexible() bool { return r.version >= 12 }

// RequestKind is the request that this answers.
func (r *fetchResponse) RequestKind() kmsg.Request { return &kmsg.FetchRequest{Version: r.version} }

// ReadFrom is of no use: answers are only written here.
func (r *fetchResponse) ReadFrom([]byte) error {
	return errors.New("this form of a Fetch response is only written")
}

// AppendTo encodes the response with all records copied.
func (r *fetchResponse) AppendTo(dst []byte) []byte {
	own, inserts := r.AppendScattered(nil)
	from := 0
	for _, in := range inserts {
		dst = append(dst, own[from:in.At]...)
		for _, b := range in.Bytes {
			dst = append(dst, b...)
		}
		from = in.At
	}
	return append(dst, own[from:]...)
}

// AppendScattered is wire.Scattered's.
func (r *fetchResponse) AppendScattered(dst []byte) ([]byte, []wire.Insert) {
	if r.build != nil {
		r.build(r)
		r.build = nil
	}
	flexible := r.IsFlexible()
	if r.version >= 1 {
		dst = kbin.AppendInt32(dst, 0) // throttle time
	}
	if r.version >= 7 {
		dst = kbin.AppendInt16(dst, int16(r.err))
		dst = kbin.AppendInt32(dst, r.session)
	}
	var inserts []wire.Insert
	groups := r.groups()
	dst = appendLen(dst, len(groups), flexible)
	for _, g := range groups {
		if r.version >= 13 {
			dst = append(dst, g[0].row.id[:]...)
		} else {
			dst = appendString(dst, g[0].row.topic, flexible)
		}
		dst = appendLen(dst, len(g), flexible)
		for i := range g {
			dst, inserts = r.appendRow(dst, inserts, &g[i])
		}
		if flexible {
			dst = append(dst, 0)
		}
	}
	if flexible {
		dst = r.appendBrokers(dst)
	}
	return dst, inserts
}

// groups divides the rows where the topic changes: the rows of a session may mix
// topics, and a topic may come more than once.
func (r *fetchResponse) groups() [][]answered {
	var groups [][]answered
	for i := 0; i < len(r.rows); {
		n := i + 1
		for n < len(r.rows) && r.rows[n].row.id == r.rows[i].row.id && r.rows[n].row.topic == r.rows[i].row.topic {
			n++
		}
		groups = append(groups, r.rows[i:n])
		i = n
	}
	return groups
}

func (r *fetchResponse) appendRow(dst []byte, inserts []wire.Insert, a *answered) ([]byte, []wire.Insert) {
	flexible := r.IsFlexible()
	res := &a.result
	dst = kbin.AppendInt32(dst, a.row.partition)
	dst = kbin.AppendInt16(dst, int16(res.Error))
	dst = kbin.AppendInt64(dst, res.HighWatermark)
	if r.version >= 4 {
		dst = kbin.AppendInt64(dst, res.LastStableOffset)
	}
	if r.version >= 5 {
		dst = kbin.AppendInt64(dst, res.LogStartOffset)
	}
	switch {
	case r.version < 4: // no transactions
	case r.committed && res.Error == kafka.NoError:
		dst = appendLen(dst, 0, flexible)
	default:
		dst = appendLen(dst, -1, flexible) // no list of aborted transactions
	}
	if r.version >= 11 {
		dst = kbin.AppendInt32(dst, -1) // preferred read replica
	}
	size := 0
	for _, b := range res.Records {
		size += len(b)
	}
	dst = appendLen(dst, size, flexible)
	if size > 0 {
		inserts = append(inserts, wire.Insert{At: len(dst), Bytes: res.Records})
	}
	if flexible {
		dst = r.appendRowTags(dst, a)
	}
	return dst, inserts
}

// appendRowTags has the diverging epoch (0) and the present leader (1).
func (r *fetchResponse) appendRowTags(dst []byte, a *answered) []byte {
	leader, hinted := r.leaders[a.row]
	n := byte(0)
	if a.result.Diverging {
		n++
	}
	if hinted {
		n++
	}
	dst = append(dst, n)
	if a.result.Diverging {
		dst = append(dst, 0, 4+8+1)
		dst = kbin.AppendInt32(dst, a.result.DivergingEpoch)
		dst = kbin.AppendInt64(dst, a.result.DivergingEnd)
		dst = append(dst, 0)
	}
	if hinted {
		dst = append(dst, 1, 4+4+1)
		dst = kbin.AppendInt32(dst, leader.id)
		dst = kbin.AppendInt32(dst, leader.epoch)
		dst = append(dst, 0)
	}
	return dst
}

// appendBrokers ends the body: tag 0 says where the leaders are.
func (r *fetchResponse) appendBrokers(dst []byte) []byte {
	if len(r.brokers) == 0 {
		return append(dst, 0)
	}
	list := appendLen(nil, len(r.brokers), true)
	for _, b := range r.brokers {
		list = kbin.AppendInt32(list, b.id)
		list = appendString(list, b.host, true)
		list = kbin.AppendInt32(list, b.port)
		list = kbin.AppendCompactNullableString(list, b.rack)
		list = append(list, 0)
	}
	dst = append(dst, 1, 0)
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	return append(dst, list...)
}

// appendLen writes the length of an array or of bytes; -1 is null.
func appendLen(dst []byte, n int, flexible bool) []byte {
	if flexible {
		return binary.AppendUvarint(dst, uint64(n+1))
	}
	return kbin.AppendInt32(dst, int32(n))
}

func appendString(dst []byte, s string, flexible bool) []byte {
	if flexible {
		return kbin.AppendCompactString(dst, s)
	}
	return kbin.AppendString(dst, s)
}
