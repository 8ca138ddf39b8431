package brokers

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Board is where the brokers of one process see how far their followers are:
// the only thing they share. A leader whose follower runs elsewhere goes by its
// metadata cache instead. A nil Board knows nobody.
type Board struct {
	notify func(leader kafka.BrokerID, ev FollowerChanged)

	mu      sync.Mutex
	members map[kafka.BrokerID]*member

	shared sync.Mutex
	topics map[string]*TopicMetadata // as the last broker was told
}

// share gives what the brokers of this process have in common: they are all told
// the same of every topic, and keep it once.
func (bd *Board) share(t *TopicMetadata) *TopicMetadata {
	if bd == nil {
		return t
	}
	bd.shared.Lock()
	defer bd.shared.Unlock()
	old := bd.topics[t.Name]
	if old == nil {
		bd.topics[t.Name] = t
		return t
	}
	if sameTopic(old, t) {
		return old
	}
	for i, p := range t.Partitions {
		if i < len(old.Partitions) && sameState(old.Partitions[i], p) {
			t.Partitions[i] = old.Partitions[i]
		}
	}
	bd.topics[t.Name] = t
	return t
}

// unshare forgets a topic that a broker has forgotten.
func (bd *Board) unshare(topic string) {
	if bd == nil {
		return
	}
	bd.shared.Lock()
	defer bd.shared.Unlock()
	delete(bd.topics, topic)
}

// NewBoard makes an empty board. notify hands a leader the news; it is called
// from the followers' steps and must not block.
func NewBoard(notify func(leader kafka.BrokerID, ev FollowerChanged)) *Board {
	return &Board{notify: notify, members: map[kafka.BrokerID]*member{}, topics: map[string]*TopicMetadata{}}
}

type member struct {
	up      bool
	upSince time.Time // of up's value
	all     condition
	some    map[kafka.TopicPartition]condition // overrides all
	follows map[kafka.TopicPartition]follow
}

// condition is what faults do to a fetcher.
type condition struct {
	paused bool
	behind time.Duration
	rate   int64     // bytes a second, with logs; 0: no bound
	since  time.Time // of the last pause or resume
}

type follow struct {
	tp     kafka.TopicPartition
	leader kafka.BrokerID
	epoch  int32
	since  time.Time // since when it follows this leader
}

// news collects, per leader, the partitions whose view changed.
type news map[kafka.BrokerID][]kafka.TopicPartition

func (bd *Board) member(id kafka.BrokerID) *member {
	m := bd.members[id]
	if m == nil {
		m = &member{some: map[kafka.TopicPartition]condition{}, follows: map[kafka.TopicPartition]follow{}}
		bd.members[id] = m
	}
	return m
}

// process says that a broker's process began or ended.
func (bd *Board) process(id kafka.BrokerID, up bool, now time.Time) {
	if bd == nil {
		return
	}
	bd.mu.Lock()
	m := bd.member(id)
	n := m.leaders(nil)
	*m = member{up: up, upSince: now, some: map[kafka.TopicPartition]condition{}, follows: map[kafka.TopicPartition]follow{}}
	bd.mu.Unlock()
	bd.tell(id, n)
}

// follow says whom a broker follows now.
func (bd *Board) follow(id kafka.BrokerID, following []follow, now time.Time) {
	if bd == nil || len(following) == 0 {
		return
	}
	bd.mu.Lock()
	m := bd.member(id)
	n := news{}
	for _, f := range following {
		f.since = now
		if old, ok := m.follows[f.tp]; ok {
			if old.leader == f.leader {
				f.since = old.since
			} else {
				n[old.leader] = append(n[old.leader], f.tp)
			}
		}
		m.follows[f.tp] = f
		n[f.leader] = append(n[f.leader], f.tp)
	}
	bd.mu.Unlock()
	bd.tell(id, n)
}

// unfollow says that a broker fetches a partition no longer.
func (bd *Board) unfollow(id kafka.BrokerID, tp kafka.TopicPartition, _ time.Time) {
	if bd == nil {
		return
	}
	bd.mu.Lock()
	m := bd.member(id)
	f, ok := m.follows[tp]
	delete(m.follows, tp)
	bd.mu.Unlock()
	if ok {
		bd.tell(id, news{f.leader: {tp}})
	}
}

// condition changes what faults do to a broker's fetchers: of some partitions
// or, with none given, of all.
func (bd *Board) condition(id kafka.BrokerID, tps []kafka.TopicPartition, change func(*condition)) {
	if bd == nil {
		return
	}
	bd.mu.Lock()
	m := bd.member(id)
	if len(tps) == 0 {
		change(&m.all)
		m.some = map[kafka.TopicPartition]condition{}
	}
	for _, tp := range tps {
		c := m.conditionOf(tp)
		change(&c)
		m.some[tp] = c
	}
	n := m.leaders(tps)
	bd.mu.Unlock()
	bd.tell(id, n)
}

func (m *member) conditionOf(tp kafka.TopicPartition) condition {
	if c, ok := m.some[tp]; ok {
		return c
	}
	return m.all
}

// leaders gives who leads what the member follows, of some partitions or all.
func (m *member) leaders(tps []kafka.TopicPartition) news {
	n := news{}
	if len(tps) == 0 {
		tps = slices.Collect(maps.Keys(m.follows))
	}
	for _, tp := range tps {
		if f, ok := m.follows[tp]; ok {
			n[f.leader] = append(n[f.leader], tp)
		}
	}
	return n
}

func (bd *Board) tell(follower kafka.BrokerID, n news) {
	for _, leader := range slices.Sorted(maps.Keys(n)) {
		if leader == follower {
			continue
		}
		kafka.SortPartitions(n[leader])
		bd.notify(leader, FollowerChanged{Follower: follower, Partitions: n[leader]})
	}
}

// view is what a leader sees of a follower; false when the follower does not
// run in this process.
func (bd *Board) view(leader kafka.BrokerID, tp kafka.TopicPartition, epoch int32, follower kafka.BrokerID) (FollowerView, bool) {
	if bd == nil {
		return FollowerView{}, false
	}
	bd.mu.Lock()
	defer bd.mu.Unlock()
	m := bd.members[follower]
	if m == nil {
		return FollowerView{}, false
	}
	f, ok := m.follows[tp]
	c := m.conditionOf(tp)
	switch {
	case !m.up:
		return FollowerView{Since: m.upSince}, true
	case c.paused:
		return FollowerView{Since: c.since}, true
	case !ok || f.leader != leader || f.epoch != epoch:
		return FollowerView{}, true
	}
	return FollowerView{Fetching: true, Since: later(f.since, c.since), Behind: c.behind}, true
}

// view is FollowerView for the broker's Replication: faults that were set here
// first, then what the board knows, then the metadata cache's live set.
func (b *Broker) view(tp kafka.TopicPartition, epoch int32, follower kafka.BrokerID) FollowerView {
	c, faulty := b.faults.followers[follower]
	if faulty && c.paused {
		return FollowerView{Since: c.since}
	}
	v, known := b.board.view(b.opts.ID, tp, epoch, follower)
	if !known {
		var alive bool
		v.Since, alive = b.aliveSince[follower]
		v.Fetching = alive
	}
	if faulty && v.Fetching {
		v.Since, v.Behind = later(v.Since, c.since), max(v.Behind, c.behind)
	}
	return v
}
