package brokerport

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Fetch sessions (KIP-227): what a client or a follower fetches is remembered,
// so that its requests name only what changed, and answers only what is new.

const (
	sessionStale  = 2 * time.Minute // one unused for so long makes room for any other
	maxCachedRows = 2 << 20         // partitions of all sessions; beyond it no session is begun
	fullFetch     = int32(0)        // session epochs with a meaning of their own
	lastFetch     = int32(-1)       // ends the session, or asks for none
	noSession     = int32(0)        // session id
	noOffset      = int64(-1)       // of a row that was not answered yet
	maxEpoch      = int32(math.MaxInt32)
)

// sessions are the fetch sessions of one broker.
type sessions struct {
	mu   sync.Mutex
	most int // max.incremental.fetch.session.cache.slots
	byID map[int32]*session
	rows int
	now  func() time.Time
}

func newSessions(most int) *sessions {
	return &sessions{most: most, byID: map[int32]*session{}, now: time.Now}
}

// session is one fetcher's. Its cache's lock guards the fields behind it, its
// own lock the rows.
type session struct {
	id       int32
	follower bool // worth more than a consumer's
	byID     bool // its requests name topics by id
	created  time.Time
	used     time.Time
	size     int // rows, as counted in the cache

	mu    sync.Mutex
	epoch int32 // of the next request
	rows  map[rowKey]*cachedRow
	order []*cachedRow // as they are fetched: those that gave records move back
	holes int          // of order
}

// rowKey is a partition as requests name it: by id where they do, else by name.
type rowKey struct {
	topic     string
	id        kafka.TopicID
	partition int32
}

// cachedRow is one partition of a session: what is asked for, and what of the
// answer the fetcher knows.
type cachedRow struct {
	rowKey
	at       int // in order
	ask      brokers.FetchRow
	high     int64 // as last answered
	logStart int64
}

// fetchContext is what one request means after its session was looked up.
type fetchContext struct {
	err     kafka.ErrorCode // top level; nothing else counts then
	rows    []*cachedRow
	session *session // nil: none, or to be made by begin
	begin   bool     // a session is wanted
	epoch   int32    // that the session must still have when it is answered
}

// open finds out what a request asks for, given the rows it names.
func (s *sessions) open(req *kmsg.FetchRequest, rows []*cachedRow, forgotten []rowKey) fetchContext {
	if req.Version < 7 {
		return fetchContext{rows: rows}
	}
	if req.SessionEpoch == fullFetch || req.SessionEpoch == lastFetch {
		if req.SessionID != noSession {
			s.remove(req.SessionID)
		}
		return fetchContext{rows: rows, begin: req.SessionEpoch == fullFetch}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.byID[req.SessionID]
	if f == nil {
		return fetchContext{err: fetchSessionIDNotFound}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.epoch != req.SessionEpoch:
		return fetchContext{err: invalidFetchSessionEpoch}
	case f.byID != (req.Version >= 13):
		return fetchContext{err: fetchSessionTopicIDError}
	}
	f.update(rows, forgotten)
	s.rows += len(f.rows) - f.size
	f.size, f.used = len(f.rows), s.now()
	if len(f.rows) == 0 {
		delete(s.byID, f.id)
		return fetchContext{rows: rows}
	}
	f.epoch = nextEpoch(f.epoch)
	return fetchContext{rows: f.all(), session: f, epoch: f.epoch}
}

func nextEpoch(e int32) int32 {
	if e == maxEpoch {
		return 1
	}
	return e + 1
}

// update adds rows, changes what they ask for, and takes out the forgotten.
func (f *session) update(rows []*cachedRow, forgotten []rowKey) {
	for _, r := range rows {
		if have := f.rows[r.rowKey]; have != nil {
			have.ask = r.ask
			continue
		}
		f.add(r)
	}
	for _, k := range forgotten {
		if have := f.rows[k]; have != nil {
			f.order[have.at] = nil
			f.holes++
			delete(f.rows, k)
		}
	}
}

func (f *session) add(r *cachedRow) {
	r.at = len(f.order)
	f.order = append(f.order, r)
	f.rows[r.rowKey] = r
}

// moveBack lets other rows come first next time.
func (f *session) moveBack(r *cachedRow) {
	if f.rows[r.rowKey] != r {
		return // forgotten meanwhile
	}
	f.order[r.at] = nil
	f.holes++
	f.add(r)
}

// all gives copies of the rows, in order, for a request that may wait.
func (f *session) all() []*cachedRow {
	if f.holes > len(f.rows) {
		f.order = slices.DeleteFunc(f.order, func(r *cachedRow) bool { return r == nil })
		for i, r := range f.order {
			r.at = i
		}
		f.holes = 0
	}
	rows := make([]*cachedRow, 0, len(f.rows))
	room := make([]cachedRow, 0, len(f.rows))
	for _, r := range f.order {
		if r != nil {
			room = append(room, *r)
			rows = append(rows, &room[len(room)-1])
		}
	}
	return rows
}

// begun makes a session for what was answered, if there is room or less
// valuable ones can go, and gives its id.
func (s *sessions) begun(follower, byID bool, rows []*cachedRow) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if len(rows) == 0 || s.rows+len(rows) > maxCachedRows || len(s.byID) >= s.most && !s.evict(follower, len(rows), now) {
		return noSession
	}
	f := &session{follower: follower, byID: byID, created: now, used: now, epoch: 1, rows: make(map[rowKey]*cachedRow, len(rows))}
	for f.id == noSession || s.byID[f.id] != nil {
		f.id = rand.Int32()
	}
	for _, r := range rows {
		if f.rows[r.rowKey] == nil {
			f.add(r)
		}
	}
	f.size = len(f.rows)
	s.byID[f.id] = f
	s.rows += f.size
	return f.id
}

// evict makes room: the session unused for longest goes if it is stale, else the
// least valuable of those that are older than that, if it is worth less than
// the new one. A follower's is worth more than a consumer's, a larger one more
// than a smaller one.
func (s *sessions) evict(follower bool, size int, now time.Time) bool {
	var idle, cheap *session
	value := func(a, b *session) int {
		return cmp.Or(cmp.Compare(rank(a.follower), rank(b.follower)), cmp.Compare(a.size, b.size), cmp.Compare(a.id, b.id))
	}
	for _, f := range s.byID {
		if idle == nil || f.used.Before(idle.used) || f.used.Equal(idle.used) && f.id < idle.id {
			idle = f
		}
		old := now.Sub(f.created) > sessionStale
		if (old || follower && !f.follower) && (cheap == nil || value(f, cheap) < 0) {
			cheap = f
		}
	}
	switch {
	case idle == nil:
		return false
	case now.Sub(idle.used) > sessionStale:
		s.drop(idle)
	case cheap != nil && value(&session{follower: follower, size: size}, cheap) >= 0:
		s.drop(cheap)
	default:
		return false
	}
	return true
}

func rank(follower bool) int {
	if follower {
		return 1
	}
	return 0
}

func (s *sessions) remove(id int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.byID[id]; f != nil {
		s.drop(f)
	}
}

func (s *sessions) drop(f *session) {
	delete(s.byID, f.id)
	s.rows -= f.size
}

// settle leaves out what the fetcher knows already, and notes what it is told.
// It is false when the session went on without this answer.
func (f *session) settle(epoch int32, rows []answered) ([]answered, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch != epoch {
		return nil, false
	}
	out := rows[:0]
	for _, a := range rows {
		have := f.rows[a.row.rowKey]
		if have == nil || a.note(have) {
			out = append(out, a)
		}
		if have != nil && len(a.result.Records) > 0 {
			f.moveBack(have)
		}
	}
	return out, true
}

// note brings a cached row up to date with its answer, and tells whether that
// has news.
func (a *answered) note(have *cachedRow) bool {
	news := len(a.result.Records) > 0 || a.result.Diverging
	if have.high != a.result.HighWatermark {
		have.high, news = a.result.HighWatermark, true
	}
	if have.logStart != a.result.LogStartOffset {
		have.logStart, news = a.result.LogStartOffset, true
	}
	if a.result.Error != kafka.NoError {
		have.high, news = noOffset, true // so that it is told again when the error is over
	}
	return news
}
