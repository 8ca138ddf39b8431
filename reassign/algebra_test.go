package reassign_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
)

func ids(n ...kafka.BrokerID) []kafka.BrokerID { return n }

// The table of spec/controller.md §7.9, and its cancel.
func TestReassignTo(t *testing.T) {
	simple := func(rs ...kafka.BrokerID) kafka.ReplicaAssignment { return kafka.ReplicaAssignment{Replicas: rs} }
	moving := kafka.ReplicaAssignment{Replicas: ids(4, 5, 6, 1, 2, 3), Adding: ids(4, 5, 6), Removing: ids(1, 2, 3)}
	for _, c := range []struct {
		name    string
		current kafka.ReplicaAssignment
		target  []kafka.BrokerID
		want    kafka.ReplicaAssignment
	}{
		{"other brokers altogether", simple(1, 2, 3), ids(4, 5, 6), moving},
		{"one for another", simple(1, 2, 3), ids(1, 4, 2), kafka.ReplicaAssignment{Replicas: ids(1, 4, 2, 3), Adding: ids(4), Removing: ids(3)}},
		{"and another order", simple(1, 2, 3, 4), ids(4, 2, 5, 3), kafka.ReplicaAssignment{Replicas: ids(4, 2, 5, 3, 1), Adding: ids(5), Removing: ids(1)}},
		{"a new target while moving", moving, ids(7, 8, 9), kafka.ReplicaAssignment{Replicas: ids(7, 8, 9, 1, 2, 3), Adding: ids(7, 8, 9), Removing: ids(1, 2, 3)}},
		{"back while moving", moving, ids(1, 2, 3), simple(1, 2, 3)},
		{"reorder", simple(1, 2, 3), ids(3, 2, 1), simple(3, 2, 1)},
		{"shrink", simple(1, 2, 3), ids(1, 2), kafka.ReplicaAssignment{Replicas: ids(1, 2, 3), Removing: ids(3)}},
		{"grow", simple(1), ids(1, 2), kafka.ReplicaAssignment{Replicas: ids(1, 2), Adding: ids(2)}},
		// Cancel gives the old replicas, not their old order: [1,2,3] -> [3,4,2] is stored as [3,4,2,1].
		{"cancel", simple(1, 2, 3).ReassignTo(ids(3, 4, 2)), simple(1, 2, 3).ReassignTo(ids(3, 4, 2)).Original(), simple(3, 2, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.current.ReassignTo(c.target); !got.Equal(c.want) {
				t.Errorf("%+v to %v:\n%s", c.current, c.target, cmp.Diff(c.want, got))
			}
		})
	}
}

// naiveReassign is the same definition over sets: full = target then ORS; AR =
// full - ORS; RR = full - target.
func naiveReassign(current kafka.ReplicaAssignment, target []kafka.BrokerID) kafka.ReplicaAssignment {
	set := func(list []kafka.BrokerID) map[kafka.BrokerID]bool {
		m := map[kafka.BrokerID]bool{}
		for _, id := range list {
			m[id] = true
		}
		return m
	}
	adding, wanted := set(current.Adding), set(target)
	original := map[kafka.BrokerID]bool{}
	full := slices.Clone(target)
	for _, id := range current.Replicas {
		if !adding[id] {
			original[id] = true
			if !wanted[id] {
				full = append(full, id)
			}
		}
	}
	out := kafka.ReplicaAssignment{Replicas: full}
	for _, id := range full {
		if !original[id] {
			out.Adding = append(out.Adding, id)
		}
		if !wanted[id] {
			out.Removing = append(out.Removing, id)
		}
	}
	return out
}

func drawIDs(t *rapid.T, name string) []kafka.BrokerID {
	g := rapid.SliceOfNDistinct(rapid.Int32Range(0, 6), 1, 5, rapid.ID[int32])
	var out []kafka.BrokerID
	for _, id := range g.Draw(t, name) {
		out = append(out, kafka.BrokerID(id))
	}
	return out
}

// Any chain of targets, over one another, agrees with the naive version, keeps
// I-10, remembers the original replicas, and can be cancelled.
func TestReassignmentAlgebra(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		original := drawIDs(t, "original")
		a := kafka.ReplicaAssignment{Replicas: original}
		for range rapid.IntRange(1, 4).Draw(t, "moves") {
			target := drawIDs(t, "target")
			next, want := a.ReassignTo(target), naiveReassign(a, target)
			if !next.Equal(want) {
				t.Fatalf("%+v to %v: got %+v, naive %+v", a, target, next, want)
			}
			sameSet := func(x, y []kafka.BrokerID) bool {
				return len(kafka.Without(x, y)) == 0 && len(kafka.Without(y, x)) == 0
			}
			switch {
			case !slices.Equal(next.Target(), target):
				t.Fatalf("%+v: target %v, asked for %v", next, next.Target(), target)
			case !sameSet(next.Original(), original):
				t.Fatalf("%+v: original %v, was %v", next, next.Original(), original)
			case len(kafka.Without(next.Adding, next.Removing)) != len(next.Adding):
				t.Fatalf("%+v: adding and removing overlap", next)
			case next.Reassigning() == sameSet(target, original):
				t.Fatalf("%+v: moving %v", next, next.Reassigning())
			}
			if back := next.ReassignTo(next.Original()); back.Reassigning() || !sameSet(back.Replicas, original) {
				t.Fatalf("%+v cancelled: %+v", next, back)
			}
			a = next
		}
		isr := drawIDs(t, "isr")
		inSync := len(kafka.Without(a.Target(), isr)) == 0
		if got := reassign.Complete(a, isr); got != (inSync || !a.Reassigning()) {
			t.Fatalf("%+v with ISR %v: complete %v", a, isr, got)
		}
	})
}
