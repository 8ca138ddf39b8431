package zkpaths

import (
	"fmt"
	"math"

	"github.com/zkcontroller/zkcontroller/kafka"
)

const stateRemedy = `the partition is left alone until the node holds its leadership again, in the form ` +
	`{"version":1,"leader":1,"leader_epoch":5,"controller_epoch":3,"isr":[1,2]}; leader -1 asks for an election`

// EncodePartitionState gives the payload of a state znode (spec/controller.md §1.6).
func EncodePartitionState(l kafka.Leadership) []byte {
	return AppendPartitionState(make([]byte, 0, 88+len(l.ISR)*6), l)
}

// AppendPartitionState appends the payload of a state znode to dst, for
// callers that build many in one buffer.
func AppendPartitionState(dst []byte, l kafka.Leadership) []byte {
	dst = append(dst, `{"version":1,"leader":`...)
	dst = appendInt(dst, l.Leader)
	dst = append(dst, `,"leader_epoch":`...)
	dst = appendInt(dst, l.LeaderEpoch)
	dst = append(dst, `,"controller_epoch":`...)
	dst = appendInt(dst, l.ControllerEpoch)
	dst = append(dst, `,"isr":`...)
	dst = appendBrokers(dst, l.ISR)
	if l.Recovery != kafka.Recovered { // absent means recovered; readers before 3.2 do not know it
		dst = append(dst, `,"leader_recovery_state":`...)
		dst = appendInt(dst, int(l.Recovery))
	}
	return append(dst, '}')
}

// DecodePartitionState reads the payload of tp's state znode; zkVersion is the
// version of the node it was read with. Null or empty data, and data that lack
// a required field, are a *PayloadError.
func DecodePartitionState(tp kafka.TopicPartition, data []byte, zkVersion int32) (kafka.Leadership, error) {
	l, ok := fastState(data)
	if !ok {
		var err error
		if l, err = slowState(data); err != nil {
			return kafka.Leadership{}, &PayloadError{Path: PartitionStatePath(tp), Reason: err.Error(), Remedy: stateRemedy}
		}
	}
	if reason := impossible(l); reason != "" {
		return kafka.Leadership{}, &PayloadError{Path: PartitionStatePath(tp), Reason: reason, Remedy: stateRemedy}
	}
	l.ZKVersion = zkVersion
	return l, nil
}

// impossible tells what in a state no controller or leader writes, or "". Epochs
// start at 0, and each change of leadership raises them.
func impossible(l kafka.Leadership) string {
	switch {
	case l.Leader < kafka.NoLeader:
		return fmt.Sprintf("has the impossible leader %d", l.Leader)
	case l.LeaderEpoch < 0 || l.LeaderEpoch == math.MaxInt32:
		return fmt.Sprintf("has a leader epoch that cannot be, or cannot be raised: %d", l.LeaderEpoch)
	case l.ControllerEpoch < 0:
		return fmt.Sprintf("has the impossible controller epoch %d", l.ControllerEpoch)
	}
	return ""
}

// fastState reads the form that Kafka and this package write, in any key order.
// A failover decodes every state of the cluster.
func fastState(data []byte) (l kafka.Leadership, ok bool) {
	const leader, leaderEpoch, controllerEpoch, isr, all = 1, 2, 4, 8, 15
	x, seen := lexer{b: data}, 0
	if !x.take('{') {
		return l, false
	}
	for {
		name, ok := x.text()
		if !ok || !x.take(':') {
			return l, false
		}
		n := int32(0)
		switch string(name) {
		case "leader":
			n, ok = x.int32()
			l.Leader, seen = kafka.BrokerID(n), seen|leader
		case "leader_epoch":
			l.LeaderEpoch, ok = x.int32()
			seen |= leaderEpoch
		case "controller_epoch":
			l.ControllerEpoch, ok = x.int32()
			seen |= controllerEpoch
		case "isr":
			l.ISR, ok = x.brokers(make([]kafka.BrokerID, 0, x.listLen()))
			seen |= isr
		case "version":
			_, ok = x.int32()
		case "leader_recovery_state":
			n, ok = x.int32()
			ok = ok && (n == 0 || n == 1)
			l.Recovery = kafka.LeaderRecoveryState(n)
		default:
			return l, false
		}
		if !ok {
			return l, false
		}
		if !x.take(',') {
			break
		}
	}
	if len(l.ISR) == 0 {
		l.ISR = nil
	}
	return l, x.take('}') && x.end() && seen == all
}

// listLen gives how many elements the list that comes next can have at most.
func (x *lexer) listLen() int {
	n := 1
	for _, c := range x.b[x.i:] {
		if c == ',' {
			n++
		} else if c == ']' {
			break
		}
	}
	return n
}

// slowState reads any JSON.
func slowState(data []byte) (l kafka.Leadership, err error) {
	o, err := parseObject(data)
	if err != nil {
		return l, err
	}
	if l.Leader, err = o.broker("leader"); err != nil {
		return l, err
	}
	if l.LeaderEpoch, err = o.int32("leader_epoch"); err != nil {
		return l, err
	}
	if l.ControllerEpoch, err = o.int32("controller_epoch"); err != nil {
		return l, err
	}
	if l.ISR, err = o.brokers("isr"); err != nil {
		return l, err
	}
	if o.has("leader_recovery_state") {
		n, err := o.int32("leader_recovery_state")
		if err != nil {
			return l, err
		}
		if n != int32(kafka.Recovered) && n != int32(kafka.Recovering) {
			return l, field("leader_recovery_state", fmt.Errorf("is neither 0 nor 1: %d", n))
		}
		l.Recovery = kafka.LeaderRecoveryState(n)
	}
	return l, nil
}
