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
//
// # Coalescing
//
// When more than ten requests wait for a broker, UpdateMetadata requests may
// join an earlier one (coalesce). It is only ever UpdateMetadata that moves, and
// only towards the front, past LeaderAndIsr requests; StopReplica is never
// passed. What a broker keeps of an UpdateMetadata is, per partition, the last
// entry, and the last list of live brokers (spec/control-plane.md §1.4). What it
// does on a LeaderAndIsr depends on the live brokers it knows at that time
// (followers of a leader not alive are not started), and on nothing else that an
// UpdateMetadata brings (spec/broker.md §9.2, §9.3). So the final state is that
// of the unmerged queue if
//
//   - the live brokers known at every LeaderAndIsr stay the same: a request that
//     passes one must list the brokers that the joined one lists;
//   - per partition the later entry wins;
//   - entries of one topic cannot interfere: the broker forgets a topic, its id
//     included, with its last partition, so a join that would have a topic both
//     deleted and alive, or under two ids, does not happen;
//   - deletions, which also make a broker forget consumer offsets of the groups
//     it has loaded, pass nothing: a LeaderAndIsr may load groups;
//   - all come from one controller epoch and are for one broker epoch.
//
// In between, a broker may tell clients of a leader shortly before that leader
// was told; between two brokers that is always so.
package dispatch
