// Command load writes to and reads from any Kafka cluster, and tells how fast
// that went: the same load for each cluster that is to be compared.
//
// It stands outside the program and knows only Kafka's protocol. Three phases,
// each on a topic of its own: as many records as the cluster takes, then a fixed
// rate, whose latencies count from when a record was due, then a consumer that
// reads the first topic from its beginning. What always holds: what was
// acknowledged is what is counted. The trap: the generator shares the machine
// with the cluster, so figures compare only with others of the same run.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// options are the flags.
type options struct {
	seeds      []string
	topic      string
	partitions int
	replicas   int
	producers  int
	size       int
	codec      string
	seconds    time.Duration // of each phase
	warm       time.Duration
	rate       int // records a second in the second phase
	minISR     int
}

// result is what is printed, one JSON object.
type result struct {
	Records     int64   `json:"records"` // acknowledged in the first phase
	PerSecond   float64 `json:"records_per_second"`
	MBPerSecond float64 `json:"mb_per_second"`
	AtFull      times   `json:"latency_at_full_speed_ms"`
	Rate        float64 `json:"rate_per_second"` // that was reached in the second phase
	AtRate      times   `json:"latency_at_rate_ms"`
	ReadRecords int64   `json:"read_records"`
	ReadMB      float64 `json:"read_mb_per_second"`
}

// times are in milliseconds.
type times struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func main() {
	var o options
	seeds := flag.String("brokers", "127.0.0.1:9092", "HOST:PORT, several with commas between")
	flag.StringVar(&o.topic, "topic", "load", "beginning of the topics' names; they must not be there")
	flag.IntVar(&o.partitions, "partitions", 6, "of each topic")
	flag.IntVar(&o.replicas, "replicas", 3, "of each partition")
	flag.IntVar(&o.minISR, "min-isr", 2, "min.insync.replicas")
	flag.IntVar(&o.producers, "producers", 2, "clients that write")
	flag.IntVar(&o.size, "size", 1024, "bytes of a value; they do not compress")
	flag.StringVar(&o.codec, "compression", "none", "none, gzip, snappy, lz4 or zstd")
	flag.DurationVar(&o.seconds, "time", 20*time.Second, "of each phase")
	flag.DurationVar(&o.warm, "warm", 5*time.Second, "before the first phase counts")
	flag.IntVar(&o.rate, "rate", 2000, "records a second in the second phase")
	flag.Parse()
	o.seeds = strings.Split(*seeds, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	text, err := json.Marshal(r)
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
	fmt.Println(string(text))
}

func run(ctx context.Context, o options) (r result, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(o.seeds...))
	if err != nil {
		return r, err
	}
	defer cl.Close()
	admin := kadm.NewClient(cl)
	full, paced := o.topic+"-full", o.topic+"-paced"
	minISR := strconv.Itoa(o.minISR)
	for _, topic := range []string{full, paced} {
		if _, err := admin.CreateTopic(ctx, int32(o.partitions), int16(o.replicas), map[string]*string{"min.insync.replicas": &minISR}, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return r, fmt.Errorf("create %s: %w", topic, err)
		}
	}
	if err := awaitLeaders(ctx, admin, o, full, paced); err != nil {
		return r, err
	}
	if err := fullSpeed(ctx, o, full, &r); err != nil {
		return r, err
	}
	if err := atRate(ctx, o, paced, &r); err != nil {
		return r, err
	}
	return r, readBack(ctx, o, admin, full, &r)
}

func awaitLeaders(ctx context.Context, admin *kadm.Client, o options, topics ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		got, err := admin.ListTopics(ctx, topics...)
		led := 0
		if err == nil {
			got.EachPartition(func(p kadm.PartitionDetail) {
				if p.Err == nil && p.Leader >= 0 && len(p.ISR) == o.replicas {
					led++
				}
			})
		}
		if led == o.partitions*len(topics) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d partitions have leaders and full ISRs, %v, %w", led, err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (o options) producer(topic string, more ...kgo.Opt) (*kgo.Client, error) {
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	codec, ok := codecs[o.codec]
	if !ok {
		return nil, fmt.Errorf("compression %q: want none, gzip, snappy, lz4 or zstd", o.codec)
	}
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(o.seeds...), kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.RoundRobinPartitioner())}, more...)...)
}

// values are some that do not compress; records share them.
func values(size int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	all := make([][]byte, 64)
	for i := range all {
		all[i] = make([]byte, size)
		for j := range all[i] {
			all[i][j] = byte(rng.Uint32())
		}
	}
	return all
}

// latencies collects from many goroutines.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
	err error
}

func (l *latencies) add(d time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.err = err
		return
	}
	l.all = append(l.all, d)
}

func (l *latencies) times() times {
	slices.Sort(l.all)
	at := func(q float64) float64 {
		if len(l.all) == 0 {
			return 0
		}
		return float64(l.all[int(q*float64(len(l.all)-1))].Microseconds()) / 1000
	}
	return times{at(0.5), at(0.99), at(0.999), at(1)}
}

// outstanding bounds what one client has sent and not heard of, so that the
// latency at full speed is the cluster's and not that of an endless queue.
const outstanding = 2000

// fullSpeed writes as much as the cluster takes.
func fullSpeed(ctx context.Context, o options, topic string, r *result) error {
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	var counting latencies
	var began time.Time
	var mu sync.Mutex
	counts := func(sent time.Time) bool {
		mu.Lock()
		defer mu.Unlock()
		return !began.IsZero() && sent.After(began)
	}
	var wg sync.WaitGroup
	for range o.producers {
		cl, err := o.producer(topic, kgo.MaxBufferedRecords(outstanding), kgo.ProducerLinger(time.Millisecond))
		if err != nil {
			return err
		}
		defer cl.Close()
		vals := values(o.size)
		wg.Go(func() {
			for i := 0; stop.Err() == nil; i++ {
				sent := time.Now()
				cl.Produce(ctx, &kgo.Record{Value: vals[i%len(vals)]}, func(_ *kgo.Record, err error) {
					if counts(sent) {
						counting.add(time.Since(sent), err)
					}
				})
			}
		})
	}
	if err := pause(ctx, o.warm); err != nil {
		return err
	}
	mu.Lock()
	began = time.Now()
	mu.Unlock()
	if err := pause(ctx, o.seconds); err != nil {
		return err
	}
	counting.mu.Lock()
	r.Records = int64(len(counting.all))
	counting.mu.Unlock()
	took := time.Since(began).Seconds()
	cancel()
	wg.Wait()
	r.PerSecond = float64(r.Records) / took
	r.MBPerSecond = r.PerSecond * float64(o.size) / 1e6
	r.AtFull = counting.times()
	return counting.err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// atRate writes so many records a second; each one's time counts from when it
// was due, whether or not the generator was late.
func atRate(ctx context.Context, o options, topic string, r *result) error {
	cl, err := o.producer(topic, kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1_000_000))
	if err != nil {
		return err
	}
	defer cl.Close()
	vals := values(o.size)
	if err := cl.ProduceSync(ctx, &kgo.Record{Value: vals[0]}).FirstErr(); err != nil {
		return fmt.Errorf("first record: %w", err)
	}
	var counting latencies
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began, sent := time.Now(), 0
	total := int(o.seconds.Seconds() * float64(o.rate))
	for sent < total {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		for due := int(time.Since(began).Seconds() * float64(o.rate)); sent < min(due, total); sent++ {
			at := began.Add(time.Duration(float64(sent) / float64(o.rate) * float64(time.Second)))
			cl.Produce(ctx, &kgo.Record{Value: vals[sent%len(vals)]}, func(_ *kgo.Record, err error) { counting.add(time.Since(at), err) })
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	r.Rate = float64(sent) / time.Since(began).Seconds()
	r.AtRate = counting.times()
	return counting.err
}

// readBack reads the topic of the first phase from its beginning to its end.
func readBack(ctx context.Context, o options, admin *kadm.Client, topic string, r *result) error {
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return fmt.Errorf("beginnings of %s: %w", topic, err)
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("ends of %s: %w", topic, err)
	}
	total := int64(0)
	ends.Each(func(e kadm.ListedOffset) {
		s, _ := starts.Lookup(topic, e.Partition)
		total += e.Offset - s.Offset
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(o.seeds...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	began := time.Now()
	bytes := int64(0)
	for r.ReadRecords < total {
		f := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		f.EachRecord(func(rec *kgo.Record) {
			r.ReadRecords++
			bytes += int64(len(rec.Value))
		})
	}
	r.ReadMB = float64(bytes) / 1e6 / time.Since(began).Seconds()
	return nil
}
