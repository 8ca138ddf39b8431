package brokerport

import (
	"strings"
	"testing"
)

// What topics inherit is held against what they could be set to: a word that
// means nothing would keep a topic's records for ever, or lose its times.
func TestSettingsThatTopicsInherit(t *testing.T) {
	for _, tc := range []struct {
		key, value string
		ok         bool
	}{
		{"log.cleanup.policy", "abc", false},
		{"log.cleanup.policy", "compact,delete", true},
		{"compression.type", "abc", false},
		{"compression.type", "zstd", true},
		{"log.message.timestamp.type", "abc", false},
		{"log.message.timestamp.type", "LogAppendTime", true},
		{"log.cleaner.min.cleanable.ratio", "-7", false},
		{"log.cleaner.delete.retention.ms", "-7", false},
		{"log.retention.ms", "-7", true},
		{"log.retention.hours", "-1", true},
		{"log.retention.bytes", "-1", true},
	} {
		err := Settings{tc.key: tc.value}.Check()
		if tc.ok != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), tc.key+": ") {
			t.Errorf("%s=%s: %v", tc.key, tc.value, err)
		}
	}
}
