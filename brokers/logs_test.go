package brokers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// produce appends one record a value, in one batch, and waits for the answer.
func produce(t *testing.T, n *brokers.Node, acks int16, timeout time.Duration, values ...string) brokers.ProduceResult {
	t.Helper()
	var rs []commitlog.Record
	for _, v := range values {
		rs = append(rs, commitlog.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(v)})
	}
	answer := make(chan []brokers.ProduceResult, 1)
	n.Produce(&brokers.ProduceRequest{Acks: acks, Timeout: timeout, Rows: []brokers.ProduceRow{{Partition: t0, Records: commitlog.Encode(rs...)}}},
		func(r []brokers.ProduceResult) { answer <- r })
	select {
	case r := <-answer:
		return r[0]
	case <-n.Ended():
		t.Fatal("the broker ended")
	}
	return brokers.ProduceResult{}
}

// consume reads all values that a consumer sees, without waiting.
func consume(t *testing.T, n *brokers.Node, replica kafka.BrokerID) (values []string, high int64) {
	t.Helper()
	for offset := int64(0); ; {
		answer := make(chan []brokers.FetchResult, 1)
		n.Fetch(&brokers.FetchRequest{Replica: replica, MaxBytes: 1 << 20, FromFollower: true, Rows: []brokers.FetchRow{
			{Partition: t0, Offset: offset, LogStartOffset: -1, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1 << 20}}},
			func(r []brokers.FetchResult) { answer <- r })
		r := (<-answer)[0]
		if r.Error != kafka.NoError {
			t.Fatalf("fetch from broker %d at %d: %s", n.ID(), offset, r.Error)
		}
		if len(r.Records) == 0 {
			return values, r.HighWatermark
		}
		for _, records := range r.Records {
			for b := range commitlog.Batches(records) {
				rs, err := b.Records()
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					values = append(values, string(r.Value))
				}
				offset = b.LastOffset() + 1
			}
		}
	}
}

// TestReplication: records go to all replicas; a silent follower holds acks=all
// up until it falls out of the ISR, and catches up when it returns.
func TestReplication(t *testing.T) {
	for _, version := range []kafka.ProtocolVersion{kafka.V2_6IV0, kafka.V3_9IV0} {
		t.Run(version.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { replicationStory(t, version) })
		})
	}
}

func replicationStory(t *testing.T, version kafka.ProtocolVersion) {
	quiet, hook := logtest.NewNullLogger()
	quiet.SetLevel(logrus.InfoLevel)
	c := newClusterWith(t, version, &brokers.LogOptions{}, quiet)
	leader := c.host.Node(1)
	for i := range 10 {
		if r := produce(t, leader, brokers.AcksAll, time.Second, fmt.Sprint("a", i), fmt.Sprint("b", i)); r.Error != kafka.NoError || r.BaseOffset != int64(2*i) {
			t.Fatalf("%+v", r)
		}
	}
	time.Sleep(600 * time.Millisecond) // the followers hear of the high watermark when their wait ends
	want, high := consume(t, leader, brokers.Consumer)
	if len(want) != 20 || high != 20 {
		t.Fatalf("%d values, high watermark %d", len(want), high)
	}
	for id := kafka.BrokerID(2); id <= 3; id++ {
		if got, _ := consume(t, c.host.Node(id), brokers.Consumer); !slices.Equal(got, want) {
			t.Fatalf("broker %d has %v", id, got)
		}
	}
	time.Sleep(time.Hour)
	c.fault(t, brokers.FaultRequest{Broker: 3, Op: "pause"})
	begin := time.Now()
	if r := produce(t, leader, brokers.AcksAll, time.Minute, "late"); r.Error != kafka.NoError || r.BaseOffset != 20 {
		t.Fatalf("%+v", r)
	}
	if took := time.Since(begin); took <= 10*time.Second-500*time.Millisecond || took > 15*time.Second {
		t.Fatalf("committed after %s; the lag is 10 s, checked every 5 s", took)
	}
	if isr := c.isr(t); !slices.Equal(isr, []kafka.BrokerID{1, 2}) {
		t.Fatalf("ISR %v", isr)
	}
	cause := ""
	for _, e := range hook.AllEntries() {
		if e.Message == "ISR changed" {
			cause, _ = e.Data["cause"].(string)
		}
	}
	if !strings.Contains(cause, "broker 3 last caught up 1") || !strings.HasSuffix(cause, "LEO 20 of 21") {
		t.Fatalf("the cause is told as %q", cause)
	}
	c.fault(t, brokers.FaultRequest{Broker: 3, Op: "resume"})
	time.Sleep(time.Second)
	if isr := c.isr(t); !slices.Equal(isr, []kafka.BrokerID{1, 2, 3}) {
		t.Fatalf("ISR %v", isr)
	}
	c.host.Stop()
	if err := <-c.done; err != nil {
		t.Fatal(err)
	}
}

// producing is a request for n records in one batch.
func producing(n int, acks int16) *brokers.ProduceRequest {
	rs := make([]commitlog.Record, n)
	for i := range rs {
		rs[i] = commitlog.Record{Timestamp: time.Now().UnixMilli(), Value: fmt.Appendf(nil, "%d", i)}
	}
	return &brokers.ProduceRequest{Acks: acks, Timeout: 30 * time.Second, Rows: []brokers.ProduceRow{{Partition: t0, Records: commitlog.Encode(rs...)}}}
}
