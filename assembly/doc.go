// Package assembly puts the parts together: one controller with all its edges,
// or one process of emulated brokers.
//
// It stands between cmd/, which has flags, signals and exit codes, and the parts
// themselves; zktest/ and the command dev start the same things in their own
// process. NewController and NewBrokers open ports and ZooKeeper sessions, Run
// takes part until its context ends, then leaves in good order and closes all.
// Every connection can be replaced: ZooKeeper's by zkstore.Options.Dialer,
// Kafka's by Network.
//
// What always holds: whoever made a Controller or Brokers calls Run or Close,
// and after that nothing of it is left, no goroutine, port or session. An Error
// says which kind of trouble it is, so that a command can tell it by its exit
// code. The trap: the loop outlives Run's context for a moment, since handing
// /controller back is an event like any other.
package assembly
