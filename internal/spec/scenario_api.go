package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zkcontroller/zkcontroller/controller"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// api sends a request to the one in charge, or to broker N with "to=N". The
// answer is printed when it comes.
//
//	api reassign T-0=4,5 T-1=cancel
//	api list [T-0 …]
//	api elect preferred|unclean [T-0 …]
//	api shutdown N [epoch=E]
//	api alter N T-0 isr=1,2 [le=] [pe=] [recovery=] [v=] [epoch=]    what is left out is right
//	api create T 0=1,2 … · api partitions T COUNT · api delete T
//	api pids N
func (s *Scenario) api(words []string) error {
	if len(words) == 0 {
		return fmt.Errorf("which request?")
	}
	args := words[1:]
	var ev events.Event
	var err error
	switch words[0] {
	case "reassign":
		ev, err = s.apiReassign(plainWords(args))
	case "list":
		ev, err = s.apiList(plainWords(args))
	case "elect":
		ev, err = s.apiElect(plainWords(args))
	case "shutdown":
		ev, err = s.apiShutdown(args)
	case "alter":
		ev, err = s.apiAlter(args)
	case "create", "partitions", "delete":
		ev, err = s.apiTopics(words[0], plainWords(args))
	case "pids":
		ev, err = s.apiProducerIDs(args)
	default:
		err = fmt.Errorf("unknown request %q", words[0])
	}
	if err != nil {
		return err
	}
	if to, ok := option(args, "to"); ok {
		return each([]string{to}, func(id kafka.BrokerID) error { s.w.Candidate(id).Put(ev); return nil })
	}
	if s.w.Active() == nil {
		controller.Preempt(ev)
		return nil
	}
	return s.put(ev)
}

// plainWords leaves out the "to" option.
func plainWords(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(w string) bool { return strings.HasPrefix(w, "to=") })
}

func option(words []string, key string) (string, bool) {
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v, true
		}
	}
	return "", false
}

func number(words []string, key string, otherwise int64) (int64, error) {
	v, ok := option(words, key)
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%q is no number", key, v)
	}
	return n, nil
}

func (s *Scenario) apiReassign(words []string) (events.Event, error) {
	moves, err := parseMoves(words)
	if err != nil {
		return nil, err
	}
	var rows []events.ReassignmentRow
	for i, m := range moves {
		rows = append(rows, events.ReassignmentRow{Partition: m.Partition, Target: m.Replicas, Cancel: strings.HasSuffix(words[i], "=cancel")})
	}
	return events.AlterReassignments{Partitions: rows, Reply: func(top kafka.ErrorCode, got []events.RowError) {
		if top != kafka.NoError {
			s.print("answer %s", top)
			return
		}
		for i, r := range got {
			s.print("answer %s %s", rows[i].Partition, r.Error)
		}
	}}, nil
}

func (s *Scenario) apiList(words []string) (events.Event, error) {
	tps, err := parsePartitions(words)
	return events.ListReassignments{Partitions: tps, All: len(tps) == 0, Reply: func(top kafka.ErrorCode, rows []events.OngoingReassignment) {
		if top != kafka.NoError || len(rows) == 0 {
			s.print("answer %s", top)
		}
		for _, r := range rows {
			s.print("answer %s RS=%s AR=%s RR=%s", r.Partition, list(r.Replicas), list(r.Adding), list(r.Removing))
		}
	}}, err
}

func (s *Scenario) apiElect(words []string) (events.Event, error) {
	if len(words) == 0 {
		return nil, fmt.Errorf("preferred or unclean?")
	}
	tps, err := parsePartitions(words[1:])
	return events.ElectLeaders{Partitions: tps, All: len(tps) == 0, Unclean: words[0] == "unclean",
		Reply: func(top kafka.ErrorCode, rows []events.ElectionResult) {
			if top != kafka.NoError || len(rows) == 0 {
				s.print("answer %s", top)
			}
			for _, r := range rows {
				s.print("answer %s %s", r.Partition, r.Error)
			}
		}}, err
}

func (s *Scenario) apiShutdown(words []string) (events.Event, error) {
	if len(words) == 0 {
		return nil, errWhich
	}
	id, err := parseID(words[0])
	if err != nil {
		return nil, err
	}
	epoch := kafka.NoBrokerEpoch
	if b := s.w.Brokers[id]; b != nil {
		epoch = b.Epoch
	}
	if epoch, err = number(words, "epoch", epoch); err != nil {
		return nil, err
	}
	return events.ControlledShutdown{Broker: id, BrokerEpoch: epoch, Reply: func(code kafka.ErrorCode, left []kafka.TopicPartition) {
		s.print("answer %s %v", code, names(left))
	}}, nil
}

func (s *Scenario) apiAlter(words []string) (events.Event, error) {
	if len(words) < 2 {
		return nil, fmt.Errorf("want a broker and a partition")
	}
	id, err := parseID(words[0])
	if err != nil {
		return nil, err
	}
	tps, err := parsePartitions(words[1:2])
	if err != nil {
		return nil, err
	}
	l, _ := s.w.Leadership(tps[0])
	epoch := int64(0)
	if b := s.w.Brokers[id]; b != nil {
		epoch = b.Epoch
	}
	values := map[string]int64{"le": int64(l.LeaderEpoch), "pe": int64(l.ZKVersion), "recovery": int64(l.Recovery), "v": 3, "epoch": epoch}
	for k, d := range values {
		if values[k], err = number(words, k, d); err != nil {
			return nil, err
		}
	}
	isr, ok := option(words, "isr")
	if !ok {
		isr = joined(l.ISR)
	}
	ids, err := parseIDs(isr)
	if err != nil {
		return nil, err
	}
	row := events.AlterPartitionRow{Topic: tps[0].Topic, Partition: tps[0].Partition, LeaderEpoch: int32(values["le"]), ISR: ids,
		Recovery: int8(values["recovery"]), ZKVersion: int32(values["pe"])}
	if topic := s.context().Topic(tps[0].Topic); topic != nil && values["v"] >= 2 && !topic.ID.IsZero() {
		row.Topic, row.ID = "", topic.ID
	}
	if id, ok := option(words, "topic-id"); ok {
		if row.ID, err = kafka.ParseTopicID(id); err != nil {
			return nil, err
		}
		row.Topic = ""
	}
	return events.AlterPartition{Broker: id, BrokerEpoch: values["epoch"], Version: int16(values["v"]), Partitions: []events.AlterPartitionRow{row},
		Reply: func(top kafka.ErrorCode, rows []events.AlterPartitionResult) {
			switch {
			case top != kafka.NoError || len(rows) != 1:
				s.print("answer %s", top)
			case rows[0].Error != kafka.NoError:
				s.print("answer %s %s", tps[0], rows[0].Error)
			default:
				r := rows[0]
				s.print("answer %s L=%d LE=%d ISR=%s PE=%d", tps[0], r.Leader, r.LeaderEpoch, list(r.ISR), r.ZKVersion)
			}
		}}, nil
}

func (s *Scenario) apiTopics(cmd string, words []string) (events.Event, error) {
	if len(words) == 0 {
		return nil, fmt.Errorf("which topic?")
	}
	row := func(e events.RowError, pending bool) {
		text := ""
		if pending {
			text = " pending"
		}
		s.print("answer %s %s%s", words[0], e.Error, text)
	}
	switch cmd {
	case "create":
		parts, err := parseAssignment(words[1:])
		t := events.NewTopic{Name: words[0], Partitions: -1, ReplicationFactor: -1, Assignment: map[int32][]kafka.BrokerID{}}
		for _, p := range parts {
			t.Assignment[p.Partition] = p.Replicas
		}
		return events.CreateTopics{Topics: []events.NewTopic{t}, Reply: func(rows []events.NewTopicResult) {
			row(rows[0].RowError, rows[0].Pending)
		}}, err
	case "partitions":
		if len(words) < 2 {
			return nil, fmt.Errorf("how many partitions?")
		}
		n, err := strconv.ParseInt(words[1], 10, 32)
		return events.CreatePartitions{Topics: []events.MorePartitions{{Topic: words[0], Count: int32(n)}},
			Reply: func(rows []events.MorePartitionsResult) { row(rows[0].RowError, rows[0].Pending) }}, err
	}
	return events.DeleteTopics{Topics: []events.TopicRef{{Name: words[0]}},
		Reply: func(rows []events.DeletedTopic) { row(rows[0].RowError, rows[0].Pending) }}, nil
}

func (s *Scenario) apiProducerIDs(words []string) (events.Event, error) {
	if len(words) == 0 {
		return nil, errWhich
	}
	id, err := parseID(words[0])
	if err != nil {
		return nil, err
	}
	epoch := int64(0)
	if b := s.w.Brokers[id]; b != nil {
		epoch = b.Epoch
	}
	return events.AllocateProducerIDs{Broker: id, BrokerEpoch: epoch, Reply: func(code kafka.ErrorCode, start int64, n int32) {
		s.print("answer %s %d+%d", code, start, n)
	}}, nil
}
