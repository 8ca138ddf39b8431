package spec

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/isrnotify"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/sim"
	"github.com/zkcontroller/zkcontroller/zkpaths"
	"github.com/zkcontroller/zkcontroller/zkserver"
)

// brokerProcess is an emulated broker, stepped by the case.
type brokerProcess struct {
	broker *brokers.Broker
	store  *sim.Store
	p      *player
	ended  bool
}

// Listen and the rest make a brokerProcess its broker's own Process.
func (b *brokerProcess) Listen(bool) error  { return nil }
func (b *brokerProcess) OpenSession() error { b.store.Reconnect(); return nil }
func (b *brokerProcess) CloseSession()      { b.p.w.ZK.EndSession(b.store.Session()) }
func (b *brokerProcess) AbandonSession()    {}
func (b *brokerProcess) ExpireSession()     { b.p.w.ZK.EndSession(b.store.Session()) }

// AlterPartition and ControlledShutdown are not asked for in these cases: a
// broker here registers, and answers.
func (b *brokerProcess) AlterPartition(context.Context, kafka.Broker, *brokers.AlterPartitionRequest) (brokers.AlterPartitionAnswer, error) {
	return brokers.AlterPartitionAnswer{}, errors.New("the case's broker has no connection to a controller")
}

func (b *brokerProcess) ControlledShutdown(context.Context, kafka.Broker, kafka.BrokerID, int64) (kafka.ErrorCode, []kafka.TopicPartition, error) {
	return kafka.UnknownServerError, nil, errors.New("the case's broker has no connection to a controller")
}

// caseHost is the host that cases give broker N.
func caseHost(id kafka.BrokerID) string { return "kafka-" + strconv.Itoa(int(id)) + ".example.net" }

func caseRegistration(id kafka.BrokerID) []byte {
	r := sim.Registration(id)
	r.Endpoints[0].Host = caseHost(id)
	return zkpaths.EncodeBroker(r)
}

// process makes the process of a broker, with a session of its own.
func (p *player) process(key string, id kafka.BrokerID, session int64, endpoints []kafka.Endpoint) (*brokerProcess, error) {
	b, err := brokers.New(brokers.Options{ID: id, Endpoints: endpoints, Version: kafka.V3_9IV0}, nil, nil)
	if err != nil {
		return nil, err
	}
	bp := &brokerProcess{broker: b, p: p, store: sim.NewStore(p.w.ZK, func(zkpaths.Notice) {})}
	if session != 0 {
		p.w.ZK.OpenSession(session)
		bp.store.Attach(session)
	}
	p.brokers[key] = bp
	return bp, nil
}

// running gives the process of a broker that is there from the start.
func (p *player) running(id kafka.BrokerID) (*brokerProcess, error) {
	key := fmt.Sprintf("%d/", id)
	if b := p.brokers[key]; b != nil {
		return b, nil
	}
	known := p.w.Brokers[id]
	if known == nil || known.Session == 0 {
		return nil, fmt.Errorf("broker %d is not there", id)
	}
	b, err := p.process(key, id, known.Session, endpointsOf(id, ""))
	if err != nil {
		return nil, err
	}
	b.happen(brokers.Start{})
	return b, nil
}

// happen lets an event happen and carries out what follows, waiting in virtual
// time for what the broker itself waits for, for at most a minute.
func (b *brokerProcess) happen(ev brokers.Event) {
	world := brokers.World{Store: b.store, Controller: b, Process: b, Now: b.p.w.ZK.Time}
	todo := []brokers.Event{ev}
	until := b.p.w.ZK.Now + time.Minute
	for !b.ended {
		for len(todo) > 0 && !b.ended {
			next := todo[0]
			todo = todo[1:]
			for _, e := range b.broker.Step(b.p.w.ZK.Time(), next) {
				if exit, ok := e.(brokers.Exit); ok {
					b.ended = true
					if exit.Err != nil {
						b.p.problems = append(b.p.problems, problem{logrus.FatalLevel, exit.Err.Error()})
					}
					continue
				}
				if answer := world.Perform(context.Background(), e); answer != nil {
					todo = append(todo, answer)
				}
			}
		}
		at, ok := b.broker.Deadline()
		wait := at.Sub(b.p.w.ZK.Time())
		if !ok || b.p.w.ZK.Now+wait > until || b.isRegistered() {
			return
		}
		if wait > 0 {
			b.p.w.Advance(wait)
		}
		todo = append(todo, nil)
	}
}

func (b *brokerProcess) isRegistered() bool {
	st, code := b.p.w.ZK.Tree.Exists(zkserver.Who{}, zkpaths.BrokerPath(b.broker.ID()))
	return code == zkserver.OK && st.EphemeralOwner == b.store.Session()
}

// brokerSession is what happens to a broker's session.
func brokerSession(p *player, s *Step) error {
	if s.Broker == nil {
		return errWhich
	}
	id := kafka.BrokerID(*s.Broker)
	var what string
	if err := unquote(s.Event, &what); err != nil {
		return err
	}
	sessions := map[string]int64{}
	for name, v := range map[string]string{"old": s.Old, "new": s.New} {
		if v == "" {
			continue
		}
		n, err := parseSession(v)
		if err != nil {
			return err
		}
		sessions[name] = n
	}
	key := fmt.Sprintf("%d/%s", id, s.Process)
	bp := p.brokers[key]
	switch what {
	case "expired-on-client":
		if bp == nil {
			var err error
			if bp, err = p.process(key, id, sessions["old"], endpointsOf(id, s.Host)); err != nil {
				return err
			}
			bp.happen(brokers.Start{})
		}
		bp.happen(brokers.SessionExpired{})
		p.w.ZK.OpenSession(sessions["new"])
		bp.store.Attach(sessions["new"])
		return nil
	case "register":
		return p.registerProcess(key, id, bp, sessions["new"], s)
	}
	return fmt.Errorf("unknown session event %q", what)
}

func (p *player) registerProcess(key string, id kafka.BrokerID, bp *brokerProcess, session int64, s *Step) error {
	if bp == nil && s.Process == "" && p.w.Candidates[id] != nil {
		return p.w.Renew(id, session)
	}
	if bp == nil {
		var err error
		if bp, err = p.process(key, id, session, endpointsOf(id, s.Host)); err != nil {
			return err
		}
		if s.LoseAnswer {
			bp.store.Inject(sim.Fault{Op: "create", Path: zkpaths.BrokerPath(id), Effect: sim.LoseAnswer})
		}
		bp.happen(brokers.Start{})
		return nil
	}
	bp.happen(brokers.SessionEstablished{})
	return nil
}

func endpointsOf(id kafka.BrokerID, host string) []kafka.Endpoint {
	if host == "" {
		host = caseHost(id)
	}
	return []kafka.Endpoint{{Listener: "PLAINTEXT", Protocol: kafka.Plaintext, Host: host, Port: 9092}}
}

// reconnectBroker tells whether a session is that of a broker process, whose
// store resumed by itself.
func (p *player) reconnectBroker(name string) bool {
	id, err := parseSession(name)
	if err != nil {
		return false
	}
	for _, b := range p.brokers {
		if b.store.Session() == id {
			return true
		}
	}
	return false
}

// brokerStart starts a process with the given endpoints or meta.properties.
func brokerStart(p *player, s *Step) error {
	if s.Broker == nil {
		return errWhich
	}
	id := kafka.BrokerID(*s.Broker)
	if s.MetaProperties != nil {
		m, err := config.MetaPropertiesOf(config.MetaPropertiesFile, s.MetaProperties)
		if err == nil {
			err = m.CheckBroker(config.MetaPropertiesFile, int32(id))
		}
		if err != nil { // it does not start
			p.problems = append(p.problems, problem{logrus.FatalLevel, err.Error()})
			return nil
		}
	}
	endpoints := endpointsOf(id, s.Host)
	if len(s.Endpoints) > 0 {
		endpoints = nil
		for _, text := range s.Endpoints {
			e, err := zkpaths.ParseEndpoint(text)
			if err != nil {
				return err
			}
			endpoints = append(endpoints, e)
		}
	}
	bp, err := p.process(fmt.Sprintf("%d/%s", id, s.Process), id, 0, endpoints)
	if err != nil {
		return err
	}
	bp.happen(brokers.Start{})
	return nil
}

// announcements collects ISR changes of leaders in virtual time.
type announcements struct {
	start   time.Duration
	changes []isrChange
}

type isrChange struct {
	at time.Duration
	tp kafka.TopicPartition
}

func isrChanged(p *player, s *Step) error {
	tp, err := kafka.ParseTopicPartition(s.Partition)
	if err != nil {
		return err
	}
	if p.isr == nil {
		p.isr = &announcements{start: p.w.ZK.Now}
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	if s.EveryMS <= 0 {
		p.isr.changes = append(p.isr.changes, isrChange{ms(s.AtMS), tp})
		return nil
	}
	for at := s.FromMS; at <= s.UntilMS; at += s.EveryMS {
		p.isr.changes = append(p.isr.changes, isrChange{ms(at), tp})
	}
	return nil
}

// expectNotifications runs the announcer over all changes and compares what
// it announced and when.
func (p *player) expectNotifications(want []announced) {
	if p.isr == nil {
		p.fail("notifications are expected, but no ISR was changed")
		return
	}
	opts := isrnotify.Options{}
	if c := p.c.Given.Config.Propagation; c != nil {
		opts.CheckPeriod, opts.Linger, opts.MaxDelay = time.Duration(c.Check)*time.Millisecond, time.Duration(c.Linger)*time.Millisecond, time.Duration(c.MaxDelay)*time.Millisecond
	}
	base := time.UnixMilli(0)
	a := isrnotify.NewPropagator(opts, base.Add(p.isr.start))
	var end time.Duration
	for _, c := range p.isr.changes {
		end = max(end, c.at)
	}
	var got []announced
	left := p.isr.changes
	for at := p.isr.start; at <= end+2*time.Minute; at += a.CheckPeriod() {
		var later []isrChange
		for _, c := range left { // those up to now, in time order: the file's order is not time's
			if c.at > at {
				later = append(later, c)
			}
		}
		for _, c := range sortedChanges(left, at) {
			a.Record(c.tp, base.Add(c.at))
		}
		left = later
		batches, ok := a.Check(base.Add(at))
		if !ok {
			continue
		}
		for _, b := range batches {
			got = append(got, announced{at.Milliseconds(), string(zkpaths.EncodeISRNotification(b))})
			a.Sent(b, base.Add(at))
		}
	}
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = got[i].AtMS == want[i].AtMS && sameNode([]byte(want[i].Data), []byte(got[i].Data))
	}
	if !same {
		p.fail("notifications: expected %v, got %v", want, got)
	}
}
