package assembly

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// scrape collects what fill sends, by name and labels but the broker's.
func scrape(t *testing.T, fill func(c collected)) map[string]float64 {
	t.Helper()
	ch := make(chan prometheus.Metric, 1000)
	fill(collected{ch})
	close(ch)
	r := prometheus.NewRegistry()
	r.MustRegister(fixedMetrics(func(to chan<- prometheus.Metric) {
		for m := range ch {
			to <- m
		}
	}))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				if l.GetName() == "broker" {
					if l.GetValue() != "7" {
						t.Errorf("%s is of broker %s", name, l.GetValue())
					}
					continue
				}
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			if counter := strings.HasSuffix(f.GetName(), "_total"); counter != (m.Counter != nil) {
				t.Errorf("%s: a name for the other type", name)
			}
		}
	}
	return out
}

type fixedMetrics func(chan<- prometheus.Metric)

func (fixedMetrics) Describe(chan<- *prometheus.Desc)      {}
func (f fixedMetrics) Collect(ch chan<- prometheus.Metric) { f(ch) }

// Every name of spec/broker.md §11.2 and §11.3, as jmx_exporter writes it, has the
// figure of that name; all figures here differ.
func TestBrokerMetricNames(t *testing.T) {
	g := brokers.Gauges{LeaderCount: 1, PartitionCount: 2, UnderReplicatedPartitions: 3, UnderMinIsrPartitionCount: 4, AtMinIsrPartitionCount: 5,
		OfflineReplicaCount: 6, ReassigningPartitions: 7, ProducePurgatory: 8, FetchPurgatory: 9, DeleteRecordsPurgatory: 10, MaxLag: 11, FailedFetches: 12,
		DelayedProduces: 35, DelayedFetches: 36,
		LogBytes: 13, UnannouncedISRChanges: 14, UnsentISRChanges: 15,
		Counters: brokers.Counters{ISRShrinks: 16, ISRExpands: 17, FailedISRUpdates: 18, MessagesIn: 19, BytesIn: 20, BytesOut: 21, ReplicationBytesIn: 22,
			ProduceExpires: 23, FollowerFetchExpires: 24, ConsumerFetchExpires: 25, FlappingHints: 26, CommittedRecordsLost: 27},
		Partitions: []brokers.PartitionGauges{
			{Partition: kafka.TopicPartition{Topic: "t", Partition: 3}, UnderReplicated: true, UnderMinIsr: true, InSyncReplicasCount: 28,
				ReplicasCount: 29, LastStableOffsetLag: 30, ConsumerLag: 31, LogStart: 32, LogEnd: 33, Size: 34},
			{Partition: kafka.TopicPartition{Topic: "t", Partition: 4}, AtMinIsr: true}}}
	const manager, partition = "kafka_server_replicamanager_", "kafka_cluster_partition_"
	want := map[string]float64{
		manager + "leadercount": 1, manager + "partitioncount": 2, manager + "underreplicatedpartitions": 3, manager + "underminisrpartitioncount": 4,
		manager + "atminisrpartitioncount": 5, manager + "offlinereplicacount": 6, manager + "reassigningpartitions": 7,
		manager + "isrshrinks_total": 16, manager + "isrexpands_total": 17, manager + "failedisrupdates_total": 18,
		"kafka_server_delayedoperationpurgatory_purgatorysize delayedoperation=Produce":              8,
		"kafka_server_delayedoperationpurgatory_purgatorysize delayedoperation=Fetch":                9,
		"kafka_server_delayedoperationpurgatory_purgatorysize delayedoperation=DeleteRecords":        10,
		"kafka_server_delayedoperationpurgatory_numdelayedoperations delayedoperation=Produce":       35,
		"kafka_server_delayedoperationpurgatory_numdelayedoperations delayedoperation=Fetch":         36,
		"kafka_server_delayedoperationpurgatory_numdelayedoperations delayedoperation=DeleteRecords": 10,
		"kafka_server_delayedproducemetrics_expires_total":                                           23,
		"kafka_server_delayedfetchmetrics_expires_total fetchertype=follower":                        24,
		"kafka_server_delayedfetchmetrics_expires_total fetchertype=consumer":                        25,
		"kafka_server_replicafetchermanager_maxlag":                                                  11,
		"kafka_server_replicafetchermanager_failedpartitionscount":                                   12,
		"kafka_server_brokertopicmetrics_messagesin_total":                                           19,
		"kafka_server_brokertopicmetrics_bytesin_total":                                              20,
		"kafka_server_brokertopicmetrics_bytesout_total":                                             21,
		"kafka_server_brokertopicmetrics_replicationbytesin_total":                                   22,
		"zkc_log_bytes": 13, "zkc_unannounced_isr_changes": 14, "zkc_unsent_isr_changes": 15, "zkc_isr_flapping_hints_total": 26, "zkc_committed_records_lost_total": 27,
	}
	for p, figures := range map[string][]float64{"3": {1, 1, 0, 28, 29, 30, 31, 32, 33, 34}, "4": {0, 0, 1, 0, 0, 0, 0, 0, 0, 0}} {
		for i, name := range []string{partition + "underreplicated", partition + "underminisr", partition + "atminisr", partition + "insyncreplicascount",
			partition + "replicascount", partition + "laststableoffsetlag", "kafka_server_fetcherlagmetrics_consumerlag", "kafka_log_log_logstartoffset",
			"kafka_log_log_logendoffset", "kafka_log_log_size"} {
			want[name+" partition="+p+" topic=t"] = figures[i]
		}
	}
	if d := cmp.Diff(want, scrape(t, func(c collected) { c.broker("7", g) })); d != "" {
		t.Error(d)
	}
}
