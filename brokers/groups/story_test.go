package groups_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// TestStories runs the files of testdata/stories, one coordinator a file, whose
// offsets topic has one partition. A directive names a client, which remembers
// its member id and generation; what it prints is what became of it: states,
// records ("log"), answers ("<-"). Appends are committed at once, unless they
// are on hold. Times are from the start.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			w.out.Reset()
			w.directive(d)
			if w.out.Len() == 0 {
				return "ok\n"
			}
			return w.out.String()
		})
	})
}

var start = time.UnixMilli(1_700_000_000_000)

// world is a coordinator, its partition's log, and its clients.
type world struct {
	t       *testing.T
	o       groups.Options
	c       *groups.Coordinator
	now     time.Time
	log     []byte
	hold    bool
	held    []groups.Append
	epoch   int32
	ids     int
	unknown []string // topics
	clients map[string]*client
	remote  *remote // asked instead of the coordinator
	quiet   bool    // what is printed cannot be read
	waiting int     // requests without an answer
	out     strings.Builder
}

// client is one who remembers what it was told.
type client struct {
	name, member string
	instance     *string
	generation   int32

	// as it last joined
	protocols          string
	session, rebalance time.Duration
	version            int16
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: start, clients: map[string]*client{}, o: groups.DefaultOptions()}
	w.o.InitialRebalanceDelay = 0
	w.o.Partitions = func() int32 { return 1 }
	w.o.MemberID = func() string { w.ids++; return strconv.Itoa(w.ids) }
	w.o.Known = func(tp kafka.TopicPartition) bool { return !slices.Contains(w.unknown, tp.Topic) }
	w.o.Told = func(tr groups.Transition) {
		w.printf("state %s %s -> %s generation=%d members=%d (%s)", tr.Group, tr.From, tr.To, tr.Generation, tr.Members, tr.Reason)
	}
	w.renew()
	return w
}

func (w *world) renew() {
	var err error
	if w.c, err = groups.New(w.o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) printf(format string, args ...any) {
	fmt.Fprintf(&w.out, format+"\n", args...)
}

// do carries out what a call of the coordinator wants appended.
func (w *world) do(appends []groups.Append) {
	for _, a := range appends {
		if w.quiet {
			w.commit(a)
			continue
		}
		for _, line := range describeBatch(w.t, a.Batch) {
			if a.Acks == 0 {
				line += " acks=0"
			}
			w.printf("log %s", line)
		}
		if w.hold {
			w.held = append(w.held, a)
			continue
		}
		w.commit(a)
	}
}

func (w *world) commit(a groups.Append) {
	binary.BigEndian.PutUint64(a.Batch, uint64(len(w.log))) // any offset that grows
	w.log = append(w.log, a.Batch...)
	w.do(w.c.Appended(w.now, a.Token, kafka.NoError))
}

func codeName(code int16) string {
	if code == 0 {
		return "NONE"
	}
	return kerr.TypedErrorForCode(code).Message
}

func codeOf(w *world, name string) kafka.ErrorCode {
	for code := range int16(120) {
		if codeName(code) == name {
			return kafka.ErrorCode(code)
		}
	}
	w.t.Fatalf("no error is called %s", name)
	return 0
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// send gives a request to the coordinator as the wire would: encoded and
// decoded in its version, and so the answer.
func (w *world) send(who *client, req kmsg.Request, answered func(kmsg.Response)) {
	if w.remote != nil {
		w.remote.send(w.t, who.name, req, answered)
		return
	}
	onWire := kmsg.RequestForKey(req.Key())
	onWire.SetVersion(req.GetVersion())
	if err := onWire.ReadFrom(req.AppendTo(nil)); err != nil {
		w.t.Fatalf("%T v%d: %v", req, req.GetVersion(), err)
	}
	w.waiting++
	replies := 0
	w.do(w.c.Handle(w.now, groups.Request{Request: onWire, ClientID: who.name, ClientHost: "127.0.0.1", Reply: func(r kmsg.Response) {
		if replies++; replies > 1 {
			w.t.Fatalf("%T is answered %d times", req, replies)
		}
		w.waiting--
		got := req.ResponseKind()
		if err := got.ReadFrom(r.AppendTo(nil)); err != nil {
			w.t.Fatalf("%T v%d: %v", r, r.GetVersion(), err)
		}
		answered(got)
	}}))
}

// advance lets time pass, deadline by deadline.
func (w *world) advance(d time.Duration) {
	end := w.now.Add(d)
	for {
		at, ok := w.c.Deadline()
		if !ok || at.After(end) {
			break
		}
		if at.After(w.now) {
			w.now = at
		}
		before := w.out.Len()
		w.do(w.c.Tick(w.now))
		if text := w.out.String(); len(text) > before {
			w.out.Reset()
			w.out.WriteString(text[:before] + fmt.Sprintf("at +%s\n", w.now.Sub(start)) + text[before:])
		}
	}
	w.now = end
}

// eachRecord calls f for the records of a batch that is not compressed.
func eachRecord(batch []byte, f func(key, value []byte)) {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(batch); err != nil {
		panic(err)
	}
	src := b.Records
	for range b.NumRecords {
		var r kmsg.Record
		n, k := kbin.Varint(src)
		if err := r.ReadFrom(src[:k+int(n)]); err != nil {
			panic(err)
		}
		src = src[k+int(n):]
		f(r.Key, r.Value)
	}
}

// describeBatch prints the records of a batch.
func describeBatch(t *testing.T, batch []byte) []string {
	t.Helper()
	var lines []string
	eachRecord(batch, func(key, value []byte) { lines = append(lines, describeRecord(t, key, value)) })
	return lines
}

func describeRecord(t *testing.T, key, value []byte) string {
	t.Helper()
	switch binary.BigEndian.Uint16(key) {
	case 0, 1:
		var k kmsg.OffsetCommitKey
		var v kmsg.OffsetCommitValue
		if err := k.ReadFrom(key); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("offset of %s in %s-%d:", k.Group, k.Topic, k.Partition)
		if value == nil {
			return name + " tombstone"
		}
		if err := v.ReadFrom(value); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s v%d %d", name, v.Version, v.Offset)
		if v.Version >= 3 {
			line += fmt.Sprintf(" leader-epoch=%d", v.LeaderEpoch)
		}
		if len(v.Metadata) > 0 {
			line += fmt.Sprintf(" metadata=%.20q", v.Metadata)
		}
		if v.Version == 1 {
			expires := "none"
			if v.ExpireTimestamp >= 0 {
				expires = "+" + time.UnixMilli(v.ExpireTimestamp).Sub(start).String()
			}
			line += " expires=" + expires
		}
		return line
	case 2:
		var k kmsg.GroupMetadataKey
		var v kmsg.GroupMetadataValue
		if err := k.ReadFrom(key); err != nil {
			t.Fatal(err)
		}
		if value == nil {
			return fmt.Sprintf("group %s: tombstone", k.Group)
		}
		if err := v.ReadFrom(value); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("group %s: v%d type=%q generation=%d protocol=%s leader=%s", k.Group, v.Version, v.ProtocolType, v.Generation, text(v.Protocol), text(v.Leader))
		if v.Version >= 2 {
			line += fmt.Sprintf(" since=+%s", time.UnixMilli(v.CurrentStateTimestamp).Sub(start))
		}
		for _, m := range v.Members {
			line += fmt.Sprintf(" [%s session=%d rebalance=%d says=%q has=%q", m.MemberID, m.SessionTimeoutMillis, m.RebalanceTimeoutMillis, m.Subscription, m.Assignment)
			if m.InstanceID != nil {
				line += " instance=" + *m.InstanceID
			}
			line += "]"
		}
		return line
	}
	t.Fatalf("key %x", key)
	return ""
}

// args are the arguments of a directive.
type args struct {
	w *world
	d *datadriven.TestData
}

func (a args) str(key, def string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return strings.Join(arg.Vals, ",")
		}
	}
	return def
}

func (a args) has(key string) bool { return a.d.HasArg(key) }

func (a args) dur(key string, def time.Duration) time.Duration {
	s := a.str(key, "")
	if s == "" {
		return def
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		a.w.t.Fatal(err)
	}
	return d
}

func (a args) num(key string, def int64) int64 {
	s := a.str(key, "")
	if s == "" {
		return def
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		a.w.t.Fatal(err)
	}
	return n
}

func (a args) opt(key string) *string {
	if !a.has(key) {
		return nil
	}
	s := a.str(key, "")
	return &s
}

// plain are the arguments without a value.
func (a args) plain() []string {
	var out []string
	for _, arg := range a.d.CmdArgs {
		if len(arg.Vals) == 0 {
			out = append(out, arg.Key)
		}
	}
	return out
}

// pairs are the arguments TOPIC-PARTITION=VALUE.
func (a args) pairs() (tps []kafka.TopicPartition, vals []string) {
	for _, arg := range a.d.CmdArgs {
		if tp, err := kafka.ParseTopicPartition(arg.Key); err == nil {
			tps = append(tps, tp)
			vals = append(vals, strings.Join(arg.Vals, ","))
		}
	}
	return tps, vals
}

func (w *world) client(name string) *client {
	if w.clients[name] == nil {
		w.clients[name] = &client{name: name, generation: -1, version: -1, session: 10 * time.Second, rebalance: time.Minute}
	}
	return w.clients[name]
}
