package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/control"
	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/reassign"
	"github.com/zkcontroller/zkcontroller/statemachine"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Controller is one candidate for the role, in charge or standing by. All its
// methods but Stats run on one goroutine: Run's, or the one that calls Handle.
type Controller struct {
	opts   Options
	policy reassign.Policy
	store  Store
	ch     Channels
	timers Timers
	queue  putter
	log    logrus.FieldLogger

	state  *statemachine.Context
	batch  control.Batch
	held   int            // steps that share the batch; see together
	active bool           // in charge
	known  kafka.BrokerID // who /controller names; NoController when nobody
	ready  bool           // failover has finished

	lastEpoch   int32 // highest epoch this process was elected with or saw
	damage      damage
	damaged     []kafka.TopicPartition  // whose states were found unreadable just now
	failures    map[string]string       // by event: the last failure told
	again       map[events.Event]func() // looks that will be repeated, and what takes them back
	dirty       dirtyTopics
	open        unconfirmed
	undeletable undeletable
	watches     topicWatches
	configs     configWatch
	stopTimer   func()
	rec         *recorder
	stats       counters
	office      office
	clusterID   string // once it was read
	features    finalized
}

// putter is where the controller queues events for itself.
type putter interface{ Put(events.Event) }

// New makes a controller that does nothing until an events.Startup comes.
// queue takes the events it sends itself.
func New(opts Options, store Store, ch Channels, timers Timers, queue putter, log logrus.FieldLogger) *Controller {
	c := &Controller{
		opts: opts, policy: reassign.PolicyOf(opts.Version), store: store, ch: ch, timers: timers, queue: queue,
		log:   log.WithField("controller_id", opts.ID),
		state: statemachine.NewContext(opts.Version.AtLeast(kafka.V3_2IV0), opts.DeleteTopics),
		known: kafka.NoController,
	}
	c.rec = newRecorder(c)
	c.clear()
	return c
}

// SetStore replaces the session. It may be called only between two events,
// after Expire was processed.
func (c *Controller) SetStore(s Store) { c.store = s }

// Active tells whether this process is the controller.
func (c *Controller) Active() bool { return c.active }

// State gives the memory, to be read between two events (see events.Inspect).
func (c *Controller) State() *statemachine.Context { return c.state }

// Run processes events until ctx is over or the queue is closed.
func (c *Controller) Run(ctx context.Context, q *Queue) {
	for {
		batch, waited, ok := q.Next(ctx)
		if !ok {
			return
		}
		c.stats.waited(waited)
		c.HandleTogether(ctx, batch)
	}
}

// Handle processes one event to its end.
func (c *Controller) Handle(ctx context.Context, ev events.Event) {
	c.HandleTogether(ctx, []events.Event{ev})
}

// HandleTogether processes events that Queue.Next gave together.
func (c *Controller) HandleTogether(ctx context.Context, batch []events.Event) {
	start := c.opts.Now()
	c.stats.begin(batch[0].Kind())
	c.rec.begin(batch)
	err := c.dispatch(ctx, batch)
	c.held = 0
	if err == nil || !isFatal(err) {
		c.send() // what was written before an error is told all the same
	}
	c.batch.Clear()
	if err != nil {
		c.failed(ctx, batch, err)
	} else {
		c.succeeded(batch)
	}
	c.flushDirty(ctx)
	c.rec.end(err)
	c.stats.end(batch[0], c.opts.Now().Sub(start))
}

// failed does what an error asks for (spec/controller.md §2.1; design decisions D10, D11).
func (c *Controller) failed(ctx context.Context, batch []events.Event, err error) {
	ev := batch[0]
	log := c.log.WithFields(logrus.Fields{"event": ev.Name(), "controller_epoch": c.state.Epoch})
	switch {
	case errors.Is(err, zkpaths.ErrControllerMoved):
		log.WithError(err).Info("another controller was elected; resigning")
		if err := c.maybeResign(ctx); err != nil {
			log.WithError(err).Warn("cannot read /controller; resigned all the same")
			c.resign()
		}
		if c.active { // /controller names us still, so nobody was elected
			c.suspectFence()
		}
	case errors.Is(err, zkpaths.ErrFenceLost):
		log.WithError(err).Error("nothing can be written safely: giving the role up and electing anew (the epoch continues above every state znode's)")
		c.giveUp(ctx)
	case errors.Is(err, zkpaths.ErrSessionExpired), errors.Is(err, context.Canceled):
		log.WithError(err).Warn("event given up: the ZooKeeper session is over")
	default:
		// The failed read may have been the one that re-arms a watch, so looks at
		// ZooKeeper are repeated; the same failure is told once.
		for _, ev := range batch {
			if isLook(ev) {
				c.lookAgain(ev)
			}
		}
		if errors.Is(err, errDenied) {
			return // reported
		}
		if c.failures[ev.Name()] == err.Error() {
			return
		}
		c.failures[ev.Name()] = err.Error()
		log.WithError(err).Error("event failed; the state it concerned stays as it was")
	}
}

// succeeded forgets what earlier failures of the same events left to do and to tell.
func (c *Controller) succeeded(batch []events.Event) {
	delete(c.failures, batch[0].Name())
	if len(c.again) == 0 {
		return
	}
	for _, ev := range batch {
		if isLook(ev) {
			delete(c.again, ev)
		}
	}
}

// lookAgainAfter is when a failed look at ZooKeeper is repeated.
const lookAgainAfter = time.Second

// lookAgain repeats a look later: once, however many notices ask for it meanwhile.
func (c *Controller) lookAgain(look events.Event) {
	if stop := c.again[look]; stop != nil {
		stop()
	}
	c.again[look] = c.timers.After(lookAgainAfter, look)
}

// isLook tells whether an event only says where to look, so that it may come again.
func isLook(ev events.Event) bool {
	switch ev.(type) {
	case events.BrokerChange, events.BrokerModifications, events.TopicChange, events.PartitionModifications, events.TopicDeletion,
		events.ISRChangeNotification, events.LogDirEvent, events.ConfigChange, events.ControllerChange, events.Reelect, events.Startup,
		events.ZkPartitionReassignment, events.PreferredElectionZnode, events.PartitionReassignmentISRChange,
		events.UncleanElectionEnabled, events.TopicUncleanElectionEnabled, armTopics:
		return true
	}
	return false
}

func (c *Controller) dispatch(ctx context.Context, batch []events.Event) error {
	if reqs, ok := alterPartitions(batch); ok {
		return c.onAlterPartition(ctx, reqs)
	}
	if tps, ok := movedStates(batch); ok && c.active {
		return c.onReassignmentISRChange(ctx, tps)
	}
	switch e := batch[0].(type) {
	case events.Startup:
		return c.onStartup(ctx)
	case events.ControllerChange:
		return c.onControllerChange(ctx)
	case events.Reelect:
		return c.onReelect(ctx)
	case events.Expire:
		c.resign()
		return nil
	case events.Shutdown:
		return c.onShutdown(ctx, e)
	case events.Inspect:
		e.Look()
		return nil
	case events.Describe:
		return c.onDescribe(ctx, e)
	}
	if !c.active {
		Preempt(batch[0])
		return nil
	}
	return c.dispatchActive(ctx, batch[0])
}

// dispatchActive has the events that only the one in charge processes.
func (c *Controller) dispatchActive(ctx context.Context, ev events.Event) error {
	switch e := ev.(type) {
	case events.BrokerChange:
		return c.onBrokerChange(ctx)
	case events.BrokerModifications:
		return c.onBrokerModifications(ctx, e.Broker)
	case events.TopicChange:
		return c.onTopicChange(ctx)
	case events.PartitionModifications:
		return c.onPartitionModifications(ctx, e.Topic)
	case events.TopicDeletion:
		return c.onTopicDeletion(ctx)
	case events.ISRChangeNotification:
		return c.onISRChangeNotification(ctx)
	case events.LogDirEvent:
		return c.onLogDirEvent(ctx)
	case events.ConfigChange:
		return c.onConfigChange(ctx)
	case events.AutoPreferredElection:
		return c.onAutoPreferredElection(ctx)
	case events.UncleanElectionEnabled:
		return c.onUncleanElectionEnabled(ctx, "")
	case events.TopicUncleanElectionEnabled:
		return c.onUncleanElectionEnabled(ctx, e.Topic)
	case events.PartitionReassignmentISRChange:
		return c.onReassignmentISRChange(ctx, []kafka.TopicPartition{e.Partition})
	case events.ZkPartitionReassignment:
		return c.onZkPartitionReassignment(ctx, e.Changed)
	case events.PreferredElectionZnode:
		return c.onPreferredElectionZnode(ctx, e.Changed)
	case events.LeaderAndISRResponse:
		return c.onLeaderAndISRResponse(ctx, e)
	case events.UpdateMetadataResponse:
		return c.onUpdateMetadataResponse(ctx, e)
	case events.StopReplicaResponse:
		return c.onStopReplicaResponse(ctx, e)
	case armTopics:
		return c.onArmTopics(ctx)
	case confirmTimeout:
		return c.onConfirmTimeout(ctx)
	case deletionRetry:
		return c.onDeletionRetry(ctx)
	case fenceTimeout:
		return c.onFenceTimeout(ctx)
	case flushTopics:
		return nil // the flush follows every event
	}
	return c.dispatchRequest(ctx, ev)
}

// dispatchRequest has the requests of brokers and clients. Each is answered,
// also when it fails half-way.
func (c *Controller) dispatchRequest(ctx context.Context, ev events.Event) error {
	switch e := ev.(type) {
	case events.ControlledShutdown:
		return c.onControlledShutdown(ctx, e)
	case events.AlterReassignments:
		return c.onAlterReassignments(ctx, e)
	case events.ListReassignments:
		c.onListReassignments(e)
		return nil
	case events.ElectLeaders:
		return c.onElectLeaders(ctx, e)
	case events.AllocateProducerIDs:
		return c.onAllocateProducerIDs(ctx, e)
	case events.CreateTopics:
		return c.onCreateTopics(ctx, e)
	case events.CreatePartitions:
		return c.onCreatePartitions(ctx, e)
	case events.DeleteTopics:
		return c.onDeleteTopics(ctx, e)
	}
	return fmt.Errorf("no handler for event %s", ev.Name())
}

// after queues an event later and remembers how to take it back.
func (c *Controller) after(d time.Duration, ev events.Event) {
	if c.stopTimer != nil {
		c.stopTimer()
	}
	c.stopTimer = c.timers.After(d, ev)
}

// clear empties everything that belongs to a term in office.
func (c *Controller) clear() {
	c.state.Reset()
	c.batch.Clear()
	c.active, c.ready = false, false
	c.damage, c.damaged = damage{}, nil
	c.failures = map[string]string{}
	for _, stop := range c.again {
		stop()
	}
	c.again = map[events.Event]func(){}
	c.dirty, c.open, c.undeletable = dirtyTopics{}, unconfirmed{}, undeletable{}
	c.watches = topicWatches{}
	c.configs = configWatch{}
	if c.stopTimer != nil {
		c.stopTimer()
		c.stopTimer = nil
	}
}
