// Command zkcontroller plays Kafka's control plane as it works on ZooKeeper.
//
// It is the outermost layer: flags, signals, exit codes, one file per
// subcommand; the parts are put together in assembly/, and everything else is in
// the packages it imports. What always holds: only data go to stdout, everything
// for people goes to stderr; a mutation by hand shows its plan first; exit codes
// are 0 done, 1 failure or findings, 2 usage, 3 unreachable or timeout, 4
// refused, 5 partly done, 130 interrupted. The trap: a long-running command
// (run, broker, zookeeper, dev, status --watch) ends with 0 on SIGINT and
// SIGTERM, a one-shot command with 130; dev -- CMD passes every signal on and
// ends with the status of CMD.
package main
