package lossless

import (
	"slices"
	"strings"
	"testing"
)

// rows are records of producer 0 of one partition, by number, from offset 0 on.
func rows(numbers ...int) []At {
	var out []At
	for i, n := range numbers {
		out = append(out, At{Position{0, int64(i)}, Record{0, n}})
	}
	return out
}

// A history that is told apart from a good one by each promise that it breaks.
func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(h *History)
		want   string // the beginning of the only complaint; "" is none
	}{
		{"as it should be", func(*History) {}, ""},
		{"a record nobody was told of may be there", func(h *History) { h.Acked = h.Acked[:2] }, ""},
		{"a record nobody was told of may be missing", func(h *History) { h.Sent[0] = []int{5} }, ""},
		{"lost at the end", func(h *History) { h.put(rows(0, 1)) }, "lost: record 2 of producer 0 was acknowledged at partition 0 offset 2, where the log has nothing"},
		{"replaced", func(h *History) { h.Sent[0] = []int{4}; h.put(rows(0, 1, 3)) },
			"lost: record 2 of producer 0 was acknowledged at partition 0 offset 2, where record 3 of producer 0 is"},
		{"there twice", func(h *History) { h.put(rows(0, 1, 2, 1)) }, "twice: record 1 of producer 0 at partition 0 offset 3 and at offset 1"},
		{"out of order", func(h *History) { h.Acked, h.Seen = nil, nil; h.put(rows(0, 2, 1)) }, "order: record 1 of producer 0 at partition 0 offset 2 stands behind record 2"},
		{"from nobody", func(h *History) { h.put(rows(0, 1, 2, 3)) }, "unsent: record 3 of producer 0"},
		{"no value of ours", func(h *History) { h.put(append(rows(0, 1, 2), At{Position{0, 3}, Record{-1, -1}})) }, "unsent: "},
		{"an offset left out", func(h *History) {
			h.Acked = nil
			all := rows(0, 1, 2)
			all[2].Offset = 3
			h.put(all)
		}, "gap: partition 0 has offset 3 where 2 is due"},
		{"seen, then gone", func(h *History) { h.Seen = append(h.Seen, At{Position{0, 3}, Record{0, 3}}) }, "unread: a consumer saw record 3"},
		{"seen, then another", func(h *History) { h.Seen[0].Record.N = 7 }, "unread: a consumer saw record 7 of producer 0 at partition 0 offset 1, where record 1"},
		{"a shorter replica", func(h *History) { h.Logs[2][0] = rows(0, 1) }, "replica: broker 2, partition 0: ends at 2, clients read on to 3"},
		{"a replica of its own mind", func(h *History) { h.Logs[2][0] = rows(0, 2, 1) }, "replica: broker 2, partition 0: has record 2 of producer 0 at offset 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &History{Sent: map[int32][]int{0: {3}}, Acked: rows(0, 1, 2), Seen: rows(0, 1)[1:],
				Logs: map[int32]map[int32][]At{}}
			h.put(rows(0, 1, 2))
			test.change(h)
			got := h.Check()
			if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], test.want)) {
				t.Errorf("Check gives %q, want %q", got, test.want)
			}
		})
	}
}

// put makes all replicas and readers have these records.
func (h *History) put(all []At) {
	for _, broker := range []int32{Reading, 1, 2} {
		h.Logs[broker] = map[int32][]At{0: slices.Clone(all)}
	}
}

// Of many alike complaints some are told, and how many there are.
func TestCheckIsBrief(t *testing.T) {
	h := &History{Sent: map[int32][]int{0: {100}}, Acked: rows(make([]int, 100)...), Logs: map[int32]map[int32][]At{Reading: {0: nil}}}
	got := h.Check()
	if len(got) != maxComplaints+1 || got[maxComplaints] != "lost: and 92 more" {
		t.Errorf("%d complaints, the last is %q", len(got), got[len(got)-1])
	}
}

// What is written is read back, and nothing else is taken for it.
func TestValue(t *testing.T) {
	want := Record{3, 1234}
	if got, err := parse(want.value("abc")); err != nil || got != want {
		t.Errorf("parse gives %v, %v", got, err)
	}
	for _, bad := range []string{"", "1", "1/2", "x/2/", "1/x/"} {
		if got, err := parse([]byte(bad)); err == nil {
			t.Errorf("parse takes %q for %v", bad, got)
		}
	}
}

// still is a cluster to which nothing happens.
type still struct{ Cluster }

func (still) Brokers() []int32 { return []int32{3, 1, 2} }
func (still) Peers() []int32   { return []int32{3, 1, 2} }
func (still) Ops() []Op {
	return []Op{Kill, Crash, Restart, Freeze, Resume, Cut, Slow, Pause, Mend, Expire}
}

// A seed decides the deeds; each makes sense when it comes.
func TestFate(t *testing.T) {
	draw := func(seed uint64) (acts []Act) {
		f := newFate(seed, still{})
		for range 2000 {
			pause, a := f.next()
			if pause <= 0 {
				t.Fatalf("a pause of %s", pause)
			}
			acts = append(acts, a)
		}
		return acts
	}
	first := draw(7)
	if !slices.Equal(first, draw(7)) {
		t.Error("the same seed gives other deeds")
	}
	if slices.Equal(first, draw(8)) {
		t.Error("another seed gives the same deeds")
	}
	down, frozen, seen := map[int32]bool{}, map[int32]bool{}, map[Op]int{}
	for i, a := range first {
		seen[a.Op]++
		switch a.Op {
		case Kill, Crash:
			if down[a.Broker] || frozen[a.Broker] {
				t.Fatalf("%d: %s, which is down or frozen", i, a)
			}
			down[a.Broker] = true
		case Restart:
			if !down[a.Broker] {
				t.Fatalf("%d: %s, which is not down", i, a)
			}
			delete(down, a.Broker)
		case Freeze:
			if down[a.Broker] || len(frozen) > 0 {
				t.Fatalf("%d: %s, which is down, or while another is frozen", i, a)
			}
			frozen[a.Broker] = true
		case Resume:
			delete(frozen, a.Broker)
		case Cut:
			if a.Peer == a.Broker {
				t.Fatalf("%d: %s", i, a)
			}
		}
	}
	for _, op := range append(still{}.Ops(), Move, Prefer) {
		if seen[op] < 20 {
			t.Errorf("%s came %d times of 2000", op, seen[op])
		}
	}
}
