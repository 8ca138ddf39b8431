// Package statemachine is what the controller knows and how it decides: the
// Context (Kafka: ControllerContext), both state tables, leader elections, and
// the plans that carry partitions and replicas from state to state.
//
// It is pure. The loop reads ZooKeeper, asks for a plan, carries out the plan's
// writes, lets the plan settle what ZooKeeper answered, and commits the result:
// Commit is the only place where the Context changes. What always holds: a pair
// of states no table row names is refused; every write of a state znode is
// conditional on the version that was read; leader is in the ISR or is none.
// The trap: partition and replica states outlive the topic in the Context, as
// in Kafka, so a topic whose znode somebody removed by hand cannot simply be
// created again before the next failover (spec/controller.md §10.2, C-038).
package statemachine
