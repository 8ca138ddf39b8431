package realtests

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	dnet "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/zkcontroller/zkcontroller/internal/real"
)

const zooKeeperImage = "zookeeper:3.9"

// requireDocker needs a daemon that testcontainers can use, not just a client.
func requireDocker(t *testing.T) {
	t.Helper()
	err := func() (err error) {
		defer func() { // the provider panics where it finds no socket
			if r := recover(); r != nil {
				err = fmt.Errorf("%v", r)
			}
		}()
		p, err := testcontainers.ProviderDocker.GetProvider()
		if err != nil {
			return err
		}
		defer p.Close()
		return p.Health(t.Context())
	}()
	if err != nil {
		real.Missing(t, real.Docker, fmt.Sprintf("no Docker daemon answers: %v", err), "start Docker, or as root scripts/docker-up.sh")
	}
}

// zooKeeperContainer is one server and where it is published. The port is
// fixed: one that Docker picks changes at a restart.
type zooKeeperContainer struct {
	*testcontainers.DockerContainer
	addr string
}

// startZooKeeper starts a server. Settings that give an overloaded machine time
// are raised; tickTime stays low so that sessions end soon.
func startZooKeeper(t *testing.T, env map[string]string, ready wait.Strategy, more ...testcontainers.ContainerCustomizer) zooKeeperContainer {
	t.Helper()
	port, err := real.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		"ZOO_4LW_COMMANDS_WHITELIST": "ruok,srvr,mntr", "ZOO_ADMINSERVER_ENABLED": "false", "ZOO_MAX_CLIENT_CNXNS": "0",
		"ZOO_TICK_TIME": "500", "ZOO_INIT_LIMIT": "40", "ZOO_SYNC_LIMIT": "20", "JVMFLAGS": "-Xmx128m",
	}
	for k, v := range env {
		all[k] = v
	}
	opts := append([]testcontainers.ContainerCustomizer{
		testcontainers.WithEnv(all),
		testcontainers.WithExposedPorts("2181/tcp"),
		testcontainers.WithHostConfigModifier(func(h *container.HostConfig) {
			h.PortBindings = dnet.PortMap{dnet.MustParsePort("2181/tcp"): {{
				HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(port),
			}}}
		}),
		testcontainers.WithWaitStrategy(ready),
	}, more...)
	c, err := testcontainers.Run(t.Context(), zooKeeperImage, opts...)
	testcontainers.CleanupContainer(t, c) // also what Run left half-way
	if err != nil {
		t.Fatalf("start %s: %v", zooKeeperImage, err)
	}
	z := zooKeeperContainer{c, fmt.Sprintf("127.0.0.1:%d", port)}
	t.Logf("real: container %s at %s", zooKeeperImage, z.addr)
	return z
}

// serving waits for ZooKeeper itself: the published port accepts connections
// before the server behind it does.
func serving() wait.Strategy {
	return wait.ForExec([]string{"sh", "-c", "echo srvr | nc -w 2 127.0.0.1 2181"}).
		WithResponseMatcher(func(r io.Reader) bool {
			b, err := io.ReadAll(r)
			return err == nil && bytes.Contains(b, []byte("Mode:"))
		}).WithPollInterval(100 * time.Millisecond).WithStartupTimeout(patience)
}

// startEnsemble starts three servers and waits until all serve.
func startEnsemble(t *testing.T) []zooKeeperContainer {
	t.Helper()
	nw, err := network.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nw.Remove(context.Background()) }) // the test's context is over by then
	const servers = "server.1=zk1:2888:3888;2181 server.2=zk2:2888:3888;2181 server.3=zk3:2888:3888;2181"
	var nodes []zooKeeperContainer
	for i := 1; i <= 3; i++ {
		// One alone has no quorum and never serves: start all, then wait.
		nodes = append(nodes, startZooKeeper(t, map[string]string{"ZOO_MY_ID": strconv.Itoa(i), "ZOO_SERVERS": servers},
			wait.ForExec([]string{"true"}), network.WithNetwork([]string{fmt.Sprintf("zk%d", i)}, nw)))
	}
	await(t, "all three ZooKeepers serve", func() bool {
		n := 0
		for _, z := range nodes {
			if strings.Contains(z.srvr(), "Mode: ") {
				n++
			}
		}
		return n == 3
	})
	return nodes
}

// srvr asks from outside; "" where nobody answers.
func (z zooKeeperContainer) srvr() string {
	s, err := real.FourLetterWord(z.addr, "srvr")
	if err != nil {
		return ""
	}
	return s
}

func connectString(nodes []zooKeeperContainer) string {
	var addrs []string
	for _, z := range nodes {
		addrs = append(addrs, z.addr)
	}
	return strings.Join(addrs, ",")
}

func leaderOf(nodes []zooKeeperContainer) int {
	for i, z := range nodes {
		if strings.Contains(z.srvr(), "Mode: leader") {
			return i
		}
	}
	return -1
}

func dockerClient(t *testing.T) *testcontainers.DockerClient {
	t.Helper()
	c, err := testcontainers.NewDockerClientWithOpts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (z zooKeeperContainer) killNow(t *testing.T) {
	t.Helper()
	if _, err := dockerClient(t).ContainerKill(t.Context(), z.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
}

// cut takes the server off its network until the returned function is called.
// It goes on running, so sessions expire in time and for good.
func (z zooKeeperContainer) cut(t *testing.T) (heal func()) {
	t.Helper()
	docker := dockerClient(t)
	found, err := docker.ContainerInspect(t.Context(), z.GetContainerID(), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var name string
	for n := range found.Container.NetworkSettings.Networks {
		name = n
	}
	if _, err := docker.NetworkDisconnect(t.Context(), name, client.NetworkDisconnectOptions{Container: z.GetContainerID(), Force: true}); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := docker.NetworkConnect(t.Context(), name, client.NetworkConnectOptions{Container: z.GetContainerID()}); err != nil {
			t.Fatal(err)
		}
	}
}
