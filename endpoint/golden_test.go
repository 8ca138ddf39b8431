package endpoint

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
)

// The bytes of one exchange per request and version, without headers, as kmsg
// has them; that others read them so is TestKafkaTools' business. A change here
// is a change that clients see. Record with -rewrite.
func TestGoldenBytes(t *testing.T) {
	datadriven.RunTest(t, "testdata/exchanges", func(t *testing.T, d *datadriven.TestData) string {
		var key int
		d.ScanArgs(t, "key", &key)
		l := newSmallLoop()
		l.start(t)
		e := newEndpoint(Options{ID: selfID, Listener: "PLAINTEXT", Loop: l, Configs: newSmallConfigs(), Producers: new(smallProducers)})
		a, ok := e.api(kmsg.Key(key))
		if !ok || a.key == kmsg.ApiVersions {
			return fmt.Sprintf("key %d is not answered here\n", key)
		}
		if name := kmsg.NameForKey(int16(key)); d.Cmd != name {
			d.Fatalf(t, "key %d is %s", key, name)
		}
		var out bytes.Buffer
		for v := a.min; v <= a.max; v++ {
			l.do(func() {
				l.topics = map[string]*smallTopic{}
				l.create(events.NewTopic{Name: "orders", Partitions: 2, ReplicationFactor: 2}, false)
			})
			raw := sampleRequest(a.key, v).AppendTo(nil)
			req := kmsg.RequestForKey(int16(a.key))
			req.SetVersion(v)
			if err := req.ReadFrom(raw); err != nil {
				d.Fatalf(t, "v%d: %v", v, err)
			}
			resp, err := e.answer(t.Context(), req)
			if err != nil {
				d.Fatalf(t, "v%d: %v", v, err)
			}
			resp.SetVersion(v)
			fmt.Fprintf(&out, "v%d -> %x\n   <- %x\n", v, raw, resp.AppendTo(nil))
		}
		return out.String()
	})
}
