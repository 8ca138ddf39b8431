// Package sim runs controllers, brokers and ZooKeeper on one goroutine.
//
// ZooKeeper wraps zkserver.Tree with virtual time and routes watch notices;
// Store is one session on it in the form the controller wants; World steps
// controllers, requests and answers in an order that a seed picks and checks
// the invariants of spec/controller.md §9 after every step. What always
// holds: the same seed and script give the same run, byte for byte. The trap:
// a notice is delivered before the call that caused it returns, as ZooKeeper
// delivers it before the writer's answer, so a handler's own writes may put
// events into its own queue.
package sim
