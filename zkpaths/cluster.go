package zkpaths

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// EncodeClusterID gives the payload of /cluster/id. Its version is a string.
func EncodeClusterID(id string) []byte {
	b := append(make([]byte, 0, 48), `{"version":"1","id":`...)
	return append(appendText(b, id), '}')
}

// DecodeClusterID reads the payload of /cluster/id.
func DecodeClusterID(data []byte) (string, error) {
	o, err := parseObject(data)
	id := ""
	if err == nil {
		id, err = o.text("id")
	}
	if err == nil && id == "" {
		err = field("id", errors.New("is empty"))
	}
	if err != nil {
		return "", &PayloadError{Path: ClusterID, Reason: err.Error(),
			Remedy: `write the id of any broker's meta.properties back: {"version":"1","id":"…"}`}
	}
	return id, nil
}

// ProducerBlock is the last block of producer ids that was given out: Start to
// End, both included.
type ProducerBlock struct {
	Broker     kafka.BrokerID
	Start, End int64
}

// EncodeProducerBlock gives the payload of /latest_producer_id_block; the two
// ends are strings.
func EncodeProducerBlock(p ProducerBlock) []byte {
	b := append(make([]byte, 0, 80), `{"version":1,"broker":`...)
	b = appendInt(b, p.Broker)
	b = append(b, `,"block_start":"`...)
	b = appendInt(b, p.Start)
	b = append(b, `","block_end":"`...)
	b = appendInt(b, p.End)
	return append(b, '"', '}')
}

// DecodeProducerBlock reads the payload of /latest_producer_id_block; ok is
// false without an error when no block was given out yet, null or empty data.
func DecodeProducerBlock(data []byte) (p ProducerBlock, ok bool, err error) {
	if len(data) == 0 {
		return p, false, nil
	}
	o, err := parseObject(data)
	if err == nil {
		p.Broker, err = o.broker("broker")
	}
	if err == nil {
		p.Start, err = o.textInteger("block_start")
	}
	if err == nil {
		p.End, err = o.textInteger("block_end")
	}
	if err == nil && (p.Start < 0 || p.End < p.Start) {
		err = fmt.Errorf("has an impossible block from %d to %d", p.Start, p.End)
	}
	if err != nil {
		return ProducerBlock{}, false, &PayloadError{Path: ProducerIDBlock, Reason: err.Error(),
			Remedy: "no producer ids are given out until it holds the last block again; take one above any id in use"}
	}
	return p, true, nil
}

// ProducerBlockSize is how many producer ids are taken at once.
const ProducerBlockSize = 1000

// TakeProducerBlock gives the write that takes the next block of producer ids,
// and the block, after n was read of /latest_producer_id_block. It is
// conditional on n and not fenced: whoever gives out ids writes this node
// (spec/controller.md §7.17). BADVERSION and NODEEXISTS mean that somebody else
// took the block; read again.
func TakeProducerBlock(n Node, broker kafka.BrokerID) (Write, ProducerBlock, error) {
	w := Write{Op: Set, Path: ProducerIDBlock, Version: n.Stat.Version}
	start := int64(0)
	switch n.Code {
	case NoNode:
		w.Op = Create
	case OK:
		last, ok, err := DecodeProducerBlock(n.Data)
		if err != nil {
			return Write{}, ProducerBlock{}, err
		}
		if ok && last.End > math.MaxInt64-ProducerBlockSize {
			return Write{}, ProducerBlock{}, fmt.Errorf("%s: all producer ids are used up", ProducerIDBlock)
		}
		if ok {
			start = last.End + 1
		}
	default:
		return Write{}, ProducerBlock{}, n.Error(ProducerIDBlock)
	}
	block := ProducerBlock{Broker: broker, Start: start, End: start + ProducerBlockSize - 1}
	w.Data = EncodeProducerBlock(block)
	return w, block, nil
}

// What Features.Status can be.
const (
	FeaturesDisabled = 0
	FeaturesEnabled  = 1
)

// Features is the payload of /feature: the finalized features
// (spec/controller.md §7.16). Of a range Max is the finalized level; version 2
// does not keep Min, and reading it gives Min equal to Max.
type Features struct {
	Version  int // 1 below 3.3-IV0, 2 from there on
	Status   int
	Features map[string]kafka.VersionRange
}

// EncodeFeatures gives the payload: version 1 if Version is 1, else version 2.
func EncodeFeatures(f Features) []byte {
	if f.Version != 1 {
		f.Version = 2
	}
	b := append(make([]byte, 0, 64), `{"version":`...)
	b = appendInt(b, f.Version)
	b = append(b, `,"status":`...)
	b = appendInt(b, f.Status)
	b = append(b, `,"features":{`...)
	for i, name := range slices.Sorted(maps.Keys(f.Features)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, name)
		b = append(b, `:{"max_version_level":`...)
		b = appendInt(b, int(f.Features[name].Max))
		if f.Version == 1 {
			b = append(b, `,"min_version_level":`...)
			b = appendInt(b, int(f.Features[name].Min))
		}
		b = append(b, '}')
	}
	return append(b, '}', '}')
}

// DecodeFeatures reads the payload of /feature.
func DecodeFeatures(data []byte) (Features, error) {
	f, err := decodeFeatures(data)
	if err != nil {
		return Features{}, &PayloadError{Path: Feature, Reason: err.Error(),
			Remedy: `finalized features are unknown until it is of the form {"version":2,"status":1,"features":{}}`}
	}
	return f, nil
}

func decodeFeatures(data []byte) (f Features, err error) {
	o, err := parseObject(data)
	if err != nil {
		return f, err
	}
	version, err := o.int32("version")
	if err != nil {
		return f, err
	}
	if version != 1 && version != 2 {
		return f, fmt.Errorf("has the unsupported version %d", version)
	}
	status, err := o.int32("status")
	if err != nil {
		return f, err
	}
	if status != FeaturesDisabled && status != FeaturesEnabled {
		return f, field("status", fmt.Errorf("is neither 0 nor 1: %d", status))
	}
	all, err := o.object("features")
	if err != nil {
		return f, err
	}
	f = Features{Version: int(version), Status: int(status), Features: make(map[string]kafka.VersionRange, len(all))}
	for _, name := range all.names() {
		levels, err := all.object(name)
		if err != nil {
			return f, field("features", err)
		}
		high, err := levels.level("max_version_level")
		low := high
		if err == nil && version == 1 {
			low, err = levels.level("min_version_level")
		}
		if err != nil {
			return f, fmt.Errorf("feature %q: %w", name, err)
		}
		f.Features[name] = kafka.VersionRange{Min: low, Max: high}
	}
	return f, nil
}

func (o object) level(name string) (int16, error) {
	n, err := o.integer(name, 16)
	if err == nil && n < 1 {
		err = field(name, fmt.Errorf("is below 1: %d", n))
	}
	return int16(n), err
}

// MigrationState is the payload of /migration, which a KRaft controller writes
// while it takes a cluster over.
type MigrationState struct {
	KRaftController kafka.BrokerID
	KRaftEpoch      int32
	MetadataOffset  int64
	MetadataEpoch   int32
}

// EncodeMigration gives the payload of /migration.
func EncodeMigration(m MigrationState) []byte {
	b := append(make([]byte, 0, 144), `{"version":0,"kraft_controller_id":`...)
	b = appendInt(b, m.KRaftController)
	b = append(b, `,"kraft_controller_epoch":`...)
	b = appendInt(b, m.KRaftEpoch)
	b = append(b, `,"kraft_metadata_offset":`...)
	b = appendInt(b, m.MetadataOffset)
	b = append(b, `,"kraft_metadata_epoch":`...)
	b = appendInt(b, m.MetadataEpoch)
	return append(b, '}')
}

// DecodeMigration reads the payload of /migration.
func DecodeMigration(data []byte) (MigrationState, error) {
	var m MigrationState
	o, err := parseObject(data)
	if err == nil {
		m.KRaftController, err = o.broker("kraft_controller_id")
	}
	if err == nil {
		m.KRaftEpoch, err = o.int32("kraft_controller_epoch")
	}
	if err == nil {
		m.MetadataOffset, err = o.integer("kraft_metadata_offset", 64)
	}
	if err == nil {
		m.MetadataEpoch, err = o.int32("kraft_metadata_epoch")
	}
	if err != nil {
		return MigrationState{}, &PayloadError{Path: Migration, Reason: err.Error(),
			Remedy: "do not run a ZooKeeper controller while a migration is under way; ask the KRaft controller's log what it wrote"}
	}
	return m, nil
}

// GeneratedBrokerID is the id that a broker without one takes: it sets
// /brokers/seqid to empty data and adds the node's new version to
// reserved.broker.max.id (spec/controller.md §1.7).
func GeneratedBrokerID(version, reservedMax int32) kafka.BrokerID {
	return kafka.BrokerID(version + reservedMax)
}

// EncodeConsumerOffset gives the plain decimal text of a ConsumerOffsetPath.
func EncodeConsumerOffset(offset int64) []byte { return appendInt(nil, offset) }

// DecodeConsumerOffset reads the offset at path.
func DecodeConsumerOffset(path string, data []byte) (int64, error) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64)
	if err != nil {
		return 0, &PayloadError{Path: path, Reason: fmt.Sprintf("is not an offset: %.40q", data), Remedy: "set it to a plain number"}
	}
	return n, nil
}
