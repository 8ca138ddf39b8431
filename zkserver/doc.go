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
//
// # How a tree is kept
//
// Nodes go by number. There is no map of paths and hardly a pointer, so that
// the garbage collector has next to nothing to look through:
//
//	"/p/node-7" ── hash ──► pathIndex   one uint64 each: hash | number
//	                            │
//	                            ▼
//	nodes (slab, 64 bytes)   node 12: zxids, times, version, parent 5, access list 0
//	                            │ page, offset            │ extra (few have one)
//	                            ▼                         ▼
//	texts (pages, 32 KiB)    …|12|107|node-7|data…|…   owner, pzxid, creations, dir: 12, 14, 13 …
//
// A candidate of the index is compared name by name up to the root. Pages are
// appended to and never written again: a set makes a new entry, pages with
// many dead ones are cleared (texts). Therefore what was handed out stays as
// it was for ever, also outside the lock, and what is handed in is copied. A
// change keeps a list of what it did, to undo it or to release what nobody
// can want back (change).
//
// # What it costs
//
// A node of 100 bytes with a name of 13 takes 207 bytes: 64 for itself, 121
// of text, 17 in the index, 4 among its siblings. A collection of a million
// takes about 5 ms. A process that made a million such nodes by multis of 500
// had, at GOGC=100, 20 and 10, a resident size of 267, 225 and 219 MB, and
// after two million sets 473, 294 and 268 MB; 100 000 nodes 33 MB at GOGC=100
// and 55 MB after the sets. Collections being so cheap, a server does well to
// give the heap about 32 MB of headroom or a tenth of what lives, whichever is
// more: GOGC = max(10, 100 * 32 MB / live heap).
//
// Server serves a Tree over sockets or in memory, as one Apache ZooKeeper 3.9.5
// standalone server would (spec/zookeeper.md §4, §8). What always holds: all
// requests and notices have one order, and a connection hears of a change
// before it can see it; with a DataDir nothing that shows a state is sent
// before the state is on disk, reads included; nobody writes to a socket while
// holding the lock, so a slow client stalls itself alone. The trap: write,
// wake and settle give up the lock on the way, so nothing that was read under
// it before they are called may be believed after.
package zkserver
