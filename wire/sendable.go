package wire

import (
	"slices"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// Sendable gives the request without what must never reach a broker, and the
// names of the topics that were left out. A topic name that is too long halts a
// broker with one log directory, and a topic or a partition that comes twice is
// refused with the whole request (spec/control-plane.md §1.7). A clean request
// is returned itself; the given one is never changed.
func Sendable(r control.Request) (control.Request, []string) {
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		parts, bad, changed := sendable(r.Partitions, stateKey)
		if !changed {
			return r, nil
		}
		clean := *r
		clean.Partitions = parts
		return &clean, bad
	case *control.UpdateMetadataRequest:
		m, bad := SendableMetadata(r.Metadata)
		if m == r.Metadata {
			return r, nil
		}
		return &control.UpdateMetadataRequest{Header: r.Header, Metadata: m}, bad
	case *control.StopReplicaRequest:
		parts, bad, changed := sendable(r.Partitions, stopKey)
		if !changed {
			return r, nil
		}
		return &control.StopReplicaRequest{Header: r.Header, Partitions: parts}, bad
	}
	return r, nil
}

// SendableMetadata is Sendable for the shared body of UpdateMetadata requests.
func SendableMetadata(m *control.Metadata) (*control.Metadata, []string) {
	parts, bad, changed := sendable(m.Partitions, stateKey)
	if !changed {
		return m, nil
	}
	return &control.Metadata{Partitions: parts, LiveBrokers: m.LiveBrokers}, bad
}

func stateKey(p *control.PartitionState) kafka.TopicPartition { return p.TopicPartition }

func stopKey(p control.StopPartition) kafka.TopicPartition { return p.TopicPartition }

// sendable sorts, keeps the last of equal partitions, and drops illegal topics.
func sendable[P any](parts []P, key func(P) kafka.TopicPartition) (clean []P, bad []string, changed bool) {
	sorted, last := true, kafka.TopicPartition{}
	for i, p := range parts {
		tp := key(p)
		if i > 0 && tp.Topic == last.Topic {
			sorted = sorted && tp.Partition > last.Partition
		} else {
			sorted = sorted && (i == 0 || tp.Topic > last.Topic)
			if kafka.ValidTopicName(tp.Topic) != "" && !slices.Contains(bad, tp.Topic) {
				bad = append(bad, tp.Topic)
			}
		}
		last = tp
	}
	if sorted && len(bad) == 0 {
		return parts, nil, false
	}
	clean = make([]P, 0, len(parts))
	for _, p := range parts {
		if !slices.Contains(bad, key(p).Topic) {
			clean = append(clean, p)
		}
	}
	slices.SortStableFunc(clean, func(a, b P) int { return key(a).Compare(key(b)) })
	n := 0
	for i, p := range clean {
		if i+1 < len(clean) && key(clean[i+1]) == key(p) {
			continue
		}
		clean[n] = p
		n++
	}
	return clean[:n], bad, true
}
