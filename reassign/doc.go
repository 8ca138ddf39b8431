// Package reassign decides about replica reassignments: what a wanted target
// makes of an assignment, when a move is complete, which requests are refused,
// and what is left of /admin/reassign_partitions. It also has the automatic
// assignment of new partitions.
//
// It is pure. There are two policies: KIP-455 (2.4 and later), where the topic
// znode carries adding and removing replicas, and the twelve-step flow of 0.10
// to 2.3, where the target lives only in the admin znode. Both walk the same
// phases, labelled U, A and B as in Kafka's onPartitionReassignment; Policy
// says where they differ. The trap: the replica list of a moving partition is
// target first, then the old replicas, so its first member is the new
// preferred leader from the start.
package reassign
