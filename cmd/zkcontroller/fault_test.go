package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// faulty is a cluster with records whose brokers are made to misbehave.
type faulty struct {
	*testing.T
	c      *assembly.Cluster
	client *kgo.Client
	admin  *kadm.Client
	// leader and follower of t-0, at the beginning.
	leader, follower kafka.BrokerID
}

func startFaulty(t *testing.T) *faulty {
	t.Helper()
	v, err := kafka.ParseProtocolVersion("3.9")
	if err != nil {
		t.Fatal(err)
	}
	server, err := zkserver.New(zkserver.Options{TickTime: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	o := assembly.ClusterOptions{Server: server, ControllerID: 1000, Version: v, SessionTimeout: time.Second, Admin: "127.0.0.1:0"}
	for id := kafka.BrokerID(1); id <= 3; id++ {
		p := assembly.LocalBroker(id, "127.0.0.1", 0, v)
		p.KeepRecords()
		p.Broker.ReplicaLagTimeMax, p.Broker.Logs.FetchBackoff = 600*time.Millisecond, 50*time.Millisecond
		o.Brokers = append(o.Brokers, p)
	}
	f := &faulty{T: t}
	if f.c, err = assembly.StartCluster(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.c.Close() })
	if err := f.c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if f.client, err = kgo.NewClient(kgo.SeedBrokers(f.c.Bootstrap()...), kgo.DefaultProduceTopic("t"), kgo.MetadataMinAge(20*time.Millisecond),
		kgo.UnknownTopicRetries(-1), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Close)
	f.admin = kadm.NewClient(f.client)
	stamped := "LogAppendTime"
	if _, err := f.admin.CreateTopic(t.Context(), 1, 3, map[string]*string{"message.timestamp.type": &stamped}, "t"); err != nil {
		t.Fatal(err)
	}
	f.healthy()
	f.leader = f.partition().leader
	f.follower = f.leader%3 + 1
	return f
}

type leadership struct {
	leader kafka.BrokerID
	isr    []kafka.BrokerID
}

// partition is what the metadata say of t-0.
func (f *faulty) partition() leadership {
	topics, err := f.admin.ListTopics(f.Context(), "t")
	if err != nil || topics.Error() != nil {
		return leadership{}
	}
	p := topics["t"].Partitions[0]
	l := leadership{leader: kafka.BrokerID(p.Leader)}
	for _, id := range p.ISR {
		l.isr = append(l.isr, kafka.BrokerID(id))
	}
	return l
}

func (f *faulty) await(what string, ok func() bool) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			f.Fatalf("%s: never; now %+v", what, f.partition())
		case <-tick.C:
		}
	}
}

func (f *faulty) healthy() {
	f.Helper()
	f.await("all in sync", func() bool { return len(f.partition().isr) == 3 })
}

// out waits until a broker has left the ISR, for there is a record that it lacks.
func (f *faulty) out(id kafka.BrokerID) {
	f.Helper()
	f.produce()
	f.await(fmt.Sprintf("broker %d out of the ISR", id), func() bool { p := f.partition(); return len(p.isr) > 0 && !slices.Contains(p.isr, id) })
}

// produce gives a record's offset.
func (f *faulty) produce() int64 {
	f.Helper()
	r, err := f.client.ProduceSync(f.Context(), kgo.StringRecord("x")).First()
	if err != nil {
		f.Fatal(err)
	}
	return r.Offset
}

// stamped gives how long ago the leader says that a new record was appended.
func (f *faulty) stamped() time.Duration {
	f.Helper()
	at := kgo.NewOffset().At(f.produce())
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.c.Bootstrap()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: at}}))
	if err != nil {
		f.Fatal(err)
	}
	defer cl.Close()
	for {
		fetches := cl.PollFetches(f.Context())
		if err := fetches.Err(); err != nil {
			f.Fatal(err)
		}
		for r := range fetches.RecordsAll() {
			return time.Since(r.Timestamp)
		}
	}
}

func (f *faulty) status(id kafka.BrokerID) *brokers.Snapshot {
	f.Helper()
	resp, err := f.c.Fault(f.Context(), brokers.FaultRequest{Broker: id, Op: "status"})
	if err != nil {
		f.Fatal(err)
	}
	return resp.State
}

// byCommand runs "broker fault".
func (f *faulty) byCommand(r brokers.FaultRequest) error {
	args := []string{"broker", "fault", "--admin", f.c.Admin(), "--broker", strconv.Itoa(int(r.Broker)), "--op", r.Op}
	if r.Peer != nil {
		args = append(args, "--peer", strconv.Itoa(int(*r.Peer)))
	}
	if r.BytesPerSecond != 0 {
		args = append(args, "--bytes-per-second", strconv.FormatInt(r.BytesPerSecond, 10))
	}
	if r.DelayMS != 0 {
		args = append(args, "--delay", (time.Duration(r.DelayMS) * time.Millisecond).String())
	}
	if len(r.Partitions) > 0 {
		args = append(args, "--partitions", strings.Join(r.Partitions, ","))
	}
	return run(f.Context(), args, io.Discard)
}

// byAPI posts to the admin port.
func (f *faulty) byAPI(r brokers.FaultRequest) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	resp, err := http.Post("http://"+f.c.Admin()+"/fault", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s, %v", resp.Status, text, err)
	}
	return nil
}

// Each fault does to a cluster with records what it says, by command and by the
// admin port, and ends.
func TestFaultsByCommandAndAPI(t *testing.T) {
	for name, route := range map[string]func(*faulty, brokers.FaultRequest) error{"command": (*faulty).byCommand, "API": (*faulty).byAPI} {
		t.Run(name, func(t *testing.T) {
			f := startFaulty(t)
			do := func(id kafka.BrokerID, op string, more ...func(*brokers.FaultRequest)) {
				t.Helper()
				r := brokers.FaultRequest{Broker: id, Op: op}
				for _, set := range more {
					set(&r)
				}
				if err := route(f, r); err != nil {
					t.Fatalf("%s: %v", op, err)
				}
			}
			peer := func(id kafka.BrokerID) func(*brokers.FaultRequest) {
				return func(r *brokers.FaultRequest) { r.Peer = &id }
			}
			follower := f.follower

			do(follower, "pause")
			f.out(follower)
			do(follower, "resume")
			f.healthy()

			do(follower, "slow", func(r *brokers.FaultRequest) { r.BytesPerSecond = 1 })
			f.out(follower)
			do(follower, "resume")
			f.healthy()

			do(follower, "cut", peer(f.leader))
			f.out(follower)
			do(follower, "mend", peer(f.leader))
			f.healthy()

			do(f.leader, "skew", func(r *brokers.FaultRequest) { r.DelayMS = -7_200_000 })
			if ago := f.stamped(); ago < time.Hour {
				t.Errorf("with a clock two hours slow a record is stamped %s ago", ago)
			}
			do(f.leader, "clear")
			if ago := f.stamped(); ago > time.Hour {
				t.Errorf("with the clock set right a record is stamped %s ago", ago)
			}
			f.healthy()

			for _, op := range []string{"expire-session", "bounce"} {
				before := f.status(follower).BrokerEpoch
				do(follower, op)
				f.await(op+" and another broker epoch", func() bool { s := f.status(follower); return s.Registered && s.BrokerEpoch > before })
				f.produce()
				f.healthy()
			}

			do(follower, "kill")
			f.await("its end", func() bool { return f.status(follower).Phase == "down" })
			f.out(follower)
			do(follower, "restart")
			f.healthy()

			leader := f.partition().leader
			do(leader, "fail-log-dir", func(r *brokers.FaultRequest) { r.Partitions = []string{"t-0"} })
			f.await("another leader", func() bool {
				p := f.partition()
				return p.leader > 0 && p.leader != leader && !slices.Contains(p.isr, leader)
			})
			if s := f.status(leader); len(s.Partitions) == 0 || !slices.ContainsFunc(s.Partitions, func(p brokers.PartitionSnapshot) bool { return p.Partition.Topic == "t" && p.Offline }) {
				t.Errorf("the partition is not offline: %+v", s.Partitions)
			}
			f.produce()
			do(leader, "kill")
			do(leader, "restart")
			f.healthy()
		})
	}
}
