package dispatch

import (
	"sync"
	"weak"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/wire"
)

// body is the shared part of an UpdateMetadata as it goes out: checked once,
// and encoded once per version by the first sender that needs it.
type body struct {
	given *control.Metadata

	once    sync.Once
	clean   *control.Metadata
	invalid []string // topics left out

	encoded [wire.MaxUpdateMetadata + 1]struct {
		once  sync.Once
		bytes []byte
	}
}

// metadata gives what may be sent, and the topics that may not.
func (b *body) metadata() (*control.Metadata, []string) {
	b.once.Do(func() { b.clean, b.invalid = wire.SendableMetadata(b.given) })
	return b.clean, b.invalid
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

// bodies finds the body of a Metadata that several brokers are sent. Only the
// queues keep bodies alive: a flush fills them one right after the other.
type bodies struct {
	mu     sync.Mutex
	recent [4]weak.Pointer[body]
	next   int
}

func (s *bodies) of(m *control.Metadata) *body {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.recent {
		if b := w.Value(); b != nil && b.given == m {
			return b
		}
	}
	b := &body{given: m}
	s.recent[s.next] = weak.Make(b)
	s.next = (s.next + 1) % len(s.recent)
	return b
}
