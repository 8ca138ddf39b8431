package zkpaths

import (
	"strconv"
	"strings"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// The fixed paths (spec/controller.md §1.1), below the chroot.
const (
	Controller      = "/controller"
	ControllerEpoch = "/controller_epoch"

	Brokers      = "/brokers"
	BrokerIDs    = "/brokers/ids"
	BrokerSeqID  = "/brokers/seqid"
	BrokerTopics = "/brokers/topics"

	Admin              = "/admin"
	DeleteTopics       = "/admin/delete_topics"
	ReassignPartitions = "/admin/reassign_partitions"
	PreferredElection  = "/admin/preferred_replica_election"

	ISRNotifications    = "/isr_change_notification"
	LogDirNotifications = "/log_dir_event_notification"

	Config        = "/config"
	ConfigTopics  = "/config/topics"
	ConfigClients = "/config/clients"
	ConfigUsers   = "/config/users"
	ConfigBrokers = "/config/brokers"
	ConfigIPs     = "/config/ips"
	ConfigChanges = "/config/changes"

	Cluster         = "/cluster"
	ClusterID       = "/cluster/id"
	ProducerIDBlock = "/latest_producer_id_block"
	Feature         = "/feature"
	Migration       = "/migration"
	Consumers       = "/consumers"

	DelegationTokens       = "/delegation_token/tokens"
	DelegationTokenChanges = "/delegation_token/token_changes"
	ACLs                   = "/kafka-acl"
	ACLChanges             = "/kafka-acl-changes"
	ExtendedACLs           = "/kafka-acl-extended"
	ExtendedACLChanges     = "/kafka-acl-extended-changes"
)

// What a sequential create is asked for: ZooKeeper appends ten digits.
const (
	ISRNotificationPrefix    = ISRNotifications + "/isr_change_"
	LogDirNotificationPrefix = LogDirNotifications + "/log_dir_event_"
	ConfigChangePrefix       = ConfigChanges + "/config_change_"
)

// DefaultEntity is the name of a configuration entity that stands for all others.
const DefaultEntity = "<default>"

// BrokerPath is the registration of a broker.
func BrokerPath(id kafka.BrokerID) string { return BrokerIDs + "/" + strconv.Itoa(int(id)) }

// TopicPath is the node with a topic's assignment.
func TopicPath(topic string) string { return BrokerTopics + "/" + topic }

// PartitionsPath is the parent of a topic's partitions.
func PartitionsPath(topic string) string { return BrokerTopics + "/" + topic + "/partitions" }

// PartitionPath is the parent of a partition's state.
func PartitionPath(tp kafka.TopicPartition) string {
	return BrokerTopics + "/" + tp.Topic + "/partitions/" + strconv.Itoa(int(tp.Partition))
}

// PartitionStatePath is the node with a partition's leadership.
func PartitionStatePath(tp kafka.TopicPartition) string {
	return BrokerTopics + "/" + tp.Topic + "/partitions/" + strconv.Itoa(int(tp.Partition)) + "/state"
}

// DeleteTopicPath is the mark that asks for a topic's deletion.
func DeleteTopicPath(topic string) string { return DeleteTopics + "/" + topic }

// TopicConfigPath is the node with a topic's overrides.
func TopicConfigPath(topic string) string { return ConfigTopics + "/" + topic }

// BrokerConfigPath is the node with a broker's dynamic configuration.
func BrokerConfigPath(id kafka.BrokerID) string {
	return ConfigBrokers + "/" + strconv.Itoa(int(id))
}

// EntityConfigPath is the node of an entity path as a ConfigChange has it, such
// as topics/foo or users/alice/clients/c.
func EntityConfigPath(entityPath string) string { return Config + "/" + entityPath }

// ISRNotificationPath is a child of /isr_change_notification.
func ISRNotificationPath(child string) string { return ISRNotifications + "/" + child }

// LogDirNotificationPath is a child of /log_dir_event_notification.
func LogDirNotificationPath(child string) string { return LogDirNotifications + "/" + child }

// ConfigChangePath is a child of /config/changes.
func ConfigChangePath(child string) string { return ConfigChanges + "/" + child }

// ConsumerOffsetPath is the plain decimal offset that old consumers kept.
func ConsumerOffsetPath(group string, tp kafka.TopicPartition) string {
	return Consumers + "/" + group + "/offsets/" + tp.Topic + "/" + strconv.Itoa(int(tp.Partition))
}

// ParseBrokerID reads a child of /brokers/ids. Only the form BrokerPath writes
// is an id: "+1" or "01" name no broker.
func ParseBrokerID(child string) (kafka.BrokerID, bool) {
	n, ok := parseNumber(child)
	return kafka.BrokerID(n), ok
}

// ParseBrokerPath gives the broker whose registration path is.
func ParseBrokerPath(path string) (kafka.BrokerID, bool) {
	child, ok := strings.CutPrefix(path, BrokerIDs+"/")
	if !ok {
		return 0, false
	}
	return ParseBrokerID(child)
}

// ParseTopicPath gives the topic whose assignment path is.
func ParseTopicPath(path string) (topic string, ok bool) {
	topic, ok = strings.CutPrefix(path, BrokerTopics+"/")
	return topic, ok && topic != "" && !strings.Contains(topic, "/")
}

// ParsePartitionStatePath gives the partition whose state path is.
func ParsePartitionStatePath(path string) (tp kafka.TopicPartition, ok bool) {
	rest, ok := strings.CutPrefix(path, BrokerTopics+"/")
	if !ok {
		return tp, false
	}
	topic, rest, _ := strings.Cut(rest, "/")
	number, found := strings.CutPrefix(rest, "partitions/")
	number, state := strings.CutSuffix(number, "/state")
	n, ok := parseNumber(number)
	if topic == "" || !found || !state || !ok {
		return tp, false
	}
	return kafka.TopicPartition{Topic: topic, Partition: n}, true
}

// SequenceNumber gives the number ZooKeeper appended to prefix in path or in
// its last element.
func SequenceNumber(path, prefix string) (int64, bool) {
	last := func(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }
	digits, ok := strings.CutPrefix(last(path), last(prefix))
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n >= 0
}

// parseNumber reads a canonical number that is not negative.
func parseNumber(s string) (int32, bool) {
	if s == "" || s[0] == '0' && len(s) > 1 || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 32)
	return int32(n), err == nil
}

// PersistentPaths lists what a broker or controller of version v makes sure of
// at start, with null data: parents first, every level on its own
// (spec/controller.md §1.0).
func PersistentPaths(v kafka.ProtocolVersion) []string {
	paths := []string{Consumers, Brokers, BrokerIDs, BrokerTopics, Config, ConfigChanges, Admin, DeleteTopics, BrokerSeqID, ISRNotifications}
	if v.AtLeast(kafka.V0_11_0IV0) {
		paths = append(paths, ProducerIDBlock)
	}
	if v.AtLeast(kafka.V1_0IV0) {
		paths = append(paths, LogDirNotifications)
	}
	paths = append(paths, ConfigTopics, ConfigClients)
	if v.AtLeast(kafka.V1_1IV0) {
		paths = append(paths, ConfigUsers, ConfigBrokers)
	}
	if v.AtLeast(kafka.V2_8IV0) {
		paths = append(paths, ConfigIPs)
	}
	return paths
}
