// Package zkfiles keeps a server's transactions and snapshots in Apache
// ZooKeeper's own files: version-2/log.<zxid> and version-2/snapshot.<zxid>
// (spec/zookeeper.md §7). Apache ZooKeeper starts from what a Store wrote, and
// a Store from what Apache wrote.
//
// It stands under zkserver's durable mode: the server appends each transaction
// under its lock, one goroutine syncs before answers leave, another writes
// snapshots, and at the start Recover gives back what was acknowledged.
//
// What always holds: what Sync called durable is there after a kill at any
// byte; damage is an error that names path, offset and remedy, and only a torn
// tail, which was never acknowledged, is cut; after a write error nothing is
// called durable any more; a second process is refused; memory does not depend
// on the lengths that a file claims.
//
// The trap: Apache refuses logs without any snapshot. A server that starts on an
// empty folder writes one before it serves (NeedsSnapshot).
package zkfiles
