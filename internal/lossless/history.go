package lossless

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Record tells one record from all others: the n-th that a producer sent to a
// partition, from 0 on.
type Record struct {
	Producer, N int
}

// Position is where a record stands in a topic.
type Position struct {
	Partition int32
	Offset    int64
}

// At is a record and where it stood, as an acknowledgement or a fetch told.
type At struct {
	Position
	Record
}

// History is what happened to one topic.
type History struct {
	Sent  map[int32][]int // by partition, then producer: how many records were sent
	Acked []At
	Seen  []At // by consumers, while things happened
	// Logs is what is there at last: by broker, or Reading for what consumers get from
	// leaders, then partition, in order of offsets.
	Logs map[int32]map[int32][]At
}

// Reading is the key in History.Logs of what a consumer reads from leaders.
const Reading int32 = -1

// maxComplaints bounds what Check tells of one kind.
const maxComplaints = 8

// complaints collects broken promises, not too many of one kind.
type complaints struct {
	list  []string
	count map[string]int
}

func (c *complaints) add(kind, format string, args ...any) {
	c.count[kind]++
	if c.count[kind] <= maxComplaints {
		c.list = append(c.list, kind+": "+fmt.Sprintf(format, args...))
	}
}

func (c *complaints) all() []string {
	for _, kind := range slices.Sorted(maps.Keys(c.count)) {
		if more := c.count[kind] - maxComplaints; more > 0 {
			c.list = append(c.list, fmt.Sprintf("%s: and %d more", kind, more))
		}
	}
	return c.list
}

// Check gives one line for each broken promise; none is none:
//   - lost: an acknowledged record is not where its acknowledgement said;
//   - twice: a record is there more than once;
//   - order: of one producer, a later record stands before an earlier one;
//   - unsent: what nobody sent;
//   - gap: offsets that have no record;
//   - unread: a consumer saw what is not there at last;
//   - replica: two brokers differ.
func (h *History) Check() []string {
	c := &complaints{count: map[string]int{}}
	log := h.Logs[Reading]
	h.checkLog(c, log)
	index := map[Position]Record{}
	for _, rows := range log {
		for _, row := range rows {
			index[row.Position] = row.Record
		}
	}
	for _, a := range h.Acked {
		if got, ok := index[a.Position]; !ok {
			c.add("lost", "%s was acknowledged at %s, where the log has nothing", a.Record, a.Position)
		} else if got != a.Record {
			c.add("lost", "%s was acknowledged at %s, where %s is", a.Record, a.Position, got)
		}
	}
	for _, s := range h.Seen {
		if got, ok := index[s.Position]; !ok {
			c.add("unread", "a consumer saw %s at %s, where the log has nothing", s.Record, s.Position)
		} else if got != s.Record {
			c.add("unread", "a consumer saw %s at %s, where %s is", s.Record, s.Position, got)
		}
	}
	for _, broker := range slices.Sorted(maps.Keys(h.Logs)) {
		if broker == Reading {
			continue
		}
		for _, p := range slices.Sorted(maps.Keys(h.Logs[broker])) {
			if where := difference(h.Logs[broker][p], log[p]); where != "" {
				c.add("replica", "broker %d, partition %d: %s", broker, p, where)
			}
		}
	}
	return c.all()
}

// checkLog looks at what a consumer reads by itself.
func (h *History) checkLog(c *complaints, log map[int32][]At) {
	for _, p := range slices.Sorted(maps.Keys(log)) {
		at := map[Record]int64{}
		last := map[int]int{} // by producer
		for i, row := range log[p] {
			if row.Offset != int64(i) {
				c.add("gap", "partition %d has offset %d where %d is due", p, row.Offset, i)
				break
			}
			if row.Producer < 0 || row.Producer >= len(h.Sent[p]) || row.N >= h.Sent[p][row.Producer] || row.N < 0 {
				c.add("unsent", "%s at %s", row.Record, row.Position)
				continue
			}
			if before, twice := at[row.Record]; twice {
				c.add("twice", "%s at %s and at offset %d", row.Record, row.Position, before)
				continue
			}
			at[row.Record] = row.Offset
			if before, any := last[row.Producer]; any && row.N < before {
				c.add("order", "%s at %s stands behind record %d", row.Record, row.Position, before)
			}
			last[row.Producer] = row.N
		}
	}
}

// difference tells where a replica leaves what is read; "" is nowhere.
func difference(replica, read []At) string {
	for i := range max(len(replica), len(read)) {
		switch {
		case i >= len(replica):
			return fmt.Sprintf("ends at %d, clients read on to %d", len(replica), len(read))
		case i >= len(read):
			return fmt.Sprintf("goes on to %d, clients read to %d", len(replica), len(read))
		case replica[i] != read[i]:
			return fmt.Sprintf("has %s at offset %d, clients read %s at %d", replica[i].Record, replica[i].Offset, read[i].Record, read[i].Offset)
		}
	}
	return ""
}

// String names the record.
func (r Record) String() string { return fmt.Sprintf("record %d of producer %d", r.N, r.Producer) }

// String names the position as topic tools do.
func (p Position) String() string {
	return fmt.Sprintf("partition %d offset %d", p.Partition, p.Offset)
}

// value is what is written: who, how many, and padding that no codec shortens to
// nothing.
func (r Record) value(padding string) []byte {
	return []byte(strconv.Itoa(r.Producer) + "/" + strconv.Itoa(r.N) + "/" + padding)
}

// parse reads a value.
func parse(value []byte) (Record, error) {
	parts := strings.SplitN(string(value), "/", 3)
	if len(parts) != 3 {
		return Record{}, fmt.Errorf("%.40q is no value of ours", value)
	}
	producer, err1 := strconv.Atoi(parts[0])
	n, err2 := strconv.Atoi(parts[1])
	if err := cmp.Or(err1, err2); err != nil {
		return Record{}, fmt.Errorf("%.40q is no value of ours: %w", value, err)
	}
	return Record{producer, n}, nil
}
