package realtests

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// corner is who plays the three parts; true is ours.
type corner struct{ zooKeeper, controller, brokers bool }

// String names the three parts.
func (c corner) String() string {
	who := func(ours bool, theirs string) string {
		if ours {
			return "ours"
		}
		return theirs
	}
	return fmt.Sprintf("ZooKeeper %s - controller %s - brokers %s", who(c.zooKeeper, "Apache's"), who(c.controller, "Kafka's"), who(c.brokers, "Kafka's"))
}

// member is a broker of either kind.
type member interface {
	kill()
	again(t *testing.T)
}

// Each of ZooKeeper, controller and brokers is ours or the original, in all eight
// ways. Records go in and out, a broker dies and comes back, the topic is deleted.
func TestInteropCube(t *testing.T) {
	real.Require(t, real.Kafka)
	var mu sync.Mutex
	var ran []string
	t.Cleanup(func() { t.Logf("%d of 8 corners were played to their end:\n  %s", len(ran), strings.Join(ran, "\n  ")) })
	for i := range 8 {
		c := corner{i&4 != 0, i&2 != 0, i&1 != 0}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel() // most of the time is waiting for sessions to expire
			playCorner(t, c)
			if t.Failed() {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, c.String())
			t.Logf("real: corner %s", c)
		})
	}
}

func playCorner(t *testing.T, c corner) {
	if c.brokers {
		requireOurs(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	kind := real.Apache
	if c.zooKeeper {
		kind = real.Embedded
	}
	zk := real.ZooKeeper(t, real.On(kind)).Addr()
	var ids []int
	switch {
	case c.controller:
		runController(t, zk, 1000)
		await(t, "our controller elected", func() bool { s, ok := statusOf(t, zk); return ok && s.controlledBy(1000) })
	case c.brokers: // Kafka's controller is a broker, too; it gets no replicas
		startKafka(t, "3.9.1", zk, 100, nil)
		awaitBrokers(t, zk, 100)
		ids = append(ids, 100)
	}
	var members []member
	var seeds []string
	for id := 1; id <= 2; id++ {
		if c.brokers {
			b := startBroker(t, zk, id, false)
			members, seeds = append(members, b), append(seeds, b.addr)
		} else {
			b := startKafka(t, "3.9.1", zk, id, nil)
			members, seeds = append(members, b), append(seeds, b.addr)
		}
	}
	awaitBrokers(t, zk, append([]int{1, 2}, ids...)...)

	cl := kafkaClient(t, seeds...)
	createOn(ctx, t, cl, "cube", nil, []int32{1, 2}, []int32{2, 1}, []int32{1, 2})
	awaitHealthy(t, zk, 3)
	roundTrip(t, "cube", 300, 300, seeds...)
	if !c.controller && !c.brokers { // the first is the controller
		members[0], members[1] = members[1], members[0]
	}
	members[0].kill()
	await(t, "the other leads all", func() bool {
		s, ok := statusOf(t, zk)
		return ok && len(s.Brokers) == 1+len(ids) && len(s.Leaderless) == 0
	})
	roundTrip(t, "cube", 300, 600, seeds...)
	members[0].again(t)
	awaitHealthy(t, zk, 3)
	roundTrip(t, "cube", 300, 900, seeds...)
	if _, err := kadm.NewClient(cl).DeleteTopic(ctx, "cube"); err != nil {
		t.Fatalf("delete: %v", err)
	}
	await(t, "the topic is gone", func() bool { s, ok := statusOf(t, zk); return ok && s.Topics == 0 && len(s.Deletions) == 0 })
}
