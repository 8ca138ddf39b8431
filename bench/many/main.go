// Command many makes very many partitions on a cluster of emulated brokers in one
// process, and tells what they cost: memory, CPU when nothing happens, and what a
// storm of ISR changes does to ZooKeeper and the controller.
//
// It stands outside the program: it knows the brokers' addresses, their process,
// and their admin port. The storm: some brokers' fetchers stand still, every
// partition gets a record, so that all partitions they follow shrink their ISR at
// about the same time. The trap: without records nothing shrinks, since a follower
// whose log ends where the leader's does is in sync however long it was silent.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type options struct {
	seeds                        []string
	zookeeper, admin, metrics    string
	pid                          int
	topics, partitions, replicas int
	idle                         time.Duration
	paused                       int
	first                        int // id of the first broker to pause
}

func main() {
	var o options
	seeds := flag.String("brokers", "", "HOST:PORT of some, with commas between")
	flag.StringVar(&o.zookeeper, "zookeeper", "", "HOST:PORT")
	flag.StringVar(&o.admin, "admin", "", "HOST:PORT of the brokers' admin port")
	flag.StringVar(&o.metrics, "metrics", "", "HOST:PORT of the controller's admin port")
	flag.IntVar(&o.pid, "pid", 0, "process of the brokers")
	flag.IntVar(&o.topics, "topics", 10_000, "how many")
	flag.IntVar(&o.partitions, "partitions", 10, "of each topic")
	flag.IntVar(&o.replicas, "replicas", 3, "of each partition")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long CPU is measured")
	flag.IntVar(&o.paused, "pause", 5, "brokers that stand still in the storm; 0 leaves it out")
	flag.IntVar(&o.first, "first", 1, "the first of them")
	flag.Parse()
	o.seeds = strings.Split(*seeds, ",")
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "many:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(o.seeds...), kgo.RequestTimeoutOverhead(time.Minute), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(-1), kgo.MetadataMaxAge(10*time.Minute))
	if err != nil {
		return err
	}
	defer cl.Close()
	conn, _, err := zk.Connect([]string{o.zookeeper}, 30*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", o.zookeeper, err)
	}
	defer conn.Close()
	names, err := create(ctx, o, kadm.NewClient(cl))
	if err != nil {
		return err
	}
	if err := cost(ctx, o); err != nil {
		return err
	}
	if o.paused == 0 {
		return nil
	}
	return storm(ctx, o, cl, conn, names)
}

type silent struct{}

// Printf says nothing.
func (silent) Printf(string, ...any) {}

// create makes the topics, some at a time, and waits until all are led.
func create(ctx context.Context, o options, admin *kadm.Client) ([]string, error) {
	begin := time.Now()
	var names []string
	for i := range o.topics {
		names = append(names, fmt.Sprintf("many-%05d", i))
	}
	const some = 200
	for i := 0; i < len(names); i += some {
		got, err := admin.CreateTopics(ctx, int32(o.partitions), int16(o.replicas), nil, names[i:min(i+some, len(names))]...)
		if err != nil {
			return nil, fmt.Errorf("create topics: %w", err)
		}
		if err := got.Error(); err != nil {
			return nil, fmt.Errorf("create topics: %w", err)
		}
	}
	for {
		led := 0
		topics, err := admin.ListTopics(ctx)
		if err == nil {
			topics.EachPartition(func(p kadm.PartitionDetail) {
				if p.Err == nil && p.Leader >= 0 && len(p.ISR) == o.replicas {
					led++
				}
			})
		}
		if led == o.topics*o.partitions {
			break
		}
		if time.Since(begin) > 10*time.Minute {
			return nil, fmt.Errorf("%d partitions are led and in sync after ten minutes, %w", led, errors.Join(err, context.DeadlineExceeded))
		}
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
	fmt.Printf("%d topics, %d partitions of %d replicas led and in sync after %.1f s\n", o.topics, o.topics*o.partitions, o.replicas, time.Since(begin).Seconds())
	return names, nil
}

// cost tells memory and, when nothing happens, CPU.
func cost(ctx context.Context, o options) error {
	if err := pause(ctx, 10*time.Second); err != nil { // what creation left comes to rest
		return err
	}
	before, err := cpu(o.pid)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(ctx, o.idle); err != nil {
		return err
	}
	after, err := cpu(o.pid)
	if err != nil {
		return err
	}
	now, highest, err := memory(o.pid)
	if err != nil {
		return err
	}
	fmt.Printf("the brokers' process: %d MB resident, %d at most; idle it takes %.2f %% of a core\n", now/1024, highest/1024, 100*(after-before)/time.Since(begin).Seconds())
	return nil
}

// cpu gives the seconds that a process has used.
func cpu(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have blanks
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	const ticks = 100 // of Linux
	return (user + system) / ticks, errors.Join(err1, err2)
}

// memory gives a process's resident kB, now and at most.
func memory(pid int) (now, highest int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		n, _ := strconv.Atoi(fields[1]) // other lines are no numbers
		switch fields[0] {
		case "VmRSS:":
			now = n
		case "VmHWM:":
			highest = n
		}
	}
	return now, highest, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (o options) fault(broker int, op string) error {
	body, err := json.Marshal(map[string]any{"broker": broker, "op": op})
	if err != nil {
		return err
	}
	resp, err := http.Post("http://"+o.admin+"/fault", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("fault %s of broker %d: %s", op, broker, resp.Status)
	}
	return nil
}

const announcements = "/isr_change_notification"

// storm makes ISRs shrink and grow, and tells what that took.
func storm(ctx context.Context, o options, cl *kgo.Client, conn *zk.Conn, names []string) error {
	_, before, err := conn.Exists(announcements)
	if err != nil {
		return fmt.Errorf("look at %s: %w", announcements, err)
	}
	for i := range o.paused {
		if err := o.fault(o.first+i, "pause"); err != nil {
			return err
		}
	}
	begin := time.Now()
	failed := 0
	for _, name := range names {
		for p := range o.partitions {
			cl.Produce(ctx, &kgo.Record{Topic: name, Partition: int32(p), Value: []byte("x")}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed++ // promises come one at a time
				}
			})
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	fmt.Printf("storm: a record for each partition within %.1f s, %d failed; %d brokers stand still\n", time.Since(begin).Seconds(), failed, o.paused)
	shrunk, queue, longest, err := o.settle(ctx, cl, conn, func(under int) bool { return under > 0 })
	if err != nil {
		return err
	}
	_, between, err := conn.Exists(announcements)
	if err != nil {
		return fmt.Errorf("look at %s: %w", announcements, err)
	}
	fmt.Printf("storm: %d ISRs shrank; %d announcements, at most %d at once; the controller's queue at most %d long\n", shrunk, created(before, between), queue, longest)
	for i := range o.paused {
		if err := o.fault(o.first+i, "resume"); err != nil {
			return err
		}
	}
	begin = time.Now()
	left, queue, longest, err := o.settle(ctx, cl, conn, func(under int) bool { return under == 0 })
	if err != nil {
		return err
	}
	_, after, err := conn.Exists(announcements)
	if err != nil {
		return fmt.Errorf("look at %s: %w", announcements, err)
	}
	fmt.Printf("storm: all but %d grew back within %.1f s; %d announcements, at most %d at once; the controller's queue at most %d long\n", left, time.Since(begin).Seconds(), created(between, after), queue, longest)
	now, highest, err := memory(o.pid)
	if err != nil {
		return err
	}
	fmt.Printf("the brokers' process after it: %d MB resident, %d at most\n", now/1024, highest/1024)
	return nil
}

// created counts announcements that came between two looks: each is made and deleted.
func created(before, after *zk.Stat) int32 {
	return (after.Cversion - before.Cversion + after.NumChildren - before.NumChildren) / 2
}

// settle waits until the count of partitions with an ISR that lacks somebody, as
// brokers' metadata tell it, is as wanted and has not changed for longer than replica.lag.time.max.ms.
func (o options) settle(ctx context.Context, cl *kgo.Client, conn *zk.Conn, enough func(under int) bool) (under, children, longest int, err error) {
	admin := kadm.NewClient(cl)
	last, since := -1, time.Now()
	for begin := time.Now(); time.Since(begin) < 5*time.Minute; {
		for range 20 {
			if _, stat, err := conn.Exists(announcements); err == nil {
				children = max(children, int(stat.NumChildren))
			}
			longest = max(longest, o.queue())
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return 0, 0, 0, err
			}
		}
		topics, err := admin.ListTopics(ctx)
		if err != nil {
			continue
		}
		under = 0
		topics.EachPartition(func(p kadm.PartitionDetail) {
			if len(p.ISR) < len(p.Replicas) {
				under++
			}
		})
		if under != last {
			last, since = under, time.Now()
		}
		if enough(under) && time.Since(since) > 35*time.Second {
			return under, children, longest, nil
		}
	}
	return under, children, longest, nil
}

// queue is the length of the controller's event queue; 0 where it is not told.
func (o options) queue() int {
	if o.metrics == "" {
		return 0
	}
	resp, err := http.Get("http://" + o.metrics + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		return 0
	}
	for _, line := range strings.Split(text.String(), "\n") {
		if value, ok := strings.CutPrefix(line, "kafka_controller_controllereventmanager_eventqueuesize "); ok {
			n, _ := strconv.ParseFloat(value, 64) // 0 if it is none
			return int(n)
		}
	}
	return 0
}
