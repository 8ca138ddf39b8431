package kafka

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ConfigType is Kafka's number for the type of a configuration's value.
type ConfigType int8

const (
	BooleanConfig ConfigType = 1
	StringConfig  ConfigType = 2
	IntConfig     ConfigType = 3
	LongConfig    ConfigType = 5
	DoubleConfig  ConfigType = 6
	ListConfig    ConfigType = 7
)

var configTypeNames = map[ConfigType]string{BooleanConfig: "boolean", StringConfig: "string", IntConfig: "int", LongConfig: "long",
	DoubleConfig: "double", ListConfig: "list"}

// String gives Kafka's name of the type, in lower case.
func (t ConfigType) String() string {
	if s, ok := configTypeNames[t]; ok {
		return s
	}
	return "ConfigType(" + strconv.Itoa(int(t)) + ")"
}

// TopicConfig is what is known about one configuration of topics.
type TopicConfig struct {
	Type    ConfigType
	Default string
	// check tells why a value of the right type is illegal, or "". Nil allows all.
	check func(value string) string
}

// TopicConfigFor gives a topic's configuration by name. The names are those of
// Kafka 3.9 (spec/admin-api.md §7.4), which has all that older releases have.
func TopicConfigFor(name string) (TopicConfig, bool) {
	c, ok := topicConfigs[name]
	return c, ok
}

// Check tells why a value is illegal, or "". Space around a value is allowed.
func (c TopicConfig) Check(value string) string {
	value = strings.TrimSpace(value)
	bad := false
	switch c.Type {
	case BooleanConfig:
		bad = !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false")
	case IntConfig:
		_, err := strconv.ParseInt(value, 10, 32)
		bad = err != nil
	case LongConfig:
		_, err := strconv.ParseInt(value, 10, 64)
		bad = err != nil
	case DoubleConfig:
		f, err := strconv.ParseFloat(value, 64)
		bad = err != nil || math.IsNaN(f)
	}
	if bad {
		return fmt.Sprintf("%q is no %s", value, c.Type)
	}
	if c.check == nil {
		return ""
	}
	return c.check(value)
}

// CheckTopicConfigs tells why a set of configurations is illegal, or "": an
// unknown name, an illegal value, or two that contradict each other.
func CheckTopicConfigs(set map[string]string) string {
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c, ok := topicConfigs[name]
		if !ok {
			return fmt.Sprintf("there is no topic configuration %q", name)
		}
		if why := c.Check(set[name]); why != "" {
			return fmt.Sprintf("configuration %s: %s", name, why)
		}
	}
	least, most := longOf(set, "min.compaction.lag.ms"), longOf(set, "max.compaction.lag.ms")
	if least > most {
		return fmt.Sprintf("min.compaction.lag.ms %d is larger than max.compaction.lag.ms %d", least, most)
	}
	return ""
}

// longOf gives a long that was checked, or its default.
func longOf(set map[string]string, name string) int64 {
	value, ok := set[name]
	if !ok {
		value = topicConfigs[name].Default
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	return n
}

// Items gives the members of a list value, without space around them. The empty
// value has none.
func (c TopicConfig) Items(value string) []string {
	if strings.TrimSpace(value) == "" {
		return nil
	}
	items := strings.Split(value, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

func atLeast(least int64) func(string) string { return between(least, math.MaxInt64) }

func between(least, most int64) func(string) string {
	return func(value string) string {
		n, _ := strconv.ParseInt(value, 10, 64)
		switch {
		case n < least:
			return fmt.Sprintf("%d is less than %d", n, least)
		case n > most:
			return fmt.Sprintf("%d is more than %d", n, most)
		}
		return ""
	}
}

func oneOf(words ...string) func(string) string {
	return func(value string) string {
		if slices.Contains(words, value) {
			return ""
		}
		return fmt.Sprintf("%q is none of %s", value, strings.Join(words, ", "))
	}
}

func gzipLevel(value string) string {
	if value == "-1" {
		return ""
	}
	return between(1, 9)(value)
}

func fraction(value string) string {
	if f, _ := strconv.ParseFloat(value, 64); f < 0 || f > 1 {
		return fmt.Sprintf("%s is not between 0 and 1", value)
	}
	return ""
}

func cleanupPolicy(value string) string {
	for _, item := range strings.Split(value, ",") {
		if why := oneOf("compact", "delete")(strings.TrimSpace(item)); why != "" {
			return why
		}
	}
	return ""
}

// throttledReplicas is * for all, or partition:broker pairs.
func throttledReplicas(value string) string {
	if value == "*" || value == "" {
		return ""
	}
	for _, item := range strings.Split(value, ",") {
		p, b, ok := strings.Cut(strings.TrimSpace(item), ":")
		_, errP := strconv.ParseUint(p, 10, 31)
		_, errB := strconv.ParseUint(b, 10, 31)
		if !ok || errP != nil || errB != nil {
			return fmt.Sprintf("%q is neither * nor partition:broker", item)
		}
	}
	return ""
}

func messageFormat(value string) string {
	if strings.HasPrefix(value, "0.8.") {
		return ""
	}
	if _, err := ParseProtocolVersion(value); err != nil {
		return fmt.Sprintf("%q is no release of Kafka", value)
	}
	return ""
}

const maxLong = "9223372036854775807"

var topicConfigs = map[string]TopicConfig{
	"cleanup.policy":                          {ListConfig, "delete", cleanupPolicy},
	"compression.gzip.level":                  {IntConfig, "-1", gzipLevel},
	"compression.lz4.level":                   {IntConfig, "9", between(1, 17)},
	"compression.type":                        {StringConfig, "producer", oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")},
	"compression.zstd.level":                  {IntConfig, "3", between(-131072, 22)},
	"delete.retention.ms":                     {LongConfig, "86400000", atLeast(0)},
	"file.delete.delay.ms":                    {LongConfig, "60000", atLeast(0)},
	"flush.messages":                          {LongConfig, maxLong, atLeast(1)},
	"flush.ms":                                {LongConfig, maxLong, atLeast(0)},
	"follower.replication.throttled.replicas": {ListConfig, "", throttledReplicas},
	"index.interval.bytes":                    {IntConfig, "4096", atLeast(0)},
	"leader.replication.throttled.replicas":   {ListConfig, "", throttledReplicas},
	"local.retention.bytes":                   {LongConfig, "-2", atLeast(-2)},
	"local.retention.ms":                      {LongConfig, "-2", atLeast(-2)},
	"max.compaction.lag.ms":                   {LongConfig, maxLong, atLeast(1)},
	"max.message.bytes":                       {IntConfig, "1048588", atLeast(0)},
	"message.downconversion.enable":           {BooleanConfig, "true", nil},
	"message.format.version":                  {StringConfig, "3.0-IV1", messageFormat},
	"message.timestamp.after.max.ms":          {LongConfig, maxLong, atLeast(0)},
	"message.timestamp.before.max.ms":         {LongConfig, maxLong, atLeast(0)},
	"message.timestamp.difference.max.ms":     {LongConfig, maxLong, atLeast(0)},
	"message.timestamp.type":                  {StringConfig, "CreateTime", oneOf("CreateTime", "LogAppendTime")},
	"min.cleanable.dirty.ratio":               {DoubleConfig, "0.5", fraction},
	"min.compaction.lag.ms":                   {LongConfig, "0", atLeast(0)},
	"min.insync.replicas":                     {IntConfig, "1", atLeast(1)},
	"preallocate":                             {BooleanConfig, "false", nil},
	"remote.log.copy.disable":                 {BooleanConfig, "false", nil},
	"remote.log.delete.on.disable":            {BooleanConfig, "false", nil},
	"remote.storage.enable":                   {BooleanConfig, "false", nil},
	"retention.bytes":                         {LongConfig, "-1", nil},
	"retention.ms":                            {LongConfig, "604800000", atLeast(-1)},
	"segment.bytes":                           {IntConfig, "1073741824", atLeast(14)},
	"segment.index.bytes":                     {IntConfig, "10485760", atLeast(4)},
	"segment.jitter.ms":                       {LongConfig, "0", atLeast(0)},
	"segment.ms":                              {LongConfig, "604800000", atLeast(1)},
	"unclean.leader.election.enable":          {BooleanConfig, "false", nil},
}
