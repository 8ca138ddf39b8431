package assembly

import (
	"context"
	"crypto/rand"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/dispatch"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// RandomTopicID gives a random id of Kafka's kind: a version 4 UUID whose text
// does not begin with a dash, which tools would take for an option.
func RandomTopicID() kafka.TopicID {
	for {
		var id kafka.TopicID
		rand.Read(id[:]) // never fails
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
		if id.String()[0] != '-' {
			return id
		}
	}
}

// updateMetadataSince tells which UpdateMetadata version a broker of a protocol
// version takes at least (spec/control-plane.md §1.1): the request whose version
// rose most often, so it tells releases apart best.
var updateMetadataSince = []struct {
	version kafka.ProtocolVersion
	request int16
}{{kafka.V3_4IV0, 8}, {kafka.V2_8IV1, 7}, {kafka.V2_4IV1, 6}, {kafka.V2_2IV0, 5}, {kafka.V1_0IV0, 4}, {kafka.V0_10_2IV0, 3}, {kafka.V0_10_0IV1, 2}}

func neededUpdateMetadata(v kafka.ProtocolVersion) int16 {
	for _, row := range updateMetadataSince {
		if v.AtLeast(row.version) {
			return row.request
		}
	}
	return 0
}

// versionChecks warns once about each broker that is too old for the protocol
// version the controller assumes. It only reads what a broker offers.
type versionChecks struct {
	need     int16
	version  kafka.ProtocolVersion
	listener string
	net      Network
	log      logrus.FieldLogger
	ctx      context.Context // ends with close; the checks are goroutines of their own
	stop     context.CancelFunc
	wg       sync.WaitGroup
	mu       sync.Mutex
	seen     map[kafka.BrokerID]int64 // the epoch that was looked at
}

func newVersionChecks(v kafka.ProtocolVersion, listener string, network Network, log logrus.FieldLogger) *versionChecks {
	c := &versionChecks{need: neededUpdateMetadata(v), version: v, listener: listener, net: network, log: log, seen: map[kafka.BrokerID]int64{}}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

func (c *versionChecks) close() {
	c.stop()
	c.wg.Wait()
}

// look asks a broker in the background, once per registration.
func (c *versionChecks) look(b kafka.Broker) {
	c.mu.Lock()
	epoch, known := c.seen[b.ID]
	c.seen[b.ID] = b.Epoch
	c.mu.Unlock()
	e, ok := b.Endpoint(c.listener)
	if !ok {
		e, ok = b.Endpoint(kafka.Plaintext.String())
	}
	if c.need == 0 || known && epoch == b.Epoch || !ok || e.Protocol != kafka.Plaintext {
		return
	}
	c.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.ctx, 10*time.Second)
		defer cancel()
		conn, err := wire.Dial(ctx, net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))), wire.DialOptions{Dialer: c.net.Dial})
		if err != nil {
			return // the broker's channel tells that it cannot be reached
		}
		defer conn.Close()
		offered, err := conn.APIVersions(ctx)
		if err != nil {
			return
		}
		if r, ok := offered[int16(control.UpdateMetadataKey)]; !ok || r.Max < c.need {
			c.log.WithFields(logrus.Fields{"broker": b.ID, "assumed": c.version.String(), "update_metadata": r.Max, "needed": c.need}).
				Warn("this broker is older than --inter-broker-protocol-version says; it may not understand topic ids or moves")
		}
	})
}

// checkedChannels looks at every broker that gets a channel.
type checkedChannels struct {
	*dispatch.Dispatcher
	checks *versionChecks
}

// Add opens the broker's channel.
func (c checkedChannels) Add(b kafka.Broker) {
	c.Dispatcher.Add(b)
	c.checks.look(b)
}
