package brokerport

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/brokers/groups"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/wire"
)

// api is one row of what the port serves.
type api struct {
	key      kmsg.Key
	min, max int16
	needs    need
	handle   handler // nil: answered by wire.Server
}

// need is what a row needs besides the Node: without it, it is not served.
type need uint8

const (
	nothing   need = 0
	logs      need = 1 << iota // a broker that keeps records
	zookeeper                  // Options.Store
	coordinates
)

// allAPIs has the versions that 3.9.1 serves. Records are kept in format v2 alone:
// what comes in or goes out by versions that do not know it is converted.
func allAPIs() []api {
	all := []api{
		{kmsg.Produce, 0, 11, logs, called((*Listener).produce)},
		{kmsg.Fetch, 0, 17, logs, called((*Listener).fetch)},
		{kmsg.ListOffsets, 0, 9, logs, called((*Listener).listOffsets)},
		{kmsg.Metadata, 0, 12, nothing, (*Listener).metadata},
		{kmsg.LeaderAndISR, 0, 7, nothing, (*Listener).handleControl},
		{kmsg.StopReplica, 0, 4, nothing, (*Listener).handleControl},
		{kmsg.UpdateMetadata, 0, 8, nothing, (*Listener).handleControl},
		{kmsg.FindCoordinator, 0, 6, coordinates | zookeeper, slow((*Listener).findCoordinator)},
		{kmsg.ApiVersions, 0, 4, nothing, nil},
		{kmsg.DeleteRecords, 0, 2, logs, called((*Listener).deleteRecords)},
		{kmsg.InitProducerID, 0, 5, logs | zookeeper, slow((*Listener).initProducerID)},
		{kmsg.OffsetForLeaderEpoch, 0, 4, logs, called((*Listener).epochEnds)},
		{kmsg.DescribeACLs, 0, 3, nothing, called((*Listener).describeACLs)},
		{kmsg.CreateACLs, 0, 3, nothing, called((*Listener).createACLs)},
		{kmsg.DeleteACLs, 0, 3, nothing, called((*Listener).deleteACLs)},
		{kmsg.DescribeConfigs, 0, 4, zookeeper, slow((*Listener).describeConfigs)},
		{kmsg.AlterConfigs, 0, 2, zookeeper, slow((*Listener).alterConfigs)},
		{kmsg.DescribeLogDirs, 0, 4, logs, called((*Listener).describeLogDirs)},
		{kmsg.IncrementalAlterConfigs, 0, 1, zookeeper, slow((*Listener).incrementalAlterConfigs)},
		{kmsg.DescribeCluster, 0, 1, nothing, quick((*Listener).describeCluster)},
		{kmsg.ListTransactions, 0, 1, logs, called((*Listener).listTransactions)},
	}
	for _, v := range groups.Served() {
		all = append(all, api{v.Key, v.Min, v.Max, coordinates, (*Listener).coordinate})
	}
	return all
}

// serves is what the port serves, by key: what is there, at the versions that
// the broker's release had. Below 0.11 the requests about records are those of
// 0.11, since only its format is kept. What only a controller may do goes to the
// controller's endpoint of this process.
func (p *Port) serves() map[int16]api {
	table := map[int16]api{}
	o := p.node.Options()
	own := brokers.APIVersions(o)
	if len(own) == 0 { // before 0.10 nobody asks for versions
		return table
	}
	have := nothing
	if o.Logs != nil {
		have |= logs
	}
	if o.Logs != nil && o.Groups != nil {
		have |= coordinates
	}
	if p.store != nil {
		have |= zookeeper
	}
	rows := allAPIs()
	for _, row := range p.controller.Table() {
		if key := kmsg.Key(row.Key); slices.Contains(controllersAPIs(), key) {
			rows = append(rows, api{key, row.Min, row.Max, nothing, (*Listener).askController})
		}
	}
	newest := newestOf(o, own)
	for _, a := range rows {
		top, ok := newest(int16(a.key))
		if a.max = min(a.max, top); ok && a.min <= a.max && a.needs&^have == 0 {
			table[int16(a.key)] = a
		}
	}
	return table
}

// newestOf tells the newest version of a request that a release served.
func newestOf(o brokers.Options, own []brokers.APIRange) func(key int16) (int16, bool) {
	release := kversion.FromString(releaseName(o.Release))
	return func(key int16) (int16, bool) {
		if o.Release.Less(kafka.V0_11_0IV0) {
			switch kmsg.Key(key) {
			case kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.InitProducerID:
				return kversion.V0_11_0().LookupMaxKeyVersion(key)
			}
		}
		if i := slices.IndexFunc(own, func(r brokers.APIRange) bool { return r.Key == key }); i >= 0 {
			return own[i].Max, true
		}
		if release == nil {
			return -1, false
		}
		return release.LookupMaxKeyVersion(key)
	}
}

// askController lets the controller's endpoint of this process answer.
func (l *Listener) askController(ctx context.Context, r *wire.Request) error {
	l.controller.Handle(ctx, r)
	return nil
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
	var table []wire.APIVersion
	for _, key := range slices.Sorted(maps.Keys(p.served)) {
		a := p.served[key]
		table = append(table, wire.APIVersion{Key: key, VersionRange: kafka.VersionRange{Min: a.min, Max: a.max}})
	}
	return table
}
