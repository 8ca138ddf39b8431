package brokerport_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

const (
	ofTopic  = kmsg.ConfigResourceTypeTopic
	ofBroker = kmsg.ConfigResourceTypeBroker
)

// described asks for one resource.
func (s *site) describe(t *testing.T, version int16, kind kmsg.ConfigResourceType, name string, keys ...string) kmsg.DescribeConfigsResponseResource {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = version >= 1
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: keys}}
	got := ask[*kmsg.DescribeConfigsResponse](t, s.wire, req, version)
	if len(got.Resources) != 1 || got.Resources[0].ResourceName != name {
		t.Fatalf("%+v", got)
	}
	return got.Resources[0]
}

// Every key of a topic is shown with its value, and with where that is set.
func TestDescribeTopicConfigs(t *testing.T) {
	s := newSite(t, brokerport.Settings{"log.retention.hours": "2", "log.segment.bytes": "4096", "log.roll.jitter.ms": "5"}, "3.9")
	s.host(t, orders)
	s.put(t, "/config/topics/orders", `{"version":1,"config":{"cleanup.policy":"compact","segment.ms":"77"}}`)
	s.put(t, "/config/brokers/1", `{"version":1,"config":{"min.insync.replicas":"2","message.max.bytes":"5000"}}`)
	s.put(t, "/config/brokers/<default>", `{"version":1,"config":{"message.max.bytes":"6000","compression.type":"lz4"}}`)
	type row struct {
		Value    string
		Source   kmsg.ConfigSource
		Type     kmsg.ConfigType
		Synonyms []string
	}
	got := map[string]row{}
	r := s.describe(t, 4, ofTopic, "orders")
	for _, c := range r.Configs {
		x := row{Value: *c.Value, Source: c.Source, Type: c.ConfigType}
		for _, s := range c.ConfigSynonyms {
			x.Synonyms = append(x.Synonyms, s.Source.String()+" "+s.Name+"="+*s.Value)
		}
		got[c.Name] = x
	}
	if len(got) != 36 || r.ErrorCode != 0 {
		t.Errorf("%d keys, code %d", len(got), r.ErrorCode)
	}
	for name, want := range map[string]row{
		"cleanup.policy": {"compact", kmsg.ConfigSourceDynamicTopicConfig, kmsg.ConfigTypeList,
			[]string{"DYNAMIC_TOPIC_CONFIG cleanup.policy=compact", "DEFAULT_CONFIG log.cleanup.policy=delete"}},
		"min.insync.replicas": {"2", kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigTypeInt,
			[]string{"DYNAMIC_BROKER_CONFIG min.insync.replicas=2", "DEFAULT_CONFIG min.insync.replicas=1"}},
		"max.message.bytes": {"5000", kmsg.ConfigSourceDynamicBrokerConfig, kmsg.ConfigTypeInt,
			[]string{"DYNAMIC_BROKER_CONFIG message.max.bytes=5000", "DYNAMIC_DEFAULT_BROKER_CONFIG message.max.bytes=6000", "DEFAULT_CONFIG message.max.bytes=1048588"}},
		"compression.type": {"lz4", kmsg.ConfigSourceDynamicDefaultBrokerConfig, kmsg.ConfigTypeString,
			[]string{"DYNAMIC_DEFAULT_BROKER_CONFIG compression.type=lz4", "DEFAULT_CONFIG compression.type=producer"}},
		// A larger unit is not told of alone: so answered a broker of 3.9.1.
		"retention.ms": {"7200000", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeLong, nil},
		"segment.bytes": {"4096", kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeInt,
			[]string{"STATIC_BROKER_CONFIG log.segment.bytes=4096", "DEFAULT_CONFIG log.segment.bytes=1073741824"}},
		"segment.ms": {"77", kmsg.ConfigSourceDynamicTopicConfig, kmsg.ConfigTypeLong,
			[]string{"DYNAMIC_TOPIC_CONFIG segment.ms=77"}},
		"segment.jitter.ms": {"5", kmsg.ConfigSourceStaticBrokerConfig, kmsg.ConfigTypeLong,
			[]string{"STATIC_BROKER_CONFIG log.roll.jitter.ms=5", "DEFAULT_CONFIG log.roll.jitter.hours=0"}},
		"retention.bytes":                       {"-1", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeLong, []string{"DEFAULT_CONFIG log.retention.bytes=-1"}},
		"leader.replication.throttled.replicas": {"", kmsg.ConfigSourceDefaultConfig, kmsg.ConfigTypeList, nil},
	} {
		if d := cmp.Diff(want, got[name]); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for version := range int16(5) {
		few := s.describe(t, version, ofTopic, "orders", "segment.ms", "no.such.key")
		if len(few.Configs) != 1 || *few.Configs[0].Value != "77" || few.Configs[0].IsDefault {
			t.Errorf("version %d: %+v", version, few)
		}
	}
}

// Releases below 3.6 know fewer keys of topics.
func TestTopicConfigsOfOldRelease(t *testing.T) {
	s := newSite(t, nil, "2.8")
	s.host(t, orders)
	r := s.describe(t, 3, ofTopic, "orders")
	if len(r.Configs) != 26 {
		t.Errorf("%d keys", len(r.Configs))
	}
	if c := s.describe(t, 3, ofTopic, "orders", "message.format.version").Configs[0]; *c.Value != "2.8-IV1" {
		t.Errorf("format %s", *c.Value)
	}
	if code := s.alter(t, ofTopic, "orders", false, set("remote.storage.enable", "false")); code != kafka.InvalidConfig {
		t.Error(code)
	}
}

func TestDescribeBrokerConfigs(t *testing.T) {
	s := newSite(t, brokerport.Settings{"num.partitions": "4", "ssl.key.password": "secret", "num.io.threads": "9", "my.plug.in": "x"}, "3.9")
	s.host(t, orders)
	s.put(t, "/config/brokers/1", `{"version":1,"config":{"leader.replication.throttled.rate":"10"}}`)
	s.put(t, "/config/brokers/<default>", `{"version":1,"config":{"log.retention.ms":"9","plug.in":"x"}}`)
	got := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, c := range s.describe(t, 4, ofBroker, "1").Configs {
		got[c.Name] = c
	}
	for name, want := range map[string]struct {
		value     string
		source    kmsg.ConfigSource
		readOnly  bool
		sensitive bool
	}{
		"num.partitions":                    {"4", kmsg.ConfigSourceStaticBrokerConfig, true, false},
		"leader.replication.throttled.rate": {"10", kmsg.ConfigSourceDynamicBrokerConfig, false, false},
		"log.retention.ms":                  {"9", kmsg.ConfigSourceDynamicDefaultBrokerConfig, false, false},
		"default.replication.factor":        {"1", kmsg.ConfigSourceDefaultConfig, true, false},
		"broker.rack":                       {"-", kmsg.ConfigSourceDefaultConfig, true, false},
		"ssl.key.password":                  {"-", kmsg.ConfigSourceStaticBrokerConfig, true, true},
		"num.io.threads":                    {"9", kmsg.ConfigSourceStaticBrokerConfig, true, false},
		"my.plug.in":                        {"-", kmsg.ConfigSourceStaticBrokerConfig, true, true},
		"listeners":                         {"PLAINTEXT://:9092", kmsg.ConfigSourceDefaultConfig, false, false},
	} {
		c := got[name]
		value := "-"
		if c.Value != nil {
			value = *c.Value
		}
		if value != want.value || c.Source != want.source || c.ReadOnly != want.readOnly || c.IsSensitive != want.sensitive {
			t.Errorf("%s: %+v, value %s", name, c, value)
		}
		for _, x := range c.ConfigSynonyms {
			if want.sensitive && x.Value != nil {
				t.Errorf("%s: a secret is shown", name)
			}
		}
	}
	for _, name := range []string{"follower.replication.throttled.rate", "background.threads"} {
		if _, ok := got[name]; ok {
			t.Errorf("%s is shown, and is not set", name)
		}
	}
	var names []string
	for _, c := range s.describe(t, 4, ofBroker, "").Configs {
		if names = append(names, c.Name); c.Source != kmsg.ConfigSourceDynamicDefaultBrokerConfig {
			t.Errorf("%s: source %s", c.Name, c.Source)
		}
	}
	if d := cmp.Diff([]string{"log.retention.ms", "plug.in"}, names); d != "" {
		t.Error(d)
	}
	for _, bad := range []struct {
		kind kmsg.ConfigResourceType
		name string
		code kafka.ErrorCode
	}{{ofTopic, "none", kafka.UnknownTopicOrPartition}, {ofTopic, "a b", kafka.InvalidTopicException}, {ofBroker, "2", kafka.InvalidRequest},
		{ofBroker, "one", kafka.InvalidRequest}, {16, "x", kafka.InvalidRequest}, {99, "1", kafka.InvalidRequest}} {
		if r := s.describe(t, 4, bad.kind, bad.name); r.ErrorCode != int16(bad.code) || len(r.Configs) != 0 || r.ErrorMessage == nil {
			t.Errorf("%d %q: %+v", bad.kind, bad.name, r)
		}
	}
}

type op = kmsg.IncrementalAlterConfigsRequestResourceConfig

func set(name, value string) op {
	return op{Name: name, Op: kmsg.IncrementalAlterConfigOpSet, Value: &value}
}

func (s *site) alter(t *testing.T, kind kmsg.ConfigResourceType, name string, validateOnly bool, ops ...op) kafka.ErrorCode {
	t.Helper()
	var code kafka.ErrorCode
	for version := range int16(2) {
		if version == 0 && !validateOnly {
			continue
		}
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.ValidateOnly = validateOnly
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: ops}}
		got := ask[*kmsg.IncrementalAlterConfigsResponse](t, s.wire, req, version)
		if len(got.Resources) != 1 {
			t.Fatalf("%+v", got)
		}
		code = kafka.ErrorCode(got.Resources[0].ErrorCode)
	}
	return code
}

// TestAlterRefusals has the rows of spec/admin-api.md §7.2; nothing is written.
func TestAlterRefusals(t *testing.T) {
	s := newSite(t, nil, "3.9")
	s.host(t, orders)
	value := "x"
	for _, c := range []struct {
		what string
		kind kmsg.ConfigResourceType
		name string
		op   op
		code kafka.ErrorCode
	}{
		{"no topic", ofTopic, "none", set("segment.bytes", "100"), kafka.UnknownTopicOrPartition},
		{"empty name", ofTopic, "", set("segment.bytes", "100"), kafka.InvalidRequest},
		{"unknown key", ofTopic, "orders", set("no.such.key", "1"), kafka.InvalidConfig},
		{"unknown key deleted", ofTopic, "orders", op{Name: "no.such.key", Op: kmsg.IncrementalAlterConfigOpDelete}, kafka.NoError},
		{"unknown key appended", ofTopic, "orders", op{Name: "no.such.key", Op: kmsg.IncrementalAlterConfigOpAppend, Value: &value}, kafka.UnknownServerError},
		{"out of range", ofTopic, "orders", set("segment.bytes", "13"), kafka.InvalidConfig},
		{"no list", ofTopic, "orders", op{Name: "segment.bytes", Op: kmsg.IncrementalAlterConfigOpAppend, Value: &value}, kafka.InvalidConfig},
		{"null", ofTopic, "orders", op{Name: "segment.bytes"}, kafka.InvalidRequest},
		{"no such operation", ofTopic, "orders", op{Name: "segment.bytes", Op: 9, Value: &value}, kafka.UnknownServerError},
		{"no such operation", ofBroker, "1", op{Name: "message.max.bytes", Op: 9, Value: &value}, kafka.InvalidRequest},
		{"other broker", ofBroker, "2", set("message.max.bytes", "100"), kafka.InvalidRequest},
		{"no broker", ofBroker, "one", set("message.max.bytes", "100"), kafka.InvalidRequest},
		{"fixed key", ofBroker, "1", set("num.partitions", "2"), kafka.InvalidRequest},
		{"bad value", ofBroker, "1", set("message.max.bytes", "many"), kafka.InvalidRequest},
		{"bad list", ofBroker, "1", set("log.cleanup.policy", "burn"), kafka.InvalidRequest},
		{"ports", ofBroker, "1", set("advertised.listeners", "PLAINTEXT://h:1"), kafka.InvalidRequest},
		{"no effect here", ofBroker, "", set("num.io.threads", "4"), kafka.InvalidRequest},
		{"of a listener", ofBroker, "1", set("listener.name.x.ssl.keystore.location", "/k"), kafka.InvalidRequest},
		{"too few", ofBroker, "1", set("num.replica.fetchers", "0"), kafka.InvalidRequest},
		{"kept already, deleted", ofBroker, "1", op{Name: "num.io.threads", Op: kmsg.IncrementalAlterConfigOpDelete}, kafka.NoError},
		{"client metrics", 16, "m", set("interval.ms", "100"), kafka.InvalidRequest},
	} {
		if code := s.alter(t, c.kind, c.name, true, c.op); code != c.code {
			t.Errorf("%s, to be checked: %s", c.what, code)
		}
		if c.code == kafka.NoError {
			continue
		}
		if code := s.alter(t, c.kind, c.name, false, c.op); code != c.code {
			t.Errorf("%s: %s", c.what, code)
		}
	}
	if got := s.changes(t); len(got) > 0 || s.data(t, "/config/topics/orders") != "-" || s.data(t, "/config/brokers/1") != "-" {
		t.Errorf("something was written: %v", got)
	}
}

// A change is written and then announced, once each.
func TestAlterConfigs(t *testing.T) {
	s := newSite(t, nil, "3.9")
	s.host(t, orders)
	steps := []struct {
		kind kmsg.ConfigResourceType
		name string
		ops  []op
		path string
		want string
	}{
		{ofTopic, "orders", []op{set("segment.bytes", "100"), set("retention.ms", "5")}, "/config/topics/orders", `{"version":1,"config":{"retention.ms":"5","segment.bytes":"100"}}`},
		{ofTopic, "orders", []op{{Name: "retention.ms", Op: kmsg.IncrementalAlterConfigOpDelete}}, "/config/topics/orders", `{"version":1,"config":{"segment.bytes":"100"}}`},
		{ofTopic, "orders", []op{{Name: "cleanup.policy", Op: kmsg.IncrementalAlterConfigOpAppend, Value: kmsg.StringPtr("compact")}}, "/config/topics/orders",
			`{"version":1,"config":{"cleanup.policy":"delete,compact","segment.bytes":"100"}}`},
		{ofBroker, "1", []op{set("leader.replication.throttled.rate", "1000"), set("plug.in", "x")}, "/config/brokers/1",
			`{"version":1,"config":{"leader.replication.throttled.rate":"1000","plug.in":"x"}}`},
		{ofBroker, "", []op{set("message.max.bytes", "2000")}, "/config/brokers/<default>", `{"version":1,"config":{"message.max.bytes":"2000"}}`},
	}
	for _, c := range steps {
		if code := s.alter(t, c.kind, c.name, true, c.ops...); code != kafka.NoError {
			t.Errorf("%v, to be checked: %s", c.ops, code)
		}
		if code := s.alter(t, c.kind, c.name, false, c.ops...); code != kafka.NoError {
			t.Errorf("%v: %s", c.ops, code)
		}
		if d := cmp.Diff(c.want, s.data(t, c.path)); d != "" {
			t.Error(d)
		}
	}
	if d := cmp.Diff([]string{"topics/orders", "topics/orders", "topics/orders", "brokers/1", "brokers/<default>"}, s.changes(t)); d != "" {
		t.Error(d)
	}
	for version := range int16(3) { // the whole set
		req := kmsg.NewPtrAlterConfigsRequest()
		req.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: ofTopic, ResourceName: "orders",
			Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "segment.ms", Value: kmsg.StringPtr("9")}}},
			{ResourceType: ofBroker, ResourceName: "1"}, {ResourceType: ofBroker, ResourceName: "2"}}
		got := ask[*kmsg.AlterConfigsResponse](t, s.wire, req, version)
		if r := got.Resources; len(r) != 3 || r[0].ErrorCode != 0 || r[1].ErrorCode != 0 || r[2].ErrorCode != int16(kafka.InvalidRequest) {
			t.Errorf("version %d: %+v", version, got)
		}
	}
	if got := s.data(t, "/config/topics/orders") + s.data(t, "/config/brokers/1"); got != `{"version":1,"config":{"segment.ms":"9"}}{"version":1,"config":{}}` {
		t.Error(got)
	}
}

// A topic of the metadata cache that is gone from ZooKeeper is not configured.
func TestAlterVanishedTopic(t *testing.T) {
	s := newSite(t, nil, "3.9")
	s.host(t, orders)
	if _, err := s.store.Write(t.Context(), zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Delete, Path: zkpaths.TopicPath("orders"), Version: zkpaths.AnyVersion}}); err != nil {
		t.Fatal(err)
	}
	if code := s.alter(t, ofTopic, "orders", false, set("segment.ms", "9")); code != kafka.UnknownTopicOrPartition {
		t.Error(code)
	}
	if got := s.data(t, "/config/topics/orders"); got != "-" {
		t.Error(got)
	}
}

// An admin client changes a topic and reads it back.
func TestKadmConfigs(t *testing.T) {
	s := newSite(t, nil, "3.9")
	s.host(t, orders)
	cl := admin(t, s)
	done, err := cl.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: kmsg.StringPtr("2")}}, "orders")
	if err != nil || done[0].Err != nil {
		t.Fatal(err, done)
	}
	got, err := cl.DescribeTopicConfigs(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range got[0].Configs {
		if c.Key == "min.insync.replicas" && (c.MaybeValue() != "2" || c.Source != kmsg.ConfigSourceDynamicTopicConfig) {
			t.Errorf("%+v", c)
		}
	}
	if brokers, err := cl.DescribeBrokerConfigs(t.Context(), 1); err != nil || brokers[0].Err != nil || len(brokers[0].Configs) < 50 {
		t.Error(err, brokers)
	}
}
