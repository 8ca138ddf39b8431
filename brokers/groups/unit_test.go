package groups_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Without the topic, its count of partitions is the default.
func TestPartitionFor(t *testing.T) {
	o := groups.DefaultOptions()
	o.MemberID = func() string { return "" }
	o.Partitions = func() int32 { return 0 } // the topic is not there yet
	c, err := groups.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.PartitionFor("orders"); got != 31 {
		t.Errorf("without a topic: %d, want 31", got)
	}
}

func TestOptionsAreRefused(t *testing.T) {
	for what, spoil := range map[string]func(*groups.Options){
		"MemberID":                            func(o *groups.Options) { o.MemberID = nil },
		"group.min.session.timeout.ms=6000":   func(o *groups.Options) { o.MaxSessionTimeout = time.Second },
		"group.max.size=0":                    func(o *groups.Options) { o.MaxSize = 0 },
		"offsets.retention.check.interval.ms": func(o *groups.Options) { o.RetentionCheck = 0 },
		"offsets.retention.minutes":           func(o *groups.Options) { o.OffsetsRetention = -time.Minute },
	} {
		o := groups.DefaultOptions()
		o.MemberID = func() string { return "" }
		spoil(&o)
		if _, err := groups.New(o); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestLongStrings sends what flexible requests can carry and records cannot:
// nothing is written, and what was there stays.
func TestLongStrings(t *testing.T) {
	long := strings.Repeat("x", 40_000)
	w := newWorld(t)
	w.c.Lead(w.now, 0, 1)
	w.load(false)
	want := map[string]func(){
		"INVALID_GROUP_ID": func() {
			req := kmsg.NewHeartbeatRequest()
			req.Version, req.Group = 4, long
			w.send(w.client("A"), &req, func(r kmsg.Response) { w.printf("%s", codeName(r.(*kmsg.HeartbeatResponse).ErrorCode)) })
		},
		"INVALID_REQUEST": func() {
			req := kmsg.NewJoinGroupRequest()
			req.Version, req.Group, req.InstanceID, req.SessionTimeoutMillis, req.ProtocolType = 9, "g", &long, 10_000, "consumer"
			req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
			w.send(w.client("A"), &req, func(r kmsg.Response) { w.printf("%s", codeName(r.(*kmsg.JoinGroupResponse).ErrorCode)) })
		},
		"UNKNOWN_TOPIC_OR_PARTITION": func() {
			req := kmsg.NewOffsetCommitRequest()
			req.Version, req.Group = 9, "g"
			req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: long, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{}}}}
			w.send(w.client("A"), &req, func(r kmsg.Response) {
				w.printf("%s", codeName(r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode))
			})
		},
		"OFFSET_METADATA_TOO_LARGE": func() {
			w.o.MaxOffsetMetadata = 50_000
			w.renew()
			w.c.Lead(w.now, 0, 1)
			w.load(false)
			req := kmsg.NewOffsetCommitRequest()
			req.Version, req.Group, req.Generation = 9, "g", -1
			req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Metadata: &long}}}}
			w.send(w.client("A"), &req, func(r kmsg.Response) {
				w.printf("%s", codeName(r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode))
			})
		},
	}
	for code, ask := range want {
		w.out.Reset()
		ask()
		if got := strings.TrimSpace(w.out.String()); got != code {
			t.Errorf("got %q, want %s", got, code)
		}
		if len(w.log) > 0 {
			t.Errorf("%s: something was written", code)
		}
	}
}

// TestServed asks for every kind and version in Served, of a coordinator that
// leads nothing: each is answered, once.
func TestServed(t *testing.T) {
	w := newWorld(t)
	for _, v := range groups.Served() {
		for version := v.Min; version <= v.Max; version++ {
			req := kmsg.RequestForKey(v.Key.Int16())
			req.SetVersion(version)
			answers := 0
			w.send(w.client("A"), req, func(kmsg.Response) { answers++ })
			if answers != 1 {
				t.Errorf("%s v%d: %d answers", v.Key.Name(), version, answers)
			}
		}
	}
}

// TestDamagedLog loads logs with something wrong in the middle: what is wrong
// is told, and the rest is there.
func TestDamagedLog(t *testing.T) {
	commit := func(group string, version byte) commitlog.Record {
		k := kmsg.OffsetCommitKey{Version: 1, Group: group, Topic: "t"}
		v := kmsg.OffsetCommitValue{Version: 3, Offset: 5}
		value := v.AppendTo(nil)
		value[1] = version
		return commitlog.Record{Key: k.AppendTo(nil), Value: value}
	}
	member := kmsg.GroupMetadataValueMember{MemberID: "m"}
	protocol := "range"
	group := func(v kmsg.GroupMetadataValue) commitlog.Record {
		k := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
		v.Version = 3
		return commitlog.Record{Key: k.AppendTo(nil), Value: v.AppendTo(nil)}
	}
	flipped := commitlog.Encode(commit("x", 3))
	flipped[len(flipped)-1]++
	old := commitlog.Encode(commit("x", 3))
	old[16] = 1
	damages := []struct {
		name, want string
		batch      []byte
		ends       bool // nothing behind it can be found
	}{
		{"checksum", "checksum", flipped, false},
		{"value version", "value version 9", commitlog.Encode(commit("x", 9)), false},
		{"no key", "no key", commitlog.Encode(commitlog.Record{Value: []byte("v")}), false},
		{"short key", "key", commitlog.Encode(commitlog.Record{Key: []byte{0, 1, 0}}), false},
		{"short value", "enough data", commitlog.Encode(commitlog.Record{Key: commit("x", 3).Key, Value: []byte{0, 3, 1}}), false},
		{"members without protocol", "no protocol", commitlog.Encode(group(kmsg.GroupMetadataValue{ProtocolType: "consumer", Members: []kmsg.GroupMetadataValueMember{member}})), false},
		{"member twice", "twice", commitlog.Encode(group(kmsg.GroupMetadataValue{ProtocolType: "consumer", Protocol: &protocol, Members: []kmsg.GroupMetadataValueMember{member, member}})), false},
		{"later protocol", "", commitlog.Encode(commitlog.Record{Key: []byte{0, 7, 1, 2, 3}, Value: []byte{1}}), false},
		{"message format 1", "v1", old, true},
		{"cut off", "checksum", flipped[:20], true},
	}
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			w := newWorld(t)
			w.c.Lead(w.now, 0, 1)
			log := append(commitlog.Encode(commit("before", 3)), d.batch...)
			err := w.c.Load(0, append(log, commitlog.Encode(commit("behind", 3))...))
			if d.want == "" && err != nil || d.want != "" && (err == nil || !strings.Contains(err.Error(), d.want)) {
				t.Errorf("error %v, want %q", err, d.want)
			}
			w.do(w.c.Loaded(w.now, 0))
			w.request(args{w, mustParse(t, "list admin")})
			want := `admin <- ListGroups NONE [before "" Empty classic] [behind "" Empty classic]`
			if d.ends {
				want = `admin <- ListGroups NONE [before "" Empty classic]`
			}
			if got := strings.TrimSpace(w.out.String()); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func mustParse(t *testing.T, line string) *datadriven.TestData {
	t.Helper()
	cmd, arguments, err := datadriven.ParseLine(line)
	if err != nil {
		t.Fatal(err)
	}
	return &datadriven.TestData{Cmd: cmd, CmdArgs: arguments}
}

// FuzzLoad loads two records of any contents, seeded with those of Kafka: no
// panic, and what was loaded can be lived with. Batches are commitlog's to fuzz.
func FuzzLoad(f *testing.F) {
	logs, err := filepath.Glob("testdata/kafka-3.9.1/*.log")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		var last commitlog.Record
		for b, err := range commitlog.Batches(log) {
			if err != nil {
				f.Fatal(err)
			}
			records, err := b.Records()
			if err != nil {
				f.Fatal(err)
			}
			for _, r := range records {
				f.Add(last.Key, last.Value, r.Key, r.Value, r.Value == nil, b.Transactional())
				last = r
			}
		}
	}
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 []byte, tombstone, txn bool) {
		if tombstone {
			value2 = nil
		}
		spec := commitlog.NoProducerSpec()
		if spec.Transactional = txn; txn {
			spec.ProducerID, spec.ProducerEpoch, spec.BaseSequence = 1, 0, 0
		}
		log, err := spec.Encode(commitlog.Record{Key: key1, Value: value1}, commitlog.Record{Key: key2, Value: value2})
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t)
		w.quiet = true
		w.c.Lead(w.now, 0, 1)
		w.c.Load(0, log)
		w.do(w.c.Loaded(w.now, 0))
		var k kmsg.GroupMetadataKey
		if len(key2) > 1 && key2[1] == 2 {
			k.ReadFrom(key2)
		} else {
			k.ReadFrom(key1)
		}
		for _, cmd := range []string{"list", "describe", "fetch", "join", "sync", "offset-delete", "leave", "delete"} {
			d := mustParse(t, cmd+" a v=3 t-0")
			if cmd == "offset-delete" {
				d = mustParse(t, cmd+" a t-0")
			}
			d.CmdArgs = append(d.CmdArgs, datadriven.CmdArg{Key: "group", Vals: []string{k.Group}})
			w.request(args{w, d})
		}
		w.do(w.c.TopicsDeleted(w.now, []kafka.TopicPartition{{Topic: "t"}}))
		for ticks := 0; ; ticks++ {
			at, ok := w.c.Deadline()
			if !ok || at.Sub(start) > time.Minute {
				break
			}
			if ticks > 2000 {
				t.Fatal("the clock is asked for again and again")
			}
			w.now = at
			w.do(w.c.Tick(w.now))
		}
		w.c.Resign(w.now, 0, 1)
		if w.waiting != 0 {
			t.Fatalf("%d requests wait", w.waiting)
		}
	})
}
