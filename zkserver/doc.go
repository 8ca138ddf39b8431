// Package zkserver is ZooKeeper's side of the picture: the data tree that
// brokers, controllers and tools meet in.
//
// Tree is its heart and pure: nodes, sessions, watches, access lists and
// transactions in the semantics of ZooKeeper 3.9.5 (spec/zookeeper.md §4, §8),
// with session ids, watcher ids and times as arguments. It knows no Kafka.
// What always holds: one write attempt costs one zxid, whether it succeeds or
// not; a failed transaction leaves no trace but that; the notices a write
// causes come back with its result, in the order of its operations. The trap:
// Stat's cversion counts creations and deletions of children, but sequence
// numbers count creations alone.
package zkserver
