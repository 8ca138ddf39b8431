package controller

import (
	"encoding/json"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Record is everything one event led to, in order: what was read, written,
// decided and sent. With the same reads and outcomes the same event gives the
// same record again.
type Record struct {
	Seq         uint64            `json:"seq"`
	Time        time.Time         `json:"time"`
	Micros      int64             `json:"micros"` // how long it took
	Event       string            `json:"event"`
	About       any               `json:"about,omitempty"` // the event's content, without functions
	Active      bool              `json:"active"`          // whether we were in charge at its end
	Epoch       int32             `json:"controller_epoch"`
	Reads       []RecordedRead    `json:"reads,omitempty"`
	Writes      []RecordedWrite   `json:"writes,omitempty"`
	Transitions []Transition      `json:"transitions,omitempty"`
	Requests    []RecordedRequest `json:"requests,omitempty"`
	Error       string            `json:"error,omitempty"`
}

// RecordedRead is one answered read.
type RecordedRead struct {
	Op       string   `json:"op"`
	Path     string   `json:"path"`
	Watch    bool     `json:"watch,omitempty"`
	Code     string   `json:"code"`
	Data     *string  `json:"data,omitempty"` // null payloads are left out
	Version  int32    `json:"version"`
	Children []string `json:"children,omitempty"`
}

// RecordedWrite is one write and its outcome.
type RecordedWrite struct {
	Op      string  `json:"op"`
	Path    string  `json:"path"`
	Data    *string `json:"data,omitempty"`
	Expect  int32   `json:"if_version"`
	Code    string  `json:"code"`
	Version int32   `json:"version"` // after it
}

// Transition is a change of state and its cause, or one that failed and why.
type Transition struct {
	Who        string            `json:"who"` // topic-partition, or topic-partition/broker
	From       string            `json:"from"`
	To         string            `json:"to"`
	Cause      string            `json:"cause,omitempty"`
	Leadership *kafka.Leadership `json:"leadership,omitempty"`
	Unclean    bool              `json:"unclean,omitempty"` // the leader is from outside the ISR: records may be lost
	Error      string            `json:"error,omitempty"`
}

// RecordedRequest is one control request as it was queued.
type RecordedRequest struct {
	Kind       string   `json:"kind"`
	To         int32    `json:"to"`
	Partitions []string `json:"partitions"`
}

// recorder fills a Record while an event runs. Without a sink all its methods
// do nothing.
type recorder struct {
	c    *Controller
	sink func(Record)
	seq  uint64
	now  Record
}

func newRecorder(c *Controller) *recorder { return &recorder{c: c} }

// SetRecorder makes every event's Record go to sink, which must not block; nil
// switches records off. Call it before events are processed.
func (c *Controller) SetRecorder(sink func(Record)) { c.rec.sink = sink }

func (r *recorder) on() bool { return r.sink != nil }

func (r *recorder) begin(batch []events.Event) {
	r.seq++
	if !r.on() {
		return
	}
	r.now = Record{Seq: r.seq, Time: r.c.opts.Now(), Event: batch[0].Name(), About: about(batch[0])}
}

// about gives an event's content if it can be printed: requests carry functions.
func about(ev events.Event) any {
	switch e := ev.(type) {
	case events.AlterPartition:
		e.Reply = nil
		return struct {
			Broker     kafka.BrokerID
			Partitions []events.AlterPartitionRow
		}{e.Broker, e.Partitions}
	case events.ControlledShutdown:
		return struct {
			Broker      kafka.BrokerID
			BrokerEpoch int64
		}{e.Broker, e.BrokerEpoch}
	case events.AlterReassignments:
		return e.Partitions
	case events.ElectLeaders:
		return e.Partitions
	case events.CreateTopics:
		return e.Topics
	case events.CreatePartitions:
		return e.Topics
	case events.DeleteTopics:
		return e.Topics
	case events.LeaderAndISRResponse, events.StopReplicaResponse:
		return nil // the codes stand in the broker's own log; maps by partition do not print
	case events.BrokerModifications, events.PartitionModifications, events.PartitionReassignmentISRChange,
		events.TopicUncleanElectionEnabled, events.UpdateMetadataResponse:
		return e
	}
	return nil
}

func (r *recorder) end(err error) {
	if !r.on() {
		return
	}
	r.now.Micros = r.c.opts.Now().Sub(r.now.Time).Microseconds()
	r.now.Active, r.now.Epoch = r.c.active, r.c.state.Epoch
	if err != nil {
		r.now.Error = err.Error()
	}
	r.sink(r.now)
	r.now = Record{}
}

var readNames = map[zkpaths.ReadOp]string{zkpaths.GetData: "getData", zkpaths.GetChildren: "getChildren", zkpaths.Exists: "exists"}

var writeNames = map[zkpaths.WriteOp]string{zkpaths.Create: "create", zkpaths.CreateEphemeral: "create-ephemeral",
	zkpaths.CreateSequential: "create-sequential", zkpaths.Set: "set", zkpaths.Delete: "delete", zkpaths.Check: "check"}

func text(data []byte) *string {
	if data == nil {
		return nil
	}
	s := string(data)
	return &s
}

func (r *recorder) reads(reads []zkpaths.Read, nodes []zkpaths.Node) {
	if !r.on() {
		return
	}
	for i, n := range nodes {
		r.now.Reads = append(r.now.Reads, RecordedRead{Op: readNames[reads[i].Op], Path: reads[i].Path, Watch: reads[i].Watch,
			Code: n.Code.String(), Data: text(n.Data), Version: n.Stat.Version, Children: n.Children})
	}
}

func (r *recorder) writes(writes []zkpaths.Write, out []zkpaths.Outcome) {
	if !r.on() {
		return
	}
	for i, w := range writes {
		r.now.Writes = append(r.now.Writes, RecordedWrite{Op: writeNames[w.Op], Path: w.Path, Data: text(w.Data), Expect: w.Version,
			Code: out[i].Code.String(), Version: out[i].Version})
	}
}

func (r *recorder) replica(rep statemachine.Replica, to statemachine.ReplicaState) {
	if r.on() {
		r.now.Transitions = append(r.now.Transitions, Transition{Who: rep.Name().String(), From: rep.Replica(rep.Broker).String(), To: to.String()})
	}
}

func (r *recorder) request(a control.Addressed) {
	if !r.on() {
		return
	}
	rec := RecordedRequest{Kind: a.Request.Kind().String(), To: int32(a.To)}
	switch q := a.Request.(type) {
	case *control.LeaderAndISRRequest:
		for _, p := range q.Partitions {
			rec.Partitions = append(rec.Partitions, p.TopicPartition.String())
		}
	case *control.UpdateMetadataRequest:
		for _, p := range q.Partitions {
			rec.Partitions = append(rec.Partitions, p.TopicPartition.String())
		}
	case *control.StopReplicaRequest:
		for _, p := range q.Partitions {
			rec.Partitions = append(rec.Partitions, p.TopicPartition.String())
		}
	}
	r.now.Requests = append(r.now.Requests, rec)
}

// MarshalLine gives a record as one line of JSON.
func (r Record) MarshalLine() ([]byte, error) {
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}

// ---- the state-change log

// reportPartitions logs what became of partitions: one line per failure, one
// line per transition at debug level, one summary (spec/controller.md §8.3).
func (c *Controller) reportPartitions(to statemachine.PartitionState, s statemachine.Strategy, res statemachine.PartitionResult) {
	for _, ch := range res.Done {
		if ch.Unclean {
			c.stats.unclean++
			c.stateLog(ch.TopicPartition).WithFields(logrus.Fields{"leader": ch.Leadership.Leader, "leader_epoch": ch.Leadership.LeaderEpoch, "strategy": s.String()}).
				Warn("unclean leader election: the leader is from outside the ISR, what it lacks of the committed records is lost")
		}
		if c.rec.on() {
			t := Transition{Who: ch.TopicPartition.String(), From: ch.From.String(), To: ch.To.String(), Leadership: ch.Leadership, Unclean: ch.Unclean}
			if ch.Leadership != nil && !ch.IsNew {
				t.Cause = s.String()
			}
			c.rec.now.Transitions = append(c.rec.now.Transitions, t)
		}
		if debug(c.log) {
			c.stateLog(ch.TopicPartition).WithFields(logrus.Fields{"from": ch.From.String(), "to": ch.To.String(), "leadership": leadershipText(ch.Leadership)}).Debug("partition changed state")
		}
	}
	if n := len(res.Done); n > 0 && to == statemachine.OnlinePartition {
		c.log.WithFields(logrus.Fields{"controller_epoch": c.state.Epoch, "partitions": n, "to": to.String()}).Debug("partitions changed state")
	}
	c.reportFailures(res.Failures)
}

func leadershipText(l *kafka.Leadership) string {
	if l == nil {
		return ""
	}
	return l.String()
}

// reportReplicas logs what became of replicas whose ISR was touched, and failures.
func (c *Controller) reportReplicas(to statemachine.ReplicaState, done []statemachine.ISRChange, failures []statemachine.Failure) {
	if debug(c.log) {
		for _, step := range done {
			c.stateLog(step.TopicPartition).WithFields(logrus.Fields{"broker": step.Broker, "to": to.String(), "leadership": step.Leadership.String()}).Debug("replica left the ISR")
		}
	}
	c.reportFailures(failures)
}

func (c *Controller) reportFailures(failures []statemachine.Failure) {
	for _, f := range failures {
		if c.rec.on() {
			who := f.Partition.String()
			if f.Broker != kafka.NoLeader {
				who = kafka.PartitionReplica{TopicPartition: f.Partition, Broker: f.Broker}.String()
			}
			c.rec.now.Transitions = append(c.rec.now.Transitions, Transition{Who: who, From: f.From, To: f.To, Error: f.Err.Error()})
		}
		log := c.stateLog(f.Partition).WithFields(logrus.Fields{"from": f.From, "to": f.To})
		if f.Broker != kafka.NoLeader {
			log = log.WithField("broker", f.Broker)
		}
		log.WithError(f.Err).Error("state change failed")
	}
	c.stats.failures += uint64(len(failures))
}

func (c *Controller) stateLog(tp kafka.TopicPartition) logrus.FieldLogger {
	return c.log.WithFields(partitionFields(tp)).WithField("controller_epoch", c.state.Epoch)
}

// debug tells whether debug lines are wanted, so that none is built in vain.
func debug(log logrus.FieldLogger) bool {
	switch l := log.(type) {
	case *logrus.Entry:
		return l.Logger.IsLevelEnabled(logrus.DebugLevel)
	case *logrus.Logger:
		return l.IsLevelEnabled(logrus.DebugLevel)
	}
	return false
}
