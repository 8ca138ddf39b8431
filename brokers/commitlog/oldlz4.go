package commitlog

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Clients write LZ4 frames in messages of format v0 with a wrong checksum of the
// frame's header: it covers the four bytes that begin the frame, too.

const lz4Begin = 4 // bytes that tell an LZ4 frame

// lz4Header gives the number of bytes before the header's checksum; false: src is
// no frame.
func lz4Header(src []byte) (n int, ok bool) {
	if len(src) <= lz4Begin || binary.LittleEndian.Uint32(src) != 0x184D2204 {
		return 0, false
	}
	n = lz4Begin + 2
	if src[lz4Begin]&0x08 != 0 { // the size of what is packed
		n += 8
	}
	if src[lz4Begin]&0x01 != 0 { // a dictionary's id
		n += 4
	}
	return n, n < len(src)
}

// mendLZ4 gives a frame with the right checksum.
func mendLZ4(src []byte) []byte {
	n, ok := lz4Header(src)
	if !ok {
		return src
	}
	src = bytes.Clone(src)
	src[n] = byte(xxh32(src[lz4Begin:n]) >> 8)
	return src
}

// spoilLZ4 makes a frame's checksum, in place, what clients of format v0 expect.
func spoilLZ4(src []byte) {
	if n, ok := lz4Header(src); ok {
		src[n] = byte(xxh32(src[:n]) >> 8)
	}
}

// xxh32 is the hash XXH32 with seed 0.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 uint32 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	round := func(acc uint32, b []byte) uint32 {
		return bits.RotateLeft32(acc+binary.LittleEndian.Uint32(b)*p2, 13) * p1
	}
	n := uint32(len(b))
	h := p5
	if len(b) >= 16 {
		zero := uint32(0)
		acc := [4]uint32{zero + p1 + p2, p2, 0, zero - p1}
		for ; len(b) >= 16; b = b[16:] {
			for i := range acc {
				acc[i] = round(acc[i], b[4*i:])
			}
		}
		h = bits.RotateLeft32(acc[0], 1) + bits.RotateLeft32(acc[1], 7) + bits.RotateLeft32(acc[2], 12) + bits.RotateLeft32(acc[3], 18)
	}
	h += n
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
