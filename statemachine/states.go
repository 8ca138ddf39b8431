package statemachine

import (
	"fmt"
	"slices"
	"strings"
)

// PartitionState is a state of the partition state machine (spec/controller.md §4.1).
type PartitionState uint8

const (
	NonExistentPartition PartitionState = iota
	NewPartition
	OnlinePartition
	OfflinePartition
)

var partitionStateNames = [...]string{"NonExistentPartition", "NewPartition", "OnlinePartition", "OfflinePartition"}

// String gives Kafka's name.
func (s PartitionState) String() string { return partitionStateNames[s] }

// ReplicaState is a state of the replica state machine (spec/controller.md §5.1).
type ReplicaState uint8

const (
	NonExistentReplica ReplicaState = iota
	NewReplica
	OnlineReplica
	OfflineReplica
	ReplicaDeletionStarted
	ReplicaDeletionSuccessful
	ReplicaDeletionIneligible
)

var replicaStateNames = [...]string{"NonExistentReplica", "NewReplica", "OnlineReplica", "OfflineReplica",
	"ReplicaDeletionStarted", "ReplicaDeletionSuccessful", "ReplicaDeletionIneligible"}

// String gives Kafka's name.
func (s ReplicaState) String() string { return replicaStateNames[s] }

// partitionWork is what a legal transition of a partition does beside the change of state.
type partitionWork uint8

const (
	remember   partitionWork = iota // only the state changes
	initialise                      // first leader: create the state znode
	elect                           // next leader: conditional set of the state znode
)

type partitionRow struct {
	to   PartitionState
	from []PartitionState
	work partitionWork
}

// partitionTable is the whole partition state machine. A pair no row names is refused.
var partitionTable = []partitionRow{
	{NewPartition, []PartitionState{NonExistentPartition}, remember},
	{OnlinePartition, []PartitionState{NewPartition}, initialise},
	{OnlinePartition, []PartitionState{OnlinePartition, OfflinePartition}, elect},
	{OfflinePartition, []PartitionState{NewPartition, OnlinePartition, OfflinePartition}, remember},
	{NonExistentPartition, []PartitionState{OfflinePartition}, remember},
}

func partitionStep(from, to PartitionState) (partitionWork, bool) {
	for _, row := range partitionTable {
		if row.to == to && slices.Contains(row.from, from) {
			return row.work, true
		}
	}
	return 0, false
}

// replicaTable is the whole replica state machine: the states each may be entered from.
var replicaTable = []struct {
	to   ReplicaState
	from []ReplicaState
}{
	{NewReplica, []ReplicaState{NonExistentReplica}},
	{OnlineReplica, []ReplicaState{NewReplica, OnlineReplica, OfflineReplica, ReplicaDeletionIneligible}},
	{OfflineReplica, []ReplicaState{NewReplica, OnlineReplica, OfflineReplica, ReplicaDeletionIneligible}},
	{ReplicaDeletionStarted, []ReplicaState{OfflineReplica}},
	{ReplicaDeletionSuccessful, []ReplicaState{ReplicaDeletionStarted}},
	{ReplicaDeletionIneligible, []ReplicaState{ReplicaDeletionStarted, OfflineReplica}},
	{NonExistentReplica, []ReplicaState{ReplicaDeletionSuccessful}},
}

func replicaStepLegal(from, to ReplicaState) bool {
	for _, row := range replicaTable {
		if row.to == to {
			return slices.Contains(row.from, from)
		}
	}
	return false
}

// Matrix prints both tables, from × to, for reading and for the golden test.
func Matrix() string {
	var b strings.Builder
	work := map[partitionWork]string{remember: "remember", initialise: "initialise", elect: "elect"}
	b.WriteString("partition from -> to\n")
	for from := range PartitionState(len(partitionStateNames)) {
		for to := range PartitionState(len(partitionStateNames)) {
			what := "refused"
			if w, ok := partitionStep(from, to); ok {
				what = work[w]
			}
			fmt.Fprintf(&b, "%-21s %-21s %s\n", from, to, what)
		}
	}
	b.WriteString("\nreplica from -> to\n")
	for from := range ReplicaState(len(replicaStateNames)) {
		for to := range ReplicaState(len(replicaStateNames)) {
			what := "refused"
			if replicaStepLegal(from, to) {
				what = "legal"
			}
			fmt.Fprintf(&b, "%-26s %-26s %s\n", from, to, what)
		}
	}
	return b.String()
}
