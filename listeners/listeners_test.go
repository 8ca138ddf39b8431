package listeners_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/listeners"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

var types = []zkpaths.NoticeType{zkpaths.NodeCreated, zkpaths.NodeDeleted, zkpaths.NodeDataChanged, zkpaths.NodeChildrenChanged}

// TestEvent has, for every kind of path, what each of the four notices becomes;
// nil is no event. A directory that is watched may be removed and made again.
func TestEvent(t *testing.T) {
	type four [4]events.Event // created, deleted, data, children
	orders3 := kafka.TopicPartition{Topic: "or-d.ers_", Partition: 3}
	for path, want := range map[string]four{
		"/controller":       {events.ControllerChange{}, events.Reelect{}, events.ControllerChange{}, nil},
		"/controller_epoch": {},
		"/controller/x":     {},
		"controller":        {},
		"":                  {},
		"/":                 {},

		"/brokers/ids":             {events.BrokerChange{}, events.BrokerChange{}, nil, events.BrokerChange{}},
		"/brokers/ids/":            {},
		"/brokers/ids/0":           {nil, nil, events.BrokerModifications{Broker: 0}, nil},
		"/brokers/ids/1001":        {nil, nil, events.BrokerModifications{Broker: 1001}, nil},
		"/brokers/ids/x":           {},
		"/brokers/ids/01":          {},
		"/brokers/ids/+1":          {},
		"/brokers/ids/-1":          {},
		"/brokers/ids/99999999999": {},
		"/brokers/ids/1/x":         {},
		"/brokers/seqid":           {},

		"/brokers/topics":                                  {events.TopicChange{}, events.TopicChange{}, nil, events.TopicChange{}},
		"/brokers/topics/":                                 {},
		"/brokers/topics/or-d.ers_":                        {nil, nil, events.PartitionModifications{Topic: "or-d.ers_"}, nil},
		"/brokers/topics/partitions":                       {nil, nil, events.PartitionModifications{Topic: "partitions"}, nil},
		"/brokers/topics/or-d.ers_/partitions":             {},
		"/brokers/topics/or-d.ers_/partitions/3":           {},
		"/brokers/topics/or-d.ers_/partitions/3/state":     {nil, nil, events.PartitionReassignmentISRChange{Partition: orders3}, nil},
		"/brokers/topics/or-d.ers_/partitions/3/state/":    {},
		"/brokers/topics/or-d.ers_/partitions/03/state":    {},
		"/brokers/topics/or-d.ers_/partitions/-3/state":    {},
		"/brokers/topics/or-d.ers_/partitions//state":      {},
		"/brokers/topics//partitions/3/state":              {},
		"/brokers/topics/a/b/partitions/3/state":           {},
		"/brokers/topics/or-d.ers_/x/3/state":              {},
		"/brokers/topics/t/partitions/4294967296/state":    {},
		"/chroot/brokers/topics/or-d.ers_/partitions/3/st": {},

		"/admin/delete_topics":   {events.TopicDeletion{}, events.TopicDeletion{}, nil, events.TopicDeletion{}},
		"/admin/delete_topics/t": {},
		"/admin/reassign_partitions": {events.ZkPartitionReassignment{}, events.ZkPartitionReassignment{},
			events.ZkPartitionReassignment{Changed: true}, nil},
		"/admin/preferred_replica_election": {events.PreferredElectionZnode{}, events.PreferredElectionZnode{},
			events.PreferredElectionZnode{Changed: true}, nil},
		"/admin": {},

		"/isr_change_notification":                                    {events.ISRChangeNotification{}, events.ISRChangeNotification{}, nil, events.ISRChangeNotification{}},
		"/isr_change_notification/isr_change_0000000000":              {},
		"/log_dir_event_notification":                                 {events.LogDirEvent{}, events.LogDirEvent{}, nil, events.LogDirEvent{}},
		"/log_dir_event_notification/log_dir_event_0000000000":        {},
		"/config/changes":                                             {events.ConfigChange{}, events.ConfigChange{}, nil, events.ConfigChange{}},
		"/config/topics":                                              {},
		"/config/changes/config_change_0000000000":                    {},
		"/cluster/id":                                                 {},
		"/brokers/topics/" + strings.Repeat("a", 249) + "/partitions": {},
	} {
		for i, typ := range types {
			got, ok := listeners.Event(zkpaths.Notice{Type: typ, Path: path})
			if ok != (want[i] != nil) || ok && !cmp.Equal(got, want[i]) {
				t.Errorf("%s, notice %d: got %#v, %v; want %#v", path, typ, got, ok, want[i])
			}
		}
	}
	if ev, ok := listeners.Event(zkpaths.Notice{Type: 0, Path: zkpaths.Controller}); ok {
		t.Errorf("a notice without type became %#v", ev)
	}
}

// TestPathsDocumentsEvent: each row does what it says, and no notice fits two.
func TestPathsDocumentsEvent(t *testing.T) {
	example := strings.NewReplacer("{broker}", "7", "{topic}", "orders", "{partition}", "3")
	for i, p := range listeners.Paths {
		for _, typ := range types {
			ev, ok := listeners.Event(zkpaths.Notice{Type: typ, Path: example.Replace(p.Pattern)})
			if slices.Contains(p.On, typ) && (!ok || ev.Name() != p.Event) {
				t.Errorf("row %s says %s on %d, Event gives %#v", p.Pattern, p.Event, typ, ev)
			}
		}
		for _, q := range listeners.Paths[:i] {
			for _, typ := range q.On {
				if q.Pattern == p.Pattern && slices.Contains(p.On, typ) {
					t.Errorf("two rows for %s on %d", p.Pattern, typ)
				}
			}
		}
	}
}

func TestPrint(t *testing.T) {
	var b bytes.Buffer
	if err := listeners.Print(&b); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/watched.txt")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("testdata/watched.txt is not what Print gives (-file +now):\n%s", diff)
	}
}

func ExampleEvent() {
	ev, _ := listeners.Event(zkpaths.Notice{Type: zkpaths.NodeDataChanged, Path: "/brokers/topics/orders"})
	fmt.Printf("%s %+v, counted as %s\n", ev.Name(), ev, ev.Kind())
	// Output: PartitionModifications {Topic:orders}, counted as TopicChange
}

func FuzzEvent(f *testing.F) {
	for _, p := range listeners.Paths {
		f.Add(uint8(p.On[0]), p.Pattern)
	}
	f.Add(uint8(3), "/brokers/topics/t/partitions/3/state")
	f.Fuzz(func(t *testing.T, typ uint8, path string) {
		ev, ok := listeners.Event(zkpaths.Notice{Type: zkpaths.NoticeType(typ), Path: path})
		if !ok {
			return
		}
		// What names an entity names the path it came from.
		back := path
		switch ev := ev.(type) {
		case events.BrokerModifications:
			back = zkpaths.BrokerPath(ev.Broker)
		case events.PartitionModifications:
			back = zkpaths.TopicPath(ev.Topic)
		case events.PartitionReassignmentISRChange:
			back = zkpaths.PartitionStatePath(ev.Partition)
		}
		if back != path {
			t.Errorf("%q became %#v, which is about %q", path, ev, back)
		}
	})
}
