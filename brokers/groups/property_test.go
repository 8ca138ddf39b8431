package groups_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// TestMembersComeAndGo lets clients do what they should, mostly, and what they
// like, sometimes, while appends are slow or fail and brokers fail over.
// Whatever happens: one leader a generation, who alone assigns; a heartbeat that
// is in order means that the member has the group's generation; no committed
// offset is lost; and in the end every request was answered once.
func TestMembersComeAndGo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newCrowd(t, rt)
		for range rapid.IntRange(30, 300).Draw(rt, "steps") {
			switch dice := rapid.IntRange(0, 99).Draw(rt, "dice"); {
			case dice < 70:
				m.next(rt)
			case dice < 80:
				m.w.advance(time.Duration(rapid.IntRange(0, 4_000).Draw(rt, "ms")) * time.Millisecond)
			case dice < 82:
				m.w.advance(time.Duration(rapid.IntRange(0, 60).Draw(rt, "s")) * time.Second)
			case dice < 84:
				m.w.hold = true
			case dice < 88:
				m.release(rt)
			case dice < 89:
				m.failover(rt)
			case dice < 90:
				m.leave(rt, m.who(rt))
			case dice < 92:
				m.restart(rt)
			case dice < 93:
				m.join(rt, m.who(rt))
			case dice < 94:
				m.sync(rt, m.who(rt))
			case dice < 98:
				m.commit(rt, m.who(rt))
			default:
				m.fetch(rt)
			}
		}
		m.end(rt)
	})
}

// crowd is a world with clients that behave, more or less.
type crowd struct {
	w          *world
	people     []*person
	generation int32              // the group's, as told
	leaders    map[int32][]string // who were told to lead a generation, by broker epoch and generation
	assigners  map[string]bool    // "generation by leader" whose assignment was sent
	committed  int64              // the latest offset that was acknowledged
	attempted  int64              // the latest that was sent
}

type person struct {
	*client
	phase phase
	lead  []string // whom to assign to: it was told to lead
}

// phase is what a person who behaves does next.
type phase int

const (
	out    phase = iota // joins
	joined              // syncs
	member              // sends heartbeats
	waits               // for an answer
)

// next has somebody do what is to be done.
func (m *crowd) next(rt *rapid.T) { m.step(rt, m.who(rt)) }

func (m *crowd) step(rt *rapid.T, p *person) {
	switch p.phase {
	case out:
		m.join(rt, p)
	case joined:
		m.sync(rt, p)
	case member:
		m.heartbeat(rt, p)
	}
}

// hears is what a person makes of an error code.
func (p *person) hears(code int16, fine phase) {
	p.phase = out
	switch codeName(code) {
	case "NONE":
		p.phase = fine
	case "REBALANCE_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "MEMBER_ID_REQUIRED":
	default:
		p.member, p.generation, p.lead = "", -1, nil
	}
}

func newCrowd(t *testing.T, rt *rapid.T) *crowd {
	m := &crowd{w: newWorld(t), leaders: map[int32][]string{}, assigners: map[string]bool{}, committed: -1}
	m.w.o.MaxSize = rapid.IntRange(2, 6).Draw(rt, "max size")
	m.w.o.InitialRebalanceDelay = time.Duration(rapid.SampledFrom([]int{0, 3}).Draw(rt, "initial delay")) * time.Second
	m.w.o.Told = func(tr groups.Transition) { m.generation = tr.Generation }
	m.w.renew()
	m.w.epoch = 1
	m.w.c.Lead(m.w.now, 0, 1)
	m.w.load(false)
	for i := range 5 {
		p := &person{client: m.w.client(fmt.Sprintf("p%d", i)), phase: out}
		if i >= 3 { // a static member
			instance := fmt.Sprintf("i%d", i)
			p.instance = &instance
		}
		p.configure(rt)
		m.people = append(m.people, p)
	}
	return m
}

func (m *crowd) who(rt *rapid.T) *person { return rapid.SampledFrom(m.people).Draw(rt, "who") }

func (m *crowd) join(rt *rapid.T, p *person) {
	p.phase = waits
	req := kmsg.NewJoinGroupRequest()
	req.Version = p.version
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = "g", p.member, p.instance, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(p.session.Milliseconds()), int32(p.rebalance.Milliseconds())
	for _, name := range strings.Split(p.protocols, ",") {
		req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: []byte(name)})
	}
	epoch := m.w.epoch
	m.w.send(p.client, &req, func(r kmsg.Response) {
		resp := r.(*kmsg.JoinGroupResponse)
		p.lead = nil
		p.hears(resp.ErrorCode, joined)
		switch codeName(resp.ErrorCode) {
		case "NONE":
			p.member, p.generation = resp.MemberID, resp.Generation
			if resp.LeaderID == resp.MemberID && !resp.SkipAssignment {
				m.leads(rt, epoch, resp)
				p.lead = []string{}
				for _, o := range resp.Members {
					p.lead = append(p.lead, o.MemberID)
				}
			} else if len(resp.Members) > 0 && !resp.SkipAssignment {
				rt.Fatalf("%s leads not, and is told the members: %+v", resp.MemberID, resp)
			}
		case "MEMBER_ID_REQUIRED":
			p.member = resp.MemberID
		}
	})
}

// leads notes that a member was told to lead.
func (m *crowd) leads(rt *rapid.T, epoch int32, resp *kmsg.JoinGroupResponse) {
	key := epoch<<16 | resp.Generation
	for _, o := range m.leaders[key] {
		if o != resp.MemberID {
			rt.Fatalf("generation %d is led by %s and by %s", resp.Generation, o, resp.MemberID)
		}
	}
	m.leaders[key] = append(m.leaders[key], resp.MemberID)
}

func (m *crowd) sync(rt *rapid.T, p *person) {
	p.phase = waits
	req := kmsg.NewSyncGroupRequest()
	req.Version = 4
	req.Group, req.Generation, req.MemberID, req.InstanceID = "g", p.generation, p.member, p.instance
	by := fmt.Sprintf("%d by %s", p.generation, p.member)
	if p.lead != nil {
		m.assigners[by] = true
	} else {
		by = "nobody" // assigns without being the leader
	}
	for _, id := range append([]string{p.member}, p.lead...) {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: []byte(by)})
	}
	generation := p.generation
	m.w.send(p.client, &req, func(r kmsg.Response) {
		resp := r.(*kmsg.SyncGroupResponse)
		p.hears(resp.ErrorCode, member)
		if resp.ErrorCode != 0 || len(resp.MemberAssignment) == 0 {
			return
		}
		by := string(resp.MemberAssignment)
		if g, _, _ := strings.Cut(by, " by "); !m.assigners[by] || g != strconv.Itoa(int(generation)) {
			rt.Fatalf("%s of generation %d got the assignment %q", req.MemberID, generation, by)
		}
	})
}

func (m *crowd) heartbeat(rt *rapid.T, p *person) {
	req := kmsg.NewHeartbeatRequest()
	req.Version, req.Group, req.Generation, req.MemberID, req.InstanceID = 4, "g", p.generation, p.member, p.instance
	m.w.send(p.client, &req, func(r kmsg.Response) {
		if code := r.(*kmsg.HeartbeatResponse).ErrorCode; code == 0 && req.Generation != m.generation {
			rt.Fatalf("the heartbeat of %s is in order in generation %d, and the group has %d", req.MemberID, req.Generation, m.generation)
		} else {
			p.hears(code, member)
		}
	})
}

func (m *crowd) leave(_ *rapid.T, p *person) {
	req := kmsg.NewLeaveGroupRequest()
	req.Version, req.Group = 5, "g"
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: p.member, InstanceID: p.instance}}
	m.w.send(p.client, &req, func(kmsg.Response) {})
	p.member, p.generation, p.lead, p.phase = "", -1, nil, out
}

// restart is a process that starts again and remembers nothing.
func (m *crowd) restart(rt *rapid.T) {
	p := m.who(rt)
	p.member, p.generation, p.lead, p.phase = "", -1, nil, out
	p.configure(rt)
}

// configure draws how a process joins.
func (p *person) configure(rt *rapid.T) {
	versions := []int16{3, 5, 8, 9}
	if p.instance != nil {
		versions = versions[1:]
	}
	p.version = rapid.SampledFrom(versions).Draw(rt, "version")
	p.session = rapid.SampledFrom([]time.Duration{6 * time.Second, 10 * time.Second, 30 * time.Second}).Draw(rt, "session")
	p.rebalance = rapid.SampledFrom([]time.Duration{time.Second, 10 * time.Second, time.Minute}).Draw(rt, "rebalance")
	// All offer both. A member that was loaded is known by the chosen one alone,
	// so whoever lacks that is refused until the member has joined again.
	p.protocols = rapid.SampledFrom([]string{"range,sticky", "sticky,range"}).Draw(rt, "protocols")
}

func (m *crowd) commit(_ *rapid.T, p *person) {
	m.attempted++
	req := kmsg.NewOffsetCommitRequest()
	req.Version, req.Group, req.Generation, req.MemberID, req.InstanceID = 8, "g", p.generation, p.member, p.instance
	row := kmsg.NewOffsetCommitRequestTopicPartition()
	row.Offset = m.attempted
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{row}}}
	m.w.send(p.client, &req, func(r kmsg.Response) {
		if r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode == 0 {
			m.committed = max(m.committed, row.Offset)
		}
	})
}

func (m *crowd) fetch(rt *rapid.T) {
	req := kmsg.NewOffsetFetchRequest()
	req.Version, req.Group = 5, "g"
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	m.w.send(m.people[0].client, &req, func(r kmsg.Response) {
		got := r.(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0].Offset
		if got < m.committed || got > m.attempted {
			rt.Fatalf("offset %d is fetched, %d was committed, %d sent", got, m.committed, m.attempted)
		}
	})
}

// release ends the appends on hold, in order: committed, refused, or written
// and then not replicated in time.
func (m *crowd) release(rt *rapid.T) {
	held := m.w.held
	m.w.held, m.w.hold = nil, false
	for _, h := range held {
		switch rapid.SampledFrom([]string{"committed", "committed", "refused", "late"}).Draw(rt, "append") {
		case "committed":
			m.w.commit(h)
		case "refused":
			m.w.do(m.w.c.Appended(m.w.now, h.Token, codeOf(m.w, "NOT_ENOUGH_REPLICAS")))
		case "late":
			m.w.log = append(m.w.log, h.Batch...)
			m.w.do(m.w.c.Appended(m.w.now, h.Token, kafka.RequestTimedOut))
		}
	}
}

func (m *crowd) failover(rt *rapid.T) {
	m.w.c.Resign(m.w.now, 0, m.w.epoch)
	if m.w.waiting != 0 {
		rt.Fatalf("%d requests wait at a broker that has resigned", m.w.waiting)
	}
	for _, h := range m.w.held { // some got into the log, to the others' knowledge or not
		if rapid.Bool().Draw(rt, "replicated") {
			m.w.log = append(m.w.log, h.Batch...)
		}
	}
	m.w.held = nil
	m.w.renew()
	m.w.epoch++
	m.w.c.Lead(m.w.now, 0, m.w.epoch)
	m.w.load(false)
	m.generation = loadedGeneration(rt, m.w.log, "g")
}

// heal lets everybody behave and nothing fail: all that the group has room for
// are members of one generation then, and stay.
func (m *crowd) heal(rt *rapid.T) {
	m.release(rt)
	for range 400 {
		for _, p := range m.people {
			m.step(rt, p)
		}
		m.w.advance(500 * time.Millisecond)
	}
	in := 0
	for _, p := range m.people {
		if p.phase == member {
			in++
			if p.generation != m.generation {
				rt.Fatalf("%s has generation %d, the group %d", p.member, p.generation, m.generation)
			}
		}
	}
	// Static members that were away when the others joined may be above the limit.
	if want := min(len(m.people), m.w.o.MaxSize); in < want || m.describe().State != "Stable" {
		for _, p := range m.people {
			rt.Logf("%s is %q, phase %d, generation %d", p.name, p.member, p.phase, p.generation)
		}
		rt.Fatalf("%d clients are members, at least %d should be, of %+v", in, want, m.describe())
	}
}

func (m *crowd) describe() (g kmsg.DescribeGroupsResponseGroup) {
	req := kmsg.NewDescribeGroupsRequest()
	req.Groups = []string{"g"}
	m.w.send(m.people[0].client, &req, func(r kmsg.Response) { g = r.(*kmsg.DescribeGroupsResponse).Groups[0] })
	return g
}

// end lets everybody go: sessions and rebalances end by themselves.
func (m *crowd) end(rt *rapid.T) {
	m.heal(rt)
	m.w.advance(time.Hour)
	if m.w.waiting != 0 {
		rt.Fatalf("%d requests were never answered", m.w.waiting)
	}
	if g := m.describe(); g.State != "Empty" && g.State != "Dead" || len(g.Members) > 0 {
		rt.Fatalf("an hour later the group is %s with %d members", g.State, len(g.Members))
	}
	m.fetch(rt)
}

// loadedGeneration is the generation that a log says a group has.
func loadedGeneration(rt *rapid.T, log []byte, group string) int32 {
	generation := int32(0)
	for len(log) > 0 {
		var b kmsg.RecordBatch
		if err := b.ReadFrom(log); err != nil {
			rt.Fatal(err)
		}
		n := int(b.Length) + 12
		eachRecord(log[:n], func(key, value []byte) {
			var k kmsg.GroupMetadataKey
			var v kmsg.GroupMetadataValue
			if key[1] == 2 && k.ReadFrom(key) == nil && k.Group == group {
				generation = 0
				if v.ReadFrom(value) == nil {
					generation = v.Generation
				}
			}
		})
		log = log[n:]
	}
	return generation
}
