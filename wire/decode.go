package wire

import (
	"fmt"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// DecodeRequest reads the body of a control request. Partitions keep the order
// they came in. kraft is isKRaftController, which no ZooKeeper-mode controller
// sets. Fields a version lacks are: broker epoch kafka.NoBrokerEpoch, leader
// epoch of a StopReplica kafka.NoEpoch, topic id zero, listener name that of
// the protocol. Nothing in the answer points into body.
func DecodeRequest(kind control.Kind, version int16, body []byte) (req control.Request, kraft bool, err error) {
	return decodeRequest(kind, version, body, nil)
}

func decodeRequest(kind control.Kind, version int16, body []byte, common *Shared) (req control.Request, kraft bool, err error) {
	if version < 0 || version > MaxVersion(kind) {
		return nil, false, fmt.Errorf("%s v%d: versions 0 to %d are known", kind, version, MaxVersion(kind))
	}
	r := &reader{b: body, flexible: version >= flexibleFrom(kind)}
	switch kind {
	case control.LeaderAndISRKey:
		req, kraft = decodeLeaderAndISR(r, version)
	case control.UpdateMetadataKey:
		req, kraft = decodeUpdateMetadata(r, version, common)
	case control.StopReplicaKey:
		req, kraft = decodeStopReplica(r, version)
	}
	if kind != control.UpdateMetadataKey { // there it is done
		r.tags()
		err = r.done()
	} else {
		err = r.err
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s v%d cannot be read: %w", kind, version, err)
	}
	return req, kraft, nil
}

func decodeHeader(r *reader, kraft, brokerEpoch bool) (h control.Header, isKRaft bool) {
	h.ControllerID = kafka.BrokerID(r.int32())
	if kraft {
		isKRaft = r.bool()
	}
	h.ControllerEpoch = r.int32()
	h.BrokerEpoch = kafka.NoBrokerEpoch
	if brokerEpoch {
		h.BrokerEpoch = r.int64()
	}
	return h, isKRaft
}

// decodeStates reads a partition list, flat or by topic.
func decodeStates(r *reader, flat, ids bool, one func(*control.PartitionState)) []*control.PartitionState {
	const least = 28 // bytes of a partition with empty lists
	if flat {
		n := r.array(least)
		states, out := make([]control.PartitionState, n), make([]*control.PartitionState, n)
		for i := range states {
			states[i].Topic = r.string()
			one(&states[i])
			out[i] = &states[i]
		}
		return out
	}
	var out []*control.PartitionState
	for range r.array(2) {
		topic := r.string()
		var id kafka.TopicID
		if ids {
			id = r.topicID()
		}
		n := r.array(least - 6)
		states := make([]control.PartitionState, n)
		for i := range states {
			states[i].Topic, states[i].TopicID = topic, id
			one(&states[i])
			out = append(out, &states[i])
		}
		r.tags()
		if r.err != nil {
			break
		}
	}
	return out
}

func decodeLeadership(r *reader, p *control.PartitionState) {
	p.Partition = r.int32()
	p.ControllerEpoch = r.int32()
	p.Leader = kafka.BrokerID(r.int32())
	p.LeaderEpoch = r.int32()
	p.ISR = r.idList()
	p.ZKVersion = r.int32()
	p.Replicas = r.idList()
}

func decodeLeaderAndISR(r *reader, version int16) (*control.LeaderAndISRRequest, bool) {
	h, kraft := decodeHeader(r, version >= 7, version >= 2)
	if version >= 5 {
		r.int8() // Type: only KRaft controllers use it
	}
	req := &control.LeaderAndISRRequest{Header: h}
	req.Partitions = decodeStates(r, version < 2, version >= 5, func(p *control.PartitionState) {
		decodeLeadership(r, p)
		if version >= 3 {
			p.Adding, p.Removing = r.idList(), r.idList()
		}
		if version >= 1 {
			p.IsNew = r.bool()
		}
		if version >= 6 {
			p.Recovery = kafka.LeaderRecoveryState(r.int8())
		}
		r.tags()
	})
	for range r.array(10) {
		l := control.LiveLeader{ID: kafka.BrokerID(r.int32()), Host: r.string(), Port: r.int32()}
		r.tags()
		if r.err != nil {
			break
		}
		req.LiveLeaders = append(req.LiveLeaders, l)
	}
	return req, kraft
}

func decodeUpdateMetadata(r *reader, version int16, common *Shared) (*control.UpdateMetadataRequest, bool) {
	h, kraft := decodeHeader(r, version >= 8, version >= 5)
	m := common.metadata(version, r.b, func() *control.Metadata { return decodeMetadata(r, version) })
	return &control.UpdateMetadataRequest{Header: h, Metadata: m}, kraft
}

// decodeMetadata reads the rest of an UpdateMetadata request; nil: r has the error.
func decodeMetadata(r *reader, version int16) *control.Metadata {
	m := &control.Metadata{}
	m.Partitions = decodeStates(r, version < 5, version >= 7, func(p *control.PartitionState) {
		decodeLeadership(r, p)
		if version >= 4 {
			p.Offline = r.idList()
		}
		r.tags()
	})
	for range r.array(5) {
		b := decodeLiveBroker(r, version)
		if r.err != nil {
			break
		}
		m.LiveBrokers = append(m.LiveBrokers, b)
	}
	r.tags()
	if err := r.done(); err != nil {
		r.fail(err)
		return nil
	}
	return m
}

func decodeLiveBroker(r *reader, version int16) kafka.Broker {
	b := kafka.Broker{ID: kafka.BrokerID(r.int32()), Epoch: kafka.NoBrokerEpoch}
	if version == 0 {
		host, port := r.string(), r.int32()
		if port >= 0 {
			b.Endpoints = []kafka.Endpoint{{Listener: kafka.Plaintext.String(), Host: host, Port: port}}
		}
		return b
	}
	for range r.array(7) {
		e := kafka.Endpoint{Port: r.int32(), Host: r.string()}
		if version >= 3 {
			e.Listener = r.string()
		}
		e.Protocol = kafka.SecurityProtocol(r.int16())
		if version < 3 {
			e.Listener = e.Protocol.String()
		}
		r.tags()
		if r.err != nil {
			break
		}
		b.Endpoints = append(b.Endpoints, e)
	}
	if version >= 2 {
		rack, null := r.nullable()
		b.Rack, b.HasRack = rack, !null
	}
	r.tags()
	return b
}

func decodeStopReplica(r *reader, version int16) (*control.StopReplicaRequest, bool) {
	h, kraft := decodeHeader(r, version >= 4, version >= 1)
	req := &control.StopReplicaRequest{Header: h}
	all := version <= 2 && r.bool()
	for range r.array(2) {
		topic := r.string()
		if version == 0 {
			req.Partitions = append(req.Partitions, stopPartition(topic, r.int32(), all))
			continue
		}
		for range r.array(4) {
			p := stopPartition(topic, r.int32(), all)
			if version >= 3 {
				p.LeaderEpoch, p.Delete = r.int32(), r.bool()
				r.tags()
			}
			req.Partitions = append(req.Partitions, p)
		}
		r.tags()
		if r.err != nil {
			break
		}
	}
	return req, kraft
}

func stopPartition(topic string, n int32, del bool) control.StopPartition {
	return control.StopPartition{TopicPartition: kafka.TopicPartition{Topic: topic, Partition: n}, LeaderEpoch: kafka.NoEpoch, Delete: del}
}
