package wire

import (
	"net"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/control"
)

// Request is one request as a Handler gets it: Control is set for LeaderAndIsr,
// UpdateMetadata and StopReplica, Kafka for every other.
type Request struct {
	Key      int16
	Version  int16
	ClientID string // "" also when null
	Remote   net.Addr
	Local    net.Addr

	Kafka   kmsg.Request
	Control control.Request
	KRaft   bool // isKRaftController of a control request

	answered atomic.Bool
	answer   chan answer // room for one
}

// answer is what the connection's goroutine writes: one of both, or neither to
// close the connection.
type answer struct {
	kafka   kmsg.Response
	control *control.Response
}

func (r *Request) give(a answer) {
	if r.answered.Swap(true) {
		panic("wire: a request was answered twice")
	}
	r.answer <- a
}

// Reply answers; the response's version is set to the request's.
func (r *Request) Reply(resp kmsg.Response) {
	resp.SetVersion(r.Version)
	r.give(answer{kafka: resp})
}

// ReplyControl answers a control request; Kind and, if missing, Request are
// filled in.
func (r *Request) ReplyControl(resp control.Response) {
	resp.Kind = r.Control.Kind()
	if resp.Request == nil {
		resp.Request = r.Control
	}
	r.give(answer{control: &resp})
}

// Hangup closes the connection without an answer.
func (r *Request) Hangup() { r.give(answer{}) }
