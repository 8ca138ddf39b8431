package zkpaths

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// NoKRaftEpoch is the KRaftEpoch of a controller that runs on ZooKeeper.
const NoKRaftEpoch int32 = -1

// ControllerNode is the payload of /controller (spec/controller.md §1.2).
type ControllerNode struct {
	Version    int // 1 up to 3.3, 2 from 3.4 on; 0: the bare number of releases before 0.8
	Broker     kafka.BrokerID
	Timestamp  int64 // milliseconds
	KRaftEpoch int32 // NoKRaftEpoch unless a KRaft controller holds the node; not in version 1
}

// EncodeController gives the payload: version 1 if Version is 1, else version 2.
func EncodeController(n ControllerNode) []byte {
	b := append(make([]byte, 0, 96), `{"version":`...)
	if n.Version != 1 {
		n.Version = 2
	}
	b = appendInt(b, n.Version)
	b = append(b, `,"brokerid":`...)
	b = appendInt(b, n.Broker)
	b = append(b, `,"timestamp":"`...)
	b = appendInt(b, n.Timestamp)
	b = append(b, '"')
	if n.Version == 2 {
		b = append(b, `,"kraftControllerEpoch":`...)
		b = appendInt(b, n.KRaftEpoch)
	}
	return append(b, '}')
}

// DecodeController reads the payload of /controller. Only brokerid must be
// there: nobody decides by the rest.
func DecodeController(data []byte) (ControllerNode, error) {
	if id, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 32); err == nil {
		return ControllerNode{Broker: kafka.BrokerID(id), KRaftEpoch: NoKRaftEpoch}, nil
	}
	n := ControllerNode{KRaftEpoch: NoKRaftEpoch}
	o, err := parseObject(data)
	if err == nil {
		n.Broker, err = o.broker("brokerid")
	}
	if err == nil && o.has("kraftControllerEpoch") {
		n.KRaftEpoch, err = o.int32("kraftControllerEpoch")
	}
	if err != nil {
		return ControllerNode{}, &PayloadError{Path: Controller, Reason: err.Error(),
			Remedy: "no controller is known while it is there; delete the node to start an election"}
	}
	version, _ := o.int32("version")
	n.Version = int(version)
	n.Timestamp, _ = o.textInteger("timestamp")
	return n, nil
}

// EncodeEpoch gives the payload of /controller_epoch: plain decimal text.
func EncodeEpoch(epoch int32) []byte { return appendInt(make([]byte, 0, 11), epoch) }

// DecodeEpoch reads the payload of /controller_epoch. Blanks around the number
// are taken; a negative one is not.
func DecodeEpoch(data []byte) (int32, error) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 32)
	if err != nil || n < 0 || n == math.MaxInt32 { // none could follow the last
		return 0, &PayloadError{Path: ControllerEpoch, Reason: fmt.Sprintf("is not a controller epoch: %.40q", data),
			Remedy: "set it to a plain number not below the highest controller_epoch of any state znode"}
	}
	return int32(n), nil
}
