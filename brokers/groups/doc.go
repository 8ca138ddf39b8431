// Package groups is the coordinator of consumer groups: Kafka's classic
// protocol, as release 3.9.1 has it. Coordinator = GroupCoordinator with
// GroupMetadataManager, group = GroupMetadata.
//
// It stands inside a broker's loop, beside the replica manager. Like the
// broker it is a step function with one owner: requests, times and the fate of
// appends go in, answers and appends come out. What it must keep goes as
// records, in Kafka's own format, into the partitions of __consumer_offsets
// that this broker leads, so that a real broker can go on where this one
// stopped, and the other way round. The owner
//   - calls Lead when it becomes leader of such a partition and, if Lead says
//     so, feeds every batch of the log through Load, to the log's end (records
//     above the high watermark included), then calls Loaded; Resign when it is
//     leader no longer, or deletes the partition;
//   - gives client requests to Handle, and appends what any method returns, in
//     that order; for each it calls Appended once it is committed or has failed;
//   - calls Tick when Deadline has come.
//
// What always holds: a client hears that a commit or an assignment stands only
// after the record of it was committed; every request is answered once, unless
// the process dies first; the assignment of a generation comes from that
// generation's leader alone.
//
// The trap: an append may come to its end after the group has moved on, or
// after this broker led its last. So its end is looked up by token, and the
// state it was made for is compared with the state that is.
//
// Left out: transactions. TxnOffsetCommit is not served, but transactional
// commits that a real broker wrote are read as far as they were committed.
package groups
