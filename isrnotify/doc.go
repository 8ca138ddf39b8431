// Package isrnotify decides when a leader may announce its ISR changes, and
// reads what leaders announced.
//
// It stands between brokers/, which changes ISRs by writing state znodes, and
// /isr_change_notification, where the controller learns of it (profiles A and
// B, spec/broker.md §6; Kafka: ReplicaManager.maybePropagateIsrChanges, later
// ZkAlterPartitionManager). It is pure: the clock is an argument, and creating
// the znodes is the caller's affair.
//
// What always holds: a recorded change stays in the Propagator until a znode
// that names it was created. The trap: both times start at construction, not
// at zero, and both comparisons are strict; so the first change after a quiet
// minute is announced at once, and one that is exactly five seconds old is not.
package isrnotify
