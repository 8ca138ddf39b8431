// Package deletion decides which topics queued for deletion may start, must
// wait, or can be forgotten (Kafka: TopicDeletionManager).
//
// It is pure and holds nothing: the queue and its marks live in the
// statemachine.Context. The loop asks for a Pass after everything that may
// unblock a deletion. What always holds: a topic is forgotten only when every
// replica it is assigned answered that it is deleted. The trap: there is no
// timer; a failed deletion waits for a broker's start, the end of a
// reassignment, or the next failover (spec/controller.md §7.6).
package deletion
