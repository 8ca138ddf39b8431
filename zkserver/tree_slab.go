package zkserver

// slabChunk is how many records a slab gets at once.
const slabChunk = 64

// slab hands out records by number, from 1: number 0 is nobody. Its chunks
// never move, so a pointer to a record is good until the record is given back.
type slab[T any] struct {
	chunks []*[slabChunk]T
	free   []uint32 // numbers that were given back
	next   uint32   // the lowest number that was never in use, less one
}

func (s *slab[T]) at(id uint32) *T { return &s.chunks[id/slabChunk][id%slabChunk] }

// take gives the number of a zero record.
func (s *slab[T]) take() uint32 {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		return id
	}
	s.next++
	if int(s.next/slabChunk) == len(s.chunks) {
		s.chunks = append(s.chunks, new([slabChunk]T))
	}
	return s.next
}

func (s *slab[T]) give(id uint32) {
	var zero T
	*s.at(id) = zero
	s.free = append(s.free, id)
}
