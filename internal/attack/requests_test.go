package attack

import (
	"fmt"
	"math"
	"testing"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// TestMillionsOfPartitions: a number alone costs neither memory nor time.
func TestMillionsOfPartitions(t *testing.T) {
	a := start(t, kafka.V3_9IV0, false)
	var topics []events.NewTopic
	for i, n := range []int32{math.MaxInt32, 1_000_000, 150_000} {
		topics = append(topics, events.NewTopic{Name: fmt.Sprint("v", i), Partitions: n, ReplicationFactor: 1})
	}
	for i := range 2000 { // each on its own would do
		topics = append(topics, events.NewTopic{Name: fmt.Sprint("w", i), Partitions: 85_000, ReplicationFactor: 1})
	}
	topics = append(topics, events.NewTopic{Name: "small", Partitions: 3, ReplicationFactor: 2})
	answered := false
	a.w.Active().Put(events.CreateTopics{Topics: topics, ValidateOnly: true, Reply: func(rows []events.NewTopicResult) {
		answered = true
		for i, r := range rows {
			want := kafka.InvalidPartitions
			if i == 3 || i == 4 || i == len(rows)-1 {
				want = kafka.NoError
			}
			if r.Error != want {
				t.Errorf("%s with %d partitions: %s %s", topics[i].Name, topics[i].Partitions, r.Error, r.Message)
			}
		}
	}})
	a.pass("topics that are too large")
	if !answered {
		t.Error("no answer")
	}
	answered = false
	a.w.Active().Put(events.CreatePartitions{Topics: []events.MorePartitions{{Topic: "h0", Count: math.MaxInt32}, {Topic: "h1", Count: 3}}, Reply: func(rows []events.MorePartitionsResult) {
		answered = true
		if rows[0].Error != kafka.InvalidPartitions || rows[1].Error != kafka.NoError {
			t.Errorf("2147483647 partitions: %s; 3: %s %s", rows[0].Error, rows[1].Error, rows[1].Message)
		}
	}})
	a.pass("partitions that are too many")
	if !answered {
		t.Error("no answer")
	}
}
