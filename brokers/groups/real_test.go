package groups_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/wire"
)

const patience = 30 * time.Second

// remote is a real broker that a story's requests go to.
type remote struct {
	ctx     context.Context
	addr    string
	free    map[string][]*wire.Conn // by client id, with no request in flight
	answers chan func()
}

// send asks without waiting: JoinGroup may be answered much later.
func (r *remote) send(t *testing.T, clientID string, req kmsg.Request, answered func(kmsg.Response)) {
	var conn *wire.Conn
	if n := len(r.free[clientID]); n > 0 {
		conn = r.free[clientID][n-1]
		r.free[clientID] = r.free[clientID][:n-1]
	} else {
		var err error
		if conn, err = wire.Dial(r.ctx, r.addr, wire.DialOptions{ClientID: clientID}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	go func() {
		resp, err := conn.Request(r.ctx, req)
		r.answers <- func() {
			if err != nil {
				if r.ctx.Err() == nil {
					t.Errorf("%T v%d: %v", req, req.GetVersion(), err)
				}
				return
			}
			r.free[clientID] = append(r.free[clientID], conn)
			answered(resp)
		}
	}()
}

// ask asks and waits.
func (r *remote) ask(t *testing.T, req kmsg.Request) kmsg.Response {
	t.Helper()
	var resp kmsg.Response
	r.send(t, "poll", req, func(got kmsg.Response) { resp = got })
	for resp == nil {
		r.next(t)
	}
	return resp
}

func (r *remote) next(t *testing.T) {
	t.Helper()
	select {
	case f := <-r.answers:
		f()
	case <-r.ctx.Done():
		t.Fatalf("a real broker did not answer: %v", r.ctx.Err())
	}
}

// TestRealStories replays the stories that need no clock against Kafka 3.9.1:
// it must answer as the files say, and write the same records.
func TestRealStories(t *testing.T) {
	zk := real.ZooKeeper(t)
	k := real.KafkaBroker(t, zk.Addr(), "3.9.1", "offsets.topic.num.partitions=1", "auto.create.topics.enable=false", "group.max.size=4")
	files, err := filepath.Glob("testdata/stories/real/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("stories: %v, %v", files, err)
	}
	prepare(t, k.Addr())
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { replay(t, k.Addr(), file) })
	}
}

// prepare makes the topic of the stories and has the offsets topic made.
func prepare(t *testing.T, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(ctx, 3, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	for { // the coordinator comes with the topic
		if _, err := adm.FetchOffsets(ctx, "g"); err == nil {
			return
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// replay runs one story against the broker, and beside it against ours, which
// tells what to wait for where a request is not answered yet.
func replay(t *testing.T, addr, file string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	r := &remote{ctx: ctx, addr: addr, free: map[string][]*wire.Conn{}, answers: make(chan func(), 100)}
	theirs, ours := newWorld(t), newWorld(t)
	theirs.remote = r
	forget(t, r)
	before := logLines(t, addr)
	var want, got []string
	var wantLog []string
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		ours.t, theirs.t = t, t
		ours.out.Reset()
		ours.directive(d)
		switch d.Cmd {
		case "lead", "load", "unknown", "options":
			return d.Expected
		}
		theirs.directive(d)
		expected := answersOf(d.Expected)
		for strings.Count(theirs.out.String(), " <- ") < len(expected) {
			r.next(t)
		}
		if len(expected) == 0 {
			r.awaitSameState(t, ours)
		}
		where := fmt.Sprintf("%s: %s", d.Pos, d.Cmd)
		want = append(append(want, where), expected...)
		got = append(append(got, where), answersOf(theirs.out.String())...)
		theirs.out.Reset()
		for line := range strings.Lines(d.Expected) {
			if l, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "log "); ok {
				wantLog = append(wantLog, strings.TrimSuffix(l, " acks=0"))
			}
		}
		return d.Expected
	})
	if diff := cmp.Diff(normal(want), normal(got)); diff != "" {
		t.Errorf("answers (-the file, +Kafka):\n%s", diff)
	}
	gotLog := logLines(t, addr)[len(before):]
	if diff := cmp.Diff(normal(bySubject(wantLog)), normal(bySubject(gotLog))); diff != "" {
		t.Errorf("records (-the file, +Kafka):\n%s", diff)
	}
}

// awaitSameState waits until the broker has seen the request that it does not
// answer, as far as that shows.
func (r *remote) awaitSameState(t *testing.T, ours *world) {
	t.Helper()
	req := kmsg.NewDescribeGroupsRequest()
	req.Version, req.Groups = 5, []string{"g"}
	var want string
	ours.send(ours.client("poll"), &req, func(resp kmsg.Response) { want = stateOf(resp) })
	for stateOf(r.ask(t, &req)) != want {
	}
}

func stateOf(r kmsg.Response) string {
	g := r.(*kmsg.DescribeGroupsResponse).Groups[0]
	return fmt.Sprintf("%s with %d", g.State, len(g.Members))
}

// forget removes all groups, members first.
func forget(t *testing.T, r *remote) {
	t.Helper()
	list := kmsg.NewListGroupsRequest()
	for _, g := range r.ask(t, &list).(*kmsg.ListGroupsResponse).Groups {
		describe, leave, del := kmsg.NewDescribeGroupsRequest(), kmsg.NewLeaveGroupRequest(), kmsg.NewDeleteGroupsRequest()
		describe.Groups = []string{g.Group}
		leave.Version, leave.Group = 5, g.Group
		for _, m := range r.ask(t, &describe).(*kmsg.DescribeGroupsResponse).Groups[0].Members {
			leave.Members = append(leave.Members, kmsg.LeaveGroupRequestMember{MemberID: m.MemberID})
		}
		if len(leave.Members) > 0 {
			r.ask(t, &leave)
		}
		del.Groups = []string{g.Group}
		if code := r.ask(t, &del).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode; code != 0 {
			t.Fatalf("delete group %q: %s", g.Group, codeName(code))
		}
	}
}

// logLines reads the offsets topic, which has one partition here.
func logLines(t *testing.T, addr string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{groups.Topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, groups.Topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(groups.Topic, 0)
	var lines []string
	for n := int64(0); n < end.Offset; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(rec *kgo.Record) {
			n = rec.Offset + 1
			lines = append(lines, describeRecord(t, rec.Key, rec.Value))
		})
	}
	return lines
}

func answersOf(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, " <- ") {
			out = append(out, strings.TrimSuffix(line, "\n"))
		}
	}
	slices.Sort(out)
	return out
}

// bySubject orders records by what they are about, since a commit of several
// partitions has them in any order.
func bySubject(lines []string) []string {
	subject := func(l string) string { s, _, _ := strings.Cut(l, ":"); return s }
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(subject(a), subject(b)) })
	return lines
}

var (
	memberID = regexp.MustCompile(`\b([A-Za-z][A-Za-z0-9]*)-([0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+)\b`)
	times    = regexp.MustCompile(`(since|expires)=\+[0-9hms.]+`)
	row      = regexp.MustCompile(` [a-z]+-[0-9]+ [A-Z]`)
	members  = regexp.MustCompile(`( \[[^\]]*\])+`)
)

// normal takes away what may differ: the random part of member ids, times, and
// the order of a group's members and of an answer's partitions.
func normal(lines []string) []string {
	ids := map[string]string{}
	seen := map[string]int{}
	var out []string
	for _, l := range lines {
		l = times.ReplaceAllString(l, "$1=…")
		switch {
		case strings.Contains(l, " <- Offset"):
			at := append(row.FindAllStringIndex(l, -1), []int{len(l)})
			var rows []string
			for i := range at[1:] {
				rows = append(rows, l[at[i][0]:at[i+1][0]])
			}
			slices.Sort(rows)
			l = l[:at[0][0]] + strings.Join(rows, "")
		case !strings.HasPrefix(l, "offset of"):
			l = memberID.ReplaceAllStringFunc(l, func(id string) string {
				name, _, _ := strings.Cut(id, "-")
				if ids[id] == "" {
					seen[name]++
					ids[id] = fmt.Sprintf("%s-#%d", name, seen[name])
				}
				return ids[id]
			})
		}
		l = members.ReplaceAllStringFunc(l, func(s string) string {
			ms := strings.Split(strings.TrimPrefix(s, " "), "] [")
			for i := range ms {
				ms[i] = strings.Trim(ms[i], "[]")
			}
			slices.Sort(ms)
			return " [" + strings.Join(ms, "] [") + "]"
		})
		out = append(out, l)
	}
	return out
}
