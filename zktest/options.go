package zktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/assembly"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// Option changes what is started. Those about brokers mean nothing to a
// ZooKeeper alone.
type Option func(*settings)

type settings struct {
	server   zkserver.Options
	address  string
	inMemory bool
	clock    *zkserver.ManualClock

	brokers        []kafka.BrokerID
	release        string
	topics         []assembly.Topic
	records        bool
	sessionTimeout time.Duration
	log            logrus.FieldLogger
}

// Defaults, chosen for tests: sessions from 200 ms to 40 s, which expire within
// 100 ms of their time.
const (
	defaultTick       = 100 * time.Millisecond
	defaultMaxSession = 40 * time.Second
	defaultRelease    = "2.6"
	anyPort           = "127.0.0.1:0"
)

func settingsOf(options []Option) (settings, error) {
	s := settings{address: anyPort, release: defaultRelease, records: true, brokers: []kafka.BrokerID{1, 2, 3}}
	s.server = zkserver.Options{TickTime: defaultTick, MaxSessionTimeout: defaultMaxSession, FourLetterWords: []string{"*"}, ExtendedTypes: true}
	for _, o := range options {
		o(&s)
	}
	if s.log != nil { // else Server may have set one
		s.server.Log = s.log
	}
	if s.inMemory && s.address != anyPort {
		return s, fmt.Errorf("zktest: InMemory opens no port, and Address names one, %s: give one of the two", s.address)
	}
	if s.clock != nil && s.server.Clock != zkserver.Clock(s.clock) {
		return s, errors.New("zktest: a manual clock and another clock: give one")
	}
	seen := map[kafka.BrokerID]bool{controllerID: true}
	for _, id := range s.brokers {
		if id < 0 || seen[id] {
			return s, fmt.Errorf("zktest: broker id %d: ids are different, not negative and not %d, which the controller has", id, controllerID)
		}
		seen[id] = true
	}
	return s, nil
}

// InMemory opens no sockets: clients come by Dial, DialTimeout and DialKafka
// alone. It is what makes a server or cluster work in a testing/synctest bubble.
func InMemory() Option { return func(s *settings) { s.inMemory = true } }

// Address is where ZooKeeper listens; without it, on any free port of 127.0.0.1.
func Address(hostPort string) Option { return func(s *settings) { s.address = hostPort } }

// ManualClock makes ZooKeeper's time stand still until ZooKeeper.Advance moves
// it: no session expires before. Clients keep the time they have.
func ManualClock() Option {
	return func(s *settings) {
		s.clock = zkserver.NewManualClock()
		s.server.Clock = s.clock
	}
}

// Server changes the server's options after zktest's own defaults, which are a
// tick of 100 ms, sessions up to 40 s, all four-letter words and TTL nodes.
func Server(change func(*zkserver.Options)) Option {
	return func(s *settings) { change(&s.server) }
}

// DataDir makes ZooKeeper keep its znodes in a folder, in Apache ZooKeeper's own
// format; the next one on it finds them again.
func DataDir(dir string) Option { return func(s *settings) { s.server.DataDir = dir } }

// Brokers is how many emulated brokers a cluster has, 3 without it. Their ids
// begin at 1.
func Brokers(n int) Option {
	return func(s *settings) {
		s.brokers = nil
		for id := range n {
			s.brokers = append(s.brokers, kafka.BrokerID(id+1))
		}
	}
}

// BrokerIDs names a cluster's brokers one by one.
func BrokerIDs(ids ...kafka.BrokerID) Option { return func(s *settings) { s.brokers = ids } }

// Release is the Kafka release whose manners brokers and controller have, as
// inter.broker.protocol.version says it: 2.6 without it, where leaders write
// partition states themselves; from 2.7-IV2 on they ask the controller.
func Release(version string) Option { return func(s *settings) { s.release = version } }

// Topic is created before the cluster is handed out. It may be given again.
func Topic(name string, partitions, replication int) Option {
	return func(s *settings) {
		s.topics = append(s.topics, assembly.Topic{Name: name, Partitions: partitions, Replication: replication})
	}
}

// WithoutRecords makes brokers keep no records, serve no producers and consumers,
// and followers keep up by the clock alone, for tests of what happens to partitions.
func WithoutRecords() Option { return func(s *settings) { s.records = false } }

// SessionTimeout is what controller and brokers ask of ZooKeeper, 6 s without it.
func SessionTimeout(d time.Duration) Option { return func(s *settings) { s.sessionTimeout = d } }

// Log is where server, controller and brokers say what they do; without it
// nowhere.
func Log(log logrus.FieldLogger) Option { return func(s *settings) { s.log = log } }
