package groups

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"
)

// dueGroups is the groups by when they want to be looked at.
type dueGroups []*group

func (d dueGroups) Len() int           { return len(d) }
func (d dueGroups) Less(i, j int) bool { return d[i].next.Before(d[j].next) }
func (d dueGroups) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].heap, d[j].heap = i+1, j+1
}
func (d *dueGroups) Push(x any) {
	g := x.(*group)
	*d = append(*d, g)
	g.heap = len(*d)
}
func (d *dueGroups) Pop() any {
	g := (*d)[len(*d)-1]
	(*d)[len(*d)-1] = nil
	*d = (*d)[:len(*d)-1]
	g.heap = 0
	return g
}

func (d dueGroups) first() *group {
	if len(d) == 0 {
		return nil
	}
	return d[0]
}

func (d *dueGroups) remove(g *group) {
	if g.heap > 0 {
		heap.Remove(d, g.heap-1)
	}
}

// set notes when a group wants to be looked at; the zero time is never.
func (d *dueGroups) set(g *group, next time.Time) {
	g.next = next
	switch {
	case next.IsZero():
		d.remove(g)
	case g.heap == 0:
		heap.Push(d, g)
	default:
		heap.Fix(d, g.heap-1)
	}
}

// soon makes sure that a group is looked at by a time. A deadline that moves
// away needs no call: the group is looked at too early, once.
func (c *Coordinator) soon(g *group, at time.Time) {
	if g.next.IsZero() || at.Before(g.next) {
		c.due.set(g, at)
	}
}

// deadline is one of a group's deadlines.
type deadline struct {
	at   time.Time
	kind deadlineKind
	id   string // of the member
}

type deadlineKind uint8

const (
	pendingMember deadlineKind = iota
	heartbeat
	syncWait
	joinWait
)

// deadlines lists the deadlines of a group up to a time, in order, and the
// first one after it.
func (g *group) deadlines(now time.Time) (due []deadline, next time.Time) {
	add := func(at time.Time, kind deadlineKind, id string) {
		switch {
		case at.IsZero():
		case !at.After(now):
			due = append(due, deadline{at, kind, id})
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	for _, id := range slices.Sorted(maps.Keys(g.pending)) {
		add(g.pending[id], pendingMember, id)
	}
	for _, m := range g.order {
		add(m.deadline, heartbeat, m.id)
	}
	add(g.syncDeadline, syncWait, "")
	add(g.joinDeadline, joinWait, "")
	slices.SortStableFunc(due, func(a, b deadline) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.kind, b.kind)) })
	return due, next
}

// settle does what a group's time has come for, and what becomes due by that.
func (c *Coordinator) settle(now time.Time, g *group) {
	for g.state != Dead {
		due, next := g.deadlines(now)
		if len(due) == 0 {
			c.due.set(g, next)
			return
		}
		for _, d := range due {
			c.expire(now, g, d)
		}
	}
	c.due.remove(g)
}

// expire ends one deadline, unless it was moved or dropped meanwhile.
func (c *Coordinator) expire(now time.Time, g *group, d deadline) {
	switch d.kind {
	case pendingMember:
		if at, ok := g.pending[d.id]; ok && at.Equal(d.at) {
			g.remove(d.id)
			c.maybeCompleteJoin(now, g)
		}
	case heartbeat:
		m := g.members[d.id]
		if m == nil || !m.deadline.Equal(d.at) {
			return
		}
		if m.deadline = (time.Time{}); !m.waits() {
			c.removeMember(now, g, m, "member "+m.id+" sent no heartbeat in time")
		}
	case syncWait:
		if g.syncDeadline.Equal(d.at) {
			c.syncTimedOut(now, g)
		}
	case joinWait:
		if g.joinDeadline.Equal(d.at) {
			c.joinTimedOut(now, g)
		}
	}
}
