// Package brokers is the loop of emulated brokers: Kafka's replica manager on
// ZooKeeper. Broker = KafkaServer + ReplicaManager + Partition, remote = Replica,
// MetadataCache = MetadataCache, the queue in alter.go = AlterPartitionManager,
// fetcher = ReplicaFetcherThread, the delayed requests = DelayedOperationPurgatory.
//
// It stands opposite the controller: control requests come in through
// HandleControl and are answered; ISR changes go out as writes of state znodes
// and announcements (profiles A and B) or to the controller (profile C). Clients
// and followers come in through Produce, Fetch and their kin. Broker is a step
// function: events and the time go in, effects come out, and World.Perform
// carries an effect out and gives the event that answers it. So a simulation
// steps many brokers on one goroutine, while Node.Run does the same with real
// timers, and Host keeps many Nodes in one process.
//
// With LogOptions each partition has a log (brokers/commitlog), and what
// followers have fetched decides about ISR, high watermark and acknowledgement;
// with Options.Groups the broker coordinates consumer groups (brokers/groups).
// Without LogOptions Replication says how far followers are, by default by time
// and faults alone.
//
// Sockets stay outside. A program that serves a Node needs:
//   - Process, to open the port (Options.Endpoints says where), drop it, and
//     handle the ZooKeeper session; a Store on that session; a ControllerClient;
//     a LeaderClient for leaders in other processes;
//   - per connection, in order: APIVersions for ApiVersions, Node.HandleControl
//     for LeaderAndIsr, UpdateMetadata and StopReplica, Node.Metadata for
//     Metadata and DescribeCluster, Node.Produce and the others in calls.go;
//     records are checked before (commitlog.Check with TopicConfig.Check);
//   - Node.Post of SessionExpired and SessionEstablished, as the session tells,
//     and of TopicConfigsChanged, as /config/changes tells;
//   - Node.Fault for the admin port, Node.Stop at SIGTERM.
//
// What always holds: a state znode is only written under the version last
// known; a leader is always in the ISR it proposes; the high watermark never
// passes a member of the maximal ISR; what a crash loses is what a real broker
// loses. Followers in the leader's own process are not woken while there is
// nothing to tell; what can be seen of them is as if they had fetched every
// replica.fetch.wait.max.ms (remote.renew).
//
// The trap: an answer may come after the state it was asked for is gone, so
// every answer is compared with the change in flight, and with the run of the
// process, before it counts.
//
// Left out: replication quotas (spec/broker.md §8.7), moves between log
// directories, transactions, preferred read replicas.
package brokers
