package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/events"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// A controller that could not take office does not elect itself again at once,
// so that another candidate gets its chance. As long as it never takes office
// the pause doubles each time: every attempt costs an election, and an epoch.
const (
	pauseAfterGivingUp = time.Second
	longestPause       = 32 * time.Second
)

// office is what this process knows about holding /controller.
type office struct {
	claim    []byte    // payload of our own /controller
	notUntil time.Time // no candidacy before
	given    int       // how often the role was given up since the last failover that went well
	why      string    // what was told about that
	fenced   bool      // a fenceTimeout will come
}

// onStartup makes the paths an empty tree lacks and takes part in the election.
func (c *Controller) onStartup(ctx context.Context) error {
	if err := c.createPersistentPaths(ctx); err != nil {
		return err
	}
	return c.elect(ctx)
}

// createPersistentPaths creates what is missing, with null data. Brokers do
// the same; "exists" is fine (spec/controller.md §1.0).
func (c *Controller) createPersistentPaths(ctx context.Context) error {
	paths := zkpaths.PersistentPaths(c.opts.Version)
	reads := make([]zkpaths.Read, len(paths))
	for i, p := range paths {
		reads[i] = zkpaths.Read{Op: zkpaths.Exists, Path: p}
	}
	nodes, err := c.read(ctx, reads)
	if err != nil {
		return err
	}
	var writes []zkpaths.Write
	for i, n := range nodes {
		if n.Code == zkpaths.NoNode {
			writes = append(writes, zkpaths.Write{Op: zkpaths.Create, Path: paths[i]})
		}
	}
	if len(writes) == 0 {
		return nil
	}
	out, err := c.store.Write(ctx, zkpaths.Unfenced, writes)
	if err != nil {
		return err
	}
	for i, o := range out {
		if !o.OK() && o.Code != zkpaths.NodeExists {
			c.log.WithError(o.Error(writes[i].Path)).Error("cannot create a persistent path that brokers and controller need")
		}
	}
	return nil
}

// lookAtController reads /controller and re-arms the watch on it, whether it is there or not.
func (c *Controller) lookAtController(ctx context.Context) (id kafka.BrokerID, node zkpaths.Node, err error) {
	nodes, err := c.read(ctx, []zkpaths.Read{
		{Op: zkpaths.Exists, Path: zkpaths.Controller, Watch: true},
		{Op: zkpaths.GetData, Path: zkpaths.Controller},
		{Op: zkpaths.GetData, Path: zkpaths.ControllerEpoch},
	})
	if err != nil {
		return kafka.NoController, node, err
	}
	// A standby remembers the epoch as well: should the node be lost, it goes on above it.
	if epoch, err := zkpaths.DecodeEpoch(nodes[2].Data); nodes[2].Code == zkpaths.OK && err == nil {
		c.lastEpoch = max(c.lastEpoch, epoch)
	}
	node = nodes[1]
	switch node.Code {
	case zkpaths.OK:
	case zkpaths.NoNode:
		return kafka.NoController, node, nil
	default:
		return kafka.NoController, node, node.Error(zkpaths.Controller)
	}
	holder, err := zkpaths.DecodeController(node.Data)
	if err != nil {
		c.report(err) // counts as held by nobody we know: no election until it goes
		return kafka.NoController, node, nil
	}
	return holder.Broker, node, nil
}

// onControllerChange looks who is controller now. Unlike the original it also
// stands for election when the node is gone already: its deletion may have
// fallen between two watches.
func (c *Controller) onControllerChange(ctx context.Context) error {
	if err := c.maybeResign(ctx); err != nil {
		return err
	}
	if c.known != kafka.NoController {
		return nil
	}
	return c.elect(ctx)
}

func (c *Controller) onReelect(ctx context.Context) error {
	if err := c.maybeResign(ctx); err != nil {
		return err
	}
	return c.elect(ctx)
}

// maybeResign gives up the role if /controller no longer names us (spec/controller.md §3.5).
func (c *Controller) maybeResign(ctx context.Context) error {
	id, _, err := c.lookAtController(ctx)
	if err != nil {
		return err
	}
	c.known = id
	if c.active && id != c.opts.ID {
		c.log.WithField("controller", id).Info("/controller names somebody else now; resigning")
		c.resign()
		c.known = id
	}
	return nil
}

// resign drops everything that belongs to the role. It writes nothing.
func (c *Controller) resign() {
	if c.active {
		c.officeLog("resigned", logrus.Fields{"controller_epoch": c.state.Epoch})
		c.ch.Clear()
	}
	c.known = kafka.NoController
	c.clear()
}

// elect stands for election and, if it wins, takes over (spec/controller.md §3.2).
func (c *Controller) elect(ctx context.Context) error {
	if c.active {
		return nil
	}
	if wait := c.office.notUntil.Sub(c.opts.Now()); wait > 0 {
		c.after(wait, events.Reelect{})
		return nil
	}
	id, node, err := c.lookAtController(ctx)
	if err != nil {
		return err
	}
	c.known = id
	if node.Code == zkpaths.OK {
		return nil // somebody has the role; the watch tells when it is free
	}
	epoch, version, err := c.claim(ctx)
	switch {
	case errors.Is(err, zkpaths.ErrControllerMoved):
		c.log.Debug("another candidate was elected")
		return nil
	case err != nil:
		return fmt.Errorf("election: %w", err)
	}
	c.active, c.known = true, c.opts.ID
	c.state.Epoch, c.state.EpochVersion = epoch, version
	c.lastEpoch = max(c.lastEpoch, epoch)
	c.officeLog("elected controller", logrus.Fields{"controller_epoch": epoch})
	return c.takeOver(ctx)
}

// takeOver runs the failover. An error other than a lost session makes us give
// the role up: a controller that knows half its cluster is worse than none.
func (c *Controller) takeOver(ctx context.Context) error {
	err := c.failover(ctx)
	switch {
	case err == nil:
		c.office.given, c.office.why = 0, ""
		return nil
	case errors.Is(err, zkpaths.ErrControllerMoved), errors.Is(err, zkpaths.ErrFenceLost),
		errors.Is(err, zkpaths.ErrSessionExpired), ctx.Err() != nil:
		return err
	}
	if c.office.why != err.Error() {
		c.office.why = err.Error()
		c.log.WithError(err).WithField("remedy", "let this process read what the error names; it tries again by itself, at the latest "+longestPause.String()+" after that").
			Error("cannot take over; giving the role up until it can")
	}
	c.giveUp(ctx)
	return nil
}

// officeLog tells of a step into or out of office. Steps of attempts that
// repeat a failed one are details.
func (c *Controller) officeLog(message string, facts logrus.Fields) {
	log := c.log.WithFields(facts)
	if c.office.given > 0 {
		log.Debug(message)
		return
	}
	log.Info(message)
}

// claim creates /controller and raises /controller_epoch in one transaction.
// Where there is no epoch yet, a controller before 2.1 creates it with the
// first value; later ones have created it with 0 (spec/controller.md §1.3, §3.2).
func (c *Controller) claim(ctx context.Context) (epoch, version int32, err error) {
	value, at, err := c.currentEpoch(ctx)
	if err != nil {
		return 0, 0, err
	}
	nodeVersion := 2
	if c.opts.Version.Less(kafka.V3_4IV0) {
		nodeVersion = 1
	}
	c.office.claim = zkpaths.EncodeController(zkpaths.ControllerNode{Version: nodeVersion, Broker: c.opts.ID,
		Timestamp: c.opts.Now().UnixMilli(), KRaftEpoch: -1})
	epoch = value + 1
	raise := zkpaths.Write{Op: zkpaths.Set, Path: zkpaths.ControllerEpoch, Data: zkpaths.EncodeEpoch(epoch), Version: at}
	if at == noEpoch {
		raise = zkpaths.Write{Op: zkpaths.Create, Path: zkpaths.ControllerEpoch, Data: raise.Data}
	}
	writes := []zkpaths.Write{{Op: zkpaths.CreateEphemeral, Path: zkpaths.Controller, Data: c.office.claim}, raise}
	out, err := c.store.Transact(ctx, writes)
	if err != nil && !errors.Is(err, zkpaths.ErrUnknownOutcome) {
		return 0, 0, err
	}
	if err == nil && out[0].OK() && out[1].OK() {
		c.rec.writes(writes, out)
		return epoch, out[1].Version, nil
	}
	if err == nil && out[0].Code != zkpaths.NodeExists && out[1].Code != zkpaths.BadVersion && out[1].Code != zkpaths.NodeExists {
		for i, o := range out {
			if o.Code != zkpaths.Failed || o.Err != nil {
				err = errors.Join(err, o.Error(writes[i].Path))
			}
		}
		return 0, 0, err
	}
	return c.lookUpClaim(ctx, epoch)
}

// lookUpClaim settles a claim whose answer was lost, or that met a node that
// may be our own: it is ours if both nodes have what we wrote.
func (c *Controller) lookUpClaim(ctx context.Context, epoch int32) (int32, int32, error) {
	_, node, err := c.lookAtController(ctx)
	if err != nil {
		return 0, 0, err
	}
	at, err := c.readOne(ctx, zkpaths.GetData, zkpaths.ControllerEpoch, false)
	if err != nil {
		return 0, 0, err
	}
	if node.Code != zkpaths.OK || at.Code != zkpaths.OK || !bytes.Equal(node.Data, c.office.claim) {
		return 0, 0, zkpaths.ErrControllerMoved
	}
	if value, err := zkpaths.DecodeEpoch(at.Data); err != nil || value != epoch {
		return 0, 0, zkpaths.ErrControllerMoved
	}
	return epoch, at.Stat.Version, nil
}

// noEpoch is the version of a /controller_epoch that the claim has to create.
const noEpoch int32 = -1

// currentEpoch reads /controller_epoch, or creates it; before 2.1 it leaves that
// to the claim. On an empty tree it starts at 0; where there are state znodes it
// goes on above the highest controller epoch they carry, since brokers remember that one.
func (c *Controller) currentEpoch(ctx context.Context) (value, version int32, err error) {
	for range 10 {
		n, err := c.readOne(ctx, zkpaths.GetData, zkpaths.ControllerEpoch, false)
		if err != nil {
			return 0, 0, err
		}
		switch n.Code {
		case zkpaths.OK:
			value, err := zkpaths.DecodeEpoch(n.Data)
			if err != nil {
				c.report(err)
				return 0, 0, err
			}
			return value, n.Stat.Version, nil
		case zkpaths.NoNode:
		default:
			return 0, 0, n.Error(zkpaths.ControllerEpoch)
		}
		highest, err := c.highestStateEpoch(ctx)
		if err != nil {
			return 0, 0, err
		}
		start := max(highest, c.lastEpoch)
		if c.opts.Version.Less(kafka.V2_1IV0) {
			c.tellLostEpoch(start)
			return start, noEpoch, nil
		}
		w := []zkpaths.Write{{Op: zkpaths.Create, Path: zkpaths.ControllerEpoch, Data: zkpaths.EncodeEpoch(start)}}
		out, err := c.store.Write(ctx, zkpaths.Unfenced, w)
		if err != nil {
			return 0, 0, err
		}
		if !out[0].OK() && out[0].Code != zkpaths.NodeExists {
			return 0, 0, out[0].Error(zkpaths.ControllerEpoch)
		}
		if out[0].OK() {
			c.tellLostEpoch(start)
		}
	}
	return 0, 0, fmt.Errorf("%s: created and removed again and again by somebody", zkpaths.ControllerEpoch)
}

func (c *Controller) tellLostEpoch(start int32) {
	if start > 0 {
		c.log.WithField("controller_epoch", start).Warn("/controller_epoch was missing; continuing above the highest epoch known")
	}
}

// incredibleEpoch is more elections than any cluster sees. A state that tells of
// so many is damaged; to go on above it would leave no epochs for later.
const incredibleEpoch = 1 << 30

// highestStateEpoch gives the highest controller epoch in any state znode; 0 without any.
func (c *Controller) highestStateEpoch(ctx context.Context) (int32, error) {
	topics, err := c.readOne(ctx, zkpaths.GetChildren, zkpaths.BrokerTopics, false)
	if err != nil {
		return 0, err
	}
	nodes, err := c.read(ctx, readsOf(zkpaths.GetData, topics.Children, zkpaths.TopicPath, false))
	if err != nil {
		return 0, err
	}
	var tps []kafka.TopicPartition
	for i, n := range nodes {
		t, err := zkpaths.DecodeTopic(topics.Children[i], n.Data)
		if n.Code != zkpaths.OK || err != nil {
			continue
		}
		for _, p := range t.Partitions {
			tps = append(tps, kafka.TopicPartition{Topic: topics.Children[i], Partition: p.Partition})
		}
	}
	states, err := c.read(ctx, readsOf(zkpaths.GetData, tps, zkpaths.PartitionStatePath, false))
	if err != nil {
		return 0, err
	}
	highest := int32(0)
	for i, n := range states {
		if l, err := zkpaths.DecodePartitionState(tps[i], n.Data, n.Stat.Version); n.Code == zkpaths.OK && err == nil && l.ControllerEpoch < incredibleEpoch {
			highest = max(highest, l.ControllerEpoch)
		}
	}
	return highest, nil
}

// readsOf makes one read per item.
func readsOf[T any](op zkpaths.ReadOp, items []T, path func(T) string, watch bool) []zkpaths.Read {
	out := make([]zkpaths.Read, len(items))
	for i, it := range items {
		out[i] = zkpaths.Read{Op: op, Path: path(it), Watch: watch}
	}
	return out
}

// giveUp resigns and gives /controller back, so that others compete.
func (c *Controller) giveUp(ctx context.Context) {
	was := c.active
	c.resign()
	pause := min(pauseAfterGivingUp<<min(c.office.given, 10), longestPause)
	c.office.given++
	c.office.notUntil = c.opts.Now().Add(pause)
	if was {
		c.handBack(ctx)
	}
	c.after(pause, events.Reelect{})
}

// handBack deletes /controller if it is still the node we created (design
// decision D11). The epoch's version is read first and fences the delete: it may
// not be the one we were elected with, but whoever is elected in between changes it.
func (c *Controller) handBack(ctx context.Context) {
	nodes, err := c.read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: zkpaths.ControllerEpoch}, {Op: zkpaths.GetData, Path: zkpaths.Controller}})
	if err != nil || nodes[1].Code != zkpaths.OK || !bytes.Equal(nodes[1].Data, c.office.claim) {
		return
	}
	fence := zkpaths.Unfenced
	if nodes[0].Code == zkpaths.OK {
		fence = nodes[0].Stat.Version
	}
	w := []zkpaths.Write{{Op: zkpaths.Delete, Path: zkpaths.Controller, Version: nodes[1].Stat.Version}}
	out, err := c.store.Write(ctx, fence, w)
	switch {
	case err != nil:
		c.log.WithError(err).Warn("could not give /controller back; it goes with the session")
	case out[0].OK():
		c.officeLog("gave /controller back", nil)
	case out[0].Code != zkpaths.NoNode:
		c.log.WithError(out[0].Error(zkpaths.Controller)).Warn("could not give /controller back; it goes with the session")
	}
}

// onShutdown leaves cleanly: what was put off is written, then nothing more is, then the role is free.
func (c *Controller) onShutdown(ctx context.Context, e events.Shutdown) error {
	if !c.active {
		return nil
	}
	c.flushAllDirty(ctx)
	c.resign()
	if !e.KeepRole {
		c.handBack(ctx)
	}
	c.office.notUntil = c.opts.Now().Add(time.Hour) // the process is going
	return nil
}

// fencePatience is how long we wait, fenced, for the one who raised the epoch
// to be elected. The original waits for ever.
const fencePatience = 15 * time.Second

// fenceTimeout is the timer event that ends it.
type fenceTimeout struct{}

func (fenceTimeout) Kind() events.Kind { return events.ControllerChangeKind }
func (fenceTimeout) Name() string      { return "FenceTimeout" }

// suspectFence: our writes are fenced although /controller names us. Somebody
// wrote /controller_epoch by hand, or is about to be elected.
func (c *Controller) suspectFence() {
	if c.office.fenced {
		return
	}
	c.office.fenced = true
	c.log.WithField("path", zkpaths.ControllerEpoch).WithField("remedy", "delete /controller to have an election at once").
		Error("somebody else wrote /controller_epoch, which fences our writes; if nobody is elected, the role is given up")
	c.timers.After(fencePatience, fenceTimeout{})
}

// onFenceTimeout gives the role up if the fence is still not ours.
func (c *Controller) onFenceTimeout(ctx context.Context) error {
	c.office.fenced = false
	n, err := c.readOne(ctx, zkpaths.GetData, zkpaths.ControllerEpoch, false)
	if err != nil {
		return err
	}
	if n.Code == zkpaths.OK && n.Stat.Version == c.state.EpochVersion {
		return nil // another term of ours
	}
	c.log.Error("our writes are still fenced; giving the role up and electing anew")
	c.giveUp(ctx)
	return nil
}
