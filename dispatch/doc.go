// Package dispatch delivers control requests to brokers: per broker one
// unbounded queue, one goroutine and one request in flight, sent again until it
// is answered or the broker is removed (Kafka: ControllerChannelManager).
//
// It stands at the edge, between the controller's loop, which fills the queues
// and never waits for them, and the brokers' ports. Answers go back to the loop
// as events.
//
// What always holds: a broker gets its requests in the order they were queued,
// LeaderAndIsr before UpdateMetadata before StopReplica within a batch; one
// broker's silence delays nobody else; after Remove, Clear or Close returns, no
// event of that broker's queue is put any more.
//
// The trap: a request may reach a broker more than once, and a removed broker
// may have obeyed one whose answer nobody saw. Brokers tell repeats by leader
// epochs, so nothing here may change a request between two attempts.
package dispatch
