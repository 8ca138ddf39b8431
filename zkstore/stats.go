package zkstore

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// counters are the sums that Stats shows.
type counters struct {
	requests, connects               atomic.Int64
	disconnects, expiries            atomic.Int64
	bulkPackets, bulkBytes, fallback atomic.Int64
	lost                             atomic.Int64
	buckets                          [latencyBuckets]atomic.Int64
	spent                            atomic.Int64
}

const latencyBuckets = 16

// latency counts one request by its duration: bucket i has those below
// 2^i × 125 µs.
func (c *counters) latency(d time.Duration) {
	c.spent.Add(int64(d))
	i := bits.Len64(uint64(d / (125 * time.Microsecond)))
	c.buckets[min(i, latencyBuckets-1)].Add(1)
}

// Stats are sums since Dial.
type Stats struct {
	Requests    int64 // calls of the main connection, its pings apart
	Packets     int64 // frames sent on the main connection, pings and handshakes too
	Bytes       int64 // their bytes
	BulkPackets int64 // frames sent on the bulk connection
	BulkBytes   int64
	Fallbacks   int64 // bulk reads that had to go over the main connection
	LostAnswers int64 // writes whose answer was lost and that were looked up
	Connects    int64 // connections of the session, the first one and each that resumed it
	Disconnects int64
	Expiries    int64
	Watches     int // armed now
	Notices     int64

	// Latency counts main requests by duration: bucket i has those below
	// 2^i × 125 µs and not below the bucket before; the last has all longer ones.
	Latency     []int64
	LatencySpan time.Duration // sum of all durations
}

// Stats gives the session's counters, for metrics.
func (s *Session) Stats() Stats {
	st := Stats{
		Requests: s.stats.requests.Load(), Packets: s.link.packets.Load(), Bytes: s.link.written.Load(),
		BulkPackets: s.stats.bulkPackets.Load(), BulkBytes: s.stats.bulkBytes.Load(), Fallbacks: s.stats.fallback.Load(),
		LostAnswers: s.stats.lost.Load(), Connects: s.stats.connects.Load(), Disconnects: s.stats.disconnects.Load(), Expiries: s.stats.expiries.Load(),
		Latency: make([]int64, latencyBuckets), LatencySpan: time.Duration(s.stats.spent.Load()),
	}
	for i := range st.Latency {
		st.Latency[i] = s.stats.buckets[i].Load()
	}
	s.arms.mu.Lock()
	st.Watches = len(s.arms.m)
	s.arms.mu.Unlock()
	s.queue.mu.Lock()
	st.Notices = s.queue.total
	s.queue.mu.Unlock()
	return st
}
