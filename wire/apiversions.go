package wire

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// newest is the newest version of a request that can be decoded; -1 is none.
func newest(key int16) int16 {
	if isControl(key) {
		return MaxVersion(control.Kind(key))
	}
	if r := kmsg.RequestForKey(key); r != nil {
		return r.MaxVersion()
	}
	return -1
}

// apiVersions answers ApiVersions by the rules clients count on
// (spec/control-plane.md §5.2): a version newer than served is answered with a
// v0 body, error 35 and the range of ApiVersions alone.
func (s *Server) apiVersions(version int16, req kmsg.Request) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = version
	keys := slices.Sorted(maps.Keys(s.table))
	if version > s.table[keyAPIVersions].Max {
		resp.Version, resp.ErrorCode = 0, int16(kafka.UnsupportedVersion)
		keys = []int16{keyAPIVersions}
	} else if q := req.(*kmsg.ApiVersionsRequest); version >= 3 && !(softwareName(q.ClientSoftwareName) && softwareName(q.ClientSoftwareVersion)) {
		resp.ErrorCode = int16(kafka.InvalidRequest)
		keys = nil
	} else {
		resp.FinalizedFeaturesEpoch = 0 // known, and no feature is final, on ZooKeeper (spec/admin-api.md §8)
	}
	for _, key := range keys {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = key, s.table[key].Min, s.table[key].Max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	return resp
}

// softwareName tells whether a client's name or version is legal: letters,
// digits, dots and dashes, with a letter or digit at either end (KIP-511).
func softwareName(s string) bool {
	alnum := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	for i := range len(s) {
		inner := i > 0 && i < len(s)-1 && (s[i] == '.' || s[i] == '-')
		if !alnum(s[i]) && !inner {
			return false
		}
	}
	return len(s) > 0
}
