// Package brokerport is a broker's own port: requests of clients and of other
// brokers' followers in, calls to the broker's Node, answers out. Port =
// KafkaApis, sessions = FetchSessionCache, Leaders = BrokerBlockingSender.
//
// It stands at the edge, between wire/ (frames and connections) and brokers/
// (the loop that owns the replicas), and beside endpoint/, which answers what
// only the controller may. What needs no state is checked here, on the
// connection's goroutine: checksums and format of records, rows, names. What is
// about replicas goes to the Node and comes back through a callback, so that an
// acks=all produce or a fetch that waits holds up its own connection alone. What
// any broker does by itself in ZooKeeper, creating topics for clients and
// changing configurations, is done here, too (spec/admin-api.md §1).
//
// What always holds: ApiVersions lists exactly what is served, at the versions
// the emulated release served; a request is answered once, or its connection
// ends; records are sent from the log's memory, not copied.
//
// The trap: a callback runs on the Node's loop. It hands over what it was given
// and no more; what has to be encoded is encoded by the connection's goroutine.
//
// Left out: transactions. A transactional id is refused with a message that
// says so.
package brokerport
