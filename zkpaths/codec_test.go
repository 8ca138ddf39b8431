package zkpaths_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

var orders0 = kafka.TopicPartition{Topic: "orders", Partition: 0}

// codec decodes and encodes one kind of payload, whatever its Go type is.
type codec struct {
	name   string
	decode func(data []byte) (any, error)
	encode func(v any) []byte
}

// of makes a codec of two functions.
func of[T any](name string, decode func([]byte) (T, error), encode func(T) []byte) codec {
	return codec{name, func(b []byte) (any, error) { v, err := decode(b); return v, err }, func(v any) []byte { return encode(v.(T)) }}
}

// optional is a producer block that may be missing.
type optional struct {
	zkpaths.ProducerBlock
	OK bool
}

// codecs has every payload of the package.
var codecs = []codec{
	of("controller", zkpaths.DecodeController, zkpaths.EncodeController),
	of("controller_epoch", zkpaths.DecodeEpoch, zkpaths.EncodeEpoch),
	of("broker", func(b []byte) (zkpaths.Registration, error) { return zkpaths.DecodeBroker(1, b) }, zkpaths.EncodeBroker),
	of("topic", func(b []byte) (zkpaths.Topic, error) { return zkpaths.DecodeTopic("orders", b) }, zkpaths.EncodeTopic),
	of("state", func(b []byte) (kafka.Leadership, error) { return zkpaths.DecodePartitionState(orders0, b, 5) }, zkpaths.EncodePartitionState),
	of("reassign_strict", func(b []byte) ([]zkpaths.Reassignment, error) { return zkpaths.DecodeReassignments(b, true) }, zkpaths.EncodeReassignments),
	of("reassign_lenient", func(b []byte) ([]zkpaths.Reassignment, error) { return zkpaths.DecodeReassignments(b, false) }, zkpaths.EncodeReassignments),
	of("preferred", zkpaths.DecodePreferredElection, zkpaths.EncodePreferredElection),
	of("isr", func(b []byte) ([]kafka.TopicPartition, error) { return zkpaths.DecodeISRNotification("/isr", b) }, zkpaths.EncodeISRNotification),
	of("log_dir", func(b []byte) (zkpaths.LogDirEvent, error) { return zkpaths.DecodeLogDirEvent("/log_dir", b) }, zkpaths.EncodeLogDirEvent),
	of("config", func(b []byte) (map[string]string, error) { return zkpaths.DecodeConfig("/config/topics/orders", b) }, zkpaths.EncodeConfig),
	of("config_change", func(b []byte) (zkpaths.ConfigChange, error) {
		return zkpaths.DecodeConfigChange("/config/changes/x", b)
	}, zkpaths.EncodeConfigChange),
	of("cluster_id", zkpaths.DecodeClusterID, zkpaths.EncodeClusterID),
	of("producer_block", func(b []byte) (optional, error) {
		p, ok, err := zkpaths.DecodeProducerBlock(b)
		return optional{p, ok}, err
	}, func(o optional) []byte {
		if !o.OK {
			return nil
		}
		return zkpaths.EncodeProducerBlock(o.ProducerBlock)
	}),
	of("features", zkpaths.DecodeFeatures, zkpaths.EncodeFeatures),
	of("migration", zkpaths.DecodeMigration, zkpaths.EncodeMigration),
	of("consumer_offset", func(b []byte) (int64, error) { return zkpaths.DecodeConsumerOffset("/consumers/g", b) }, zkpaths.EncodeConsumerOffset),
	of("acls", func(b []byte) ([]zkpaths.ACLEntry, error) { return zkpaths.DecodeACLs("/kafka-acl/Topic/t", b) }, zkpaths.EncodeACLs),
}

// equal compares payloads. The host and port of a registration are not
// compared: they are made anew from the endpoints when it is written.
func equal(a, b any) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(zkpaths.Registration{}, "Host", "HasHost", "Port"))
}

// written forgets what the written form has no place for.
func written(v any) any {
	switch v := v.(type) {
	case zkpaths.Registration:
		v.Version = min(v.Version, 5)
		if v.Version < 5 {
			v.Features = nil
		}
		if v.Version < 3 {
			v.Rack, v.HasRack = "", false
		}
		return v
	case zkpaths.Topic:
		if v.Version < 1 || v.Version > 3 {
			v.Version = 3
		}
		if v.Version < 3 {
			v.ID = kafka.TopicID{}
		}
		if v.Version < 2 {
			v.Partitions = append([]zkpaths.PartitionAssignment(nil), v.Partitions...)
			for i := range v.Partitions {
				v.Partitions[i].Adding, v.Partitions[i].Removing = nil, nil
			}
		}
		return v
	case zkpaths.ControllerNode:
		if v.Version != 1 {
			v.Version = 2
		} else {
			v.KRaftEpoch = zkpaths.NoKRaftEpoch
		}
		return v
	}
	return v
}

// check is the law of every codec: any bytes give a value or a *PayloadError;
// a value that is written and read again is the same, and written again gives
// the same bytes.
func check(t interface{ Fatalf(string, ...any) }, c codec, data []byte) {
	v, err := c.decode(data)
	if err != nil {
		var p *zkpaths.PayloadError
		if !errors.As(err, &p) || p.Path == "" || p.Reason == "" || p.Remedy == "" {
			t.Fatalf("%s: %q gives %#v, which is no full PayloadError", c.name, data, err)
		}
		return
	}
	encoded := c.encode(v)
	if r, ok := v.(zkpaths.Registration); ok && (r.Version == 2 || r.Version == 3) {
		return // the protocol of a renamed listener has no place in these; TestBrokerVersions has them
	}
	again, err := c.decode(encoded)
	if err != nil {
		t.Fatalf("%s: %q was read, but not what it was written as, %q: %v", c.name, data, encoded, err)
	}
	if diff := equal(written(v), again); diff != "" {
		t.Fatalf("%s: %q -> %q changed (-read +read again):\n%s", c.name, data, encoded, diff)
	}
	if third := c.encode(again); string(third) != string(encoded) {
		t.Fatalf("%s: written as %q, then as %q", c.name, encoded, third)
	}
}

var examples = []struct {
	codec string
	data  string
	want  any
}{
	{"controller", `{"version":2,"brokerid":0,"timestamp":"1690000000000","kraftControllerEpoch":-1}`,
		zkpaths.ControllerNode{Version: 2, Timestamp: 1690000000000, KRaftEpoch: -1}},
	{"controller", `{"version":1,"brokerid":7,"timestamp":"1690000000000"}`,
		zkpaths.ControllerNode{Version: 1, Broker: 7, Timestamp: 1690000000000, KRaftEpoch: -1}},
	{"controller", `{"version":2,"brokerid":3000,"timestamp":"1690000000000","kraftControllerEpoch":4}`,
		zkpaths.ControllerNode{Version: 2, Broker: 3000, Timestamp: 1690000000000, KRaftEpoch: 4}},
	{"controller_epoch", `1`, int32(1)},
	{"broker", `{"version":5,"host":"h1","port":9092,"endpoints":["PLAINTEXT://h1:9092"],"jmx_port":-1,"timestamp":"1690000000000","rack":"r1","listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{}}`,
		zkpaths.Registration{Broker: kafka.Broker{ID: 1, Rack: "r1", HasRack: true, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h1", Port: 9092}}},
			Version: 5, Host: "h1", HasHost: true, Port: 9092, JMXPort: -1, Timestamp: 1690000000000}},
	{"topic", `{"version":1,"partitions":{"0":[1,2,3],"1":[2,3,1]}}`,
		zkpaths.Topic{Version: 1, Partitions: []zkpaths.PartitionAssignment{replicas(0, 1, 2, 3), replicas(1, 2, 3, 1)}}},
	{"topic", `{"version":2,"partitions":{"0":[4,5,6,1,2,3]},"adding_replicas":{"0":[4,5,6]},"removing_replicas":{"0":[1,2,3]}}`,
		zkpaths.Topic{Version: 2, Partitions: []zkpaths.PartitionAssignment{{Partition: 0, ReplicaAssignment: kafka.ReplicaAssignment{
			Replicas: ids(4, 5, 6, 1, 2, 3), Adding: ids(4, 5, 6), Removing: ids(1, 2, 3)}}}}},
	{"topic", `{"version":3,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{},"topic_id":"q3nZk0V9TyWc1xE5oRr8tg"}`,
		zkpaths.Topic{Version: 3, ID: topicID("q3nZk0V9TyWc1xE5oRr8tg"), Partitions: []zkpaths.PartitionAssignment{replicas(0, 1)}}},
	{"state", `{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1,2,3]}`, state(1, 0, 1, 0, 1, 2, 3)},
	{"state", `{"version":1,"leader":-1,"leader_epoch":9,"controller_epoch":1,"isr":[1],"leader_recovery_state":1}`, state(-1, 9, 1, 1, 1)},
	{"state", `{"version":1,"leader":-1,"leader_epoch":2147483646,"controller_epoch":2147483647,"isr":[]}`, state(-1, 2147483646, 2147483647, 0)},
	{"reassign_strict", `{"version":1,"partitions":[{"topic":"foo","partition":0,"replicas":[1,2,3]}]}`,
		[]zkpaths.Reassignment{{Partition: kafka.TopicPartition{Topic: "foo"}, Replicas: ids(1, 2, 3)}}},
	{"reassign_strict", `{"version":1,"partitions":[]}`, []zkpaths.Reassignment{}},
	{"preferred", `{"version":1,"partitions":[{"topic":"foo","partition":1},{"topic":"foo","partition":2}]}`,
		[]kafka.TopicPartition{{Topic: "foo", Partition: 1}, {Topic: "foo", Partition: 2}}},
	{"isr", `{"version":1,"partitions":[{"topic":"t","partition":0}]}`, []kafka.TopicPartition{{Topic: "t"}}},
	{"log_dir", `{"version":1,"broker":1,"event":1}`, zkpaths.LogDirEvent{Broker: 1, Event: zkpaths.LogDirFailure}},
	{"config", `{"version":1,"config":{"unclean.leader.election.enable":"true"}}`, map[string]string{"unclean.leader.election.enable": "true"}},
	{"config_change", `{"version":2,"entity_path":"topics/foo"}`, zkpaths.ConfigChange{EntityPath: "topics/foo"}},
	{"cluster_id", `{"version":"1","id":"Mk3OEYBSD34fcwNTJENDM2"}`, "Mk3OEYBSD34fcwNTJENDM2"},
	{"producer_block", `{"version":1,"broker":0,"block_start":"0","block_end":"999"}`, optional{zkpaths.ProducerBlock{End: 999}, true}},
	{"features", `{"version":1,"status":1,"features":{"f":{"max_version_level":3,"min_version_level":3}}}`,
		zkpaths.Features{Version: 1, Status: 1, Features: map[string]kafka.VersionRange{"f": {Min: 3, Max: 3}}}},
	{"features", `{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}`,
		zkpaths.Features{Version: 2, Status: 1, Features: map[string]kafka.VersionRange{"f": {Min: 3, Max: 3}}}},
	{"migration", `{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":1,"kraft_metadata_offset":0,"kraft_metadata_epoch":1}`,
		zkpaths.MigrationState{KRaftController: 3000, KRaftEpoch: 1, MetadataEpoch: 1}},
	{"consumer_offset", `-12`, int64(-12)},
	{"acls", `{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":"Read","host":"*"}]}`,
		[]zkpaths.ACLEntry{{Principal: "User:a", PermissionType: "Allow", Operation: "Read", Host: "*"}}},
}

// TestExamples: the examples of spec/controller.md §1 are read and written back
// byte by byte: they fix the key order.
func TestExamples(t *testing.T) {
	for _, e := range examples {
		c := find(t, e.codec)
		got, err := c.decode([]byte(e.data))
		if err != nil {
			t.Errorf("%s %s: %v", e.codec, e.data, err)
			continue
		}
		if diff := cmp.Diff(e.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", e.codec, e.data, diff)
		}
		if back := string(c.encode(got)); back != e.data {
			t.Errorf("%s: read %s, wrote %s", e.codec, e.data, back)
		}
		check(t, c, []byte(e.data))
	}
}

func find(t *testing.T, name string) codec {
	t.Helper()
	for _, c := range codecs {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("no codec %q", name)
	return codec{}
}

func ids(n ...kafka.BrokerID) []kafka.BrokerID { return n }

func replicas(partition int32, n ...kafka.BrokerID) zkpaths.PartitionAssignment {
	return zkpaths.PartitionAssignment{Partition: partition, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: n}}
}

// state has the zkVersion 5 that the codec of states reads with.
func state(leader kafka.BrokerID, epoch, controller int32, recovery kafka.LeaderRecoveryState, isr ...kafka.BrokerID) kafka.Leadership {
	return kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: leader, LeaderEpoch: epoch, ISR: isr, Recovery: recovery, ZKVersion: 5}, ControllerEpoch: controller}
}

func topicID(s string) kafka.TopicID {
	id, err := kafka.ParseTopicID(s)
	if err != nil {
		panic(err)
	}
	return id
}

var tolerated = []struct {
	codec, data string
	same        string // as this
}{
	{"controller", ` 7 `, `{"version":0,"brokerid":7,"timestamp":"0"}`},
	{"controller", `{"brokerid":7,"extra":[]}`, `{"version":0,"brokerid":7,"timestamp":"0","kraftControllerEpoch":-1}`},
	{"controller_epoch", "12\n", "12"},
	{"topic", `{}`, `{"version":0,"partitions":{}}`},
	{"topic", `{"version":"x","partitions":{}}`, `{"version":0,"partitions":{}}`},
	{"topic", "\n{ \"partitions\" : { \"1\" : [ 2 , 1 ] , \"0\":[ ] } , \"version\" : 2 }\t", `{"version":2,"partitions":{"0":[],"1":[2,1]},"adding_replicas":{},"removing_replicas":{}}`},
	{"topic", `{"removing_replicas":{"1":[3]},"adding_replicas":{"1":[2],"9":[4]},"partitions":{"1":[2,3],"0":[1]},"version":3}`,
		`{"version":3,"partitions":{"0":[1],"1":[2,3]},"adding_replicas":{"1":[2]},"removing_replicas":{"1":[3]}}`},
	{"topic", zeroID, `{"version":3,"partitions":{"0":[1]}}`},
	{"topic", `{"version":3,"partitions":{"0":[1]},"topic_id":"q3nZk0V9TyWc1xE5oRr8tg=="}`, `{"version":3,"partitions":{"0":[1]},"topic_id":"q3nZk0V9TyWc1xE5oRr8tg"}`},
	{"topic", `{"version":3,"new":{"a":[1,{"b":null}]},"partitions":{"0":[1]}}`, `{"version":3,"partitions":{"0":[1]}}`},
	{"topic", `{"version":3,"partitions":{"0":[9]},"partitions":{"0":[1]}}`, `{"version":3,"partitions":{"0":[1]}}`},
	{"topic", `{"version":3,"partitions":{"0":[1]}} and more`, `{"version":3,"partitions":{"0":[1]}}`},
	{"topic", `{"version":3,"\u0070artitions":{"0":[1]}}`, `{"version":3,"partitions":{"0":[1]}}`},
	{"topic", `{"version":3,"Partitions":{"0":[1]}}`, `{"version":3,"partitions":{}}`},
	{"state", `{"isr":[1,2],"leader_epoch":3,"version":1,"leader":1,"controller_epoch":4,"future":{"x":1.5}}`, `{"leader":1,"leader_epoch":3,"controller_epoch":4,"isr":[1,2]}`},
	{"state", `{"leader":1,"leader":2,"leader_epoch":3,"controller_epoch":4,"isr":[1],"isr":[2]}`, `{"leader":2,"leader_epoch":3,"controller_epoch":4,"isr":[2]}`},
	{"state", `{"leader":2,"leader_epoch":3,"controller_epoch":4,"isr":[2],"leader_recovery_state":0}`, `{"leader":2,"leader_epoch":3,"controller_epoch":4,"isr":[2]}`},
	{"state", `{"leader":2,"leader_epoch":3,"controller_epoch":4,"isr":[2],"version":"one"}` + "\x00", `{"leader":2,"leader_epoch":3,"controller_epoch":4,"isr":[2]}`},
	{"reassign_lenient", `{"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["any"]}],"x":1}`, `{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1]}]}`},
	{"reassign_strict", `{"version":9,"partitions":[{"topic":"a","partition":0,"replicas":[1]},{"topic":"b","partition":0,"replicas":[]},{"topic":"a","partition":0,"replicas":[2,2]}]}`,
		`{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[2,2]},{"topic":"b","partition":0,"replicas":[]}]}`},
	{"preferred", `{"partitions":[{"topic":"a","partition":0},{"partition":0,"topic":"a"}]}`, `{"version":1,"partitions":[{"topic":"a","partition":0}]}`},
	{"config", ``, `{"version":1,"config":{}}`},
	{"config", `{"version":1}`, `{"version":1,"config":{}}`},
	{"config_change", `{"version":1,"entity_type":"topics","entity_name":"foo"}`, `{"version":2,"entity_path":"topics/foo"}`},
	{"config_change", `{"version":1,"entity_type":"clients","entity_name":"<default>"}`, `{"version":2,"entity_path":"clients/<default>"}`},
	{"producer_block", `{"broker":1,"block_start":0,"block_end":999}`, `{"version":1,"broker":1,"block_start":"0","block_end":"999"}`},
}

// zeroID is an id that means none.
const zeroID = `{"version":3,"partitions":{"0":[1]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}`

// TestTolerated: other forms that mean the same.
func TestTolerated(t *testing.T) {
	for _, e := range tolerated {
		c := find(t, e.codec)
		got, err := c.decode([]byte(e.data))
		if err != nil {
			t.Errorf("%s %s: %v", e.codec, e.data, err)
			continue
		}
		want, err := c.decode([]byte(e.same))
		if err != nil {
			t.Fatal(err)
		}
		if diff := equal(want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", e.codec, e.data, diff)
		}
		check(t, c, []byte(e.data))
	}
}

var unreadable = []struct {
	codec, data, says string
}{
	{"controller", ``, "empty data"},
	{"controller", `{"version":1}`, `lacks the field "brokerid"`},
	{"controller", `{"brokerid":"1"}`, `field "brokerid": is not a 32-bit integer: "1"`},
	{"controller_epoch", `five`, "five"},
	{"controller_epoch", `-1`, "-1"},
	{"controller_epoch", `2147483648`, "2147483648"},
	{"broker", `{"version":0,"host":"h","port":1}`, "unsupported version 0"},
	{"broker", `{"version":4,"host":"h","port":9092,"jmx_port":-1}`, `lacks the field "endpoints"`},
	{"broker", `{"version":4,"host":"h","port":9092,"endpoints":[]}`, `no endpoints`},
	{"broker", `{"version":4,"endpoints":["h:9092"]}`, `"h:9092" is not LISTENER://host:port`},
	{"broker", `{"version":4,"endpoints":["A://h:9092"],"listener_security_protocol_map":{}}`, `lacks the field "A"`},
	{"broker", `{"version":4,"endpoints":["A://h:9092"],"listener_security_protocol_map":{"A":"PLAIN"}}`, `unknown security protocol "PLAIN"`},
	{"broker", `{"version":2,"endpoints":["A://h:9092"]}`, `unknown security protocol "A"`},
	{"broker", `{"version":1,"host":null,"port":9092}`, `lacks host or port`},
	{"broker", `{"version":5,"endpoints":["SSL://h:1"],"features":{"f":{}}}`, `lacks the field "min_version"`},
	{"topic", ``, "empty data"},
	{"topic", `null`, "not a JSON object"},
	{"topic", `[]`, "not a JSON object"},
	{"topic", `{"partitions":{"0":[1]`, "not JSON"},
	{"topic", `{"partitions":null}`, `field "partitions"`},
	{"topic", `{"partitions":{"x":[1]}}`, `the key "x"`},
	{"topic", `{"partitions":{"-1":[1]}}`, `the key "-1"`},
	{"topic", `{"partitions":{"0":[1],"00":[2]}}`, `the key "00"`},
	{"topic", `{"partitions":{"0":null}}`, "not a list"},
	{"topic", `{"partitions":{"0":[1.0]}}`, "not a 32-bit integer: 1.0"},
	{"topic", `{"partitions":{"0":[null]}}`, "not a 32-bit integer: null"},
	{"topic", `{"partitions":{},"adding_replicas":null}`, `field "adding_replicas"`},
	{"topic", `{"partitions":{},"topic_id":"short"}`, `field "topic_id"`},
	{"topic", "{\"partitions\":{\"0\":[1]},\"x\":\"\xff\"}", "not UTF-8"},
	{"state", ``, "empty data"},
	{"state", `{}`, `lacks the field "leader"`},
	{"state", `{"version":1,"leader":1,"leader_epoch":0,"controller_epoch":1}`, `lacks the field "isr"`},
	{"state", `{"version":1,"leader":1,"leader_epoch":0,"isr":[1]}`, `lacks the field "controller_epoch"`},
	{"state", `{"version":1,"leader":1,"controller_epoch":1,"isr":[1]}`, `lacks the field "leader_epoch"`},
	{"state", `{"version":1,"Leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1]}`, `lacks the field "leader"`},
	{"state", `{"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1],"leader_recovery_state":2}`, `neither 0 nor 1: 2`},
	{"state", `{"leader":1,"leader_epoch":0,"controller_epoch":1,"isr":[1],"leader_recovery_state":null}`, `null`},
	{"state", `{"leader":01,"leader_epoch":0,"controller_epoch":1,"isr":[1]}`, `not JSON`},
	{"state", `{"leader":1,"leader_epoch":2147483648,"controller_epoch":1,"isr":[1]}`, `2147483648`},
	{"state", `{"leader":1,"leader_epoch":1e3,"controller_epoch":1,"isr":[1]}`, `1e3`},
	{"state", `{"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[1,]}`, `not JSON`},
	{"state", `{"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[1]`, `not JSON`},
	{"reassign_strict", `{"version":1,"partitions":[],"log_dirs":[]}`, `unknown field "log_dirs"`},
	{"reassign_strict", `{"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["any"]}]}`, `entry 0 of "partitions": has the unknown field "log_dirs"`},
	{"reassign_strict", `{"version":1}`, `lacks the field "partitions"`},
	{"reassign_strict", `{"version":1,"partitions":null}`, `not a list`},
	{"reassign_lenient", `{"partitions":[{"topic":"a","replicas":[1]}]}`, `entry 0 of "partitions": lacks the field "partition"`},
	{"reassign_lenient", `{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[2,1]}`, `not JSON`},
	{"preferred", `{"version":1}`, `lacks the field "partitions"`},
	{"preferred", `[1,2]`, `not a JSON object`},
	{"preferred", `{"partitions":[{"topic":"","partition":0}]}`, `is empty`},
	{"isr", `{"partitions":[{"topic":"a","partition":-1}]}`, `is negative: -1`},
	{"isr", `{"partitions":[7]}`, `entry 0 of "partitions": is not a JSON object`},
	{"log_dir", `{"version":1,"broker":1}`, `lacks the field "event"`},
	{"config", `{"version":1,"config":{"retention.ms":1000}}`, `is not a string: 1000`},
	{"config", `{"version":1,"config":[]}`, `field "config"`},
	{"config", `xx`, `not JSON`},
	{"config_change", `{"version":3,"entity_path":"topics/foo"}`, `version 3`},
	{"config_change", `{"version":2,"entity_path":"topics"}`, `"topics"`},
	{"config_change", `{"version":2,"entity_path":"topics//x"}`, `"topics//x"`},
	{"config_change", `{"version":1,"entity_type":"users","entity_name":"foo"}`, `"users"`},
	{"cluster_id", `{"version":"1"}`, `lacks the field "id"`},
	{"producer_block", `{"broker":1,"block_start":"a","block_end":"9"}`, `block_start`},
	{"producer_block", `{"broker":1,"block_start":"10","block_end":"9"}`, `from 10 to 9`},
	{"features", `{"version":3,"status":1,"features":{}}`, `version 3`},
	{"features", `{"version":2,"features":{}}`, `"status"`},
	{"features", `{"version":2,"status":2,"features":{}}`, `neither 0 nor 1`},
	{"features", `{"version":2,"status":1}`, `"features"`},
	{"features", `{"version":2,"status":1,"features":{"f":{"max_version_level":0}}}`, `below 1: 0`},
	{"features", `{"version":1,"status":1,"features":{"f":{"max_version_level":1}}}`, `min_version_level`},
	{"migration", `{"version":0}`, `kraft_controller_id`},
	{"consumer_offset", `x`, `"x"`},
}

// TestUnreadable: what is refused, and that the reason says why.
func TestUnreadable(t *testing.T) {
	for _, e := range unreadable {
		_, err := find(t, e.codec).decode([]byte(e.data))
		var p *zkpaths.PayloadError
		if !errors.As(err, &p) || !strings.Contains(p.Reason, e.says) || p.Path == "" || p.Remedy == "" {
			t.Errorf("%s %s: %v, want a PayloadError that says %q", e.codec, e.data, err, e.says)
		}
	}
	for _, c := range codecs {
		_, err := c.decode(nil)
		if mayBeNull := c.name == "config" || c.name == "producer_block"; (err == nil) != mayBeNull {
			t.Errorf("%s: null data gives %v", c.name, err)
		}
	}
}

// TestFastAndSlowAgree: the hand-written readers and encoding/json give the
// same, on generated payloads in any key order with and without blemishes.
func TestFastAndSlowAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := jsonText(t, rapid.SampledFrom([]string{"state", "topic"}).Draw(t, "kind"))
		agree(t, data)
		check(t, codecs[3], data)
		check(t, codecs[4], data)
	})
}

// agree compares both readers of data, as a state and as a topic.
func agree(t interface{ Fatalf(string, ...any) }, data []byte) {
	if fast, ok := zkpaths.FastState(data); ok {
		if slow, err := zkpaths.SlowState(data); err != nil || equal(fast, slow) != "" {
			t.Fatalf("%q: fast %v, slow %v, %v", data, fast, slow, err)
		}
	}
	if fast, ok := zkpaths.FastTopic(data); ok {
		if slow, err := zkpaths.SlowTopic(data); err != nil || equal(fast, slow) != "" {
			t.Fatalf("%q: fast %v, slow %v, %v", data, fast, slow, err)
		}
	}
}

// jsonText draws a payload that is nearly or wholly right.
func jsonText(t *rapid.T, kind string) []byte {
	blank := rapid.SampledFrom([]string{"", "", "", " ", "\n\t"})
	number := rapid.SampledFrom([]string{"0", "1", "2", "17", "1001", "-1", "2147483647", "-2147483648", "2147483648", "01", "1.0", "1e1", "null", `"1"`, "-", "-0"})
	good := rapid.IntRange(0, 300)
	num := func() string {
		if n := good.Draw(t, "number"); n > 5 {
			return []string{"0", "1", "2", "3", "1001", "17"}[n%6]
		}
		return number.Draw(t, "odd number")
	}
	list := func() string {
		out := make([]string, rapid.IntRange(0, 4).Draw(t, "len"))
		for i := range out {
			out[i] = blank.Draw(t, "blank") + num() + blank.Draw(t, "blank")
		}
		return "[" + strings.Join(out, ",") + "]"
	}
	replicaMap := func() string {
		out := make([]string, rapid.IntRange(0, 4).Draw(t, "partitions"))
		for i := range out {
			out[i] = blank.Draw(t, "blank") + `"` + rapid.SampledFrom([]string{"0", "1", "2", "3", "10", "01", "-1", "x", "+1", `\u0031`}).Draw(t, "partition") + `":` + list()
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	value := map[string]func() string{
		"version": num, "leader": num, "leader_epoch": num, "controller_epoch": num, "leader_recovery_state": num, "isr": list,
		"partitions": replicaMap, "adding_replicas": replicaMap, "removing_replicas": replicaMap,
		"topic_id": func() string { return `"q3nZk0V9TyWc1xE5oRr8tg"` },
		"other":    func() string { return `{"a":[1,"x\""]}` },
	}
	names := []string{"version", "leader", "leader_epoch", "controller_epoch", "isr"}
	if kind == "topic" {
		names = []string{"version", "partitions", "adding_replicas", "removing_replicas", "topic_id"}
	}
	names = append(names, rapid.SliceOfN(rapid.SampledFrom([]string{"other", "isr", "partitions", "leader_recovery_state", "leader"}), 0, 1).Draw(t, "more")...)
	names = rapid.Permutation(names).Draw(t, "order")
	var b strings.Builder
	b.WriteString(blank.Draw(t, "blank") + "{")
	for i, name := range names {
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(blank.Draw(t, "blank") + `"` + name + `"` + blank.Draw(t, "blank") + ":" + blank.Draw(t, "blank") + value[name]())
	}
	b.WriteString(blank.Draw(t, "blank") + "}" + rapid.SampledFrom([]string{"", "", "", " ", "x", "}"}).Draw(t, "tail"))
	return []byte(b.String())
}

// TestWrittenIsRead: what is written is JSON and is read back equal, for all
// values of the two payloads that matter most.
func TestWrittenIsRead(t *testing.T) {
	id := rapid.Map(rapid.Int32Range(0, 3000), func(n int32) kafka.BrokerID { return kafka.BrokerID(n) })
	list := rapid.SliceOfN(id, 0, 5)
	rapid.Check(t, func(t *rapid.T) {
		l := kafka.Leadership{LeaderAndISR: kafka.LeaderAndISR{Leader: kafka.BrokerID(rapid.Int32Min(-1).Draw(t, "leader")), LeaderEpoch: rapid.Int32().Draw(t, "epoch"),
			ISR: list.Draw(t, "isr"), Recovery: kafka.LeaderRecoveryState(rapid.IntRange(0, 1).Draw(t, "recovery")), ZKVersion: 5}, ControllerEpoch: rapid.Int32().Draw(t, "controller")}
		data := zkpaths.EncodePartitionState(l)
		got, ok := zkpaths.FastState(data)
		got.ZKVersion = 5
		if diff := equal(l, got); !ok || diff != "" || !json.Valid(data) {
			t.Fatalf("%s: %v %s", data, ok, diff)
		}
		topic := zkpaths.Topic{Version: rapid.IntRange(1, 3).Draw(t, "version"), ID: kafka.TopicID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))}
		for n := int32(0); n < rapid.Int32Range(0, 12).Draw(t, "partitions"); n += rapid.Int32Range(1, 3).Draw(t, "hole") {
			topic.Partitions = append(topic.Partitions, zkpaths.PartitionAssignment{Partition: n, ReplicaAssignment: kafka.ReplicaAssignment{
				Replicas: list.Draw(t, "replicas"), Adding: list.Draw(t, "adding"), Removing: list.Draw(t, "removing")}})
		}
		data = zkpaths.EncodeTopic(topic)
		read, ok := zkpaths.FastTopic(data)
		if diff := equal(written(topic), read); !ok || diff != "" || !json.Valid(data) {
			t.Fatalf("%s: %v %s", data, ok, diff)
		}
	})
}
