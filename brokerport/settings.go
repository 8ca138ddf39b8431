package brokerport

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Settings are a broker's static configuration: what server.properties gives,
// under Kafka's keys. What is missing has Kafka's default.
type Settings map[string]string

// setting is what is known about one configuration of brokers.
type setting struct {
	kind     kmsg.ConfigType
	def      string
	null     bool  // there is no default
	least    int64 // of numbers
	dynamic  bool  // can be changed at run time
	volatile bool  // is set at run time alone, as throttles are
	idle     bool  // means nothing here: it is shown where it is set
	fixed    bool  // is no more read-only than in Kafka, which could change it at run time; that is refused here
}

// brokerSettings are the configurations of brokers: those that are acted on here,
// or shown, or inherited by topics, and the idle ones (spec/admin-api.md §7.2,
// §7.4). The table never changes.
var brokerSettings = sync.OnceValue(func() map[string]setting {
	static := func(kind kmsg.ConfigType, def string, least int64) setting {
		return setting{kind: kind, def: def, least: least}
	}
	none := func(kind kmsg.ConfigType) setting { return setting{kind: kind, null: true, least: math.MinInt64} }
	throttle := setting{kind: kmsg.ConfigTypeLong, def: strconv.FormatInt(math.MaxInt64, 10), dynamic: true, volatile: true}
	const (
		boolean = kmsg.ConfigTypeBoolean
		text    = kmsg.ConfigTypeString
		integer = kmsg.ConfigTypeInt
		short   = kmsg.ConfigTypeShort
		long    = kmsg.ConfigTypeLong
		list    = kmsg.ConfigTypeList
	)
	table := idleSettings()
	maps.Copy(table, map[string]setting{
		"advertised.listeners":                           {kind: text, null: true, least: math.MinInt64, fixed: true},
		"auto.create.topics.enable":                      static(boolean, "true", 0),
		"auto.leader.rebalance.enable":                   static(boolean, "true", 0),
		"broker.id":                                      static(integer, "-1", -1),
		"broker.rack":                                    none(text),
		"control.plane.listener.name":                    none(text),
		"controlled.shutdown.enable":                     static(boolean, "true", 0),
		"controlled.shutdown.max.retries":                static(integer, "3", 0),
		"controlled.shutdown.retry.backoff.ms":           static(long, "5000", 0),
		"default.replication.factor":                     static(integer, "1", 1),
		"delete.topic.enable":                            static(boolean, "true", 0),
		"fetch.max.bytes":                                static(integer, "57671680", 1024),
		"group.initial.rebalance.delay.ms":               static(integer, "3000", 0),
		"group.max.session.timeout.ms":                   static(integer, "1800000", 0),
		"group.max.size":                                 static(integer, "2147483647", 1),
		"group.min.session.timeout.ms":                   static(integer, "6000", 0),
		"inter.broker.listener.name":                     none(text),
		"inter.broker.protocol.version":                  static(text, "3.9-IV0", 0),
		"leader.imbalance.check.interval.seconds":        static(long, "300", 1),
		"leader.imbalance.per.broker.percentage":         static(integer, "10", 0),
		"listener.security.protocol.map":                 {kind: text, def: "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT", fixed: true},
		"listeners":                                      {kind: text, def: "PLAINTEXT://:9092", fixed: true},
		"log.dir":                                        static(text, "/tmp/kafka-logs", 0),
		"log.dirs":                                       none(text),
		"log.retention.check.interval.ms":                static(long, "300000", 1),
		"log.retention.hours":                            static(integer, "168", math.MinInt32),
		"log.retention.minutes":                          none(integer),
		"log.roll.hours":                                 static(integer, "168", 1),
		"log.roll.jitter.hours":                          static(integer, "0", 0),
		"max.incremental.fetch.session.cache.slots":      static(integer, "1000", 0),
		"num.partitions":                                 static(integer, "1", 1),
		"num.replica.fetchers":                           {kind: integer, def: "1", least: 1, dynamic: true},
		"offset.metadata.max.bytes":                      static(integer, "4096", 0),
		"offsets.commit.timeout.ms":                      static(integer, "5000", 1),
		"offsets.retention.check.interval.ms":            static(long, "600000", 1),
		"offsets.retention.minutes":                      static(integer, "10080", 1),
		"offsets.topic.num.partitions":                   static(integer, "50", 1),
		"offsets.topic.replication.factor":               static(short, "3", 1),
		"offsets.topic.segment.bytes":                    static(integer, "104857600", 1),
		"producer.id.expiration.ms":                      {kind: integer, def: "86400000", least: 1, dynamic: true},
		"replica.fetch.backoff.ms":                       static(integer, "1000", 0),
		"replica.fetch.max.bytes":                        static(integer, "1048576", 0),
		"replica.fetch.min.bytes":                        static(integer, "1", math.MinInt32),
		"replica.fetch.response.max.bytes":               static(integer, "10485760", 0),
		"replica.fetch.wait.max.ms":                      static(integer, "500", math.MinInt32),
		"replica.high.watermark.checkpoint.interval.ms":  static(long, "5000", math.MinInt64),
		"replica.lag.time.max.ms":                        static(long, "30000", math.MinInt64),
		"socket.request.max.bytes":                       static(integer, "104857600", 1),
		"zookeeper.connect":                              none(text),
		"zookeeper.connection.timeout.ms":                none(integer),
		"zookeeper.session.timeout.ms":                   static(integer, "18000", math.MinInt32),
		"zookeeper.set.acl":                              static(boolean, "false", 0),
		"leader.replication.throttled.rate":              throttle,
		"follower.replication.throttled.rate":            throttle,
		"replica.alter.log.dirs.io.max.bytes.per.second": throttle,
		"queued.max.request.bytes":                       static(long, "-1", -1),
		"message.max.bytes":                              {kind: integer, def: "1048588", dynamic: true},
		"min.insync.replicas":                            {kind: integer, def: "1", least: 1, dynamic: true},
		"unclean.leader.election.enable":                 {kind: boolean, def: "false", dynamic: true},
		"compression.type":                               {kind: text, def: "producer", dynamic: true},
		"log.cleanup.policy":                             {kind: list, def: "delete", dynamic: true},
		"log.retention.ms":                               {kind: long, null: true, least: math.MinInt64, dynamic: true},
		"log.roll.ms":                                    {kind: long, null: true, least: math.MinInt64, dynamic: true},
		"log.roll.jitter.ms":                             {kind: long, null: true, least: math.MinInt64, dynamic: true},
		"log.message.format.version":                     static(text, "3.0-IV1", 0),
		"log.flush.interval.ms":                          {kind: long, null: true, least: 0, dynamic: true},
		"log.segment.bytes":                              {kind: integer, def: "1073741824", least: 14, dynamic: true},
		"log.retention.bytes":                            {kind: long, def: "-1", least: math.MinInt64, dynamic: true},
		"log.index.size.max.bytes":                       {kind: integer, def: "10485760", least: 4, dynamic: true},
		"log.index.interval.bytes":                       {kind: integer, def: "4096", dynamic: true},
	})
	// What topics inherit and is not above has their type and default, and can be
	// changed at run time.
	for topicKey, key := range inherited() {
		if _, ok := table[key]; !ok {
			c, _ := kafka.TopicConfigFor(topicKey)
			table[key] = setting{kind: kmsg.ConfigType(c.Type), def: c.Default, least: math.MinInt64, dynamic: true}
		}
	}
	return table
})

// inherited gives, for each configuration of topics, the brokers' that it takes
// its value from where a topic sets none (spec/admin-api.md §7.4).
func inherited() map[string]string {
	return map[string]string{
		"cleanup.policy":                      "log.cleanup.policy",
		"compression.gzip.level":              "compression.gzip.level",
		"compression.lz4.level":               "compression.lz4.level",
		"compression.type":                    "compression.type",
		"compression.zstd.level":              "compression.zstd.level",
		"delete.retention.ms":                 "log.cleaner.delete.retention.ms",
		"file.delete.delay.ms":                "log.segment.delete.delay.ms",
		"flush.messages":                      "log.flush.interval.messages",
		"flush.ms":                            "log.flush.interval.ms",
		"index.interval.bytes":                "log.index.interval.bytes",
		"local.retention.bytes":               "log.local.retention.bytes",
		"local.retention.ms":                  "log.local.retention.ms",
		"max.compaction.lag.ms":               "log.cleaner.max.compaction.lag.ms",
		"max.message.bytes":                   "message.max.bytes",
		"message.downconversion.enable":       "log.message.downconversion.enable",
		"message.format.version":              "log.message.format.version",
		"message.timestamp.after.max.ms":      "log.message.timestamp.after.max.ms",
		"message.timestamp.before.max.ms":     "log.message.timestamp.before.max.ms",
		"message.timestamp.difference.max.ms": "log.message.timestamp.difference.max.ms",
		"message.timestamp.type":              "log.message.timestamp.type",
		"min.cleanable.dirty.ratio":           "log.cleaner.min.cleanable.ratio",
		"min.compaction.lag.ms":               "log.cleaner.min.compaction.lag.ms",
		"min.insync.replicas":                 "min.insync.replicas",
		"preallocate":                         "log.preallocate",
		"retention.bytes":                     "log.retention.bytes",
		"retention.ms":                        "log.retention.ms",
		"segment.bytes":                       "log.segment.bytes",
		"segment.index.bytes":                 "log.index.size.max.bytes",
		"segment.jitter.ms":                   "log.roll.jitter.ms",
		"segment.ms":                          "log.roll.ms",
		"unclean.leader.election.enable":      "unclean.leader.election.enable",
	}
}

// coarser gives the settings in larger units that stand for one in milliseconds
// where that is not set.
var coarser = map[string][]struct {
	name string
	ms   int64
}{
	"log.retention.ms":   {{"log.retention.minutes", 60_000}, {"log.retention.hours", 3_600_000}},
	"log.roll.ms":        {{"log.roll.hours", 3_600_000}},
	"log.roll.jitter.ms": {{"log.roll.jitter.hours", 3_600_000}},
}

// check tells why a value is illegal, or "".
func (s setting) check(value string) string {
	value = strings.TrimSpace(value)
	bits := 64
	switch s.kind {
	case kmsg.ConfigTypeBoolean:
		if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return fmt.Sprintf("%q is neither true nor false", value)
		}
		return ""
	case kmsg.ConfigTypeDouble:
		if _, err := strconv.ParseFloat(value, 64); err != nil {
			return fmt.Sprintf("%q is no number", value)
		}
		return ""
	case kmsg.ConfigTypeShort:
		bits = 16
	case kmsg.ConfigTypeInt:
		bits = 32
	case kmsg.ConfigTypeLong:
	default:
		return ""
	}
	n, err := strconv.ParseInt(value, 10, bits)
	switch {
	case err != nil:
		return fmt.Sprintf("%q is no whole number of %d bits", value, bits)
	case n < s.least:
		return fmt.Sprintf("%d is less than %d", n, s.least)
	}
	return ""
}

// Known tells whether a broker acts on a configuration, or shows it because it does.
func Known(key string) bool {
	known, ok := brokerSettings()[key]
	return ok && !known.idle
}

// Check says which of the settings has an illegal value. Keys that are not
// known here are somebody else's.
func (s Settings) Check() error {
	table := brokerSettings()
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if known, ok := table[key]; ok && !known.idle {
			if why := known.check(s[key]); why != "" {
				return fmt.Errorf("%s: %s; correct it in the broker's configuration", key, why)
			}
		}
	}
	return s.checkInherited()
}

// checkInherited refuses what topics would inherit and could not be set to.
func (s Settings) checkInherited() error {
	keys, set := inherited(), s.TopicDefaults()
	for _, topicKey := range slices.Sorted(maps.Keys(set)) {
		value := set[topicKey]
		if topicKey == "retention.ms" && strings.HasPrefix(value, "-") {
			continue // any negative one is no bound here
		}
		if c, ok := kafka.TopicConfigFor(topicKey); ok {
			if why := c.Check(value); why != "" {
				return fmt.Errorf("%s: %s; correct it in the broker's configuration", keys[topicKey], why)
			}
		}
	}
	return nil
}

// text gives a setting, or its default.
func (s Settings) text(key string) string {
	if v, ok := s[key]; ok {
		return strings.TrimSpace(v)
	}
	return brokerSettings()[key].def
}

// number gives a setting that Check has passed.
func (s Settings) number(key string) int64 {
	n, _ := strconv.ParseInt(s.text(key), 10, 64)
	return n
}

func (s Settings) bool(key string) bool { return strings.EqualFold(s.text(key), "true") }

// ProduceBytes bounds the Produce requests that are not answered yet:
// queued.max.request.bytes, which bounds all requests in Kafka, or 256 MiB.
func (s Settings) ProduceBytes() int64 {
	if n := s.number("queued.max.request.bytes"); n > 0 {
		return n
	}
	return 256 << 20
}

// milliseconds gives a setting of that unit.
func (s Settings) milliseconds(key string) time.Duration {
	return time.Duration(min(s.number(key), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// Groups is how the settings have consumer groups coordinated. MemberID and what
// tells of partitions is left open.
func (s Settings) Groups() groups.Options {
	o := groups.DefaultOptions()
	o.MinSessionTimeout, o.MaxSessionTimeout = s.milliseconds("group.min.session.timeout.ms"), s.milliseconds("group.max.session.timeout.ms")
	o.MaxSize = int(s.number("group.max.size"))
	o.InitialRebalanceDelay = s.milliseconds("group.initial.rebalance.delay.ms")
	o.OffsetsRetention = time.Duration(s.number("offsets.retention.minutes")) * time.Minute
	o.RetentionCheck, o.CommitTimeout = s.milliseconds("offsets.retention.check.interval.ms"), s.milliseconds("offsets.commit.timeout.ms")
	o.MaxOffsetMetadata = int(s.number("offset.metadata.max.bytes"))
	return o
}

// Logs is how the settings have records kept and copied.
func (s Settings) Logs() brokers.LogOptions {
	o := brokers.LogOptions{
		Topic: s.Topic(), Fetchers: int(s.number("num.replica.fetchers")), FetchMinBytes: int(s.number("replica.fetch.min.bytes")),
		FetchMaxBytes: int(s.number("replica.fetch.response.max.bytes")), FetchPartitionBytes: int(s.number("replica.fetch.max.bytes")),
		FetchBackoff: s.milliseconds("replica.fetch.backoff.ms"), Checkpoint: s.milliseconds("replica.high.watermark.checkpoint.interval.ms"),
		RetentionCheck: s.milliseconds("log.retention.check.interval.ms"),
	}
	for _, dir := range strings.Split(s.text("log.dirs"), ",") {
		if dir = strings.TrimSpace(dir); dir != "" {
			o.Dirs = append(o.Dirs, dir)
		}
	}
	if dir, ok := s["log.dir"]; ok && len(o.Dirs) == 0 {
		o.Dirs = []string{strings.TrimSpace(dir)}
	}
	return o
}

// Topic is what the settings say of topics that set nothing themselves.
func (s Settings) Topic() brokers.TopicConfig {
	set := s.TopicDefaults()
	set["producer.id.expiration.ms"] = s.text("producer.id.expiration.ms")
	return brokers.DefaultTopicConfig().With(set)
}

// Over gives the settings with what was changed at run time: for all brokers, and
// for this one, which is the stronger. Where nothing may be changed so, or not to
// that, the settings stand.
func (s Settings) Over(all, own map[string]string) Settings {
	out, table := maps.Clone(s), brokerSettings()
	if out == nil {
		out = Settings{}
	}
	for _, set := range []map[string]string{all, own} {
		for key, value := range set {
			if known := table[key]; known.dynamic && !known.idle && known.check(value) == "" {
				out[key] = value
			}
		}
	}
	return out
}

// TopicDefaults gives the configurations of topics, under their own names, that
// the settings give them: only those that are set.
func (s Settings) TopicDefaults() map[string]string {
	out := map[string]string{}
	for topicKey, key := range inherited() {
		if v, ok := s.inMilliseconds(key); ok {
			out[topicKey] = v
		}
	}
	return out
}

// inMilliseconds gives a setting, also where it is set in a larger unit.
func (s Settings) inMilliseconds(key string) (string, bool) {
	if v, ok := s[key]; ok {
		return strings.TrimSpace(v), true
	}
	for _, c := range coarser[key] {
		if v, ok := s[c.name]; ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil {
				return "", false
			}
			if n > 0 {
				n *= c.ms
			}
			return strconv.FormatInt(n, 10), true
		}
	}
	return "", false
}
