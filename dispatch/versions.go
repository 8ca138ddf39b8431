package dispatch

import (
	"fmt"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// versions are the request versions used on a connection.
type versions struct{ leaderAndISR, updateMetadata, stopReplica int16 }

func (v versions) of(k control.Kind) int16 {
	switch k {
	case control.LeaderAndISRKey:
		return v.leaderAndISR
	case control.UpdateMetadataKey:
		return v.updateMetadata
	}
	return v.stopReplica
}

// since is a request version and the protocol version it came with.
type since struct {
	ibp     kafka.ProtocolVersion
	version int16
}

// What a controller of some inter.broker.protocol.version sends at most
// (spec/controller.md §6.4), newest first.
var (
	leaderAndISRSince = []since{{kafka.V3_4IV0, 7}, {kafka.V3_2IV0, 6}, {kafka.V2_8IV1, 5}, {kafka.V2_4IV1, 4},
		{kafka.V2_4IV0, 3}, {kafka.V2_2IV0, 2}, {kafka.V1_0IV0, 1}}
	updateMetadataSince = []since{{kafka.V3_4IV0, 8}, {kafka.V2_8IV1, 7}, {kafka.V2_4IV1, 6}, {kafka.V2_2IV0, 5},
		{kafka.V1_0IV0, 4}, {kafka.V0_10_2IV0, 3}, {kafka.V0_10_0IV1, 2}, {kafka.V0_9_0, 1}}
	stopReplicaSince = []since{{kafka.V3_4IV0, 4}, {kafka.V2_6IV0, 3}, {kafka.V2_4IV1, 2}, {kafka.V2_2IV0, 1}}
)

func newest(table []since, ibp kafka.ProtocolVersion) int16 {
	for _, s := range table {
		if ibp.AtLeast(s.ibp) {
			return s.version
		}
	}
	return 0
}

// versionsFor gives the versions that belong to a protocol version.
func versionsFor(ibp kafka.ProtocolVersion) versions {
	return versions{newest(leaderAndISRSince, ibp), newest(updateMetadataSince, ibp), newest(stopReplicaSince, ibp)}
}

// within gives the newest versions that are both ours and offered by a broker.
func (v versions) within(offered wire.Versions) (versions, error) {
	var err error
	pick := func(k control.Kind, ours int16) int16 {
		r, ok := offered[int16(k)]
		if !ok || r.Min > ours {
			err = fmt.Errorf("the broker offers %s versions %d to %d, ours are 0 to %d", k, r.Min, r.Max, ours)
			if !ok {
				err = fmt.Errorf("the broker does not offer %s", k)
			}
		}
		return min(r.Max, ours)
	}
	v = versions{pick(control.LeaderAndISRKey, v.leaderAndISR), pick(control.UpdateMetadataKey, v.updateMetadata), pick(control.StopReplicaKey, v.stopReplica)}
	return v, err
}
