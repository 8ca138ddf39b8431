// Package crash kills controllers: after each single write of a story, in
// simulation and as real processes, and compares what the next controller
// makes of it with a run in which nobody died.
//
// It stands outside the program; only tests live here. A story is what users
// and brokers do to a cluster, step by step. Its undisturbed run has N writes
// of the controller; each of them is a crash point, as is the moment before
// the first. What always holds: after the crash nobody repairs anything by
// hand. The story goes on with another controller, clients repeat what was not
// answered, and the end must be the same: assignments, leaders, ISRs, nothing
// pending, and what every broker hosts and knows. Leader epochs and znode
// versions may be higher.
//
// The trap: a write has two crash points, before its answer and after it. In
// between the controller hands requests to brokers, which may or may not get
// them, or get them when another controller is in office already.
package crash
