package brokers_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// fill appends batches of 16 KiB to t-0 at acks=1.
func (c *cluster) fill(t *testing.T, batches int) {
	t.Helper()
	for range batches {
		records := commitlog.Encode(commitlog.Record{Timestamp: time.Now().UnixMilli(), Value: make([]byte, 16<<10)})
		c.host.Node(1).Produce(&brokers.ProduceRequest{Acks: brokers.AcksLeader, Rows: []brokers.ProduceRow{{Partition: t0, Records: records}}},
			func(r []brokers.ProduceResult) {
				if r[0].Error != kafka.NoError {
					t.Error(r[0].Error)
				}
			})
	}
	synctest.Wait()
}

// fetchCode is what a consumer at an offset of t-0 is answered.
func fetchCode(n *brokers.Node, offset int64) kafka.ErrorCode {
	answer := make(chan []brokers.FetchResult, 1)
	n.Fetch(&brokers.FetchRequest{Replica: brokers.Consumer, MaxBytes: 1 << 20, FromFollower: true, Rows: []brokers.FetchRow{
		{Partition: t0, Offset: offset, LogStartOffset: -1, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1 << 20}}},
		func(r []brokers.FetchResult) { answer <- r })
	return (<-answer)[0].Error
}

// TestLogsInMemoryAreBounded: the oldest committed records go on every replica,
// consumers that stand there are told so; what the ISR still needs stays; and a
// follower that was away for too long begins where the leader's log does.
func TestLogsInMemoryAreBounded(t *testing.T) {
	const limit = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{MemoryBytes: limit}, nil)
		c.fill(t, 200)
		time.Sleep(time.Second)
		for id := kafka.BrokerID(1); id <= 3; id++ {
			l := c.state(t, id).Log
			if l.End != 200 || l.HighWatermark != 200 || l.Start == 0 || l.Size > limit || l.Size < limit/2 {
				t.Errorf("broker %d: %+v", id, l)
			}
			if code := fetchCode(c.host.Node(id), l.Start-1); code != kafka.OffsetOutOfRange {
				t.Errorf("broker %d below its log's start: %s", id, code)
			}
			if code := fetchCode(c.host.Node(id), l.Start); code != kafka.NoError {
				t.Errorf("broker %d at its log's start: %s", id, code)
			}
		}
		before := c.state(t, 3).Log.End
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "pause"})
		c.fill(t, 200)
		if l := c.state(t, 1).Log; l.HighWatermark != before || l.Start > before || l.Size < 200*16<<10 {
			t.Errorf("what a member of the ISR has not copied yet: %+v", l)
		}
		time.Sleep(time.Minute) // it leaves the ISR
		wantISR(t, c, 1, 2)
		c.fill(t, 1)
		l := c.state(t, 1).Log
		if l.HighWatermark != 401 || l.Start <= before || l.Size > limit {
			t.Errorf("once it has left: %+v", l)
		}
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "resume"})
		time.Sleep(10 * time.Second)
		wantISR(t, c, 1, 2, 3)
		if got := c.state(t, 3).Log; got.End != 401 || got.Start < l.Start {
			t.Errorf("the follower that returned: %+v, the leader %+v", got, l)
		}
		c.end(t)
	})
}

// Without a bound nothing goes.
func TestLogsInMemoryWithoutBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{MemoryBytes: -1}, nil)
		c.fill(t, 400)
		if l := c.state(t, 1).Log; l.Start != 0 || l.Size < 400*16<<10 {
			t.Errorf("%+v", l)
		}
		c.end(t)
	})
}
