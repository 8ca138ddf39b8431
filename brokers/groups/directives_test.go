package groups_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/kafka"
)

func (w *world) directive(d *datadriven.TestData) {
	a := args{w, d}
	switch d.Cmd {
	case "options":
		w.options(a)
	case "lead":
		w.epoch++
		w.printf("load=%v", w.c.Lead(w.now, 0, w.epoch))
	case "load":
		w.load(a.has("unfinished"))
	case "loaded":
		w.do(w.c.Loaded(w.now, 0))
	case "resign":
		w.c.Resign(w.now, 0, int32(a.num("epoch", int64(w.epoch))))
	case "failover":
		// Another broker becomes leader and goes on.
		w.c.Resign(w.now, 0, w.epoch)
		w.held = nil
		w.renew()
		w.epoch++
		w.c.Lead(w.now, 0, w.epoch)
		w.load(false)
	case "hold":
		w.hold = true
	case "committed":
		w.committed(a.has("reversed"))
	case "fails":
		held := w.held
		w.held, w.hold = nil, false
		for _, h := range held {
			w.do(w.c.Appended(w.now, h.Token, codeOf(w, a.str("code", ""))))
		}
	case "advance":
		w.advance(a.dur("by", 0))
	case "topics-deleted":
		tps, _ := a.pairs()
		for _, tp := range tps {
			w.unknown = append(w.unknown, tp.Topic)
		}
		w.do(w.c.TopicsDeleted(w.now, tps))
	case "unknown":
		w.unknown = a.plain()
	case "deadline":
		at, ok := w.c.Deadline()
		w.printf("%v +%s", ok, at.Sub(start))
	default:
		w.request(a)
	}
}

func (w *world) options(a args) {
	w.o.InitialRebalanceDelay = a.dur("initial-delay", w.o.InitialRebalanceDelay)
	w.o.MaxSize = int(a.num("max-size", int64(w.o.MaxSize)))
	w.o.MaxOffsetMetadata = int(a.num("max-metadata", int64(w.o.MaxOffsetMetadata)))
	if v := a.str("version", ""); v != "" {
		var err error
		if w.o.Version, err = kafka.ParseProtocolVersion(v); err != nil {
			w.t.Fatal(err)
		}
	}
	w.renew()
}

func (w *world) load(unfinished bool) {
	if err := w.c.Load(0, w.log); err != nil {
		w.printf("error %v", err)
	}
	if !unfinished {
		w.do(w.c.Loaded(w.now, 0))
	}
}

func (w *world) committed(reversed bool) {
	held := w.held
	if reversed {
		slices.Reverse(held)
	}
	w.held, w.hold = nil, false
	for _, h := range held {
		w.commit(h)
	}
}

// request sends one. The first word is the client.
func (w *world) request(a args) {
	who := w.client(a.plain()[0])
	if a.has("member") {
		who.member = a.str("member", "")
	}
	if a.has("instance") {
		who.instance = a.opt("instance")
	}
	if a.has("generation") {
		who.generation = int32(a.num("generation", -1))
	}
	group := a.str("group", "g")
	switch a.d.Cmd {
	case "join":
		w.join(a, who, group)
	case "sync":
		w.sync(a, who, group)
	case "heartbeat":
		req := kmsg.NewHeartbeatRequest()
		req.Version = int16(a.num("v", 4))
		req.Group, req.MemberID, req.InstanceID, req.Generation = group, who.member, who.instance, who.generation
		w.send(who, &req, func(r kmsg.Response) {
			w.printf("%s <- Heartbeat %s", who.name, codeName(r.(*kmsg.HeartbeatResponse).ErrorCode))
		})
	case "leave":
		w.leave(a, who, group)
	case "commit":
		w.offsetCommit(a, who, group)
	case "fetch":
		w.offsetFetch(a, who, group)
	case "offset-delete":
		w.offsetDelete(a, who, group)
	case "describe":
		w.describe(a, who)
	case "list":
		w.list(a, who)
	case "delete":
		w.deleteGroups(a, who)
	default:
		w.t.Fatalf("%s: no such directive", a.d.Cmd)
	}
}

func (w *world) join(a args, who *client, group string) {
	if a.has("restart") { // the process forgets its member id
		who.member, who.generation = "", -1
	}
	if a.has("protocols") || who.protocols == "" {
		who.protocols = a.str("protocols", "range")
	}
	if a.has("v") || who.version < 0 {
		who.version = int16(a.num("v", 9))
	}
	who.session, who.rebalance = a.dur("session", who.session), a.dur("rebalance", who.rebalance)
	req := kmsg.NewJoinGroupRequest()
	req.Version = who.version
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = group, who.member, who.instance, a.str("type", "consumer")
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(who.session.Milliseconds()), int32(who.rebalance.Milliseconds())
	req.Reason = a.opt("reason")
	for _, p := range strings.FieldsFunc(who.protocols, func(r rune) bool { return r == ',' }) {
		name, topics, ok := strings.Cut(p, ":")
		metadata := []byte("by " + who.name)
		if ok { // a consumer's subscription
			s := kmsg.ConsumerMemberMetadata{Topics: strings.Split(topics, "+")}
			metadata = s.AppendTo(nil)
		}
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: metadata})
	}
	w.send(who, &req, func(r kmsg.Response) {
		resp := r.(*kmsg.JoinGroupResponse)
		if resp.ErrorCode == 0 || resp.MemberID != "" {
			who.member = resp.MemberID
		}
		if resp.ErrorCode == 0 {
			who.generation = resp.Generation
		}
		line := fmt.Sprintf("%s <- JoinGroup %s member=%s generation=%d type=%s protocol=%s leader=%s", who.name, codeName(resp.ErrorCode), resp.MemberID, resp.Generation,
			text(resp.ProtocolType), text(resp.Protocol), resp.LeaderID)
		if resp.SkipAssignment {
			line += " skip-assignment"
		}
		for _, m := range resp.Members {
			line += fmt.Sprintf(" [%s %.20q]", m.MemberID, m.ProtocolMetadata)
		}
		w.printf("%s", line)
	})
}

func (w *world) sync(a args, who *client, group string) {
	req := kmsg.NewSyncGroupRequest()
	req.Version = int16(a.num("v", 5))
	req.Group, req.MemberID, req.InstanceID, req.Generation = group, who.member, who.instance, who.generation
	proto, kind := a.str("protocol", strings.SplitN(strings.SplitN(who.protocols, ",", 2)[0], ":", 2)[0]), a.str("type", "consumer")
	if !a.has("no-protocol") {
		req.ProtocolType, req.Protocol = &kind, &proto
	}
	for _, as := range strings.FieldsFunc(a.str("assign", ""), func(r rune) bool { return r == ',' }) {
		name, what, _ := strings.Cut(as, ":")
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: w.client(name).member, MemberAssignment: []byte(what)})
	}
	w.send(who, &req, func(r kmsg.Response) {
		resp := r.(*kmsg.SyncGroupResponse)
		w.printf("%s <- SyncGroup %s type=%s protocol=%s has=%q", who.name, codeName(resp.ErrorCode), text(resp.ProtocolType), text(resp.Protocol), resp.MemberAssignment)
	})
}

func (w *world) leave(a args, who *client, group string) {
	req := kmsg.NewLeaveGroupRequest()
	req.Version = int16(a.num("v", 5))
	req.Group, req.MemberID = group, who.member
	m := kmsg.LeaveGroupRequestMember{MemberID: who.member, InstanceID: who.instance, Reason: a.opt("reason")}
	req.Members = []kmsg.LeaveGroupRequestMember{m}
	for _, other := range a.plain()[1:] {
		o := w.client(other)
		req.Members = append(req.Members, kmsg.LeaveGroupRequestMember{MemberID: o.member, InstanceID: o.instance})
	}
	w.send(who, &req, func(r kmsg.Response) {
		resp := r.(*kmsg.LeaveGroupResponse)
		line := fmt.Sprintf("%s <- LeaveGroup %s", who.name, codeName(resp.ErrorCode))
		for _, m := range resp.Members {
			line += fmt.Sprintf(" [%s instance=%s %s]", m.MemberID, text(m.InstanceID), codeName(m.ErrorCode))
		}
		w.printf("%s", line)
	})
}

func (w *world) offsetCommit(a args, who *client, group string) {
	req := kmsg.NewOffsetCommitRequest()
	req.Version = int16(a.num("v", 9))
	req.Group, req.MemberID, req.InstanceID, req.Generation = group, who.member, who.instance, who.generation
	req.RetentionTimeMillis = int64(a.num("retention-ms", -1))
	tps, vals := a.pairs()
	for i, tp := range tps {
		row := kmsg.NewOffsetCommitRequestTopicPartition()
		row.Partition = tp.Partition
		at, metadata, _ := strings.Cut(vals[i], "/")
		row.Offset, _ = strconv.ParseInt(at, 10, 64)
		if n, ok := strings.CutPrefix(metadata, "x"); ok { // so many letters
			k, _ := strconv.Atoi(n)
			metadata = strings.Repeat("x", k)
		}
		row.Metadata = &metadata
		row.LeaderEpoch = int32(a.num("leader-epoch", 4))
		row.Timestamp = -1
		if a.has("timestamp") {
			row.Timestamp = start.Add(a.dur("timestamp", 0)).UnixMilli()
		}
		if n := len(req.Topics); n > 0 && req.Topics[n-1].Topic == tp.Topic {
			req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, row)
			continue
		}
		req.Topics = append(req.Topics, kmsg.OffsetCommitRequestTopic{Topic: tp.Topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{row}})
	}
	w.send(who, &req, func(r kmsg.Response) {
		line := who.name + " <- OffsetCommit"
		for _, t := range r.(*kmsg.OffsetCommitResponse).Topics {
			for _, row := range t.Partitions {
				line += fmt.Sprintf(" %s-%d %s", t.Topic, row.Partition, codeName(row.ErrorCode))
			}
		}
		w.printf("%s", line)
	})
}

func (w *world) offsetFetch(a args, who *client, group string) {
	req := kmsg.NewOffsetFetchRequest()
	req.Version = int16(a.num("v", 9))
	req.RequireStable = a.has("stable")
	tps, _ := a.pairs()
	var topics []kmsg.OffsetFetchRequestGroupTopic
	for _, tp := range tps {
		topics = append(topics, kmsg.OffsetFetchRequestGroupTopic{Topic: tp.Topic, Partitions: []int32{tp.Partition}})
		req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: tp.Topic, Partitions: []int32{tp.Partition}})
	}
	if a.has("nothing") {
		topics, req.Topics = []kmsg.OffsetFetchRequestGroupTopic{}, []kmsg.OffsetFetchRequestTopic{}
	}
	req.Group = group
	for _, g := range strings.Split(group, ",") {
		fg := kmsg.NewOffsetFetchRequestGroup()
		fg.Group, fg.Topics = g, topics
		req.Groups = append(req.Groups, fg)
	}
	w.send(who, &req, func(r kmsg.Response) {
		resp := r.(*kmsg.OffsetFetchResponse)
		for _, g := range resp.Groups {
			line := fmt.Sprintf("%s <- OffsetFetch %s %s", who.name, g.Group, codeName(g.ErrorCode))
			for _, t := range g.Topics {
				for _, row := range t.Partitions {
					line += fmt.Sprintf(" %s-%d %s %d epoch=%d %q", t.Topic, row.Partition, codeName(row.ErrorCode), row.Offset, row.LeaderEpoch, text(row.Metadata))
				}
			}
			w.printf("%s", line)
		}
		if req.Version < 8 {
			line := fmt.Sprintf("%s <- OffsetFetch %s", who.name, codeName(resp.ErrorCode))
			for _, t := range resp.Topics {
				for _, row := range t.Partitions {
					line += fmt.Sprintf(" %s-%d %s %d %q", t.Topic, row.Partition, codeName(row.ErrorCode), row.Offset, text(row.Metadata))
				}
			}
			w.printf("%s", line)
		}
	})
}

func (w *world) offsetDelete(a args, who *client, group string) {
	req := kmsg.NewOffsetDeleteRequest()
	req.Group = group
	tps, _ := a.pairs()
	for _, tp := range tps {
		req.Topics = append(req.Topics, kmsg.OffsetDeleteRequestTopic{Topic: tp.Topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: tp.Partition}}})
	}
	w.send(who, &req, func(r kmsg.Response) {
		resp := r.(*kmsg.OffsetDeleteResponse)
		line := fmt.Sprintf("%s <- OffsetDelete %s", who.name, codeName(resp.ErrorCode))
		for _, t := range resp.Topics {
			for _, row := range t.Partitions {
				line += fmt.Sprintf(" %s-%d %s", t.Topic, row.Partition, codeName(row.ErrorCode))
			}
		}
		w.printf("%s", line)
	})
}

func (w *world) describe(a args, who *client) {
	req := kmsg.NewDescribeGroupsRequest()
	req.Version = int16(a.num("v", 5))
	req.Groups = strings.Split(a.str("group", "g"), ",")
	req.IncludeAuthorizedOperations = a.has("operations")
	w.send(who, &req, func(r kmsg.Response) {
		for _, g := range r.(*kmsg.DescribeGroupsResponse).Groups {
			line := fmt.Sprintf("%s <- DescribeGroups %s %s %s type=%q protocol=%q", who.name, g.Group, codeName(g.ErrorCode), g.State, g.ProtocolType, g.Protocol)
			if req.IncludeAuthorizedOperations {
				line += fmt.Sprintf(" operations=%b", g.AuthorizedOperations)
			}
			for _, m := range g.Members {
				line += fmt.Sprintf(" [%s instance=%s %s%s says=%q has=%q]", m.MemberID, text(m.InstanceID), m.ClientID, m.ClientHost, m.ProtocolMetadata, m.MemberAssignment)
			}
			w.printf("%s", line)
		}
	})
}

func (w *world) list(a args, who *client) {
	req := kmsg.NewListGroupsRequest()
	req.Version = int16(a.num("v", 5))
	split := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }
	req.StatesFilter, req.TypesFilter = split(a.str("states", "")), split(a.str("types", ""))
	w.send(who, &req, func(r kmsg.Response) {
		resp := r.(*kmsg.ListGroupsResponse)
		line := fmt.Sprintf("%s <- ListGroups %s", who.name, codeName(resp.ErrorCode))
		for _, g := range resp.Groups {
			line += fmt.Sprintf(" [%s %q %s %s]", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
		}
		w.printf("%s", line)
	})
}

func (w *world) deleteGroups(a args, who *client) {
	req := kmsg.NewDeleteGroupsRequest()
	req.Version = 2
	req.Groups = strings.Split(a.str("group", "g"), ",")
	w.send(who, &req, func(r kmsg.Response) {
		line := who.name + " <- DeleteGroups"
		gs := r.(*kmsg.DeleteGroupsResponse).Groups
		slices.SortFunc(gs, func(a, b kmsg.DeleteGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
		for _, g := range gs {
			line += fmt.Sprintf(" [%s %s]", g.Group, codeName(g.ErrorCode))
		}
		w.printf("%s", line)
	})
}
