package assembly

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zkcontroller/zkcontroller/brokers"
)

// Brokers with records in memory share the bound; those on disk, without records
// or with a bound of their own do not count.
func TestShareMemory(t *testing.T) {
	for _, c := range []struct {
		total int64
		want  []int64
	}{{0, []int64{128 << 20, 128 << 20, 0, 7}}, {3000, []int64{1500, 1500, 0, 7}}, {1, []int64{1, 1, 0, 7}}, {-1, []int64{-1, -1, 0, 7}}} {
		logs := &brokers.LogOptions{}
		all := []BrokerOptions{
			{Broker: brokers.Options{Logs: logs}}, {Broker: brokers.Options{Logs: logs}},
			{Broker: brokers.Options{Logs: &brokers.LogOptions{Dirs: []string{"d"}}}}, {Broker: brokers.Options{Logs: &brokers.LogOptions{MemoryBytes: 7}}}, {},
		}
		var got []int64
		for _, p := range shareMemory(all, c.total) {
			if p.Broker.Logs != nil {
				got = append(got, p.Broker.Logs.MemoryBytes)
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%d bytes in all: %s", c.total, d)
		}
		if logs.MemoryBytes != 0 {
			t.Error("the caller's options were changed")
		}
	}
}
