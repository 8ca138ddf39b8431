package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaultsAreKafkas(t *testing.T) {
	c, err := Load(Source{})
	if err != nil {
		t.Fatal(err)
	}
	got := []any{c.BrokerID, c.InterBrokerProtocol, c.ZooKeeperSession, c.ZooKeeperConnection, c.UncleanElection, c.DeleteTopics,
		c.AutoRebalance, c.ImbalanceCheck, c.ImbalancePercent, c.DefaultReplication, c.NumPartitions, c.ReplicaLag}
	want := []any{int32(-1), "3.9", 18 * time.Second, 18 * time.Second, false, true,
		true, 5 * time.Minute, 10, int16(1), int32(1), 30 * time.Second}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if c.Given("broker.id") {
		t.Error("broker.id counts as given although nobody gave it")
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "server.properties", "broker.id=1\nbroker.rack=file\nnum.partitions=4\n")
	t.Setenv("ZKC_BROKER_ID", "2")
	t.Setenv("ZKC_BROKER_RACK", "environment")
	c, err := Load(Source{File: file, Flags: map[string]Flag{"broker.id": {Name: "broker-id", Value: "3"}}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range c.Settings() {
		switch s.Key {
		case "broker.id", "broker.rack", "num.partitions", "delete.topic.enable":
			got[s.Key] = s.Value + " from " + strings.ReplaceAll(s.Origin, file, "FILE")
		}
	}
	want := map[string]string{
		"broker.id": "3 from flag --broker-id", "broker.rack": "environment from environment ZKC_BROKER_RACK",
		"num.partitions": "4 from file FILE", "delete.topic.enable": "true from default",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if c.BrokerID != 3 || c.Rack != "environment" || c.NumPartitions != 4 {
		t.Errorf("the struct has %d %q %d", c.BrokerID, c.Rack, c.NumPartitions)
	}
}

func TestServerProperties(t *testing.T) {
	c, err := Load(Source{File: write(t, "server.properties", `# comment
broker.id = 7
listeners=INTERNAL://:9092, EXTERNAL://[::1]:9093
advertised.listeners=internal://kafka-7:9092,EXTERNAL://h:19093
listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:SSL
inter.broker.listener.name=internal
zookeeper.connect=a:2181,b:2182/kafka/one
zookeeper.session.timeout.ms=6000
inter.broker.protocol.version=0.10.2.2
log.dirs=/a,/b
listener.name.EXTERNAL.ssl.Keystore=/k
password=${NOT_EXPANDED}
num.network.threads=3
`)})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]Endpoint{{"INTERNAL", "PLAINTEXT", "", 9092}, {"EXTERNAL", "SSL", "::1", 9093}}, c.Listeners); d != "" {
		t.Error("listeners", d)
	}
	if d := cmp.Diff([]Endpoint{{"INTERNAL", "PLAINTEXT", "kafka-7", 9092}, {"EXTERNAL", "SSL", "h", 19093}}, c.AdvertisedListeners); d != "" {
		t.Error("advertised", d)
	}
	if d := cmp.Diff([]string{"/a", "/b"}, c.LogDirs); d != "" {
		t.Error("log.dirs", d)
	}
	// Unknown keys keep their case and cost one line.
	if d := cmp.Diff([]string{"listener.name.EXTERNAL.ssl.Keystore", "num.network.threads", "password"}, c.Unknown()); d != "" {
		t.Error("unknown", d)
	}
	if w := c.Warning(); strings.Count(w, "\n") != 0 || !strings.Contains(w, "3 keys") || strings.Contains(w, "/k") {
		t.Errorf("warning %q", w)
	}
	if c.Listeners[1].String() != "EXTERNAL://[::1]:9093" {
		t.Error(c.Listeners[1])
	}
}

// Keys that the command uses though the table does not have them cost no warning.
func TestOtherKeys(t *testing.T) {
	c, err := Load(Source{File: write(t, "server.properties", "broker.id=1\nlog.segment.bytes = 4096\nlog.segment.bites=1\n"),
		Also: func(key string) bool { return key == "log.segment.bytes" }})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"log.segment.bytes": "4096", "log.segment.bites": "1"}, c.Others()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"log.segment.bites"}, c.Unknown()); d != "" {
		t.Error(d)
	}
}

func TestYAML(t *testing.T) {
	c, err := Load(Source{File: write(t, "zkc.yaml", `
broker: {id: 5}
zookeeper.connect: z:2181
listeners: ["A://127.0.0.1:1", "B://127.0.0.1:2"]
listener.security.protocol.map: "A:PLAINTEXT,B:PLAINTEXT"
delete: {topic: {enable: false}}
zkc: {log: {format: json}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	if c.BrokerID != 5 || c.ZooKeeperConnect != "z:2181" || len(c.Listeners) != 2 || c.DeleteTopics || c.LogFormat != "json" {
		t.Errorf("%+v", c)
	}
}

// Every refusal names key, value, origin and a remedy.
func TestRefusals(t *testing.T) {
	for _, tc := range []struct{ line, key, reason string }{
		{"broker.id=x", "broker.id", "not a whole number"},
		{"broker.id=-2", "broker.id", "less than -1"},
		{"broker.id=2147483648", "broker.id", "more than 2147483647"},
		{"zookeeper.session.timeout.ms=6s", "zookeeper.session.timeout.ms", "not a whole number"},
		{"zookeeper.session.timeout.ms=0", "zookeeper.session.timeout.ms", "less than 1"},
		{"zookeeper.session.timeout.ms=9223372036854775807", "zookeeper.session.timeout.ms", "more than 9223372036854"},
		{"delete.topic.enable=yes", "delete.topic.enable", "not a boolean"},
		{"default.replication.factor=32768", "default.replication.factor", "more than 32767"},
		{"inter.broker.protocol.version=newest", "inter.broker.protocol.version", "not a Kafka release"},
		{"listeners=127.0.0.1:9092", "listeners", "is not NAME://HOST:PORT"},
		{"listeners=PLAINTEXT://h:70000", "listeners", "more than 65535"},
		{"listeners=PLAINTEXT://h:1,PLAINTEXT://h:2", "listeners", "named twice"},
		{"listeners=OTHER://h:1", "listeners", "no security protocol"},
		{"listeners=PLAINTEXT://h:1,SSL://h:1", "listeners", "same address"},
		{"listener.security.protocol.map=A:TLS", "listener.security.protocol.map", "no security protocol"},
		{"advertised.listeners=PLAINTEXT://h:1", "advertised.listeners", "nothing listens there"},
		{"listeners=PLAINTEXT://h:1\nadvertised.listeners=SSL://h:1", "advertised.listeners", "no listener SSL"},
		{"listeners=PLAINTEXT://:1\nadvertised.listeners=PLAINTEXT://0.0.0.0:1", "advertised.listeners", "nobody can connect"},
		{"listeners=PLAINTEXT://h:1\ninter.broker.listener.name=IN", "inter.broker.listener.name", "no such listener"},
		{"inter.broker.listener.name=A\ncontrol.plane.listener.name=A", "control.plane.listener.name", "the same as"},
		{"zookeeper.connect=a:b", "zookeeper.connect", "is not HOST:PORT"},
		{"zookeeper.connect=/only", "zookeeper.connect", "no server"},
		{"zookeeper.connect=a:1/x//y", "zookeeper.connect", "empty part"},
		{"replica.lag.time.max.ms=100", "replica.fetch.wait.max.ms", "longer than"},
		{"zkc.admin=0.0.0.0:9097", "zkc.admin", "not on loopback"},
		{"zkc.log.level=loud", "zkc.log.level", "not an allowed value"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			file := write(t, "server.properties", tc.line+"\n")
			_, err := Load(Source{File: file})
			var v *ValueError
			if !errors.As(err, &v) {
				t.Fatalf("got %v", err)
			}
			if v.Key != tc.key || !strings.Contains(v.Reason, tc.reason) || v.Remedy == "" {
				t.Errorf("%+v", v)
			}
			if strings.HasPrefix(tc.line, tc.key) && !strings.Contains(tc.line, "\n") && !strings.Contains(err.Error(), file) {
				t.Errorf("the file is not named: %v", err)
			}
		})
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	for name, file := range map[string]string{
		"missing": filepath.Join(t.TempDir(), "none.properties"),
		"no YAML": write(t, "a.yaml", "a: [\n"),
		"twice":   write(t, "b.yaml", "broker: {id: 1}\nbroker.id: 2\n"),
		"nested":  write(t, "c.yaml", "log.dirs: [[a]]\n"),
	} {
		if _, err := Load(Source{File: file}); err == nil || !strings.Contains(err.Error(), filepath.Base(file)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzServerProperties: no bytes may panic, and what loads is consistent.
func FuzzServerProperties(f *testing.F) {
	f.Add("broker.id=1\nlisteners=PLAINTEXT://:9092\n")
	f.Add("a=${a}\n\\u00")
	f.Add("zookeeper.connect=[::1]:2181/\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content string) {
		path := filepath.Join(dir, "server.properties")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Source{File: path})
		if err == nil && c.Validate() != nil {
			t.Errorf("loaded, yet invalid: %v", c.Validate())
		}
	})
}

// A listener's name on the command line is told as given; in a file it is in
// capitals, as Kafka has it. Either way capitals make no other listener.
func TestListenerNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	text := "listeners=Internal://h:1\ninter.broker.listener.name=internal\nlistener.security.protocol.map=internal:PLAINTEXT,Mine:PLAINTEXT\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Source{File: file})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listeners[0].Name != "INTERNAL" || c.AdvertisedListeners[0].Name != "INTERNAL" || c.InterBrokerListener != "INTERNAL" {
		t.Errorf("file: %v %v %q", c.Listeners, c.AdvertisedListeners, c.InterBrokerListener)
	}
	flags := map[string]Flag{"listeners": {"listener", "Mine://h:1"}, "advertised.listeners": {"advertised-listener", "MINE://x:2"}, "inter.broker.listener.name": {"x", "mine"}}
	if c, err = Load(Source{File: file, Flags: flags}); err != nil {
		t.Fatal(err)
	}
	want := Endpoint{"Mine", "PLAINTEXT", "x", 2}
	if c.Listeners[0].Name != "Mine" || c.AdvertisedListeners[0] != want || c.InterBrokerListener != "Mine" {
		t.Errorf("flag: %v %v %q", c.Listeners, c.AdvertisedListeners, c.InterBrokerListener)
	}
	flags["listeners"] = Flag{"listener", "Mine://h:1,MINE://h:2"}
	if _, err := Load(Source{File: file, Flags: flags}); err == nil || !strings.Contains(err.Error(), "named twice") {
		t.Errorf("two spellings of one listener: %v", err)
	}
}
