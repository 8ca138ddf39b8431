package real

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// echo answers each line with itself.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

func say(c net.Conn, line string) (string, error) {
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	return bufio.NewReader(c).ReadString('\n')
}

func TestProxy(t *testing.T) {
	p := NewProxy(t, echo(t))
	dial := func() net.Conn {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := dial()
	if s, err := say(c, "a"); s != "a\n" {
		t.Fatalf("%q %v", s, err)
	}
	p.Hold(Down)
	answer := make(chan string)
	go func() { s, _ := say(c, "b"); answer <- s }()
	select {
	case s := <-answer:
		t.Fatalf("%q came through a held proxy", s)
	default:
	}
	p.Release()
	if s := <-answer; s != "b\n" {
		t.Fatalf("%q after the release", s)
	}
	p.Cut()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatal("the cut connection lives")
	}
	if s, err := say(dial(), "c"); err == nil {
		t.Fatalf("%q through a cut proxy", s)
	}
	p.Restore()
	if s, err := say(dial(), "d"); s != "d\n" {
		t.Fatalf("%q %v", s, err)
	}
}

func TestRequired(t *testing.T) {
	t.Setenv("REQUIRE_REAL", "docker, java")
	for part, want := range map[string]bool{Docker: true, Java: true, Kafka: false, "": false} {
		if Required(part) != want {
			t.Errorf("%q: %t", part, !want)
		}
	}
}

func TestJars(t *testing.T) {
	t.Setenv("ZKC_JARS", "")
	if d := JarsDir(); filepath.Base(filepath.Dir(d)) != ".cache" {
		t.Errorf("default folder %s", d)
	} else if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(d)), "go.mod")); err != nil {
		t.Errorf("%s is not under the project's root", d)
	}
	t.Setenv("ZKC_JARS", t.TempDir())
	if _, _, err := zkClasspath("nosuch"); !errors.Is(err, errNoZooKeeper) {
		t.Errorf("a set that is not there: %v", err)
	}
}

// TestServers: whatever serves, it answers srvr, keeps its data through a kill
// and a restart, and stops and goes on.
func TestServers(t *testing.T) {
	for _, k := range []ZKKind{Embedded, Apache} {
		t.Run(string(k), func(t *testing.T) {
			z := ZooKeeper(t, On(k))
			before := dialZK(t, z)
			if _, err := before.Create("/kept", []byte("x"), 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
			z.Kill()
			if s, err := FourLetterWord(z.Addr(), "srvr"); err == nil {
				t.Fatalf("killed, it answers %q", s)
			}
			if err := z.Restart(); err != nil {
				t.Fatal(err)
			}
			after := dialZK(t, z)
			read := func() string { b, _, err := after.Get("/kept"); return fmt.Sprint(string(b), err) }
			if got := read(); got != "x<nil>" {
				t.Errorf("after a kill: %s", got)
			}
			if err := z.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			answer := make(chan string, 1)
			// The signal takes effect a moment later; a read may still come through.
			for answered, tries := true, 0; answered; tries++ {
				go func() { answer <- read() }()
				select {
				case <-answer:
					if tries == 50 {
						t.Fatal("stopped, it answers on and on")
					}
				case <-time.After(100 * time.Millisecond):
					answered = false
				}
			}
			if err := z.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if got := <-answer; got != "x<nil>" {
				t.Errorf("going on, it answers %s", got)
			}
			if s, err := FourLetterWord(z.Addr(), "srvr"); err != nil || !strings.Contains(s, "Mode: standalone") {
				t.Errorf("going on, srvr is %q, %v", s, err)
			}
		})
	}
}

func dialZK(t *testing.T, z *ZKServer) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect([]string{z.Addr()}, 5*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
