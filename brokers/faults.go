package brokers

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/kafka"
)

// FaultRequest asks a broker to misbehave on purpose. Its JSON form is what
// the admin port takes.
type FaultRequest struct {
	Broker kafka.BrokerID `json:"broker"`
	// Op is one of FaultOps.
	Op string `json:"op"`
	// Follower, with pause, resume and slow: Broker, as a leader, sees this
	// follower so. Without it Broker's own fetchers are meant, which only leaders
	// in the same process see.
	Follower *kafka.BrokerID `json:"follower,omitempty"`
	// Partitions as topic-partition; none is all. For pause, resume, slow,
	// answer and fail-log-dir.
	Partitions []string `json:"partitions,omitempty"`
	// DelayMS is how far a slow follower stays behind, or with skew by how much the
	// broker's clock is wrong; that may be negative.
	DelayMS int64 `json:"delay_ms,omitempty"`
	// BytesPerSecond, with slow: how fast followers copy, where there are logs.
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
	// Peer, with cut and mend: the broker at the other end.
	Peer *kafka.BrokerID `json:"peer,omitempty"`
	// API, with answer: LeaderAndIsr, UpdateMetadata or StopReplica; "" is all three.
	API string `json:"api,omitempty"`
	// Error, with answer: Kafka's name of the code.
	Error string `json:"error,omitempty"`
	// Times, with answer: how many requests; 0 is until clear.
	Times int `json:"times,omitempty"`
}

// FaultResponse tells what became of a FaultRequest.
type FaultResponse struct {
	Broker kafka.BrokerID `json:"broker"`
	Op     string         `json:"op"`
	Error  string         `json:"error,omitempty"`
	State  *Snapshot      `json:"state,omitempty"` // with status
}

// FaultOps lists the operations, each with what it does.
var FaultOps = []struct{ Op, Does string }{
	{"pause", "fetchers stand still"},
	{"resume", "fetchers go on at full speed"},
	{"slow", "fetchers stay a delay behind, or copy no more than so many bytes a second; more than replica.lag.time.max.ms keeps them out of the ISR"},
	{"cut", "nothing passes between this broker and its peer, fetches and control requests alike"},
	{"mend", "it does again, with peer or, without one, with all"},
	{"skew", "the broker's clock is fast by a delay, or slow by a negative one"},
	{"bounce", "kill, then restart at once"},
	{"kill", "the process ends: port shut, session closed at once"},
	{"crash", "the process ends: port shut, session left to its timeout"},
	{"restart", "a killed or crashed process starts again; its logs are still there"},
	{"expire-session", "the ZooKeeper session ends and a new one is opened"},
	{"refuse", "the port is shut"},
	{"accept", "the port is open again"},
	{"hang", "control requests are not answered"},
	{"unhang", "they are, those that waited first"},
	{"answer", "control requests are not carried out but answered with an error"},
	{"fail-log-dir", "partitions go offline, and the controller is told"},
	{"clear", "answer, hang, cut and skew, and faults set on followers here, end"},
	{"status", "nothing; gives the state"},
}

// Fault is a FaultRequest as an event. Reply is called once and must not block.
type Fault struct {
	Request FaultRequest
	Reply   func(FaultResponse)
}

// faults are the misbehaviours in force.
type faults struct {
	refusing  bool
	hanging   bool
	answers   []*wrongAnswer
	followers map[kafka.BrokerID]condition // as seen by us, leading

	// With logs.
	all  condition                          // of our own fetchers
	some map[kafka.TopicPartition]condition // overrides all
	cut  map[kafka.BrokerID]bool            // no way to and from these
	held []Event                            // what came from paused followers, and from brokers behind a cut
	late []*lateAnswer                      // what our slow fetchers wait for
	lost []lostRequest                      // of brokers behind a cut in other processes
	skew time.Duration                      // of our clock
}

// wrongAnswer is one fault of kind answer.
type wrongAnswer struct {
	kind       control.Kind // 0 is any
	code       kafka.ErrorCode
	partitions []kafka.TopicPartition // none: the top level
	times      int                    // left; negative is forever
}

// forget ends the faults with the process, but for the clock's, which is the machine's.
func (f *faults) forget() {
	*f = faults{followers: map[kafka.BrokerID]condition{}, some: map[kafka.TopicPartition]condition{}, cut: map[kafka.BrokerID]bool{}, skew: f.skew}
}

// answer gives the wrong answer to a request, if one is due. Partitions that
// the fault does not name are answered NONE, and nothing is carried out.
func (f *faults) answer(r control.Request) (control.Response, bool) {
	for _, a := range f.answers {
		if a.times == 0 || a.kind != 0 && a.kind != r.Kind() {
			continue
		}
		tps := partitionsOf(r)
		if len(a.partitions) > 0 && !slices.ContainsFunc(tps, func(tp kafka.TopicPartition) bool { return slices.Contains(a.partitions, tp) }) {
			continue
		}
		if a.times > 0 {
			a.times--
		}
		resp := control.Response{Kind: r.Kind(), Request: r}
		if len(a.partitions) == 0 {
			resp.Error = a.code
		}
		if r.Kind() == control.LeaderAndISRKey || len(a.partitions) > 0 {
			resp.Errors = map[kafka.TopicPartition]kafka.ErrorCode{}
			for _, tp := range tps {
				resp.Errors[tp] = kafka.NoError
				if len(a.partitions) == 0 || slices.Contains(a.partitions, tp) {
					resp.Errors[tp] = a.code
				}
			}
		}
		return resp, true
	}
	return control.Response{}, false
}

func partitionsOf(r control.Request) []kafka.TopicPartition {
	var tps []kafka.TopicPartition
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		for _, s := range r.Partitions {
			tps = append(tps, s.TopicPartition)
		}
	case *control.StopReplicaRequest:
		for _, s := range r.Partitions {
			tps = append(tps, s.TopicPartition)
		}
	}
	return tps
}

// fault is a FaultRequest that was understood.
type fault struct {
	FaultRequest
	tps  []kafka.TopicPartition
	kind control.Kind
	code kafka.ErrorCode
}

func (r FaultRequest) parse() (fault, error) {
	f := fault{FaultRequest: r}
	for _, s := range r.Partitions {
		tp, err := kafka.ParseTopicPartition(s)
		if err != nil {
			return f, err
		}
		f.tps = append(f.tps, tp)
	}
	if r.DelayMS < 0 && r.Op != "skew" || r.Op == "slow" && r.DelayMS == 0 && r.BytesPerSecond <= 0 {
		return f, fmt.Errorf("a delay of %d ms: want a positive one, or for slow bytes a second", r.DelayMS)
	}
	if r.Op == "cut" && r.Peer == nil {
		return f, fmt.Errorf("the peer is missing: name the broker at the other end")
	}
	if r.Op != "answer" {
		return f, nil
	}
	if r.API != "" {
		kinds := []control.Kind{control.LeaderAndISRKey, control.UpdateMetadataKey, control.StopReplicaKey}
		i := slices.IndexFunc(kinds, func(k control.Kind) bool { return k.String() == r.API })
		if i < 0 {
			return f, fmt.Errorf("api %q: want LeaderAndIsr, UpdateMetadata or StopReplica", r.API)
		}
		f.kind = kinds[i]
	}
	for code := kafka.UnknownServerError; code < 200; code++ {
		if code.String() == r.Error && code != kafka.NoError {
			f.code = code
			return f, nil
		}
	}
	return f, fmt.Errorf("error %q: want the name of one of Kafka's error codes, such as KAFKA_STORAGE_ERROR", r.Error)
}

func (e Fault) apply(b *Broker, now time.Time) {
	resp := FaultResponse{Broker: b.opts.ID, Op: e.Request.Op}
	f, err := e.Request.parse()
	if err == nil {
		err = b.misbehave(now, f)
	}
	if err != nil {
		resp.Error = fmt.Sprintf("broker %d: %s: %v", b.opts.ID, e.Request.Op, err)
	} else if f.Op == "status" {
		s := b.Snapshot()
		resp.State = &s
	} else {
		b.log.WithFields(b.fields()).WithField("op", f.Op).WithField("partitions", f.Partitions).Warn("fault set")
	}
	if e.Reply != nil {
		e.Reply(resp)
	}
}

func (b *Broker) misbehave(now time.Time, f fault) error {
	if b.phase == down && f.Op != "restart" && f.Op != "status" {
		return fmt.Errorf("the broker is down: restart it first")
	}
	switch f.Op {
	case "pause", "resume", "slow":
		b.disturbFetching(now, f)
	case "kill", "crash":
		leaves := b.phase == leaving
		b.die(now)
		if f.Op == "kill" {
			b.emit(CloseSession{})
		} else {
			b.emit(AbandonSession{})
		}
		if leaves {
			b.emit(Exit{}) // somebody waits for its end
		}
	case "restart":
		if b.phase != down {
			return fmt.Errorf("the broker is up")
		}
		b.emit(OpenSession{})
		Start{}.apply(b, now)
	case "bounce":
		b.die(now)
		b.emit(CloseSession{})
		b.emit(OpenSession{})
		Start{}.apply(b, now)
	case "cut":
		b.cutOff(now, *f.Peer)
	case "mend":
		b.mend(now, f.Peer)
	case "skew":
		b.setClock(time.Duration(f.DelayMS) * time.Millisecond)
	case "expire-session":
		b.emit(ExpireSession{})
	case "refuse", "accept":
		b.faults.refusing = f.Op == "refuse"
		if b.faults.refusing { // connections end with the port, also those that are none
			for _, w := range b.local {
				b.forgetFetch(now, w)
				w.fail(ErrDown)
			}
		}
		b.emit(SetListening{Open: !b.faults.refusing})
	case "hang":
		b.faults.hanging = true
	case "unhang":
		b.unhang(now)
	case "answer":
		times := f.Times
		if times <= 0 {
			times = -1
		}
		b.faults.answers = append(b.faults.answers, &wrongAnswer{kind: f.kind, code: f.code, partitions: f.tps, times: times})
	case "fail-log-dir":
		b.failLogDir(now, f.tps)
	case "clear":
		b.faults.answers = nil
		b.setClock(0)
		for _, id := range slices.Sorted(maps.Keys(b.faults.followers)) {
			b.faults.followers[id] = condition{since: now} // it has to catch up from here
			b.repl.Changed(now, id, nil)
		}
		b.mend(now, nil)
		b.unhang(now)
	case "status":
	default:
		return fmt.Errorf("unknown op; want one of %s", opNames())
	}
	return nil
}

// setClock makes the clock wrong by so much. Without logs what is due goes along.
func (b *Broker) setClock(skew time.Duration) {
	by := skew - b.faults.skew
	b.faults.skew = skew
	if b.opts.Logs != nil {
		return
	}
	for _, at := range []*time.Time{&b.shrinkAt, &b.checkAt, &b.registerAt, &b.alter.lookupAt, &b.alter.retryAt, &b.goodbye.retryAt} {
		if !at.IsZero() {
			*at = at.Add(by)
		}
	}
}

func opNames() (names []string) {
	for _, o := range FaultOps {
		names = append(names, o.Op)
	}
	return names
}

func (b *Broker) unhang(now time.Time) {
	b.faults.hanging = false
	if b.phase != starting {
		b.serveWaiting(now)
	}
}

func (b *Broker) disturbFetching(now time.Time, f fault) {
	change := func(c *condition) {
		switch f.Op {
		case "pause":
			if !c.paused {
				*c = condition{paused: true, since: now}
			}
		case "resume":
			*c = condition{since: now}
		case "slow":
			if c.paused {
				c.since = now
			}
			c.paused, c.behind, c.rate = false, time.Duration(f.DelayMS)*time.Millisecond, f.BytesPerSecond
		}
	}
	if f.Follower == nil && b.opts.Logs == nil {
		b.board.condition(b.opts.ID, f.tps, change)
		return
	}
	if f.Follower == nil {
		b.disturbOwn(now, f.tps, change)
		return
	}
	c := b.faults.followers[*f.Follower]
	change(&c)
	b.faults.followers[*f.Follower] = c
	b.repl.Changed(now, *f.Follower, nil)
	if b.opts.Logs != nil {
		b.disturbFollower(now, *f.Follower, c)
	}
}

// failLogDir takes partitions offline, all of them if none are named
// (spec/broker.md §1.9): they forget everything and answer KAFKA_STORAGE_ERROR.
func (b *Broker) failLogDir(now time.Time, tps []kafka.TopicPartition) {
	if len(tps) == 0 {
		for tp := range b.partitions {
			tps = append(tps, tp)
		}
		kafka.SortPartitions(tps)
	}
	for _, tp := range tps {
		p := b.partitions[tp]
		if p == nil {
			continue
		}
		if !p.offline {
			b.offline++
		}
		b.repl.Unlead(tp)
		if b.opts.Logs != nil {
			b.goOffline(now, p)
			continue
		}
		b.board.unfollow(b.opts.ID, tp, time.Time{})
		*p = *newPartition(tp)
		p.offline = true
	}
	b.emit(NotifyLogDirFailure{Broker: b.opts.ID, run: b.run})
}

// controllerOf gives who sent a control request.
func controllerOf(r control.Request) kafka.BrokerID {
	switch r := r.(type) {
	case *control.LeaderAndISRRequest:
		return r.ControllerID
	case *control.UpdateMetadataRequest:
		return r.ControllerID
	case *control.StopReplicaRequest:
		return r.ControllerID
	}
	return kafka.NoController
}
