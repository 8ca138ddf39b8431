package realtests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/internal/real"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// candidateConfig is the server.properties of a broker that may be controller.
func candidateConfig(t *testing.T, zk string, id int) (file, address string) {
	t.Helper()
	port, err := real.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, address = filepath.Join(dir, "server.properties"), fmt.Sprintf("127.0.0.1:%d", port)
	text := fmt.Sprintf("broker.id=%d\nlisteners=PLAINTEXT://%s\nzookeeper.connect=%s\nzookeeper.session.timeout.ms=%d\nlog.dirs=%s\n"+
		"controlled.shutdown.retry.backoff.ms=500\n", id, address, zk, sessionTimeout.Milliseconds(), filepath.Join(dir, "logs"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, address
}

// createAt asks one broker, controller or not, to create a topic.
func createAt(t *testing.T, address string) kafka.ErrorCode {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := wire.Dial(ctx, address, wire.DialOptions{ClientID: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	req := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "refused", 1, 1
	req.Topics, req.Version, req.TimeoutMillis = append(req.Topics, topic), 5, 10_000
	resp, err := c.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return kafka.ErrorCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
}

// Three brokers that are candidates too, as real ones are: the controller's
// process is killed, so broker and controller go together; one of the others
// takes over and elects leaders. The dead one returns and is taken into the
// ISRs, which leaders can only ask of the new controller. At the end each
// leaves in good order, the controller among them.
func TestBrokersAsCandidates(t *testing.T) {
	z := real.ZooKeeper(t)
	zk := z.Addr() + "/kafka"
	files, addresses, processes := map[int]string{}, map[int]string{}, map[int]*child{}
	run := func(id int) {
		processes[id] = start(t, "broker "+strconv.Itoa(id), binary, "broker", "--config", files[id], "--controller")
	}
	for id := 1; id <= 3; id++ {
		files[id], addresses[id] = candidateConfig(t, zk, id)
		run(id)
	}
	await(t, "three brokers, one of them controller", func() bool {
		s, ok := statusOf(t, zk)
		return ok && s.has(1, 2, 3) && s.Controller != nil
	})
	first, _ := statusOf(t, zk)
	all := addresses[1] + "," + addresses[2] + "," + addresses[3]
	await(t, "a topic is created through whoever is controller", func() bool {
		_, code := zkc(t, "topics", "create", "--if-not-exists", "--bootstrap-server", all, "--topic", "orders", "--partitions", "6", "--replication-factor", "3", "--timeout", "10s")
		return code == 0
	})
	await(t, "six partitions led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions == 6 && s.healthy() })

	old := first.Controller.ID
	processes[old].kill()
	await(t, "another broker took over, and leaders are elected", func() bool {
		s, ok := statusOf(t, zk)
		return ok && s.Controller != nil && s.Controller.ID != old && len(s.Brokers) == 2 && len(s.Leaderless) == 0 && len(s.UnderReplicated) == 6
	})
	second, _ := statusOf(t, zk)
	if *second.Epoch <= *first.Epoch {
		t.Errorf("controller epoch %d, it was %d", *second.Epoch, *first.Epoch)
	}
	run(old)
	await(t, "the dead one is back in every ISR", func() bool { s, ok := statusOf(t, zk); return ok && s.has(1, 2, 3) && s.healthy() })
	// Its own port tells clients who is controller, from its metadata cache, and
	// refuses what only that one does.
	must(t, "topics", "create", "--bootstrap-server", addresses[old], "--topic", "more", "--partitions", "3", "--replication-factor", "3")
	if code := createAt(t, addresses[old]); code != kafka.NotController {
		t.Errorf("broker %d, standing by, answers CreateTopics with %s", old, code)
	}
	await(t, "nine partitions led", func() bool { s, ok := statusOf(t, zk); return ok && s.Partitions == 9 && s.healthy() })

	for range 3 { // the controller first: its leaderships move, then the role
		s, ok := statusOf(t, zk)
		if !ok || s.Controller == nil {
			t.Fatalf("nobody is controller: %+v", s)
		}
		id := s.Controller.ID
		processes[id].leave(20 * time.Second)
		if !strings.Contains(processes[id].out.String(), "controlled shutdown succeeded") && len(s.Brokers) > 1 {
			t.Errorf("broker %d left without a controlled shutdown:\n%s", id, processes[id].out.String())
		}
		delete(processes, id)
		if len(processes) == 0 {
			break
		}
		await(t, fmt.Sprintf("after broker %d, the controller, has left", id), func() bool {
			s, ok := statusOf(t, zk)
			return ok && s.Controller != nil && s.Controller.ID != id && len(s.Brokers) == len(processes) && len(s.Leaderless) == 0
		})
	}
	if s, ok := statusOf(t, zk); !ok || s.Controller != nil || len(s.Brokers) != 0 {
		t.Errorf("after all have left: %+v", s)
	}
}
