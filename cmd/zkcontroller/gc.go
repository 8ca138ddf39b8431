package main

import (
	"os"

	"github.com/zkcontroller/zkcontroller/zkserver"
)

// tuneBrokers lets the garbage collector of a process that is emulated brokers
// and nothing else go by a room in bytes. GOGC, if it is set, is somebody's wish.
func tuneBrokers() (stop func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	return zkserver.TuneGC(brokersRoom)
}

// brokersRoom is how much garbage may gather beside what lives. Twice the size,
// as GOGC=100 has it, is a waste when most of what lives are records, which are
// not searched for pointers; with very many partitions a collection takes some
// tenths of a second, so there it is a quarter.
func brokersRoom(live uint64) uint64 {
	const small, large = 4 << 20, 96 << 20
	return min(max(live/4, small), large)
}
