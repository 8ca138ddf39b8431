package kafka

import "unicode/utf16"

// OffsetsTopic keeps what consumer groups commit: who leads a group's partition of
// it coordinates the group.
const OffsetsTopic = "__consumer_offsets"

// JavaHash is Java's hash of a string, by which Kafka spreads names.
func JavaHash(s string) int32 {
	var h int32
	for _, u := range utf16.Encode([]rune(s)) {
		h = 31*h + int32(u)
	}
	return h
}

// GroupPartition is the partition of OffsetsTopic, which has n of them, that keeps
// a group: the hash of its name without the sign, modulo n, which is above 0.
func GroupPartition(group string, n int32) int32 {
	h := JavaHash(group)
	if h = max(h, -h); h < 0 { // the smallest number has no counterpart with the other sign
		return 0
	}
	return h % n
}
