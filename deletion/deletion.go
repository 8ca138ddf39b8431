package deletion

import (
	"github.com/zkcontroller/zkcontroller/statemachine"
)

// Pass is one look at the deletion queue (spec/controller.md §7.6, "resume pass").
type Pass struct {
	Complete []string               // every replica is gone: forget the topic
	Retry    []statemachine.Replica // ineligible replicas that go back to OfflineReplica
	Start    []string               // may be deleted now
}

// Resume looks at the queue. Topics of Complete are in no other list.
func Resume(c *statemachine.Context) Pass {
	var pass Pass
	for _, name := range c.QueuedTopics() {
		if !c.Queued(name) {
			continue // deletion is disabled
		}
		counts, ineligible := survey(c, name)
		if counts.total == counts.successful {
			pass.Complete = append(pass.Complete, name)
			continue
		}
		if counts.started == 0 && len(ineligible) > 0 {
			pass.Retry = append(pass.Retry, ineligible...)
		}
		if counts.started == 0 && !c.Ineligible(name) {
			pass.Start = append(pass.Start, name)
		}
	}
	return pass
}

type counts struct{ total, successful, started int }

func survey(c *statemachine.Context, name string) (counts, []statemachine.Replica) {
	var n counts
	var ineligible []statemachine.Replica
	t := c.Topic(name)
	if t == nil {
		return n, nil
	}
	for _, p := range t.Partitions() {
		for _, id := range p.Assignment.Replicas {
			n.total++
			switch p.Replica(id) {
			case statemachine.ReplicaDeletionSuccessful:
				n.successful++
			case statemachine.ReplicaDeletionStarted:
				n.started++
			case statemachine.ReplicaDeletionIneligible:
				ineligible = append(ineligible, statemachine.Replica{Partition: p, Broker: id})
			}
		}
	}
	return n, ineligible
}

// Start is what starting the deletion of topics takes.
type Start struct {
	Unseen     []*statemachine.Partition // of topics not started before: go Offline, then NonExistent
	Topics     []string                  // those topics
	All        []*statemachine.Partition // brokers are told leader -2 for these
	Dead       []statemachine.Replica    // go DeletionIneligible
	Live       []statemachine.Replica    // go Offline, then DeletionStarted
	Ineligible []string                  // topics with dead replicas: marked
}

// Begin decides it, for all topics in one go (spec/controller.md §7.6, "start deletion").
func Begin(c *statemachine.Context, topics []string) Start {
	var s Start
	for _, name := range topics {
		t := c.Topic(name)
		if t == nil {
			continue
		}
		parts := t.Partitions()
		s.All = append(s.All, parts...)
		if !c.DeletionStarted(name) {
			s.Unseen = append(s.Unseen, parts...)
			s.Topics = append(s.Topics, name)
		}
		dead := len(s.Dead)
		for _, p := range parts {
			for _, id := range p.Assignment.Replicas {
				r := statemachine.Replica{Partition: p, Broker: id}
				switch {
				case !c.Online(p, id):
					s.Dead = append(s.Dead, r)
				case p.Replica(id) != statemachine.ReplicaDeletionSuccessful:
					s.Live = append(s.Live, r)
				}
			}
		}
		if len(s.Dead) > dead {
			s.Ineligible = append(s.Ineligible, name)
		}
	}
	return s
}

// Split divides replicas by whether their topic is queued for deletion.
func Split(c *statemachine.Context, rs []statemachine.Replica) (queued, others []statemachine.Replica) {
	for _, r := range rs {
		if c.Queued(r.TopicPartition.Topic) {
			queued = append(queued, r)
		} else {
			others = append(others, r)
		}
	}
	return queued, others
}

// IneligibleAtFailover gives the queued topics whose deletion must wait when a
// controller takes over: a replica is not online, or a partition is moving
// (§3.3 step 6). A move without a live leader counts for nothing: an earlier
// controller had begun the deletion, so that move would never end.
func IneligibleAtFailover(c *statemachine.Context) []string {
	var out []string
	for _, name := range c.QueuedTopics() {
		if Waits(c, name) {
			out = append(out, name)
		}
	}
	return out
}

// Waits tells it of one topic.
func Waits(c *statemachine.Context, name string) bool {
	t := c.Topic(name)
	if t == nil {
		return false
	}
	for _, p := range t.Partitions() {
		if c.Moving(p.TopicPartition) && p.HasLeadership && c.Online(p, p.Leader) {
			return true
		}
		for _, id := range p.Assignment.Replicas {
			if !c.Online(p, id) {
				return true
			}
		}
	}
	return false
}
