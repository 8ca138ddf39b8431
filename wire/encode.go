package wire

import (
	"slices"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// The newest versions of the control requests, all known to Kafka 3.4 to 3.9
// (spec/control-plane.md §1.1).
const (
	MaxLeaderAndISR   int16 = 7
	MaxUpdateMetadata int16 = 8
	MaxStopReplica    int16 = 4
)

// MaxVersion is the newest version of a kind that this package codes.
func MaxVersion(k control.Kind) int16 {
	switch k {
	case control.LeaderAndISRKey:
		return MaxLeaderAndISR
	case control.UpdateMetadataKey:
		return MaxUpdateMetadata
	case control.StopReplicaKey:
		return MaxStopReplica
	}
	return -1
}

// flexibleFrom is the first flexible version of a kind.
func flexibleFrom(k control.Kind) int16 {
	switch k {
	case control.LeaderAndISRKey:
		return 4
	case control.UpdateMetadataKey:
		return 6
	}
	return 2 // StopReplica
}

// AppendRequest appends the body of a control request, 0 <= version <=
// MaxVersion. The request must be as Sendable gives it. A StopReplica below v3
// carries one flag for all its partitions, that of the first: divide it with
// SplitStopReplica.
func AppendRequest(dst []byte, r control.Request, version int16) []byte {
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		return appendLeaderAndISR(dst, r, version)
	case *control.UpdateMetadataRequest:
		return AppendMetadata(AppendUpdateMetadataHeader(dst, r.Header, version), r.Metadata, version)
	case *control.StopReplicaRequest:
		return appendStopReplica(dst, r, version)
	}
	panic("wire: not a control request")
}

// appendHeader writes the fields every control request begins with.
// isKRaftController is always false: a broker outside migration mode answers
// true with an error (spec/control-plane.md §0.3).
func appendHeader(dst []byte, h control.Header, kraft, brokerEpoch bool) []byte {
	dst = appendInt32(dst, int32(h.ControllerID))
	if kraft {
		dst = append(dst, 0)
	}
	dst = appendInt32(dst, h.ControllerEpoch)
	if brokerEpoch {
		dst = appendInt64(dst, h.BrokerEpoch)
	}
	return dst
}

// topics counts runs of one topic, and gives about the bytes they need, going
// by each topic's first partition. perPartition tells that the name stands with
// each partition.
func topics(parts []*control.PartitionState, perPartition bool) (runs, bytes int) {
	for i := 0; i < len(parts); {
		p, end := parts[i], topicEnd(parts, i)
		one := 48 + 4*(len(p.ISR)+len(p.Replicas)+len(p.Adding)+len(p.Removing)+len(p.Offline))
		if perPartition {
			one += len(p.Topic)
		}
		runs++
		bytes += len(p.Topic) + 32 + (end-i)*one
		i = end
	}
	return runs, bytes
}

// topicEnd gives the index after the run of the topic at i.
func topicEnd(parts []*control.PartitionState, i int) int {
	topic := parts[i].Topic
	for i++; i < len(parts) && parts[i].Topic == topic; i++ {
	}
	return i
}

func appendLeaderAndISR(dst []byte, r *control.LeaderAndISRRequest, version int16) []byte {
	flexible := version >= 4
	n, bytes := topics(r.Partitions, version < 2)
	dst = slices.Grow(dst, 64+bytes+len(r.LiveLeaders)*32)
	dst = appendHeader(dst, r.Header, version >= 7, version >= 2)
	if version >= 5 {
		dst = append(dst, 0) // Type: 0 in ZooKeeper mode
	}
	if version < 2 {
		dst = appendLen(dst, len(r.Partitions), flexible)
		for _, p := range r.Partitions {
			dst = appendString(dst, p.Topic, flexible)
			dst = appendLeaderAndISRPartition(dst, p, version)
		}
	} else {
		dst = appendLen(dst, n, flexible)
		for i := 0; i < len(r.Partitions); {
			end := topicEnd(r.Partitions, i)
			dst = appendString(dst, r.Partitions[i].Topic, flexible)
			if version >= 5 {
				dst = append(dst, r.Partitions[i].TopicID[:]...)
			}
			dst = appendLen(dst, end-i, flexible)
			for ; i < end; i++ {
				dst = appendLeaderAndISRPartition(dst, r.Partitions[i], version)
			}
			dst = endStruct(dst, flexible)
		}
	}
	dst = appendLen(dst, len(r.LiveLeaders), flexible)
	for _, l := range r.LiveLeaders {
		dst = appendInt32(dst, int32(l.ID))
		dst = appendString(dst, l.Host, flexible)
		dst = appendInt32(dst, l.Port)
		dst = endStruct(dst, flexible)
	}
	return endStruct(dst, flexible)
}

func appendLeaderAndISRPartition(dst []byte, p *control.PartitionState, version int16) []byte {
	flexible := version >= 4
	dst = appendLeadership(dst, p, flexible)
	if version >= 3 {
		dst = appendIDs(dst, p.Adding, flexible)
		dst = appendIDs(dst, p.Removing, flexible)
	}
	if version >= 1 {
		dst = appendBool(dst, p.IsNew)
	}
	if version >= 6 {
		dst = append(dst, byte(p.Recovery))
	}
	return endStruct(dst, flexible)
}

// appendLeadership writes what LeaderAndIsr and UpdateMetadata say alike, from
// the partition number to its replicas.
func appendLeadership(dst []byte, p *control.PartitionState, flexible bool) []byte {
	dst = appendInt32(dst, p.Partition)
	dst = appendInt32(dst, p.ControllerEpoch)
	dst = appendInt32(dst, int32(p.Leader))
	dst = appendInt32(dst, p.LeaderEpoch)
	dst = appendIDs(dst, p.ISR, flexible)
	dst = appendInt32(dst, p.ZKVersion)
	return appendIDs(dst, p.Replicas, flexible)
}

// AppendUpdateMetadataHeader appends the part of an UpdateMetadata body that
// names its receiver; AppendMetadata gives the rest.
func AppendUpdateMetadataHeader(dst []byte, h control.Header, version int16) []byte {
	return appendHeader(dst, h, version >= 8, version >= 5)
}

// AppendMetadata appends the part of an UpdateMetadata body that is the same
// for every receiver.
func AppendMetadata(dst []byte, m *control.Metadata, version int16) []byte {
	flexible := version >= 6
	n, bytes := topics(m.Partitions, version < 5)
	dst = slices.Grow(dst, 64+bytes+len(m.LiveBrokers)*128)
	if version < 5 {
		dst = appendLen(dst, len(m.Partitions), flexible)
		for _, p := range m.Partitions {
			dst = appendString(dst, p.Topic, flexible)
			dst = appendMetadataPartition(dst, p, version)
		}
	} else {
		dst = appendLen(dst, n, flexible)
		for i := 0; i < len(m.Partitions); {
			end := topicEnd(m.Partitions, i)
			dst = appendString(dst, m.Partitions[i].Topic, flexible)
			if version >= 7 {
				dst = append(dst, m.Partitions[i].TopicID[:]...)
			}
			dst = appendLen(dst, end-i, flexible)
			for ; i < end; i++ {
				dst = appendMetadataPartition(dst, m.Partitions[i], version)
			}
			dst = endStruct(dst, flexible)
		}
	}
	dst = appendLen(dst, len(m.LiveBrokers), flexible)
	for i := range m.LiveBrokers {
		dst = appendLiveBroker(dst, &m.LiveBrokers[i], version)
	}
	return endStruct(dst, flexible) // v8's Type is a tagged field whose default, 0, is meant
}

func appendMetadataPartition(dst []byte, p *control.PartitionState, version int16) []byte {
	flexible := version >= 6
	dst = appendLeadership(dst, p, flexible)
	if version >= 4 {
		dst = appendIDs(dst, p.Offline, flexible)
	}
	return endStruct(dst, flexible)
}

func appendLiveBroker(dst []byte, b *kafka.Broker, version int16) []byte {
	flexible := version >= 6
	dst = appendInt32(dst, int32(b.ID))
	endpoints := b.Endpoints
	if version < 3 {
		endpoints = unnamed(endpoints)
	}
	if version == 0 {
		host, port := "", int32(-1)
		for _, e := range endpoints {
			if e.Protocol == kafka.Plaintext {
				host, port = e.Host, e.Port
			}
		}
		return appendInt32(appendString(dst, host, false), port)
	}
	dst = appendLen(dst, len(endpoints), flexible)
	for _, e := range endpoints {
		dst = appendInt32(dst, e.Port)
		dst = appendString(dst, e.Host, flexible)
		if version >= 3 {
			dst = appendString(dst, e.Listener, flexible)
		}
		dst = appendInt16(dst, int16(e.Protocol))
		dst = endStruct(dst, flexible)
	}
	if version >= 2 {
		if b.HasRack {
			dst = appendString(dst, b.Rack, flexible)
		} else {
			dst = appendNull(dst, flexible)
		}
	}
	return endStruct(dst, flexible)
}

// unnamed gives the endpoints that versions without listener names can tell
// apart: those named like their protocol.
func unnamed(endpoints []kafka.Endpoint) []kafka.Endpoint {
	var out []kafka.Endpoint
	for _, e := range endpoints {
		if e.Listener == e.Protocol.String() {
			out = append(out, e)
		}
	}
	return out
}

func appendStopReplica(dst []byte, r *control.StopReplicaRequest, version int16) []byte {
	flexible := version >= 2
	parts := r.Partitions
	n, bytes := 0, 0
	for i, p := range parts {
		if version == 0 || i == 0 || p.Topic != parts[i-1].Topic {
			n++
			bytes += len(p.Topic) + 8
		}
		bytes += 10
	}
	dst = slices.Grow(dst, 64+bytes)
	dst = appendHeader(dst, r.Header, version >= 4, version >= 1)
	if version <= 2 {
		dst = appendBool(dst, len(parts) > 0 && parts[0].Delete)
	}
	dst = appendLen(dst, n, flexible)
	for i := 0; i < len(parts); {
		dst = appendString(dst, parts[i].Topic, flexible)
		if version == 0 {
			dst = appendInt32(dst, parts[i].Partition)
			i++
			continue
		}
		end := i + 1
		for end < len(parts) && parts[end].Topic == parts[i].Topic {
			end++
		}
		dst = appendLen(dst, end-i, flexible)
		for ; i < end; i++ {
			dst = appendInt32(dst, parts[i].Partition)
			if version >= 3 {
				dst = appendInt32(dst, parts[i].LeaderEpoch)
				dst = appendBool(dst, parts[i].Delete)
				dst = endStruct(dst, flexible)
			}
		}
		dst = endStruct(dst, flexible)
	}
	return endStruct(dst, flexible)
}

// SplitStopReplica divides a request into one that deletes and one that does
// not, either of which may be nil, for versions below 3 (spec/controller.md §6.3).
func SplitStopReplica(r *control.StopReplicaRequest) (deleting, stopping *control.StopReplicaRequest) {
	var del, stop []control.StopPartition
	for _, p := range r.Partitions {
		if p.Delete {
			del = append(del, p)
		} else {
			stop = append(stop, p)
		}
	}
	switch {
	case len(stop) == 0:
		return r, nil
	case len(del) == 0:
		return nil, r
	}
	return &control.StopReplicaRequest{Header: r.Header, Partitions: del}, &control.StopReplicaRequest{Header: r.Header, Partitions: stop}
}
