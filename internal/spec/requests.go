package spec

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
)

// views gives a sent request as a case may describe it: one view for the
// whole, and one for each partition in it.
func views(s sim.Sent) []map[string]any {
	whole := map[string]any{"api": s.Request.Kind().String(), "to": s.To, "from": s.From, "broker_epoch": s.Request.Epoch()}
	var rows []map[string]any
	row := func(tp kafka.TopicPartition, fields map[string]any) {
		fields["partition"] = tp.String()
		maps.Copy(fields, whole)
		rows = append(rows, fields)
	}
	header := func(h control.Header) {
		whole["controller_id"], whole["controller_epoch"] = h.ControllerID, h.ControllerEpoch
	}
	switch r := s.Request.(type) {
	case *control.LeaderAndISRRequest:
		header(r.Header)
		for _, p := range r.Partitions {
			f := leadershipFields(p)
			f["is_new"] = p.IsNew
			row(p.TopicPartition, f)
		}
	case *control.UpdateMetadataRequest:
		header(r.Header)
		list, live := []string{}, []kafka.BrokerID{}
		for _, p := range r.Partitions {
			list = append(list, p.TopicPartition.String())
		}
		for _, b := range r.LiveBrokers {
			live = append(live, b.ID)
		}
		slices.Sort(live)
		whole["partitions"], whole["live"] = list, live
		for _, p := range r.Partitions {
			f := leadershipFields(p)
			f["offline"] = noNil(p.Offline)
			row(p.TopicPartition, f)
		}
	case *control.StopReplicaRequest:
		header(r.Header)
		for _, p := range r.Partitions {
			row(p.TopicPartition, map[string]any{"delete": p.Delete, "leader_epoch": p.LeaderEpoch})
		}
	}
	return append(rows, whole)
}

func leadershipFields(p *control.PartitionState) map[string]any {
	return map[string]any{"leader": p.Leader, "leader_epoch": p.LeaderEpoch, "isr": noNil(p.ISR), "zk_version": p.ZKVersion,
		"partition_epoch": p.ZKVersion, "replicas": noNil(p.Replicas), "adding": noNil(p.Adding), "removing": noNil(p.Removing),
		"state_controller_epoch": p.ControllerEpoch, "leader_recovery_state": p.Recovery}
}

func noNil(ids []kafka.BrokerID) []kafka.BrokerID {
	if ids == nil {
		return []kafka.BrokerID{}
	}
	return ids
}

// matches tells whether a request is one with at least these fields.
func (p *player) matches(want map[string]any, s sim.Sent) bool {
	for _, v := range views(s) {
		if p.matchesView(want, v) {
			return true
		}
	}
	return false
}

func (p *player) matchesView(want, view map[string]any) bool {
	for k, w := range want {
		got, ok := view[k]
		if !ok {
			return false
		}
		if n, isNumber := w.(float64); isNumber && k == "broker_epoch" {
			w = float64(p.epochOf(int64(n)))
		}
		g := plain(got)
		if wl, isList := w.([]any); isList && (k == "partitions" || k == "live") {
			gl, _ := g.([]any)
			if !sameSet(wl, gl) {
				return false
			}
			continue
		}
		if !reflect.DeepEqual(w, g) {
			return false
		}
	}
	return true
}

func (p *player) sent(from int) []sim.Sent {
	var out []sim.Sent
	for _, n := range p.w.Notes[from:] {
		if s, ok := n.(sim.Sent); ok {
			out = append(out, s)
		}
	}
	return out
}

func (p *player) expectRequests(e *Expect) {
	all, counted := p.sent(0), p.sent(p.marked)
	for _, want := range e.Sent {
		if !slices.ContainsFunc(all, func(s sim.Sent) bool { return p.matches(want, s) }) {
			p.fail("not sent: %s; sent was %s", asJSON(want), p.similar(want, all))
		}
	}
	for _, want := range e.NotSent {
		for _, s := range counted {
			if p.matches(want, s) {
				p.fail("sent, but should not be: %s: %s", asJSON(want), describe(s))
				break
			}
		}
	}
	for _, want := range e.SentCounts {
		n := 0
		for _, s := range counted {
			if p.matches(want.Match, s) {
				n++
			}
		}
		if n != want.Count {
			p.fail("sent %d times, expected %d: %s", n, want.Count, asJSON(want.Match))
		}
	}
	for _, want := range e.LastSent {
		p.expectLast(want, all)
	}
	for _, want := range e.RequestCounts {
		match := maps.Clone(want)
		delete(match, "at_most")
		delete(match, "at_least")
		n := 0
		for _, s := range counted {
			if p.matches(match, s) {
				n++
			}
		}
		p.expectRange("requests like "+asJSON(match), want, float64(n))
	}
}

// expectLast wants the last request of its kind, receiver and partition to
// have the other fields.
func (p *player) expectLast(want map[string]any, all []sim.Sent) {
	key := map[string]any{}
	for _, k := range []string{"api", "to", "partition"} {
		if v, ok := want[k]; ok {
			key[k] = v
		}
	}
	for _, s := range slices.Backward(all) {
		if p.matches(key, s) {
			if !p.matches(want, s) {
				p.fail("last sent: expected %s, got %s", asJSON(want), describe(s))
			}
			return
		}
	}
	p.fail("last sent: expected %s, nothing like it was sent", asJSON(want))
}

// similar shows what was sent with the same api, receiver and partition.
func (p *player) similar(want map[string]any, all []sim.Sent) string {
	var out []string
	for _, s := range all {
		for _, v := range views(s) {
			if v["api"] != want["api"] || want["to"] != nil && !reflect.DeepEqual(plain(v["to"]), want["to"]) ||
				want["partition"] != nil && v["partition"] != want["partition"] {
				continue
			}
			part := map[string]any{}
			for k := range want {
				part[k] = v[k]
			}
			if t := asJSON(part); !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	if len(out) > 4 {
		out = append(out[:4], fmt.Sprintf("and %d more", len(out)-4))
	}
	return fmt.Sprint(out)
}

func describe(s sim.Sent) string {
	v := views(s)
	return asJSON(v[:max(1, len(v)-1)])
}

// expectOrder wants these to have happened in this order.
func (p *player) expectOrder(want []any) {
	at := 0
	for i, w := range want {
		for ; at < len(p.w.Notes); at++ {
			if p.isNote(w, p.w.Notes[at]) {
				break
			}
		}
		if at == len(p.w.Notes) {
			p.fail("order: item %d, %s, did not happen after those before it", i+1, asJSON(w))
			return
		}
		at++
	}
}

func (p *player) isNote(want any, n sim.Note) bool {
	switch w := want.(type) {
	case string:
		m, ok := n.(sim.Milestone)
		return ok && (w == m.What || w == fmt.Sprintf("%s /brokers/ids/%d", m.What, m.Who))
	case map[string]any:
		switch n := n.(type) {
		case sim.Sent:
			return w["api"] != nil && p.matches(w, n)
		case sim.Other:
			ev, ok := n.Value.(clientNote)
			return ok && ev.is(w)
		}
	}
	return false
}
