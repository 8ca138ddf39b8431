package assembly

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/zkcontroller/zkcontroller/config"
	"github.com/zkcontroller/zkcontroller/zkpaths"
)

// Like real brokers, emulated ones say in each of log.dirs whose it is, and refuse
// somebody else's.

// checkLogDirs refuses the log directories of another broker.
func checkLogDirs(dirs []string, id int32) error {
	for _, dir := range dirs {
		path, m, ok, err := readMetaProperties(dir)
		if err == nil && ok {
			err = m.CheckBroker(path, id)
		}
		if err != nil {
			return &Error{Refused, err}
		}
	}
	return nil
}

// claimLogDirs refuses the log directories of another cluster, and puts our
// name into those that have none.
func claimLogDirs(dirs []string, id int32, cluster string) error {
	for _, dir := range dirs {
		path, m, ok, err := readMetaProperties(dir)
		if err != nil {
			return &Error{Refused, err}
		}
		if ok {
			if err := m.CheckCluster(path, cluster); err != nil {
				return &Error{Refused, err}
			}
			continue
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
	}
	return nil
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
