// Package zktest starts ZooKeeper servers and whole Kafka control planes inside
// a test, in milliseconds, with their faults and their time in the test's hand.
//
// # A ZooKeeper
//
// StartZooKeeper gives a server that any client reaches at its Connect string.
// It speaks the protocol as one Apache ZooKeeper 3.9 server does, is in memory,
// and ends with the test:
//
//	z := zktest.StartZooKeeper(t)
//	conn, _, err := zk.Connect([]string{z.Connect()}, 4*time.Second)
//
// Look at it past all clients with Node, Children, Paths and Dump. Hurt it:
// Expire ends a session as if its time had run out, Disconnect cuts a
// connection, Pause makes the server hang until Resume. With ManualClock nothing
// expires until Advance says so.
//
// # A cluster
//
// StartCluster adds a controller and three emulated brokers. They register,
// elect leaders, replicate, shrink and expand ISRs as Kafka's do, and serve
// producers, consumers and their groups, with records in memory.
//
//	c := zktest.StartCluster(t, zktest.Topic("orders", 3, 2))
//	client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...))
//
// Kill, Crash, Bounce, Restart, Pause, Slow, Resume, Cut, Mend, FailLogDir and Skew
// happen to a broker; ExpireBroker and ExpireController end sessions; Fault has all
// other operations. AwaitLeader and Await wait for what comes of it.
//
// # Without sockets, without waiting
//
// InMemory opens no port: clients come by ZooKeeper.DialTimeout (go-zookeeper),
// ZooKeeper.Dial, and Cluster.DialKafka (franz-go). Such a server or cluster works
// in a testing/synctest bubble, where half a minute of lag or a session timeout
// passes at once. Start it inside the bubble.
//
// # Outside of tests
//
// NewZooKeeper and NewCluster give an error instead of failing a test, and are
// closed by hand; otherwise they are the same.
//
// What always holds: when Close has returned, or the test's cleanup has run, no
// goroutine, timer or port is left. The trap: a fault has happened when its
// method returns, but what comes of it happens in other goroutines; wait for it.
package zktest
