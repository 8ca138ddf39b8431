package lossless

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Options are one round. Zero values mean what is named beside them.
type Options struct {
	Seed       uint64
	Topic      string        // one that does not exist: lossless-SEED
	Partitions int32         // 3
	Replicas   int16         // 3
	MinISR     int           // 1
	Unclean    bool          // unclean.leader.election.enable
	Producers  int           // 3
	Every      time.Duration // between records of one producer: 2 ms
	Faults     time.Duration // how long there are any: 6 s
	Patience   time.Duration // for all to be well again: 90 s
	// Script is what happens instead of what the seed draws. An error ends the round.
	Script func(ctx context.Context, s Scene) error
	// Forgiving lets producers go on when a leader has lost what it acknowledged;
	// else they give up what they still have.
	Forgiving bool
	Log       func(format string, args ...any)
}

func (o Options) withDefaults() Options {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if o.Topic == "" {
		o.Topic = "lossless-" + strconv.FormatUint(o.Seed, 10)
	}
	if o.Partitions == 0 {
		o.Partitions = 3
	}
	if o.Replicas == 0 {
		o.Replicas = 3
	}
	set(&o.MinISR, 1)
	set(&o.Producers, 3)
	for v, d := range map[*time.Duration]time.Duration{&o.Every: 2 * time.Millisecond, &o.Faults: 6 * time.Second, &o.Patience: 90 * time.Second} {
		if *v == 0 {
			*v = d
		}
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	return o
}

// Scene is what a script sees of its round.
type Scene struct {
	Topic string
	Admin *kadm.Client
	Acked func() int // records acknowledged so far
}

// Report is what a round came to.
type Report struct {
	Acts       []Act
	Sent       int
	Acked      int
	Refused    map[string]int // records that a producer gave up, by error
	Seen       int            // by consumers, while there were faults
	Healed     time.Duration  // from the end of faults until all was in sync and acknowledged
	Unclean    bool           // a leader came from outside an ISR
	Complaints []string       // broken promises
}

// String is one line.
func (r Report) String() string {
	s := fmt.Sprintf("%d sent, %d acknowledged, %d seen by consumers, well again after %d ms; %s", r.Sent, r.Acked, r.Seen, r.Healed.Milliseconds(), summary(r.Acts))
	if r.Unclean {
		s += "; unclean election"
	}
	for e, n := range r.Refused {
		s += fmt.Sprintf("; %d refused: %s", n, e)
	}
	return s
}

// round is one run.
type round struct {
	o       Options
	cluster Cluster
	admin   *kadm.Client
	// oneByOne reads replicas.
	oneByOne *kgo.Client
	clients  []*kgo.Client
	report   Report

	mu      sync.Mutex
	history History
	refused map[string]int
}

// Run makes a topic, has producers write and consumers read it while there are
// faults, heals the cluster, and judges. An error means that the round could not
// be judged, or that the cluster did not get well again.
func Run(ctx context.Context, c Cluster, o Options) (Report, error) {
	o = o.withDefaults()
	r := &round{o: o, cluster: c, refused: map[string]int{}, history: History{Sent: map[int32][]int{}}}
	for p := range o.Partitions {
		r.history.Sent[p] = make([]int, o.Producers)
	}
	defer func() {
		for _, cl := range r.clients {
			cl.Close()
		}
	}()
	cl, err := r.client()
	if err != nil {
		return r.report, err
	}
	r.admin = kadm.NewClient(cl)
	if err := r.createTopic(ctx); err != nil {
		return r.report, err
	}
	err = r.play(ctx)
	r.report.Sent, r.report.Acked, r.report.Seen = r.counts()
	r.report.Refused = r.refused
	if err != nil {
		return r.report, err
	}
	if r.report.Unclean, err = c.Uncleanly(ctx); err != nil {
		return r.report, fmt.Errorf("look for unclean elections: %w", err)
	}
	if r.history.Logs, err = r.readAll(ctx); err != nil {
		return r.report, err
	}
	r.report.Complaints = r.history.Check()
	return r.report, nil
}

func (r *round) counts() (sent, acked, seen int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.history.Sent {
		for _, k := range n {
			sent += k
		}
	}
	return sent, len(r.history.Acked), len(r.history.Seen)
}

// refusals tells which broker refused a batch for good, and why.
type refusals struct{ log func(string, ...any) }

// Level is kgo.Logger's.
func (refusals) Level() kgo.LogLevel { return kgo.LogLevelInfo }

// Log is kgo.Logger's.
func (l refusals) Log(_ kgo.LogLevel, msg string, about ...any) {
	if strings.HasPrefix(msg, "batch errored") {
		l.log("%s: %v", msg, about)
	}
}

// client makes a client that never gives up, and notices soon that a broker is gone.
func (r *round) client(more ...kgo.Opt) (*kgo.Client, error) {
	opts := append([]kgo.Opt{
		kgo.WithLogger(refusals{r.o.Log}), kgo.SeedBrokers(r.cluster.Seeds()...), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.RequestRetries(1 << 30),
		// A broker that dies before its first answer is not one that wants SASL.
		kgo.AlwaysRetryEOF(), kgo.RetryTimeout(r.o.Patience), kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(2 * time.Second),
	}, more...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	r.clients = append(r.clients, cl)
	return cl, nil
}

func (r *round) createTopic(ctx context.Context) error {
	minISR, unclean := strconv.Itoa(r.o.MinISR), strconv.FormatBool(r.o.Unclean)
	configs := map[string]*string{"min.insync.replicas": &minISR, "unclean.leader.election.enable": &unclean}
	_, err := r.admin.CreateTopic(ctx, r.o.Partitions, r.o.Replicas, configs, r.o.Topic)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) { // an answer may have been lost
		return fmt.Errorf("create the topic: %w", err)
	}
	return nil
}

// play is the round up to where all is well again.
func (r *round) play(ctx context.Context) error {
	producing, enough := context.WithCancel(ctx)
	defer enough()
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	var producers, consumers sync.WaitGroup
	var all []*kgo.Client
	for i := range r.o.Producers {
		var more []kgo.Opt
		if !r.o.Forgiving {
			more = append(more, kgo.StopProducerOnDataLossDetected())
		}
		// The buffer is never full: who waits for room would wait for the faults to end.
		cl, err := r.client(append(more, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.UnknownTopicRetries(-1), kgo.RecordRetries(1<<30), kgo.ProducerLinger(time.Millisecond), kgo.ProduceRequestTimeout(3*time.Second), kgo.MaxBufferedRecords(1<<20))...)
		if err != nil {
			return err
		}
		all = append(all, cl)
		producers.Go(func() { r.produce(producing, ctx, i, cl) })
	}
	for range 2 {
		cl, err := r.client(kgo.ConsumeTopics(r.o.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond))
		if err != nil {
			return err
		}
		consumers.Go(func() { r.consume(consuming, cl) })
	}
	var failed error
	if r.o.Script != nil {
		failed = r.o.Script(ctx, Scene{Topic: r.o.Topic, Admin: r.admin, Acked: func() int { _, acked, _ := r.counts(); return acked }})
	} else {
		r.hurt(ctx)
	}
	enough()
	producers.Wait()
	begin := time.Now()
	err := r.heal(ctx, all)
	r.report.Healed = time.Since(begin)
	stop()
	consumers.Wait()
	if failed != nil {
		return fmt.Errorf("script: %w", failed)
	}
	return err
}

// produce sends records to partitions drawn by the seed until producing ends.
func (r *round) produce(producing, ctx context.Context, producer int, cl *kgo.Client) {
	rng := rand.New(rand.NewPCG(r.o.Seed, uint64(producer)+1))
	padding := strings.Repeat("abcdefghijklmnop", 64)
	tick := time.NewTicker(r.o.Every)
	defer tick.Stop()
	for {
		select {
		case <-producing.Done():
			return
		case <-tick.C:
		}
		p := rng.Int32N(r.o.Partitions)
		r.mu.Lock()
		rec := Record{producer, r.history.Sent[p][producer]}
		r.history.Sent[p][producer]++
		r.mu.Unlock()
		// The context is the round's: one that ended would make records be given up.
		cl.Produce(ctx, &kgo.Record{Topic: r.o.Topic, Partition: p, Value: rec.value(padding[:rng.IntN(len(padding))])}, func(done *kgo.Record, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if err != nil {
				r.refused[err.Error()]++
				return
			}
			r.history.Acked = append(r.history.Acked, At{Position{p, done.Offset}, rec})
		})
	}
}

// consume notes what a consumer gets, as long as it may.
func (r *round) consume(ctx context.Context, cl *kgo.Client) {
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		fetches.EachRecord(func(rec *kgo.Record) {
			what, err := parse(rec.Value)
			if err != nil {
				what = Record{-1, -1} // Check finds that nobody sent it
			}
			r.history.Seen = append(r.history.Seen, At{Position{rec.Partition, rec.Offset}, what})
		})
		r.mu.Unlock()
	}
}

// hurt does one deed after the other as the seed says.
func (r *round) hurt(ctx context.Context) {
	f := newFate(r.o.Seed, r.cluster)
	end := time.NewTimer(r.o.Faults)
	defer end.Stop()
	for {
		pause, a := f.next()
		select {
		case <-end.C:
			return
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		within, cancel := context.WithTimeout(ctx, 2*time.Second)
		var err error
		switch a.Op {
		case Move:
			err = r.move(within, f.rng)
		case Prefer:
			_, err = r.admin.ElectLeaders(within, kadm.ElectPreferredReplica, nil)
		default:
			err = r.cluster.Do(within, a)
		}
		cancel()
		if err != nil { // many a deed makes no sense at its moment
			f.undo(a)
			r.o.Log("%s: %v", a, err)
			continue
		}
		r.o.Log("%s", a)
		r.report.Acts = append(r.report.Acts, a)
	}
}

// move gives a partition other replicas, or the same in another order.
func (r *round) move(ctx context.Context, rng *rand.Rand) error {
	ids := slices.Clone(r.cluster.Brokers())
	slices.Sort(ids)
	rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	var want kadm.AlterPartitionAssignmentsReq
	want.Assign(r.o.Topic, rng.Int32N(r.o.Partitions), ids[:r.o.Replicas])
	got, err := r.admin.AlterPartitionAssignments(ctx, want)
	if err != nil {
		return err
	}
	return got.Error()
}

// heal makes all well again and waits until it is: every record has its answer,
// every partition a full ISR, no move is under way.
func (r *round) heal(ctx context.Context, producers []*kgo.Client) error {
	if err := r.cluster.Heal(ctx); err != nil {
		return fmt.Errorf("heal: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.o.Patience)
	defer cancel()
	for i, cl := range producers {
		if err := cl.Flush(ctx); err != nil {
			return fmt.Errorf("producer %d has %d records without an answer after %s (%s): %w", i, cl.BufferedProduceRecords(), r.o.Patience, r.state(), err)
		}
	}
	for {
		why := r.unwell(ctx)
		if why == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not well again after %s: %s (%s)", r.o.Patience, why, r.state())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// unwell tells what is not in order; "" is nothing.
func (r *round) unwell(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	moves, err := r.admin.ListPartitionReassignments(ctx, nil)
	if err != nil {
		return err.Error()
	}
	for _, topic := range moves {
		for _, m := range topic {
			return fmt.Sprintf("partition %d moves from %v to %v", m.Partition, m.RemovingReplicas, m.AddingReplicas)
		}
	}
	topics, err := r.admin.ListTopics(ctx, r.o.Topic)
	if err == nil {
		err = topics.Error()
	}
	if err != nil {
		return err.Error()
	}
	for _, p := range topics[r.o.Topic].Partitions.Sorted() {
		if p.Err != nil || p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
			return fmt.Sprintf("partition %d: leader %d, ISR %v of %v, %v", p.Partition, p.Leader, p.ISR, p.Replicas, p.Err)
		}
	}
	return ""
}

// state describes the topic for people.
func (r *round) state() string {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	topics, err := r.admin.ListTopics(ctx, r.o.Topic)
	if err != nil {
		return err.Error()
	}
	var parts []string
	for _, p := range topics[r.o.Topic].Partitions.Sorted() {
		parts = append(parts, fmt.Sprintf("%d: leader %d epoch %d ISR %v of %v", p.Partition, p.Leader, p.LeaderEpoch, p.ISR, p.Replicas))
	}
	return strings.Join(parts, "; ")
}
