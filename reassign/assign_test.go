package reassign_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
)

func plain(ids ...kafka.BrokerID) []reassign.BrokerRack {
	var out []reassign.BrokerRack
	for _, id := range ids {
		out = append(out, reassign.BrokerRack{ID: id})
	}
	return out
}

func racked(racks map[kafka.BrokerID]string) []reassign.BrokerRack {
	var out []reassign.BrokerRack
	for id, r := range racks {
		out = append(out, reassign.BrokerRack{ID: id, Rack: r, HasRack: true})
	}
	return out
}

type rows = map[int32][]kafka.BrokerID

// The worked rows of spec/admin-api.md §2.1, and others made by hand from the rule.
func TestAutoAssignWorkedRows(t *testing.T) {
	two := racked(map[kafka.BrokerID]string{0: "a", 1: "a", 2: "b", 3: "b"})
	six := racked(map[kafka.BrokerID]string{0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"})
	for _, c := range []struct {
		name         string
		brokers      []reassign.BrokerRack
		n, factor    int
		start, shift int
		first        int32
		want         rows
	}{
		{"five brokers", plain(0, 1, 2, 3, 4), 6, 3, 0, 0, 0,
			rows{0: {0, 1, 2}, 1: {1, 2, 3}, 2: {2, 3, 4}, 3: {3, 4, 0}, 4: {4, 0, 1}, 5: {0, 2, 3}}},
		{"order of brokers does not matter", plain(4, 2, 0, 3, 1), 1, 3, 0, 0, 0, rows{0: {0, 1, 2}}},
		{"one broker", plain(7), 3, 1, 0, 0, 0, rows{0: {7}, 1: {7}, 2: {7}}},
		{"all brokers", plain(1, 2), 3, 2, 1, 1, 0, rows{0: {2, 1}, 1: {1, 2}, 2: {2, 1}}},
		{"more partitions go on counting", plain(0, 1, 2, 3, 4), 2, 3, 0, 0, 4, rows{4: {4, 0, 1}, 5: {0, 2, 3}}},
		{"more partitions shift from the fixed index", plain(0, 1, 2, 3, 4), 1, 2, 2, 2, 5, rows{5: {2, 1}}},
		{"two racks take turns", two, 4, 1, 0, 0, 0, rows{0: {0}, 1: {2}, 2: {1}, 3: {3}}},
		// Order 0,2,1,3. Row 1 begins at 2 (b), takes 1 (a); row 3 begins at 3 (b), takes 0 (a).
		{"two racks, two replicas", two, 4, 2, 0, 0, 0, rows{0: {0, 2}, 1: {2, 1}, 2: {1, 3}, 3: {3, 0}}},
		// All racks used, so the third replica may repeat one.
		{"two racks, three replicas", two, 1, 3, 0, 0, 0, rows{0: {0, 2, 1}}},
		// Order 0(r1) 3(r2) 1(r3) 5(r1) 4(r2) 2(r3).
		{"three racks", six, 7, 3, 0, 0, 0,
			rows{0: {0, 3, 1}, 1: {3, 1, 5}, 2: {1, 5, 4}, 3: {5, 4, 2}, 4: {4, 2, 0}, 5: {2, 0, 3}, 6: {0, 4, 2}}},
		{"a rack that ran out", racked(map[kafka.BrokerID]string{0: "a", 1: "b", 2: "b", 3: "b"}), 2, 2, 2, 0, 0,
			rows{0: {2, 0}, 1: {3, 0}}},
		{"one rack for all", racked(map[kafka.BrokerID]string{0: "", 1: ""}), 2, 2, 0, 0, 0, rows{0: {0, 1}, 1: {1, 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := reassign.AutoAssign(c.brokers, c.n, c.factor, c.start, c.shift, c.first)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("assignment (-want +got):\n%s", d)
			}
		})
	}
}

func TestAutoAssignRefuses(t *testing.T) {
	mixed := append(plain(1), reassign.BrokerRack{ID: 2, Rack: "a", HasRack: true})
	for _, c := range []struct {
		name      string
		brokers   []reassign.BrokerRack
		n, factor int
		want      kafka.ErrorCode
	}{
		{"no partitions", plain(1), 0, 1, kafka.InvalidPartitions},
		{"negative partitions", plain(1), -1, 1, kafka.InvalidPartitions},
		{"no partitions comes before a bad factor", plain(1), 0, 0, kafka.InvalidPartitions},
		{"no replicas", plain(1), 1, 0, kafka.InvalidReplicationFactor},
		{"more replicas than brokers", plain(1, 2), 1, 3, kafka.InvalidReplicationFactor},
		{"no brokers", nil, 1, 1, kafka.InvalidReplicationFactor},
		{"some racks", mixed, 1, 1, kafka.UnknownServerError},
		{"a bad factor comes before some racks", mixed, 1, 3, kafka.InvalidReplicationFactor},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := reassign.AutoAssign(c.brokers, c.n, c.factor, 0, 0, 0)
			var code kafka.ErrorCode
			if !errors.As(err, &code) || code != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// On any cluster: rows are complete and distinct, every row takes as many racks
// as exist and fit, and first replicas differ by at most one between brokers.
func TestAutoAssignProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.Int32Range(0, 2000), 1, 12, rapid.ID[int32]).Draw(t, "ids")
		withRacks := rapid.Bool().Draw(t, "racks")
		rackOf := map[kafka.BrokerID]string{}
		var brokers []reassign.BrokerRack
		for _, id := range ids {
			b := reassign.BrokerRack{ID: kafka.BrokerID(id), HasRack: withRacks}
			if withRacks {
				b.Rack = fmt.Sprint("r", rapid.IntRange(0, 3).Draw(t, "rack"))
			}
			rackOf[b.ID] = b.Rack
			brokers = append(brokers, b)
		}
		n := rapid.IntRange(1, 50).Draw(t, "n")
		factor := rapid.IntRange(1, len(ids)).Draw(t, "factor")
		start := rapid.IntRange(0, len(ids)-1).Draw(t, "start")
		shift := rapid.IntRange(0, len(ids)-1).Draw(t, "shift")
		first := rapid.Int32Range(0, 100).Draw(t, "first")
		got, err := reassign.AutoAssign(brokers, n, factor, start, shift, first)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != n {
			t.Fatalf("%d rows, want %d", len(got), n)
		}
		racks := map[string]bool{}
		for _, r := range rackOf {
			racks[r] = true
		}
		leaders := map[kafka.BrokerID]int{}
		for p := first; p < first+int32(n); p++ {
			row := got[p]
			if len(row) != factor {
				t.Fatalf("partition %d has %v, want %d replicas", p, row, factor)
			}
			used := map[string]bool{}
			for i, id := range row {
				if _, known := rackOf[id]; !known || slices.Contains(row[:i], id) {
					t.Fatalf("partition %d: %v has an unknown broker or one twice", p, row)
				}
				used[rackOf[id]] = true
			}
			if want := min(len(racks), factor); len(used) != want {
				t.Fatalf("partition %d: %v is in %d racks, want %d", p, row, len(used), want)
			}
			leaders[row[0]]++
		}
		for id := range rackOf {
			if low, high := n/len(ids), (n+len(ids)-1)/len(ids); leaders[id] < low || leaders[id] > high {
				t.Fatalf("broker %d leads %d of %d partitions on %d brokers", id, leaders[id], n, len(ids))
			}
		}
	})
}

// TestTooLarge: numbers that no topic znode can hold are refused before any
// memory is asked for.
func TestTooLarge(t *testing.T) {
	for _, c := range []struct {
		partitions, factor int
		fits               bool
	}{{1, 1, true}, {10_000, 3, true}, {85_000, 1, true}, {90_000, 1, false}, {1_000_000, 3, false}, {math.MaxInt32, 1, false}, {math.MaxInt, 1, false}, {1, math.MaxInt16, true}, {1, math.MaxInt, false}} {
		if reason := reassign.TooLarge(c.partitions, c.factor); (reason == "") != c.fits {
			t.Errorf("%d partitions of %d: %q", c.partitions, c.factor, reason)
		}
	}
	if _, err := reassign.AutoAssign(plain(1), 9_999_999_999, 1, 0, 0, 0); !errors.Is(err, kafka.InvalidPartitions) {
		t.Errorf("9999999999 partitions: %v", err)
	}
}
