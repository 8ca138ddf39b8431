package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codec is how the records of a batch are packed.
type Codec int8

// Kafka's codecs.
const (
	Uncompressed Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// AsProduced is no codec: records stay packed as their producer did it.
const AsProduced Codec = -1

// ParseCodec reads a value of compression.type.
func ParseCodec(name string) (Codec, error) {
	switch name {
	case "producer":
		return AsProduced, nil
	case "uncompressed":
		return Uncompressed, nil
	}
	for c := Gzip; c <= Zstd; c++ {
		if c.String() == name {
			return c, nil
		}
	}
	return AsProduced, fmt.Errorf("%q is no codec", name)
}

// Repack gives the batch with its records packed by another codec. b has passed
// Check; bound is that of CheckOptions.MaxDecompressed, 0 is its default.
func (b Batch) Repack(c Codec, bound int) (Batch, error) {
	if bound <= 0 {
		bound = DefaultMaxDecompressed
	}
	body, err := decompress(nil, b[HeaderSize:], b.Compression(), bound)
	if err != nil {
		return nil, b.unpackError(err, bound)
	}
	if body, err = compress(body, c); err != nil {
		return nil, err
	}
	out := append(append(make(Batch, 0, HeaderSize+len(body)), b[:HeaderSize]...), body...)
	binary.BigEndian.PutUint32(out[posLength:], uint32(len(out)-overhead))
	out.setAttributes(out.Attributes()&^compressionBits | int16(c))
	out.setCRC()
	return out, nil
}

// String gives the name that compression.type uses.
func (c Codec) String() string {
	if c < 0 || int(c) >= len(codecNames) {
		return fmt.Sprintf("codec(%d)", int8(c))
	}
	return codecNames[c]
}

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

// errTooLarge says that records would unpack to more than the bound.
var errTooLarge = errors.New("unpacked records are larger than allowed")

// decompress unpacks src into dst's memory, or into new memory where that is
// too small, and never holds more than about bound bytes.
func decompress(dst, src []byte, c Codec, bound int) ([]byte, error) {
	dst = dst[:0]
	switch c {
	case Uncompressed:
		return src, nil
	case Gzip:
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return nil, err
		}
		return readBounded(dst, r, bound)
	case Snappy:
		return unsnappy(dst, src, bound)
	case LZ4:
		return readBounded(dst, lz4.NewReader(bytes.NewReader(src)), bound)
	case Zstd:
		return unzstd(dst, src, bound)
	}
	return nil, fmt.Errorf("%s is unknown", c)
}

// unzstd unpacks all at once: so a frame's claim of a large window costs no memory.
func unzstd(dst, src []byte, bound int) ([]byte, error) {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(uint64(bound)), zstd.WithDecoderMaxWindow(128<<20)) // the largest that Java's levels write
	if err != nil {
		return nil, err
	}
	defer d.Close()
	out, err := d.DecodeAll(src, dst)
	// A window above the bound says only that more may come.
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) || len(out) > bound {
		return nil, errTooLarge
	}
	return out, err
}

// readBounded appends all of r to dst.
func readBounded(dst []byte, r io.Reader, bound int) ([]byte, error) {
	if cap(dst) == 0 {
		dst = make([]byte, 0, 4096)
	}
	for {
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > bound:
			return nil, errTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return nil, err
		}
		if len(dst) == cap(dst) {
			grown := make([]byte, len(dst), min(2*cap(dst), bound+1))
			copy(grown, dst)
			dst = grown
		}
	}
}

// xerial is how Java's snappy begins; its blocks follow, each with its length
// before it. Other clients send one bare block.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16 // with two int32 of versions

func unsnappy(dst, src []byte, bound int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerial) {
		return snappyBlock(dst, src, bound)
	}
	if len(src) < xerialHeader {
		return nil, io.ErrUnexpectedEOF
	}
	for src = src[xerialHeader:]; len(src) > 0; {
		if len(src) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		n := int64(binary.BigEndian.Uint32(src))
		if src = src[4:]; n > int64(len(src)) {
			return nil, io.ErrUnexpectedEOF
		}
		var err error
		if dst, err = snappyBlock(dst, src[:n], bound); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return dst, nil
}

// snappyBlock appends one unpacked block to dst.
func snappyBlock(dst, block []byte, bound int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, err
	}
	if n > bound-len(dst) {
		return nil, errTooLarge
	}
	// A block cannot unpack to more than some 64 bytes for each of its own:
	// claims above that do not get memory.
	if n > 64*len(block)+64 {
		return nil, s2.ErrCorrupt
	}
	if cap(dst)-len(dst) < n {
		grown := make([]byte, len(dst), max(len(dst)+n, 2*len(dst)))
		copy(grown, dst)
		dst = grown
	}
	out, err := s2.Decode(dst[len(dst):len(dst)+n], block)
	if err != nil {
		return nil, err
	}
	return dst[:len(dst)+len(out)], nil
}

// compress packs src as a Java client would.
func compress(src []byte, c Codec) ([]byte, error) {
	var out bytes.Buffer
	switch c {
	case Uncompressed:
		return src, nil
	case Gzip:
		w := gzip.NewWriter(&out)
		return finish(&out, w, src)
	case Snappy:
		return snap(src), nil
	case LZ4:
		return finish(&out, lz4.NewWriter(&out), src)
	case Zstd:
		w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return nil, err
		}
		return finish(&out, w, src)
	}
	return nil, fmt.Errorf("%s is unknown", c)
}

func finish(out *bytes.Buffer, w io.WriteCloser, src []byte) ([]byte, error) {
	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func snap(src []byte) []byte {
	out := append([]byte{}, xerial...)
	out = append(out, 0, 0, 0, 1, 0, 0, 0, 1)
	for len(src) > 0 {
		n := min(len(src), 32<<10)
		block := s2.EncodeSnappy(nil, src[:n])
		out = binary.BigEndian.AppendUint32(out, uint32(len(block)))
		out, src = append(out, block...), src[n:]
	}
	return out
}
