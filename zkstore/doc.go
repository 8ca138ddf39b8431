// Package zkstore is the controller's ZooKeeper: sessions, watches, reads in
// bulk and epoch-fenced writes in batches.
//
// It stands at the edge, between controller/ (whose Store it implements) and
// ZooKeeper. A Session is one ZooKeeper session over go-zookeeper/zk, which is
// never shown to others: its Conn opens a new session by itself after expiry,
// loses watch events at reconnects and drops events past six, so it is wrapped
// by the rules of spec/zookeeper.md §1.5. Many znodes at a time are read over a
// second connection (bulk) that speaks multiRead through zkwire.
//
// What always holds:
//
//   - After Expired is closed nothing is sent any more. A session that was out
//     of reach for its whole time-out is treated as expired without asking.
//   - While the connection is down, and until every armed watch was looked at
//     again after it is back, callers wait; nothing is sent.
//   - An answer is never older than this session's last acknowledged write, nor
//     than the notice that made the caller read, whichever connection it takes.
//   - A write whose answer was lost is looked up before anything is said of it.
//   - No request is larger than 1 000 000 bytes.
//
// The trap: a watch is one-shot and belongs to a connection. The set of armed
// paths must be marked before a request is sent and cleared where notices
// arrive, else a notice that overtakes its reader leaves a path armed for ever.
package zkstore
