package wire

import (
	"fmt"
	"slices"
	"sort"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// AppendResponse appends the body of an answer to a control request. Rows are
// the partitions of resp.Request that resp.Errors names, in the request's
// order; UpdateMetadata has none. LeaderAndIsr v5 and later group them by topic
// id, all topics without one in a single entry (spec/control-plane.md §1.3).
func AppendResponse(dst []byte, resp *control.Response, version int16) []byte {
	flexible := version >= flexibleFrom(resp.Kind)
	dst = appendInt16(dst, int16(resp.Error))
	switch resp.Kind {
	case control.LeaderAndISRKey:
		rows := answered(resp)
		if version >= 5 {
			dst = appendRowsByID(dst, rows)
		} else {
			dst = appendRows(dst, rows, flexible)
		}
	case control.StopReplicaKey:
		dst = appendRows(dst, answered(resp), flexible)
	}
	return endStruct(dst, flexible)
}

// row is one asked partition and its answer.
type row struct {
	kafka.TopicPartition
	id   kafka.TopicID
	code kafka.ErrorCode
}

func answered(resp *control.Response) []row {
	if len(resp.Errors) == 0 {
		return nil
	}
	rows := make([]row, 0, len(resp.Errors))
	add := func(tp kafka.TopicPartition, id kafka.TopicID) {
		if code, ok := resp.Errors[tp]; ok {
			rows = append(rows, row{tp, id, code})
		}
	}
	switch r := resp.Request.(type) {
	case *control.LeaderAndISRRequest:
		for _, p := range r.Partitions {
			add(p.TopicPartition, p.TopicID)
		}
	case *control.StopReplicaRequest:
		for _, p := range r.Partitions {
			add(p.TopicPartition, kafka.TopicID{})
		}
	}
	return rows
}

func appendRows(dst []byte, rows []row, flexible bool) []byte {
	dst = appendLen(dst, len(rows), flexible)
	for _, r := range rows {
		dst = appendString(dst, r.Topic, flexible)
		dst = appendInt32(dst, r.Partition)
		dst = appendInt16(dst, int16(r.code))
		dst = endStruct(dst, flexible)
	}
	return dst
}

func appendRowsByID(dst []byte, rows []row) []byte {
	groups := map[kafka.TopicID][]row{}
	var order []kafka.TopicID
	for _, r := range rows {
		if _, ok := groups[r.id]; !ok {
			order = append(order, r.id)
		}
		groups[r.id] = append(groups[r.id], r)
	}
	dst = appendLen(dst, len(order), true)
	for _, id := range order {
		dst = append(dst, id[:]...)
		dst = appendLen(dst, len(groups[id]), true)
		for _, r := range groups[id] {
			dst = appendInt32(dst, r.Partition)
			dst = appendInt16(dst, int16(r.code))
			dst = append(dst, 0)
		}
		dst = append(dst, 0)
	}
	return dst
}

// DecodeResponse reads the body of the answer to asked, which was sent as
// version and whose partitions are sorted, as Sendable gives them. Rows about
// partitions that were not asked are left out, and so are rows that could mean
// several partitions with different answers: LeaderAndIsr v5 and later name
// topics by id alone, and topics without id all look alike.
func DecodeResponse(asked control.Request, version int16, body []byte) (*control.Response, error) {
	rs := rows{errs: make(map[kafka.TopicPartition]kafka.ErrorCode, asks(asked))}
	return decodeResponse(asked, version, body, &rs)
}

// DecodeFailures is DecodeResponse without the rows that say NONE: most answers
// have no others, and a map of 100 000 of them costs more than the request did.
// If the answer has not as many rows as partitions were asked, it is as
// DecodeResponse gives it, and full is true.
func DecodeFailures(asked control.Request, version int16, body []byte) (resp *control.Response, full bool, err error) {
	rs := rows{errs: map[kafka.TopicPartition]kafka.ErrorCode{}, failuresOnly: true}
	resp, err = decodeResponse(asked, version, body, &rs)
	if err == nil && rs.n != asks(asked) {
		resp, err = DecodeResponse(asked, version, body)
		return resp, true, err
	}
	return resp, false, err
}

// rows collects an answer's rows.
type rows struct {
	errs         map[kafka.TopicPartition]kafka.ErrorCode
	failuresOnly bool
	n            int // rows, those left out included
}

// add takes the row of partition n of a topic's run.
func (s *rows) add(r run, key func(int) kafka.TopicPartition, n int32, code kafka.ErrorCode) {
	if s.failuresOnly && code == kafka.NoError {
		s.n++ // not looked up: that would touch all of what was asked once more
	} else if tp, ok := r.find(key, n); ok {
		s.n++
		s.errs[tp] = code
	}
}

// asks is how many partitions a request wants an answer for.
func asks(r control.Request) int {
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		return len(r.Partitions)
	case *control.StopReplicaRequest:
		return len(r.Partitions)
	}
	return 0
}

func decodeResponse(asked control.Request, version int16, body []byte, rs *rows) (*control.Response, error) {
	kind := asked.Kind()
	r := &reader{b: body, flexible: version >= flexibleFrom(kind)}
	resp := &control.Response{Kind: kind, Request: asked, Error: kafka.ErrorCode(r.int16())}
	switch q := asked.(type) {
	case *control.LeaderAndISRRequest:
		if version >= 5 {
			decodeRowsByID(r, q, rs)
		} else {
			decodeRows(r, len(q.Partitions), func(i int) kafka.TopicPartition { return q.Partitions[i].TopicPartition }, rs)
		}
		resp.Errors = rs.errs
	case *control.StopReplicaRequest:
		decodeRows(r, len(q.Partitions), func(i int) kafka.TopicPartition { return q.Partitions[i].TopicPartition }, rs)
		resp.Errors = rs.errs
	}
	r.tags()
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("the answer to %s v%d cannot be read: %w", kind, version, err)
	}
	return resp, nil
}

// run is where one topic's partitions lie in a sorted list: answers of 100 000
// rows must not cost a look-up in a large map each.
type run struct{ start, end int }

// find gives the asked partition of a run that has a number.
func (r run) find(key func(int) kafka.TopicPartition, n int32) (kafka.TopicPartition, bool) {
	if r.start == r.end {
		return kafka.TopicPartition{}, false
	}
	// Most often the numbers have no gaps.
	guess := r.start + int(n) - int(key(r.start).Partition)
	if guess >= r.start && guess < r.end {
		if tp := key(guess); tp.Partition == n {
			return tp, true
		}
	}
	i := r.start + sort.Search(r.end-r.start, func(i int) bool { return key(r.start+i).Partition >= n })
	if i == r.end {
		return kafka.TopicPartition{}, false
	}
	tp := key(i)
	return tp, tp.Partition == n
}

// decodeRows reads rows that name their topics.
func decodeRows(r *reader, asked int, key func(int) kafka.TopicPartition, rs *rows) {
	runs := map[string]run{}
	for i := 0; i < asked; {
		topic, start := key(i).Topic, i
		for i++; i < asked && key(i).Topic == topic; i++ {
		}
		runs[topic] = run{start, i}
	}
	for range r.array(8) {
		topic, ok := runs[string(r.take(r.length(true)))]
		n, code := r.int32(), kafka.ErrorCode(r.int16())
		r.tags()
		if r.err != nil {
			return
		}
		if ok {
			rs.add(topic, key, n, code)
		}
	}
}

// decodeRowsByID reads rows of LeaderAndIsr v5 and later.
func decodeRowsByID(r *reader, asked *control.LeaderAndISRRequest, rs *rows) {
	key := func(i int) kafka.TopicPartition { return asked.Partitions[i].TopicPartition }
	runs := make(map[kafka.TopicID]run)
	for i := 0; i < len(asked.Partitions); {
		end := topicEnd(asked.Partitions, i)
		if id := asked.Partitions[i].TopicID; !id.IsZero() {
			runs[id] = run{i, end}
		}
		i = end
	}
	var idless map[int32][]kafka.ErrorCode // by partition number
	for range r.array(18) {
		id := r.topicID()
		topic, ok := runs[id]
		for range r.array(7) {
			n, code := r.int32(), kafka.ErrorCode(r.int16())
			r.tags()
			if ok {
				rs.add(topic, key, n, code)
			} else if id.IsZero() {
				if idless == nil {
					idless = map[int32][]kafka.ErrorCode{}
				}
				idless[n] = append(idless[n], code)
			}
		}
		r.tags()
		if r.err != nil {
			return
		}
	}
	if len(idless) > 0 {
		matchWithoutID(asked, idless, rs)
	}
}

// matchWithoutID gives rows without a topic id to the partitions asked without
// one, where only one answer is possible: as many rows of a partition number as
// partitions with it, all with one code.
func matchWithoutID(asked *control.LeaderAndISRRequest, codes map[int32][]kafka.ErrorCode, rs *rows) {
	candidates := map[int32]int{}
	for _, p := range asked.Partitions {
		if p.TopicID.IsZero() {
			candidates[p.Partition]++
		}
	}
	for _, p := range asked.Partitions {
		same := codes[p.Partition]
		if !p.TopicID.IsZero() || len(same) == 0 || len(same) != candidates[p.Partition] {
			continue
		}
		if !slices.ContainsFunc(same, func(c kafka.ErrorCode) bool { return c != same[0] }) {
			rs.n++
			if !rs.failuresOnly || same[0] != kafka.NoError {
				rs.errs[p.TopicPartition] = same[0]
			}
		}
	}
}
