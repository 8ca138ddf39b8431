package zktest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkserver"
	"github.com/zkcontroller/zkcontroller/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect gives a client whose session is there.
func connect(t *testing.T, z *zktest.ZooKeeper, timeout time.Duration, dial zk.Dialer) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	conn, events, err := zk.Connect([]string{z.Connect()}, timeout, zk.WithDialer(dial), zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	awaitState(t, events, zk.StateHasSession)
	return conn, events
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func awaitState(t *testing.T, events <-chan zk.Event, want zk.State) {
	t.Helper()
	for e := range events {
		if e.Type == zk.EventSession && e.State == want {
			return
		}
	}
	t.Fatalf("the client ended before it was in state %v", want)
}

func create(t *testing.T, conn *zk.Conn, path, data string, flags int32) {
	t.Helper()
	if _, err := conn.Create(path, []byte(data), flags, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
}

// What clients did can be looked at without one, past access lists.
func TestInspect(t *testing.T) {
	z := zktest.StartZooKeeper(t)
	conn, _ := connect(t, z, 4*time.Second, net.DialTimeout)
	create(t, conn, "/a", "1", 0)
	create(t, conn, "/a/b", "x y", zk.FlagEphemeral)
	create(t, conn, "/ab", "", 0)
	if err := conn.AddAuth("digest", []byte("me:secret")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Create("/a/mine", []byte("2"), 0, zk.AuthACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"/a", "/a/b", "/a/mine", "/ab"}, z.Paths("/")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"b", "mine"}, z.Children("/a")); d != "" {
		t.Error(d)
	}
	if got := z.Data("/a/mine"); got != "2" {
		t.Errorf("/a/mine has %q", got)
	}
	if z.Exists("/none") || z.Data("/none") != "" || z.Children("/none") != nil {
		t.Error("/none is there")
	}
	if n, ok := z.Node("/a/mine"); !ok || len(n.ACL) != 1 || n.ACL[0].Scheme != "digest" || n.Stat.Version != 0 {
		t.Errorf("%+v, %v", n, ok)
	}
	if got := z.SessionOf("/a/b"); got != conn.SessionID() {
		t.Errorf("/a/b belongs to 0x%x, want 0x%x", got, conn.SessionID())
	}
	if z.SessionOf("/a") != 0 || z.SessionOf("/none") != 0 {
		t.Error("a node that is not ephemeral has an owner")
	}
	dump := z.Dump("/a")
	if !strings.HasPrefix(dump, "/a \"1\" v0\n/a/b \"x y\" v0 owner 0x") || strings.Contains(dump, "/ab") {
		t.Errorf("dump:\n%s", dump)
	}
}

// A session that expired, a connection that was cut, a server that hangs.
func TestSessionFaults(t *testing.T) {
	z := zktest.StartZooKeeper(t)
	conn, events := connect(t, z, 4*time.Second, net.DialTimeout)
	create(t, conn, "/e", "", zk.FlagEphemeral)
	id := conn.SessionID()
	if s := z.Sessions(); len(s) != 1 || s[0].ID != id || !slices.Equal(s[0].Ephemerals, []string{"/e"}) {
		t.Errorf("sessions %+v", s)
	}
	if !z.Disconnect(id) {
		t.Fatal("nobody was connected")
	}
	awaitState(t, events, zk.StateHasSession)
	if conn.SessionID() != id || !z.Exists("/e") {
		t.Error("a cut connection has ended the session")
	}
	if !z.Expire(id) || z.Exists("/e") || z.Expire(id) {
		t.Error("the session has not expired, or twice")
	}
	awaitState(t, events, zk.StateExpired)

	awaitState(t, events, zk.StateHasSession)
	z.Pause()
	answer := make(chan error, 1)
	go func() { _, _, err := conn.Exists("/e"); answer <- err }()
	select {
	case err := <-answer:
		t.Fatalf("a server that hangs has answered: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	z.Resume()
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// With the clock in the test's hand sessions expire when it says so.
func TestManualClock(t *testing.T) {
	z := zktest.StartZooKeeper(t, zktest.ManualClock())
	conn, _ := connect(t, z, 10*time.Second, z.DialTimeout)
	create(t, conn, "/e", "", zk.FlagEphemeral)
	z.Advance(9 * time.Second)
	if !z.Exists("/e") {
		t.Error("expired before its time")
	}
	z.Advance(time.Hour)
	if z.Exists("/e") || len(z.Sessions()) != 0 {
		t.Error("not expired in an hour")
	}
}

// In a bubble of virtual time a session expires by itself, at once.
func TestExpiryInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := zktest.StartZooKeeper(t, zktest.InMemory())
		dead := &cutDialer{z: z}
		conn, _ := connect(t, z, 30*time.Second, dead.dial)
		create(t, conn, "/e", "", zk.FlagEphemeral)
		begun := time.Now()
		dead.cut()
		if err := z.Await(t.Context(), func() bool { return !z.Exists("/e") }); err != nil {
			t.Fatal(err)
		}
		// It was heard of a third of its time ago at most.
		if took := time.Since(begun); took < 19*time.Second || took > 31*time.Second {
			t.Errorf("expired after %v", took)
		}
	})
}

// cutDialer connects until it is cut.
type cutDialer struct {
	z    *zktest.ZooKeeper
	dead bool
	conn net.Conn
}

func (d *cutDialer) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	if d.dead {
		return nil, errors.New("cut")
	}
	c, err := d.z.DialTimeout(network, address, timeout)
	d.conn = c
	return c, err
}

func (d *cutDialer) cut() {
	synctest.Wait()
	d.dead = true
	d.conn.Close()
}

// A folder keeps what was written.
func TestDataDir(t *testing.T) {
	dir := t.TempDir()
	for run := range 3 {
		z, err := zktest.NewZooKeeper(zktest.DataDir(dir))
		if err != nil {
			t.Fatal(err)
		}
		if got := len(z.Paths("/")); got != run {
			t.Errorf("run %d found %d nodes", run, got)
		}
		conn, _ := connect(t, z, 4*time.Second, net.DialTimeout)
		create(t, conn, "/n"+strings.Repeat("x", run), "", 0)
		conn.Close()
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	}
}

// What cannot be is told.
func TestBadOptions(t *testing.T) {
	taken := zktest.StartZooKeeper(t)
	for want, o := range map[string][]zktest.Option{
		"another Address": {zktest.Address(taken.Connect())},
		"broker id":       {zktest.BrokerIDs(1, 1)},
		"Release":         {zktest.Release("7.7")},
		"replication":     {zktest.Topic("t", 1, 9)},
		"one of the two":  {zktest.InMemory(), zktest.Address(taken.Connect())},
	} {
		if c, err := zktest.NewCluster(t.Context(), o...); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
			t.Errorf("want %q: %v", want, err)
			if err == nil {
				c.Close()
			}
		}
	}
}

// A logger that Server sets is left alone where Log sets none.
func TestServersOwnLog(t *testing.T) {
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	z, err := zktest.NewZooKeeper(zktest.InMemory(), zktest.Server(func(o *zkserver.Options) { o.Log = log }))
	if err != nil {
		t.Fatal(err)
	}
	c, err := z.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("GET / HTTP/1.0")) // it is what the log shows that matters
	io.Copy(io.Discard, c)
	c.Close()
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "not ZooKeeper's protocol") {
		t.Errorf("the log: %q", out.String())
	}
}

// A leader dies, somebody else leads; it comes back and is in sync again.
func TestFailover(t *testing.T) {
	for _, release := range []string{"2.3", "2.6", "3.9"} {
		t.Run(release, func(t *testing.T) {
			c := zktest.StartCluster(t, zktest.Topic("orders", 3, 3), zktest.Release(release))
			ctx := t.Context()
			first := c.Leader("orders", 0)
			if first == kafka.NoLeader {
				t.Fatal("nobody leads")
			}
			if err := c.Kill(ctx, first); err != nil {
				t.Fatal(err)
			}
			second, err := c.AwaitLeader(ctx, "orders", 0, first)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Restart(ctx, first); err != nil {
				t.Fatal(err)
			}
			if err := c.Await(ctx, func() bool { p, _ := c.Partition("orders", 0); return len(p.ISR) == 3 }); err != nil {
				t.Fatal(err)
			}
			if got := c.Leader("orders", 0); got != second {
				t.Errorf("led by %d, want %d", got, second)
			}
		})
	}
}

// Sessions of broker and controller expire; both come back.
func TestExpiries(t *testing.T) {
	c := zktest.StartCluster(t, zktest.Brokers(2), zktest.Topic("t", 1, 2))
	leader := c.Leader("t", 0)
	before := c.ZooKeeper.SessionOf("/brokers/ids/1")
	if !c.ExpireBroker(1) {
		t.Fatal("broker 1 was not registered")
	}
	if err := c.Await(t.Context(), func() bool { s := c.ZooKeeper.SessionOf("/brokers/ids/1"); return s != 0 && s != before }); err != nil {
		t.Fatal(err)
	}
	epoch := c.ControllerEpoch()
	if !c.ExpireController() {
		t.Fatal("nobody was controller")
	}
	if err := c.Await(t.Context(), func() bool { return c.ControllerEpoch() > epoch && c.ZooKeeper.Exists("/controller") }); err != nil {
		t.Fatal(err)
	}
	if leader == kafka.NoLeader || c.ExpireBroker(7) {
		t.Error("a broker that is not there has expired")
	}
}

// A whole cluster in virtual time: a follower that stands still for the lag's 30
// seconds while there is a record that it lacks leaves the ISR, in no time.
func TestClusterInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := zktest.StartCluster(t, zktest.InMemory(), zktest.Topic("orders", 1, 3))
		ctx := t.Context()
		leader := c.Leader("orders", 0)
		slow := leader%3 + 1
		begun := time.Now()
		if err := c.Pause(ctx, slow); err != nil {
			t.Fatal(err)
		}
		client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.Dialer(c.DialKafka), kgo.DefaultProduceTopic("orders"),
			kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.ProduceSync(ctx, kgo.StringRecord("missed")).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := c.Await(ctx, func() bool { p, _ := c.Partition("orders", 0); return !slices.Contains(p.ISR, slow) }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 30*time.Second || took > 60*time.Second {
			t.Errorf("left the ISR after %v", took)
		}
		if err := c.Resume(ctx, slow); err != nil {
			t.Fatal(err)
		}
		if err := c.Await(ctx, func() bool { p, _ := c.Partition("orders", 0); return slices.Contains(p.ISR, slow) }); err != nil {
			t.Fatal(err)
		}
		// A crash lasts as long as its session.
		if err := c.Crash(ctx, leader); err != nil {
			t.Fatal(err)
		}
		crashed := time.Now()
		if _, err := c.AwaitLeader(ctx, "orders", 0, leader); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(crashed); took < 4*time.Second || took > 7*time.Second {
			t.Errorf("another leader after %v, want the session's 6 s", took)
		}
	})
}

// A client of others works in memory, too.
func TestKafkaClientInMemory(t *testing.T) {
	c := zktest.StartCluster(t, zktest.InMemory())
	client, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.Dialer(c.DialKafka), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	if resp, err := admin.CreateTopic(t.Context(), 4, 2, nil, "payments"); err != nil || resp.Err != nil {
		t.Fatal(err, resp.Err)
	}
	if err := c.Await(t.Context(), func() bool { // brokers are told a moment later
		topics, err := admin.ListTopics(t.Context(), "payments")
		return err == nil && len(topics["payments"].Partitions) == 4
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.DialKafka(t.Context(), "tcp", "broker-9:9092"); err == nil {
		t.Error("a broker that is not there has answered")
	}
}

// The next cluster on a folder finds the topics as they were, leaders included:
// its brokers are there before its controller looks.
func TestClusterKeepsItsTopics(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	kept := ""
	for run := range 4 {
		c, err := zktest.NewCluster(ctx, zktest.DataDir(dir), zktest.Topic("orders", 6, 2))
		if err != nil {
			t.Fatal(err)
		}
		if got := int(c.ControllerEpoch()); got != run+1 {
			t.Errorf("run %d has controller epoch %d", run, got)
		}
		topics := c.ZooKeeper.Dump("/brokers/topics")
		if !strings.Contains(topics, "/brokers/topics/orders/partitions/5/state") {
			t.Errorf("run %d has\n%s", run, topics)
		}
		if d := cmp.Diff(kept, topics); run > 0 && d != "" {
			t.Errorf("run %d found something else: %s", run, d)
		}
		kept = topics
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A start that is given up leaves nothing, as goleak sees.
func TestStartGivenUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := zktest.NewCluster(ctx); err == nil {
		c.Close()
		t.Error("it started")
	}
}
