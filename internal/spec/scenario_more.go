package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// before lets others act in the middle of a handler: ahead of N's next
// operation of that kind on that path the commands are carried out, and every
// other candidate handles what comes of them. So N goes on with a view of the
// world that is no longer true.
func (s *Scenario) before(line string) error {
	parts := strings.Split(line, "|")
	words := strings.Fields(parts[0])
	if len(words) != 4 || len(parts) < 2 {
		return fmt.Errorf("want broker, op, path, then commands after |")
	}
	id, err := parseID(words[1])
	if err != nil {
		return err
	}
	store := s.w.Candidate(id).Store
	store.Before = func(st sim.Step) {
		if st.Op != words[2] || st.Path != words[3] {
			return
		}
		store.Before = nil
		for _, cmd := range parts[1:] {
			cmd = strings.TrimSpace(cmd)
			fields := strings.Fields(cmd)
			if err := s.act(fields[0], fields[1:], cmd); err != nil {
				s.print("error: %s: %v", cmd, err)
			}
		}
		for s.stepOthers(id) {
		}
	}
	return nil
}

// stepOthers lets one candidate other than id handle one event.
func (s *Scenario) stepOthers(id kafka.BrokerID) bool {
	for other := kafka.BrokerID(0); other < 200; other++ {
		if c := s.w.Candidates[other]; c != nil && other != id && c.Step() {
			return true
		}
	}
	return false
}

// step lets a candidate handle so many events, and nobody else anything.
func (s *Scenario) step(words []string) error {
	n := 1
	if len(words) > 1 {
		var err error
		if n, err = strconv.Atoi(words[1]); err != nil {
			return err
		}
	}
	return each(words, func(id kafka.BrokerID) error {
		for range n {
			if !s.w.Candidate(id).Step() {
				return fmt.Errorf("%d has no event to handle", id)
			}
		}
		return nil
	})
}

// setVersion is the protocol version of candidates that start from now on.
func (s *Scenario) setVersion(words []string) error {
	if len(words) != 1 {
		return fmt.Errorf("which version?")
	}
	v, err := kafka.ParseProtocolVersion(words[0])
	s.w.Options.Version = v
	return err
}

// answerTop gives a broker's held answers as an error for the request as a
// whole, with no row for any partition.
func (s *Scenario) answerTop(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("want a broker and an error")
	}
	code, ok := errorCodes()[words[1]]
	if !ok {
		return fmt.Errorf("unknown error code %q", words[1])
	}
	for i := range s.w.Held {
		if fmt.Sprint(s.w.Held[i].From) == words[0] {
			s.w.Held[i].Response.Error, s.w.Held[i].Response.Errors = code, nil
		}
	}
	return s.answer(words[:1])
}

// faultTimes reads how often a fault happens.
func (s *Scenario) faultTimes(f *sim.Fault, words []string) error {
	if len(words) < 5 {
		return nil
	}
	if words[4] == "always" {
		f.Times = -1
		return nil
	}
	n, err := strconv.Atoi(words[4])
	f.Times = n
	return err
}

// ---- what shows

func (s *Scenario) showerOfMore(cmd string) func(words []string) error {
	switch cmd {
	case "answers":
		return func([]string) error { s.showAnswers(); return nil }
	case "hosts":
		return s.showHosts
	case "meter":
		return func([]string) error {
			n := uint64(0)
			if c := s.w.Active(); c != nil {
				n = c.Controller().Gauges().UncleanElections
			}
			s.print("unclean elections: %d", n)
			return nil
		}
	case "reports":
		return func([]string) error { s.showReports(); return nil }
	case "handled":
		return func([]string) error { s.showHandled(); return nil }
	case "active":
		return func([]string) error { s.showActive(); return nil }
	}
	return nil
}

// showAnswers shows what brokers answered since the last time, errors only for
// partitions that have one; those of UpdateMetadata without error are left out.
func (s *Scenario) showAnswers() {
	for ; s.answered < len(s.w.Notes); s.answered++ {
		a, ok := s.w.Notes[s.answered].(sim.Answered)
		if !ok || a.Response.Kind == control.UpdateMetadataKey && a.Response.Error == kafka.NoError {
			continue
		}
		var rows []string
		for tp, code := range a.Response.Errors {
			rows = append(rows, tp.String()+" "+code.String())
		}
		slices.Sort(rows)
		text := strings.Join(rows, ", ")
		if a.Response.Error != kafka.NoError {
			text = strings.TrimSuffix(a.Response.Error.String()+"; "+text, "; ")
		}
		s.print("%d answers %s: %s", a.From, a.Response.Kind, text)
	}
}

func (s *Scenario) showHosts(words []string) error {
	return each(words, func(id kafka.BrokerID) error {
		var tps []kafka.TopicPartition
		for tp := range s.w.Brokers[id].Hosted {
			tps = append(tps, tp)
		}
		kafka.SortPartitions(tps)
		s.print("%d hosts %v", id, names(tps))
		return nil
	})
}

// showReports shows what was reported about znodes since the last time, each
// line as often as it was logged: path, reason, remedy (design decision D10).
func (s *Scenario) showReports() {
	for ; s.told < len(s.w.Notes); s.told++ {
		l, ok := s.w.Notes[s.told].(sim.Logged)
		if !ok {
			continue
		}
		switch {
		case l.Fields["remedy"] != nil:
			s.print("%v: %v; remedy: %v", l.Fields["path"], l.Fields["reason"], l.Fields["remedy"])
		case l.Message == "znode is readable again":
			s.print("%v: readable again", l.Fields["path"])
		}
	}
}

// showHandled shows the events candidates began to process since the last time.
func (s *Scenario) showHandled() {
	for ; s.handled < len(s.w.Notes); s.handled++ {
		if h, ok := s.w.Notes[s.handled].(sim.Handled); ok {
			s.print("%d %s", h.By, h.Event.Name())
		}
	}
}

// showActive shows who believes to be the controller, whatever /controller says.
func (s *Scenario) showActive() {
	var ids []kafka.BrokerID
	for id, c := range s.w.Candidates {
		if c.Active() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	s.print("active %s", list(ids))
}

// showTopicID tells whether a topic's znode has an id, and whether it is the
// one that was shown before.
func (s *Scenario) showTopicID(words []string) error {
	if len(words) != 1 {
		return fmt.Errorf("which topic?")
	}
	data, _, _ := s.w.ZK.Tree.GetData(zkserver.Who{}, zkpaths.TopicPath(words[0]))
	t, err := zkpaths.DecodeTopic(words[0], data)
	which := ""
	if old, ok := s.ids[words[0]]; ok {
		which = ", another than before"
		if old == t.ID {
			which = ", as before"
		}
	}
	if s.ids == nil {
		s.ids = map[string]kafka.TopicID{}
	}
	s.ids[words[0]] = t.ID
	s.print("%s version %d, has an id: %v%s", words[0], t.Version, !t.ID.IsZero(), which)
	return err
}

// uncleanDefault sets the broker-wide unclean.leader.election.enable as a tool
// does: the entity's znode, then the announcement.
func (s *Scenario) uncleanDefault(words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("want <default> or a broker, and true or false")
	}
	entity := "brokers/" + words[0]
	path := zkpaths.EntityConfigPath(entity)
	op := zkserver.Op{Path: path, ACL: zkserver.OpenACL(), Data: zkpaths.EncodeConfig(map[string]string{"unclean.leader.election.enable": words[1]})}
	if _, code := s.w.ZK.Tree.Exists(zkserver.Who{}, path); code == zkserver.OK {
		op.Kind, op.Version = zkserver.OpSet, zkserver.AnyVersion
	}
	if err := s.write(op); err != nil {
		return err
	}
	return s.write(zkserver.Op{Path: zkpaths.ConfigChangePrefix, Mode: zkserver.PersistentSequential, ACL: zkserver.OpenACL(),
		Data: zkpaths.EncodeConfigChange(zkpaths.ConfigChange{EntityPath: entity})})
}
