package realtests

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// tellOfSessions makes a broker of Kafka's write down what each fetch is to it.
func tellOfSessions(ctx context.Context, t *testing.T, cl *kgo.Client, broker int32) {
	t.Helper()
	const brokerLogger = 8
	await(t, "Kafka tells of fetch sessions", func() bool {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = brokerLogger, "1"
		debug := "DEBUG"
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = "kafka.server.FetchManager", &debug
		r.Configs = append(r.Configs, c)
		req.Resources = append(req.Resources, r)
		resp, err := cl.Broker(int(broker)).RetriableRequest(ctx, req)
		if err != nil {
			return false
		}
		err = kerr.ErrorForCode(resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode)
		if err != nil {
			t.Logf("logger: %v", err)
		}
		return err == nil
	})
}

// Our follower has fetch sessions at leaders of Kafka, which see its incremental
// fetches. It goes on when the leader's process, and with it the session, is
// another.
func TestFetchSessionsAtKafka(t *testing.T) {
	requireOurs(t)
	for _, c := range []struct{ release, ibp string }{{"3.9.1", "3.9"}, {"2.4.1", "2.4"}} {
		t.Run(c.release, func(t *testing.T) { fetchSessions(t, c.release, c.ibp) })
	}
}

func fetchSessions(t *testing.T, release, ibp string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	zk := real.ZooKeeper(t).Addr()
	theirs := startKafka(t, release, zk, 1, map[string]string{"inter.broker.protocol.version": ibp})
	awaitBrokers(t, zk, 1)
	ours := startBroker(t, zk, 2, false, "inter.broker.protocol.version="+ibp)
	awaitBrokers(t, zk, 1, 2)
	cl := kafkaClient(t, theirs.addr, ours.addr)
	createOn(ctx, t, cl, "orders", nil, []int32{1, 2}, []int32{1, 2}, []int32{1, 2}, []int32{1, 2})
	awaitHealthy(t, zk, 4)
	sessions := func() {
		t.Helper()
		tellOfSessions(ctx, t, cl, 1)
		produceSome(ctx, t, cl, "orders") // acks=all: the follower has them
		await(t, "incremental fetches", func() bool {
			return strings.Contains(theirs.out.String(), "incremental FetchContext for session id")
		})
	}
	sessions()
	theirs.kill()
	await(t, "Kafka's broker is gone", func() bool { s, ok := statusOf(t, zk); return ok && s.has(2) })
	theirs.again(t)
	awaitHealthy(t, zk, 4)
	sessions()
	reassign(ctx, t, kadm.NewClient(cl), "orders", map[int32][]int32{0: {2, 1}, 1: {2, 1}, 2: {2, 1}, 3: {2, 1}})
	lead(ctx, t, kadm.NewClient(cl), "orders", 2)
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, "orders")
	if err != nil || ends.Error() != nil {
		t.Fatal(err, ends.Error())
	}
	sum := int64(0)
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	if sum != 40 {
		t.Errorf("%d of 40 records are there when our broker leads", sum)
	}
}
