package wire

import (
	"fmt"

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
// version. Rows about partitions that were not asked are left out, and so are
// rows that could mean several partitions with different answers: LeaderAndIsr
// v5 and later name topics by id alone, and topics without id all look alike.
func DecodeResponse(asked control.Request, version int16, body []byte) (*control.Response, error) {
	kind := asked.Kind()
	r := &reader{b: body, flexible: version >= flexibleFrom(kind)}
	resp := &control.Response{Kind: kind, Request: asked, Error: kafka.ErrorCode(r.int16())}
	switch {
	case kind == control.LeaderAndISRKey && version >= 5:
		resp.Errors = decodeRowsByID(r, asked.(*control.LeaderAndISRRequest))
	case kind != control.UpdateMetadataKey:
		resp.Errors = decodeRows(r)
	}
	r.tags()
	if err := r.done(); err != nil {
		return nil, fmt.Errorf("the answer to %s v%d cannot be read: %w", kind, version, err)
	}
	dropUnasked(resp)
	return resp, nil
}

// dropUnasked removes rows about partitions that were not asked.
func dropUnasked(resp *control.Response) {
	n := 0
	count := func(tp kafka.TopicPartition) {
		if _, ok := resp.Errors[tp]; ok {
			n++
		}
	}
	eachAsked(resp.Request, count)
	if n == len(resp.Errors) {
		return
	}
	asked := make(map[kafka.TopicPartition]kafka.ErrorCode, n)
	eachAsked(resp.Request, func(tp kafka.TopicPartition) {
		if code, ok := resp.Errors[tp]; ok {
			asked[tp] = code
		}
	})
	resp.Errors = asked
}

func eachAsked(r control.Request, f func(kafka.TopicPartition)) {
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		for _, p := range r.Partitions {
			f(p.TopicPartition)
		}
	case *control.StopReplicaRequest:
		for _, p := range r.Partitions {
			f(p.TopicPartition)
		}
	}
}

func decodeRows(r *reader) map[kafka.TopicPartition]kafka.ErrorCode {
	n := r.array(8)
	errs := make(map[kafka.TopicPartition]kafka.ErrorCode, n)
	last := ""
	for range n {
		b := r.take(r.length(true))
		if string(b) != last {
			last = string(b)
		}
		tp := kafka.TopicPartition{Topic: last, Partition: r.int32()}
		errs[tp] = kafka.ErrorCode(r.int16())
		r.tags()
		if r.err != nil {
			break
		}
	}
	return errs
}

func decodeRowsByID(r *reader, asked *control.LeaderAndISRRequest) map[kafka.TopicPartition]kafka.ErrorCode {
	errs := make(map[kafka.TopicPartition]kafka.ErrorCode, len(asked.Partitions))
	names := make(map[kafka.TopicID]string)
	for i := 0; i < len(asked.Partitions); i = topicEnd(asked.Partitions, i) {
		if p := asked.Partitions[i]; !p.TopicID.IsZero() {
			names[p.TopicID] = p.Topic
		}
	}
	var idless map[int32][]kafka.ErrorCode // by partition number
	for range r.array(18) {
		id := r.topicID()
		topic, known := names[id]
		for range r.array(7) {
			n, code := r.int32(), kafka.ErrorCode(r.int16())
			r.tags()
			switch {
			case known:
				errs[kafka.TopicPartition{Topic: topic, Partition: n}] = code
			case id.IsZero():
				if idless == nil {
					idless = map[int32][]kafka.ErrorCode{}
				}
				idless[n] = append(idless[n], code)
			}
		}
		r.tags()
		if r.err != nil {
			break
		}
	}
	if len(idless) > 0 {
		matchWithoutID(errs, asked, idless)
	}
	return errs
}

// matchWithoutID gives rows without a topic id to the partitions asked without
// one, where only one answer is possible: as many rows of a partition number as
// partitions with it, all with one code.
func matchWithoutID(errs map[kafka.TopicPartition]kafka.ErrorCode, asked *control.LeaderAndISRRequest, rows map[int32][]kafka.ErrorCode) {
	candidates := map[int32]int{}
	for _, p := range asked.Partitions {
		if p.TopicID.IsZero() {
			candidates[p.Partition]++
		}
	}
	for _, p := range asked.Partitions {
		codes := rows[p.Partition]
		if !p.TopicID.IsZero() || len(codes) != candidates[p.Partition] {
			continue
		}
		same := true
		for _, c := range codes {
			same = same && c == codes[0]
		}
		if same && len(codes) > 0 {
			errs[p.TopicPartition] = codes[0]
		}
	}
}
