package zkpaths_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// TestFieldRegistrations has registrations from the field cases; R-numbers are
// those of cases/.
func TestFieldRegistrations(t *testing.T) {
	ssl := func(listener, host string, port int32) kafka.Endpoint {
		return kafka.Endpoint{Listener: listener, Protocol: kafka.SSL, Host: host, Port: port}
	}
	for _, e := range []struct {
		name, data string
		want       zkpaths.Registration
		written    string
	}{
		{
			"R-001: TLS only has host null and port -1",
			`{"listener_security_protocol_map":{"INTERNAL":"SSL","EXTERNAL":"SSL"},"endpoints":["INTERNAL://kafka-1.example.net:9091","EXTERNAL://kafka-1.example.net:9092"],"rack":"rack-a","jmx_port":19999,"host":null,"timestamp":"1522162718367","port":-1,"version":4}`,
			zkpaths.Registration{Version: 4, Port: -1, JMXPort: 19999, Timestamp: 1522162718367, Broker: kafka.Broker{ID: 1, Rack: "rack-a", HasRack: true,
				Endpoints: []kafka.Endpoint{ssl("INTERNAL", "kafka-1.example.net", 9091), ssl("EXTERNAL", "kafka-1.example.net", 9092)}}},
			`{"version":4,"host":null,"port":-1,"endpoints":["INTERNAL://kafka-1.example.net:9091","EXTERNAL://kafka-1.example.net:9092"],"jmx_port":19999,"timestamp":"1522162718367","rack":"rack-a","listener_security_protocol_map":{"INTERNAL":"SSL","EXTERNAL":"SSL"}}`,
		},
		{
			"R-003: rack null is no rack, and the first PLAINTEXT protocol gives host and port",
			`{"version":4,"host":"kafka-1.example.net","port":9092,"jmx_port":9999,"timestamp":"2233345666","endpoints":["CLIENT://kafka-1.example.net:9092","REPLICATION://kafka-1.example.net:9093"],"listener_security_protocol_map":{"CLIENT":"SSL","REPLICATION":"PLAINTEXT"},"rack":null}`,
			zkpaths.Registration{Version: 4, Host: "kafka-1.example.net", HasHost: true, Port: 9092, JMXPort: 9999, Timestamp: 2233345666, Broker: kafka.Broker{ID: 1,
				Endpoints: []kafka.Endpoint{ssl("CLIENT", "kafka-1.example.net", 9092), {Listener: "REPLICATION", Host: "kafka-1.example.net", Port: 9093}}}},
			`{"version":4,"host":"kafka-1.example.net","port":9093,"endpoints":["CLIENT://kafka-1.example.net:9092","REPLICATION://kafka-1.example.net:9093"],"jmx_port":9999,"timestamp":"2233345666","listener_security_protocol_map":{"CLIENT":"SSL","REPLICATION":"PLAINTEXT"}}`,
		},
		{
			"R-004: a version to come is read, protocols named by the listeners",
			`{"foo":"bar","version":100,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"1416974968782","endpoints":["SSL://localhost:9093"]}`,
			zkpaths.Registration{Version: 100, Host: "localhost", HasHost: true, Port: 9092, JMXPort: 9999, Timestamp: 1416974968782,
				Broker: kafka.Broker{ID: 1, Endpoints: []kafka.Endpoint{ssl("SSL", "localhost", 9093)}}},
			`{"version":5,"host":null,"port":-1,"endpoints":["SSL://localhost:9093"],"jmx_port":9999,"timestamp":"1416974968782","listener_security_protocol_map":{"SSL":"SSL"},"features":{}}`,
		},
		{
			"R-006: IPv6 with and without a zone",
			`{"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","SSL":"SSL"},"endpoints":["PLAINTEXT://[::1]:9092","SSL://[fe80::1:2:3:4%3]:9093"],"jmx_port":-1,"host":"::1","timestamp":"1458700000000","port":9092,"version":4}`,
			zkpaths.Registration{Version: 4, Host: "::1", HasHost: true, Port: 9092, JMXPort: -1, Timestamp: 1458700000000,
				Broker: kafka.Broker{ID: 1, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "::1", Port: 9092}, ssl("SSL", "fe80::1:2:3:4%3", 9093)}}},
			`{"version":4,"host":"::1","port":9092,"endpoints":["PLAINTEXT://[::1]:9092","SSL://[fe80::1:2:3:4%3]:9093"],"jmx_port":-1,"timestamp":"1458700000000","listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT","SSL":"SSL"}}`,
		},
		{
			"version 1 has one PLAINTEXT endpoint",
			`{"jmx_port":-1,"timestamp":"1290","host":"h","port":9092,"version":1}`,
			zkpaths.Registration{Version: 1, Host: "h", HasHost: true, Port: 9092, JMXPort: -1, Timestamp: 1290,
				Broker: kafka.Broker{ID: 1, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9092}}}},
			`{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1290"}`,
		},
		{
			"features, an empty rack, a listener without host",
			`{"version":5,"host":"","port":1,"endpoints":["plaintext://:1"],"jmx_port":-1,"timestamp":"1","rack":"","features":{"b":{"min_version":1,"max_version":2},"a":{"max_version":3,"min_version":0}}}`,
			zkpaths.Registration{Version: 5, HasHost: true, Port: 1, JMXPort: -1, Timestamp: 1, Broker: kafka.Broker{ID: 1, HasRack: true,
				Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Port: 1}}, Features: map[string]kafka.VersionRange{"a": {Max: 3}, "b": {Min: 1, Max: 2}}}},
			`{"version":5,"host":"","port":1,"endpoints":["PLAINTEXT://:1"],"jmx_port":-1,"timestamp":"1","rack":"","listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"features":{"a":{"min_version":0,"max_version":3},"b":{"min_version":1,"max_version":2}}}`,
		},
	} {
		t.Run(e.name, func(t *testing.T) {
			got, err := zkpaths.DecodeBroker(1, []byte(e.data))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(e.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("read differently (-want +got):\n%s", diff)
			}
			if written := string(zkpaths.EncodeBroker(got)); written != e.written {
				t.Errorf("written\n%s\nwant\n%s", written, e.written)
			}
		})
	}
}

// TestBrokerVersions: which fields each version has.
func TestBrokerVersions(t *testing.T) {
	r := zkpaths.Registration{Timestamp: 7, JMXPort: -1, Broker: kafka.Broker{Rack: "r", HasRack: true, Endpoints: []kafka.Endpoint{
		{Listener: "SSL", Protocol: kafka.SSL, Host: "h", Port: 1}, {Listener: "PLAINTEXT", Host: "h", Port: 2}}}}
	head := `,"host":"h","port":2`
	ends, rest := `,"endpoints":["SSL://h:1","PLAINTEXT://h:2"]`, `,"jmx_port":-1,"timestamp":"7"`
	listeners := `,"listener_security_protocol_map":{"SSL":"SSL","PLAINTEXT":"PLAINTEXT"}`
	for version, want := range map[int]string{
		0: `{"version":5` + head + ends + rest + `,"rack":"r"` + listeners + `,"features":{}}`,
		1: `{"version":1` + head + rest + `}`,
		2: `{"version":2` + head + ends + rest + `}`,
		3: `{"version":3` + head + ends + rest + `,"rack":"r"}`,
		4: `{"version":4` + head + ends + rest + `,"rack":"r"` + listeners + `}`,
		5: `{"version":5` + head + ends + rest + `,"rack":"r"` + listeners + `,"features":{}}`,
	} {
		r.Version = version
		got := string(zkpaths.EncodeBroker(r))
		if got != want {
			t.Errorf("version %d:\n%s\nwant\n%s", version, got, want)
		}
		back, err := zkpaths.DecodeBroker(3, []byte(got))
		if err != nil || back.ID != 3 {
			t.Errorf("version %d read back: %+v, %v", version, back, err)
		}
		if version != 1 {
			if diff := cmp.Diff(r.Endpoints, back.Endpoints); diff != "" {
				t.Errorf("version %d, endpoints changed:\n%s", version, diff)
			}
		}
	}
}

// TestFieldTopics is R-017: moves are told by the lists of topic versions 2 and 3.
func TestFieldTopics(t *testing.T) {
	for data, want := range map[string]map[int32][2][]kafka.BrokerID{ // moving partition -> origin, target
		`{"version":1,"partitions":{"0":[1001,1002],"1":[1002,1001]}}`: {},
		`{"version":2,"partitions":{"2":[0,1],"1":[0,1],"0":[0,1]},"adding_replicas":{"2":[1],"1":[1],"0":[1]},"removing_replicas":{}}`: {
			0: {ids(0), ids(0, 1)}, 1: {ids(0), ids(0, 1)}, 2: {ids(0), ids(0, 1)}},
		`{"version":3,"topic_id":"q3nZk0V9TyWc1xE5oRr8tg","partitions":{"0":[1001,1003,1002],"1":[1002,1001]},"adding_replicas":{"0":[1003]},"removing_replicas":{"0":[1001]}}`: {
			0: {ids(1001, 1002), ids(1003, 1002)}},
	} {
		topic, err := zkpaths.DecodeTopic("t", []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		got := map[int32][2][]kafka.BrokerID{}
		for _, p := range topic.Partitions {
			if p.Reassigning() {
				got[p.Partition] = [2][]kafka.BrokerID{p.Original(), p.Target()}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", data, diff)
		}
		if topic.ID.IsZero() != (topic.Version < 3) {
			t.Errorf("%s: id %v", data, topic.ID)
		}
	}
}
