package crash

import (
	"fmt"
	"strings"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// story is what happens to five brokers, 1 to 5. After each step everything
// settles. before is not part of what is counted.
type story struct {
	name    string
	before  func(*play)
	steps   []func(*play)
	unclean bool
	old     bool // also for the reassignment of 2.3 and earlier
	small   bool // short enough to kill the second controller as well
}

// steps of stories; a step may do several things at once.

func topic(name string, partitions ...[]kafka.BrokerID) func(*play) {
	return func(p *play) {
		t := zkpaths.Topic{Version: 3}
		if p.w.Options.Version.Less(kafka.V2_8IV0) {
			t.Version = 2
		}
		if p.w.Options.Version.Less(kafka.V2_4IV0) {
			t.Version = 1
		}
		for n, ids := range partitions {
			t.Partitions = append(t.Partitions, zkpaths.PartitionAssignment{Partition: int32(n), ReplicaAssignment: kafka.ReplicaAssignment{Replicas: ids}})
		}
		p.write(zkserver.Op{Path: zkpaths.TopicConfigPath(name), Data: zkpaths.EncodeConfig(nil)})
		p.write(zkserver.Op{Path: zkpaths.TopicPath(name), Data: zkpaths.EncodeTopic(t)})
	}
}

// write is a tool's write: znodes are there whoever is controller.
func (p *play) write(op zkserver.Op) {
	op.ACL = zkserver.OpenACL()
	if res := p.w.ZK.Write(p.w.Admin, op); res.Code != zkserver.OK {
		panic(fmt.Sprintf("a story writes %s: %s", op.Path, res.Code))
	}
}

func all(steps ...func(*play)) func(*play) {
	return func(p *play) {
		for _, s := range steps {
			s(p)
		}
	}
}

// moves reads "t-0=1,2 t-1=cancel".
func moves(text string) []events.ReassignmentRow {
	var out []events.ReassignmentRow
	for _, f := range strings.Fields(text) {
		name, list, _ := strings.Cut(f, "=")
		row := events.ReassignmentRow{Partition: partition(name), Cancel: list == "cancel"}
		if !row.Cancel {
			row.Target = ids(list)
		}
		out = append(out, row)
	}
	return out
}

func partition(name string) kafka.TopicPartition {
	tp, err := kafka.ParseTopicPartition(name)
	if err != nil {
		panic(err)
	}
	return tp
}

func ids(list string) []kafka.BrokerID {
	var out []kafka.BrokerID
	for _, f := range strings.Split(list, ",") {
		id, ok := zkpaths.ParseBrokerID(f)
		if !ok {
			panic("no broker id: " + f)
		}
		out = append(out, id)
	}
	return out
}

func byZnode(text string) func(*play) {
	return func(p *play) {
		var entries []zkpaths.Reassignment
		for _, row := range moves(text) {
			entries = append(entries, zkpaths.Reassignment{Partition: row.Partition, Replicas: row.Target})
		}
		p.write(zkserver.Op{Path: zkpaths.ReassignPartitions, Data: zkpaths.EncodeReassignments(entries)})
	}
}

func byRequest(text string) func(*play) {
	return func(p *play) {
		p.ask("reassign "+text, func(done func(kafka.ErrorCode)) events.Event {
			return events.AlterReassignments{Partitions: moves(text), Reply: func(top kafka.ErrorCode, rows []events.RowError) {
				done(top)
			}}
		})
	}
}

func preferredByZnode(names ...string) func(*play) {
	return func(p *play) {
		var tps []kafka.TopicPartition
		for _, n := range names {
			tps = append(tps, partition(n))
		}
		p.write(zkserver.Op{Path: zkpaths.PreferredElection, Data: zkpaths.EncodePreferredElection(tps)})
	}
}

func elect(unclean bool) func(*play) {
	return func(p *play) {
		p.ask("elect leaders", func(done func(kafka.ErrorCode)) events.Event {
			return events.ElectLeaders{All: true, Unclean: unclean, Reply: func(top kafka.ErrorCode, _ []events.ElectionResult) { done(top) }}
		})
	}
}

func deletion(names ...string) func(*play) {
	return func(p *play) {
		for _, n := range names {
			p.write(zkserver.Op{Path: zkpaths.DeleteTopicPath(n)})
		}
	}
}

func deleteByRequest(names ...string) func(*play) {
	return func(p *play) {
		p.ask("delete topics", func(done func(kafka.ErrorCode)) events.Event {
			e := events.DeleteTopics{Reply: func(rows []events.DeletedTopic) { done(firstFailure(rows[0].Error)) }}
			for _, n := range names {
				e.Topics = append(e.Topics, events.TopicRef{Name: n})
			}
			return e
		})
	}
}

// firstFailure keeps NOT_CONTROLLER, which clients answer by asking again.
func firstFailure(code kafka.ErrorCode) kafka.ErrorCode { return code }

func create(name string, assignment map[int32][]kafka.BrokerID) func(*play) {
	return func(p *play) {
		p.ask("create "+name, func(done func(kafka.ErrorCode)) events.Event {
			return events.CreateTopics{Topics: []events.NewTopic{{Name: name, Partitions: -1, ReplicationFactor: -1, Assignment: assignment,
				Configs: map[string]string{"retention.ms": "1000"}}},
				Reply: func(rows []events.NewTopicResult) { done(firstFailure(rows[0].Error)) }}
		})
	}
}

func grow(name string, count int32, more ...[]kafka.BrokerID) func(*play) {
	return func(p *play) {
		p.ask("more partitions for "+name, func(done func(kafka.ErrorCode)) events.Event {
			return events.CreatePartitions{Topics: []events.MorePartitions{{Topic: name, Count: count, Assignment: more}},
				Reply: func(rows []events.MorePartitionsResult) { done(firstFailure(rows[0].Error)) }}
		})
	}
}

func die(list ...kafka.BrokerID) func(*play) {
	return func(p *play) {
		for _, id := range list {
			p.w.Kill(id)
		}
	}
}

func back(list ...kafka.BrokerID) func(*play) {
	return func(p *play) {
		for _, id := range list {
			if err := p.w.Start(id, nil); err != nil {
				panic(err)
			}
		}
	}
}

func lag(list ...kafka.BrokerID) func(*play) {
	return func(p *play) {
		clear(p.w.Lagging)
		for _, id := range list {
			p.w.Lagging[id] = true
		}
	}
}

func shutdown(id kafka.BrokerID) func(*play) {
	return func(p *play) {
		p.ask(fmt.Sprintf("shutdown of %d", id), func(done func(kafka.ErrorCode)) events.Event {
			return events.ControlledShutdown{Broker: id, BrokerEpoch: p.w.Brokers[id].Epoch, Reply: func(code kafka.ErrorCode, _ []kafka.TopicPartition) {
				if code == kafka.StaleControllerEpoch {
					code = kafka.NotController
				}
				done(code)
			}}
		})
	}
}

func rows(lists ...string) [][]kafka.BrokerID {
	var out [][]kafka.BrokerID
	for _, l := range lists {
		out = append(out, ids(l))
	}
	return out
}

func assigned(lists ...string) map[int32][]kafka.BrokerID {
	out := map[int32][]kafka.BrokerID{}
	for i, l := range rows(lists...) {
		out[int32(i)] = l
	}
	return out
}

type do = []func(*play)

var threeParts = topic("t", rows("1,2,3", "2,3,1", "3,1,2")...)

// big is a topic whose znode is rewritten at most every so often.
func big(p *play) {
	var parts [][]kafka.BrokerID
	for range 120 {
		parts = append(parts, ids("1,2"))
	}
	topic("big", parts...)(p)
}

var stories = []story{
	{name: "reassignment by znode, leader goes", old: true, small: true, before: topic("t", ids("1,2")), steps: do{byZnode("t-0=3,4")}},
	{name: "reassignment by znode, leader stays", old: true, before: topic("t", ids("1,2,3")), steps: do{byZnode("t-0=1,4,5")}},
	{name: "reassignment by znode, only the order changes", old: true, before: topic("t", ids("1,2")), steps: do{byZnode("t-0=2,1")}},
	{name: "reassignment by znode, several partitions", old: true, before: threeParts, steps: do{byZnode("t-0=4,5,1 t-1=5,4,2 t-2=3,1,2 nosuch-7=1,2")}},
	{name: "reassignment by znode, the target is slow", old: true, before: all(topic("t", ids("1,2")), lag(3)), steps: do{byZnode("t-0=3,4"), lag()}},
	{name: "reassignment by znode, twice", old: true, before: topic("t", ids("1,2")), steps: do{byZnode("t-0=3,4"), byZnode("t-0=1,2")}},
	{name: "reassignment by request, swap", small: true, before: topic("t", ids("1,2")), steps: do{byRequest("t-0=3,4")}},
	{name: "reassignment by request, shrink", before: topic("t", ids("1,2,3")), steps: do{byRequest("t-0=2")}},
	{name: "reassignment by request, grow", before: topic("t", ids("1")), steps: do{byRequest("t-0=1,2,3")}},
	{name: "reassignment by request, several partitions", before: threeParts, steps: do{byRequest("t-0=4,5,1 t-1=5,4,2 t-2=2,3,1")}},
	{name: "reassignment cancelled", small: true, before: all(topic("t", ids("1,2")), lag(3, 4)), steps: do{byRequest("t-0=3,4"), byRequest("t-0=cancel")}},
	{name: "reassignment cancelled, half in sync", before: all(topic("t", ids("1,2")), lag(4)), steps: do{byRequest("t-0=3,4"), byRequest("t-0=cancel")}},
	{name: "reassignment cancelled, an old replica is dead and returns", before: all(topic("t", ids("1,2")), lag(4), die(2)),
		steps: do{byRequest("t-0=3,4"), byRequest("t-0=cancel"), back(2)}},
	{name: "reassignment with a new target", before: all(topic("t", ids("1,2")), lag(4)), steps: do{byRequest("t-0=3,4"), byRequest("t-0=5,1")}},
	{name: "reassignment by znode replaced by request", before: all(topic("t", ids("1,2")), lag(4)), steps: do{byZnode("t-0=3,4"), byRequest("t-0=3,5")}},
	{name: "reassignment of a large topic", before: big, steps: do{byRequest("big-0=3,4 big-119=4,3"), byRequest("big-5=3,4"), wait}},

	{name: "topic created by znode", small: true, steps: do{threeParts}},
	{name: "topic created by request", small: true, steps: do{create("t", assigned("1,2", "2,3"))}},
	{name: "topics created, one without live replicas", before: die(5), steps: do{all(topic("a", ids("1,2")), topic("b", ids("5")), topic("c", ids("5,3"))), back(5)}},
	{name: "partitions added by request", before: threeParts, steps: do{grow("t", 5, rows("4,5,1", "5,1,2")...)}},

	{name: "topic deleted", small: true, before: topic("t", ids("1,2")), steps: do{deletion("t")}},
	{name: "topics deleted by request", before: all(threeParts, topic("u", ids("4,5"))), steps: do{deleteByRequest("t", "u")}},
	{name: "topics deleted, a replica is dead and returns", before: all(topic("a", rows("1,2", "2,1")...), topic("b", ids("3,1")), topic("c", ids("4,5")), die(3)),
		steps: do{deletion("a", "b", "c"), back(3)}},
	{name: "topic deleted and created again", before: topic("t", ids("1,2")), steps: do{deletion("t"), topic("t", ids("2,3"))}},
	{name: "topic deleted while it moves", before: all(topic("t", ids("1,2")), lag(3)), steps: do{byZnode("t-0=3,4"), deletion("t"), lag()}},

	{name: "leader dies", small: true, before: threeParts, steps: do{die(1)}},
	{name: "follower dies and returns", before: topic("t", ids("1,2,3")), steps: do{die(3), back(3)}},
	{name: "leader dies and returns", before: threeParts, steps: do{die(2), back(2)}},
	{name: "two brokers die at once", before: threeParts, steps: do{die(1, 2), back(2), back(1)}},
	{name: "all replicas die, the last returns last", before: topic("t", ids("1,2")), steps: do{die(1), die(2), back(1), back(2)}},
	{name: "unclean election by configuration", unclean: true, before: all(topic("t", ids("1,2")), lag(2)), steps: do{die(2), back(2), die(1), back(1)}},
	{name: "unclean election by request", before: all(topic("t", ids("1,2")), lag(2)), steps: do{die(2), back(2), die(1), elect(true), back(1)}},
	{name: "broker bounces", before: threeParts, steps: do{all(die(1), back(1)), elect(false)}},

	{name: "preferred election by znode", small: true, before: threeParts, steps: do{all(die(1), die(2)), back(1, 2), preferredByZnode("t-0", "t-1", "nosuch-0")}},
	{name: "preferred election by request", before: threeParts, steps: do{die(1), back(1), elect(false)}},
	{name: "controlled shutdown", small: true, before: threeParts, steps: do{shutdown(1), die(1), back(1)}},

	{name: "mixed: a target dies while topics come and go", before: all(threeParts, topic("u", ids("4,5"))),
		steps: do{all(byRequest("t-0=4,5,1"), deletion("u"), topic("n", ids("5,2"))), die(5), back(5)}},
	{name: "mixed: everything at once", before: all(threeParts, topic("u", ids("2,3")), topic("v", ids("1,5"))),
		steps: do{all(byZnode("t-0=4,1,2 u-0=3,2"), deletion("v"), die(3), topic("n", rows("1,2", "3,4")...)), back(3), preferredByZnode("t-2", "n-1"), elect(false)}},
}
