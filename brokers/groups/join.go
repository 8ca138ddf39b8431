package groups

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// newMemberTimeout is how long a new member is waited for. It sends no
// heartbeats while its join waits, and one that gave up joins again as another.
const newMemberTimeout = 5 * time.Minute

// joinResult answers a JoinGroup, in whatever version.
type joinResult struct {
	code         kafka.ErrorCode
	memberID     string
	generation   int32
	protocolType *string
	protocol     *string
	leader       string
	skip         bool // the leader is not to assign
	members      []kmsg.JoinGroupResponseMember
}

func joinError(memberID string, code kafka.ErrorCode) joinResult {
	return joinResult{code: code, memberID: memberID, generation: -1}
}

// joiner is a JoinGroup request, ready to be looked at.
type joiner struct {
	memberID     string
	instance     *string
	clientID     string
	clientHost   string
	rebalance    time.Duration
	session      time.Duration
	protocolType string
	protocols    []protocol
	needsID      bool // a new member is given its id first (KIP-394)
	maySkip      bool // SkipAssignment is understood
	reason       string
	reply        func(joinResult)
}

func newJoiner(r Request, req *kmsg.JoinGroupRequest) joiner {
	j := joiner{
		memberID: req.MemberID, instance: req.InstanceID, clientID: r.ClientID, clientHost: "/" + r.ClientHost,
		session: millis(req.SessionTimeoutMillis), rebalance: millis(req.RebalanceTimeoutMillis), protocolType: req.ProtocolType,
		needsID: req.Version >= 4 && req.InstanceID == nil, maySkip: req.Version >= 9, reason: clientReason(req.Reason),
	}
	if req.Version == 0 {
		j.rebalance = j.session
	}
	for _, p := range req.Protocols {
		j.protocols = append(j.protocols, protocol{p.Name, p.Metadata})
	}
	j.reply = func(res joinResult) {
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode, resp.MemberID, resp.Generation = int16(res.code), res.memberID, res.generation
		resp.ProtocolType, resp.Protocol = res.protocolType, res.protocol
		resp.LeaderID, resp.SkipAssignment, resp.Members = res.leader, res.skip, res.members
		r.Reply(resp)
	}
	return j
}

func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// clientReason is what a client says about its request (KIP-800).
func clientReason(s *string) string {
	if s == nil || *s == "" {
		return "not given"
	}
	return *s
}

func (c *Coordinator) handleJoin(now time.Time, r Request, req *kmsg.JoinGroupRequest) {
	j := newJoiner(r, req)
	p, code := c.find(req.Group, false)
	switch {
	case code != kafka.NoError:
		j.reply(joinError(j.memberID, code))
		return
	case j.tooLong():
		j.reply(joinError("", kafka.InvalidRequest))
		return
	case j.session < c.o.MinSessionTimeout || j.session > c.o.MaxSessionTimeout:
		j.reply(joinError(j.memberID, invalidSessionTimeout))
		return
	}
	g := p.groups[req.Group]
	if g == nil {
		if j.memberID != "" {
			j.reply(joinError(j.memberID, unknownMemberID))
			return
		}
		g = c.newGroup(now, p, req.Group)
	}
	switch {
	case !c.accepts(g, j.memberID):
		g.remove(j.memberID)
		j.reply(joinError("", groupMaxSizeReached))
	case !g.supports(j.protocolType, j.protocols):
		j.reply(joinError(j.memberID, inconsistentProtocol))
	case j.memberID == "":
		c.joinNew(now, g, j)
	default:
		c.joinKnown(now, g, j)
	}
	c.maybeCompleteJoin(now, g)
	c.settle(now, g)
}

// tooLong tells whether a string would not fit into a record.
func (j joiner) tooLong() bool {
	bad := len(j.memberID) > maxString || len(j.clientID) > maxString-idRoom || len(j.clientHost) > maxString || len(j.protocolType) > maxString ||
		j.instance != nil && len(*j.instance) > maxString-idRoom
	for _, p := range j.protocols {
		bad = bad || len(p.name) > maxString
	}
	return bad
}

// accepts tells whether a group has room for a member. While it gathers, those
// who came first have it.
func (c *Coordinator) accepts(g *group, id string) bool {
	m := g.members[id]
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.join != nil || g.awaiting < c.o.MaxSize
	case CompletingRebalance, Stable:
		return m != nil || len(g.members) < c.o.MaxSize
	}
	return true
}

// joinNew lets one join who has no member id yet.
func (c *Coordinator) joinNew(now time.Time, g *group, j joiner) {
	if j.instance != nil {
		id := *j.instance + "-" + c.o.MemberID()
		if old, ok := g.static[*j.instance]; ok {
			c.replaceStatic(now, g, g.members[old], id, j)
			return
		}
		j.memberID = id
		c.addMember(now, g, j)
		return
	}
	j.memberID = j.clientID + "-" + c.o.MemberID()
	if !j.needsID {
		c.addMember(now, g, j)
		return
	}
	g.pending[j.memberID] = now.Add(j.session)
	c.soon(g, now.Add(j.session))
	j.reply(joinError(j.memberID, memberIDRequired))
}

// addMember adds a new member and has the group rebalance.
func (c *Coordinator) addMember(now time.Time, g *group, j joiner) {
	m := &member{id: j.memberID, instance: j.instance, clientID: j.clientID, clientHost: j.clientHost, rebalance: j.rebalance, session: j.session,
		protocols: j.protocols, join: j.reply, fresh: true}
	if g.state == PreparingRebalance && g.generation == 0 {
		g.newMemberAdded = true
	}
	g.add(m, j.protocolType)
	c.expectHeartbeat(now, g, m, newMemberTimeout)
	c.maybePrepareRebalance(now, g, "member "+m.id+" is new; client's reason: "+j.reason)
}

// joinKnown lets one join who has a member id.
func (c *Coordinator) joinKnown(now time.Time, g *group, j joiner) {
	if _, ok := g.pending[j.memberID]; ok {
		if j.instance != nil { // ids are given out to dynamic members alone
			j.reply(joinError(j.memberID, unknownMemberID))
			return
		}
		c.addMember(now, g, j)
		return
	}
	m, code := g.current(j.memberID, j.instance)
	if code != kafka.NoError {
		j.reply(joinError(j.memberID, code))
		return
	}
	same := m.offers(j.protocols)
	switch {
	case g.state == CompletingRebalance && same:
		// The answer to its first join got lost.
		j.reply(g.joined(m))
	case g.state == Stable && same && g.leader != m.id:
		res := g.joined(m)
		res.members = nil
		j.reply(res)
	case g.state == Empty:
		j.reply(joinError(j.memberID, unknownMemberID))
	default:
		// A leader that joins again asks for a new assignment.
		g.update(m, j.protocols, j.rebalance, j.session, j.reply)
		c.maybePrepareRebalance(now, g, "member "+m.id+" joins again in state "+g.state.String()+"; client's reason: "+j.reason)
	}
}

// current finds a member by the ids of a request. An instance id whose member
// id is another's by now is fenced (KIP-345).
func (g *group) current(id string, instance *string) (*member, kafka.ErrorCode) {
	if instance != nil {
		now, ok := g.static[*instance]
		switch {
		case !ok:
			return nil, unknownMemberID
		case now != id:
			return nil, fencedInstanceID
		}
	}
	m := g.members[id]
	if m == nil {
		return nil, unknownMemberID
	}
	return m, kafka.NoError
}

// joined is a member's answer for the generation that is.
func (g *group) joined(m *member) joinResult {
	res := joinResult{memberID: m.id, generation: g.generation, protocolType: &g.protocolType, protocol: g.protocol, leader: g.leader}
	if g.leader == m.id {
		for _, o := range g.order {
			res.members = append(res.members, kmsg.JoinGroupResponseMember{MemberID: o.id, InstanceID: o.instance, ProtocolMetadata: o.metadata(*g.protocol)})
		}
	}
	protocolType := g.protocolType
	res.protocolType = &protocolType
	return res
}

// replaceStatic lets an instance join that is a member already, under a new
// member id. A stable group whose protocol stays needs no rebalance for that,
// but a record: a failover must not bring the old id back.
func (c *Coordinator) replaceStatic(now time.Time, g *group, m *member, id string, j joiner) {
	oldID, oldLeader := m.id, g.leader
	oldProtocols, oldRebalance, oldSession := m.protocols, m.rebalance, m.session
	g.replace(m, id)
	c.expectHeartbeat(now, g, m, m.session)
	g.update(m, j.protocols, j.rebalance, j.session, j.reply)
	why := "static member " + id + " has started again; client's reason: " + j.reason
	switch {
	case g.state == CompletingRebalance:
		// The leader may be assigning to the old id.
		c.prepareRebalance(now, g, why)
		return
	case g.state != Stable:
		return // it has joined the rebalance that goes on
	case g.protocol == nil || g.selectProtocol() != *g.protocol:
		c.maybePrepareRebalance(now, g, why+"; the protocol changes")
		return
	}
	c.store(now, g, assignments(g), func(now time.Time, code kafka.ErrorCode) {
		if g.state != Stable || g.members[id] != m {
			return // a rebalance, or whoever removed the member, answers
		}
		if code != kafka.NoError {
			answer := m.join
			if answer != nil {
				m.join = nil
				g.awaiting--
			}
			g.update(m, oldProtocols, oldRebalance, oldSession, nil)
			g.replace(m, oldID)
			c.expectHeartbeat(now, g, m, m.session)
			if answer != nil {
				res := g.joined(m)
				res.code, res.memberID, res.leader, res.members = code, "", oldLeader, nil
				answer(res)
			}
			return
		}
		res := g.joined(m)
		if res.skip = j.maySkip && g.leader == id; !j.maySkip {
			// One who takes itself for the leader would assign, and nobody would
			// hear of it. The old id keeps it from that.
			res.leader, res.members = oldLeader, nil
		}
		g.answerJoin(m, res)
	})
}
