package brokers_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
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
	if last := c.state(t, 1).LastISRChange; last == nil || last.Cause != cause || !slices.Equal(last.To, []kafka.BrokerID{1, 2}) {
		t.Fatalf("the last change is told as %+v", last)
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

// state gives t-0 at a broker.
func (c *cluster) state(t *testing.T, id kafka.BrokerID) brokers.PartitionSnapshot {
	t.Helper()
	s := c.fault(t, brokers.FaultRequest{Broker: id, Op: "status"}).State
	if len(s.Partitions) == 0 {
		return brokers.PartitionSnapshot{Log: &brokers.LogSnapshot{}}
	}
	return s.Partitions[0]
}

func (c *cluster) end(t *testing.T) {
	t.Helper()
	c.host.Stop()
	if err := <-c.done; err != nil {
		t.Fatal(err)
	}
}

func wantISR(t *testing.T, c *cluster, isr ...kafka.BrokerID) {
	t.Helper()
	synctest.Wait()
	if got := c.isr(t); !slices.Equal(got, isr) {
		t.Fatalf("ISR %v, want %v", got, isr)
	}
}

// TestLogsOnDisk: a killed broker finds its records again, and of the high
// watermark what the last checkpoint had; one that stopped finds all.
func TestLogsOnDisk(t *testing.T) {
	dir := t.TempDir()
	values := []string{"a", "b", "c", "d"}
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{Dirs: []string{dir}}, nil)
		for _, v := range values {
			if r := produce(t, c.host.Node(1), brokers.AcksAll, time.Second, v); r.Error != kafka.NoError {
				t.Fatal(r.Error)
			}
		}
		time.Sleep(6 * time.Second) // a checkpoint
		if r := produce(t, c.host.Node(1), brokers.AcksAll, time.Second, "e"); r.Error != kafka.NoError {
			t.Fatal(r.Error)
		}
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "kill"})
		c.lead(t, 2, 6, 2, 3)
		if r := produce(t, c.host.Node(2), brokers.AcksAll, time.Second, "f"); r.Error != kafka.NoError || r.BaseOffset != 5 {
			t.Fatalf("%+v", r)
		}
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "restart"})
		synctest.Wait()
		if s := c.fault(t, brokers.FaultRequest{Broker: 1, Op: "status"}).State; len(s.Partitions) != 0 {
			t.Fatalf("before any LeaderAndIsr it hosts %+v", s.Partitions)
		}
		c.lead(t, 2, 7, 2, 3)
		time.Sleep(2 * time.Second)
		wantISR(t, c, 2, 3, 1)
		c.end(t)
	})
	for _, id := range []kafka.BrokerID{1, 2, 3} {
		offsets, err := commitlog.ReadOffsets(filepath.Join(dir, fmt.Sprint(id), commitlog.HighWatermarkFile))
		if err != nil || offsets[t0] != 6 {
			t.Fatalf("broker %d: checkpoint %v, %v", id, offsets, err)
		}
	}
	synctest.Test(t, func(t *testing.T) { // another process
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{Dirs: []string{dir}}, nil)
		got, high := consume(t, c.host.Node(1), brokers.Consumer)
		if want := append(values, "e", "f"); !slices.Equal(got, want) || high != 6 {
			t.Fatalf("got %v, high watermark %d", got, high)
		}
		if epochs := c.state(t, 1).Log.Epochs; !slices.Equal(epochs, [][2]int64{{5, 0}, {6, 5}, {7, 6}}) && !slices.Equal(epochs, [][2]int64{{5, 0}}) {
			t.Logf("epochs %v", epochs) // leader epoch 5 again, as newCluster has it: an older one forgets the newer
		}
		c.end(t)
	})
}

// TestBadLogDirectory: one that cannot be used leaves the others, and if none is
// left the broker does not start.
func TestBadLogDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1"), []byte("no folder"), 0o644); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b, err := brokers.New(brokers.Options{ID: 1, Version: kafka.V3_9IV0, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}},
			Logs: &brokers.LogOptions{Dirs: []string{filepath.Join(dir, "1")}}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		effects := b.Step(time.Now(), brokers.Start{})
		if x, ok := effects[len(effects)-1].(brokers.Exit); !ok || x.Err == nil || !strings.Contains(x.Err.Error(), dir) {
			t.Fatalf("got %+v", effects)
		}
	})
}

// TestFaultsWithLogs: each fault does to logs and followers what it says.
func TestFaultsWithLogs(t *testing.T) {
	id := func(n kafka.BrokerID) *kafka.BrokerID { return &n }
	lag := func(t *testing.T, c *cluster) { // long enough to fall out, while there is something to fetch
		t.Helper()
		if r := produce(t, c.host.Node(1), brokers.AcksAll, time.Minute, "x"); r.Error != kafka.NoError {
			t.Fatal(r.Error)
		}
	}
	for _, tc := range []struct {
		what        string
		begin, heal brokers.FaultRequest
	}{
		{"cut at the leader", brokers.FaultRequest{Broker: 1, Op: "cut", Peer: id(3)}, brokers.FaultRequest{Broker: 1, Op: "mend", Peer: id(3)}},
		{"cut at the follower", brokers.FaultRequest{Broker: 3, Op: "cut", Peer: id(1)}, brokers.FaultRequest{Broker: 3, Op: "mend"}},
		{"the leader holds the follower's fetches", brokers.FaultRequest{Broker: 1, Op: "pause", Follower: id(3)}, brokers.FaultRequest{Broker: 1, Op: "resume", Follower: id(3)}},
		{"the same, healed by clear", brokers.FaultRequest{Broker: 1, Op: "pause", Follower: id(3)}, brokers.FaultRequest{Broker: 1, Op: "clear"}},
		{"pause", brokers.FaultRequest{Broker: 3, Op: "pause"}, brokers.FaultRequest{Broker: 3, Op: "resume"}},
		{"pause of a partition", brokers.FaultRequest{Broker: 3, Op: "pause", Partitions: []string{"t-0"}}, brokers.FaultRequest{Broker: 3, Op: "resume", Partitions: []string{"t-0"}}},
		{"a port that is shut", brokers.FaultRequest{Broker: 1, Op: "refuse"}, brokers.FaultRequest{Broker: 1, Op: "accept"}},
		{"few bytes a second", brokers.FaultRequest{Broker: 3, Op: "slow", BytesPerSecond: 1}, brokers.FaultRequest{Broker: 3, Op: "resume"}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClusterWith(t, kafka.V2_6IV0, &brokers.LogOptions{}, nil)
				time.Sleep(time.Minute)
				c.fault(t, tc.begin)
				lag(t, c)
				synctest.Wait()
				if got := c.isr(t); slices.Contains(got, 3) || !slices.Contains(got, 1) {
					t.Fatalf("ISR %v", got)
				}
				c.fault(t, tc.heal)
				time.Sleep(90 * time.Second)
				synctest.Wait()
				if got := c.isr(t); len(got) != 3 {
					t.Fatalf("ISR %v after %+v: %+v", got, tc.heal, c.state(t, 3).Log)
				}
				if l := c.state(t, 3).Log; l.End != 1 || l.HighWatermark != 1 {
					t.Fatalf("the follower has %+v", l)
				}
				c.end(t)
			})
		})
	}
}

// TestIdleFollowers: one that was cut off or paused long ago is late at the first check
// behind the first record that it does not get (B-015), though there was nothing to
// fetch until then.
func TestIdleFollowers(t *testing.T) {
	id := func(n kafka.BrokerID) *kafka.BrokerID { return &n }
	for _, tc := range []struct{ begin, end brokers.FaultRequest }{
		{brokers.FaultRequest{Broker: 1, Op: "cut", Peer: id(3)}, brokers.FaultRequest{Broker: 1, Op: "mend"}},
		{brokers.FaultRequest{Broker: 3, Op: "cut", Peer: id(1)}, brokers.FaultRequest{Broker: 3, Op: "mend"}},
		{brokers.FaultRequest{Broker: 3, Op: "pause"}, brokers.FaultRequest{Broker: 3, Op: "resume"}},
		{brokers.FaultRequest{Broker: 1, Op: "pause", Follower: id(3)}, brokers.FaultRequest{Broker: 1, Op: "resume", Follower: id(3)}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, nil)
			time.Sleep(time.Minute)
			c.fault(t, tc.begin)
			time.Sleep(time.Minute)
			wantISR(t, c, 1, 2, 3)
			if r := produce(t, c.host.Node(1), brokers.AcksLeader, time.Second, "x"); r.Error != kafka.NoError {
				t.Fatal(r.Error)
			}
			time.Sleep(5 * time.Second)
			wantISR(t, c, 1, 2)
			c.fault(t, tc.end)
			time.Sleep(2 * time.Second)
			wantISR(t, c, 1, 2, 3)
			c.end(t)
		})
	}
}

// TestShutPort: followers in the same process lose their connection, too, and are
// behind from then on.
func TestShutPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, nil)
		time.Sleep(time.Minute)
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "refuse"})
		time.Sleep(time.Minute)
		if r := produce(t, c.host.Node(1), brokers.AcksLeader, time.Second, "x"); r.Error != kafka.NoError {
			t.Fatal(r.Error)
		}
		time.Sleep(5 * time.Second)
		wantISR(t, c, 1)
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "accept"})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := c.isr(t); len(got) != 3 { // in the order in which they came back
			t.Errorf("ISR %v", got)
		}
		c.end(t)
	})
}

// TestCutOfAnotherProcess: what a follower in another process sends through a cut
// is not answered while that lasts, and with errors when it ends.
func TestCutOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, nil)
		n, peer := c.host.Node(1), kafka.BrokerID(2)
		got := make(chan kafka.ErrorCode, 9)
		fetch := func() {
			n.Fetch(&brokers.FetchRequest{Replica: peer, ReplicaEpoch: -1, MaxWait: time.Hour, MinBytes: 1, MaxBytes: 1, Rows: []brokers.FetchRow{
				{Partition: t0, LeaderEpoch: 5, LastFetchedEpoch: -1, MaxBytes: 1}}}, func(r []brokers.FetchResult) { got <- r[0].Error })
		}
		c.fault(t, brokers.FaultRequest{Broker: 2, Op: "pause"}) // it asks nothing by itself
		fetch()                                                  // waits when the cut comes
		synctest.Wait()
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "cut", Peer: &peer})
		fetch()
		n.EpochEnds([]brokers.EpochQuery{{Partition: t0, LeaderEpoch: 5, Epoch: 5}}, peer, func(r []brokers.EpochAnswer) { got <- r[0].Error })
		n.ListOffsets([]brokers.OffsetQuery{{Partition: t0, LeaderEpoch: 5, Timestamp: brokers.LatestOffset}}, peer, false, func(r []brokers.OffsetAnswer) { got <- r[0].Error })
		time.Sleep(time.Minute)
		if len(got) != 0 {
			t.Fatalf("%d requests were answered through a cut", len(got))
		}
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "mend", Peer: &peer})
		for range 4 {
			if code := <-got; code != kafka.UnknownServerError {
				t.Errorf("answered %s", code)
			}
		}
		c.end(t)
	})
}

// TestSlowFollowerLags: a follower that gets everything late is behind by that.
func TestSlowFollowerLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, nil)
		for i, slow := range []brokers.FaultRequest{{Broker: 3, Op: "slow", DelayMS: 3000}, {Broker: 1, Op: "slow", DelayMS: 3000, Follower: func() *kafka.BrokerID { n := kafka.BrokerID(3); return &n }()}} {
			c.fault(t, slow)
			time.Sleep(10 * time.Second)
			if r := produce(t, c.host.Node(1), brokers.AcksLeader, time.Minute, "x"); r.Error != kafka.NoError {
				t.Fatal(r.Error)
			}
			time.Sleep(2 * time.Second)
			if end := c.state(t, 2).Log.End; end != int64(i+1) {
				t.Fatalf("%+v: the other follower is at %d", slow, end)
			}
			if i == 0 && c.state(t, 3).Log.End != 0 {
				t.Fatalf("the slow one is at %d", c.state(t, 3).Log.End)
			}
			time.Sleep(5 * time.Second)
			if end := c.state(t, 3).Log.End; end != int64(i+1) {
				t.Fatalf("%+v: the slow one is at %d after 7 s", slow, end)
			}
			c.fault(t, brokers.FaultRequest{Broker: 3, Op: "resume"})
			c.fault(t, brokers.FaultRequest{Broker: 1, Op: "clear"})
		}
		wantISR(t, c, 1, 2, 3)
		c.end(t)
	})
}

// TestResumeEndsAWait: a follower that waits for records that come slowly has them
// at once when it is no longer slow, or waits as long as it is to now.
func TestResumeEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, nil)
		crawl := brokers.FaultRequest{Broker: 3, Op: "slow", BytesPerSecond: 1}
		time.Sleep(time.Second)
		for i, tc := range []struct {
			then brokers.FaultRequest
			wait time.Duration
		}{
			{brokers.FaultRequest{Broker: 3, Op: "resume"}, 0},
			{brokers.FaultRequest{Broker: 3, Op: "slow", DelayMS: 2000}, 2 * time.Second},
			{brokers.FaultRequest{Broker: 3, Op: "resume", Partitions: []string{"t-0"}}, 0},
		} {
			c.fault(t, crawl)
			time.Sleep(time.Second)
			if r := produce(t, c.host.Node(1), brokers.AcksLeader, time.Minute, "x"); r.Error != kafka.NoError {
				t.Fatal(r.Error)
			}
			time.Sleep(5 * time.Second)
			if end := c.state(t, 3).Log.End; end != int64(i) {
				t.Fatalf("%+v: the slow one is at %d", crawl, end)
			}
			c.fault(t, tc.then)
			time.Sleep(tc.wait)
			synctest.Wait()
			if end := c.state(t, 3).Log.End; end != int64(i+1) {
				t.Fatalf("%+v: it is at %d after %s", tc.then, end, tc.wait)
			}
		}
		time.Sleep(5 * time.Minute) // nothing comes twice
		if end := c.state(t, 3).Log.End; end != 3 {
			t.Fatalf("it is at %d", end)
		}
		c.end(t)
	})
}

// TestClockAndBounce: a clock that jumps ahead makes followers look late, once
// there is something they lack; a bounced broker follows again when it is told to.
func TestClockAndBounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V2_6IV0, &brokers.LogOptions{}, nil)
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "pause"})
		produce(t, c.host.Node(1), brokers.AcksLeader, time.Minute, "x")
		time.Sleep(time.Second)
		wantISR(t, c, 1, 2, 3)
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "skew", DelayMS: 60_000})
		time.Sleep(5 * time.Second) // the next check
		wantISR(t, c, 1, 2)
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "clear"})
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "bounce"})
		synctest.Wait()
		if got := c.fault(t, brokers.FaultRequest{Broker: 3, Op: "status"}).State; got.Phase != "running" || len(got.Partitions) != 0 {
			t.Fatalf("%+v", got)
		}
		c.lead(t, 1, 6, 1, 2)
		time.Sleep(2 * time.Second)
		wantISR(t, c, 1, 2, 3)
		c.end(t)
	})
}

// TestClockSetBack: what waits is answered in its time, and what is due is done,
// though the clock shows another; records get the time that it shows.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := brokers.DefaultTopicConfig()
		topic.LogAppendTime = true
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{Topic: topic}, nil)
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "pause"})
		begin := time.Now()
		answer := make(chan []brokers.ProduceResult, 1)
		c.host.Node(1).Produce(&brokers.ProduceRequest{Acks: brokers.AcksAll, Timeout: 2 * time.Second, Rows: []brokers.ProduceRow{{Partition: t0,
			Records: commitlog.Encode(commitlog.Record{Value: []byte("x")})}}}, func(r []brokers.ProduceResult) { answer <- r })
		synctest.Wait()
		c.fault(t, brokers.FaultRequest{Broker: 1, Op: "skew", DelayMS: -3_600_000})
		if r := (<-answer)[0]; r.Error != kafka.RequestTimedOut || time.Since(begin) != 2*time.Second {
			t.Errorf("%s after %s", r.Error, time.Since(begin))
		}
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "resume"})
		time.Sleep(time.Second)
		r := produce(t, c.host.Node(1), brokers.AcksAll, time.Second, "y")
		if late := time.Now().UnixMilli() - r.AppendTime; r.Error != kafka.NoError || late < 3_600_000 || late > 3_601_000 {
			t.Errorf("%s, stamped %d ms ago", r.Error, late)
		}
		// A follower was caught up last by the clock before: it is late when this one shows more.
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "pause"})
		produce(t, c.host.Node(1), brokers.AcksLeader, time.Second, "z")
		time.Sleep(time.Hour + 16*time.Second)
		wantISR(t, c, 1, 2)
		c.end(t)
	})
}

// TestDuplicateWaitsInItsPlace: a batch that an idempotent producer sends again waits
// for its own offset, not behind what was appended since.
func TestDuplicateWaitsInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, nil)
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "pause"})
		got := make(chan string, 9)
		send := func(name string, sequence int32) {
			batch := commitlog.Encode(commitlog.Record{Timestamp: time.Now().UnixMilli(), Value: []byte("x")})
			binary.BigEndian.PutUint64(batch[43:], 7)                // producer id
			binary.BigEndian.PutUint16(batch[51:], 0)                // its epoch
			binary.BigEndian.PutUint32(batch[53:], uint32(sequence)) // of the first record
			c.host.Node(1).Produce(&brokers.ProduceRequest{Acks: brokers.AcksAll, Timeout: time.Hour, Rows: []brokers.ProduceRow{{Partition: t0, Records: batch}}},
				func(r []brokers.ProduceResult) { got <- fmt.Sprintf("%s %s at %d", name, r[0].Error, r[0].BaseOffset) })
		}
		send("first", 0)
		send("second", 1)
		send("first again", 0)
		time.Sleep(time.Second) // broker 2 has both
		if len(got) != 0 {
			t.Fatalf("%s though broker 3 has nothing", <-got)
		}
		c.host.Node(1).Fetch(&brokers.FetchRequest{Replica: 3, ReplicaEpoch: -1, MaxBytes: 1, Rows: []brokers.FetchRow{{Partition: t0, Offset: 1, LeaderEpoch: 5, LastFetchedEpoch: -1}}},
			func([]brokers.FetchResult) {})
		synctest.Wait()
		if len(got) != 2 {
			t.Fatalf("%d answers, want those of offset 0", len(got))
		}
		for range 2 {
			if s := <-got; s != "first NONE at 0" && s != "first again NONE at 0" {
				t.Error(s)
			}
		}
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "resume"})
		if s := <-got; s != "second NONE at 1" {
			t.Error(s)
		}
		c.end(t)
	})
}

// TestTopicConfigs: min.insync.replicas comes from the topic's node; a produce
// with acks=all waits until it was read, and a change holds from when it was told.
func TestTopicConfigs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V2_6IV0, &brokers.LogOptions{}, nil)
		set := func(config map[string]string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			path := zkpaths.TopicConfigPath("t")
			if _, _, code := c.zk.Tree.GetData(zkserver.Who{}, path); code == zkserver.OK {
				c.zk.Write(c.controller, zkserver.Op{Kind: zkserver.OpSet, Path: path, Data: zkpaths.EncodeConfig(config), Version: -1})
				return
			}
			if err := c.zk.Seed(zkserver.Saved{Path: path, Data: zkpaths.EncodeConfig(config)}); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range []kafka.BrokerID{2, 3} {
			c.fault(t, brokers.FaultRequest{Broker: id, Op: "pause"})
		}
		produce(t, c.host.Node(1), brokers.AcksLeader, time.Minute, "x")
		time.Sleep(16 * time.Second)
		wantISR(t, c, 1)
		if r := produce(t, c.host.Node(1), brokers.AcksAll, time.Minute, "y"); r.Error != kafka.NoError {
			t.Fatal(r.Error)
		}
		set(map[string]string{"min.insync.replicas": "2", "max.message.bytes": "77"})
		if got := c.host.Node(1).TopicConfig("t"); got.MaxMessageBytes != 1<<20+12 {
			t.Fatalf("%+v before it was told", got)
		}
		c.host.Node(1).Post(brokers.TopicConfigsChanged{Topics: []string{"t", "other"}})
		synctest.Wait()
		if r := produce(t, c.host.Node(1), brokers.AcksAll, time.Minute, "z"); r.Error != kafka.NotEnoughReplicas {
			t.Fatalf("%+v", r)
		}
		if got := c.host.Node(1).TopicConfig("t"); got.MinISR != 2 || got.MaxMessageBytes != 77 {
			t.Fatalf("%+v", got)
		}
		g, err := c.host.Node(1).Gauges(t.Context(), true)
		if err != nil || g.UnderMinIsrPartitionCount != 1 || g.UnderReplicatedPartitions != 1 || g.LeaderCount != 1 || len(g.Partitions) != 1 || g.Partitions[0].InSyncReplicasCount != 1 {
			t.Fatalf("%+v %v", g, err)
		}
		c.end(t)
	})
}

// TestPurgatories: what waits is counted by partition and by request, as Kafka's
// PurgatorySize and NumDelayedOperations do; followers' fetches are among it.
func TestPurgatories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, nil)
		produce(t, c.host.Node(1), brokers.AcksAll, time.Minute, "x")
		synctest.Wait()
		look := func() brokers.Gauges {
			g, err := c.host.Node(1).Gauges(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		if g := look(); g.FetchPurgatory != 2 || g.DelayedFetches != 2 || g.ProducePurgatory != 0 {
			t.Errorf("two followers wait: %+v", g)
		}
		c.fault(t, brokers.FaultRequest{Broker: 2, Op: "pause"})
		done := make(chan struct{})
		go func() { defer close(done); produce(t, c.host.Node(1), brokers.AcksAll, time.Minute, "y") }()
		synctest.Wait()
		if g := look(); g.ProducePurgatory != 1 || g.DelayedProduces != 1 {
			t.Errorf("a produce waits: %+v", g)
		}
		c.fault(t, brokers.FaultRequest{Broker: 2, Op: "resume"})
		<-done
		if g := look(); g.ProducePurgatory != 0 || g.DelayedProduces != 0 {
			t.Errorf("nothing waits: %+v", g)
		}
		c.end(t)
	})
}

// TestDefaultsChange: what the broker is told at run time holds for topics that set
// nothing, those that are hosted and others, and for no other; followers that are
// spread over more fetchers go on.
func TestDefaultsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, nil)
		c.mu.Lock()
		err := c.zk.Seed(zkserver.Saved{Path: zkpaths.TopicConfigPath("t"), Data: zkpaths.EncodeConfig(map[string]string{"max.message.bytes": "77"})})
		c.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		produce(t, c.host.Node(1), brokers.AcksAll, time.Minute, "x")
		base := brokers.DefaultTopicConfig()
		base.MinISR, base.MaxMessageBytes, base.Retention = 4, 99, time.Hour
		for _, id := range []kafka.BrokerID{1, 2, 3} {
			c.host.Node(id).Post(brokers.DefaultsChanged{Topic: base, Fetchers: 3})
		}
		synctest.Wait()
		want := base
		want.MaxMessageBytes = 77
		if d := cmp.Diff(want, c.host.Node(1).TopicConfig("t")); d != "" {
			t.Error("a topic with a size of its own", d)
		}
		if d := cmp.Diff(base, c.host.Node(1).TopicConfig("other")); d != "" {
			t.Error("a topic that is not hosted", d)
		}
		// From 3.7 on no more replicas are asked for than there are.
		if r := produce(t, c.host.Node(1), brokers.AcksAll, time.Minute, "y"); r.Error != kafka.NoError {
			t.Errorf("%+v", r)
		}
		c.host.Node(1).Post(brokers.DefaultsChanged{Topic: brokers.DefaultTopicConfig(), Fetchers: 1})
		synctest.Wait()
		if got := c.host.Node(1).TopicConfig("t"); got.MinISR != 1 || got.Retention != 7*24*time.Hour {
			t.Errorf("taken back: %+v", got)
		}
		c.end(t)
	})
}

// TestConfigsHoldBack: while ZooKeeper does not answer, nobody knows how many
// replicas acks=all wants, so it waits; acks=1 does not.
func TestConfigsHoldBack(t *testing.T) {
	b, err := brokers.New(brokers.Options{ID: 1, Version: kafka.V3_9IV0, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 1}}, Logs: &brokers.LogOptions{}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_000_000)
	store := sim.NewStore(sim.NewZooKeeper(), func(zkpaths.Notice) {})
	w := brokers.World{Store: store, Now: time.Now}
	var read brokers.Effect
	step := func(ev brokers.Event) {
		for queue := b.Step(now, ev); len(queue) > 0; queue = queue[1:] {
			switch e := queue[0].(type) {
			case brokers.Register:
				queue = append(queue, b.Step(now, w.Perform(t.Context(), e))...)
			case brokers.ReadTopicConfigs:
				read = e
			}
		}
	}
	step(brokers.Start{})
	s := &control.PartitionState{TopicPartition: t0, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: []kafka.BrokerID{1}},
		Leadership: kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: 1, ISR: []kafka.BrokerID{1}}}}
	h := control.Header{BrokerEpoch: kafka.NoBrokerEpoch}
	for _, r := range []control.Request{&control.UpdateMetadataRequest{Header: h, Metadata: &control.Metadata{Partitions: []*control.PartitionState{s}}},
		&control.LeaderAndISRRequest{Header: h, Partitions: []*control.PartitionState{s}}} {
		step(brokers.Control{Request: r, Reply: func(control.Response) {}})
	}
	var got []brokers.ProduceResult
	reply := func(r []brokers.ProduceResult) { got = append(got, r...) }
	step(brokers.Produce{Request: producing(1, brokers.AcksAll), Reply: reply})
	step(brokers.Produce{Request: producing(1, brokers.AcksLeader), Reply: reply})
	if len(got) != 1 || got[0].BaseOffset != 0 || read == nil {
		t.Fatalf("%+v, %v", got, read)
	}
	step(w.Perform(t.Context(), read))
	if len(got) != 2 || got[1].BaseOffset != 1 || got[1].Error != kafka.NoError {
		t.Fatalf("%+v", got)
	}
}

// TestDeleteRecords waits until all live replicas begin where it wants.
func TestDeleteRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, nil)
		for range 5 {
			produce(t, c.host.Node(1), brokers.AcksAll, time.Second, "x")
		}
		remove := func(offset int64) (brokers.LowWatermark, time.Duration) {
			answer := make(chan map[kafka.TopicPartition]brokers.LowWatermark, 1)
			begin := time.Now()
			c.host.Node(1).DeleteRecords(map[kafka.TopicPartition]int64{t0: offset}, 5*time.Second, func(r map[kafka.TopicPartition]brokers.LowWatermark) { answer <- r })
			return (<-answer)[t0], time.Since(begin)
		}
		if got, _ := remove(6); got.Error != kafka.OffsetOutOfRange {
			t.Fatalf("%+v", got)
		}
		if got, took := remove(3); got != (brokers.LowWatermark{Offset: 3}) || took > 2*time.Second {
			t.Fatalf("%+v after %s", got, took)
		}
		for id := kafka.BrokerID(1); id <= 3; id++ {
			if l := c.state(t, id).Log; l.Start != 3 || l.End != 5 {
				t.Fatalf("broker %d: %+v", id, l)
			}
		}
		c.fault(t, brokers.FaultRequest{Broker: 3, Op: "pause"})
		if got, took := remove(-1); got.Error != kafka.RequestTimedOut || took != 5*time.Second {
			t.Fatalf("%+v after %s", got, took)
		}
		answer := make(chan []brokers.LogDir, 1)
		c.host.Node(1).LogDirs(func(d []brokers.LogDir) { answer <- d })
		if d := <-answer; len(d) != 1 || d[0].Path != "memory" || len(d[0].Logs) != 1 || d[0].Logs[0].Partition != t0 {
			t.Fatalf("%+v", d)
		}
		c.end(t)
	})
}

// TestFlappingHint: who leaves the ISR and returns again and again is told of,
// once a minute.
func TestFlappingHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quiet, hook := logtest.NewNullLogger()
		c := newClusterWith(t, kafka.V3_9IV0, &brokers.LogOptions{}, quiet)
		for range 6 {
			c.fault(t, brokers.FaultRequest{Broker: 3, Op: "pause"})
			produce(t, c.host.Node(1), brokers.AcksAll, time.Minute, "x")
			c.fault(t, brokers.FaultRequest{Broker: 3, Op: "resume"})
			time.Sleep(2 * time.Second)
			wantISR(t, c, 1, 2, 3)
		}
		hints := 0
		for _, e := range hook.AllEntries() {
			if strings.HasPrefix(e.Message, "ISR flaps") {
				hints++
			}
		}
		if hints != 1 {
			t.Fatalf("%d hints in about %d s", hints, 6*15)
		}
		c.end(t)
	})
}
