package groups

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxRecords is how much the records of one batch may be, uncompressed: far
// above what brokers let in.
const maxRecords = 256 << 20

// decompress gives a batch's records. Batches of ours are not compressed, but
// those of another broker may be (offsets.topic.compression.codec).
func decompress(codec int8, src []byte) ([]byte, error) {
	if codec == 0 {
		return src, nil
	}
	out, err := kgo.DefaultDecompressor().Decompress(src, kgo.CompressionCodecType(codec))
	if err != nil {
		return nil, fmt.Errorf("decompress with codec %d: %w", codec, err)
	}
	if len(out) > maxRecords {
		return nil, errors.New("the records are too many")
	}
	return out, nil
}
