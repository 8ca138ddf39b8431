package wire

import (
	"crypto/sha256"
	"sync"
	"weak"

	"github.com/zkcontroller/zkcontroller/control"
)

// Shared lets the brokers of one process keep once what a controller tells each of
// them in the same words: the metadata of an UpdateMetadata request. It holds on
// to nothing: what no broker keeps goes. They share the room for large requests,
// too. The zero value is ready; nil shares nothing.
//
// The trap: what several requests have in common is not to be changed.
type Shared struct {
	mu   sync.Mutex
	last [sharedRequests]*shared // a ring
	next int

	large *Room // nil: not made yet
}

// room is what servers without a Room of their own for large requests take.
func (s *Shared) room() *Room {
	if s == nil {
		return NewRoom(DefaultLarge)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.large == nil {
		s.large = NewRoom(DefaultLarge)
	}
	return s.large
}

// sharedRequests is how many different requests are on their way at a time, or
// fewer.
const sharedRequests = 64

// shared is one metadata, found by the bytes that it was told in.
type shared struct {
	sum      [sha256.Size]byte
	decoding sync.Mutex
	metadata weak.Pointer[control.Metadata]
}

// metadata gives what decode gives for body, or gave before for the same bytes in
// the same version. decode gives nil where body cannot be read.
func (s *Shared) metadata(version int16, body []byte, decode func() *control.Metadata) *control.Metadata {
	if s == nil {
		return decode()
	}
	h := sha256.New()
	h.Write([]byte{byte(version >> 8), byte(version)})
	h.Write(body)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	e := s.entry(sum)
	e.decoding.Lock() // others wait rather than do the same
	defer e.decoding.Unlock()
	if m := e.metadata.Value(); m != nil {
		return m
	}
	m := decode()
	if m != nil {
		e.metadata = weak.Make(m)
	}
	return m
}

func (s *Shared) entry(sum [sha256.Size]byte) *shared {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.last {
		if e != nil && e.sum == sum {
			return e
		}
	}
	e := &shared{sum: sum}
	s.last[s.next] = e
	s.next = (s.next + 1) % len(s.last)
	return e
}
