// Package brokers is the loop of emulated brokers: Kafka's replica manager on
// ZooKeeper, thin but real. Broker = KafkaServer + ReplicaManager,
// MetadataCache = MetadataCache, the queue in alter.go = AlterPartitionManager.
//
// It stands opposite the controller: control requests come in through
// HandleControl and are answered; ISR changes go out as writes of state znodes
// and announcements (profiles A and B) or to the controller (profile C).
// Broker is a step function: events and the time go in, effects come out, and
// World.Perform carries an effect out and gives the event that answers it. So a
// simulation steps many brokers on one goroutine, while Node.Run does the same
// with real timers, and Host keeps many Nodes in one process.
//
// Sockets stay outside. A program that serves a Node needs:
//   - Process, to open the port (Options.Endpoints says where), drop it, and
//     handle the ZooKeeper session; a Store on that session; a ControllerClient;
//   - per connection, in order: APIVersions for ApiVersions, Node.HandleControl
//     for LeaderAndIsr, UpdateMetadata and StopReplica, Node.Metadata for
//     Metadata and DescribeCluster;
//   - Node.Post of SessionExpired and SessionEstablished, as the session tells;
//   - Node.Fault for the admin port, Node.Stop at SIGTERM.
//
// What always holds: a state znode is only written under the version last
// known; a leader is always in the ISR it proposes; what a crash loses is what
// a real broker loses. The trap: an answer may come after the state it was
// asked for is gone, so every answer is compared with the change in flight, and
// with the run of the process, before it counts.
package brokers
