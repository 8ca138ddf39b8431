package brokerport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// LeadersOptions are what a Leaders is told.
type LeadersOptions struct {
	Self     kafka.BrokerID
	Version  kafka.ProtocolVersion // inter.broker.protocol.version: it chooses the requests' versions
	Listener string                // inter.broker.listener.name
	// Timeout bounds a request beyond the time that the leader may wait
	// (replica.socket.timeout.ms); 0 is 30 s.
	Timeout time.Duration
	// Dialer replaces TCP; nil: it is TCP.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

// Leaders is a follower's way to leaders in other processes, over the wire: a
// brokers.LeaderClient. It keeps one connection to a leader for each request that
// is there at a time: that is one for each of the follower's fetchers.
//
// Each fetcher has a session at its leader, as Kafka's have: it outlives the
// connection, and a leader that does not know it any more is asked for all.
type Leaders struct {
	o LeadersOptions

	mu       sync.Mutex
	idle     map[kafka.BrokerID][]*leaderLink
	sessions map[fetcherKey]*leaderSession // but those in use
	closed   bool
}

var _ brokers.LeaderClient = (*Leaders)(nil)

// leaderLink is one connection to a leader.
type leaderLink struct {
	*wire.Conn
	address string
	offered wire.Versions
}

// NewLeaders makes a Leaders that is connected to nobody.
func NewLeaders(o LeadersOptions) *Leaders {
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	return &Leaders{o: o, idle: map[kafka.BrokerID][]*leaderLink{}, sessions: map[fetcherKey]*leaderSession{}}
}

// Close closes all connections but those in use, which close when their
// requests end.
func (l *Leaders) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, links := range l.idle {
		for _, link := range links {
			link.Close()
		}
	}
	clear(l.idle)
}

// errLeadersClosed: the process ends.
var errLeadersClosed = errors.New("the way to leaders is closed")

// take gives a connection that nobody uses, or makes one.
func (l *Leaders) take(ctx context.Context, leader kafka.Broker) (*leaderLink, error) {
	e, ok := leader.Endpoint(l.o.Listener)
	if !ok {
		return nil, fmt.Errorf("leader %d has no listener %s; give all brokers one of that name, or set inter.broker.listener.name", leader.ID, l.o.Listener)
	}
	address := net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
	if link, err := l.reuse(leader.ID, address); link != nil || err != nil {
		return link, err
	}
	conn, err := wire.Dial(ctx, address, wire.DialOptions{ClientID: "broker-" + strconv.Itoa(int(l.o.Self)) + "-fetcher", Dialer: l.o.Dialer})
	if err != nil {
		return nil, fmt.Errorf("reach leader %d: %w", leader.ID, err)
	}
	link := &leaderLink{Conn: conn, address: address}
	if link.offered, err = conn.APIVersions(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask leader %d what it serves: %w", leader.ID, err)
	}
	return link, nil
}

// reuse gives an idle connection to an address, or nil.
func (l *Leaders) reuse(id kafka.BrokerID, address string) (*leaderLink, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errLeadersClosed
	}
	for links := l.idle[id]; len(links) > 0; links = l.idle[id] {
		link := links[len(links)-1]
		l.idle[id] = links[:len(links)-1]
		if link.address == address {
			return link, nil
		}
		link.Close() // it lives elsewhere now
	}
	return nil, nil
}

func (l *Leaders) put(id kafka.BrokerID, link *leaderLink) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		link.Close()
		return
	}
	l.idle[id] = append(l.idle[id], link)
}

// ask sends requests one after the other on one connection, at the newest version
// that both sides know, up to newest.
func (l *Leaders) ask(ctx context.Context, leader kafka.Broker, wait time.Duration, newest int16, reqs ...kmsg.Request) ([]kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+l.o.Timeout)
	defer cancel()
	link, err := l.take(ctx, leader)
	if err != nil {
		return nil, err
	}
	out := make([]kmsg.Response, len(reqs))
	for i, req := range reqs {
		if out[i], err = l.request(ctx, leader, link, newest, req, nil); err != nil {
			link.Close()
			return nil, err
		}
	}
	l.put(leader.ID, link)
	return out, nil
}

// request sends one request; fill, if there is one, finishes it once its version
// is set. After an error the connection is of no use.
func (l *Leaders) request(ctx context.Context, leader kafka.Broker, link *leaderLink, newest int16, req kmsg.Request, fill func()) (kmsg.Response, error) {
	r, ok := link.offered[req.Key()]
	version := min(r.Max, newest)
	if !ok || version < r.Min {
		return nil, fmt.Errorf("leader %d does not serve %s up to version %d", leader.ID, kmsg.NameForKey(req.Key()), newest)
	}
	req.SetVersion(version)
	if fill != nil {
		fill()
	}
	resp, err := link.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("leader %d: %w", leader.ID, err)
	}
	return resp, nil
}

// versionStep is the newest version of a request from a protocol version on.
type versionStep struct {
	from kafka.ProtocolVersion
	max  int16
}

// pick gives the newest of a list that is in ascending order.
func (l *Leaders) pick(lowest int16, steps ...versionStep) int16 {
	for _, s := range steps {
		if l.o.Version.AtLeast(s.from) {
			lowest = s.max
		}
	}
	return lowest
}

func since(major, minor, iv int, newest int16) versionStep {
	return versionStep{kafka.ProtocolVersion{Major: major, Minor: minor, IV: iv}, newest}
}

// fetchVersion is Kafka's of an inter.broker.protocol.version; below 0.11 it is
// that of 0.11, whose format of records is the only one here.
func (l *Leaders) fetchVersion(r *brokers.FetchRequest) int16 {
	v := l.pick(4, since(0, 1100, 1, 5), since(1, 1, 0, 7), since(2, 0, 1, 8), since(2, 1, 2, 10), since(2, 3, 1, 11), since(2, 7, 1, 12),
		since(3, 1, 0, 13), since(3, 5, 0, 14), since(3, 5, 1, 15), since(3, 7, 4, 16), since(3, 9, 0, 17))
	for i := range r.Rows {
		if r.Rows[i].TopicID.IsZero() {
			return min(v, 12)
		}
	}
	return v
}

// Fetch is brokers.LeaderClient's. A leader that has forgotten the session is
// asked for everything at once.
func (l *Leaders) Fetch(ctx context.Context, leader kafka.Broker, r *brokers.FetchRequest) ([]brokers.FetchResult, error) {
	ctx, cancel := context.WithTimeout(ctx, r.MaxWait+l.o.Timeout)
	defer cancel()
	key := fetcherKey{leader.ID, r.Fetcher}
	s := l.takeSession(key)
	defer l.putSession(key, s)
	if r.Anew {
		s.forget()
	}
	resp, err := l.fetch(ctx, leader, s, r)
	if err != nil {
		s.forget()
		return nil, err
	}
	again, err := s.took(resp)
	if again {
		if resp, err = l.fetch(ctx, leader, s, r); err == nil {
			_, err = s.took(resp)
		}
	}
	if err != nil {
		s.forget()
		return nil, fmt.Errorf("leader %d: %w", leader.ID, err)
	}
	return s.results(resp), nil
}

func (l *Leaders) fetch(ctx context.Context, leader kafka.Broker, s *leaderSession, r *brokers.FetchRequest) (*kmsg.FetchResponse, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID, req.ReplicaState.Epoch = int32(r.Replica), int32(r.Replica), r.ReplicaEpoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(r.MaxWait.Milliseconds()), int32(r.MinBytes), int32(r.MaxBytes)
	link, err := l.take(ctx, leader)
	if err != nil {
		return nil, err
	}
	out, err := l.request(ctx, leader, link, l.fetchVersion(r), req, func() { s.fill(req, r) })
	if err != nil {
		link.Close()
		return nil, err
	}
	l.put(leader.ID, link)
	resp, ok := out.(*kmsg.FetchResponse)
	if !ok {
		return nil, fmt.Errorf("leader %d answered a Fetch with a %T", leader.ID, out)
	}
	return resp, nil
}

// takeSession gives a fetcher's session to who fetches; another request of the
// same fetcher, as one of an earlier life of the broker that still waits, begins
// one of its own.
func (l *Leaders) takeSession(key fetcherKey) *leaderSession {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sessions[key]
	if s == nil {
		return &leaderSession{}
	}
	delete(l.sessions, key)
	return s
}

func (l *Leaders) putSession(key fetcherKey, s *leaderSession) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[key] = s
}

// EpochEnds is brokers.LeaderClient's.
func (l *Leaders) EpochEnds(ctx context.Context, leader kafka.Broker, queries []brokers.EpochQuery) ([]brokers.EpochAnswer, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = int32(l.o.Self)
	for _, q := range queries {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != q.Partition.Topic {
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = q.Partition.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = q.Partition.Partition, q.LeaderEpoch, q.Epoch
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	out, err := l.ask(ctx, leader, 0, l.pick(0, since(2, 0, 0, 1), since(2, 1, 1, 2), since(2, 3, 1, 3), since(2, 8, 0, 4)), req)
	if err != nil {
		return nil, err
	}
	resp, ok := out[0].(*kmsg.OffsetForLeaderEpochResponse)
	if !ok {
		return nil, fmt.Errorf("leader %d answered an OffsetForLeaderEpoch with a %T", leader.ID, out[0])
	}
	var answers []brokers.EpochAnswer
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			answers = append(answers, brokers.EpochAnswer{Partition: kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition},
				Error: kafka.ErrorCode(p.ErrorCode), Epoch: p.LeaderEpoch, EndOffset: p.EndOffset})
		}
	}
	return answers, nil
}

// ListOffsets is brokers.LeaderClient's. A partition that is asked for twice needs
// two requests.
func (l *Leaders) ListOffsets(ctx context.Context, leader kafka.Broker, queries []brokers.OffsetQuery) ([]brokers.OffsetAnswer, error) {
	var reqs []kmsg.Request
	var rounds []*kmsg.ListOffsetsRequest
	nth := map[kafka.TopicPartition]int{}
	for _, q := range queries {
		n := nth[q.Partition]
		nth[q.Partition]++
		if n == len(rounds) {
			req := kmsg.NewPtrListOffsetsRequest()
			req.ReplicaID = int32(l.o.Self)
			rounds, reqs = append(rounds, req), append(reqs, req)
		}
		addOffsetQuery(rounds[n], q)
	}
	newest := l.pick(1, since(0, 1100, 0, 2), since(2, 0, 1, 3), since(2, 1, 1, 4), since(2, 2, 1, 5), since(2, 8, 0, 6), since(3, 0, 1, 7),
		since(3, 5, 0, 8), since(3, 9, 0, 9))
	out, err := l.ask(ctx, leader, 0, newest, reqs...)
	if err != nil {
		return nil, err
	}
	found := make([]map[kafka.TopicPartition]brokers.OffsetAnswer, len(out))
	for i := range out {
		resp, ok := out[i].(*kmsg.ListOffsetsResponse)
		if !ok {
			return nil, fmt.Errorf("leader %d answered a ListOffsets with a %T", leader.ID, out[i])
		}
		found[i] = map[kafka.TopicPartition]brokers.OffsetAnswer{}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				tp := kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				found[i][tp] = brokers.OffsetAnswer{Partition: tp, Error: kafka.ErrorCode(p.ErrorCode), Timestamp: p.Timestamp, Offset: p.Offset,
					LeaderEpoch: p.LeaderEpoch}
			}
		}
	}
	answers := make([]brokers.OffsetAnswer, len(queries))
	clear(nth)
	for i, q := range queries {
		a, ok := found[nth[q.Partition]][q.Partition]
		nth[q.Partition]++
		if !ok {
			return nil, fmt.Errorf("leader %d left out %s of a ListOffsets", leader.ID, q.Partition)
		}
		answers[i] = a
	}
	return answers, nil
}

func addOffsetQuery(req *kmsg.ListOffsetsRequest, q brokers.OffsetQuery) {
	if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != q.Partition.Topic {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = q.Partition.Topic
		req.Topics = append(req.Topics, t)
	}
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = q.Partition.Partition, q.LeaderEpoch, q.Timestamp
	t := &req.Topics[len(req.Topics)-1]
	t.Partitions = append(t.Partitions, p)
}
