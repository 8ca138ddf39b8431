// Package endpoint is the controller's own port: requests of brokers, clients
// and tools in, events for the loop, answers out.
//
// It stands at the edge, between wire/ (frames and connections) and the event
// queue. What a request asks of the controller becomes one event, and that
// event's Reply becomes the answer; what every node of a broker list must
// answer, it answers by itself (spec/control-plane.md §5.2). What always holds:
// ApiVersions lists exactly what is served; a request that waits holds up its
// own connection and nobody else; the number of events that clients have in the
// queue is bounded, separately from those of brokers.
//
// The trap: who is no controller must say so for every row, also for the rows
// that need no controller to be refused; else a client takes a standby's
// refusal for the cluster's.
package endpoint
