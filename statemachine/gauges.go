package statemachine

import "slices"

// Gauges are the counts of spec/controller.md §8.2.
type Gauges struct {
	ActiveBrokers               int // registered, shutting down included
	Topics, Partitions          int // all topics; partitions with leadership
	OfflinePartitions           int // in OfflinePartition, deletion not started
	PreferredReplicaImbalance   int
	TopicsToDelete              int
	ReplicasToDelete            int // of queued topics, not yet deleted
	TopicsIneligibleToDelete    int
	ReplicasIneligibleToDelete  int
	Reassigning                 int // partitions being reassigned
	UnderReplicated, Leaderless int // ISR smaller than the replica list; no live leader
}

// Gauges walks the memory.
func (c *Context) Gauges() Gauges {
	g := Gauges{ActiveBrokers: len(c.ids), Topics: len(c.Topics()), TopicsToDelete: len(c.queued), TopicsIneligibleToDelete: len(c.ineligible)}
	c.EachPartition(func(p *Partition) {
		queued := c.Queued(p.TopicPartition.Topic)
		if p.HasLeadership {
			g.Partitions++
		}
		if p.State == OfflinePartition && !c.DeletionStarted(p.TopicPartition.Topic) {
			g.OfflinePartitions++
		}
		if queued {
			for _, id := range p.Assignment.Replicas {
				switch p.Replica(id) {
				case ReplicaDeletionSuccessful:
				case ReplicaDeletionIneligible:
					g.ReplicasIneligibleToDelete++
					g.ReplicasToDelete++
				default:
					g.ReplicasToDelete++
				}
			}
			return
		}
		if imbalanced(p) {
			g.PreferredReplicaImbalance++
		}
		if p.Assignment.Reassigning() {
			g.Reassigning++
		}
		if p.HasLeadership && len(p.ISR) < len(p.Assignment.Original()) {
			g.UnderReplicated++
		}
		if !p.HasLeadership || !c.Online(p, p.Leader) {
			g.Leaderless++
		}
	})
	return g
}

// imbalanced: somebody else than the first replica leads. While that replica is
// being added it counts only once it is in the ISR.
func imbalanced(p *Partition) bool {
	if !p.HasLeadership || len(p.Assignment.Replicas) == 0 {
		return false
	}
	preferred := p.Assignment.Replicas[0]
	if slices.Contains(p.Assignment.Adding, preferred) && !slices.Contains(p.ISR, preferred) {
		return false
	}
	return p.Leader != preferred
}
