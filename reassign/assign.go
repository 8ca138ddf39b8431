package reassign

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/zkcontroller/zkcontroller/kafka"
)

// BrokerRack is a broker that may take replicas, and where it stands.
type BrokerRack struct {
	ID      kafka.BrokerID
	Rack    string
	HasRack bool // tells a rack named "" from none
}

// AutoAssign places the replicas of `partitions` new partitions, numbered from
// firstPartition, on brokers as Kafka does (spec/admin-api.md §2.1): first
// replicas go round the brokers, the others follow at a distance that shifts
// once per round. When the brokers have racks, every row takes as many racks as
// it can. The order of brokers does not matter.
//
// start and shift are indexes in [0, len(brokers)): chance for CreateTopics, the
// same fixed index for CreatePartitions. The rows are fresh slices.
//
// The error wraps InvalidPartitions (partitions <= 0), InvalidReplicationFactor
// (factor <= 0 or more than brokers) or UnknownServerError (some brokers have a
// rack and some have none, which Kafka answers so).
func AutoAssign(brokers []BrokerRack, partitions, factor int, start, shift int, firstPartition int32) (map[int32][]kafka.BrokerID, error) {
	if err := checkAssign(brokers, partitions, factor, start, shift, firstPartition); err != nil {
		return nil, err
	}
	ring := newRing(brokers)
	rows := make(map[int32][]kafka.BrokerID, partitions)
	for i := range partitions {
		p := int(firstPartition) + i
		if p > 0 && p%len(ring.brokers) == 0 {
			shift++
		}
		rows[int32(p)] = ring.row((p+start)%len(ring.brokers), shift, factor)
	}
	return rows, nil
}

// TooLarge tells why a topic cannot have so many partitions of so many replicas,
// or "": all of them stand in one znode, and ZooKeeper takes no more than 1 MiB
// at once (jute.maxbuffer).
func TooLarge(partitions, factor int) string {
	const maxRequest = 1<<20 - 1
	if partitions > maxRequest || factor > maxRequest {
		return fmt.Sprintf("%d partitions of %d replicas do not fit into the topic's znode of at most %d bytes", partitions, factor, maxRequest)
	}
	// "0":[1,2], is the least for a partition; numbers get longer.
	size := partitions * (6 + 2*factor)
	for n := 10; n < partitions; n *= 10 {
		size += partitions - n
	}
	if size <= maxRequest {
		return ""
	}
	return fmt.Sprintf("%d partitions of %d replicas do not fit into the topic's znode: at least %d bytes of at most %d", partitions, factor, size, maxRequest)
}

func checkAssign(brokers []BrokerRack, partitions, factor, start, shift int, firstPartition int32) error {
	racked := 0
	for _, b := range brokers {
		if b.HasRack {
			racked++
		}
	}
	switch {
	case partitions <= 0:
		return fmt.Errorf("the number of partitions must be larger than 0, not %d: %w", partitions, kafka.InvalidPartitions)
	case factor <= 0:
		return fmt.Errorf("the replication factor must be larger than 0, not %d: %w", factor, kafka.InvalidReplicationFactor)
	case factor > len(brokers):
		return fmt.Errorf("the replication factor %d is larger than the number of available brokers, %d: %w",
			factor, len(brokers), kafka.InvalidReplicationFactor)
	case TooLarge(partitions, factor) != "":
		return fmt.Errorf("%s: %w", TooLarge(partitions, factor), kafka.InvalidPartitions)
	case racked > 0 && racked < len(brokers):
		return fmt.Errorf("%d of %d brokers have a rack and the others have none; give all of them one, or none: %w",
			racked, len(brokers), kafka.UnknownServerError)
	case start < 0 || shift < 0 || firstPartition < 0:
		return fmt.Errorf("start %d, shift %d and first partition %d must not be negative: %w",
			start, shift, firstPartition, kafka.UnknownServerError)
	}
	return nil
}

// ring is the brokers in the order in which replicas go round.
type ring struct {
	brokers []BrokerRack
	racks   int // 0: no broker has a rack
}

func newRing(brokers []BrokerRack) ring {
	sorted := slices.Clone(brokers)
	slices.SortFunc(sorted, func(a, b BrokerRack) int { return cmp.Compare(a.ID, b.ID) })
	if !sorted[0].HasRack {
		return ring{brokers: sorted}
	}
	byRack := map[string][]BrokerRack{}
	var racks []string
	for _, b := range sorted {
		if byRack[b.Rack] == nil {
			racks = append(racks, b.Rack)
		}
		byRack[b.Rack] = append(byRack[b.Rack], b)
	}
	slices.Sort(racks)
	// One from each rack in turn; racks that ran out are skipped.
	alternating := make([]BrokerRack, 0, len(sorted))
	for turn := 0; len(alternating) < len(sorted); turn++ {
		for _, r := range racks {
			if turn < len(byRack[r]) {
				alternating = append(alternating, byRack[r][turn])
			}
		}
	}
	return ring{brokers: alternating, racks: len(racks)}
}

// row gives the replicas of one partition whose first replica is at index first.
func (r ring) row(first, shift, factor int) []kafka.BrokerID {
	leader := r.brokers[first]
	row := make([]kafka.BrokerID, 1, factor)
	row[0] = leader.ID
	racks := map[string]bool{leader.Rack: true}
	for k := 0; len(row) < factor; k++ {
		b := r.brokers[r.follower(first, shift, k)]
		if r.racks > 0 {
			// A rack is used twice only when every rack is used, a broker never:
			// the factor is at most the number of brokers.
			if racks[b.Rack] && len(racks) < r.racks || slices.Contains(row, b.ID) {
				continue
			}
			racks[b.Rack] = true
		}
		row = append(row, b.ID)
	}
	return row
}

// follower is the index of candidate k for the replicas after the first.
func (r ring) follower(first, shift, k int) int {
	if r.racks > 0 {
		shift *= r.racks
	}
	n := len(r.brokers)
	return (first + 1 + (shift+k)%(n-1)) % n
}
