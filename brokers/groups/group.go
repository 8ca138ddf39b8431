package groups

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// State of a group.
type State uint8

const (
	Empty               State = iota // no members; offsets may be there
	PreparingRebalance               // waiting for the members to join
	CompletingRebalance              // waiting for the leader's assignment
	Stable                           // every member may fetch its assignment
	Dead                             // gone, here or altogether
)

// String gives Kafka's name.
func (s State) String() string {
	switch s {
	case Empty:
		return "Empty"
	case PreparingRebalance:
		return "PreparingRebalance"
	case CompletingRebalance:
		return "CompletingRebalance"
	case Stable:
		return "Stable"
	case Dead:
		return "Dead"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// consumerProtocol is the protocol type of consumers, whose subscriptions can
// be read.
const consumerProtocol = "consumer"

// protocol is one that a member offers, with what it says under it.
type protocol struct {
	name     string
	metadata []byte
}

// member is one of a group. join or sync is there while the member waits for
// the answer to such a request.
type member struct {
	id         string
	instance   *string // group.instance.id of a static member
	clientID   string
	clientHost string
	rebalance  time.Duration
	session    time.Duration
	protocols  []protocol // in order of preference
	assignment []byte

	join func(joinResult)
	sync func(syncResult)
	// fresh members have not got their first generation. They may expire while
	// they wait: nobody else would notice that they are gone.
	fresh    bool
	deadline time.Time // of the next heartbeat; zero: none is expected
}

// waits tells whether the member is known to be there, since it waits for us.
func (m *member) waits() bool { return !m.fresh && (m.join != nil || m.sync != nil) }

// offers tells whether the member says exactly this.
func (m *member) offers(protocols []protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b protocol) bool {
		return a.name == b.name && string(a.metadata) == string(b.metadata)
	})
}

// metadata is what the member says under a protocol.
func (m *member) metadata(name string) []byte {
	for _, p := range m.protocols {
		if p.name == name {
			return p.metadata
		}
	}
	return nil
}

// offset is a committed offset.
type offset struct {
	offset      int64
	leaderEpoch int32 // -1: not told
	metadata    string
	committed   int64 // ms
	expires     int64 // ms; noExpiry: after the broker's retention
	token       Token // of the append; zero: loaded
}

const noExpiry int64 = -1

// group is one group's state. Its methods change nothing but itself.
type group struct {
	id        string
	partition *partition
	state     State
	since     int64 // ms, of the state; -1: not known

	protocolType string  // "": never had a member
	protocol     *string // chosen for this generation
	generation   int32
	leader       string // "": no members

	members   map[string]*member
	order     []*member            // as they joined
	static    map[string]string    // instance id to member id
	pending   map[string]time.Time // member ids given out, and until when they are good
	supported map[string]int       // protocol to the members that offer it
	awaiting  int                  // members with a join to answer

	subscribed      map[string]bool // topics of the generation
	subscribedKnown bool

	joinDeadline   time.Time     // PreparingRebalance ends without those who did not join
	initialDelay   bool          // it is that of a group that was empty: all wait to its end
	delay          time.Duration // the initial delay that runs
	remaining      time.Duration // how much longer it may be made
	newMemberAdded bool          // since it began

	pendingSync  map[string]bool // members whose SyncGroup is to come
	syncDeadline time.Time

	offsets     map[kafka.TopicPartition]offset
	uncommitted map[kafka.TopicPartition]Token // latest append of each that has not ended

	next time.Time // not later than the earliest deadline; zero: none
	heap int       // place in dueGroups, from 1; 0: not there
}

func newGroup(p *partition, id string, now time.Time) *group {
	return &group{id: id, partition: p, since: now.UnixMilli(), members: map[string]*member{}, static: map[string]string{},
		pending: map[string]time.Time{}, supported: map[string]int{}, pendingSync: map[string]bool{},
		offsets: map[kafka.TopicPartition]offset{}, uncommitted: map[kafka.TopicPartition]Token{}}
}

// each calls f once per protocol name.
func each(protocols []protocol, f func(name string)) {
	for i, p := range protocols {
		if !slices.ContainsFunc(protocols[:i], func(q protocol) bool { return q.name == p.name }) {
			f(p.name)
		}
	}
}

func (g *group) count(m *member, by int) {
	each(m.protocols, func(name string) {
		if g.supported[name] += by; g.supported[name] == 0 {
			delete(g.supported, name)
		}
	})
}

// supports tells whether a member that offers this can be one of the group.
func (g *group) supports(protocolType string, protocols []protocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	return protocolType == g.protocolType && slices.ContainsFunc(protocols, func(p protocol) bool {
		return g.supported[p.name] == len(g.members)
	})
}

// add makes a member one of the group, and its leader if there is none.
func (g *group) add(m *member, protocolType string) {
	if len(g.members) == 0 {
		g.protocolType = protocolType
	}
	if g.leader == "" {
		g.leader = m.id
	}
	if m.instance != nil {
		g.static[*m.instance] = m.id
	}
	g.members[m.id] = m
	g.order = append(g.order, m)
	g.count(m, 1)
	if m.join != nil {
		g.awaiting++
	}
	delete(g.pending, m.id)
}

// remove takes a member, or a member id given out, from the group. A request
// of it that waits is told that it is unknown.
func (g *group) remove(id string) {
	delete(g.pending, id)
	delete(g.pendingSync, id)
	m := g.members[id]
	if m == nil {
		return
	}
	g.answerJoin(m, joinError("", unknownMemberID))
	g.answerSync(m, syncResult{code: unknownMemberID})
	g.count(m, -1)
	delete(g.members, id)
	g.order = slices.DeleteFunc(g.order, func(o *member) bool { return o == m })
	if m.instance != nil && g.static[*m.instance] == id {
		delete(g.static, *m.instance)
	}
	if g.leader == id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0].id
		}
	}
}

// replace gives a static member a new id: the same instance has started again.
// Whoever still waits under the old id is fenced.
func (g *group) replace(m *member, id string) {
	old := m.id
	g.answerJoin(m, joinError(old, fencedInstanceID))
	g.answerSync(m, syncResult{code: fencedInstanceID})
	delete(g.members, old)
	m.id = id
	g.members[id] = m
	g.static[*m.instance] = id
	if g.leader == old {
		g.leader = id
	}
	if g.pendingSync[old] {
		delete(g.pendingSync, old)
		g.pendingSync[id] = true
	}
}

// update notes what a member says now, and the join that waits for the answer.
func (g *group) update(m *member, protocols []protocol, rebalance, session time.Duration, join func(joinResult)) {
	g.count(m, -1)
	m.protocols, m.rebalance, m.session = protocols, rebalance, session
	g.count(m, 1)
	// An earlier join of the same member comes from a connection that it has
	// given up; it is answered all the same, since answers keep their order.
	g.answerJoin(m, joinError(m.id, rebalanceInProgress))
	if m.join = join; join != nil {
		g.awaiting++
	}
}

// answerJoin answers the join that waits, if one does.
func (g *group) answerJoin(m *member, res joinResult) {
	if m.join != nil {
		join := m.join
		m.join = nil
		g.awaiting--
		join(res)
	}
}

// answerSync answers the sync that waits, if one does.
func (g *group) answerSync(m *member, res syncResult) bool {
	if m.sync == nil {
		return false
	}
	sync := m.sync
	m.sync = nil
	sync(res)
	return true
}

// allJoined tells whether a rebalance need wait for nobody.
func (g *group) allJoined() bool { return g.awaiting == len(g.members) && len(g.pending) == 0 }

// electJoined makes sure that the leader is one that joined, or tells that
// there is none.
func (g *group) electJoined() bool {
	if m := g.members[g.leader]; m == nil || m.join != nil {
		return m != nil
	}
	for _, m := range g.order {
		if m.join != nil {
			g.leader = m.id
			return true
		}
	}
	return false
}

// rebalanceTimeout is the longest that a member asks for.
func (g *group) rebalanceTimeout() time.Duration {
	var d time.Duration
	for _, m := range g.order {
		d = max(d, m.rebalance)
	}
	return d
}

// selectProtocol lets every member vote for the first of its protocols that all
// have. Among equals the one that was voted for first wins.
func (g *group) selectProtocol() string {
	votes := map[string]int{}
	var best string
	var names []string
	for _, m := range g.order {
		i := slices.IndexFunc(m.protocols, func(p protocol) bool { return g.supported[p.name] == len(g.members) })
		if i < 0 {
			continue
		}
		name := m.protocols[i].name
		if votes[name] == 0 {
			names = append(names, name)
		}
		votes[name]++
	}
	for _, name := range names {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// nextGeneration counts the generation up and chooses its protocol.
func (g *group) nextGeneration() {
	g.generation++
	g.protocol = nil
	if len(g.members) > 0 {
		name := g.selectProtocol()
		g.protocol = &name
	}
	g.subscribe()
	clear(g.pendingSync)
}

// subscribe works out which topics the members are subscribed to, as far as
// that can be known.
func (g *group) subscribe() {
	g.subscribed, g.subscribedKnown = map[string]bool{}, false
	if g.protocolType != consumerProtocol || len(g.members) > 0 && g.protocol == nil {
		return
	}
	for _, m := range g.order {
		topics, ok := subscription(m.metadata(*g.protocol))
		if !ok {
			return
		}
		for _, t := range topics {
			g.subscribed[t] = true
		}
	}
	g.subscribedKnown = true
}

// subscription reads the topics of a consumer's metadata. All versions begin
// like the first.
func subscription(metadata []byte) (topics []string, ok bool) {
	b := kbin.Reader{Src: metadata}
	if b.Int16() < 0 {
		return nil, false
	}
	for n := b.ArrayLen(); n > 0; n-- {
		topics = append(topics, b.String())
		if !b.Ok() {
			return nil, false
		}
	}
	b.NullableBytes() // user data
	return topics, b.Ok()
}

// mayConsume tells whether members may be reading a topic.
func (g *group) mayConsume(topic string) bool { return !g.subscribedKnown || g.subscribed[topic] }

// hasOffsets tells whether offsets are there or on their way.
func (g *group) hasOffsets() bool { return len(g.offsets) > 0 || len(g.uncommitted) > 0 }

// commit settles an append of offsets that was committed.
func (g *group) commit(tp kafka.TopicPartition, o offset) {
	latest, ok := g.uncommitted[tp]
	if !ok {
		return // the partition was deleted meanwhile
	}
	if g.offsets[tp].token <= o.token {
		g.offsets[tp] = o
	}
	if latest == o.token {
		delete(g.uncommitted, tp)
	}
}

// failed settles one that was not.
func (g *group) failed(tp kafka.TopicPartition, t Token) {
	if g.uncommitted[tp] == t {
		delete(g.uncommitted, tp)
	}
}

// without drops the offsets of some partitions, and gives those that it had or
// was about to have.
func (g *group) without(tps []kafka.TopicPartition) []kafka.TopicPartition {
	var had []kafka.TopicPartition
	for _, tp := range tps {
		_, stored := g.offsets[tp]
		_, coming := g.uncommitted[tp]
		delete(g.offsets, tp)
		delete(g.uncommitted, tp)
		if stored || coming {
			had = append(had, tp)
		}
	}
	return had
}

// expired drops the offsets whose time is over, and gives them. Members keep
// the offsets of what they are subscribed to.
func (g *group) expired(now time.Time, retention time.Duration) []kafka.TopicPartition {
	ofGroup := false // the time counts from when the group became empty
	switch {
	case g.protocolType == "": // offsets are all that this group is
	case g.state == Empty:
		ofGroup = g.since >= 0
	case g.protocolType == consumerProtocol && g.subscribedKnown && g.state == Stable:
	default:
		return nil
	}
	ms := now.UnixMilli()
	var gone []kafka.TopicPartition
	for tp, o := range g.offsets {
		since := o.committed
		if ofGroup {
			since = g.since
		}
		over := ms-since >= retention.Milliseconds()
		if o.expires != noExpiry { // the client said so, in a version that could
			over = ms >= o.expires
		}
		if _, pending := g.uncommitted[tp]; over && !pending && !g.subscribed[tp.Topic] {
			gone = append(gone, tp)
		}
	}
	kafka.SortPartitions(gone)
	return g.without(gone)
}

// partitions lists where offsets are, in order.
func (g *group) partitions() []kafka.TopicPartition {
	tps := slices.Collect(maps.Keys(g.offsets))
	kafka.SortPartitions(tps)
	return tps
}

// allPartitions lists where offsets are or will be, in order.
func (g *group) allPartitions() []kafka.TopicPartition {
	tps := g.partitions()
	for tp := range g.uncommitted {
		if _, ok := g.offsets[tp]; !ok {
			tps = append(tps, tp)
		}
	}
	kafka.SortPartitions(tps)
	return tps
}
