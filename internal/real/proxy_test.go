package real

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
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
