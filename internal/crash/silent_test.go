package crash

import (
	"strings"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// TestSilentBroker: a broker that is registered but does not answer holds up
// the end of a move and of a topic for a while, not for ever; one that goes
// away holds up nothing.
func TestSilentBroker(t *testing.T) {
	for _, row := range []struct {
		name   string
		silent kafka.BrokerID
		step   func(*play)
		open   func(*sim.World) bool
	}{
		{"a replica that left", 2, byRequest("t-0=1,3"), func(w *sim.World) bool {
			data, _, _ := tree{w.ZK.Tree}.get(zkpaths.TopicPath("t"))
			return !strings.Contains(string(data), `"partitions":{"0":[1,3]}`)
		}},
		{"a replica that is not added after all", 3, all(byRequest("t-0=1,2,3"), byRequest("t-0=cancel")), func(w *sim.World) bool {
			data, _, _ := tree{w.ZK.Tree}.get(zkpaths.TopicPath("t"))
			return strings.Contains(string(data), `"removing_replicas":{"0":[3]}`)
		}},
		{"a topic it does not host", 5, deletion("t"), func(w *sim.World) bool {
			_, code := w.ZK.Tree.Exists(zkserver.Who{}, zkpaths.TopicPath("t"))
			return code == zkserver.OK
		}},
	} {
		for what, ends := range map[string]func(*play){
			"it stays silent": func(p *play) { p.w.Advance(10 * time.Second) },
			"it goes":         func(p *play) { p.w.Kill(row.silent) },
			"it returns":      func(p *play) { must(t, p.w.Bounce(row.silent)); clear(p.w.Mute) },
			"it answers":      func(p *play) { clear(p.w.Mute) },
		} {
			t.Run(row.name+", "+what, func(t *testing.T) {
				var open []bool
				look := func(p *play) { open = append(open, row.open(p.w)) }
				p, err := run(story{before: topic("t", ids("1,2")), steps: do{
					func(p *play) { p.w.Mute[row.silent] = true }, row.step,
					look, func(p *play) { p.w.Advance(500 * time.Millisecond) }, look, ends, look,
				}}, kafka.V3_9IV0, 0)
				must(t, err)
				if !open[0] || !open[1] || open[2] {
					t.Errorf("put off at once, half a second later, and then: %v\n  %s", open, strings.Join(p.log, "\n  "))
				}
				if bad := p.w.Violations(); len(bad) > 0 {
					t.Error(bad)
				}
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
