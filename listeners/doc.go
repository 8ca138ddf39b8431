// Package listeners turns ZooKeeper notices into events of the controller.
//
// It stands between the store, whose callback enqueues notices, and the event
// queue. It is a table, Paths, and one function over it, Event: the table is
// what spec/controller.md §2.4 calls the watch handlers.
//
// What always holds: an event names what to look at, never what was there. The
// handler reads ZooKeeper again and thereby arms the watch again, so a late,
// repeated or unwanted notice does no harm.
//
// The trap: one path can carry two watches (children and data), and a node's
// deletion fires both. A notice that no row wants gives no event; the deletion
// of a registration or of a topic is told by its parent's children.
package listeners
