// Package commitlog is the log of one partition: Kafka's UnifiedLog, with its
// LeaderEpochFileCache, ProducerStateManager and LogCleaner, over record batches
// of format v2 that are kept as the bytes they came as.
//
// It stands below the brokers' loop, which owns each Log and calls it from one
// goroutine with the time as an argument; Check and CheckReplicated are for the
// port, on any goroutine, before bytes come to the loop. A Log lives in memory
// (New), where Memory bounds what all logs of a broker hold together, or in
// segment files that Kafka's own tools read (Open).
//
// What always holds: LogStartOffset ≤ HighWatermark ≤ LogEndOffset; offsets rise
// from batch to batch; what Read has given away never changes, since bytes are
// only ever added behind it and a cut log goes on in new memory; a refused call
// leaves the Log as it was, except where a write to disk failed: then it is
// broken until it is opened again.
//
// The trap: Append writes offset, leader epoch and, for LogAppendTime, time and
// checksum into the bytes it is given, then copies them: give it bytes that
// nobody else reads.
package commitlog
