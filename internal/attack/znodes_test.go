package attack

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

var (
	seeds     = flag.Int64("attack-seeds", 60, "how many seeds TestGarbage runs")
	firstSeed = flag.Int64("attack-first", 1, "the first of them")
)

var versions = []kafka.ProtocolVersion{kafka.V3_9IV0, kafka.V2_7IV0, kafka.V2_8IV1, kafka.V2_2IV0}

const brokers = 4

// attack is one run.
type attack struct {
	t     *testing.T
	w     *sim.World
	rng   *rand.Rand
	story []string
	bad   map[string]damage // by path: what was there, and what we put there
	lied  []string          // topics whose znodes were strange, but readable: taken at their word
	next  kafka.BrokerID    // id of the next candidate
}

type damage struct {
	was     []byte
	existed bool
	now     []byte
}

func (a *attack) tell(format string, args ...any) {
	a.story = append(a.story, fmt.Sprintf(format, args...))
}

func short(b []byte) string {
	if b == nil {
		return "null data"
	}
	if len(b) > 300 {
		return fmt.Sprintf("%q… (%d bytes)", b[:300], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func (a *attack) get(path string) ([]byte, bool) {
	data, _, code := a.w.ZK.Tree.GetData(zkserver.Who{}, path)
	return data, code == zkserver.OK
}

// put sets a znode or creates it with its parents.
func (a *attack) put(path string, data []byte) {
	if _, ok := a.get(path); ok {
		a.w.ZK.Write(a.w.Admin, zkserver.Op{Kind: zkserver.OpSet, Path: path, Data: data, Version: zkserver.AnyVersion})
		return
	}
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			a.w.ZK.Write(a.w.Admin, zkserver.Op{Path: path[:i], ACL: zkserver.OpenACL()})
		}
	}
	a.w.ZK.Write(a.w.Admin, zkserver.Op{Path: path, Data: data, ACL: zkserver.OpenACL()})
}

func (a *attack) topic(name string) {
	t := zkpaths.Topic{Version: 3}
	if a.w.Options.Version.Less(kafka.V2_8IV0) {
		t.Version = 2
	}
	if a.w.Options.Version.Less(kafka.V2_4IV0) {
		t.Version = 1
	}
	for n := range int32(2) {
		var ids []kafka.BrokerID
		for _, i := range a.rng.Perm(brokers)[:3] {
			ids = append(ids, kafka.BrokerID(i+1))
		}
		t.Partitions = append(t.Partitions, zkpaths.PartitionAssignment{Partition: n, ReplicaAssignment: kafka.ReplicaAssignment{Replicas: ids}})
	}
	a.put(zkpaths.TopicConfigPath(name), zkpaths.EncodeConfig(nil))
	a.put(zkpaths.TopicPath(name), zkpaths.EncodeTopic(t))
}

// good is what belongs into a path, for paths that have nothing yet.
func (a *attack) good(path string) []byte {
	v := kafka.TopicPartition{Topic: fmt.Sprintf("v%d", a.rng.Intn(3)), Partition: int32(a.rng.Intn(2))}
	switch {
	case path == zkpaths.ReassignPartitions:
		return zkpaths.EncodeReassignments([]zkpaths.Reassignment{{Partition: v, Replicas: []kafka.BrokerID{1, 2, 4}}, {Partition: kafka.TopicPartition{Topic: "v2"}, Replicas: []kafka.BrokerID{3}}})
	case path == zkpaths.PreferredElection:
		return zkpaths.EncodePreferredElection([]kafka.TopicPartition{v, {Topic: "v1"}})
	case strings.HasPrefix(path, zkpaths.ISRNotifications):
		return zkpaths.EncodeISRNotification([]kafka.TopicPartition{v})
	case strings.HasPrefix(path, zkpaths.LogDirNotifications):
		return zkpaths.EncodeLogDirEvent(zkpaths.LogDirEvent{Broker: 2, Event: 1})
	case strings.HasPrefix(path, zkpaths.ConfigChanges):
		return zkpaths.EncodeConfigChange(zkpaths.ConfigChange{EntityPath: "topics/v1"})
	case strings.HasPrefix(path, zkpaths.Config):
		return zkpaths.EncodeConfig(map[string]string{"unclean.leader.election.enable": "true", "x": "y"})
	case path == zkpaths.ProducerIDBlock:
		return zkpaths.EncodeProducerBlock(zkpaths.ProducerBlock{Broker: 1, Start: 0, End: 999})
	case path == zkpaths.Feature:
		return zkpaths.EncodeFeatures(zkpaths.Features{Version: 2, Status: 1})
	case path == zkpaths.ClusterID:
		return zkpaths.EncodeClusterID("abc")
	case strings.HasPrefix(path, zkpaths.BrokerTopics):
		return []byte(`{"version":2,"partitions":{"0":[1,2,3],"1":[2,3,4]},"adding_replicas":{"0":[3]},"removing_replicas":{"1":[2]}}`)
	case strings.HasPrefix(path, zkpaths.BrokerIDs):
		return zkpaths.EncodeBroker(sim.Registration(9))
	}
	return []byte(`{"version":1}`)
}

// target chooses a path to damage.
func (a *attack) target() string {
	v := fmt.Sprintf("v%d", a.rng.Intn(3))
	p := a.rng.Intn(2)
	paths := []string{
		zkpaths.TopicPath(v), zkpaths.TopicPath(v), zkpaths.TopicPath(v),
		zkpaths.PartitionStatePath(kafka.TopicPartition{Topic: v, Partition: int32(p)}),
		zkpaths.PartitionStatePath(kafka.TopicPartition{Topic: v, Partition: int32(p)}),
		zkpaths.PartitionStatePath(kafka.TopicPartition{Topic: v, Partition: int32(p)}),
		zkpaths.PartitionsPath(v), zkpaths.PartitionPath(kafka.TopicPartition{Topic: v, Partition: int32(p)}), zkpaths.PartitionsPath(v) + "/x",
		zkpaths.PartitionsPath(v) + "/0/y",
		zkpaths.TopicPath("n" + v), zkpaths.TopicPath("n" + v), zkpaths.TopicPath("n" + v), zkpaths.TopicPath(strings.Repeat("l", 300)), zkpaths.TopicPath("ü ö"), zkpaths.TopicPath("a\\b"),
		zkpaths.TopicPath("n"+v) + "/partitions/0/state",
		zkpaths.BrokerPath(9), zkpaths.BrokerPath(9), zkpaths.BrokerPath(4), zkpaths.BrokerPath(4), zkpaths.BrokerIDs + "/x", zkpaths.BrokerIDs + "/-1", zkpaths.BrokerIDs + "/2147483648",
		zkpaths.BrokerPath(2147483647),
		zkpaths.BrokerIDs, zkpaths.BrokerTopics, zkpaths.BrokerSeqID, zkpaths.ClusterID, zkpaths.Migration,
		zkpaths.ReassignPartitions, zkpaths.ReassignPartitions, zkpaths.ReassignPartitions, zkpaths.PreferredElection, zkpaths.PreferredElection,
		zkpaths.DeleteTopicPath("nobody"), zkpaths.DeleteTopics,
		zkpaths.ISRNotifications, zkpaths.ISRNotifications + "/isr_change_0000000007", zkpaths.ISRNotifications + "/x", zkpaths.ISRNotifications + "/isr_change_0000000009/child",
		zkpaths.LogDirNotifications + "/log_dir_event_0000000003", zkpaths.LogDirNotifications + "/y", zkpaths.LogDirNotifications + "/z/child",
		zkpaths.ConfigChanges + "/config_change_0000000005", zkpaths.ConfigChanges + "/config_change_9223372036854775807", zkpaths.ConfigChanges + "/other",
		zkpaths.TopicConfigPath(v), zkpaths.TopicConfigPath("h0"), zkpaths.ConfigBrokers + "/<default>", zkpaths.ConfigBrokers + "/101", zkpaths.BrokerConfigPath(1),
		zkpaths.ProducerIDBlock, zkpaths.Feature, zkpaths.Admin, zkpaths.ReassignPartitions + "/child", zkpaths.PreferredElection + "/child",
	}
	return paths[a.rng.Intn(len(paths))]
}

// hurt damages one znode.
func (a *attack) hurt() {
	path := a.target()
	was, existed := a.get(path)
	good := was
	if !json.Valid(good) {
		good = a.good(path)
	}
	now := garble(a.rng, good)
	if path == zkpaths.Feature && a.w.Options.Version.AtLeast(kafka.V2_7IV0) {
		if f, err := zkpaths.DecodeFeatures(now); err == nil && len(f.Features) > 0 {
			return // a feature that no broker has shuts all of them out: that is what it is for
		}
	}
	if d, again := a.bad[path]; again {
		was, existed = d.was, d.existed
	}
	if topic, ok := zkpaths.ParseTopicPath(path); ok && !unreadable(path, now) {
		a.lied = append(a.lied, topic)
	}
	a.tell("hurt %s: %s", path, short(now))
	a.put(path, now)
	a.bad[path] = damage{was: was, existed: existed, now: now}
}

// candidate starts a controller.
func (a *attack) candidate() {
	a.next++
	a.tell("candidate %d", a.next)
	a.w.Candidate(a.next).Put(events.Startup{})
}

// settle lets everything happen and passes some time.
func (a *attack) settle() error {
	for range 3 {
		if err := a.w.Stabilize(); err != nil {
			return err
		}
		a.w.Advance(time.Second)
	}
	return a.w.Stabilize()
}

// quiet demands that nothing goes on when nothing is the matter: few events,
// and hardly a line in the log, in ten seconds.
func (a *attack) quiet() string {
	from := len(a.w.Notes)
	for range 10 {
		a.w.Advance(time.Second)
		if err := a.w.Stabilize(); err != nil {
			return err.Error()
		}
	}
	handled, lines, writes := map[string]int{}, map[string]int{}, 0
	total := 0
	for _, n := range a.w.Notes[from:] {
		switch n := n.(type) {
		case sim.Handled:
			handled[n.Event.Name()]++
		case sim.Logged:
			if n.Level <= logrus.InfoLevel {
				lines[fmt.Sprintf("%s %v", n.Message, n.Fields)]++
				total++
			}
		case sim.Wrote:
			if c := a.w.Active(); c != nil && n.Session == c.Store.Session() {
				writes++
			}
		}
	}
	for name, n := range handled {
		if n > 25 && name != "AlterPartitionReceived" && name != "UpdateMetadataResponseReceived" { // leaders ask again and again

			return fmt.Sprintf("%d events %s in ten idle seconds", n, name)
		}
	}
	if total > 3 || writes > 3 {
		return fmt.Sprintf("%d writes and %d lines of log in ten idle seconds: %.2000s", writes, total, strings.Join(slices.Sorted(maps.Keys(lines)), "\n    "))
	}
	return ""
}

// told demands that no line of the log comes again and again.
func (a *attack) told(from int, limit int) string {
	lines := map[string]int{}
	for _, n := range a.w.Notes[from:] {
		if n, ok := n.(sim.Logged); ok && n.Level <= logrus.WarnLevel {
			lines[fmt.Sprintf("%d: %s %v", n.Candidate, n.Message, n.Fields)]++
		}
	}
	for l, n := range lines {
		if n > limit {
			return fmt.Sprintf("told %d times: %.1000s", n, l)
		}
	}
	return ""
}

// healthy demands that topics which nobody touched are led.
func (a *attack) healthy() string {
	c := a.w.Active()
	if c == nil {
		return "nobody is controller"
	}
	for _, name := range []string{"h0", "h1", "h2"} {
		for n := range int32(2) {
			tp := kafka.TopicPartition{Topic: name, Partition: n}
			l, ok := a.w.Leadership(tp)
			if !ok || l.Leader < 0 {
				return fmt.Sprintf("%s is not led: %v", tp, l)
			}
			b := a.w.Brokers[l.Leader]
			if b.Session == 0 {
				return fmt.Sprintf("%s is led by %d, which is dead", tp, l.Leader)
			}
			if h := b.Hosted[tp]; h == nil || h.LeaderEpoch != l.LeaderEpoch {
				if _, ok := a.bad[zkpaths.BrokerPath(l.Leader)]; !ok {
					return fmt.Sprintf("%s: leader %d does not know its epoch %d", tp, l.Leader, l.LeaderEpoch)
				}
			}
		}
	}
	for _, v := range a.w.Violations() {
		if !strings.Contains(v, "v0") && !strings.Contains(v, "v1") && !strings.Contains(v, "v2") && !strings.Contains(v, "lll") && !strings.Contains(v, "ö") && !strings.Contains(v, "a\\b") {
			return v
		}
	}
	return ""
}

// unreadable tells whether a payload is damage that must stay.
func unreadable(path string, data []byte) bool {
	var err error
	switch {
	case path == zkpaths.ReassignPartitions:
		_, err = zkpaths.DecodeReassignments(data, false)
	case path == zkpaths.Feature:
		_, err = zkpaths.DecodeFeatures(data)
	case path == zkpaths.ProducerIDBlock:
		_, _, err = zkpaths.DecodeProducerBlock(data)
	case strings.HasPrefix(path, zkpaths.BrokerIDs+"/"):
		return true // none of ours in any case
	case strings.HasPrefix(path, zkpaths.Config+"/"):
		return true
	default:
		if tp, ok := zkpaths.ParsePartitionStatePath(path); ok {
			_, err = zkpaths.DecodePartitionState(tp, data, 0)
		} else if topic, ok := zkpaths.ParseTopicPath(path); ok {
			_, err = zkpaths.DecodeTopic(topic, data)
		}
	}
	return err != nil
}

// untouched demands that what cannot be read is as we left it.
func (a *attack) untouched() string {
	for path, d := range a.bad {
		if !unreadable(path, d.now) {
			continue
		}
		if now, ok := a.get(path); !ok || !bytes.Equal(now, d.now) || (now == nil) != (d.now == nil) {
			return fmt.Sprintf("%s was unreadable with %s, and is now %s (there: %v)", path, short(d.now), short(now), ok)
		}
	}
	return ""
}

// repair brings back what was there before.
func (a *attack) repair() {
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(a.bad))) {
		d := a.bad[path]
		now, ok := a.get(path)
		switch {
		case !d.existed && strings.HasPrefix(path, zkpaths.TopicPath("v")): // the controller needs it by now
			a.put(path, nil)
		case !d.existed:
			a.tell("repair: remove %s", path)
			a.w.ZK.RemoveAll(a.w.Admin, path)
		case !ok:
			a.tell("repair: %s is gone", path)
		case bytes.Equal(now, d.now):
			a.tell("repair: %s back to %s", path, short(d.was))
			a.put(path, d.was)
		default:
			a.tell("repair: %s was written by the controller: %s", path, short(now))
			if _, state := zkpaths.ParsePartitionStatePath(path); state && unreadable(path, now) {
				a.put(path, d.was)
			}
			if _, topic := zkpaths.ParseTopicPath(path); topic {
				a.put(path, d.was)
			}
		}
	}
}

func check(findings ...string) string {
	for _, f := range findings {
		if f != "" {
			return f
		}
	}
	return ""
}

func (a *attack) run() string {
	w := a.w
	for id := kafka.BrokerID(1); id <= brokers; id++ {
		if err := w.Start(id, nil); err != nil {
			return err.Error()
		}
	}
	for i := range 3 {
		a.topic(fmt.Sprintf("h%d", i))
		a.topic(fmt.Sprintf("v%d", i))
	}
	a.next = 100
	early := a.rng.Intn(3) == 0
	if early { // damage is there before any controller
		for range 1 + a.rng.Intn(4) {
			a.hurt()
		}
	}
	a.candidate()
	if err := a.settle(); err != nil {
		return err.Error()
	}
	if bad := check(a.healthy(), a.untouched()); bad != "" {
		return "after the first election: " + bad
	}
	for range 1 + a.rng.Intn(6) {
		a.hurt()
		for range a.rng.Intn(10) {
			w.Shuffle()
		}
		if a.rng.Intn(2) == 0 {
			if err := a.settle(); err != nil {
				return err.Error()
			}
		}
	}
	if err := a.settle(); err != nil {
		return err.Error()
	}
	if bad := check(a.healthy(), a.untouched(), a.quiet(), a.told(0, 12)); bad != "" {
		return "under damage: " + bad
	}
	a.tell("broker 3 dies")
	w.Crash(3)
	if err := a.settle(); err != nil {
		return err.Error()
	}
	if bad := check(a.healthy(), a.untouched(), a.quiet()); bad != "" {
		return "after broker 3 died: " + bad
	}
	a.tell("the controller dies")
	a.w.Crash(a.next)
	a.candidate()
	if err := a.settle(); err != nil {
		return err.Error()
	}
	if bad := check(a.healthy(), a.untouched(), a.quiet()); bad != "" {
		return "after failover: " + bad
	}
	a.tell("broker 3 returns, then 1 dies")
	if err := w.Start(3, nil); err != nil {
		return err.Error()
	}
	if err := a.settle(); err != nil {
		return err.Error()
	}
	w.Crash(1)
	if err := a.settle(); err != nil {
		return err.Error()
	}
	if bad := check(a.healthy(), a.untouched(), a.quiet()); bad != "" {
		return "after broker 1 died: " + bad
	}
	a.repair()
	if err := a.settle(); err != nil {
		return err.Error()
	}
	for id := kafka.BrokerID(1); id <= brokers; id++ {
		a.tell("broker %d restarts", id)
		w.Crash(id)
		if err := w.Start(id, nil); err != nil {
			return err.Error()
		}
		if err := a.settle(); err != nil {
			return err.Error()
		}
	}
	a.bad = nil
	return check(append([]string{a.healthy(), a.quiet()}, a.final()...)...)
}

// final is sim's last judgement. Partitions whose garbage asked for brokers
// that do not exist cannot be led, nor moved; an assignment that was readable
// counts until somebody asks for another.
func (a *attack) final() []string {
	var out []string
	for _, s := range a.w.Final() {
		if strings.HasPrefix(s, "still moving") || strings.HasSuffix(s, "is still there") || strings.Contains(s, "no state") || strings.Contains(s, "is led by -1") ||
			slices.ContainsFunc(a.lied, func(topic string) bool { return strings.HasPrefix(s, topic+"-") }) {
			continue
		}
		out = append(out, s)
	}
	return out
}

func TestGarbage(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n = min(n, 20)
	}
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			opts := controller.Options{Version: versions[int(seed)%len(versions)], DeleteTopics: true, ImbalancePercent: 10, ImbalanceCheck: time.Minute,
				DefaultPartitions: 1, DefaultReplication: 1}
			if seed%3 == 0 {
				opts.Self = &kafka.Broker{ID: 101, Epoch: kafka.NoBrokerEpoch, Endpoints: []kafka.Endpoint{{Listener: "PLAINTEXT", Host: "c", Port: 9}}}
			}
			w, err := sim.NewWorld(seed, opts)
			if err != nil {
				t.Fatal(err)
			}
			a := &attack{t: t, w: w, rng: rand.New(rand.NewSource(seed)), bad: map[string]damage{}}
			defer func() {
				if r := recover(); r != nil {
					t.Fatalf("seed %d panics: %v\n%s\nstory:\n  %s", seed, r, debug.Stack(), strings.Join(a.story, "\n  "))
				}
			}()
			if bad := a.run(); bad != "" {
				t.Errorf("seed %d (go test ./internal/attack -run TestGarbage -attack-first %d -attack-seeds 1):\n  %s\nstory:\n  %s", seed, seed, bad, strings.Join(a.story, "\n  "))
			}
		})
	}
}
