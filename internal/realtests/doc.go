// Package realtests runs the built program against real servers: ZooKeeper in
// containers, alone and as an ensemble, and Apache Kafka's own brokers.
//
// It stands outside everything: only the binary's command line is used, and what
// is checked is what ZooKeeper and clients see. What always holds: ports are on
// 127.0.0.1; a test whose real part is missing says so and skips, or fails
// where REQUIRE_REAL names it; what a test starts ends with it. The trap: a
// paused container does not surely lose its sessions, a disconnected one does.
package realtests
