package crash

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// world is the end state of a run, one line per fact: path or broker, and what
// is there. Epochs and versions are replaced by whether they are the present ones.
type world map[string]string

// diff lists the facts in which another end differs.
func (want world) diff(got world) []string {
	var out []string
	for k, v := range want {
		if got[k] != v {
			out = append(out, fmt.Sprintf("%s: %s, undisturbed %s", k, orAbsent(got[k]), v))
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			out = append(out, fmt.Sprintf("%s: %s, undisturbed absent", k, v))
		}
	}
	slices.Sort(out)
	return out
}

func orAbsent(s string) string {
	if s == "" {
		return "absent"
	}
	return s
}

// tree reads the znodes of a World.
type tree struct{ t *zkserver.Tree }

func (t tree) get(path string) ([]byte, int32, bool) {
	data, stat, code := t.t.GetData(zkserver.Who{}, path)
	return data, stat.Version, code == zkserver.OK
}

func (t tree) children(path string) []string {
	names, _, _ := t.t.GetChildren(zkserver.Who{}, path)
	return names
}

// reader is a ZooKeeper tree, simulated or real.
type reader interface {
	get(path string) (data []byte, version int32, ok bool)
	children(path string) []string
}

// znodes gives what the tree says about topics, and what is left over.
func znodes(r reader) (world, map[kafka.TopicPartition]kafka.Leadership) {
	out := world{}
	states := map[kafka.TopicPartition]kafka.Leadership{}
	for _, name := range r.children(zkpaths.BrokerTopics) {
		data, _, _ := r.get(zkpaths.TopicPath(name))
		t, err := zkpaths.DecodeTopic(name, data)
		if err != nil {
			out[zkpaths.TopicPath(name)] = err.Error()
			continue
		}
		out[zkpaths.TopicPath(name)] = fmt.Sprintf("version %d, has id %v", t.Version, !t.ID.IsZero())
		for _, p := range t.Partitions {
			out[fmt.Sprintf("%s partition %d", zkpaths.TopicPath(name), p.Partition)] =
				fmt.Sprintf("replicas %v adding %v removing %v", p.Replicas, p.Adding, p.Removing)
		}
		for _, n := range r.children(zkpaths.PartitionsPath(name)) {
			tp, _ := kafka.ParseTopicPartition(name + "-" + n)
			path := zkpaths.PartitionStatePath(tp)
			data, version, ok := r.get(path)
			if !ok {
				out[path] = "missing"
				continue
			}
			l, err := zkpaths.DecodePartitionState(tp, data, version)
			if err != nil {
				out[path] = err.Error()
				continue
			}
			states[tp] = l
			out[path] = fmt.Sprintf("leader %d isr %v recovery %d", l.Leader, sorted(l.ISR), l.Recovery)
		}
	}
	for _, dir := range []string{zkpaths.DeleteTopics, zkpaths.ISRNotifications, zkpaths.LogDirNotifications, "/config/topics"} {
		for _, name := range r.children(dir) {
			data, _, _ := r.get(dir + "/" + name)
			out[dir+"/"+name] = "data " + string(data)
		}
	}
	for _, path := range []string{zkpaths.ReassignPartitions, zkpaths.PreferredElection} {
		if data, _, ok := r.get(path); ok {
			out[path] = string(data)
		}
	}
	return out, states
}

// snapshot adds what brokers host and know.
func snapshot(w *sim.World) world {
	out, states := znodes(tree{w.ZK.Tree})
	for _, id := range slices.Sorted(maps.Keys(w.Brokers)) {
		b := w.Brokers[id]
		if b.Session == 0 {
			continue
		}
		for tp, h := range b.Hosted {
			out[fmt.Sprintf("broker %d hosts %s", id, tp)] = hosted(id, h, states[tp])
		}
		for tp, m := range b.Metadata {
			out[fmt.Sprintf("broker %d knows %s", id, tp)] = known(m, states[tp])
		}
		out[fmt.Sprintf("broker %d sees brokers", id)] = fmt.Sprint(slices.Sorted(maps.Keys(b.Live)))
	}
	if c := w.Active(); c == nil {
		out["controller"] = "nobody"
	} else if m := c.Controller().State().MovingPartitions(); len(m) > 0 {
		out["moving"] = fmt.Sprint(m)
	}
	return out
}

// hosted describes a replica. A follower's ISR is nobody's business: leaders
// change it without telling followers.
func hosted(id kafka.BrokerID, h *sim.Hosted, zk kafka.Leadership) string {
	s := fmt.Sprintf("leader %d replicas %v present epoch %v", h.Leader, sorted(h.Replicas), h.LeaderEpoch == zk.LeaderEpoch)
	if h.Leader == id {
		s += fmt.Sprintf(" isr %v present version %v", sorted(h.ISR), h.ZKVersion == zk.ZKVersion)
	}
	return s
}

func known(m *control.PartitionState, zk kafka.Leadership) string {
	return fmt.Sprintf("leader %d isr %v replicas %v offline %v present epoch %v", m.Leader, sorted(m.ISR), m.Replicas, sorted(m.Offline), m.LeaderEpoch == zk.LeaderEpoch)
}

func sorted(ids []kafka.BrokerID) string {
	return strings.ReplaceAll(fmt.Sprint(slices.Sorted(slices.Values(ids))), " ", ",")
}
