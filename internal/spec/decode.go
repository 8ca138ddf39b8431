package spec

import (
	"fmt"
	"strconv"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// decodeStep decodes the data at a path, or the data given with it.
func decodeStep(p *player, s *Step) error {
	data, err := text(s.Data)
	if err != nil {
		return err
	}
	if len(s.Data) == 0 {
		var code zkserver.Code
		if data, _, code = p.w.ZK.Tree.GetData(zkserver.Who{}, s.Path); code != zkserver.OK {
			return fmt.Errorf("%s: %w", s.Path, code)
		}
	}
	v, err := decodeNode(s.Path, data)
	if err != nil {
		p.problems = append(p.problems, problem{logrus.ErrorLevel, err.Error()})
		v = nil
	}
	p.results = append(p.results, v)
	return nil
}

func decodeNode(path string, data []byte) (any, error) {
	if id, ok := zkpaths.ParseBrokerPath(path); ok {
		return decodeBroker(id, data)
	}
	if topic, ok := zkpaths.ParseTopicPath(path); ok {
		return decodeTopic(topic, data)
	}
	if tp, ok := zkpaths.ParsePartitionStatePath(path); ok {
		l, err := zkpaths.DecodePartitionState(tp, data, 0)
		return map[string]any{"leader": l.Leader, "leader_epoch": l.LeaderEpoch, "isr": l.ISR,
			"controller_epoch": l.ControllerEpoch, "leader_recovery_state": l.Recovery}, err
	}
	switch path {
	case zkpaths.Controller:
		n, err := zkpaths.DecodeController(data)
		return map[string]any{"version": n.Version, "brokerid": n.Broker, "timestamp": strconv.FormatInt(n.Timestamp, 10), "kraftControllerEpoch": n.KRaftEpoch}, err
	case zkpaths.ControllerEpoch:
		e, err := zkpaths.DecodeEpoch(data)
		return e, err
	case zkpaths.ReassignPartitions:
		moves, err := zkpaths.DecodeReassignments(data, true)
		out := map[string]any{}
		for _, m := range moves {
			out[m.Partition.String()] = m.Replicas
		}
		return out, err
	case zkpaths.PreferredElection:
		tps, err := zkpaths.DecodePreferredElection(data)
		return names(tps), err
	case zkpaths.ClusterID:
		id, err := zkpaths.DecodeClusterID(data)
		return map[string]any{"id": id}, err
	}
	return nil, fmt.Errorf("%s: there is nothing known about the data of such a path", path)
}

func decodeBroker(id kafka.BrokerID, data []byte) (any, error) {
	r, err := zkpaths.DecodeBroker(id, data)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"id": r.ID, "version": r.Version, "jmx_port": r.JMXPort, "port": r.Port, "host": nil, "rack": nil,
		"timestamp": strconv.FormatInt(r.Timestamp, 10)}
	if r.HasHost {
		out["host"] = r.Host
	}
	if r.HasRack {
		out["rack"] = r.Rack
	}
	var endpoints []any
	for _, e := range r.Endpoints {
		endpoints = append(endpoints, map[string]any{"listener": e.Listener, "protocol": e.Protocol.String(), "host": e.Host, "port": e.Port})
	}
	out["endpoints"] = endpoints
	again, err := zkpaths.DecodeBroker(id, zkpaths.EncodeBroker(r))
	if err != nil || len(again.Endpoints) != len(r.Endpoints) {
		return nil, fmt.Errorf("%s: encoding it again gives something else: %w", zkpaths.BrokerPath(id), err)
	}
	return out, nil
}

func decodeTopic(topic string, data []byte) (any, error) {
	t, err := zkpaths.DecodeTopic(topic, data)
	if err != nil {
		return nil, err
	}
	moving, origin, target, replicas := []int32{}, map[string]any{}, map[string]any{}, map[string]any{}
	for _, p := range t.Partitions {
		key := strconv.Itoa(int(p.Partition))
		replicas[key] = p.Replicas
		if p.Reassigning() {
			moving = append(moving, p.Partition)
			origin[key], target[key] = p.Original(), p.Target()
		}
	}
	out := map[string]any{"topic_id": nil, "version": t.Version, "reassigning": moving, "origin": origin, "target": target, "partitions": replicas}
	if !t.ID.IsZero() {
		out["topic_id"] = t.ID.String()
	}
	// An origin or target that covers every moving partition alike is told in
	// full; cases name only the partitions they are about.
	return out, nil
}
