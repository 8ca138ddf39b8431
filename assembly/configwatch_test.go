package assembly

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokerport"
	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// What is changed for brokers at run time holds at once, for one broker before all
// of them; what cannot be changed so, or would have no effect, is refused and says
// why. A broker that starts later begins with it.
func TestBrokerConfigsAtRunTime(t *testing.T) {
	w := overTheWire(t, version(t, "3.9"), 2, func(p *BrokerOptions) {
		p.Settings = brokerport.Settings{"message.max.bytes": "5000", "log.retention.ms": "60000", "group.max.size": "7", "replica.fetch.max.bytes": "4096", "num.io.threads": "2"}
		p.KeepRecords()
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if logs, groups := w.processes[0].o.Brokers[0].Broker.Logs, w.processes[0].o.Brokers[0].Broker.Groups; logs.FetchPartitionBytes != 4096 || groups.MaxSize != 7 || groups.InitialRebalanceDelay != 0 {
		t.Errorf("static settings: %+v, %+v", logs, groups)
	}
	admin := kadm.NewClient(w.client())
	for known := 0; known < len(w.processes); { // a broker that was not told of all others is asked for what it knows
		m, err := admin.BrokerMetadata(ctx)
		if err != nil {
			t.Fatal(err)
		}
		known = len(m.Brokers)
	}
	alter := func(broker []int32, op kadm.IncrementalOp, key, value string) error {
		t.Helper()
		got, err := admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: op, Name: key, Value: &value}}, broker...)
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Err != nil {
			return errors.New(got[0].ErrMessage)
		}
		return nil
	}
	await := func(broker int, what string, ok func(brokers.TopicConfig) bool) {
		t.Helper()
		node := w.processes[broker-1].running[0].node
		for !ok(node.TopicConfig("t")) {
			if _, err := node.Gauges(ctx, false); err != nil { // each is a turn of the broker's loop
				t.Fatalf("broker %d: %s: %v; it has %+v", broker, what, err, node.TopicConfig("t"))
			}
		}
	}
	await(1, "what it was started with", func(c brokers.TopicConfig) bool { return c.MaxMessageBytes == 5000 && c.Retention == time.Minute })
	for _, change := range []struct {
		broker     []int32
		key, value string
	}{{nil, "message.max.bytes", "6000"}, {nil, "min.insync.replicas", "2"}, {[]int32{1}, "message.max.bytes", "7000"}, {nil, "num.replica.fetchers", "3"}} {
		if err := alter(change.broker, kadm.SetConfig, change.key, change.value); err != nil {
			t.Errorf("%s of %v: %v", change.key, change.broker, err)
		}
	}
	await(1, "its own before that of all", func(c brokers.TopicConfig) bool {
		return c.MaxMessageBytes == 7000 && c.MinISR == 2 && c.Retention == time.Minute
	})
	await(2, "that of all", func(c brokers.TopicConfig) bool { return c.MaxMessageBytes == 6000 && c.MinISR == 2 })
	if err := alter([]int32{1}, kadm.DeleteConfig, "message.max.bytes", ""); err != nil {
		t.Error(err)
	}
	await(1, "that of all again", func(c brokers.TopicConfig) bool { return c.MaxMessageBytes == 6000 })

	// Records are packed as compression.type says, whatever their producer did.
	if err := alter(nil, kadm.SetConfig, "compression.type", "gzip"); err != nil {
		t.Error(err)
	}
	for id := 1; id <= 2; id++ {
		await(id, "compression", func(c brokers.TopicConfig) bool { return c.Compression == commitlog.Gzip })
	}
	if err := w.client(kgo.DefaultProduceTopic("t"), kgo.ProducerBatchCompression(kgo.NoCompression())).ProduceSync(ctx, kgo.StringRecord("packed")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	reader := w.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	if got := reader.PollFetches(ctx).Records(); len(got) != 1 || string(got[0].Value) != "packed" || got[0].Attrs.CompressionType() != 1 {
		t.Errorf("read %d records: %+v", len(got), got)
	}

	for key, why := range map[string]string{"num.io.threads": "means nothing", "listeners": "cannot be changed", "broker.id": "cannot be changed", "message.max.bytes": "no whole number",
		"listener.name.internal.ssl.key.password": "means nothing", "num.replica.fetchers": "less than 1"} {
		value := "0"
		if key == "message.max.bytes" {
			value = "many"
		}
		if err := alter([]int32{1}, kadm.SetConfig, key, value); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", key, err, why)
		}
	}
	// The controller's port sets for all brokers, too: clients take any node for that.
	// The brokers may be real ones, so that more keys mean something.
	for key, code := range map[string]kafka.ErrorCode{"log.cleaner.threads": kafka.NoError, "broker.id": kafka.InvalidRequest, "retention.ms": kafka.NoError} {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker,
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Value: new("2")}}}}
		resp, err := w.client().Broker(1000).RetriableRequest(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if got := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode; got != int16(code) {
			t.Errorf("%s for all brokers, at the controller: %d, want %d", key, got, code)
		}
	}
	for _, p := range w.processes {
		p.running[0].takeDefaults(ctx) // as a process does that starts
		if logs := p.running[0].plan.Broker.Logs; logs.Topic.MaxMessageBytes != 6000 || logs.Fetchers != 3 {
			t.Errorf("a broker that starts now begins with %+v", logs)
		}
	}
}
