package realtests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// A throttled move's left-overs on a real broker: verify takes them away by
// requests and by znodes, and nothing else.
func TestVerifyRemovesThrottles(t *testing.T) {
	z := real.ZooKeeper(t)
	k := real.KafkaBroker(t, z.Addr(), "3.9.1", "broker.id=1")
	plan := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(plan, []byte(`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "topics", "create", "--bootstrap-server", k.Addr(), "--topic", "t", "--partitions", "1", "--replication-factor", "1", "--config", "retention.ms=86400000")
	for _, at := range [][]string{{"--bootstrap-server", k.Addr()}, {"--zookeeper", z.Addr()}} {
		throttle := append([]string{"topics", "alter", "--topic", "t", "--config", "leader.replication.throttled.replicas=0:1"}, at...)
		must(t, throttle...)
		verify := append([]string{"reassign", "verify", "--reassignment-json-file", plan}, at...)
		must(t, append(verify, "--preserve-throttles")...)
		has := func() bool {
			return strings.Contains(must(t, "topics", "describe", "--zookeeper", z.Addr(), "--topic", "t", "-o", "json"), "throttled")
		}
		if !has() {
			t.Errorf("%s: the throttle is gone although it was to stay", at)
		}
		if out := must(t, verify...); !strings.Contains(out, "complete") {
			t.Errorf("%s: %s", at, out)
		}
		if has() {
			t.Errorf("%s: the throttle is still there", at)
		}
	}
	if out := must(t, "topics", "describe", "--zookeeper", z.Addr(), "--topic", "t", "-o", "json"); !strings.Contains(out, "86400000") {
		t.Errorf("another setting went too: %s", out)
	}
}
