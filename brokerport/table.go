package brokerport

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// api is one row of what the port serves.
type api struct {
	key      kmsg.Key
	min, max int16
	handle   handler // nil: answered by wire.Server, or by the controller's endpoint
}

// allAPIs has the versions that 3.9.1 serves, but for old ones of Fetch and
// ListOffsets that have no room for format v2 of records or for leader epochs.
// Produce is listed from 0 on, because librdkafka takes its lower versions for a
// sign that compression is understood.
func allAPIs() []api {
	return []api{
		{kmsg.Produce, 0, 11, called((*Listener).produce)},
		{kmsg.Fetch, 4, 17, called((*Listener).fetch)},
		{kmsg.ListOffsets, 1, 9, called((*Listener).listOffsets)},
		{kmsg.Metadata, 0, 12, quick((*Listener).metadata)},
		{kmsg.LeaderAndISR, 0, 7, (*Listener).handleControl},
		{kmsg.StopReplica, 0, 4, (*Listener).handleControl},
		{kmsg.UpdateMetadata, 0, 8, (*Listener).handleControl},
		{kmsg.ApiVersions, 0, 4, nil},
		{kmsg.OffsetForLeaderEpoch, 0, 4, called((*Listener).epochEnds)},
		{kmsg.DescribeCluster, 0, 1, quick((*Listener).describeCluster)},
	}
}

// served is what a broker with these options serves, by key: what we have, at
// the versions its release had. Below 0.11 the requests about records are those
// of 0.11, since only its format is kept.
func served(o brokers.Options) map[int16]api {
	table := map[int16]api{}
	own := brokers.APIVersions(o)
	if len(own) == 0 { // before 0.10 nobody asks for versions
		return table
	}
	release := kversion.FromString(releaseName(o.Release))
	for _, a := range allAPIs() {
		key := int16(a.key)
		newest, ok := int16(-1), false
		if release != nil {
			newest, ok = release.LookupMaxKeyVersion(key)
		}
		if i := slices.IndexFunc(own, func(r brokers.APIRange) bool { return r.Key == key }); i >= 0 {
			newest, ok = own[i].Max, true
		}
		if o.Release.Less(kafka.V0_11_0IV0) {
			switch a.key {
			case kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets:
				newest, ok = kversion.V0_11_0().LookupMaxKeyVersion(key)
			}
		}
		if a.max = min(a.max, newest); ok && a.min <= a.max {
			table[key] = a
		}
	}
	return table
}

// releaseName is a release as package kversion has it.
func releaseName(v kafka.ProtocolVersion) string {
	if v.Major == 0 {
		minor, patch := v.Minor, 0
		if minor >= 1000 {
			minor, patch = v.Minor/100, v.Minor%100
		}
		return fmt.Sprintf("v0.%d.%d", minor, patch)
	}
	return fmt.Sprintf("v%d.%d", v.Major, v.Minor)
}

// Table is what the port serves, by key, for ApiVersions.
func (p *Port) Table() []wire.APIVersion {
	all := map[int16]kafka.VersionRange{}
	for key, a := range p.served {
		all[key] = kafka.VersionRange{Min: a.min, Max: a.max}
	}
	if p.controller != nil {
		for _, row := range p.controller.Table() {
			if _, ours := all[row.Key]; !ours {
				all[row.Key] = row.VersionRange
			}
		}
	}
	var table []wire.APIVersion
	for _, key := range slices.Sorted(maps.Keys(all)) {
		table = append(table, wire.APIVersion{Key: key, VersionRange: all[key]})
	}
	return table
}
