package groups

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// syncResult answers a SyncGroup, in whatever version.
type syncResult struct {
	code         kafka.ErrorCode
	protocolType *string
	protocol     *string
	assignment   []byte
}

func (c *Coordinator) handleSync(now time.Time, r Request, req *kmsg.SyncGroupRequest) {
	reply := func(res syncResult) {
		resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
		resp.ErrorCode, resp.ProtocolType, resp.Protocol, resp.MemberAssignment = int16(res.code), res.protocolType, res.protocol, res.assignment
		r.Reply(resp)
	}
	if req.Version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		reply(syncResult{code: inconsistentProtocol})
		return
	}
	p, code := c.find(req.Group, false)
	if code == kafka.CoordinatorLoadInProgress {
		// What was going on is lost; old clients do not know the code itself.
		code = rebalanceInProgress
	}
	if code != kafka.NoError {
		reply(syncResult{code: code})
		return
	}
	g := p.groups[req.Group]
	if g == nil {
		reply(syncResult{code: unknownMemberID})
		return
	}
	m, code := g.checkSync(req)
	if code != kafka.NoError {
		reply(syncResult{code: code})
		return
	}
	c.sync(now, g, m, req, reply)
	c.settle(now, g)
}

func (g *group) checkSync(req *kmsg.SyncGroupRequest) (*member, kafka.ErrorCode) {
	m, code := g.current(req.MemberID, req.InstanceID)
	switch {
	case code != kafka.NoError:
		return nil, code
	case req.Generation != g.generation:
		return nil, illegalGeneration
	case req.ProtocolType != nil && *req.ProtocolType != g.protocolType:
		return nil, inconsistentProtocol
	case req.Protocol != nil && (g.protocol == nil || *req.Protocol != *g.protocol):
		return nil, inconsistentProtocol
	case g.state == PreparingRebalance:
		return nil, rebalanceInProgress
	}
	return m, kafka.NoError
}

// synced notes that a member has asked for its assignment.
func (g *group) synced(id string) {
	delete(g.pendingSync, id)
	if len(g.pendingSync) == 0 {
		g.syncDeadline = time.Time{}
	}
}

func (c *Coordinator) sync(now time.Time, g *group, m *member, req *kmsg.SyncGroupRequest, reply func(syncResult)) {
	g.synced(m.id)
	if g.state == Stable {
		protocolType := g.protocolType
		reply(syncResult{protocolType: &protocolType, protocol: g.protocol, assignment: m.assignment})
		c.expectHeartbeat(now, g, m, m.session)
		return
	}
	g.answerSync(m, syncResult{code: rebalanceInProgress}) // of a connection given up
	m.sync = reply
	if g.leader != m.id {
		return
	}
	assignment := make(map[string][]byte, len(g.members))
	for _, a := range req.GroupAssignment {
		if g.members[a.MemberID] != nil {
			assignment[a.MemberID] = a.MemberAssignment
		}
	}
	generation := g.generation
	c.store(now, g, assignment, func(now time.Time, code kafka.ErrorCode) {
		if g.state != CompletingRebalance || g.generation != generation {
			return // the group has moved on, and whoever waited was told
		}
		if code != kafka.NoError {
			c.giveUpAssignment(now, g, code)
			c.maybePrepareRebalance(now, g, "the assignment could not be stored: "+name(code))
			return
		}
		c.assign(now, g, assignment)
	})
}

// assign gives every member that waits what the leader assigned to it.
func (c *Coordinator) assign(now time.Time, g *group, assignment map[string][]byte) {
	for _, m := range g.order {
		m.assignment = assignment[m.id]
	}
	c.move(now, g, Stable, "the leader's assignment is stored")
	protocolType := g.protocolType
	for _, m := range g.order {
		if g.answerSync(m, syncResult{protocolType: &protocolType, protocol: g.protocol, assignment: m.assignment}) {
			c.expectHeartbeat(now, g, m, m.session)
		}
	}
}

func (c *Coordinator) handleHeartbeat(now time.Time, r Request, req *kmsg.HeartbeatRequest) {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = int16(c.heartbeat(now, req))
	r.Reply(resp)
}

func (c *Coordinator) heartbeat(now time.Time, req *kmsg.HeartbeatRequest) kafka.ErrorCode {
	p, code := c.find(req.Group, false)
	if code == kafka.CoordinatorLoadInProgress {
		return kafka.NoError // nobody's session runs yet
	}
	if code != kafka.NoError {
		return code
	}
	g := p.groups[req.Group]
	if g == nil {
		return unknownMemberID
	}
	m, code := g.current(req.MemberID, req.InstanceID)
	switch {
	case code != kafka.NoError:
		return code
	case req.Generation != g.generation:
		return illegalGeneration
	}
	c.expectHeartbeat(now, g, m, m.session)
	if g.state == PreparingRebalance {
		return rebalanceInProgress
	}
	return kafka.NoError
}

func (c *Coordinator) handleLeave(now time.Time, r Request, req *kmsg.LeaveGroupRequest) {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	members := req.Members
	if req.Version < 3 {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	p, code := c.find(req.Group, false)
	if code != kafka.NoError {
		resp.ErrorCode = int16(code)
		r.Reply(resp)
		return
	}
	g := p.groups[req.Group]
	for _, m := range members {
		code := unknownMemberID
		if g != nil {
			code = c.leave(now, g, m)
		}
		if req.Version < 3 {
			resp.ErrorCode = int16(code)
			break
		}
		resp.Members = append(resp.Members, kmsg.LeaveGroupResponseMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ErrorCode: int16(code)})
	}
	r.Reply(resp)
	if g != nil {
		c.settle(now, g)
	}
}

// leave takes one member out. An administrator names a static member by its
// instance alone.
func (c *Coordinator) leave(now time.Time, g *group, l kmsg.LeaveGroupRequestMember) kafka.ErrorCode {
	id := l.MemberID
	if id == "" && l.InstanceID != nil {
		id = g.static[*l.InstanceID]
	}
	if _, ok := g.pending[id]; ok {
		g.remove(id)
		c.maybeCompleteJoin(now, g)
		return kafka.NoError
	}
	m, code := g.current(id, l.InstanceID)
	if code != kafka.NoError {
		return code
	}
	c.removeMember(now, g, m, "member "+id+" left; client's reason: "+clientReason(l.Reason))
	return kafka.NoError
}
