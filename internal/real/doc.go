// Package real starts real servers for tests: a ZooKeeper, ours in this process
// or in one of its own or Apache's, Kafka's own brokers, and a TCP proxy to cut,
// hold and restore connections. Each start is told as "real: WHAT".
//
// It stands outside the program: only tests use it. What always holds: every
// listener is on 127.0.0.1, what is started is stopped with its test (or, on
// Linux, dies with the test process), and a test that lacks a real part skips
// with the reason and the remedy, unless REQUIRE_REAL names the part: then it
// fails (spec/environment.md §5).
//
// The trap: the port of a server is picked before the server binds it. Start
// tries again when another process was faster, but Restart keeps the port.
package real
