// Package events has the event types of the controller's queue.
//
// An event says that something happened, and to whom; it never carries znode
// contents: the handler reads ZooKeeper again, so a late or repeated event is
// harmless. Answers of brokers and requests of clients exist nowhere else, so
// only their events carry them.
package events
