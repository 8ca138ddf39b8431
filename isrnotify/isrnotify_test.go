package isrnotify_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/isrnotify"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// start is +0 of every story. It is far from the zero time on purpose (spec/broker.md §0.4).
var start = time.UnixMilli(1_000_000)

func at(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }

// TestStories runs testdata: `run until=MS [fail-at=MS] [max-payload=N]` plays
// ISR writes ("+MS topic-partition", or "+MS..MS every MS topic-partition")
// against checks every 2500 ms from +0 on, and prints the znodes created.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "run":
				return play(t, d)
			case "name":
				return names(d.Input)
			case "union":
				return union(d.Input)
			}
			d.Fatalf(t, "unknown directive %q", d.Cmd)
			return ""
		})
	})
}

type write struct {
	ms int
	tp kafka.TopicPartition
}

func parseWrites(t *testing.T, input string) []write {
	var ws []write
	for line := range strings.Lines(input) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		tp, err := kafka.ParseTopicPartition(f[len(f)-1])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		from, until, ranged := strings.Cut(strings.TrimPrefix(f[0], "+"), "..")
		step := 1
		if !ranged {
			until = from
		} else {
			step = number(t, f[2])
		}
		for ms := number(t, from); ms <= number(t, until); ms += step {
			ws = append(ws, write{ms, tp})
		}
	}
	slices.SortStableFunc(ws, func(a, b write) int { return a.ms - b.ms })
	return ws
}

func number(t *testing.T, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func play(t *testing.T, d *datadriven.TestData) string {
	var until, failAt, stopAt int
	opts := isrnotify.Options{}
	d.ScanArgs(t, "until", &until)
	d.MaybeScanArgs(t, "fail-at", &failAt)
	d.MaybeScanArgs(t, "stop-at", &stopAt)
	d.MaybeScanArgs(t, "max-payload", &opts.MaxPayload)
	p := isrnotify.NewPropagator(opts, start)
	ws := parseWrites(t, d.Input)
	var out strings.Builder
	for ms := 0; ms <= until; ms++ {
		for len(ws) > 0 && ws[0].ms == ms {
			p.Record(ws[0].tp, at(ms))
			ws = ws[1:]
		}
		if stopAt > 0 && ms >= stopAt {
			break
		}
		if ms%int(p.CheckPeriod().Milliseconds()) != 0 {
			continue
		}
		batches, ok := p.Check(at(ms))
		if !ok {
			continue
		}
		for i, batch := range batches {
			if failAt != 0 && ms == failAt && i == len(batches)-1 {
				fmt.Fprintf(&out, "+%d: %v failed\n", ms, batch)
				p.Failed()
				continue
			}
			fmt.Fprintf(&out, "+%d: %v\n", ms, batch)
			p.Sent(batch, at(ms))
		}
	}
	fmt.Fprintf(&out, "pending: %v\n", p.Pending())
	return out.String()
}

func names(input string) string {
	var out strings.Builder
	for line := range strings.Lines(input) {
		line = strings.TrimSuffix(line, "\n")
		if n, err := strconv.ParseInt(line, 10, 32); err == nil {
			fmt.Fprintln(&out, isrnotify.Name(int32(n)))
		} else if seq, ok := isrnotify.ParseName(line); ok {
			fmt.Fprintln(&out, seq)
		} else {
			fmt.Fprintln(&out, "not an announcement")
		}
	}
	return out.String()
}

func union(input string) string {
	var as []isrnotify.Announcement
	for line := range strings.Lines(input) {
		path, data, hasData := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		a := isrnotify.Announcement{Path: path}
		if hasData {
			a.Data = []byte(data)
		}
		as = append(as, a)
	}
	tps, bad := isrnotify.Union(as)
	var out strings.Builder
	fmt.Fprintln(&out, tps)
	for _, err := range bad {
		fmt.Fprintln(&out, err)
	}
	return out.String()
}

// TestNothingLostNothingEarlyNothingLate checks, for any history of writes and
// failed creates: every write is in a znode created at or after it, or still
// pending; a znode never comes earlier than the rules allow; and one that
// could be created comes at most a check after the maximum delay.
func TestNothingLostNothingEarlyNothingLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const check, linger, maxDelay = 2500, 5000, 60000
		p := isrnotify.NewPropagator(isrnotify.Options{MaxPayload: rapid.IntRange(1, 400).Draw(t, "max payload")}, start)
		ms := 0
		lastChange, lastNode := 0, 0
		waiting := map[kafka.TopicPartition]int{} // the oldest unannounced write
		failed := false                           // a create failed since the last complete announcement
		for range rapid.IntRange(1, 120).Draw(t, "checks") {
			for _, gap := range rapid.SliceOfN(rapid.IntRange(0, check-1), 0, 4).Draw(t, "writes") {
				tp := kafka.TopicPartition{Topic: "t", Partition: rapid.Int32Range(0, 5).Draw(t, "partition")}
				when := max(ms+gap, lastChange)
				p.Record(tp, at(when))
				lastChange = when
				if _, ok := waiting[tp]; !ok {
					waiting[tp] = when
				}
			}
			ms += check
			batches, ok := p.Check(at(ms))
			allowed := len(waiting) > 0 && (ms-lastChange > linger || ms-lastNode > maxDelay)
			if ok != allowed {
				t.Fatalf("check at +%d said %v, want %v", ms, ok, allowed)
			}
			for _, since := range waiting {
				if !ok && !failed && ms-since > maxDelay+check {
					t.Fatalf("a write of +%d is not announced at +%d", since, ms)
				}
			}
			if !ok {
				continue
			}
			failed = rapid.Bool().Draw(t, "fails")
			for i, batch := range batches {
				if failed && i == len(batches)-1 {
					p.Failed()
					break
				}
				p.Sent(batch, at(ms))
				for _, tp := range batch {
					delete(waiting, tp)
				}
			}
			if !failed {
				lastNode = ms
			}
			if got := p.Pending(); len(got) != len(waiting) {
				t.Fatalf("pending %v, want %v", got, waiting)
			}
		}
	})
}

// TestWriteDuringCreate: a partition recorded between Check and Sent stays.
func TestWriteDuringCreate(t *testing.T) {
	p := isrnotify.NewPropagator(isrnotify.Options{}, start)
	t0, t1 := kafka.TopicPartition{Topic: "t"}, kafka.TopicPartition{Topic: "t", Partition: 1}
	p.Record(t0, at(0))
	p.Record(t1, at(0))
	batches, ok := p.Check(at(7500))
	if !ok || len(batches) != 1 {
		t.Fatalf("got %v %v", batches, ok)
	}
	p.Record(t1, at(7501))
	p.Sent(batches[0], at(7502))
	if got := p.Pending(); !slices.Equal(got, []kafka.TopicPartition{t1}) {
		t.Fatalf("pending %v, want %v", got, t1)
	}
}

// TestPayloadStaysWithinLimit encodes what a batch becomes, odd names included.
func TestPayloadStaysWithinLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(200, 4000).Draw(t, "limit")
		p := isrnotify.NewPropagator(isrnotify.Options{MaxPayload: limit}, start)
		for _, topic := range rapid.SliceOfN(rapid.StringN(0, 20, -1), 1, 60).Draw(t, "topics") {
			p.Record(kafka.TopicPartition{Topic: topic, Partition: rapid.Int32().Draw(t, "partition")}, start)
		}
		batches, _ := p.Check(at(7500))
		var all []kafka.TopicPartition
		for _, batch := range batches {
			all = append(all, batch...)
			data := zkpaths.EncodeISRNotification(batch)
			if len(data) > limit && len(batch) > 1 {
				t.Fatalf("%d bytes for %d partitions, limit %d", len(data), len(batch), limit)
			}
		}
		if !slices.Equal(all, p.Pending()) {
			t.Fatalf("batches have %v, want %v", all, p.Pending())
		}
	})
}
