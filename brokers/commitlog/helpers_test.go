package commitlog

import "github.com/klauspost/compress/s2"

func bareSnappy(b []byte) []byte { return s2.EncodeSnappy(nil, b) }
