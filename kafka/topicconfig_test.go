package kafka_test

import (
	"testing"

	"github.com/zkcontroller/zkcontroller/kafka"
)

func TestTopicConfigs(t *testing.T) {
	legal := []map[string]string{
		nil,
		{"cleanup.policy": "compact, delete", "retention.ms": "-1", "min.insync.replicas": " 2 "},
		{"unclean.leader.election.enable": "TRUE", "min.cleanable.dirty.ratio": "1", "compression.gzip.level": "-1"},
		{"leader.replication.throttled.replicas": "0:1,1:2", "follower.replication.throttled.replicas": "*"},
		{"follower.replication.throttled.replicas": "", "message.format.version": "0.8.2", "retention.bytes": "-9"},
		{"max.compaction.lag.ms": "5", "min.compaction.lag.ms": "5", "message.format.version": "2.8-IV1"},
	}
	for _, set := range legal {
		if why := kafka.CheckTopicConfigs(set); why != "" {
			t.Errorf("%v: %s", set, why)
		}
	}
	illegal := []map[string]string{
		{"no.such.key": "1"}, {"retention.ms": ""}, {"retention.ms": "1d"}, {"retention.ms": "-2"}, {"segment.bytes": "13"},
		{"segment.bytes": "2147483648"}, {"min.insync.replicas": "0"}, {"preallocate": "yes"}, {"cleanup.policy": ""}, {"cleanup.policy": "compact,keep"},
		{"compression.type": "none"}, {"compression.gzip.level": "0"}, {"min.cleanable.dirty.ratio": "1.1"}, {"min.cleanable.dirty.ratio": "NaN"},
		{"leader.replication.throttled.replicas": "1"}, {"leader.replication.throttled.replicas": "1:-1"}, {"message.format.version": "4.0"},
		{"max.compaction.lag.ms": "4", "min.compaction.lag.ms": "5"},
	}
	for _, set := range illegal {
		if why := kafka.CheckTopicConfigs(set); why == "" {
			t.Errorf("%v is legal", set)
		}
	}
}
