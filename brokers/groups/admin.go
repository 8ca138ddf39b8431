package groups

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// groupType is what ListGroups calls groups of this protocol.
const groupType = "classic"

// allOperations is what may be done to a group where nothing is forbidden:
// READ, DELETE and DESCRIBE, as bits.
const allOperations = 1<<3 | 1<<6 | 1<<8

func (c *Coordinator) handleDescribe(r Request, req *kmsg.DescribeGroupsRequest) {
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range req.Groups {
		d := c.describe(id)
		d.AuthorizedOperations = math.MinInt32 // not asked for
		if req.IncludeAuthorizedOperations && d.ErrorCode == 0 {
			d.AuthorizedOperations = allOperations
		}
		resp.Groups = append(resp.Groups, d)
	}
	r.Reply(resp)
}

// describe tells about a group. One that is not there is dead.
func (c *Coordinator) describe(id string) kmsg.DescribeGroupsResponseGroup {
	d := kmsg.DescribeGroupsResponseGroup{Group: id}
	p, code := c.find(id, true)
	if code != kafka.NoError {
		d.ErrorCode = int16(code)
		return d
	}
	g := p.groups[id]
	if g == nil {
		d.State = Dead.String()
		return d
	}
	d.State, d.ProtocolType = g.state.String(), g.protocolType
	for _, m := range g.order {
		dm := kmsg.DescribeGroupsResponseGroupMember{MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost}
		if g.state == Stable {
			dm.ProtocolMetadata, dm.MemberAssignment = m.metadata(*g.protocol), m.assignment
		}
		d.Members = append(d.Members, dm)
	}
	if g.state == Stable {
		d.Protocol = *g.protocol
	}
	return d
}

func (c *Coordinator) handleList(r Request, req *kmsg.ListGroupsRequest) {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	is := func(word string) func(string) bool { return func(s string) bool { return strings.EqualFold(s, word) } }
	typeAsked := len(req.TypesFilter) == 0 || slices.ContainsFunc(req.TypesFilter, is(groupType))
	for _, p := range c.partitions {
		if p.loader != nil {
			resp.ErrorCode = int16(kafka.CoordinatorLoadInProgress) // what is loaded is listed all the same
		}
	}
	c.eachGroup(func(g *group) {
		if typeAsked && (len(req.StatesFilter) == 0 || slices.ContainsFunc(req.StatesFilter, is(g.state.String()))) {
			resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{Group: g.id, ProtocolType: g.protocolType, GroupState: g.state.String(), GroupType: groupType})
		}
	})
	slices.SortFunc(resp.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	r.Reply(resp)
}

// handleDelete deletes groups that have no members, with their offsets.
func (c *Coordinator) handleDelete(now time.Time, r Request, req *kmsg.DeleteGroupsRequest) {
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	codes := map[string]kafka.ErrorCode{}
	for _, id := range req.Groups {
		if _, twice := codes[id]; !twice {
			codes[id] = c.delete(now, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(codes)) {
		resp.Groups = append(resp.Groups, kmsg.DeleteGroupsResponseGroup{Group: id, ErrorCode: int16(codes[id])})
	}
	r.Reply(resp)
}

func (c *Coordinator) delete(now time.Time, id string) kafka.ErrorCode {
	p, code := c.find(id, true)
	if code != kafka.NoError {
		return code
	}
	g := p.groups[id]
	switch {
	case g == nil:
		return groupIDNotFound
	case g.state != Empty:
		return nonEmptyGroup
	}
	c.move(now, g, Dead, "deleted on request")
	c.forget(now, g, g.without(g.allPartitions()))
	return kafka.NoError
}
