package assembly

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sirupsen/logrus"

	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Like real brokers, emulated ones say in each of log.dirs whose it is, and refuse
// somebody else's.

// checkLogDirs refuses a log directory that is named twice, for two would keep
// one's files, and those of another broker. One that cannot be read is left to
// the broker, which goes on with its others.
func checkLogDirs(dirs []string, id int32, log logrus.FieldLogger) error {
	seen := map[string]string{}
	return eachLogDir(dirs, log, func(dir string) error {
		same := filepath.Clean(dir)
		if path, err := filepath.EvalSymlinks(dir); err == nil {
			same = path
		}
		if first, ok := seen[same]; ok {
			return misconfigured(fmt.Errorf("log.dirs: %s and %s are one folder; name each once", first, dir))
		}
		seen[same] = dir
		path, m, ok, err := readMetaProperties(dir)
		if err == nil && ok {
			err = m.CheckBroker(path, id)
		}
		return refusedUnlessIO(err)
	})
}

// claimLogDirs refuses the log directories of another cluster, and puts our
// name into those that have none.
func claimLogDirs(dirs []string, id int32, cluster string, log logrus.FieldLogger) error {
	return eachLogDir(dirs, log, func(dir string) error {
		path, m, ok, err := readMetaProperties(dir)
		if err == nil && ok {
			err = m.CheckCluster(path, cluster)
		}
		if err != nil || ok {
			return refusedUnlessIO(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("log.dirs: %w; give folders that can be made", err)
		}
		next := path + ".tmp"
		if err := os.WriteFile(next, config.MetaProperties{BrokerID: &id, ClusterID: cluster}.Encode(), 0o644); err != nil {
			return fmt.Errorf("log.dirs: %w; give folders that can be written", err)
		}
		if err := os.Rename(next, path); err != nil {
			return fmt.Errorf("log.dirs: %w", err)
		}
		return nil
	})
}

// eachLogDir does something with each directory. What a file system refuses is
// told, and an error only if none of them works.
func eachLogDir(dirs []string, log logrus.FieldLogger, do func(dir string) error) error {
	var failed []error
	for _, dir := range dirs {
		err := do(dir)
		if err == nil {
			continue
		}
		if !isIO(err) {
			return err
		}
		failed = append(failed, err)
	}
	if len(failed) > 0 && len(failed) == len(dirs) {
		return errors.Join(failed...)
	}
	for _, err := range failed {
		log.WithError(err).Error("log directory cannot be used; going on with the others")
	}
	return nil
}

func isIO(err error) bool {
	_, path := errors.AsType[*fs.PathError](err)
	_, link := errors.AsType[*os.LinkError](err)
	return path || link
}

func refusedUnlessIO(err error) error {
	if err == nil || isIO(err) {
		return err
	}
	return &Error{Refused, err}
}

func readMetaProperties(dir string) (path string, m config.MetaProperties, ok bool, err error) {
	path = filepath.Join(dir, config.MetaPropertiesFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return path, m, false, nil
	}
	if err != nil {
		return path, m, false, fmt.Errorf("log.dirs: %w; give folders that can be read", err)
	}
	m, err = config.ParseMetaProperties(path, data)
	return path, m, err == nil, err
}

// ensureClusterID gives /cluster/id, which the first broker of a cluster makes: an
// id of the kind that topics have.
func ensureClusterID(ctx context.Context, z Znodes) (string, error) {
	out, err := z.Write(ctx, zkpaths.Unfenced, []zkpaths.Write{{Op: zkpaths.Create, Path: zkpaths.Cluster},
		{Op: zkpaths.Create, Path: zkpaths.ClusterID, Data: zkpaths.EncodeClusterID(RandomTopicID().String())}})
	if err != nil {
		return "", fmt.Errorf("create %s: %w", zkpaths.ClusterID, err)
	}
	if c := out[1].Code; c != zkpaths.OK && c != zkpaths.NodeExists {
		return "", fmt.Errorf("create: %w", out[1].Error(zkpaths.ClusterID))
	}
	n, ok, err := get(ctx, z, zkpaths.ClusterID)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("%s was deleted just now; start again", zkpaths.ClusterID)
	}
	return zkpaths.DecodeClusterID(n.Data)
}
