// Package zkpaths knows every znode of Kafka's ZooKeeper mode: its path, its
// payload in all versions found in the wild, and how reads and writes of
// znodes are asked for and answered (Read, Write, Outcome).
//
// It stands between the deciding packages and ZooKeeper and is pure: bytes in,
// values out. Writing is deterministic: one key order per payload, the one in
// which spec/controller.md §1 shows the example, so equal values give equal
// bytes. What is written means the same as what Kafka 3.9 writes.
//
// Reading never depends on key order or blanks, ignores unknown fields
// (/admin/reassign_partitions from 2.4 on excepted), and either gives the whole
// payload or a *PayloadError with path, reason and remedy: nothing is guessed
// and no default stands in for a field that must be there.
//
// The trap: null data, empty data and the text "null" are three things to
// ZooKeeper. Each Decode says which of them it takes.
package zkpaths
