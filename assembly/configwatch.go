package assembly

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

const (
	// configChangeKept is how long brokers leave an announcement of a changed
	// configuration, as Kafka's do.
	configChangeKept = 15 * time.Minute
	// configRetry is how long to wait after a look that failed.
	configRetry = time.Second
)

// configWatch follows /config/changes for one broker with logs: it tells the
// broker which topics to read again, or what was changed for the broker itself, and
// removes what is old (Kafka's ZkNodeChangeNotificationListener).
type configWatch struct {
	news chan struct{} // has one token when the children may have changed
	last int64         // the highest sequence number that was looked at
}

func newConfigWatch() *configWatch { return &configWatch{news: make(chan struct{}, 1), last: -1} }

// notice is called for every watch that fires; it does not block.
func (w *configWatch) notice(n zkpaths.Notice) {
	if w == nil || n.Path != zkpaths.ConfigChanges {
		return
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// watchConfigs runs until the broker's process ends.
func (e *emulated) watchConfigs() {
	if e.configs == nil {
		return
	}
	e.tasks.Go(func() {
		for e.ctx.Err() == nil {
			s, err := e.current(e.ctx)
			if err != nil {
				return
			}
			again, err := e.look(e.ctx, s)
			switch {
			case err != nil: // the session may be over, though nobody has opened the next
				if e.ctx.Err() == nil {
					e.log.WithError(err).Debug("changed configurations")
				}
				pause(e.ctx, configRetry)
			case again:
				pause(e.ctx, configRetry)
			default:
				e.configs.wait(e.ctx, s)
			}
		}
	})
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// wait ends with news or with the session.
func (w *configWatch) wait(ctx context.Context, s *zkSession) {
	select {
	case <-ctx.Done():
	case <-w.news:
	case <-s.left:
	case <-s.Expired():
	}
}

// look lists the announcements, arms the watch, and follows those that are new.
// again says that the node is not there yet, so that nothing watches it.
func (e *emulated) look(ctx context.Context, s *zkSession) (again bool, err error) {
	w := e.configs
	nodes, err := s.Session.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetChildren, Path: zkpaths.ConfigChanges, Watch: true}})
	if err != nil {
		return false, err
	}
	if nodes[0].Code == zkpaths.NoNode {
		return true, nil
	}
	if err := nodes[0].Error(zkpaths.ConfigChanges); err != nil {
		return false, err
	}
	var paths []string
	var reads []zkpaths.Read
	last := w.last
	for _, name := range nodes[0].Children {
		path := zkpaths.ConfigChangePath(name)
		n, ok := zkpaths.SequenceNumber(path, zkpaths.ConfigChangePrefix)
		if !ok || int64(n) <= w.last {
			continue
		}
		last = max(last, int64(n))
		paths = append(paths, path)
		reads = append(reads, zkpaths.Read{Op: zkpaths.GetData, Path: path})
	}
	if len(reads) == 0 {
		return false, nil
	}
	if nodes, err = s.Session.Read(ctx, reads); err != nil {
		return false, err
	}
	topics, ours := changed(paths, nodes, e.plan.Broker.ID)
	if ours {
		d, err := e.readDefaults(ctx, s)
		if err != nil {
			return false, err
		}
		e.node.Post(d)
	}
	w.last = last
	if len(topics) > 0 {
		e.node.Post(brokers.TopicConfigsChanged{Topics: topics})
	}
	return false, w.purge(ctx, s, paths, nodes)
}

// takeDefaults lets the broker begin with what was changed at run time.
func (e *emulated) takeDefaults(ctx context.Context) {
	if e.plan.Broker.Logs == nil {
		return
	}
	logs := *e.plan.Broker.Logs
	if logs.Topic == (brokers.TopicConfig{}) {
		logs.Topic = brokers.DefaultTopicConfig()
	}
	e.static = brokers.DefaultsChanged{Topic: logs.Topic, Fetchers: max(1, logs.Fetchers)}
	d, err := e.readDefaults(ctx, e)
	if err != nil {
		e.log.WithError(err).Warn("what was changed at run time is not known: the broker begins without it")
		return
	}
	logs.Topic, logs.Fetchers = d.Topic, d.Fetchers
	e.plan.Broker.Logs = &logs
}

// readDefaults gives what the static configuration and the changes at run time come
// to, for all brokers and for this one (spec/admin-api.md §7.1).
func (e *emulated) readDefaults(ctx context.Context, z interface {
	Read(context.Context, []zkpaths.Read) ([]zkpaths.Node, error)
}) (brokers.DefaultsChanged, error) {
	paths := []string{allBrokers, zkpaths.BrokerConfigPath(e.plan.Broker.ID)}
	nodes, err := z.Read(ctx, []zkpaths.Read{{Op: zkpaths.GetData, Path: paths[0]}, {Op: zkpaths.GetData, Path: paths[1]}})
	if err != nil {
		return brokers.DefaultsChanged{}, fmt.Errorf("read what is configured for brokers: %w", err)
	}
	var sets [2]map[string]string
	for i, path := range paths {
		if sets[i], err = configOf(path, nodes[i]); err != nil {
			e.log.WithError(err).Warn("a configuration at run time has no effect")
		}
	}
	if len(sets[0])+len(sets[1]) == 0 {
		return e.static, nil
	}
	logs := e.plan.Settings.Over(sets[0], sets[1]).Logs()
	return brokers.DefaultsChanged{Topic: logs.Topic, Fetchers: logs.Fetchers}, nil
}

// changed gives the topics that announcements name, and whether one names a broker
// or all of them. One that cannot be read hurts only itself.
func changed(paths []string, nodes []zkpaths.Node, self kafka.BrokerID) (topics []string, ours bool) {
	for i, n := range nodes {
		if n.Code != zkpaths.OK {
			continue
		}
		c, err := zkpaths.DecodeConfigChange(paths[i], n.Data)
		if err != nil {
			continue
		}
		kind, name, _ := strings.Cut(c.EntityPath, "/")
		switch {
		case kind == "brokers":
			ours = ours || name == zkpaths.DefaultEntity || name == strconv.Itoa(int(self))
		case kind == "topics":
			if name, err := zkpaths.DesanitizeEntity(name); err == nil {
				topics = append(topics, name)
			}
		}
	}
	return topics, ours
}

// purge removes the announcements that everybody must have seen.
func (w *configWatch) purge(ctx context.Context, s *zkSession, paths []string, nodes []zkpaths.Node) error {
	old := time.Now().Add(-configChangeKept).UnixMilli()
	var writes []zkpaths.Write
	for i, n := range nodes {
		if n.Code == zkpaths.OK && n.Stat.Mtime < old {
			writes = append(writes, zkpaths.Write{Op: zkpaths.Delete, Path: paths[i], Version: n.Stat.Version})
		}
	}
	if len(writes) == 0 {
		return nil
	}
	if _, err := s.Session.Write(ctx, zkpaths.Unfenced, writes); err != nil {
		return fmt.Errorf("remove old announcements below %s: %w", zkpaths.ConfigChanges, err)
	}
	return nil // others may have removed them first
}
