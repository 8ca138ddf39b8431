package zktest_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkcontroller/zkcontroller/zktest"
)

func ExampleNewZooKeeper() {
	z, err := zktest.NewZooKeeper()
	if err != nil {
		log.Fatal(err)
	}
	defer z.Close()

	conn, _, err := zk.Connect([]string{z.Connect()}, 4*time.Second, zk.WithLogInfo(false))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/greeting", []byte("hello"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	fmt.Print(z.Dump("/"))
	// Output: /greeting "hello" v0
}

// A lock's holder loses its session, and with it the lock.
func ExampleZooKeeper_Expire() {
	z, err := zktest.NewZooKeeper(zktest.InMemory())
	if err != nil {
		log.Fatal(err)
	}
	defer z.Close()
	conn, _, err := zk.Connect([]string{z.Connect()}, 4*time.Second, zk.WithDialer(z.DialTimeout), zk.WithLogInfo(false))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Create("/lock", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held:", z.Exists("/lock"))
	z.Expire(z.SessionOf("/lock"))
	fmt.Println("held:", z.Exists("/lock"))
	// Output:
	// held: true
	// held: false
}

// A leader dies and somebody else leads.
func ExampleNewCluster() {
	ctx := context.Background()
	c, err := zktest.NewCluster(ctx, zktest.InMemory(), zktest.Topic("orders", 1, 2))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	old := c.Leader("orders", 0)
	if err := c.Kill(ctx, old); err != nil {
		log.Fatal(err)
	}
	leader, err := c.AwaitLeader(ctx, "orders", 0, old)
	if err != nil {
		log.Fatal(err)
	}
	p, _ := c.Partition("orders", 0)
	fmt.Println("somebody else leads:", leader != old)
	fmt.Println("leader epoch", p.LeaderEpoch, "in-sync replicas", len(p.ISR))
	// Output:
	// somebody else leads: true
	// leader epoch 1 in-sync replicas 1
}
