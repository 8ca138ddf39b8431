package endpoint

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func (e *Endpoint) alterReassignments(ctx context.Context, req *kmsg.AlterPartitionAssignmentsRequest) (kmsg.Response, error) {
	type answer struct {
		top  kafka.ErrorCode
		rows []events.RowError
	}
	wanted, refused := reassignmentRows(req)
	// Also without rows: only the loop knows whether we are the controller.
	got, err := ask(ctx, e, e.clients, func(reply func(answer)) events.Event {
		return events.AlterReassignments{Partitions: wanted,
			Reply: func(top kafka.ErrorCode, rows []events.RowError) { reply(answer{top, rows}) }}
	})
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	if got.top != kafka.NoError {
		resp.ErrorCode, resp.ErrorMessage = int16(got.top), topMessage(got.top)
		return resp, nil
	}
	if err := oneEach(nil, len(wanted), len(got.rows)); err != nil {
		return nil, err
	}
	results := make(map[kafka.TopicPartition]events.RowError, len(wanted))
	for i, w := range wanted {
		results[w.Partition] = got.rows[i]
	}
	for _, t := range req.Topics {
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}
			r, bad := refused[tp]
			if !bad {
				r = results[tp]
			}
			row := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			row.Partition, row.ErrorCode, row.ErrorMessage = p.Partition, int16(r.Error), message(r)
			out.Partitions = append(out.Partitions, row)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

// reassignmentRows divides what is asked into rows for the loop, each partition
// once, and partitions that were given two different targets.
func reassignmentRows(req *kmsg.AlterPartitionAssignmentsRequest) ([]events.ReassignmentRow, map[kafka.TopicPartition]events.RowError) {
	var rows []events.ReassignmentRow
	at := map[kafka.TopicPartition]int{}
	refused := map[kafka.TopicPartition]events.RowError{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			row := events.ReassignmentRow{Partition: kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition},
				Target: brokerIDs(p.Replicas), Cancel: p.Replicas == nil}
			i, seen := at[row.Partition]
			if !seen {
				at[row.Partition] = len(rows)
				rows = append(rows, row)
			} else if rows[i].Cancel != row.Cancel || !slices.Equal(rows[i].Target, row.Target) {
				refused[row.Partition] = refuse(kafka.InvalidReplicaAssignment, "partition %v is in the request with two different targets", row.Partition)
			}
		}
	}
	rows = slices.DeleteFunc(rows, func(r events.ReassignmentRow) bool {
		_, bad := refused[r.Partition]
		return bad
	})
	return rows, refused
}

func topMessage(code kafka.ErrorCode) *string {
	if code == kafka.NotController {
		return message(notController)
	}
	return message(events.RowError{Error: code})
}

func (e *Endpoint) listReassignments(ctx context.Context, req *kmsg.ListPartitionReassignmentsRequest) (kmsg.Response, error) {
	type answer struct {
		top  kafka.ErrorCode
		rows []events.OngoingReassignment
	}
	ev := events.ListReassignments{All: req.Topics == nil}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			ev.Partitions = append(ev.Partitions, kafka.TopicPartition{Topic: t.Topic, Partition: p})
		}
	}
	got, err := ask(ctx, e, e.clients, func(reply func(answer)) events.Event {
		ev.Reply = func(top kafka.ErrorCode, rows []events.OngoingReassignment) { reply(answer{top, rows}) }
		return ev
	})
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	resp.ErrorCode, resp.ErrorMessage = int16(got.top), topMessage(got.top)
	at := map[string]int{}
	for _, r := range got.rows {
		i, seen := at[r.Partition.Topic]
		if !seen {
			i = len(resp.Topics)
			at[r.Partition.Topic] = i
			t := kmsg.NewListPartitionReassignmentsResponseTopic()
			t.Topic = r.Partition.Topic
			resp.Topics = append(resp.Topics, t)
		}
		row := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
		row.Partition = r.Partition.Partition
		row.Replicas, row.AddingReplicas, row.RemovingReplicas = rawIDs(r.Replicas), rawIDs(r.Adding), rawIDs(r.Removing)
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, row)
	}
	return resp, nil
}

// The wire numbers of elections.
const (
	preferredElection = 0
	uncleanElection   = 1
)

func (e *Endpoint) electLeaders(ctx context.Context, req *kmsg.ElectLeadersRequest) (kmsg.Response, error) {
	type answer struct {
		top  kafka.ErrorCode
		rows []events.ElectionResult
	}
	ev := events.ElectLeaders{All: req.Topics == nil, Unclean: req.ElectionType == uncleanElection}
	asked := map[kafka.TopicPartition]bool{}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if tp := (kafka.TopicPartition{Topic: t.Topic, Partition: p}); !asked[tp] {
				asked[tp] = true
				ev.Partitions = append(ev.Partitions, tp)
			}
		}
	}
	if req.ElectionType != preferredElection && req.ElectionType != uncleanElection {
		return electionAnswer(req, kafka.UnknownServerError,
			electionRows(ev.Partitions, refuse(kafka.UnknownServerError, "unknown election type %d", req.ElectionType))), nil
	}
	bounded, cancel := timeoutContext(ctx, req.TimeoutMillis)
	defer cancel()
	got, err := ask(bounded, e, e.clients, func(reply func(answer)) events.Event {
		ev.Reply = func(top kafka.ErrorCode, rows []events.ElectionResult) { reply(answer{top, rows}) }
		return ev
	})
	if timedOut(ctx, err) {
		got, err = answer{top: kafka.RequestTimedOut}, nil
	}
	if err != nil {
		return nil, err
	}
	// What concerns the whole request stands in each row (spec/admin-api.md §1),
	// but who asked for all partitions gave no rows to put it in.
	if got.top != kafka.NoError && !ev.All {
		why := events.RowError{Error: got.top}
		if got.top == kafka.NotController {
			why = notController
		}
		got = answer{rows: electionRows(ev.Partitions, why)}
	}
	return electionAnswer(req, got.top, got.rows), nil
}

// timedOut tells whether err is the end of the request's own time, not of ctx.
func timedOut(ctx context.Context, err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
}

func electionRows(tps []kafka.TopicPartition, why events.RowError) []events.ElectionResult {
	rows := make([]events.ElectionResult, len(tps))
	for i, tp := range tps {
		rows[i] = events.ElectionResult{Partition: tp, RowError: why}
	}
	return rows
}

func electionAnswer(req *kmsg.ElectLeadersRequest, top kafka.ErrorCode, rows []events.ElectionResult) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	resp.ErrorCode = int16(top)
	at := map[string]int{}
	for _, r := range rows {
		i, seen := at[r.Partition.Topic]
		if !seen {
			i = len(resp.Topics)
			at[r.Partition.Topic] = i
			t := kmsg.NewElectLeadersResponseTopic()
			t.Topic = r.Partition.Topic
			resp.Topics = append(resp.Topics, t)
		}
		row := kmsg.NewElectLeadersResponseTopicPartition()
		row.Partition, row.ErrorCode, row.ErrorMessage = r.Partition.Partition, int16(r.Error), message(r.RowError)
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, row)
	}
	return resp
}
