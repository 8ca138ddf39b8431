package brokers

import (
	"time"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// Consumer is the replica id of fetches and offset queries that come from
// clients; DebugConsumer reads up to the log end, as a follower does.
const (
	Consumer      kafka.BrokerID = -1
	DebugConsumer kafka.BrokerID = -2
)

// Acks of a produce request (spec/broker.md §7.6).
const (
	AcksNone   int16 = 0
	AcksLeader int16 = 1
	AcksAll    int16 = -1
)

// ProduceRequest appends record batches to partitions led here.
type ProduceRequest struct {
	Acks    int16
	Timeout time.Duration // for acks=all
	Rows    []ProduceRow
}

// ProduceRow is one partition's records: whole batches of format v2, checked
// by the caller as far as that needs no state. The loop owns the bytes from
// now on and writes offsets and epoch into them.
type ProduceRow struct {
	Partition kafka.TopicPartition
	Records   []byte
}

// ProduceResult answers one row.
type ProduceResult struct {
	Partition      kafka.TopicPartition
	Error          kafka.ErrorCode
	BaseOffset     int64 // -1 with an error
	AppendTime     int64 // ms; -1 unless the topic says LogAppendTime
	LogStartOffset int64
}

// FetchRequest reads from partitions led here. It is answered when MinBytes
// are there, when a row has an error or a diverging epoch, or after MaxWait.
type FetchRequest struct {
	Replica      kafka.BrokerID // who follows, or Consumer
	ReplicaEpoch int64          // broker epoch of the follower; -1: not told
	MaxWait      time.Duration
	MinBytes     int
	MaxBytes     int  // over all rows; the first batch comes whole even above it
	Committed    bool // read_committed: up to the last stable offset
	FromFollower bool // a consumer that a follower may answer, too (Fetch v11 and later)
	Rows         []FetchRow

	// Of a follower: which of its fetchers of this leader asks, from 0 on, and
	// whether its last answer was not taken over in full, so that the leader has to
	// tell also what it told then.
	Fetcher int
	Anew    bool

	prolong bool // a follower in this process: with nothing to tell, the wait goes on
	resting bool // a follower: partitions that rest are left out, and are to be asked for once MaxWait is over
	first   int  // of Rows, where reading begins; the rows before it come last
}

// FetchRow asks for one partition.
type FetchRow struct {
	Partition        kafka.TopicPartition
	TopicID          kafka.TopicID // zero: not told
	Offset           int64
	LogStartOffset   int64 // of a follower; -1 otherwise
	LeaderEpoch      int32 // the one the sender knows; -1: not told
	LastFetchedEpoch int32 // -1: not told, then divergence is not looked for
	MaxBytes         int

	highWatermark int64      // what a follower in this process knows
	part          *partition // what its leader found the last time: the rows are used again
}

// FetchResult answers one row. Records are whole batches, to be read only.
type FetchResult struct {
	Partition        kafka.TopicPartition
	Error            kafka.ErrorCode
	HighWatermark    int64 // -1 with an error
	LastStableOffset int64
	LogStartOffset   int64
	Diverging        bool // DivergingEpoch and DivergingEnd count, there are no records
	DivergingEpoch   int32
	DivergingEnd     int64
	Records          [][]byte
}

// Offset queries with a meaning of their own instead of a time in ms.
const (
	LatestOffset   int64 = -1
	EarliestOffset int64 = -2
	MaxTimestamp   int64 = -3
)

// OffsetQuery asks for the offset of a time.
type OffsetQuery struct {
	Partition   kafka.TopicPartition
	LeaderEpoch int32 // the one the sender knows; -1: not told
	Timestamp   int64 // ms, or LatestOffset and its kin
}

// OffsetAnswer answers it. Offset and Timestamp are -1 where no record is as late.
type OffsetAnswer struct {
	Partition   kafka.TopicPartition
	Error       kafka.ErrorCode
	Timestamp   int64
	Offset      int64
	LeaderEpoch int32
}

// EpochQuery asks where a leader epoch ends (OffsetForLeaderEpoch).
type EpochQuery struct {
	Partition   kafka.TopicPartition
	LeaderEpoch int32 // the one the sender knows; -1: not told
	Epoch       int32 // whose end is asked for
}

// EpochAnswer answers it; -1 and -1 are undefined (spec/broker.md §10.3).
type EpochAnswer struct {
	Partition kafka.TopicPartition
	Error     kafka.ErrorCode
	Epoch     int32
	EndOffset int64
}

// LowWatermark answers DeleteRecords for one partition: the smallest offset that
// any live replica still has, -1 with an error.
type LowWatermark struct {
	Error  kafka.ErrorCode
	Offset int64
}

// LogDir answers DescribeLogDirs for one log directory.
type LogDir struct {
	Path  string // "memory" without log.dirs
	Error kafka.ErrorCode
	Logs  []LogDirRow // sorted
}

// LogDirRow is one log in it.
type LogDirRow struct {
	Partition kafka.TopicPartition
	Size      int64 // bytes
	Lag       int64 // how far the log's end is behind the high watermark; never negative
}
