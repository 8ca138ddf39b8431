package zkfiles

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
)

// snappyHeader begins what Java's snappy writes: eight bytes of magic, the
// version and the oldest one that can read it. Blocks follow, each with its
// length.
const (
	snappyMagic  = "\x82SNAPPY\x00"
	snappyHeader = len(snappyMagic) + 8
)

// maxBlock is the longest block that we take, compressed or not; writers use 32 KiB.
const maxBlock = 16 << 20

// snappyReader uncompresses a snapshot that Apache wrote with snapshot.compression.method=snappy.
type snappyReader struct {
	r     io.Reader
	begun bool
	in    []byte
	out   []byte
	left  []byte // of out, not read yet
}

// Read gives uncompressed bytes.
func (s *snappyReader) Read(p []byte) (int, error) {
	for len(s.left) == 0 {
		if err := s.block(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

func (s *snappyReader) block() error {
	if !s.begun {
		var h [snappyHeader]byte
		if _, err := io.ReadFull(s.r, h[:]); err != nil || string(h[:len(snappyMagic)]) != snappyMagic {
			return errors.New("snappy: it does not begin as Java's snappy does")
		}
		s.begun = true
	}
	var l [4]byte
	if _, err := io.ReadFull(s.r, l[:]); err != nil {
		return err // io.EOF at the end of a block is the end
	}
	n := binary.BigEndian.Uint32(l[:])
	if n > maxBlock {
		return fmt.Errorf("snappy: a block of %d bytes is impossible", n)
	}
	in, err := readGrowing(s.r, s.in, int(n))
	if err != nil {
		return io.ErrUnexpectedEOF
	}
	s.in = in
	size, err := s2.DecodedLen(in)
	if err == nil && size > maxBlock {
		err = fmt.Errorf("a block of %d bytes is impossible", size)
	}
	if err == nil {
		s.out, err = s2.Decode(s.out[:cap(s.out)], in)
	}
	if err != nil {
		return fmt.Errorf("snappy: %w", err)
	}
	s.left = s.out
	return nil
}
