package brokers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers/commitlog"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Process is what a broker does to its own process. No method blocks for long.
type Process interface {
	// Listen opens or shuts the broker's port, dropping its connections.
	Listen(open bool) error
	// OpenSession begins a ZooKeeper session after CloseSession or AbandonSession.
	OpenSession() error
	// CloseSession ends the session; its registration goes at once.
	CloseSession()
	// AbandonSession leaves the session to its timeout.
	AbandonSession()
	// ExpireSession ends the session as a server does; the store opens another,
	// and whoever owns the broker reports both as events.
	ExpireSession()
}

// World is what effects are carried out against.
type World struct {
	Store      Store
	Controller ControllerClient
	Process    Process
	// Leaders reaches leaders in other processes, for brokers with logs.
	Leaders LeaderClient
	// Now is read when a registration's timestamp is made.
	Now func() time.Time
}

// Perform carries one effect out and gives the event that answers it, or nil.
// A cancelled context gives answers that say so.
func (w World) Perform(ctx context.Context, e Effect) Event {
	switch e := e.(type) {
	case SetListening:
		if err := w.Process.Listen(e.Open); err != nil {
			return broken{fmt.Errorf("opening the port: %w", err)}
		}
	case OpenSession:
		if err := w.Process.OpenSession(); err != nil {
			return broken{fmt.Errorf("opening a ZooKeeper session: %w", err)}
		}
	case CloseSession:
		w.Process.CloseSession()
	case AbandonSession:
		w.Process.AbandonSession()
	case ExpireSession:
		w.Process.ExpireSession()
	case Register:
		epoch, err := w.register(ctx, e)
		return registered{run: e.run, session: e.session, epoch: epoch, err: err}
	case WriteISRs:
		return isrsWritten{run: e.run, rows: w.writeISRs(ctx, e.Rows)}
	case Announce:
		sent, err := w.announce(ctx, e.Batches)
		return announced{run: e.run, sent: sent, err: err}
	case NotifyLogDirFailure:
		return logDirNotified{run: e.run, err: w.notifyLogDir(ctx, e)}
	case AskAlterPartition:
		answer, err := w.Controller.AlterPartition(ctx, e.Controller, e.Request)
		return alterPartitionAnswered{run: e.run, request: e.Request, answer: answer, err: err}
	case AskControlledShutdown:
		return w.controlledShutdown(ctx, e)
	case ReadTopicConfigs:
		sets, err := w.topicConfigs(ctx, e.Topics)
		return topicConfigsRead{run: e.run, topics: e.Topics, sets: sets, err: err}
	case WriteCheckpoint:
		return checkpointWritten{run: e.run, dir: e.Dir, err: e.write()}
	case FetchFrom, AskEpochEnds, AskOffsets:
		return w.askLeader(ctx, e)
	}
	return nil
}

// LeaderClient is a follower's way to the leaders of other processes, over
// Kafka's protocol. A call blocks until it is answered; an error means that no
// answer came. FetchRequest.MaxWait bounds how long a leader may wait. The
// results' records need not have been checked.
type LeaderClient interface {
	Fetch(ctx context.Context, leader kafka.Broker, r *FetchRequest) ([]FetchResult, error)
	EpochEnds(ctx context.Context, leader kafka.Broker, queries []EpochQuery) ([]EpochAnswer, error)
	// ListOffsets answers the queries in their order, as a leader answers a follower.
	ListOffsets(ctx context.Context, leader kafka.Broker, queries []OffsetQuery) ([]OffsetAnswer, error)
}

// errNoWay: there is no LeaderClient, or the metadata cache has no address.
var errNoWay = errors.New("the leader cannot be reached: it has no address here")

func (w World) askLeader(ctx context.Context, e Effect) Event {
	switch e := e.(type) {
	case FetchFrom:
		if w.Leaders == nil || len(e.To.Endpoints) == 0 {
			return e.Answer(nil, errNoWay)
		}
		results, err := w.Leaders.Fetch(ctx, e.To, e.Request.turned())
		for i := range results {
			checkFetched(&results[i])
		}
		return e.Answer(results, err)
	case AskEpochEnds:
		if w.Leaders == nil || len(e.To.Endpoints) == 0 {
			return e.Answer(nil, errNoWay)
		}
		return e.Answer(w.Leaders.EpochEnds(ctx, e.To, e.Queries))
	case AskOffsets:
		if w.Leaders == nil || len(e.To.Endpoints) == 0 {
			return e.Answer(nil, errNoWay)
		}
		answers, err := w.Leaders.ListOffsets(ctx, e.To, e.Queries)
		if err == nil && len(answers) != len(e.Queries) {
			err = fmt.Errorf("ListOffsets: %d answers to %d queries", len(answers), len(e.Queries))
		}
		return e.Answer(answers, err)
	}
	return nil
}

// turned is the request with its rows in the order in which they are to be read,
// in memory of its own.
func (r *FetchRequest) turned() *FetchRequest {
	c := *r
	c.Rows, c.first = slices.Concat(r.Rows[r.first:], r.Rows[:r.first]), 0
	return &c
}

// checkFetched checks records before they come to the loop.
func checkFetched(res *FetchResult) {
	for i, records := range res.Records {
		whole, err := commitlog.CheckReplicated(records)
		if err != nil {
			*res = FetchResult{Partition: res.Partition, Error: commitlog.Code(err), HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1}
			return
		}
		res.Records[i] = whole
	}
}

func (w World) topicConfigs(ctx context.Context, topics []string) ([]map[string]string, error) {
	reads := make([]zkpaths.Read, len(topics))
	for i, t := range topics {
		reads[i] = zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.TopicConfigPath(t)}
	}
	nodes, err := w.Store.Read(ctx, reads)
	if err != nil {
		return nil, fmt.Errorf("reading topic configurations: %w", err)
	}
	sets := make([]map[string]string, len(topics))
	for i, n := range nodes {
		if n.Code == zkpaths.NoNode {
			continue
		}
		if err := n.Error(reads[i].Path); err != nil {
			return nil, fmt.Errorf("reading topic configurations: %w", err)
		}
		// A node that nobody can read sets nothing.
		sets[i], _ = zkpaths.DecodeConfig(reads[i].Path, n.Data)
	}
	return sets, nil
}

// broken says that the process cannot go on.
type broken struct{ err error }

func (e broken) apply(b *Broker, now time.Time) {
	if b.phase != down {
		b.fail(e.err, now)
	}
}

func (w World) register(ctx context.Context, e Register) (int64, error) {
	if e.First {
		if err := makeParents(ctx, w.Store, e.with.opts.Version); err != nil {
			return 0, err
		}
		if e.with.does.checksEndpoints {
			if err := e.with.checkEndpoints(ctx, w.Store); err != nil {
				return 0, err
			}
		}
	}
	return e.with.register(ctx, w.Store, w.Now())
}

// writeISRs sets the state znodes, each on its own. A set that finds another
// version is compared with what is there: a set that was sent again after a
// lost answer meets itself (spec/broker.md §5.2).
func (w World) writeISRs(ctx context.Context, rows []ISRWrite) []isrWritten {
	writes := make([]zkpaths.Write, len(rows))
	for i, r := range rows {
		writes[i] = zkpaths.Write{Op: zkpaths.Set, Path: zkpaths.PartitionStatePath(r.Partition),
			Data: zkpaths.EncodePartitionState(r.Leadership), Version: r.Leadership.ZKVersion}
	}
	out, err := w.Store.Write(ctx, zkpaths.Unfenced, writes)
	results := make([]isrWritten, len(rows))
	var again []int
	for i, r := range rows {
		results[i] = isrWritten{ISRWrite: r}
		switch {
		case i >= len(out):
			results[i].err = err
		case out[i].Code == zkpaths.OK:
			results[i].ok, results[i].version = true, out[i].Version
		case out[i].Code == zkpaths.BadVersion:
			again = append(again, i)
		case out[i].Code == zkpaths.NoNode: // the topic was deleted
		default:
			results[i].err = out[i].Error(writes[i].Path)
		}
	}
	w.compare(ctx, results, again)
	return results
}

func (w World) compare(ctx context.Context, results []isrWritten, which []int) {
	if len(which) == 0 {
		return
	}
	reads := make([]zkpaths.Read, len(which))
	for n, i := range which {
		reads[n] = zkpaths.Read{Op: zkpaths.GetData, Path: zkpaths.PartitionStatePath(results[i].Partition)}
	}
	nodes, _ := w.Store.Read(ctx, reads) // any trouble in reading is a failed write
	for n, i := range which {
		if n >= len(nodes) || nodes[n].Code != zkpaths.OK {
			continue
		}
		r := &results[i]
		have, err := zkpaths.DecodePartitionState(r.Partition, nodes[n].Data, nodes[n].Stat.Version)
		if err == nil && sameLeadership(have, r.Leadership) {
			r.ok, r.version = true, nodes[n].Stat.Version
		}
	}
}

// sameLeadership compares all but the version; the ISR as an ordered list.
func sameLeadership(a, b kafka.Leadership) bool {
	return a.Leader == b.Leader && a.LeaderEpoch == b.LeaderEpoch && slices.Equal(a.ISR, b.ISR) &&
		a.Recovery == b.Recovery && a.ControllerEpoch == b.ControllerEpoch
}

func (w World) announce(ctx context.Context, batches [][]kafka.TopicPartition) (sent [][]kafka.TopicPartition, err error) {
	writes := make([]zkpaths.Write, len(batches))
	for i, batch := range batches {
		writes[i] = zkpaths.Write{Op: zkpaths.CreateSequential, Path: zkpaths.ISRNotificationPrefix, Data: zkpaths.EncodeISRNotification(batch)}
	}
	out, err := w.Store.Write(ctx, zkpaths.Unfenced, writes)
	for i, o := range out {
		if o.OK() {
			sent = append(sent, batches[i])
		} else if err == nil {
			err = o.Error(writes[i].Path)
		}
	}
	if err != nil {
		err = fmt.Errorf("announcing ISR changes: %w", err)
	}
	return sent, err
}

type logDirNotified struct {
	run run
	err error
}

func (e logDirNotified) apply(b *Broker, _ time.Time) {
	if e.run == b.run && e.err != nil {
		b.log.WithFields(b.fields()).WithError(e.err).Error("the failure of a log directory could not be announced")
	}
}

func (w World) notifyLogDir(ctx context.Context, e NotifyLogDirFailure) error {
	path := zkpaths.LogDirNotificationPrefix
	out, err := w.Store.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.CreateSequential, Path: path,
		Data: zkpaths.EncodeLogDirEvent(zkpaths.LogDirEvent{Broker: e.Broker, Event: zkpaths.LogDirFailure})}})
	if err == nil {
		err = out[0].Error(path)
	}
	return err
}

func (w World) controlledShutdown(ctx context.Context, e AskControlledShutdown) Event {
	answer := controlledShutdownAnswered{run: e.run}
	if e.FromZooKeeper {
		if e.Controller, answer.err = w.controllerInZooKeeper(ctx); answer.err != nil {
			return answer
		}
	}
	answer.code, answer.remaining, answer.err = w.Controller.ControlledShutdown(ctx, e.Controller, e.Broker, e.BrokerEpoch)
	return answer
}

// controllerInZooKeeper finds the controller's registration, as brokers up to
// 2.8 do (spec/control-plane.md §3.5).
func (w World) controllerInZooKeeper(ctx context.Context) (kafka.Broker, error) {
	nodes, err := w.Store.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: zkpaths.Controller}})
	if err != nil {
		return kafka.Broker{}, fmt.Errorf("reading %s: %w", zkpaths.Controller, err)
	}
	if err := nodes[0].Error(zkpaths.Controller); err != nil {
		return kafka.Broker{}, fmt.Errorf("finding the controller: %w", err)
	}
	c, err := zkpaths.DecodeController(nodes[0].Data)
	if err != nil {
		return kafka.Broker{}, fmt.Errorf("finding the controller: %w", err)
	}
	path := zkpaths.BrokerPath(c.Broker)
	if nodes, err = w.Store.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: path}}); err != nil {
		return kafka.Broker{}, fmt.Errorf("reading %s: %w", path, err)
	}
	if err := nodes[0].Error(path); err != nil {
		return kafka.Broker{}, fmt.Errorf("finding the controller: %w", err)
	}
	r, err := zkpaths.DecodeBroker(c.Broker, nodes[0].Data)
	if err != nil {
		return kafka.Broker{}, fmt.Errorf("finding the controller: %w", err)
	}
	r.Broker.Epoch = nodes[0].Stat.Czxid
	return r.Broker, nil
}
