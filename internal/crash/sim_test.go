package crash

import (
	"slices"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// wait lets what was put off be written.
func wait(p *play) { p.w.Advance(time.Second) }

var v2_2 = kafka.V2_2IV0

// versionsOf gives the protocol versions a story is played with: leaders that
// ask the controller, leaders that write themselves, and the old reassignment.
func versionsOf(s story) []kafka.ProtocolVersion {
	out := []kafka.ProtocolVersion{kafka.V3_9IV0, kafka.V2_7IV0}
	if s.old {
		out = append(out, v2_2)
	}
	return out
}

// undisturbed is how a story ends when nobody dies.
type undisturbed struct {
	writes int
	end    world
}

func play0(t *testing.T, s story, v kafka.ProtocolVersion) undisturbed {
	t.Helper()
	p, err := run(s, v, 0)
	if err != nil {
		t.Fatalf("%s, %s, undisturbed: %v", s.name, v, err)
	}
	u := undisturbed{p.writes[firstController], snapshot(p.w)}
	if bad := p.verdict(u.end); bad != "" {
		t.Fatalf("%s, %s, undisturbed: %s", s.name, v, bad)
	}
	if u.writes == 0 {
		t.Fatalf("%s, %s: the story writes nothing", s.name, v)
	}
	return u
}

// cutsOf gives every death of a controller that makes n writes.
func cutsOf(n int) []cut {
	var out []cut
	for k := range n + 1 {
		for _, f := range []fate{lost, delivered, late} {
			if k > 0 {
				out = append(out, cut{k, false, f})
			}
			out = append(out, cut{k, true, f})
		}
	}
	return out
}

// TestEveryWrite kills the controller after each single write of each story.
func TestEveryWrite(t *testing.T) {
	points, runs := 0, 0
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			for _, v := range versionsOf(s) {
				u := play0(t, s, v)
				cuts := cutsOf(u.writes)
				if testing.Short() { // at least where most is lost
					cuts = slices.DeleteFunc(cuts, func(c cut) bool { return c.requests != lost })
				}
				for _, c := range cuts {
					if _, ok := try(t, s, v, u, 0, c); !ok {
						break
					}
				}
				t.Logf("%s: %d writes, %d crash points, %d runs", v, u.writes, u.writes+1, len(cuts))
				points, runs = points+u.writes+1, runs+len(cuts)
			}
		})
	}
	t.Logf("%d crash points, %d runs", points, runs)
}

// TestShuffled: the same with events, requests and answers in other orders.
func TestShuffled(t *testing.T) {
	if testing.Short() {
		t.Skip("needs half a minute; run without -short")
	}
	const seeds = 3
	points, runs := 0, 0
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			for seed := int64(1); seed <= seeds; seed++ {
				for _, v := range versionsOf(s) {
					u := play0(t, s, v)
					p, ok := try(t, s, v, u, seed)
					if !ok {
						return
					}
					points += p.writes[firstController] + 1
					for _, c := range cutsOf(p.writes[firstController]) {
						if c.requests == delivered {
							continue // the order says how much was delivered
						}
						if _, ok := try(t, s, v, u, seed, c); !ok {
							return
						}
						runs++
					}
				}
			}
		})
	}
	t.Logf("%d crash points, %d runs", points, runs)
}

// TestTwoDeaths kills the next controller as well, after each of its writes,
// its election included, for each death of the first.
func TestTwoDeaths(t *testing.T) {
	if testing.Short() {
		t.Skip("needs half a minute; run without -short")
	}
	points, runs := 0, 0
	for _, s := range stories {
		if !s.small {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			for _, v := range versionsOf(s) {
				u := play0(t, s, v)
				for _, first := range cutsOf(u.writes) {
					p, ok := try(t, s, v, u, 0, first)
					if !ok {
						return
					}
					n := p.writes[firstController+1]
					points += n + 1
					for _, second := range cutsOf(n) {
						if second.requests != next(first.requests) {
							continue
						}
						if _, ok := try(t, s, v, u, 0, first, second); !ok {
							return
						}
						runs++
					}
				}
			}
		})
	}
	t.Logf("%d pairs of crash points, %d runs", points, runs)
}

// next pairs the fates of two controllers' requests.
func next(f fate) fate {
	if f == lost {
		return lost
	}
	return delivered + late - f
}

// try runs a story with deaths; false after a failure.
func try(t *testing.T, s story, v kafka.ProtocolVersion, u undisturbed, seed int64, cuts ...cut) (*play, bool) {
	t.Helper()
	p, err := run(s, v, seed, cuts...)
	if err != nil {
		p.fail(t, s.name, v, err.Error())
		return p, false
	}
	if bad := p.verdict(u.end); bad != "" {
		p.fail(t, s.name, v, bad)
		return p, false
	}
	return p, true
}
