package dispatch

import (
	"slices"
	"sync"
	"weak"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// body is the shared part of an UpdateMetadata as it goes out: checked once,
// and encoded once per version by the first sender that needs it.
type body struct {
	given   *control.Metadata
	sources []weak.Pointer[body] // of a merged one: what it was made of, in order

	once    sync.Once
	clean   *control.Metadata
	invalid []string // topics left out
	ends    bool     // tells the end of a topic

	encoded [wire.MaxUpdateMetadata + 1]struct {
		once  sync.Once
		bytes []byte
	}
}

// metadata gives what may be sent, and the topics that may not.
func (b *body) metadata() (*control.Metadata, []string) {
	b.once.Do(func() {
		b.clean, b.invalid = wire.SendableMetadata(b.given)
		b.ends = slices.ContainsFunc(b.clean.Partitions, func(p *control.PartitionState) bool { return p.Leader == kafka.LeaderDuringDelete })
	})
	return b.clean, b.invalid
}

// deletes tells whether the end of some topic is told.
func (b *body) deletes() bool {
	b.metadata()
	return b.ends
}

// bytes gives the encoded body; it must not be changed.
func (b *body) bytes(version int16) []byte {
	e := &b.encoded[version]
	e.once.Do(func() {
		m, _ := b.metadata()
		e.bytes = wire.AppendMetadata(nil, m, version)
	})
	return e.bytes
}

// bodies finds the body of a Metadata that several brokers are sent, and the
// merged body of several. Only the queues keep bodies alive; a flush fills them
// one right after the other.
type bodies struct {
	mu     sync.Mutex
	recent [8]weak.Pointer[body]
	next   int
}

func (s *bodies) find(is func(*body) bool) *body {
	for _, w := range s.recent {
		if b := w.Value(); b != nil && is(b) {
			return b
		}
	}
	return nil
}

func (s *bodies) remember(b *body) *body {
	s.recent[s.next] = weak.Make(b)
	s.next = (s.next + 1) % len(s.recent)
	return b
}

func (s *bodies) of(m *control.Metadata) *body {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.find(func(b *body) bool { return b.given == m }); b != nil {
		return b
	}
	return s.remember(&body{given: m})
}

// merged gives the body that stands for several, with the live brokers of the
// last. Brokers that were silent together share it.
func (s *bodies) merged(parts []*body, live []kafka.Broker) *body {
	sources := make([]weak.Pointer[body], len(parts))
	lists := make([][]*control.PartitionState, len(parts))
	for i, p := range parts {
		sources[i] = weak.Make(p)
		m, _ := p.metadata()
		lists[i] = m.Partitions
	}
	s.mu.Lock()
	b := s.find(func(b *body) bool { return slices.Equal(b.sources, sources) })
	s.mu.Unlock()
	if b != nil {
		return b
	}
	b = &body{given: &control.Metadata{Partitions: mergePartitions(lists), LiveBrokers: live}, sources: sources}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.remember(b)
}
