package kafka_test

import (
	"testing"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// TestGroupPartition holds the hash against values of Kafka 3.9.1's own classes
// (Utils.abs of String.hashCode).
func TestGroupPartition(t *testing.T) {
	for _, tc := range []struct {
		group string
		n     int32
		want  int32
	}{
		{"", 50, 0}, {"g", 50, 3}, {"console-consumer-12345", 50, 6}, {"connect-cluster", 50, 13}, {"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 50, 13},
		{"orders", 50, 31},            // hash -1008770331
		{"polygenelubricants", 50, 0}, // hash -2147483648
		{"группа", 50, 8}, {"組🚀", 50, 25}, {"test-group", 50, 12}, {"grüße \U0001F600", 50, 34},
		{"", 7, 0}, {"g", 7, 5}, {"console-consumer-12345", 7, 6}, {"connect-cluster", 7, 5}, {"ABCDEFGHIJKLMNOPQRSTUVWXYZ", 7, 6},
		{"orders", 7, 2}, {"polygenelubricants", 7, 0}, {"группа", 7, 2}, {"組🚀", 7, 6},
	} {
		if got := kafka.GroupPartition(tc.group, tc.n); got != tc.want {
			t.Errorf("GroupPartition(%q, %d) = %d, want %d", tc.group, tc.n, got, tc.want)
		}
	}
}
