package zktest_test

import (
	"testing"

	"github.com/zkcontroller/zkcontroller/zktest"
)

// BenchmarkStartZooKeeper measures a server's start and end.
func BenchmarkStartZooKeeper(b *testing.B) {
	for b.Loop() {
		z, err := zktest.NewZooKeeper()
		if err != nil {
			b.Fatal(err)
		}
		if err := z.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStartCluster measures the start of a cluster of three brokers with a
// topic of three partitions that are led, and its end.
func BenchmarkStartCluster(b *testing.B) {
	for name, options := range map[string][]zktest.Option{"sockets": nil, "memory": {zktest.InMemory()}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				c, err := zktest.NewCluster(b.Context(), append(options, zktest.Topic("orders", 3, 2))...)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := c.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
