package commitlog

import "slices"

// Memory counts what the logs of one broker hold in memory, over all of them, and
// knows which of their chunks are oldest. It belongs to the goroutine of the logs.
//
// The trap: a chunk counts with all of its room, not with the bytes in it, for
// that is what it costs. So what is counted is above what the logs' Size says.
type Memory struct {
	limit  int64
	held   int64
	again  int64       // above it Shrink looks at the chunks again, while nothing is committed
	chunks []heldChunk // oldest first; some of them are gone
	living int         // chunks that are not
}

// heldChunk is a chunk that counts, as long as its segment says so.
type heldChunk struct {
	l *Log
	s *segment
}

// NewMemory makes the account of logs that may hold about limit bytes together.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// Held is how many bytes the logs hold, without those that are only compacted.
func (m *Memory) Held() int64 { return m.held }

// Limit is how many they may hold.
func (m *Memory) Limit() int64 { return m.limit }

// take counts a chunk of a log, made just now.
func (m *Memory) take(l *Log, s *segment) {
	if m == nil || l.opts.Kept || s.path != "" {
		return
	}
	s.memory, s.held = m, int64(cap(s.mem))
	m.held += s.held
	m.living++
	if len(m.chunks) > 2*m.living+64 { // retention took most of them
		m.chunks = slices.DeleteFunc(m.chunks, func(c heldChunk) bool { return c.s.memory != m })
	}
	m.chunks = append(m.chunks, heldChunk{l, s})
}

// release says that a segment's memory is not held any more.
func (s *segment) release() {
	if s.memory != nil {
		s.memory.held -= s.held
		s.memory.living--
		s.memory = nil
	}
}

// Over tells whether Shrink has something to do. It is cheap.
func (m *Memory) Over() bool { return m != nil && m.limit >= 0 && m.held > max(m.limit, m.again) }

// committed says that a high watermark rose: what it held may go now.
func (m *Memory) committed() {
	if m != nil {
		m.again = 0
	}
}

// Shrink drops the oldest chunks, whichever log each belongs to, until the logs
// hold no more than limit less a sixteenth, so that it need not be called at every
// append. What reaches above a high watermark stays: whoever is in the ISR may yet
// have to copy it. It gives the logs that begin later than before.
func (m *Memory) Shrink() (begun []*Log) {
	if !m.Over() {
		return nil
	}
	kept := m.chunks[:0]
	seen := map[*Log]bool{}
	for i, c := range m.chunks {
		if m.held <= m.limit-m.limit/16 {
			kept = append(kept, m.chunks[i:]...)
			break
		}
		if c.s.memory != m {
			continue
		}
		if c.s.next > c.l.high || c.s.size == 0 || c.l.segments[0] != c.s || c.l.RaiseStart(c.s.next) != nil {
			kept = append(kept, c)
			continue
		}
		if !seen[c.l] {
			seen[c.l] = true
			begun = append(begun, c.l)
		}
	}
	clear(m.chunks[len(kept):])
	m.chunks = kept
	m.again = 0
	if m.held > m.limit { // nothing more may go now: not before some more has come
		m.again = m.held + m.limit/16
	}
	return begun
}
