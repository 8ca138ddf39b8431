package brokerport

import (
	"maps"
	"slices"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// topicKeysSince has the configurations of topics that are younger than the
// oldest release that is emulated (spec/admin-api.md §7.4).
var topicKeysSince = map[string]kafka.ProtocolVersion{
	"message.format.version":                  {Major: 0, Minor: 1000},
	"message.timestamp.difference.max.ms":     {Major: 0, Minor: 1000},
	"message.timestamp.type":                  {Major: 0, Minor: 1000},
	"follower.replication.throttled.replicas": {Major: 0, Minor: 1001},
	"leader.replication.throttled.replicas":   {Major: 0, Minor: 1001},
	"min.compaction.lag.ms":                   {Major: 0, Minor: 1001},
	"message.downconversion.enable":           {Major: 2, Minor: 0},
	"max.compaction.lag.ms":                   {Major: 2, Minor: 3},
	"local.retention.bytes":                   {Major: 3, Minor: 6},
	"local.retention.ms":                      {Major: 3, Minor: 6},
	"message.timestamp.after.max.ms":          {Major: 3, Minor: 6},
	"message.timestamp.before.max.ms":         {Major: 3, Minor: 6},
	"remote.storage.enable":                   {Major: 3, Minor: 6},
	"compression.gzip.level":                  {Major: 3, Minor: 8},
	"compression.lz4.level":                   {Major: 3, Minor: 8},
	"compression.zstd.level":                  {Major: 3, Minor: 8},
	"remote.log.copy.disable":                 {Major: 3, Minor: 9},
	"remote.log.delete.on.disable":            {Major: 3, Minor: 9},
}

// ownTopicKeys are those that topics do not inherit.
var ownTopicKeys = []string{"follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
	"remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable"}

// topicKeys are the configurations that topics of a release have, sorted.
func topicKeys(release kafka.ProtocolVersion) []string {
	names := slices.AppendSeq(slices.Clone(ownTopicKeys), maps.Keys(inherited()))
	names = slices.DeleteFunc(names, func(name string) bool { return release.Less(topicKeysSince[name]) })
	slices.Sort(names)
	return names
}
