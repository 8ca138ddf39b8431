package groups_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// BenchmarkHeartbeat is one heartbeat of a stable group of a hundred, among a
// hundred groups, with the ticks that go with it.
func BenchmarkHeartbeat(b *testing.B) {
	c, members, now := crowded(b, 100, 100)
	reply := func(r kmsg.Response) {
		if code := r.(*kmsg.HeartbeatResponse).ErrorCode; code != 0 {
			b.Fatal(codeName(code))
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		m := members[i%len(members)]
		i++
		now = now.Add(300 * time.Microsecond) // every member every 3 s
		if at, ok := c.Deadline(); ok && !at.After(now) {
			c.Tick(now)
		}
		c.Handle(now, groups.Request{Request: &kmsg.HeartbeatRequest{Version: 4, Group: m.group, MemberID: m.id, Generation: m.generation}, Reply: reply})
	}
}

// BenchmarkOffsetCommit is one commit of ten partitions, until it is answered.
func BenchmarkOffsetCommit(b *testing.B) {
	c, _, now := crowded(b, 1, 1)
	req := kmsg.NewOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, "simple", -1
	t := kmsg.OffsetCommitRequestTopic{Topic: "t"}
	for n := range int32(10) {
		t.Partitions = append(t.Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: n, Offset: 1})
	}
	req.Topics = append(req.Topics, t)
	b.ReportAllocs()
	for b.Loop() {
		for _, a := range c.Handle(now, groups.Request{Request: &req, Reply: func(kmsg.Response) {}}) {
			c.Appended(now, a.Token, kafka.NoError)
		}
	}
}

type benchMember struct {
	group, id  string
	generation int32
}

// crowded has groups of so many members, all stable.
func crowded(b *testing.B, n, size int) (*groups.Coordinator, []*benchMember, time.Time) {
	o := groups.DefaultOptions()
	ids := 0
	o.MemberID = func() string { ids++; return fmt.Sprint(ids) }
	o.Partitions = func() int32 { return 1 }
	c, err := groups.New(o)
	if err != nil {
		b.Fatal(err)
	}
	now := start
	c.Lead(now, 0, 1)
	do := func(as []groups.Append) {
		for _, a := range as {
			c.Appended(now, a.Token, kafka.NoError)
		}
	}
	do(c.Loaded(now, 0))
	var members []*benchMember
	for g := range n {
		group := fmt.Sprintf("group-%d", g)
		for range size {
			m := &benchMember{group: group}
			members = append(members, m)
			req := kmsg.NewJoinGroupRequest()
			req.Version, req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 3, group, 10_000, 60_000, "consumer"
			req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: make([]byte, 50)}}
			do(c.Handle(now, groups.Request{Request: &req, ClientID: "c", Reply: func(r kmsg.Response) {
				resp := r.(*kmsg.JoinGroupResponse)
				m.id, m.generation = resp.MemberID, resp.Generation
			}}))
		}
	}
	now = now.Add(o.InitialRebalanceDelay) // the groups gather
	do(c.Tick(now))
	for range 2 {
		now = now.Add(o.InitialRebalanceDelay)
		do(c.Tick(now))
	}
	for _, m := range members {
		req := kmsg.NewSyncGroupRequest()
		req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
		do(c.Handle(now, groups.Request{Request: &req, Reply: func(kmsg.Response) {}}))
	}
	return c, members, now
}
