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

// answer is what the connection's goroutine writes: one of both, nothing, or
// neither to close the connection.
type answer struct {
	kafka   kmsg.Response
	control *control.Response
	nothing bool
}

// Scattered is a response with bytes that are elsewhere already, such as
// records in a log: they are sent without being copied.
type Scattered interface {
	kmsg.Response
	// AppendScattered appends to dst all but those bytes, and gives them with the
	// places in dst where they belong, ascending.
	AppendScattered(dst []byte) ([]byte, []Insert)
}

// Insert is bytes that belong at offset At of what was appended.
type Insert struct {
	At    int
	Bytes [][]byte
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

// Done goes on with the connection's next request without an answer, as after a
// Produce with acks=0.
func (r *Request) Done() { r.give(answer{nothing: true}) }

// Hangup closes the connection without an answer.
func (r *Request) Hangup() { r.give(answer{}) }
