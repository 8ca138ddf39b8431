package brokers

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Gauges are the figures of spec/broker.md §11.2 and §11.3, under Kafka's names,
// and some of our own.
type Gauges struct {
	LeaderCount               int
	PartitionCount            int
	UnderReplicatedPartitions int
	UnderMinIsrPartitionCount int // with logs
	AtMinIsrPartitionCount    int // with logs
	OfflineReplicaCount       int
	ReassigningPartitions     int
	ProducePurgatory          int // PurgatorySize: rows of acks=all requests that wait for a partition
	FetchPurgatory            int // the same of consumers' and followers' fetches
	DeleteRecordsPurgatory    int // the same of DeleteRecords
	DelayedProduces           int // NumDelayedOperations: requests with such rows
	DelayedFetches            int
	MaxLag                    int64 // of the partitions followed here, behind their leaders' high watermarks
	FailedFetches             int   // partitions that are followed and wait for a LeaderAndIsr
	LogBytes                  int64 // of all logs
	UnannouncedISRChanges     int   // profiles A and B
	UnsentISRChanges          int   // profile C: proposals that are not answered yet
	Counters                  Counters
	Partitions                []PartitionGauges // if asked for; sorted
}

// PartitionGauges are those of one partition; the counts are 0 on a follower.
type PartitionGauges struct {
	Partition           kafka.TopicPartition
	UnderReplicated     bool
	UnderMinIsr         bool
	AtMinIsr            bool
	InSyncReplicasCount int
	ReplicasCount       int
	LastStableOffsetLag int64
	ConsumerLag         int64 // FetcherLagMetrics: of a follower
	LogStart, LogEnd    int64
	Size                int64
}

// Measure asks for the gauges; Reply must not block.
type Measure struct {
	PerPartition bool
	Reply        func(Gauges)
}

// Gauges gives the figures as they are, with those of every partition if asked
// for. The error is ErrDown, once Run has ended, or the context's.
func (n *Node) Gauges(ctx context.Context, perPartition bool) (Gauges, error) {
	answer := make(chan Gauges, 1)
	n.Post(Measure{PerPartition: perPartition, Reply: func(g Gauges) { answer <- g }})
	select {
	case g := <-answer:
		return g, nil
	case <-n.done:
		return Gauges{}, ErrDown
	case <-ctx.Done():
		return Gauges{}, ctx.Err()
	}
}

func (e Measure) apply(b *Broker, _ time.Time) {
	g := Gauges{PartitionCount: len(b.partitions), OfflineReplicaCount: b.offline, Counters: b.counters, UnsentISRChanges: len(b.alter.unsent)}
	if b.announcer != nil {
		g.UnannouncedISRChanges = len(b.announcer.Pending())
	}
	produces, fetches := map[*delayedProduce]bool{}, map[*delayedFetch]bool{}
	for _, p := range b.partitions {
		one := b.measure(p)
		g.add(p, one)
		for _, w := range p.produces {
			produces[w.d] = true
		}
		for _, w := range p.fetches {
			fetches[w.f] = true
		}
		for i := range p.remotes {
			if f := p.remotes[i].waits; f != nil {
				fetches[f] = true
				g.FetchPurgatory++
			}
		}
		g.ProducePurgatory += len(p.produces)
		g.DeleteRecordsPurgatory += len(p.deletes)
		if e.PerPartition {
			g.Partitions = append(g.Partitions, one)
		}
	}
	g.DelayedProduces, g.DelayedFetches = len(produces), len(fetches)
	slices.SortFunc(g.Partitions, func(a, b PartitionGauges) int { return a.Partition.Compare(b.Partition) })
	e.Reply(g)
}

func (g *Gauges) add(p *partition, one PartitionGauges) {
	for _, c := range []struct {
		n  *int
		is bool
	}{
		{&g.LeaderCount, p.role == leader}, {&g.UnderReplicatedPartitions, one.UnderReplicated}, {&g.UnderMinIsrPartitionCount, one.UnderMinIsr},
		{&g.AtMinIsrPartitionCount, one.AtMinIsr}, {&g.ReassigningPartitions, p.role == leader && p.assignment.Reassigning()},
		{&g.FailedFetches, p.follow != nil && p.follow.failed},
	} {
		if c.is {
			*c.n++
		}
	}
	g.FetchPurgatory += len(p.fetches)
	g.LogBytes += one.Size
	g.MaxLag = max(g.MaxLag, one.ConsumerLag)
}

func (b *Broker) measure(p *partition) PartitionGauges {
	g := PartitionGauges{Partition: p.tp}
	if p.log != nil {
		g.LogStart, g.LogEnd, g.Size = p.log.LogStartOffset(), p.log.LogEndOffset(), p.log.Size()
		g.LastStableOffsetLag = p.log.HighWatermark() - p.log.LastStableOffset()
	}
	if p.follow != nil {
		g.ConsumerLag = p.follow.lag
	}
	if p.role != leader {
		return g
	}
	g.InSyncReplicasCount, g.ReplicasCount = len(p.isr.isr), len(p.assignment.Replicas)
	factor := g.ReplicasCount
	if b.does.addingCountsNot {
		factor -= len(p.assignment.Adding)
	}
	g.UnderReplicated = g.InSyncReplicasCount < factor
	if p.log != nil {
		g.UnderMinIsr, g.AtMinIsr = g.InSyncReplicasCount < b.minISR(p), g.InSyncReplicasCount == b.minISR(p)
	}
	return g
}

// Snapshot gives the state between two steps; partitions are sorted.
func (b *Broker) Snapshot() Snapshot {
	s := Snapshot{ID: b.opts.ID, Phase: b.phase.String(), Profile: b.does.profile.String(), Registered: b.registered,
		BrokerEpoch: b.epoch, ControllerEpoch: b.controllerEpoch, Counters: b.counters}
	if b.announcer != nil {
		s.Unannounced = b.announcer.Pending()
	}
	for _, tp := range slices.SortedFunc(maps.Keys(b.partitions), kafka.TopicPartition.Compare) {
		s.Partitions = append(s.Partitions, b.partitions[tp].snapshot())
	}
	return s
}

// Snapshot is a broker as tests and status pages see it.
type Snapshot struct {
	ID              kafka.BrokerID         `json:"id"`
	Phase           string                 `json:"phase"`
	Profile         string                 `json:"profile"`
	Registered      bool                   `json:"registered"`
	BrokerEpoch     int64                  `json:"broker_epoch"`
	ControllerEpoch int32                  `json:"controller_epoch"`
	Partitions      []PartitionSnapshot    `json:"partitions"`
	Unannounced     []kafka.TopicPartition `json:"unannounced"`
	Counters        Counters               `json:"counters"`
}
