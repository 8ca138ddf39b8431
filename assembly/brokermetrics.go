package assembly

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkcontroller/zkcontroller/brokers"
)

// partitionSeries is how many partitions a broker may host for each to have
// series of its own: beyond, a scrape would be larger than it is worth.
const partitionSeries = 1000

// brokerMetrics has the names that dashboards know from Kafka's brokers
// (spec/broker.md §11.2, §11.3), by broker.
type brokerMetrics struct{ host *brokers.Host }

// Describe sends nothing: partitions come and go.
func (m brokerMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect is prometheus.Collector's. A broker that does not answer is left out.
func (m brokerMetrics) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c := collected{ch}
	for _, n := range m.host.Nodes() {
		g, err := n.Gauges(ctx, false)
		if err != nil {
			continue
		}
		if g.PartitionCount <= partitionSeries {
			if g, err = n.Gauges(ctx, true); err != nil {
				continue
			}
		}
		c.broker(strconv.Itoa(int(n.ID())), g)
	}
}

func (c collected) broker(id string, g brokers.Gauges) {
	const k = "kafka_server_replicamanager_"
	for _, m := range []struct {
		name, help string
		v          int
	}{
		{k + "leadercount", "Partitions this broker leads.", g.LeaderCount},
		{k + "partitioncount", "Partitions this broker hosts.", g.PartitionCount},
		{k + "underreplicatedpartitions", "Led partitions whose ISR lacks a replica.", g.UnderReplicatedPartitions},
		{k + "underminisrpartitioncount", "Led partitions whose ISR is below min.insync.replicas.", g.UnderMinIsrPartitionCount},
		{k + "atminisrpartitioncount", "Led partitions whose ISR is just min.insync.replicas.", g.AtMinIsrPartitionCount},
		{k + "offlinereplicacount", "Partitions in a failed log directory.", g.OfflineReplicaCount},
		{k + "reassigningpartitions", "Led partitions that are being moved.", g.ReassigningPartitions},
		{"kafka_server_replicafetchermanager_maxlag", "Records the slowest follower here is behind.", int(g.MaxLag)},
		{"kafka_server_replicafetchermanager_failedpartitionscount", "Followed partitions that wait for the controller.", g.FailedFetches},
		{"zkc_log_bytes", "Bytes of all logs.", int(g.LogBytes)},
		{"zkc_unannounced_isr_changes", "Written ISR changes that are still to be announced.", g.UnannouncedISRChanges},
		{"zkc_unsent_isr_changes", "ISR changes that the controller has not answered.", g.UnsentISRChanges},
	} {
		c.gauge(m.name, m.help, float64(m.v), "broker", id)
	}
	for op, n := range map[string][2]int{"Produce": {g.ProducePurgatory, g.DelayedProduces}, "Fetch": {g.FetchPurgatory, g.DelayedFetches},
		"DeleteRecords": {g.DeleteRecordsPurgatory, g.DeleteRecordsPurgatory}} {
		const k = "kafka_server_delayedoperationpurgatory_"
		c.gauge(k+"purgatorysize", "Partitions of requests that wait.", float64(n[0]), "broker", id, "delayedoperation", op)
		c.gauge(k+"numdelayedoperations", "Requests that wait.", float64(n[1]), "broker", id, "delayedoperation", op)
	}
	c.meters(id, g.Counters)
	for _, p := range g.Partitions {
		c.partition(id, p)
	}
}

func (c collected) meters(id string, n brokers.Counters) {
	const topics = "kafka_server_brokertopicmetrics_"
	for _, m := range []struct {
		name, help string
		v          int64
	}{
		{"kafka_server_replicamanager_isrshrinks_total", "Confirmed shrinks of an ISR.", int64(n.ISRShrinks)},
		{"kafka_server_replicamanager_isrexpands_total", "Confirmed expansions of an ISR.", int64(n.ISRExpands)},
		{"kafka_server_replicamanager_failedisrupdates_total", "Refused or failed changes of an ISR.", int64(n.FailedISRUpdates)},
		{topics + "messagesin_total", "Records appended.", n.MessagesIn},
		{topics + "bytesin_total", "Bytes appended.", n.BytesIn},
		{topics + "bytesout_total", "Bytes read by clients.", n.BytesOut},
		{topics + "replicationbytesin_total", "Bytes copied from leaders.", n.ReplicationBytesIn},
		{"kafka_server_delayedproducemetrics_expires_total", "Rows of acks=all that timed out.", int64(n.ProduceExpires)},
		{"zkc_isr_flapping_hints_total", "Times an ISR was told to flap.", int64(n.FlappingHints)},
		{"zkc_committed_records_lost_total", "Records cut off a log below its high watermark.", n.CommittedRecordsLost},
	} {
		c.counter(m.name, m.help, float64(m.v), "broker", id)
	}
	for kind, v := range map[string]int{"follower": n.FollowerFetchExpires, "consumer": n.ConsumerFetchExpires} {
		c.counter("kafka_server_delayedfetchmetrics_expires_total", "Fetches whose wait ended without enough data.", float64(v), "broker", id, "fetchertype", kind)
	}
}

func (c collected) partition(id string, p brokers.PartitionGauges) {
	labels := []string{"broker", id, "topic", p.Partition.Topic, "partition", strconv.Itoa(int(p.Partition.Partition))}
	one := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	const k = "kafka_cluster_partition_"
	c.gauge(k+"underreplicated", "1 while the ISR of the leader here lacks a replica.", one(p.UnderReplicated), labels...)
	c.gauge(k+"underminisr", "1 while it is below min.insync.replicas.", one(p.UnderMinIsr), labels...)
	c.gauge(k+"atminisr", "1 while it is just min.insync.replicas.", one(p.AtMinIsr), labels...)
	c.gauge(k+"insyncreplicascount", "Size of the ISR; 0 on a follower.", float64(p.InSyncReplicasCount), labels...)
	c.gauge(k+"replicascount", "Replicas; 0 on a follower.", float64(p.ReplicasCount), labels...)
	c.gauge(k+"laststableoffsetlag", "Records between stable offset and high watermark.", float64(p.LastStableOffsetLag), labels...)
	c.gauge("kafka_server_fetcherlagmetrics_consumerlag", "Records a follower is behind.", float64(p.ConsumerLag), labels...)
	c.gauge("kafka_log_log_logstartoffset", "First offset.", float64(p.LogStart), labels...)
	c.gauge("kafka_log_log_logendoffset", "Offset of the next record.", float64(p.LogEnd), labels...)
	c.gauge("kafka_log_log_size", "Bytes.", float64(p.Size), labels...)
}
