package zkpaths_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

func TestPaths(t *testing.T) {
	tp := kafka.TopicPartition{Topic: "a-b.c_1", Partition: 12}
	for got, want := range map[string]string{
		zkpaths.BrokerPath(1001):                                     "/brokers/ids/1001",
		zkpaths.TopicPath(tp.Topic):                                  "/brokers/topics/a-b.c_1",
		zkpaths.PartitionsPath(tp.Topic):                             "/brokers/topics/a-b.c_1/partitions",
		zkpaths.PartitionPath(tp):                                    "/brokers/topics/a-b.c_1/partitions/12",
		zkpaths.PartitionStatePath(tp):                               "/brokers/topics/a-b.c_1/partitions/12/state",
		zkpaths.DeleteTopicPath(tp.Topic):                            "/admin/delete_topics/a-b.c_1",
		zkpaths.TopicConfigPath(tp.Topic):                            "/config/topics/a-b.c_1",
		zkpaths.BrokerConfigPath(3):                                  "/config/brokers/3",
		zkpaths.EntityConfigPath("users/u/clients/c"):                "/config/users/u/clients/c",
		zkpaths.ISRNotificationPath("isr_change_0000000001"):         zkpaths.ISRNotificationPrefix + "0000000001",
		zkpaths.LogDirNotificationPath("log_dir_event_0000000001"):   zkpaths.LogDirNotificationPrefix + "0000000001",
		zkpaths.ConfigChangePath("config_change_0000000001"):         zkpaths.ConfigChangePrefix + "0000000001",
		zkpaths.ConsumerOffsetPath("g", tp):                          "/consumers/g/offsets/a-b.c_1/12",
		zkpaths.ISRNotificationPrefix:                                "/isr_change_notification/isr_change_",
		zkpaths.LogDirNotificationPrefix:                             "/log_dir_event_notification/log_dir_event_",
		zkpaths.ConfigChangePrefix:                                   "/config/changes/config_change_",
		zkpaths.PartitionStatePath(kafka.TopicPartition{Topic: "t"}): "/brokers/topics/t/partitions/0/state",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestPersistentPaths(t *testing.T) {
	v := func(s string) kafka.ProtocolVersion {
		v, err := kafka.ParseProtocolVersion(s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	// spec/controller.md §1.0, both lists.
	want := strings.Fields(`/consumers /brokers/ids /brokers/topics /config/changes /admin/delete_topics /brokers/seqid /isr_change_notification
		/latest_producer_id_block /log_dir_event_notification /config/topics /config/clients /config/users /config/brokers /config/ips /brokers /config /admin`)
	want010 := strings.Fields(`/consumers /brokers/ids /brokers/topics /config/changes /config/topics /config/clients /admin/delete_topics /brokers/seqid
		/isr_change_notification /brokers /config /admin`)
	for version, want := range map[string][]string{"3.9": want, "2.8": want, "0.10.2.2": want010, "0.9": want010} {
		got := slices.Sorted(slices.Values(zkpaths.PersistentPaths(v(version))))
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
	for _, version := range []string{"0.9", "0.10.0", "0.11.0", "1.0", "1.1", "2.4", "2.7", "2.8", "3.9"} {
		made := map[string]bool{"": true}
		for _, p := range zkpaths.PersistentPaths(v(version)) {
			if parent := p[:strings.LastIndexByte(p, '/')]; !made[parent] || made[p] {
				t.Errorf("%s: %s comes before its parent, or twice", version, p)
			}
			made[p] = true
		}
	}
}

func TestSequenceNumber(t *testing.T) {
	for _, e := range []struct {
		path string
		want int64
		ok   bool
	}{
		{"isr_change_0000000012", 12, true},
		{"/isr_change_notification/isr_change_0000000012", 12, true},
		{"isr_change_-000000001", 0, false},
		{"isr_change_", 0, false},
		{"isr_change_x", 0, false},
		{"other_0000000012", 0, false},
	} {
		if n, ok := zkpaths.SequenceNumber(e.path, zkpaths.ISRNotificationPrefix); n != e.want && e.ok || ok != e.ok {
			t.Errorf("%s: %d, %v", e.path, n, ok)
		}
	}
}

// TestSanitizeEntity: the encoded names are what a real Kafka 3.9.1 made.
func TestSanitizeEntity(t *testing.T) {
	for name, want := range map[string]string{"CN=a b,O=é*": "CN%3Da%20b%2CO%3D%C3%A9%2A", "c:1": "c%3A1", "my-topic_1.x": "my-topic_1.x",
		"10.0.0.1": "10.0.0.1", "a+b~": "a%2Bb%7E", "<default>": "%3Cdefault%3E"} {
		if got := zkpaths.SanitizeEntity(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	if got, err := zkpaths.DesanitizeEntity("a+b"); got != "a b" || err != nil {
		t.Errorf("a+b: %q, %v", got, err)
	}
	for _, bad := range []string{"%", "%4", "a%zz", "%+1"} {
		if got, err := zkpaths.DesanitizeEntity(bad); err == nil {
			t.Errorf("%q was taken as %q", bad, got)
		}
	}
}

func TestGeneratedBrokerID(t *testing.T) {
	if id := zkpaths.GeneratedBrokerID(1, 1000); id != 1001 {
		t.Errorf("the first generated id is %d", id)
	}
}

const token = `{"version":3,"owner":"User:a","tokenRequester":"User:b","renewers":["User:c"],"issueTimestamp":1690000000000,"maxTimestamp":1690000000002,"expiryTimestamp":1690000000001,"tokenId":"x"}`

func TestDelegationToken(t *testing.T) {
	got, err := zkpaths.DecodeDelegationToken("/delegation_token/tokens/x", []byte(token))
	want := zkpaths.DelegationToken{Version: 3, Owner: "User:a", Requester: "User:b", Renewers: []string{"User:c"},
		IssueTimestamp: 1690000000000, MaxTimestamp: 1690000000002, ExpiryTimestamp: 1690000000001, TokenID: "x"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := zkpaths.DecodeDelegationToken("/delegation_token/tokens/x", []byte(`{"version":3}`)); err == nil || !strings.Contains(err.Error(), "/delegation_token/tokens/x") {
		t.Errorf("a token without owner: %v", err)
	}
}
