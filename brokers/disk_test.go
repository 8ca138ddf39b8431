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
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// onDisk is three brokers, each with two log directories, of which the first has
// the partition.
func onDisk(t *testing.T, version kafka.ProtocolVersion) (c *cluster, first string) {
	t.Helper()
	dir := t.TempDir()
	first = filepath.Join(dir, "a")
	return newClusterWith(t, version, &brokers.LogOptions{Dirs: []string{first, filepath.Join(dir, "b")}}, nil), first
}

func mustProduce(t *testing.T, c *cluster, leader kafka.BrokerID, values ...string) {
	t.Helper()
	for _, v := range values {
		if r := produce(t, c.host.Node(leader), brokers.AcksAll, time.Second, v); r.Error != kafka.NoError {
			t.Fatalf("%s: %s", v, r.Error)
		}
	}
}

// A broker is killed, something happens to its disk, and it comes back while
// others lead: it has every acknowledged record again, and none are told lost.
func TestDiskOfAFollowerThatReturns(t *testing.T) {
	for _, tc := range []struct {
		what string
		do   func(partition string) error // a folder of broker 1
	}{
		{"nothing", func(string) error { return nil }},
		{"all is gone", func(p string) error { return os.RemoveAll(filepath.Dir(p)) }},
		{"the partition is gone", os.RemoveAll},
		{"no epochs", func(p string) error { return os.Remove(filepath.Join(p, "leader-epoch-checkpoint")) }},
		{"no high watermarks", func(p string) error { return os.Remove(filepath.Join(filepath.Dir(p), commitlog.HighWatermarkFile)) }},
		{"a torn end", func(p string) error { return appendFile(segmentOf(p), make([]byte, 1000)) }},
		{"half a batch is missing", func(p string) error {
			st, err := os.Stat(segmentOf(p))
			if err != nil {
				return err
			}
			return os.Truncate(segmentOf(p), st.Size()-10)
		}},
	} {
		for _, version := range []kafka.ProtocolVersion{kafka.V2_6IV0, kafka.V3_9IV0} {
			t.Run(tc.what+", "+version.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, first := onDisk(t, version)
					mustProduce(t, c, 1, "a", "b", "c")
					time.Sleep(6 * time.Second) // a checkpoint
					mustProduce(t, c, 1, "d")
					c.fault(t, brokers.FaultRequest{Broker: 1, Op: "kill"})
					c.lead(t, 2, 6, 2, 3)
					mustProduce(t, c, 2, "e")
					if err := tc.do(filepath.Join(first, "1", "t-0")); err != nil {
						t.Fatal(err)
					}
					c.fault(t, brokers.FaultRequest{Broker: 1, Op: "restart"})
					synctest.Wait()
					c.lead(t, 2, 7, 2, 3)
					time.Sleep(5 * time.Second)
					wantISR(t, c, 2, 3, 1)
					c.lead(t, 1, 8, 2, 3, 1)
					mustProduce(t, c, 1, "f")
					if got, _ := consume(t, c.host.Node(1), brokers.Consumer); !slices.Equal(got, []string{"a", "b", "c", "d", "e", "f"}) {
						t.Errorf("it has %v", got)
					}
					for id := kafka.BrokerID(1); id <= 3; id++ {
						if n := c.fault(t, brokers.FaultRequest{Broker: id, Op: "status"}).State.Counters.CommittedRecordsLost; n != 0 {
							t.Errorf("broker %d tells of %d lost records", id, n)
						}
					}
					c.end(t)
				})
			})
		}
	}
}

func segmentOf(partition string) string {
	return filepath.Join(partition, fmt.Sprintf("%020d.log", 0))
}

func appendFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}

// A broker that comes back without one of its log directories does not begin the
// partition anew in another: made leader, it would be one with an empty log.
func TestDirectoryLostAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, first := onDisk(t, kafka.V3_9IV0)
		mustProduce(t, c, 1, "a")
		time.Sleep(6 * time.Second) // a checkpoint
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "kill"})
		file := filepath.Join(first, "1", commitlog.HighWatermarkFile)
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("rubbish\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "restart"})
		synctest.Wait()
		c.lead(t, 1, 6, 1)
		if s := c.fault(t, brokers.FaultRequest{Broker: 1, Op: "status"}).State; s.Phase != "running" || len(s.Partitions) != 1 || s.Partitions[0].Role == "leader" {
			t.Fatalf("without its log it is %+v", s)
		}
		if r := produce(t, c.host.Node(1), brokers.AcksAll, time.Second, "b"); r.Error == kafka.NoError {
			t.Fatal("it takes records without its log")
		}
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "kill"})
		if err := os.WriteFile(file, good, 0o644); err != nil {
			t.Fatal(err)
		}
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "restart"})
		synctest.Wait()
		c.lead(t, 1, 7, 1)
		if got, _ := consume(t, c.host.Node(1), brokers.Consumer); !slices.Equal(got, []string{"a"}) {
			t.Errorf("with its log it has %v", got)
		}
		c.end(t)
	})
}

// What a stop in good order said to be safe holds for the next start alone: a
// topic that was made again since, whose shorter log ends in half a batch after a
// crash, is no damaged one.
func TestRecoveryPointOfAnEarlierLog(t *testing.T) {
	dir := t.TempDir()
	o := &brokers.LogOptions{Dirs: []string{dir}}
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, o, nil)
		mustProduce(t, c, 1, "a", "b", "c", "d", "e")
		c.end(t)
	})
	if points, err := commitlog.ReadOffsets(filepath.Join(dir, "1", commitlog.RecoveryPointFile)); err != nil || points[t0] != 5 {
		t.Fatalf("a stop in good order leaves %v, %v", points, err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, o, nil)
		for _, n := range c.host.Nodes() {
			resp, err := n.HandleControl(t.Context(), &control.StopReplicaRequest{Header: control.Header{ControllerID: 9, ControllerEpoch: 4, BrokerEpoch: kafka.NoBrokerEpoch},
				Partitions: []control.StopPartition{{TopicPartition: t0, LeaderEpoch: kafka.EpochDuringDelete, Delete: true}}})
			if err != nil || resp.Errors[t0] != kafka.NoError {
				t.Fatal(resp.Errors, err)
			}
		}
		c.lead(t, 1, 6, 1, 2, 3)
		mustProduce(t, c, 1, "x")
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "kill"})
		if err := appendFile(segmentOf(filepath.Join(dir, "1", "t-0")), make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "restart"})
		synctest.Wait()
		c.lead(t, 1, 7, 1, 2, 3)
		if got, _ := consume(t, c.host.Node(1), brokers.Consumer); !slices.Equal(got, []string{"x"}) {
			t.Errorf("it has %v", got)
		}
		c.end(t)
	})
}
