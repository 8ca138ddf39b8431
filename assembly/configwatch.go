package assembly

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/zkcontroller/zkcontroller/brokers"
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
// broker which topics to read again, and removes what is old (Kafka's
// ZkNodeChangeNotificationListener).
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
			again, err := e.configs.look(e.ctx, s, e.node)
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
func (w *configWatch) look(ctx context.Context, s *zkSession, node *brokers.Node) (again bool, err error) {
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
	w.last = last
	if topics := changedTopics(paths, nodes); len(topics) > 0 {
		node.Post(brokers.TopicConfigsChanged{Topics: topics})
	}
	return false, w.purge(ctx, s, paths, nodes)
}

// changedTopics gives the topics that announcements name. One that cannot be
// read hurts only itself.
func changedTopics(paths []string, nodes []zkpaths.Node) []string {
	var topics []string
	for i, n := range nodes {
		if n.Code != zkpaths.OK {
			continue
		}
		c, err := zkpaths.DecodeConfigChange(paths[i], n.Data)
		if err != nil {
			continue
		}
		if name, ok := strings.CutPrefix(c.EntityPath, "topics/"); ok {
			if name, err := zkpaths.DesanitizeEntity(name); err == nil {
				topics = append(topics, name)
			}
		}
	}
	return topics
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
