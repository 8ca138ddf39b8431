package groups

import (
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// expectHeartbeat expects a member's next sign of life. None is expected of one
// who waits for us.
func (c *Coordinator) expectHeartbeat(now time.Time, g *group, m *member, within time.Duration) {
	if m.deadline = now.Add(within); m.waits() {
		m.deadline = time.Time{}
		return
	}
	c.soon(g, m.deadline)
}

func (c *Coordinator) maybePrepareRebalance(now time.Time, g *group, reason string) {
	switch g.state {
	case Empty, CompletingRebalance, Stable:
		c.prepareRebalance(now, g, reason)
	}
}

// prepareRebalance asks all members to join again. A group that was empty
// waits for more members before its first generation.
func (c *Coordinator) prepareRebalance(now time.Time, g *group, reason string) {
	if g.state == CompletingRebalance {
		c.giveUpAssignment(now, g, rebalanceInProgress)
	}
	clear(g.pendingSync)
	g.syncDeadline = time.Time{}
	if g.initialDelay = g.state == Empty; g.initialDelay {
		g.delay = c.o.InitialRebalanceDelay
		g.remaining = max(g.rebalanceTimeout()-g.delay, 0)
		g.joinDeadline = now.Add(g.delay)
	} else {
		g.joinDeadline = now.Add(g.rebalanceTimeout())
	}
	c.soon(g, g.joinDeadline)
	c.move(now, g, PreparingRebalance, reason)
	c.maybeCompleteJoin(now, g)
}

// maybeCompleteJoin ends the gathering if nobody is waited for.
func (c *Coordinator) maybeCompleteJoin(now time.Time, g *group) {
	if g.state == PreparingRebalance && !g.initialDelay && g.allJoined() {
		c.completeJoin(now, g)
	}
}

// joinTimedOut ends the gathering, or a piece of the initial delay: as long as
// new members come, it is made longer, up to the rebalance time-out.
func (c *Coordinator) joinTimedOut(now time.Time, g *group) {
	if g.initialDelay && g.newMemberAdded && g.remaining > 0 {
		g.newMemberAdded = false
		ran := g.delay
		g.delay = min(c.o.InitialRebalanceDelay, g.remaining)
		g.remaining = max(g.remaining-ran, 0)
		g.joinDeadline = now.Add(g.delay)
		c.soon(g, g.joinDeadline)
		return
	}
	c.completeJoin(now, g)
}

// shortestWait is how often, at most, a rebalance is looked at that nobody joins,
// however short a rebalance time-out the members ask for.
const shortestWait = 100 * time.Millisecond

// completeJoin begins the next generation with those who joined. Static members
// stay, joined or not, until their session ends.
func (c *Coordinator) completeJoin(now time.Time, g *group) {
	g.joinDeadline, g.initialDelay = time.Time{}, false
	for _, m := range append([]*member(nil), g.order...) {
		if m.join == nil && m.instance == nil {
			g.remove(m.id)
		}
	}
	if len(g.members) > 0 && !g.electJoined() {
		// Only static members are left, and none has joined. Their sessions decide.
		g.joinDeadline = now.Add(max(g.rebalanceTimeout(), shortestWait))
		c.soon(g, g.joinDeadline)
		return
	}
	g.nextGeneration()
	if len(g.members) == 0 {
		c.move(now, g, Empty, "no member is left")
		c.store(now, g, nil, nil)
		return
	}
	c.move(now, g, CompletingRebalance, "the members have joined")
	for _, m := range g.order {
		g.pendingSync[m.id] = true
	}
	g.syncDeadline = now.Add(g.rebalanceTimeout())
	c.soon(g, g.syncDeadline)
	for _, m := range g.order {
		g.answerJoin(m, g.joined(m))
		c.expectHeartbeat(now, g, m, m.session)
		m.fresh = false
	}
}

// syncTimedOut removes those who joined and did not ask for their assignment.
func (c *Coordinator) syncTimedOut(now time.Time, g *group) {
	g.syncDeadline = time.Time{}
	if len(g.pendingSync) == 0 || g.state != CompletingRebalance && g.state != Stable {
		return
	}
	for _, m := range append([]*member(nil), g.order...) {
		if g.pendingSync[m.id] {
			g.remove(m.id)
		}
	}
	c.prepareRebalance(now, g, "members joined but did not sync in time")
}

// removeMember takes a member out, and has the others rebalance.
func (c *Coordinator) removeMember(now time.Time, g *group, m *member, reason string) {
	g.remove(m.id)
	if g.state == PreparingRebalance {
		c.maybeCompleteJoin(now, g)
		return
	}
	if g.state != Empty {
		c.maybePrepareRebalance(now, g, reason)
	}
}

// giveUpAssignment tells all who wait for their assignment that there is none.
func (c *Coordinator) giveUpAssignment(now time.Time, g *group, code kafka.ErrorCode) {
	for _, m := range g.order {
		m.assignment = nil
	}
	for _, m := range g.order {
		if g.answerSync(m, syncResult{code: code}) {
			c.expectHeartbeat(now, g, m, m.session)
		}
	}
}

// assignments is what every member has now.
func assignments(g *group) map[string][]byte {
	a := make(map[string][]byte, len(g.order))
	for _, m := range g.order {
		a[m.id] = m.assignment
	}
	return a
}

// store appends the record of a group. done hears the client's error code, or none.
func (c *Coordinator) store(now time.Time, g *group, assignment map[string][]byte, done func(now time.Time, code kafka.ErrorCode)) {
	var ended func(time.Time, kafka.ErrorCode)
	if done != nil {
		ended = func(now time.Time, code kafka.ErrorCode) {
			if g.state != Dead {
				done(now, groupError(code))
				c.settle(now, g)
			}
		}
	}
	c.append(now, g.partition, acksAll, []record{{key: groupKey(g.id), value: groupValue(g, assignment, c.o.Version)}}, ended)
}
