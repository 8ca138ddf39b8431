package brokers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// B-087. On disk: the checkpoint file is what a restarted leader's high watermark
// comes from, brought into the log's range; without an entry it is 0.
func TestCheckpointedHighWatermark(t *testing.T) {
	for _, c := range []struct {
		checkpoint, start, want int64 // checkpoint -1: no file
	}{{4, 0, 4}, {9, 0, 6}, {1, 3, 3}, {-1, 0, 0}} {
		t.Run(fmt.Sprintf("%d in %d to 6", c.checkpoint, c.start), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl, first := onDisk(t, kafka.V3_9IV0)
				mustProduce(t, cl, 1, "a", "b", "c", "d", "e", "f")
				if c.start > 0 {
					answer := make(chan brokers.LowWatermark, 1)
					cl.host.Node(1).Post(brokers.DeleteRecords{Offsets: map[kafka.TopicPartition]int64{t0: c.start}, Timeout: time.Second,
						Reply: func(r map[kafka.TopicPartition]brokers.LowWatermark) { answer <- r[t0] }})
					if r := <-answer; r.Error != kafka.NoError {
						t.Fatalf("%+v", r)
					}
				}
				time.Sleep(6 * time.Second) // a checkpoint
				for id := kafka.BrokerID(1); id <= 3; id++ {
					cl.fault(t, brokers.FaultRequest{Broker: id, Op: "kill"})
				}
				file := filepath.Join(first, "1", commitlog.HighWatermarkFile)
				if have, err := commitlog.ReadOffsets(file); err != nil || have[t0] != 6 {
					t.Fatalf("the checkpoint is %v, %v", have, err)
				}
				err := os.Remove(file)
				if c.checkpoint >= 0 {
					err = commitlog.WriteOffsets(file, map[kafka.TopicPartition]int64{t0: c.checkpoint})
				}
				if err != nil {
					t.Fatal(err)
				}
				cl.fault(t, brokers.FaultRequest{Broker: 1, Op: "restart"})
				synctest.Wait()
				cl.lead(t, 1, 6, 1, 2, 3)
				if s := cl.state(t, 1); s.Role != "leader" || !slices.Equal(s.ISR, []kafka.BrokerID{1, 2, 3}) || s.Log.HighWatermark != c.want || s.Log.Start != c.start || s.Log.End != 6 {
					t.Errorf("%s with ISR %v: high watermark %d in %d to %d, want %d in %d to 6", s.Role, s.ISR, s.Log.HighWatermark, s.Log.Start, s.Log.End, c.want, c.start)
				}
				cl.end(t)
			})
		})
	}
}
