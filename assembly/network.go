package assembly

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Network is how Kafka's ports are opened and reached. The zero value is TCP.
type Network struct {
	// Listen opens a port at HOST:PORT; port 0 takes any free one. The listener's
	// address must be a HOST:PORT with the port that was taken.
	Listen func(address string) (net.Listener, error)
	// Dial reaches one.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

func (n Network) listen(address string) (net.Listener, error) {
	if n.Listen != nil {
		return n.Listen(address)
	}
	return net.Listen("tcp", address)
}

// open is listen; the error names the listener and the remedy.
func (n Network) open(name, address string) (net.Listener, int32, error) {
	ln, err := n.listen(address)
	if err != nil {
		return nil, 0, fmt.Errorf("open listener %s://%s: %w; give another port, or stop who has it", name, address, err)
	}
	_, text, err := net.SplitHostPort(ln.Addr().String())
	var port int
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		ln.Close()
		return nil, 0, fmt.Errorf("open listener %s://%s: its address %s has no port: %w", name, address, ln.Addr(), err)
	}
	return ln, int32(port), nil
}

// Listener is a PLAINTEXT port of a controller.
type Listener struct {
	Name string // such as PLAINTEXT
	Bind string // HOST:PORT; no host is all interfaces, port 0 any free one
	// Advertise is what brokers and clients are told of it. Port 0 is the one that
	// was bound; no host, or one that means all interfaces, is this machine's name.
	Advertise []kafka.Endpoint
}

// boundListener is an open port that nobody serves yet.
type boundListener struct {
	net.Listener
	name string
}

type boundListeners struct {
	open       []boundListener
	advertised []kafka.Endpoint
}

// take hands the ports over to who serves, and closes, them.
func (b *boundListeners) take() []boundListener {
	open := b.open
	b.open = nil
	return open
}

func (b *boundListeners) closeUnserved() {
	for _, l := range b.open {
		l.Close()
	}
}

// bindListeners opens the ports.
func bindListeners(n Network, listeners []Listener) (*boundListeners, error) {
	b := &boundListeners{}
	for _, l := range listeners {
		ln, port, err := n.open(l.Name, l.Bind)
		if err != nil {
			b.closeUnserved()
			return nil, err
		}
		b.open = append(b.open, boundListener{ln, l.Name})
		for _, e := range l.Advertise {
			if e.Port == 0 {
				e.Port = port
			}
			if e.Host, err = ReachableHost(e.Host); err != nil {
				b.closeUnserved()
				return nil, fmt.Errorf("listener %s://%s: %w; give an advertised listener", l.Name, l.Bind, err)
			}
			b.advertised = append(b.advertised, e)
		}
	}
	return b, nil
}

// ReachableHost gives the machine's name for a host that stands for all
// interfaces, as Kafka does, and any other host as it is.
func ReachableHost(host string) (string, error) {
	if host != "" && host != "0.0.0.0" && host != "::" {
		return host, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("it names no host and this machine's name is unknown: %w", err)
	}
	return name, nil
}

// orQuiet gives a logger that says nothing for none.
func orQuiet(log logrus.FieldLogger) logrus.FieldLogger {
	if log != nil {
		return log
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	quiet.SetLevel(logrus.PanicLevel)
	return quiet
}
