package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"syscall"
	"time"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// sender is the connection's side of a channel; one goroutine uses it.
type sender struct {
	c        *channel
	conn     *wire.Conn
	versions versions
	unasked  bool // this broker closes connections on ApiVersions: go by the protocol version
	proven   bool // the present connection answered a control request
	failing  bool // reported, and no answer since
	greeted  bool // the first connection was logged
}

var errVersionsRefused = errors.New("the broker closed the connection on ApiVersions")

// run sends what is queued until the context ends. It connects ahead of the
// first request, which so need not wait for it.
func (c *channel) run(ctx context.Context) {
	s := &sender{c: c}
	defer s.hangup()
	_ = s.connect(ctx) // the first request tries again and reports
	for {
		it, ok := c.next(ctx)
		if !ok || !s.deliver(ctx, it) {
			return
		}
	}
}

// deliver sends one item until it is answered; false when the context ended.
func (s *sender) deliver(ctx context.Context, it item) bool {
	for rest := []control.Request{it.req}; len(rest) > 0; {
		if s.conn == nil {
			if err := s.connect(ctx); err != nil {
				if !s.failed(ctx, err) {
					return false
				}
				continue
			}
		}
		version := s.versions.of(rest[0].Kind())
		if r, ok := rest[0].(*control.StopReplicaRequest); ok && version < 3 {
			if del, stop := wire.SplitStopReplica(r); del != nil && stop != nil {
				rest = []control.Request{del, stop}
			}
		}
		resp, failuresOnly, err := s.attempt(ctx, rest[0], it.body, version)
		if err != nil {
			if !s.failed(ctx, err) {
				return false
			}
			continue
		}
		if resp != nil {
			s.c.answered(resp, failuresOnly, it.body)
		}
		rest = rest[1:]
	}
	return true
}

// attempt sends a request once. Topics with illegal names are kept back: asked
// to delete those, no broker can have anything of them, and that is answered
// for it. A nil response means that nothing was left to send. failuresOnly is
// that of wire.DecodeFailures.
func (s *sender) attempt(ctx context.Context, asked control.Request, b *body, version int16) (resp *control.Response, failuresOnly bool, err error) {
	var shared []byte
	var invalid []string
	req := asked
	if um, ok := req.(*control.UpdateMetadataRequest); ok {
		var m *control.Metadata
		m, invalid = b.metadata()
		shared = b.bytes(version)
		req = &control.UpdateMetadataRequest{Header: um.Header, Metadata: m}
	} else {
		req, invalid = wire.Sendable(asked)
	}
	s.c.d.reportInvalid(invalid)
	if len(invalid) == 0 || !empty(req) {
		if resp, failuresOnly, err = s.exchange(ctx, req, version, shared); err != nil {
			return nil, false, err
		}
	}
	if sr, ok := asked.(*control.StopReplicaRequest); ok && len(invalid) > 0 {
		resp = answerInvalid(resp, sr)
	}
	return resp, failuresOnly, nil
}

// exchange sends a request and waits for the answer, or the request timeout.
func (s *sender) exchange(ctx context.Context, req control.Request, version int16, shared []byte) (*control.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.c.d.o.RequestTimeout)
	defer cancel()
	var resp *control.Response
	var err error
	full := true
	if s.c.d.o.FailuresOnly && req.Kind() == control.LeaderAndISRKey {
		resp, full, err = s.conn.ControlFailures(ctx, req, version)
	} else {
		resp, err = s.conn.Control(ctx, req, version, shared)
	}
	if err != nil {
		return nil, false, err
	}
	s.proven = true
	s.c.count(func(n *Counters) { n.Answers++ })
	if s.failing {
		s.failing = false
		s.c.log.Info("broker answers again")
	}
	return resp, !full, nil
}

func empty(r control.Request) bool {
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		return len(r.Partitions) == 0
	case *control.StopReplicaRequest:
		return len(r.Partitions) == 0
	}
	return false // an UpdateMetadata always brings the live brokers
}

// answerInvalid gives the answer with rows for the topics that were kept back.
func answerInvalid(resp *control.Response, asked *control.StopReplicaRequest) *control.Response {
	if resp == nil {
		resp = &control.Response{Kind: control.StopReplicaKey, Errors: map[kafka.TopicPartition]kafka.ErrorCode{}}
	}
	resp.Request = asked
	for _, p := range asked.Partitions {
		if kafka.ValidTopicName(p.Topic) != "" {
			resp.Errors[p.TopicPartition] = kafka.NoError
		}
	}
	return resp
}

// connect opens a connection and settles the request versions.
func (s *sender) connect(ctx context.Context) error {
	o := &s.c.d.o
	addr, ok := s.c.d.address(s.c.target())
	if !ok {
		return fmt.Errorf("the broker has no listener %q", o.Listener)
	}
	conn, err := wire.Dial(ctx, addr, wire.DialOptions{ClientID: strconv.Itoa(int(o.ControllerID)), ConnectTimeout: o.ConnectTimeout, Dialer: o.Dialer})
	if err != nil {
		return err
	}
	s.conn, s.proven, s.versions = conn, false, s.c.d.ours
	if !s.unasked {
		if err := s.askVersions(ctx); err != nil {
			return err
		}
	}
	s.c.setConnected(true)
	if !s.failing && !s.greeted {
		s.greeted = true
		s.c.log.WithField("address", addr).Info("connected to broker")
	}
	return nil
}

// askVersions asks the broker for its versions. A broker that closes the
// connection instead is older than the question, or breaking down: the next
// connection goes without, and if that fails too the one after asks again.
func (s *sender) askVersions(ctx context.Context) error {
	timed, cancel := context.WithTimeout(ctx, s.c.d.o.RequestTimeout)
	defer cancel()
	offered, err := s.conn.APIVersions(timed)
	if err == nil {
		s.versions, err = s.c.d.ours.within(offered)
	} else if closed(err) {
		s.unasked = true
		err = fmt.Errorf("%w: %w", errVersionsRefused, err)
	}
	if err != nil {
		s.hangup()
	}
	return err
}

// failed ends an attempt: hang up, tell once, pause. It is false when the
// context ended. A connection that worked and was closed since, as idle ones
// are, is replaced at once.
func (s *sender) failed(ctx context.Context, err error) bool {
	again := s.proven && closed(err) || errors.Is(err, errVersionsRefused)
	if s.conn != nil && s.unasked && !s.proven {
		s.unasked = false
	}
	s.hangup()
	if ctx.Err() != nil {
		return false
	}
	s.c.count(func(n *Counters) { n.Failures++ })
	if again {
		return true
	}
	if !s.failing {
		s.failing = true
		s.c.log.WithField("error", err).Warn("broker does not answer; the request is sent again until it does or the broker is gone")
	}
	pause := time.NewTimer(s.c.d.o.RetryPause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *sender) hangup() {
	if s.conn != nil {
		s.conn.Close()
		s.conn, s.proven = nil, false
		s.c.setConnected(false)
	}
}

// closed tells whether the other side closed the connection.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
