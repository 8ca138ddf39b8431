package listeners

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Watch is the kind of a watch, named by what is asked of ZooKeeper to arm it.
type Watch uint8

const (
	Children  Watch = iota + 1 // getChildren: children come and go
	Data                       // getData: the content of a node that is there
	Existence                  // exists: creation, content and deletion; the only one for a missing node
)

// String gives the word that Print uses.
func (w Watch) String() string {
	switch w {
	case Children:
		return "children"
	case Data:
		return "data"
	case Existence:
		return "existence"
	}
	return fmt.Sprintf("Watch(%d)", uint8(w))
}

// Path is one row of the table: on these notices of such a path, this event.
type Path struct {
	Pattern string // a part in braces stands for any name of that kind
	Watch   Watch
	On      []zkpaths.NoticeType
	Event   string // Kafka's name of it
	Armed   string // when the watch is there
	event   func(path string) (events.Event, bool)
}

// fixed matches one path.
func fixed(pattern string, ev events.Event) func(string) (events.Event, bool) {
	return func(path string) (events.Event, bool) { return ev, path == pattern }
}

var (
	// A directory that somebody removes takes its watch along; it is waited for.
	children = []zkpaths.NoticeType{zkpaths.NodeChildrenChanged, zkpaths.NodeDeleted, zkpaths.NodeCreated}
	changed  = []zkpaths.NoticeType{zkpaths.NodeDataChanged}
	deleted  = []zkpaths.NoticeType{zkpaths.NodeDeleted}
	appeared = []zkpaths.NoticeType{zkpaths.NodeCreated, zkpaths.NodeDataChanged}
	// A deletion takes the watch with it. Handled like a creation, the handler
	// finds nothing and arms the next one (traces/better.md).
	cameOrWent = []zkpaths.NoticeType{zkpaths.NodeCreated, zkpaths.NodeDeleted}
)

// Paths is all that a controller watches (spec/controller.md §2.4). Each notice
// fits one row at most.
var Paths = []Path{
	row(zkpaths.Controller, Existence, appeared, "always, standing by too", events.ControllerChange{}),
	row(zkpaths.Controller, Existence, deleted, "always, standing by too", events.Reelect{}),
	row(zkpaths.BrokerIDs, Children, children, active, events.BrokerChange{}),
	{zkpaths.BrokerIDs + "/{broker}", Data, changed, events.BrokerModifications{}.Name(), active, brokerData},
	row(zkpaths.BrokerTopics, Children, children, active, events.TopicChange{}),
	{zkpaths.BrokerTopics + "/{topic}", Data, changed, events.PartitionModifications{}.Name(), active, topicData},
	{zkpaths.BrokerTopics + "/{topic}/partitions/{partition}/state", Data, changed, events.PartitionReassignmentISRChange{}.Name(),
		"while the partition moves, below 2.7-IV2", stateData},
	row(zkpaths.DeleteTopics, Children, children, active, events.TopicDeletion{}),
	row(zkpaths.ReassignPartitions, Existence, cameOrWent, active, events.ZkPartitionReassignment{}),
	row(zkpaths.ReassignPartitions, Existence, changed, active, events.ZkPartitionReassignment{Changed: true}),
	row(zkpaths.PreferredElection, Existence, cameOrWent, active, events.PreferredElectionZnode{}),
	row(zkpaths.PreferredElection, Existence, changed, active, events.PreferredElectionZnode{Changed: true}),
	row(zkpaths.ISRNotifications, Children, children, active, events.ISRChangeNotification{}),
	row(zkpaths.LogDirNotifications, Children, children, active, events.LogDirEvent{}),
	row(zkpaths.ConfigChanges, Children, children, active, events.ConfigChange{}),
}

const active = "while active"

func row(path string, w Watch, on []zkpaths.NoticeType, armed string, ev events.Event) Path {
	return Path{path, w, on, ev.Name(), armed, fixed(path, ev)}
}

func brokerData(path string) (events.Event, bool) {
	id, ok := zkpaths.ParseBrokerPath(path)
	return events.BrokerModifications{Broker: id}, ok
}

func topicData(path string) (events.Event, bool) {
	topic, ok := zkpaths.ParseTopicPath(path)
	return events.PartitionModifications{Topic: topic}, ok
}

func stateData(path string) (events.Event, bool) {
	tp, ok := zkpaths.ParsePartitionStatePath(path)
	return events.PartitionReassignmentISRChange{Partition: tp}, ok
}

// Event gives the event that a notice becomes, or false if it means nothing to
// a controller: a path that is not watched, a registration or a topic that
// went (its parent's children tell), a type that the watch is not for.
func Event(n zkpaths.Notice) (events.Event, bool) {
	for i := range Paths {
		p := &Paths[i]
		for _, t := range p.On {
			if t != n.Type {
				continue
			}
			if ev, ok := p.event(n.Path); ok {
				return ev, true
			}
		}
	}
	return nil, false
}

var noticeNames = map[zkpaths.NoticeType]string{zkpaths.NodeCreated: "created", zkpaths.NodeDeleted: "deleted",
	zkpaths.NodeDataChanged: "data", zkpaths.NodeChildrenChanged: "children"}

// Print writes the table as aligned text.
func Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PATH\tWATCH\tFIRES ON\tEVENT\tARMED")
	for _, p := range Paths {
		on := make([]string, len(p.On))
		for i, n := range p.On {
			on[i] = noticeNames[n]
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", p.Pattern, p.Watch, strings.Join(on, ", "), p.Event, p.Armed)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("printing the watched paths: %w", err)
	}
	return nil
}
