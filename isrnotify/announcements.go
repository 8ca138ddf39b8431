package isrnotify

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// NamePrefix begins the name of every announcement; ZooKeeper appends a number
// of at least ten characters (spec/broker.md §6.4).
const NamePrefix = "isr_change_"

// Name gives the child name ZooKeeper makes of a sequence number. It counts in
// 32 bits and prints a minus sign after two thousand million announcements.
func Name(seq int32) string { return fmt.Sprintf("%s%010d", NamePrefix, seq) }

// ParseName gives the sequence number of a child of /isr_change_notification,
// or false if the name is not one ZooKeeper makes.
func ParseName(name string) (seq int32, ok bool) {
	digits, found := strings.CutPrefix(name, NamePrefix)
	if !found {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || Name(int32(n)) != name {
		return 0, false
	}
	return int32(n), true
}

// Announcement is one child of /isr_change_notification as it was read.
type Announcement struct {
	Path string
	Data []byte // nil is a null payload
}

// Union gives all announced partitions, each once and sorted, and, in the
// order given, a *zkpaths.PayloadError for each announcement that could not be
// read. A bad one hurts only itself (spec/controller.md §1.11).
func Union(announcements []Announcement) (tps []kafka.TopicPartition, bad []error) {
	seen := map[kafka.TopicPartition]struct{}{}
	for _, a := range announcements {
		named, err := zkpaths.DecodeISRNotification(a.Path, a.Data)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		for _, tp := range named {
			if _, ok := seen[tp]; !ok {
				seen[tp] = struct{}{}
				tps = append(tps, tp)
			}
		}
	}
	kafka.SortPartitions(tps)
	return tps, bad
}
