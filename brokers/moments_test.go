package brokers_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"
)

// run plays a line of a case file, and gives what it printed.
func (w *story) run(line string) string {
	w.out.Reset()
	cmd, args, err := datadriven.ParseLine(line)
	w.must(err)
	w.directive(&datadriven.TestData{Pos: line, Cmd: cmd, CmdArgs: args})
	return w.out.String()
}

var (
	changeMoment   = regexp.MustCompile(`(?m)^\+(\d+) 1: (?:write|ask)`)
	announceMoment = regexp.MustCompile(`(?m)^\+(\d+) 1: announce`)
)

func moment(t *rapid.T, re *regexp.Regexp, printed string) int {
	found := re.FindAllStringSubmatch(printed, -1)
	if len(found) != 1 {
		t.Fatalf("%d moments of %s in %q", len(found), re, printed)
	}
	ms, err := strconv.Atoi(found[0][1])
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// TestMoments: when a follower falls silent while records come, its leader takes it
// out at the first check later than lag after it was last caught up, so after more
// than the lag and at most lag and period (spec/broker.md §3.1). The announcement
// follows after more than 5 s and at most 7.5 s, or, if nothing was announced for a
// minute, at the next check, every 2.5 s (§6.3). The check of the same millisecond
// comes before the write: both tasks begin with the process, that one first (§1.5).
// With its first fetch the follower is back. Recordings of real brokers lie within (§15).
func TestMoments(t *testing.T) {
	for _, c := range []struct {
		profile string
		periods int // in a lag
	}{{"A0101", 1}, {"A0102", 2}, {"A26", 2}, {"B", 2}, {"B39", 2}, {"C", 2}, {"C39", 2}} {
		t.Run(c.profile, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				lag := rapid.SampledFrom([]int{6000, 10000, 30000}).Draw(rt, "lag")
				silent := rapid.IntRange(0, 150000).Draw(rt, "silent")
				period := lag / c.periods
				w := newStory(t)
				w.run(fmt.Sprintf("lead profile=%s log=10 ar=1/2 lag=%d", c.profile, lag))
				for at := 500; at < silent; at += 500 { // it fetches what there is
					w.run(fmt.Sprintf("clock %d", at))
					w.run(fmt.Sprintf("f 2@%d", w.brokers[1].b.Snapshot().Partitions[0].Log.End))
					w.run("append 1")
				}
				w.run(fmt.Sprintf("clock %d", silent))
				w.run(fmt.Sprintf("f 2@%d", w.brokers[1].b.Snapshot().Partitions[0].Log.End))
				w.run("append 1")
				printed := w.run(fmt.Sprintf("to %d", silent+2*lag+10000))
				out := moment(rt, changeMoment, printed)
				if out%period != 0 || out-silent <= lag || out-silent > lag+period {
					rt.Fatalf("silent from +%d on, out at +%d", silent, out)
				}
				if c.profile[0] != 'C' {
					said := moment(rt, announceMoment, printed)
					if late := said - out; said%2500 != 0 || out > 60000 && (late <= 0 || late > 2500) || out <= 52500 && (late <= 5000 || late > 7500) {
						rt.Fatalf("out at +%d, announced at +%d", out, said)
					}
					back := w.run(fmt.Sprintf("f 2@%d", w.brokers[1].b.Snapshot().Partitions[0].Log.HighWatermark))
					if at := moment(rt, changeMoment, back); at != silent+2*lag+10000 {
						rt.Fatalf("back at +%d", at)
					}
				}
			})
		})
	}
}
