package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkstore"
)

// program is the built zkcontroller, made once for all tests that run it.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "crash")
	if err != nil {
		return "", err
	}
	programDir = dir
	path := filepath.Join(dir, "zkcontroller")
	build := exec.Command("go", "build", "-o", path, "../../cmd/zkcontroller")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return path, nil
})

var programDir string // "" until it was made

var zooKeeper = real.SharedZooKeeper{Options: []real.ZKOption{real.WithTick(400 * time.Millisecond)}}

func TestMain(m *testing.M) {
	code := m.Run()
	zooKeeper.Stop()
	if programDir != "" {
		os.RemoveAll(programDir)
	}
	os.Exit(code)
}

const (
	patience       = 60 * time.Second       // for anything, on a busy machine
	look           = 20 * time.Millisecond  // between two looks
	quiet          = 400 * time.Millisecond // for which a world that has come to rest is watched
	controllerTime = "4000"
	brokerTime     = "8000"
)

// child is a process that ends with its test; what it printed is shown if the test fails.
type child struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
}

func launch(t *testing.T, name string, env []string, args ...string) *child {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(path, args...), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() { c.cmd.Wait(); close(c.done) }()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			lines := strings.Split(strings.TrimSpace(c.out.String()), "\n")
			t.Logf("the last lines of %s:\n%s", name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
	return c
}

// kill is SIGKILL; the process is gone when it returns.
func (c *child) kill() {
	c.cmd.Process.Signal(syscall.SIGKILL)
	<-c.done
}

// site is a ZooKeeper under a chroot, brokers 1 to 4 that stay alive, and a
// succession of controllers: one in office, the next standing by.
type site struct {
	t       *testing.T
	zk      *real.ZKServer
	chroot  string
	session *zkstore.Session
	brokers *child
	admin   string // of the brokers
	clients map[kafka.BrokerID]*kgo.Client
	started int
	holder  *office
	standby *office
}

// office is one controller process behind its tap.
type office struct {
	id  kafka.BrokerID
	tap *tap
	c   *child
}

func newSite(t *testing.T, chroot string) *site {
	t.Helper()
	s := &site{t: t, zk: zooKeeper.Get(t), chroot: chroot, clients: map[kafka.BrokerID]*kgo.Client{}}
	var err error
	s.session, err = zkstore.Dial(t.Context(), zkstore.Options{Servers: []string{s.zk.Addr()}, Chroot: chroot, SessionTimeout: 8 * time.Second}, func(zkpaths.Notice) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.session.Close(context.Background()) })
	port, err := real.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s.admin = fmt.Sprintf("127.0.0.1:%d", port)
	s.holder = s.controller()
	s.await("the first controller is elected", func() error { return s.inOffice(s.holder.id) })
	s.brokers = launch(t, "the brokers", []string{"ZKC_REPLICA_FETCH_WAIT_MAX_MS=50", "ZKC_ZOOKEEPER_SESSION_TIMEOUT_MS=" + brokerTime},
		"broker", "--zookeeper", s.zk.Addr()+chroot, "--ids", "1-4", "--profile", "C", "--admin", s.admin)
	for id := kafka.BrokerID(1); id <= 4; id++ {
		s.await(fmt.Sprintf("broker %d is registered", id), func() error { return s.connect(id) })
	}
	s.standby = s.controller()
	return s
}

// controller starts the next controller process.
func (s *site) controller() *office {
	s.t.Helper()
	s.started++
	port, err := real.FreePort()
	if err != nil {
		s.t.Fatal(err)
	}
	o := &office{id: 100 + kafka.BrokerID(s.started), tap: newTap(s.t, s.zk.Addr())}
	o.c = launch(s.t, fmt.Sprintf("controller %d", o.id), []string{"ZKC_ZOOKEEPER_SESSION_TIMEOUT_MS=" + controllerTime},
		"run", "--zookeeper", o.tap.l.Addr().String()+s.chroot, "--broker-id", fmt.Sprint(o.id), "--zk-batch", "1",
		"--listener", fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", port))
	o.tap.kill = o.c.kill
	return o
}

// connect makes a client for a broker that has registered.
func (s *site) connect(id kafka.BrokerID) error {
	data, _, ok := s.get(zkpaths.BrokerPath(id))
	r, err := zkpaths.DecodeBroker(id, data)
	if !ok || err != nil {
		return errors.New("not registered")
	}
	e := r.Broker.Endpoints[0]
	c, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("%s:%d", e.Host, e.Port)))
	if err != nil {
		return err
	}
	if old := s.clients[id]; old != nil {
		old.Close()
	} else {
		s.t.Cleanup(func() { s.clients[id].Close() })
	}
	s.clients[id] = c
	return nil
}

func (s *site) read(op zkpaths.ReadOp, path string) zkpaths.Node {
	nodes, err := s.session.Read(s.t.Context(), []zkpaths.Read{{Op: op, Path: path}})
	if err != nil {
		s.t.Fatalf("read %s: %v", path, err)
	}
	return nodes[0]
}

func (s *site) get(path string) ([]byte, int32, bool) {
	n := s.read(zkpaths.GetData, path)
	return n.Data, n.Stat.Version, n.Code == zkpaths.OK
}

func (s *site) children(path string) []string { return s.read(zkpaths.GetChildren, path).Children }

// write is what tools do.
func (s *site) write(ws ...zkpaths.Write) {
	s.t.Helper()
	out, err := s.session.Write(s.t.Context(), zkpaths.Unfenced, ws)
	if err != nil {
		s.t.Fatal(err)
	}
	for i, o := range out {
		if !o.OK() && o.Code != zkpaths.NoNode {
			s.t.Fatal(o.Error(ws[i].Path))
		}
	}
}

// await looks until there is no objection.
func (s *site) await(what string, objection func() error) {
	s.t.Helper()
	if err := within(patience, objection); err != nil {
		s.t.Fatalf("%s: not within %s: %v", what, patience, err)
	}
}

func within(d time.Duration, objection func() error) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for deadline := time.Now().Add(d); ; <-tick.C {
		err := objection()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (s *site) inOffice(id kafka.BrokerID) error {
	data, _, _ := s.get(zkpaths.Controller)
	if n, err := zkpaths.DecodeController(data); err != nil || n.Broker != id {
		return fmt.Errorf("/controller is %q", data)
	}
	return nil
}

// fault asks the brokers' process for something.
func (s *site) fault(id kafka.BrokerID, op string) (*brokers.Snapshot, error) {
	body, err := json.Marshal(brokers.FaultRequest{Broker: id, Op: op})
	if err != nil {
		return nil, err
	}
	resp, err := http.Post("http://"+s.admin+"/fault", "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out brokers.FaultResponse
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, err
	}
	if out.Error != "" {
		return nil, errors.New(out.Error)
	}
	return out.State, nil
}

// state gives the facts about one topic and about what is left over: znodes,
// and what every broker hosts and tells clients. The topic is called T in it.
func (s *site) state(name string) (world, error) {
	all, states := znodes(s)
	out := world{}
	put := func(k, v string) { out[strings.ReplaceAll(k, name, "T")] = strings.ReplaceAll(v, name, "T") }
	for k, v := range all {
		put(k, v)
	}
	for id := kafka.BrokerID(1); id <= 4; id++ {
		snap, err := s.fault(id, "status")
		if err != nil {
			return nil, err
		}
		put(fmt.Sprintf("broker %d", id), fmt.Sprintf("%s registered %v", snap.Phase, snap.Registered))
		if !snap.Registered {
			continue
		}
		for _, p := range snap.Partitions {
			zk := states[p.Partition]
			v := fmt.Sprintf("%s leader %d replicas %s present epoch %v", p.Role, p.Leader, sorted(p.Replicas), p.LeaderEpoch == zk.LeaderEpoch)
			if p.Leader == id {
				v += fmt.Sprintf(" isr %s present version %v", sorted(p.ISR), p.PartitionEpoch == zk.ZKVersion)
			}
			put(fmt.Sprintf("broker %d hosts %s", id, p.Partition), v)
		}
		if err := s.metadata(id, put); err != nil {
			return nil, fmt.Errorf("metadata of broker %d: %w", id, err)
		}
	}
	return out, nil
}

func (s *site) metadata(id kafka.BrokerID, put func(k, v string)) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*time.Second)
	defer cancel()
	resp, err := s.clients[id].SeedBrokers()[0].Request(ctx, kmsg.NewPtrMetadataRequest())
	if err != nil {
		return err
	}
	m := resp.(*kmsg.MetadataResponse)
	var live []kafka.BrokerID
	for _, b := range m.Brokers {
		if b.NodeID <= 4 {
			live = append(live, kafka.BrokerID(b.NodeID))
		}
	}
	put(fmt.Sprintf("broker %d sees brokers", id), sorted(live))
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			put(fmt.Sprintf("broker %d knows %s-%d", id, *t.Topic, p.Partition),
				fmt.Sprintf("leader %d isr %s replicas %v", p.Leader, sorted32(p.ISR), p.Replicas))
		}
	}
	return nil
}

func sorted32(ids []int32) string {
	out := make([]kafka.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = kafka.BrokerID(id)
	}
	return sorted(out)
}

// is objects as long as the state is another one.
func (s *site) is(want world, name string) func() error {
	return func() error {
		got, err := s.state(name)
		if err != nil {
			return err
		}
		if d := want.diff(got); len(d) > 0 {
			return errors.New("\n  " + strings.Join(d, "\n  "))
		}
		return nil
	}
}

// rest waits until ok has no objection, and then until nothing changes any more.
func (s *site) rest(what, name string, ok func(world) error) world {
	s.t.Helper()
	var last world
	since := time.Now()
	s.await(what, func() error {
		got, err := s.state(name)
		if err != nil {
			return err
		}
		if len(last.diff(got)) > 0 || last == nil {
			last, since = got, time.Now()
		}
		if err := ok(got); err != nil {
			return err
		}
		if time.Since(since) < 2*quiet {
			return errors.New("it still changes")
		}
		return nil
	})
	return last
}

// realStory is a story for real processes; T stands for its topic.
type realStory struct {
	name       string
	partitions []string // replica lists
	act        func(s *site, topic string)
	ends       func(world) error // rough: what the undisturbed end must at least be
	undo       func(s *site)
}

var realStories = []realStory{
	{"reassignment", []string{"1,2"}, func(s *site, topic string) {
		tp := kafka.TopicPartition{Topic: topic}
		s.write(zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.ReassignPartitions,
			Data: zkpaths.EncodeReassignments([]zkpaths.Reassignment{{Partition: tp, Replicas: ids("3,4")}})})
	}, func(w world) error {
		return expect(w, map[string]string{
			"/brokers/topics/T partition 0":        "replicas [3 4] adding [] removing []",
			"/brokers/topics/T/partitions/0/state": "leader 3 isr [3,4] recovery 0",
			zkpaths.ReassignPartitions:             "",
			"broker 1 hosts T-0":                   "",
			"broker 1 knows T-0":                   "leader 3 isr [3,4] replicas [3 4]",
			"broker 4 hosts T-0":                   "follower leader 3 replicas [3,4] present epoch true",
		})
	}, nil},
	{"deletion", []string{"1,2", "2,3"}, func(s *site, topic string) {
		s.write(zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.DeleteTopicPath(topic)})
	}, func(w world) error {
		return expect(w, map[string]string{
			"/brokers/topics/T": "", "/config/topics/T": "", "/admin/delete_topics/T": "", "broker 1 hosts T-0": "", "broker 3 hosts T-1": "", "broker 4 knows T-0": "",
		})
	}, nil},
	{"broker failure", []string{"3,1,2", "1,3", "3,4", "2,3,4", "1,2"}, func(s *site, topic string) {
		if _, err := s.fault(3, "kill"); err != nil {
			s.t.Fatal(err)
		}
	}, func(w world) error {
		return expect(w, map[string]string{
			"/brokers/topics/T/partitions/0/state": "leader 1 isr [1,2] recovery 0", "/brokers/topics/T/partitions/1/state": "leader 1 isr [1] recovery 0",
			"/brokers/topics/T/partitions/2/state": "leader 4 isr [4] recovery 0", "/brokers/topics/T/partitions/3/state": "leader 2 isr [2,4] recovery 0",
			"broker 4 sees brokers": "[1,2,4]", "broker 4 knows T-0": "leader 1 isr [1,2] replicas [3 1 2]",
		})
	}, func(s *site) {
		if _, err := s.fault(3, "restart"); err != nil {
			s.t.Fatal(err)
		}
		s.await("broker 3 is back", func() error {
			snap, err := s.fault(3, "status")
			if err != nil || !snap.Registered {
				return fmt.Errorf("not registered (%w)", err)
			}
			return s.connect(3)
		})
	}},
}

// expect names the facts in which a world differs; "" is absent.
func expect(w world, facts map[string]string) error {
	var bad []string
	for k, v := range facts {
		if w[k] != v {
			bad = append(bad, fmt.Sprintf("%s: %q, expected %q", k, w[k], v))
		}
	}
	slices.Sort(bad)
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "; "))
	}
	return nil
}

// TestRealProcesses kills zkcontroller processes by SIGKILL, each right after
// one of its writes to a ZooKeeper, and lets another process go on. On Apache's
// the first story is enough to see that it makes no difference.
func TestRealProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real processes and half a minute; run without -short")
	}
	stories := realStories
	if real.Chosen(t) == real.Apache {
		stories = stories[:1]
	}
	points, kills := 0, 0
	for i, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			s := newSite(t, fmt.Sprintf("/crash%d", i))
			p, k := s.everyWrite(story)
			points, kills = points+p, kills+k
		})
	}
	t.Logf("%d crash points, %d kills", points, kills)
}

// everyWrite plays a story undisturbed, then again and again with a kill one
// write later, until there is no such write.
func (s *site) everyWrite(story realStory) (points, kills int) {
	var before, end world
	run := 0
	for limit := -1; ; limit++ {
		reached := true
		for _, answered := range []bool{false, true} {
			if limit < 0 && answered || limit == 0 && !answered {
				continue // undisturbed is once; before the first write there is no answer
			}
			run++
			topic := fmt.Sprintf("crash%03d", run)
			s.create(topic, story.partitions)
			if limit < 0 {
				before = s.rest("the topic is created", topic, created(story))
				s.holder.tap.arm(never, true)
				story.act(s, topic)
				end = s.rest("the undisturbed end", topic, story.ends)
				points = s.holder.tap.counted() + 1
				s.t.Logf("undisturbed: %d writes", points-1)
				s.clean(story, topic)
				continue
			}
			s.await("the topic is created", s.is(before, topic))
			if reached = s.killAt(story, topic, end, limit, answered, kills%8 == 7); reached {
				kills++
			}
			s.clean(story, topic)
			if s.t.Failed() {
				return points, kills
			}
		}
		if !reached && limit >= points-1 {
			s.t.Logf("%d crash points, %d kills", points, kills)
			return points, kills
		}
	}
}

func created(story realStory) func(world) error {
	return func(w world) error {
		facts := map[string]string{}
		for n, list := range story.partitions {
			leader, _, _ := strings.Cut(list, ",")
			facts[fmt.Sprintf("/brokers/topics/T/partitions/%d/state", n)] = fmt.Sprintf("leader %s isr %s recovery 0", leader, sorted(ids(list)))
			facts[fmt.Sprintf("broker 4 knows T-%d", n)] = fmt.Sprintf("leader %s isr %s replicas %v", leader, sorted(ids(list)), ids(list))
		}
		return expect(w, facts)
	}
}

func (s *site) create(topic string, partitions []string) {
	node := zkpaths.Topic{Version: 3, ID: kafka.TopicID{1, byte(s.started), 2, 3, byte(len(topic)), topic[len(topic)-1], topic[len(topic)-2]}}
	for n, list := range partitions {
		node.Partitions = append(node.Partitions, zkpaths.PartitionAssignment{Partition: int32(n), ReplicaAssignment: kafka.ReplicaAssignment{Replicas: ids(list)}})
	}
	s.write(zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.TopicConfigPath(topic), Data: zkpaths.EncodeConfig(nil)},
		zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.TopicPath(topic), Data: zkpaths.EncodeTopic(node)})
}

// killAt plays a story with a kill; false if it ended before that write came.
func (s *site) killAt(story realStory, topic string, end world, limit int, answered, expire bool) bool {
	s.t.Helper()
	victim := s.holder
	victim.tap.arm(limit, answered)
	story.act(s, topic)
	what := fmt.Sprintf("kill at write %d, answered %v, expire %v", limit, answered, expire)
	if !s.untilDead(victim, topic, end) {
		if n := victim.tap.counted(); n != limit {
			victim.tap.arm(never, true) // it counts on, and dies no more
			return false
		}
		victim.tap.die() // idle after its last write
	}
	if expire {
		s.expire()
	} else { // the session's end would do the same, some seconds later
		s.write(zkpaths.Write{Op: zkpaths.Delete, Path: zkpaths.Controller, Version: zkpaths.AnyVersion})
	}
	s.holder = s.standby
	s.await(what+": the next controller is elected", func() error { return s.inOffice(s.holder.id) })
	s.standby = s.controller()
	if err := within(patience, s.is(end, topic)); err != nil {
		s.t.Errorf("%s: another end than undisturbed: %v", what, err)
		return true
	}
	return true
}

// expire ends the session of whoever is controller: the embedded server does it
// when told, Apache's when the session's time is up.
func (s *site) expire() {
	s.t.Helper()
	if s.zk.Embedded == nil {
		return
	}
	if n := s.read(zkpaths.GetData, zkpaths.Controller); n.Code != zkpaths.OK || !s.zk.Embedded.Expire(n.Stat.EphemeralOwner) {
		s.t.Fatalf("the controller's session is not there any more: %+v", n)
	}
}

// untilDead waits for the kill; false if the story has ended without it.
func (s *site) untilDead(victim *office, topic string, end world) bool {
	s.t.Helper()
	var since time.Time
	dead := false
	s.await("death or end", func() error {
		select {
		case <-victim.tap.dead:
			dead = true
			return nil
		default:
		}
		if err := s.is(end, topic)(); err != nil {
			since = time.Time{}
			return err
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("it may go on")
		}
		return nil
	})
	return dead
}

// clean makes the world what it was before the topic.
func (s *site) clean(story realStory, topic string) {
	s.t.Helper()
	if story.undo != nil {
		story.undo(s)
	}
	if _, _, ok := s.get(zkpaths.TopicPath(topic)); ok {
		s.write(zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.DeleteTopicPath(topic)})
	}
	s.await("the topic is gone", func() error {
		for _, path := range []string{zkpaths.TopicPath(topic), zkpaths.DeleteTopicPath(topic)} {
			if _, _, ok := s.get(path); ok {
				return errors.New(path + " is there")
			}
		}
		return nil
	})
}
