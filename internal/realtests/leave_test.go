package realtests

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

// TestLeavingAPausedZooKeeper: SIGTERM ends the program with 0 within five
// seconds although ZooKeeper takes everything and answers nothing, be the
// session fresh, suspect, over, or not there yet.
func TestLeavingAPausedZooKeeper(t *testing.T) {
	z := real.ZooKeeper(t)
	t.Setenv("ZKC_ZOOKEEPER_SESSION_TIMEOUT_MS", "3000") // so that it is over soon
	run := func() *child {
		return start(t, "controller", binary, "run", "--zookeeper", z.Addr(), "--broker-id", "1000", "--inter-broker-protocol-version", "2.4")
	}
	signal := func(sig syscall.Signal) {
		if err := z.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	said := func(c *child, text string) func() bool {
		return func() bool { return strings.Contains(c.out.String(), text) }
	}
	for _, symptom := range []string{"", "connection to ZooKeeper lost", "ZooKeeper session expired"} {
		c := run()
		await(t, "in charge", said(c, "msg=ready"))
		signal(syscall.SIGSTOP)
		if symptom != "" {
			await(t, symptom, said(c, symptom))
		}
		c.leave(5 * time.Second)
		signal(syscall.SIGCONT)
	}
}

// TestLeavingBeforeTheSession: the same while the first session is being opened.
func TestLeavingBeforeTheSession(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := start(t, "controller", binary, "run", "--zookeeper", l.Addr().String(), "--broker-id", "1000")
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.leave(5 * time.Second)
}
